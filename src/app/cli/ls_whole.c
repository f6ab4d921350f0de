/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/ls_whole.c prints what the format lists of a source that is one whole
 * model: tensors with their chunks, for `ls SOURCE`. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "ls.h"
#include "rsh/source/format.h"
#include "rsh/storage/store.h"
#include "rsh/util/log.h"
#include "text.h"

/* ---- JSON ---- */

static json_t *whole_dims_json(const uint64_t *dims, uint32_t n)
{
	return rsh_ls_shape_json((const int64_t *)dims, n);
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

		json_array_append_new(
			all, json_pack("{s:o,s:s,s:o,s:o,s:o*}", "name",
				       rsh_json_text(t->name), "dtype",
				       rsh_dtype_name(t->dtype), "shape",
				       whole_dims_json(t->dims, t->n_dims),
				       "chunks", whole_chunks_json(t), "shares",
				       t->shares ? rsh_json_text(t->shares) :
						   NULL));
	}
	return all;
}

static int print_whole_json(const struct rsh_printer *out,
			    const struct rsh_source *s,
			    const struct rsh_listed *l,
			    const struct rsh_options *o)
{
	json_t *files = json_array(), *values = json_array();

	for (uint32_t i = 0; i < l->n_files; i++) {
		struct rsh_stat st;
		const bool has = rsh_store_look(rsh_source_store(s),
						l->files[i], &st) == 0 &&
				 st.kind == RSH_IS_FILE;

		json_array_append_new(
			files, json_pack("{s:o,s:o}", "name",
					 rsh_json_text(l->files[i]), "bytes",
					 has ? rsh_json_u64(st.size) :
					       json_null()));
	}
	for (uint32_t i = 0; i < l->n_values; i++)
		json_array_append_new(values, rsh_json_text(l->values[i]));
	return rsh_printer_json(
		out, json_pack("{s:o,s:s,s:b,s:o,s:o,s:o,s:o,s:o}", "source",
			       rsh_json_text(o->vfs.source), "format",
			       rsh_source_format(s)->name, "whole",
			       l->wrong.code == 0, "reason",
			       rsh_json_optional(l->wrong.code ?
						 l->wrong.text : NULL),
			       "files", files, "tensors",
			       whole_tensors_json(l), "values", values, "next",
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

static int print_whole(const struct rsh_printer *out,
		       const struct rsh_listed *l)
{
	struct rsh_table *table = RSH_TABLE(columns);
	char text[RSH_LS_SHAPE_MAX];
	uint64_t bytes = 0;
	int rc;

	for (uint32_t i = 0; i < l->n_tensors; i++) {
		const struct rsh_listed_tensor *t = &l->tensors[i];
		uint64_t whole = rsh_dtype_size(t->dtype);

		for (uint32_t d = 0; d < t->n_dims; d++)
			whole *= t->dims[d];
		bytes += whole;
		rsh_table_cell(table, "%s", t->name);
		rsh_table_cell(table, "%s", rsh_dtype_name(t->dtype));
		rsh_table_cell(table, "%s",
			       rsh_ls_shape((const int64_t *)t->dims, t->n_dims,
					    text));
		if (t->shares)
			rsh_table_cell(table, "as %s", t->shares);
		else
			rsh_table_cell(table, "%" PRIu32, t->n_chunks);
	}
	rc = rsh_table_print(table, out);
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
