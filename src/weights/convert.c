/* SPDX-License-Identifier: Apache-2.0 */
/* weights/convert.c runs a conversion, and finds its direction and its
 * table. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/mem.h"
#include "weights_i.h"

static void weights_sort(struct weights_work *w)
{
	if (w->n_made)
		qsort(w->made, w->n_made, sizeof(*w->made), weights_by_text);
}

static int weights_made_twice(const struct weights_work *w, uint32_t i,
			      struct rsh_error *err)
{
	const struct rsh_rule *a = w->made[i - 1].rule, *b = w->made[i].rule;
	const struct rsh_rule *rule = b ? b : a;

	if (!rule)
		return rsh_error_set(err, EINVAL, "%s is in the source twice",
				     w->made[i].text);
	return weights_bad(w, rule, err, "%.400s is made twice, of %.400s and "
			   "of %.400s", w->made[i].text,
			   weights_text(w, *w->made[i - 1].sources),
			   weights_text(w, *w->made[i].sources));
}

int weights_run(struct weights_work *w, struct rsh_error *err)
{
	int rc = weights_read_lets(w, err);

	w->from = w->o->from;
	w->to = w->from == RSH_SIDE_HF ? RSH_SIDE_MINDSPORE : RSH_SIDE_HF;
	if (rc == 0)
		rc = weights_read_units(w, err);
	if (rc == 0)
		rc = w->from == RSH_SIDE_HF ? weights_untie(w, err) :
					      weights_cut_padding(w, err);
	if (rc == 0)
		rc = weights_assign(w, err);
	if (rc == 0)
		rc = weights_make(w, err);
	if (rc == 0)
		rc = w->from == RSH_SIDE_HF ? weights_add_padding(w, err) :
					      weights_tie(w, err);
	weights_sort(w);
	if (rc == 0 && w->from == RSH_SIDE_HF) {
		rc = weights_check_copies(w, err);
	} else if (rc == 0 && w->copies.n) {
		rc = weights_make_also(w, err);
		weights_sort(w);
	}
	rsh_catalogue_update_names(w->cat);
	if (rc)
		return rc;
	for (uint32_t i = 1; i < w->n_made && rc == 0; i++)
		if (w->made[i - 1].offer.name == w->made[i].offer.name)
			rc = weights_wrong(w, weights_made_twice(w, i, err),
					   err);
	return rc;
}

int rsh_weights_convert(const struct rsh_weights_options *o,
			const struct rsh_offers *in, struct rsh_arena *arena,
			struct rsh_offers *out, struct rsh_error *err)
{
	struct weights_work w = {
		.o = o, .cat = in->cat, .in = in->v, .n = in->n,
		.arena = arena,
	};
	int rc = weights_run(&w, err);

	if (rc == 0) {
		*out = (struct rsh_offers){ .cat = in->cat, .n = w.n_made };
		out->v = rsh_arena_array(arena, struct rsh_offer, w.n_made);
		if (!out->v)
			rc = rsh_error_nomem(err);
	}
	for (uint32_t i = 0; rc == 0 && i < w.n_made; i++)
		out->v[i] = w.made[i].offer;
	weights_clear(&w);
	return rc;
}

/* ---- direction ---- */

/* Names that both sides have do not show the direction, so they are not
 * counted. */
int rsh_weights_side(const struct rsh_rule_table *table,
		     const struct rsh_offer *in, uint32_t n,
		     const struct rsh_names *names, enum rsh_side *out,
		     struct rsh_error *err)
{
	const struct rsh_weights_options o = { .table = table };
	const char *path = table->path;
	struct weights_work w = { .o = &o };
	uint32_t hf = 0, mindspore = 0;
	int rc = weights_read_lets(&w, err);

	if (rc == 0)
		rc = weights_read_units(&w, err);
	for (uint32_t i = 0; rc == 0 && i < n; i++) {
		const char *text = rsh_names_text(names, in[i].name);
		bool has[RSH_N_SIDES] = { false, false };
		uint64_t holes[WEIGHTS_HOLES_MAX];
		uint32_t n_found;
		const struct weights_template *t = weights_find(&w, text,
								&n_found);

		for (; n_found > 0; n_found--, t++)
			if (weights_fit(&w.units[t->unit].
						names[t->side][t->tensor],
					text, holes) != WEIGHTS_NO)
				has[t->side] = true;
		hf += has[RSH_SIDE_HF] && !has[RSH_SIDE_MINDSPORE];
		mindspore += has[RSH_SIDE_MINDSPORE] && !has[RSH_SIDE_HF];
	}
	if (rc == 0 && hf && mindspore)
		rc = rsh_error_set(err, EINVAL, "%u of the tensors have names "
				   "of the left side of %s, and %u of the "
				   "right", hf, path, mindspore);
	else if (rc == 0 && !hf && !mindspore)
		rc = rsh_error_set(err, EINVAL, "none of the tensors has a "
				   "name that only one side of %s has", path);
	*out = hf ? RSH_SIDE_HF : RSH_SIDE_MINDSPORE;
	weights_clear(&w);
	return rc;
}

/* ---- tables ---- */

int rsh_weights_choose(const struct rsh_weights_options *o,
		       struct rsh_rule_table *const *tables, size_t n,
		       const struct rsh_offers *in,
		       const struct rsh_rule_table **out,
		       struct rsh_error *err)
{
	*out = tables[0];
	for (size_t i = 0; n > 1 && i < n; i++) {
		struct rsh_weights_options trial = {
			.table = tables[i], .config = o->config,
			.given = o->given,
			.unlisted = RSH_UNLISTED_ERROR, .wanted = o->wanted,
			.vocab_multiple = o->vocab_multiple, .untie = o->untie,
			.ctx = o->ctx,
		};
		struct rsh_error why = RSH_ERROR_INIT;
		struct rsh_arena arena = { 0 };
		struct rsh_offers made;
		int rc = 0;

		if (trial.given)
			trial.from = (enum rsh_side)(trial.given - 1);
		else
			rc = rsh_weights_side(trial.table, in->v, in->n,
					      in->cat->names, &trial.from,
					      &why);
		if (rc == 0)
			rc = rsh_weights_convert(&trial, in, &arena, &made,
						 &why);
		rsh_arena_clear(&arena);
		if (rc == -ENOMEM)
			return rsh_error_nomem(err);
		if (rc == 0) {
			*out = tables[i];
			break;
		}
		if (o->refused)
			o->refused(o->ctx, tables[i], why.text);
	}
	return 0;
}
