/* SPDX-License-Identifier: Apache-2.0 */
/* copy/manifest_writer.c writes a manifest.  Other runs may write other parts
 * of it at the same time.
 *
 * The directory of the manifest NAME also has .NAME.part, the record.  The line
 * of each file is added to the record as soon as the file is on disk.  For a
 * short time at the beginning and at the end there are also .NAME.lock and
 * .NAME.new.  Threads that write to the record reserve their place in it by an
 * atomic counter.  A place that was reserved but never written contains zeros,
 * which are not a valid line.
 *
 * If runs divide the files, each has its own record, .NAME.<share>.part.  Each
 * run writes the manifest when it ends, from the lines of the old manifest and
 * of all records.  So the last run writes the complete manifest.  Only the run
 * that has the lock creates and removes records and replaces the manifest.
 */
#include "config.h"

#include "copy_i.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rsh/util/checked.h"
#include "rsh/util/files.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

#define COPY_BYTES ((size_t)256 * 1024)

/* ---- existing manifests and records ---- */

/* Takes a line about a file; `ours`: it is of this conversion.  Returns 0 or
 * -ENOMEM. */
static int recall_file(struct rsh_manifest_writer *s, const struct rsh_lines *l,
		       size_t len, const struct rsh_manifest_file *file,
		       bool ours)
{
	const struct rsh_copy_file *of;
	const char *path;

	if (!ours) {
		path = rsh_arena_strdup(&s->arena, file->path);
		return path ? rsh_push(s->foreign, s->n_foreign,
				       s->cap_foreign, path) : -ENOMEM;
	}
	of = rsh_copy_list_find(s->list, file->path);
	/* At the end of a run, what it knows about its own files is newer than
	 * what others have recorded. */
	if (of && of->size == file->size && !(s->ending && of->wanted))
		s->known[of - s->list->files] = (struct rsh_known){
			l->fd, l->begin, len, *file,
		};
	return 0;
}

/* Reads the files that the manifest or the record lists.  It skips invalid
 * lines, which a killed run may have left.  Returns 1, 0 if the file is of
 * another conversion, or -errno. */
static int recall(struct rsh_manifest_writer *s, int fd)
{
	bool ours = false, has_head = false;
	struct rsh_manifest_line line;
	struct rsh_lines l;
	const char *text;
	size_t len;
	int rc;

	rsh_lines_init(&l, fd, s->path);
	while ((rc = rsh_lines_next(&l, &text, &len, NULL)) > 0) {
		rc = rsh_manifest_parse(text, len, s->path, l.number, &line,
					NULL);
		if (rc == -ENOMEM)
			break;
		if (rc == 0 && !has_head && line.kind == RSH_MANIFEST_HEAD) {
			has_head = true;
			ours = line.head.conversion ==
			       s->origin->head.conversion;
		} else if (rc == 0 && line.kind == RSH_MANIFEST_FILE) {
			rc = recall_file(s, &l, len, &line.file, ours);
		}
		rsh_manifest_line_clear(&line);
		if (rc == -ENOMEM)
			break;
		rc = 0;
		if (!has_head || (s->ending && !ours))
			break;
	}
	rsh_lines_clear(&l);
	return rc == 0 || rc == -EBADMSG ? ours : rc;
}

/* Opens the manifest or record of another run and keeps it open, since lines of
 * it are read again at the end.  Returns what recall() does, or 0 if the file
 * does not exist. */
static int recall_other(struct rsh_manifest_writer *s, const char *name)
{
	struct rsh_other_draft *o;
	struct stat st;

	if (rsh_room(s->others, s->cap_others, s->n_others + 1))
		return -ENOMEM;
	o = &s->others[s->n_others];
	*o = (struct rsh_other_draft){ .name = strdup(name) };
	if (!o->name)
		return -ENOMEM;
	o->fd = openat(s->dirfd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	s->n_others++;
	if (o->fd < 0)
		return errno == ENOENT ? 0 : -errno;
	if (fstat(o->fd, &st) != 0)
		return -errno;
	o->size = st.st_size;
	return recall(s, o->fd);
}

/* ---- opening ---- */

/* Returns the mode of the manifest.  A user may read it only if the user may
 * read all of its files. */
static mode_t mode_of(const struct rsh_copy_list *l)
{
	mode_t mode = 0644;

	for (size_t i = 0; i < l->n; i++)
		mode &= l->files[i].mode | 0600;
	return mode;
}

/* Opens a file, or makes it, and locks it.  Tries again if the process that had
 * the lock has removed the file.  Returns 0, -EWOULDBLOCK with LOCK_NB, or
 * -errno. */
static int open_locked(const struct rsh_manifest_writer *s, const char *name,
		       int how, int *out)
{
	for (;;) {
		cleanup_fd int fd = openat(s->dirfd, name, O_RDWR | O_CREAT |
					   O_CLOEXEC | O_NOFOLLOW,
					   mode_of(s->list));
		struct stat st;

		if (fd < 0)
			return -errno;
		/* If the file system does not support locks, the file is used
		 * without a lock. */
		if (flock(fd, LOCK_EX | how) != 0 &&
		    (errno == EWOULDBLOCK || errno == EINTR))
			return -errno;
		if (fstat(fd, &st) != 0)
			return -errno;
		if (st.st_nlink > 0) {
			*out = steal_fd(&fd);
			return 0;
		}
	}
}

static int writer_lock(struct rsh_manifest_writer *s, struct rsh_error *err)
{
	const int rc = open_locked(s, s->lock, 0, &s->lock_fd);

	if (rc == -EINTR)
		return rsh_error_set(err, EINTR, "interrupted");
	return rc ? rsh_error_file(err, -rc, s->path) : 0;
}

static void writer_unlock(struct rsh_manifest_writer *s)
{
	if (s->lock_fd < 0)
		return;
	unlinkat(s->dirfd, s->lock, 0);
	close(steal_fd(&s->lock_fd));
}

static int keep_text(struct rsh_manifest_writer *s, const char *text,
		     size_t len, uint64_t *offset)
{
	*offset = atomic_fetch_add(&s->record_end, len);
	return rsh_write_all(s->record_fd, text, len, *offset);
}

/* Returns whether the name is that of a record of this manifest: .NAME.part or
 * .NAME.<share>-<shares>.part.  A manifest NAME.x has .NAME.x.part. */
static bool is_record(const struct rsh_manifest_writer *s, const char *name)
{
	const size_t n = strlen(s->name);
	size_t digits;

	if (name[0] != '.' || strncmp(name + 1, s->name, n) != 0)
		return false;
	name += 1 + n;
	digits = name[0] == '.' ? rsh_count_digits(name + 1, SIZE_MAX) : 0;
	if (digits && name[1 + digits] == '-') {
		name += 2 + digits;
		digits = rsh_count_digits(name, SIZE_MAX);
		if (!digits)
			return false;
		name += digits;
	}
	return strcmp(name, ".part") == 0;
}

/* Reads which files other runs have finished.  The caller holds the lock.
 * Returns 0 or -errno with a sentence: -EEXIST. */
static int recall_others(struct rsh_manifest_writer *s, struct rsh_error *err)
{
	int rc = recall_other(s, s->name);
	const struct dirent *e;
	DIR *dir;

	if (rc == 0 && s->others[s->n_others - 1].fd >= 0 && !s->overwrite)
		return rsh_error_set(err, EEXIST,
			"%s exists and is not of this conversion (--overwrite "
			"replaces it)", s->path);
	if (rc < 0)
		return rsh_error_file(err, -rc, s->path);
	dir = rsh_dir_of(openat(s->dirfd, ".",
				O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	if (!dir)
		return rsh_error_file(err, errno, s->path);
	rc = 0;
	while (rc >= 0 && (e = readdir(dir)))
		if (is_record(s, e->d_name) &&
		    strcmp(e->d_name, s->record) != 0)
			rc = recall_other(s, e->d_name);
	closedir(dir);
	return rc < 0 ? rsh_error_file(err, -rc, s->path) : 0;
}

/* Begins or resumes the record.  The caller holds the lock. */
static int open_records(struct rsh_manifest_writer *s, struct rsh_error *err)
{
	const struct rsh_manifest_line head = {
		.kind = RSH_MANIFEST_HEAD, .head = s->origin->head,
	};
	cleanup_free char *text = NULL;
	uint64_t offset;
	size_t len;
	struct stat st;
	/* A run holds this lock until it closes the record. */
	int rc = open_locked(s, s->record, LOCK_NB, &s->record_fd);
	if (rc == -EWOULDBLOCK)
		return rsh_error_set(err, EBUSY,
			"%s is being written by another export", s->path);
	if (rc == 0 && fstat(s->record_fd, &st) != 0)
		rc = -errno;
	if (rc)
		return rsh_error_file(err, -rc, s->path);
	atomic_store(&s->record_end, (uint64_t)st.st_size);
	rc = recall_others(s, err);
	if (rc)
		return rc;
	rc = recall(s, s->record_fd);
	if (rc == 0 && ftruncate(s->record_fd, 0) != 0)
		rc = -errno;
	if (rc == 0) {
		atomic_store(&s->record_end, 0);
		rc = rsh_manifest_emit(&head, &text, &len) ?:
		     keep_text(s, text, len, &offset);
	}
	return rc < 0 ? rsh_error_file(err, -rc, s->path) : 0;
}

int rsh_manifest_writer_open(struct rsh_manifest_writer *s, const char *path,
		   const struct rsh_manifest_writer_options *o,
		   const struct rsh_origin *origin,
		   const struct rsh_copy_list *list, struct rsh_error *err)
{
	cleanup_free char *dir = rsh_path_directory(path);
	char of[32] = "";
	int rc;

	*s = (struct rsh_manifest_writer)RSH_DRAFT_NONE;
	s->origin = origin;
	s->list = list;
	s->overwrite = o->overwrite;
	s->known = rsh_arena_array(&s->arena, struct rsh_known, list->n);
	s->path = rsh_arena_strdup(&s->arena, path);
	if (o->share.of)
		snprintf(of, sizeof(of), ".%u-%u", o->share.number,
			 o->share.of);
	path = rsh_path_name(path);
	s->name = rsh_arena_strdup(&s->arena, path);
	s->record = rsh_arena_format(&s->arena, ".%s%s.part", path, of);
	s->lock = rsh_arena_format(&s->arena, ".%s.lock", path);
	s->fresh = rsh_arena_format(&s->arena, ".%s.new", path);
	if (s->arena.failed || !dir)
		return rsh_error_nomem(err);
	for (size_t i = 0; i < list->n; i++)
		s->known[i] = (struct rsh_known){ .fd = -1 };
	s->dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (s->dirfd < 0)
		return rsh_error_file(err, errno, s->path);
	rc = writer_lock(s, err) ?: open_records(s, err);
	rsh_sort(s->foreign, s->n_foreign, rsh_by_text);
	writer_unlock(s);
	return rc;
}

void rsh_manifest_writer_clear(struct rsh_manifest_writer *s)
{
	if (s->record_fd >= 0) {
		/* Remove the record if no finished file is listed only in it.
		 */
		if (!rsh_any(i, s->list->n, s->known[i].fd == s->record_fd))
			unlinkat(s->dirfd, s->record, 0);
		close(s->record_fd);
	}
	writer_unlock(s);
	for (size_t i = 0; i < s->n_others; i++) {
		if (s->others[i].fd >= 0)
			close(s->others[i].fd);
		free(s->others[i].name);
	}
	free(s->others);
	free(s->foreign);
	if (s->dirfd >= 0)
		close(s->dirfd);
	rsh_arena_clear(&s->arena);
	*s = (struct rsh_manifest_writer)RSH_DRAFT_NONE;
}

/* ---- adding ---- */

int rsh_manifest_writer_add(struct rsh_manifest_writer *s, size_t i,
			    const struct rsh_manifest_file *file)
{
	const struct rsh_manifest_line line = {
		.kind = RSH_MANIFEST_FILE, .file = *file,
	};
	cleanup_free char *text = NULL, *apart = NULL;
	uint64_t offset;
	size_t len;
	int rc = rsh_manifest_emit(&line, &text, &len);

	if (rc)
		return rc;
	/* A killed run may have left an incomplete line before this one.  The
	 * newline keeps the two lines apart. */
	apart = malloc(len + 1);
	if (!apart)
		return -ENOMEM;
	apart[0] = '\n';
	memcpy(apart + 1, text, len);
	rc = keep_text(s, apart, len + 1, &offset);
	if (rc == 0 && fdatasync(s->record_fd) != 0)
		rc = -errno;
	if (rc == 0)
		s->known[i] = (struct rsh_known){ s->record_fd, offset + 1,
						  len - 1, *file };
	return rc;
}

/* ---- the end ---- */

struct out {
	int fd;
	uint64_t at;
};

static int put_bytes(struct out *o, const void *data, size_t len)
{
	int rc = rsh_write_all(o->fd, data, len, o->at);

	o->at += len;
	return rc;
}

static int put_line(struct out *o, const struct rsh_manifest_line *line)
{
	cleanup_free char *text = NULL;
	size_t len;

	return rsh_manifest_emit(line, &text, &len) ?: put_bytes(o, text, len);
}

static int put_known(struct out *o, const struct rsh_known *k)
{
	cleanup_free char *buf = malloc(COPY_BYTES);
	size_t done = 0;
	int rc = buf ? 0 : -ENOMEM;

	while (rc == 0 && done < k->len) {
		ssize_t n = rsh_pread_all(k->fd, buf, rsh_min_u64(
					  k->len - done, COPY_BYTES),
					  k->offset + done);

		if (n <= 0)
			return n ? (int)n : -EIO;
		rc = put_bytes(o, buf, (size_t)n);
		done += (size_t)n;
	}
	return rc ?: put_bytes(o, "\n", 1);
}

static int write_manifest(void *ctx, int fd)
{
	const struct rsh_manifest_writer *s = ctx;
	struct out o = { .fd = fd };
	struct rsh_manifest_line line = { .kind = RSH_MANIFEST_HEAD,
					  .head = s->origin->head };
	uint64_t n = 0;
	int rc = put_line(&o, &line);
	line.kind = RSH_MANIFEST_SOURCE;
	for (uint32_t i = 0; i < s->origin->n_sources && rc == 0; i++) {
		line.source = s->origin->sources[i];
		rc = put_line(&o, &line);
	}
	for (size_t i = 0; i < s->list->n && rc == 0; i++)
		if (s->known[i].fd >= 0) {
			rc = put_known(&o, &s->known[i]);
			n++;
		}
	line = (struct rsh_manifest_line){ .kind = RSH_MANIFEST_END,
					   .n_files = n };
	rc = rc ?: put_line(&o, &line);
	if (rc == 0 && fsync(fd) != 0)
		rc = -errno;
	return rc;
}

int rsh_manifest_writer_join(struct rsh_manifest_writer *s,
			     struct rsh_error *err)
{
	int rc = writer_lock(s, err);

	if (rc)
		return rc;
	s->ending = true;
	s->n_before = s->n_others;
	return recall_others(s, err);
}

int rsh_manifest_writer_finish(struct rsh_manifest_writer *s,
			       struct rsh_error *err)
{
	int rc;

	/* A killed run may have left this file.  No other run uses it, since
	 * this run has the lock. */
	unlinkat(s->dirfd, s->fresh, 0);
	rc = rsh_file_replace(s->dirfd, s->name, s->fresh, mode_of(s->list),
			      write_manifest, s);
	if (rc)
		return rsh_error_file(err, -rc, s->path);
	unlinkat(s->dirfd, s->record, 0);
	/* Remove records whose writers have ended, unless they have grown since
	 * they were read. */
	for (size_t i = s->n_before; i < s->n_others; i++) {
		const struct rsh_other_draft *o = &s->others[i];
		struct stat st;

		if (o->fd < 0 || strcmp(o->name, s->name) == 0 ||
		    flock(o->fd, LOCK_EX | LOCK_NB) != 0)
			continue;
		if (fstat(o->fd, &st) == 0 && st.st_size == o->size)
			unlinkat(s->dirfd, o->name, 0);
		flock(o->fd, LOCK_UN);
	}
	writer_unlock(s);
	return fsync(s->dirfd) == 0 ? 0 : rsh_error_file(err, errno, s->path);
}
