/* SPDX-License-Identifier: Apache-2.0 */
/* plan/lost.c remembers the slices that no file holds, and reports them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conversion_i.h"
#include "rsh/util/mem.h"

/* So many slices are told with their ranks; the others are told by parameter.
 */
#define TOLD_MAX 4096
#define RANKS_TOLD_MAX 64

int rsh_lost_add(struct rsh_conversion *c, const struct rsh_lost *lost,
		 const struct rsh_error *sentence)
{
	bool *told;

	if (!c->lost_whole)
		c->lost_whole = calloc(c->n_names + 1, sizeof(bool));
	if (!c->lost_whole ||
	    rsh_grow(&c->lost, &c->lost_cap, c->n_lost + 1, sizeof(*c->lost)))
		return -ENOMEM;
	if (c->n_lost == 0)
		c->first_lost = *sentence;
	/* Many destination ranks need the same slices. */
	told = lost->transfer == RSH_NO_TRANSFER ?
		&c->lost_whole[lost->name] :
		&c->transfers[lost->transfer]->lost;
	if (!*told)
		c->lost[c->n_lost++] = *lost;
	*told = true;
	return 0;
}

static int by_name(const void *a, const void *b)
{
	const struct rsh_lost *x = a, *y = b;

	if (x->name != y->name)
		return x->name < y->name ? -1 : 1;
	return x->transfer < y->transfer ? -1 : x->transfer > y->transfer;
}

/* ---- one parameter ---- */

/* The losses of one parameter, which each block has in its own transfer. */
struct loss {
	const struct rsh_conversion *c;
	const struct rsh_lost *first;
	uint32_t n;
};

static const struct rsh_supply *supply_of(const struct loss *l, uint32_t i)
{
	const struct rsh_transfer *t = l->first[i].transfer == RSH_NO_TRANSFER ?
		NULL : l->c->transfers[l->first[i].transfer];

	return t ? l->c->pairs[t->pair].supply : NULL;
}

/* Does a block need the slice that `key` is the first to hold, and cannot have
 * it?  All blocks together need every slice. */
static bool is_lost(const struct loss *l, uint32_t key)
{
	for (uint32_t i = 0; i < l->n; i++) {
		const struct rsh_supply *s = supply_of(l, i);

		if (s && rsh_grid_replica(s->grid, key) == 0 &&
		    rsh_supply_rank(s, key) == RSH_NO_RANK)
			return true;
	}
	return false;
}

static uint32_t n_cells(const struct rsh_supply *s)
{
	return rsh_grid_n_ranks(s->grid) / rsh_grid_n_replicas(s->grid);
}

/* Slices that are lost: counted without looking at each, unless blocks have
 * lost different ones. */
static uint32_t count(const struct loss *l)
{
	const struct rsh_supply *s = supply_of(l, 0);
	uint32_t n = 0;

	for (uint32_t i = 1; i < l->n; i++) {
		if (supply_of(l, i) == s)
			continue;
		for (uint32_t key = 0; key < l->c->stage_ranks; key++)
			n += is_lost(l, key);
		return n > 0 ? n : 1;
	}
	return s ? n_cells(s) - s->n_cells : 1;
}

/* ---- the sentences ---- */

struct telling {
	void (*report)(void *ctx, const char *sentence);
	void *ctx;
	uint32_t left; /* slices that may still be told */
};

static bool is_in_any(const struct rsh_conversion *c, uint32_t name)
{
	for (uint32_t i = 0; i < c->n_present; i++)
		if (rsh_rank_record(c, c->present[i], name))
			return true;
	return false;
}

static void tell_whole(struct telling *t, const struct loss *l)
{
	char text[RSH_ERROR_TEXT_MAX];

	snprintf(text, sizeof(text), "lost: parameter %s, %s",
		 rsh_names_text(l->c->names, l->first->name),
		 is_in_any(l->c, l->first->name) ?
		 "slices of which are in no file" :
		 "which no valid file holds");
	t->report(t->ctx, text);
}

/* `n` slices, after others or by themselves. */
static void tell_rest(struct telling *t, const struct loss *l, uint32_t n,
		      bool others)
{
	char text[RSH_ERROR_TEXT_MAX];

	snprintf(text, sizeof(text), "lost: parameter %s, %u %sslices",
		 rsh_names_text(l->c->names, l->first->name), n,
		 others ? "more " : "");
	t->report(t->ctx, text);
}

static void tell_slice(struct telling *t, const struct loss *l,
		       const struct rsh_grid *g, uint32_t key)
{
	const struct rsh_conversion *c = l->c;
	const struct rsh_strategy_param *s = c->src && !c->by_stage ?
		rsh_strategy_find(c->src, l->first->name) : NULL;
	uint32_t stage = s ? rsh_param_source_stage(s)->stage : 0;
	uint32_t n = rsh_grid_n_replicas(g), cell[RSH_MAX_DIMS], i;
	char text[RSH_ERROR_TEXT_MAX];
	int at = snprintf(text, sizeof(text), "lost: parameter %s, the slice "
			  "of ranks", rsh_names_text(c->names, l->first->name));

	rsh_grid_cell(g, key, cell);
	for (i = 0; i < n && i < RANKS_TOLD_MAX; i++) {
		if ((size_t)at + 48 > sizeof(text))
			break;
		at += snprintf(text + at, sizeof(text) - (size_t)at, " %u",
			       rsh_source_rank(c, stage,
					       rsh_grid_member(g, cell, i)));
	}
	if (i < n && (size_t)at < sizeof(text))
		snprintf(text + at, sizeof(text) - (size_t)at, " and %u more",
			 n - i);
	t->report(t->ctx, text);
	t->left--;
}

static void tell_loss(struct telling *t, const struct loss *l, uint32_t n)
{
	const struct rsh_supply *s = supply_of(l, 0);
	const uint32_t all = n;

	if (!s) {
		tell_whole(t, l);
		return;
	}
	for (uint32_t key = 0; key < l->c->stage_ranks && n > 0 && t->left > 0;
	     key++) {
		if (!is_lost(l, key))
			continue;
		tell_slice(t, l, s->grid, key);
		n--;
	}
	if (n > 0)
		tell_rest(t, l, n, n < all);
}

int rsh_lost_report(struct rsh_conversion *c,
		    void (*report)(void *ctx, const char *sentence), void *ctx,
		    struct rsh_error *err)
{
	struct telling t = { report, ctx, TOLD_MAX };
	uint64_t n_slices = 0;
	uint32_t n_names = 0;

	qsort(c->lost, c->n_lost, sizeof(*c->lost), by_name);
	for (uint32_t i = 0; i < c->n_lost; n_names++) {
		struct loss l = { c, &c->lost[i], 0 };
		uint32_t n;

		while (i < c->n_lost && c->lost[i].name == l.first->name) {
			l.n++;
			i++;
		}
		n = count(&l);
		n_slices += n;
		if (report)
			tell_loss(&t, &l, n);
	}
	if (n_slices > 1)
		rsh_error_set(&c->first_lost, ENOENT, "%s (%llu slices of %u "
			      "parameters are lost in all)", c->first_lost.text,
			      (unsigned long long)n_slices, n_names);
	if (c->allow_missing)
		return 0;
	return rsh_error_set(err, ENOENT, "%s", c->first_lost.text);
}

const char *rsh_conversion_lost(const struct rsh_conversion *c)
{
	return c->n_lost ? c->first_lost.text : NULL;
}
