/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/infer_messages.c makes sentences about what shapes and holders of
 * slices suggest, and about what contents cannot show. */
#include "config.h"

#include "infer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "rsh/util/mem.h"

#define say(x, ...) rsh_sentences_add(&(x)->sentences, __VA_ARGS__)

static const char *hint_shape(const struct rsh_ckpt_index *ix,
			      const struct rsh_record *r, char *text)
{
	return rsh_dims_text((const uint64_t *)rsh_record_dims(ix, r),
			     r->n_dims, text, RSH_SHAPE_TEXT_MAX);
}

/* ---- shapes ---- */

/* Returns an array of tensor numbers by the number of their name; SIZE_MAX
 * means no tensor has the name. */
static size_t *number_tensors(const struct rsh_infer *x)
{
	uint32_t n = rsh_names_count(x->names);
	size_t *at = rsh_alloc_array(n, sizeof(*at));

	for (uint32_t i = 0; at && i < n; i++)
		at[i] = SIZE_MAX;
	for (size_t i = 0; at && i < x->n_tensors; i++)
		at[x->tensors[i].name] = i;
	return at;
}

/* Returns whether the slice of a state is a part of its parameter's slice in
 * one dimension, the only one in which they differ. */
static bool is_cut_further(const struct rsh_infer_tensor *state,
			   const struct rsh_infer_tensor *of, uint32_t *dim,
			   int64_t *times)
{
	const int64_t *a = rsh_record_dims(state->index, state->record);
	const int64_t *b = rsh_record_dims(of->index, of->record);
	uint32_t n = 0;

	if (state->record->n_dims != of->record->n_dims)
		return false;
	for (uint32_t d = 0; d < of->record->n_dims; d++)
		if (a[d] != b[d]) {
			*dim = d;
			n++;
		}
	if (n != 1 || a[*dim] == 0 || b[*dim] <= a[*dim] || b[*dim] % a[*dim])
		return false;
	*times = b[*dim] / a[*dim];
	return true;
}

static int say_states(struct rsh_infer *x)
{
	cleanup_free size_t *at = number_tensors(x);
	const struct rsh_infer_tensor *state = NULL, *of = NULL;
	char a[RSH_SHAPE_TEXT_MAX], b[RSH_SHAPE_TEXT_MAX];
	uint32_t n = 0, dim = 0;
	int64_t times = 0;

	if (!at)
		return -ENOMEM;
	for (size_t i = x->n_tensors; i-- > 0;) {
		const struct rsh_infer_tensor *t = &x->tensors[i];
		size_t k = t->state_of == RSH_NAME_NONE ? SIZE_MAX :
							  at[t->state_of];
		uint32_t d;
		int64_t q;

		if (k == SIZE_MAX || !is_cut_further(t, &x->tensors[k], &d, &q))
			continue;
		n++;
		state = t;
		of = &x->tensors[k];
		dim = d;
		times = q;
	}
	return n == 0 ? 0 :
	       say(x, "%u optimizer state%s smaller than what %s of: dimension "
		   "%u of %s %s is cut %lld times more than that of %s %s, as "
		   "by an optimizer shard", n, n == 1 ? " is" : "s are",
		   n == 1 ? "it is" : "they are", dim,
		   rsh_names_text(x->names, state->name),
		   hint_shape(state->index, state->record, a), (long long)times,
		   rsh_names_text(x->names, of->name),
		   hint_shape(of->index, of->record, b));
}

static int say_odd_shapes(struct rsh_infer *x)
{
	const struct rsh_infer_tensor *first = NULL;
	char a[RSH_SHAPE_TEXT_MAX], b[RSH_SHAPE_TEXT_MAX];
	const struct rsh_ckpt_index *ix;
	uint32_t n = 0;

	for (size_t i = x->n_tensors; i-- > 0;)
		if (x->tensors[i].odd_rank != UINT32_MAX) {
			first = &x->tensors[i];
			n++;
		}
	if (n == 0)
		return 0;
	ix = x->view.index[first->odd_rank];
	return say(
		x,
		"%u tensor%s not of one shape or type on all ranks: %s "
		"is %s on rank %u and %s on rank %u; where only one dimension "
		"differs, that one is cut", n, n == 1 ? " is" : "s are",
		rsh_names_text(x->names, first->name),
		hint_shape(first->index, first->record, a),
		x->sets[first->set].ranks[0],
		hint_shape(ix, rsh_ckpt_find(ix, first->name), b),
		first->odd_rank);
}

/* ---- holders ---- */

static int say_sets(struct rsh_infer *x)
{
	if (x->n_sets < 2)
		return 0;
	for (size_t i = 0; i < x->n_tensors; i++)
		if (x->tensors[i].verdict == RSH_VERDICT_MESH &&
		    x->tensors[i].n_groups < x->tensors[i].n)
			return say(x, "tensors are on %zu different sets of "
				   "ranks: sets that follow each other are "
				   "pipeline stages", x->n_sets);
	return say(x,
		   "tensors are on %zu different sets of ranks, and no two "
		   "ranks hold the same data: either pipeline stages, or a "
		   "save with redundancy removed; in that case the replicas "
		   "are unknown, and a tensor has as many slices as ranks "
		   "that hold it", x->n_sets);
}

static int say_lost(struct rsh_infer *x)
{
	cleanup_free uint32_t *lost = rsh_alloc_array(
		x->n_there + x->view.n_ranks, sizeof(*lost));
	char text[256];
	uint32_t n = 0, next = 0;

	if (!lost)
		return -ENOMEM;
	/* These are the ranks of the tree, and the ranks missing between
	 * them. */
	for (size_t i = 0; i < x->n_there; i++) {
		for (; next < x->there[i] && next < x->view.n_ranks; next++)
			if (!rsh_infer_has_file(x, next))
				lost[n++] = next;
		if (!rsh_infer_has_file(x, x->there[i]))
			lost[n++] = x->there[i];
		next = x->there[i] + 1;
	}
	if (n == 0)
		return 0;
	return say(x, "rank%s %s ha%s no valid file of this step: data that "
		   "no other rank holds is unknown, and meshes include %s",
		   n == 1 ? "" : "s",
		   rsh_partition_ranks_text(lost, n, text, sizeof(text)),
		   n == 1 ? "s" : "ve", n == 1 ? "it" : "them");
}

/* ---- what cannot be known ---- */

int rsh_infer_print_messages(struct rsh_infer *x)
{
	static const char *const unknown[] = {
		("which dimension of a tensor is cut, and in which order its "
		 "slices follow each other: a whole tensor is as large as its "
		 "different slices together, in one dimension or in several"),
		("whether ranks that hold the same are replicas: slices may be "
		 "the same because they began as copies (experts) or repeat "
		 "(heads, tables)"),
		("what an axis is for, and whether one is several that are "
		 "always used together"),
	};
	int rc = say_lost(x);

	rc = rc ? rc : say_sets(x);
	rc = rc ? rc : say_states(x);
	rc = rc ? rc : say_odd_shapes(x);
	x->n_hints = x->sentences.n;
	for (size_t i = 0; i < sizeof(unknown) / sizeof(*unknown) && rc == 0;
	     i++)
		rc = say(x, "%s", unknown[i]);
	return rc;
}
