/* SPDX-License-Identifier: Apache-2.0 */
/* strategy/derive_common.c has what all steps of a derivation use: messages,
 * axes and the rules for a parameter. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "derive_i.h"

int rsh_derive_refuse(struct derivation *d, const struct derive_param *p,
		      const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	rsh_error_vset(d->err, EINVAL, fmt, ap);
	va_end(ap);
	rsh_error_prefix(d->err, "%s: parameter %s", d->path, p->text);
	return -EINVAL;
}

int rsh_derive_note(struct derivation *d, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	if (d->n_notes == d->cap_notes)
		return 0;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	d->notes[d->n_notes] = rsh_arena_strndup(d->arena, text, strlen(text));
	return d->notes[d->n_notes++] ? 0 : rsh_error_nomem(d->err);
}

uint32_t rsh_derive_axis_find(const struct derivation *d, const char *name)
{
	for (uint32_t i = 0; i < d->n_axes; i++)
		if (strcmp(d->axes[i].name, name) == 0)
			return i;
	return UINT32_MAX;
}

uint32_t rsh_derive_axis_add(struct derivation *d, const char *name)
{
	struct derive_axis *a;

	if (d->n_axes == sizeof(d->axes) / sizeof(*d->axes))
		return UINT32_MAX;
	a = &d->axes[d->n_axes];
	*a = (struct derive_axis){ .dst = rsh_mesh_size(&d->o->mesh, name) };
	memcpy(a->name, name, strlen(name) + 1);
	return d->n_axes++;
}

bool rsh_derive_is_about(const struct derivation *d, const regex_t *re,
			 const struct derive_param *p)
{
	return rsh_derive_matches(re, p->text) ||
	       rsh_derive_matches(re, d->params[p->base].text);
}

const struct derive_rule *rsh_derive_rule_for(const struct derivation *d,
					      const struct derive_rules *rules,
					      const struct derive_param *p)
{
	for (uint32_t i = rules->n; i-- > 0;)
		if (rsh_derive_is_about(d, &rules->v[i].re, p))
			return &rules->v[i];
	return NULL;
}
