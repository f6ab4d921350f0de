/* SPDX-License-Identifier: Apache-2.0 */
/* wire/group_info.c reads the list of ranks from group_info.pb. */
#include "rsh/wire/group_info.h"

#include <errno.h>
#include <string.h>

#include "node_strategy.pb-c.h"
#include "rsh/util/mem.h"

int rsh_group_info_parse(const void *data, size_t len, const char *path,
			 uint32_t **ranks, uint32_t *n, struct rsh_error *err)
{
	Rsh__Pb__ParallelGroupMap *map =
		len ? rsh__pb__parallel_group_map__unpack(NULL, len, data) :
		      NULL;
	const Rsh__Pb__ParallelGroupRanks *list;
	uint32_t *copy;

	if (!map)
		return rsh_error_set(err, EBADMSG, "%s: %s", path,
				     len ? "not a file of group information, "
					   "or damaged" :
					   "the group information is empty");
	list = map->ckpt_restore_rank_list;
	*n = list ? (uint32_t)list->n_dim : 0;
	copy = rsh_alloc_array(*n, sizeof(*copy));
	if (copy && *n)
		memcpy(copy, list->dim, *n * sizeof(*copy));
	rsh__pb__parallel_group_map__free_unpacked(map, NULL);
	if (!copy)
		return rsh_error_nomem(err);
	*ranks = copy;
	return 0;
}
