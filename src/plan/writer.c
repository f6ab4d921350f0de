/* SPDX-License-Identifier: Apache-2.0 */
/* plan/writer.c plans the files of all stages and ranks.  A policy decides
 * which records the files have. */
#include <stdlib.h>
#include <string.h>

#include "rsh/plan/policy.h"
#include "rsh/strategy/grid.h"
#include "rsh/util/mem.h"

/* ---- which rank keeps a parameter when redundancy is removed ----
 *
 * MindSpore's ModelCheckpoint with remove_redundancy lets one rank of each
 * group of replicas keep a parameter.  The parameters of a group, sorted by
 * name, are assigned to the group's ranks round-robin. */

/* The ranks that hold the same slices, ascending. */
struct redundancy_group {
	uint32_t n;
	uint32_t *ranks;
	uint32_t n_given; /* parameters that were assigned to them */
};

struct redundancy {
	uint32_t local;
	struct redundancy_group *groups;
	uint32_t n_groups;
	size_t cap;
};

/* Assigns the next parameter, which has this grid.  Sets *keeps to whether it
 * is assigned to this rank.  0 or -ENOMEM with a message. */
static int redundancy_next(struct redundancy *d, const struct rsh_grid *grid,
			   bool *keeps, struct rsh_error *err)
{
	const uint32_t n = rsh_grid_n_replicas(grid);
	cleanup_free uint32_t *ranks = rsh_alloc_array(n, sizeof(*ranks));
	struct redundancy_group *g;
	uint32_t cell[RSH_MAX_DIMS], i = 0;

	if (!ranks)
		return rsh_error_nomem(err);
	/* The local ranks that hold the same slice. */
	rsh_grid_cell(grid, d->local, cell);
	for (uint32_t k = 0; k < n; k++)
		ranks[k] = rsh_grid_member(grid, cell, k);
	qsort(ranks, n, sizeof(*ranks), rsh_by_u32);
	while (i < d->n_groups &&
	       (d->groups[i].n != n ||
		memcmp(d->groups[i].ranks, ranks, n * sizeof(*ranks)) != 0))
		i++;
	if (i == d->n_groups) {
		if (rsh_room(d->groups, d->cap, (size_t)i + 1))
			return rsh_error_nomem(err);
		d->groups[d->n_groups++] = (struct redundancy_group){
			.n = n, .ranks = steal_pointer(&ranks),
		};
	}
	g = &d->groups[i];
	*keeps = g->ranks[g->n_given++ % n] == d->local;
	return 0;
}

/* Does the same by the layout alone: for a parameter whose rows are split
 * manually, and for one that the strategy lists but that was not saved, which
 * MindSpore counts too.  May also return -EINVAL. */
static int redundancy_unsaved(struct redundancy *d,
			      const struct rsh_strategy_item *item, bool *keeps,
			      struct rsh_error *err)
{
	cleanup_grid struct rsh_grid *unsized = NULL;

	return rsh_grid_new_unsized(item, &unsized, err) ?:
	       redundancy_next(d, unsized, keeps, err);
}

static int redundancy_by_text(const void *a, const void *b, void *names)
{
	return strcmp(rsh_names_text(names, *(const uint32_t *)a),
		      rsh_names_text(names, *(const uint32_t *)b));
}

/* ---- the writer ---- */

struct writer {
	struct rsh_writer_state w;
	const struct rsh_policy *policy;
	const struct rsh_strategy *dst;
	/* Set if redundancy is removed. */
	uint32_t *dedup_names; /* of the stage, sorted */
	uint32_t n_dedup;
	bool *elsewhere;       /* [name]: another rank keeps it */
	/* Scratch of one file. */
	struct rsh_slot *slots;
	struct rsh_record_shape *shapes;
	size_t slots_cap, shapes_cap;
};

/* Finds the parameters that other ranks keep. */
static int writer_deduplicate(struct writer *w, const struct rsh_shown_file *f,
			      struct rsh_error *err)
{
	struct redundancy d = { .local = f->member };
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < w->n_dedup; i++) {
		const uint32_t name = w->dedup_names[i];
		const uint32_t shown = w->w.shown[name];
		const struct rsh_grid *g = shown == RSH_COPIED ? NULL :
			rsh_cut_grid(rsh_blueprint_cut(w->w.plan, shown));
		bool keeps = true;

		if (g)
			rc = redundancy_next(&d, g, &keeps, err);
		else
			rc = redundancy_unsaved(&d, rsh_param_dest_stage(
				w->dst, rsh_strategy_find(w->dst, name),
				f->rank, false)->item, &keeps, err);
		w->elsewhere[name] = !keeps;
	}
	for (uint32_t i = 0; i < d.n_groups; i++)
		free(d.groups[i].ranks);
	free(d.groups);
	return rc;
}

/* ---- files ---- */

static int writer_add_record(struct writer *w, struct rsh_shown_file *f,
			     uint32_t name, struct rsh_error *err)
{
	const struct rsh_policy *policy = w->policy;
	struct rsh_record_shape *shape = &f->shapes[f->n];
	const uint32_t shown = w->w.shown[name];
	bool taken = true;
	int rc = 0;

	if (w->elsewhere && w->elsewhere[name])
		return 0;
	if (shown != RSH_COPIED)
		rsh_blueprint_shape(w->w.plan, shown, f->member, shape);
	if (policy->record)
		rc = policy->record(policy->ctx, f, name, shape, &taken, err);
	if (rc || !taken)
		return rc;
	f->slots[f->n++] = (struct rsh_slot){
		.content_bytes = shape->content_bytes,
		.name = name,
		.shown = shown,
	};
	return 0;
}

static int writer_add_file(struct writer *w, uint32_t rank, uint32_t local,
			   struct rsh_error *err)
{
	struct rsh_shown_file f = { .rank = rank, .member = local };
	struct rsh_file_names names = { 0 };
	int rc = w->policy->file(w->policy->ctx, &f, &names, err);

	if (rc || names.added)
		return rc;
	if (w->dedup_names)
		rc = writer_deduplicate(w, &f, err);
	if (rc == 0 && (rsh_room(w->slots, w->slots_cap, names.n) ||
			rsh_room(w->shapes, w->shapes_cap, names.n)))
		rc = rsh_error_nomem(err);
	f.slots = w->slots;
	f.shapes = w->shapes;
	for (uint32_t i = 0; rc == 0 && i < names.n; i++)
		rc = writer_add_record(w, &f, names.names[i], err);
	return rc ?: rsh_name_filter_add(w->policy->filter, w->w.plan, &f, err);
}

static int writer_plan_stage(struct writer *w, uint32_t stage,
			     struct rsh_error *err)
{
	const uint32_t n = w->policy->stage_ranks;
	int rc;

	for (uint32_t i = 0; i < w->w.cat->n_names; i++)
		w->w.shown[i] = RSH_COPIED;
	rc = w->policy->stage(w->policy->ctx, stage, err);
	if (rc == 0 && w->dedup_names) {
		w->n_dedup = 0;
		for (uint32_t i = 0; i < w->dst->n_params; i++) {
			const struct rsh_strategy_param *p = &w->dst->params[i];

			w->elsewhere[p->name] = false;
			if (w->policy->is_deduplicated(w->policy->ctx, stage,
						       p))
				w->dedup_names[w->n_dedup++] = p->name;
		}
		/* They are assigned in this order. */
		qsort_r(w->dedup_names, w->n_dedup, sizeof(*w->dedup_names),
			redundancy_by_text, w->w.cat->names);
	}
	for (uint32_t local = 0; rc == 0 && local < n; local++)
		rc = writer_add_file(w, stage * n + local, local, err);
	return rc;
}

/* ---- for policies ---- */

int rsh_layout_cut(struct rsh_catalogue *cat,
		   const struct rsh_strategy_item *item,
		   const struct rsh_grid_sizes *sizes, enum rsh_grid_rule rule,
		   const struct rsh_cut **out, uint64_t *whole,
		   struct rsh_error *err)
{
	struct rsh_grid *g = NULL;
	struct rsh_cut *cut = NULL;
	int rc = item ? rsh_item_cut(item, sizes, rule, &cut, whole, err) :
			rsh_grid_new_whole(sizes->n_dims, &g, err);

	if (rc)
		return rc;
	for (uint32_t d = 0; !item && d < sizes->n_dims; d++)
		whole[d] = (uint64_t)sizes->dims[d];
	*out = rsh_catalogue_keep_cut(cat, item ? cut : rsh_cut_of_grid(g));
	return *out ? 0 : rsh_error_nomem(err);
}

/* ---- making ---- */

static int writer_prepare(struct writer *w, struct rsh_error *err)
{
	const struct rsh_policy *p = w->policy;
	const size_t n = (size_t)w->w.cat->n_names + 1;
	cleanup_free char *parted = NULL;
	int rc;

	w->w.shown = rsh_alloc_array(n, sizeof(*w->w.shown));
	if (w->dst && w->w.o->remove_redundancy) {
		w->dedup_names = rsh_alloc_array((size_t)w->dst->n_params + 1,
					     sizeof(*w->dedup_names));
		w->elsewhere = calloc(n, sizeof(*w->elsewhere));
		if (!w->dedup_names || !w->elsewhere)
			return rsh_error_nomem(err);
	}
	if (!w->w.shown)
		return rsh_error_nomem(err);
	if ((w->w.o->division == RSH_DIVIDE_KINDS ||
	     w->w.o->cast != RSH_DTYPE_UNKNOWN) &&
	    rsh_catalogue_find_kinds(w->w.cat))
		return rsh_error_nomem(err);
	if (w->w.o->cast != RSH_DTYPE_UNKNOWN) {
		rc = rsh_catalogue_check_cast(w->w.cat, w->w.o->quantised_by,
					      err);
		if (rc)
			return rc;
	}
	rc = rsh_name_filter_fill(p->filter, w->w.cat, p->names,
				 p->names ? p->n_names : w->w.cat->n_names,
				 w->w.o, err);
	if (rc == 0 && w->w.o->report_doubt) {
		if (rsh_name_filter_parted(p->filter, w->w.cat, &parted))
			return rsh_error_nomem(err);
		if (parted)
			w->w.o->report_doubt(w->w.o->ctx, parted);
	}
	return rc == 0 && p->begin ? p->begin(p->ctx, &w->w, err) : rc;
}

static int writer_plan(struct writer *w, struct rsh_error *err)
{
	const struct rsh_plan_options *o = w->w.o;
	int rc = writer_prepare(w, err), lost;

	for (uint32_t s = 0; rc == 0 && s < w->policy->n_stages; s++)
		rc = writer_plan_stage(w, s, err);
	rc = rc ?: rsh_name_filter_check(w->policy->filter, w->w.plan, err);
	/* Losses are reported in any case; the first error is returned. */
	lost = rsh_blueprint_finish(w->w.plan, o->report_lost, o->ctx,
				    rc ? NULL : err);
	rc = rc ?: lost;
	if (rc == 0 && w->policy->end(w->policy->ctx))
		rc = rsh_error_nomem(err);
	return rc;
}

int rsh_write_plan_by(struct rsh_catalogue *cat,
		      const struct rsh_policy *policy,
		      const struct rsh_strategy *dst,
		      const struct rsh_plan_options *o,
		      struct rsh_plan **out, struct rsh_error *err)
{
	const struct rsh_blueprint b = {
		.framing = o->framing, .form = o->form,
		/* With RSH_DIVIDE_KINDS another file has that metadata. */
		.remove_redundancy = dst && o->remove_redundancy &&
				     o->division != RSH_DIVIDE_KINDS,
		.replicas = o->replicas,
		.allow_missing = o->allow_missing,
		.n_ranks = policy->n_stages * policy->stage_ranks,
	};
	struct writer w = {
		.w = { .cat = cat, .filter = policy->filter, .o = o },
		.policy = policy, .dst = dst,
	};
	int rc;

	rsh_catalogue_update_names(cat);
	w.w.plan = rsh_blueprint_new(cat, &policy->ops, &b);
	if (!w.w.plan)
		return rsh_error_nomem(err);
	rc = writer_plan(&w, err);
	free(w.w.shown);
	free(w.dedup_names);
	free(w.elsewhere);
	free(w.slots);
	free(w.shapes);
	if (rc)
		rsh_plan_free(w.w.plan);
	else
		*out = w.w.plan;
	return rc;
}
