/* SPDX-License-Identifier: Apache-2.0 */
/* wire/pb_scan_i.h - reads the fields of a protobuf message from a file of any
 * size without unpacking the message.  Only this directory includes it.
 *
 * Numbers in the file are not trusted before they are checked.  rsh_pb_next()
 * checks every field against the end of the message that contains it, so its
 * caller may rely on `offset + length <= end`. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rsh/util/error.h"
#include "rsh/wire/ckpt.h"

#define PB_WINDOW_BYTES ((size_t)64 * 1024)
#define PB_VARINT_MAX 10 /* bytes of a number */

enum pb_wire { PB_VARINT = 0, PB_I64 = 1, PB_LEN = 2, PB_I32 = 5 };

struct pb_field {
	uint32_t number;
	enum pb_wire wire;
	uint64_t value;  /* the number of a PB_VARINT */
	uint64_t offset; /* of the payload */
	uint64_t length;
};

struct pb_scan {
	const struct rsh_byte_source *src;
	struct rsh_error *err;
	const char *name; /* the current parameter, for messages; or NULL */
	uint64_t window_offset;
	size_t window_len;
	uint8_t window[PB_WINDOW_BYTES];
};

/* All functions return 0 or -errno with a sentence in s->err. */

/* Sets "<path>: [parameter "<name>" is] damaged at offset <offset>: .." and
 * returns -EBADMSG. */
int rsh_pb_damaged(struct pb_scan *s, uint64_t offset, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Reads bytes without the window. */
int rsh_pb_read(struct pb_scan *s, void *buf, size_t len, uint64_t offset);
/* Makes the bytes [offset, offset + need) readable at *p until the next call.
 * All of them must be within the file; need <= PB_WINDOW_BYTES. */
int rsh_pb_look(struct pb_scan *s, uint64_t offset, size_t need,
		const uint8_t **p);
/* Reads a number and returns its size in bytes; 0 if it does not end within
 * avail bytes or does not fit into 64 bits. */
size_t rsh_pb_varint(const uint8_t *p, size_t avail, uint64_t *out);
/* Reads the key of the field at `pos` < end, and the number or length after it.
 * f->length is the number in the file, unchecked. */
int rsh_pb_decode(struct pb_scan *s, uint64_t pos, uint64_t end,
		  struct pb_field *f);
/* Reads the field at *pos < end of a message that ends at `end`, and moves *pos
 * past it. */
int rsh_pb_next(struct pb_scan *s, uint64_t *pos, uint64_t end,
		struct pb_field *f);

static inline bool rsh_pb_is(const struct pb_field *f, uint32_t number,
			     enum pb_wire wire)
{
	return f->number == number && f->wire == wire;
}
