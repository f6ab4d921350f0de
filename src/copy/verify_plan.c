/* SPDX-License-Identifier: Apache-2.0 */
/* copy/verify_plan.c compares the files of a mount with real files or a
 * manifest, or writes a manifest of them. */
#include "config.h"

#include "rsh/copy/verify.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "copy_i.h"
#include "rsh/util/files.h"

struct job {
	const struct rsh_vfs *vfs;
	const struct rsh_verify_options *options;
	struct rsh_copy_list list;
	struct rsh_streams *streams;
	struct rsh_manifest_index index; /* of options->manifest */
	struct rsh_origin origin;
	struct rsh_manifest_writer draft; /* of options->write */
	const struct rsh_source *source;
	struct rsh_answer *out;
};

/* ---- one file while it is read ---- */

struct check {
	struct rsh_arena arena;
	/* `fd` is the file of the tree; -1: it is not compared. */
	int fd;
	uint64_t size;
	uint8_t *buf;
	bool differs;
	uint64_t where;
	int error; /* the error of reading that file */

	struct rsh_digest by_manifest, by_plan; /* `file` NULL: not computed */
};

static int check_sink(void *ctx, const uint8_t *data, size_t len,
		      uint64_t offset)
{
	struct check *k = ctx;

	if (k->fd >= 0 && !k->differs && !k->error) {
		ssize_t n = rsh_pread_all(k->fd, k->buf, len, offset);
		size_t i = 0;

		if (n < 0)
			k->error = (int)n;
		k->differs = n >= 0 && ((size_t)n != len ||
					memcmp(data, k->buf, len) != 0);
		while (k->differs && i < (size_t)n && data[i] == k->buf[i])
			i++;
		k->where = offset + i;
	}
	if (k->by_manifest.file)
		rsh_digest_sink(&k->by_manifest, data, len, offset);
	if (k->by_plan.file)
		rsh_digest_sink(&k->by_plan, data, len, offset);
	/* More bytes cannot change the result. */
	if (!k->by_manifest.file && !k->by_plan.file &&
	    (k->fd < 0 || k->differs || k->error))
		return -ECANCELED;
	return 0;
}

/* ---- each file ---- */

static int tell_file(const struct job *j, const struct rsh_copy_file *f,
		     const struct check *k,
		     const struct rsh_manifest_record *records, uint32_t n)
{
	struct rsh_place at = {
		.order = (size_t)(f - j->list.files), .dir = j->options->tree,
		.name = f->path, .placed = k->differs,
		.offset = k->differs ? k->where : 0,
	};

	if (k->fd < 0 || (!k->error && !k->differs && k->size == f->size))
		return 0;
	if (k->error) {
		at.placed = false;
		return rsh_answer_tell(j->out, &at, "%s", strerror(-k->error));
	}
	for (uint32_t i = n; k->differs && i-- > 0;)
		if (k->where >= records[i].offset &&
		    k->where - records[i].offset < records[i].bytes)
			at.record = records[i].name;
	return k->size == f->size ?
	       rsh_answer_tell(j->out, &at, "differs from the plan") :
	       rsh_answer_tell(j->out, &at, "has %" PRIu64 " bytes, not %"
			       PRIu64, k->size, f->size);
}

/* Reads and checks a file.  `said` is the manifest's line for the file; NULL:
 * it is not compared with a manifest. */
static int run_check(struct job *j, size_t i, struct check *k,
		     const struct rsh_manifest_file *said)
{
	const struct rsh_copy_file *f = &j->list.files[i];
	struct rsh_manifest_record *records;
	struct rsh_manifest_file file;
	uint32_t n;
	int rc = rsh_copy_records(j->vfs, f, &k->arena, &records, &n);

	if (rc == 0 && j->options->tree) {
		rc = rsh_open_regular(j->options->tree, f->path, &k->fd,
				      &k->size);
		k->buf = rc ? NULL : malloc(RSH_STREAM_MAX);
		if (rc && rc != -ENOMEM)
			rc = rsh_answer_tell(
				j->out, &(struct rsh_place){
					.order = i, .dir = j->options->tree,
					.name = f->path }, "%s",
				rc == -ENOENT ? "is missing" : strerror(-rc));
		else if (!k->buf)
			rc = -ENOMEM;
	}
	if (rc == 0 && said)
		rc = rsh_digest_init(&k->by_manifest, said->records,
				     said->n_records);
	if (rc == 0 && j->options->write)
		rc = rsh_digest_init(&k->by_plan, records, n);
	if (rc == 0 && (k->fd >= 0 || k->by_manifest.file || k->by_plan.file))
		rc = rsh_copy_feed_exported(j->vfs, j->streams, f,
					    &j->options->control, check_sink,
					    k);
	if (rc == -ECANCELED)
		rc = 0;
	if (rc == 0 && k->differs && k->size == f->size &&
	    rsh_copy_has_items(j->vfs, f)) {
		/* Copies of a mount's files do not have the CRCs that an export
		 * writes. */
		struct check copy = { .fd = k->fd, .buf = k->buf };
		rc = rsh_copy_feed_virtual(j->vfs, j->streams, f,
					   &j->options->control, check_sink,
					   &copy);
		if (rc == 0)
			k->differs = false;
		rc = rc == -ECANCELED ? 0 : rc;
	}
	rc = rc ?: tell_file(j, f, k, records, n);
	if (rc == 0 && said)
		rc = rsh_digest_compare(&k->by_manifest, said, i, NULL, j->out);
	if (rc || !k->by_plan.file)
		return rc;
	file = (struct rsh_manifest_file){
		.path = f->path, .size = f->size,
		.xxh3 = rsh_digest_end(&k->by_plan, records),
		.n_records = n, .records = records,
	};
	return rsh_manifest_writer_add(&j->draft, i, &file);
}

static int check_planned(void *ctx, size_t i, struct rsh_error *err)
{
	struct job *j = ctx;
	const struct rsh_copy_file *f = &j->list.files[i];
	const struct rsh_place at = { .order = i, .name = f->path };
	struct check k = { .fd = -1 };
	struct rsh_manifest_line line = { 0 };
	const struct rsh_manifest_entry *e = NULL;
	int rc = 0;

	if (!f->wanted)
		return 0;
	if (f->lost)
		return rsh_answer_tell(j->out, &at, "needs slices that are "
				       "lost") ? rsh_error_nomem(err) : 0;
	if (j->options->manifest)
		e = rsh_manifest_index_find(&j->index, f->path);
	if (e && e->size != f->size) {
		if (rsh_answer_tell(j->out, &at, "would have %" PRIu64
				    " bytes, the manifest says %" PRIu64,
				    f->size, e->size))
			return rsh_error_nomem(err);
		e = NULL;
	}
	if (e)
		rc = rsh_manifest_index_get(&j->index, e, &line, err);
	if (rc)
		return rc;
	rc = run_check(j, i, &k, e ? &line.file : NULL);
	rsh_manifest_line_clear(&line);
	if (k.fd >= 0)
		close(k.fd);
	free(k.buf);
	rsh_digest_clear(&k.by_manifest);
	rsh_digest_clear(&k.by_plan);
	rsh_arena_clear(&k.arena);
	if (rc == -EINTR)
		return rsh_error_set(err, EINTR, "interrupted");
	return rc ? rsh_error_file(err, -rc, f->path) : 0;
}

/* ---- all files ---- */

static int prepare_plan(struct job *j, const struct rsh_vfs_config *cfg,
			struct rsh_error *err)
{
	const struct rsh_verify_options *o = j->options;
	const struct rsh_streams_options streams = rsh_streams_suited(
		rsh_store_far(cfg->source, &cfg->files.store), false,
		o->control.readahead);
	struct rsh_vfs_view view;
	int rc;

	if (!rsh_vfs_view(j->vfs, &view))
		return rsh_error_set(err, EINVAL, "nothing is converted");
	j->source = view.source;
	if (rsh_copy_list_make(j->vfs, o->wanted, &j->list))
		return rsh_error_nomem(err);
	if (rsh_streams_new(&streams, &j->streams))
		return rsh_error_nomem(err);
	rc = rsh_origin_make(j->vfs, cfg, &j->list, &j->origin, err);
	if (rc == 0 && o->manifest)
		rc = rsh_manifest_index_open(&j->index, o->manifest, err);
	if (rc)
		return rc;
	j->out->another = o->manifest &&
			  j->index.conversion != j->origin.head.conversion;
	for (size_t i = 0; i < j->list.n; i++)
		if (o->manifest && !o->tree && !o->write &&
		    !rsh_manifest_index_find(&j->index, j->list.files[i].path))
			j->list.files[i].wanted = false;
	return 0;
}

static int check_files(struct job *j, struct rsh_error *err)
{
	const struct rsh_copy_control *c = &j->options->control;
	struct rsh_answer *out = j->out;
	const struct rsh_manifest_writer_options writer = {
		.overwrite = j->options->overwrite,
	};
	size_t n_strangers;
	int rc = 0;

	if (j->options->write)
		rc = rsh_target_check(j->options->write, j->source, err) ?:
		     rsh_manifest_writer_open(&j->draft, j->options->write,
					      &writer, &j->origin, &j->list,
					      err);
	if (rc)
		return rc;
	for (size_t i = 0; i < j->index.n; i++) {
		const struct rsh_place at = {
			.name = j->index.entries[i].path,
		};

		if (!rsh_copy_list_find(&j->list, at.name) &&
		    rsh_answer_tell(out, &at, "is in the manifest, and the "
				    "conversion has no such file"))
			return rsh_error_nomem(err);
	}
	n_strangers = out->n_problems;
	for (size_t i = 0; i < j->list.n; i++)
		if (j->list.files[i].wanted) {
			out->n_files++;
			out->bytes += j->list.files[i].size;
		}
	out->n_by_plan = j->options->tree ? out->n_files : 0;
	out->n_by_manifest = j->options->manifest ? out->n_files : 0;
	if (c->begin)
		c->begin(c->ctx, out->bytes);
	rc = rsh_parallel_for(c->n_jobs, j->list.n, check_planned, j, err);
	rsh_answer_sort(out, n_strangers);
	if (rc == 0 && j->options->write)
		rc = rsh_manifest_writer_join(&j->draft, err) ?:
		     rsh_manifest_writer_finish(&j->draft, err);
	return rc;
}

int rsh_verify_plan(const struct rsh_vfs *vfs, const struct rsh_vfs_config *cfg,
		    const struct rsh_verify_options *o, struct rsh_answer *out,
		    struct rsh_error *err)
{
	struct job j = { .vfs = vfs, .options = o, .index = { .fd = -1 },
			 .draft = RSH_DRAFT_NONE, .out = out };
	int rc = prepare_plan(&j, cfg, err) ?: check_files(&j, err);

	rsh_streams_free(j.streams);
	rsh_manifest_writer_clear(&j.draft);
	rsh_origin_clear(&j.origin);
	rsh_manifest_index_clear(&j.index);
	rsh_copy_list_clear(&j.list);
	return rc;
}
