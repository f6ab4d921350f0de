/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/ls_tensors.c lists each tensor of a step once, with its shape in a
 * file and its whole shape by the strategy, as JSON or as a table. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ls.h"
#include "rsh/util/mem.h"

/* Takes the first record of each name.  Its whole shape is known by now. */
static int add_tensor_records(struct rsh_ls_tensors *t,
			      const struct rsh_strategy *src,
			      const struct rsh_ckpt_index *ix,
			      const struct rsh_derive_shapes *shapes,
			      bool *seen)
{
	for (uint32_t i = 0; i < ix->n_records; i++) {
		const struct rsh_record *r = &ix->records[i];
		const int64_t *whole = rsh_derive_shapes_dims(shapes, r->name);
		struct rsh_ls_tensor *one;

		if (!whole || seen[r->name])
			continue;
		if (rsh_grow(&t->v, &t->cap, t->n + 1, sizeof(*t->v)))
			return -ENOMEM;
		seen[r->name] = true;
		one = &t->v[t->n++];
		*one = (struct rsh_ls_tensor){
			.name = r->name,
			.dtype = (enum rsh_dtype)r->dtype,
			.n_dims = r->n_dims,
			.bytes = r->content_bytes,
			.listed = src && rsh_strategy_find(src, r->name),
		};
		memcpy(one->dims, rsh_record_dims(ix, r),
		       r->n_dims * sizeof(*one->dims));
		memcpy(one->whole, whole, r->n_dims * sizeof(*one->whole));
		for (uint32_t d = 0; d < r->n_dims; d++)
			if (one->dims[d] > 0)
				one->bytes *= (uint64_t)(whole[d] /
							 one->dims[d]);
	}
	return 0;
}

int rsh_ls_tensors_take(struct rsh_ls_tensors *t,
			const struct rsh_strategy *src, uint32_t first,
			uint32_t n, const struct rsh_source_view *view)
{
	struct rsh_derive_shapes *shapes = rsh_derive_shapes_new();
	cleanup_free bool *seen =
		calloc((size_t)rsh_names_count(view->names) + 1, sizeof(*seen));
	const struct rsh_ckpt_index *before = NULL;
	int rc = shapes && seen ? 0 : -ENOMEM;

	free(t->v);
	*t = (struct rsh_ls_tensors){ 0 };
	for (uint32_t rank = first; rank < view->n_ranks && rank - first < n &&
				    rc == 0 && !t->why.code; rank++) {
		const struct rsh_ckpt_index *ix = view->index[rank];

		/* Ranks of one stage mostly share an index, which is read only
		 * once. */
		if (!ix || (ix == before && src &&
			    rank % src->stage_ranks != 0))
			continue;
		before = ix;
		if (rsh_derive_shapes_add(shapes, src, rank, ix, view->names,
					  &t->why))
			rsh_error_prefix(&t->why, "%s", view->path[rank]);
		else
			rc = add_tensor_records(t, src, ix, shapes, seen);
	}
	rsh_derive_shapes_free(shapes);
	return t->why.code == ENOMEM ? -ENOMEM : rc;
}

/* ---- JSON ---- */

json_t *rsh_ls_tensors_json(const struct rsh_ls_tensors *t,
			    const struct rsh_names *names)
{
	json_t *all = json_array();

	for (size_t i = 0; i < t->n; i++) {
		const struct rsh_ls_tensor *one = &t->v[i];

		json_array_append_new(
			all, json_pack("{s:o,s:s,s:o,s:o,s:b}", "name",
				       rsh_json_text(rsh_names_text(
					       names, one->name)),
				       "dtype", rsh_dtype_name(one->dtype),
				       "shape",
				       rsh_ls_shape_json(one->whole,
							 one->n_dims),
				       "file_shape",
				       rsh_ls_shape_json(one->dims,
							 one->n_dims),
				       "listed", one->listed));
	}
	return all;
}

/* ---- for people ---- */

static const struct rsh_column columns[] = {
	{ "TENSOR", .shorten = true },
	{ "DTYPE" },
	{ "WHOLE" },
	{ "IN A FILE" },
};

int rsh_ls_tensors_print(const struct rsh_ls_tensors *t,
			 const struct rsh_printer *out,
			 const struct rsh_names *names)
{
	struct rsh_table *table = RSH_TABLE(columns);
	char text[RSH_LS_SHAPE_MAX];
	uint64_t bytes = 0;
	int rc;

	for (size_t i = 0; i < t->n; i++) {
		const struct rsh_ls_tensor *one = &t->v[i];

		rsh_table_cell(table, "%s", rsh_names_text(names, one->name));
		rsh_table_type(table, one->dtype, one->whole, one->n_dims);
		rsh_table_cell(table, "%s", rsh_ls_shape(one->dims,
							 one->n_dims, text));
		bytes += one->bytes;
	}
	rc = rsh_table_print(table, out);
	fprintf(out->f, "%zu tensor%s, whole %s\n", t->n,
		t->n == 1 ? "" : "s", rsh_text_bytes(bytes, text, sizeof(text)));
	return rc;
}
