/* SPDX-License-Identifier: Apache-2.0 */
/* wire/pickle.h - reads the instructions of a pickle one by one.
 *
 * A pickle is a program for a stack machine.  These functions do not build or
 * call anything: they only read instructions. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "rsh/util/error.h"
#include "rsh/wire/ckpt.h"

#define RSH_PICKLE_WINDOW 65536
/* `pops` has this value if an instruction pops all values above the last
 * mark. */
#define RSH_PICKLE_TO_MARK 255

enum rsh_pickle_instruction {
	RSH_PICKLE_MARK = '(',
	RSH_PICKLE_STOP = '.',
	RSH_PICKLE_DUP = '2',
	RSH_PICKLE_GLOBAL = 'c',
	RSH_PICKLE_STACK_GLOBAL = 0x93,
	RSH_PICKLE_TUPLE = 't',
};

/* This says how an instruction uses the memo. */
enum rsh_pickle_memo {
	RSH_PICKLE_NO_MEMO,
	RSH_PICKLE_GET,
	RSH_PICKLE_PUT,
	RSH_PICKLE_MEMOIZE, /* stores at the first free place */
};

/* A step is one instruction. */
struct rsh_pickle_step {
	uint8_t instruction;
	uint8_t pops; /* number of values that it pops */
	uint8_t pushes;
	uint8_t memo; /* enum rsh_pickle_memo */
	bool is_number;
	/* the value, also if negative, or the place in the memo */
	uint64_t number;
	uint64_t at;     /* offset of the instruction */
	/* number of bytes at the end of the instruction that are a text of any
	 * length, or the two lines of GLOBAL */
	uint64_t n_text;
};

/* This is a place in the file, from which instructions are read. */
struct rsh_pickle {
	const struct rsh_byte_source *src;
	struct rsh_error *err;
	uint64_t at;

	uint64_t window_at;
	size_t n_window;
	uint8_t window[RSH_PICKLE_WINDOW];
};

/* Reads the next instruction.  Returns 0, or with a sentence -EBADMSG if there
 * is no valid one, or the error of pread_fn. */
int rsh_pickle_next(struct rsh_pickle *p, struct rsh_pickle_step *out);
/* Copies the text of the step that was read last. */
int rsh_pickle_text(struct rsh_pickle *p, const struct rsh_pickle_step *s,
		    char *to);
