/* SPDX-License-Identifier: Apache-2.0 */
/* converter/absent.c says what is in no file, and whether that is as it should
 * be. */
#include <errno.h>

#include "planner_i.h"

/* Gives the rank whose file should hold the slice. */
static uint32_t rank_of_slice(const struct rsh_converter *c, uint32_t name,
			      uint32_t key)
{
	const struct rsh_strategy_param *s = rsh_listed(c->src, name);
	uint32_t stage = s && !c->by_stage ? rsh_param_source_stage(s)->stage :
					     0;

	return rsh_job_rank(&c->files, stage, key);
}

int rsh_planner_missing_copy(const struct planner *p, uint32_t rank,
			     uint32_t name, struct rsh_error *err)
{
	const struct rsh_converter *c = p->c;

	return rsh_blueprint_missing(c->plan, rank_of_slice(c, name,
							    c->orders[rank].copy_key),
				     rank, name, "", err);
}

/* A handled parameter that no loaded file holds was not saved, unless its stage
 * has no file at all. */
int rsh_planner_check_absent(struct planner *p, uint32_t name,
			     struct rsh_error *err)
{
	const struct rsh_converter *c = p->c;
	const struct rsh_strategy_param *s = rsh_listed(c->src, name);

	if (!c->src &&
	    rsh_catalogue_index(c->cat, rsh_planner_file_to_copy(p, 0)))
		return 0;
	for (uint32_t i = 0; i < (s ? s->n_stages : 1); i++) {
		uint32_t stage = s && !c->by_stage ? s->stages[i].stage : 0;

		if (rsh_job_files_check(&c->files, stage, name, err) == 0)
			continue;
		if (!c->replicas)
			return -ENOENT;
		p->absent = true;
		return rsh_blueprint_lose(c->plan, name, err);
	}
	return 0;
}

/* A file would hold nothing that is resharded because a file that it needs is
 * missing, or because the strategies are those of another model. */
int rsh_planner_nothing_handled(struct planner *p, struct rsh_shown_file *f,
				struct rsh_error *err)
{
	const struct rsh_converter *c = p->c;

	for (uint32_t name = 0; name < c->cat->n_names; name++) {
		uint32_t t = p->shown_of[name];
		int rc = t == RSH_NO_SHOWN ? 0 :
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
