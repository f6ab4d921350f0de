/* SPDX-License-Identifier: Apache-2.0 */
/* cli/warm.c runs `warm`, which works on the mount as any program does that
 * reads files, so that it needs nothing of the daemon and the user's rights are
 * enough. */
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
#include <sys/sysmacros.h>
#include <unistd.h>

#include "output.h"
#include "progress.h"
#include "rsh/options/ranks.h"
#include "rsh/util/clock.h"
#include "rsh/util/crew.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "text.h"

#define READ_BYTES ((size_t)1024 * 1024)
#define MAX_JOBS 64
#define DEFAULT_JOBS 4
#define MAX_RANKS 10000000u
#define ROOT_INODE 1 /* that of every FUSE file system */

struct file {
	char *path;
	uint64_t size;
};

struct warm {
	const struct rsh_options *options;
	struct file *files;
	size_t n_files, cap_files;
	uint64_t bytes;

	struct rsh_progress *progress;
	atomic_bool failed;
};

static int fail_file(const char *path, int code, struct rsh_error *err)
{
	return rsh_error_set(err, code, "%s: %s", path, strerror(code));
}

/* ---- the mount ---- */

/* Returns whether /proc/self/mountinfo has that type for the file system on a
 * device. */
static bool is_of_type(dev_t dev, const char *type)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	cleanup_free char *line = NULL;
	size_t cap = 0;
	bool found = false;

	if (!f)
		return false;
	while (!found && getline(&line, &cap, f) > 0) {
		const char *rest = strstr(line, " - ");
		unsigned major, minor;
		size_t n = strlen(type);

		found = rest && sscanf(line, "%*u %*u %u:%u", &major,
				       &minor) == 2 &&
			makedev(major, minor) == dev &&
			strncmp(rest + 3, type, n) == 0 && rest[3 + n] == ' ';
	}
	fclose(f);
	return found;
}

static int check_mount(const char *path, struct rsh_error *err)
{
	struct stat st;

	if (stat(path, &st) != 0)
		return fail_file(path, errno, err);
	if (!S_ISDIR(st.st_mode) || st.st_ino != ROOT_INODE ||
	    !is_of_type(st.st_dev, "fuse.reshardfs"))
		return rsh_error_set(err, EINVAL, "%s: reshardfs is not "
				     "mounted there", path);
	return 0;
}

/* ---- which files ---- */

static int add_warm_file(struct warm *w, const FTSENT *e)
{
	struct file f = { strdup(e->fts_path),
			  (uint64_t)e->fts_statp->st_size };

	if (!f.path || rsh_grow(&w->files, &w->cap_files, w->n_files + 1,
				sizeof(f))) {
		free(f.path);
		return -ENOMEM;
	}
	w->files[w->n_files++] = f;
	w->bytes += f.size;
	return 0;
}

/* Looks at everything below; links are to files that are there as well. */
static int walk_mount(struct warm *w, char *path, struct rsh_error *err)
{
	char *const paths[] = { path, NULL };
	FTS *fts = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR | FTS_XDEV, NULL);
	int rc = 0;
	FTSENT *e;

	if (!fts)
		return fail_file(path, errno, err);
	while (rc == 0 && (errno = 0, e = fts_read(fts))) {
		if (e->fts_info == FTS_F && add_warm_file(w, e))
			rc = rsh_error_nomem(err);
		else if (e->fts_info == FTS_ERR || e->fts_info == FTS_DNR ||
			 e->fts_info == FTS_NS)
			rc = fail_file(e->fts_path, e->fts_errno, err);
	}
	if (rc == 0 && errno)
		rc = fail_file(path, errno, err);
	fts_close(fts);
	return rc;
}

static int walk_rank(struct warm *w, uint32_t rank, struct rsh_error *err)
{
	cleanup_free char *path = NULL;

	if (asprintf(&path, "%s/rank_%u", w->options->mountpoint, rank) < 0) {
		path = NULL;
		return rsh_error_nomem(err);
	}
	return walk_mount(w, path, err);
}

/* Gives the highest rank that the mount shows, plus 1; 0 if it shows none. */
static int count_warm_ranks(const char *path, uint32_t *n,
			    struct rsh_error *err)
{
	DIR *dir = opendir(path);
	const struct dirent *e;
	unsigned rank;
	int end;

	*n = 0;
	if (!dir)
		return fail_file(path, errno, err);
	while ((errno = 0, e = readdir(dir)))
		if (sscanf(e->d_name, "rank_%8u%n", &rank, &end) == 1 &&
		    !e->d_name[end] && rank < MAX_RANKS && rank >= *n)
			*n = rank + 1;
	if (errno) {
		end = errno;
		closedir(dir);
		return fail_file(path, end, err);
	}
	closedir(dir);
	return 0;
}

static int walk_warm_ranks(struct warm *w, struct rsh_error *err)
{
	const struct rsh_options *o = w->options;
	cleanup_free bool *wanted = NULL;
	uint32_t n;
	int rc = count_warm_ranks(o->mountpoint, &n, err);

	if (rc)
		return rc;
	if (n == 0)
		return rsh_error_set(err, EINVAL, "%s: it has no ranks",
				     o->mountpoint);
	wanted = rsh_alloc_array(n, sizeof(*wanted));
	if (!wanted)
		return rsh_error_nomem(err);
	rc = rsh_ranks_mark(o, 1, n, wanted, err);
	for (uint32_t rank = 0; rank < n && rc == 0; rank++)
		if (wanted[rank])
			rc = walk_rank(w, rank, err);
	return rc;
}

static int find_files(struct warm *w, struct rsh_error *err)
{
	cleanup_free char *root = NULL;

	if (w->options->n_operands > 1)
		return walk_warm_ranks(w, err);
	root = strdup(w->options->mountpoint);
	return root ? walk_mount(w, root, err) : rsh_error_nomem(err);
}

/* ---- their contents ---- */

/* Returns 0 or a positive errno. */
static int read_whole(struct warm *w, const char *path, void *buf)
{
	cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return errno;
	for (;;) {
		ssize_t n = read(fd, buf, READ_BYTES);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? errno : 0;
		rsh_progress_add(w->progress, (uint64_t)n);
	}
}

/* This is the crew's work.  A file that cannot be read keeps no other from
 * being read. */
static int warm_file(void *ctx, size_t i, struct rsh_error *err)
{
	struct warm *w = ctx;
	cleanup_free void *buf = malloc(READ_BYTES);
	int rc = buf ? read_whole(w, w->files[i].path, buf) : ENOMEM;

	(void)err;
	if (rc == 0)
		return 0;
	rsh_progress_clear(w->progress);
	rsh_log_error("%s: %s", w->files[i].path, strerror(rc));
	atomic_store(&w->failed, true);
	return 0;
}

static enum rsh_exit read_warm_files(struct warm *w)
{
	const struct rsh_options *o = w->options;
	const unsigned jobs = o->jobs ? o->jobs : DEFAULT_JOBS;
	struct rsh_error err = RSH_ERROR_INIT;
	int rc;

	w->progress = rsh_progress_start(stderr, "warm", w->bytes, o->quiet);
	rc = rsh_crew_run(jobs < MAX_JOBS ? jobs : MAX_JOBS, w->n_files,
			  warm_file, w, &err);
	rsh_progress_end(w->progress);
	if (rc)
		rsh_log_error("%s", err.text);
	return rc || atomic_load(&w->failed) ? RSH_EXIT_IO : RSH_EXIT_GOOD;
}

/* ---- all of it ---- */

static enum rsh_exit report_warm(const struct warm *w, double seconds)
{
	const struct rsh_options *o = w->options;
	char bytes[32], time[32];
	struct rsh_output out;

	rsh_output_init(&out, o);
	if (o->json)
		return rsh_exit_of(rsh_output_json(&out, json_pack(
			"{s:I, s:I, s:b, s:f}", "files", (json_int_t)w->n_files,
			"bytes", (json_int_t)w->bytes, "contents", o->contents,
			"seconds", seconds)));
	if (!o->quiet)
		fprintf(out.f, "%zu file%s, %s%s in %s\n", w->n_files,
			w->n_files == 1 ? "" : "s",
			rsh_text_bytes(w->bytes, bytes, sizeof(bytes)),
			o->contents ? " read" : "",
			rsh_text_seconds(seconds, time, sizeof(time)));
	return RSH_EXIT_GOOD;
}

static enum rsh_exit warm_up(struct warm *w)
{
	const struct rsh_options *o = w->options;
	struct rsh_error err = RSH_ERROR_INIT;
	enum rsh_exit status = RSH_EXIT_GOOD;
	const uint64_t start = rsh_clock_ns();
	int rc = check_mount(o->mountpoint, &err);

	if (rc == 0)
		rc = find_files(w, &err);
	if (rc)
		return rsh_exit_failed(o, rc, &err);
	if (o->contents)
		status = read_warm_files(w);
	return status == RSH_EXIT_GOOD ?
		       report_warm(w, rsh_clock_since(start)) :
		       status;
}

enum rsh_exit rsh_warm(const struct rsh_options *o)
{
	struct warm w = { .options = o };
	enum rsh_exit status = warm_up(&w);

	for (size_t i = 0; i < w.n_files; i++)
		free(w.files[i].path);
	free(w.files);
	return status;
}
