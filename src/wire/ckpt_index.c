/* SPDX-License-Identifier: Apache-2.0 */
/* wire/ckpt_index.c makes, sorts, joins, compares and hashes the indexes of all
 * scanners, and compares a .ckpt with its CRC. */
#include "rsh/wire/ckpt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>
#include <zlib.h>

#include "rsh/util/checked.h"
#include "rsh/util/mem.h"

struct rsh_ckpt_index *rsh_ckpt_index_new(size_t n_records, size_t n_extents,
					  size_t n_dims)
{
	struct rsh_ckpt_index *ix = calloc(1, sizeof(*ix));

	if (!ix || n_records > UINT32_MAX || n_extents > UINT32_MAX ||
	    n_dims > UINT32_MAX) {
		free(ix);
		return NULL;
	}
	ix->records = rsh_alloc_array(n_records, sizeof(*ix->records));
	ix->by_name = rsh_alloc_array(n_records, sizeof(*ix->by_name));
	ix->extents = rsh_alloc_array(n_extents, sizeof(*ix->extents));
	ix->dims = rsh_alloc_array(n_dims, sizeof(*ix->dims));
	if (ix->records && ix->by_name && ix->extents && ix->dims)
		return ix;
	rsh_ckpt_index_free(ix);
	return NULL;
}

void rsh_ckpt_index_free(struct rsh_ckpt_index *index)
{
	if (!index)
		return;
	free(index->records);
	free(index->extents);
	free(index->dims);
	free(index->by_name);
	free(index->metadata);
	free(index);
}

uint64_t rsh_record_end(const struct rsh_ckpt_index *ix,
			const struct rsh_record *r)
{
	const struct rsh_extent *last =
		ix->extents + r->first_extent + r->n_extents - 1;

	return r->n_extents ? last->offset + last->length : 0;
}

struct rsh_content rsh_record_content(const struct rsh_ckpt_index *ix,
				      const struct rsh_record *r)
{
	const struct rsh_extent *first =
		r->n_extents ? &ix->extents[r->first_extent] : NULL;

	return (struct rsh_content){
		first, first ? first + r->n_extents : NULL, first, 0
	};
}

uint64_t rsh_content_move(struct rsh_content *c, uint64_t to, uint64_t *offset)
{
	if (to < c->begin) {
		c->at = c->first;
		c->begin = 0;
	}
	for (; c->at < c->end && to - c->begin >= c->at->length; c->at++)
		c->begin += c->at->length;
	if (c->at == c->end)
		return 0;
	*offset = c->at->offset + (to - c->begin);
	return c->at->length - (to - c->begin);
}

bool rsh_record_is_alike(const struct rsh_ckpt_index *ia,
			 const struct rsh_record *a,
			 const struct rsh_ckpt_index *ib,
			 const struct rsh_record *b)
{
	return a->dtype == b->dtype && a->n_dims == b->n_dims &&
	       (a->n_dims == 0 ||
		memcmp(rsh_record_dims(ia, a), rsh_record_dims(ib, b),
		       a->n_dims * sizeof(int64_t)) == 0);
}

const struct rsh_record *rsh_ckpt_find(const struct rsh_ckpt_index *index,
				       uint32_t name)
{
	const uint32_t n = index->n_records;
	const uint32_t at = rsh_first(
		i, n, index->records[index->by_name[i]].name < name);
	const struct rsh_record *r = at == n ? NULL :
		&index->records[index->by_name[at]];

	return r && r->name == name ? r : NULL;
}

static int index_by_name_id(const void *a, const void *b, void *records)
{
	const struct rsh_record *r = records;
	const uint32_t *i = a, *k = b;

	return rsh_compare_u64(r[*i].name, r[*k].name) ?:
	       rsh_compare_u64(*i, *k);
}

int rsh_ckpt_index_sort(struct rsh_ckpt_index *ix, uint32_t *twice)
{
	bool sorted = true;

	for (uint32_t i = 0; i < ix->n_records; i++) {
		ix->by_name[i] = i;
		sorted = sorted && (!i || ix->records[i - 1].name <
					  ix->records[i].name);
	}
	/* The first file that is scanned gives the names their numbers, and
	 * most other files have them in the same order. */
	if (sorted)
		return 0;
	qsort_r(ix->by_name, ix->n_records, sizeof(*ix->by_name),
		index_by_name_id, ix->records);
	for (uint32_t i = 1; i < ix->n_records; i++) {
		*twice = ix->records[ix->by_name[i]].name;
		if (ix->records[ix->by_name[i - 1]].name == *twice)
			return -EEXIST;
	}
	return 0;
}

int rsh_ckpt_index_join(const struct rsh_ckpt_index *const *files,
			const uint64_t *base, uint32_t n, const uint32_t *home,
			struct rsh_ckpt_index **out, uint32_t *twice)
{
	size_t n_records = 0, n_extents = 0, n_dims = 0;
	struct rsh_ckpt_index *ix;

	for (uint32_t i = 0; i < n; i++) {
		n_records += files[i]->n_records;
		n_extents += files[i]->n_extents;
		n_dims += files[i]->n_dims;
	}
	ix = rsh_ckpt_index_new(n_records, n_extents, n_dims);
	if (!ix)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++) {
		for (uint32_t k = 0; k < files[i]->n_records; k++) {
			const uint32_t name = files[i]->records[k].name;
			struct rsh_record *r = &ix->records[ix->n_records];

			if (home && home[name] && home[name] != i + 1)
				continue;
			*r = files[i]->records[k];
			r->first_dim += ix->n_dims;
			r->first_extent += ix->n_extents;
			ix->n_records++;
		}
		for (uint32_t k = 0; k < files[i]->n_extents; k++) {
			ix->extents[ix->n_extents + k] = files[i]->extents[k];
			ix->extents[ix->n_extents + k].offset += base[i];
		}
		for (uint32_t k = 0; k < files[i]->n_dims; k++)
			ix->dims[ix->n_dims + k] = files[i]->dims[k];
		ix->n_extents += files[i]->n_extents;
		ix->n_dims += files[i]->n_dims;
		ix->file_bytes = base[i] + files[i]->file_bytes;
	}
	if (rsh_ckpt_index_sort(ix, twice)) {
		rsh_ckpt_index_free(ix);
		return -EEXIST;
	}
	*out = ix;
	return 0;
}

/* Records are compared and hashed by these words, since their padding may have
 * any value. */
struct record_words {
	uint64_t v[4];
};

static struct record_words record_words(const struct rsh_record *r)
{
	return (struct record_words){ {
		(uint64_t)r->name << 32 | (uint64_t)r->dtype << 16 |
			(uint64_t)r->n_dims << 8 | r->wide_bf16,
		(uint64_t)r->first_dim << 32 | r->first_extent,
		r->n_extents,
		r->content_bytes,
	} };
}

static bool bytes_equal(const void *a, const void *b, size_t n)
{
	return !n || !memcmp(a, b, n);
}

bool rsh_ckpt_index_equal(const struct rsh_ckpt_index *a,
			  const struct rsh_ckpt_index *b)
{
	if (a->n_records != b->n_records || a->n_extents != b->n_extents ||
	    a->n_dims != b->n_dims || a->file_bytes != b->file_bytes ||
	    a->has_crc != b->has_crc || a->n_unsummed != b->n_unsummed ||
	    a->n_copies != b->n_copies ||
	    strcmp(a->metadata ?: "", b->metadata ?: "") != 0)
		return false;
	for (uint32_t i = 0; i < a->n_records; i++) {
		const struct record_words x = record_words(&a->records[i]);
		const struct record_words y = record_words(&b->records[i]);

		if (memcmp(&x, &y, sizeof(x)) != 0)
			return false;
	}
	return bytes_equal(a->extents, b->extents,
			   a->n_extents * sizeof(*a->extents)) &&
	       bytes_equal(a->dims, b->dims, a->n_dims * sizeof(*a->dims));
}

uint64_t rsh_ckpt_index_hash(const struct rsh_ckpt_index *index)
{
	const uint64_t counts[] = { index->n_records, index->n_extents,
				    index->n_dims, index->file_bytes,
				    index->has_crc };
	XXH3_state_t state;

	XXH3_INITSTATE(&state);
	XXH3_64bits_reset(&state);
	XXH3_64bits_update(&state, counts, sizeof(counts));
	for (uint32_t i = 0; i < index->n_records; i++) {
		const struct record_words r = record_words(&index->records[i]);

		XXH3_64bits_update(&state, &r, sizeof(r));
	}
	XXH3_64bits_update(&state, index->extents,
			   index->n_extents * sizeof(*index->extents));
	XXH3_64bits_update(&state, index->dims,
			   index->n_dims * sizeof(*index->dims));
	if (index->metadata)
		XXH3_64bits_update(&state, index->metadata,
				   strlen(index->metadata));
	return XXH3_64bits_digest(&state);
}

#define STEP_BYTES (1024 * 1024)

int rsh_ckpt_check_crc(const struct rsh_byte_source *src,
		       const struct rsh_ckpt_index *index,
		       struct rsh_error *err)
{
	cleanup_free uint8_t *buf = NULL;
	uint64_t end, at = 0;
	uLong crc = crc32(0, NULL, 0);

	if (!index->has_crc)
		return 0;
	buf = rsh_alloc_array(STEP_BYTES, 1);
	if (!buf)
		return rsh_error_nomem(err);
	end = index->file_bytes - RSH_CRC_TRAILER_BYTES;
	while (at < end) {
		ssize_t n = src->pread_fn(src->ctx, buf,
					  rsh_min_u64(STEP_BYTES, end - at),
					  at);

		if (n <= 0)
			return rsh_error_set(err, n ? (int)-n : ESTALE,
					     "%s: offset %llu: %s", src->path,
					     (unsigned long long)at,
					     n ? strerror((int)-n) :
						 "the file became shorter");
		crc = crc32(crc, buf, (uInt)n);
		at += (uint64_t)n;
	}
	return crc == index->crc ? 0 :
	       rsh_error_set(err, EBADMSG, "%s: damaged: its CRC is %08x, the "
			     "file says %08x", src->path, (uint32_t)crc,
			     index->crc);
}
