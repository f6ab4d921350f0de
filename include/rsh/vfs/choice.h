/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/choice.h - selects parameters by name.  A choice is immutable; any thread
 * may use it. */
#pragma once

#include <stdbool.h>

#include "rsh/util/error.h"
#include "rsh/util/option.h"

struct rsh_choice;

/* What the options say: extended regular expressions on names.  NULL: the
 * option is not given. */
struct rsh_choice_at {
	const char *only; /* the name matches */
	const char *drop; /* the name does not match */
};

/* The options of struct rsh_choice_at. */
extern const struct rsh_option rsh_choice_rows[];

/* Returns whether any option selects parameters. */
bool rsh_choice_is_given(const struct rsh_choice_at *at);

/* Compiles the expressions.  If none is given *out is NULL.  The caller owns
 * *out.  Returns 0, -EINVAL with a sentence that names the option and the
 * fault, or -ENOMEM. */
int rsh_choice_new(const struct rsh_choice_at *at, struct rsh_choice **out,
		   struct rsh_error *err);
void rsh_choice_free(struct rsh_choice *c);
/* Returns whether the name is wanted; `c` must not be NULL. */
bool rsh_choice_wants(const struct rsh_choice *c, const char *name);
