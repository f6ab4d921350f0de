/* SPDX-License-Identifier: Apache-2.0 */
/* plan/converter/reshard.c adds a parameter to the catalogue, according to its
 * slices and the strategies, and shows it to the ranks of a destination
 * stage. */
#include <errno.h>

#include "converter_i.h"
#include "rsh/plan/policy.h"
#include "rsh/util/mem.h"

#define LAYOUT_TEXT 160

/* The state of adding one parameter. */
struct making {
	struct rsh_converter *c;
	struct rsh_slices s; /* in the source */
	const struct rsh_strategy_item *dst;
};

/* Prefixes the message with the file, the parameter and both layouts. */
static int refuse(const struct making *m, int rc, struct rsh_error *err)
{
	char from[LAYOUT_TEXT], to[LAYOUT_TEXT], dims[LAYOUT_TEXT];
	const struct rsh_converter *c = m->c;

	rsh_error_prefix(
		err,
		"%s: parameter %s of shape %s cannot go from %s%s%s%s "
		"to %s%s%s%s", rsh_catalogue_path(c->cat, m->s.rank),
		rsh_names_text(c->cat->names, m->s.name),
		rsh_record_dims_text(m->s.ix, m->s.rec, dims, sizeof(dims)),
		rsh_item_text(m->s.item, from, sizeof(from)),
		c->src ? " (" : "", c->src ? c->src->path : "",
		c->src ? ")" : "", rsh_item_text(m->dst, to, sizeof(to)),
		c->dst ? " (" : "", c->dst ? c->dst->path : "",
		c->dst ? ")" : "");
	return rc;
}

/* Returns whether some slice is in no stage although the stage of the reference
 * has a file that should hold it. */
static bool is_reduced(const struct making *m)
{
	const struct rsh_job_files *f = &m->c->files;
	uint32_t stage = (m->s.rank - f->first_rank) / f->stage_ranks;

	for (uint32_t i = 0; i < f->n_held; i++)
		if (!m->s.found[i] &&
		    rsh_catalogue_index(f->cat, rsh_job_rank(f, stage,
							     f->held[i])))
			return true;
	return false;
}

/* ---- grids ---- */

/* Adds a note if the converter would put the slices on other ranks. */
static int note_simple(const struct making *m,
		       const struct rsh_strategy_item *item,
		       const struct rsh_grid_sizes *whole,
		       const struct rsh_grid *mine)
{
	struct rsh_grid *theirs;
	int rc;

	if (m->c->o.compat || !mine || !item || !item->opt_step ||
	    !item->opt_size)
		return 0;
	rc = rsh_grid_new(item, whole, RSH_GRID_CONVERTER, &theirs, NULL);
	if (rc)
		return rc;
	if (!rsh_grid_same_slices(mine, theirs))
		rsh_note_add(m->c, RSH_NOTE_SIMPLE_SHARD, m->s.name);
	rsh_grid_free(theirs);
	return 0;
}

/* Rows that are split manually (manual_split) are unknown to the converter.
 * It gives the right rows to ranks that have the whole tensor, and if both
 * sides cut it in the same way.  Otherwise adds a note, or returns -EINVAL if
 * its result is wanted. */
static int check_manual(const struct making *m, const struct rsh_cut *from,
			const struct rsh_cut *to, struct rsh_error *err)
{
	if ((rsh_cut_grid(from) && rsh_cut_grid(to)) ||
	    rsh_cut_n_cells(to) == 1 ||
	    (m->s.item && m->dst && rsh_item_same_layout(m->s.item, m->dst)))
		return 0;
	if (m->c->o.compat)
		return rsh_error_set(err, EINVAL,
				     "MindSpore's converter misplaces rows that are split manually (manual_split)");
	rsh_note_add(m->c, RSH_NOTE_MANUAL, m->s.name);
	return 0;
}

/* ---- into the catalogue, and shown ---- */

/* Shows a tensor of the catalogue as the destination cuts it. */
static int show(const struct making *m, const struct rsh_tensor *t,
		uint32_t tensor, enum rsh_grid_rule rule, uint32_t *shown,
		struct rsh_error *err)
{
	int64_t whole[RSH_MAX_DIMS];
	const struct rsh_grid_sizes sizes = { whole, t->n_dims, false };
	struct rsh_recipe_part part;
	struct rsh_shown out = {
		.name = t->name,
		.n_dims = t->n_dims,
		.dims = t->dims,
		.recipe = { 1, &part, RSH_CODEC_NONE },
	};
	uint64_t ignored[RSH_MAX_DIMS];
	int rc;

	for (uint32_t d = 0; d < t->n_dims; d++)
		whole[d] = (int64_t)t->dims[d];
	rc = rsh_layout_cut(m->c->cat, m->dst, &sizes, rule, &out.cut, ignored,
			    err) ?:
	     check_manual(m, t->cut, out.cut, err) ?:
	     note_simple(m, m->s.item, &sizes, rsh_cut_grid(t->cut)) ?:
	     note_simple(m, m->dst, &sizes, rsh_cut_grid(out.cut));
	if (rc)
		return refuse(m, rc, err);
	out.recipe.codec = rsh_record_codec(m->c, m->s.rec, &out.dtype);
	rsh_recipe_same(m->c->cat, tensor, &part);
	rc = rsh_blueprint_show(m->c->plan, &out, shown, err);
	return rc == -EINVAL ? refuse(m, rc, err) : rc;
}

/* Adds and shows a parameter that has a reference record. */
static int reshard_param(struct making *m, const struct rsh_strategy_param *s,
			 uint32_t *shown, struct rsh_error *err)
{
	struct rsh_converter *c = m->c;
	const enum rsh_grid_rule rule = c->o.compat ? RSH_GRID_CONVERTER :
						      RSH_GRID_RUNTIME;
	const uint32_t stage = s && !c->by_stage ?
		rsh_param_source_stage(s)->stage : 0;
	uint32_t tensor;
	int rc = rsh_slices_find(&m->s, rsh_record_unit(c, m->s.rec), err);

	if (rc)
		return rc;
	m->s.first_file = rsh_job_rank(&c->files, stage, 0);
	rc = rsh_slices_add(&m->s, m->dst, rule, c->o.replicas, &tensor, err);
	if (rc)
		return refuse(m, rc, err);
	rc = show(m, c->cat->tensors[tensor], tensor, rule, shown, err);
	if (rc)
		return rc;
	if (rsh_room(c->resharded, c->resharded_cap, *shown + 1))
		return rsh_error_nomem(err);
	c->resharded[*shown] = (struct rsh_resharded){ tensor, is_reduced(m) };
	return 0;
}

int rsh_reshard_param(struct rsh_converter *c, const struct rsh_dst_stage *s,
		      uint32_t stage, uint32_t name, uint32_t *out,
		      struct rsh_error *err)
{
	const struct rsh_strategy_param *listed = c->src ?
		rsh_strategy_find(c->src, name) : NULL;
	const struct rsh_strategy_param *d = c->dst ?
		rsh_strategy_find(c->dst, name) : NULL;
	struct making m = {
		.c = c,
		.s = { .files = &c->files, .name = name,
		       .n_stages = s->n_stages, .stages = s->stages },
	};
	int rc;

	*out = RSH_COPIED;
	if (listed)
		m.s.item = rsh_param_source_stage(listed)->item;
	if (d)
		m.dst = rsh_param_dest_stage(c->dst, d, stage * c->dst_ranks,
					     c->o.compat)->item;
	if (!rsh_slices_begin(&m.s))
		return 0;
	if (m.s.rec->dtype == RSH_DTYPE_STR)
		return rsh_error_set(err, EINVAL,
				     "%s: parameter %s is a string, but both "
				     "strategies list it as a tensor",
				     rsh_catalogue_path(c->cat, m.s.rank),
				     rsh_names_text(c->cat->names, name));
	if (d && !c->o.compat &&
	    !rsh_item_same_layout(m.dst,
				  rsh_param_dest_stage(c->dst, d,
						       stage * c->dst_ranks,
						       true)->item))
		rsh_note_add(c, RSH_NOTE_SHARED, name);
	rc = reshard_param(&m, listed, out, err);
	rsh_slices_clear(&m.s);
	return rc;
}
