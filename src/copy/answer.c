/* SPDX-License-Identifier: Apache-2.0 */
/* copy/answer.c collects the problems that were found. */
#include "config.h"

#include "copy_i.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/mem.h"
#include "rsh/util/text.h"

/* It guards the lists of problems of all answers. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void problem_clear(struct rsh_problem *p)
{
	free(p->path);
	free(p->record);
	free(p->what);
}

void rsh_answer_clear(struct rsh_answer *a)
{
	for (size_t i = 0; i < a->n_problems; i++)
		problem_clear(&a->problems[i]);
	free(a->problems);
	*a = (struct rsh_answer){ 0 };
}

int rsh_answer_tell(struct rsh_answer *a, const struct rsh_place *at,
		    const char *fmt, ...)
{
	struct rsh_problem p = {
		.path = rsh_text_format("%s%s%s", at->dir ? at->dir : "",
					at->dir ? "/" : "", at->name),
		.record = at->record ? strdup(at->record) : NULL,
		.placed = at->placed, .offset = at->offset, .order = at->order,
	};
	va_list ap;
	int rc;

	va_start(ap, fmt);
	rc = vasprintf(&p.what, fmt, ap) < 0 ? -ENOMEM : 0;
	va_end(ap);
	if (rc)
		p.what = NULL;
	if (!p.path || (at->record && !p.record))
		rc = -ENOMEM;
	pthread_mutex_lock(&lock);
	rc = rc ?: rsh_push(a->problems, a->n_problems, a->cap_problems, p);
	pthread_mutex_unlock(&lock);
	if (rc)
		problem_clear(&p);
	return rc ? -ENOMEM : 0;
}

RSH_ORDER(problem_order, struct rsh_problem,
	  rsh_compare_u64(x->order, y->order) ?: strcmp(x->path, y->path))

void rsh_answer_sort(struct rsh_answer *a, size_t from)
{
	if (a->n_problems > from)
		rsh_sort(a->problems + from, a->n_problems - from,
			 problem_order);
}
