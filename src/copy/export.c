/* SPDX-License-Identifier: Apache-2.0 */
/* copy/export.c writes a virtual tree as real files.
 *
 * For each file the order is: write, sync, record, rename to the final name.
 * So a file with its final name is always recorded.  A file that was recorded
 * but not renamed is written again.
 */
#include "config.h"

#include "rsh/copy/export.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "copy_i.h"
#include "rsh/source/inspect.h"
#include "rsh/util/checked.h"
#include "rsh/util/files.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/memory_limits.h"
#include "rsh/util/text.h"

/* After each so many bytes, writing them to the disk is started, so that the
 * final sync takes little time. */
#define FLUSH_BYTES ((uint64_t)8 * 1024 * 1024)

/* For a long write the page cache allocates large pages.  If a virtual machine
 * returns such pages to its host while they are free, the next access to them
 * is slow.  When 512 MiB were written in writes of 1 MiB, every third run took
 * ten times the system time; with writes of 64 or 128 KiB no run did. */
#define WRITE_BYTES ((size_t)128 * 1024)

enum state { TO_WRITE, TO_REPLACE, KEPT, WRITTEN, LEFT_OUT };

struct job {
	const struct rsh_vfs *vfs;
	struct rsh_vfs_view view;
	const struct rsh_export_options *options;
	struct rsh_copy_list list;
	struct rsh_origin origin;
	struct rsh_manifest_writer draft;
	struct rsh_streams *streams;
	int dirfd;
	bool drop_pages;  /* drop the cached pages of files that were
			   * written */
	enum state *state; /* [file of the list] */
	size_t *todo;      /* numbers of files to be written */
	size_t n_todo;
	size_t n_last;     /* how many of these, at the end, are written after
			    * the others have their final names */
};

static int file_error(const struct job *j, const struct rsh_copy_file *f,
		      int rc, struct rsh_error *err)
{
	if (rc == -EINTR)
		return rsh_error_set(err, EINTR, "interrupted");
	if (rc == -EBUSY)
		return rsh_error_set(err, EBUSY, "%s/%s is being written by "
				     "another export", j->options->dir,
				     f->path);
	return rsh_error_set(err, -rc, "%s/%s: %s", j->options->dir, f->path,
			     strerror(-rc));
}

static mode_t dir_mode(const struct rsh_store_attr *root)
{
	return (rsh_store_mode_as(root, geteuid(), getegid()) & 0555) |
	       S_IRWXU;
}

/* Opens the directory of a file, and gives the file's name in it. */
static int open_parent(const struct job *j, const struct rsh_copy_file *f,
		       bool make, const char **name, int *out)
{
	cleanup_fd int fd = fcntl(j->dirfd, F_DUPFD_CLOEXEC, 0);
	struct rsh_store_attr root;
	const char *slash;

	if (fd < 0)
		return -errno;
	rsh_store_root_attr(rsh_source_store(j->view.source), &root);
	*name = f->path;
	/* No directory on the way may be a link. */
	while ((slash = strchr(*name, '/'))) {
		cleanup_free char *dir = strndup(*name,
						 (size_t)(slash - *name));
		int below = -ENOMEM;

		if (dir && make)
			below = rsh_target_dir(fd, dir, dir_mode(&root));
		else if (dir)
			below = openat(fd, dir, O_RDONLY | O_DIRECTORY |
				       O_NOFOLLOW | O_CLOEXEC);
		if (below < 0)
			return make || !dir ? below : -errno;
		close(fd);
		fd = below;
		*name = slash + 1;
	}
	*out = steal_fd(&fd);
	return 0;
}

static bool is_todo(const struct job *j, size_t i)
{
	return j->state[i] == TO_WRITE || j->state[i] == TO_REPLACE;
}

/* ---- existing files ---- */

static bool is_as_written(const struct rsh_manifest_file *k,
			  const struct stat *st)
{
	return k->written && k->size == (uint64_t)st->st_size &&
	       k->inode == st->st_ino && k->mtime_s == st->st_mtim.tv_sec &&
	       (long)k->mtime_ns == st->st_mtim.tv_nsec;
}

static ssize_t exported_pread(void *ctx, void *buf, size_t len, uint64_t offset)
{
	return rsh_pread_all(*(const int *)ctx, buf, len, offset);
}

static int digest_exported(const struct rsh_copy_control *c, int fd,
			   uint64_t size, struct rsh_digest *d)
{
	const struct rsh_byte_source file = {
		.pread_fn = exported_pread, .ctx = &fd, .size = size,
	};

	return rsh_copy_feed_real(&file, c, rsh_digest_sink, d);
}

/* Returns 1 if the file's digest is the one that was recorded, 0 if not, or
 * -errno. */
static int has_exported(const struct job *j, const struct rsh_manifest_file *k,
			int fd)
{
	struct rsh_digest d;
	int rc = rsh_digest_init(&d, NULL, 0);

	if (rc)
		return rc;
	rc = digest_exported(&j->options->control, fd, k->size, &d) ?:
	     rsh_digest_end(&d, NULL) == k->xxh3;
	rsh_digest_clear(&d);
	return rc;
}

/* Decides whether an existing file is kept or replaced, or is an error. */
static int judge_existing(struct job *j, size_t i, const struct stat *st,
			  int dirfd, const char *name, struct rsh_error *err)
{
	const struct rsh_copy_file *f = &j->list.files[i];
	const struct rsh_known *k = &j->draft.known[i];
	cleanup_fd int fd = -1;
	int finished = 0;

	if (k->fd >= 0 && S_ISREG(st->st_mode) &&
	    k->is.size == (uint64_t)st->st_size) {
		if (j->options->verify)
			fd = openat(dirfd, name,
				    O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
		finished = !j->options->verify ? is_as_written(&k->is, st) :
			   fd < 0 ? -errno : has_exported(j, &k->is, fd);
	}
	if (finished < 0)
		return file_error(j, f, finished, err);
	if (finished) {
		j->state[i] = KEPT;
		return 0;
	}
	for (uint32_t n = 0; n < rsh_source_n_files(j->view.source); n++) {
		struct rsh_source_file_info source;

		rsh_source_file_info(j->view.source, n, &source);
		if (source.valid && source.dev == st->st_dev &&
		    source.inode == st->st_ino)
			return rsh_error_set(err, EINVAL, "%s/%s is a file of "
					     "SOURCE", j->options->dir,
					     f->path);
	}
	j->state[i] = TO_REPLACE;
	if (S_ISREG(st->st_mode) && is_as_written(&k->is, st)) {
		rsh_log_warning("%s/%s is damaged and is written again",
				j->options->dir, f->path);
		return 0;
	}
	if (j->options->overwrite && S_ISREG(st->st_mode))
		return 0;
	return rsh_error_set(err, EEXIST, "%s/%s exists and is not of this "
					  "export%s", j->options->dir, f->path,
			     S_ISREG(st->st_mode) ?
			     " (--overwrite replaces it)" : "");
}

static int look_at_target(void *ctx, size_t i, struct rsh_error *err)
{
	struct job *j = ctx;
	const struct rsh_copy_file *f = &j->list.files[i];
	cleanup_fd int dirfd = -1;
	const char *name;
	struct stat st;
	int rc;

	if (!f->wanted || f->lost) {
		j->state[i] = LEFT_OUT;
		return 0;
	}
	rc = open_parent(j, f, false, &name, &dirfd);
	if (rc == -ENOENT)
		return 0;
	if (rc)
		return file_error(j, f, rc, err);
	rsh_temp_sweep(dirfd);
	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
		return errno == ENOENT ? 0 : file_error(j, f, -errno, err);
	return judge_existing(j, i, &st, dirfd, name, err);
}

/* The manifest keeps known files that are not of this run, if they exist and
 * have not changed. */
static void forget_others(struct job *j)
{
	for (size_t i = 0; i < j->list.n; i++) {
		struct rsh_known *k = &j->draft.known[i];
		cleanup_fd int dirfd = -1;
		const char *name;
		struct stat st;

		if (k->fd < 0 || j->state[i] == KEPT)
			continue;
		if (is_todo(j, i) ||
		    open_parent(j, &j->list.files[i], false, &name, &dirfd) ||
		    fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
		    !is_as_written(&k->is, &st))
			k->fd = -1;
	}
}

/* ---- writing a file ---- */

struct writing {
	int fd;
	uint64_t flushed, written;
	struct rsh_digest digest;
	struct rsh_copy_items items;
	struct rsh_copy_item item; /* the one that is being written */
	bool in_item;
};

static int frame_sink(void *ctx, const uint8_t *data, size_t len,
		      uint64_t offset)
{
	const struct writing *w = ctx;

	return rsh_write_all(w->fd, data, len, offset);
}

static int write_sink(void *ctx, const uint8_t *data, size_t len,
		      uint64_t offset)
{
	struct writing *w = ctx;
	int rc = 0;

	for (size_t at = 0, n; at < len && rc == 0; at += n) {
		n = (size_t)rsh_min_u64(len - at, WRITE_BYTES);
		rc = rsh_write_all(w->fd, data + at, n, offset + at);
	}
	if (rc)
		return rc;
	w->written = offset + len;
	if (w->written - w->flushed >= FLUSH_BYTES) {
		/* This only starts the write.  If it fails, fsync() writes
		 * everything. */
		sync_file_range(w->fd, (off_t)w->flushed,
				(off_t)(w->written - w->flushed),
				SYNC_FILE_RANGE_WRITE);
		w->flushed = w->written;
	}
	if (w->items.framing) {
		/* Put the CRC of each content into its header and trailer once
		 * both are written. */
		rc = 0;
		while (rc == 0 && w->in_item) {
			const struct rsh_copy_item *item = &w->item;

			rsh_copy_item_add(&w->item, data, len, offset);
			if (offset + len < item->offset + item->n_header +
					   item->bytes + item->n_trailer)
				break;
			rc = rsh_copy_item_frame(&w->items, item, frame_sink,
						 frame_sink, w);
			w->in_item = rsh_copy_items_next(&w->items, &w->item);
		}
		return rc;
	}
	return rsh_digest_sink(&w->digest, data, len, offset);
}

/* Returns the mode of a file.  If its group is not the group of all source
 * files, the group gets only the permissions of all other users. */
static mode_t mode_for(const struct job *j, const struct rsh_copy_file *f,
		       gid_t gid)
{
	mode_t mode = f->mode;
	uint32_t n = 0;
	const uint32_t *ranks = f->rank == RSH_COPY_NO_RANK ? NULL :
		rsh_plan_sources(j->view.plan, f->rank, &n);

	for (uint32_t i = 0; i < n; i++) {
		struct rsh_store_attr a;

		if (rsh_source_attr(j->view.source, ranks[i], &a) &&
		    a.gid != gid)
			mode &= ~(mode_t)S_IRWXG |
				(mode & S_IRWXO) << 3;
	}
	return mode;
}

static int write_temp(struct job *j, size_t i, struct rsh_temp *t,
		      struct rsh_arena *arena)
{
	const struct rsh_copy_file *f = &j->list.files[i];
	struct rsh_manifest_file file = { .path = f->path, .size = f->size };
	struct rsh_manifest_record *records;
	struct stat st = { 0 };
	int rc = rsh_copy_records(j->vfs, f, arena, &records, &file.n_records);
	const struct rsh_copy_control silent = {
		.stop = j->options->control.stop
	};
	struct writing w = { .fd = t->fd };

	if (rc)
		return rc;
	file.records = records;
	rc = rsh_digest_init(&w.digest, file.records, file.n_records);
	rsh_copy_items_init(&w.items, j->vfs, f);
	w.in_item = rsh_copy_items_next(&w.items, &w.item);
	/* Reserve room, so that a full disk is found early and the file is
	 * contiguous on the disk. */
	if (rc == 0 && f->size && fallocate(t->fd, 0, 0, (off_t)f->size) &&
	    (errno == ENOSPC || errno == EFBIG || errno == EDQUOT))
		rc = -errno;
	rc = rc ?: rsh_copy_feed_virtual(j->vfs, j->streams, f,
					 &j->options->control, write_sink, &w);
	if (rc == 0 && w.items.framing)
		rc = digest_exported(&silent, t->fd, f->size, &w.digest);
	if (rc == 0)
		file.xxh3 = rsh_digest_end(&w.digest, records);
	rsh_digest_clear(&w.digest);
	if (rc == 0 && (fstat(t->fd, &st) != 0 ||
			fchmod(t->fd, mode_for(j, f, st.st_gid)) != 0 ||
			fsync(t->fd) != 0 || fstat(t->fd, &st) != 0))
		rc = -errno;
	/* A later run recognises the file by them. */
	file.written = true;
	file.inode = st.st_ino;
	file.mtime_s = st.st_mtim.tv_sec;
	file.mtime_ns = (uint32_t)st.st_mtim.tv_nsec;
	if (rc == 0 && j->drop_pages)
		posix_fadvise(t->fd, 0, 0, POSIX_FADV_DONTNEED);
	if (rc == 0 && j->options->verify) {
		rc = has_exported(j, &file, t->fd);
		rc = rc > 0 ? 0 : rc ?: -EBADE;
	}
	return rc ?: rsh_manifest_writer_add(&j->draft, i, &file);
}

static int write_file(struct job *j, size_t i, struct rsh_error *err)
{
	const struct rsh_copy_file *f = &j->list.files[i];
	/* This number is unique in the directory and the same in every run. */
	const uint32_t own = f->rank == RSH_COPY_NO_RANK ?
				     RSH_COPY_NO_RANK - (uint32_t)i : f->rank;
	cleanup_arena struct rsh_arena arena = { 0 };
	cleanup_fd int dirfd = -1;
	struct rsh_temp temp;
	const char *name;
	int rc = rsh_copy_stopped(&j->options->control) ? -EINTR :
		open_parent(j, f, true, &name, &dirfd);

	rc = rc ?: rsh_temp_open(&temp, dirfd, own);
	if (rc)
		return file_error(j, f, rc, err);
	rc = write_temp(j, i, &temp, &arena) ?:
	     rsh_temp_commit(&temp, name, j->state[i] == TO_REPLACE);
	rsh_temp_drop(&temp);
	if (rc == -EBADE)
		return rsh_error_set(err, EIO, "%s/%s: the bytes that were "
				     "read back differ from those that were "
				     "written", j->options->dir, f->path);
	if (rc)
		return file_error(j, f, rc, err);
	j->state[i] = WRITTEN;
	return 0;
}

static int write_todo(void *ctx, size_t number, struct rsh_error *err)
{
	struct job *j = ctx;

	return write_file(j, j->todo[number], err);
}

/* ---- the export ---- */

static int prepare_export(struct job *j, const struct rsh_vfs_config *cfg,
			  struct rsh_export_result *out, struct rsh_error *err)
{
	const struct rsh_streams_options streams = rsh_streams_suited(
		rsh_store_far(cfg->source, &cfg->files.store), false,
		j->options->control.readahead);
	int rc;
	const char *dir;
	struct rsh_store_attr root;
	const struct rsh_export_options *o;

	if (!rsh_vfs_view(j->vfs, &j->view))
		return rsh_error_set(err, EINVAL, "nothing is converted");
	if (rsh_copy_list_make(j->vfs, j->options->wanted, &j->list) ||
	    rsh_copy_list_share(&j->list, &j->options->share))
		return rsh_error_nomem(err);
	j->state = calloc(j->list.n + 1, sizeof(*j->state));
	j->todo = rsh_alloc_array(j->list.n, sizeof(*j->todo));
	if (!j->state || !j->todo)
		return rsh_error_nomem(err);
	dir = j->options->dir;
	rc = rsh_target_check(dir, j->view.source, err);
	if (rc == 0 && j->options->manifest)
		rc = rsh_target_check(j->options->manifest, j->view.source,
				      err);
	if (rc)
		return rc;
	rsh_store_root_attr(rsh_source_store(j->view.source), &root);
	j->dirfd = rsh_target_dir(AT_FDCWD, dir, dir_mode(&root));
	if (j->dirfd < 0)
		return rsh_error_set(err, -j->dirfd, "%s: %s", dir,
				     strerror(-j->dirfd));
	rc = rsh_origin_make(j->vfs, cfg, &j->list, &j->origin, err);
	if (rc)
		return rc;
	o = j->options;
	out->manifest = o->manifest ? strdup(o->manifest) :
			rsh_text_format("%s/" RSH_MANIFEST_NAME, o->dir);
	if (!out->manifest)
		return rsh_error_nomem(err);
	rc = rsh_manifest_writer_open(&j->draft, out->manifest,
				      &(struct rsh_manifest_writer_options){
					      o->share, o->overwrite },
				      &j->origin, &j->list, err);
	if (rc == 0 && rsh_streams_new(&streams, &j->streams))
		rc = rsh_error_nomem(err);
	return rc;
}

static int find_todo(struct job *j, struct rsh_error *err)
{
	const unsigned n_jobs = j->options->verify ?
		j->options->control.n_jobs : 1;
	const char *last = j->view.output->last;
	int rc = rsh_parallel_for(n_jobs, j->list.n, look_at_target, j, err);

	if (rc)
		return rc;
	rsh_temp_sweep(j->dirfd);
	rc = rsh_target_judge_others(&j->draft, &j->list, j->dirfd,
				     j->options->dir, err);
	if (rc)
		return rc;
	for (int is_last = 0; is_last < 2; is_last++)
		for (size_t i = 0; i < j->list.n; i++)
			if (is_todo(j, i) && is_last ==
			    (last && !strcmp(j->list.files[i].path, last))) {
				j->todo[j->n_todo++] = i;
				j->n_last += (size_t)is_last;
			}
	return 0;
}

static int write_all(struct job *j, struct rsh_error *err)
{
	const struct rsh_copy_control *c = &j->options->control;
	uint64_t room, bytes = 0;
	struct statvfs fs;
	int rc;

	for (size_t k = 0; k < j->n_todo; k++)
		bytes += j->list.files[j->todo[k]].size;
	if (fstatvfs(j->dirfd, &fs) == 0 && fs.f_blocks > 0 &&
	    rsh_mul_u64(fs.f_bavail, fs.f_frsize, &room) && room < bytes)
		return rsh_error_set(err, ENOSPC, "%s: %llu bytes are needed, "
				     "but only %llu are free", j->options->dir,
				     (unsigned long long)bytes,
				     (unsigned long long)room);
	forget_others(j);
	/* The page cache should keep source files, since several files may need
	 * them.  Written files are not read again, except by --verify, which
	 * must read them from the disk. */
	j->drop_pages = j->options->verify ||
			bytes > rsh_physical_memory() / 4;
	if (c->begin)
		c->begin(c->ctx, j->options->verify ? 2 * bytes : bytes);
	rc = rsh_parallel_for(c->n_jobs, j->n_todo - j->n_last, write_todo, j,
			      err);
	for (size_t i = j->n_todo - j->n_last; rc == 0 && i < j->n_todo; i++)
		rc = write_file(j, j->todo[i], err);
	if (fsync(j->dirfd) != 0 && rc == 0)
		rc = rsh_error_file(err, errno, j->options->dir);
	return rc;
}

int rsh_export(const struct rsh_vfs *vfs, const struct rsh_vfs_config *cfg,
	       const struct rsh_export_options *o,
	       struct rsh_export_result *out, struct rsh_error *err)
{
	struct job j = { .vfs = vfs, .options = o, .dirfd = -1,
			 .draft = RSH_DRAFT_NONE };
	int rc;

	*out = (struct rsh_export_result){ 0 };
	rc = prepare_export(&j, cfg, out, err) ?:
	     find_todo(&j, err) ?:
	     write_all(&j, err);
	if (j.state) {
		for (size_t i = 0; i < j.list.n; i++) {
			const struct rsh_copy_file *f = &j.list.files[i];

			if (!f->wanted)
				continue;
			out->n_lost += f->lost;
			out->n_left += is_todo(&j, i);
			out->n_kept += j.state[i] == KEPT;
			out->n_written += j.state[i] == WRITTEN;
			if (j.state[i] == KEPT)
				out->bytes_kept += f->size;
			if (j.state[i] == WRITTEN)
				out->bytes_written += f->size;
		}
	}
	rc = rc ?: rsh_manifest_writer_join(&j.draft, err);
	if (rc == 0) {
		forget_others(&j);
		rc = rsh_manifest_writer_finish(&j.draft, err);
	}
	rsh_streams_free(j.streams);
	rsh_manifest_writer_clear(&j.draft);
	rsh_origin_clear(&j.origin);
	rsh_copy_list_clear(&j.list);
	free(j.state);
	free(j.todo);
	if (j.dirfd >= 0)
		close(j.dirfd);
	return rc;
}

void rsh_export_result_clear(struct rsh_export_result *r)
{
	free(r->manifest);
	r->manifest = NULL;
}
