/* SPDX-License-Identifier: Apache-2.0 */
/* wire/file_type.c finds the type of a file by the suffix of its name and calls
 * the scanner of that type. */
#include "rsh/wire/file_type.h"

#include "rsh/util/files.h"
#include "rsh/wire/safetensors.h"

static const char *const suffixes[RSH_FILE_OTHER] = {
	[RSH_FILE_CKPT] = ".ckpt",
	[RSH_FILE_SAFETENSORS] = ".safetensors",
};

enum rsh_file_type rsh_file_type_of(const char *name)
{
	for (unsigned f = 0; f < RSH_FILE_OTHER; f++)
		if (rsh_has_suffix(name, suffixes[f]))
			return (enum rsh_file_type)f;
	return RSH_FILE_OTHER;
}

const char *rsh_file_type_suffix(enum rsh_file_type f)
{
	return suffixes[f];
}

static int scan_safetensors(const struct rsh_byte_source *src, bool full,
			    struct rsh_names *names,
			    struct rsh_ckpt_index **out, struct rsh_error *err)
{
	struct rsh_safetensors_meta meta;
	int rc = rsh_safetensors_scan(src, names, out, &meta, err);

	if (rc)
		return rc;
	(*out)->has_crc = meta.has_crc;
	if (full)
		rc = rsh_safetensors_check_crc(src, *out, names, &meta, err);
	if (rc)
		rsh_ckpt_index_free(*out);
	rsh_safetensors_meta_clear(&meta);
	return rc;
}

int rsh_file_scan(enum rsh_file_type f, const struct rsh_byte_source *src,
		    bool full, struct rsh_names *names,
		    struct rsh_ckpt_index **out, struct rsh_error *err)
{
	int rc;

	if (f == RSH_FILE_SAFETENSORS)
		return scan_safetensors(src, full, names, out, err);
	rc = rsh_ckpt_scan(src, names, out, err);
	if (rc || !full)
		return rc;
	rc = rsh_ckpt_check_crc(src, *out, err);
	if (rc)
		rsh_ckpt_index_free(*out);
	return rc;
}
