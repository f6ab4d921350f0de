/* SPDX-License-Identifier: Apache-2.0 */
/* read/tensor_load.c reads a small tensor of a source, and compares tensors. */
#include "config.h"

#include "rsh/read/tensor_load.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/checked.h"
#include "rsh/util/mem.h"

struct tensor_load {
	struct rsh_source *source;
	uint8_t *to;
	size_t bytes;
};

static int load_stretch(void *ctx, const struct rsh_stretch *s)
{
	const struct tensor_load *l = ctx;

	if (s->at > l->bytes || s->length > l->bytes - s->at)
		return -EIO;
	return rsh_source_read_at(l->source, s->file, s->offset, l->to + s->at,
				  (size_t)s->length, NULL);
}

int rsh_tensor_load(void *source, const struct rsh_catalogue *c,
		    const struct rsh_tensor *t, uint8_t *to, size_t bytes,
		    struct rsh_error *err)
{
	struct tensor_load l = { source, to, bytes };
	const struct rsh_box all = rsh_box_whole(t->dims, t->n_dims);
	int rc = rsh_tensor_box(c, t, &all, NULL, load_stretch, &l);

	return rc == 0 ? 0 :
		rsh_error_set(err, -rc, "tensor %s cannot be read: %s",
			      rsh_names_text(c->names, t->name), strerror(-rc));
}

/* ---- comparing ---- */

#define SAME_BYTES ((uint64_t)1024 * 1024) /* rows that are read at once */

/* Returns the tensor of which an offer has the first rows, NULL if its elements
 * are not read as they are stored. */
static const struct rsh_tensor *same_tensor(const struct rsh_catalogue *c,
					    const struct rsh_offer *o)
{
	const struct rsh_tensor *t = rsh_offer_rows_of(c, o);

	return t && o->n_dims > 0 && !t->quantised && !t->wide_bf16 &&
	       t->copies ? t : NULL;
}

/* Reads n rows. */
static int same_read(const struct rsh_catalogue *c, const struct rsh_tensor *t,
		     uint64_t from, uint64_t n, struct tensor_load *l)
{
	struct rsh_box box = rsh_box_whole(t->dims, t->n_dims);

	box.from[0] = from;
	box.size[0] = n;
	return rsh_tensor_box(c, t, &box, NULL, load_stretch, l);
}

int rsh_tensors_same(struct rsh_source *source, const struct rsh_catalogue *c,
		     const struct rsh_offer *a, const struct rsh_offer *b,
		     struct rsh_error *err)
{
	const struct rsh_tensor *x = same_tensor(c, a), *y = same_tensor(c, b);
	cleanup_free uint8_t *data = NULL;
	uint64_t row, step;

	if (!x || !y)
		return -ENOTSUP;
	if (!rsh_product_u64(a->dims + 1, a->n_dims - 1, &row) ||
	    !rsh_mul_u64(row, rsh_dtype_size(a->dtype), &row) || row == 0 ||
	    row > SAME_BYTES)
		return -ENOTSUP;
	step = SAME_BYTES / row;
	data = malloc(2 * SAME_BYTES);
	if (!data)
		return rsh_error_nomem(err);
	for (uint64_t at = 0; at < a->dims[0]; at += step) {
		const uint64_t n = rsh_min_u64(step, a->dims[0] - at);
		const size_t bytes = (size_t)(n * row);
		struct tensor_load l = { source, data, bytes };
		struct tensor_load m = { source, data + SAME_BYTES, bytes };

		if (same_read(c, x, at, n, &l) || same_read(c, y, at, n, &m))
			return -ENOTSUP;
		if (memcmp(data, data + SAME_BYTES, bytes) != 0)
			return 0;
	}
	return 1;
}
