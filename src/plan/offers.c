/* SPDX-License-Identifier: Apache-2.0 */
/* plan/offers.c is the policy for offers: each file has the offers of its
 * stage, in their order. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/plan/kinds.h"
#include "rsh/plan/policy.h"
#include "rsh/plan/writer.h"
#include "rsh/strategy/grid.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

#define LAYOUT_TEXT 160
#define OFFER_TEXT 8192 /* longest name that is looked for */

/* The context of the functions that the plan calls. */
struct offers_state {
	struct rsh_name_filter filter;
	uint32_t replaced; /* a parameter with slices that are read from
			    * replicas, or RSH_NAME_NONE */
	bool others;       /* there are more such parameters */
	/* With a placement: [name] the number of the name in the files. */
	uint32_t *written;
	const struct rsh_names *names;
};

struct offering {
	struct rsh_writer_state *w;
	struct offers_state *state; /* the plan owns it */
	const struct rsh_offer *offers;
	uint32_t n;
	const struct rsh_strategy *dst;
	const struct rsh_placement *placement; /* NULL: none */
	uint32_t *blocks;   /* [name of the current stage]: of ranks */
	uint32_t *here;     /* names of a file */
	uint32_t *whole;    /* [offer]: the tensor that some stage shows whole,
			     * or RSH_COPIED */
	bool *offered;      /* [name]: there is an offer */
	/* The names of the offers, and then, in a stage, those of its files. */
	uint32_t *names;
	uint32_t n_names;
};

/* ---- offers of tensors as they are ---- */

const struct rsh_tensor *rsh_offer_rows_of(const struct rsh_catalogue *c,
					   const struct rsh_offer *o)
{
	const struct rsh_recipe_part *p = o->parts;
	const struct rsh_tensor *t = o->n_parts == 1 && o->boxes ?
		c->tensors[p->tensor] : NULL;

	if (o->add)
		return NULL;
	if (o->same)
		return c->tensors[o->same - 1];
	if (!t || t->n_dims != o->n_dims)
		return NULL;
	for (uint32_t d = 0; d < o->n_dims; d++)
		if (p->factors[d].dim != d || p->from[d] ||
		    (d > 0 && t->dims[d] != o->dims[d]))
			return NULL;
	return t;
}

const struct rsh_tensor *rsh_offer_tensor(const struct rsh_catalogue *c,
					  const struct rsh_offer *o)
{
	const struct rsh_tensor *t = rsh_offer_rows_of(c, o);

	return t && (o->n_dims == 0 || t->dims[0] == o->dims[0]) ? t : NULL;
}

int rsh_offer_whole(const struct rsh_catalogue *c, struct rsh_arena *arena,
		    uint32_t tensor, const uint8_t *order, struct rsh_offer *o)
{
	struct rsh_recipe_part *p =
		rsh_arena_array(arena, struct rsh_recipe_part, 1);
	struct rsh_factor *f = rsh_arena_array(arena, struct rsh_factor,
					       c->tensors[tensor]->n_dims);

	if (!p || !f)
		return -ENOMEM;
	*p = rsh_recipe_whole(c, tensor, order, f);
	for (uint32_t d = 0; d < o->n_dims; d++)
		f[d].size = o->dims[d];
	o->n_parts = 1;
	o->parts = p;
	o->boxes = true;
	o->same = 0;
	return 0;
}

int rsh_offers_expand(struct rsh_offers *offers, struct rsh_arena *arena)
{
	int rc = 0;

	for (uint32_t i = 0; i < offers->n && rc == 0; i++)
		if (offers->v[i].same)
			rc = rsh_offer_whole(offers->cat, arena,
					     offers->v[i].same - 1, NULL,
					     &offers->v[i]);
	return rc;
}

int rsh_offers_index(const struct rsh_offers *offers, struct rsh_arena *arena,
		     struct rsh_offer_index *out)
{
	rsh_catalogue_update_names(offers->cat);
	out->names = offers->cat->names;
	out->n = offers->cat->n_names;
	out->of = rsh_arena_array(arena, uint32_t, out->n);
	for (uint32_t i = 0; out->of && i < offers->n; i++)
		out->of[offers->v[i].name] = i + 1;
	return out->of ? 0 : -ENOMEM;
}

uint32_t rsh_offer_number(const struct rsh_offer_index *x, const char *fmt, ...)
{
	char text[OFFER_TEXT];
	uint32_t name;
	va_list ap;
	int len;

	va_start(ap, fmt);
	len = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	name = len < 0 || (size_t)len >= sizeof(text) ? RSH_NAME_NONE :
		rsh_names_find(x->names, text, (size_t)len);
	return name < x->n ? x->of[name] : 0;
}

/* ---- functions for the plan ---- */

static const char *offers_written(const void *ctx, uint32_t name)
{
	const struct offers_state *a = ctx;

	return a->written ? rsh_names_text(a->names, a->written[name]) :
			    rsh_name_filter_name(&a->filter, name);
}

static void offers_stands_in(void *ctx, uint32_t own_file, uint32_t name)
{
	struct offers_state *a = ctx;

	(void)own_file;
	if (a->replaced == RSH_NAME_NONE)
		a->replaced = name;
	a->others |= a->replaced != name;
}

static void offers_free(void *ctx)
{
	struct offers_state *a = ctx;

	rsh_name_filter_clear(&a->filter);
	free(a->written);
	free(a);
}

/* ---- how a tensor is shown ---- */

static const char *offers_name(const struct offering *s, uint32_t name)
{
	return rsh_names_text(s->w->cat->names, name);
}

/* Finds the type as which an offer is shown, and the codec that converts to
 * it. */
static int offers_codec(const struct offering *s, const struct rsh_offer *o,
			struct rsh_shown *t, struct rsh_error *err)
{
	struct rsh_tensor *const *tensors = s->w->cat->tensors;
	const struct rsh_recipe *r = &t->recipe;
	const struct rsh_tensor *first =
		r->n_parts ? tensors[r->parts->tensor] : NULL;
	const bool wide = first && first->wide_bf16;
	const char *name = offers_name(s, o->name);
	const enum rsh_dtype cast = o->n_dims > 0 &&
		rsh_kinds_of(s->w->cat->kinds, o->name, name) ==
		RSH_KIND_WEIGHT ? s->w->o->cast : RSH_DTYPE_UNKNOWN;

	if (o->add) {
		t->dtype = o->dtype;
		t->recipe.codec = rsh_codec_add(o->dtype, o->add);
		if (wide || (first && first->quantised) ||
		    t->recipe.codec == RSH_CODEC_COUNT ||
		    (cast != RSH_DTYPE_UNKNOWN && cast != o->dtype))
			return rsh_error_set(err, ENOTSUP, "1 is added to its "
					     "elements, which cannot be done "
					     "beside a change of their type");
		return 0;
	}
	if (first && first->quantised) {
		t->dtype = cast == RSH_DTYPE_UNKNOWN ? first->quantised->type :
						       cast;
		t->recipe.codec = rsh_codec_scaled(t->dtype);
		return 0;
	}
	t->dtype = cast;
	t->recipe.codec = rsh_codec_cast(o->dtype, wide, cast);
	if (t->recipe.codec == RSH_CODEC_COUNT) {
		t->dtype = o->dtype;
		t->recipe.codec = wide ? RSH_CODEC_BF16_WIDE : RSH_CODEC_NONE;
	}
	return 0;
}

/* Prefixes the message with the parameter and its layout. */
static int offers_refuse(const struct offering *s, const struct rsh_offer *o,
			 const struct rsh_strategy_item *item, int rc,
			 struct rsh_error *err)
{
	char dims[LAYOUT_TEXT], layout[LAYOUT_TEXT];

	if (rc == -ENOMEM)
		return rc;
	rsh_dims_text(o->dims, o->n_dims, dims, sizeof(dims));
	if (!item)
		rsh_error_prefix(err, "parameter %s of shape %s",
				 offers_name(s, o->name), dims);
	else
		rsh_error_prefix(err, "parameter %s of shape %s cannot be cut "
				 "as %s (%s)", offers_name(s, o->name), dims,
				 rsh_item_text(item, layout, sizeof(layout)),
				 s->dst->path);
	return rc;
}

/* Makes the cut of a layout.  If the layout is NULL, makes the cut of a single
 * rank. */
static int offers_cut(const struct offering *s, const struct rsh_offer *o,
		      const struct rsh_strategy_item *item,
		      const struct rsh_cut **out, struct rsh_error *err)
{
	int64_t dims[RSH_MAX_DIMS];
	uint64_t ignored[RSH_MAX_DIMS];

	if (o->n_dims > RSH_MAX_DIMS)
		return rsh_error_set(err, EINVAL, "too many dimensions");
	for (uint32_t d = 0; d < o->n_dims; d++) {
		if (o->dims[d] > INT64_MAX)
			return rsh_error_set(err, EINVAL, "it is too large");
		dims[d] = (int64_t)o->dims[d];
	}
	return rsh_layout_cut(s->w->cat, item, &(struct rsh_grid_sizes){
			      dims, o->n_dims, false }, RSH_GRID_RUNTIME, out,
			      ignored, err);
}

/* Shows an offer, cut by its place or else by a layout. */
static int offers_show(struct offering *s, uint32_t i,
		       const struct rsh_strategy_item *item,
		       struct rsh_error *err)
{
	const struct rsh_offer *o = &s->offers[i];
	struct rsh_shown t = {
		.name = o->name,
		.n_dims = (uint8_t)o->n_dims,
		.dims = o->dims,
		.recipe = { .n_parts = o->n_parts, .parts = o->parts },
	};
	struct rsh_factor f[RSH_MAX_DIMS];
	struct rsh_recipe_part same;
	int rc = 0;

	if (s->placement)
		t.cut = s->placement->places[i].cut;
	else
		rc = offers_cut(s, o, item, &t.cut, err);
	if (o->same) {
		same = rsh_recipe_whole(s->w->cat, o->same - 1, NULL, f);
		t.recipe.n_parts = 1;
		t.recipe.parts = &same;
	}
	rc = rc ?: offers_codec(s, o, &t, err) ?:
	     rsh_blueprint_show(s->w->plan, &t, &s->w->shown[o->name], err);
	if (rc)
		return offers_refuse(s, o, item, rc, err);
	if (!item)
		s->whole[i] = s->w->shown[o->name];
	return 0;
}

/* ---- which tensors a stage has ---- */

static int offers_stage(void *ctx, uint32_t stage, struct rsh_error *err)
{
	struct offering *s = ctx;
	const enum rsh_unlisted unlisted = s->dst ? s->w->o->unlisted :
						    RSH_UNLISTED_COPY;
	const struct rsh_placed *places = s->placement ? s->placement->places :
							 NULL;
	bool listed = false;

	s->n_names = 0;
	for (uint32_t i = 0; i < s->n; i++) {
		const uint32_t name = s->offers[i].name;
		const struct rsh_strategy_param *p =
			rsh_strategy_find(s->dst, name);
		const char *written;
		int rc = 0;

		if (places ? places[i].stage != stage :
			     s->w->filter->unwanted[name])
			continue;
		if (places) {
			rc = offers_show(s, i, NULL, err);
			s->blocks[s->n_names] = places[i].block;
		} else if (p && rsh_param_in_stage(p, stage)) {
			rc = offers_show(s, i, rsh_param_item(p, stage), err);
			listed = true;
		} else if (!p && unlisted == RSH_UNLISTED_ERROR) {
			written = rsh_name_filter_name(s->w->filter, name);
			rc = rsh_error_set(err, EINVAL, "parameter %s is not "
					   "listed by %s", written ? written :
					   offers_name(s, name), s->dst->path);
		} else if (!p && unlisted == RSH_UNLISTED_COPY) {
			if (s->whole[i] == RSH_COPIED)
				rc = offers_show(s, i, NULL, err);
			s->w->shown[name] = s->whole[i];
		}
		if (rc)
			return rc;
		if (places || s->w->shown[name] != RSH_COPIED)
			s->names[s->n_names++] = name;
	}
	if (s->dst && !listed && !s->w->filter->filtered)
		return rsh_error_set(err, EINVAL,
				     "rank %u: no parameter of the "
				     "source files is listed by %s",
				     stage * s->dst->stage_ranks, s->dst->path);
	return 0;
}

static int offers_file(void *ctx, struct rsh_shown_file *f,
		       struct rsh_file_names *out, struct rsh_error *err)
{
	const struct offering *s = ctx;
	const struct rsh_placement *p = s->placement;
	uint32_t block;

	(void)err;
	*out = (struct rsh_file_names){ s->names, s->n_names, false };
	if (!p)
		return 0;
	block = f->member / p->block_ranks % p->n_blocks;
	*out = (struct rsh_file_names){ s->here, 0, false };
	for (uint32_t i = 0; i < s->n_names; i++)
		if (s->blocks[i] == block || s->blocks[i] == RSH_EVERY_BLOCK)
			s->here[out->n++] = s->names[i];
	return 0;
}

/* ---- parameters of the strategy ---- */

static bool offers_is_wanted(const struct offering *s, uint32_t name)
{
	const struct rsh_plan_options *o = s->w->o;
	const char *text = offers_name(s, name);

	if (s->offered[name])
		return !s->w->filter->unwanted[name];
	if (o->division == RSH_DIVIDE_KINDS &&
	    rsh_kinds_of(s->w->cat->kinds, name, text) == RSH_KIND_GRADIENT)
		return false;
	return rsh_plan_wants(o, text);
}

static bool offers_is_deduplicated(void *ctx, uint32_t stage,
				   const struct rsh_strategy_param *p)
{
	return rsh_param_in_stage(p, stage) && offers_is_wanted(ctx, p->name);
}

/* Returns whether a parameter that only the strategy lists is a weight: it is
 * none of a usual optimizer, nor PREFIX.W of another one, W. */
static bool offers_lacks_weight(const struct offering *s, uint32_t name)
{
	const char *text = offers_name(s, name), *rest = text;

	/* Counters have no dot. */
	if (rsh_kind_of(text) != RSH_KIND_WEIGHT || !strchr(text, '.'))
		return false;
	while ((rest = strchr(rest, '.'))) {
		uint32_t of;

		rest++;
		of = rsh_names_find(s->w->cat->names, rest, strlen(rest));
		if (of != RSH_NAME_NONE &&
		    ((of < s->w->cat->n_names && s->offered[of]) ||
		     rsh_strategy_find(s->dst, of)))
			return false;
	}
	return true;
}

/* Returns a sentence about weights that only the strategy lists, or about other
 * such parameters, for example optimizer state that is not in the checkpoint;
 * NULL: there are none. */
static char *offers_tell_absent(const struct offering *s, bool weights)
{
	uint32_t n = 0, example = RSH_NAME_NONE;

	for (uint32_t i = 0; s->dst && i < s->dst->n_params; i++) {
		uint32_t name = s->dst->params[i].name;

		if (s->offered[name] || !offers_is_wanted(s, name) ||
		    offers_lacks_weight(s, name) != weights)
			continue;
		if (n++ == 0)
			example = name;
	}
	return n == 0 ? NULL : rsh_text_format(
		"%u parameter%s that %s lists %s not in the source (%s%s)", n,
		n > 1 ? "s" : "", s->dst->path, n > 1 ? "are" : "is",
		offers_name(s, example), n > 1 ? " and others" : "");
}

static int offers_end(void *ctx)
{
	const struct offering *s = ctx;
	const struct rsh_plan_options *o = s->w->o;
	const uint32_t name = s->state->replaced;
	cleanup_free char *lacks = offers_tell_absent(s, true);
	char *others = offers_tell_absent(s, false);

	if (lacks && o->report_doubt)
		o->report_doubt(o->ctx, lacks);
	if (others && rsh_blueprint_note(s->w->plan, others))
		return -ENOMEM;
	if (name == RSH_NAME_NONE)
		return 0;
	return rsh_blueprint_note(s->w->plan, rsh_text_format(
		"slices that are missing are read from replicas (%s%s)",
		offers_name(s, name), s->state->others ? " and others" : ""));
}

/* ---- making ---- */

/* The filter knows the names of offers alone, not those that only the strategy
 * lists. */
static int offers_check_renamed(const struct offering *s, struct rsh_error *err)
{
	for (uint32_t i = 0; s->dst && i < s->n; i++) {
		const uint32_t name = s->offers[i].name;
		const char *text = rsh_name_filter_name(s->w->filter, name);
		uint32_t listed;

		if (!text || s->w->filter->unwanted[name])
			continue;
		listed = rsh_names_find(s->w->cat->names, text, strlen(text));
		if (listed != RSH_NAME_NONE && !s->offered[listed] &&
		    rsh_strategy_find(s->dst, listed))
			return rsh_name_filter_refuse_listed(text, err);
	}
	return 0;
}

static int offers_begin(void *ctx, struct rsh_writer_state *w,
			struct rsh_error *err)
{
	struct offering *s = ctx;
	struct offers_state *a = s->state;

	s->w = w;
	s->offered = calloc((size_t)w->cat->n_names + 1, sizeof(*s->offered));
	s->whole = rsh_alloc_array(s->n, sizeof(*s->whole));
	if (!s->offered || !s->whole)
		return rsh_error_nomem(err);
	for (uint32_t i = 0; i < s->n; i++) {
		s->offered[s->offers[i].name] = true;
		s->whole[i] = RSH_COPIED;
	}
	if (!s->placement)
		return offers_check_renamed(s, err);
	s->blocks = rsh_alloc_array(s->n, sizeof(*s->blocks));
	s->here = rsh_alloc_array(s->n, sizeof(*s->here));
	a->written = rsh_alloc_array((size_t)w->cat->n_names + 1,
				     sizeof(*a->written));
	if (!s->blocks || !s->here || !a->written)
		return rsh_error_nomem(err);
	a->names = w->cat->names;
	for (uint32_t i = 0; i < w->cat->n_names; i++)
		a->written[i] = i;
	for (uint32_t i = 0; i < s->n; i++)
		a->written[s->offers[i].name] = s->placement->places[i].written;
	return 0;
}

static int offers_write(const struct rsh_offers *offers,
			const struct rsh_strategy *dst,
			const struct rsh_placement *placement,
			const struct rsh_plan_options *opts,
			struct rsh_plan **out, struct rsh_error *err)
{
	const uint32_t n = offers->n;
	struct offering s = {
		.state = calloc(1, sizeof(*s.state)),
		.offers = offers->v, .n = n, .dst = dst,
		.placement = placement,
		.names = rsh_alloc_array(n, sizeof(*s.names)),
	};
	struct rsh_policy policy = {
		.ctx = &s,
		.ops = { .ctx = s.state,
			 .written_name = offers_written,
			 .replica_used = offers_stands_in,
			 .free = offers_free },
		.names = s.names,
		.n_names = n,
		.n_stages = dst ? dst->n_stages : 1,
		.stage_ranks = dst ? dst->stage_ranks : 1,
		.begin = offers_begin,
		.stage = offers_stage,
		.is_deduplicated = offers_is_deduplicated,
		.file = offers_file,
		.end = offers_end,
	};
	int rc;

	if (placement) {
		policy.n_stages = placement->n_stages;
		policy.stage_ranks = placement->stage_ranks;
	}
	if (s.state && s.names) {
		for (uint32_t i = 0; i < n; i++)
			s.names[i] = offers->v[i].name;
		s.state->replaced = RSH_NAME_NONE;
		policy.filter = &s.state->filter;
		rc = rsh_write_plan_by(offers->cat, &policy, dst, opts, out,
				       err);
	} else {
		free(s.state);
		rsh_catalogue_free(offers->cat);
		rc = rsh_error_nomem(err);
	}
	free(s.names);
	free(s.offered);
	free(s.whole);
	free(s.blocks);
	free(s.here);
	return rc;
}

int rsh_write_plan(const struct rsh_offers *offers,
		   const struct rsh_strategy *dst,
		   const struct rsh_plan_options *opts,
		   struct rsh_plan **out, struct rsh_error *err)
{
	return offers_write(offers, dst, NULL, opts, out, err);
}

int rsh_write_placed(const struct rsh_offers *offers,
		     const struct rsh_placement *placement,
		     const struct rsh_plan_options *opts,
		     struct rsh_plan **out, struct rsh_error *err)
{
	struct rsh_plan_options all = *opts;

	all.wanted = NULL;
	all.rename = NULL;
	return offers_write(offers, NULL, placement, &all, out, err);
}
