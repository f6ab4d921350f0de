/* SPDX-License-Identifier: Apache-2.0 */
/* wire/safetensors.h - the safetensors format: where the tensors of a file are,
 * the bytes of a file's header, and the JSON file of a model in parts.
 *
 * A file is the header's length (u64, little-endian), the header (JSON: name ->
 * {"dtype", "shape", "data_offsets"}, and strings about the file under
 * "__metadata__"), then the tensors' bytes without gaps.  data_offsets count
 * from the header's end.
 *
 * MindSpore and the safetensors library differ as readers.  The library accepts
 * tensors in any order in the header; MindSpore (since 2.7) only in the order
 * of their offsets.  MindSpore supports fewer types.  The scan accepts what the
 * library accepts, with these exceptions: a name that is empty, occurs twice or
 * contains a NUL, and a tensor given as a list. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rsh/util/arena.h"
#include "rsh/util/error.h"
#include "rsh/util/names.h"
#include "rsh/wire/ckpt.h"
#include "rsh/tensor/dtype.h"

/* This is the longest header that the library and MindSpore read. */
#define RSH_SAFETENSORS_HEADER_MAX UINT64_C(100000000)

/* An entry is one string of "__metadata__". */
struct rsh_safetensors_entry {
	const char *key;
	const char *value;
};

/* This is the content of "__metadata__".  For a file without it, all bytes here
 * are zero. */
struct rsh_safetensors_meta {
	uint32_t n_entries; /* all of them, in the order of the file */
	const struct rsh_safetensors_entry *entries;

	bool has_crc;
	uint32_t crc; /* of names and contents, in the order of the names:
		       * not a checksum of the file's bytes */
	struct rsh_arena arena_;
};

/* Returns the safetensors name of a type ("F32"), or NULL if the format does
 * not have the type (str, Complex128, HiFloat8).  Int4 has no name in the
 * format: MindSpore stores it as I8 and writes "<parameter>": "Int4" in the
 * metadata. */
const char *rsh_safetensors_dtype(enum rsh_dtype t);

/* Scans a file and makes an index like that of rsh_ckpt_scan(), with the
 * records in the order of their offsets, which is also the library's order (>=
 * 0.6.2).  A tensor has one extent; one without elements has none.  An I8
 * tensor that is Int4 in the metadata is Int4 here.  has_crc of the index stays
 * false; meta->has_crc says whether there is a checksum.
 *
 * A file without tensors is valid, unlike an empty .ckpt, and gives an index
 * without records: MindSpore writes it for a rank that keeps no parameter.
 *
 * meta may be NULL.  After success the caller clears it; after a failure it is
 * empty.  Returns 0 and *out (owned by the caller), or -errno with a sentence
 * that names the path and, where known, the parameter and the offset:
 *   -EBADMSG  not a safetensors file, truncated, too long, a gap or an
 *             overlap between tensors, a size that does not match shape and
 *             dtype, an unknown type, more than RSH_MAX_DIMS dimensions
 *   -ENOTSUP  an element type that the format has and MindSpore does not
 *   -EIO etc. from pread_fn.
 * Memory is allocated only after the header's length was checked against the
 * file.  It is in proportion to that length: during the scan, some ten times
 * the header of a real file, and up to twenty times for a header that has
 * nothing but numbers. */
int rsh_safetensors_scan(const struct rsh_byte_source *src,
			 struct rsh_names *names, struct rsh_ckpt_index **out,
			 struct rsh_safetensors_meta *meta,
			 struct rsh_error *err);
/* Does the same with a file that may have compressed changes of tensors, which
 * no model has; the other function refuses it with -ENOTSUP. */
int rsh_safetensors_scan_delta(const struct rsh_byte_source *src,
			       struct rsh_names *names,
			       struct rsh_ckpt_index **out,
			       struct rsh_safetensors_meta *meta,
			       struct rsh_error *err);
void rsh_safetensors_meta_clear(struct rsh_safetensors_meta *meta);

/* Reads all content of the scanned file and compares the checksum of its
 * parameters with that in the metadata.  A file without a checksum passes. This
 * is the checksum that save_checkpoint(crc_check=True) writes and
 * load_checkpoint() verifies; for an integer without dimensions it depends on
 * the value.  Returns 0, -EBADMSG if the checksums differ, -ENOMEM, or the
 * error of pread_fn, with a sentence. */
int rsh_safetensors_check_crc(const struct rsh_byte_source *src,
			      const struct rsh_ckpt_index *index,
			      const struct rsh_names *names,
			      const struct rsh_safetensors_meta *meta,
			      struct rsh_error *err);

/* ---- writing ---- */

/* Fills order[0 .. n - 1] with the numbers of the shapes in the order in which
 * the library writes tensors: first by descending rank of the type in the
 * library's list, then by name, compared bytewise.  Shapes whose type the
 * format does not have come last. */
void rsh_safetensors_order(const struct rsh_record_shape *shapes, uint32_t n,
			   uint32_t *order);

/* This is the content of a header. */
struct rsh_safetensors_contents {
	const struct rsh_record_shape *shapes;
	const uint32_t *order; /* of the shapes; NULL: as given */
	uint32_t n;
	const struct rsh_safetensors_entry *entries;
	uint32_t n_entries;
};
/* Makes the bytes before the tensors' content, including the header's length
 * and its padding, as the library writes them for that order.  The content
 * follows in the same order without gaps.  Int4 is written as I8; the caller
 * decides whether the metadata says so.  Without entries there is no
 * "__metadata__".
 *
 * The library writes several metadata entries in a random order; here they are
 * sorted by key.  With at most one entry the bytes are the library's.
 *
 * Returns 0 and *out, which the caller frees, or -errno with a sentence that
 * names the parameter: -ENOTSUP if the format does not have a type; -EINVAL if
 * a name or entry is not UTF-8, or JSON readers would take a name for the
 * metadata; -EFBIG if the header is too long for readers, or the content is
 * over 2^64 bytes; -ENOMEM. */
int rsh_safetensors_header(const struct rsh_safetensors_contents *c,
			   uint8_t **out, size_t *out_len,
			   struct rsh_error *err);

/* ---- models in parts ---- */

struct rsh_weight {
	const char *name;
	uint32_t file; /* index into rsh_weight_map.files */
};

/* This maps each weight of a model to the file that has it. */
struct rsh_weight_map {
	uint32_t n_weights; /* in the order of the file */
	const struct rsh_weight *weights;
	uint32_t n_files; /* in the order of first mention */
	const char *const *files;
	bool has_total_size;
	uint64_t total_size; /* of all weights in bytes, as given in the file */

	struct rsh_arena arena_;
	struct rsh_names *file_names_;
};

/* Parses model.safetensors.index.json (Hugging Face), or MindSpore's
 * param_name_map.json.  The latter is the same since 2.6, and only {weight:
 * file} before; `path` is for messages.  The files are below the directory of
 * the map, and their paths are without "." and "//": an absolute path and ".."
 * are errors.  A map that names a weight twice or no weight is an error too.
 *
 * Returns 0 and *out, which the caller clears; or -EBADMSG with a sentence that
 * names path and weight, or -ENOMEM.  *out is empty after a failure. */
int rsh_weight_map_parse(const void *data, size_t len, const char *path,
			 struct rsh_weight_map *out, struct rsh_error *err);
void rsh_weight_map_clear(struct rsh_weight_map *map);

/* Writes the text of model.safetensors.index.json as the Hugging Face tools do:
 * sorted by name, indented by two, ASCII.  arena_ and file_names_ of *map are
 * not used.  Returns 0 and *out, which the caller frees and which has a NUL
 * after its *out_len bytes; -EINVAL with a sentence if a name is not UTF-8;
 * -ENOMEM. */
int rsh_weight_map_format(const struct rsh_weight_map *map, char **out,
			  size_t *out_len, struct rsh_error *err);
