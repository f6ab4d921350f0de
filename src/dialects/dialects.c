/* SPDX-License-Identifier: Apache-2.0 */
/* dialects/dialects.c lists the dialects in which a job may have saved. */
#include "config.h"

#include "rsh/dialects/dialects.h"

const struct rsh_step_dialect *const rsh_step_dialects[] = {
	&rsh_mindspore_dialect,
	&rsh_torch_dialect,
	&rsh_tensorflow_dialect,
	&rsh_megatron_dialect,
	&rsh_dcp_dialect,
	&rsh_checkpoint2_dialect,
	NULL,
};
