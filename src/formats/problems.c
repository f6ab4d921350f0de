/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "rsh/formats/problems.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "rsh/util/arena.h"
#include "rsh/util/mem.h"

void rsh_tensor_problems_clear(struct rsh_tensor_problems *p)
{
	free(p->v);
	*p = (struct rsh_tensor_problems){ NULL, 0, 0 };
}

int rsh_tensor_problems_add(struct rsh_tensor_problems *p,
			    struct rsh_arena *arena, const char *name, int code,
			    const char *fmt, va_list ap)
{
	char text[RSH_ERROR_TEXT_MAX];
	const char *kept;

	vsnprintf(text, sizeof(text), fmt, ap);
	kept = rsh_arena_format(arena, "tensor %s: %s", name, text);
	if (!kept || rsh_grow(&p->v, &p->cap, p->n + 1, sizeof(*p->v)))
		return -ENOMEM;
	p->v[p->n++] = (struct rsh_tensor_problem){ name, code, kept };
	return 1;
}

int rsh_tensor_problems_check(const struct rsh_tensor_problems *p,
			      const struct rsh_plan_options *opts,
			      struct rsh_error *err)
{
	for (size_t i = 0; i < p->n; i++)
		if (!opts->wanted || opts->wanted(opts->ctx, p->v[i].name))
			return rsh_error_set(err, p->v[i].code, "%s",
					     p->v[i].text);
	return 0;
}

int rsh_tensor_problems_list(const struct rsh_tensor_problems *p,
			     const struct rsh_list_job *job)
{
	int rc = 0;

	for (size_t i = 0; i < p->n && job->take && rc == 0; i++)
		rc = job->take(job->ctx, &(struct rsh_listed_tensor){
			.name = p->v[i].name, .wrong = p->v[i].text });
	return rc;
}
