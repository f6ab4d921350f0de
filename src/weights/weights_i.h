/* SPDX-License-Identifier: Apache-2.0 */
/* weights/weights_i.h has the state of a conversion.
 *
 * A *unit* is a rule with one of its prefixes.  Every source tensor is assigned
 * to the first unit that names it (convert.c).  The tensors of a unit with the
 * same numbers in their names are an *instance* of it, such as layer 3 of a
 * model.  For an instance, make.c finds the sizes of its letters; parts.c
 * finds where each tensor has its elements, and makes the parts from
 * the positions on both sides.
 *
 * Functions return 0 or -errno with a sentence, unless they say otherwise.
 */
#pragma once

#include "rsh/weights/weights.h"

#define WEIGHTS_HOLES_MAX 8    /* in a name with its prefix */
#define WEIGHTS_TENSORS_MAX 16 /* on one side of a rule */
#define WEIGHTS_AXES_MAX 16    /* in a tensor */
#define WEIGHTS_NAMES_MAX 65536 /* in a table, with all prefixes */
#define WEIGHTS_MADE_MAX ((uint32_t)1 << 19)
#define WEIGHTS_TEXT ((size_t)8192) /* longest name that is made */

struct weights_hole {
	const char *letter;
	const char *least_name; /* NULL: numbers begin at 0 */
	bool least_known;
	uint64_t least;
};

/* This is a name of a rule with its prefix. */
struct weights_name {
	uint32_t n_holes;
	const char *texts[WEIGHTS_HOLES_MAX + 1];
	struct weights_hole holes[WEIGHTS_HOLES_MAX];
};

struct weights_unit {
	const struct rsh_rule *rule;
	struct weights_name *names[RSH_N_SIDES]; /* [tensor] */
	/* The tensor that `when` names.  NULL: config.json says when, for the
	 * shared number `layer`, or it is always. */
	struct weights_name *when[RSH_N_SIDES];
	uint32_t layer;
	uint32_t n_shared; /* holes that both sides have */
	const char *shared[WEIGHTS_HOLES_MAX];
	/* These are the letters of axes: of factors, and of holes that one side
	 * has. */
	uint32_t n_letters;
	const char **letters;
};

/* This is a name of a unit, sorted by the hash of its text without numbers. */
struct weights_template {
	uint64_t fold;
	uint32_t unit;
	uint8_t side, tensor;
};

struct weights_match {
	uint32_t unit;
	uint32_t state;  /* 0: a weight; else 1 + the number of the optimizer
			  * state */
	uint16_t tensor; /* its number on the rule's side */
	uint16_t n_shared;
	uint32_t source; /* index in the offers */
	/* The shared numbers are first, in the unit's order; the others follow
	 * in the name's order. */
	uint64_t numbers[WEIGHTS_HOLES_MAX];
};

struct weights_list {
	struct weights_match *m;
	uint32_t n;
	size_t cap;
};

struct weights_made {
	struct rsh_offer offer;
	const char *text; /* the offer's name */
	const struct rsh_rule *rule;
	const uint32_t *sources;
	uint32_t n_sources;
};

struct weights_work {
	const struct rsh_weights_options *o;
	enum rsh_side from, to;
	struct rsh_catalogue *cat;
	const struct rsh_offer *in;
	uint32_t n;
	const uint32_t *given; /* [source]: its index in the caller's offers;
				* NULL: the same */
	struct rsh_arena *arena;  /* memory of what is made */
	struct rsh_arena scratch; /* memory of this conversion only */
	/* NULL: the first error ends the conversion. */
	const struct rsh_weights_watch *watch;
	struct rsh_error *err;
	uint32_t n_wrong;

	const struct rsh_rule_term **let_terms; /* the terms that were used;
						 * NULL: keys are absent */
	uint64_t *lets;
	struct weights_unit *units;
	uint32_t n_units;
	struct weights_template *templates; /* sorted by fold, then unit */
	uint32_t n_templates;

	/* [name]: a source tensor has it, and their number, if the table has a
	 * `when`. */
	bool *has;
	uint32_t n_has;

	struct weights_list matches;
	struct weights_list copies; /* originals of `also` rules; from Hugging
				     * Face: the copies */
	uint32_t *sources;          /* [match] */
	uint32_t n_states, a_state; /* number of skipped states, and one of
				     * them */
	uint32_t n_dropped, a_dropped;
	const char **named; /* source tensors that a rule names, sorted, when
			     * one was dropped; NULL: not yet */
	uint32_t n_named;
	uint32_t n_again, a_again; /* with a part that is left out */
	uint32_t n_left, a_left; /* states that are left out, and one of them */

	struct weights_made *made;
	uint32_t n_made;
	size_t made_cap;
};

/* This is an instance while its tensors are made. */
struct weights_instance {
	const struct weights_unit *u;
	const struct weights_match *m; /* sorted by the rule's tensors */
	uint32_t n;
	uint32_t first[WEIGHTS_TENSORS_MAX + 1]; /* first match of each
						  * tensor */
	const uint32_t *sources;
	bool *known;     /* [letter] */
	uint64_t *sizes; /* [letter] */
};

/* ---- work.c ---- */

/* Returns the index of a source tensor in the caller's offers. */
uint32_t weights_given(const struct weights_work *w, uint32_t source);
bool weights_is_wanted(const struct weights_work *w, const char *text);
void weights_passed(const struct weights_work *w, uint32_t source,
		    const struct rsh_rule *rule);
/* If there is a watch, reports the error to it and returns 0, except for
 * -ENOMEM; else returns `rc`. */
int weights_wrong(struct weights_work *w, int rc);
/* Returns the name of a source tensor. */
const char *weights_text(const struct weights_work *w, uint32_t source);
/* Sets "TABLE:LINE: " and the sentence; returns -EINVAL. */
int weights_bad(const struct weights_work *w, const struct rsh_rule *rule,
		const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Reports a number of source tensors, and one of them as an example. */
void weights_note(const struct weights_work *w, uint32_t n, uint32_t example,
		  const char *what);
void weights_clear(struct weights_work *w);

/* ---- names.c ---- */

/* Hashes a text so that texts that differ only in numbers have equal hashes. */
uint64_t weights_fold_text(const char *s);
uint64_t weights_fold_name(const struct weights_name *n);

enum weights_fit {
	WEIGHTS_NO,
	WEIGHTS_YES,
	WEIGHTS_UNKNOWN, /* it fits, except for a number whose least value is
			  * unknown */
};
/* Compares a text with a name, and returns the numbers of its holes. */
enum weights_fit weights_fit(const struct weights_name *n, const char *s,
			     uint64_t *numbers);
/* Does the same up to the end of the last hole, which must end a component. */
enum weights_fit weights_fit_begin(const struct weights_name *n, const char *s,
				   uint64_t *numbers);
/* Returns whether the name begins with a path of whole components, and has
 * more. */
bool weights_is_below(const struct weights_name *n, const char *path);
/* Writes a name with these numbers, after `before`, to text[WEIGHTS_TEXT].
 * Returns false if a number is too large or unknown. */
bool weights_print(const struct weights_name *n, const uint64_t *numbers,
		   const char *before, char *text);
/* Returns what follows the prefix of `state` line k in a name, NULL if it does
 * not begin with that. */
const char *weights_of_state(const struct rsh_rule_table *t, uint32_t k,
			     enum rsh_side side, const char *text);
/* Compares two weights_made by their texts, in which numbers are compared as
 * numbers; for qsort() and bsearch(). */
int weights_by_text(const void *a, const void *b);

/* ---- variables.c ---- */

int weights_read_lets(struct weights_work *w);
/* Returns false if there is no such `let`, or if its keys are absent. */
bool weights_let(const struct weights_work *w, const char *name,
		 uint64_t *value);

/* Returns the key of config.json that a `let` is; NULL if it is not a key, or
 * the key was absent. */
const char *weights_let_key(const struct weights_work *w, const char *name);
/* Writes the keys and numbers from which a `let` was computed, or "" if there
 * are none.  Returns text. */
const char *weights_let_text(const struct weights_work *w, const char *name,
			     char *text, size_t size);

/* ---- units.c ---- */

int weights_read_units(struct weights_work *w);
/* Returns the first template that may fit, and the number of such templates. */
const struct weights_template *weights_find(const struct weights_work *w,
					    const char *text, uint32_t *n);
/* Converts the numbers of a name's holes to those of a match, and back. */
void weights_arrange(const struct weights_unit *u, const struct weights_name *n,
		     const uint64_t *holes, uint64_t *numbers);
void weights_spread(const struct weights_unit *u, const struct weights_name *n,
		    const uint64_t *numbers, uint64_t *holes);
/* Returns the index of the letter in the unit, n_letters if the unit does not
 * have it. */
uint32_t weights_letter(const struct weights_unit *u, const char *letter);
/* Sets the letters of the holes of a name that the other side does not have, as
 * indexes in the unit; returns their number. */
uint32_t weights_stacks(const struct weights_unit *u,
			const struct weights_name *n, uint32_t *letters);

/* ---- parts.c ---- */

/* Makes the parts of a tensor of an instance; sets the dimensions of *o, which
 * has a name.  `numbers` are those of the tensor's own stacks. */
int weights_make_parts(struct weights_work *w, struct weights_instance *x,
		       uint32_t tensor, const uint64_t *numbers,
		       struct rsh_offer *o);
/* Offers a source tensor unchanged, under the name of *o. */
void weights_make_same(const struct weights_work *w, uint32_t source,
		       struct rsh_offer *o);

/* ---- make.c ---- */

/* Makes the tensors of all instances. */
int weights_make(struct weights_work *w);
/* Makes a copy of a source tensor under this name, if it is wanted. */
int weights_make_copy(struct weights_work *w, const char *text,
		      const struct rsh_rule *rule, const uint32_t *source);

/* ---- lacks.c ---- */

/* Refuses a model that lacks the embedding, the last norm, the head or a layer
 * that its config.json says it has.  Tensors must be assigned to rules. */
int weights_check_lacks(struct weights_work *w);

/* ---- padding.c ---- */

/* Cuts the padding of MindSpore's tensors off. */
int weights_cut_padding(struct weights_work *w);
/* Adds the padding to MindSpore's tensors, which are made. */
int weights_add_padding(struct weights_work *w);

/* ---- convert.c ---- */

/* Runs a conversion up to the sorted list of made tensors. */
int weights_run(struct weights_work *w);
