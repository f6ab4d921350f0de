/* SPDX-License-Identifier: Apache-2.0 */
/* plan/parts.c cuts a whole model into parts.
 *
 * Tensors are taken in order and a part is closed when the next one would make
 * it too large, as the Hugging Face tools do. */
#include "plan_i.h"

/* Says how many of the records from `first` on make up a part. */
static uint32_t part_length(const struct rsh_shown_file *f, uint32_t first,
			    uint64_t limit)
{
	uint64_t bytes = f->slots[first].content_bytes;
	uint32_t n = 1;

	/* A tensor larger than the limit is a part of its own. */
	for (; first + n < f->n; n++) {
		uint64_t next = f->slots[first + n].content_bytes;

		if (bytes > limit || next > limit - bytes)
			break;
		bytes += next;
	}
	return n;
}

int rsh_blueprint_add_parts(struct rsh_plan *p,
			    const struct rsh_shown_file *whole, uint64_t limit,
			    struct rsh_error *err)
{
	struct rsh_shown_file part = *whole;
	uint32_t first = 0;
	int rc;

	if (!limit)
		return rsh_blueprint_add_file(p, whole, err);
	do {
		part.n = whole->n ? part_length(whole, first, limit) : 0;
		part.slots = whole->slots + first;
		part.shapes = whole->shapes + first;
		rc = rsh_blueprint_add_file(p, &part, err);
		first += part.n;
	} while (rc == 0 && first < whole->n);
	return rc;
}
