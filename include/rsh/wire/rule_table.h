/* SPDX-License-Identifier: Apache-2.0 */
/* wire/rule_table.h - the lines of a rule table: which tensors of Hugging
 * Face's form have the elements of which tensors of MindSpore's, or of another
 * form of the model.  The meaning of the lines is in reshardfs-tables(5) and
 * weights/weights.h.  Here the lines are only parsed and checked one by one.
 *
 * "#" begins a comment at the beginning of a line or after a blank.  The first
 * word of a line gives its kind (for, let, under, when, also, skip, state, pad,
 * tied, rest, group, config), but it is a tensor's name if "=" follows it.
 * Several `under` lines are in a row if only comments and empty lines are
 * between them.
 *
 * The parser checks that a rule is consistent:
 * - If a rule has alternatives, one side has one tensor and the other side has
 *   one tensor for each alternative, or one with as many alternatives.
 * - A tensor and its alternative have the same letters, each once.
 * - A `let` uses only what earlier lines define.
 * - A hole is in the names of both sides, and then in the names of all tensors;
 *   or its letter is a factor on the other side (this is a *stack*).
 * - The prefixes of a rule of a `when` have no stacks.  A `when` is for rules
 *   whose names begin with a dot; others after it are as without it.
 * - `again` is on the left, and names an earlier tensor of its rule, with the
 *   same dimensions.
 * - `add` is at the end of a rule that renames one tensor.
 *
 * A table does not change after it is parsed, so any thread may read it.  It
 * owns all that it points to.  Names, holes and factors are texts without
 * spaces. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rsh/util/arena.h"
#include "rsh/util/error.h"

/* Rule tables are small; a larger file is damaged or not a table. */
#define RSH_RULE_TABLE_MAX ((size_t)1024 * 1024)

/* These are the two sides of a rule: the part before the "=" and the part after
 * it. */
enum rsh_side {
	RSH_SIDE_HF,        /* left */
	RSH_SIDE_MINDSPORE, /* right */
	RSH_N_SIDES
};

/* A name is split at its holes: text, hole, text, hole, ..., text. */
struct rsh_rule_hole {
	/* of {l}, {L+i}: the letter that counts, "l" or "i" */
	const char *letter;
	const char *least;  /* of {L+i}: "L"; NULL: numbering starts at 0 */
};
struct rsh_rule_name {
	uint32_t n_holes;
	const char *const *texts; /* n_holes + 1 of them; may be "" */
	const struct rsh_rule_hole *holes;
};

/* A dimension is a product of factors, outermost first.  One of the factors may
 * be a list of alternatives (a | b c | 1).  Each alternative is a product; 1 is
 * the empty product. */
struct rsh_rule_product {
	uint32_t n;
	const char *const *factors;
};
struct rsh_rule_dim {
	/* all factors, if there are no alternatives */
	struct rsh_rule_product before;
	uint32_t n_alternatives;        /* 0: none */
	const struct rsh_rule_product *alternatives;
	struct rsh_rule_product after;
};

struct rsh_rule_tensor {
	/* without the prefixes of `under`; see rsh_rule.under */
	struct rsh_rule_name name;
	bool has_dims;             /* false: only renamed, any shape */
	/* again L: the right side has the elements of tensor `of` of the left
	 * side, an earlier one, once more.  Nothing is made of them on the
	 * left. */
	bool again;
	uint32_t of;
	uint32_t n_dims;
	const struct rsh_rule_dim *dims;
};

enum rsh_rule_kind {
	RSH_RULE_SAME, /* S = S */
	/* also L = R: L is a copy of R.  It is skipped in the other direction,
	 * where another rule makes R.  L may have holes that R does not
	 * have. */
	RSH_RULE_ALSO,
	RSH_RULE_SKIP, /* skip L: L is left out; side[MINDSPORE] is empty */
};
/* A rule whose names begin with a dot is used with prefixes.  They are tried in
 * order. */
struct rsh_rule_under {
	struct rsh_rule_name prefix[RSH_N_SIDES];
};
/* when L = R: a rule is for the numbers for which the tensor exists on the side
 * of the source.  The names begin with a dot and have no holes.
 * when KEY is WORD and KEY is WORD: a rule is for the numbers for which
 * config.json says so.  Of a list the word with the number of the left prefix
 * is meant, which has one hole, from 0. */
#define RSH_RULE_SAYS_MAX 4
struct rsh_rule_when {
	struct rsh_rule_name name[RSH_N_SIDES]; /* if n_says is 0 */
	uint32_t n_says;
	struct rsh_rule_says {
		const char *key, *word;
	} says[RSH_RULE_SAYS_MAX];
};
struct rsh_rule {
	enum rsh_rule_kind kind;
	/* Each value of the left side is one of the right side and 1. */
	bool adds_one;
	uint32_t line;
	const char *text; /* the line, for messages and `convert check` */
	uint32_t n_under; /* 0: the names have no prefix */
	const struct rsh_rule_under *under;
	const struct rsh_rule_when *when; /* NULL: always */
	uint32_t n_tensors[RSH_N_SIDES];
	const struct rsh_rule_tensor *tensors[RSH_N_SIDES];
};

/* let NAME = TERM | TERM ...: the first term is used whose keys all exist.  A
 * key of an object has a dot: vision_config.num_attention_heads; "*" is any key
 * of the object (wire/model_config.h).  A term is a list of operands joined by
 * + - * /; * and / have the higher precedence. */
struct rsh_rule_operand {
	char operation;  /* '+', '-', '*' or '/'; '+' for the first one */
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

/* pad R = ROWS MULTIPLE zeros|last: the right tensor R has ROWS rows, and after
 * them padding up to a multiple of MULTIPLE; both are names of `let`. */
struct rsh_rule_pad {
	const char *name;
	const char *rows, *multiple;
	bool last; /* the padding repeats the last row; false: it is zero */
	uint32_t line;
};

/* Lines of two names without holes:
 * state L = R: a name on MindSpore's side that is R and then the name of a
 * weight is a state of an optimizer.  It is stored as the weight is, and its
 * name on the other side is L and then the name of the weight.
 * tied L = M: in a model with tied embeddings the left tensor L is the left
 * tensor M once more.
 * rest L = R: a tensor that no rule names, and whose name is L or begins with L
 * and a dot, has R in the place of L; each may be "".  The first line that fits
 * is used.
 * config L = R: a config.json for the left side that has the number R has L
 * too, with the same value; both are keys. */
enum rsh_rule_pairs {
	RSH_RULE_STATE,
	RSH_RULE_TIED,
	RSH_RULE_REST,
	RSH_RULE_CONFIG,
	RSH_RULE_N_PAIRS
};
struct rsh_rule_pair {
	const char *side[RSH_N_SIDES]; /* L, and R or M */
};

/* Lines of a kind are in the order of the file. */
struct rsh_rule_table {
	struct rsh_arena arena; /* of all texts and lists */
	const char *path;
	const char *title; /* the first comment; "": none */
	/* --convert with this word chooses among the tables that have it.  Both
	 * sides are then whole models.  NULL: the right side is MindSpore's. */
	const char *group;
	const char **suits; /* architectures */
	struct rsh_rule_let *lets;
	struct rsh_rule_pad *pads;
	struct rsh_rule_pair *pairs[RSH_RULE_N_PAIRS];
	struct rsh_rule *rules;
	uint32_t n_suits, n_lets, n_pads, n_pairs[RSH_RULE_N_PAIRS], n_rules;
	size_t suits_cap, lets_cap, pads_cap, pairs_cap[RSH_RULE_N_PAIRS];
	size_t rules_cap;
};

/* Parses the `len` bytes at `data`; `path` is for messages.  Returns 0 and
 * *out, which the caller frees, -ENOMEM, or -EBADMSG with a sentence that names
 * path, line and what is wrong there. */
int rsh_rule_table_parse(const void *data, size_t len, const char *path,
			 struct rsh_rule_table **out, struct rsh_error *err);
void rsh_rule_table_free(struct rsh_rule_table *t);

/* Returns whether an operand is the key or `let` of that name. */
bool rsh_rule_let_uses(const struct rsh_rule_let *l, const char *name);
/* Returns the key of a term that has one operand, if that is a key of
 * config.json.  Returns NULL for all other terms. */
const char *rsh_rule_let_key(const struct rsh_rule_table *t,
			     const struct rsh_rule_let *l, uint32_t term);
