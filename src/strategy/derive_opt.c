/* SPDX-License-Identifier: Apache-2.0 */
/* strategy/derive_opt.c computes over how many ranks the optimizer shards a
 * parameter.
 *
 * The planner shards dimension 0 of each rank's slice again, over the ranks
 * that hold the same slice: over all of them (-1), or over the given number.
 * It does not shard a tensor that cannot be cut in this way, or that the model
 * exempts.  The strategy shows that a parameter is exempt only if the source
 * could have sharded it and did not.
 */
#include "derive_i.h"

#include "rsh/strategy/grid.h"
#include "rsh/strategy/strategy.h"

/* A group is the ranks that hold the same slice: this is their number and the
 * distance between them. */
struct group {
	uint32_t n;
	uint32_t last; /* distance of the last rank from the first */
};

static struct group group_of(const struct rsh_strategy_item *it)
{
	struct group g = { 1, 0 };

	for (uint32_t a = it->n_mesh, stride = 1; a-- > 0;
	     stride *= it->mesh[a]) {
		if (rsh_item_uses_axis(it, a))
			continue;
		g.n *= it->mesh[a];
		g.last += (it->mesh[a] - 1) * stride;
	}
	return g;
}

/* Returns the ranks of one shard, 1 if the group is not cut. */
static uint32_t shard_ranks(const struct group *g, int32_t size)
{
	uint32_t n = size < 0 || (uint32_t)size > g->n ? g->n : (uint32_t)size;

	return n == 0 || g->n % n ? 1 : n;
}

/* Returns the number of slices of dimension 0, including the shard. */
static uint64_t slices(const struct rsh_strategy_item *it, uint32_t shard)
{
	return (uint64_t)shard * rsh_map_entry_split(it, &it->map[0]);
}

static bool is_sharded(const struct rsh_strategy_item *it)
{
	return it && it->opt_step && it->opt_size;
}

enum answer { NO, YES, UNKNOWN };

/* Returns whether dimension 0 can be cut into n slices. */
static enum answer divides(const struct derive_param *p, uint64_t n)
{
	const struct rsh_strategy_item *it = p->item;
	uint64_t have;

	if (p->shape)
		return (uint64_t)p->shape->dims[0] % n == 0;
	/* In an expanded layout the first size is only a part of dimension
	 * 0. */
	if (it->n_shape == it->n_map &&
	    (uint64_t)it->shape[0] != slices(it, 1))
		return (uint64_t)it->shape[0] % n == 0;
	have = slices(it, 1);
	if (is_sharded(it)) {
		const struct group g = group_of(it);

		have = slices(it, shard_ranks(&g, it->opt_size));
	}
	return have % n == 0 ? YES : UNKNOWN;
}

/* ---- the source's shards ---- */

int rsh_derive_opt_begin(struct derivation *d)
{
	d->opt_full = true;
	for (uint32_t i = 0; i < d->n_params; i++) {
		const struct rsh_strategy_item *it = d->params[i].item;
		struct group g;

		if (!is_sharded(it))
			continue;
		g = group_of(it);
		if (it->opt_size == -1)
			d->src_opt = -1;
		else if (d->src_opt >= 0 && it->opt_size > d->src_opt)
			d->src_opt = it->opt_size;
		if (shard_ranks(&g, it->opt_size) != g.n)
			d->opt_full = false;
	}
	d->opt = d->o->has_opt ? d->o->opt : d->src_opt;
	if (!d->opt || d->src_opt || d->o->has_exclude)
		return 0;
	return rsh_derive_note(d, "%s has no optimizer shard, so parameters that the job would exempt from it are not known: all that divide are sharded (--opt-exclude names others)",
			       d->src ? d->src->path : "the source");
}

/* ---- the result ---- */

static int opt_not_known(struct derivation *d, const struct derive_param *p,
			 const char *why)
{
	return rsh_derive_refuse(d, p, "whether the optimizer shards it is not known: %s",
				 why);
}

/* Finds out whether a parameter is exempt from a shard that would make `n`
 * slices of dimension 0. */
static int is_exempt(struct derivation *d, const struct derive_param *p,
		     uint64_t n, bool *exempt)
{
	const struct rsh_strategy_item *it = p->item;
	enum answer could = NO;
	struct group g;
	uint64_t had;

	*exempt = false;
	if (!it || !d->src_opt || is_sharded(it) ||
	    (d->o->has_include && rsh_derive_is_about(d, &d->o->include, p)))
		return 0;
	g = group_of(it);
	had = slices(it, shard_ranks(&g, d->src_opt));
	if (shard_ranks(&g, d->src_opt) > 1)
		could = divides(p, had);
	/* Either it is exempt, or it could not be cut.  In the second case it
	 * cannot be cut into finer slices either. */
	*exempt = could == YES || (could == UNKNOWN && n % had == 0);
	if (*exempt || divides(p, n) == NO)
		return 0;
	if (could == UNKNOWN)
		return opt_not_known(d, p,
				     "the source does not, for reasons that "
				     "only its size tells; give a checkpoint "
				     "of the source (--checkpoint)");
	return opt_not_known(d, p,
			     "in the source it could not; use --opt-include or "
			     "--opt-exclude for it");
}

int rsh_derive_opt_shard(struct derivation *d, struct derive_param *p)
{
	const struct rsh_derive_options *o = d->o;
	enum answer fits;
	uint32_t ranks;
	struct group g;
	bool exempt;
	int rc;

	if (d->same_mesh && p->out.mesh == p->item->mesh &&
	    d->opt == d->src_opt && !o->has_include && !o->has_exclude)
		return 0;
	p->out.opt_step = p->out.opt_size = 0;
	if (!d->opt || !p->out.n_map ||
	    (o->has_exclude && rsh_derive_is_about(d, &o->exclude, p)))
		return 0;
	g = group_of(&p->out);
	ranks = shard_ranks(&g, d->opt);
	if (ranks == 1)
		return 0;
	if (d->opt > 0 && d->opt_full && !o->has_opt && p->item &&
	    g.n > (uint32_t)d->opt)
		return opt_not_known(d, p,
				     "in the source every shard takes all "
				     "ranks; use --opt");
	rc = is_exempt(d, p, slices(&p->out, ranks), &exempt);
	if (rc || exempt)
		return rc;
	fits = divides(p, slices(&p->out, ranks));
	if (fits == UNKNOWN)
		return opt_not_known(
			d, p,
			"the source does not tell its size; give a checkpoint "
			"of the source (--checkpoint)");
	if (fits == NO)
		return 0;
	p->out.opt_step = (int32_t)(g.last / (g.n - 1));
	p->out.opt_size = d->opt < 0 ? -1 : (int32_t)ranks;
	return 0;
}
