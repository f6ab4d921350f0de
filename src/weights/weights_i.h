/* SPDX-License-Identifier: Apache-2.0 */
/* weights/weights_i.h - the state of a conversion.
 *
 * A *unit* is a rule below one of its prefixes.  Every tensor that is there is
 * given to the first unit that names it (assign.c).  Those of a unit with the
 * same numbers in their names are an *instance* of it: layer 3 of a model.  Of
 * an instance first the sizes of its letters are found (sizes.c), then where
 * each tensor's elements lie (strides.c), and from both sides' places follow
 * the factored parts (parts.c).
 *
 * Functions give 0 or -errno with a sentence, unless they say otherwise. */
#ifndef RSH_WEIGHTS_WEIGHTS_I_H
#define RSH_WEIGHTS_WEIGHTS_I_H

#include "rsh/weights/weights.h"

#define WEIGHTS_HOLES_MAX 8    /* of a name with its prefix */
#define WEIGHTS_TENSORS_MAX 16 /* of a side of a rule */
#define WEIGHTS_AXES_MAX 16    /* of a tensor */
#define WEIGHTS_NAMES_MAX 65536 /* in a table, below all prefixes */
#define WEIGHTS_MADE_MAX ((uint32_t)1 << 19)
#define WEIGHTS_TEXT ((size_t)8192) /* the longest name that is made */

struct weights_hole {
	const char *letter;
	const char *least_name; /* NULL: numbers begin with 0 */
	bool least_known;
	uint64_t least;
};

/* A name of a rule with its prefix. */
struct weights_name {
	uint32_t n_holes;
	const char *texts[WEIGHTS_HOLES_MAX + 1];
	struct weights_hole holes[WEIGHTS_HOLES_MAX];
};

struct weights_unit {
	const struct rsh_rule *rule;
	struct weights_name *names[RSH_N_SIDES]; /* [tensor] */
	uint32_t n_shared; /* holes that both sides have */
	const char *shared[WEIGHTS_HOLES_MAX];
	/* The letters that are axes: factors, and holes of one side. */
	uint32_t n_letters;
	const char **letters;
};

/* A name of a unit, to be found by what names like it have in common. */
struct weights_template {
	uint64_t fold;
	uint32_t unit;
	uint8_t side, tensor;
};

struct weights_match {
	uint32_t unit;
	uint32_t state;  /* 0: a weight; else 1 + the number of the state */
	uint16_t tensor; /* of the rule's side */
	uint16_t n_shared;
	uint32_t source; /* place in the offers */
	/* Shared ones in the unit's order, then the others in the name's. */
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
	struct rsh_arena *arena;  /* of what is made */
	struct rsh_arena scratch; /* of this conversion */
	/* NULL: the first error ends the conversion. */
	const struct rsh_weights_watch *watch;
	uint32_t n_wrong;

	bool *let_known;
	const struct rsh_rule_term **let_terms; /* the ones that counted */
	uint64_t *lets;
	struct weights_unit *units;
	uint32_t n_units;
	struct weights_template *templates; /* sorted by fold, then unit */
	uint32_t n_templates;

	uint32_t *scale_of; /* [source]: 1 + the one with its scales, or 0 */
	bool *is_scale;     /* [source] */
	struct weights_list matches;
	struct weights_list copies; /* what `also` makes copies of; from
				     * Hugging Face: the copies */
	uint32_t *sources;          /* [match] */
	uint32_t n_states, a_state; /* skipped: how many, and one */
	uint32_t n_dropped, a_dropped;

	struct weights_made *made;
	uint32_t n_made;
	size_t made_cap;
};

/* An instance, while its tensors are made. */
struct weights_instance {
	const struct weights_unit *u;
	const struct weights_match *m; /* in the order of the rule's tensors */
	uint32_t n;
	uint32_t first[WEIGHTS_TENSORS_MAX + 1]; /* match of a tensor */
	const uint32_t *sources;
	bool *known;     /* [letter] */
	uint64_t *sizes; /* [letter] */
};

/* ---- names.c ---- */

/* Hashes a text so that all texts which differ in numbers only are equal. */
uint64_t weights_fold_text(const char *s);
uint64_t weights_fold_name(const struct weights_name *n);

enum weights_fit {
	WEIGHTS_NO,
	WEIGHTS_YES,
	WEIGHTS_UNKNOWN, /* but for numbers of which the least is not known */
};
/* Fits a text to a name, and gives the numbers of its holes. */
enum weights_fit weights_fit(const struct weights_name *n, const char *s,
			     uint64_t *numbers);
/* The same up to the end of the last hole, which ends a component. */
enum weights_fit weights_fit_begin(const struct weights_name *n, const char *s,
				   uint64_t *numbers);
/* Writes a name with these numbers to text[WEIGHTS_TEXT]; `before` is put
 * before it.  False: a number is too large, or not known. */
bool weights_print(const struct weights_name *n, const uint64_t *numbers,
		   const char *before, char *text);
/* Compares two weights_made by their texts, with numbers in them as numbers;
 * for qsort() and bsearch(). */
int weights_by_text(const void *a, const void *b);

/* ---- variables.c ---- */

int weights_read_lets(struct weights_work *w, struct rsh_error *err);
/* False: no such `let`, or its keys are not there. */
bool weights_let(const struct weights_work *w, const char *name,
		 uint64_t *value);

/* Gives the key of config.json that a `let` is; NULL: it is none, or none that
 * was there. */
const char *weights_let_key(const struct weights_work *w, const char *name);
/* Writes the keys and numbers that a `let` was computed of; "" if it was of
 * none.  Returns text. */
const char *weights_let_text(const struct weights_work *w, const char *name,
			     char *text, size_t size);

/* ---- units.c ---- */

int weights_read_units(struct weights_work *w, struct rsh_error *err);
/* Gives the first template that could fit, and how many there are. */
const struct weights_template *weights_find(const struct weights_work *w,
					    const char *text, uint32_t *n);
/* Turns the numbers of a name's holes into those of a match, and back. */
void weights_arrange(const struct weights_unit *u, const struct weights_name *n,
		     const uint64_t *holes, uint64_t *numbers);
void weights_spread(const struct weights_unit *u, const struct weights_name *n,
		    const uint64_t *numbers, uint64_t *holes);
/* Says which of the unit's letters this is; it is one of them. */
uint32_t weights_letter(const struct weights_unit *u, const char *letter);
/* Gives the letters of the holes of a name that the other side lacks, by their
 * numbers in the unit; returns how many. */
uint32_t weights_stacks(const struct weights_unit *u,
			const struct weights_name *n, uint32_t *letters);

/* ---- assign.c ---- */

/* Gives each tensor to a unit, and deals with those that no rule names. */
int weights_assign(struct weights_work *w, struct rsh_error *err);

/* ---- scales.c ---- */

/* Finds the neighbours that hold scales of fp8 blocks. */
int weights_find_scales(struct weights_work *w, struct rsh_error *err);
/* Gives the scales of a source that has some, for a recipe. */
int weights_get_scale(struct weights_work *w, uint32_t source,
		      const struct rsh_recipe_scale **out,
		      struct rsh_error *err);

/* ---- sizes.c ---- */

/* Finds the sizes of an instance's letters; those that cannot be found stay
 * unknown where something is wrong. */
int weights_solve(struct weights_work *w, struct weights_instance *x,
		  struct rsh_error *err);

/* ---- strides.c ---- */

/* One further along an axis is `step` further along dimension `dim`. */
struct weights_axis {
	uint32_t letter;
	uint8_t dim;
	uint64_t step;
};
/* Where a tensor, or an alternative of it, has its elements. */
struct weights_place {
	uint32_t n;
	struct weights_axis axes[WEIGHTS_AXES_MAX];
	uint8_t from_dim; /* an alternative begins here */
	uint64_t from;
};
/* Gives the size of a dimension.  False: it is too large. */
bool weights_dim(const struct weights_instance *x,
		 const struct rsh_rule_dim *dim, uint64_t *size);
void weights_find_place(const struct weights_instance *x,
			const struct rsh_rule_tensor *t, uint32_t alternative,
			struct weights_place *out);

/* ---- parts.c ---- */

/* Makes the parts of a tensor of an instance: *o has a name and dims.
 * `numbers` are those of its own stacks. */
int weights_make_parts(struct weights_work *w, struct weights_instance *x,
		       uint32_t tensor, const uint64_t *numbers,
		       struct rsh_offer *o, struct rsh_error *err);
/* Shows a source as it is, under the name of *o. */
int weights_make_same(struct weights_work *w, uint32_t source,
		      struct rsh_offer *o, struct rsh_error *err);

/* ---- make.c ---- */

/* Makes what the instances give. */
int weights_make(struct weights_work *w, struct rsh_error *err);
/* Makes a copy of a source under this name, if it is wanted. */
int weights_make_copy(struct weights_work *w, const char *text,
		      const struct rsh_rule *rule, const uint32_t *source,
		      struct rsh_error *err);
bool weights_is_wanted(const struct weights_work *w, const char *text);
void weights_passed(const struct weights_work *w, uint32_t source,
		    const struct rsh_rule *rule);
/* Tells the watch what is wrong, if there is one, and then gives 0. */
int weights_wrong(struct weights_work *w, int rc, struct rsh_error *err);
/* Gives the name of a source. */
const char *weights_text(const struct weights_work *w, uint32_t source);
/* Sets "TABLE:LINE: " and the sentence; -EINVAL. */
int weights_bad(const struct weights_work *w, const struct rsh_rule *rule,
		struct rsh_error *err, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* ---- aliases.c ---- */

int weights_make_also(struct weights_work *w, struct rsh_error *err);
/* Checks that the original of each skipped copy is made. */
int weights_check_copies(struct weights_work *w, struct rsh_error *err);

/* ---- convert.c ---- */

/* The whole of a conversion, up to the sorted list of what is made. */
int weights_run(struct weights_work *w, struct rsh_error *err);
void weights_clear(struct weights_work *w);

#endif
