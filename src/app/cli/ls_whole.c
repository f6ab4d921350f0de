/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/ls_whole.c prints what the format lists of a source that is one whole
 * model: tensors with their chunks, for `ls SOURCE`. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "ls.h"
#include "ls_model.h"
#include "rsh/source/format.h"
#include "rsh/storage/store.h"
#include "rsh/util/log.h"
#include "text.h"

static uint64_t whole_elements(const uint64_t *dims, uint32_t n)
{
	uint64_t all = 1;

	for (uint32_t d = 0; d < n; d++)
		all *= dims[d];
	return all;
}

/* ---- JSON ---- */

static json_t *whole_dims_json(const uint64_t *dims, uint32_t n)
{
	json_t *all = json_array();

	for (uint32_t d = 0; d < n; d++)
		json_array_append_new(all, rsh_json_u64(dims[d]));
	return all;
}

static json_t *whole_chunks_json(const struct rsh_listed_tensor *t)
{
	json_t *all = json_array();

	for (uint32_t i = 0; i < t->n_chunks; i++) {
		const struct rsh_listed_chunk *c = &t->chunks[i];

		json_array_append_new(
			all, json_pack("{s:o,s:o,s:o,s:o,s:o}", "from",
				       whole_dims_json(c->from, t->n_dims),
				       "size",
				       whole_dims_json(c->size, t->n_dims),
				       "file", rsh_json_optional(c->file),
				       "offset", c->placed ?
				       rsh_json_u64(c->offset) : json_null(),
				       "length", c->placed ?
				       rsh_json_u64(c->length) : json_null()));
	}
	return all;
}

static json_t *whole_tensors_json(const struct rsh_listed *l)
{
	json_t *all = json_array();

	for (uint32_t i = 0; i < l->n_tensors; i++) {
		const struct rsh_listed_tensor *t = &l->tensors[i];
		json_t *one = json_pack("{s:o,s:s,s:o,s:o}", "name",
					rsh_json_text(t->name), "dtype",
					rsh_dtype_name(t->dtype), "shape",
					whole_dims_json(t->dims, t->n_dims),
					"chunks", whole_chunks_json(t));

		if (t->shares)
			json_object_set_new(one, "shares",
					    rsh_json_text(t->shares));
		json_array_append_new(all, one);
	}
	return all;
}

static json_t *whole_values_json(const struct rsh_listed *l)
{
	json_t *all = json_array();

	for (uint32_t i = 0; i < l->n_values; i++)
		json_array_append_new(all, rsh_json_text(l->values[i]));
	return all;
}

static json_t *whole_files_json(const struct rsh_source *s,
				const struct rsh_listed *l)
{
	json_t *all = json_array();

	for (uint32_t i = 0; i < l->n_files; i++) {
		struct rsh_stat st;
		const bool has = rsh_store_look(rsh_source_store(s),
						l->files[i], &st) == 0 &&
				 st.kind == RSH_IS_FILE;

		json_array_append_new(
			all, json_pack("{s:o,s:o}", "name",
				       rsh_json_text(l->files[i]), "bytes", has ?
				       rsh_json_u64(st.size) : json_null()));
	}
	return all;
}

static int print_whole_json(const struct rsh_printer *out,
			    const struct rsh_source *s,
			    const struct rsh_listed *l,
			    const struct rsh_options *o)
{
	return rsh_printer_json(
		out, json_pack("{s:o,s:s,s:b,s:o,s:o,s:o,s:o,s:o}", "source",
			       rsh_json_text(o->vfs.source), "format",
			       rsh_source_format(s)->name, "whole",
			       l->wrong.code == 0, "reason",
			       rsh_json_optional(l->wrong.code ?
						 l->wrong.text : NULL),
			       "files", whole_files_json(s, l), "tensors",
			       whole_tensors_json(l), "values",
			       whole_values_json(l), "next",
			       l->wrong.code ? json_null() :
					       rsh_ls_next_json(o)));
}

/* ---- for people ---- */

static const struct rsh_column columns[] = {
	{ "TENSOR", .shorten = true },
	{ "DTYPE" },
	{ "SHAPE" },
	{ "CHUNKS", .right = true },
};

static int print_whole_tensors(const struct rsh_printer *out,
			       const struct rsh_listed *l, uint64_t *bytes)
{
	struct rsh_table *table = rsh_table_new(columns, sizeof(columns) /
							 sizeof(columns[0]));
	char text[RSH_LS_SHAPE_MAX];
	int rc;

	*bytes = 0;
	for (uint32_t i = 0; i < l->n_tensors; i++) {
		const struct rsh_listed_tensor *t = &l->tensors[i];
		int64_t dims[RSH_MAX_DIMS];

		for (uint32_t k = 0; k < t->n_dims; k++)
			dims[k] = (int64_t)t->dims[k];
		rsh_table_cell(table, "%s", t->name);
		rsh_table_cell(table, "%s", rsh_dtype_name(t->dtype));
		rsh_table_cell(table, "%s", rsh_ls_shape(dims, t->n_dims,
							 text));
		if (t->shares)
			rsh_table_cell(table, "as %s", t->shares);
		else
			rsh_table_cell(table, "%" PRIu32, t->n_chunks);
		*bytes += whole_elements(t->dims, t->n_dims) *
			  rsh_dtype_size(t->dtype);
	}
	rc = rsh_table_print(table, out);
	rsh_table_free(table);
	return rc;
}

static int print_whole(const struct rsh_printer *out, const struct rsh_listed *l)
{
	char text[32];
	uint64_t bytes;
	int rc = print_whole_tensors(out, l, &bytes);

	fprintf(out->f, "%" PRIu32 " tensor%s, whole %s, in %" PRIu32 " file%s",
		l->n_tensors, l->n_tensors == 1 ? "" : "s",
		rsh_text_bytes(bytes, text, sizeof(text)), l->n_files,
		l->n_files == 1 ? "" : "s");
	if (l->n_values > 0)
		fprintf(out->f, "; %" PRIu32 " value%s that %s no tensor%s",
			l->n_values, l->n_values == 1 ? "" : "s",
			l->n_values == 1 ? "is" : "are",
			l->n_values == 1 ? "" : "s");
	fputc('\n', out->f);
	return rc;
}

int rsh_ls_whole(const struct rsh_printer *out, const struct rsh_options *o,
		 const struct rsh_source *source, bool *taken,
		 struct rsh_error *err)
{
	struct rsh_arena arena = { NULL, 0 };
	struct rsh_listed l;
	int rc = rsh_source_format(source)->list(source, &arena, &l, err);

	if (rc) {
		rsh_arena_clear(&arena);
		return rc;
	}
	*taken = l.wrong.code == 0;
	rc = out->json ? print_whole_json(out, source, &l, o) :
			 print_whole(out, &l);
	if (rc == 0 && *taken && !out->json)
		rc = rsh_ls_next_print(out, o);
	if (rc == 0 && !*taken && !out->json)
		rsh_log_error("%s: %s", o->vfs.source, l.wrong.text);
	rsh_arena_clear(&arena);
	return rc ? rsh_error_nomem(err) : 0;
}
