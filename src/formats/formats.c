/* SPDX-License-Identifier: Apache-2.0 */
/* formats/formats.c lists the formats.  The format with the highest bid gets a
 * source, so the order affects only messages. */
#include "config.h"

#include "rsh/formats/formats.h"

const struct rsh_format *const rsh_formats[] = {
	&rsh_ckpt_format,
	&rsh_torch_format,
	&rsh_torch_model_format,
	&rsh_tensorflow_format,
	&rsh_megatron_format,
	&rsh_dcp_format,
	&rsh_checkpoint2_format,
	&rsh_hf_format,
	&rsh_ms_parts_format,
	&rsh_peft_format,
	&rsh_torch_ranks_format,
	&rsh_deepspeed_format,
	&rsh_versions_format,
	NULL,
};
