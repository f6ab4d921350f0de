/* SPDX-License-Identifier: Apache-2.0 */
/* formats/megatron/megatron.c - the format of Megatron-LM's trees: as a model,
 * and their steps for --resume.
 *
 * For --resume an iteration is complete if it has every mp_rank that any
 * iteration has, and files may be of any form.  The optimizer's file is written
 * after the model's. */
#include "config.h"

#include "megatron_i.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/formats/files.h"
#include "rsh/formats/formats.h"
#include "rsh/formats/steps.h"
#include "rsh/util/files.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"
#include "rsh/util/thread.h"

/* ---- tensors ---- */

/* Returns the first problem of the optimizer, which a model does not need, or
 * of the model; NULL: there is none. */
static const struct rsh_tensor_problem *
first_problem(const struct rsh_source_megatron *st, bool optimizer)
{
	const struct rsh_tensor_problems *p = &st->all.problems;

	for (size_t i = 0; i < p->n; i++)
		if (rsh_megatron_is_state(p->v[i].name) == optimizer)
			return &p->v[i];
	return NULL;
}

static void tell_optimizer(const struct rsh_source_megatron *st)
{
	const struct rsh_tensor_problem *p = first_problem(st, true);

	if (p)
		rsh_log_warning("%s: the optimizer's state is not complete: %s",
				st->path, p->text);
}

/* Says which file is lost, before what it lacks. */
static void tell_refused(const struct rsh_source_megatron *st,
			 struct rsh_error *err)
{
	struct rsh_error lost = RSH_ERROR_INIT;

	rsh_megatron_refuse_lost(st, st->lost[0], &lost);
	rsh_error_prefix(err, "%s", lost.text);
}

/* Adds the command that shows the weights if only states are not complete. */
static int refuse_tensor(const struct rsh_source_megatron *st, int rc,
			 struct rsh_error *err)
{
	const struct rsh_tensor_problems *p = &st->all.problems;
	const struct rsh_error is = *err;

	for (size_t i = 0; i < p->n; i++)
		if (!rsh_megatron_is_state(p->v[i].name))
			return rc;
	return rsh_error_set(err, -rc, "%s; `reshardfs mount --drop "
			     "'^optimizer' %s MNT` shows the weights", is.text,
			     st->path);
}

static int megatron_read(const struct rsh_read_job *job, struct rsh_offers *out,
			 struct rsh_error *err)
{
	struct rsh_source_megatron *st = rsh_megatron_of(job->source);
	const struct rsh_plan_options *o = job->opts;
	int rc = rsh_megatron_describe(st, err);

	if (rc)
		return rc;
	rc = rsh_tensor_problems_check(&st->all.problems, o, err);
	if (rc)
		return refuse_tensor(st, rc, err);
	if (st->no_states &&
	    (!o->wanted || o->wanted(o->ctx, "optimizer.state.exp_avg.w")))
		rsh_log_warning("%s: the states of the optimizer are left out: "
				"%s", st->path, st->no_states);
	tell_optimizer(st);
	rc = rsh_dcp_read(job, out, err);
	if (rc == 0)
		out->cat->padded_rows = st->args[RSH_MEGATRON_PADDED];
	if (rc == -ENOENT && st->n_lost > 0)
		tell_refused(st, err);
	else if (rc == 0 && st->n_lost > 0)
		rsh_log_notice("%s: %zu of %u files of the mesh cannot be "
			       "read, such as %s; what they have is read from "
			       "other files", st->path, st->n_lost,
			       st->n + st->n_places - st->all.n,
			       st->listed[st->lost[0]].name);
	if (rc == 0 && rsh_megatron_fold(st, job, out)) {
		rsh_catalogue_free(out->cat);
		rc = rsh_error_nomem(err);
	}
	return rc;
}

/* ---- values ---- */

/* Random states differ between ranks by right, and args are those of the
 * job. */
static int value_take(void *ctx, const struct rsh_torch_value *v,
		      struct rsh_joined_value *out)
{
	static const char *const shown[] = {
		"iteration", "num_floating_point_operations_so_far",
		"opt_param_scheduler", "optimizer",
	};
	const char *first = v->n_keys ? v->keys[0].text : v->name;

	(void)ctx;
	/* Numbers of weights mean nothing without states. */
	if (v->make || !v->plain.pickle || rsh_has_suffix(v->name, ".params"))
		return 0;
	*out = (struct rsh_joined_value){ v->name, v->keys, v->n_keys };
	for (size_t i = 0; i < sizeof(shown) / sizeof(*shown); i++)
		if (strcmp(first, shown[i]) == 0)
			return 1;
	return 0;
}

/* The values are those of the first file. */
static int megatron_values(struct rsh_source *s,
			   const struct rsh_plan_options *opts,
			   struct rsh_values *out, struct rsh_error *err)
{
	struct rsh_source_megatron *st = rsh_megatron_of(s);
	int rc = 0;

	if (st->n > 0)
		rc = rsh_joined_values(s, st->listed[0].name, opts, &st->arena,
				       value_take, NULL, out);
	rsh_values_sort_paths(out);
	return rc ? rsh_error_nomem(err) : 0;
}

/* ---- lists and checks ---- */

/* Adds what is wrong with tensors that the description does not have, and
 * copies that differ. */
static int list_problems(const struct rsh_list_job *job,
			 const struct rsh_source_megatron *st)
{
	struct rsh_error lost = RSH_ERROR_INIT;
	int rc = 0;

	rsh_joined_lost(&st->all, &lost);
	if (lost.code && job->take)
		rc = job->take(job->ctx, &(struct rsh_listed_tensor){
			.name = "", .wrong = lost.text });
	rc = rc ?: rsh_tensor_problems_list(&st->all.problems, job);
	for (size_t i = 0; i < st->n_pairs && rc == 0; i++) {
		struct rsh_error why = RSH_ERROR_INIT;

		rc = rsh_megatron_pair_check(st, &st->pairs[i], &why);
		if (rc && rc != -ENOMEM) {
			rsh_error_prefix(&why, "tensor %s", st->pairs[i].name);
			rc = job->take ? job->take(
				job->ctx, &(struct rsh_listed_tensor){
					.name = st->pairs[i].name,
					.wrong = why.text }) : 0;
		}
	}
	return rc;
}

static const char *megatron_about(const struct rsh_source_megatron *st,
				  struct rsh_arena *arena)
{
	char virtual[32] = "";

	if (st->n_chunks > 1)
		snprintf(virtual, sizeof(virtual), " x %u virtual",
			 st->n_chunks);
	return rsh_arena_format(arena, "mesh: tensor %u, pipeline %u%s, expert "
				"%u; %zu layer%s; optimizer: %s", st->tensor,
				st->pipeline, virtual, st->expert, st->n_layers,
				st->n_layers == 1 ? "" : "s",
				st->no_states ? "not shown" :
				st->all.n > st->n ? "distributed" : "none");
}

/* A tensor is listed in the shape that is shown, in which its chunks are no
 * boxes. */
static int list_fold(const struct rsh_list_job *job,
		     struct rsh_listed_tensor *t)
{
	const struct rsh_megatron_folded *f = rsh_megatron_folded_find(
		rsh_megatron_of(job->source), t->name);
	struct rsh_listed_chunk *chunks;

	if (!f)
		return 0;
	t->dims = f->dims;
	if (t->n_chunks == 0)
		return 0;
	chunks = rsh_arena_array(job->arena, struct rsh_listed_chunk,
				 t->n_chunks);
	if (!chunks)
		return -ENOMEM;
	for (uint32_t i = 0; i < t->n_chunks; i++) {
		chunks[i] = t->chunks[i];
		chunks[i].from = chunks[i].size = NULL;
	}
	t->chunks = chunks;
	return 0;
}

static int take_folded(void *ctx, const struct rsh_listed_tensor *t)
{
	const struct rsh_list_job *job = ctx;
	struct rsh_listed_tensor shown = *t;

	return list_fold(job, &shown) ?: job->take(job->ctx, &shown);
}

static int list_tensors(const struct rsh_list_job *job, struct rsh_listed *out,
			struct rsh_error *err)
{
	struct rsh_list_job own = *job;
	struct rsh_listed_tensor *v;
	int rc;

	/* Of records the boxes are compared. */
	if (job->part == RSH_LIST_RECORDS)
		return rsh_dcp_list(job, out, err);
	if (job->take) {
		own.take = take_folded;
		own.ctx = (void *)(uintptr_t)job;
	}
	rc = rsh_dcp_list(&own, out, err);
	if (rc || job->take)
		return rc;
	v = rsh_arena_array(job->arena, struct rsh_listed_tensor,
			    out->n_tensors);
	if (!v)
		return rsh_error_nomem(err);
	for (uint32_t i = 0; i < out->n_tensors; i++) {
		v[i] = out->tensors[i];
		if (list_fold(job, &v[i]))
			return rsh_error_nomem(err);
	}
	out->tensors = v;
	return 0;
}

static int megatron_list(const struct rsh_list_job *job, struct rsh_listed *out,
			 struct rsh_error *err)
{
	const struct rsh_source *s = job->source;
	struct rsh_source_megatron *st = rsh_megatron_of(s);
	const struct rsh_tensor_problem *p;
	int rc = job->part == RSH_LIST_RECORDS ? 0 : rsh_joined_load(s, err);

	rc = rc ?: rsh_megatron_describe(st, err) ?:
	     list_tensors(job, out, err);
	if (rc || job->part == RSH_LIST_TENSORS)
		return rc;
	out->about = megatron_about(st, job->arena);
	if (!out->about)
		return rsh_error_nomem(err);
	if (job->part == RSH_LIST_RECORDS)
		return list_problems(job, st) ? rsh_error_nomem(err) : 0;
	p = first_problem(st, false);
	if (p)
		rsh_error_set(&out->wrong, p->code, "%s", p->text);
	if (!p)
		rsh_joined_lost(&st->all, &out->wrong);
	tell_optimizer(st);
	return 0;
}

static int megatron_whole(const struct rsh_source *s, struct rsh_error *err)
{
	struct rsh_source_megatron *st = rsh_megatron_of(s);
	int rc = rsh_megatron_describe(st, err);
	const struct rsh_tensor_problem *p =
		rc ? NULL : first_problem(st, false);

	struct rsh_error lost = RSH_ERROR_INIT;

	if (rc == 0)
		rsh_joined_lost(&st->all, &lost);
	return p ? rsh_error_set(err, p->code, "%s: %s", st->path, p->text) :
	       lost.code ? rsh_error_set(err, lost.code, "%s: %s", st->path,
					 lost.text) : rc;
}

/* ---- steps, for --resume ---- */

static const char megatron_mp_rank[] = "mp_rank_";

/* Knows "iter_5/", "iter_5/mp_rank_00/" and "iter_5/mp_rank_00/x.pt". */
static enum rsh_part megatron_part(const char *path, struct rsh_step_name *out)
{
	const char *unit = rsh_step_dir_read(path, RSH_MEGATRON_ITERATION, out);
	const char *file = unit ? strchr(unit, '/') : NULL;

	if (!unit)
		return RSH_PART_NO;
	if (!*unit)
		return RSH_PART_YES;
	return file &&
	       strncmp(unit, megatron_mp_rank, strlen(megatron_mp_rank)) == 0 &&
	       (!file[1] || (file[1] != '.' && rsh_has_suffix(file, ".pt"))) ?
	       RSH_PART_YES : RSH_PART_NO;
}

const struct rsh_format rsh_megatron_format = {
	.name = "megatron",
	.says = "checkpoint of Megatron-LM",
	.layout = RSH_LAYOUT_WHOLE,
	.owner = RSH_OWNER_NOBODY,
	.shown = RSH_SHOWN_HF,
	.bid = rsh_megatron_bid,
	.open = rsh_megatron_open,
	.choose = rsh_megatron_choose,
	.scan = rsh_joined_scan,
	.whole = megatron_whole,
	.read = megatron_read,
	.values = megatron_values,
	.list = megatron_list,
	.framework = "Megatron-LM",
	.step_dirs = true,
	.tracked = RSH_MEGATRON_ITERATION,
	.part = megatron_part,
	.check = rsh_torch_check_files,
};
