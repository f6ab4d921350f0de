/* SPDX-License-Identifier: Apache-2.0 */
#include "strategy_support.h"

struct rsh_strategy_file *parse_strategy(const char *path, const char *json)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_strategy_file *f = NULL;

	if (rsh_strategy_parse(json, strlen(json), path, &f, &err))
		fail_msg("%s", err.text);
	return f;
}

struct rsh_strategy *make_strategy(struct rsh_names *names, const char *path,
				   const char *json)
{
	struct rsh_strategy_file **files = malloc(sizeof(*files));
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_strategy *s = NULL;

	assert_non_null(files);
	files[0] = parse_strategy(path, json);
	if (rsh_strategy_merge(&(struct rsh_strategy_set){ files, 1,
				RSH_STRATEGY_FILE, path }, names, &s,
			       &err))
		fail_msg("%s", err.text);
	return s;
}

/* ---- indexes ---- */

static uint64_t tensor_bytes(const struct tensor *t)
{
	uint64_t elements;

	if (t->dtype == RSH_DTYPE_STR)
		return t->bytes;
	assert_true(t->n_dims <= RSH_MAX_DIMS);
	elements = 1;
	for (uint32_t d = 0; d < t->n_dims; d++)
		elements *= (uint64_t)t->dims[d];
	return elements * rsh_dtype_size(t->dtype) * (t->wide ? 2 : 1);
}

static void add_chunk(struct rsh_ckpt_index *ix, uint64_t length)
{
	ix->extents = realloc(ix->extents,
			      (ix->n_extents + 1) * sizeof(*ix->extents));
	assert_non_null(ix->extents);
	ix->extents[ix->n_extents++] =
		(struct rsh_extent){ ix->file_bytes + GAP, length };
	ix->file_bytes += GAP + length;
}

static void add_tensor(struct rsh_ckpt_index *ix, struct rsh_names *names,
		       const struct tensor *t)
{
	struct rsh_record r = {
		.name = rsh_names_add(names, t->name, strlen(t->name)),
		.dtype = (uint8_t)t->dtype,
		.n_dims = (uint8_t)t->n_dims,
		.wide_bf16 = t->wide,
		.first_dim = ix->n_dims,
		.first_extent = ix->n_extents,
		.content_bytes = tensor_bytes(t),
	};

	for (uint32_t d = 0; d < t->n_dims; d++)
		ix->dims[ix->n_dims++] = t->dims[d];
	for (uint32_t i = 0; t->chunks && t->chunks[i]; i++)
		add_chunk(ix, t->chunks[i]);
	if (!t->chunks && r.content_bytes)
		add_chunk(ix, r.content_bytes);
	r.n_extents = ix->n_extents - r.first_extent;
	ix->records[ix->n_records++] = r;
}

static const struct rsh_ckpt_index *sorting;

static int by_name_id(const void *a, const void *b)
{
	uint32_t x = sorting->records[*(const uint32_t *)a].name;
	uint32_t y = sorting->records[*(const uint32_t *)b].name;

	return x < y ? -1 : x > y;
}

struct rsh_ckpt_index *make_index(struct rsh_names *names,
				  const struct tensor *tensors)
{
	struct rsh_ckpt_index *ix = calloc(1, sizeof(*ix));
	size_t n = 0, n_dims = 0;

	assert_non_null(ix);
	for (; tensors[n].name; n++)
		n_dims += tensors[n].n_dims;
	ix->records = calloc(n + 1, sizeof(*ix->records));
	ix->dims = calloc(n_dims + 1, sizeof(*ix->dims));
	ix->by_name = calloc(n + 1, sizeof(*ix->by_name));
	assert_true(ix->records && ix->dims && ix->by_name);
	for (size_t i = 0; i < n; i++) {
		add_tensor(ix, names, &tensors[i]);
		ix->by_name[i] = (uint32_t)i;
	}
	sorting = ix;
	qsort(ix->by_name, n, sizeof(*ix->by_name), by_name_id);
	return ix;
}
