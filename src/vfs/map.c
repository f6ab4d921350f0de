/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/map.c writes the map that says which part of a model holds which
 * weight. */
#include "config.h"

#include "vfs_i.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/mem.h"
#include "rsh/wire/safetensors.h"

static int add_weights(const struct rsh_reshard *v, struct rsh_arena *arena,
		       struct rsh_weight_map *map, struct rsh_weight *weights,
		       const char **files)
{
	for (uint32_t f = 0; f < v->n_files; f++) {
		uint32_t n = rsh_plan_n_records(v->plan, f);
		char name[NAME_MAX + 1];

		rsh_file_name(v, f, name, sizeof(name));
		files[f] = rsh_arena_strndup(arena, name, strlen(name));
		if (!files[f])
			return -ENOMEM;
		for (uint32_t i = 0; i < n; i++) {
			struct rsh_virtual_record r;

			rsh_plan_record(v->plan, f, i, &r);
			weights[map->n_weights++] = (struct rsh_weight){
				r.shape.name, f
			};
			map->total_size += r.shape.content_bytes;
		}
	}
	map->weights = weights;
	map->files = files;
	return 0;
}

int rsh_weight_map_build(struct rsh_reshard *v, struct rsh_error *err)
{
	struct rsh_weight_map map = {
		.n_files = v->n_files, .has_total_size = true,
	};
	cleanup_free struct rsh_weight *weights = NULL;
	cleanup_free const char **files =
		rsh_alloc_array(v->n_files, sizeof(*files));
	struct rsh_arena arena = { 0 };
	size_t n = 0;
	int rc;

	for (uint32_t f = 0; f < v->n_files; f++)
		n += rsh_plan_n_records(v->plan, f);
	weights = rsh_alloc_array(n, sizeof(*weights));
	if (!weights || !files ||
	    add_weights(v, &arena, &map, weights, files))
		rc = rsh_error_nomem(err);
	else
		rc = rsh_weight_map_format(&map, &v->map, &v->map_bytes, err);
	rsh_arena_clear(&arena);
	v->vfs.total_bytes += v->map_bytes;
	return rc;
}
