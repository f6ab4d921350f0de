/* source/file.c - open source files, and the proof that they are still those
 * that were indexed.
 *
 * A descriptor in use is never closed, so a reader needs the pool's lock only
 * to take and to give back; opening, reading and closing happen outside it. */
#include "config.h"

#include "source_i.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "rsh/util/log.h"
#include "rsh/util/mem.h"

/* Descriptors left to everything that is not a source file. */
#define RESERVED_FDS 64
#define MAX_OPEN_FILES 4096

ssize_t rsh_fd_pread(void *fd, void *buf, size_t len, uint64_t offset)
{
	ssize_t n;

	do {
		n = pread(*(const int *)fd, buf, len, (off_t)offset);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

static unsigned pool_limit(void)
{
	struct rlimit lim;

	if (getrlimit(RLIMIT_NOFILE, &lim) != 0 ||
	    lim.rlim_cur <= 2 * RESERVED_FDS)
		return 1;
	lim.rlim_cur -= RESERVED_FDS;
	return lim.rlim_cur < MAX_OPEN_FILES ? (unsigned)lim.rlim_cur :
					       MAX_OPEN_FILES;
}

int rsh_pool_init(struct rsh_file_pool *pool)
{
	pool->max_open = pool_limit();
	TAILQ_INIT(&pool->idle);
	return -pthread_mutex_init(&pool->lock, NULL);
}

void rsh_pool_reset(struct rsh_file_pool *pool)
{
	pool->n_open = 0;
	TAILQ_INIT(&pool->idle);
}

void rsh_pool_destroy(struct rsh_file_pool *pool)
{
	pthread_mutex_destroy(&pool->lock);
}

/* Lock held.  The descriptor to close now that there are too many, or -1. */
static int take_surplus(struct rsh_file_pool *p)
{
	struct rsh_source_file *f = TAILQ_FIRST(&p->idle);
	int fd;

	if (p->n_open <= p->max_open || !f)
		return -1;
	TAILQ_REMOVE(&p->idle, f, idle);
	p->n_open--;
	fd = f->fd;
	f->fd = -1;
	return fd;
}

static void close_if_open(int fd)
{
	if (fd >= 0)
		close(fd);
}

/* A descriptor or -errno. */
static int open_file(const struct rsh_source *s,
		     const struct rsh_source_file *f)
{
	/* O_NONBLOCK: something may have put a FIFO in the file's place. */
	return rsh_source_openat(s, f->name,
				 O_RDONLY | O_NOCTTY | O_NONBLOCK);
}

int rsh_file_identify(struct rsh_source *s, struct rsh_source_file *f,
		      int *out, struct rsh_error *err)
{
	cleanup_fd int fd = open_file(s, f);
	struct stat st;

	if (fd < 0)
		return rsh_source_open_error(s, f->name, fd, err);
	if (fstat(fd, &st) != 0)
		return rsh_error_set(err, errno, "%s: %s", f->path,
				     strerror(errno));
	if (!S_ISREG(st.st_mode))
		return rsh_error_set(err, EINVAL, "%s: not a regular file",
				     f->path);
	f->id = (struct rsh_file_identity){
		.dev = st.st_dev, .ino = st.st_ino,
		.size = st.st_size, .mtime = st.st_mtim,
	};
	rsh_file_take_attr(s->dirfd, fd, &st, &f->attr);
	*out = steal_fd(&fd);
	return 0;
}

bool rsh_file_is_same(const struct rsh_source_file *f, int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && st.st_dev == f->id.dev &&
	       st.st_ino == f->id.ino && st.st_size == f->id.size &&
	       st.st_mtim.tv_sec == f->id.mtime.tv_sec &&
	       st.st_mtim.tv_nsec == f->id.mtime.tv_nsec;
}

/* What a reader of the virtual file sees: that the checkpoint is no longer
 * the one that was mounted, or that it cannot be read. */
static int reader_errno(int code)
{
	switch (code) {
	case ESTALE:
	case ENOENT:
	case ENOTDIR:
	case ELOOP:
	case EXDEV:
		return -ESTALE;
	case ENOMEM:
		return -ENOMEM;
	default:
		return -EIO;
	}
}

/* Any failure but want of memory makes readers turn to replicas. */
static int report(struct rsh_source *s, struct rsh_source_file *f, int code)
{
	if (code != ENOMEM && !atomic_exchange(&s->failed[f->rank], true))
		atomic_fetch_add(&s->n_failed, 1);
	if (!atomic_flag_test_and_set(&f->reported))
		rsh_log_error("%s: %s", f->path, code == ESTALE ?
			      "changed since it was mounted" : code == EXDEV ?
			      "it leads out of SOURCE now" : strerror(code));
	return reader_errno(code);
}

void rsh_file_adopt(struct rsh_source *s, struct rsh_source_file *f, int fd)
{
	struct rsh_file_pool *p = &s->pool;
	int surplus;

	pthread_mutex_lock(&p->lock);
	f->fd = fd;
	p->n_open++;
	TAILQ_INSERT_TAIL(&p->idle, f, idle);
	surplus = take_surplus(p);
	pthread_mutex_unlock(&p->lock);
	close_if_open(surplus);
}

/* Lock held. */
static bool take_open(struct rsh_file_pool *p, struct rsh_source_file *f)
{
	if (f->fd < 0)
		return false;
	if (f->users++ == 0)
		TAILQ_REMOVE(&p->idle, f, idle);
	return true;
}

int rsh_file_get(struct rsh_source *s, struct rsh_source_file *f, int *out)
{
	struct rsh_file_pool *p = &s->pool;
	int fd, surplus;

	pthread_mutex_lock(&p->lock);
	if (take_open(p, f)) {
		*out = f->fd;
		pthread_mutex_unlock(&p->lock);
		return 0;
	}
	pthread_mutex_unlock(&p->lock);

	fd = open_file(s, f);
	if (fd < 0)
		return report(s, f, -fd);
	if (!rsh_file_is_same(f, fd)) {
		close(fd);
		return report(s, f, ESTALE);
	}

	pthread_mutex_lock(&p->lock);
	if (take_open(p, f)) {
		surplus = fd; /* another reader was faster */
	} else {
		f->fd = fd;
		f->users = 1;
		p->n_open++;
		surplus = take_surplus(p);
	}
	*out = f->fd;
	pthread_mutex_unlock(&p->lock);
	close_if_open(surplus);
	return 0;
}

static void put_file(struct rsh_source *s, struct rsh_source_file *f)
{
	struct rsh_file_pool *p = &s->pool;
	int surplus = -1;

	pthread_mutex_lock(&p->lock);
	if (--f->users == 0) {
		TAILQ_INSERT_TAIL(&p->idle, f, idle);
		surplus = take_surplus(p);
	}
	pthread_mutex_unlock(&p->lock);
	close_if_open(surplus);
}

int rsh_file_put(struct rsh_source *s, struct rsh_source_file *f, int fd)
{
	bool same = rsh_file_is_same(f, fd);

	put_file(s, f);
	return same ? 0 : report(s, f, ESTALE);
}

int rsh_file_fail(struct rsh_source *s, struct rsh_source_file *f, int fd,
		  int code)
{
	/* This says nothing of the file. */
	if (code == ENOMEM) {
		put_file(s, f);
		return -ENOMEM;
	}
	/* A file that changed may well fail in another way first. */
	if (!rsh_file_is_same(f, fd))
		code = ESTALE;
	put_file(s, f);
	return report(s, f, code);
}

int rsh_source_read(struct rsh_source *s, uint32_t rank, uint64_t offset,
		    void *buf, size_t len)
{
	struct rsh_source_file *f = rsh_source_file_at(s, rank, &offset);
	int fd, rc;

	if (!f)
		return -ENOENT;
	rc = rsh_file_get(s, f, &fd);
	if (rc)
		return rc;
	rc = rsh_file_pread(s, f, fd, buf, len, offset);
	rsh_file_spent(s, fd, offset, len, false);
	return rc ? rsh_file_fail(s, f, fd, rc) : rsh_file_put(s, f, fd);
}

/* ---- files as they are ---- */

bool rsh_source_whole(struct rsh_source *s, uint32_t rank, uint64_t bytes,
		      uint32_t *file)
{
	uint64_t first = 0;
	struct rsh_source_file *f = rsh_source_file_at(s, rank, &first);

	if (!f || (uint64_t)f->id.size != bytes ||
	    !rsh_file_is_straight(s, f))
		return false;
	*file = (uint32_t)(f - s->files);
	return true;
}

int rsh_source_file_open(struct rsh_source *s, uint32_t file, int *out)
{
	struct rsh_source_file *f = &s->files[file];
	cleanup_fd int copy = -1;
	int fd, rc, failed;

	rc = rsh_file_get(s, f, &fd);
	if (rc)
		return rc;
	copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	failed = copy < 0 ? -errno : 0;
	rc = rsh_file_put(s, f, fd);
	if (rc == 0)
		rc = failed;
	if (rc == 0)
		*out = steal_fd(&copy);
	return rc;
}

int rsh_source_file_check(struct rsh_source *s, uint32_t file, int fd)
{
	struct rsh_source_file *f = &s->files[file];

	return rsh_file_is_same(f, fd) ? 0 : report(s, f, ESTALE);
}

bool rsh_source_file_failed(const struct rsh_source *s, uint32_t file)
{
	return atomic_load(&s->failed[s->files[file].rank]);
}

const atomic_bool *rsh_source_failed(const struct rsh_source *s)
{
	return s->failed;
}

unsigned rsh_source_n_failed(const struct rsh_source *s)
{
	return atomic_load(&s->n_failed);
}
