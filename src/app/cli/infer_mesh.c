/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/infer_mesh.c finds a mesh that explains the groups of each tensor,
 * and one for all tensors of a set of ranks. */
#include "config.h"

#include "infer.h"

#include <errno.h>
#include <stdlib.h>

#include "rsh/util/mem.h"

/* ---- one tensor ---- */

/* Returns the groups of all ranks of the set's span (from malloc). */
static uint32_t *span_groups(const struct rsh_infer_set *s,
			     const struct rsh_infer_tensor *t)
{
	uint32_t *group = rsh_alloc_array(s->span, sizeof(*group));

	for (uint32_t i = 0; group && i < s->span; i++)
		group[i] = RSH_PARTITION_UNKNOWN;
	for (uint32_t i = 0; group && i < t->of.n; i++)
		group[t->of.ranks[i] - s->first] = t->of.group[i];
	return group;
}

static int explain_tensor(const struct rsh_infer_set *s,
			  struct rsh_infer_tensor *t)
{
	cleanup_free uint32_t *group = NULL;
	int rc;

	t->verdict = s->n == 1 ? RSH_VERDICT_ALONE :
		     t->of.n < 2 ? RSH_VERDICT_UNREAD :
		     t->of.simple ? RSH_VERDICT_SIMPLE :
		     !s->follows ? RSH_VERDICT_SCATTERED : RSH_VERDICT_MESH;
	if (t->verdict != RSH_VERDICT_MESH)
		return 0;
	group = span_groups(s, t);
	if (!group)
		return -ENOMEM;
	rc = rsh_partition_mesh(group, s->span, t->mesh.axes, &t->mesh.n_axes);
	if (rc == -ENOMEM)
		return rc;
	if (rc)
		t->verdict = rc > 0 ? RSH_VERDICT_SEVERAL : RSH_VERDICT_NONE;
	return 0;
}

uint32_t *rsh_infer_groups(const struct rsh_infer *x,
			   const struct rsh_infer_tensor *t)
{
	const struct rsh_infer_set *s = &x->sets[t->set];
	uint32_t *group = span_groups(s, t);

	if (!group)
		return NULL;
	if (t->verdict == RSH_VERDICT_MESH)
		rsh_partition_groups(t->mesh.axes, t->mesh.n_axes, group,
				     s->span);
	for (uint32_t i = 0; i < s->n; i++)
		group[i] = group[s->ranks[i] - s->first];
	return group;
}

/* ---- how many ranks there were ---- */

/* At the end of the tree the number of ranks is unknown.  So at most so many
 * lost ranks beside those of a set are tried. */
#define LOST_MAX 64

/* Counts the tensors that have a mesh and those that have none, if the stage
 * has these ranks. */
static int try_span(struct rsh_infer *x, uint32_t set, uint32_t first,
		    uint32_t span, uint32_t *n_mesh, uint32_t *n_none)
{
	struct rsh_infer_set *s = &x->sets[set];

	s->first = first;
	s->span = span;
	*n_mesh = *n_none = 0;
	for (size_t i = 0; i < x->n_tensors; i++) {
		struct rsh_infer_tensor *t = &x->tensors[i];

		if (t->set != set)
			continue;
		if (explain_tensor(s, t))
			return -ENOMEM;
		*n_mesh += t->verdict == RSH_VERDICT_MESH;
		*n_none += t->verdict == RSH_VERDICT_NONE &&
			   !t->of.may_be_private;
	}
	return 0;
}

/* If most tensors of six ranks fit no mesh, two ranks of eight may be lost. */
static int find_span(struct rsh_infer *x, uint32_t set)
{
	const struct rsh_infer_set *s = &x->sets[set];
	const uint32_t as_is = s->span, last = s->ranks[s->n - 1];
	uint32_t before = 0, behind = 0, most, n, none;
	uint32_t first = s->first, span = as_is;
	int rc = try_span(x, set, first, span, &most, &none);

	if (rc || none * 8 <= most)
		return rc;
	most = 2 * most + (first % span == 0);
	while (before < s->ranks[0] && before < LOST_MAX &&
	       !rsh_infer_has_file(x, s->ranks[0] - before - 1))
		before++;
	while (behind < s->n && behind < LOST_MAX &&
	       !rsh_infer_has_file(x, last + behind + 1))
		behind++;
	for (uint32_t more = 1; more <= before + behind && rc == 0; more++)
		for (uint32_t k = 0; k <= before && k <= more && rc == 0; k++) {
			if (more - k > behind)
				continue;
			rc = try_span(x, set, s->ranks[0] - k, as_is + more,
				      &n, &none);
			/* Stages begin at a multiple of their size. */
			n = 2 * n + (s->first % s->span == 0);
			if (n <= most)
				continue;
			most = n;
			first = s->first;
			span = s->span;
		}
	return rc ?: try_span(x, set, first, span, &n, &none);
}

/* Finds content that each rank has for itself.  This is known only if the set
 * has weights or states that several ranks hold. */
static void find_private(struct rsh_infer *x, uint32_t set)
{
	bool replicas = false;

	for (size_t i = 0; i < x->n_tensors; i++) {
		const struct rsh_infer_tensor *t = &x->tensors[i];

		replicas |= t->set == set && !t->of.may_be_private &&
			    !t->of.simple && t->of.n > 1 &&
			    t->of.n_groups != t->of.n;
	}
	for (size_t i = 0; i < x->n_tensors && replicas; i++) {
		struct rsh_infer_tensor *t = &x->tensors[i];

		if (t->set == set && t->of.may_be_private && t->of.n > 1 &&
		    t->of.n_groups == t->of.n)
			t->verdict = RSH_VERDICT_PRIVATE;
	}
}

/* ---- all tensors of a set ---- */

/* This is a mesh of some tensors, and their number. */
struct use {
	const struct rsh_infer_mesh *mesh;
	uint32_t n_weights, n;
	uint32_t first; /* its number in the order in which meshes were found */
};

static bool axes_are_equal(const struct rsh_infer_mesh *a,
			   const struct rsh_infer_mesh *b)
{
	return rsh_all(i, a->n_axes,
		       a->axes[i].size == b->axes[i].size &&
		       a->axes[i].cuts == b->axes[i].cuts);
}

RSH_ORDER(by_use, struct use,
	  rsh_compare_u64(y->n_weights, x->n_weights) ?:
	  rsh_compare_u64(y->n, x->n) ?:
	  rsh_compare_u64(x->first, y->first))

/* The mesh of most tensors comes first, so that of two meshes that exclude each
 * other this one is kept. */
static int find_common(struct rsh_infer *x, uint32_t set)
{
	struct rsh_infer_set *s = &x->sets[set];
	cleanup_free struct use *uses = NULL;
	size_t n = 0, cap = 0;

	for (size_t i = 0; i < x->n_tensors; i++) {
		const struct rsh_infer_tensor *t = &x->tensors[i];
		const struct rsh_infer_mesh *m = &t->mesh;
		size_t k;

		if (t->set != set || t->verdict != RSH_VERDICT_MESH)
			continue;
		k = rsh_index(u, n, uses[u].mesh->n_axes == m->n_axes &&
				    axes_are_equal(uses[u].mesh, m));
		if (k == n) {
			if (rsh_push(uses, n, cap,
				     (struct use){ .mesh = m,
						   .first = (uint32_t)k }))
				return -ENOMEM;
		}
		uses[k].n++;
		uses[k].n_weights += !t->of.may_be_private;
	}
	if (n == 0)
		return 0;
	qsort(uses, n, sizeof(*uses), by_use);
	s->mesh = *uses[0].mesh;
	for (size_t i = 1; i < n; i++)
		rsh_partition_refine(s->mesh.axes, &s->mesh.n_axes,
				     uses[i].mesh->axes, uses[i].mesh->n_axes);
	return 0;
}

int rsh_infer_explain(struct rsh_infer *x)
{
	int rc = 0;

	for (uint32_t i = 0; i < x->n_sets && rc == 0; i++) {
		rc = find_span(x, i);
		find_private(x, i);
		rc = rc ?: find_common(x, i);
	}
	for (size_t i = 0; i < x->n_tensors && rc == 0; i++) {
		struct rsh_infer_tensor *t = &x->tensors[i];
		struct rsh_infer_set *s = &x->sets[t->set];

		struct rsh_infer_mesh finer = s->mesh;

		/* The set's mesh explains a tensor if the tensor's mesh does
		 * not divide its axes. */
		t->fits = t->verdict == RSH_VERDICT_MESH &&
			  rsh_partition_refine(finer.axes, &finer.n_axes,
					       t->mesh.axes, t->mesh.n_axes) &&
			  finer.n_axes == s->mesh.n_axes;
		s->n_tensors++;
		s->by_verdict[t->verdict]++;
		s->n_fit += t->fits;
	}
	return rc;
}
