/* SPDX-License-Identifier: Apache-2.0 */
/* wire/torch_item.c writes what torch.save() writes before and after the
 * elements of a tensor:
 *
 *   head   archive/data.pkl     the type, sizes and strides
 *          archive/byteorder    "little"
 *          archive/data/0       only the header of this entry
 *   the elements
 *   tail   archive/version      "3"
 *          the directory of the archive */
#include "config.h"

#include "rsh/wire/torch_item.h"

#include <errno.h>
#include <string.h>
#include <zlib.h>

#include "rsh/util/checked.h"
#include "rsh/wire/pickle_emit.h"
#include "rsh/wire/zip_emit.h"

#define PICKLE_MAX 2048

enum { ENTRY_PICKLE, ENTRY_BYTEORDER, ENTRY_DATA, ENTRY_VERSION, N_ENTRIES };

struct zip_item {
	uint8_t pickle[PICKLE_MAX];
	bool has_data;
	const void *content[N_ENTRIES]; /* NULL: the elements */
	struct rsh_zip_entry entries[N_ENTRIES];
};

int rsh_torch_check_dtype(const struct rsh_record_shape *s,
			  struct rsh_error *err)
{
	if (rsh_torch_dtype_name(s->dtype))
		return 0;
	return rsh_error_set(err, ENOTSUP, "parameter \"%s\" is of type %s, "
			     "which PyTorch does not have; --drop leaves it "
			     "out", s->name, rsh_dtype_name(s->dtype));
}

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

/* Puts a class or function.  Those that were put before are recalled, if there
 * is a place for them. */
static void item_put_global(struct rsh_pickle_out *o, uint32_t *place,
			    const char *module, const char *name)
{
	if (place && *place) {
		rsh_pickle_recall(o, *place - 1);
		return;
	}
	rsh_pickle_put_global(o, module, name);
	if (place)
		*place = 1 + rsh_pickle_remember(o);
}

void rsh_torch_put_tensor(struct rsh_pickle_out *o,
			  const struct rsh_torch_view *v,
			  struct rsh_torch_memo *m)
{
	const char *class = rsh_torch_storage_name(v->dtype);
	const char *type = rsh_torch_dtype_name(v->dtype);

	item_put_global(o, m ? &m->rebuild[!class] : NULL, "torch._utils",
			class ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
	rsh_pickle_put(o, RSH_PICKLE_OP_MARK);
	/* A storage is a persistent id that torch.load() resolves: ("storage",
	 * class, name of the entry, device, number of elements). */
	rsh_pickle_put(o, RSH_PICKLE_OP_MARK);
	rsh_pickle_put_text(o, "storage", 7);
	item_put_global(o, m ? &m->storage[v->dtype] : NULL,
			class ? "torch" : "torch.storage",
			class ? class : "UntypedStorage");
	rsh_pickle_put_text(o, v->key, strlen(v->key));
	rsh_pickle_put_text(o, "cpu", 3);
	rsh_pickle_put_number(o, v->bytes /
			      (class ? rsh_dtype_size(v->dtype) : 1));
	rsh_pickle_put(o, RSH_PICKLE_OP_TUPLE);
	rsh_pickle_put(o, RSH_PICKLE_OP_PERSID);
	rsh_pickle_put_number(o, 0); /* offset of the tensor in it */
	item_put_tuple(o, v->n_dims, v->sizes);
	item_put_tuple(o, v->n_dims, v->strides);
	rsh_pickle_put(o, RSH_PICKLE_OP_FALSE); /* requires_grad */
	item_put_global(o, m ? &m->dictionary : NULL, "collections",
			"OrderedDict");
	rsh_pickle_put(o, RSH_PICKLE_OP_EMPTY_TUPLE);
	rsh_pickle_put(o, RSH_PICKLE_OP_REDUCE); /* backward hooks: none */
	if (!class)
		item_put_global(o, m ? &m->type[v->dtype] : NULL, "torch",
				type);
	rsh_pickle_put(o, RSH_PICKLE_OP_TUPLE);
	rsh_pickle_put(o, RSH_PICKLE_OP_REDUCE);
}

static size_t item_pickle(const struct rsh_record_shape *s,
			  const struct rsh_torch_chunk *c, uint8_t *buf)
{
	struct rsh_pickle_out o = {
		.data = buf, .cap = PICKLE_MAX, .fixed = true
	};
	uint64_t strides[RSH_MAX_DIMS], stride = 1;

	for (unsigned i = s->n_dims; i-- > 0;) {
		const unsigned d = item_dim(s, i);

		strides[d] = stride;
		stride *= rsh_max_u64(c->sizes[d], 1);
	}
	rsh_pickle_begin(&o);
	rsh_torch_put_tensor(&o, &(struct rsh_torch_view){
		.dtype = s->dtype, .n_dims = s->n_dims, .sizes = c->sizes,
		.strides = strides, .key = "0", .bytes = c->bytes,
	}, NULL);
	rsh_pickle_end(&o);
	return o.n;
}

/* ---- the archive ---- */

/* Puts the local header of an entry, and its content if it is known.  The
 * archive has `from` bytes before it, also below.  Returns how many bytes were
 * put. */
static size_t zip_put_local(struct zip_item *z, unsigned e, uint64_t from,
			    uint8_t *buf)
{
	struct rsh_zip_entry *entry = &z->entries[e];
	size_t n;

	entry->offset = from;
	n = rsh_zip_local(entry, e == ENTRY_DATA ? RSH_TORCH_ALIGNMENT : 0, buf);
	if (!z->content[e])
		return n;
	memcpy(buf + n, z->content[e], entry->bytes);
	return n + entry->bytes;
}

/* Puts the directory and the end records of the archive. */
static size_t zip_put_end(const struct zip_item *z, uint64_t from, uint8_t *buf)
{
	size_t n = 0;

	for (unsigned e = 0; e < N_ENTRIES; e++)
		if (e != ENTRY_DATA || z->has_data)
			n += rsh_zip_central(&z->entries[e], buf + n);
	return n + rsh_zip_end(from, n, N_ENTRIES - !z->has_data, buf + n);
}

static void zip_set(struct zip_item *z, unsigned e, const char *name,
		    const void *content, uint64_t bytes)
{
	z->content[e] = content;
	z->entries[e] = (struct rsh_zip_entry){
		.name = name, .bytes = bytes,
		.crc = content ? (uint32_t)crc32(0, content, (uInt)bytes) : 0,
	};
}

static void zip_set_all(struct zip_item *z, const void *pickle, size_t n)
{
	zip_set(z, ENTRY_PICKLE, RSH_TORCH_PICKLE_ENTRY, pickle, n);
	zip_set(z, ENTRY_BYTEORDER, RSH_TORCH_ORDER_ENTRY, "little", 6);
	zip_set(z, ENTRY_VERSION, RSH_TORCH_VERSION_ENTRY, "3\n", 2);
}

static size_t item_head(const struct rsh_record_shape *s,
			const struct rsh_torch_chunk *c, struct zip_item *z,
			uint8_t *buf)
{
	size_t n = 0;

	z->has_data = true;
	zip_set_all(z, z->pickle, item_pickle(s, c, z->pickle));
	zip_set(z, ENTRY_DATA, RSH_TORCH_DATA_ENTRY "0", NULL, c->bytes);
	z->entries[ENTRY_DATA].crc = c->crc;
	for (unsigned e = ENTRY_PICKLE; e <= ENTRY_DATA; e++)
		n += zip_put_local(z, e, n, buf + n);
	return n;
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
	const uint64_t from = item_head(s, c, &z, head) + c->bytes;
	const size_t n = zip_put_local(&z, ENTRY_VERSION, from, buf);

	return n + zip_put_end(&z, from + n, buf + n);
}

size_t rsh_torch_save_pickle(const void *pickle, size_t n, uint8_t *buf)
{
	struct zip_item z = { .has_data = false };
	size_t at = 0;

	zip_set_all(&z, pickle, n);
	for (unsigned e = 0; e < N_ENTRIES; e++)
		if (e != ENTRY_DATA)
			at += zip_put_local(&z, e, at, buf + at);
	return at + zip_put_end(&z, at, buf + at);
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
