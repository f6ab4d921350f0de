/* SPDX-License-Identifier: Apache-2.0 */
/* wire_support.h - bytes to scan and to parse: fixtures, and messages packed
 * by protobuf-c, which knows nothing of the code under test. */
#ifndef WIRE_SUPPORT_H
#define WIRE_SUPPORT_H

#include "rsh/util/error.h"
#include "rsh/util/names.h"
#include "rsh/wire/ckpt.h"
#include "rsh/wire/safetensors.h"
#include "tests.h"

struct buffer {
	uint8_t *data;
	size_t len;
};

/* A file below the tests directory, or of an absolute path. */
struct buffer load_file(const char *name);
#define load_data(name) load_file("unit/data/" name)
void buffer_append(struct buffer *b, const void *data, size_t len);
void buffer_free(struct buffer *b);
#define cleanup_buffer __attribute__((cleanup(buffer_free)))

/* A byte source over a buffer. */
struct rsh_byte_source buffer_source(struct buffer *b);

/* One record as the writer of a checkpoint sees it. */
struct tensor {
	const char *tag;  /* NULL: absent, as all pointers */
	const char *type;
	size_t n_dims;
	const int64_t *dims;
	const void *content;
	size_t content_len;
};
/* Appends the Checkpoint message of one Value, packed by protobuf-c. */
void append_record(struct buffer *b, const struct tensor *t);
#define append_tensor(b, ...) append_record(b, &(struct tensor){ __VA_ARGS__ })

#define DIMS(...) \
	(sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), \
	(int64_t[]){ __VA_ARGS__ }

/* Appends bytes written as hexadecimal digits; blanks are for the reader. */
void append_hex(struct buffer *b, const char *hex);

/* ---- scans of either format ---- */

/* A scan with what it leaves behind. */
struct scanned {
	struct rsh_names *names;
	struct rsh_ckpt_index *index; /* NULL after a failure */
	struct rsh_safetensors_meta meta; /* of a safetensors file */
	struct rsh_error err;
	int rc;
};
void scanned_free(struct scanned *s);
#define cleanup_scanned __attribute__((cleanup(scanned_free)))

/* The scan succeeded. */
void require(const struct scanned *s);
/* It failed with that code and a sentence that has `word` in it. */
void assert_refusal(const struct scanned *s, int code, const char *word);

/* The record of a name, which must be there. */
const struct rsh_record *record(const struct scanned *s, const char *name);
void assert_record(const struct scanned *s, const char *name,
		   enum rsh_dtype dtype, size_t n_dims, const int64_t *dims,
		   uint64_t content_bytes);
/* All content of a record, its extents joined. */
struct buffer content_of(const struct scanned *s, const struct rsh_record *r,
			 const struct buffer *file);
void assert_scanned(const struct scanned *s, const char *name,
		    const struct buffer *file, const void *bytes, size_t len);

#endif
