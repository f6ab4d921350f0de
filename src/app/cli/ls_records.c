/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/ls_records.c prints the records of a checkpoint, for `ls FILE`. */
#include "config.h"

#include <inttypes.h>
#include <string.h>

#include "ls.h"
#include "text.h"

json_t *rsh_ls_shape_json(const int64_t *dims, uint32_t n)
{
	json_t *shape = json_array();

	for (uint32_t d = 0; d < n; d++)
		json_array_append_new(shape, json_integer(dims[d]));
	return shape;
}

static json_t *listed_record_json(const struct rsh_ckpt_index *ix,
				  const struct rsh_record *r, const char *name)
{
	json_t *chunks = json_array();

	for (uint32_t i = 0; i < r->n_extents; i++) {
		const struct rsh_extent *e = &ix->extents[r->first_extent + i];

		json_array_append_new(chunks, json_pack("{s:o,s:o}", "offset",
					rsh_json_u64(e->offset), "bytes",
					rsh_json_u64(e->length)));
	}
	return json_pack("{s:o,s:s,s:o,s:o,s:o,s:o}", "name",
			 rsh_json_text(name), "dtype",
			 rsh_dtype_name((enum rsh_dtype)r->dtype), "shape",
			 rsh_ls_shape_json(rsh_record_dims(ix, r), r->n_dims),
			 "bytes", rsh_json_u64(r->content_bytes), "offset",
			 r->n_extents ?
			 rsh_json_u64(ix->extents[r->first_extent].offset) :
			 json_null(), "chunks", chunks);
}

/* ---- for people ---- */

static const struct rsh_column columns[] = {
	{ "NAME", .shorten = true },
	{ "DTYPE" },
	{ "SHAPE" },
	{ "BYTES", .right = true },
	{ "OFFSET", .right = true },
	{ "CHUNKS", .right = true },
};

const char *rsh_ls_shape(const int64_t *dims, uint32_t n,
			 char text[RSH_LS_SHAPE_MAX])
{
	char *to = stpcpy(text, "[");

	for (uint32_t d = 0; d < n; d++)
		to += sprintf(to, "%s%" PRId64, d ? "," : "", dims[d]);
	strcpy(to, "]");
	return text;
}

static int print_records(const struct rsh_printer *out,
			 const struct rsh_inspected *file,
			 const struct rsh_names *names)
{
	const struct rsh_ckpt_index *ix = file->index;
	struct rsh_table *t = RSH_TABLE(columns);
	char shape[RSH_LS_SHAPE_MAX], text[32];
	uint64_t content = 0;
	int rc;

	for (uint32_t i = 0; i < ix->n_records; i++) {
		const struct rsh_record *r = &ix->records[i];

		rsh_table_cell(t, "%s", rsh_names_text(names, r->name));
		rsh_table_cell(t, "%s",
			       rsh_dtype_name((enum rsh_dtype)r->dtype));
		rsh_table_cell(t, "%s", rsh_ls_shape(rsh_record_dims(ix, r),
						     r->n_dims, shape));
		rsh_table_cell(t, "%" PRIu64, r->content_bytes);
		if (r->n_extents)
			rsh_table_cell(t, "%" PRIu64,
				       ix->extents[r->first_extent].offset);
		else
			rsh_table_cell(t, "-");
		rsh_table_cell(t, "%" PRIu32, r->n_extents);
		content += r->content_bytes;
	}
	rc = rsh_table_print(t, out);
	fprintf(out->f, "%" PRIu32 " records, %s in a file of %" PRIu64
		" bytes%s\n", ix->n_records,
		rsh_text_bytes(content, text, sizeof(text)), ix->file_bytes,
		ix->has_crc ? ", with CRC" : "");
	return rc;
}

int rsh_ls_records(const struct rsh_printer *out, const char *path,
		   const struct rsh_inspected *file,
		   const struct rsh_names *names)
{
	const struct rsh_ckpt_index *ix;
	json_t *records;
	json_t *metadata;

	if (!out->json)
		return print_records(out, file, names);
	ix = file->index;
	records = json_array();
	metadata = json_object();
	for (uint32_t i = 0; i < file->meta.n_entries; i++)
		json_object_set_new_nocheck(
			metadata, file->meta.entries[i].key,
			rsh_json_text(file->meta.entries[i].value));
	for (uint32_t i = 0; i < ix->n_records; i++) {
		const struct rsh_record *r = &ix->records[i];

		json_array_append_new(
			records, listed_record_json(ix, r, rsh_names_text(
							names, r->name)));
	}
	return rsh_printer_json(
		out, json_pack("{s:o,s:s,s:o,s:o,s:o,s:o}", "file",
			       rsh_json_text(path), "format",
			       rsh_file_type_suffix(file->format) + 1, "bytes",
			       rsh_json_u64(ix->file_bytes), "crc",
			       ix->has_crc ? json_integer(ix->crc) :
					     json_null(),
			       "metadata", metadata, "records", records));
}
