/* SPDX-License-Identifier: Apache-2.0 */
/* plan/name_filter.c applies the options to every name once. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/plan/name_filter.h"
#include "rsh/plan/kinds.h"
#include "rsh/util/mem.h"

static uint32_t filter_nth(const uint32_t *which, uint32_t i)
{
	return which ? which[i] : i;
}

struct shown_name {
	const char *text;
	uint32_t name;
};

RSH_ORDER(shown_by_text, struct shown_name, strcmp(x->text, y->text))

/* Returns whether a parameter that is not renamed is in no file, so that only a
 * strategy has it. */
static bool filter_is_of_strategy(const struct rsh_name_filter *c,
				  const struct rsh_catalogue *cat,
				  uint32_t name)
{
	return !c->renamed[name] && cat->n_ends &&
	       (name >= cat->n_ends || cat->first[name] == UINT32_MAX);
}

int rsh_name_filter_refuse_listed(const char *renamed, struct rsh_error *err)
{
	return rsh_error_set(err, EINVAL, "a strategy has %s, a new name of "
			     "--rename; strategies need the names in SOURCE",
			     renamed);
}

/* Two parameters must not be written under one name. */
static int filter_check_renamed(const struct rsh_name_filter *c,
				const struct rsh_catalogue *cat,
				const uint32_t *which, uint32_t n_names,
				struct rsh_error *err)
{
	cleanup_free struct shown_name *all =
		rsh_alloc_array(n_names, sizeof(*all));
	uint32_t n = 0;

	if (!all)
		return rsh_error_nomem(err);
	for (uint32_t i = 0; i < n_names; i++) {
		const uint32_t name = filter_nth(which, i);

		/* Names in SOURCE are selected: one that only a strategy has
		 * is still the place of a parameter. */
		if (!c->unwanted[name] || filter_is_of_strategy(c, cat, name))
			all[n++] = (struct shown_name){
				c->renamed[name] ? c->renamed[name] :
					rsh_names_text(cat->names, name), name,
			};
	}
	qsort(all, n, sizeof(*all), shown_by_text);
	for (uint32_t i = 1; i < n; i++) {
		const char *text = all[i].text;

		if (strcmp(all[i - 1].text, text) != 0)
			continue;
		if (filter_is_of_strategy(c, cat, all[i - 1].name) ||
		    filter_is_of_strategy(c, cat, all[i].name))
			return rsh_name_filter_refuse_listed(text, err);
		return rsh_error_set(err, EINVAL, "renaming gives two "
				     "parameters the name %s", text);
	}
	return 0;
}

/* The loader of a file knows states by their written names. */
static enum rsh_kind filter_kind(const struct rsh_name_filter *c,
				 const struct rsh_catalogue *cat, uint32_t name)
{
	const char *written = rsh_name_filter_name(c, name);

	return written ? rsh_kind_of(written) :
			 rsh_kinds_of(cat->kinds, name,
				      rsh_names_text(cat->names, name));
}

bool rsh_name_filter_apart(const struct rsh_name_filter *c,
			   const struct rsh_catalogue *cat, uint32_t name)
{
	return rsh_kind_is_of_optimizer(filter_kind(c, cat, name));
}

int rsh_name_filter_fill(struct rsh_name_filter *c,
			const struct rsh_catalogue *cat, const uint32_t *which,
			uint32_t n, const struct rsh_plan_options *o,
			struct rsh_error *err)
{
	c->filtered = o->wanted != NULL;
	c->division = o->division;
	c->part_bytes = o->part_bytes;
	c->unwanted = calloc((size_t)cat->n_names + 1, sizeof(*c->unwanted));
	if (o->rename)
		c->renamed = calloc((size_t)cat->n_names + 1,
				    sizeof(*c->renamed));
	if (!c->unwanted || (o->rename && !c->renamed))
		return rsh_error_nomem(err);
	for (uint32_t i = 0; i < n; i++) {
		const uint32_t name = filter_nth(which, i);
		const char *text = rsh_names_text(cat->names, name);
		enum rsh_kind kind;

		c->unwanted[name] = !rsh_plan_wants(o, text);
		if (o->rename)
			c->renamed[name] = o->rename(o->ctx, text);
		if (c->division != RSH_DIVIDE_KINDS)
			continue;
		kind = filter_kind(c, cat, name);
		if (kind == RSH_KIND_GRADIENT)
			c->unwanted[name] = true;
		c->two_files |= !c->unwanted[name] &&
				rsh_kind_is_of_optimizer(kind);
	}
	return o->rename ? filter_check_renamed(c, cat, which, n, err) : 0;
}

void rsh_name_filter_clear(struct rsh_name_filter *c)
{
	free(c->unwanted);
	free(c->renamed);
}

const char *rsh_name_filter_name(const struct rsh_name_filter *c, uint32_t name)
{
	return c->renamed ? c->renamed[name] : NULL;
}

int rsh_name_filter_check(const struct rsh_name_filter *c,
			  const struct rsh_plan *p, struct rsh_error *err)
{
	if (!c->filtered)
		return 0;
	for (uint32_t i = 0; i < rsh_plan_n_files(p); i++)
		if (rsh_plan_is_lost(p, i) || rsh_plan_n_records(p, i) > 0)
			return 0;
	return rsh_error_set(err, EINVAL, "no parameter is left (parameters "
					  "are selected by their names before "
					  "--rename)");
}

static bool filter_in_second(const void *ctx, const struct rsh_catalogue *cat,
			     uint32_t name)
{
	return rsh_name_filter_apart(ctx, cat, name);
}

int rsh_name_filter_add(const struct rsh_name_filter *c, struct rsh_plan *p,
			const struct rsh_shown_file *f, struct rsh_error *err)
{
	if (c->two_files)
		return rsh_blueprint_add_two(p, f, filter_in_second, c, err);
	return c->division == RSH_DIVIDE_PARTS ?
		rsh_blueprint_add_parts(p, f, c->part_bytes, err) :
		rsh_blueprint_add_file(p, f, err);
}
