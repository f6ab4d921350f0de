/* SPDX-License-Identifier: Apache-2.0 */
/* strategy/partition.c finds the mesh that makes given groups of ranks.
 *
 * Axes are tried from the fastest one on.  The ranks that differ only in the
 * axes chosen so far show whether these are possible: exactly the ranks with
 * the same coordinates on the axes that cut must hold the same.  If the groups
 * of all ranks are known few axes are possible, and the mesh is unique, because
 * axes that cut and axes that do not alternate. */
#include "rsh/strategy/partition.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/mem.h"
#include "rsh/util/text.h"

/* A message lists this many ranks before it says how many more there are. */
#define LISTED_MAX 6

/* ---- the mesh ---- */

struct search {
	const uint32_t *group; /* of each rank */
	uint32_t n;
	uint32_t *known; /* ranks whose group is known, ascending */
	uint32_t n_known;
	/* Among the known ranks that differ only in the axes so far, these are
	 * the number of the first one in a group, and of the first one with a
	 * key. */
	uint32_t *by_group, *by_key;
	uint32_t *key; /* [n_known] */
	struct rsh_partition_axis axes[RSH_PARTITION_MAX_AXES]; /* fastest
								 * first */
	unsigned n_axes;
	struct rsh_partition_axis found[RSH_PARTITION_MAX_AXES];
	unsigned n_axes_found;
	unsigned n_found; /* how many meshes */
};

/* Returns the place of a rank on the axes that cut, which is below the product
 * of their sizes. */
static uint32_t key_of(const struct rsh_partition_axis *fastest, int step,
		       unsigned n_axes, uint32_t rank)
{
	uint32_t key = 0, width = 1;

	for (unsigned i = 0; i < n_axes; i++, fastest += step) {
		if (fastest->cuts) {
			key += rank % fastest->size * width;
			width *= fastest->size;
		}
		rank /= fastest->size;
	}
	return key;
}

/* Tells whether the axes so far, which span `stride` ranks, fit the groups. */
static bool axes_fit(struct search *x, uint32_t stride)
{
	uint32_t begin = 0;

	for (uint32_t i = 0; i < x->n_known; i++) {
		uint32_t rank = x->known[i], g = x->group[rank];
		uint32_t key = key_of(x->axes, 1, x->n_axes, rank);
		uint32_t a = x->by_group[g], b = x->by_key[key];
		bool in_group, has_key;

		if (rank / stride != x->known[begin] / stride)
			begin = i;
		in_group = a >= begin && a < i && x->group[x->known[a]] == g;
		has_key = b >= begin && b < i && x->key[b] == key;
		if (in_group != has_key || (in_group && a != b))
			return false;
		if (!in_group)
			x->by_group[g] = x->by_key[key] = i;
		x->key[i] = key;
	}
	return true;
}

/* Tries to complete the mesh beyond `stride` ranks with exactly n_more axes,
 * until two meshes are found. */
static void try_axes(struct search *x, uint32_t stride, unsigned n_more)
{
	const uint32_t left = x->n / stride;

	if (left == 1 && n_more == 0 && x->n_found++ == 0) {
		x->n_axes_found = x->n_axes;
		for (unsigned i = 0; i < x->n_axes; i++)
			x->found[i] = x->axes[x->n_axes - 1 - i];
	}
	if (left == 1 || n_more == 0)
		return;
	for (uint32_t s = left; s > 1 && x->n_found < 2; s--) {
		if (left % s || (n_more == 1 && s != left))
			continue;
		for (int cuts = 0; cuts < 2; cuts++) {
			if (x->n_axes > 0 &&
			    x->axes[x->n_axes - 1].cuts == cuts)
				continue;
			x->axes[x->n_axes++] =
				(struct rsh_partition_axis){ s, cuts };
			if (axes_fit(x, stride * s))
				try_axes(x, stride * s, n_more - 1);
			x->n_axes--;
		}
	}
}

int rsh_partition_mesh(const uint32_t *group, uint32_t n,
		       struct rsh_partition_axis axes[RSH_PARTITION_MAX_AXES],
		       unsigned *n_axes)
{
	cleanup_free uint32_t *known = rsh_alloc_array(n, sizeof(*known));
	cleanup_free uint32_t *by_group = calloc(n, sizeof(*by_group));
	cleanup_free uint32_t *by_key = calloc(n, sizeof(*by_key));
	cleanup_free uint32_t *key = rsh_alloc_array(n, sizeof(*key));
	struct search x = {
		.group = group, .n = n, .known = known, .by_group = by_group,
		.by_key = by_key, .key = key,
	};

	*n_axes = 0;
	if (!known || !by_group || !by_key || !key)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++)
		if (group[i] != RSH_PARTITION_UNKNOWN)
			known[x.n_known++] = i;
	for (unsigned k = 0; k <= RSH_PARTITION_MAX_AXES && x.n_found < 2 &&
			     n >> k; k++)
		try_axes(&x, 1, k);
	if (x.n_found == 0)
		return -ENOENT;
	memcpy(axes, x.found, x.n_axes_found * sizeof(*axes));
	*n_axes = x.n_axes_found;
	return x.n_found > 1;
}

void rsh_partition_groups(const struct rsh_partition_axis *axes,
			  unsigned n_axes, uint32_t *group, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		group[i] =
			n_axes ? key_of(axes + n_axes - 1, -1, n_axes, i) : 0;
}

/* ---- several tensors ---- */

/* This says where the axes of a mesh begin, fastest first, and whether they
 * cut. */
struct strides {
	uint32_t at[2 * RSH_PARTITION_MAX_AXES + 1];
	bool cuts[2 * RSH_PARTITION_MAX_AXES + 1];
	unsigned n;
};

static uint32_t strides_of(const struct rsh_partition_axis *axes,
			   unsigned n_axes, struct strides *s)
{
	uint32_t stride = 1;

	s->n = 0;
	for (unsigned i = n_axes; i-- > 0; stride *= axes[i].size) {
		s->at[s->n] = stride;
		s->cuts[s->n++] = axes[i].cuts;
	}
	return stride;
}

static void merge_strides(const struct strides *a, const struct strides *b,
			  struct strides *out)
{
	unsigned i = 0, k = 0;

	out->n = 0;
	while (i < a->n || k < b->n) {
		bool of_a = i < a->n && (k == b->n || a->at[i] <= b->at[k]);
		bool of_b = k < b->n && (i == a->n || b->at[k] <= a->at[i]);

		out->at[out->n] = of_a ? a->at[i] : b->at[k];
		i += of_a;
		k += of_b;
		/* The new axis is part of an axis of each mesh, and cuts if one
		 * of these does. */
		out->cuts[out->n++] = (i > 0 && a->cuts[i - 1]) ||
				      (k > 0 && b->cuts[k - 1]);
	}
}

bool
rsh_partition_refine(struct rsh_partition_axis axes[RSH_PARTITION_MAX_AXES],
		     unsigned *n_axes,
		     const struct rsh_partition_axis *by, unsigned n_by)
{
	struct strides a, b, both;
	const uint32_t n = strides_of(axes, *n_axes, &a);

	if (strides_of(by, n_by, &b) != n)
		return false;
	merge_strides(&a, &b, &both);
	both.at[both.n] = n;
	for (unsigned i = 0; i < both.n; i++)
		if (both.at[i + 1] % both.at[i])
			return false;
	*n_axes = both.n;
	for (unsigned i = 0; i < both.n; i++)
		axes[both.n - 1 - i] = (struct rsh_partition_axis){
			both.at[i + 1] / both.at[i], both.cuts[i],
		};
	return true;
}

/* ---- text ---- */

const char *
rsh_partition_mesh_text(const struct rsh_partition_axis *axes, unsigned n_axes,
			char *text, size_t size)
{
	unsigned n_cuts = 0, told = 0;
	size_t at = 0;

	rsh_text_add(text, size, &at, "mesh [");
	for (unsigned i = 0; i < n_axes; i++) {
		rsh_text_add(text, size, &at, "%s%u", i ? "," : "",
			     axes[i].size);
		n_cuts += axes[i].cuts;
	}
	rsh_text_add(text, size, &at, n_axes ? "]" : "1]");
	if (n_cuts == 0)
		rsh_text_add(text, size, &at, " not cut");
	for (unsigned i = 0; i < n_axes; i++) {
		if (!axes[i].cuts)
			continue;
		rsh_text_add(text, size, &at, "%s%u", told ? " and " :
			     n_cuts > 1 ? " cut over axes " :
					  " cut over axis ", i);
		told++;
	}
	return text;
}

static void append_ranks(char *text, size_t size, size_t *at,
			 const uint32_t *ranks, uint32_t n)
{
	if (n > 2 && ranks[n - 1] - ranks[0] == n - 1) {
		rsh_text_add(text, size, at, "%u to %u", ranks[0],
			     ranks[n - 1]);
		return;
	}
	for (uint32_t i = 0; i < n; i++) {
		const char *mark = i == 0 ? "" : i + 1 == n ? " and " : ", ";

		if (i == LISTED_MAX && n > LISTED_MAX + 1) {
			rsh_text_add(text, size, at, " and %u more", n - i);
			return;
		}
		rsh_text_add(text, size, at, "%s%u", mark, ranks[i]);
	}
}

const char *rsh_partition_ranks_text(const uint32_t *ranks, uint32_t n,
				     char *text, size_t size)
{
	size_t at = 0;

	text[0] = '\0';
	append_ranks(text, size, &at, ranks, n);
	return text;
}

/* Returns the largest group; of several it is the one with the lowest rank. */
static uint32_t largest_group(const uint32_t *group, uint32_t n)
{
	uint32_t best = 0, most = 0;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t k = 0;

		for (uint32_t j = i; j < n; j++)
			k += group[j] == group[i];
		if (k > most) {
			most = k;
			best = group[i];
		}
	}
	return best;
}

const char *rsh_partition_text(const uint32_t *ranks, const uint32_t *group,
			       uint32_t n, char *text, size_t size)
{
	cleanup_free uint32_t *list = rsh_alloc_array(n, sizeof(*list));
	uint32_t best = largest_group(group, n), k = 0;
	size_t at = 0;

	text[0] = '\0';
	if (!list)
		return text;
	rsh_text_add(text, size, &at, "ranks ");
	for (uint32_t i = 0; i < n; i++)
		if (group[i] == best)
			list[k++] = ranks[i];
	if (k == n || k == 1) {
		append_ranks(text, size, &at, ranks, n);
		rsh_text_add(text, size, &at,
			     k == n ? " all hold the same" : " all differ");
		return text;
	}
	append_ranks(text, size, &at, list, k);
	rsh_text_add(text, size, &at, " hold the same, ranks ");
	k = 0;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t j = 0;

		while (group[j] != group[i])
			j++;
		if (j == i)
			list[k++] = ranks[i];
	}
	append_ranks(text, size, &at, list, k);
	rsh_text_add(text, size, &at, " do not");
	return text;
}
