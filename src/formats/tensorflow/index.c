/* SPDX-License-Identifier: Apache-2.0 */
/* formats/tensorflow/index.c compares the .index of a TensorFlow checkpoint
 * with its data files.
 *
 * The index is a sorted table.  It has blocks of (key, value) pairs.  After
 * each block are a byte for the kind of compression and a CRC.  The values of
 * an index block are the places of other blocks.  A footer has the place of the
 * index block. */
#include "config.h"

#include "index_i.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>

#include "rsh/util/mem.h"
#include "rsh/wire/bytes.h"
#include "tensor_bundle.pb-c.h"

#define FOOTER_BYTES 48
#define HANDLES_BYTES 40 /* of the footer; the rest is a magic number */
#define TABLE_MAGIC UINT64_C(0xdb4775248b80fb57)
#define TRAILER_BYTES 5  /* compression, CRC */
#define CRC_MASK 0xa282ead8u

/* For tensors of these types the CRC covers the elements, not the bytes. */
#define DT_STRING 7
#define DT_VARIANT 21

struct tf_handle {
	uint64_t offset, bytes;
};

struct tf_check {
	const struct rsh_byte_source *src;
	const struct rsh_byte_source *const *shards;
	uint32_t n_shards;
	bool full;
	bool has_header;
	struct rsh_error *err;
};

typedef int tf_entry_fn(struct tf_check *c, uint64_t at, bool empty_key,
			const uint8_t *value, size_t n);

/* Computes CRC-32C.  The table is computed again for each range, which costs
 * less than reading the range. */
static uint32_t tf_crc32c(uint32_t crc, const uint8_t *p, size_t n)
{
	uint32_t table[256];

	for (uint32_t i = 0; i < 256; i++) {
		table[i] = i;
		for (unsigned bit = 0; bit < 8; bit++)
			table[i] = table[i] >> 1 ^
				   (table[i] & 1 ? 0x82f63b78u : 0);
	}
	crc = ~crc;
	while (n--)
		crc = table[(crc ^ *p++) & 0xff] ^ crc >> 8;
	return ~crc;
}

/* CRCs are stored masked, so that a CRC over bytes that contain CRCs is as
 * reliable as others. */
static uint32_t tf_unmask(uint32_t stored)
{
	stored -= CRC_MASK;
	return stored << 15 | stored >> 17;
}

static bool tf_take_varint(const uint8_t **p, const uint8_t *end, uint64_t *out)
{
	*out = 0;
	for (unsigned shift = 0; shift < 64 && *p < end; shift += 7) {
		uint8_t byte = *(*p)++;

		*out |= (uint64_t)(byte & 0x7f) << shift;
		if (byte < 0x80)
			return true;
	}
	return false;
}

static bool tf_take_handle(const uint8_t **p, const uint8_t *end,
			   struct tf_handle *out)
{
	return tf_take_varint(p, end, &out->offset) &&
	       tf_take_varint(p, end, &out->bytes);
}

/* Checks a block, and calls fn for its entries; NULL: nothing is called. */
static int tf_each_entry(struct tf_check *c, const struct tf_handle *h,
			 tf_entry_fn *fn)
{
	const struct rsh_byte_source *src = c->src;
	cleanup_free uint8_t *data = NULL;
	const uint8_t *p, *end;
	uint64_t shared, own, n_value, key_bytes = 0;
	uint32_t n_restarts;
	size_t n;
	int rc;

	if (h->offset > src->size || src->size - h->offset < TRAILER_BYTES ||
	    h->bytes > src->size - h->offset - TRAILER_BYTES || h->bytes < 4)
		return rsh_bytes_damaged(src, h->offset, "a block outside "
					 "the file", c->err);
	n = (size_t)h->bytes;
	data = malloc(n + TRAILER_BYTES);
	if (!data)
		return rsh_error_nomem(c->err);
	rc = rsh_bytes_read(src, data, n + TRAILER_BYTES, h->offset, c->err);
	if (rc)
		return rc;
	if (tf_unmask(rsh_le32(data + n + 1)) != tf_crc32c(0, data, n + 1))
		return rsh_bytes_damaged(src, h->offset, "a block that does "
					 "not match its CRC", c->err);
	/* TensorFlow writes its indexes without compression. */
	if (data[n] != 0)
		return rsh_bytes_damaged(src, h->offset, "a compressed block, "
					 "which TensorFlow does not write",
					 c->err);
	n_restarts = rsh_le32(data + n - 4);
	if (n_restarts > (n - 4) / 4)
		return rsh_bytes_damaged(src, h->offset, "a block with too "
					 "many restart points", c->err);
	end = data + n - 4 - 4 * (size_t)n_restarts;
	for (p = data; fn && p < end; p += n_value) {
		const uint64_t at = h->offset + (uint64_t)(p - data);

		if (!tf_take_varint(&p, end, &shared) ||
		    !tf_take_varint(&p, end, &own) ||
		    !tf_take_varint(&p, end, &n_value) || shared > key_bytes ||
		    own > (uint64_t)(end - p) ||
		    n_value > (uint64_t)(end - p) - own)
			return rsh_bytes_damaged(src, at, "no entry of a "
						 "table", c->err);
		key_bytes = shared + own;
		p += own;
		rc = fn(c, at, key_bytes == 0, p, (size_t)n_value);
		if (rc)
			return rc;
	}
	return 0;
}

static int tf_check_place(struct tf_check *c, uint64_t at,
			  const Rsh__Pb__BundleEntry *e)
{
	const struct rsh_byte_source *shard;
	uint64_t end;

	if (e->shard_id < 0 || (uint32_t)e->shard_id >= c->n_shards ||
	    e->offset < 0 || e->size < 0)
		return rsh_bytes_damaged(c->src, at, "a tensor that is in no "
					 "data file", c->err);
	shard = c->shards[e->shard_id];
	end = (uint64_t)e->offset + (uint64_t)e->size;
	return end <= shard->size ? 0 :
	       rsh_error_set(c->err, EBADMSG, "%s: truncated: it has %" PRIu64
			     " bytes, and a tensor of it ends at %" PRIu64,
			     shard->path, shard->size, end);
}

static int tf_check_content(struct tf_check *c, const Rsh__Pb__BundleEntry *e)
{
	const struct rsh_byte_source *shard = c->shards[e->shard_id];
	uint32_t crc;

	/* The parts of a partitioned tensor are separate entries. */
	if (e->size == 0 || e->dtype == DT_STRING || e->dtype == DT_VARIANT)
		return 0;
	return rsh_bytes_crc(shard, (uint64_t)e->offset, (uint64_t)e->size,
			     tf_crc32c, &crc, c->err) ?:
	       crc == tf_unmask(e->crc32c) ? 0 :
	       rsh_bytes_damaged(shard, (uint64_t)e->offset, "a tensor that "
				 "does not match its CRC", c->err);
}

static int tf_check_tensor(struct tf_check *c, uint64_t at, bool empty_key,
			   const uint8_t *value, size_t n)
{
	Rsh__Pb__BundleEntry *e;
	int rc;

	if (empty_key) {
		Rsh__Pb__BundleHeader *h =
			rsh__pb__bundle_header__unpack(NULL, n, value);

		rc = 0;
		if (!h)
			return rsh_bytes_damaged(c->src, at, "no header of a "
						 "checkpoint", c->err);
		c->has_header = true;
		if (h->num_shards < 0 || (uint32_t)h->num_shards != c->n_shards)
			rc = rsh_error_set(c->err, EBADMSG,
					   "%s: it has %d data files, by "
					   "their names there are %u",
					   c->src->path, h->num_shards,
					   c->n_shards);
		rsh__pb__bundle_header__free_unpacked(h, NULL);
		return rc;
	}
	e = rsh__pb__bundle_entry__unpack(NULL, n, value);
	if (!e)
		return rsh_bytes_damaged(c->src, at, "no entry of a tensor",
					 c->err);
	rc = tf_check_place(c, at, e);
	if (rc == 0 && c->full)
		rc = tf_check_content(c, e);
	rsh__pb__bundle_entry__free_unpacked(e, NULL);
	return rc;
}

static int tf_check_block(struct tf_check *c, uint64_t at, bool empty_key,
			  const uint8_t *value, size_t n)
{
	struct tf_handle h;

	(void)empty_key;
	if (!tf_take_handle(&value, value + n, &h))
		return rsh_bytes_damaged(c->src, at, "no place of a block",
					 c->err);
	return tf_each_entry(c, &h, tf_check_tensor);
}

int rsh_tf_index_check(const struct rsh_byte_source *index,
		       const struct rsh_byte_source *const *shards,
		       uint32_t n_shards, bool full, struct rsh_error *err)
{
	struct tf_check c = { .src = index, .shards = shards, .full = full,
			   .n_shards = n_shards, .err = err };
	uint8_t footer[FOOTER_BYTES];
	const uint8_t *p = footer, *end = footer + HANDLES_BYTES;
	struct tf_handle meta, blocks;
	int rc;

	if (index->size < FOOTER_BYTES)
		return rsh_bytes_damaged(index, index->size, "truncated: too "
					 "short for an index", err);
	rc = rsh_bytes_read(index, footer, sizeof(footer),
			    index->size - FOOTER_BYTES, err);
	if (rc)
		return rc;
	if (rsh_le64(end) != TABLE_MAGIC || !tf_take_handle(&p, end, &meta) ||
	    !tf_take_handle(&p, end, &blocks))
		return rsh_bytes_damaged(index, index->size - FOOTER_BYTES,
					 "truncated, or not an index of "
					 "TensorFlow: no footer", err);
	return tf_each_entry(&c, &meta, NULL) ?:
	       tf_each_entry(&c, &blocks, tf_check_block) ?:
	       c.has_header ? 0 :
	       rsh_bytes_damaged(index, 0, "an index without header", err);
}
