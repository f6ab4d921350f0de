/* SPDX-License-Identifier: Apache-2.0 */
/* wire/safetensors_crc.c computes the checksum that MindSpore writes into the
 * metadata of a safetensors file.
 *
 * The checksum covers Python's bytes() of each name and array.  For an integer
 * array without dimensions bytes() returns as many zeros as its value. */
#include "rsh/wire/safetensors.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "rsh/util/mem.h"
#include "rsh/wire/bytes.h"

/* No writer had enough memory for more zeros; lengths below fit into an
 * off_t. */
#define ZEROS_MAX (UINT64_C(1) << 48)

struct sum {
	const struct rsh_byte_source *src;
	const struct rsh_ckpt_index *index;
	const struct rsh_names *names;
	struct rsh_error *err;
	uLong crc;
};

static int st_crc_by_text(const void *a, const void *b, void *arg)
{
	const struct sum *s = arg;
	const uint32_t *x = a, *y = b;

	return strcmp(rsh_names_text(s->names, s->index->records[*x].name),
		      rsh_names_text(s->names, s->index->records[*y].name));
}

static bool is_signed(uint8_t dtype)
{
	return dtype == RSH_DTYPE_INT4 || dtype == RSH_DTYPE_INT8 ||
	       dtype == RSH_DTYPE_INT16 || dtype == RSH_DTYPE_INT32 ||
	       dtype == RSH_DTYPE_INT64;
}

static bool is_unsigned(uint8_t dtype)
{
	return dtype == RSH_DTYPE_UINT8 || dtype == RSH_DTYPE_UINT16 ||
	       dtype == RSH_DTYPE_UINT32 || dtype == RSH_DTYPE_UINT64;
}

static int st_crc_add_record(struct sum *s, const struct rsh_record *r)
{
	const char *name = rsh_names_text(s->names, r->name);
	const struct rsh_extent *e = &s->index->extents[r->first_extent];
	uint32_t part;
	int rc;

	s->crc = crc32(s->crc, (const Bytef *)name, (uInt)strlen(name));
	if (r->n_extents == 0)
		return 0;
	if (r->n_dims == 0 && (is_signed(r->dtype) || is_unsigned(r->dtype))) {
		uint8_t bytes[8] = { 0 };
		uint64_t value, n;
		const Bytef zero = 0;
		uLong block;

		rc = rsh_bytes_read(s->src, bytes, e->length, e->offset,
				    s->err);
		if (rc)
			return rc;
		value = rsh_le64(bytes);
		if (value > ZEROS_MAX ||
		    (is_signed(r->dtype) && bytes[e->length - 1] & 0x80))
			return rsh_error_set(
				s->err, EBADMSG,
				"%s: parameter \"%s\" is "
				"damaged: no CRC goes with its value",
				s->src->path,
				rsh_names_text(s->names, r->name));
		/* Continues the CRC with that many zeros, in log n steps. */
		n = value;
		block = crc32(0, &zero, 1);
		for (uint64_t len = 1; n > 0; n >>= 1, len *= 2) {
			if (n & 1)
				s->crc = crc32_combine(s->crc, block,
						       (z_off_t)len);
			block = crc32_combine(block, block, (z_off_t)len);
		}
		return 0;
	}
	rc = rsh_bytes_crc(s->src, e->offset, e->length, rsh_crc32, &part,
			   s->err);
	if (rc == 0)
		s->crc = crc32_combine(s->crc, part, (z_off_t)e->length);
	return rc;
}

int rsh_safetensors_check_crc(const struct rsh_byte_source *src,
			      const struct rsh_ckpt_index *index,
			      const struct rsh_names *names,
			      const struct rsh_safetensors_meta *meta,
			      struct rsh_error *err)
{
	struct sum s = { src, index, names, err, crc32(0, NULL, 0) };
	cleanup_free uint32_t *order = NULL;
	int rc = 0;
	uint32_t n;

	if (!meta->has_crc)
		return 0;
	n = s.index->n_records;
	order = rsh_alloc_array(n, sizeof(*order));
	for (uint32_t i = 0; order && i < n; i++)
		order[i] = i;
	if (order)
		qsort_r(order, n, sizeof(*order), st_crc_by_text, &s);
	if (!order)
		return rsh_error_nomem(err);
	for (uint32_t i = 0; i < index->n_records && rc == 0; i++)
		rc = st_crc_add_record(&s, &index->records[order[i]]);
	if (rc || s.crc == meta->crc)
		return rc;
	return rsh_error_set(err, EBADMSG, "%s: damaged: the CRC of its "
			     "parameters is %08lx, the file says %08x",
			     src->path, s.crc, meta->crc);
}
