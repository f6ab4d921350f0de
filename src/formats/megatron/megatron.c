/* SPDX-License-Identifier: Apache-2.0 */
/* formats/megatron/megatron.c finds steps of Megatron-LM: *.pt in
 * iter_<step>/mp_rank_<t>[_<p>], and latest_checkpointed_iteration.txt, which
 * contains the newest step.
 *
 * An iteration is complete if it has every mp_rank that any iteration has,
 * because nothing else gives their number.  The optimizer's file is written
 * after the model's. */
#include "config.h"

#include "rsh/formats/formats.h"

#include <string.h>

#include "rsh/formats/steps.h"
#include "rsh/formats/torch.h"
#include "rsh/util/files.h"

static const char megatron_iteration[] = "iter_";
static const char megatron_mp_rank[] = "mp_rank_";

/* Knows "iter_5/", "iter_5/mp_rank_00/" and "iter_5/mp_rank_00/x.pt". */
static enum rsh_part megatron_part(const char *path, struct rsh_step_name *out)
{
	const char *unit = rsh_step_dir_read(path, megatron_iteration, out);
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

/* This format is only shown with --resume. */
const struct rsh_format rsh_megatron_format = {
	.name = "megatron",
	.says = "checkpoint of Megatron-LM",
	.framework = "Megatron-LM",
	.step_dirs = true,
	.tracked = megatron_iteration,
	.part = megatron_part,
	.check = rsh_torch_check_files,
};
