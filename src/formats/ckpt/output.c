/* SPDX-License-Identifier: Apache-2.0 */
/* formats/ckpt/output.c shows MindSpore's .ckpt files, one for each rank. */
#include "config.h"

#include "rsh/formats/outputs.h"

const struct rsh_output rsh_output_ckpt = {
	.name = "ckpt",
	.suffix = ".ckpt",
	.framing = &rsh_ckpt_framing,
	.division = RSH_DIVIDE_RANKS,
	.takes = RSH_TAKES_RANKS | RSH_TAKES_CONVERTER | RSH_TAKES_HF_NAMES |
		 RSH_TAKES_VALUES,
	.build = rsh_output_build_ranks,
};
