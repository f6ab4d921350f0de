/* SPDX-License-Identifier: Apache-2.0 */
/* plan/dcp_framing.c lays out a file of a PyTorch distributed checkpoint: each
 * tensor is one archive of torch.save(), or several of equal parts of it. */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "rsh/plan/framing.h"
#include "rsh/util/checked.h"
#include "rsh/wire/torch_item.h"

static size_t dcp_write_header(const struct rsh_record_shape *s, uint64_t at,
			       uint64_t chunk_bytes, uint32_t crc, uint8_t *buf)
{
	struct rsh_torch_chunk c;

	rsh_torch_chunk_at(s, at, chunk_bytes, &c);
	c.crc = crc;
	return rsh_torch_item_head(s, &c, buf);
}

static size_t dcp_write_trailer(const struct rsh_record_shape *s, uint64_t at,
				uint64_t chunk_bytes, uint32_t crc,
				uint8_t *buf)
{
	struct rsh_torch_chunk c;
	size_t n, pad;

	rsh_torch_chunk_at(s, at, chunk_bytes, &c);
	c.crc = crc;
	n = rsh_torch_item_tail(s, &c, buf);
	/* The next item begins on a multiple of the alignment; a head is
	 * one. */
	pad = (RSH_TORCH_ALIGNMENT - (c.bytes + n) % RSH_TORCH_ALIGNMENT) %
	      RSH_TORCH_ALIGNMENT;
	memset(buf + n, 0, pad);
	return n + pad;
}

static void dcp_chunks(const struct rsh_record_shape *s, struct rsh_chunks *out)
{
	const uint64_t bytes = rsh_torch_chunk_bytes(s);
	const uint64_t n = bytes ? (s->content_bytes - 1) / bytes + 1 : 1;
	const uint64_t last = (n - 1) * bytes;
	uint8_t head[RSH_TORCH_HEAD_MAX];
	uint8_t tail[RSH_TORCH_TAIL_MAX + RSH_TORCH_ALIGNMENT];

	*out = (struct rsh_chunks){
		.n = n, .content_bytes = bytes,
		.full_header = dcp_write_header(s, 0, bytes, 0, head),
		.full_trailer = dcp_write_trailer(s, 0, bytes, 0, tail),
		.last_header = dcp_write_header(s, last, bytes, 0, head),
		.last_trailer = dcp_write_trailer(s, last, bytes, 0, tail),
	};
}

/* Returns the first dimension that is not 1 in an order. */
static unsigned dcp_first(const struct rsh_record_shape *s,
			  const uint8_t *order)
{
	unsigned i = 0;

	while (i + 1 < s->n_dims && s->dims[order ? order[i] : i] == 1)
		i++;
	return order ? order[i] : i;
}

/* Most ranks load some rows of the first dimension, and a loader reads the
 * whole item for any part of it.  So all items have whole rows of the first
 * dimension.  A larger tensor in another order would have items of columns:
 * each rank would read all of them. */
static bool dcp_keeps_order(const struct rsh_record_shape *s)
{
	const uint64_t bytes = rsh_torch_chunk_bytes(s);
	const unsigned first = dcp_first(s, NULL);

	return bytes == s->content_bytes ||
	       (dcp_first(s, s->order) == first &&
		bytes % (s->content_bytes / (uint64_t)s->dims[first]) == 0);
}

static int dcp_lay_out(struct rsh_file_layout *f, struct rsh_error *err)
{
	uint64_t at = 0;

	for (uint32_t i = 0; i < f->n; i++) {
		const struct rsh_record_shape *s = &f->shapes[i];
		struct rsh_chunks k;
		uint64_t around;

		if (rsh_torch_check_dtype(s, err))
			return -ENOTSUP;
		dcp_chunks(s, &k);
		f->slots[i].offset = at;
		if (!rsh_mul_u64(k.n - 1, k.full_header + k.full_trailer,
				 &around) ||
		    !rsh_add_u64(around, k.last_header + k.last_trailer,
				 &around) ||
		    !rsh_add_u64(at, s->content_bytes, &at) ||
		    !rsh_add_u64(at, around, &at) || at > INT64_MAX)
			return rsh_layout_too_large(s, err);
	}
	f->header = NULL;
	f->header_bytes = 0;
	f->bytes = at;
	return 0;
}

const struct rsh_framing rsh_dcp_framing = {
	.type = RSH_FILE_OTHER,
	.lay_out = dcp_lay_out,
	.chunks = dcp_chunks,
	.write_header = dcp_write_header,
	.write_trailer = dcp_write_trailer,
	.has_crc = true,
	.keeps_order = dcp_keeps_order,
};
