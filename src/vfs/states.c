/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/states.c finds the parameters of a source that belong to an optimizer,
 * and so are not part of a model: states, gradients, steps and rates.  It reads
 * the values that are not tensors. */
#include "config.h"

#include "vfs_i.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "rsh/plan/blueprint.h"
#include "rsh/plan/kinds.h"
#include "rsh/source/format.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

struct states {
	const struct rsh_kinds *kinds;
	uint32_t n;
	uint64_t bytes;
	const char *example;
};

static int states_of_tensor(void *ctx, const struct rsh_listed_tensor *t)
{
	struct states *s = ctx;
	uint64_t bytes = rsh_dtype_size(t->dtype);

	if (rsh_kinds_of_text(s->kinds, t->name) == RSH_KIND_WEIGHT)
		return 0;
	for (uint32_t d = 0; d < t->n_dims; d++)
		bytes *= t->dims[d];
	s->bytes += bytes;
	if (s->n++ == 0)
		s->example = t->name;
	return 0;
}

/* The files of neighbouring ranks mostly share an index, so the result of the
 * last index is used again. */
static int states_of_ranks(const struct rsh_source_view *view, struct states *s)
{
	cleanup_free bool *seen =
		calloc((size_t)rsh_names_count(view->names) + 1, sizeof(*seen));
	const struct rsh_ckpt_index *before = NULL;
	uint64_t bytes = 0;

	if (!seen)
		return -ENOMEM;
	for (uint32_t rank = 0; rank < view->n_ranks; rank++) {
		const struct rsh_ckpt_index *ix = view->index[rank];

		if (!ix)
			continue;
		if (ix != before)
			bytes = 0;
		for (uint32_t i = 0; ix != before && i < ix->n_records; i++) {
			const struct rsh_record *r = &ix->records[i];
			const char *name = rsh_names_text(view->names, r->name);

			if (rsh_kinds_of(s->kinds, r->name, name) ==
			    RSH_KIND_WEIGHT)
				continue;
			bytes += r->content_bytes;
			if (!seen[r->name] && s->n++ == 0)
				s->example = name;
			seen[r->name] = true;
		}
		s->bytes += bytes;
		before = ix;
	}
	return 0;
}

int rsh_vfs_note_states(struct rsh_reshard *v, const struct rsh_kinds *kinds)
{
	struct rsh_arena arena = { NULL, 0 };
	struct states s = { .kinds = kinds };
	const struct rsh_list_job job = {
		.source = v->source, .arena = &arena,
		.take = states_of_tensor, .ctx = &s,
	};
	struct rsh_source_view view;
	struct rsh_listed all;
	char size[32];
	int rc;

	rsh_source_view(v->source, v->names, &view);
	rc = rsh_format_lists(rsh_source_format(v->source)) ?
	     rsh_source_each(&job, &all, NULL) : states_of_ranks(&view, &s);
	rsh_arena_clear(&arena);
	if (rc || s.n == 0)
		return rc;
	if (s.bytes < 1000000)
		snprintf(size, sizeof(size), "%" PRIu64 " bytes", s.bytes);
	else
		snprintf(size, sizeof(size), "%.1f MB", (double)s.bytes / 1e6);
	return rsh_blueprint_note(v->plan, rsh_text_format(
		"%u tensor%s of an optimizer, %s in the source, "
		"%s left out, such as %s (--optimizer keep shows %s)",
		s.n, s.n > 1 ? "s" : "", size, s.n > 1 ? "are" : "is",
		s.example, s.n > 1 ? "them" : "it"));
}

/* ---- values that are not tensors ---- */

/* Adds a note about the wanted values that the output cannot show. */
static int values_note(struct rsh_reshard *v)
{
	const bool pickles = v->output->takes & RSH_TAKES_PICKLES;
	const struct rsh_values *x = &v->extra;
	const char *first = NULL;
	uint32_t left = 0;

	for (uint32_t i = 0; i < x->n; i++) {
		if (pickles ? x->values[i].pickle != NULL :
			      x->values[i].json != NULL)
			continue;
		if (left++ == 0)
			first = x->names[i];
	}
	if (left == 0)
		return 0;
	return rsh_blueprint_note(v->plan, rsh_text_format(
		"%u value%s no tensor%s not shown, such as %s%s", left,
		left > 1 ? "s that are" : " that is",
		left > 1 ? "s are" : " is", first,
		left == x->n ? "" : pickles ? ", and the others are items" :
		", and extra_state.json has the others"));
}

/* Adds a wanted number, unless it is 0, which means unknown. */
static int values_add_number(struct rsh_values *v, const char *name,
			     const struct rsh_plan_options *opts, uint64_t n)
{
	if (n == 0 || n > INT64_MAX ||
	    (opts->wanted && !opts->wanted(opts->ctx, name)))
		return 0;
	v->names[v->n] = name;
	return rsh_plain_make_number((int64_t)n, &v->values[v->n++]);
}

/* Adds what a Checkpoint 2.0 says beside its tensors, with the names of its
 * common.json. */
static int values_of_training(struct rsh_source *s,
			      const struct rsh_plan_options *opts,
			      struct rsh_values *v)
{
	static const char loss_scale[] = "loss_scale";
	struct rsh_training_state state = { 0 };
	struct rsh_candidate_step step;

	rsh_source_candidate_step(s, rsh_source_chosen(s), &step);
	if (rsh_source_training_state(s, &state) || rsh_values_alloc(v, 4) ||
	    values_add_number(v, "epoch_num", opts, state.epoch) ||
	    values_add_number(v, "global_step", opts, step.step) ||
	    values_add_number(v, "global_batch_size", opts, state.batch_size))
		return -ENOMEM;
	if (state.loss_scale <= 0 ||
	    (opts->wanted && !opts->wanted(opts->ctx, loss_scale)))
		return 0;
	v->names[v->n] = loss_scale;
	return rsh_plain_make_real(state.loss_scale, &v->values[v->n++]);
}

int rsh_vfs_values(struct rsh_reshard *v, const struct rsh_plan_options *opts,
		   struct rsh_error *err)
{
	const struct rsh_format *f = rsh_source_format(v->source);
	int rc = 0;

	rsh_values_clear(&v->extra);
	if (!(v->output->takes & RSH_TAKES_VALUES))
		return 0;
	if (f->values)
		rc = f->values(v->source, opts, &v->extra, err);
	else if (f->layout == RSH_LAYOUT_OWN &&
		 v->output->takes & RSH_TAKES_PICKLES &&
		 values_of_training(v->source, opts, &v->extra))
		rc = rsh_error_nomem(err);
	if (rc == 0 && values_note(v))
		rc = rsh_error_nomem(err);
	return rc;
}
