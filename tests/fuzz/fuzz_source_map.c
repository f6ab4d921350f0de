/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever the bytes are, the readers of source maps and of name maps end in
 * what their headers promise or in a sentence. */
#include "fuzz_support.h"

#include "rsh/wire/name_map.h"
#include "rsh/wire/source_map.h"

static void read_source_map(const uint8_t *data, size_t size)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_source_map *m;

	if (rsh_source_map_parse(data, size, "f", &m, &err)) {
		require(err.code && err.text[0]);
		return;
	}
	for (uint32_t i = 0; i < m->n; i++) {
		require(m->entries[i].path[0]);
		require(m->entries[i].rank != UINT32_MAX);
		for (uint32_t k = 0; k < i && i < 100; k++)
			require(m->entries[k].rank != m->entries[i].rank);
	}
	rsh_source_map_free(m);
}

static void read_name_map(const uint8_t *data, size_t size)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_name_map *m;
	const char *name;

	if (rsh_name_map_parse(data, size, "f", &m, &err)) {
		require(err.code && err.text[0]);
		return;
	}
	name = rsh_name_map_get(m, "0");
	require(!name || name[0]);
	rsh_name_map_free(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	read_source_map(data, size);
	read_name_map(data, size);
	return 0;
}
