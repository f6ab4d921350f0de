/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever the bytes are, both readers of strategy files end in items that
 * keep their contract, or in a sentence. */
#include "fuzz_support.h"

#include "rsh/wire/strategy_emit.h"
#include "rsh/wire/strategy_file.h"

static void check_item(const struct rsh_strategy_item *it)
{
	uint64_t ranks = 1;

	require(it->name[0] && it->n_mesh && it->opt_size >= -1);
	for (uint32_t i = 0; i < it->n_mesh; i++)
		ranks *= it->mesh[i];
	require(ranks > 0 && ranks < UINT64_C(1) << 31);
	for (uint32_t i = 0; i < it->n_map; i++)
		for (uint32_t k = 0; k < it->map[i].n; k++)
			require(it->map[i].axes[k] >= 0 &&
				(uint32_t)it->map[i].axes[k] < it->n_mesh);
	for (uint32_t i = 0; i < it->n_shape; i++)
		require(it->shape[i] >= 0);
}

static void parse(const uint8_t *data, size_t size, const char *path)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_strategy_file *f;

	if (rsh_strategy_parse(data, size, path, &f, &err)) {
		require(err.code && err.text[0]);
		return;
	}
	require(f->n_items > 0);
	for (uint32_t i = 0; i < f->n_items; i++)
		check_item(&f->items[i]);
	rsh_strategy_file_free(f);
}

/* As two stages, whichever they say they are. */
static void join(const uint8_t *data, size_t size, bool json)
{
	const struct rsh_strategy_bytes files[] = { { "a", data, size / 2 },
						    { "b", data, size } };
	struct rsh_error err = RSH_ERROR_INIT;
	size_t len;
	void *out;

	if (rsh_strategy_join(files + 1, 1, json, &out, &len, &err)) {
		require(err.code && err.text[0]);
		return;
	}
	free(out);
	if (!rsh_strategy_join(files, 2, json, &out, &len, &err))
		free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	join(data, size, false);
	join(data, size, true);
	parse(data, size, "f.ckpt");
	parse(data, size, "f.json");
	return 0;
}
