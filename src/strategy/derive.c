/* SPDX-License-Identifier: Apache-2.0 */
/* strategy/derive.c runs the steps of a derivation, collects its parameters,
 * and computes optimizer shards. */
#include "derive_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/strategy/grid.h"
#include "rsh/strategy/strategy.h"
#include "rsh/util/mem.h"

/* ---- optimizer shards ----
 *
 * The planner shards dimension 0 of each rank's slice again, over the ranks
 * that hold the same slice: over all of them (-1), or over the given number.
 * It does not shard a tensor that cannot be cut in this way, or that the model
 * exempts.  The strategy shows that a parameter is exempt only if the source
 * could have sharded it and did not. */

/* Returns the ranks of one shard, 1 if the group is not cut. */
static uint32_t shard_ranks(const struct rsh_repeated *g, int32_t size)
{
	uint32_t n = size < 0 || (uint32_t)size > g->group ? g->group :
							     (uint32_t)size;

	return n == 0 || g->group % n ? 1 : n;
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
		const struct rsh_repeated g = rsh_item_repeated(it);

		have = slices(it, shard_ranks(&g, it->opt_size));
	}
	return have % n == 0 ? YES : UNKNOWN;
}

/* ---- the source's shards ---- */

/* Finds which optimizer shard is wanted. */
static int derive_opt_begin(struct derivation *d)
{
	d->opt_full = true;
	for (uint32_t i = 0; i < d->n_params; i++) {
		const struct rsh_strategy_item *it = d->params[i].item;
		struct rsh_repeated g;

		if (!is_sharded(it))
			continue;
		g = rsh_item_repeated(it);
		if (it->opt_size == -1)
			d->src_opt = -1;
		else if (d->src_opt >= 0 && it->opt_size > d->src_opt)
			d->src_opt = it->opt_size;
		if (shard_ranks(&g, it->opt_size) != g.group)
			d->opt_full = false;
	}
	d->opt = d->o->has_opt ? d->o->opt : d->src_opt;
	if (!d->opt || d->src_opt || d->o->exclude.given)
		return 0;
	return rsh_derive_note(d, "%s has no optimizer shard, so parameters that the job would exempt from it are not known: all that divide are sharded (--opt-exclude names others)",
			       d->src ? d->src->path : "the source");
}

/* ---- the shard of a parameter ---- */

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
	struct rsh_repeated g;
	uint64_t had;

	*exempt = false;
	if (!it || !d->src_opt || is_sharded(it) ||
	    rsh_derive_is_about(d, &d->o->include, p))
		return 0;
	g = rsh_item_repeated(it);
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

/* Computes the shard of p->out, whose mesh and map must be set. */
static int derive_opt_shard(struct derivation *d, struct derive_param *p)
{
	const struct rsh_derive_options *o = d->o;
	enum answer fits;
	uint32_t ranks;
	struct rsh_repeated g;
	bool exempt;
	int rc;

	if (d->same_mesh && p->out.mesh == p->item->mesh &&
	    d->opt == d->src_opt && !o->include.given && !o->exclude.given)
		return 0;
	p->out.opt_step = p->out.opt_size = 0;
	if (!d->opt || !p->out.n_map ||
	    rsh_derive_is_about(d, &o->exclude, p))
		return 0;
	g = rsh_item_repeated(&p->out);
	ranks = shard_ranks(&g, d->opt);
	if (ranks == 1)
		return 0;
	if (d->opt > 0 && d->opt_full && !o->has_opt && p->item &&
	    g.group > (uint32_t)d->opt)
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
	p->out.opt_step = (int32_t)(g.last / (g.group - 1));
	p->out.opt_size = d->opt < 0 ? -1 : (int32_t)ranks;
	return 0;
}

/* Pipelines accumulate gradients in parameters whose names begin with this. */
#define ACCU_GRADS "accu_grads."

/* ---- axes and rules ---- */

/* A typing error in a regular expression has no other effect. */
static int note_idle_rules(struct derivation *d)
{
	const struct {
		const char *option;
		const struct derive_rules *rules;
	} all[] = { { "split", &d->o->split }, { "axes", &d->o->axes },
		    { "stage", &d->o->stage } };

	for (uint32_t k = 0; k < 3; k++)
		for (uint32_t r = 0; r < all[k].rules->n; r++) {
			const struct derive_rule *rule = &all[k].rules->v[r];

			if (!rsh_any(i, d->n_params,
				     rsh_derive_is_about(d, &rule->re,
							 &d->params[i])) &&
			    rsh_derive_note(d, "--%s '%s' matches no parameter",
					    all[k].option, rule->text))
				return -ENOMEM;
		}
	return 0;
}

static void add_axes(struct derivation *d)
{
	static const char *const known[] = { "*", "dp", "cp", "mp", "ep" };
	const struct rsh_mesh *meshes[] = { &d->o->mesh, &d->o->src_mesh };

	for (uint32_t i = 0; i < N_KNOWN_AXES; i++)
		rsh_derive_axis_add(d, known[i]);
	for (uint32_t m = 0; m < 2; m++)
		for (uint32_t i = 0; i < meshes[m]->n; i++)
			if (rsh_derive_axis_find(d, meshes[m]->axes[i].name) ==
				    UINT32_MAX &&
			    strcmp(meshes[m]->axes[i].name, "pp"))
				rsh_derive_axis_add(d, meshes[m]->axes[i].name);
}

/* ---- parameters ---- */

static int add_params(struct derivation *d)
{
	size_t n = d->src ? d->src->n_params : d->shapes->n;

	/* The array has room for two of each, because a pipeline may add a
	 * gradient. */
	d->params = rsh_arena_array(d->arena, struct derive_param, 2 * n);
	if (!d->params)
		return rsh_error_nomem(d->err);
	for (size_t i = 0; i < n; i++) {
		const struct rsh_strategy_param *listed =
			d->src ? &d->src->params[i] : NULL;
		const struct derive_shape *shape =
			listed ? NULL : &d->shapes->v[i];
		struct derive_param *p = &d->params[d->n_params];
		const struct rsh_strategy_item *it;
		bool number = !listed;

		/* The planner lists only parameters that operators compute
		 * with; counters, which have one element, are not among
		 * them. */
		for (uint32_t k = 0; number && k < shape->n_dims; k++)
			number = shape->dims[k] == 1;
		if (number)
			continue;
		*p = (struct derive_param){
			.name = listed ? listed->name : shape->name,
			.base = d->n_params++,
			.listed = listed,
			.item = listed ? rsh_param_source_stage(listed)->item :
					 NULL,
		};
		p->text = rsh_names_text(d->names, p->name);
		p->shape = rsh_derive_shape_of(d->shapes, p->name);
		p->left_out = rsh_derive_is_about(d, &d->o->drop, p);
		it = p->left_out ? NULL : p->item;
		/* Rows for another number of ranks are not known. */
		if (it && (it->n_offsets ||
			   (it->n_rows && it->n_rows != it->n_map)))
			return rsh_error_set(d->err, EINVAL,
					     "%s: parameter %s: its rows are split manually (manual_split), so its slices for another mesh are not known; leave it out with --drop",
					     d->src->path, p->text);
	}
	return 0;
}

static uint32_t find_param(const struct derivation *d, const uint32_t *by_name,
			   const char *text)
{
	uint32_t name = rsh_names_find(d->names, text, strlen(text));

	return name == RSH_NAME_NONE ? UINT32_MAX : by_name[name];
}

/* Finds the parameter of each optimizer state.  A text such as "adam_m." is a
 * prefix of states if every name that begins with it is another parameter's
 * name with this prefix.  Each prefix is examined once. */
static int find_bases(struct derivation *d, struct rsh_names *prefixes)
{
	const uint32_t n_names = rsh_names_count(d->names);
	uint32_t *by_name = rsh_arena_array(d->arena, uint32_t, n_names);
	bool *is = rsh_arena_array(d->arena, bool, d->n_params);

	if (!by_name || !is || !prefixes)
		return rsh_error_nomem(d->err);
	memset(by_name, 0xff, n_names * sizeof(*by_name));
	for (uint32_t i = 0; i < d->n_params; i++)
		by_name[d->params[i].name] = i;
	for (uint32_t i = 0; i < d->n_params; i++) {
		struct derive_param *p = &d->params[i];
		const char *text = p->text, *dot = strchr(text, '.');
		const uint32_t base = dot ? find_param(d, by_name, dot + 1) :
					    UINT32_MAX;
		const size_t len = dot ? (size_t)(dot - text) + 1 : 0;
		const uint32_t n = rsh_names_count(prefixes);
		const struct derive_param *of;
		uint32_t id;

		if (base == UINT32_MAX)
			continue;
		id = rsh_names_add(prefixes, text, len);
		if (id == RSH_NAME_NONE)
			return rsh_error_nomem(d->err);
		if (id == n)
			is[id] = true;
		for (uint32_t k = 0; id == n && k < d->n_params; k++) {
			const char *other = d->params[k].text;

			if (strncmp(other, text, len) == 0 &&
			    find_param(d, by_name, other + len) == UINT32_MAX)
				is[id] = false;
		}
		if (!is[id])
			continue;
		/* If a checkpoint has only weights, the shape of a weight is
		 * also that of its states. */
		of = &d->params[base];
		p->base = base;
		if (!p->shape && p->item && of->item &&
		    p->item->n_map == of->item->n_map)
			p->shape = of->shape;
	}
	return 0;
}

/* ---- gradients in pipelines ---- */

/* A parameter with an optimizer state is trained, so it has a gradient, which
 * is left out or listed too. */
static int derive_gradients(struct derivation *d, bool drop)
{
	uint32_t n = d->n_params;
	bool *trained = rsh_arena_array(d->arena, bool, n);
	bool any = false;

	if (!trained)
		return rsh_error_nomem(d->err);
	for (uint32_t i = 0; i < n; i++) {
		struct derive_param *p = &d->params[i];
		const bool is = strncmp(p->text, ACCU_GRADS,
					strlen(ACCU_GRADS)) == 0;

		if (p->base == i || (drop && !is))
			continue;
		if (drop)
			p->left_out = true;
		else if (is)
			return 0;
		any = trained[p->base] = true;
	}
	for (uint32_t i = 0; i < n && !drop; i++) {
		struct derive_param *p = &d->params[d->n_params];
		char *text;

		if (!trained[i] || d->params[i].left_out)
			continue;
		text = rsh_arena_format(d->arena, ACCU_GRADS "%s",
					d->params[i].text);
		if (!text)
			return rsh_error_nomem(d->err);
		*p = d->params[i];
		p->text = text;
		p->base = i;
		d->n_params++;
	}
	return !any ? 0 :
	       rsh_derive_note(d, drop ?
			       "%s* are left out: only pipelines add gradients up" :
			       "%s* are listed too: pipelines add gradients up",
			       ACCU_GRADS);
}

/* ---- the result ---- */

static int derive_params(struct derivation *d)
{
	uint32_t left = 0;
	int rc;

	for (uint32_t i = 0; i < d->n_params; i++)
		left += !d->params[i].left_out;
	if (!left)
		return rsh_error_set(d->err, EINVAL, "%s: no parameter is left",
				     d->path);
	rc = derive_opt_begin(d);
	for (uint32_t i = 0; !rc && i < d->n_params; i++)
		if (!d->params[i].left_out)
			rc = rsh_derive_layout(d, &d->params[i]);
	if (rc)
		return rc;
	for (uint32_t i = AXIS_MP; i < d->n_axes; i++)
		if (d->axes[i].dst > 1 && !d->axes[i].used && !d->same_mesh)
			return rsh_error_set(
				d->err, EINVAL,
				"%s: it splits nothing over %s, so what %s=%u "
				"would split is not known: use --split, as in "
				"--split 'REGEX=DIM:%s'",
				d->path, d->axes[i].name, d->axes[i].name,
				d->axes[i].dst, d->axes[i].name);
	for (uint32_t i = 0; !rc && i < d->n_params; i++)
		if (!d->params[i].left_out)
			rc = derive_opt_shard(d, &d->params[i]);
	return rc ? rc : rsh_derive_stages(d);
}

static int derive_collect(struct derivation *d, struct rsh_derived *out)
{
	struct rsh_staged_item *items = rsh_arena_array(
		d->arena, struct rsh_staged_item, 2 * (size_t)d->n_params);
	size_t n = 0;

	if (!items)
		return rsh_error_nomem(d->err);
	for (uint32_t stage = 0; stage < d->dst_stages; stage++) {
		size_t before = n;

		for (uint32_t i = 0; i < d->n_params; i++) {
			const struct derive_param *p = &d->params[i];

			for (uint32_t s = 0; !p->left_out && s < p->n_stages; s++)
				if (p->stages[s] == stage)
					items[n++] = (struct rsh_staged_item){
						.stage = stage,
						.tuples = p->style != STYLE_KEPT,
						.item = p->out,
					};
		}
		if (n == before)
			return rsh_error_set(
				d->err, EINVAL,
				"%s: no parameter is left for stage %u",
				d->path, stage);
	}
	out->items.n = n;
	out->items.v = items;
	out->items.n_stages = d->dst_stages;
	out->stage_ranks = d->dst_ranks;
	out->n_notes = d->n_notes;
	out->notes = d->notes;
	return 0;
}

/* ---- the derivation ---- */

static int derive_run(struct derivation *d, struct rsh_derived *out)
{
	cleanup_names struct rsh_names *prefixes = NULL;
	int rc;

	if (!d->o->has_mesh)
		return rsh_error_set(
			d->err, EINVAL,
			"no mesh is given, as in --mesh dp=2,mp=4");
	if (!d->src && (!d->shapes || !d->shapes->n))
		return rsh_error_set(
			d->err, EINVAL,
			"an unsharded source does not list its parameters; "
			"give its checkpoint (--checkpoint)");
	if (d->src && d->src->lone_stage)
		return rsh_error_set(
			d->err, EINVAL,
			"%s: this is the file of stage %u alone; give those of all stages",
			d->path, d->src->lone_stage);
	d->src_ranks = d->src ? d->src->stage_ranks : 1;
	d->src_stages = d->src ? d->src->n_stages : 1;
	d->dst_ranks = rsh_mesh_stage_ranks(&d->o->mesh);
	d->dst_stages = rsh_mesh_size(&d->o->mesh, "pp");
	d->cap_notes = 8 + d->o->split.n + d->o->axes.n + d->o->stage.n;
	d->notes = rsh_arena_array(d->arena, const char *, d->cap_notes);
	if (!d->notes)
		return rsh_error_nomem(d->err);
	add_axes(d);
	prefixes = rsh_names_new();
	rc = add_params(d) ?: find_bases(d, prefixes) ?:
	     rsh_derive_name_axes(d);
	if (rc == 0 && (d->dst_stages > 1) != (d->src_stages > 1))
		rc = derive_gradients(d, d->dst_stages == 1);
	return rc ?: derive_params(d) ?: note_idle_rules(d) ?:
		     derive_collect(d, out);
}

int rsh_strategy_derive(const struct rsh_strategy *src,
			const struct rsh_derive_shapes *shapes,
			const struct rsh_derive_options *options,
			struct rsh_names *names, struct rsh_derived **out,
			struct rsh_error *err)
{
	struct rsh_arena *arena = calloc(1, sizeof(*arena));
	struct rsh_derived *result = calloc(1, sizeof(*result));
	struct derivation d = {
		.src = src, .path = src ? src->path : "unsharded source",
		.shapes = shapes, .o = options, .names = names, .arena = arena,
		.err = err,
	};
	int rc;

	if (!arena || !result) {
		free(arena);
		free(result);
		return rsh_error_nomem(err);
	}
	result->arena_ = arena;
	rc = derive_run(&d, result);
	if (rc)
		rsh_derived_free(result);
	else
		*out = result;
	return rc;
}

int rsh_derived_strategy(const struct rsh_derived *d, const char *path,
			 struct rsh_names *names, struct rsh_strategy **out,
			 struct rsh_error *err)
{
	struct rsh_strategy_file **files = malloc(sizeof(*files));
	cleanup_free void *data = NULL;
	size_t len;
	int rc;

	if (!files)
		return rsh_error_nomem(err);
	rc = rsh_strategy_emit(&d->items, false, &data, &len, err) ?:
	     rsh_strategy_parse(data, len, path, files, err);
	if (rc == 0)
		return rsh_strategy_merge(&(struct rsh_strategy_set){ files, 1,
				RSH_STRATEGY_FILE, path }, names, out, err);
	free(files);
	return rc;
}

void rsh_derived_free(struct rsh_derived *d)
{
	if (!d)
		return;
	rsh_arena_clear(d->arena_);
	free(d->arena_);
	free(d);
}
