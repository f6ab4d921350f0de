/* SPDX-License-Identifier: Apache-2.0 */
/* source/source_i.h - the parts of a source tree, for this layer only. */
#ifndef RSH_SOURCE_SOURCE_I_H
#define RSH_SOURCE_SOURCE_I_H

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>
#include <sys/stat.h>

#include "io_i.h"
#include "outage_i.h"
#include "rsh/source/bytes.h"
#include "rsh/source/dialect.h"
#include "rsh/source/source.h"
#include "rsh/source/step.h"
#include "rsh/wire/format.h"

/* ---- names with a rank in them (template.c) ---- */

/* A template of n characters, for one name: "{rank}", '*', '?' and plain text.
 * If *rank is known "{rank}" stands for that one, else *rank is set. */
bool rsh_template_match(const char *t, size_t n, const char *name,
			uint32_t *rank);
bool rsh_template_has_rank(const char *t, size_t n);
/* True if it matches one name only, itself. */
bool rsh_template_is_plain(const char *t, size_t n);

/* ---- all checkpoints of the tree (listing.c) ---- */

/* One file. */
struct rsh_checkpoint {
	uint32_t rank;    /* with --resume the number of its directory */
	char *name;       /* below the root, or absolute */
	const char *base; /* its last part */
	char *label;      /* what people call it; NULL: base */
	char *series;     /* the name without steps and ranks, where that tells
			   * candidates apart; NULL: it does not */
	struct rsh_step step;
	size_t n_dir;     /* how long the name of the directory of a power-off
			   * save is, which name begins with */
	struct timespec mtime;
};

/* A directory that belongs to one rank, to be searched or not. */
struct rsh_rank_dir {
	uint32_t rank;
	char *name; /* "rank_3" */
};

struct rsh_listing {
	struct rsh_checkpoint *files;
	size_t n, cap;
	struct rsh_rank_dir *dirs; /* ascending by rank, each once */
	size_t n_dirs, cap_dirs;
	/* Files of ranks that the strategy does not have. */
	struct rsh_checkpoint *beyond;
	size_t n_beyond, cap_beyond;
};

/* Lists what the options describe.  0 or -errno with a sentence. */
int rsh_listing_make(struct rsh_source *s, uint32_t first, uint32_t n,
		     const struct rsh_source_options *opts,
		     struct rsh_error *err);
void rsh_listing_clear(struct rsh_listing *l);
/* Adds one file, whose name (from malloc, or NULL when memory was out) is taken
 * over.  0 or -ENOMEM. */
int rsh_listing_add(struct rsh_listing *l, const struct rsh_checkpoint *c);
int rsh_listing_add_beyond(struct rsh_listing *l,
			   const struct rsh_checkpoint *c);

/* Reads a small file whole (from malloc).  `what` is what it should be. */
int rsh_load_whole(const char *path, uint64_t max, const char *what,
		   uint8_t **data, size_t *len, struct rsh_error *err);
/* The same of a file below the root, as rsh_source_openat(). */
int rsh_source_load(const struct rsh_source *s, const char *name, uint64_t max,
		    const char *what, uint8_t **data, size_t *len,
		    struct rsh_error *err);

/* The largest plans known have a few megabytes a stage. */
#define RSH_STRATEGY_BYTES_MAX (UINT64_C(1) << 30)

struct rsh_path_list {
	char **v; /* from malloc, as are its strings */
	size_t n, cap;
};
void rsh_path_list_clear(struct rsh_path_list *l);
/* Adds the strategy files that `path` stands for: itself, or those in the
 * directory, sorted by name or `as_listed` (strategy_load.c). */
int rsh_strategy_list(const char *path, bool as_listed,
		      struct rsh_path_list *list, bool *directory,
		      struct rsh_error *err);

/* ---- which of them belong together (step.c, order.c, select.c) ---- */

/* Files first .. end-1 of the sorted listing. */
struct rsh_candidate {
	size_t first, end;
};

/* Fills in what the name says of epoch, step and run. */
void rsh_checkpoint_parse(struct rsh_checkpoint *c);
void rsh_checkpoint_clear(struct rsh_checkpoint *c);
/* Drops from the listing what was not selected, sorts the rest and makes the
 * candidates.  0 or -errno with a sentence. */
int rsh_candidates_make(struct rsh_source *s,
			const struct rsh_source_options *opts,
			struct rsh_error *err);

/* ---- who may read, where links lead (access.c) ---- */

/* Attributes of an open file of the tree whose root is open as well. */
void rsh_file_take_attr(int root, int fd, const struct stat *st,
			struct rsh_source_attr *out);
/* O_NONBLOCK: something may have put a FIFO in a file's place. */
#define RSH_OPEN_FLAGS (O_RDONLY | O_NOCTTY | O_NONBLOCK)
/* As openat(2) from the tree's root, close-on-exec; -EXDEV where a link leads
 * out of the tree and must not.  A descriptor or -errno. */
int rsh_source_openat(const struct rsh_source *s, const char *name, int flags);
/* As that, but from where the root is by its path now; *anew is set then.  `rc`
 * is why the former does not do, and is the result where this does not either:
 * the root still answers, or nothing like it is there.  */
int rsh_source_open_again(struct rsh_source *s, const char *name, int rc,
			  bool *anew);
/* Where the root is (from malloc); NULL if that cannot be told. */
char *rsh_source_place(int root);
/* The sentence for its failure; returns rc. */
int rsh_source_open_error(const struct rsh_source *s, const char *name, int rc,
			  struct rsh_error *err);

/* ---- files (file.c) ---- */

/* For a struct rsh_byte_source whose ctx points to a descriptor. */
ssize_t rsh_fd_pread(void *fd, void *buf, size_t len, uint64_t offset);

struct rsh_file_identity {
	dev_t dev;
	ino_t ino;
	off_t size;
	struct timespec mtime, ctime;
};

/* Under the pool's lock.  In use it has users; one that is no longer its
 * file's is closed by the last of them. */
struct rsh_descriptor {
	int fd;
	bool anew; /* found by its path, perhaps on a new mount */
	unsigned users;
};

struct rsh_source_file {
	uint32_t rank;
	const char *name; /* of the listing */
	uint64_t base; /* of a part of a model: what offsets of the rank's
			* index count from here on */
	uint64_t epoch, step; /* as its name has them */
	rsh_cache_file cached; /* constant once the files are indexed */
	char *path; /* for messages: SOURCE as it was given, and the name */

	/* Set by rsh_source_index(), constant from then on. */
	struct rsh_file_identity id;
	struct rsh_source_attr attr;
	const struct rsh_ckpt_index *index;

	atomic_flag reported; /* that it changed is in the log */
	/* Where it was last found to fail: bad_len bytes. */
	atomic_uint_fast64_t bad_at, bad_len;

	/* Changed under the outage's lock. */
	atomic_int state; /* enum rsh_file_state */
	uint64_t hit;     /* the last outage that it was counted with */

	/* Under the pool's lock. */
	struct rsh_descriptor *open; /* NULL: none */
	TAILQ_ENTRY(rsh_source_file) idle;
};

/* Open descriptors.  A file whose descriptor has users is in no list; one whose
 * has none stands in the idle list, the least recently used first, and is closed
 * when there are more than max_open. */
struct rsh_file_pool {
	pthread_mutex_t lock; /* guards all below, descriptors, and open..idle
			       * of each file */
	unsigned n_open;
	unsigned max_open;
	TAILQ_HEAD(, rsh_source_file) idle; /* the oldest first */
};

int rsh_pool_init(struct rsh_file_pool *pool);
/* Forgets the files, whose descriptors the caller has closed. */
void rsh_pool_reset(struct rsh_file_pool *pool);
void rsh_pool_destroy(struct rsh_file_pool *pool);

/* Opens the file and takes its identity; the descriptor is the caller's. */
int rsh_file_identify(struct rsh_source *s, struct rsh_source_file *f,
		      int *fd, struct rsh_error *err);
/* 0 if the file behind fd is still the one that was indexed; RSH_CHANGED; or
 * the positive errno for which that cannot be told.  `anew`: it was found by its
 * path, and if that led to another mount source.h says what counts. */
int rsh_file_compare(const struct rsh_source_file *f, int fd, bool anew);
/* Nobody uses the file any more. */
void rsh_file_close(struct rsh_source_file *f);
/* Gives an open descriptor of an identified file to the pool, which closes it
 * where memory is out. */
void rsh_file_adopt(struct rsh_source *s, struct rsh_source_file *f, int fd);

/* Opens the file where it is not, calls fn, and sees to it that the file has
 * stayed the same: 0, or a positive errno or RSH_CHANGED, and nothing that was
 * read may be used.  A descriptor that failed is not used again. */
int rsh_file_try(struct rsh_source *s, struct rsh_source_file *f,
		 rsh_file_use_fn *fn, void *ctx);
/* What the reader is to see of a failure of rsh_file_try() (outage.c). */
int rsh_reader_errno(int code);

/* ---- the tree (tree.c) ---- */

struct rsh_source {
	char *path;
	char *place; /* where the root was, without links; NULL: unknown */
	int dirfd;
	uint32_t fs_type; /* f_type of its file system */
	atomic_uint_fast64_t search_after; /* a moment: not before it */
	const struct rsh_source_opener *opener; /* NULL: it may itself */
	struct rsh_source_attr attr;
	unsigned n_threads;
	enum rsh_check check;
	bool follow_outside;
	enum rsh_select select;
	struct rsh_source_io *io; /* NULL: none */
	int index_dirfd; /* where indexes are stored; -1: nowhere */

	/* Set by rsh_source_open(), constant from then on. */
	uint32_t first_rank; /* that was asked for: the strategy's rank 0 */
	bool in_parts; /* the files are the parts of one model, rank 0 */
	/* Of what is shown with --resume; each of its files is then a rank of
	 * its own.  NULL: a conversion's. */
	const struct rsh_step_dialect *dialect;
	struct rsh_listing listing; /* sorted: the best candidate first */
	size_t n_always;            /* files at the listing's end that belong
				     * to every candidate, by rank */
	uint32_t n_tried; /* of these candidates, the first; the others are
			   * there to be listed */
	uint32_t n_candidates;
	size_t cap_candidates;
	struct rsh_candidate *candidates;

	/* Everything below is of the chosen candidate. */
	uint32_t chosen;
	enum rsh_format format; /* of all files */
	uint32_t n_bad; /* files that were left out */
	struct rsh_error first_bad;

	uint32_t n_files;
	struct rsh_source_file *files; /* ascending by rank and base */

	/* By rank; n_ranks is the highest rank that has a file, plus 1. */
	uint32_t n_ranks;
	struct rsh_source_file **by_rank;
	const struct rsh_ckpt_index **view_index;
	const char **view_path;

	atomic_bool *failed;  /* [rank]: a file of it is not good */
	atomic_uint n_failed; /* files that are not */
	atomic_uint n_marks;  /* how often one was found not to be */
	struct rsh_outage outage;

	uint32_t n_indexes;
	size_t cap_indexes;
	struct rsh_ckpt_index **indexes; /* the distinct ones */
	struct rsh_index_cache *index_cache; /* NULL: none */

	atomic_int way; /* enum rsh_way: whether files are cached (io.c) */

	struct rsh_file_pool pool;
};

/* A source with its directory open and no files yet. */
int rsh_source_new(const char *path, struct rsh_source **out,
		   struct rsh_error *err);
/* Makes what is found by rank, once `files` is complete and ascending.  0 or
 * -ENOMEM. */
int rsh_source_number_files(struct rsh_source *s);

/* The file of a rank; NULL if it has none. */
static inline struct rsh_source_file *
rsh_source_file(const struct rsh_source *s, uint32_t rank)
{
	return rank < s->n_ranks ? s->by_rank[rank] : NULL;
}

/* ---- models in parts (model.c) ---- */

/* Is there a whole model in the root? */
bool rsh_model_present(const struct rsh_source *s);
/* Lists its parts, all of which belong to the one candidate.  0 or -errno with
 * a sentence. */
int rsh_model_list(struct rsh_source *s, struct rsh_error *err);
/* After all parts were scanned: makes the index and attributes of rank 0. */
int rsh_model_join(struct rsh_source *s, const struct rsh_names *names,
		   struct rsh_error *err);

#endif
