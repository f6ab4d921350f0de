/* SPDX-License-Identifier: Apache-2.0 */
/* plan/parts.c cuts a whole model into parts.
 *
 * Tensors are taken in order and a part is closed when the next one would make
 * it too large, as the Hugging Face tools do. */
#include <stdlib.h>
#include <string.h>

#include "planner_i.h"
#include "rsh/util/mem.h"

/* How many of the records from `first` on make up a part. */
static uint32_t part_length(const struct rsh_file_layout *l, uint32_t first,
			    uint64_t limit)
{
	uint64_t bytes = l->slots[first].content_bytes;
	uint32_t n = 1;

	/* A tensor larger than the limit is a part of its own. */
	for (; first + n < l->n; n++) {
		uint64_t next = l->slots[first + n].content_bytes;

		if (bytes > limit || next > limit - bytes)
			break;
		bytes += next;
	}
	return n;
}

static int add_part(struct planner *p, const struct rsh_virtual_file *whole,
		    struct rsh_file_layout *layout, struct rsh_error *err)
{
	struct rsh_conversion *c = p->c;
	struct rsh_virtual_file *files =
		realloc(c->files, (c->n_files + 1) * sizeof(*files));

	if (!files)
		return rsh_error_nomem(err);
	c->files = files;
	files[c->n_files] = *whole;
	/* Each part has sources of its own. */
	memset(p->pair_done, 0, (c->n_pairs + 1) * sizeof(*p->pair_done));
	return rsh_plan_finish_file(p, &files[c->n_files++], layout, err);
}

int rsh_plan_cut_file(struct planner *p, const struct rsh_virtual_file *whole,
		      struct rsh_file_layout *layout, struct rsh_error *err)
{
	const struct rsh_virtual_file pattern = *whole;
	uint32_t first = 0, n;
	int rc;

	p->c->n_files--;
	do {
		n = layout->n ? part_length(layout, first, p->c->part_bytes) :
				0;
		rc = add_part(p, &pattern, &(struct rsh_file_layout){
			.n = n,
			.slots = layout->slots + first,
			.shapes = layout->shapes + first,
		}, err);
		first += n;
	} while (rc == 0 && first < layout->n);
	return rc;
}
