/* SPDX-License-Identifier: Apache-2.0 */
/* strategy/checkpoint2.c makes a strategy from a metadata.json: it makes a
 * strategy file for each stage, and merges these as the files of a
 * directory. */
#include "rsh/strategy/checkpoint2.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/arena.h"
#include "rsh/util/mem.h"

#define ACCUMULATED "accu_grads."

/* These are the parameters of a stage. */
struct described_stage {
	const struct rsh_ckpt2_param **params;
	uint32_t n;
	size_t cap;
};

struct described {
	const char *path;
	struct rsh_error *err;
	uint32_t ranks; /* ranks of a stage */
	struct described_stage *stages;
	uint32_t n_stages;
	size_t cap_stages;
};

/* ---- which stages have a parameter ---- */

/* Adds the parameter to its stages. */
static int described_place(struct described *d, const struct rsh_ckpt2_param *p)
{
	const uint32_t *ranks = p->ranks->ranks;
	bool is_stage = p->n_slices <= 1 || (p->ranks->n == d->ranks &&
					     ranks[0] % d->ranks == 0);

	for (uint32_t i = 1; is_stage && p->n_slices > 1 && i < d->ranks; i++)
		is_stage = ranks[i] == ranks[0] + i;
	if (!is_stage)
		return rsh_error_set(d->err, EINVAL, "%s: parameter \"%s\" is "
				     "cut over %u ranks from rank %u, which "
				     "are not a stage of %u ranks in order",
				     d->path, p->name, p->ranks->n, ranks[0],
				     d->ranks);
	for (uint32_t i = 0; i < p->ranks->n; i++) {
		uint32_t stage = p->ranks->ranks[i] / d->ranks;
		struct described_stage *s;

		if (rsh_room(d->stages, d->cap_stages, (size_t)stage + 1))
			return rsh_error_nomem(d->err);
		while (d->n_stages <= stage)
			d->stages[d->n_stages++] =
				(struct described_stage){ NULL, 0, 0 };
		s = &d->stages[stage];
		if (s->n && s->params[s->n - 1] == p)
			continue;
		if (rsh_push(s->params, s->n, s->cap, p))
			return rsh_error_nomem(d->err);
	}
	return 0;
}

/* ---- files of stages ---- */

/* A parameter that is not split gets a mesh of one axis. */
static bool described_item(struct rsh_arena *a, const struct rsh_ckpt2_param *p,
			   uint32_t ranks, struct rsh_strategy_item *out)
{
	const struct rsh_strategy_item *from = p->n_slices > 1 ? p->layout :
								 NULL;
	uint32_t n = from ? from->n_mesh : 1;
	struct rsh_map_entry *map =
		rsh_arena_array(a, struct rsh_map_entry, p->n_dims);
	uint32_t *mesh = rsh_arena_array(a, uint32_t, n);

	*out = (struct rsh_strategy_item){
		.name = rsh_arena_strndup(a, p->name, strlen(p->name)),
		.n_mesh = n,
		.mesh = mesh,
		.n_map = p->n_dims,
		.map = map,
		.nested = from && from->nested,
	};
	if (!map || !mesh || !out->name)
		return false;
	memcpy(mesh, from ? from->mesh : &ranks, n * sizeof(*mesh));
	for (uint32_t i = 0; from && i < from->n_map; i++) {
		int32_t *axes = rsh_arena_array(a, int32_t, from->map[i].n);

		if (!axes)
			return false;
		if (from->map[i].n)
			memcpy(axes, from->map[i].axes,
			       from->map[i].n * sizeof(*axes));
		map[i] = (struct rsh_map_entry){ from->map[i].n, axes };
	}
	return true;
}

static struct rsh_strategy_file *described_file(const struct described *d,
						uint32_t stage)
{
	const struct described_stage *s = &d->stages[stage];
	struct rsh_strategy_file *f = calloc(1, sizeof(*f));
	struct rsh_arena *a = calloc(1, sizeof(*a));
	struct rsh_strategy_item *items;
	bool done;

	if (!f || !a) {
		free(f);
		free(a);
		return NULL;
	}
	items = rsh_arena_array(a, struct rsh_strategy_item, s->n);
	*f = (struct rsh_strategy_file){
		.path = rsh_arena_strndup(a, d->path, strlen(d->path)),
		.json = true,
		.has_stage = true,
		.first_stage = stage,
		.n_items = s->n,
		.items = items,
		.arena_ = a,
	};
	done = items && f->path;
	for (uint32_t i = 0; i < s->n && done; i++)
		done = described_item(a, s->params[i], d->ranks, &items[i]);
	if (done)
		return f;
	rsh_strategy_file_free(f);
	return NULL;
}

static int described_merge(const struct described *d, struct rsh_names *names,
			   struct rsh_strategy **out)
{
	struct rsh_strategy_file **files =
		rsh_alloc_array(d->n_stages, sizeof(*files));
	uint32_t n = 0;

	if (!files)
		return rsh_error_nomem(d->err);
	/* rsh_strategy_merge() reports a missing stage. */
	for (uint32_t i = 0; i < d->n_stages; i++) {
		if (!d->stages[i].n)
			continue;
		files[n] = described_file(d, i);
		if (!files[n++])
			break;
	}
	if (n && files[n - 1])
		return rsh_strategy_merge(&(struct rsh_strategy_set){ files, n,
				RSH_STRATEGY_DIR, d->path }, names, out,
				d->err);
	for (uint32_t i = 0; i < n; i++)
		rsh_strategy_file_free(files[i]);
	free(files);
	return n ? rsh_error_nomem(d->err) :
		   rsh_error_set(d->err, EINVAL, "%s: no parameter that it "
				 "describes is on any rank", d->path);
}

int rsh_strategy_of_checkpoint2(const struct rsh_ckpt2 *c, const char *path,
				struct rsh_names *names,
				struct rsh_strategy **out,
				struct rsh_error *err)
{
	struct described d = { .path = path, .err = err };
	int rc = 0;

	for (uint32_t i = 0; i < c->n_params; i++)
		if (c->params[i].layout && c->params[i].ranks->n > d.ranks)
			d.ranks = c->params[i].ranks->n;
	if (d.ranks == 0)
		d.ranks = c->n_ranks;
	for (uint32_t i = 0; i < c->n_params && rc == 0; i++)
		if (strncmp(c->params[i].name, ACCUMULATED,
			    strlen(ACCUMULATED)) != 0)
			rc = described_place(&d, &c->params[i]);
	if (rc == 0)
		rc = described_merge(&d, names, out);
	for (uint32_t i = 0; i < d.n_stages; i++)
		free(d.stages[i].params);
	free(d.stages);
	return rc;
}
