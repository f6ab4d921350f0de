/* SPDX-License-Identifier: Apache-2.0 */
/* wire/pickle.h - the instructions of a pickle, one after the other.
 *
 * A pickle is a program for a machine with a stack.  Nothing is built or called
 * here: an instruction is read and stepped over. */
#ifndef RSH_WIRE_PICKLE_H
#define RSH_WIRE_PICKLE_H

#include <stdbool.h>
#include <stdint.h>

#include "rsh/util/error.h"
#include "rsh/wire/ckpt.h"

#define RSH_PICKLE_WINDOW 65536
/* Longer strings have no hash. */
#define RSH_PICKLE_TEXT_MAX 64
/* `pops` has this value if an instruction takes all down to the last mark. */
#define RSH_PICKLE_TO_MARK 255

enum rsh_pickle_instruction {
	RSH_PICKLE_MARK = '(',
	RSH_PICKLE_STOP = '.',
	RSH_PICKLE_DUP = '2',
	RSH_PICKLE_GLOBAL = 'c',
	RSH_PICKLE_STACK_GLOBAL = 0x93,
	RSH_PICKLE_TUPLE = 't',
};

/* This says what an instruction reads or writes in the memo. */
enum rsh_pickle_memo {
	RSH_PICKLE_NO_MEMO,
	RSH_PICKLE_GET,
	RSH_PICKLE_PUT,
	RSH_PICKLE_MEMOIZE, /* puts behind the last place */
};

/* A step is one instruction. */
struct rsh_pickle_step {
	uint8_t instruction;
	uint8_t pops; /* values that it takes from the stack */
	uint8_t pushes;
	uint8_t memo; /* enum rsh_pickle_memo */
	bool is_number;
	bool is_text;
	uint64_t number; /* the value, also if negative, or the place in the
			  * memo */
	uint64_t hash;   /* of the text, or of GLOBAL's name */
	uint64_t at;     /* of the instruction */
	uint64_t n_text; /* so many bytes at its end are a text of any length,
			  * or the two lines of GLOBAL */
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

/* Reads the next instruction.  Returns 0, -EBADMSG where there is none, or what
 * pread_fn gave, with a sentence. */
int rsh_pickle_next(struct rsh_pickle *p, struct rsh_pickle_step *out);
/* Copies the text of the step that was read last. */
int rsh_pickle_text(struct rsh_pickle *p, const struct rsh_pickle_step *s,
		    char *to);
/* Moves behind the end of a pickle. */
int rsh_pickle_skip(struct rsh_pickle *p);
/* Returns the hash that a step has for this text. */
uint64_t rsh_pickle_hash(const char *text);

#endif
