/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever the bytes are, the reader ends in a map of plain file names, which
 * comes back from its text, or in a sentence. */
#include "fuzz_support.h"

#include "rsh/wire/safetensors.h"

static void check_map(const struct rsh_weight_map *map)
{
	require(map->n_weights > 0 && map->n_files > 0);
	for (uint32_t i = 0; i < map->n_weights; i++)
		require(map->weights[i].file < map->n_files);
	for (uint32_t i = 0; i < map->n_files; i++)
		require(map->files[i][0] && map->files[i][0] != '/' &&
			strcmp(map->files[i], "..") != 0 &&
			strncmp(map->files[i], "../", 3) != 0 &&
			!strstr(map->files[i], "/../") &&
			!strstr(map->files[i], "//"));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_weight_map map, again;
	char *text;
	size_t len;

	if (rsh_weight_map_parse(data, size, "f", &map, &err)) {
		require(err.code && err.text[0]);
		return 0;
	}
	check_map(&map);
	require(!rsh_weight_map_format(&map, &text, &len, NULL));
	require(!rsh_weight_map_parse(text, len, "g", &again, NULL));
	check_map(&again);
	require(again.n_weights == map.n_weights &&
		again.n_files == map.n_files &&
		again.total_size == map.total_size);
	free(text);
	rsh_weight_map_clear(&again);
	rsh_weight_map_clear(&map);
	return 0;
}
