/* SPDX-License-Identifier: Apache-2.0 */
/* writer/writer.c plans the files of one stage of ranks after the other: first
 * how each tensor is cut for them, then their records. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/converter/name_filter.h"
#include "rsh/converter/redundancy.h"
#include "rsh/strategy/grid.h"
#include "rsh/util/mem.h"
#include "rsh/writer/writer.h"

#define WRITER_NO_SHOWN UINT32_MAX
#define WRITER_TEXT 160

/* The plan asks this, and tells what it finds. */
struct writer_asked {
	struct rsh_name_filter chosen;
	uint32_t stood_for; /* a name, of which some cells are taken from other
			     * files than their own; or RSH_NAME_NONE */
	bool others;        /* there are others like it */
};

/* This is an offer in the stage at hand. */
struct writer_entry {
	uint32_t whole; /* number of the tensor that is shown whole */
	uint32_t shown; /* in this stage, or WRITER_NO_SHOWN */
	const struct rsh_grid *grid; /* of a listed one, else NULL */
	bool kept;      /* by the rank at hand */
};

struct writing {
	struct rsh_catalogue *cat;
	struct rsh_plan *plan;
	struct writer_asked *asked; /* the plan owns it */
	struct rsh_name_filter *chosen;  /* in there */
	const struct rsh_offer *offers;
	uint32_t n;
	const struct rsh_strategy *dst;
	const struct rsh_conversion_options *o;
	struct writer_entry *entries; /* [offer] */
	uint32_t *offer_of; /* [name]: 1 + its offer; 0: there is none */
	uint32_t *to_deal;  /* names that the stage lists, by text */
	uint32_t n_to_deal;
	struct rsh_slot *slots;
	struct rsh_record_shape *shapes;
};

/* ---- what the plan asks ---- */

static const char *writer_written(const void *ctx, uint32_t name)
{
	const struct writer_asked *a = ctx;

	return rsh_name_filter_name(&a->chosen, name);
}

static void writer_stands_in(void *ctx, uint32_t own_file, uint32_t name)
{
	struct writer_asked *a = ctx;

	(void)own_file;
	if (a->stood_for == RSH_NAME_NONE)
		a->stood_for = name;
	a->others |= a->stood_for != name;
}

static void writer_free(void *ctx)
{
	struct writer_asked *a = ctx;

	rsh_name_filter_clear(&a->chosen);
	free(a);
}

/* ---- how a tensor is shown ---- */

static const char *writer_name(const struct writing *w, uint32_t name)
{
	return rsh_names_text(w->cat->names, name);
}

/* Gives the tensor that the first part of an offer is of; NULL: it has none. */
static const struct rsh_tensor *writer_first(const struct writing *w,
					     const struct rsh_offer *o)
{
	if (o->n_factored)
		return w->cat->tensors[o->factored->tensor];
	return o->n_parts ? w->cat->tensors[o->parts->tensor] : NULL;
}

static bool writer_is_scaled(const struct rsh_offer *o)
{
	return o->n_factored && o->factored->scale;
}

static bool writer_is_cast(const struct writing *w, const struct rsh_offer *o)
{
	const char *name = writer_name(w, o->name);

	return rsh_is_weight(name, o->n_dims) &&
	       !rsh_is_flattened_state(name);
}

/* Says which type an offer is shown as, and by which codec it becomes that. */
static enum rsh_codec writer_codec(const struct writing *w,
				   const struct rsh_offer *o,
				   enum rsh_dtype *dtype)
{
	const struct rsh_tensor *first = writer_first(w, o);
	const bool wide = first && first->wide_bf16;
	enum rsh_codec cast = RSH_CODEC_COUNT;

	if (writer_is_scaled(o)) {
		*dtype = RSH_DTYPE_BFLOAT16;
		return RSH_CODEC_FP8_SCALED;
	}
	if (writer_is_cast(w, o))
		cast = rsh_codec_cast(o->dtype, wide, w->o->cast);
	*dtype = cast == RSH_CODEC_COUNT ? o->dtype : w->o->cast;
	if (cast != RSH_CODEC_COUNT)
		return cast;
	return wide ? RSH_CODEC_BF16_WIDE : RSH_CODEC_NONE;
}

/* Scaled elements are rounded once, to BFloat16. */
static int writer_check_cast(const struct writing *w, const struct rsh_offer *o,
			     struct rsh_error *err)
{
	if (!writer_is_scaled(o) || !writer_is_cast(w, o) ||
	    w->o->cast == RSH_DTYPE_UNKNOWN ||
	    w->o->cast == RSH_DTYPE_BFLOAT16)
		return 0;
	return rsh_error_set(err, EINVAL, "it is scaled Float8, which becomes "
			     "BFloat16 and cannot be cast to %s",
			     rsh_dtype_name(w->o->cast));
}

/* Puts the parameter and its layout before the reason. */
static int writer_refuse(const struct writing *w, const struct rsh_offer *o,
			 const struct rsh_strategy_item *item, int rc,
			 struct rsh_error *err)
{
	char dims[WRITER_TEXT], layout[WRITER_TEXT];

	if (rc == -ENOMEM)
		return rc;
	rsh_dims_text(o->dims, o->n_dims, dims, sizeof(dims));
	if (!item)
		rsh_error_prefix(err, "parameter %s of shape %s",
				 writer_name(w, o->name), dims);
	else
		rsh_error_prefix(err, "parameter %s of shape %s cannot be cut "
				 "as %s (%s)", writer_name(w, o->name), dims,
				 rsh_item_text(item, layout, sizeof(layout)),
				 w->dst->path);
	return rc;
}

/* Makes the cut of a layout, or with NULL the one of a single rank. */
static int writer_cut(const struct writing *w, const struct rsh_offer *o,
		      const struct rsh_strategy_item *item,
		      const struct rsh_cut **out, struct rsh_error *err)
{
	int64_t dims[RSH_MAX_DIMS];
	struct rsh_grid *g;
	int rc;

	if (o->n_dims > RSH_MAX_DIMS)
		return rsh_error_set(err, EINVAL, "too many dimensions");
	for (uint32_t d = 0; d < o->n_dims; d++) {
		if (o->dims[d] > INT64_MAX)
			return rsh_error_set(err, EINVAL, "it is too large");
		dims[d] = (int64_t)o->dims[d];
	}
	rc = item ? rsh_grid_new(item, dims, o->n_dims, false,
				 RSH_GRID_RUNTIME, &g, err) :
		    rsh_grid_new_whole(o->n_dims, &g, err);
	if (rc)
		return rc;
	*out = rsh_catalogue_keep_cut(w->cat, rsh_cut_of_grid(g));
	return *out ? 0 : rsh_error_nomem(err);
}

static int writer_show(struct writing *w, uint32_t i,
		       const struct rsh_strategy_item *item,
		       struct rsh_error *err)
{
	const struct rsh_offer *o = &w->offers[i];
	struct writer_entry *e = &w->entries[i];
	struct rsh_shown t = {
		.name = o->name,
		.n_dims = (uint8_t)o->n_dims,
		.dims = o->dims,
		.recipe = { .n_parts = o->n_parts, .parts = o->parts,
			    .n_factored = o->n_factored,
			    .factored = o->factored },
	};
	int rc = writer_check_cast(w, o, err);

	if (rc == 0)
		rc = writer_cut(w, o, item, &t.cut, err);
	t.recipe.codec = writer_codec(w, o, &t.dtype);
	if (rc == 0)
		rc = rsh_blueprint_show(w->plan, &t, &e->shown, err);
	if (rc)
		return writer_refuse(w, o, item, rc, err);
	e->grid = item ? rsh_cut_grid(t.cut) : NULL;
	if (!item)
		e->whole = e->shown;
	return 0;
}

/* ---- which tensors a stage has ---- */

/* Shows a tensor that the strategy does not list. */
static int writer_show_unlisted(struct writing *w, uint32_t i,
				struct rsh_error *err)
{
	struct writer_entry *e = &w->entries[i];
	const char *written =
		rsh_name_filter_name(w->chosen, w->offers[i].name);

	if (w->dst && w->o->unlisted == RSH_UNLISTED_DROP)
		return 0;
	if (w->dst && w->o->unlisted == RSH_UNLISTED_ERROR)
		return rsh_error_set(err, EINVAL, "parameter %s is not listed "
				     "by %s", written ? written :
				     writer_name(w, w->offers[i].name),
				     w->dst->path);
	if (e->whole == WRITER_NO_SHOWN)
		return writer_show(w, i, NULL, err);
	e->shown = e->whole;
	return 0;
}

/* Shows the tensors of a stage; *listed says whether it lists any of them. */
static int writer_show_stage(struct writing *w, uint32_t stage, bool *listed,
			     struct rsh_error *err)
{
	*listed = false;
	for (uint32_t i = 0; i < w->n; i++) {
		const uint32_t name = w->offers[i].name;
		const struct rsh_strategy_param *p =
			w->dst ? rsh_strategy_find(w->dst, name) : NULL;
		int rc = 0;

		w->entries[i].shown = WRITER_NO_SHOWN;
		w->entries[i].grid = NULL;
		w->entries[i].kept = true;
		if (w->chosen->unwanted[name])
			continue;
		if (!p) {
			rc = writer_show_unlisted(w, i, err);
		} else if (rsh_param_in_stage(p, stage)) {
			rc = writer_show(w, i, rsh_param_item(p, stage), err);
			*listed = true;
		}
		if (rc)
			return rc;
	}
	return 0;
}

/* ---- what a rank keeps of replicas ---- */

static bool writer_is_wanted(const struct writing *w, uint32_t name)
{
	const char *text = writer_name(w, name);

	if (w->offer_of[name])
		return !w->chosen->unwanted[name];
	if (w->o->division == RSH_DIVIDE_KINDS &&
	    rsh_kind_of(text) == RSH_KIND_GRADIENT)
		return false;
	return !w->o->wanted || w->o->wanted(w->o->ctx, text);
}

static void writer_list_to_deal(struct writing *w, uint32_t stage)
{
	w->n_to_deal = 0;
	for (uint32_t i = 0; i < w->dst->n_params; i++) {
		const struct rsh_strategy_param *p = &w->dst->params[i];

		if (rsh_param_in_stage(p, stage) &&
		    writer_is_wanted(w, p->name))
			w->to_deal[w->n_to_deal++] = p->name;
	}
	rsh_redundancy_sort(w->to_deal, w->n_to_deal, w->cat->names);
}

static int writer_deal(struct writing *w, uint32_t stage, uint32_t local,
		       struct rsh_error *err)
{
	struct rsh_redundancy *d;
	int rc = 0;

	if (!w->dst || !w->o->remove_redundancy)
		return 0;
	d = rsh_redundancy_new(local);
	if (!d)
		return rsh_error_nomem(err);
	for (uint32_t i = 0; i < w->n_to_deal && rc == 0; i++) {
		const uint32_t name = w->to_deal[i];
		const uint32_t offer = w->offer_of[name];
		struct writer_entry *e = offer ? &w->entries[offer - 1] : NULL;
		bool keeps;

		if (e)
			rc = rsh_redundancy_next(d, e->grid, &e->kept, err);
		else
			rc = rsh_redundancy_unsaved(d, rsh_param_item(
				rsh_strategy_find(w->dst, name), stage),
				&keeps, err);
	}
	rsh_redundancy_free(d);
	return rc;
}

/* ---- files ---- */

static int writer_add_file(struct writing *w, uint32_t rank, uint32_t local,
			   struct rsh_error *err)
{
	struct rsh_shown_file f = {
		.rank = rank, .member = local,
		.slots = w->slots, .shapes = w->shapes,
	};

	for (uint32_t i = 0; i < w->n; i++) {
		const struct writer_entry *e = &w->entries[i];

		if (e->shown == WRITER_NO_SHOWN || !e->kept)
			continue;
		rsh_blueprint_shape(w->plan, e->shown, local,
				    &f.shapes[f.n]);
		f.slots[f.n] = (struct rsh_slot){
			.content_bytes = f.shapes[f.n].content_bytes,
			.name = w->offers[i].name,
			.shown = e->shown,
		};
		f.n++;
	}
	return rsh_name_filter_add(w->chosen, w->plan, &f, err);
}

static int writer_plan_stage(struct writing *w, uint32_t stage,
			     struct rsh_error *err)
{
	const uint32_t n = w->dst ? w->dst->stage_ranks : 1;
	bool listed;
	int rc = writer_show_stage(w, stage, &listed, err);

	if (rc == 0 && w->dst && !listed && !w->chosen->filtered)
		rc = rsh_error_set(err, EINVAL, "rank %u: no parameter of the "
				   "source files is listed by %s", stage * n,
				   w->dst->path);
	if (rc == 0 && w->to_deal)
		writer_list_to_deal(w, stage);
	for (uint32_t local = 0; rc == 0 && local < n; local++) {
		rc = writer_deal(w, stage, local, err);
		if (rc == 0)
			rc = writer_add_file(w, stage * n + local, local, err);
	}
	return rc;
}

/* Says what the strategy lists in vain, as the optimizer's state of a
 * checkpoint that has none. */
static int writer_note_absent(const struct writing *w)
{
	uint32_t n = 0, example = RSH_NAME_NONE;
	char *text;
	int rc;

	for (uint32_t i = 0; w->dst && i < w->dst->n_params; i++) {
		uint32_t name = w->dst->params[i].name;

		if (w->offer_of[name] || !writer_is_wanted(w, name))
			continue;
		if (n++ == 0)
			example = name;
	}
	if (n == 0)
		return 0;
	rc = asprintf(&text, "%u parameter%s that %s lists %s not in the "
		      "source (%s%s)", n, n > 1 ? "s" : "", w->dst->path,
		      n > 1 ? "are" : "is", writer_name(w, example),
		      n > 1 ? " and others" : "");
	return rsh_blueprint_note(w->plan, rc < 0 ? NULL : text);
}

static int writer_note_stand_ins(const struct writing *w)
{
	const uint32_t name = w->asked->stood_for;
	char *text;
	int rc;

	if (name == RSH_NAME_NONE)
		return 0;
	rc = asprintf(&text, "slices that files lack, or lost ones had, come "
		      "from others that hold the same (%s%s)",
		      writer_name(w, name), w->asked->others ? " and others" :
							       "");
	return rsh_blueprint_note(w->plan, rc < 0 ? NULL : text);
}

/* ---- making ---- */

static int writer_prepare(struct writing *w, struct rsh_error *err)
{
	cleanup_free uint32_t *names = rsh_alloc_array(w->n, sizeof(*names));

	w->entries = calloc((size_t)w->n + 1, sizeof(*w->entries));
	w->offer_of = calloc((size_t)w->cat->n_names + 1,
			     sizeof(*w->offer_of));
	w->slots = rsh_alloc_array(w->n, sizeof(*w->slots));
	w->shapes = rsh_alloc_array(w->n, sizeof(*w->shapes));
	if (w->dst && w->o->remove_redundancy)
		w->to_deal = rsh_alloc_array((size_t)w->dst->n_params + 1,
					     sizeof(*w->to_deal));
	if (!names || !w->entries || !w->offer_of || !w->slots || !w->shapes ||
	    (w->dst && w->o->remove_redundancy && !w->to_deal))
		return rsh_error_nomem(err);
	for (uint32_t i = 0; i < w->n; i++) {
		w->entries[i].whole = WRITER_NO_SHOWN;
		names[i] = w->offers[i].name;
		w->offer_of[names[i]] = i + 1;
	}
	return rsh_name_filter_ask(w->chosen, w->cat, names, w->n, w->o, err);
}

/* The plan owns catalogue and choice from here on. */
static int writer_begin(struct writing *w)
{
	const struct rsh_blueprint b = {
		.framing = w->o->framing,
		.remove_redundancy = w->dst && w->o->remove_redundancy &&
				     w->o->division != RSH_DIVIDE_KINDS,
		.replicas = w->o->replicas,
		.allow_missing = w->o->allow_missing,
		.n_ranks = w->dst ? w->dst->n_stages * w->dst->stage_ranks : 1,
	};
	struct rsh_writer writer = {
		.written = writer_written,
		.stands_in = writer_stands_in,
		.free = writer_free,
	};

	w->asked = calloc(1, sizeof(*w->asked));
	if (!w->asked) {
		rsh_catalogue_free(w->cat);
		return -ENOMEM;
	}
	w->asked->stood_for = RSH_NAME_NONE;
	w->chosen = &w->asked->chosen;
	/* The names of offers may be younger than the catalogue. */
	rsh_catalogue_see_names(w->cat);
	writer.ctx = w->asked;
	w->plan = rsh_blueprint_new(w->cat, &writer, &b);
	return w->plan ? 0 : -ENOMEM;
}

static int writer_plan(struct writing *w, struct rsh_error *err)
{
	int rc = writer_prepare(w, err), lost;

	for (uint32_t s = 0; rc == 0 && s < (w->dst ? w->dst->n_stages : 1);
	     s++)
		rc = writer_plan_stage(w, s, err);
	if (rc == 0)
		rc = rsh_name_filter_check(w->chosen, w->plan, err);
	/* What is lost is told in any case, and the first error counts. */
	lost = rsh_blueprint_finish(w->plan, w->o->report_lost, w->o->ctx,
				    rc ? NULL : err);
	if (rc == 0)
		rc = lost;
	if (rc == 0 && (writer_note_absent(w) || writer_note_stand_ins(w)))
		rc = rsh_error_nomem(err);
	return rc;
}

int rsh_write_plan(struct rsh_catalogue *cat, const struct rsh_offer *offers,
		   uint32_t n, const struct rsh_strategy *dst,
		   const struct rsh_conversion_options *opts,
		   struct rsh_plan **out, struct rsh_error *err)
{
	struct writing w = {
		.cat = cat, .offers = offers, .n = n, .dst = dst, .o = opts,
	};
	int rc;

	if (writer_begin(&w))
		return rsh_error_nomem(err);
	rc = writer_plan(&w, err);
	free(w.entries);
	free(w.offer_of);
	free(w.to_deal);
	free(w.slots);
	free(w.shapes);
	if (rc)
		rsh_plan_free(w.plan);
	else
		*out = w.plan;
	return rc;
}
