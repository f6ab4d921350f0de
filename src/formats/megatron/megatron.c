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

/* Returns 1 if any file has states of the optimizer, 0 or -ENOMEM. */
static int has_optimizer(const struct rsh_source_megatron *st)
{
	struct rsh_stat at;

	for (uint32_t i = 0; i < st->all.n; i++) {
		const char *slash = strrchr(st->listed[i].name, '/');
		cleanup_free char *name = NULL;

		if (rsh_megatron_file_of(st, i)->has_optimizer)
			return 1;
		name = rsh_text_format("%.*s/" RSH_MEGATRON_OPTIMIZER,
				       (int)(slash - st->listed[i].name),
				       st->listed[i].name);
		if (!name)
			return -ENOMEM;
		if (rsh_store_look(rsh_source_store(st->all.source), name,
				   &at) == 0)
			return 1;
	}
	return 0;
}

static int megatron_read(const struct rsh_read_job *job, struct rsh_offers *out,
			 struct rsh_error *err)
{
	struct rsh_source_megatron *st = rsh_megatron_of(job->source);
	const struct rsh_plan_options *o = job->opts;
	int rc = rsh_megatron_describe(st, err) ?:
		 rsh_tensor_problems_check(&st->all.problems, o, err);

	if (rc)
		return rc;
	if (!o->wanted || o->wanted(o->ctx, "optimizer.state.exp_avg.w"))
		rc = has_optimizer(st);
	if (rc)
		return rc < 0 ? rsh_error_nomem(err) :
		       rsh_error_set(err, ENOTSUP, "the state of the optimizer "
				     "is not supported (--drop '^optimizer' "
				     "leaves it out)");
	rc = rsh_dcp_read(job, out, err);
	if (rc == 0 && rsh_megatron_fold(st, job, out)) {
		rsh_catalogue_free(out->cat);
		rc = rsh_error_nomem(err);
	}
	return rc;
}

/* ---- lists and checks ---- */

/* Adds what is wrong with tensors that the description does not have, and
 * copies that differ. */
static int list_problems(const struct rsh_list_job *job,
			 const struct rsh_source_megatron *st)
{
	int rc = rsh_tensor_problems_list(&st->all.problems, job);

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
	const int optimizer = has_optimizer(st);
	char virtual[32] = "";

	if (optimizer < 0)
		return NULL;
	if (st->n_chunks > 1)
		snprintf(virtual, sizeof(virtual), " x %u virtual",
			 st->n_chunks);
	return rsh_arena_format(arena, "mesh: tensor %u, pipeline %u%s, expert "
				"%u; %zu layer%s; optimizer: %s", st->tensor,
				st->pipeline, virtual, st->expert, st->n_layers,
				st->n_layers == 1 ? "" : "s",
				optimizer ? "not shown" : "none");
}

/* A tensor is listed in the shape that is shown, in which its chunks are no
 * boxes. */
static void list_fold(const struct rsh_source_megatron *st,
		      struct rsh_listed_tensor *t)
{
	const struct rsh_megatron_folded *f =
		rsh_megatron_folded_find(st, t->name);

	if (f) {
		t->dims = f->dims;
		t->n_chunks = 0;
	}
}

static int take_folded(void *ctx, const struct rsh_listed_tensor *t)
{
	const struct rsh_list_job *job = ctx;
	struct rsh_listed_tensor shown = *t;

	list_fold(rsh_megatron_of(job->source), &shown);
	return job->take(job->ctx, &shown);
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
		list_fold(rsh_megatron_of(job->source), &v[i]);
	}
	out->tensors = v;
	return 0;
}

static int megatron_list(const struct rsh_list_job *job, struct rsh_listed *out,
			 struct rsh_error *err)
{
	const struct rsh_source *s = job->source;
	struct rsh_source_megatron *st = rsh_megatron_of(s);
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
	if (st->all.problems.n > 0)
		rsh_error_set(&out->wrong, st->all.problems.v[0].code, "%s",
			      st->all.problems.v[0].text);
	return 0;
}

static int megatron_whole(const struct rsh_source *s, struct rsh_error *err)
{
	struct rsh_source_megatron *st = rsh_megatron_of(s);
	int rc = rsh_megatron_describe(st, err);

	return rc || st->all.problems.n == 0 ? rc :
	       rsh_error_set(err, st->all.problems.v[0].code, "%s: %s",
			     rsh_source_path(s), st->all.problems.v[0].text);
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
	.list = megatron_list,
	.framework = "Megatron-LM",
	.step_dirs = true,
	.tracked = RSH_MEGATRON_ITERATION,
	.part = megatron_part,
	.check = rsh_torch_check_files,
};
