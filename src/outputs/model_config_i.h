/* SPDX-License-Identifier: Apache-2.0 */
/* outputs/model_config_i.h has what config.json says beside a model follow from
 * the weights that are shown, for this room only. */
#ifndef RSH_OUTPUTS_MODEL_CONFIG_I_H
#define RSH_OUTPUTS_MODEL_CONFIG_I_H

#include "rsh/outputs/model_files.h"
#include "rsh/outputs/output.h"

/* Changes the files that say it.  0 or -errno with a sentence. */
int rsh_model_configs_settle(const struct rsh_output_tree *t,
			     struct rsh_model_files *files,
			     struct rsh_error *err);

#endif
