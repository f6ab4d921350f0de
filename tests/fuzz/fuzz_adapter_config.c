/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever the bytes are, the reader of an adapter_config.json ends in a
 * sentence, or knows a rank and a scaling for each module, and names of
 * parameters. */
#include "fuzz_support.h"

#include <math.h>

#include "rsh/wire/adapter_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const modules[] = {
		"", "lm_head", "model.layers.0.self_attn.q_proj",
		"model.layers.11.mlp.experts.3.down_proj",
	};
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_adapter_config *c;
	const char *name;

	if (rsh_adapter_config_parse(data, size, "f", &c, &err)) {
		require(err.code && strncmp(err.text, "f:", 2) == 0);
		return 0;
	}
	for (size_t i = 0; i < sizeof(modules) / sizeof(modules[0]); i++) {
		require(rsh_adapter_config_rank(c, modules[i]) > 0);
		require(!isnan(rsh_adapter_config_scaling(c, modules[i])));
	}
	for (size_t i = 0; (name = rsh_adapter_config_parameter(c, i)); i++)
		require(strlen(name) < size);
	(void)rsh_adapter_config_is_turned(c);
	rsh_adapter_config_free(c);
	return 0;
}
