/* SPDX-License-Identifier: Apache-2.0 */
/* plan/converter/dst_stage.c decides which parameters are resharded or copied
 * for the ranks of one destination stage. */
#include <errno.h>
#include <stdlib.h>

#include "dst_stage_i.h"
#include "rsh/util/mem.h"

/* ---- actions of parameters ---- */

/* Returns whether the destination has the parameter in this stage. */
static bool dst_stage_has(const struct stage_state *p,
			  const struct rsh_strategy_param *src,
			  const struct rsh_strategy_param *dst)
{
	return p->c->by_stage ? src != NULL :
				rsh_param_in_stage(dst, p->stage);
}

static enum param_action action_of(const struct stage_state *p, uint32_t name)
{
	const struct rsh_converter *c = p->c;
	const struct rsh_strategy_param *s = rsh_listed(c->src, name);
	const struct rsh_strategy_param *d = rsh_listed(c->dst, name);
	bool here = d && dst_stage_has(p, s, d);
	/* The converter removes parameters of other destination stages from
	 * both strategies. */
	bool struck = d && !here;
	bool on_src = c->src ? s && !struck : true;
	bool on_dst = c->dst ? here : true;

	if (c->chosen.unwanted[name])
		return ACTION_DROP;
	if (!c->src && !c->dst)
		return ACTION_COPY;
	if (on_src && on_dst)
		return ACTION_RESHARD;
	if ((!c->src || (s && struck)) && (!c->dst || struck))
		return ACTION_DROP;
	return c->o.unlisted == RSH_UNLISTED_DROP && c->dst && !d ? ACTION_DROP
								  : ACTION_COPY;
}

static int collect_stages(struct stage_state *p, struct rsh_error *err)
{
	const struct rsh_strategy *src = p->c->src;
	cleanup_free bool *used = calloc(p->c->files.n_stages, sizeof(*used));

	p->dst_stage->stages = rsh_arena_array(&p->c->arena, uint32_t,
					       p->c->files.n_stages);
	if (!used || !p->dst_stage->stages)
		return rsh_error_nomem(err);
	if (!src && !p->c->dst) {
		used[0] = true;
	} else if (!src) {
		for (uint32_t i = 0; i < p->c->cat->n_present; i++)
			used[p->c->cat->present[i]] = true;
	} else if (p->c->by_stage) {
		used[0] = true;
	} else {
		for (uint32_t i = 0; i < src->n_params; i++) {
			const struct rsh_strategy_param *s = &src->params[i];
			const struct rsh_strategy_param *d =
				rsh_listed(p->c->dst, s->name);

			if (d && !dst_stage_has(p, s, d))
				continue;
			for (uint32_t k = 0; k < s->n_stages; k++)
				used[s->stages[k].stage] = true;
		}
	}
	for (uint32_t s = 0; s < p->c->files.n_stages; s++)
		if (used[s])
			p->dst_stage->stages[p->dst_stage->n_stages++] = s;
	return 0;
}

/* Checks a resharded parameter that no loaded file holds.  It was not saved,
 * which is no error, unless its stage has no file at all. */
static int check_absent(struct stage_state *p, uint32_t name,
			struct rsh_error *err)
{
	const struct rsh_converter *c = p->c;
	const struct rsh_strategy_param *s = rsh_listed(c->src, name);

	if (!c->src &&
	    rsh_catalogue_index(c->cat, rsh_stage_file_to_copy(p, 0)))
		return 0;
	for (uint32_t i = 0; i < (s ? s->n_stages : 1); i++) {
		uint32_t stage = s && !c->by_stage ? s->stages[i].stage : 0;

		if (rsh_job_files_check(&c->files, stage, name, err) == 0)
			continue;
		if (!c->o.replicas)
			return -ENOENT;
		p->absent = true;
		return rsh_blueprint_lose(c->plan, name, err);
	}
	return 0;
}

static int show_resharded(struct stage_state *p, struct rsh_error *err)
{
	for (uint32_t name = 0; name < p->c->cat->n_names; name++) {
		int rc;

		p->action[name] = (uint8_t)action_of(p, name);
		if (p->action[name] != ACTION_RESHARD)
			continue;
		rc = rsh_reshard_param(p->c, p->dst_stage, p->stage, name,
				       &p->shown_of[name], err);
		if (rc == 0 && p->shown_of[name] != RSH_COPIED &&
		    p->c->o.replicas)
			p->reduced |=
				p->c->resharded[p->shown_of[name]].reduced;
		/* Without a destination strategy every name is resharded, even
		 * if no source file can hold it. */
		if (rc == 0 && p->shown_of[name] == RSH_COPIED)
			rc = check_absent(p, name, err);
		if (rc)
			return rc;
	}
	return 0;
}

/* Handles a file without resharded records.  Either a file that it needs is
 * missing, or the strategies are of another model, which is an error. */
static int nothing_resharded(struct stage_state *p, struct rsh_shown_file *f,
			     struct rsh_error *err)
{
	const struct rsh_converter *c = p->c;

	for (uint32_t name = 0; name < c->cat->n_names; name++) {
		uint32_t t = p->shown_of[name];
		int rc = t == RSH_COPIED ? 0 :
			rsh_blueprint_probe(c->plan, t, f->rank, f->member,
					    &f->lost, err);

		if (rc)
			return rc;
	}
	if (f->lost)
		return 0;
	return rsh_error_set(err, EINVAL,
			     "rank %u: no parameter of the source files is "
			     "listed by %s%s%s", f->rank,
			     c->src ? c->src->path : c->dst->path,
			     c->src && c->dst ? " and " : "",
			     c->src && c->dst ? c->dst->path : "");
}

int rsh_dst_stage_file(void *ctx, struct rsh_shown_file *f,
		       struct rsh_file_names *out, struct rsh_error *err)
{
	struct stage_state *p = ctx;
	struct rsh_converter *c = p->c;
	struct rsh_copy_order *order = &c->orders[f->rank];
	const struct name_list *names;
	int rc = 0;

	if (!c->src && c->o.replicas)
		p->reduced = rsh_stage_is_part(p, rsh_stage_file_to_copy(
			p, c->dst ? 0 : f->member));
	else if (!c->src && !c->dst && !rsh_catalogue_index(c->cat, f->member))
		return rsh_error_set(err, ENOENT, "rank %u has no checkpoint "
				     "file", f->member);
	f->lost = p->absent;
	order->dst_stage = p->dst_stage;
	/* The converter takes copied records from the local rank modulo the
	 * source's device count. */
	order->copy_key = c->src || c->dst ?
		f->member % c->files.stage_ranks :
		rsh_stage_file_to_copy(p, f->member);
	if (rsh_stage_mark_keys(p, f->member))
		return rsh_error_nomem(err);
	order->keys = rsh_stage_keep_keys(p);
	if (!order->keys)
		return rsh_error_nomem(err);
	if (c->same)
		rc = rsh_stage_take_whole(p, f, &out->added, err);
	if (rc || out->added)
		return rc;
	names = rsh_stage_list_names(p);
	if (!names)
		return rsh_error_nomem(err);
	out->names = names->names;
	out->n = names->n;
	if (names->n_resharded == 0 && (c->src || c->dst) && !p->absent &&
	    !c->chosen.filtered)
		rc = nothing_resharded(p, f, err);
	return rc;
}

bool rsh_dst_stage_deduplicates(void *ctx, uint32_t stage,
				const struct rsh_strategy_param *param)
{
	const struct stage_state *p = ctx;

	(void)stage;
	return p->action[param->name] == ACTION_RESHARD;
}

/* ---- beginning a stage ---- */

static struct rsh_marks new_marks(struct rsh_arena *a, size_t n)
{
	return (struct rsh_marks){ rsh_arena_array(a, bool, n),
				   rsh_arena_array(a, bool, n) };
}

void rsh_stage_clear(struct stage_state *p)
{
	rsh_stage_pairs_clear(p);
	free(p->lists);
	free(p->slots);
	rsh_arena_clear(&p->arena);
}

int rsh_dst_stage_begin(void *ctx, uint32_t stage, struct rsh_error *err)
{
	struct stage_state *p = ctx;
	struct rsh_converter *c = p->c;
	struct rsh_arena *a = &p->arena;

	rsh_stage_clear(p);
	*p = (struct stage_state){ .c = c, .w = p->w, .stage = stage };
	p->dst_stage = &c->dst_stages[stage];
	p->shown_of = p->w->shown;
	p->action = rsh_arena_array(a, uint8_t, c->cat->n_names);
	p->seen = rsh_arena_array(a, uint32_t, c->cat->n_names);
	p->seen_index = rsh_arena_array(a, uint32_t, c->cat->n_indexes);
	p->seq = rsh_arena_array(a, uint32_t, c->cat->n_indexes);
	p->whole = rsh_arena_array(a, uint8_t, c->cat->n_indexes);
	p->marks = new_marks(a, (size_t)c->files.n_held + 1);
	p->some = new_marks(a, (size_t)c->files.n_held + 1);
	if (a->failed)
		return rsh_error_nomem(err);
	return collect_stages(p, err) ?: show_resharded(p, err) ?:
	       rsh_stage_collect_pairs(p, err);
}
