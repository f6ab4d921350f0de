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
static void tell_missing(const struct rsh_source_ranks *st)
{
	uint32_t n = 0, first = 0;

	for (uint32_t rank = 0; rank < st->world; rank++) {
		bool has = false;

		for (uint32_t i = 0; i < st->all.n && !has; i++)
			has = rsh_ranks_role_of(st, i) == RSH_RANKS_MODEL &&
			      st->listed[i].rank == rank && st->all.files[i];
		if (!has && n++ == 0)
			first = rank;
	}
	if (n > 0)
		rsh_log_notice("%s: %u of %u ranks have no file of the model "
			       "that can be read, such as rank %u; what they "
			       "have is read from other ranks", st->all.path, n,
			       st->world, first);
}

/* PEFT puts its adapters beside the weights of the model, under other names. */
static void tell_peft(const struct rsh_source_ranks *st)
{
	static const char base[] = "base_model.model.";
	const struct rsh_dcp *d = st->all.dcp.pub;
	uint32_t i = 0;

	while (i < d->n_tensors &&
	       strncmp(d->tensors[i].name, base, strlen(base)) != 0)
		i++;
	if (i < d->n_tensors)
		rsh_log_notice("%s: names are those of a model of PEFT, such "
			       "as %s: --rename gives tensors other names",
			       st->all.path, d->tensors[i].name);
}

static int ranks_read(const struct rsh_read_job *job, struct rsh_offers *out,
		      struct rsh_error *err)
{
	struct rsh_source_ranks *st = rsh_source_state(job->source);
	const struct rsh_plan_options *o = job->opts;
	struct rsh_error model = RSH_ERROR_INIT, states = RSH_ERROR_INIT;
	int rc = rsh_joined_describe(&st->all, err);

	if (rc)
		return rc;
	/* Nobody knows what files have of which none can be read, and what a
	 * rank has that shares no tensor with another one. */
	rsh_ranks_judge_files(st, false, &model);
	rsh_ranks_judge_files(st, true, &states);
	if (model.code)
		return rsh_error_set(err, model.code, "%s", model.text);
	if (states.code &&
	    (!o->wanted || o->wanted(o->ctx, "optimizer.state.0.exp_avg")))
		return rsh_error_set(err, states.code, "%s (--drop "
				     "'^optimizer\\.' leaves it out)",
				     states.text);
	rc = rsh_joined_check(&st->all, o, err) ?: rsh_dcp_read(job, out, err);
	if (rc)
		return rc;
	tell_missing(st);
	tell_peft(st);
	if (rsh_joined_tell_states(&st->all))
		return rsh_error_nomem(err);
	if (st->is_flat)
		rsh_log_notice("%s: the state of the optimizer is that of flat "
			       "parameters of FSDP1, and is left out",
			       st->all.path);
	return 0;
}

/* ---- values ---- */

/* The values of an item, or of a file without one (UINT32_MAX). */
struct item_values {
	struct rsh_source_ranks *st;
	uint32_t item;
};

/* Of an optimizer the numbers of its parameters are not shown, of other files
 * no random states, which differ between ranks by right. */
static int value_take(void *ctx, const struct rsh_torch_value *v,
		      struct rsh_joined_value *out)
{
	const struct item_values *of = ctx;
	struct rsh_source_ranks *st = of->st;

	*out = (struct rsh_joined_value){ v->name, v->keys, v->n_keys };
	if (v->make || !v->plain.pickle)
		return 0;
	if (of->item == UINT32_MAX)
		return strcmp(v->name, "rng") != 0 &&
		       strncmp(v->name, "rng.", 4) != 0;
	if (st->items[of->item].role == RSH_RANKS_OPTIMIZER &&
	    (rsh_ranks_is_params(v) ||
	     (st->is_flat && strncmp(v->name, "state.", 6) == 0)))
		return 0;
	return rsh_ranks_name_show(st, of->item, v->name, v->keys, v->n_keys,
				   &st->all.arena, out) ?: 1;
}

/* The values are those of the lowest rank of each item. */
static int ranks_values(struct rsh_source *s,
			const struct rsh_plan_options *opts,
			struct rsh_values *out, struct rsh_error *err)
{
	struct rsh_source_ranks *st = rsh_source_state(s);
	struct item_values of = { st, 0 };
	int rc = rsh_joined_describe(&st->all, err);

	if (rc)
		return rc;
	rc = rsh_dcp_add_paths(st->all.dcp.pub, out);
	for (; of.item < st->n_items && rc == 0; of.item++) {
		const uint32_t i = rsh_ranks_lowest(st, of.item);

		if (i < st->all.n && !st->listed[i].described)
			rc = rsh_joined_values(&st->all, st->all.names[i], opts,
					       value_take, &of, out);
	}
	of.item = UINT32_MAX;
	if (rc == 0 && st->values)
		rc = rsh_joined_values(&st->all, st->values, opts, value_take,
				       &of, out);
	rsh_values_sort_paths(out);
	return rc ? rsh_error_nomem(err) : 0;
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
	.whole = rsh_joined_whole,
	.read = ranks_read,
	.values = ranks_values,
	.list = rsh_joined_list,
	.framework = "verl",
	.step_dirs = true,
	.unlike_units = true,
	.tracked = RSH_RANKS_STEP,
	.part = rsh_ranks_step_part,
	.check = rsh_ranks_step_check,
};
