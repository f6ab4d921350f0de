/* SPDX-License-Identifier: Apache-2.0 */
/* store/store_i.h - the parts of a store, for this room only. */
#ifndef RSH_STORE_STORE_I_H
#define RSH_STORE_STORE_I_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "io_i.h"
#include "medium_i.h"
#include "outage_i.h"
#include "rsh/store/store.h"

/* ---- files (file.c) ---- */

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
	struct rsh_handle *open; /* NULL: none */
	TAILQ_ENTRY(rsh_store_file) idle;
};

/* The pool has the open files.  One whose handle has users is in no list; one
 * whose has none stands in the idle list, the least recently used first, and
 * its handle is closed when there are more than max_open. */
struct rsh_file_pool {
	pthread_mutex_t lock; /* guards all below, handles, and open..idle of
			       * each file */
	unsigned n_open;
	unsigned max_open;
	TAILQ_HEAD(, rsh_store_file) idle; /* the least recently used first */
};

int rsh_pool_init(struct rsh_file_pool *pool);
/* Forgets the files, whose handles the caller has closed. */
void rsh_pool_reset(struct rsh_file_pool *pool);
void rsh_pool_destroy(struct rsh_file_pool *pool);

/* Returns what rsh_store_compare() does.  With `anew` the file was found by its
 * path; if that led to another mount, store.h says what counts. */
int rsh_file_compare(const struct rsh_store_file *f, const struct rsh_handle *h,
		     bool anew);
/* Closes a file that nobody uses any more. */
void rsh_file_close(struct rsh_store_file *f);

/* ---- the store (store.c) ---- */

struct rsh_store {
	char *path;
	struct rsh_medium *medium;
	struct rsh_medium *content; /* reads of content go through this: the
				     * medium, or faults in front of it */
	struct rsh_store_options opts;

	uint32_t n_files;
	size_t cap_files;
	struct rsh_store_file *files;
	struct rsh_file_pool pool;
	rsh_store_kind_fn kind; /* NULL: nobody knows */
	const void *kind_ctx;
	atomic_int way; /* enum rsh_cache_policy: whether files are cached
			   (cache_policy.c) */

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

#endif
