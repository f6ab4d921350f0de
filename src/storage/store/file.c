/* SPDX-License-Identifier: Apache-2.0 */
/* storage/store/file.c keeps files open, and proves that they are still those
 * that were identified.
 *
 * A handle in use is never closed, so a reader needs the pool's lock only to
 * take and to give back; opening, reading and closing happen outside it. */
#include "config.h"

#include "store_i.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "rsh/storage/objects.h"
#include "rsh/util/checked.h"
#include "rsh/util/mem.h"

/* So many descriptors are left to everything that is not a source file. */
#define RESERVED_FDS 64
#define MAX_OPEN_FILES 4096

/* ---- handles ---- */

struct rsh_medium *rsh_store_medium(const struct rsh_store *s,
				    const char **name)
{
	for (uint32_t i = 0; i < s->n_joined; i++) {
		const struct rsh_joined *j = &s->joined[i];
		const size_t n = strlen(j->directory);

		if (strncmp(*name, j->directory, n) != 0 || (*name)[n] != '/')
			continue;
		/* Paths stay absolute: links may lead out of the directory. */
		if (rsh_objects_is_url(*name))
			*name += n + 1;
		return j->medium;
	}
	return s->medium;
}

int rsh_handle_open_aside(const struct rsh_store *s, const char *name,
			  struct rsh_handle **out)
{
	struct rsh_medium *m = rsh_store_medium(s, &name);

	*out = NULL;
	return m->ops->open(m, name, out);
}

int rsh_handle_open(const struct rsh_store *s, const char *name,
		    struct rsh_handle **out)
{
	const struct rsh_store *keeper = s->opts.opens_of ?: s;
	struct rsh_store_identity id;
	int rc = rsh_handle_open_aside(s, name, out);

	if (rc || !keeper->opens)
		return rc;
	rc = (*out)->medium->ops->identify(*out, &id, NULL) ?:
	     rsh_opens_add(keeper->opens, name, &id);
	if (rc) {
		rsh_handle_close(*out);
		*out = NULL;
	}
	return rc;
}

int rsh_store_open_error(const struct rsh_store *s, const char *name, int rc,
			 struct rsh_error *err)
{
	const bool root = !*name || strcmp(name, ".") == 0;
	const bool absolute = *name == '/' || rsh_objects_is_url(name);
	const char *top = absolute ? "" : s->path;
	const char *sep = absolute || root ? "" : "/";
	char place[PATH_MAX];

	if (rc == -ENOMEM)
		return rsh_error_nomem(err);
	if (root)
		name = "";
	snprintf(place, sizeof(place), "%s%s%s", top, sep, name);
	if (rc != -EXDEV)
		return rsh_error_file(err, -rc, place);
	return rsh_error_set(err, EXDEV, "%s%s%s leads out of SOURCE, to %s: "
			     "--follow-outside allows it", top, sep, name,
			     s->medium->ops->leads &&
			     s->medium->ops->leads(s->medium, name, place) ?
			     place : "nowhere");
}

void rsh_handle_close(struct rsh_handle *h)
{
	if (h && h->medium->ops->close)
		h->medium->ops->close(h);
	else
		free(h);
}

ssize_t rsh_handle_pread(void *handle, void *buf, size_t len, uint64_t offset)
{
	struct rsh_handle *h = handle;
	const struct iovec iov = { buf, len };
	ssize_t n;

	do {
		n = h->medium->ops->read(h, &iov, 1, offset);
	} while (n == -EINTR);
	return n == -RSH_CHANGED ? -ESTALE : n;
}

int rsh_handle_look(const struct rsh_handle *h, struct rsh_stat *out)
{
	return h->medium->ops->identify(h, NULL, out);
}

int rsh_handle_identity(const struct rsh_handle *h,
			struct rsh_store_identity *out)
{
	return h->medium->ops->identify(h, out, NULL);
}

/* ---- the pool ---- */

int rsh_pool_init(struct rsh_file_pool *pool)
{
	struct rlimit lim;

	pool->max_open = 1;
	if (getrlimit(RLIMIT_NOFILE, &lim) == 0 &&
	    lim.rlim_cur > 2 * RESERVED_FDS)
		pool->max_open = (unsigned)rsh_min_u64(
			lim.rlim_cur - RESERVED_FDS, MAX_OPEN_FILES);
	TAILQ_INIT(&pool->idle);
	return -pthread_mutex_init(&pool->lock, NULL);
}

/* With the lock held, takes out the handle to close if there are too many;
 * NULL: there is none to close. */
static struct rsh_handle *pool_take_surplus(struct rsh_file_pool *p)
{
	struct rsh_store_file *f = TAILQ_FIRST(&p->idle);
	struct rsh_handle *h;

	if (p->n_open <= p->max_open || !f)
		return NULL;
	TAILQ_REMOVE(&p->idle, f, idle);
	p->n_open--;
	h = f->open;
	f->open = NULL;
	return h;
}

int rsh_store_open_file(const struct rsh_store *s, uint32_t file,
			struct rsh_handle **out, struct rsh_error *err)
{
	const struct rsh_store_file *f = &s->files[file];
	int rc;

	*out = NULL;
	rc = f->medium->ops->open(f->medium, f->name, out);
	if (rc)
		return rsh_store_open_error(s, f->medium == s->medium ?
					    f->name : f->path, rc, err);
	(*out)->name = f->name;
	return 0;
}

int rsh_store_identify(struct rsh_store *s, uint32_t file,
		       struct rsh_handle **out, struct rsh_error *err)
{
	struct rsh_store_file *f = &s->files[file];
	cleanup_handle struct rsh_handle *h = NULL;
	struct rsh_stat st;
	int rc = rsh_store_open_file(s, file, &h, err);

	if (rc)
		return rc;
	rc = h->medium->ops->identify(h, &f->id, &st);
	if (rc)
		return rsh_error_file(err, -rc, f->path);
	if (st.kind != RSH_IS_FILE)
		return rsh_error_set(err, EINVAL, "%s: not a regular file",
				     f->path);
	f->attr = st.attr;
	f->attr.mode &= 0444;
	if (h->medium->ops->limit)
		h->medium->ops->limit(h, &f->attr);
	*out = steal_pointer(&h);
	return 0;
}

int rsh_file_compare(const struct rsh_store_file *f, const struct rsh_handle *h,
		     bool anew)
{
	return h->medium->ops->compare ?
	       h->medium->ops->compare(h, &f->id, anew) : 0;
}

int rsh_store_compare(const struct rsh_store *s, uint32_t file,
		      const struct rsh_handle *h)
{
	return rsh_file_compare(&s->files[file], h, false);
}

void rsh_store_adopt(struct rsh_store *s, uint32_t file, struct rsh_handle *h)
{
	struct rsh_store_file *f = &s->files[file];
	struct rsh_file_pool *p = &s->pool;
	struct rsh_handle *surplus;

	pthread_mutex_lock(&p->lock);
	f->open = h;
	p->n_open++;
	TAILQ_INSERT_TAIL(&p->idle, f, idle);
	surplus = pool_take_surplus(p);
	pthread_mutex_unlock(&p->lock);
	rsh_handle_close(surplus);
}

/* Takes the file's open handle, if it has one, with the lock held. */
static struct rsh_handle *pool_take_open(struct rsh_file_pool *p,
					 struct rsh_store_file *f)
{
	if (f->open && f->open->users++ == 0)
		TAILQ_REMOVE(&p->idle, f, idle);
	return f->open;
}

/* Opens the file if it is still the same.  0 or a positive errno. */
static int file_open_same(struct rsh_store_file *f, struct rsh_handle **out)
{
	const struct rsh_medium_ops *ops = f->medium->ops;
	cleanup_handle struct rsh_handle *h = NULL;
	int rc = ops->open(f->medium, f->name, &h);

	if (rc && ops->open_again)
		rc = ops->open_again(f->medium, f->name, rc, &h);
	if (rc)
		return -rc;
	h->name = f->name;
	/* An absolute name is always found by path, and a directory below the
	 * root may have been mounted again. */
	h->anew |= *f->name == '/' || !f->id.keeps_ctime;
	rc = rsh_file_compare(f, h, h->anew);
	if (rc == 0)
		*out = steal_pointer(&h);
	return rc;
}

int rsh_store_take(struct rsh_store *s, uint32_t file, struct rsh_handle **out)
{
	struct rsh_store_file *f = &s->files[file];
	struct rsh_file_pool *p = &s->pool;
	struct rsh_handle *mine = NULL, *surplus;
	int code;

	pthread_mutex_lock(&p->lock);
	*out = pool_take_open(p, f);
	pthread_mutex_unlock(&p->lock);
	if (*out)
		return 0;
	code = file_open_same(f, &mine);
	if (!mine) {
		/* Nothing was read, so no place of it is to be tried again. */
		atomic_store(&f->bad_len, 0);
		return code;
	}

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
	rsh_handle_close(surplus);
	return 0;
}

int rsh_store_finish(struct rsh_store *s, uint32_t file, struct rsh_handle *h,
		     int code)
{
	struct rsh_store_file *f = &s->files[file];
	struct rsh_file_pool *p = &s->pool;
	struct rsh_handle *surplus = NULL;
	/* ENOMEM says nothing about the file.  A read of a file that changed
	 * may fail in another way first. */
	const int now = code == ENOMEM ? 0 : rsh_file_compare(f, h, h->anew);

	if (code == 0 || now == RSH_CHANGED)
		code = now;
	pthread_mutex_lock(&p->lock);
	/* A handle that has failed is not used again. */
	if (code && code != ENOMEM && code != RSH_CHANGED && f->open == h) {
		f->open = NULL;
		p->n_open--;
	}
	if (--h->users == 0) {
		if (f->open == h) {
			TAILQ_INSERT_TAIL(&p->idle, f, idle);
			surplus = pool_take_surplus(p);
		} else {
			surplus = h;
		}
	}
	pthread_mutex_unlock(&p->lock);
	rsh_handle_close(surplus);
	return code;
}
