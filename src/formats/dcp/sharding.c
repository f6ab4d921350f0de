/* SPDX-License-Identifier: Apache-2.0 */
/* formats/dcp/sharding.c reads which part of a tensor is in a file of Hugging
 * Face's sharded form. */
#include "config.h"

#include "rsh/formats/dcp.h"

#include <errno.h>
#include <string.h>

#include <jansson.h>

#include "rsh/wire/json_load.h"

static int sharding_read(const char *name, const json_t *v, const char *path,
			 uint64_t *offsets, uint32_t *n_dims,
			 struct rsh_error *err)
{
	const json_t *list = json_object_get(v, "saved_offsets");
	const json_t *offset;
	size_t i;

	if (!json_is_array(list) || json_array_size(list) > RSH_MAX_DIMS)
		return rsh_error_set(err, EBADMSG, "%s: DCP_SHARDING_INFO: "
				     "\"%s\" has no list of offsets", path,
				     name);
	json_array_foreach(list, i, offset) {
		if (!json_is_integer(offset) || json_integer_value(offset) < 0)
			return rsh_error_set(err, EBADMSG, "%s: "
					     "DCP_SHARDING_INFO: an offset of "
					     "\"%s\" is not an integer of 0 "
					     "or more", path, name);
		offsets[i] = (uint64_t)json_integer_value(offset);
	}
	*n_dims = (uint32_t)json_array_size(list);
	return 0;
}

int rsh_dcp_sharding_info(const char *text, const char *path,
			  rsh_dcp_offsets_fn *each, void *ctx,
			  struct rsh_error *err)
{
	json_error_t where;
	cleanup_json json_t *root =
		rsh_json_parse(&(struct rsh_memory){ text, strlen(text) },
			       JSON_REJECT_DUPLICATES, &where);
	const char *name;
	json_t *v;
	int rc = 0;

	if (!json_is_object(root))
		return rsh_error_set(err, EBADMSG, "%s: DCP_SHARDING_INFO is "
				     "not a JSON object%s%s", path,
				     root ? "" : ": ", root ? "" : where.text);
	json_object_foreach(root, name, v) {
		uint64_t offsets[RSH_MAX_DIMS];
		uint32_t n_dims = 0;

		rc = sharding_read(name, v, path, offsets, &n_dims, err);
		if (rc == 0)
			rc = each(ctx, name, n_dims, offsets);
		if (rc)
			break;
	}
	return rc;
}
