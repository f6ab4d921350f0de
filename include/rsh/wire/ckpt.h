/* SPDX-License-Identifier: Apache-2.0 */
/* wire/ckpt.h - the .ckpt format: where the records of a file are, and the
 * bytes of a record's header.
 *
 * A .ckpt is a serialized `Checkpoint` message (proto/checkpoint.proto): a
 * sequence of length-delimited `Value`s, in practice one tensor each, or one
 * chunk of a tensor over 512 MiB.  It may end in a 17-byte CRC trailer
 * ("crc_num" and ten bytes big-endian), which is not part of the message.
 *
 * Reading is a streaming scan over the tags and lengths: content is skipped,
 * never read, and no message is ever unpacked whole.
 *
 * Threads: files can be scanned at the same time, also with one table of names.
 * An index does not change once it is made, so any thread may read it; its
 * owner frees it. */
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

/* MindSpore's SLICE_SIZE is the content of one Value in bytes, in all
 * releases. */
#define RSH_CKPT_CHUNK_BYTES (UINT64_C(512) * 1024 * 1024)

/* A byte source is something that bytes are read from.  pread_fn returns the
 * number of bytes read (fewer than asked only at the end of the file) or
 * -errno. */
struct rsh_byte_source {
	ssize_t (*pread_fn)(void *ctx, void *buf, size_t len, uint64_t offset);
	void *ctx;
	uint64_t size;    /* bytes of the whole file */
	const char *path; /* for messages only */
};

/* An extent is a stretch of content in the file. */
struct rsh_extent {
	uint64_t offset;
	uint64_t length;
};

/* A record is one parameter of a file: the adjacent Values that share a tag,
 * joined as load_checkpoint joins them.  Dims and type are those of the last
 * one; a later Value of the same name that is not adjacent replaces the record,
 * in its earlier place. */
struct rsh_record {
	uint32_t name;          /* id in the names table of the scan */
	uint8_t dtype;          /* enum rsh_dtype */
	uint8_t n_dims;
	bool wide_bf16;         /* BFloat16 stored as float32 (MindSpore <= 2.2):
				 * content is twice the size; an element is the
				 * upper two of its four bytes */
	uint32_t first_dim;     /* index of its dims in rsh_ckpt_index.dims */
	uint32_t first_extent;  /* index of its content in .extents */
	uint32_t n_extents;
	uint64_t content_bytes; /* sum of the extents, as stored */
};

/* An index has all parameters of one file, in the order of first appearance.
 * It does not change after the scan.
 *
 * Dims are as load_checkpoint sees them: the [0] that MindSpore <= 2.2 writes
 * for a scalar is given as no dims when there is content of one element; [0]
 * without content stays an empty vector.  Dims of a `str` stay as stored. */
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
	uint32_t crc; /* the value of the CRC trailer */
	uint32_t n_unsummed; /* records with contents that have no CRC, where
			      * records have CRCs and these were asked for */
};

/* Scans a whole file.  Returns 0 and *out (owned by the caller), or -errno with
 * a sentence that names the path, the parameter and the offset:
 *   -EBADMSG  not a .ckpt, truncated, a content whose size is not what dims
 *             and type say, unknown type, a record without tag or tensor, more
 *             dims than RSH_MAX_DIMS, negative dim, a duplicated field
 *   -ENOTSUP  an encrypted checkpoint (by its magic) or a map parameter
 *   -EIO etc. as pread_fn said.
 * It allocates in proportion to the number of records that are really there. */
int rsh_ckpt_scan(const struct rsh_byte_source *src, struct rsh_names *names,
		  struct rsh_ckpt_index **out, struct rsh_error *err);
void rsh_ckpt_index_free(struct rsh_ckpt_index *index);

/* Makes an empty index with room for so many records, extents and dims, which
 * the caller adds.  NULL: out of memory. */
struct rsh_ckpt_index *rsh_ckpt_index_new(size_t n_records, size_t n_extents,
					  size_t n_dims);
/* Fills by_name: record numbers, ascending by name and, of one name, by number.
 * 0, or -EEXIST if two records have one name, which is then in *twice. */
int rsh_ckpt_index_sort(struct rsh_ckpt_index *index, uint32_t *twice);

/* Reads the whole file that `index` was made of and compares its checksum with
 * that of the CRC trailer; a file without one passes.  Returns 0, -EBADMSG if
 * they differ, -ESTALE if the file became shorter, or what pread_fn gave, with
 * a sentence. */
int rsh_ckpt_check_crc(const struct rsh_byte_source *src,
		       const struct rsh_ckpt_index *index,
		       struct rsh_error *err);

/* Returns the record of a name, NULL if the file has none, in O(log
 * records). */
const struct rsh_record *rsh_ckpt_find(const struct rsh_ckpt_index *index,
				       uint32_t name);
static inline const int64_t *rsh_record_dims(const struct rsh_ckpt_index *ix,
					     const struct rsh_record *r)
{
	return r->n_dims ? ix->dims + r->first_dim : ix->dims;
}
/* Gives where the record's content ends in its file; 0 if it has none. */
uint64_t rsh_record_end(const struct rsh_ckpt_index *ix,
			const struct rsh_record *r);

/* Joins the indexes of files that are laid end to end: the content of file i
 * moves by base[i], and records come in the order of the files. `home` says by
 * name which file's record counts, counted from 1, or 0 where any does; NULL:
 * any does.  Returns 0 and *out (owned by the caller), -ENOMEM, or -EEXIST if
 * two files hold the same name, which is then in *twice. */
int rsh_ckpt_index_join(const struct rsh_ckpt_index *const *files,
			const uint64_t *base, uint32_t n, const uint32_t *home,
			struct rsh_ckpt_index **out, uint32_t *twice);

/* Tells whether both files hold the same records at the same places, so that
 * they can share one index.  file_bytes, has_crc and n_unsummed are compared as
 * well, the value of crc is not. */
bool rsh_ckpt_index_equal(const struct rsh_ckpt_index *a,
			  const struct rsh_ckpt_index *b);
/* Returns the xxh3 of what rsh_ckpt_index_equal() compares. */
uint64_t rsh_ckpt_index_hash(const struct rsh_ckpt_index *index);

/* ---- writing ---- */

/* A shape says what a parameter looks like in a file that is to be written. */
struct rsh_record_shape {
	const char *name;
	size_t name_len;
	enum rsh_dtype dtype;
	uint8_t n_dims;
	const int64_t *dims;
	uint64_t content_bytes;
};

/* Returns in how many chunks a parameter is written.  All but the last have
 * RSH_CKPT_CHUNK_BYTES, and each is a Value of its own that repeats name, dims
 * and type.  A content of 0 bytes is one chunk with empty content. */
uint64_t rsh_ckpt_emit_chunks(uint64_t content_bytes);

/* Returns the bytes of the header (all bytes before the content) of a chunk
 * whose content has chunk_bytes bytes; 0 if the numbers overflow. */
uint64_t rsh_ckpt_header_size(const struct rsh_record_shape *s,
			      uint64_t chunk_bytes);

/* Writes the header of a chunk to buf, which has room for
 * rsh_ckpt_header_size() bytes; returns how many were written. */
size_t rsh_ckpt_header_write(const struct rsh_record_shape *s,
			     uint64_t chunk_bytes, uint8_t *buf);

/* Computes the bytes of the whole parameter, all chunks with their headers;
 * returns false on overflow. */
bool rsh_ckpt_emit_size(const struct rsh_record_shape *s, uint64_t *out);

#endif
