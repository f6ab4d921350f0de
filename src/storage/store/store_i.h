/* SPDX-License-Identifier: Apache-2.0 */
/* storage/store/store_i.h - the parts of a store, for this room only. */
#ifndef RSH_STORAGE_STORE_I_H
#define RSH_STORAGE_STORE_I_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "io_i.h"
#include "medium_i.h"
#include "rsh/storage/store.h"

struct rsh_store;
struct rsh_store_file;

/* ---- files that cannot be reached, until they can be again (outage.c) ----
 *
 * A file fails when its bytes cannot be had, or not be shown to be those that
 * were identified, and a fresh descriptor does no better.  From then on readers
 * who have a replica avoid its owner, and a thread tries it again, where it
 * failed, after pauses that grow.  When it answers again readers come back to
 * it.
 *
 * An outage of the source begins with the first file that fails and ends when
 * one of those that failed answers; both are logged once, however many files
 * and reads it hit, and of a source that comes and goes all the time not more
 * often than somebody would read.  What fails on beyond its end, such as a bad
 * place of a disk, has been logged with it and begins none.
 *
 * A file that changed is none of this: nothing but its old self, which a later
 * read may find in its place, makes it good again.  In an outage a file fails
 * until it has looked changed for a while, because file systems that come back
 * say for a moment what is not so.
 */
enum rsh_file_state { RSH_FILE_GOOD, RSH_FILE_FAILING, RSH_FILE_CHANGED };

struct rsh_outage {
	pthread_mutex_t lock; /* guards what follows, and of files what says
			       * so */
	pthread_cond_t news;  /* a file answers again, the thread is to look or
			       * to stop, or has stopped */
	uint64_t (*now)(void);
	bool unwatched;       /* for tests: no thread looks */

	atomic_bool on;
	bool quiet;           /* the log is not told of it */
	unsigned spare;       /* how many more outages the log takes for now */
	uint64_t counted_ns;  /* `spare` has grown up to this moment */
	uint64_t begun_ns, ended_ns; /* ended_ns: of the last one; 0: none */
	uint64_t n_reads;     /* reads that it hit */
	unsigned n_files;
	unsigned n_failing;   /* files that fail now, of any outage */
	atomic_uint_fast64_t n_outages;
	atomic_uint_fast64_t n_returns; /* returns of files, and ends of
					 * outages */

	bool watched, stopping, look_now;
	uint64_t looked_ns;   /* when it was last told to look */
	unsigned n_waiting;   /* readers */

	/* Only the thread uses this: the file to begin with when it looks. */
	uint32_t next;
};

int rsh_outage_init(struct rsh_outage *o);
void rsh_outage_destroy(struct rsh_outage *o);
/* Ends the thread.  False if it does not come back from the source: what it
 * uses must not be freed then. */
bool rsh_outage_stop(struct rsh_store *s);
/* Prepares for other files, after rsh_outage_stop(). */
void rsh_outage_reset(struct rsh_store *s);

/* Says after an attempt that failed for this reason whether to make another.
 * For a reader who waits this may take RSH_PATIENCE_NS, counted from the
 * beginning of the outage. */
bool rsh_outage_again(struct rsh_store *s, struct rsh_store_file *f, int code,
		      struct rsh_attempts *a);
/* To be called after a read that went well of a file that is not good. */
void rsh_outage_went_well(struct rsh_store *s, struct rsh_store_file *f);

/* Gives what the reader is to see of a failure of an attempt, after
 * rsh_outage_again() has said that there is no other attempt. */
int rsh_reader_errno(const struct rsh_store_file *f, int code);

/* Tries the files that fail; true if one answers again. */
bool rsh_outage_look(struct rsh_store *s);

#define RSH_PATIENCE_NS UINT64_C(3000000000)

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

/* Returns what rsh_store_compare() does.  With `anew` the file was found by its
 * path; if that led to another mount, store.h says what counts. */
int rsh_file_compare(const struct rsh_store_file *f, const struct rsh_handle *h,
		     bool anew);

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
