/* SPDX-License-Identifier: Apache-2.0 */
/* weights/quantised_names.c finds the tensors beside a quantised one by their
 * names. */
#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "quantised_i.h"
#include "rsh/util/files.h"

const char *quantised_name(const struct quantised_work *w, uint32_t at)
{
	return rsh_names_text(w->cat->names, w->v[at].name);
}

int quantised_bad(const struct quantised_work *w, uint32_t at, const char *fmt,
		  ...)
{
	va_list ap;

	va_start(ap, fmt);
	rsh_error_vset(w->err, EINVAL, fmt, ap);
	va_end(ap);
	return rsh_error_set(w->err, EINVAL, "%.400s %s", quantised_name(w, at),
			     w->err->text);
}

int quantised_lacks(const struct quantised_work *w,
		    const struct quantised_tensor *t, const char *end)
{
	return quantised_bad(w, t->at, "is quantised, and %.*s%s is not "
			     "in the source", (int)t->stem,
			     quantised_name(w, t->at), end);
}

bool quantised_ends(const char *name, const char *end, size_t *stem)
{
	*stem = strlen(name) - strlen(end);
	return rsh_has_suffix(name, end);
}

/* ---- names beside a tensor ---- */

uint32_t quantised_index(const struct quantised_work *w, uint32_t at,
				size_t stem, const char *end)
{
	return stem > INT32_MAX ? 0 :
	       rsh_offer_number(&w->names, "%.*s%s", (int)stem,
				quantised_name(w, at), end);
}

const struct rsh_offer *quantised_find(const struct quantised_work *w,
				       uint32_t at, size_t stem,
				       const char *end)
{
	const uint32_t i = quantised_index(w, at, stem, end);

	return i ? &w->v[i - 1] : NULL;
}

const struct rsh_tensor *quantised_plain(const struct quantised_work *w,
					 const struct rsh_offer *o)
{
	const struct rsh_tensor *t = rsh_offer_tensor(w->cat, o);

	if (t)
		return t;
	rsh_error_set(w->err, ENOTSUP, "%s is quantised, and is in the source "
		      "in several parts, or transposed",
		      rsh_names_text(w->cat->names, o->name));
	return NULL;
}

const struct rsh_tensor *quantised_take(struct quantised_work *w, uint32_t at,
					size_t stem, const char *end)
{
	const uint32_t i = quantised_index(w, at, stem, end);

	w->used[i - 1] = true;
	return quantised_plain(w, &w->v[i - 1]);
}
