/* SPDX-License-Identifier: Apache-2.0 */
/* util/pattern.h - extended regular expressions that users write in options. */
#pragma once

#include <regex.h>

#include "rsh/util/error.h"

/* Compiles an expression, for regfree().  `what` is in messages before the
 * expression ("only:").  regcomp() uses the stack for each group in a group, so
 * only RSH_PATTERN_DEPTH of these are accepted.  Returns 0 or -EINVAL with a
 * sentence; then there is nothing to free.  Any thread may call it. */
#define RSH_PATTERN_DEPTH 50
int rsh_pattern_compile(regex_t *to, const char *what, const char *text,
			struct rsh_error *err);
