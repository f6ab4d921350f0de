/* Slices that no file holds. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conversion_i.h"
#include "rsh/util/mem.h"

int rsh_lost_add(struct rsh_conversion *c, const struct rsh_lost *lost,
		 const struct rsh_error *sentence)
{
	if (rsh_grow(&c->lost, &c->lost_cap, c->n_lost + 1, sizeof(*c->lost)))
		return -ENOMEM;
	if (c->n_lost == 0)
		c->first_lost = *sentence;
	c->lost[c->n_lost++] = *lost;
	return 0;
}

static int by_slice(const void *a, const void *b)
{
	const struct rsh_lost *x = a, *y = b;

	if (x->name != y->name)
		return x->name < y->name ? -1 : 1;
	if (x->key != y->key)
		return x->key < y->key ? -1 : 1;
	return 0;
}

/* Many destination ranks need the same slice. */
static void drop_repeated(struct rsh_conversion *c)
{
	uint32_t n = 0;

	qsort(c->lost, c->n_lost, sizeof(*c->lost), by_slice);
	for (uint32_t i = 0; i < c->n_lost; i++)
		if (n == 0 || by_slice(&c->lost[i], &c->lost[n - 1]))
			c->lost[n++] = c->lost[i];
	c->n_lost = n;
}

static void tell(const struct rsh_conversion *c, const struct rsh_lost *l,
		 char *text, size_t size)
{
	const struct rsh_transfer *t = l->transfer == RSH_NO_TRANSFER ? NULL :
				       c->transfers[l->transfer];
	const struct rsh_grid *g = t ? c->pairs[t->pair].src : NULL;
	const struct rsh_strategy_param *s = c->src && !c->by_stage ?
		rsh_strategy_find(c->src, l->name) : NULL;
	uint32_t stage = s ? rsh_param_source_stage(s)->stage : 0;
	uint32_t cell[RSH_MAX_DIMS];
	int at = snprintf(text, size, "lost: parameter %s, ",
			  rsh_names_text(c->names, l->name));

	if (!g) {
		snprintf(text + at, size - (size_t)at,
			 "which no valid file holds");
		return;
	}
	at += snprintf(text + at, size - (size_t)at, "the slice of ranks");
	rsh_grid_cell(g, l->key, cell);
	for (uint32_t i = 0; i < rsh_grid_n_replicas(g); i++) {
		if ((size_t)at + 16 > size)
			return;
		at += snprintf(text + at, size - (size_t)at, " %u",
			       rsh_source_rank(c, stage,
					       rsh_grid_member(g, cell, i)));
	}
}

int rsh_lost_report(struct rsh_conversion *c,
		    void (*report)(void *ctx, const char *sentence), void *ctx,
		    struct rsh_error *err)
{
	char text[RSH_ERROR_TEXT_MAX];
	uint32_t n_names = 0;

	drop_repeated(c);
	for (uint32_t i = 0; i < c->n_lost; i++) {
		n_names += i == 0 || c->lost[i].name != c->lost[i - 1].name;
		if (!report)
			continue;
		tell(c, &c->lost[i], text, sizeof(text));
		report(ctx, text);
	}
	if (c->allow_missing)
		return 0;
	if (c->n_lost == 1)
		return rsh_error_set(err, ENOENT, "%s", c->first_lost.text);
	return rsh_error_set(err, ENOENT, "%s (%u slices of %u parameters are "
			     "lost in all)", c->first_lost.text, c->n_lost,
			     n_names);
}
