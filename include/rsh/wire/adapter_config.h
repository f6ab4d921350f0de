/* SPDX-License-Identifier: Apache-2.0 */
/* wire/adapter_config.h - the adapter_config.json of a PEFT adapter (LoRA).  It
 * does not change after it is parsed, so any thread may read it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "rsh/util/error.h"
#include "rsh/util/files.h"

#define RSH_ADAPTER_CONFIG_NAME "adapter_config.json"
#define RSH_ADAPTER_FILE_NAME "adapter_model.safetensors"
#define RSH_ADAPTER_TORCH_NAME "adapter_model.bin"

struct rsh_adapter_config;

/* Parses the `len` bytes at `data`; `path` is for messages.  Returns 0 and
 * *out, which the caller frees, -ENOMEM, or -EBADMSG or -ENOTSUP with a
 * sentence that names path and key: a value is not valid, or what it asks for
 * cannot be merged by adding a product. */
int rsh_adapter_config_parse(const void *data, size_t len, const char *path,
			     struct rsh_adapter_config **out,
			     struct rsh_error *err);
void rsh_adapter_config_free(struct rsh_adapter_config *c);

/* Returns whether a name is another one, or ends with a dot and that. */
static inline bool rsh_adapter_name_ends(const char *name, const char *end)
{
	return strcmp(name, end) == 0 ||
	       (rsh_has_suffix(name, end) &&
		name[strlen(name) - strlen(end) - 1] == '.');
}

/* Returns the rank of a module's adapter: "r", or the one of "rank_pattern". */
uint64_t rsh_adapter_config_rank(const struct rsh_adapter_config *c,
				 const char *module);
/* Returns by what the product of a module's matrices is multiplied. */
double rsh_adapter_config_scaling(const struct rsh_adapter_config *c,
				  const char *module);
/* Returns name i of "target_parameters"; NULL: there are no more. */
const char *rsh_adapter_config_parameter(const struct rsh_adapter_config *c,
					 size_t i);
/* Returns the name in "target_modules" that the module is called or ends with,
 * if that is a list for all modules with its names; NULL: there is none. */
const char *rsh_adapter_config_target(const struct rsh_adapter_config *c,
				      const char *module);
/* Returns name i of "modules_to_save", unless "ensure_weight_tying"; NULL:
 * there are no more. */
const char *rsh_adapter_config_saved(const struct rsh_adapter_config *c,
				     size_t i);
/* Returns whether "modules_to_save" has the module, which then has a weight of
 * its own, unless "ensure_weight_tying". */
bool rsh_adapter_config_saves(const struct rsh_adapter_config *c,
			      const char *module);
/* Returns "fan_in_fan_out": weights are stored transposed. */
bool rsh_adapter_config_is_turned(const struct rsh_adapter_config *c);
