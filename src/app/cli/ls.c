/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/ls.c runs `ls`: it finds out what the operand is, and prints it. */
#include "config.h"

#include "commands.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "rsh/source/format.h"
#include "rsh/storage/hub.h"
#include "rsh/util/files.h"
#include "rsh/util/mem.h"

/* ---- the records of a file ---- */

struct record {
	const struct rsh_ckpt_index *index;
	const struct rsh_record *of;
};

static void put_extents(struct rsh_printer *out, const void *ctx)
{
	const struct record *r = ctx;
	const struct rsh_extent *e = r->index->extents + r->of->first_extent;

	rsh_json(out, "[");
	for (uint32_t i = 0; i < r->of->n_extents; i++)
		rsh_json(out, "{offset:% bytes:%}", e[i].offset, e[i].length);
	rsh_json(out, "]");
	rsh_say(out, "%", r->of->n_extents);
}

static void print_records(struct rsh_printer *out, const char *path,
			  const struct rsh_inspected *file,
			  const struct rsh_names *names)
{
	static const struct rsh_column columns[] = {
		{ "name", "NAME", .shorten = true },
		{ "dtype", "DTYPE" },
		{ "shape", "SHAPE" },
		{ "bytes", "BYTES", .right = true },
		{ "offset", "OFFSET", .right = true },
		{ "chunks", "CHUNKS", .right = true },
		{ NULL, NULL }
	};
	const struct rsh_ckpt_index *ix = file->index;
	cleanup_free char *text = NULL;
	json_t *metadata = json_object();
	uint64_t content = 0;

	for (uint32_t i = 0; i < file->meta.n_entries; i++)
		json_object_set_new_nocheck(
			metadata, file->meta.entries[i].key,
			rsh_json_text(file->meta.entries[i].value));
	text = rsh_json_dump(metadata, JSON_COMPACT);
	out->failed |= !text;
	rsh_json(out, "{file:% format:% bytes:% crc:% metadata:% records:",
		 path, rsh_file_type_suffix(file->format) + 1, ix->file_bytes,
		 RSH_V_IF(ix->has_crc, ix->crc), rsh_v_json(text));
	rsh_rows(out, columns);
	for (uint32_t i = 0; i < ix->n_records; i++) {
		const struct record r = { ix, &ix->records[i] };

		content += r.of->content_bytes;
		rsh_row(out, rsh_names_text(names, r.of->name),
			rsh_dtype_name((enum rsh_dtype)r.of->dtype),
			rsh_v_dims(rsh_record_dims(ix, r.of), r.of->n_dims),
			r.of->content_bytes,
			RSH_V_IF(r.of->n_extents,
				 ix->extents[r.of->first_extent].offset),
			rsh_v_call(put_extents, &r));
	}
	rsh_rows_end(out);
	rsh_json(out, "}");
	rsh_say(out, "% records, % in a file of % bytes%\n", ix->n_records,
		rsh_v_bytes(content), ix->file_bytes,
		ix->has_crc ? ", with CRC" : "");
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
static int say_other_file(const struct rsh_options *o, int rc,
			  struct rsh_error *err)
{
	const struct rsh_source_options *files = &o->vfs.files;
	const char *what = rsh_other_file(o->vfs.source);
	char hint[512];

	if (!what)
		return rc;
	rsh_source_hint_around(o->vfs.source, &files->store, files->formats,
			       hint, sizeof(hint));
	return rsh_error_set(err, -rc, "%s: not a checkpoint file or strategy, "
			     "but %s%s", o->vfs.source, what, hint);
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
			say_other_file(o, rc, err) : rc;
	}
	rc = rsh_inspect_file(o->vfs.source,
			      o->vfs.files.check == RSH_CHECK_FULL, s->names,
			      &s->file, err);
	s->is_file = rc == 0;
	if (rc == -EBADMSG && s->file.format == RSH_FILE_CKPT &&
	    rsh_strategy_load(o->vfs.source, false, s->names, &s->strategy,
			      NULL) == 0)
		rc = 0;
	return rc == -EBADMSG ? say_other_file(o, rc, err) : rc;
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
	char hint[PATH_MAX];
	const struct rsh_format *format = NULL;
	/* Whoever opens the file says what is wrong with it. */
	struct rsh_error unused = RSH_ERROR_INIT;
	int bid = RSH_BID_NO;

	s->names = rsh_names_new();
	if (!s->names)
		return rsh_error_nomem(err);
	if (rsh_store_is_address(o->vfs.source))
		return open_directory(o, s, err);
	if (stat(o->vfs.source, &st) != 0) {
		const int missing = errno;

		rsh_hub_hint(o->vfs.source, hint, sizeof(hint));
		return rsh_error_set(err, missing, "%s: %s%s", o->vfs.source,
				     strerror(missing), hint);
	}
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

int rsh_ls(const struct rsh_options *o, struct rsh_run *run)
{
	struct subject s = { 0 };
	int rc = open_subject(o, &s, &run->err);

	if (rc == 0 && s.source)
		rc = rsh_format_lists(rsh_source_format(s.source)) &&
		     rsh_source_n_candidates(s.source) == 1 ?
		     rsh_ls_whole(run, o, s.source) :
		     rsh_ls_source(run, o, s.source);
	else if (rc == 0 && s.strategy)
		rsh_ls_strategy(&run->out, s.strategy, s.names);
	else if (rc == 0)
		print_records(&run->out, o->vfs.source, &s.file, s.names);
	rsh_source_free(s.source);
	rsh_strategy_free(s.strategy);
	rsh_inspected_clear(&s.file);
	rsh_names_free(s.names);
	return rc;
}
