/* SPDX-License-Identifier: Apache-2.0 */
/* formats/problems.h - what is wrong with tensors of a description, which do
 * not have these: it is an error only if such a tensor is wanted. */
#pragma once

#include <stdarg.h>
#include <stddef.h>

#include "rsh/source/format.h"

/* If all bytes are zero, there is none. */
struct rsh_tensor_problems {
	struct rsh_tensor_problem {
		const char *name; /* of the tensor */
		int code;
		const char *text; /* a sentence that begins with the tensor */
	} *v; /* in the order in which they were found */
	size_t n, cap;
};
void rsh_tensor_problems_clear(struct rsh_tensor_problems *p);

/* Adds one.  `name` must be valid as long as p, and the sentence is kept in the
 * arena.  Returns 1, or -ENOMEM: callers tell a problem from an error so. */
int rsh_tensor_problems_add(struct rsh_tensor_problems *p,
			    struct rsh_arena *arena, const char *name, int code,
			    const char *fmt, va_list ap)
	__attribute__((format(printf, 5, 0)));
/* Returns 0, or -errno with the sentence of the first of a tensor that is
 * wanted. */
int rsh_tensor_problems_check(const struct rsh_tensor_problems *p,
			      const struct rsh_plan_options *opts,
			      struct rsh_error *err);
/* Gives each to job->take, as a tensor with what is wrong.  Returns 0, or what
 * `take` returned. */
int rsh_tensor_problems_list(const struct rsh_tensor_problems *p,
			     const struct rsh_list_job *job);
