/* SPDX-License-Identifier: Apache-2.0 */
/* wire/pickle_emit.h - writes pickles of protocol 2: the instructions that
 * build texts, numbers, lists, dictionaries and objects.
 *
 * After a failure (no memory, or the buffer is full) nothing more is written
 * and `failed` is set.  One thread writes a pickle. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* These instructions have no operand. */
enum rsh_pickle_op {
	RSH_PICKLE_OP_MARK = '(',
	RSH_PICKLE_OP_TUPLE = 't', /* of all values above the mark */
	RSH_PICKLE_OP_EMPTY_TUPLE = ')',
	RSH_PICKLE_OP_EMPTY_LIST = ']',
	RSH_PICKLE_OP_APPENDS = 'e', /* all values above the mark */
	RSH_PICKLE_OP_EMPTY_DICT = '}',
	RSH_PICKLE_OP_SETITEMS = 'u', /* all values above the mark */
	RSH_PICKLE_OP_NONE = 'N',
	RSH_PICKLE_OP_TRUE = 0x88,
	RSH_PICKLE_OP_FALSE = 0x89,
	RSH_PICKLE_OP_REDUCE = 'R',
	RSH_PICKLE_OP_NEWOBJ = 0x81,
	RSH_PICKLE_OP_BUILD = 'b',
	RSH_PICKLE_OP_PERSID = 'Q',
};

struct rsh_pickle_out {
	uint8_t *data;
	size_t n, cap;
	bool fixed;      /* the caller owns `data`, and it does not grow */
	bool failed;
	uint32_t n_memo; /* number of values in the memo */
};

void rsh_pickle_begin(struct rsh_pickle_out *o);
void rsh_pickle_end(struct rsh_pickle_out *o);
/* Frees the bytes, unless the caller owns them. */
void rsh_pickle_clear(struct rsh_pickle_out *o);

void rsh_pickle_put(struct rsh_pickle_out *o, enum rsh_pickle_op op);
void rsh_pickle_put_number(struct rsh_pickle_out *o, uint64_t v);
void rsh_pickle_put_signed(struct rsh_pickle_out *o, int64_t v);
void rsh_pickle_put_real(struct rsh_pickle_out *o, double v);
void rsh_pickle_put_text(struct rsh_pickle_out *o, const char *s, size_t n);
void rsh_pickle_put_global(struct rsh_pickle_out *o, const char *module,
			   const char *name);
/* Stores the last value in the memo, and returns its number there. */
uint32_t rsh_pickle_remember(struct rsh_pickle_out *o);
/* Puts a value of the memo. */
void rsh_pickle_recall(struct rsh_pickle_out *o, uint32_t number);
