/* SPDX-License-Identifier: Apache-2.0 */
/* read/scales_read.c reads parts of the tensors that are beside the elements of
 * another: of scales, and of the matrices of adapters. */
#include "config.h"

#include "scales_i.h"

#include <errno.h>
#include <stdlib.h>

#include "rsh/util/checked.h"
#include "rsh/util/mem.h"

static int scales_read_stretch(void *ctx, const struct rsh_stretch *x)
{
	const struct rsh_scales_read *r = ctx;
	struct rsh_kept *k = r->kept;
	uint32_t i = 0;

	while (i < k->n_files && k->files[i] != x->file)
		i++;
	if (i == k->n_files) {
		size_t room = i;

		if (rsh_room(k->files, room, i + 1))
			return -ENOMEM;
		k->files[k->n_files++] = x->file;
	}
	return rsh_source_read_at(r->source, x->file, x->offset, r->to + x->at,
				  (size_t)x->length, r->wait);
}

int rsh_scales_read_box(struct rsh_scales_read *r, const struct rsh_tensor *t,
			const struct rsh_box *box, uint8_t **out)
{
	const struct rsh_store *store = rsh_source_store(r->source);
	uint64_t bytes;

	if (!rsh_mul_u64(rsh_box_elements(box), rsh_dtype_size(t->dtype),
			 &bytes) || bytes > RSH_SCALES_MAX)
		return -EIO;
	*out = malloc((size_t)bytes + 1);
	if (!*out)
		return -ENOMEM;
	r->to = *out;
	/* A reader that must not wait has other files to turn to. */
	return rsh_tensor_box(r->by->cat, t, box,
			      r->wait ? NULL : rsh_store_failed(store),
			      scales_read_stretch, r);
}
