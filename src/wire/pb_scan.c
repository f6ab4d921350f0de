/* SPDX-License-Identifier: Apache-2.0 */
/* wire/pb_scan.c reads fields of protobuf messages through a small window,
 * which skips content. */
#include "pb_scan_i.h"

#include <inttypes.h>
#include <stdarg.h>

#include "rsh/util/checked.h"
#include "rsh/wire/bytes.h"

/* After a jump over more than NEAR_BYTES of content the scan reads JUMP_BYTES:
 * the next header is rarely longer, and then content follows again. */
#define NEAR_BYTES ((size_t)4 * 1024)
#define JUMP_BYTES ((size_t)512)

int rsh_pb_damaged(struct pb_scan *s, uint64_t offset, const char *fmt, ...)
{
	va_list ap;
	int rc;

	va_start(ap, fmt);
	rc = rsh_bytes_vdamaged(s->src, s->name, offset, s->err, fmt, ap);
	va_end(ap);
	return rc;
}

/* ---- the window ---- */

static int pb_read_some(struct pb_scan *s, void *buf, size_t len,
			uint64_t offset, size_t at_least, size_t *got)
{
	int rc = rsh_bytes_read_some(s->src, buf, len, offset, got, s->err);

	if (rc == 0 && *got < at_least)
		return rsh_pb_damaged(s, offset + *got, "the file ends here, "
				      "though it has %" PRIu64 " bytes",
				      s->src->size);
	return rc;
}

int rsh_pb_read(struct pb_scan *s, void *buf, size_t len, uint64_t offset)
{
	size_t got;

	return pb_read_some(s, buf, len, offset, len, &got);
}

int rsh_pb_look(struct pb_scan *s, uint64_t offset, size_t need,
		const uint8_t **p)
{
	int rc;

	if (offset < s->window_offset ||
	    offset + need > s->window_offset + s->window_len) {
		bool onward =
			offset >= s->window_offset &&
			offset <= s->window_offset + s->window_len + NEAR_BYTES;
		uint64_t len =
			onward || need > JUMP_BYTES ? PB_WINDOW_BYTES : JUMP_BYTES;

		len = rsh_min_u64(len, s->src->size - offset);
		s->window_len = 0;
		rc = pb_read_some(s, s->window, len, offset, need,
				  &s->window_len);
		s->window_offset = offset;
		if (rc)
			return rc;
	}
	*p = s->window + (offset - s->window_offset);
	return 0;
}

/* ---- protobuf fields ---- */

size_t rsh_pb_varint(const uint8_t *p, size_t avail, uint64_t *out)
{
	uint64_t v = 0;

	for (size_t i = 0; i < avail && i < PB_VARINT_MAX; i++) {
		v |= (uint64_t)(p[i] & 0x7f) << (7 * i);
		if (p[i] & 0x80)
			continue;
		if (i == PB_VARINT_MAX - 1 && p[i] > 1)
			return 0;
		*out = v;
		return i + 1;
	}
	return 0;
}

int rsh_pb_decode(struct pb_scan *s, uint64_t pos, uint64_t end,
		  struct pb_field *f)
{
	size_t avail = rsh_min_u64(end - pos, 2 * PB_VARINT_MAX);
	const uint8_t *p;
	uint64_t key;
	size_t taken, more = 0;
	int rc = rsh_pb_look(s, pos, avail, &p);

	if (rc)
		return rc;
	taken = rsh_pb_varint(p, avail, &key);
	if (!taken || key > UINT32_MAX || key >> 3 == 0)
		return rsh_pb_damaged(s, pos, "no protobuf field begins here");
	f->number = (uint32_t)(key >> 3);
	f->wire = (enum pb_wire)(key & 7);
	f->value = 0;
	switch (f->wire) {
	case PB_VARINT:
	case PB_LEN:
		more = rsh_pb_varint(p + taken, avail - taken, &f->value);
		if (!more)
			return rsh_pb_damaged(s, pos, "a number is cut short or too long");
		f->length = f->wire == PB_LEN ? f->value : 0;
		break;
	case PB_I64:
		f->length = 8;
		break;
	case PB_I32:
		f->length = 4;
		break;
	default:
		return rsh_pb_damaged(s, pos, "a field of wire type %d",
				      (int)f->wire);
	}
	f->offset = pos + taken + more;
	return 0;
}

int rsh_pb_next(struct pb_scan *s, uint64_t *pos, uint64_t end,
		struct pb_field *f)
{
	int rc = rsh_pb_decode(s, *pos, end, f);

	if (rc)
		return rc;
	if (f->length > end - f->offset)
		return rsh_pb_damaged(s, f->offset,
				      "a field of %" PRIu64
				      " bytes in a message that has %" PRIu64
				      " left", f->length, end - f->offset);
	*pos = f->offset + f->length;
	return 0;
}
