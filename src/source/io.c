/* SPDX-License-Identifier: Apache-2.0 */
/* source/io.c - every read of a source's content goes through here. */
#include "config.h"

#include "source_i.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include "rsh/util/checked.h"
#include "rsh/util/clock.h"
#include "rsh/util/log.h"
#include "rsh/util/waits.h"

/* A stretch of this length comes from the page cache in some 10 us, even on a
 * busy machine in less than this; from a network or a disk it does not. */
#define SAMPLE_BYTES (64 * 1024)
#define RSH_SLOW_NS 400000

/* Of a range that failed, for another try. */
#define AGAIN_BYTES (1024 * 1024)

/* Kernels hold a file in pieces of up to this length, each at a multiple of its
 * own, and give back whole ones only. */
#define PIECE_BYTES ((uint64_t)2 * 1024 * 1024)

/* Of file systems whose headers are not in linux/magic.h. */
#define BEEGFS_MAGIC 0x19830326
#define GPFS_MAGIC 0x47504653
#define LUSTRE_MAGIC 0x0bd00bd0

/* In this time a few MB are read. */
#define FREE_FRESH_NS UINT64_C(500000)

struct rsh_source_io {
	enum rsh_caching caching;
	bool has_dir;
	struct rsh_cache *cache;   /* NULL: off */
	struct rsh_faults *faults; /* NULL: none */
	size_t page_bytes;

	bool kept; /* a thread may still need it */
	atomic_bool cached, drop_all;
	atomic_uint_fast64_t keep_free;
	/* Free memory, as it was seen last. */
	atomic_uint_fast64_t free_bytes, free_seen_ns;
	atomic_uint_fast64_t reads, bytes, failed, ns, dropped;
};

int rsh_source_io_new(const struct rsh_source_io_options *o,
		      struct rsh_source_io **out, struct rsh_error *err)
{
	struct rsh_source_io *io = calloc(1, sizeof(*io));
	int rc = 0;

	if (!io)
		return rsh_error_nomem(err);
	io->caching = o->caching;
	io->has_dir = o->cache.dir;
	io->page_bytes = (size_t)sysconf(_SC_PAGESIZE);
	if (o->caching != RSH_CACHING_OFF)
		rc = rsh_cache_new(&o->cache, &io->cache, err);
	if (rc == 0 && o->faults)
		rc = rsh_faults_new(o->faults, &io->faults, err);
	if (rc) {
		rsh_source_io_free(io);
		return rc;
	}
	*out = io;
	return 0;
}

void rsh_source_io_keep(struct rsh_source_io *io)
{
	if (io)
		io->kept = true;
}

void rsh_source_io_free(struct rsh_source_io *io)
{
	if (!io || io->kept)
		return;
	rsh_cache_free(io->cache);
	rsh_faults_free(io->faults);
	free(io);
}

void rsh_source_io_keep_free(struct rsh_source_io *io, uint64_t bytes, bool all)
{
	atomic_store(&io->keep_free, bytes);
	atomic_store(&io->drop_all, all);
}

void rsh_source_io_stats_get(const struct rsh_source_io *io,
			     struct rsh_source_io_stats *out)
{
	*out = (struct rsh_source_io_stats){
		.reads = atomic_load(&io->reads),
		.bytes = atomic_load(&io->bytes),
		.failed = atomic_load(&io->failed),
		.ns = atomic_load(&io->ns),
		.dropped = atomic_load(&io->dropped),
		.cached = atomic_load(&io->cached),
	};
	if (io->cache)
		rsh_cache_stats_get(io->cache, &out->cache);
}

/* ---- reading ---- */

/* Buffers that are filled one after the other. */
struct target {
	struct iovec iov[RSH_CACHE_LOAD_IOV];
	int n, first; /* first: the first that is not full */
	size_t left;
};

static struct target one_buffer(void *buf, size_t len)
{
	return (struct target){
		.iov[0] = { buf, len }, .n = 1, .left = len,
	};
}

static void advance(struct target *t, size_t n)
{
	t->left -= n;
	while (n > 0) {
		struct iovec *v = &t->iov[t->first];

		if (n < v->iov_len) {
			v->iov_base = (uint8_t *)v->iov_base + n;
			v->iov_len -= n;
			return;
		}
		n -= v->iov_len;
		t->first++;
	}
}

/* As preadv(). */
static ssize_t read_once(struct rsh_faults *faults, const char *name, int fd,
			 const struct target *t, uint64_t offset)
{
	const struct iovec *v = &t->iov[t->first];
	size_t len = t->left;
	int rc = faults ? rsh_faults_apply(faults, name, offset, &len) : 0;

	if (rc) {
		errno = rc;
		return -1;
	}
	if (len == 0)
		return 0;
	if (len < t->left)
		return pread(fd, v->iov_base,
			     len < v->iov_len ? len : v->iov_len,
			     (off_t)offset);
	return preadv(fd, v, t->n - t->first, (off_t)offset);
}

/* 0, or a positive errno. */
static int read_all(struct rsh_faults *faults, const char *name, int fd,
		    struct target *t, uint64_t offset)
{
	while (t->left > 0) {
		long begin = rsh_waits_begin();
		ssize_t n = read_once(faults, name, fd, t, offset);

		rsh_waits_end(begin);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno;
		if (n == 0)
			return RSH_CHANGED;
		advance(t, (size_t)n);
		offset += (uint64_t)n;
	}
	return 0;
}

static void count(struct rsh_source_io *io, size_t bytes, uint64_t ns,
		  bool failed)
{
	atomic_fetch_add(&io->reads, 1);
	atomic_fetch_add(&io->bytes, bytes);
	atomic_fetch_add(&io->ns, ns);
	if (failed)
		atomic_fetch_add(&io->failed, 1);
}

static int read_counted(struct rsh_source_io *io, const char *name, int fd,
			struct target *t, uint64_t offset)
{
	const uint64_t start = rsh_clock_ns();
	const size_t len = t->left;
	int rc = read_all(io->faults, name, fd, t, offset);

	count(io, len, rsh_clock_ns() - start, rc != 0);
	return rc;
}

/* Where to try the file again. */
static int note_failure(struct rsh_source_file *f, int code, uint64_t offset,
			size_t len)
{
	if (code) {
		atomic_store(&f->bad_at, offset);
		atomic_store(&f->bad_len, len);
	}
	return code;
}

static int read_buffer(struct rsh_source *s, struct rsh_source_file *f,
		       int fd, void *buf, size_t len, uint64_t offset)
{
	struct target t = one_buffer(buf, len);
	int code = s->io ? read_counted(s->io, f->name, fd, &t, offset) :
			   read_all(NULL, f->name, fd, &t, offset);

	return note_failure(f, code, offset, len);
}

int rsh_file_read_again(struct rsh_source *s, struct rsh_source_file *f,
			int fd)
{
	const uint64_t at = rsh_min_u64(atomic_load(&f->bad_at),
					(uint64_t)f->id.size);
	const uint64_t left = (uint64_t)f->id.size - at;
	/* A file that could not be opened may be one that opens and no more. */
	const uint64_t len = rsh_max_u64(atomic_load(&f->bad_len), 1);
	const size_t n = (size_t)rsh_min_u64(rsh_min_u64(len, left),
					     AGAIN_BYTES);
	uint8_t *buf = malloc(n + 1);
	struct target t = one_buffer(buf, n);
	int code;

	if (!buf)
		return ENOMEM;
	/* The kernel's copy says nothing. */
	posix_fadvise(fd, (off_t)at, (off_t)n, POSIX_FADV_DONTNEED);
	code = s->io ? read_counted(s->io, f->name, fd, &t, at) :
		       read_all(NULL, f->name, fd, &t, at);
	free(buf);
	return code;
}

struct load {
	struct rsh_source_io *io;
	struct rsh_source_file *file;
	int fd;
};

/* For the cache, which may keep the blocks for others: a file that changed must
 * not get in under the identity that it had. */
static int load_blocks(void *ctx, uint64_t offset, const struct iovec *iov,
		       int n_iov)
{
	const struct load *l = ctx;
	struct target t = { .n = n_iov };
	size_t len;
	int rc;

	for (int i = 0; i < n_iov; i++) {
		t.iov[i] = iov[i];
		t.left += iov[i].iov_len;
	}
	len = t.left;
	rc = read_counted(l->io, l->file->name, l->fd, &t, offset);
	if (rc == 0)
		rc = rsh_file_compare(l->file, l->fd, true);
	return note_failure(l->file, rc, offset, len);
}

/* ---- whether to cache ---- */

static bool is_remote(int fd)
{
	struct statfs fs;

	if (fstatfs(fd, &fs) != 0)
		return false;
	switch ((uint32_t)fs.f_type) {
	case NFS_SUPER_MAGIC:
	case SMB_SUPER_MAGIC:
	case CIFS_SUPER_MAGIC:
	case SMB2_SUPER_MAGIC:
	case CEPH_SUPER_MAGIC:
	case V9FS_MAGIC:
	case AFS_SUPER_MAGIC:
	case CODA_SUPER_MAGIC:
	case BEEGFS_MAGIC:
	case GPFS_MAGIC:
	case LUSTRE_MAGIC:
	case RSH_FUSE_MAGIC:
		return true;
	default:
		return false;
	}
}

bool rsh_source_is_remote(const struct rsh_source *s)
{
	return is_remote(s->dirfd);
}

bool rsh_source_is_stacked(const struct rsh_source *s)
{
	struct statfs fs;

	if (fstatfs(s->dirfd, &fs) != 0)
		return false;
	switch ((uint32_t)fs.f_type) {
	case OVERLAYFS_SUPER_MAGIC:
	case ECRYPTFS_SUPER_MAGIC:
	case RSH_FUSE_MAGIC:
		return true;
	default:
		return false;
	}
}

/* What a second read of the same bytes takes.  False if it cannot be told. */
static bool time_of_second_read(struct rsh_source *s,
				struct rsh_source_file *f, int fd,
				uint64_t *ns)
{
	const uint64_t at = (uint64_t)f->id.size / 2;
	const uint64_t room = (uint64_t)f->id.size - at;
	const size_t len = room < SAMPLE_BYTES ? (size_t)room : SAMPLE_BYTES;
	uint8_t *buf = malloc(len ? len : 1);
	bool told;

	*ns = UINT64_MAX;
	told = buf && read_buffer(s, f, fd, buf, len, at) == 0;
	/* Twice, should the machine be busy. */
	for (int i = 0; i < 2 && told; i++) {
		uint64_t start = rsh_clock_ns(), took;

		told = read_buffer(s, f, fd, buf, len, at) == 0;
		took = rsh_clock_ns() - start;
		if (took < *ns)
			*ns = took;
	}
	free(buf);
	return told;
}

static void settle(struct rsh_source *s, enum rsh_way way)
{
	int open = RSH_WAY_OPEN;

	if (!atomic_compare_exchange_strong(&s->way, &open, way))
		return;
	if (s->io)
		atomic_store(&s->io->cached, way == RSH_WAY_CACHE);
	rsh_log_info("%s: read %s", s->path, way == RSH_WAY_CACHE ?
		     "through the cache" : "straight");
}

/* Each of those who read first looks for itself, so that nobody waits for a
 * file but who reads it; what fails says nothing. */
static void decide(struct rsh_source *s, struct rsh_source_file *f, int fd)
{
	uint64_t ns;

	if (s->io->has_dir && is_remote(fd)) {
		settle(s, RSH_WAY_CACHE);
	} else if (time_of_second_read(s, f, fd, &ns)) {
		rsh_log_info("%s: read again in %llu us", f->path,
			     (unsigned long long)ns / 1000);
		settle(s, ns > RSH_SLOW_NS ? RSH_WAY_CACHE : RSH_WAY_STRAIGHT);
	}
}

/* The first time this takes a few reads. */
static bool is_cached(struct rsh_source *s, struct rsh_source_file *f, int fd)
{
	if (f->cached == RSH_CACHE_FILE_NONE)
		return false;
	if (atomic_load(&s->way) == RSH_WAY_OPEN)
		decide(s, f, fd);
	return atomic_load(&s->way) == RSH_WAY_CACHE;
}

/* ---- reads of content ---- */

static int read_through(struct rsh_source *s, struct rsh_source_file *f,
			int fd, void *buf, size_t len, uint64_t offset)
{
	struct load load = { s->io, f, fd };
	int rc;

	if (!is_cached(s, f, fd))
		return read_buffer(s, f, fd, buf, len, offset);
	/* The neighbours of this range are mostly being read at the same time:
	 * what is missing is loaded before waiting for blocks that they
	 * load. */
	rc = rsh_cache_prefetch(s->io->cache, f->cached, offset, len,
				load_blocks, &load);
	if (rc == 0)
		rc = rsh_cache_read(s->io->cache, f->cached, offset, buf, len,
				    load_blocks, &load);
	return -rc;
}

int rsh_file_pread(struct rsh_source *s, struct rsh_source_file *f, int fd,
		   void *buf, size_t len, uint64_t offset)
{
	int rc = read_through(s, f, fd, buf, len, offset);

	/* Not before the cache: its blocks outlive the drill. */
	if (rc == 0 && s->io && s->io->faults)
		rsh_faults_flip(s->io->faults, f->name, offset, buf, len);
	return rc;
}

ssize_t rsh_scan_pread(void *file, void *buf, size_t len, uint64_t offset)
{
	struct rsh_scan_file *f = file;
	ssize_t n = rsh_fd_pread(&f->fd, buf, len, offset);

	if (n > 0 && f->io && f->io->faults)
		rsh_faults_flip(f->io->faults, f->name, offset, buf, (size_t)n);
	return n;
}

ssize_t rsh_source_io_pread(struct rsh_source_io *io, const char *name, int fd,
			    void *buf, size_t len, uint64_t offset)
{
	const uint64_t start = rsh_clock_ns();
	struct target t = one_buffer(buf, len);
	ssize_t n;

	do {
		n = read_once(io ? io->faults : NULL, name, fd, &t, offset);
	} while (n < 0 && errno == EINTR);
	if (!io)
		return n;
	count(io, n > 0 ? (size_t)n : 0, rsh_clock_ns() - start, n < 0);
	if (n > 0 && io->faults)
		rsh_faults_flip(io->faults, name, offset, buf, (size_t)n);
	return n;
}

bool rsh_source_io_is_true(const struct rsh_source_io *io)
{
	return !io || !io->faults || !rsh_faults_flip_any(io->faults);
}

struct deciding {
	struct rsh_source *source;
	struct rsh_source_file *file;
};

static int decide_now(void *ctx, int fd)
{
	const struct deciding *d = ctx;

	is_cached(d->source, d->file, fd);
	return 0;
}

bool rsh_file_is_straight(struct rsh_source *s, struct rsh_source_file *f)
{
	struct deciding d = { s, f };

	if (!s->io || s->io->faults)
		return !s->io;
	if (f->cached == RSH_CACHE_FILE_NONE)
		return true;
	/* What goes wrong here does so again in who reads the file. */
	if (atomic_load(&s->way) == RSH_WAY_OPEN)
		rsh_file_try(s, f, decide_now, &d);
	return atomic_load(&s->way) != RSH_WAY_CACHE;
}

/* Free memory of a moment ago: to ask costs as much as a small read. */
static uint64_t free_memory(struct rsh_source_io *io)
{
	const uint64_t now = rsh_clock_ns();

	if (now - atomic_load(&io->free_seen_ns) > FREE_FRESH_NS) {
		atomic_store(&io->free_bytes,
			     (uint64_t)sysconf(_SC_AVPHYS_PAGES) *
				     io->page_bytes);
		atomic_store(&io->free_seen_ns, now);
	}
	return atomic_load(&io->free_bytes);
}

void rsh_file_spent(const struct rsh_source *s, int fd, uint64_t offset,
		    uint64_t len, bool partly)
{
	struct rsh_source_io *io = s->io;
	const uint64_t start = offset - offset % PIECE_BYTES;
	uint64_t keep_free;

	if (!io || (!partly && !atomic_load(&io->drop_all)))
		return;
	keep_free = atomic_load(&io->keep_free);
	if (!keep_free || free_memory(io) >= keep_free)
		return;
	/* A piece that reaches beyond this range goes with its last byte. */
	if (posix_fadvise(fd, (off_t)start, (off_t)(offset + len - start),
			  POSIX_FADV_DONTNEED) == 0)
		atomic_fetch_add(&io->dropped, len);
}

/* ---- attaching ---- */

static struct rsh_cache_file_id identity(const struct rsh_source_file *f)
{
	return (struct rsh_cache_file_id){
		.dev = f->id.dev,
		.ino = f->id.ino,
		.size = (uint64_t)f->id.size,
		.mtime_sec = f->id.mtime.tv_sec,
		.mtime_nsec = (uint32_t)f->id.mtime.tv_nsec,
		.epoch = f->epoch,
		.step = f->step,
	};
}

void rsh_source_io_attach(struct rsh_source *s)
{
	const bool off = !s->io || !s->io->cache;

	atomic_store(&s->way, RSH_WAY_OPEN);
	for (uint32_t i = 0; i < s->n_files; i++) {
		struct rsh_cache_file_id id = identity(&s->files[i]);

		s->files[i].cached = !off && id.size ?
			rsh_cache_file_open(s->io->cache, &id) :
			RSH_CACHE_FILE_NONE;
	}
	if (off)
		settle(s, RSH_WAY_STRAIGHT);
	else if (s->io->caching == RSH_CACHING_ON)
		settle(s, RSH_WAY_CACHE);
}
