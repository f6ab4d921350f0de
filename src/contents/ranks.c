/* SPDX-License-Identifier: Apache-2.0 */
/* contents/ranks.c searches for checkpoints of ranks that the strategy does not
 * have, in the chosen step and in older ones. */
#include "config.h"

#include "contents_i.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "rsh/contents/infer.h"
#include "rsh/source/inspect.h"
#include "rsh/source/sample.h"
#include "rsh/util/log.h"

/* Suggests the right strategy if there is an obvious one. */
static void ranks_guess(const struct rsh_strategy *src,
			const struct rsh_strategy *dst, uint32_t n, char *text,
			size_t size)
{
	const uint32_t stages = n / src->stage_ranks;
	char missing[48];

	text[0] = '\0';
	if (src->lone_stage) {
		snprintf(text, size, "; it is the strategy file of stage %u: "
			 "give those of all stages, in a directory or merged by "
			 "reshardfs strategy merge", src->lone_stage);
	} else if (dst && dst->n_stages * dst->stage_ranks == n) {
		snprintf(text, size, "; %s is of %u: are source and "
			 "destination swapped?", dst->path, n);
	} else if (n % src->stage_ranks == 0 && stages > src->n_stages) {
		snprintf(missing, sizeof(missing), stages - src->n_stages > 1 ?
			 "files of stages %u to %u are" : "file of stage %u is",
			 src->n_stages, stages - 1);
		snprintf(text, size, "; if the job is a pipeline of %u stages, "
			 "the strategy %s missing: give those of all %u, in a "
			 "directory or merged by reshardfs strategy merge",
			 stages, missing, stages);
	}
}

int rsh_contents_check_ranks(const struct rsh_source *s,
			     const struct rsh_strategy *src,
			     const struct rsh_strategy *dst,
			     struct rsh_error *err)
{
	const uint32_t n_ranks = src->n_stages * src->stage_ranks;
	struct rsh_error e = RSH_ERROR_INIT;
	char step[256], guess[320] = "";
	const char *name;
	uint32_t n;
	bool one = rsh_source_has_step(s);

	/* If the strategy is one stage's file and is used for that stage only,
	 * the number of stages is unknown.  Otherwise the file is used as if it
	 * were the only stage, and its ranks would show parts of other stages
	 * as whole tensors. */
	if (rsh_source_first_rank(s) > 0)
		return 0;
	n = rsh_source_count_ranks(s, n_ranks, &name);
	if (!name)
		return 0;
	rsh_source_chosen_text(s, step, sizeof(step));
	rsh_error_set(&e, EINVAL, "%s: %u ranks have a checkpoint%s%s, but %s "
		      "is of %u ranks and does not have %s", rsh_source_path(s),
		      n, one ? " of " : "", one ? step : "", src->path, n_ranks,
		      name);
	if (rsh_source_check(s) == RSH_CHECK_STRUCTURE) {
		rsh_log_warning("%s; they are left out", e.text);
		return 0;
	}
	ranks_guess(src, dst, n, guess, sizeof(guess));
	return rsh_error_set(err, EINVAL, "%s%s; --check structure leaves "
			     "these ranks out", e.text, guess);
}

/* ---- older steps ----
 *
 * If a job of 8 ranks has written only half of a step, the step looks like that
 * of a job of 4 ranks, and a strategy of 4 ranks may fit it: then an eighth of
 * each tensor is taken for a quarter.  But the other ranks have saved older
 * steps.  If the slices of an older step had the same shape and there were more
 * of them than the strategy says, the strategy does not fit the tree.  If the
 * job was resumed with fewer ranks, the older slices have another shape, or
 * their number is that of the strategy.
 */

#define OLDER_TENSORS 32

struct older {
	const struct rsh_strategy *src;
	struct rsh_source_view view; /* view of the chosen step */
	struct rsh_names *names;
	enum rsh_grid_rule rule;
	unsigned n_asked;
	/* n_more counts tensors with more slices than the strategy says; `name`
	 * is the first of them.  n_as_said counts cut tensors that do not have
	 * more. */
	unsigned n_more, n_as_said;
	uint32_t name, slices, found;
};

static bool older_wants(void *ctx, const char *name)
{
	struct older *x = ctx;
	uint32_t id = rsh_names_find(x->names, name, strlen(name));

	return id != RSH_NAME_NONE && rsh_strategy_find(x->src, id) &&
	       x->n_asked++ < OLDER_TENSORS;
}

/* Returns whether the slices of the chosen step have this shape. */
static bool older_is_alike(const struct older *x, const struct rsh_inferred *t)
{
	for (uint32_t rank = 0; rank < x->view.n_ranks; rank++) {
		const struct rsh_ckpt_index *ix = x->view.index[rank];
		const struct rsh_record *r =
			ix ? rsh_ckpt_find(ix, t->name) : NULL;

		if (r)
			return rsh_record_is_alike(ix, r, t->index, t->record);
	}
	return false;
}

/* Returns how many slices there are by the strategy; 0: it does not fit. */
static uint32_t older_count_slices(const struct older *x,
				   const struct rsh_inferred *t)
{
	const struct rsh_strategy_param *p = rsh_strategy_find(x->src, t->name);
	const struct rsh_grid_sizes sizes = {
		rsh_record_dims(t->index, t->record), t->record->n_dims, true,
	};
	uint32_t all = 0;

	for (uint32_t i = 0; i < p->n_stages; i++) {
		struct rsh_grid *g;

		if (rsh_grid_new(p->stages[i].item, &sizes, x->rule, &g, NULL))
			return 0;
		all += rsh_grid_n_ranks(g) / rsh_grid_n_replicas(g);
		rsh_grid_free(g);
	}
	return all;
}

static int older_compare(void *ctx, const struct rsh_inferred *t)
{
	struct older *x = ctx;
	uint32_t slices;

	if (t->simple || t->may_be_private || t->odd_rank != UINT32_MAX ||
	    !older_is_alike(x, t))
		return 0;
	slices = older_count_slices(x, t);
	if (slices && t->n_groups > slices) {
		if (x->n_more++ == 0) {
			x->name = t->name;
			x->slices = slices;
			x->found = t->n_groups;
		}
	} else {
		x->n_as_said += slices > 1;
	}
	return 0;
}

static int older_refuse(const struct older *x, const struct rsh_source *s,
			const struct rsh_source *older, struct rsh_error *err)
{
	char now[256], then[256];

	rsh_source_chosen_text(s, now, sizeof(now));
	rsh_source_candidate_text(older, 0, then, sizeof(then));
	return rsh_error_set(err, EINVAL, "%s: %s is of %u ranks, of which "
			     "%s may be half written: parameter %s has %u "
			     "slices by it, but in %s, which more ranks have "
			     "saved, there are at least %u of that shape (and "
			     "so with %u of %u tensors); --check structure "
			     "does not compare them", rsh_source_path(s),
			     x->src->path,
			     x->src->n_stages * x->src->stage_ranks, now,
			     rsh_names_text(x->names, x->name), x->slices, then,
			     x->found, x->n_more, x->n_more + x->n_as_said);
}

int rsh_contents_check_older(struct rsh_source *s,
			     const struct rsh_source_options *opts,
			     const struct rsh_strategy *src,
			     enum rsh_grid_rule rule, struct rsh_names *names,
			     struct rsh_error *err)
{
	struct older x = { .src = src, .rule = rule, .names = names };
	struct rsh_source_options o = *opts;
	struct rsh_error ignored = RSH_ERROR_INIT;
	cleanup_source struct rsh_source *older = NULL;
	int rc;

	if (!src || src->lone_stage ||
	    rsh_source_check(s) == RSH_CHECK_STRUCTURE ||
	    !rsh_source_older_beyond(s, src->n_stages * src->stage_ranks,
				     &o.epoch, &o.step))
		return 0;
	o.select = RSH_SELECT_STEP;
	o.check = RSH_CHECK_STRUCTURE;
	rsh_source_view(s, names, &x.view);
	rc = rsh_source_open(rsh_source_path(s), 0, UINT32_MAX, &o, &older,
			     &ignored) ?:
	     rsh_source_choose(older, 0, &ignored) ?:
	     rsh_source_index(older, names, &ignored) ?:
	     rsh_contents_infer(older, names, older_wants, older_compare, &x);
	/* A step that cannot be read proves nothing. */
	if (rc)
		rsh_log_info("%s: an older step was not compared: %s",
			     rsh_source_path(s), strerror(-rc));
	rc = rc == -ENOMEM ? rsh_error_nomem(err) : 0;
	if (rc == 0 && x.n_more > x.n_as_said)
		rc = older_refuse(&x, s, older, err);
	return rc;
}
