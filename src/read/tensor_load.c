/* SPDX-License-Identifier: Apache-2.0 */
/* read/tensor_load.c reads a small tensor of a source. */
#include "config.h"

#include "rsh/read/tensor_load.h"

#include <errno.h>
#include <string.h>

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

int rsh_tensor_load(struct rsh_source *source, const struct rsh_catalogue *c,
		    const struct rsh_tensor *t, uint8_t *to, size_t bytes,
		    struct rsh_error *err)
{
	struct tensor_load l = { source, to, bytes };
	struct rsh_box all = { .n_dims = t->n_dims };
	int rc;

	for (uint32_t d = 0; d < t->n_dims; d++)
		all.size[d] = t->dims[d];
	rc = rsh_tensor_box(c, t, &all, NULL, load_stretch, &l);
	return rc == 0 ? 0 :
		rsh_error_set(err, -rc, "tensor %s cannot be read: %s",
			      rsh_names_text(c->names, t->name),
			      strerror(-rc));
}
