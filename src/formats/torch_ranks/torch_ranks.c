/* SPDX-License-Identifier: Apache-2.0 */
/* formats/torch_ranks/torch_ranks.c - the format of files of torch.save() that
 * each have one rank's part of a model. */
#include "config.h"

#include "torch_ranks_i.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/formats/files.h"
#include "rsh/formats/formats.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/thread.h"

/* ---- tensors ---- */

/* Logs the ranks that have no file of the model, but whose parts others
 * have. */
static void tell_missing(const struct rsh_source *s)
{
	const struct rsh_source_ranks *st = rsh_ranks_of(s);
	uint32_t n = 0, first = 0;

	for (uint32_t rank = 0; rank < st->world; rank++) {
		bool has = false;

		for (uint32_t i = 0; i < st->all.n && !has; i++)
			has = st->items[st->listed[i].item].role ==
				      RSH_RANKS_MODEL &&
			      st->listed[i].rank == rank && st->all.files[i];
		if (!has && n++ == 0)
			first = rank;
	}
	if (n > 0)
		rsh_log_notice("%s: %u of %u ranks have no file of the model "
			       "that can be read, such as rank %u; what they "
			       "have is read from other ranks",
			       rsh_source_path(s), n, st->world, first);
}

/* Nobody knows what files have of which none can be read, and what a rank has
 * that shares no tensor with another one. */
static int check_readable(const struct rsh_source_ranks *st,
			  const struct rsh_plan_options *o,
			  struct rsh_error *err)
{
	struct rsh_error wrong = RSH_ERROR_INIT;

	rsh_ranks_judge_files(st, false, &wrong);
	if (wrong.code)
		return rsh_error_set(err, wrong.code, "%s", wrong.text);
	rsh_ranks_judge_files(st, true, &wrong);
	return wrong.code && (!o->wanted ||
			      o->wanted(o->ctx, "optimizer.state.0.exp_avg")) ?
	       rsh_error_set(err, wrong.code, "%s (--drop '^optimizer\\.' "
			     "leaves it out)", wrong.text) : 0;
}

/* PEFT puts its adapters beside the weights of the model, under other names. */
static void tell_peft(const struct rsh_source *s, const struct rsh_dcp *d)
{
	static const char base[] = "base_model.model.";

	for (uint32_t i = 0; i < d->n_tensors; i++)
		if (strncmp(d->tensors[i].name, base, strlen(base)) == 0) {
			rsh_log_notice("%s: names are those of a model of "
				       "PEFT, such as %s: --rename gives "
				       "tensors other names",
				       rsh_source_path(s), d->tensors[i].name);
			return;
		}
}

static int ranks_read(const struct rsh_read_job *job, struct rsh_offers *out,
		      struct rsh_error *err)
{
	const struct rsh_source_ranks *st = rsh_ranks_of(job->source);
	const struct rsh_plan_options *o = job->opts;
	struct rsh_error optimizer = RSH_ERROR_INIT;
	int rc = rsh_ranks_describe(rsh_ranks_of(job->source), err);

	if (rc == 0)
		rc = check_readable(st, o, err);
	if (rc == 0)
		rc = rsh_tensor_problems_check(&st->all.problems, o, err) ?:
		     rsh_dcp_read(job, out, err);
	if (rc == 0 && rsh_ranks_judge(st, true, &optimizer))
		rc = rsh_error_nomem(err);
	if (rc == 0) {
		tell_missing(job->source);
		tell_peft(job->source, st->all.dcp.pub);
		if (optimizer.code)
			rsh_log_warning("%s: the optimizer's state is not "
					"complete: %s",
					rsh_source_path(job->source),
					optimizer.text);
		if (st->is_flat)
			rsh_log_notice("%s: the state of the optimizer is that "
				       "of flat parameters of FSDP1, and is "
				       "left out", rsh_source_path(job->source));
	}
	return rc;
}

/* ---- values ---- */

/* Of an optimizer the numbers of its parameters are not shown, of other files
 * no random states, which differ between ranks by right. */
static bool value_is_shown(const struct rsh_source_ranks *st, uint32_t item,
			   const struct rsh_torch_value *v)
{
	if (v->make || !v->plain.pickle)
		return false;
	if (item == UINT32_MAX)
		return strcmp(v->name, "rng") != 0 &&
		       strncmp(v->name, "rng.", 4) != 0;
	if (st->items[item].role != RSH_RANKS_OPTIMIZER)
		return true;
	if (st->is_flat && strncmp(v->name, "state.", 6) == 0)
		return false;
	return !rsh_ranks_is_params(v);
}

/* The values of an item, or of a file without one (UINT32_MAX). */
struct item_values {
	struct rsh_source_ranks *st;
	uint32_t item;
};

static int value_take(void *ctx, const struct rsh_torch_value *v,
		      struct rsh_joined_value *out)
{
	const struct item_values *of = ctx;
	struct rsh_ranks_shown_name shown = { v->name, v->keys, v->n_keys };
	int rc = 0;

	if (!value_is_shown(of->st, of->item, v))
		return 0;
	if (of->item != UINT32_MAX)
		rc = rsh_ranks_name_show(of->st, of->item, v->name, v->keys,
					 v->n_keys, &of->st->arena, &shown);
	*out = (struct rsh_joined_value){
		shown.name, shown.keys, shown.n_keys,
	};
	return rc ? rc : 1;
}

/* The values are those of the lowest rank of each item. */
static int ranks_values(struct rsh_source *s,
			const struct rsh_plan_options *opts,
			struct rsh_values *out, struct rsh_error *err)
{
	struct rsh_source_ranks *st = rsh_ranks_of(s);
	int rc = rsh_ranks_describe(st, err);

	if (rc)
		return rc;
	rc = rsh_dcp_add_paths(st->all.dcp.pub, out);
	for (uint32_t item = 0; item < st->n_items && rc == 0; item++) {
		const struct rsh_ranks_listed *lowest = NULL;

		for (uint32_t i = 0; i < st->all.n; i++)
			if (st->listed[i].item == item && st->all.files[i] &&
			    (!lowest || st->listed[i].rank < lowest->rank))
				lowest = &st->listed[i];
		if (lowest && !lowest->described)
			rc = rsh_joined_values(s, lowest->name, opts,
					       &st->arena, value_take,
					       &(struct item_values){
						       st, item }, out);
	}
	if (rc == 0 && st->values)
		rc = rsh_joined_values(s, st->values, opts, &st->arena,
				       value_take, &(struct item_values){
					       st, UINT32_MAX }, out);
	rsh_values_sort_paths(out);
	return rc ? rsh_error_nomem(err) : 0;
}

/* ---- lists and checks ---- */

/* Adds what is wrong with tensors that the description does not have, and parts
 * that no file has. */
static int list_problems(const struct rsh_list_job *job,
			 const struct rsh_source_ranks *st)
{
	struct rsh_error lost = RSH_ERROR_INIT;
	int rc = 0;

	rsh_joined_lost(&st->all, &lost);
	if (lost.code && job->take)
		rc = job->take(job->ctx, &(struct rsh_listed_tensor){
			.name = "", .wrong = lost.text });
	return rc ?: rsh_tensor_problems_list(&st->all.problems, job);
}

/* Says how many ranks have saved it, their largest mesh, and the step. */
static const char *ranks_about(const struct rsh_source *s,
			       const struct rsh_source_ranks *st,
			       struct rsh_arena *arena)
{
	const struct rsh_ranks_mesh *mesh = NULL;
	const char *path = rsh_source_path(s), *step;
	uint64_t number = 0;
	uint32_t world = st->world;
	char at[48] = "";

	for (size_t i = 0; i < st->ways.n_meshes; i++)
		if (!mesh || st->ways.meshes[i]->n > mesh->n)
			mesh = st->ways.meshes[i];
	for (uint32_t i = 0; i < st->all.n && !st->world; i++)
		world = st->listed[i].rank >= world ? st->listed[i].rank + 1 :
						      world;
	if (mesh && mesh->n > world)
		world = mesh->n;
	step = strstr(st->dir, RSH_RANKS_STEP);
	step = step ? step : strstr(path, "/" RSH_RANKS_STEP);
	step += step && *step == '/';
	if (step && rsh_ranks_step_read(step, strcspn(step, "/"), &number))
		snprintf(at, sizeof(at), ", step %llu",
			 (unsigned long long)number);
	return rsh_arena_format(arena, "a file of torch.save() for each of %u "
				"rank%s%s%s%s%s%s%s%s", world,
				world == 1 ? "" : "s", mesh ? " (mesh " : "",
				mesh ? mesh->text : "", mesh ? ")" : "", at,
				st->critic ? "; " : "",
				st->critic ? st->critic : "",
				st->critic ? " is another model" : "");
}

static int ranks_list(const struct rsh_list_job *job, struct rsh_listed *out,
		      struct rsh_error *err)
{
	const struct rsh_source *s = job->source;
	struct rsh_source_ranks *st = rsh_ranks_of(s);
	struct rsh_error optimizer = RSH_ERROR_INIT;
	int rc = job->part == RSH_LIST_RECORDS ? 0 : rsh_joined_load(s, err);

	rc = rc ?: rsh_ranks_describe(st, err) ?: rsh_dcp_list(job, out, err);
	if (rc || job->part == RSH_LIST_TENSORS)
		return rc;
	out->about = ranks_about(s, st, job->arena);
	if (!out->about)
		return rsh_error_nomem(err);
	if (job->part == RSH_LIST_RECORDS)
		return list_problems(job, st) ? rsh_error_nomem(err) : 0;
	if (rsh_ranks_judge(st, false, &out->wrong) ||
	    rsh_ranks_judge(st, true, &optimizer))
		return rsh_error_nomem(err);
	if (optimizer.code)
		rsh_log_warning("%s: the optimizer's state is not complete: %s",
				rsh_source_path(s), optimizer.text);
	return 0;
}

/* verl writes the files of all ranks under their names, and a job may be killed
 * at any time, so only their content says whether a step is complete. */
static int ranks_whole(const struct rsh_source *s, struct rsh_error *err)
{
	struct rsh_error wrong = RSH_ERROR_INIT;
	struct rsh_source_ranks *st = rsh_ranks_of(s);
	int rc = rsh_ranks_describe(st, err);

	if (rc == 0 && rsh_ranks_judge(st, false, &wrong))
		rc = rsh_error_nomem(err);
	return rc || !wrong.code ? rc :
	       rsh_error_set(err, wrong.code, "%s: %s", rsh_source_path(s),
			     wrong.text);
}

const struct rsh_format rsh_torch_ranks_format = {
	.name = "torch-ranks",
	.says = "checkpoint with a file of PyTorch for each rank",
	.layout = RSH_LAYOUT_WHOLE,
	.owner = RSH_OWNER_NOBODY,
	.below = "actor", /* of verl */
	.beside = "huggingface",
	.shown = RSH_SHOWN_HF,
	.words = RSH_WORDS_EITHER,
	.bid = rsh_ranks_bid,
	.open = rsh_ranks_open,
	.choose = rsh_ranks_choose,
	.scan = rsh_joined_scan,
	.whole = ranks_whole,
	.read = ranks_read,
	.values = ranks_values,
	.list = ranks_list,
	.framework = "verl",
	.step_dirs = true,
	.unlike_units = true,
	.tracked = RSH_RANKS_STEP,
	.part = rsh_ranks_step_part,
	.check = rsh_ranks_step_check,
};
