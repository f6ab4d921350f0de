/* SPDX-License-Identifier: Apache-2.0 */
/* formats/formats.h - the list of all checkpoint formats.  Each is a directory
 * of src/formats and a line of the list.  source/format.h has their
 * contract. */
#pragma once

#include "rsh/source/format.h"

extern const struct rsh_format rsh_ckpt_format;
extern const struct rsh_format rsh_torch_ranks_format;
extern const struct rsh_format rsh_deepspeed_format;
extern const struct rsh_format rsh_versions_format;
extern const struct rsh_format rsh_torch_format;
extern const struct rsh_format rsh_torch_model_format;
extern const struct rsh_format rsh_tensorflow_format;
extern const struct rsh_format rsh_megatron_format;
extern const struct rsh_format rsh_dcp_format;
extern const struct rsh_format rsh_checkpoint2_format;
extern const struct rsh_format rsh_hf_format;
extern const struct rsh_format rsh_ms_parts_format;
extern const struct rsh_format rsh_peft_format;

/* This list has all formats; NULL ends it. */
extern const struct rsh_format *const rsh_formats[];
