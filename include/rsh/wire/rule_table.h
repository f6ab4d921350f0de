/* SPDX-License-Identifier: Apache-2.0 */
/* wire/rule_table.h - a rule table as it stands in its file: which tensors of
 * Hugging Face's form hold the elements of which tensors of MindSpore's.  What
 * the lines mean is in reshardfs-tables(5) and weights/weights.h; here they are
 * only taken apart and checked one by one.
 *
 * "#" begins a comment where it begins a line or follows a blank.  A word that
 * begins a line of its kind (for, let, under, also, skip, state) is a name
 * where "=" follows it.  Several `under` are in a row where nothing but
 * comments and empty lines stands between them.  What a rule names is
 * consistent once it is parsed: with alternatives there is one tensor on their
 * side and one for each of them on the other, a tensor and its alternative have
 * the same letters, each once, and what `let` uses stands before it.  A hole is
 * in the names of both sides, and then of all tensors, or else its letter is a
 * factor on the other side (a *stack*).
 *
 * A table does not change once it is parsed, so any thread may read it.  It
 * owns all that it gives.  Names, holes and factors are texts without spaces.
 */
#ifndef RSH_WIRE_RULE_TABLE_H
#define RSH_WIRE_RULE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rsh/util/error.h"

/* Tables are small; a larger file is damaged or not a table. */
#define RSH_RULE_TABLE_MAX ((size_t)1024 * 1024)

/* The two sides of a rule: what is left and what is right of the "=". */
enum rsh_side {
	RSH_SIDE_HF,        /* left */
	RSH_SIDE_MINDSPORE, /* right */
	RSH_N_SIDES
};

/* A name is cut at its holes: text, hole, text, hole, ..., text. */
struct rsh_rule_hole {
	const char *letter; /* of {l}, {L+i}: what counts, "l" or "i" */
	const char *least;  /* of {L+i}: "L"; NULL: numbers begin with 0 */
};
struct rsh_rule_name {
	uint32_t n_holes;
	const char *const *texts; /* n_holes + 1 of them; may be "" */
	const struct rsh_rule_hole *holes;
};

/* A dimension is a product of factors, outer first.  One of them may be a list
 * of alternatives (a | b c | 1), each a product; 1 is the empty product. */
struct rsh_rule_product {
	uint32_t n;
	const char *const *factors;
};
struct rsh_rule_dim {
	struct rsh_rule_product before; /* all factors, if there are no
					 * alternatives */
	uint32_t n_alternatives;        /* 0: none */
	const struct rsh_rule_product *alternatives;
	struct rsh_rule_product after;
};

struct rsh_rule_tensor {
	struct rsh_rule_name name; /* the prefixes of `under` are put before
				    * it; see rsh_rule.under */
	bool has_dims;             /* false: renamed, of any shape */
	uint32_t n_dims;
	const struct rsh_rule_dim *dims;
};

enum rsh_rule_kind {
	RSH_RULE_SAME, /* S = S */
	RSH_RULE_ALSO, /* also L = R: L is a copy of R, and is skipped in the
			* other direction, where another rule makes R; L may
			* have holes that R has not */
	RSH_RULE_SKIP, /* skip L: L is left out; side[MINDSPORE] is empty */
};
/* A rule with names that begin with a dot is below prefixes, and is tried with
 * each of them in order. */
struct rsh_rule_under {
	struct rsh_rule_name prefix[RSH_N_SIDES];
};
struct rsh_rule {
	enum rsh_rule_kind kind;
	uint32_t line;
	const char *text; /* the line, for messages and `convert check` */
	uint32_t n_under; /* 0: names are whole */
	const struct rsh_rule_under *under;
	uint32_t n_tensors[RSH_N_SIDES];
	const struct rsh_rule_tensor *tensors[RSH_N_SIDES];
};

/* let NAME = TERM | TERM ...: the first term whose keys are all there counts. A
 * term is operands joined by + - * /, of which * and / bind more closely. */
struct rsh_rule_operand {
	char operation;  /* '+', '-', '*' or '/'; of the first one '+' */
	const char *key; /* of config.json, or an earlier let; NULL: a number */
	uint64_t number;
};
struct rsh_rule_term {
	uint32_t n;
	const struct rsh_rule_operand *operands;
};
struct rsh_rule_let {
	const char *name;
	uint32_t line;
	uint32_t n_terms;
	const struct rsh_rule_term *terms;
};

/* state L = R: names that begin with R on MindSpore's side, and go on as a
 * weight's name, are states of an optimizer: they lie as the weight does, and
 * begin with L on the other side. */
struct rsh_rule_state {
	const char *prefix[RSH_N_SIDES];
};

struct rsh_rule_table;

/* Parses the `len` bytes at `data`; `path` is for messages.  Returns 0 and
 * *out, which the caller frees, -ENOMEM, or -EBADMSG with a sentence that names
 * path, line and what is wrong there. */
int rsh_rule_table_parse(const void *data, size_t len, const char *path,
			 struct rsh_rule_table **out, struct rsh_error *err);
void rsh_rule_table_free(struct rsh_rule_table *t);

const char *rsh_rule_table_path(const struct rsh_rule_table *t);
/* Gives the first comment, which says what the table is for; "" if none. */
const char *rsh_rule_table_title(const struct rsh_rule_table *t);
/* These give the i-th architecture, let, state, rule; NULL past the last. */
const char *rsh_rule_table_suits(const struct rsh_rule_table *t, uint32_t i);
const struct rsh_rule_let *rsh_rule_table_let(const struct rsh_rule_table *t,
					      uint32_t i);
/* Gives the key of a term of one operand that is a key of config.json; NULL: it
 * is another. */
const char *rsh_rule_let_key(const struct rsh_rule_table *t,
			     const struct rsh_rule_let *l, uint32_t term);
const struct rsh_rule_state *
rsh_rule_table_state(const struct rsh_rule_table *t, uint32_t i);
const struct rsh_rule *rsh_rule_table_rule(const struct rsh_rule_table *t,
					   uint32_t i);

#endif
