/* SPDX-License-Identifier: Apache-2.0 */
/* storage/store/store_i.h - the parts of a store; only this directory includes
 * it. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "io_i.h"
#include "medium_i.h"
#include "rsh/storage/store.h"

struct rsh_store;
struct rsh_store_file;

/* ---- files that cannot be read (outage.c) ----
 *
 * A file fails if its bytes cannot be read, or cannot be proved to be those of
 * the identified file, and a new handle fails as well.  From then on, readers
 * with replicas avoid the file's owner, and a thread tries the failed range
 * again after increasing pauses.  After it succeeds, readers use the file
 * again.
 *
 * An outage of the source begins with the first file that fails and ends when
 * one of the failed files can be read again.  Both are logged once for any
 * number of files and reads.  The number of logged outages is limited, for a
 * source that fails all the time.  A failure that lasts longer than the outage,
 * such as a bad sector, was logged with the outage and begins no new one.
 *
 * A file that changed is a separate state.  It becomes good only if a later
 * read finds the old file again.  During an outage a file counts as changed
 * only after it has looked changed for a while, because a file system may
 * report wrong states for a moment after an interruption. */
enum rsh_file_state { RSH_FILE_GOOD, RSH_FILE_FAILING, RSH_FILE_CHANGED };

struct rsh_outage {
	/* guards the members below, and the members of files that say so */
	pthread_mutex_t lock;
	/* signals that a file can be read again, or that the thread must look
	 * or stop, or has stopped */
	pthread_cond_t news;
	uint64_t (*now)(void);
	bool unwatched;       /* for tests: there is no thread */

	atomic_bool on;
	bool quiet;           /* the current outage is not logged */
	unsigned spare;       /* number of outages that may still be logged */
	uint64_t counted_ns;  /* when `spare` was last increased */
	/* ended_ns: end of the last one; 0: none */
	uint64_t begun_ns, ended_ns;
	uint64_t n_reads;     /* number of reads that were affected */
	unsigned n_files;
	unsigned n_failing;   /* number of files that fail now, in any outage */
	atomic_uint_fast64_t n_outages;
	/* number of files that were read again, plus ended outages */
	atomic_uint_fast64_t n_returns;

	bool watched, stopping, look_now;
	uint64_t looked_ns;   /* when look_now was last set */
	unsigned n_waiting;   /* number of waiting readers */

	/* Only the thread uses this.  It is the file at which the next look
	 * begins. */
	uint32_t next;
};

int rsh_outage_init(struct rsh_outage *o);
void rsh_outage_destroy(struct rsh_outage *o);
/* Ends the thread.  Returns false if the thread hangs in the source; then the
 * memory that it uses must not be freed. */
bool rsh_outage_stop(struct rsh_store *s);
/* Prepares for other files, after rsh_outage_stop(). */
void rsh_outage_reset(struct rsh_store *s);

/* Returns whether to make another attempt after one that failed with `code`. If
 * the read waits, the attempts may last until RSH_PATIENCE_NS after the
 * beginning of the outage. */
bool rsh_outage_again(struct rsh_store *s, struct rsh_store_file *f, int code,
		      struct rsh_attempts *a);
/* Call this after a successful read of a file that is not good. */
void rsh_outage_went_well(struct rsh_store *s, struct rsh_store_file *f);

/* Returns the -errno of a read whose last attempt failed with `code`. */
int rsh_reader_errno(const struct rsh_store_file *f, int code);

/* Tries the failed files.  Returns true if one of them can be read again. */
bool rsh_outage_look(struct rsh_store *s);

#define RSH_PATIENCE_NS UINT64_C(3000000000)

/* ---- files (file.c) ---- */

struct rsh_store_file {
	char *path;
	const char *name; /* in the medium; points into `path` */
	struct rsh_medium *medium;
	uint32_t owner;
	uint64_t epoch, step;

	/* The members below are constant after rsh_store_start(). */
	struct rsh_store_identity id;
	struct rsh_store_attr attr;
	rsh_cache_file cached;

	atomic_flag reported; /* the change was logged */
	/* This is the range of the last failure. */
	atomic_uint_fast64_t bad_at, bad_len;

	/* The lock of the outage guards the members below. */
	atomic_int state; /* enum rsh_file_state */
	uint64_t hit;     /* the last outage that counted the file */
	/* since when it has looked changed; 0: it does not look changed */
	uint64_t doubted_ns;

	/* The lock of the pool guards the members below. */
	struct rsh_handle *open; /* NULL: none */
	TAILQ_ENTRY(rsh_store_file) idle;
};

/* These are the open files.  A file whose handle has no users is in the idle
 * list; its handle is closed when more than max_open are open. */
struct rsh_file_pool {
	/* guards the members below, handles, and `open` and `idle` of each
	 * file */
	pthread_mutex_t lock;
	unsigned n_open;
	unsigned max_open;
	/* the least recently used is first */
	TAILQ_HEAD(, rsh_store_file) idle;
};

int rsh_pool_init(struct rsh_file_pool *pool);

/* Returns the medium of a file, and changes *name to its name there. */
struct rsh_medium *rsh_store_medium(const struct rsh_store *s,
				    const char **name);

/* Returns the result of rsh_store_compare(). `anew`: the file was opened by its
 * path, perhaps on another mount (see store.h). */
int rsh_file_compare(const struct rsh_store_file *f, const struct rsh_handle *h,
		     bool anew);

/* ---- files that were opened by name (opened.c) ---- */

struct rsh_opens {
	pthread_mutex_t lock; /* guards the members below */
	struct rsh_opened **v; /* in the order of opening, each state once */
	void *tree;            /* of the same, for tsearch() */
	size_t n, cap;
};

void rsh_opens_free(struct rsh_opens *o); /* o may be NULL */
/* Adds an open file in its present state.  Returns 0 or -ENOMEM.  Any thread
 * may call it. */
int rsh_opens_add(struct rsh_opens *o, const char *name,
		  const struct rsh_store_identity *id);

/* Does rsh_handle_open() for a file that does not say how others are read. */
int rsh_handle_open_aside(const struct rsh_store *s, const char *name,
			  struct rsh_handle **out);

/* ---- the store (store.c) ---- */

struct rsh_store {
	char *path;
	struct rsh_medium *medium; /* of the directory */
	/* other directories */
	struct rsh_joined {
		char *directory;
		struct rsh_medium *medium;
	} *joined;
	uint32_t n_joined;
	size_t cap_joined;
	struct rsh_store_options opts;
	struct rsh_opens *opens; /* NULL: they are not kept */

	uint32_t n_files;
	size_t cap_files;
	struct rsh_store_file *files;
	struct rsh_file_pool pool;
	/* Of inputs (made.h): the content of what is made of them is read. */
	atomic_bool serves;
	rsh_store_kind_fn kind; /* NULL: unknown */
	const void *kind_ctx;
	/* enum rsh_cache_policy: whether files are cached (cache_policy.c) */
	atomic_int way;

	struct rsh_outage outage;
	atomic_bool *failed;  /* [owner]: one of its files is not good */
	/* [owner]: number of its files that are not good; guarded by the lock
	 * of the outage */
	unsigned *n_bad;
	atomic_uint n_failed; /* number of files that are not good */
	atomic_uint n_marks;  /* number of times that a file became not good */
};

static inline uint32_t rsh_store_number(const struct rsh_store *s,
					const struct rsh_store_file *f)
{
	return (uint32_t)(f - s->files);
}
