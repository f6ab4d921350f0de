/* SPDX-License-Identifier: Apache-2.0 */
/* wire/torch_item.c writes what torch.save() writes before and after the
 * elements of a tensor:
 *
 *   head   archive/data.pkl     the type, sizes and strides
 *          archive/byteorder    "little"
 *          archive/data/0       only the header of this entry
 *   the elements
 *   tail   archive/version      "3"
 *          the directory of the archive
 *
 * Numbers of more than 32 bits are in zip64 fields, which are written only if
 * needed. */
#include "config.h"

#include "rsh/wire/torch_item.h"

#include <string.h>
#include <zlib.h>

#include "rsh/util/checked.h"
#include "rsh/wire/pickle_emit.h"

#define PICKLE_MAX 2048
/* An entry with this many bytes, and the entries after it, may need 64 bits. */
#define WIDE ((uint64_t)UINT32_MAX - RSH_TORCH_HEAD_MAX)

enum { ENTRY_PICKLE, ENTRY_BYTEORDER, ENTRY_DATA, ENTRY_VERSION, N_ENTRIES };

struct zip_item {
	uint8_t pickle[PICKLE_MAX];
	bool has_data;
	struct {
		const char *name;
		const void *content; /* NULL: the elements */
		uint64_t bytes;
		uint64_t offset;     /* offset of the local header */
		uint32_t crc;
	} entries[N_ENTRIES];
};

/* These are bytes that are written one after the other. */
struct zip_out {
	uint8_t *p;
	size_t n;
};

/* ---- the pickle ---- */

static void item_put_tuple(struct rsh_pickle_out *o, unsigned n,
			   const uint64_t *v)
{
	rsh_pickle_put(o, RSH_PICKLE_OP_MARK);
	for (unsigned i = 0; i < n; i++)
		rsh_pickle_put_number(o, v[i]);
	rsh_pickle_put(o, RSH_PICKLE_OP_TUPLE);
}

/* Returns the dimension that is the i-th one in the order of the content. */
static unsigned item_dim(const struct rsh_record_shape *s, unsigned i)
{
	return s->order ? s->order[i] : i;
}

static size_t item_pickle(const struct rsh_record_shape *s,
			  const struct rsh_torch_chunk *c, uint8_t *buf)
{
	struct rsh_pickle_out o = {
		.data = buf, .cap = PICKLE_MAX, .fixed = true
	};
	const char *class = rsh_torch_storage_name(s->dtype);
	uint64_t strides[RSH_MAX_DIMS], stride = 1;

	for (unsigned i = s->n_dims; i-- > 0;) {
		const unsigned d = item_dim(s, i);

		strides[d] = stride;
		stride *= rsh_max_u64(c->sizes[d], 1);
	}
	rsh_pickle_begin(&o);
	rsh_pickle_put_global(&o, "torch._utils", class ?
			      "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
	rsh_pickle_put(&o, RSH_PICKLE_OP_MARK);
	/* A storage is a persistent id that torch.load() resolves: ("storage",
	 * class, name of the entry, device, number of elements). */
	rsh_pickle_put(&o, RSH_PICKLE_OP_MARK);
	rsh_pickle_put_text(&o, "storage", 7);
	rsh_pickle_put_global(&o, class ? "torch" : "torch.storage",
			      class ? class : "UntypedStorage");
	rsh_pickle_put_text(&o, "0", 1);
	rsh_pickle_put_text(&o, "cpu", 3);
	rsh_pickle_put_number(&o, c->bytes /
				  (class ? rsh_dtype_size(s->dtype) : 1));
	rsh_pickle_put(&o, RSH_PICKLE_OP_TUPLE);
	rsh_pickle_put(&o, RSH_PICKLE_OP_PERSID);
	rsh_pickle_put_number(&o, 0); /* offset of the tensor in it */
	item_put_tuple(&o, s->n_dims, c->sizes);
	item_put_tuple(&o, s->n_dims, strides);
	rsh_pickle_put(&o, RSH_PICKLE_OP_FALSE); /* requires_grad */
	rsh_pickle_put_global(&o, "collections", "OrderedDict");
	rsh_pickle_put(&o, RSH_PICKLE_OP_EMPTY_TUPLE);
	rsh_pickle_put(&o, RSH_PICKLE_OP_REDUCE); /* backward hooks: none */
	if (!class)
		rsh_pickle_put_global(&o, "torch",
				      rsh_torch_dtype_name(s->dtype));
	rsh_pickle_put(&o, RSH_PICKLE_OP_TUPLE);
	rsh_pickle_put(&o, RSH_PICKLE_OP_REDUCE);
	rsh_pickle_end(&o);
	return o.n;
}

/* ---- the archive ---- */

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
static void zip_put_common(struct zip_out *o, const struct zip_item *z,
			   unsigned e, size_t n_extra)
{
	const uint64_t bytes = z->entries[e].bytes;
	const uint64_t shown = bytes >= WIDE ? UINT32_MAX : bytes;

	zip_num(o, 2, bytes >= WIDE ? 45 : 20); /* version needed */
	zip_num(o, 2, 0);                       /* flags */
	zip_num(o, 2, 0);                       /* method: stored */
	zip_num(o, 4, 0x00210000);              /* 1 January 1980 */
	zip_num(o, 4, z->entries[e].crc);
	zip_num(o, 4, shown);
	zip_num(o, 4, shown);
	zip_num(o, 2, strlen(z->entries[e].name));
	zip_num(o, 2, n_extra);
}

/* Puts the local header of an entry, and stores its offset. */
static void zip_put_local(struct zip_out *o, struct zip_item *z, unsigned e,
			  size_t from)
{
	const bool wide = z->entries[e].bytes >= WIDE;
	size_t n_extra = wide ? 20 : 0, pad = 0, end;

	z->entries[e].offset = from + o->n;
	end = from + o->n + 30 + strlen(z->entries[e].name) + n_extra;
	if (e == ENTRY_DATA) {
		pad = (RSH_TORCH_ALIGNMENT - (end + 4) % RSH_TORCH_ALIGNMENT) %
		      RSH_TORCH_ALIGNMENT;
		n_extra += 4 + pad;
	}
	zip_num(o, 4, 0x04034b50);
	zip_put_common(o, z, e, n_extra);
	zip_put(o, z->entries[e].name, strlen(z->entries[e].name));
	if (wide) {
		zip_num(o, 2, 1);
		zip_num(o, 2, 16);
		zip_num(o, 8, z->entries[e].bytes);
		zip_num(o, 8, z->entries[e].bytes);
	}
	if (e == ENTRY_DATA) {
		/* torch also pads with a field of this name. */
		zip_put(o, "FB", 2);
		zip_num(o, 2, pad);
		memset(o->p + o->n, 0, pad);
		o->n += pad;
	}
	if (z->entries[e].content)
		zip_put(o, z->entries[e].content, z->entries[e].bytes);
}

/* Puts an entry of the directory. */
static void zip_put_central(struct zip_out *o, const struct zip_item *z,
			    unsigned e)
{
	const uint64_t bytes = z->entries[e].bytes;
	const uint64_t offset = z->entries[e].offset;
	const size_t n_fields = (bytes >= WIDE ? 16 : 0) +
				(offset >= WIDE ? 8 : 0);

	zip_num(o, 4, 0x02014b50);
	zip_num(o, 2, n_fields ? 45 : 20); /* version made by */
	zip_put_common(o, z, e, n_fields ? 4 + n_fields : 0);
	zip_num(o, 2, 0); /* bytes of a comment */
	zip_num(o, 2, 0); /* disk */
	zip_num(o, 2, 0); /* attributes */
	zip_num(o, 4, 0);
	zip_num(o, 4, offset >= WIDE ? UINT32_MAX : offset);
	zip_put(o, z->entries[e].name, strlen(z->entries[e].name));
	if (!n_fields)
		return;
	zip_num(o, 2, 1);
	zip_num(o, 2, n_fields);
	if (bytes >= WIDE) {
		zip_num(o, 8, bytes);
		zip_num(o, 8, bytes);
	}
	if (offset >= WIDE)
		zip_num(o, 8, offset);
}

/* Puts the directory and the end records of the archive; the archive has `from`
 * bytes before those of `o`. */
static void zip_put_end(struct zip_out *o, const struct zip_item *z,
			uint64_t from)
{
	const uint64_t at = from + o->n;
	unsigned n = 0;
	uint64_t bytes, end;

	for (unsigned e = 0; e < N_ENTRIES; e++) {
		if (e == ENTRY_DATA && !z->has_data)
			continue;
		zip_put_central(o, z, e);
		n++;
	}
	end = from + o->n;
	bytes = end - at;
	if (at >= WIDE) {
		zip_num(o, 4, 0x06064b50);
		zip_num(o, 8, 44); /* bytes of this record after this field */
		zip_num(o, 2, 45);
		zip_num(o, 2, 45);
		zip_num(o, 8, 0);  /* disks */
		zip_num(o, 8, n);
		zip_num(o, 8, n);
		zip_num(o, 8, bytes);
		zip_num(o, 8, at);
		zip_num(o, 4, 0x07064b50);
		zip_num(o, 4, 0);
		zip_num(o, 8, end);
		zip_num(o, 4, 1);
	}
	zip_num(o, 4, 0x06054b50);
	zip_num(o, 4, 0);
	zip_num(o, 2, n);
	zip_num(o, 2, n);
	zip_num(o, 4, bytes);
	zip_num(o, 4, at >= WIDE ? UINT32_MAX : at);
	zip_num(o, 2, 0);
}

static void zip_set(struct zip_item *z, unsigned e, const char *name,
		    const void *content, uint64_t bytes)
{
	z->entries[e].name = name;
	z->entries[e].content = content;
	z->entries[e].bytes = bytes;
	z->entries[e].crc = content ? (uint32_t)crc32(0, content, (uInt)bytes) :
				      0;
}

static void zip_set_all(struct zip_item *z, const void *pickle, size_t n)
{
	zip_set(z, ENTRY_PICKLE, "archive/data.pkl", pickle, n);
	zip_set(z, ENTRY_BYTEORDER, "archive/byteorder", "little", 6);
	zip_set(z, ENTRY_VERSION, "archive/version", "3\n", 2);
}

static size_t item_head(const struct rsh_record_shape *s,
			const struct rsh_torch_chunk *c, struct zip_item *z,
			uint8_t *buf)
{
	struct zip_out o = { buf, 0 };

	z->has_data = true;
	zip_set_all(z, z->pickle, item_pickle(s, c, z->pickle));
	zip_set(z, ENTRY_DATA, "archive/data/0", NULL, c->bytes);
	z->entries[ENTRY_DATA].crc = c->crc;
	for (unsigned e = ENTRY_PICKLE; e <= ENTRY_DATA; e++)
		zip_put_local(&o, z, e, 0);
	return o.n;
}

size_t rsh_torch_item_head(const struct rsh_record_shape *s,
			   const struct rsh_torch_chunk *c, uint8_t *buf)
{
	struct zip_item z;

	return item_head(s, c, &z, buf);
}

size_t rsh_torch_item_tail(const struct rsh_record_shape *s,
			   const struct rsh_torch_chunk *c, uint8_t *buf)
{
	uint8_t head[RSH_TORCH_HEAD_MAX];
	struct zip_item z;
	struct zip_out o = { buf, 0 };
	const uint64_t from = item_head(s, c, &z, head) + c->bytes;

	zip_put_local(&o, &z, ENTRY_VERSION, from);
	zip_put_end(&o, &z, from);
	return o.n;
}

size_t rsh_torch_save_pickle(const void *pickle, size_t n, uint8_t *buf)
{
	struct zip_item z = { .has_data = false };
	struct zip_out o = { buf, 0 };

	zip_set_all(&z, pickle, n);
	zip_put_local(&o, &z, ENTRY_PICKLE, 0);
	zip_put_local(&o, &z, ENTRY_BYTEORDER, 0);
	zip_put_local(&o, &z, ENTRY_VERSION, 0);
	zip_put_end(&o, &z, 0);
	return o.n;
}

/* ---- chunks ---- */

/* Returns the size of the i-th dimension in the order of the content. */
static uint64_t item_size(const struct rsh_record_shape *s, unsigned i)
{
	return (uint64_t)s->dims[item_dim(s, i)];
}

uint64_t rsh_torch_chunk_bytes(const struct rsh_record_shape *s)
{
	const uint64_t max = s->order ? RSH_TORCH_ORDERED_BYTES :
					RSH_TORCH_CHUNK_BYTES;
	uint64_t inner = s->content_bytes, n;
	unsigned d = 0;

	if (inner <= max)
		return inner;
	/* `inner` is then the number of bytes of one step along the d-th
	 * dimension. */
	while (d < s->n_dims && item_size(s, d) == 1)
		d++;
	inner /= item_size(s, d);
	if (inner <= max)
		return max / inner * inner;
	/* The parts of a row must be equal.  So the number of steps along the
	 * next dimensions must divide the dimension. */
	for (d++; d < s->n_dims; d++) {
		uint64_t step = inner / item_size(s, d);

		if (step > max)
			inner = step;
		else
			break;
	}
	/* For a loader, chunks much smaller than that cost more than a large
	 * one. */
	for (n = 2; d < s->n_dims && inner / n >= max / 4; n++)
		if (item_size(s, d) % n == 0 && inner / n <= max)
			return inner / n;
	return inner;
}

void rsh_torch_chunk_at(const struct rsh_record_shape *s, uint64_t at,
			uint64_t chunk_bytes, struct rsh_torch_chunk *out)
{
	const unsigned element = rsh_dtype_size(s->dtype);
	uint64_t left, index = at / element;

	out->bytes = rsh_min_u64(chunk_bytes, s->content_bytes - at);
	out->crc = 0;
	left = out->bytes / element;
	for (unsigned i = s->n_dims; i-- > 0;) {
		const uint64_t size = item_size(s, i);
		const unsigned d = item_dim(s, i);

		out->offsets[d] = size ? index % size : 0;
		index = size ? index / size : 0;
		out->sizes[d] = s->content_bytes ? rsh_min_u64(left, size) :
						   size;
		left = size ? rsh_max_u64(left / size, 1) : 0;
	}
}
