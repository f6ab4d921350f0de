/* SPDX-License-Identifier: Apache-2.0 */
/* wire/ckpt_emit.c computes the size of the headers of a .ckpt's records and
 * writes them. */
#include "rsh/wire/ckpt.h"

#include <string.h>

#include "rsh/util/checked.h"

/* These are the keys of the fields of proto/checkpoint.proto: number << 3 |
 * wire type.  Each is one byte. */
enum {
	KEY_VALUE = 1 << 3 | 2,
	KEY_TAG = 1 << 3 | 2,
	KEY_TENSOR = 2 << 3 | 2,
	KEY_DIM = 1 << 3 | 0,
	KEY_TYPE = 2 << 3 | 2,
	KEY_CONTENT = 3 << 3 | 2,
};

static unsigned varint_size(uint64_t v)
{
	unsigned bits = 64 - (unsigned)__builtin_clzll(v | 1);

	return (bits + 6) / 7;
}

static uint8_t *put_key(uint8_t *p, uint8_t key, uint64_t v)
{
	*p++ = key;
	for (; v >= 0x80; v >>= 7)
		*p++ = (uint8_t)(v | 0x80);
	*p++ = (uint8_t)v;
	return p;
}

static uint8_t *put_text(uint8_t *p, uint8_t key, const char *s, size_t len)
{
	p = put_key(p, key, len);
	memcpy(p, s, len);
	return p + len;
}

/* Computes the size of a field in bytes: its key, length and payload.  Returns
 * false on overflow. */
static bool field_size(uint64_t payload, uint64_t *out)
{
	return rsh_add_u64(payload, 1 + varint_size(payload), out);
}

/* These are the sizes in bytes of the three nested messages of one chunk. */
struct lengths {
	uint64_t tensor;
	uint64_t value;
	uint64_t record; /* the whole Checkpoint message */
};

static bool measure(const struct rsh_record_shape *s, uint64_t chunk_bytes,
		    struct lengths *len)
{
	size_t type_len = strlen(rsh_dtype_name(s->dtype));
	uint64_t tag, tensor, part;

	tensor = 1 + varint_size(type_len) + type_len;
	for (unsigned i = 0; i < s->n_dims; i++)
		tensor += 1 + varint_size((uint64_t)s->dims[i]);
	if (!field_size(chunk_bytes, &part) ||
	    !rsh_add_u64(tensor, part, &len->tensor))
		return false;
	return field_size(s->name_len, &tag) &&
	       field_size(len->tensor, &part) &&
	       rsh_add_u64(tag, part, &len->value) &&
	       field_size(len->value, &len->record);
}

uint64_t rsh_ckpt_emit_chunks(uint64_t content_bytes)
{
	if (!content_bytes)
		return 1;
	return (content_bytes - 1) / RSH_CKPT_CHUNK_BYTES + 1;
}

uint64_t rsh_ckpt_header_size(const struct rsh_record_shape *s,
			      uint64_t chunk_bytes)
{
	struct lengths len;

	if (!measure(s, chunk_bytes, &len))
		return 0;
	return len.record - chunk_bytes;
}

size_t rsh_ckpt_header_write(const struct rsh_record_shape *s,
			     uint64_t chunk_bytes, uint8_t *buf)
{
	const char *type = rsh_dtype_name(s->dtype);
	struct lengths len;
	uint8_t *p = buf;

	if (!measure(s, chunk_bytes, &len))
		return 0;
	p = put_key(p, KEY_VALUE, len.value);
	p = put_text(p, KEY_TAG, s->name, s->name_len);
	p = put_key(p, KEY_TENSOR, len.tensor);
	for (unsigned i = 0; i < s->n_dims; i++)
		p = put_key(p, KEY_DIM, (uint64_t)s->dims[i]);
	p = put_text(p, KEY_TYPE, type, strlen(type));
	p = put_key(p, KEY_CONTENT, chunk_bytes);
	return (size_t)(p - buf);
}

bool rsh_ckpt_emit_size(const struct rsh_record_shape *s, uint64_t *out)
{
	uint64_t full = rsh_ckpt_emit_chunks(s->content_bytes) - 1;
	uint64_t rest = s->content_bytes - full * RSH_CKPT_CHUNK_BYTES;
	struct lengths len;
	uint64_t total;

	if (!measure(s, RSH_CKPT_CHUNK_BYTES, &len) ||
	    !rsh_mul_u64(full, len.record, &total) ||
	    !measure(s, rest, &len))
		return false;
	return rsh_add_u64(total, len.record, out);
}
