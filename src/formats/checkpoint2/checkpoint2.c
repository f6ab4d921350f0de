/* SPDX-License-Identifier: Apache-2.0 */
/* formats/checkpoint2/checkpoint2.c - the format Checkpoint 2.0 of MindSpore
 * Transformers. */
#include "config.h"

#include "steps_i.h"

#include <stdio.h>

#include "rsh/formats/formats.h"
#include "rsh/formats/ranks.h"

static bool checkpoint2_is_step(const struct rsh_look *l)
{
	struct rsh_ckpt2_name parts;

	for (size_t i = 0; i < l->n; i++)
		if (rsh_ckpt2_name_parse(l->names[i], &parts))
			return true;
	return false;
}

static void checkpoint2_step_text(const struct rsh_source *s, uint32_t i,
				  char *text, size_t size)
{
	size_t first, end;

	rsh_source_candidate_range(s, i, &first, &end);
	snprintf(text, size, "%s", rsh_source_on_list(s, first)->label);
}

static const void *checkpoint2_key(const struct rsh_source *s, size_t *n)
{
	const struct rsh_described *d = rsh_source_state(s);

	*n = d ? sizeof(d->key) : 0;
	return d ? &d->key : NULL;
}

const struct rsh_format rsh_checkpoint2_format = {
	.name = "checkpoint2",
	.says = "Checkpoint 2.0",
	.layout = RSH_LAYOUT_OWN,
	.owner = RSH_OWNER_RANKS,
	.by_name = true,
	.words = RSH_WORDS_MINDSPORE,
	.bid = rsh_checkpoint2_bid,
	.is_step = checkpoint2_is_step,
	.open = rsh_checkpoint2_open,
	.close = rsh_described_free,
	.choose = rsh_checkpoint2_choose,
	.strategy = rsh_checkpoint2_strategy,
	.rank_path = rsh_described_path,
	.step_text = checkpoint2_step_text,
	.step_notes = rsh_checkpoint2_notes,
	.absent = rsh_checkpoint2_absent,
	.key = checkpoint2_key,
	.training_state = rsh_checkpoint2_training_state,
	.read = rsh_ranks_offer,
	.plan = rsh_ranks_plan,
	.resume = &rsh_checkpoint2_resume,
};
