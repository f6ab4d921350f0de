/* SPDX-License-Identifier: Apache-2.0 */
/* storage/cache/disk.c reads blocks from a directory, and writes them in a
 * thread.
 *
 * No reader fails or waits long because of the directory: every problem counts
 * as a miss, and a directory that failed is not used for a while.
 */
#include "config.h"

#include "cache_i.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/random.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "rsh/util/checked.h"
#include "rsh/util/clock.h"
#include "rsh/util/compat.h"
#include "rsh/util/files.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/pack.h"

/* ---- keeping the limit ---- */

/* There may be half a million files.  So they are not sorted.  A first pass
 * adds up their bytes by age, in steps that are finer for newer files.  A
 * second pass removes the files that are older than the age at which enough
 * bytes are removed. */

#define TEMP_SUFFIX ".tmp"

/* No write takes ten minutes, so the process of such an old temporary file has
 * ended. */
#define TEMP_AGE 600

/* Ages are in seconds: exact below 32, then 16 steps for each doubling. */
#define N_AGES (32 + 59 * 16)

struct pass {
	int dirfd;
	int64_t now;
	uint64_t by_age[N_AGES];
	unsigned cut;      /* files of a higher age are removed */
	uint64_t cut_rest; /* and this many bytes of that age */
	uint64_t total;    /* bytes that the files use on disk */
	uint64_t removed;  /* how many files were removed */
};

/* Returns how many bytes a file of this size uses on disk. */
static uint64_t rsh_disk_cost(uint64_t bytes)
{
	return (bytes + 4095) & ~UINT64_C(4095);
}

static unsigned trim_age(const struct pass *p, const struct stat *st)
{
	uint64_t age;
	unsigned log;

	if (st->st_mtim.tv_sec >= p->now)
		return 0;
	age = (uint64_t)(p->now - st->st_mtim.tv_sec);
	if (age < 32)
		return (unsigned)age;
	log = 63 - (unsigned)__builtin_clzll(age);
	return 32 + (log - 5) * 16 + (unsigned)(age >> (log - 4) & 15);
}

static bool trim_is_temp(const char *name)
{
	return rsh_has_suffix(name, TEMP_SUFFIX) &&
	       strspn(name, "0123456789abcdef-") ==
		       strlen(name) - strlen(TEMP_SUFFIX);
}

static void trim_remove(struct pass *p, const char *name, uint64_t cost)
{
	if (unlinkat(p->dirfd, name, 0) != 0)
		return;
	p->removed++;
	p->total -= cost;
}

static void trim_count(struct pass *p, const char *name, const struct stat *st)
{
	const uint64_t cost = rsh_disk_cost((uint64_t)st->st_size);

	p->total += cost;
	if (!trim_is_temp(name))
		p->by_age[trim_age(p, st)] += cost;
	else if (st->st_mtim.tv_sec < p->now - TEMP_AGE)
		trim_remove(p, name, cost);
}

static void trim_remove_old(struct pass *p, const char *name,
			    const struct stat *st)
{
	const uint64_t cost = rsh_disk_cost((uint64_t)st->st_size);
	const unsigned age = trim_age(p, st);

	if (trim_is_temp(name) || age < p->cut ||
	    (age == p->cut && !p->cut_rest))
		return;
	if (age == p->cut)
		p->cut_rest -= rsh_min_u64(cost, p->cut_rest);
	trim_remove(p, name, cost);
}

/* Calls f for each file of the cache.  Returns 0 or a positive errno. */
static int trim_each_file(struct pass *p,
			  void (*f)(struct pass *p, const char *name,
				    const struct stat *st))
{
	DIR *dir = rsh_dir_of(openat(p->dirfd, ".", O_RDONLY | O_DIRECTORY |
				     O_CLOEXEC));
	struct dirent *e;
	struct stat st;
	int rc;

	if (!dir)
		return errno;
	while (errno = 0, (e = readdir(dir))) {
		if (!rsh_block_file_is_name(e->d_name) &&
		    !trim_is_temp(e->d_name))
			continue;
		if (fstatat(p->dirfd, e->d_name, &st,
			    AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
			f(p, e->d_name, &st);
	}
	rc = errno;
	closedir(dir);
	return rc;
}

#define RETRY_SECONDS 60
/* A block that is costly to load waits this long to be queued. */
#define PATIENCE_NS NS_PER_S
#define NS_PER_S UINT64_C(1000000000)

/* The mtime of a file is the time of its last use.  It may be this much too
 * old. */
#define TOUCH_SECONDS 60

/* ---- the directory ---- */

/* Returns a descriptor of the directory, or -1 with *why and errno. */
static int disk_dir_open(const char *path, const char **why)
{
	cleanup_fd int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) != 0) {
		*why = strerror(errno);
		return -1;
	}
	if (st.st_uid != geteuid()) {
		*why = "it belongs to another user";
		errno = EPERM;
		return -1;
	}
	if (st.st_mode & (S_IWGRP | S_IWOTH)) {
		*why = "others can write to it";
		errno = EPERM;
		return -1;
	}
	return steal_fd(&fd);
}

/* Does not use the directory until a later time, which is put into *off_until.
 * Logs one line for all failures until the directory works again. */
static void disk_stop(struct rsh_disk *d, _Atomic uint64_t *off_until,
		      const char *why)
{
	if (!atomic_exchange(&d->complained, true))
		rsh_log_warning("cache directory %s: %s; it is not used, "
				"with a retry every %llu s", d->path, why,
				(unsigned long long)d->retry_ns / NS_PER_S);
	*off_until = d->clock_ns() + d->retry_ns;
}

/* After a failure the path may be another directory, or exist again. */
static bool disk_reopen(struct rsh_disk *d)
{
	const char *why = NULL;
	cleanup_fd int fd = disk_dir_open(d->path, &why);

	if (fd < 0 || dup3(fd, d->fd, O_CLOEXEC) < 0) {
		disk_stop(d, &d->writes_off_until, why ? why : strerror(errno));
		return false;
	}
	d->looked = false;
	return true;
}

/* ---- reading ---- */

/* Reads n bytes after the header and checks whether they are the block's. */
static enum rsh_disk_found block_file_take(struct rsh_disk *d, int fd,
					   const struct rsh_block_key *key,
					   uint8_t *bytes, uint32_t n)
{
	uint8_t header[RSH_BLOCK_FILE_HEADER];
	struct iovec iov[] = { { header, sizeof(header) }, { bytes, n } };
	struct iovec *v = iov;
	size_t left = 2;

	while (left) {
		const ssize_t got = readv(fd, v, (int)left);

		if (got == 0)
			return RSH_DISK_REJECTED; /* the file is truncated */
		if (got < 0 && errno != EINTR) {
			disk_stop(d, &d->reads_off_until, strerror(errno));
			return RSH_DISK_ERROR;
		}
		if (got > 0)
			rsh_iov_advance(&v, &left, (size_t)got);
	}
	return rsh_block_file_check(header, key, bytes, n) ? RSH_DISK_HIT :
							     RSH_DISK_REJECTED;
}

static enum rsh_disk_found block_file_load(struct rsh_disk *d, int fd,
					   const struct rsh_block_key *key,
					   uint8_t *content, uint8_t **packed,
					   uint32_t *n)
{
	const struct timespec times[] = { { .tv_nsec = UTIME_OMIT },
					  { .tv_nsec = UTIME_NOW } };
	cleanup_free uint8_t *bytes = NULL;
	enum rsh_disk_found found;
	struct stat st;

	if (fstat(fd, &st) != 0)
		return RSH_DISK_ERROR;
	if (!S_ISREG(st.st_mode) || st.st_size <= RSH_BLOCK_FILE_HEADER ||
	    st.st_size > (off_t)RSH_BLOCK_FILE_HEADER + key->len)
		return RSH_DISK_REJECTED;
	*n = (uint32_t)(st.st_size - RSH_BLOCK_FILE_HEADER);
	if (*n < key->len) {
		bytes = malloc(*n);
		if (!bytes)
			return RSH_DISK_MISS;
	}
	found = block_file_take(d, fd, key, bytes ? bytes : content, *n);
	if (found != RSH_DISK_HIT)
		return found;
	if (bytes && !rsh_unpack(bytes, *n, content, key->len))
		return RSH_DISK_REJECTED;
	*packed = steal_pointer(&bytes);
	/* The mtime stores the time of use.  The kernel need not cache the
	 * pages of the file, because this cache has the content. */
	if (st.st_mtim.tv_sec < time(NULL) - TOUCH_SECONDS)
		futimens(fd, times);
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	return RSH_DISK_HIT;
}

/* Returns the result for a file that cannot be opened. */
static enum rsh_disk_found block_file_not_opened(struct rsh_disk *d, int code)
{
	if (rsh_is_one(code, ENOENT, EMFILE, ENFILE, ENOMEM, EINTR))
		return RSH_DISK_MISS;
	/* A symbolic link, or a socket. */
	if (rsh_is_one(code, ELOOP, ENXIO, EACCES))
		return RSH_DISK_REJECTED;
	disk_stop(d, &d->reads_off_until, strerror(code));
	return RSH_DISK_ERROR;
}

enum rsh_disk_found rsh_disk_read(struct rsh_disk *d,
				  const struct rsh_block_key *key,
				  uint8_t *content, uint8_t **packed,
				  uint32_t *n)
{
	char name[RSH_BLOCK_FILE_NAME_MAX];
	enum rsh_disk_found found;
	cleanup_fd int fd = -1;

	*packed = NULL;
	*n = 0;
	if (d->reads_off_until > d->clock_ns())
		return RSH_DISK_MISS;
	rsh_block_file_name(key, name);
	/* O_NONBLOCK is needed because the file might be a FIFO. */
	fd = openat(d->fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK |
		    O_NOCTTY | O_CLOEXEC);
	found = fd < 0 ? block_file_not_opened(d, errno) :
			 block_file_load(d, fd, key, content, packed, n);
	/* If another process has just created a good file, this removes that
	 * one too, and the block will be written again. */
	if (found == RSH_DISK_REJECTED)
		unlinkat(d->fd, name, 0);
	return found;
}

/* ---- writing ---- */

struct disk_block {
	struct rsh_block_key key;
	uint8_t *bytes; /* in the stored form */
	uint32_t n;
};

static int block_file_write(void *ctx, int fd)
{
	const struct disk_block *b = ctx;
	uint8_t header[RSH_BLOCK_FILE_HEADER];
	struct iovec iov[] = { { header, sizeof(header) },
			       { b->bytes, b->n } };
	struct iovec *v = iov;
	size_t left = 2;

	rsh_block_file_header(&b->key, b->bytes, b->n, header);
	while (left) {
		const ssize_t n = writev(fd, v, (int)left);

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n > 0)
			rsh_iov_advance(&v, &left, (size_t)n);
	}
	/* Without this, dirty pages would grow as fast as the source is read,
	 * and clean pages would have a second copy of what is in memory. */
	if (sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WAIT_BEFORE |
			    SYNC_FILE_RANGE_WRITE |
			    SYNC_FILE_RANGE_WAIT_AFTER) != 0 &&
	    errno != EINVAL && errno != ENOSYS && errno != ESPIPE)
		return -errno;
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	return 0;
}

/* Returns 0 or a positive errno. */
static int disk_block_write(struct rsh_disk *d, struct disk_block *b)
{
	char name[RSH_BLOCK_FILE_NAME_MAX], temp[64];
	uint64_t salt = 0;

	/* No other process uses the temporary name. */
	if (rsh_getrandom(&salt, sizeof(salt), GRND_NONBLOCK) < 0)
		salt = d->clock_ns();
	snprintf(temp, sizeof(temp), "%llx-%llx-%llx.tmp",
		 (unsigned long long)salt, (unsigned long long)getpid(),
		 (unsigned long long)d->n_temp++);
	rsh_block_file_name(&b->key, name);
	return -rsh_file_replace(d->fd, name, temp, 0600, block_file_write, b);
}

/* Makes room for `cost` more bytes within the limit.  It scans the files of the
 * directory now and then and, if they use too much, removes the least recently
 * used ones until there is some room.  Temporary files of killed processes are
 * removed once they are ten minutes old.  Returns 0, a positive errno, or EFBIG
 * if there is no room. */
static int disk_make_room(struct rsh_disk *d, uint64_t cost, uint64_t *removed)
{
	const uint64_t limit = d->bound - cost;
	cleanup_free struct pass *p = NULL;
	int rc;

	if (cost > d->bound)
		return EFBIG;
	if (d->looked && d->total <= limit && d->since_look < d->bound / 16)
		return 0;
	p = calloc(1, sizeof(*p));
	if (!p)
		return ENOMEM;
	p->dirfd = d->fd;
	p->now = time(NULL);
	rc = trim_each_file(p, trim_count);
	if (rc == 0 && p->total > limit) {
		uint64_t excess = p->total -
			rsh_min_u64(d->bound - d->bound / 8, limit);

		/* The files of the age `cut` and older have these bytes. */
		p->cut = N_AGES - 1;
		while (p->cut && p->by_age[p->cut] < excess)
			excess -= p->by_age[p->cut--];
		p->cut_rest = excess;
		rc = trim_each_file(p, trim_remove_old);
	}
	if (rc)
		return rc;
	*removed += p->removed;
	d->looked = true;
	d->total = p->total;
	d->since_look = 0;
	return d->total <= limit ? 0 : EFBIG;
}

enum outcome { WRITTEN, FAILED, LEFT };

static enum outcome disk_block_try(struct rsh_disk *d, struct disk_block *b,
				   uint64_t *removed)
{
	const uint64_t cost = rsh_disk_cost(RSH_BLOCK_FILE_HEADER + b->n);
	int rc;

	if (d->writes_off_until > d->clock_ns())
		return LEFT;
	if (d->was_off && !disk_reopen(d))
		return LEFT;
	rc = disk_make_room(d, cost, removed);
	if (rc == EFBIG)
		return LEFT;
	rc = rc ?: disk_block_write(d, b);
	d->was_off = rc != 0;
	if (rc) {
		disk_stop(d, &d->writes_off_until,
			  rc == ENOENT ? "it was removed" : strerror(rc));
		return FAILED;
	}
	d->complained = false;
	d->total += cost;
	d->since_look += cost;
	return WRITTEN;
}

/* Writes the next block of the queue; a step of the worker. */
static bool disk_write_next(struct rsh_cache *c)
{
	struct rsh_disk *d = c->disk;
	struct rsh_cache_block *b;
	struct disk_block block;
	uint64_t removed = 0;
	enum outcome outcome;

	if (!d->n)
		return false;
	b = d->queue[d->head];
	d->head = (d->head + 1) % RSH_DISK_QUEUE;
	d->n--;
	d->stuck = false;
	pthread_cond_broadcast(&d->taken);
	block = (struct disk_block){
		rsh_block_key_of(c, b), b->mem, rsh_block_stored(b),
	};
	pthread_mutex_unlock(&c->lock);
	outcome = disk_block_try(d, &block, &removed);
	pthread_mutex_lock(&c->lock);

	c->stats.disk_trimmed += removed;
	c->stats.disk_bytes = d->total;
	if (outcome == WRITTEN) {
		c->stats.disk_written++;
		c->stats.disk_written_bytes += block.n;
	} else if (outcome == FAILED) {
		c->stats.disk_errors++;
	} else {
		c->stats.disk_dropped++;
	}
	rsh_block_unhold(c, b);
	return true;
}

void rsh_disk_enqueue(struct rsh_cache *c, struct rsh_cache_block *b,
		      bool patient)
{
	struct rsh_disk *d = c->disk;
	const uint64_t until = patient ? rsh_clock_ns() + PATIENCE_NS : 0;

	if (!d->bound)
		return;
	while (d->n >= d->max && !d->stuck && rsh_clock_ns() < until)
		rsh_clock_wait(&d->taken, &c->lock, until);
	/* Others that wait now wait in vain, too. */
	d->stuck |= patient && d->n >= d->max;
	if (d->n >= d->max || !rsh_worker_kick(&d->writer)) {
		c->stats.disk_dropped++;
		return;
	}
	rsh_block_ref(c, b);
	d->queue[(d->head + d->n++) % RSH_DISK_QUEUE] = b;
}

/* ---- opening and closing ---- */

int rsh_disk_open(struct rsh_cache *c, const struct rsh_cache_options *opts,
		  struct rsh_error *err)
{
	const uint64_t part = c->bound / RSH_DISK_QUEUE_PART / c->block_bytes;
	struct rsh_disk *d = calloc(1, sizeof(*d));
	const char *why;

	if (!d)
		return rsh_error_nomem(err);
	d->path = strdup(opts->dir);
	if (!d->path || rsh_clock_cond_init(&d->taken) ||
	    rsh_worker_init(&d->writer, c, disk_write_next)) {
		free(d->path);
		free(d);
		return rsh_error_nomem(err);
	}
	d->fd = -1;
	c->disk = d;
	if (mkdir(d->path, 0700) == 0)
		rsh_log_info("cache directory %s: made", d->path);
	d->fd = disk_dir_open(d->path, &why);
	if (d->fd < 0)
		return rsh_error_set(err, errno, "cache directory %s: %s",
				     d->path, why);
	d->bound = opts->disk_bytes;
	d->clock_ns = opts->clock_ns ? opts->clock_ns : rsh_clock_ns;
	d->retry_ns = NS_PER_S * (opts->disk_retry_seconds ?
				  opts->disk_retry_seconds : RETRY_SECONDS);
	d->max = part < 1 ? 1 : (uint32_t)rsh_min_u64(part, RSH_DISK_QUEUE);
	return 0;
}

void rsh_disk_close(struct rsh_cache *c)
{
	struct rsh_disk *d = c->disk;

	if (!d)
		return;
	rsh_worker_destroy(&d->writer);
	pthread_cond_destroy(&d->taken);
	if (d->fd >= 0)
		close(d->fd);
	free(d->path);
	free(d);
}
