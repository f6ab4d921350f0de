/* Whatever the bytes are, the readers of source maps and of group information
 * end in what their headers promise or in a sentence. */
#include <stdint.h>
#include <stdlib.h>

#include "rsh/wire/group_info.h"
#include "rsh/wire/source_map.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_map(const uint8_t *data, size_t size)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_source_map *m;

	if (rsh_source_map_parse(data, size, "f", &m, &err)) {
		if (!err.code || !err.text[0])
			abort();
		return;
	}
	for (uint32_t i = 0; i < m->n; i++)
		if (!m->entries[i].path[0] || m->entries[i].rank == UINT32_MAX)
			abort();
	rsh_source_map_free(m);
}

static void read_group_info(const uint8_t *data, size_t size)
{
	struct rsh_error err = RSH_ERROR_INIT;
	uint32_t *ranks, n, sum = 0;

	if (rsh_group_info_parse(data, size, "f", &ranks, &n, &err)) {
		if (!err.code || !err.text[0])
			abort();
		return;
	}
	/* Every number of the list can be read. */
	for (uint32_t i = 0; i < n; i++)
		sum += ranks[i];
	*(volatile uint32_t *)&sum = sum;
	free(ranks);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	read_map(data, size);
	read_group_info(data, size);
	return 0;
}
