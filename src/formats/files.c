/* SPDX-License-Identifier: Apache-2.0 */
/* formats/files.c opens files of a source, and reads maps of parts. */
#include "config.h"

#include "rsh/formats/files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/mem.h"

/* The maps of the largest known models have a few megabytes. */
static const struct rsh_small_file map_file = { "map of a model's parts",
						UINT64_C(256) << 20 };

int rsh_format_file_open(const struct rsh_source *s, const char *name,
			 struct rsh_format_file *out, struct rsh_error *err)
{
	const struct rsh_store *store = rsh_source_store(s);
	struct rsh_stat st;
	int rc;

	*out = (struct rsh_format_file){ .path = NULL };
	rc = rsh_handle_open(store, name, &out->handle);
	if (rc)
		return rsh_store_open_error(store, name, rc, err);
	if (asprintf(&out->path, "%s/%s", rsh_source_path(s), name) < 0) {
		out->path = NULL;
		return rsh_error_nomem(err);
	}
	rc = rsh_handle_look(out->handle, &st);
	if (rc)
		return rsh_error_set(err, -rc, "%s: %s", out->path,
				     strerror(-rc));
	if (st.kind != RSH_IS_FILE)
		return rsh_error_set(err, EINVAL, "%s: not a regular file",
				     out->path);
	out->bytes = (struct rsh_byte_source){
		rsh_handle_pread, out->handle, st.size, out->path,
	};
	return 0;
}

void rsh_format_file_close(struct rsh_format_file *f)
{
	rsh_handle_close(f->handle);
	free(f->path);
	*f = (struct rsh_format_file){ .path = NULL };
}

int rsh_format_list_file(struct rsh_source *s, const char *name)
{
	const struct rsh_checkpoint c = { .name = strdup(name) };

	return rsh_source_list(s, &c);
}

int rsh_format_load_map(const struct rsh_source *s, const char *name,
			struct rsh_weight_map *map, struct rsh_error *err)
{
	cleanup_free uint8_t *data = NULL;
	cleanup_free char *path = NULL;
	size_t len;
	int rc = rsh_store_load(rsh_source_store(s), name, &map_file, &data,
				&len, err);

	if (rc)
		return rc;
	if (asprintf(&path, "%s/%s", rsh_source_path(s), name) < 0) {
		path = NULL;
		return rsh_error_nomem(err);
	}
	return rsh_weight_map_parse(data, len, path, map, err);
}

bool rsh_format_is_rank_dir(const char *name)
{
	const size_t n = strlen("rank_");

	return (strncmp(name, "rank_", n) == 0 ||
		strncmp(name, "ckpt_", n) == 0) && rsh_count_digits(name + n, 1);
}
