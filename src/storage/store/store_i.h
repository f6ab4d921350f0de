/* SPDX-License-Identifier: Apache-2.0 */
/* storage/store/store_i.h - the parts of a store; only this room includes it. */
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

/* ---- files that cannot be reached (outage.c) ----
 *
 * A file fails when its bytes cannot be read, or cannot be proved to be those of the
 * identified file, and a new handle fails as well.  From then on readers with replicas
 * avoid its owner, and a thread tries the range that failed again, after growing pauses.
 * When it answers, readers use it again.
 *
 * An outage of the source begins with the first file that fails and ends when one of the
 * failed files answers; both are logged once, whatever the number of files and reads, and
 * their number in the log is limited for a source that fails all the time.  A failure
 * that lasts beyond the end, such as a bad sector, was logged with the outage and begins
 * no new one.
 *
 * A file that changed is a separate state: only the old file, if a later read finds it
 * again, makes it good.  During an outage a file counts as changed only when it has
 * looked changed for a while, because file systems that come back may report wrong
 * states for a moment.
 */
enum rsh_file_state { RSH_FILE_GOOD, RSH_FILE_FAILING, RSH_FILE_CHANGED };

struct rsh_outage {
	pthread_mutex_t lock; /* guards what follows, and members of files that
			       * say so */
	pthread_cond_t news;  /* a file answers again, or the thread has to look or
			       * to stop, or has stopped */
	uint64_t (*now)(void);
	bool unwatched;       /* for tests: no thread */

	atomic_bool on;
	bool quiet;           /* it is not logged */
	unsigned spare;       /* how many more outages may be logged now */
	uint64_t counted_ns;  /* when `spare` was last increased */
	uint64_t begun_ns, ended_ns; /* ended_ns: of the last one; 0: none */
	uint64_t n_reads;     /* reads that it hit */
	unsigned n_files;
	unsigned n_failing;   /* files that fail now, of any outage */
	atomic_uint_fast64_t n_outages;
	atomic_uint_fast64_t n_returns; /* returns of files, and ends of
					 * outages */

	bool watched, stopping, look_now;
	uint64_t looked_ns;   /* when look_now was last set */
	unsigned n_waiting;   /* readers */

	/* Only the thread uses this: the file to begin with when it looks. */
	uint32_t next;
};

int rsh_outage_init(struct rsh_outage *o);
void rsh_outage_destroy(struct rsh_outage *o);
/* Ends the thread.  Returns false if it hangs in the source: then what it uses must not be
 * freed. */
bool rsh_outage_stop(struct rsh_store *s);
/* Prepares for other files, after rsh_outage_stop(). */
void rsh_outage_reset(struct rsh_store *s);

/* Returns whether to make another attempt after one that failed with `code`.  If the read
 * waits, it may take until RSH_PATIENCE_NS after the beginning of the outage. */
bool rsh_outage_again(struct rsh_store *s, struct rsh_store_file *f, int code,
		      struct rsh_attempts *a);
/* Called after a successful read of a file that is not good. */
void rsh_outage_went_well(struct rsh_store *s, struct rsh_store_file *f);

/* Returns the -errno of a read whose last attempt failed with `code`. */
int rsh_reader_errno(const struct rsh_store_file *f, int code);

/* Tries the failed files; returns true if one answers again. */
bool rsh_outage_look(struct rsh_store *s);

#define RSH_PATIENCE_NS UINT64_C(3000000000)

/* ---- files (file.c) ---- */

struct rsh_store_file {
	char *path;
	const char *name; /* points into `path` */
	uint32_t owner;
	uint64_t epoch, step;

	/* Constant after rsh_store_start(). */
	struct rsh_store_identity id;
	struct rsh_store_attr attr;
	rsh_cache_file cached;

	atomic_flag reported; /* the change was logged */
	/* The range of the last failure. */
	atomic_uint_fast64_t bad_at, bad_len;

	/* Guarded by the outage's lock. */
	atomic_int state; /* enum rsh_file_state */
	uint64_t hit;     /* the last outage that counted the file */
	uint64_t doubted_ns; /* since when it has looked changed; 0: it does not */

	/* Guarded by the pool's lock. */
	struct rsh_handle *open; /* NULL: none */
	TAILQ_ENTRY(rsh_store_file) idle;
};

/* The open files.  A file whose handle has no users is in the idle list; its handle is
 * closed when more than max_open are open. */
struct rsh_file_pool {
	pthread_mutex_t lock; /* guards all below, handles, and open..idle of
			       * each file */
	unsigned n_open;
	unsigned max_open;
	TAILQ_HEAD(, rsh_store_file) idle; /* the least recently used first */
};

int rsh_pool_init(struct rsh_file_pool *pool);

/* Returns what rsh_store_compare() does.  `anew`: the file was opened by its path, perhaps
 * on another mount (see store.h). */
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
	rsh_store_kind_fn kind; /* NULL: unknown */
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
