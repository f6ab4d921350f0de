/* SPDX-License-Identifier: Apache-2.0 */
/* copy/answer.c collects the problems that were found. */
#include "config.h"

#include "copy_i.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/mem.h"
#include "rsh/util/text.h"

static void problem_clear(struct rsh_problem *p)
{
	free(p->path);
	free(p->record);
	free(p->what);
	*p = (struct rsh_problem){ 0 };
}

void rsh_answer_clear(struct rsh_answer *a)
{
	for (size_t i = 0; i < a->n_problems; i++)
		problem_clear(&a->problems[i]);
	free(a->problems);
	*a = (struct rsh_answer){ 0 };
}

__attribute__((format(printf, 4, 0)))
static int problem_vset(struct rsh_problem *p, const char *dir,
			const char *name, const char *fmt, va_list ap)
{
	problem_clear(p);
	if (vasprintf(&p->what, fmt, ap) < 0)
		p->what = NULL;
	p->path = rsh_text_format("%s%s%s", dir ? dir : "", dir ? "/" : "",
				  name);
	return p->what && p->path ? 0 : -ENOMEM;
}

int rsh_problem_set(struct rsh_problem *p, const char *dir, const char *name,
		    const char *fmt, ...)
{
	va_list ap;
	int rc;

	va_start(ap, fmt);
	rc = problem_vset(p, dir, name, fmt, ap);
	va_end(ap);
	return rc;
}

int rsh_problem_place(struct rsh_problem *p, const char *record,
		      uint64_t offset)
{
	p->placed = true;
	p->offset = offset;
	free(p->record);
	p->record = record ? strdup(record) : NULL;
	return p->record || !record ? 0 : -ENOMEM;
}

int rsh_answer_add(struct rsh_answer *a, struct rsh_problem *p)
{
	if (!p->what)
		return 0;
	if (rsh_grow(&a->problems, &a->cap_problems, a->n_problems + 1,
		     sizeof(*a->problems)))
		return -ENOMEM;
	a->problems[a->n_problems++] = *p;
	*p = (struct rsh_problem){ 0 };
	return 0;
}

int rsh_answer_tell(struct rsh_answer *a, const char *dir, const char *name,
		    const char *fmt, ...)
{
	struct rsh_problem p = { 0 };
	va_list ap;
	int rc;

	va_start(ap, fmt);
	rc = problem_vset(&p, dir, name, fmt, ap);
	va_end(ap);
	rc = rc ?: rsh_answer_add(a, &p);
	problem_clear(&p);
	return rc;
}

int rsh_answer_take(struct rsh_answer *a, struct rsh_problem *list, size_t n)
{
	int rc = 0;

	for (size_t i = 0; list && i < n; i++) {
		rc = rc ?: rsh_answer_add(a, &list[i]);
		problem_clear(&list[i]);
	}
	free(list);
	return rc;
}
