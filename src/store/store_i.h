/* SPDX-License-Identifier: Apache-2.0 */
/* store/store_i.h - the parts of a store, for this room only. */
#ifndef RSH_STORE_STORE_I_H
#define RSH_STORE_STORE_I_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>
#include <sys/stat.h>

#include "io_i.h"
#include "outage_i.h"
#include "rsh/store/store.h"

/* ---- files (file.c) ---- */

/* A descriptor is changed under the pool's lock.  In use it has users; one that
 * is no longer its file's is closed by the last of them. */
struct rsh_descriptor {
	int fd;
	bool anew; /* its file was found by path, perhaps on a new mount */
	unsigned users;
};

struct rsh_store_file {
	char *path;
	const char *name; /* the end of `path`, or all of it */
	uint32_t owner;
	uint64_t epoch, step;

	/* These are set by rsh_store_identify() and rsh_store_start(), and
	 * constant from then on. */
	struct rsh_store_identity id;
	struct rsh_store_attr attr;
	rsh_cache_file cached;

	atomic_flag reported; /* the log has been told that the file changed */
	/* It was last found to fail in bad_len bytes at bad_at. */
	atomic_uint_fast64_t bad_at, bad_len;

	/* These are changed under the outage's lock. */
	atomic_int state; /* enum rsh_file_state */
	uint64_t hit;     /* the last outage that it was counted with */
	uint64_t doubted_ns; /* since when it has looked changed while it
			      * failed; 0: it has not */

	/* These are changed under the pool's lock. */
	struct rsh_descriptor *open; /* NULL: none */
	TAILQ_ENTRY(rsh_store_file) idle;
};

/* The pool has the open descriptors.  A file whose descriptor has users is in
 * no list; one whose has none stands in the idle list, the least recently used
 * first, and its descriptor is closed when there are more than max_open. */
struct rsh_file_pool {
	pthread_mutex_t lock; /* guards all below, descriptors, and open..idle
			       * of each file */
	unsigned n_open;
	unsigned max_open;
	TAILQ_HEAD(, rsh_store_file) idle; /* the least recently used first */
};

int rsh_pool_init(struct rsh_file_pool *pool);
/* Forgets the files, whose descriptors the caller has closed. */
void rsh_pool_reset(struct rsh_file_pool *pool);
void rsh_pool_destroy(struct rsh_file_pool *pool);

/* Returns what rsh_store_compare() does.  With `anew` the file was found by its
 * path; if that led to another mount, store.h says what counts. */
int rsh_file_compare(const struct rsh_store_file *f, int fd, bool anew);
/* Closes a file that nobody uses any more. */
void rsh_file_close(struct rsh_store_file *f);

/* ---- the store (store.c) ---- */

struct rsh_store {
	char *path;
	char *place; /* where the root was, without links; NULL: unknown */
	int dirfd;
	uint32_t fs_type; /* f_type of the root's file system */
	atomic_uint_fast64_t search_after; /* no search for the root begins
					    * before this */
	struct rsh_store_attr attr;
	struct rsh_store_options opts;

	uint32_t n_files;
	size_t cap_files;
	struct rsh_store_file *files;
	struct rsh_file_pool pool;
	atomic_int way; /* enum rsh_way: whether files are cached (way.c) */

	struct rsh_outage outage;
	atomic_bool *failed;  /* [owner]: one of its files is not good */
	unsigned *n_bad;      /* [owner]: how many of its files are not; under
			       * the outage's lock */
	atomic_uint n_failed; /* files that are not good */
	atomic_uint n_marks;  /* how often a file was found not to be good */
};

static inline uint32_t rsh_store_number(const struct rsh_store *s,
					const struct rsh_store_file *f)
{
	return (uint32_t)(f - s->files);
}

/* ---- who may read, where links lead (access.c) ---- */

/* Takes the attributes of an open file of the tree whose root is open as
 * well. */
void rsh_file_take_attr(int root, int fd, const struct stat *st,
			struct rsh_store_attr *out);
/* Opens as rsh_store_openat() does, but from where the root is by its path now;
 * *anew is set then.  `rc` is why that function does not do, and is the result
 * where this one does not either, because the root still answers or nothing
 * like it is there. */
int rsh_store_open_again(struct rsh_store *s, const char *name, int rc,
			 bool *anew);
/* Gives where the root is (from malloc); NULL if that cannot be told. */
char *rsh_store_place(int root);

#endif
