/* SPDX-License-Identifier: Apache-2.0 */
/* converter/chosen.c asks the options of every name once. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/converter/chosen.h"
#include "rsh/util/mem.h"

static uint32_t chosen_nth(const uint32_t *which, uint32_t i)
{
	return which ? which[i] : i;
}

static int chosen_by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Two parameters must not be written under one name. */
static int chosen_check_renamed(const struct rsh_chosen *c,
				const struct rsh_catalogue *cat,
				const uint32_t *which, uint32_t n_names,
				struct rsh_error *err)
{
	cleanup_free const char **all = rsh_alloc_array(n_names, sizeof(*all));
	uint32_t n = 0;

	if (!all)
		return rsh_error_nomem(err);
	for (uint32_t i = 0; i < n_names; i++) {
		uint32_t name = chosen_nth(which, i);

		if (!c->unwanted[name])
			all[n++] = c->renamed[name] ? c->renamed[name] :
				rsh_names_text(cat->names, name);
	}
	qsort(all, n, sizeof(*all), chosen_by_text);
	for (uint32_t i = 1; i < n; i++)
		if (strcmp(all[i - 1], all[i]) == 0)
			return rsh_error_set(err, EINVAL, "renaming gives two "
					     "parameters the name %s", all[i]);
	return 0;
}

int rsh_chosen_ask(struct rsh_chosen *c, const struct rsh_catalogue *cat,
		   const uint32_t *which, uint32_t n,
		   const struct rsh_conversion_options *o,
		   struct rsh_error *err)
{
	c->filtered = o->wanted != NULL;
	c->unwanted = calloc((size_t)cat->n_names + 1, sizeof(*c->unwanted));
	if (o->rename)
		c->renamed = calloc((size_t)cat->n_names + 1,
				    sizeof(*c->renamed));
	if (!c->unwanted || (o->rename && !c->renamed))
		return rsh_error_nomem(err);
	for (uint32_t i = 0; i < n; i++) {
		const uint32_t name = chosen_nth(which, i);
		const char *text = rsh_names_text(cat->names, name);

		if (o->wanted)
			c->unwanted[name] = !o->wanted(o->ctx, text);
		if (o->rename)
			c->renamed[name] = o->rename(o->ctx, text);
	}
	return o->rename ? chosen_check_renamed(c, cat, which, n, err) : 0;
}

void rsh_chosen_clear(struct rsh_chosen *c)
{
	free(c->unwanted);
	free(c->renamed);
}

const char *rsh_chosen_name(const struct rsh_chosen *c, uint32_t name)
{
	return c->renamed ? c->renamed[name] : NULL;
}

int rsh_chosen_check(const struct rsh_chosen *c, const struct rsh_plan *p,
		     struct rsh_error *err)
{
	if (!c->filtered)
		return 0;
	for (uint32_t i = 0; i < rsh_plan_n_files(p); i++)
		if (rsh_plan_is_lost(p, i) || rsh_plan_n_records(p, i) > 0)
			return 0;
	return rsh_error_set(err, EINVAL, "no parameter is left (which are "
			     "wanted is asked by their names in the source)");
}

bool rsh_is_weight(const char *name, uint32_t n_dims)
{
	static const char *const prefixes[] = {
		"adam_m.", "adam_v.", "accu_grads.", "moments.", "moment1.",
		"moment2.", "momentum.", "exp_avg.", "exp_avg_sq.",
		"accum.", "mean_square.", "mean_gradient.",
	};

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
		if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
			return false;
	return n_dims > 0;
}
