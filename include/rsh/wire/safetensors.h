/* SPDX-License-Identifier: Apache-2.0 */
/* wire/safetensors.h - the safetensors format: where the tensors of a file
 * lie, the bytes of a file's header, and the JSON beside files in parts.
 *
 * A file is the header's length (u64, little-endian), the header (JSON: name ->
 * {"dtype", "shape", "data_offsets"}, and strings about the file under
 * "__metadata__"), then the tensors' bytes without gaps; data_offsets count
 * from the header's end.
 *
 * MindSpore and the safetensors library read it with differences that matter
 * here: the library takes tensors in any order of the header, MindSpore (since
 * 2.7) only in the order of their offsets; MindSpore knows fewer types.  The
 * scan takes what the library takes, with these exceptions: a name that is
 * empty, occurs twice or has a NUL in it, and a tensor given as a list.
 */
#ifndef RSH_WIRE_SAFETENSORS_H
#define RSH_WIRE_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rsh/util/arena.h"
#include "rsh/util/error.h"
#include "rsh/util/names.h"
#include "rsh/wire/ckpt.h"
#include "rsh/tensor/dtype.h"

/* The longest header that the library and MindSpore read. */
#define RSH_SAFETENSORS_HEADER_MAX UINT64_C(100000000)

/* One string of "__metadata__". */
struct rsh_safetensors_entry {
	const char *key;
	const char *value;
};

/* What "__metadata__" says.  All zero is a file without it. */
struct rsh_safetensors_meta {
	uint32_t n_entries; /* all of them, in the order of the file */
	const struct rsh_safetensors_entry *entries;

	const char *format; /* "ms", "pt", ...; NULL: not said */
	bool has_remove_redundancy;
	bool remove_redundancy; /* ranks keep some parameters for others */
	bool has_crc;
	uint32_t crc; /* of names and contents, in the order of the names:
		       * not a checksum of the file's bytes */
	struct rsh_arena arena_;
};

/* The safetensors name of a type ("F32"), NULL if the format has none (str,
 * Complex128, HiFloat8).  Int4 has none of its own: MindSpore stores it as I8
 * and notes "<parameter>": "Int4" in the metadata. */
const char *rsh_safetensors_dtype(enum rsh_dtype t);

/* Scans a file: the same index as rsh_ckpt_scan gives, with the records in the
 * order of their offsets, which is also the library's (>= 0.6.2).  A tensor is
 * one extent, one without elements none.  An I8 tensor that the metadata calls
 * Int4 is Int4.  has_crc of the index stays false; see meta->crc.
 *
 * Unlike an empty .ckpt, a file without tensors is whole and gives an index
 * without records: MindSpore writes it for a rank that keeps no parameter.
 *
 * meta may be NULL; after success it is to be cleared, after a failure it is
 * empty.  0 and *out (owned by the caller), or -errno with a sentence that
 * names the path and, where known, the parameter and the offset:
 *   -EBADMSG  not a safetensors file, cut short, too long, a hole or an
 *             overlap between tensors, a size that is not what shape and dtype
 *             say, an unknown type, more than RSH_MAX_DIMS dimensions
 *   -ENOTSUP  an element type that the format knows and MindSpore does not
 *   -EIO etc. as pread_fn said.
 * Allocates only after the header's length was found to fit the file, and then
 * in proportion to it: while it runs, some ten times the header of a real file
 * and, with nothing but numbers in it, up to twenty times. */
int rsh_safetensors_scan(const struct rsh_byte_source *src,
			 struct rsh_names *names, struct rsh_ckpt_index **out,
			 struct rsh_safetensors_meta *meta,
			 struct rsh_error *err);
void rsh_safetensors_meta_clear(struct rsh_safetensors_meta *meta);

/* Reads all content of the scanned file and compares the checksum of its
 * parameters with that in the metadata; a file without one passes.  What
 * save_checkpoint(crc_check=True) writes and load_checkpoint() verifies: of an
 * integer without dimensions it covers the value.  0, -EBADMSG when they
 * differ, or as pread_fn said, with a sentence. */
int rsh_safetensors_check_crc(const struct rsh_byte_source *src,
			      const struct rsh_ckpt_index *index,
			      const struct rsh_names *names,
			      const struct rsh_safetensors_meta *meta,
			      struct rsh_error *err);

/* ---- writing ---- */

/* Fills order[0..n) with the numbers of the shapes in the order in which the
 * library writes tensors: types by descending rank, then names bytewise.
 * Shapes whose type the format has not come last. */
void rsh_safetensors_order(const struct rsh_record_shape *shapes, uint32_t n,
			   uint32_t *order);

/* The bytes before the tensors' content, with the header's length and its
 * padding, as the library writes them for that order (NULL: the order of the
 * shapes); content follows in the same order without gaps.  Int4 is written as
 * I8: whether the metadata notes it is the caller's choice.  Without entries
 * there is no "__metadata__".
 *
 * The library writes several metadata entries in a random order; here they are
 * sorted by key.  With one entry at most the bytes are the library's.
 *
 * 0 and *out (malloced), or -errno with a sentence that names the parameter:
 *   -ENOTSUP  a type that the format has not
 *   -EINVAL   a name or entry that is not UTF-8, a name that JSON readers
 *             would take for the metadata
 *   -EFBIG    a header that no reader takes, or content over 2^64 bytes. */
int rsh_safetensors_header(const struct rsh_record_shape *shapes,
			   const uint32_t *order, uint32_t n,
			   const struct rsh_safetensors_entry *entries,
			   uint32_t n_entries, uint8_t **out, size_t *out_len,
			   struct rsh_error *err);

/* ---- models in parts ---- */

struct rsh_weight {
	const char *name;
	uint32_t file; /* index into rsh_weight_map.files */
};

/* Which part holds which weight. */
struct rsh_weight_map {
	uint32_t n_weights; /* in the order of the file */
	const struct rsh_weight *weights;
	uint32_t n_files; /* in the order of first mention */
	const char *const *files;
	bool has_total_size;
	uint64_t total_size; /* of all weights in bytes, as the file says */

	struct rsh_arena arena_;
	struct rsh_names *file_names_;
};

/* Parses model.safetensors.index.json (Hugging Face), or MindSpore's
 * param_name_map.json, which is the same since 2.6 and before just
 * {weight: file}; `path` is for messages.  File names are those of files
 * beside it: anything with a '/', "." and ".." are refused, and so is a map
 * that names a weight twice or none at all.
 *
 * 0 and *out, to be cleared; or -EBADMSG with a sentence that names path and
 * weight, *out is empty then. */
int rsh_weight_map_parse(const void *data, size_t len, const char *path,
			 struct rsh_weight_map *out, struct rsh_error *err);
void rsh_weight_map_clear(struct rsh_weight_map *map);

/* The text of model.safetensors.index.json, as the Hugging Face tools write
 * it: sorted by name, indented by two, ASCII.  The last two members of *map
 * are not looked at.  0 and *out (malloced, with a NUL after its *out_len
 * bytes); -EINVAL if a name is not UTF-8; -ENOMEM. */
int rsh_weight_map_format(const struct rsh_weight_map *map, char **out,
			  size_t *out_len, struct rsh_error *err);

#endif
