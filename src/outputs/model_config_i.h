/* SPDX-License-Identifier: Apache-2.0 */
/* outputs/model_config_i.h - corrects the config.json beside a model to match
 * the weights that are shown; only this directory includes it. */
#ifndef RSH_OUTPUTS_MODEL_CONFIG_I_H
#define RSH_OUTPUTS_MODEL_CONFIG_I_H

#include "rsh/outputs/model_files.h"
#include "rsh/outputs/output.h"

/* Corrects config.json and generation_config.json.  Returns 0 or -errno with a
 * sentence. */
int rsh_model_configs_update(const struct rsh_output_tree *t,
			     struct rsh_model_files *files,
			     struct rsh_error *err);

#endif
