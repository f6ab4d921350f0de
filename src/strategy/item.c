/* SPDX-License-Identifier: Apache-2.0 */
/* strategy/item.c has simple functions for the layout of one parameter as its
 * strategy file has it. */
#include <errno.h>
#include <string.h>

#include "rsh/strategy/grid.h"
#include "rsh/strategy/strategy.h"
#include "rsh/util/checked.h"
#include "rsh/util/text.h"

uint32_t rsh_item_ranks(const struct rsh_strategy_item *it)
{
	uint32_t n = 1;

	for (uint32_t i = 0; i < it->n_mesh; i++)
		n *= it->mesh[i];
	return n;
}

bool rsh_item_same_layout(const struct rsh_strategy_item *a,
			  const struct rsh_strategy_item *b)
{
	if (a == b)
		return true;
	if (!a || !b || a->n_mesh != b->n_mesh || a->n_map != b->n_map ||
	    a->nested != b->nested || a->opt_step != b->opt_step ||
	    a->opt_size != b->opt_size || a->n_shape != b->n_shape ||
	    a->n_rows != b->n_rows || a->n_offsets != b->n_offsets ||
	    a->rows_follow != b->rows_follow ||
	    memcmp(a->mesh, b->mesh, a->n_mesh * sizeof(*a->mesh)))
		return false;
	for (uint32_t i = 0; i < a->n_map; i++) {
		const struct rsh_map_entry *x = &a->map[i], *y = &b->map[i];

		if (x->n != y->n ||
		    (x->n && memcmp(x->axes, y->axes, x->n * sizeof(*x->axes))))
			return false;
	}
	if (a->n_rows &&
	    memcmp(a->rows, b->rows, a->n_rows * sizeof(*a->rows)))
		return false;
	/* The shape is compared as well, because it may decide how the map is
	 * folded. */
	return a->n_shape == 0 ||
	       memcmp(a->shape, b->shape, a->n_shape * sizeof(*a->shape)) == 0;
}

int rsh_item_check_shape(const struct rsh_strategy_item *it, uint32_t n_dims,
			 uint32_t d, uint64_t whole, struct rsh_error *err)
{
	if (it->n_shape != n_dims || it->n_map != n_dims ||
	    (uint64_t)it->shape[d] == whole)
		return 0;
	return rsh_error_set(err, EINVAL,
			     "dimension %u of the whole tensor is %llu, its strategy says %lld",
			     d, (unsigned long long)whole,
			     (long long)it->shape[d]);
}

/* ---- rows that are split manually ---- */

/* Returns whether param_split_shape is the shape of the tensor, or of its
 * slice. */
static bool is_shape(const struct rsh_strategy_item *it,
		     const struct rsh_grid_sizes *sizes, const uint32_t *split)
{
	bool whole = true, slice = true;

	for (uint32_t d = 0; d < sizes->n_dims; d++) {
		const uint64_t size = (uint64_t)sizes->dims[d];
		const uint64_t row = (uint64_t)it->rows[d];

		slice &= row == (sizes->local ? size : size / split[d]);
		whole &= row == (sizes->local ? size * split[d] : size);
	}
	return whole || slice;
}

int rsh_item_rows(const struct rsh_strategy_item *it,
		  const struct rsh_grid_sizes *sizes, const uint32_t *split,
		  struct rsh_error *err)
{
	uint64_t sum = 0;
	bool even = true;

	if (!it->n_rows && !it->n_offsets)
		return 0;
	/* The rows of two slices may look like the shape of the first one. */
	if (it->n_rows == sizes->n_dims && !it->rows_follow &&
	    is_shape(it, sizes, split))
		return 0;
	if (!sizes->n_dims || it->n_rows != split[0])
		return rsh_error_set(err, EINVAL,
				     "its param_split_shape has %u numbers, but there are %u slices of rows",
				     it->n_rows, sizes->n_dims ? split[0] : 1);
	for (uint32_t i = 0; i < it->n_rows; i++) {
		if (it->rows[i] < 1 ||
		    !rsh_add_u64(sum, (uint64_t)it->rows[i], &sum) ||
		    sum > INT64_MAX)
			return rsh_error_set(err, EINVAL,
					     "its param_split_shape has the number %lld",
					     (long long)it->rows[i]);
		even &= it->rows[i] == it->rows[0];
	}
	if (!sizes->local && sum != (uint64_t)sizes->dims[0])
		return rsh_error_set(err, EINVAL,
				     "its param_split_shape lists %llu rows, the tensor has %lld",
				     (unsigned long long)sum,
				     (long long)sizes->dims[0]);
	if (even && sizes->local && it->rows[0] != sizes->dims[0])
		return rsh_error_set(err, EINVAL,
				     "its param_split_shape lists slices of %lld rows, the slice has %lld",
				     (long long)it->rows[0],
				     (long long)sizes->dims[0]);
	return !even;
}

const char *rsh_item_mesh_text(const struct rsh_strategy_item *it, char *text,
			       size_t size)
{
	size_t at = 0;

	rsh_text_add(text, size, &at, "[");
	for (uint32_t i = 0; i < it->n_mesh; i++)
		rsh_text_add(text, size, &at, "%s%u", i ? "," : "",
			     it->mesh[i]);
	rsh_text_add(text, size, &at, "]");
	return text;
}

const char *rsh_item_map_text(const struct rsh_strategy_item *it, char *text,
			      size_t size)
{
	size_t at = 0;

	rsh_text_add(text, size, &at, "[");
	for (uint32_t i = 0; i < it->n_map; i++) {
		const struct rsh_map_entry *e = &it->map[i];
		const bool nested = it->nested && e->n;

		rsh_text_add(text, size, &at, "%s%s", i ? "," : "",
			     nested ? "[" : "");
		for (uint32_t k = 0; k < e->n; k++)
			rsh_text_add(text, size, &at, "%s%d", k ? "," : "",
				     e->axes[k]);
		rsh_text_add(text, size, &at, "%s%s", e->n ? "" : "-1",
			     nested ? "]" : "");
	}
	rsh_text_add(text, size, &at, "]");
	return text;
}

const char *rsh_item_text(const struct rsh_strategy_item *it, char *text,
			  size_t size)
{
	size_t at = 0;

	if (!it) {
		rsh_text_add(text, size, &at, "unsharded");
		return text;
	}
	rsh_text_add(text, size, &at, "mesh ");
	if (at < size)
		rsh_item_mesh_text(it, text + at, size - at);
	at = strlen(text);
	rsh_text_add(text, size, &at, " map ");
	if (at < size)
		rsh_item_map_text(it, text + at, size - at);
	at = strlen(text);
	if (it->opt_step && it->opt_size)
		rsh_text_add(text, size, &at, " optimizer shard %d",
			     it->opt_size);
	if (it->n_offsets)
		rsh_text_add(text, size, &at, " manual_split");
	return text;
}
