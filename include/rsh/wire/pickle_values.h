/* SPDX-License-Identifier: Apache-2.0 */
/* wire/pickle_values.h - what a pickle says, as plain values.
 *
 * Classes are names.  What would be made by a call is a record of what would be
 * called and its arguments, whatever it is.  A value may be in several places,
 * also in itself: a caller has to bound how deep it goes.
 *
 * Values and their containers take memory in proportion to the pickle. */
#ifndef RSH_WIRE_PICKLE_VALUES_H
#define RSH_WIRE_PICKLE_VALUES_H

#include <stddef.h>

#include "rsh/util/arena.h"
#include "rsh/wire/pickle.h"

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

/* Of a dictionary the values are key, value, key, value, ... */
struct rsh_pickle_list {
	struct rsh_pickle_value *values;
	uint32_t n, cap;
};

struct rsh_pickle_class {
	const char *module, *name;
};

struct rsh_pickle_object {
	uint64_t at; /* where it is made */
	/* What was called with which arguments; NULL is what is no class, or a
	 * persistent id, which is then all of the arguments. */
	const struct rsh_pickle_class *class;
	struct rsh_pickle_value args;
	struct rsh_pickle_value state; /* RSH_PV_NONE: it has none */
};

/* What Python would call, of REDUCE and NEWOBJ. */
struct rsh_pickle_call {
	uint64_t at; /* of the instruction */
	const struct rsh_pickle_value *callee;
	const struct rsh_pickle_value *args; /* a tuple */
	bool is_new; /* NEWOBJ: an instance is made without its constructor */
};

/* What a reader says of the pickles that it takes. */
struct rsh_pickle_rules {
	bool persistent_ids; /* may it have any? */
	bool goes_on;        /* may something follow the pickle? */
	/* May it have what only objects of programs need: POP, sets, long
	 * bytes, texts of Python 2? */
	bool any_object;
	void *ctx;
	/* Gets every call, also one whose result is not used, and may put a
	 * value into *out; else the call is an object. A result other than 0
	 * ends the reading.  NULL: all calls are objects. */
	int (*call)(void *ctx, const struct rsh_pickle_call *c,
		    struct rsh_pickle_value *out);
	/* Gets every persistent id. NULL: all are accepted. */
	int (*persistent)(void *ctx, uint64_t at,
			  const struct rsh_pickle_value *id);
};

/* Reads the pickle from p->at on, to the end of its source unless it may go on;
 * its values live in the arena.  Only instructions that torch and HyperParallel
 * write are known.  Returns 0, -ENOMEM, what pread_fn or the rules gave, or
 * -EBADMSG, with a sentence. */
int rsh_pickle_values(struct rsh_pickle *p,
		      const struct rsh_pickle_rules *rules,
		      struct rsh_arena *arena, struct rsh_pickle_value *out);

/* Writes a value as JSON (from malloc).  Returns 0, -ENOMEM, or -ENOTSUP for
 * one that is not plain data, deeper than some levels, or long. */
int rsh_pickle_json(const struct rsh_pickle_value *v, char **out);
/* Makes one object of n values, of which json[i] is NULL where it is left out:
 * *out is from malloc, and ends in a newline.  0 or -ENOMEM. */
int rsh_pickle_json_join(const char *const *names, char *const *json,
			 uint32_t n, char **out, size_t *len);

/* Tells whether a value is this text. */
bool rsh_pickle_is_text(const struct rsh_pickle_value *v, const char *text);
/* Tells whether a value is this class. */
bool rsh_pickle_is_class(const struct rsh_pickle_value *v, const char *module,
			 const char *name);
/* Returns the value of a key, the last one if there are several; NULL if there
 * is none, or *v is no dictionary. */
const struct rsh_pickle_value *
rsh_pickle_find(const struct rsh_pickle_value *v, const char *key);

#endif
