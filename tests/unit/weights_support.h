/* SPDX-License-Identifier: Apache-2.0 */
/* weights_support.h - a rule table, and tensors of which nothing but names,
 * types and shapes exists. */
#ifndef WEIGHTS_SUPPORT_H
#define WEIGHTS_SUPPORT_H

#include <stdbool.h>

#include "rsh/weights/quantised.h"
#include "rsh/weights/weights.h"
#include "tests.h"

#define MODEL_LOG 8192

struct model {
	struct rsh_rule_table *table;
	struct rsh_model_config *config;
	struct rsh_names *names;
	struct rsh_catalogue *cat;
	struct rsh_arena arena;
	struct rsh_offer *in, *out;
	uint32_t n, cap, n_out;
	enum rsh_unlisted unlisted;
	bool leave_states;
	enum rsh_dtype dense; /* for quantised tensors; UNKNOWN: by itself */
	const char *only;    /* names that begin so are wanted; NULL: all */
	char log[MODEL_LOG]; /* notes, or what a check tells */
	struct rsh_error err;
};

/* Begins with a table and, unless it is NULL, a config.json. */
void model_begin(struct model *m, const char *table, const char *config);
void model_end(struct model *m);
/* Adds a tensor; `turned` says that its dimensions are stored in reverse
 * order. */
void model_add(struct model *m, const char *name, enum rsh_dtype dtype,
	       uint32_t n_dims, const uint64_t *dims, bool turned);
/* Adds tensors of BFloat16 from lines "NAME 2,3". */
void model_add_lines(struct model *m, const char *lines);

int model_convert(struct model *m, enum rsh_side from);
int model_check(struct model *m, enum rsh_side from);
/* Gives what was made as lines "NAME 2,3", in order; the caller frees it. */
char *model_made(const struct model *m);

#endif
