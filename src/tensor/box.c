/* SPDX-License-Identifier: Apache-2.0 */
/* tensor/box.c intersects and formats boxes. */
#include "rsh/tensor/box.h"
#include "rsh/util/checked.h"
#include "rsh/util/text.h"

struct rsh_box rsh_box_whole(const uint64_t *dims, uint32_t n_dims)
{
	struct rsh_box b = { .n_dims = n_dims };

	for (uint32_t d = 0; d < n_dims; d++)
		b.size[d] = dims[d];
	return b;
}

bool rsh_box_meet(const struct rsh_box *a, const struct rsh_box *b,
		  struct rsh_box *out)
{
	out->n_dims = a->n_dims;
	for (uint32_t d = 0; d < a->n_dims; d++) {
		uint64_t from = rsh_max_u64(a->from[d], b->from[d]);
		uint64_t to = rsh_min_u64(a->from[d] + a->size[d],
					  b->from[d] + b->size[d]);

		if (from >= to)
			return false;
		out->from[d] = from;
		out->size[d] = to - from;
	}
	return true;
}

uint64_t rsh_box_elements(const struct rsh_box *b)
{
	uint64_t n = 1;

	for (uint32_t d = 0; d < b->n_dims; d++)
		n *= b->size[d];
	return n;
}

const char *rsh_dims_text(const uint64_t *dims, uint32_t n, char *text,
			  size_t size)
{
	size_t at = 0;

	rsh_text_add(text, size, &at, "[");
	for (uint32_t d = 0; d < n; d++)
		rsh_text_add(text, size, &at, "%s%llu", d ? "," : "",
			     (unsigned long long)dims[d]);
	rsh_text_add(text, size, &at, "]");
	return text;
}

const char *rsh_box_text(const struct rsh_box *b, char *text, size_t size)
{
	size_t at = 0;

	rsh_text_add(text, size, &at, "[");
	for (uint32_t d = 0; d < b->n_dims; d++)
		rsh_text_add(text, size, &at, "%s%llu:%llu", d ? "," : "",
			     (unsigned long long)b->from[d],
			     (unsigned long long)(b->from[d] + b->size[d]));
	rsh_text_add(text, size, &at, "]");
	return text;
}
