/* SPDX-License-Identifier: Apache-2.0 */
/* wire/index_codec.c encodes and decodes indexes.  Numbers are little-endian
 * and of fixed width:
 *
 *   u64 xxh3 of all that follows
 *   u32 records, u32 extents, u32 dims, u32 flags, u64 file_bytes
 *   per record: u32 length of the name, u32 extents, u8 type, u8 dims,
 *     u8 wide_bf16, the name, one u64 for each dim, two for each extent
 *   the metadata up to the end, if a flag says so */
#include "rsh/wire/index_codec.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "rsh/util/checked.h"
#include "rsh/wire/bytes.h"

#define SUM_BYTES 8
#define HEAD_BYTES (SUM_BYTES + 24)
#define RECORD_BYTES 11 /* without name, dims and extents */
#define DIM_BYTES 8
#define EXTENT_BYTES 16
#define FLAG_CRC 1u
#define FLAG_METADATA 2u

/* ---- writing ---- */

static uint8_t *codec_put(uint8_t *p, uint64_t v, unsigned bytes)
{
	for (unsigned i = 0; i < bytes; i++)
		*p++ = (uint8_t)(v >> (8 * i));
	return p;
}

static uint8_t *put_record(uint8_t *p, const struct rsh_ckpt_index *ix,
			   const struct rsh_record *r, const char *name)
{
	size_t name_len = strlen(name);
	const int64_t *dims = rsh_record_dims(ix, r);

	p = codec_put(p, name_len, 4);
	p = codec_put(p, r->n_extents, 4);
	p = codec_put(p, r->dtype, 1);
	p = codec_put(p, r->n_dims, 1);
	p = codec_put(p, r->wide_bf16, 1);
	memcpy(p, name, name_len);
	p += name_len;
	for (unsigned i = 0; i < r->n_dims; i++)
		p = codec_put(p, (uint64_t)dims[i], DIM_BYTES);
	for (uint32_t i = 0; i < r->n_extents; i++) {
		p = codec_put(p, ix->extents[r->first_extent + i].offset, 8);
		p = codec_put(p, ix->extents[r->first_extent + i].length, 8);
	}
	return p;
}

int rsh_index_encode(const struct rsh_ckpt_index *ix,
		     const struct rsh_names *names, uint8_t **out, size_t *len)
{
	const size_t metadata = ix->metadata ? strlen(ix->metadata) : 0;
	uint32_t n_extents = 0, n_dims = 0;
	uint8_t *data, *p;

	*len = HEAD_BYTES + metadata;
	/* The arrays of a scan may have entries that no record uses. */
	for (uint32_t i = 0; i < ix->n_records; i++) {
		const struct rsh_record *r = &ix->records[i];

		n_extents += r->n_extents;
		n_dims += r->n_dims;
		*len += RECORD_BYTES + strlen(rsh_names_text(names, r->name)) +
			(size_t)r->n_dims * DIM_BYTES +
			(size_t)r->n_extents * EXTENT_BYTES;
	}
	data = malloc(*len);
	if (!data)
		return -ENOMEM;
	p = codec_put(data + SUM_BYTES, ix->n_records, 4);
	p = codec_put(p, n_extents, 4);
	p = codec_put(p, n_dims, 4);
	p = codec_put(p, (ix->has_crc ? FLAG_CRC : 0) |
		      (metadata ? FLAG_METADATA : 0), 4);
	p = codec_put(p, ix->file_bytes, 8);
	for (uint32_t i = 0; i < ix->n_records; i++)
		p = put_record(p, ix, &ix->records[i],
			       rsh_names_text(names, ix->records[i].name));
	if (metadata)
		memcpy(p, ix->metadata, metadata);
	codec_put(data, XXH3_64bits(data + SUM_BYTES, *len - SUM_BYTES),
		  SUM_BYTES);
	*out = data;
	return 0;
}

/* ---- reading ---- */

struct reader {
	const uint8_t *p;
	size_t left;
	struct rsh_names *names;
	struct rsh_ckpt_index *index;
	uint32_t max_extents, max_dims; /* the numbers in the head */
};

/* Takes the next n bytes; returns NULL if there are fewer. */
static const uint8_t *take(struct reader *r, size_t n)
{
	const uint8_t *p = r->p;

	if (n > r->left)
		return NULL;
	r->p += n;
	r->left -= n;
	return p;
}

/* Returns whether the size of a record's content matches dims and type, as the
 * scans check it. */
static bool codec_content_fits(const struct reader *r,
			       const struct rsh_record *rec)
{
	uint64_t elements, bytes;

	if (rec->dtype == RSH_DTYPE_STR)
		return !rec->wide_bf16 && rec->content_bytes &&
		       rec->content_bytes % 4 == 0;
	if (!rsh_product_i64(rsh_record_dims(r->index, rec), rec->n_dims,
			     &elements) ||
	    !rsh_mul_u64(elements, rsh_dtype_size(rec->dtype), &bytes))
		return false;
	if (!rec->wide_bf16)
		return rec->content_bytes == bytes;
	return rec->dtype == RSH_DTYPE_BFLOAT16 && bytes &&
	       rec->content_bytes % 2 == 0 && rec->content_bytes / 2 == bytes;
}

static bool codec_take_record(struct reader *r)
{
	struct rsh_ckpt_index *ix = r->index;
	struct rsh_record *rec = &ix->records[ix->n_records];
	const uint8_t *head = take(r, RECORD_BYTES), *name, *p;
	uint32_t len;

	if (!head)
		return false;
	len = rsh_le32(head);
	*rec = (struct rsh_record){
		.n_extents = rsh_le32(head + 4), .dtype = head[8],
		.n_dims = head[9], .wide_bf16 = head[10] == 1,
		.first_dim = ix->n_dims, .first_extent = ix->n_extents,
	};
	name = take(r, len);
	p = take(r, (size_t)rec->n_dims * DIM_BYTES);
	if (rec->dtype == RSH_DTYPE_UNKNOWN || rec->dtype >= RSH_DTYPE_COUNT ||
	    rec->n_dims > RSH_MAX_DIMS || head[10] > 1 || !name || !len ||
	    memchr(name, '\0', len) || !p ||
	    rec->n_dims > r->max_dims - ix->n_dims ||
	    rec->n_extents > r->max_extents - ix->n_extents)
		return false;
	rec->name = rsh_names_add(r->names, (const char *)name, len);
	for (unsigned i = 0; i < rec->n_dims; i++, p += DIM_BYTES) {
		if (rsh_le64(p) > INT64_MAX)
			return false;
		ix->dims[ix->n_dims++] = (int64_t)rsh_le64(p);
	}
	for (uint32_t i = 0; i < rec->n_extents; i++) {
		struct rsh_extent *e = &ix->extents[ix->n_extents++];

		p = take(r, EXTENT_BYTES);
		if (!p)
			return false;
		*e = (struct rsh_extent){ rsh_le64(p), rsh_le64(p + 8) };
		if (!e->length || e->offset > ix->file_bytes ||
		    e->length > ix->file_bytes - e->offset ||
		    !rsh_add_u64(rec->content_bytes, e->length,
				 &rec->content_bytes))
			return false;
	}
	if (!codec_content_fits(r, rec))
		return false;
	ix->n_records++;
	return true;
}

/* Takes all that is left. */
static int codec_take_metadata(struct reader *r)
{
	const size_t n = r->left;
	const uint8_t *text = take(r, n);

	if (!n || n > RSH_INDEX_METADATA_MAX || memchr(text, '\0', n))
		return -EBADMSG;
	r->index->metadata = calloc(n + 1, 1);
	if (!r->index->metadata)
		return -ENOMEM;
	memcpy(r->index->metadata, text, n);
	return 0;
}

static int read_index(struct reader *r)
{
	const uint8_t *head = r->p;
	const uint32_t flags = rsh_le32(head + 12);
	uint32_t n = rsh_le32(head), twice;
	int rc;

	if (flags > (FLAG_CRC | FLAG_METADATA))
		return -EBADMSG;
	r->max_extents = rsh_le32(head + 4);
	r->max_dims = rsh_le32(head + 8);
	r->p += HEAD_BYTES - SUM_BYTES;
	r->left -= HEAD_BYTES - SUM_BYTES;
	/* Reserves room for n records and for the numbers of extents and dims
	 * in the head.  The data must be long enough for all of them, so that
	 * memory is allocated only for what the data contains. */
	if ((uint64_t)n * RECORD_BYTES +
		    (uint64_t)r->max_extents * EXTENT_BYTES +
		    (uint64_t)r->max_dims * DIM_BYTES > r->left)
		return -EBADMSG;
	r->index = rsh_ckpt_index_new(n, r->max_extents, r->max_dims);
	if (!r->index)
		return -ENOMEM;
	r->index->has_crc = flags & FLAG_CRC;
	r->index->file_bytes = rsh_le64(head + 16);
	while (r->index->n_records < n) {
		if (!codec_take_record(r))
			return -EBADMSG;
		if (r->index->records[r->index->n_records - 1].name ==
		    RSH_NAME_NONE)
			return -ENOMEM;
	}
	rc = flags & FLAG_METADATA ? codec_take_metadata(r) : 0;
	if (rc)
		return rc;
	if (r->left || r->index->n_extents != r->max_extents ||
	    r->index->n_dims != r->max_dims)
		return -EBADMSG;
	return rsh_ckpt_index_sort(r->index, &twice) ? -EBADMSG : 0;
}

int rsh_index_decode(const uint8_t *data, size_t len, struct rsh_names *names,
		     struct rsh_ckpt_index **out)
{
	struct reader r = { .names = names };
	int rc;

	if (len < HEAD_BYTES ||
	    rsh_le64(data) != XXH3_64bits(data + SUM_BYTES, len - SUM_BYTES))
		return -EBADMSG;
	r.p = data + SUM_BYTES;
	r.left = len - SUM_BYTES;
	rc = read_index(&r);
	if (rc)
		rsh_ckpt_index_free(r.index);
	else
		*out = r.index;
	return rc;
}
