/* SPDX-License-Identifier: Apache-2.0 */
/* formats/ckpt/ckpt.c - the format of MindSpore's rank files: .ckpt or
 * .safetensors in directories of ranks, or where the options say. */
#include "config.h"

#include "ckpt_i.h"

#include "rsh/formats/files.h"
#include "rsh/formats/formats.h"
#include "rsh/formats/ranks.h"

/* With --src-strategy none, a model that is beside directories of ranks is
 * preferred to them. */
static int ckpt_bid(const struct rsh_look *l, struct rsh_bid_more *more)
{
	(void)more;
	if (l->file)
		return RSH_BID_NO;
	for (size_t i = 0; i < l->n; i++)
		if (rsh_rank_dir_length(l->names[i]))
			return l->opts && l->opts->unsharded ?
			       RSH_BID_MODEL - 1 : RSH_BID_RANKS;
	return RSH_BID_ANY;
}

int rsh_ranks_offer(const struct rsh_read_job *job, struct rsh_offers *out,
		    struct rsh_error *err)
{
	const struct rsh_ranks_options how = {
		.rule = RSH_GRID_RUNTIME, .replicas = job->opts->replicas,
		.allow_missing = job->opts->allow_missing,
	};

	return rsh_ranks_read(job->view, job->src, &how, job->arena, out, err);
}

const struct rsh_format rsh_ckpt_format = {
	.name = "ckpt",
	.says = "tree of rank files",
	.by_name = true,
	.bid = ckpt_bid,
	.open = rsh_source_list_ranks,
	.read = rsh_ranks_offer,
	.framework = "MindSpore",
	.part = rsh_ckpt_part,
	.check = rsh_ckpt_check,
};
