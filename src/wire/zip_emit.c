/* SPDX-License-Identifier: Apache-2.0 */
/* wire/zip_emit.c writes headers and directories of zip archives. */
#include "config.h"

#include "rsh/wire/zip_emit.h"

#include <stdbool.h>
#include <string.h>

/* A number from this on may need 64 bits. */
#define WIDE ((uint64_t)UINT32_MAX - 4096)

/* These are bytes that are written one after the other. */
struct zip_out {
	uint8_t *p;
	size_t n;
};

static void zip_put(struct zip_out *o, const void *p, size_t n)
{
	memcpy(o->p + o->n, p, n);
	o->n += n;
}

/* Puts a little-endian number of `width` bytes. */
static void zip_num(struct zip_out *o, unsigned width, uint64_t v)
{
	for (unsigned i = 0; i < width; i++)
		o->p[o->n++] = (uint8_t)(v >> 8 * i);
}

/* Puts the fields that a local header and the directory have in common. */
static void zip_put_common(struct zip_out *o, const struct rsh_zip_entry *e,
			   size_t n_extra)
{
	const uint64_t shown = e->bytes >= WIDE ? UINT32_MAX : e->bytes;

	zip_num(o, 2, e->bytes >= WIDE ? 45 : 20); /* version needed */
	zip_num(o, 2, 0);                          /* flags */
	zip_num(o, 2, 0);                          /* method: stored */
	zip_num(o, 4, 0x00210000);                 /* 1 January 1980 */
	zip_num(o, 4, e->crc);
	zip_num(o, 4, shown);
	zip_num(o, 4, shown);
	zip_num(o, 2, strlen(e->name));
	zip_num(o, 2, n_extra);
}

size_t rsh_zip_local(const struct rsh_zip_entry *e, unsigned alignment,
		     uint8_t *buf)
{
	const bool wide = e->bytes >= WIDE;
	struct zip_out o = { buf, 0 };
	size_t n_extra = wide ? 20 : 0, pad = 0;

	if (alignment) {
		const uint64_t end = e->offset + 30 + strlen(e->name) + n_extra;

		pad = (alignment - (end + 4) % alignment) % alignment;
		n_extra += 4 + pad;
	}
	zip_num(&o, 4, 0x04034b50);
	zip_put_common(&o, e, n_extra);
	zip_put(&o, e->name, strlen(e->name));
	if (wide) {
		zip_num(&o, 2, 1);
		zip_num(&o, 2, 16);
		zip_num(&o, 8, e->bytes);
		zip_num(&o, 8, e->bytes);
	}
	if (alignment) {
		/* torch also pads with a field of this name. */
		zip_put(&o, "FB", 2);
		zip_num(&o, 2, pad);
		memset(o.p + o.n, 0, pad);
		o.n += pad;
	}
	return o.n;
}

size_t rsh_zip_central(const struct rsh_zip_entry *e, uint8_t *buf)
{
	const size_t n_fields = (e->bytes >= WIDE ? 16 : 0) +
				(e->offset >= WIDE ? 8 : 0);
	struct zip_out o = { buf, 0 };

	zip_num(&o, 4, 0x02014b50);
	zip_num(&o, 2, n_fields ? 45 : 20); /* version made by */
	zip_put_common(&o, e, n_fields ? 4 + n_fields : 0);
	zip_num(&o, 2, 0); /* bytes of a comment */
	zip_num(&o, 2, 0); /* disk */
	zip_num(&o, 2, 0); /* attributes */
	zip_num(&o, 4, 0);
	zip_num(&o, 4, e->offset >= WIDE ? UINT32_MAX : e->offset);
	zip_put(&o, e->name, strlen(e->name));
	if (!n_fields)
		return o.n;
	zip_num(&o, 2, 1);
	zip_num(&o, 2, n_fields);
	if (e->bytes >= WIDE) {
		zip_num(&o, 8, e->bytes);
		zip_num(&o, 8, e->bytes);
	}
	if (e->offset >= WIDE)
		zip_num(&o, 8, e->offset);
	return o.n;
}

size_t rsh_zip_end(uint64_t at, uint64_t bytes, uint64_t n, uint8_t *buf)
{
	const bool many = n >= UINT16_MAX;
	struct zip_out o = { buf, 0 };

	if (at >= WIDE || many) {
		zip_num(&o, 4, 0x06064b50);
		zip_num(&o, 8, 44); /* bytes of this record after this field */
		zip_num(&o, 2, 45);
		zip_num(&o, 2, 45);
		zip_num(&o, 8, 0);  /* disks */
		zip_num(&o, 8, n);
		zip_num(&o, 8, n);
		zip_num(&o, 8, bytes);
		zip_num(&o, 8, at);
		zip_num(&o, 4, 0x07064b50);
		zip_num(&o, 4, 0);
		zip_num(&o, 8, at + bytes);
		zip_num(&o, 4, 1);
	}
	zip_num(&o, 4, 0x06054b50);
	zip_num(&o, 4, 0);
	zip_num(&o, 2, many ? UINT16_MAX : n);
	zip_num(&o, 2, many ? UINT16_MAX : n);
	zip_num(&o, 4, bytes);
	zip_num(&o, 4, at >= WIDE ? UINT32_MAX : at);
	zip_num(&o, 2, 0);
	return o.n;
}
