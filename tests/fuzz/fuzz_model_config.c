/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever the bytes are, a config.json ends in names and numbers, or in a
 * sentence. */
#include "fuzz_support.h"

#include "rsh/wire/model_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_model_config *c;
	uint64_t n, block[2] = { 0, 0 };

	if (rsh_model_config_parse(data, size, "f", &c, &err)) {
		require(err.code && err.text[0] == 'f');
		return 0;
	}
	for (uint32_t i = 0; rsh_model_config_architecture(c, i); i++)
		require(strlen(rsh_model_config_architecture(c, i)) <= size);
	(void)rsh_model_config_number(c, "num_hidden_layers", &n);
	if (rsh_model_config_fp8(c, block))
		require(block[0] && block[1]);
	rsh_model_config_free(c);
	return 0;
}
