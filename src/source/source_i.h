/* source/source_i.h - the parts of a source tree, for this layer only. */
#ifndef RSH_SOURCE_SOURCE_I_H
#define RSH_SOURCE_SOURCE_I_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "rsh/source/source.h"

/* ---- which file of a rank counts (step.c) ---- */

/* One checkpoint file in a rank directory.  ModelCheckpoint calls its files
 * <stem>-<epoch>_<step>.ckpt; anything else carries no step. */
struct rsh_candidate {
	char *name;     /* in its directory */
	size_t n_stem;  /* length of the stem; without a step: up to ".ckpt" */
	bool stepped;
	bool breakpoint; /* ..._breakpoint.ckpt: saved by a job that crashed */
	uint64_t epoch, step;
};

struct rsh_rank_dir {
	uint32_t rank;
	char *name; /* "rank_3" */
	struct rsh_candidate *files;
	size_t n_files, cap_files;
	const struct rsh_candidate *chosen; /* NULL: the rank has no file */
};

/* Splits a file name that ends in a format's suffix. */
void rsh_candidate_parse(struct rsh_candidate *c);
/* Sets `chosen` in every directory.  0 or -errno with a sentence. */
int rsh_step_choose(struct rsh_rank_dir *dirs, uint32_t n, const char *tree,
		    bool lexicographic, struct rsh_error *err);

/* Reads a small file whole (from malloc).  `what` is what it should be. */
int rsh_load_whole(const char *path, uint64_t max, const char *what,
		   uint8_t **data, size_t *len, struct rsh_error *err);

/* ---- files (file.c) ---- */

struct rsh_file_identity {
	dev_t dev;
	ino_t ino;
	off_t size;
	struct timespec mtime;
};

struct rsh_source_file {
	uint32_t rank;
	uint64_t base; /* of a part of a model: what offsets of the rank's
			* index count from here on */
	char *name; /* below the root: "rank_3/net-5_10.ckpt" */
	char *path; /* for messages: SOURCE as it was given, and the name */

	/* Set by rsh_source_index(), constant from then on. */
	struct rsh_file_identity id;
	struct rsh_source_attr attr;
	const struct rsh_ckpt_index *index;

	atomic_flag reported; /* its first failure is in the log */

	/* Under the pool's lock. */
	int fd;         /* -1: not open */
	unsigned users; /* reads that use fd now */
	struct rsh_source_file *prev, *next; /* in the idle list */
};

/* Open descriptors.  A file that is in use has users > 0 and is in no list;
 * an open one that is not stands in the idle list, the least recently used
 * first, and is closed when there are more than max_open. */
struct rsh_file_pool {
	pthread_mutex_t lock; /* guards all below, and fd..next of each file */
	unsigned n_open;
	unsigned max_open;
	struct rsh_source_file *oldest, *newest;
};

int rsh_pool_init(struct rsh_file_pool *pool);
void rsh_pool_destroy(struct rsh_file_pool *pool);

/* Opens the file and takes its identity; the descriptor is the caller's. */
int rsh_file_identify(struct rsh_source *s, struct rsh_source_file *f,
		      int *fd, struct rsh_error *err);
/* True if the file behind fd is still the one that was indexed. */
bool rsh_file_is_same(const struct rsh_source_file *f, int fd);
/* Gives an open descriptor of an identified file to the pool. */
void rsh_file_adopt(struct rsh_source *s, struct rsh_source_file *f, int fd);

/* A descriptor of the file, valid until rsh_file_put().  0 or -errno. */
int rsh_file_get(struct rsh_source *s, struct rsh_source_file *f, int *fd);
/* Ends the use of fd after reads that all went well: 0, or -ESTALE if the file
 * changed in the meantime, so that what was read must not be used. */
int rsh_file_put(struct rsh_source *s, struct rsh_source_file *f, int fd);
/* Ends the use after a failure: logs the reason once a file and returns what
 * the reader is to see for `code` (positive errno). */
int rsh_file_fail(struct rsh_source *s, struct rsh_source_file *f, int fd,
		  int code);
/* pread until all is there: 0, or a positive errno; ESTALE at end of file. */
int rsh_pread_full(int fd, void *buf, size_t len, uint64_t offset);

/* ---- the tree (tree.c) ---- */

struct rsh_source {
	char *path;
	int dirfd;
	struct rsh_source_attr attr;
	unsigned n_threads;
	enum rsh_format format; /* of all files */
	bool in_parts; /* the files are the parts of one model, rank 0 */

	uint32_t n_files;
	struct rsh_source_file *files; /* ascending by rank and base */

	/* By rank; n_ranks is the highest rank that has a file, plus 1. */
	uint32_t n_ranks;
	struct rsh_source_file **by_rank;
	const struct rsh_ckpt_index **view_index;
	const char **view_path;

	atomic_bool *failed;  /* [rank]: a read of its file went wrong */
	atomic_uint n_failed; /* how many are set */

	uint32_t n_indexes;
	size_t cap_indexes;
	struct rsh_ckpt_index **indexes; /* the distinct ones */

	struct rsh_file_pool pool;
};

/* The file of a rank; NULL if it has none. */
static inline struct rsh_source_file *
rsh_source_file(const struct rsh_source *s, uint32_t rank)
{
	return rank < s->n_ranks ? s->by_rank[rank] : NULL;
}

/* The file of a rank that holds the byte at *offset of its index, which becomes
 * the offset in that file. */
struct rsh_source_file *rsh_source_file_at(const struct rsh_source *s,
					   uint32_t rank, uint64_t *offset);

/* ---- models in parts (model.c) ---- */

/* Is there a whole model in the root? */
bool rsh_model_present(const struct rsh_source *s);
/* Makes its parts the source's files. */
int rsh_model_open(struct rsh_source *s, struct rsh_error *err);
/* After all parts were scanned: makes the index and attributes of rank 0. */
int rsh_model_join(struct rsh_source *s, const struct rsh_names *names,
		   struct rsh_error *err);

#endif
