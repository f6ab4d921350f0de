/* SPDX-License-Identifier: Apache-2.0 */
/* store/file.c keeps files open, and proves that they are still those that were
 * identified.
 *
 * A descriptor in use is never closed, so a reader needs the pool's lock only
 * to take and to give back; opening, reading and closing happen outside it. */
#include "config.h"

#include "store_i.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "rsh/util/mem.h"

/* So many descriptors are left to everything that is not a source file. */
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

/* With the lock held, takes out the descriptor to close if there are too many;
 * NULL: there is none to close. */
static struct rsh_descriptor *pool_take_surplus(struct rsh_file_pool *p)
{
	struct rsh_store_file *f = TAILQ_FIRST(&p->idle);
	struct rsh_descriptor *d;

	if (p->n_open <= p->max_open || !f)
		return NULL;
	TAILQ_REMOVE(&p->idle, f, idle);
	p->n_open--;
	d = f->open;
	f->open = NULL;
	return d;
}

static void descriptor_close(struct rsh_descriptor *d)
{
	if (d)
		close(d->fd);
	free(d);
}

void rsh_file_close(struct rsh_store_file *f)
{
	descriptor_close(f->open);
	f->open = NULL;
}

int rsh_store_identify(struct rsh_store *s, uint32_t file, int *out,
		       struct rsh_error *err)
{
	struct rsh_store_file *f = &s->files[file];
	cleanup_fd int fd = rsh_store_openat(s, f->name, RSH_OPEN_FLAGS);
	struct stat st;

	if (fd < 0)
		return rsh_store_open_error(s, f->name, fd, err);
	if (fstat(fd, &st) != 0)
		return rsh_error_set(err, errno, "%s: %s", f->path,
				     strerror(errno));
	if (!S_ISREG(st.st_mode))
		return rsh_error_set(err, EINVAL, "%s: not a regular file",
				     f->path);
	f->id = (struct rsh_store_identity){
		.dev = st.st_dev, .ino = st.st_ino, .size = st.st_size,
		.mtime = st.st_mtim, .ctime = st.st_ctim,
	};
	rsh_file_take_attr(s->dirfd, fd, &st, &f->attr);
	*out = steal_fd(&fd);
	return 0;
}

static bool identity_same_time(const struct timespec *a,
			       const struct timespec *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

/* May a file with another device or inode be the one that was identified? */
static bool identity_is_renumbered(const struct rsh_store_identity *id,
				   const struct statfs *fs,
				   const struct stat *st, bool anew)
{
	/* Many servers number inodes as they come to be known, and anew when
	 * the kernel has forgotten them. */
	if ((uint32_t)fs->f_type == RSH_FUSE_MAGIC)
		return identity_same_time(&st->st_ctim, &id->ctime);
	return anew && st->st_dev != id->dev && st->st_ino == id->ino;
}

int rsh_file_compare(const struct rsh_store_file *f, int fd, bool anew)
{
	const struct rsh_store_identity *id = &f->id;
	struct statfs fs;
	struct stat st;

	if (fstat(fd, &st) != 0)
		return errno;
	if (st.st_size != id->size ||
	    !identity_same_time(&st.st_mtim, &id->mtime))
		return RSH_CHANGED;
	if (st.st_dev == id->dev && st.st_ino == id->ino)
		return 0;
	/* The kernel may remember for a second what fstat() said of a server
	 * that has died. */
	if (fstatfs(fd, &fs) != 0)
		return errno;
	return identity_is_renumbered(id, &fs, &st, anew) ? 0 : RSH_CHANGED;
}

int rsh_store_compare(const struct rsh_store *s, uint32_t file, int fd)
{
	return rsh_file_compare(&s->files[file], fd, false);
}

static struct rsh_descriptor *descriptor_new(int fd, bool anew)
{
	struct rsh_descriptor *d = malloc(sizeof(*d));

	if (!d) {
		close(fd);
		return NULL;
	}
	*d = (struct rsh_descriptor){ .fd = fd, .anew = anew };
	return d;
}

void rsh_store_adopt(struct rsh_store *s, uint32_t file, int fd)
{
	struct rsh_store_file *f = &s->files[file];
	struct rsh_file_pool *p = &s->pool;
	struct rsh_descriptor *d = descriptor_new(fd, false), *surplus;

	if (!d)
		return;
	pthread_mutex_lock(&p->lock);
	f->open = d;
	p->n_open++;
	TAILQ_INSERT_TAIL(&p->idle, f, idle);
	surplus = pool_take_surplus(p);
	pthread_mutex_unlock(&p->lock);
	descriptor_close(surplus);
}

/* Takes the file's open descriptor, if it has one, with the lock held. */
static struct rsh_descriptor *pool_take_open(struct rsh_file_pool *p,
					     struct rsh_store_file *f)
{
	if (f->open && f->open->users++ == 0)
		TAILQ_REMOVE(&p->idle, f, idle);
	return f->open;
}

/* Opens the file if it is still the same.  0 or a positive errno. */
static int file_open_same(struct rsh_store *s, struct rsh_store_file *f,
			  struct rsh_descriptor **out)
{
	bool anew = *f->name == '/'; /* such a file is always found by path */
	int fd = rsh_store_openat(s, f->name, RSH_OPEN_FLAGS), code;

	if (fd < 0)
		fd = rsh_store_open_again(s, f->name, fd, &anew);
	if (fd < 0)
		return -fd;
	code = rsh_file_compare(f, fd, anew);
	if (code) {
		close(fd);
		return code;
	}
	*out = descriptor_new(fd, anew);
	return *out ? 0 : ENOMEM;
}

/* Takes a descriptor of the file, opening it if need be.  0 or a positive
 * errno. */
static int file_take(struct rsh_store *s, struct rsh_store_file *f,
		     struct rsh_descriptor **out)
{
	struct rsh_file_pool *p = &s->pool;
	struct rsh_descriptor *mine, *surplus;
	int code;

	pthread_mutex_lock(&p->lock);
	*out = pool_take_open(p, f);
	pthread_mutex_unlock(&p->lock);
	if (*out)
		return 0;
	code = file_open_same(s, f, &mine);
	if (code)
		return code;

	pthread_mutex_lock(&p->lock);
	*out = pool_take_open(p, f);
	if (*out) {
		surplus = mine; /* another reader was faster */
	} else {
		*out = f->open = mine;
		mine->users = 1;
		p->n_open++;
		surplus = pool_take_surplus(p);
	}
	pthread_mutex_unlock(&p->lock);
	descriptor_close(surplus);
	return 0;
}

/* Gives a descriptor back; if it is `dead` it is not used again. */
static void file_give_back(struct rsh_store *s, struct rsh_store_file *f,
			   struct rsh_descriptor *d, bool dead)
{
	struct rsh_file_pool *p = &s->pool;
	struct rsh_descriptor *surplus = NULL;

	pthread_mutex_lock(&p->lock);
	if (dead && f->open == d) {
		f->open = NULL;
		p->n_open--;
	}
	if (--d->users == 0) {
		if (f->open == d) {
			TAILQ_INSERT_TAIL(&p->idle, f, idle);
			surplus = pool_take_surplus(p);
		} else {
			surplus = d;
		}
	}
	pthread_mutex_unlock(&p->lock);
	descriptor_close(surplus);
}

int rsh_store_try(struct rsh_store *s, uint32_t file, rsh_store_use_fn *fn,
		  void *ctx)
{
	struct rsh_store_file *f = &s->files[file];
	struct rsh_descriptor *d;
	int code = file_take(s, f, &d), now;

	if (code) {
		atomic_store(&f->bad_len, 0);
		return code;
	}
	code = fn(ctx, d->fd);
	/* Want of memory says nothing of the file, and a file that changed may
	 * well fail in another way first. */
	now = code == ENOMEM ? 0 : rsh_file_compare(f, d->fd, d->anew);
	if (code == 0 || now == RSH_CHANGED)
		code = now;
	file_give_back(s, f, d, code && code != ENOMEM && code != RSH_CHANGED);
	return code;
}

int rsh_store_use(struct rsh_store *s, uint32_t file, bool wait,
		  rsh_store_use_fn *fn, void *ctx)
{
	struct rsh_store_file *f = &s->files[file];
	struct rsh_attempts a = { .wait = wait };
	int code;

	do {
		a.began = atomic_load(&s->outage.n_returns);
		code = rsh_store_try(s, file, fn, ctx);
	} while (code && rsh_outage_again(s, f, code, &a));
	if (code)
		return rsh_reader_errno(f, code);
	if (atomic_load(&f->state) != RSH_FILE_GOOD)
		rsh_outage_went_well(s, f);
	return 0;
}

struct reading {
	struct rsh_store *store;
	uint32_t file;
	void *buf;
	size_t len;
	uint64_t offset;
};

static int file_read_content(void *ctx, int fd)
{
	const struct reading *r = ctx;
	int code = rsh_store_pread(r->store, r->file, fd, r->buf, r->len,
				   r->offset);

	rsh_store_spent(r->store, fd, r->offset, r->len, false);
	return code;
}

int rsh_store_read(struct rsh_store *s, uint32_t file, uint64_t offset,
		   void *buf, size_t len, bool wait)
{
	struct reading r = { s, file, buf, len, offset };

	return rsh_store_use(s, file, wait, file_read_content, &r);
}

/* ---- files as they are ---- */

static int file_copy_descriptor(void *ctx, int fd)
{
	int *copy = ctx;

	if (*copy >= 0)
		close(*copy);
	*copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	return 0;
}

int rsh_store_descriptor(struct rsh_store *s, uint32_t file, int *out)
{
	cleanup_fd int copy = -1;
	int rc = rsh_store_use(s, file, false, file_copy_descriptor, &copy);

	if (rc == 0 && copy < 0)
		rc = -EMFILE;
	if (rc == 0)
		*out = steal_fd(&copy);
	return rc;
}

int rsh_store_check(struct rsh_store *s, uint32_t file, int fd)
{
	struct rsh_store_file *f = &s->files[file];
	struct rsh_attempts last = {
		.n = 1, .began = atomic_load(&s->outage.n_returns),
	};
	int code = rsh_file_compare(f, fd, true);

	if (code == 0)
		return 0;
	rsh_outage_again(s, f, code, &last);
	return rsh_reader_errno(f, code);
}
