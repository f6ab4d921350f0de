/* SPDX-License-Identifier: Apache-2.0 */
/* plan/ckpt_framing.c lays out a .ckpt, which is its records, one after the
 * other, each chunk behind a header of its own. */
#include <errno.h>

#include "rsh/plan/framing.h"
#include "rsh/util/checked.h"

int rsh_layout_too_large(const struct rsh_record_shape *s,
			 struct rsh_error *err)
{
	return rsh_error_set(err, EFBIG, "parameter %s makes the file of a "
			     "rank too large", s->name);
}

static int ckpt_lay_out(struct rsh_file_layout *f, struct rsh_error *err)
{
	uint64_t at = 0, bytes;

	for (uint32_t i = 0; i < f->n; i++) {
		f->slots[i].offset = at;
		if (!rsh_ckpt_emit_size(&f->shapes[i], &bytes) ||
		    !rsh_add_u64(at, bytes, &at) || at > INT64_MAX)
			return rsh_layout_too_large(&f->shapes[i], err);
	}
	f->header = NULL;
	f->header_bytes = 0;
	f->bytes = at;
	return 0;
}

static void ckpt_chunks(const struct rsh_record_shape *s,
			struct rsh_chunks *out)
{
	const uint64_t n = rsh_ckpt_emit_chunks(s->content_bytes);
	const uint64_t before_last = (n - 1) * RSH_CKPT_CHUNK_BYTES;

	*out = (struct rsh_chunks){
		.n = n,
		.content_bytes = RSH_CKPT_CHUNK_BYTES,
		.full_header = rsh_ckpt_header_size(s, RSH_CKPT_CHUNK_BYTES),
		.last_header = rsh_ckpt_header_size(
			s, s->content_bytes - before_last),
	};
}

static size_t ckpt_write_header(const struct rsh_record_shape *s, uint64_t at,
				uint64_t chunk_bytes, uint8_t *buf)
{
	(void)at;
	return rsh_ckpt_header_write(s, chunk_bytes, buf);
}

const struct rsh_framing rsh_ckpt_framing = {
	.type = RSH_FILE_CKPT,
	.lay_out = ckpt_lay_out,
	.chunks = ckpt_chunks,
	.write_header = ckpt_write_header,
};
