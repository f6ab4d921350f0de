/* source/source.h - a checkpoint tree on disk: which files it consists of,
 * their indexes, and their bytes.
 *
 * SOURCE/rank_N/ holds the file of rank N; when it holds several, one step is
 * chosen for all ranks.  All are .ckpt or all are .safetensors.  The tree is opened once, by directory descriptor, so
 * that a relative path and a later rename of a parent do no harm.  Files are
 * opened read-only and never written.
 *
 * A whole model in parts is rank 0: SOURCE/model.safetensors.index.json and the
 * files that it names, or MindSpore's param_name_map.json with part*.safetensors
 * and hyper_param.safetensors, or model.safetensors alone.
 *
 * Identity: device, inode, size and mtime of a file are taken when it is
 * indexed and compared when it is opened again and after each read; a file
 * that changed gives -ESTALE, never bytes of two checkpoints.
 */
#ifndef RSH_SOURCE_SOURCE_H
#define RSH_SOURCE_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "rsh/plan/conversion.h"
#include "rsh/util/error.h"
#include "rsh/util/names.h"
#include "rsh/wire/name_map.h"

struct rsh_source;

struct rsh_source_options {
	/* The converter's choice: the lexicographically last *.ckpt of a rank,
	 * whatever its step. */
	bool lexicographic;
	/* The source has no strategy: it may be a whole model in parts, as
	 * rank 0. */
	bool unsharded;
	unsigned n_threads; /* for indexing; 0: number of processors */
};

/* Opens the tree at `path` and lists its rank directories; the files are
 * chosen among those of ranks first .. first+n-1.  Nothing of a file's content
 * is read yet.  0, or -errno with a sentence: no such directory, no rank
 * directory in it, no step that all ranks present have (names the ranks), a
 * rank twice (rank_1 and rank_01). */
int rsh_source_open(const char *path, uint32_t first, uint32_t n,
		    const struct rsh_source_options *opts,
		    struct rsh_source **out, struct rsh_error *err);
/* No read may be running. */
void rsh_source_free(struct rsh_source *s);

/* Scans the headers of all chosen files, several at a time; equal indexes are
 * stored once.  Fails with the first broken file's sentence or, if `tolerant`,
 * logs it and goes on as if that rank had no file. */
int rsh_source_index(struct rsh_source *s, struct rsh_names *names,
		     bool tolerant, struct rsh_error *err);
/* For rsh_conversion_new(); valid while the source lives.  A rank without a
 * file has a NULL index. */
void rsh_source_view(const struct rsh_source *s, struct rsh_names *names,
		     struct rsh_source_view *view);

struct rsh_source_attr {
	mode_t mode;           /* permission bits of the file */
	uid_t uid;
	gid_t gid;
	struct timespec mtime;
};
/* False when the rank has no file. */
bool rsh_source_attr(const struct rsh_source *s, uint32_t rank,
		     struct rsh_source_attr *out);
/* Of the tree's root directory. */
void rsh_source_root_attr(const struct rsh_source *s,
			  struct rsh_source_attr *out);
/* Descriptor of the root, owned by the source (for fstatvfs). */
int rsh_source_dirfd(const struct rsh_source *s);

/* Reads exactly `len` bytes of the rank's file at `offset`.  0, -ESTALE when
 * the file changed or shrank, or -errno; the reason is logged once a file.
 * Any thread. */
int rsh_source_read(struct rsh_source *s, uint32_t rank, uint64_t offset,
		    void *buf, size_t len);

/* For each rank below the view's n_ranks whether a read of its file has failed
 * since the source was opened, and how many have.  Both only ever grow. */
const atomic_bool *rsh_source_failed(const struct rsh_source *s);
unsigned rsh_source_n_failed(const struct rsh_source *s);

/* Fills buf with the bytes that the iterator's pieces stand for, in order;
 * `len` is their total.  Neighbouring runs of one source file are read in one
 * request and scattered.  0 or -errno.  Any thread, one iterator each. */
int rsh_source_gather(struct rsh_source *s, struct rsh_piece_iter *it,
		      uint8_t *buf, size_t len);

/* Reads a strategy: a file, or a directory of per-stage files (all its *.ckpt
 * or all its *.json), sorted by name or `as_listed` by the directory.  "none"
 * is not handled here. */
int rsh_strategy_load(const char *path, bool as_listed,
		      struct rsh_names *names, struct rsh_strategy **out,
		      struct rsh_error *err);

/* Reads the JSON file of old and new parameter names. */
int rsh_name_map_load(const char *path, struct rsh_name_map **out,
		      struct rsh_error *err);

#endif
