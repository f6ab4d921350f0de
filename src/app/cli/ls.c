/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/ls.c runs `ls`: it finds out what the operand is, and prints it. */
#include "config.h"

#include "commands.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "ls.h"
#include "rsh/source/format.h"
#include "rsh/util/files.h"
#include "rsh/util/log.h"

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

static int print_records(const struct rsh_printer *out,
			 const struct rsh_inspected *file,
			 const struct rsh_names *names)
{
	const struct rsh_ckpt_index *ix = file->index;
	struct rsh_table *t = RSH_TABLE(columns);
	char text[32];
	uint64_t content = 0;
	int rc;

	for (uint32_t i = 0; i < ix->n_records; i++) {
		const struct rsh_record *r = &ix->records[i];

		rsh_table_cell(t, "%s", rsh_names_text(names, r->name));
		rsh_table_type(t, (enum rsh_dtype)r->dtype,
			       rsh_record_dims(ix, r), r->n_dims);
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

static int ls_records(const struct rsh_printer *out, const char *path,
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

/* ---- the operand ---- */

/* This is what will be printed: at most one of these members is set. */
struct subject {
	struct rsh_names *names;
	struct rsh_source *source;
	struct rsh_strategy *strategy;
	struct rsh_inspected file;
	bool is_file;
};

/* Sets an error that says what the file is, and which operand ls needs, if the
 * file is neither a checkpoint nor a strategy. */
static int say_other_file(const char *path, int rc, struct rsh_error *err)
{
	bool of_directory;
	const char *what = rsh_other_file(path, &of_directory);
	const char *slash = strrchr(path, '/');

	if (!what)
		return rc;
	if (!of_directory)
		return rsh_error_set(err, -rc, "%s: not a checkpoint file or "
				     "strategy, but %s", path, what);
	return rsh_error_set(err, -rc, "%s: this is %s; ls takes its "
			     "directory, %.*s", path, what,
			     slash && slash > path ? (int)(slash - path) : 1,
			     slash ? path : ".");
}

/* Strategies and checkpoints may both be called .ckpt: a file that is not
 * readable as a checkpoint may be a strategy.  If it is neither, the first
 * error is reported. */
static int open_ls_file(const struct rsh_options *o, struct subject *s,
			struct rsh_error *err)
{
	int rc;

	if (rsh_has_suffix(o->vfs.source, ".json")) {
		rc = rsh_strategy_load(o->vfs.source, o->vfs.plan.compat,
				       s->names, &s->strategy, err);
		return rc == -EBADMSG ?
			say_other_file(o->vfs.source, rc, err) : rc;
	}
	rc = rsh_inspect_file(o->vfs.source,
			      o->vfs.files.check == RSH_CHECK_FULL, s->names,
			      &s->file, err);
	s->is_file = rc == 0;
	if (rc == -EBADMSG && s->file.format == RSH_FILE_CKPT &&
	    rsh_strategy_load(o->vfs.source, false, s->names, &s->strategy,
			      NULL) == 0)
		rc = 0;
	return rc == -EBADMSG ? say_other_file(o->vfs.source, rc, err) : rc;
}

/* A directory is a tree of checkpoints, or has the strategies of stages. */
static int open_directory(const struct rsh_options *o, struct subject *s,
			  struct rsh_error *err)
{
	const struct rsh_vfs_config *v = &o->vfs;
	struct rsh_source_options files = v->files;
	int rc;

	rc = rsh_source_open(v->source, 0, UINT32_MAX, &files, &s->source, err);
	if (rc == -ENOENT && rsh_strategy_load(v->source, v->plan.compat,
					       s->names, &s->strategy,
					       NULL) == 0)
		rc = 0;
	if (s->source && v->src.path &&
	    rsh_source_format(s->source)->layout != RSH_LAYOUT_GIVEN)
		return rsh_source_needs_none(s->source, err);
	return rc;
}

static int open_subject(const struct rsh_options *o, struct subject *s,
			struct rsh_error *err)
{
	struct stat st;
	const struct rsh_format *format = NULL;
	/* Whoever opens the file says what is wrong with it. */
	struct rsh_error unused = RSH_ERROR_INIT;
	int bid = RSH_BID_NO;

	s->names = rsh_names_new();
	if (!s->names)
		return rsh_error_nomem(err);
	if (rsh_store_is_address(o->vfs.source))
		return open_directory(o, s, err);
	if (stat(o->vfs.source, &st) != 0)
		return rsh_error_set(err, errno, "%s: %s%s", o->vfs.source,
				     strerror(errno),
				     rsh_store_hint(o->vfs.source));
	/* A single file may be a source.  Of one that has records these are
	 * listed. */
	if (!S_ISDIR(st.st_mode))
		format = rsh_source_format_at(o->vfs.source,
					      &o->vfs.files.store,
					      o->vfs.files.formats, &bid,
					      &unused);
	if (format && format->by_name &&
	    rsh_file_type_of(o->vfs.source) != RSH_FILE_OTHER)
		format = NULL;
	return S_ISDIR(st.st_mode) || (format && bid > RSH_BID_ANY) ?
	       open_directory(o, s, err) : open_ls_file(o, s, err);
}

static int print_subject(const struct rsh_options *o, struct subject *s,
			 bool *taken, struct rsh_error *err)
{
	struct rsh_printer out;
	int rc;

	rsh_printer_init(&out, o);
	if (s->source && rsh_source_format(s->source)->list)
		return rsh_ls_whole(&out, o, s->source, taken, err);
	if (s->source)
		return rsh_ls_source(&out, o, s->source, taken, err);
	rc = s->strategy ? rsh_ls_strategy(&out, s->strategy, s->names) :
			   ls_records(&out, o->vfs.source, &s->file, s->names);
	return rc ? rsh_error_nomem(err) : 0;
}

enum rsh_exit rsh_ls(const struct rsh_options *o)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct subject s = { 0 };
	bool taken = true;
	int rc;

	rc = open_subject(o, &s, &err) ?:
	     print_subject(o, &s, &taken, &err);
	rsh_source_free(s.source);
	rsh_strategy_free(s.strategy);
	rsh_inspected_clear(&s.file);
	rsh_names_free(s.names);
	if (rc)
		return rsh_exit_failed(o, rc, &err);
	return taken ? RSH_EXIT_GOOD : RSH_EXIT_NO;
}
