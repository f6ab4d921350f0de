/* SPDX-License-Identifier: Apache-2.0 */
/* app/lib/reshard.c is libreshard, the C interface to the files that a mount
 * would show. */
#include "config.h"

#pragma GCC visibility push(default)
#include "reshard.h"
#pragma GCC visibility pop

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/app/check.h"
#include "rsh/app/commands.h"
#include "rsh/app/reading.h"
#include "rsh/read/record_loader.h"
#include "rsh/util/checked.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"
#include "rsh/vfs/inspect.h"

_Static_assert(RESHARD_MAX_DIMS == RSH_MAX_DIMS, "a record has room for dims");

/* Reads are divided into requests of this size.  The memory that a request
 * needs grows with its size. */
#define READ_BYTES ((size_t)1024 * 1024)

struct file {
	uint64_t node;
	uint64_t size;
	uint32_t number; /* number in the plan; RESHARD_NO_RANK: the file is not
			  * in the plan */
	char *name;
};

/* This struct does not change after it is opened. */
struct reshard {
	struct rsh_options options;
	char *path; /* SOURCE as it was given */
	struct rsh_store_io *io;
	struct rsh_vfs *vfs;
	struct rsh_vfs_view view;
	struct file *files;
	size_t cap_files;
	uint32_t n_files;
};

static _Thread_local struct rsh_error last = RSH_ERROR_INIT;

static const struct rsh_command library = {
	.name = "libreshard",
	.id = RSH_COMMAND_LIBRARY,
	.check = rsh_check_conversion,
	.quieter = 1,
};

const char *reshard_version(void)
{
	return PACKAGE_VERSION;
}

const char *reshard_error(void)
{
	static _Thread_local char shown[2 * RSH_ERROR_TEXT_MAX];

	return rsh_text_put(shown, sizeof(shown), last.text);
}

/* ---- options ---- */

static int start_log(const struct rsh_options *o, struct rsh_error *err)
{
	int rc = o->log_file ? rsh_log_to_file(o->log_file) : 0;

	if (rc)
		return rsh_error_file(err, -rc, o->log_file);
	rsh_log_set_level(o->log_level);
	return 0;
}

/* ---- the list of files ---- */

static int add_shown(void *ctx, uint64_t node, const char *path,
		     const struct stat *st)
{
	struct reshard *r = ctx;
	struct file *f;

	if (rsh_room(r->files, r->cap_files, r->n_files + 1))
		return -ENOMEM;
	f = &r->files[r->n_files];
	*f = (struct file){ .node = node, .size = (uint64_t)st->st_size,
			    .number = RESHARD_NO_RANK, .name = strdup(path) };
	rsh_vfs_rank(r->vfs, node, &f->number);
	if (!f->name)
		return -ENOMEM;
	r->n_files++;
	return 0;
}

static const struct file *file_at(const struct reshard *r, uint32_t i)
{
	if (i < r->n_files)
		return &r->files[i];
	rsh_error_set(&last, ENOENT, "%s has no file %" PRIu32 ": there are "
		      "%" PRIu32, r->options.vfs.source, i, r->n_files);
	return NULL;
}

/* ---- opening ---- */

static int reshard_open_tree(struct reshard *r, struct rsh_error *err)
{
	struct rsh_vfs_config cfg = r->options.vfs;
	int rc = rsh_store_io_new(&r->options.io, &r->io, err);

	cfg.files.store.io = r->io;
	rc = rc ?: rsh_vfs_open(&cfg, &r->vfs, err);
	if (rc)
		return rc;
	rsh_reading_keep_free(&r->options, r->vfs, r->io, false);
	rsh_vfs_view(r->vfs, &r->view);
	return rsh_vfs_each_file(r->vfs, add_shown, r) ?
	       rsh_error_nomem(err) : 0;
}

int reshard_open(const char *source, const char *const *options,
		 struct reshard **out)
{
	struct reshard *r = calloc(1, sizeof(*r));
	char *path = strdup(source);
	struct rsh_error err = RSH_ERROR_INIT;
	int rc;

	*out = NULL;
	if (!r || !path) {
		free(path);
		free(r);
		return rsh_error_nomem(&last);
	}
	rsh_options_init(&r->options);
	rc = rsh_objects_hide(path, &r->options.objects) ?
	     rsh_error_nomem(&err) : 0;
	r->options.command = &library;
	r->path = path;
	rc = rc ?: rsh_check_source(&r->options, &path, &err);
	r->options.vfs.source = path;
	for (; rc == 0 && options && *options; options++)
		rc = rsh_options_set(&r->options, *options, &err);
	if (rc == 0 &&
	    (r->options.help || r->options.help_all || r->options.version))
		rc = rsh_error_set(&err, EINVAL, "help and version are for the "
				   "command line");
	rc = rc ?: rsh_rules_check(&r->options, false, &err) ?:
	     rsh_check_conversion(&r->options, &err);
	rsh_options_finish(&r->options);
	rc = rc ?: start_log(&r->options, &err) ?: reshard_open_tree(r, &err);
	if (rc == 0) {
		*out = r;
		return 0;
	}
	/* Set `last` at the end, since steps that failed before may have set it
	 * too. */
	last = err;
	reshard_close(r);
	return rc;
}

void reshard_close(struct reshard *r)
{
	if (!r)
		return;
	for (uint32_t i = 0; i < r->n_files; i++)
		free(r->files[i].name);
	free(r->files);
	rsh_vfs_free(r->vfs);
	rsh_store_io_free(r->io);
	free(r->path);
	rsh_options_clear(&r->options);
	free(r);
}

/* ---- files ---- */

uint32_t reshard_n_files(const struct reshard *r)
{
	return r->n_files;
}

int reshard_file(const struct reshard *r, uint32_t i, struct reshard_file *out)
{
	const struct file *f = file_at(r, i);

	if (!f)
		return -ENOENT;
	*out = (struct reshard_file){
		.rank = f->number == RESHARD_NO_RANK ? RESHARD_NO_RANK :
			f->number / rsh_plan_files_of_rank(r->view.plan),
		.name = f->name,
		.size = f->size,
	};
	return 0;
}

ssize_t reshard_read(const struct reshard *r, uint32_t i, void *buf,
		     size_t len, uint64_t offset)
{
	const struct file *f = file_at(r, i);
	size_t done = 0;
	ssize_t n;

	if (!f)
		return -ENOENT;
	if (offset >= f->size)
		return 0;
	len = (size_t)rsh_min_u64(rsh_min_u64(len, SSIZE_MAX),
				  f->size - offset);
	for (; done < len; done += (size_t)n) {
		n = rsh_vfs_read(r->vfs, f->node, (char *)buf + done,
				 rsh_min_u64(len - done, READ_BYTES),
				 offset + done);
		if (n <= 0) {
			n = n ? n : -EIO;
			return rsh_error_set(&last, (int)-n, "%s: %s at offset "
					     "%" PRIu64 ": %s",
					     r->options.vfs.source, f->name,
					     offset + done, strerror((int)-n));
		}
	}
	return (ssize_t)len;
}

/* ---- records ---- */

uint32_t reshard_n_records(const struct reshard *r, uint32_t i)
{
	return i < r->n_files && r->files[i].number != RESHARD_NO_RANK ?
		rsh_plan_n_records(r->view.plan, r->files[i].number) : 0;
}

static int no_record(const struct reshard *r, uint32_t i, uint32_t n)
{
	return rsh_error_set(&last, ENOENT, "%s has no record %" PRIu32 " in a "
			     "file %" PRIu32, r->options.vfs.source, n, i);
}

int reshard_record(const struct reshard *r, uint32_t i, uint32_t n,
		   struct reshard_record *out)
{
	struct rsh_virtual_record v = { 0 };

	if (n >= reshard_n_records(r, i))
		return no_record(r, i, n);
	rsh_plan_record(r->view.plan, r->files[i].number, n, &v);
	*out = (struct reshard_record){
		.name = v.shape.name ? v.shape.name : "",
		.dtype = rsh_dtype_name(v.shape.dtype),
		.n_dims = v.shape.n_dims,
		.bytes = v.shape.content_bytes,
		.offset = v.offset,
		.stored = v.total_bytes,
	};
	for (uint32_t d = 0; d < v.shape.n_dims; d++)
		out->dims[d] = v.shape.dims[d];
	return 0;
}

/* ---- loading ---- */

/* Finds the record of a want and checks its range.  0 or -errno with a
 * sentence. */
static int want_find(const struct reshard *r, const struct reshard_want *w,
		     struct rsh_want *out)
{
	struct rsh_virtual_record v = { 0 };
	const struct file *f = file_at(r, w->file);

	if (!f)
		return -ENOENT;
	if (w->record >= reshard_n_records(r, w->file))
		return no_record(r, w->file, w->record);
	rsh_plan_record(r->view.plan, f->number, w->record, &v);
	if (w->offset > v.shape.content_bytes ||
	    w->bytes > v.shape.content_bytes - w->offset)
		return rsh_error_set(&last, EINVAL, "%s: %s: parameter %s has "
				     "%" PRIu64 " bytes, not %" PRIu64 " from "
				     "%" PRIu64 " on", r->options.vfs.source,
				     f->name, v.shape.name,
				     v.shape.content_bytes, w->bytes,
				     w->offset);
	*out = (struct rsh_want){
		.file = f->number, .record = w->record,
		.offset = w->offset, .bytes = w->bytes, .to = w->to,
	};
	return 0;
}

int reshard_load(const struct reshard *r, const struct reshard_want *wants,
		 size_t n, const struct reshard_load_options *given)
{
	struct reshard_load_options o = { 0 };
	struct rsh_records_load_failure failure = { 0 };
	cleanup_free struct rsh_want *found =
		rsh_alloc_array(n, sizeof(*found));
	int rc = 0;
	const struct reshard_want *w;
	struct reshard_record rec;

	if (!found)
		return rsh_error_nomem(&last);
	if (given)
		memcpy(&o, given, rsh_min_u64(given->size, sizeof(o)));
	for (size_t i = 0; i < n; i++) {
		rc = want_find(r, &wants[i], &found[i]);
		if (rc)
			return rc;
	}
	rc = rsh_records_load(r->view.reader, found, n,
			      &(struct rsh_records_load_options){
				      o.threads, o.progress, o.ctx }, &failure);
	if (rc == 0)
		return 0;
	w = failure.want ? &wants[failure.want - found] : NULL;
	if (rc == -ECANCELED || !w || reshard_record(r, w->file, w->record,
						     &rec))
		return rsh_error_set(&last, -rc, "%s: %s",
				     r->options.vfs.source,
				     rc == -ECANCELED ? "canceled" :
							strerror(-rc));
	return rsh_error_set(&last, -rc, "%s: %s: parameter %s at offset "
			     "%" PRIu64 ": %s",
			     r->options.vfs.source, r->files[w->file].name,
			     rec.name, failure.offset, strerror(-rc));
}
