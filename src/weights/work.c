/* SPDX-License-Identifier: Apache-2.0 */
/* weights/work.c has what all steps of a conversion use: names, errors, and
 * questions to its options. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "weights_i.h"

const char *weights_text(const struct weights_work *w, uint32_t source)
{
	return rsh_names_text(w->cat->names, w->in[source].name);
}

int weights_bad(const struct weights_work *w, const struct rsh_rule *rule,
		const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	rsh_error_vset(w->err, EINVAL, fmt, ap);
	va_end(ap);
	rsh_error_prefix(w->err, "%s:%u", w->o->table->path, rule->line);
	return -EINVAL;
}

int weights_wrong(struct weights_work *w, int rc)
{
	if (rc == 0 || rc == -ENOMEM || !w->watch)
		return rc;
	w->n_wrong++;
	if (w->watch->wrong)
		w->watch->wrong(w->watch->ctx, w->err->text);
	return 0;
}

bool weights_is_wanted(const struct weights_work *w, const char *text)
{
	return !w->o->wanted || w->o->wanted(w->o->ctx, text);
}

uint32_t weights_given(const struct weights_work *w, uint32_t source)
{
	return w->given ? w->given[source] : source;
}

void weights_passed(const struct weights_work *w, uint32_t source,
		    const struct rsh_rule *rule)
{
	if (w->watch && w->watch->passed)
		w->watch->passed(w->watch->ctx, weights_given(w, source), rule);
}

void weights_note(const struct weights_work *w, uint32_t n, uint32_t example,
		  const char *what)
{
	char text[WEIGHTS_TEXT + 256];

	if (!w->o->note || n == 0)
		return;
	snprintf(text, sizeof(text), "%u tensor%s %s (%s%s)", n,
		 n > 1 ? "s" : "", what, weights_text(w, example),
		 n > 1 ? " and others" : "");
	w->o->note(w->o->ctx, text);
}

void weights_clear(struct weights_work *w)
{
	free(w->matches.m);
	free(w->copies.m);
	free(w->made);
	rsh_arena_clear(&w->scratch);
}
