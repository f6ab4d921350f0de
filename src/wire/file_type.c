/* SPDX-License-Identifier: Apache-2.0 */
/* wire/file_type.c finds the type of a file by the suffix of its name and calls
 * the scanner of that type. */
#include "rsh/wire/file_type.h"

#include <errno.h>
#include <string.h>

#include "rsh/util/checked.h"
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

/* ---- other files ---- */

static const struct {
	const char *begin;
	const char *what;
} begins[] = {
	{ "PK\3\4", "a zip archive, as torch.save() writes them" },
	{ "\x80\2", "a pickle of Python" },
	{ "\x80\4", "a pickle of Python" },
	{ "version https://git-lfs", "a pointer of git-lfs in place of the "
				     "file, which git lfs pull gets" },
	{ "GGUF", "a GGUF file" },
	{ "\x89HDF", "an HDF5 file" },
	{ "\x93NUMPY", "an array of numpy" },
	{ "\x1f\x8b", "a file compressed by gzip" },
	{ "\xfd" "7zXZ", "a file compressed by xz" },
	{ "\x28\xb5\x2f\xfd", "a file compressed by zstd" },
	{ "BZh", "a file compressed by bzip2" },
	{ "{\"manifest\"", "a manifest, which reshardfs verify takes" },
	{ "<", "a web page or XML" },
};

/* Files of protobuf begin with a byte that no text begins with.  The reader of
 * JSON says where it is wrong. */
static bool is_text(const uint8_t *begin, size_t n)
{
	bool is = n > 0 && *begin > ' ' && *begin != '{' && *begin != '[';

	for (size_t i = 0; i < n; i++)
		is &= (begin[i] >= ' ' && begin[i] < 0x7f) ||
		      memchr("\t\n\r", begin[i], 3);
	return is;
}

const char *rsh_file_begins_as(const void *begin, size_t n)
{
	for (size_t i = 0; i < sizeof(begins) / sizeof(begins[0]); i++)
		if (strlen(begins[i].begin) <= n &&
		    memcmp(begin, begins[i].begin, strlen(begins[i].begin)) ==
		    0)
			return begins[i].what;
	return is_text(begin, n) ? "a text" : NULL;
}

int rsh_file_explain(const struct rsh_byte_source *src, int rc,
		     struct rsh_error *err)
{
	uint8_t begin[RSH_FILE_BEGIN];
	const size_t n = (size_t)rsh_min_u64(sizeof(begin), src->size);
	const char *what;

	/* The header of a damaged safetensors file may begin in any way, but
	 * its text follows. */
	if (rc != -EBADMSG ||
	    src->pread_fn(src->ctx, begin, n, 0) != (ssize_t)n ||
	    (n > 8 && begin[8] == '{'))
		return rc;
	what = rsh_file_begins_as(begin, n);
	return what ? rsh_error_set(err, EBADMSG, "%s: this is %s", src->path,
				    what) : rc;
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

static int scan_ckpt(const struct rsh_byte_source *src, bool full,
		     struct rsh_names *names, struct rsh_ckpt_index **out,
		     struct rsh_error *err)
{
	int rc = rsh_ckpt_scan(src, names, out, err);

	if (rc || !full)
		return rc;
	rc = rsh_ckpt_check_crc(src, *out, err);
	if (rc)
		rsh_ckpt_index_free(*out);
	return rc;
}

int rsh_file_scan(enum rsh_file_type f, const struct rsh_byte_source *src,
		    bool full, struct rsh_names *names,
		    struct rsh_ckpt_index **out, struct rsh_error *err)
{
	int rc = f == RSH_FILE_SAFETENSORS ?
		 scan_safetensors(src, full, names, out, err) :
		 scan_ckpt(src, full, names, out, err);

	return rc ? rsh_file_explain(src, rc, err) : 0;
}
