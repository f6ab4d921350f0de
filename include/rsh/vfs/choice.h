/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/choice.h - selects parameters by --only and --drop.  A choice is
 * immutable; any thread may use it. */
#pragma once

#include <stdbool.h>

#include "rsh/util/error.h"

struct rsh_choice;

/* Compiles the expressions.  Each may be NULL; if both are, *out is NULL.  The
 * caller owns *out.  Returns 0, -EINVAL with a sentence that names the option
 * and the fault, or -ENOMEM. */
int rsh_choice_new(const char *only, const char *drop, struct rsh_choice **out,
		   struct rsh_error *err);
void rsh_choice_free(struct rsh_choice *c);
/* Returns whether the name is wanted; `c` must not be NULL. */
bool rsh_choice_wants(const struct rsh_choice *c, const char *name);
