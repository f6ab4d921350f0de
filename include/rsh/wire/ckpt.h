/* SPDX-License-Identifier: Apache-2.0 */
/* wire/ckpt.h - the .ckpt format: where the records of a file lie, and the
 * bytes of a record's header.
 *
 * A .ckpt is a serialized `Checkpoint` message (proto/checkpoint.proto): a
 * sequence of length-delimited `Value`s, in practice one tensor each, or one
 * chunk of a tensor over 512 MiB.  It may end in a 17-byte CRC trailer
 * ("crc_num" and ten bytes big-endian), which is not part of the message.
 *
 * Reading is a streaming scan over the tags and lengths: content is skipped,
 * never read, and no message is ever unpacked whole.
 */
#ifndef RSH_WIRE_CKPT_H
#define RSH_WIRE_CKPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "rsh/tensor/box.h"
#include "rsh/tensor/dtype.h"
#include "rsh/util/error.h"
#include "rsh/util/names.h"

/* MindSpore's SLICE_SIZE: content of one record, in bytes (all releases). */
#define RSH_CKPT_CHUNK_BYTES (UINT64_C(512) * 1024 * 1024)

/* Where bytes come from; pread_fn returns bytes read (short only at the end
 * of the file) or -errno, like pread(2). */
struct rsh_byte_source {
	ssize_t (*pread_fn)(void *ctx, void *buf, size_t len, uint64_t offset);
	void *ctx;
	uint64_t size;    /* of the whole file */
	const char *path; /* for messages only */
};

/* A stretch of content in the file. */
struct rsh_extent {
	uint64_t offset;
	uint64_t length;
};

/* One parameter of a file: the adjacent records that share a tag, joined, as
 * load_checkpoint joins them (dims and type of the last one; a later
 * non-adjacent record of the same name replaces it, in its earlier place). */
struct rsh_record {
	uint32_t name;          /* id in the names table of the scan */
	uint8_t dtype;          /* enum rsh_dtype */
	uint8_t n_dims;
	bool wide_bf16;         /* BFloat16 stored as float32 (MindSpore <= 2.2):
				 * content is twice the size; an element is the
				 * upper two of its four bytes */
	uint32_t first_dim;     /* index of its dims in rsh_ckpt_index.dims */
	uint32_t first_extent;  /* ... of its content in .extents */
	uint32_t n_extents;
	uint64_t content_bytes; /* sum of the extents, as stored */
};

/* All parameters of one file, in first-seen order.  Immutable after the scan.
 *
 * dims as load_checkpoint sees them: the [0] that MindSpore <= 2.2 writes for
 * a scalar is given as no dims when there is content of one element; [0]
 * without content stays an empty vector.  For `str` dims stay as stored. */
struct rsh_ckpt_index {
	uint32_t n_records;
	uint32_t n_extents;
	uint32_t n_dims;
	struct rsh_record *records;
	struct rsh_extent *extents;
	int64_t *dims;
	uint32_t *by_name; /* record numbers sorted by name id */
	uint64_t file_bytes;
	bool has_crc; /* a CRC trailer was found (not verified) */
	uint32_t crc; /* its value then */
};

/* Scans a whole file.  0 and *out (owned by the caller), or -errno with a
 * sentence that names the path, the parameter and the offset:
 *   -EBADMSG  not a .ckpt, truncated, a content whose size is not what dims
 *             and type say, unknown type, a record without tag or tensor, more
 *             dims than RSH_MAX_DIMS, negative dim, a duplicated field
 *   -ENOTSUP  an encrypted checkpoint (by its magic) or a map parameter
 *   -EIO etc. as pread_fn said.
 * Allocates in proportion to the number of records that are really there. */
int rsh_ckpt_scan(const struct rsh_byte_source *src, struct rsh_names *names,
		  struct rsh_ckpt_index **out, struct rsh_error *err);
void rsh_ckpt_index_free(struct rsh_ckpt_index *index);

/* Reads the whole file that `index` was made of and compares its checksum with
 * that of the CRC trailer; a file without one passes.  0, -EBADMSG when they
 * differ, or as pread_fn said, with a sentence. */
int rsh_ckpt_check_crc(const struct rsh_byte_source *src,
		       const struct rsh_ckpt_index *index,
		       struct rsh_error *err);

/* The record of a name, NULL if the file has none.  O(log records). */
const struct rsh_record *rsh_ckpt_find(const struct rsh_ckpt_index *index,
				       uint32_t name);
static inline const int64_t *rsh_record_dims(const struct rsh_ckpt_index *ix,
					     const struct rsh_record *r)
{
	return r->n_dims ? ix->dims + r->first_dim : ix->dims;
}

/* The index of files that are laid end to end: the content of file i lies
 * base[i] further on.  Records in the order of the files.  0 and *out (owned by
 * the caller), -EEXIST when two hold the same name, which *twice then is, or
 * -ENOMEM. */
int rsh_ckpt_index_join(const struct rsh_ckpt_index *const *files,
			const uint64_t *base, uint32_t n,
			struct rsh_ckpt_index **out, uint32_t *twice);

/* True if both files hold the same records at the same places: they can then
 * share one index.  (file_bytes and crc are compared as well, but for crc's
 * value.) */
bool rsh_ckpt_index_equal(const struct rsh_ckpt_index *a,
			  const struct rsh_ckpt_index *b);
/* xxh3 of what rsh_ckpt_index_equal compares. */
uint64_t rsh_ckpt_index_hash(const struct rsh_ckpt_index *index);

/* ---- writing ---- */

/* What a parameter looks like in a file that is to be emitted. */
struct rsh_record_shape {
	const char *name;
	size_t name_len;
	enum rsh_dtype dtype;
	uint8_t n_dims;
	const int64_t *dims;
	uint64_t content_bytes;
};

/* A parameter is emitted as n chunks, all of RSH_CKPT_CHUNK_BYTES but the
 * last, each a record of its own that repeats name, dims and type.  A content
 * of 0 bytes is emitted as one record with empty content. */
uint64_t rsh_ckpt_emit_chunks(uint64_t content_bytes);

/* Bytes of the header (all that stands before the content) of a chunk whose
 * content has chunk_bytes bytes.  0 when the numbers overflow. */
uint64_t rsh_ckpt_header_size(const struct rsh_record_shape *s,
			      uint64_t chunk_bytes);

/* Writes that header to buf, which has room for rsh_ckpt_header_size()
 * bytes; returns how many were written. */
size_t rsh_ckpt_header_write(const struct rsh_record_shape *s,
			     uint64_t chunk_bytes, uint8_t *buf);

/* Bytes of the whole parameter, all chunks with their headers; false on
 * overflow. */
bool rsh_ckpt_emit_size(const struct rsh_record_shape *s, uint64_t *out);

#endif
