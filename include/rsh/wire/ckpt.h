/* SPDX-License-Identifier: Apache-2.0 */
/* wire/ckpt.h - the .ckpt format: where the records of a file are, and the
 * bytes of a record's header.
 *
 * A .ckpt is a serialized `Checkpoint` message (proto/checkpoint.proto): a
 * sequence of length-delimited `Value`s.  In practice each is one tensor, or
 * one chunk of a tensor over 512 MiB.  The file may end in a 17-byte CRC
 * trailer ("crc_num" and ten bytes big-endian), which is not part of the
 * message.
 *
 * A scan reads tags and lengths as a stream.  It skips content, and never
 * unpacks a whole message.
 *
 * Threads: files can be scanned at the same time, also with one table of names.
 * An index does not change after it is made, so any thread may read it; its
 * owner frees it. */
#pragma once

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
/* The length of the CRC trailer. */
#define RSH_CRC_TRAILER_BYTES 17

/* Bytes are read from a byte source.  pread_fn returns the number of bytes read
 * (less than requested only at the end of the file) or -errno. */
struct rsh_byte_source {
	ssize_t (*pread_fn)(void *ctx, void *buf, size_t len, uint64_t offset);
	void *ctx;
	uint64_t size;    /* bytes of the whole file */
	const char *path; /* for messages only */
};

/* An extent is a contiguous part of the file with content. */
struct rsh_extent {
	uint64_t offset;
	uint64_t length;
};

/* A record is one parameter of a file.  Adjacent Values that have the same tag
 * are joined, as load_checkpoint joins them.  Dims and type are those of the
 * last Value.  A later Value of the same name that is not adjacent replaces the
 * record, and the record keeps its earlier place. */
struct rsh_record {
	uint32_t name;          /* id in the names table of the scan */
	uint8_t dtype;          /* enum rsh_dtype */
	uint8_t n_dims;
	/* BFloat16 stored as float32 (MindSpore <= 2.2): content is twice the
	 * size; an element is the upper two of its four bytes */
	bool wide_bf16;
	uint32_t first_dim;     /* index of its dims in rsh_ckpt_index.dims */
	uint32_t first_extent;  /* index of its content in .extents */
	uint32_t n_extents;
	uint64_t content_bytes; /* sum of the extents, as stored */
};

/* An index has all parameters of one file, in the order of first appearance.
 * It does not change after the scan.
 *
 * Dims are as load_checkpoint reads them.  MindSpore <= 2.2 writes [0] for a
 * scalar: with content of one element it becomes no dims; without content it
 * stays an empty vector.  Dims of a `str` stay as stored. */
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
	/* number of records with content but without a CRC; counted only for
	 * formats whose records have CRCs, by a scan that verifies these */
	uint32_t n_unsummed;
	bool summed; /* such a scan found no record without one */
	/* number of records that were left out, since the map of a model says
	 * that another part has them */
	uint32_t n_copies;
	/* What the header of a safetensors file says about the file and no
	 * other member here has: a JSON object of strings, from malloc.  A null
	 * in place of a string: all of it is too long to be kept.  NULL:
	 * nothing. */
	char *metadata;
};
/* This is the longest text of `metadata`. */
#define RSH_INDEX_METADATA_MAX (UINT32_C(1) << 20)

/* Scans a whole file.  Returns 0 and *out (owned by the caller), or -errno with
 * a sentence that names the path, the parameter and the offset:
 *   -EBADMSG  not a .ckpt, truncated, a content whose size does not match
 *             dims and type, unknown type, a record without tag or tensor,
 *             more dims than RSH_MAX_DIMS, negative dim, a duplicated field
 *   -ENOTSUP  an encrypted checkpoint (detected by its magic) or a map
 *             parameter
 *   -EIO etc. from pread_fn.
 * Memory is in proportion to the number of records that are in the file. */
int rsh_ckpt_scan(const struct rsh_byte_source *src, struct rsh_names *names,
		  struct rsh_ckpt_index **out, struct rsh_error *err);
void rsh_ckpt_index_free(struct rsh_ckpt_index *index);

/* Makes an empty index with room for so many records, extents and dims.  The
 * caller adds them.  NULL: out of memory. */
struct rsh_ckpt_index *rsh_ckpt_index_new(size_t n_records, size_t n_extents,
					  size_t n_dims);
/* Fills by_name: record numbers, sorted by name id, then by number.  Returns 0,
 * or -EEXIST if two records have one name; the name is then in *twice. */
int rsh_ckpt_index_sort(struct rsh_ckpt_index *index, uint32_t *twice);

/* Reads the whole file of `index` and compares its checksum with that in the
 * CRC trailer.  A file without a trailer passes.  Returns 0, -EBADMSG if they
 * differ, -ESTALE if the file became shorter, or the error of pread_fn, with a
 * sentence. */
int rsh_ckpt_check_crc(const struct rsh_byte_source *src,
		       const struct rsh_ckpt_index *index,
		       struct rsh_error *err);

/* Returns the record of a name, or NULL if the file has none, in O(log
 * records). */
const struct rsh_record *rsh_ckpt_find(const struct rsh_ckpt_index *index,
				       uint32_t name);
static inline const int64_t *rsh_record_dims(const struct rsh_ckpt_index *ix,
					     const struct rsh_record *r)
{
	return r->n_dims ? ix->dims + r->first_dim : ix->dims;
}
/* A place in the content of a record.  Its members are for the functions
 * alone. */
struct rsh_content {
	const struct rsh_extent *first, *end;
	const struct rsh_extent *at; /* the extent of the place */
	uint64_t begin;              /* of this extent in the content */
};
/* Returns the begin of the content. */
struct rsh_content rsh_record_content(const struct rsh_ckpt_index *ix,
				      const struct rsh_record *r);
/* Moves to a byte of the content, and sets where it is in the file.  Returns
 * how many bytes follow in the file, at least 1, or 0 behind the content.  A
 * move forward passes only the extents between the places. */
uint64_t rsh_content_move(struct rsh_content *c, uint64_t to, uint64_t *offset);
/* Returns whether both records have the same type and shape. */
bool rsh_record_is_alike(const struct rsh_ckpt_index *ia,
			 const struct rsh_record *a,
			 const struct rsh_ckpt_index *ib,
			 const struct rsh_record *b);
/* Returns the offset at which the record's content ends in its file; 0 if it
 * has no content. */
uint64_t rsh_record_end(const struct rsh_ckpt_index *ix,
			const struct rsh_record *r);

/* Joins the indexes of files that are concatenated.  The content of file i
 * moves by base[i], and records are in the order of the files. `home` gives for
 * each name the file whose record is used: 1 is the first file, 0 means any
 * file.  If `home` is NULL, any file is used for all names.  Returns 0 and *out
 * (owned by the caller), -ENOMEM, or -EEXIST if two files have the same name,
 * which is then in *twice. */
int rsh_ckpt_index_join(const struct rsh_ckpt_index *const *files,
			const uint64_t *base, uint32_t n, const uint32_t *home,
			struct rsh_ckpt_index **out, uint32_t *twice);

/* Returns whether both files have the same records at the same places, so that
 * they can share one index.  All other members but the value of crc are
 * compared as well. */
bool rsh_ckpt_index_equal(const struct rsh_ckpt_index *a,
			  const struct rsh_ckpt_index *b);
/* Returns the xxh3 of the values that rsh_ckpt_index_equal() compares. */
uint64_t rsh_ckpt_index_hash(const struct rsh_ckpt_index *index);

/* ---- writing ---- */

/* A shape describes a parameter in a file that is to be written. */
struct rsh_record_shape {
	const char *name;
	size_t name_len;
	enum rsh_dtype dtype;
	uint8_t n_dims;
	const int64_t *dims;
	/* Dimension order[0] changes slowest in the content, and the last one
	 * of `order` fastest.  NULL: row-major order.  Only framings with
	 * `keeps_order` (plan/framing.h) get other orders. */
	const uint8_t *order;
	uint64_t content_bytes;
	uint32_t number; /* of the record in a file that is planned */
};

/* Returns the number of chunks in which a parameter is written.  All but the
 * last have RSH_CKPT_CHUNK_BYTES.  Each chunk is a separate Value that repeats
 * name, dims and type.  A content of 0 bytes is one chunk with empty
 * content. */
uint64_t rsh_ckpt_emit_chunks(uint64_t content_bytes);

/* Returns the size in bytes of the header (all bytes before the content) of a
 * chunk whose content has chunk_bytes bytes; 0 if the numbers overflow. */
uint64_t rsh_ckpt_header_size(const struct rsh_record_shape *s,
			      uint64_t chunk_bytes);

/* Writes the header of a chunk to buf, which has room for
 * rsh_ckpt_header_size() bytes.  Returns the number of bytes written. */
size_t rsh_ckpt_header_write(const struct rsh_record_shape *s,
			     uint64_t chunk_bytes, uint8_t *buf);

/* Computes the size in bytes of the whole parameter: all chunks with their
 * headers.  Returns false on overflow. */
bool rsh_ckpt_emit_size(const struct rsh_record_shape *s, uint64_t *out);
