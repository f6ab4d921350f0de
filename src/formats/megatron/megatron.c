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
#include <string.h>

#include "rsh/formats/files.h"
#include "rsh/formats/formats.h"
#include "rsh/util/files.h"
#include "rsh/util/log.h"
#include "rsh/util/text.h"

/* ---- tensors ---- */

static int megatron_read(const struct rsh_read_job *job, struct rsh_offers *out,
			 struct rsh_error *err)
{
	struct rsh_source_megatron *st = rsh_source_state(job->source);
	const struct rsh_joined *j = &st->all;
	const struct rsh_plan_options *o = job->opts;
	struct rsh_error lost = RSH_ERROR_INIT;
	int rc = rsh_joined_describe(&st->all, err);
	size_t i = 0;

	if (rc)
		return rc;
	rc = rsh_joined_check(j, o, err);
	while (rc && i < j->n_problems &&
	       rsh_megatron_is_state(j->problems[i].name))
		i++;
	/* The command shows the weights if only states are not complete. */
	if (rc && i == j->n_problems) {
		lost = *err;
		rsh_error_set(err, -rc, "%s; `reshardfs mount --drop "
			      "'^optimizer' %s MNT` shows the weights",
			      lost.text, j->path);
	}
	if (rc)
		return rc;
	if (st->no_states && rsh_plan_wants(o, "optimizer.state.exp_avg.w"))
		rsh_log_warning("%s: the states of the optimizer are left out: "
				"%s", j->path, st->no_states);
	if (rsh_joined_tell_states(j))
		return rsh_error_nomem(err);
	rc = rsh_dcp_read(job, out, err);
	if (rc == 0)
		out->cat->padded_rows = st->args[RSH_MEGATRON_PADDED];
	if (rc == -ENOENT && st->n_lost > 0) {
		/* Says which file is lost, before what it lacks. */
		rsh_megatron_refuse_lost(st, st->lost[0], &lost);
		rsh_error_prefix(err, "%s", lost.text);
	} else if (rc == 0 && st->n_lost > 0) {
		rsh_log_notice("%s: %zu of %u files of the mesh cannot be "
			       "read, such as %s; what they have is read from "
			       "other files", j->path, st->n_lost,
			       st->n + j->n_names - j->n,
			       j->names[st->lost[0]]);
	}
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
	const char *first = v->n_keys ? v->keys[0].text : v->name;

	(void)ctx;
	*out = (struct rsh_joined_value){ v->name, v->keys, v->n_keys };
	/* Numbers of weights mean nothing without states. */
	return first && !rsh_has_suffix(v->name, ".params") &&
	       rsh_is_any(first, "iteration",
			  "num_floating_point_operations_so_far",
			  "opt_param_scheduler", "optimizer");
}

/* The values are those of the first file. */
static int megatron_values(struct rsh_source *s,
			   const struct rsh_plan_options *opts,
			   struct rsh_values *out, struct rsh_error *err)
{
	struct rsh_source_megatron *st = rsh_source_state(s);
	int rc = st->n == 0 ? 0 :
		 rsh_joined_values(&st->all, st->all.names[0], opts, value_take,
				   NULL, out);

	rsh_values_sort_paths(out);
	return rc ? rsh_error_nomem(err) : 0;
}

/* ---- steps, for --resume ---- */

/* Knows "iter_5/", "iter_5/mp_rank_00/" and "iter_5/mp_rank_00/x.pt". */
static enum rsh_part megatron_part(const char *path, struct rsh_step_name *out)
{
	const char *unit = rsh_step_dir_read(path, RSH_MEGATRON_ITERATION, out);
	const char *file = unit ? strchr(unit, '/') : NULL;

	if (!unit || (*unit && (!file || !rsh_begins_any(unit, "mp_rank_"))))
		return RSH_PART_NO;
	return !*unit || !file[1] ||
	       (file[1] != '.' && rsh_has_suffix(file, ".pt")) ?
	       RSH_PART_YES : RSH_PART_NO;
}

const struct rsh_format rsh_megatron_format = {
	RSH_JOINED_FORMAT,
	.name = "megatron",
	.says = "checkpoint of Megatron-LM",
	.bid = rsh_megatron_bid,
	.open = rsh_megatron_open,
	.choose = rsh_megatron_choose,
	.judge = rsh_joined_judge_step,
	.read = megatron_read,
	.values = megatron_values,
	.framework = "Megatron-LM",
	.tracked = RSH_MEGATRON_ITERATION,
	.part = megatron_part,
	.check = rsh_torch_check_files,
};
