/* SPDX-License-Identifier: Apache-2.0 */
/* cli/ls_dcp.c prints what the metadata of a distributed checkpoint says: its
 * tensors with their chunks, for `ls SOURCE`.  No file is looked into. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "ls.h"
#include "ls_model.h"
#include "rsh/dialects/dcp.h"
#include "rsh/store/store.h"
#include "rsh/util/log.h"
#include "text.h"

struct dcp_listing {
	const struct rsh_dcp *dcp;
	const struct rsh_source *source;
	struct rsh_error wrong; /* why the tensors are not whole; code 0: they
				 * are */
};

/* Does the file lie there, whatever is in it? */
static bool ls_dcp_has(const struct dcp_listing *l, uint32_t file,
		       struct rsh_stat *st)
{
	return rsh_store_look(rsh_source_store(l->source), l->dcp->files[file],
			      st) == 0 && st->kind == RSH_IS_FILE;
}

static uint64_t ls_dcp_elements(const uint64_t *dims, uint32_t n)
{
	uint64_t all = 1;

	for (uint32_t d = 0; d < n; d++)
		all *= dims[d];
	return all;
}

/* Finds the first tensor whose boxes do not cover it, and the first file that
 * is not there. */
static int ls_dcp_judge(struct dcp_listing *l)
{
	struct rsh_stat st;

	for (uint32_t i = 0; i < l->dcp->n_tensors && !l->wrong.code; i++) {
		const struct rsh_dcp_tensor *t = &l->dcp->tensors[i];
		uint64_t n = 0;
		int rc = rsh_dcp_uncovered(t, &n, &l->wrong);

		if (rc == -ENOMEM)
			return rc;
		if (rc == 0 && n > 0)
			rsh_error_set(&l->wrong, EBADMSG, "tensor %s: %" PRIu64
				      " elements are in no chunk", t->name, n);
	}
	for (uint32_t i = 0; i < l->dcp->n_files && !l->wrong.code; i++)
		if (!ls_dcp_has(l, i, &st))
			rsh_error_set(&l->wrong, ENOENT, "%s is missing",
				      l->dcp->files[i]);
	return 0;
}

/* ---- JSON ---- */

static json_t *dcp_dims_json(const uint64_t *dims, uint32_t n)
{
	json_t *all = json_array();

	for (uint32_t d = 0; d < n; d++)
		json_array_append_new(all, rsh_json_u64(dims[d]));
	return all;
}

static json_t *dcp_file_json(const struct rsh_dcp *d, uint32_t file)
{
	return file == RSH_DCP_NO_FILE ? json_null() :
					 rsh_json_text(d->files[file]);
}

static json_t *dcp_chunks_json(const struct rsh_dcp *d,
			       const struct rsh_dcp_tensor *t)
{
	json_t *all = json_array();

	for (uint32_t i = 0; i < t->n_chunks; i++) {
		const struct rsh_dcp_chunk *c = &t->chunks[i];
		const bool placed = c->file != RSH_DCP_NO_FILE &&
				    c->length != RSH_DCP_BY_NAME;

		json_array_append_new(
			all, json_pack("{s:o,s:o,s:o,s:o,s:o}", "from",
				       dcp_dims_json(c->from, t->n_dims),
				       "size",
				       dcp_dims_json(c->size, t->n_dims),
				       "file", dcp_file_json(d, c->file),
				       "offset", placed ?
				       rsh_json_u64(c->offset) : json_null(),
				       "length", placed ?
				       rsh_json_u64(c->length) : json_null()));
	}
	return all;
}

static json_t *dcp_tensors_json(const struct rsh_dcp *d)
{
	json_t *all = json_array();

	for (uint32_t i = 0; i < d->n_tensors; i++) {
		const struct rsh_dcp_tensor *t = &d->tensors[i];

		json_array_append_new(
			all, json_pack("{s:o,s:s,s:o,s:o}", "name",
				       rsh_json_text(t->name), "dtype",
				       rsh_dtype_name(t->dtype), "shape",
				       dcp_dims_json(t->dims, t->n_dims),
				       "chunks", dcp_chunks_json(d, t)));
	}
	return all;
}

static json_t *dcp_values_json(const struct rsh_dcp *d)
{
	json_t *all = json_array();

	for (uint32_t i = 0; i < d->n_values; i++)
		json_array_append_new(all, rsh_json_text(d->values[i].name));
	return all;
}

static json_t *dcp_files_json(const struct dcp_listing *l)
{
	json_t *all = json_array();

	for (uint32_t i = 0; i < l->dcp->n_files; i++) {
		struct rsh_stat st;
		const bool has = ls_dcp_has(l, i, &st);

		json_array_append_new(
			all, json_pack("{s:o,s:o}", "name",
				       rsh_json_text(l->dcp->files[i]),
				       "bytes", has ?
				       rsh_json_u64(st.size) :
				       json_null()));
	}
	return all;
}

static int print_dcp_json(const struct rsh_output *out,
			  const struct dcp_listing *l,
			  const struct rsh_options *o)
{
	return rsh_output_json(
		out, json_pack("{s:o,s:s,s:b,s:o,s:o,s:o,s:o,s:o}", "source",
			       rsh_json_text(o->vfs.source), "format", "dcp", "whole",
			       l->wrong.code == 0, "reason",
			       rsh_json_optional(l->wrong.code ?
						 l->wrong.text : NULL),
			       "files", dcp_files_json(l), "tensors",
			       dcp_tensors_json(l->dcp), "values",
			       dcp_values_json(l->dcp), "next",
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

static int print_dcp_tensors(const struct rsh_output *out,
			     const struct rsh_dcp *d, uint64_t *bytes)
{
	struct rsh_table *table = rsh_table_new(columns, sizeof(columns) /
							 sizeof(columns[0]));
	char text[RSH_LS_SHAPE_MAX];
	int rc;

	*bytes = 0;
	for (uint32_t i = 0; i < d->n_tensors; i++) {
		const struct rsh_dcp_tensor *t = &d->tensors[i];
		int64_t dims[RSH_MAX_DIMS];

		for (uint32_t k = 0; k < t->n_dims; k++)
			dims[k] = (int64_t)t->dims[k];
		rsh_table_cell(table, "%s", t->name);
		rsh_table_cell(table, "%s", rsh_dtype_name(t->dtype));
		rsh_table_cell(table, "%s", rsh_ls_shape(dims, t->n_dims,
							 text));
		rsh_table_cell(table, "%" PRIu32, t->n_chunks);
		*bytes += ls_dcp_elements(t->dims, t->n_dims) *
			  rsh_dtype_size(t->dtype);
	}
	rc = rsh_table_print(table, out);
	rsh_table_free(table);
	return rc;
}

static int print_dcp(const struct rsh_output *out, const struct dcp_listing *l)
{
	const struct rsh_dcp *d = l->dcp;
	char text[32];
	uint64_t bytes;
	int rc = print_dcp_tensors(out, d, &bytes);

	fprintf(out->f, "%" PRIu32 " tensors, whole %s, in %" PRIu32 " file%s",
		d->n_tensors, rsh_text_bytes(bytes, text, sizeof(text)),
		d->n_files, d->n_files == 1 ? "" : "s");
	if (d->n_values > 0)
		fprintf(out->f, "; %" PRIu32 " value%s that %s no tensor%s",
			d->n_values, d->n_values == 1 ? "" : "s",
			d->n_values == 1 ? "is" : "are",
			d->n_values == 1 ? "" : "s");
	fputc('\n', out->f);
	return rc;
}

int rsh_ls_dcp(const struct rsh_output *out, const struct rsh_options *o,
	       const struct rsh_source *source, bool *taken)
{
	const char *path = o->vfs.source;
	struct dcp_listing l = {
		.dcp = rsh_source_dcp(source), .source = source,
	};
	int rc = ls_dcp_judge(&l);

	if (rc)
		return rc;
	*taken = l.wrong.code == 0;
	rc = out->json ? print_dcp_json(out, &l, o) : print_dcp(out, &l);
	if (rc == 0 && *taken && !out->json)
		rc = rsh_ls_next_print(out, o);
	if (rc == 0 && !*taken && !out->json)
		rsh_log_error("%s: %s", path, l.wrong.text);
	return rc;
}
