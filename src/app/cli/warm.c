/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/warm.c runs `warm`.  It reads files of the mount as any program does,
 * so it needs no support of the daemon and only the user's rights.
 *
 * With --share it divides what the files take from the source among several
 * runs.  The plans of the mount list for each record which bytes it takes.
 * Records that take the same bytes are one slice, which is read in one file
 * only.  All slices are sorted by their position in the source, and share I of
 * N is the I-th of N parts with equally many bytes.  So slices that are
 * adjacent in the source, which may share blocks of it, mostly belong to the
 * same run.
 * Each run computes the same division, if the mounts show the same. */
#include "config.h"

#include "commands.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rsh/app/mounted.h"
#include "rsh/app/options.h"
#include "rsh/util/checked.h"
#include "rsh/util/clock.h"
#include "rsh/util/files.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"
#include "rsh/util/thread.h"
#include "rsh/util/xxh3.h"

#define READ_BYTES ((size_t)1024 * 1024)
#define MAX_JOBS 64
#define DEFAULT_JOBS 4
#define MAX_RANKS 10000000u
#define ROOT_INODE 1 /* the root inode of every FUSE file system */
/* Bytes between two parts of a file, such as headers, are read with the parts
 * if they are not more than this. */
#define GAP_BYTES 4096
/* A thread reads at most so much in one call. */
#define PART_BYTES ((uint64_t)64 * 1024 * 1024)

struct file {
	char *path;
	uint64_t size;
	bool planned; /* the slices of the file are known */
};

/* This is what a thread reads in one call. */
struct part {
	size_t file;
	uint64_t offset, bytes;
};

struct slice {
	uint64_t hash; /* hash of all that the slice takes */
	uint32_t rank; /* its position in the source */
	uint64_t at;
	struct part part;
};

struct warm {
	const struct rsh_options *options;
	struct file *files;
	size_t n_files, cap_files;
	struct file **by_name; /* [n_files] */
	struct slice *slices;  /* of all runs */
	size_t n_slices, cap_slices;
	uint64_t distinct; /* bytes of all slices */
	struct part *parts;
	size_t n_parts, cap_parts;
	uint64_t bytes; /* of the parts */

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

/* Sets *n to the highest rank in the names of the directory, plus 1; 0 if it
 * has none or does not exist. */
static int count_ranks(const char *path, const char *suffix, uint32_t *n,
		       struct rsh_error *err)
{
	DIR *dir = opendir(path);
	const struct dirent *e;
	unsigned rank;
	int end;

	*n = 0;
	if (!dir)
		return errno == ENOENT ? 0 : rsh_error_file(err, errno, path);
	while ((errno = 0, e = readdir(dir)))
		if (sscanf(e->d_name, "rank_%8u%n", &rank, &end) == 1 &&
		    strcmp(e->d_name + end, suffix) == 0 && rank < MAX_RANKS &&
		    rank >= *n)
			*n = rank + 1;
	end = errno;
	closedir(dir);
	return end ? rsh_error_file(err, end, path) : 0;
}

/* Marks the ranks among the operands, or all of n. */
static int mark_ranks(const struct warm *w, uint32_t n, bool **wanted,
		      struct rsh_error *err)
{
	*wanted = rsh_alloc_array(n, sizeof(**wanted));
	return *wanted ? rsh_ranks_mark(w->options, 1, n, *wanted, err) :
			 rsh_error_nomem(err);
}

/* ---- which files ---- */

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
		if (e->fts_info == FTS_ERR || e->fts_info == FTS_DNR ||
		    e->fts_info == FTS_NS)
			rc = rsh_error_file(err, e->fts_errno, e->fts_path);
		if (e->fts_info != FTS_F)
			continue;
		if (rsh_push(w->files, w->n_files, w->cap_files,
			     (struct file){
				     .path = strdup(e->fts_path),
				     .size = (uint64_t)e->fts_statp->st_size,
			     }) || !w->files[w->n_files - 1].path)
			rc = rsh_error_nomem(err);
	}
	if (rc == 0 && errno)
		rc = rsh_error_file(err, errno, path);
	fts_close(fts);
	return rc;
}

static int find_files(struct warm *w, struct rsh_error *err)
{
	const struct rsh_options *o = w->options;
	cleanup_free bool *wanted = NULL;
	uint32_t n;
	int rc;

	if (o->n_operands < 2)
		return walk_mount(w, o->mountpoint, err);
	rc = count_ranks(o->mountpoint, "", &n, err);
	if (rc == 0 && n == 0)
		return rsh_error_set(err, EINVAL, "%s: the mount has no ranks",
				     o->mountpoint);
	rc = rc ?: mark_ranks(w, n, &wanted, err);
	for (uint32_t rank = 0; rank < n && rc == 0; rank++) {
		cleanup_free char *path = rsh_text_format(
			"%s/rank_%u", o->mountpoint, rank);

		if (wanted[rank])
			rc = path ? walk_mount(w, path, err) :
				    rsh_error_nomem(err);
	}
	return rc;
}

/* ---- the slices of all runs ---- */

RSH_ORDER(by_name, struct file *const,
	  strcmp(rsh_path_name((*x)->path), rsh_path_name((*y)->path)))

/* Adds a part of a file; `reads` says what the part takes from the source. */
static int add_slice(struct warm *w, const struct file *file, uint64_t offset,
		     uint64_t bytes, const char *reads)
{
	struct slice s = {
		.hash = XXH3_64bits_withSeed(reads, strlen(reads), bytes),
		.rank = UINT32_MAX,
		.part = { (size_t)(file - w->files), offset, bytes },
	};

	sscanf(reads, "%" SCNu32 ":%" SCNu64, &s.rank, &s.at);
	return rsh_push(w->slices, w->n_slices, w->cap_slices, s);
}

/* Adds the slices of a plan. */
static int add_plan(struct warm *w, const char *dir, uint32_t rank,
		    struct rsh_error *err)
{
	char path[PATH_MAX];
	json_error_t why;
	const char *name, *reads;
	json_t *plan, *planned, *slice;
	size_t i, k;
	int rc = 0;

	snprintf(path, sizeof(path), "%s/rank_%" PRIu32 ".json", dir, rank);
	plan = json_load_file(path, 0, &why);
	if (!plan)
		return rsh_error_set(err, EIO, "%s: %s", path, why.text);
	json_array_foreach(json_object_get(plan, "files"), i, planned) {
		struct file key = { .path = NULL }, *key_at = &key, **found;
		json_int_t offset, bytes;

		if (json_unpack(planned, "{s:s}", "name", &name))
			continue;
		key.path = (char *)(uintptr_t)name;
		found = rsh_find(&key_at, w->by_name, w->n_files, by_name);
		if (!found)
			continue;
		(*found)->planned = true;
		json_array_foreach(json_object_get(planned, "slices"), k, slice)
			if (json_unpack(slice, "[I,I,s]", &offset, &bytes,
					&reads) == 0 &&
			    add_slice(w, *found, (uint64_t)offset,
				      (uint64_t)bytes, reads))
				rc = rsh_error_nomem(err);
	}
	json_decref(plan);
	return rc;
}

static int find_slices(struct warm *w, struct rsh_error *err)
{
	const char *mountpoint = w->options->mountpoint;
	cleanup_free char *dir = rsh_text_format("%s/.reshardfs/plan",
						 mountpoint);
	cleanup_free bool *wanted = NULL;
	uint32_t n;
	int rc;

	w->by_name = rsh_alloc_array(w->n_files + 1, sizeof(struct file *));
	if (!dir || !w->by_name)
		return rsh_error_nomem(err);
	for (size_t i = 0; i < w->n_files; i++)
		w->by_name[i] = &w->files[i];
	qsort(w->by_name, w->n_files, sizeof(struct file *), by_name);
	/* A mount with --resume has no plans. */
	rc = count_ranks(dir, ".json", &n, err);
	if (rc == 0 && n > 0)
		rc = mark_ranks(w, n, &wanted, err);
	for (uint32_t rank = 0; rank < n && rc == 0; rank++)
		if (wanted[rank])
			rc = add_plan(w, dir, rank, err);
	/* A file without a plan is one slice, identified by its path in the
	 * mount, because the mount point may differ on other machines. */
	for (size_t i = 0; i < w->n_files && rc == 0; i++) {
		const struct file *f = w->by_name[i];
		const char *path = f->path + strlen(mountpoint);

		if (!f->planned &&
		    add_slice(w, f, 0, f->size, path + strspn(path, "/")))
			rc = rsh_error_nomem(err);
	}
	return rc;
}

/* ---- the parts of this run ---- */

RSH_ORDER(by_hash, struct slice,
	  rsh_compare_u64(x->hash, y->hash) ?:
	  rsh_compare_u64(x->part.file, y->part.file) ?:
	  rsh_compare_u64(x->part.offset, y->part.offset))

RSH_ORDER(slice_order, struct slice,
	  rsh_compare_u64(x->rank, y->rank) ?:
	  rsh_compare_u64(x->at, y->at) ?:
	  rsh_compare_u64(x->hash, y->hash))

RSH_ORDER(by_place, struct part,
	  rsh_compare_u64(x->file, y->file) ?:
	  rsh_compare_u64(x->offset, y->offset))

static uint64_t share_begin(uint64_t all, uint64_t i, uint64_t n)
{
	return all / n * i + all % n * i / n;
}

/* Takes this run's share of all slices. */
static int take_share(struct warm *w)
{
	const struct rsh_options *o = w->options;
	uint64_t from, end, at = 0;
	size_t n = 0;

	/* One of equal slices is kept. */
	rsh_sort(w->slices, w->n_slices, by_hash);
	for (size_t i = 0; i < w->n_slices; i++)
		if (n == 0 || w->slices[i].hash != w->slices[n - 1].hash) {
			w->slices[n++] = w->slices[i];
			w->distinct += w->slices[i].part.bytes;
		}
	rsh_sort(w->slices, n, slice_order);
	from = share_begin(w->distinct, o->share, o->n_shares);
	end = share_begin(w->distinct, o->share + 1, o->n_shares);
	for (size_t i = 0; i < n; i++) {
		struct part p = w->slices[i].part;
		const uint64_t lo = rsh_max_u64(at, from);
		const uint64_t hi = rsh_min_u64(at + p.bytes, end);

		p.offset += lo - at;
		at += p.bytes;
		if (lo >= hi)
			continue;
		p.bytes = hi - lo;
		if (rsh_push(w->parts, w->n_parts, w->cap_parts, p))
			return -ENOMEM;
		w->bytes += p.bytes;
	}
	rsh_sort(w->parts, w->n_parts, by_place);
	/* Adjacent parts are read together. */
	n = 0;
	for (size_t i = 0; i < w->n_parts; i++) {
		const struct part p = w->parts[i];
		struct part *last = n ? &w->parts[n - 1] : NULL;

		if (last && last->file == p.file &&
		    p.offset <= last->offset + last->bytes + GAP_BYTES &&
		    p.offset + p.bytes - last->offset <= PART_BYTES)
			last->bytes = p.offset + p.bytes - last->offset;
		else
			w->parts[n++] = p;
	}
	w->n_parts = n;
	return 0;
}

static int find_parts(struct warm *w, struct rsh_error *err)
{
	if (w->options->n_shares)
		return find_slices(w, err) ?:
		       take_share(w) ? rsh_error_nomem(err) : 0;
	w->parts = rsh_alloc_array(w->n_files + 1, sizeof(*w->parts));
	if (!w->parts)
		return rsh_error_nomem(err);
	for (size_t i = 0; i < w->n_files; i++) {
		w->parts[w->n_parts++] = (struct part){ i, 0,
							w->files[i].size };
		w->bytes += w->files[i].size;
	}
	return 0;
}

/* ---- reading ---- */

/* Returns 0 or a positive errno. */
static int read_part(struct warm *w, const struct part *p, void *buf)
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
	const struct part *p = &w->parts[i];
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

/* ---- the command ---- */

static int warm_up(struct warm *w, struct rsh_run *run)
{
	struct rsh_printer *out = &run->out;
	struct rsh_error *err = &run->err;
	const struct rsh_options *o = w->options;
	const unsigned jobs = o->jobs ? o->jobs : DEFAULT_JOBS;
	const uint64_t start = rsh_clock_ns();
	int rc = check_mount(o->mountpoint, err);
	double seconds;

	rc = rc ?: find_files(w, err) ?: find_parts(w, err);
	if (rc)
		return rc;
	if (o->contents) {
		w->progress = rsh_progress_start(stderr, "warm", w->bytes,
						 o->quiet);
		rc = rsh_parallel_for(jobs < MAX_JOBS ? jobs : MAX_JOBS,
				      w->n_parts, warm_part, w, err);
		rsh_progress_end(w->progress);
		if (atomic_load(&w->failed))
			run->status = RSH_EXIT_IO;
		if (rc || run->status != RSH_EXIT_GOOD)
			return rc;
	}
	seconds = rsh_clock_since(start);
	rsh_json(out, "{files:% bytes:%", w->n_files, w->bytes);
	rsh_say(out, o->quiet ? "" : "% file{|s}, %", w->n_files,
		rsh_v_bytes(w->bytes));
	if (o->n_shares) {
		rsh_json(out, "distinct_bytes:%", w->distinct);
		rsh_say(out, o->quiet ? "" : " of % that differ",
			rsh_v_bytes(w->distinct));
	}
	rsh_json(out, "contents:% seconds:%}", o->contents, seconds);
	rsh_say(out, o->quiet ? "" : o->contents ? " read in %\n" :
		" in %\n", rsh_v_seconds(seconds));
	return 0;
}

int rsh_warm(const struct rsh_options *o, struct rsh_run *run)
{
	struct warm w = { .options = o };
	int rc = warm_up(&w, run);

	for (size_t i = 0; i < w.n_files; i++)
		free(w.files[i].path);
	free(w.files);
	free(w.by_name);
	free(w.slices);
	free(w.parts);
	return rc;
}
