/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/warm.c runs `warm`.  It reads files of the mount as any program does,
 * so it needs no support of the daemon and only the user's rights. */
#include "config.h"

#include "commands.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "printer.h"
#include "progress.h"
#include "rsh/app/mounted.h"
#include "rsh/app/options.h"
#include "rsh/util/checked.h"
#include "rsh/util/clock.h"
#include "rsh/util/files.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"
#include "rsh/util/thread.h"
#include "warm.h"

#define READ_BYTES ((size_t)1024 * 1024)
#define MAX_JOBS 64
#define DEFAULT_JOBS 4
#define MAX_RANKS 10000000u
#define ROOT_INODE 1 /* the root inode of every FUSE file system */

struct warm {
	const struct rsh_options *options;
	struct rsh_warm_file *files;
	size_t n_files, cap_files;
	struct rsh_warm_parts parts;

	struct rsh_progress *progress;
	atomic_bool failed;
};

/* ---- the mount ---- */

static int check_mount(const char *path, struct rsh_error *err)
{
	struct rsh_mounted mounted;
	struct stat st;

	if (stat(path, &st) != 0)
		return rsh_error_file(err, errno, path);
	if (!S_ISDIR(st.st_mode) || st.st_ino != ROOT_INODE ||
	    rsh_mounted_find(path, &mounted) ||
	    strcmp(mounted.type, RSH_MOUNTED_TYPE) != 0)
		return rsh_error_set(err, EINVAL, "%s: reshardfs is not "
				     "mounted there", path);
	return 0;
}

/* ---- which files ---- */

static int add_warm_file(struct warm *w, const FTSENT *e)
{
	struct rsh_warm_file f = { strdup(e->fts_path),
				   (uint64_t)e->fts_statp->st_size };

	if (!f.path || rsh_grow(&w->files, &w->cap_files, w->n_files + 1,
				sizeof(f))) {
		free(f.path);
		return -ENOMEM;
	}
	w->files[w->n_files++] = f;
	return 0;
}

/* Visits everything below `path`; links are skipped because they point to files
 * that are visited as well. */
static int walk_mount(struct warm *w, const char *path, struct rsh_error *err)
{
	/* fts does not write there. */
	char *const paths[] = { (char *)(uintptr_t)path, NULL };
	FTS *fts = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR | FTS_XDEV, NULL);
	int rc = 0;
	FTSENT *e;

	if (!fts)
		return rsh_error_file(err, errno, path);
	while (rc == 0 && (errno = 0, e = fts_read(fts))) {
		if (e->fts_info == FTS_F && add_warm_file(w, e))
			rc = rsh_error_nomem(err);
		else if (e->fts_info == FTS_ERR || e->fts_info == FTS_DNR ||
			 e->fts_info == FTS_NS)
			rc = rsh_error_file(err, e->fts_errno, e->fts_path);
	}
	if (rc == 0 && errno)
		rc = rsh_error_file(err, errno, path);
	fts_close(fts);
	return rc;
}

/* Sets *n to the highest rank that the mount shows, plus 1; 0 if it shows
 * none. */
static int count_warm_ranks(const char *path, uint32_t *n,
			    struct rsh_error *err)
{
	DIR *dir = opendir(path);
	const struct dirent *e;
	unsigned rank;
	int end;

	*n = 0;
	if (!dir)
		return rsh_error_file(err, errno, path);
	while ((errno = 0, e = readdir(dir)))
		if (sscanf(e->d_name, "rank_%8u%n", &rank, &end) == 1 &&
		    !e->d_name[end] && rank < MAX_RANKS && rank >= *n)
			*n = rank + 1;
	if (errno) {
		end = errno;
		closedir(dir);
		return rsh_error_file(err, end, path);
	}
	closedir(dir);
	return 0;
}

static int find_files(struct warm *w, struct rsh_error *err)
{
	const struct rsh_options *o = w->options;
	cleanup_free bool *wanted = NULL;
	uint32_t n;
	int rc;

	if (o->n_operands < 2)
		return walk_mount(w, o->mountpoint, err);
	rc = count_warm_ranks(o->mountpoint, &n, err);
	if (rc)
		return rc;
	if (n == 0)
		return rsh_error_set(err, EINVAL, "%s: the mount has no ranks",
				     o->mountpoint);
	wanted = rsh_alloc_array(n, sizeof(*wanted));
	if (!wanted)
		return rsh_error_nomem(err);
	rc = rsh_ranks_mark(o, 1, n, wanted, err);
	for (uint32_t rank = 0; rank < n && rc == 0; rank++) {
		cleanup_free char *path = rsh_text_format(
			"%s/rank_%u", o->mountpoint, rank);

		if (wanted[rank])
			rc = path ? walk_mount(w, path, err) :
				    rsh_error_nomem(err);
	}
	return rc;
}

/* ---- reading ---- */

static int take_whole_files(struct warm *w)
{
	struct rsh_warm_parts *p = &w->parts;

	p->v = rsh_alloc_array(w->n_files + 1, sizeof(*p->v));
	if (!p->v)
		return -ENOMEM;
	for (size_t i = 0; i < w->n_files; i++) {
		p->v[p->n++] = (struct rsh_warm_part){ i, 0,
						       w->files[i].size };
		p->bytes += w->files[i].size;
	}
	return 0;
}

/* Returns 0 or a positive errno. */
static int read_part(struct warm *w, const struct rsh_warm_part *p, void *buf)
{
	cleanup_fd int fd = open(w->files[p->file].path, O_RDONLY | O_CLOEXEC);
	const uint64_t end = p->offset + p->bytes;
	uint64_t at = p->offset;

	if (fd < 0)
		return errno;
	while (at < end) {
		ssize_t n = rsh_pread_all(fd, buf, rsh_min_u64(end - at,
					  READ_BYTES), at);

		if (n <= 0)
			return (int)-n;
		at += (uint64_t)n;
		rsh_progress_add(w->progress, (uint64_t)n);
	}
	return 0;
}

/* The threads call this.  A file that cannot be read does not stop the
 * others. */
static int warm_part(void *ctx, size_t i, struct rsh_error *err)
{
	struct warm *w = ctx;
	const struct rsh_warm_part *p = &w->parts.v[i];
	cleanup_free void *buf = malloc(READ_BYTES);
	int rc = buf ? read_part(w, p, buf) : ENOMEM;

	(void)err;
	if (rc == 0)
		return 0;
	rsh_progress_clear(w->progress);
	rsh_log_error("%s: %s", w->files[p->file].path, strerror(rc));
	atomic_store(&w->failed, true);
	return 0;
}

static enum rsh_exit read_warm_parts(struct warm *w)
{
	const struct rsh_options *o = w->options;
	const unsigned jobs = o->jobs ? o->jobs : DEFAULT_JOBS;
	struct rsh_error err = RSH_ERROR_INIT;
	int rc;

	w->progress = rsh_progress_start(stderr, "warm", w->parts.bytes,
					 o->quiet);
	rc = rsh_parallel_for(jobs < MAX_JOBS ? jobs : MAX_JOBS, w->parts.n,
			      warm_part, w, &err);
	rsh_progress_end(w->progress);
	if (rc)
		rsh_log_error("%s", err.text);
	return rc || atomic_load(&w->failed) ? RSH_EXIT_IO : RSH_EXIT_GOOD;
}

/* ---- the command ---- */

static enum rsh_exit warm_up(struct warm *w)
{
	const struct rsh_options *o = w->options;
	struct rsh_error err = RSH_ERROR_INIT;
	enum rsh_exit status = RSH_EXIT_GOOD;
	const uint64_t start = rsh_clock_ns();
	const struct rsh_warm_parts *p = &w->parts;
	int rc = check_mount(o->mountpoint, &err);
	struct rsh_printer out;
	double seconds;

	rc = rc ?: find_files(w, &err);
	if (rc == 0 && o->n_shares)
		rc = rsh_warm_divide(o, w->files, w->n_files, &w->parts, &err);
	else if (rc == 0 && take_whole_files(w))
		rc = rsh_error_nomem(&err);
	if (rc)
		return rsh_exit_failed(o, rc, &err);
	if (o->contents)
		status = read_warm_parts(w);
	if (status != RSH_EXIT_GOOD)
		return status;
	seconds = rsh_clock_since(start);
	rsh_printer_init(&out, o);
	rsh_json(&out, "{files:% bytes:%", w->n_files, p->bytes);
	rsh_say(&out, o->quiet ? "" : "% file{|s}, %", w->n_files,
		rsh_v_bytes(p->bytes));
	if (o->n_shares) {
		rsh_json(&out, "distinct_bytes:%", p->distinct);
		rsh_say(&out, o->quiet ? "" : " of % that differ",
			rsh_v_bytes(p->distinct));
	}
	rsh_json(&out, "contents:% seconds:%}", o->contents, seconds);
	rsh_say(&out, o->quiet ? "" : o->contents ? " read in %\n" :
		" in %\n", rsh_v_seconds(seconds));
	rc = rsh_printer_end(&out, 0, &err);
	return rc ? rsh_exit_failed(o, rc, &err) : RSH_EXIT_GOOD;
}

enum rsh_exit rsh_warm(const struct rsh_options *o)
{
	struct warm w = { .options = o };
	enum rsh_exit status = warm_up(&w);

	for (size_t i = 0; i < w.n_files; i++)
		free(w.files[i].path);
	free(w.files);
	free(w.parts.v);
	return status;
}
