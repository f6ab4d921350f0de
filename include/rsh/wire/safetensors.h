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

/* This is the longest header that the library and MindSpore read. */
#define RSH_SAFETENSORS_HEADER_MAX UINT64_C(100000000)

/* An entry is one string of "__metadata__". */
struct rsh_safetensors_entry {
	const char *key;
	const char *value;
};

/* This is what "__metadata__" says.  A file without it has all zeros here. */
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

/* Returns the safetensors name of a type ("F32"), NULL if the format has none
 * (str, Complex128, HiFloat8).  Int4 has none of its own: MindSpore stores it
 * as I8 and notes "<parameter>": "Int4" in the metadata. */
const char *rsh_safetensors_dtype(enum rsh_dtype t);

/* Scans a file and gives an index as rsh_ckpt_scan() does, with the records in
 * the order of their offsets, which is also the library's (>= 0.6.2).  A tensor
 * has one extent, one without elements none.  An I8 tensor that the metadata
 * calls Int4 is Int4.  has_crc of the index stays false; meta->has_crc says
 * whether there is a checksum.
 *
 * Unlike an empty .ckpt, a file without tensors is whole and gives an index
 * without records: MindSpore writes it for a rank that keeps no parameter.
 *
 * meta may be NULL; after success it is to be cleared, after a failure it is
 * empty.  Returns 0 and *out (owned by the caller), or -errno with a sentence
 * that names the path and, where known, the parameter and the offset:
 *   -EBADMSG  not a safetensors file, cut short, too long, a hole or an
 *             overlap between tensors, a size that is not what shape and dtype
 *             say, an unknown type, more than RSH_MAX_DIMS dimensions
 *   -ENOTSUP  an element type that the format knows and MindSpore does not
 *   -EIO etc. as pread_fn said.
 * It allocates only after the header's length was found to fit the file, and
 * then in proportion to it: while it runs, some ten times the header of a real
 * file and, with nothing but numbers in it, up to twenty times. */
int rsh_safetensors_scan(const struct rsh_byte_source *src,
			 struct rsh_names *names, struct rsh_ckpt_index **out,
			 struct rsh_safetensors_meta *meta,
			 struct rsh_error *err);
void rsh_safetensors_meta_clear(struct rsh_safetensors_meta *meta);

/* Reads all content of the scanned file and compares the checksum of its
 * parameters with that in the metadata; a file without one passes.  It is the
 * checksum that save_checkpoint(crc_check=True) writes and load_checkpoint()
 * verifies: of an integer without dimensions it covers the value.  Returns 0,
 * -EBADMSG if they differ, -ENOMEM, or what pread_fn gave, with a sentence. */
int rsh_safetensors_check_crc(const struct rsh_byte_source *src,
			      const struct rsh_ckpt_index *index,
			      const struct rsh_names *names,
			      const struct rsh_safetensors_meta *meta,
			      struct rsh_error *err);

/* ---- writing ---- */

/* Fills order[0 .. n - 1] with the numbers of the shapes in the order in which
 * the library writes tensors: first types by descending rank in the library's
 * list, then names bytewise.  Shapes whose type the format does not have come
 * last. */
void rsh_safetensors_order(const struct rsh_record_shape *shapes, uint32_t n,
			   uint32_t *order);

/* What a header describes. */
struct rsh_safetensors_contents {
	const struct rsh_record_shape *shapes;
	const uint32_t *order; /* of the shapes; NULL: their own */
	uint32_t n;
	const struct rsh_safetensors_entry *entries;
	uint32_t n_entries;
};
/* Makes the bytes before the tensors' content, with the header's length and its
 * padding, as the library writes them for that order; content follows in the same order without gaps.  Int4 is written as
 * I8, and it is the caller's choice whether the metadata notes it.  Without
 * entries there is no "__metadata__".
 *
 * The library writes several metadata entries in a random order; here they are
 * sorted by key.  With one entry at most the bytes are the library's.
 *
 * Returns 0 and *out, which the caller frees, or -errno with a sentence that
 * names the parameter: -ENOTSUP for a type that the format does not have;
 * -EINVAL for a name or entry that is not UTF-8, or a name that JSON readers
 * would take for the metadata; -EFBIG for a header that no reader takes, or
 * content over 2^64 bytes; -ENOMEM. */
int rsh_safetensors_header(const struct rsh_safetensors_contents *c,
			   uint8_t **out, size_t *out_len,
			   struct rsh_error *err);

/* ---- models in parts ---- */

struct rsh_weight {
	const char *name;
	uint32_t file; /* index into rsh_weight_map.files */
};

/* This says which part of a model holds which weight. */
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
 * param_name_map.json, which is the same since 2.6 and before just {weight:
 * file}; `path` is for messages.  File names are those of files beside it:
 * anything with a '/', "." and ".." are refused, and so is a map that names a
 * weight twice or none at all.
 *
 * Returns 0 and *out, which the caller clears; or -EBADMSG with a sentence that
 * names path and weight, or -ENOMEM, and *out is empty then. */
int rsh_weight_map_parse(const void *data, size_t len, const char *path,
			 struct rsh_weight_map *out, struct rsh_error *err);
void rsh_weight_map_clear(struct rsh_weight_map *map);

/* Writes the text of model.safetensors.index.json as the Hugging Face tools do:
 * sorted by name, indented by two, ASCII.  It does not look at arena_ and
 * file_names_ of *map.  Returns 0 and *out, which the caller frees and which
 * has a NUL after its *out_len bytes; -EINVAL with a sentence if a name is not
 * UTF-8; -ENOMEM. */
int rsh_weight_map_format(const struct rsh_weight_map *map, char **out,
			  size_t *out_len, struct rsh_error *err);

#endif
