/* SPDX-License-Identifier: Apache-2.0 */
/* formats/safetensors/model_i.h - whole models in parts; only this directory
 * includes it. */
#ifndef RSH_FORMATS_MODEL_I_H
#define RSH_FORMATS_MODEL_I_H

#include "rsh/source/format.h"
#include "rsh/wire/safetensors.h"

#define RSH_MODEL_HF_MAP "model.safetensors.index.json"
#define RSH_MODEL_MS_MAP "param_name_map.json"
/* A model of one part needs no map. */
#define RSH_MODEL_HF_SINGLE "model.safetensors"

/* Compares the headers of the parts that a map names with that of the one file
 * that has all, and logs which is used (duplicate.c).  Returns 0, or -errno
 * with a sentence: -EINVAL if they have different types or shapes of a
 * tensor. */
int rsh_model_check_duplicate(const struct rsh_source *s,
			  const struct rsh_weight_map *map,
			  struct rsh_error *err);
/* Logs that the directory also has the model in PyTorch's files. */
void rsh_model_tell_torch(const struct rsh_source *s);

#endif
