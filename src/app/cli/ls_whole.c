/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/ls_whole.c prints, for `ls SOURCE`, what the format lists of a source
 * that is one whole model: tensors with their chunks, or what a model in parts
 * is.  It prints the next command to type. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ls.h"
#include "rsh/app/commands.h"
#include "rsh/app/options.h"
#include "rsh/source/format.h"
#include "rsh/source/tables.h"
#include "rsh/storage/store.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"
#include "rsh/weights/decoder_names.h"
#include "rsh/wire/model_config.h"

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
	uint64_t bytes = 0;
	char text[32];
	int rc;

	for (uint32_t i = 0; i < l->n_tensors; i++) {
		const struct rsh_listed_tensor *t = &l->tensors[i];
		uint64_t whole = rsh_dtype_size(t->dtype);

		for (uint32_t d = 0; d < t->n_dims; d++)
			whole *= t->dims[d];
		bytes += whole;
		rsh_table_cell(table, "%s", t->name);
		rsh_table_type(table, t->dtype, (const int64_t *)t->dims,
			       t->n_dims);
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

/* Takes the first architecture of the config.json in SOURCE, and what is to be
 * said if no weight is one of it.  A config.json that cannot be read is
 * ignored, because the weights are listed.  Returns 0 or -ENOMEM. */
static int model_take_config(struct rsh_ls_model *m, const char *path,
			     const struct rsh_source *source,
			     const struct rsh_decoder_names *names)
{
	struct rsh_model_config *config = NULL;
	struct rsh_error why = RSH_ERROR_INIT;
	int rc = rsh_model_config_load(NULL, path, rsh_source_store(source),
				       &config, &why);
	const char *name = rc || !config ? NULL :
			   rsh_model_config_architecture(config, 0);
	cleanup_free char *quoted = name ? rsh_text_format("\"%s\"", name) :
					   NULL;
	const char *class = quoted ? rsh_decoder_class(quoted, strlen(quoted)) :
				     NULL;

	m->architecture = name ? strdup(name) : NULL;
	m->is_other = class &&
		      rsh_decoder_names_misfit(names,
					       rsh_model_config_path(config),
					       class, m->other,
					       sizeof(m->other));
	rc = rc == -ENOMEM || (name && (!quoted || !m->architecture)) ?
	     -ENOMEM : 0;
	rsh_model_config_free(config);
	return rc;
}

static void model_note(const struct rsh_ls_model *m,
		       const struct rsh_printer *out)
{
	if (!m->is_other)
		return;
	fputs("note: ", out->f);
	rsh_printer_put(out, m->other);
	fputc('\n', out->f);
}

int rsh_ls_whole(const struct rsh_printer *out, const struct rsh_options *o,
		 const struct rsh_source *source, bool *taken,
		 struct rsh_error *err)
{
	struct rsh_decoder_names names = { NULL, false };
	struct rsh_ls_model model = { 0 };
	struct rsh_arena arena = { NULL, 0 };
	struct rsh_listed l;
	int rc = rsh_source_format(source)->list(source, &arena, &l, err);

	/* Only people are told about the config.json. */
	for (uint32_t i = 0; rc == 0 && !out->json && i < l.n_tensors; i++)
		rsh_decoder_names_add(&names, l.tensors[i].name);
	if (rc == 0 && !out->json &&
	    model_take_config(&model, o->vfs.source, source, &names))
		rc = rsh_error_nomem(err);
	free(model.architecture);
	if (rc) {
		rsh_arena_clear(&arena);
		return rc;
	}
	*taken = l.wrong.code == 0;
	rc = out->json ? print_whole_json(out, source, &l, o) :
			 print_whole(out, &l);
	if (rc == 0 && !out->json)
		model_note(&model, out);
	if (rc == 0 && *taken && !out->json)
		rc = rsh_ls_next_print(out, o);
	if (rc == 0 && !*taken && !out->json)
		rsh_log_error("%s: %s", o->vfs.source, l.wrong.text);
	rsh_arena_clear(&arena);
	return rc ? rsh_error_nomem(err) : 0;
}

/* ---- a model in parts, and the next command ---- */

/* ---- reading ---- */

int rsh_ls_model_take(struct rsh_ls_model *m, const char *path,
		      const struct rsh_source *source,
		      const struct rsh_source_view *view)
{
	const struct rsh_ckpt_index *ix = view->index[0];
	struct rsh_decoder_names names = { NULL, false };
	struct rsh_source_file_info f;

	m->n_parts = rsh_source_n_files(source);
	for (uint32_t i = 0; i < m->n_parts; i++) {
		rsh_source_file_info(source, i, &f);
		m->file_bytes += f.bytes;
	}
	m->n_tensors = ix->n_records;
	for (uint32_t i = 0; i < ix->n_records; i++) {
		const struct rsh_record *r = &ix->records[i];

		m->n_of[r->dtype]++;
		m->bytes_of[r->dtype] += r->content_bytes;
		m->bytes += r->content_bytes;
		rsh_decoder_names_add(&names,
				      rsh_names_text(view->names, r->name));
	}
	return model_take_config(m, path, source, &names);
}

/* ---- the next command ---- */

/* Returns whether the path is the directory, or something in it. */
static bool next_is_in(const char *path, const char *dir)
{
	cleanup_free char *real = realpath(path, NULL);
	cleanup_free char *top = realpath(dir, NULL);
	const size_t n = top ? strlen(top) : 0;

	return real && top && strncmp(real, top, n) == 0 &&
	       (real[n] == '/' || real[n] == '\0');
}

/* A mount must not hide its SOURCE, which may be a mount itself. */
static char *next_command(const struct rsh_options *o)
{
	const char *point = next_is_in(o->vfs.source, "mnt") ? "mnt2" : "mnt";
	const char *operands[] = { o->vfs.source, point, NULL };
	cleanup_free char *line =
		rsh_options_line(o, rsh_command_find("mount"), operands);

	return line ? rsh_text_format("mkdir -p %s && %s", point, line) : NULL;
}

int rsh_ls_next_print(const struct rsh_printer *out,
		      const struct rsh_options *o)
{
	cleanup_free char *line = next_command(o);

	if (!line)
		return -ENOMEM;
	fprintf(out->f, "next: %s\n", line);
	return 0;
}

json_t *rsh_ls_next_json(const struct rsh_options *o)
{
	cleanup_free char *line = next_command(o);

	return line ? rsh_json_text(line) : NULL;
}

/* ---- printing ---- */

json_t *rsh_ls_model_json(const struct rsh_ls_model *m)
{
	json_t *types = json_array();

	for (unsigned d = 0; d < RSH_DTYPE_COUNT; d++)
		if (m->n_of[d])
			json_array_append_new(
				types, json_pack("{s:s,s:i,s:o}", "dtype",
						 rsh_dtype_name((enum rsh_dtype)
								d),
						 "tensors", (int)m->n_of[d],
						 "bytes",
						 rsh_json_u64(m->bytes_of[d])));
	return json_pack("{s:o,s:i,s:i,s:o,s:o}", "architecture",
			 rsh_json_optional(m->architecture), "parts",
			 (int)m->n_parts, "tensors", (int)m->n_tensors, "bytes",
			 rsh_json_u64(m->bytes), "types", types);
}

void rsh_ls_model_print(const struct rsh_ls_model *m,
			const struct rsh_printer *out)
{
	const char *before = "";
	char size[32];

	if (m->architecture)
		rsh_printer_put(out, m->architecture);
	else
		fputs("a model without an architecture in its config.json",
		      out->f);
	fprintf(out->f, ": %" PRIu32 " tensor%s, %s", m->n_tensors,
		m->n_tensors == 1 ? "" : "s",
		rsh_text_bytes(m->bytes, size, sizeof(size)));
	fprintf(out->f, ", in %" PRIu32 " part%s of %s\n", m->n_parts,
		m->n_parts == 1 ? "" : "s",
		rsh_text_bytes(m->file_bytes, size, sizeof(size)));
	for (unsigned d = 0; d < RSH_DTYPE_COUNT; d++) {
		if (m->n_of[d] == 0)
			continue;
		fprintf(out->f, "%s%s: %" PRIu32 " tensor%s, %s", before,
			rsh_dtype_name((enum rsh_dtype)d), m->n_of[d],
			m->n_of[d] == 1 ? "" : "s",
			rsh_text_bytes(m->bytes_of[d], size, sizeof(size)));
		before = "; ";
	}
	fputc('\n', out->f);
	model_note(m, out);
}
