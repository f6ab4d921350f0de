/* SPDX-License-Identifier: Apache-2.0 */
/* wire/source_map.c reads the JSON object that names the checkpoint of each
 * rank. */
#include "rsh/wire/source_map.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "rsh/wire/json_load.h"

/* Accepts a rank in the usual decimal form only: "01" would be a second
 * spelling of rank 1. */
static bool parse_rank(const char *key, uint32_t *rank)
{
	char canonical[16];

	*rank = (uint32_t)strtoul(key, NULL, 10);
	snprintf(canonical, sizeof(canonical), "%" PRIu32, *rank);
	return *rank != UINT32_MAX && strcmp(key, canonical) == 0;
}

static int read_entries(struct rsh_source_map *m, json_t *root,
			const char *path, struct rsh_error *err)
{
	const json_t *value;
	const char *key;

	m->entries = calloc(json_object_size(root) + 1, sizeof(*m->entries));
	if (!m->entries)
		return rsh_error_nomem(err);
	json_object_foreach(root, key, value) {
		struct rsh_source_map_entry *e = &m->entries[m->n];

		if (!parse_rank(key, &e->rank))
			return rsh_error_set(err, EBADMSG, "%s: \"%s\" is not "
					     "the number of a rank", path, key);
		if (!json_is_string(value) || json_string_length(value) == 0)
			return rsh_error_set(err, EBADMSG, "%s: the value of "
					     "rank %u is not the path of a file",
					     path, e->rank);
		e->path = strdup(json_string_value(value));
		if (!e->path)
			return rsh_error_nomem(err);
		m->n++;
	}
	return 0;
}

int rsh_source_map_parse(const void *data, size_t len, const char *path,
			 struct rsh_source_map **out, struct rsh_error *err)
{
	cleanup_json json_t *root = NULL;
	struct rsh_source_map *m;
	int rc = rsh_json_load(&(struct rsh_memory){ data, len },
			       JSON_REJECT_DUPLICATES, path,
			       "a map from ranks to files ({\"0\": \"path\", "
			       "...})", &root, err);

	if (rc)
		return rc;
	m = calloc(1, sizeof(*m));
	rc = m ? read_entries(m, root, path, err) : rsh_error_nomem(err);
	if (rc) {
		rsh_source_map_free(m);
		return rc;
	}
	*out = m;
	return 0;
}

void rsh_source_map_free(struct rsh_source_map *m)
{
	if (!m)
		return;
	for (uint32_t i = 0; i < m->n; i++)
		free(m->entries[i].path);
	free(m->entries);
	free(m);
}
