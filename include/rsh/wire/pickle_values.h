/* SPDX-License-Identifier: Apache-2.0 */
/* wire/pickle_values.h - reads the content of a pickle as plain values.  A
 * pickle is a program for a stack machine.
 *
 * A class is only a name.  A call is not made: it becomes a record of the
 * callee and the arguments.  A value may be in several places, also in itself,
 * so a caller must limit the depth of a recursion.
 *
 * Values and their containers take memory in proportion to the pickle. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rsh/util/arena.h"
#include "rsh/util/error.h"
#include "rsh/wire/ckpt.h"

#define RSH_PICKLE_WINDOW 65536

/* This is a place in the file, from which instructions are read. */
struct rsh_pickle {
	const struct rsh_byte_source *src;
	struct rsh_error *err;
	uint64_t at;

	uint64_t window_at;
	size_t n_window;
	uint8_t window[RSH_PICKLE_WINDOW];
};

enum rsh_pickle_kind {
	RSH_PV_OTHER, /* bytes, a set, an integer of more than 64 bits */
	RSH_PV_NONE,
	RSH_PV_BOOL,
	RSH_PV_NUMBER,
	RSH_PV_REAL,
	RSH_PV_TEXT,
	RSH_PV_TUPLE,
	RSH_PV_LIST,
	RSH_PV_DICT,
	RSH_PV_CLASS,
	RSH_PV_OBJECT,
};

struct rsh_pickle_value {
	uint8_t kind; /* enum rsh_pickle_kind */
	uint32_t n;   /* bytes of the text, items of the tuple */
	union {
		int64_t number;
		double real;
		const char *text; /* ends in a NUL; may have others */
		const struct rsh_pickle_value *items;
		struct rsh_pickle_list *list;
		const struct rsh_pickle_class *class;
		struct rsh_pickle_object *object;
	};
};

/* The values of a dictionary are key, value, key, value, ... */
struct rsh_pickle_list {
	struct rsh_pickle_value *values;
	uint32_t n, cap;
	uint32_t seen; /* as of an object */
	bool entered;  /* for a caller's recursion: it is looking at it */
};

struct rsh_pickle_class {
	const char *module, *name;
};

struct rsh_pickle_object {
	uint64_t at; /* offset at which it is made */
	/* The callee and its arguments; without a name if the callee is not a
	 * class.  NULL: the object is a persistent id, which is in args. */
	const struct rsh_pickle_class *class;
	struct rsh_pickle_value args;
	struct rsh_pickle_value state; /* RSH_PV_NONE: it has none */
	/* Items that were put into it, as into a class derived from list or
	 * dict. */
	struct rsh_pickle_list items;
	bool is_new; /* an instance, made without its constructor */
	/* For a caller that looks at each object once. */
	uint32_t seen;
};

/* This is a call that Python would make for REDUCE or NEWOBJ. */
struct rsh_pickle_call {
	uint64_t at; /* of the instruction */
	const struct rsh_pickle_value *callee;
	const struct rsh_pickle_value *args; /* a tuple */
	/* NEWOBJ: makes an instance without calling its constructor */
	bool is_new;
};

/* These rules say which pickles a reader accepts. */
struct rsh_pickle_rules {
	bool persistent_ids; /* the pickle may contain persistent ids */
	bool goes_on;        /* data may follow the pickle */
	/* The pickle may contain what only objects of programs need: POP, sets,
	 * long bytes, texts of Python 2. */
	bool any_object;
	void *ctx;
	/* This is called for every call, even if its result is not used. It may
	 * put a value into *out; otherwise the call becomes an object. A result
	 * other than 0 ends the reading.  NULL: all calls become objects. */
	int (*call)(void *ctx, const struct rsh_pickle_call *c,
		    struct rsh_pickle_value *out);
	/* This is called for every persistent id. NULL: all are accepted. */
	int (*persistent)(void *ctx, uint64_t at,
			  const struct rsh_pickle_value *id);
};

/* Reads the pickle that begins at p->at.  It must end at the end of its source
 * unless rules allow data after it.  Its values are allocated in the arena.
 * Only the instructions that torch and HyperParallel write are supported.
 * Returns 0, -ENOMEM, the error of pread_fn or of a rule, or -EBADMSG, with a
 * sentence. */
int rsh_pickle_values(struct rsh_pickle *p,
		      const struct rsh_pickle_rules *rules,
		      struct rsh_arena *arena, struct rsh_pickle_value *out);

/* Returns whether a value is this text. */
bool rsh_pickle_is_text(const struct rsh_pickle_value *v, const char *text);
/* Returns whether a value is this class. */
bool rsh_pickle_is_class(const struct rsh_pickle_value *v, const char *module,
			 const char *name);
/* Returns the value of a key, or the last one if the key occurs several times.
 * Returns NULL if there is none, or if v is NULL or not a dictionary. */
const struct rsh_pickle_value *
rsh_pickle_find(const struct rsh_pickle_value *v, const char *key);
/* Returns the items of a tuple or a list, and their number; NULL: v, which may
 * be NULL, is neither. */
const struct rsh_pickle_value *
rsh_pickle_items(const struct rsh_pickle_value *v, uint32_t *n);
/* Sets *out to a number from 0 to max; false: v, which may be NULL, is none. */
bool rsh_pickle_number(const struct rsh_pickle_value *v, uint64_t max,
		       uint64_t *out);
