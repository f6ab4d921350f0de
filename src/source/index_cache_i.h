/* SPDX-License-Identifier: Apache-2.0 */
/* source/index_cache_i.h - indexes that outlive the mount, in a directory of
 * the user's.
 *
 * A source tree has one file there.  It says of each checkpoint file, by its
 * identity, which index it has, and holds the distinct indexes once, so that
 * the next mount of the tree reads no header.  Whatever is wrong with the
 * directory or the file is worth a line in the log and a scan, and no error.
 *
 * The ctime is compared as well, since `rsync --inplace -t` and `touch -r`
 * restore mtimes.  A file that changed less than two seconds before the mount is
 * not kept: a second change could leave the same times. */
#ifndef RSH_SOURCE_INDEX_CACHE_I_H
#define RSH_SOURCE_INDEX_CACHE_I_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "rsh/source/metadata.h"
#include "rsh/storage/store.h"
#include "rsh/util/names.h"
#include "rsh/wire/ckpt.h"

/* Had the file been left alone for so long at `now` that a later change would
 * show in its times? */
bool rsh_index_key_settled(const struct rsh_index_key *key, time_t now);

/* Opens the directory, which is made if it is missing.  -1 if that fails or if
 * others could write to it, which is worth a warning if the user `asked` for
 * it. */
int rsh_index_dir_open(const char *path, bool asked);

struct rsh_index_cache;

/* Opens what `dirfd`, which stays the caller's, holds of the tree with that
 * root: an empty cache where that is nothing, or nothing usable; `path` is the
 * tree's, for messages.  NULL: out of memory. */
struct rsh_index_cache *
rsh_index_cache_open(int dirfd, const struct rsh_store_identity *root,
		     const char *path);
/* Waits for what is being saved, and frees the cache. */
void rsh_index_cache_close(struct rsh_index_cache *c);

/* Says how many indexes the cache has. */
uint32_t rsh_index_cache_count(const struct rsh_index_cache *c);
/* Finds which of the indexes is that of the file; false if it is not known.
 * Any thread may call this. */
bool rsh_index_cache_find(const struct rsh_index_cache *c,
			  const struct rsh_index_key *key, uint32_t *which);
/* Reads an index: 0 and *out (owned by the caller) or -errno; that it is
 * damaged is logged once.  Any thread may call this. */
int rsh_index_cache_load(struct rsh_index_cache *c, uint32_t which,
			 struct rsh_names *names, struct rsh_ckpt_index **out);

/* Forgets what the cache holds, of which nothing is found any more, and frees its
 * memory. */
void rsh_index_cache_forget(struct rsh_index_cache *c);

/* This is a file and its index, to be saved. */
struct rsh_index_entry {
	struct rsh_index_key key;
	const char *name; /* name of the file in the tree */
	const struct rsh_ckpt_index *index;
};

/* Writes a new file with these entries and what the old one holds of other
 * files, and forgets: in a thread of its own, for which nothing of the arguments
 * but the cache is needed.  This is called once at most, and nothing is asked of
 * the cache from then on. */
void rsh_index_cache_save(struct rsh_index_cache *c,
			  const struct rsh_index_entry *entries, uint32_t n,
			  const struct rsh_names *names);

/* ---- what else is remembered ---- */

/* The first says whether what `digest` stands for was found right before, the
 * second remembers that it was now (by an empty file of that name in the
 * directory). */
bool rsh_index_verdict_is_kept(int dirfd, uint64_t digest);
void rsh_index_verdict_keep(int dirfd, uint64_t digest);

/* ---- the form of the file, for index_cache.c and index_save.c ---- */

#define RSH_INDEX_MAGIC UINT64_C(0x7865646e69687372) /* "rshindex" */
#define RSH_INDEX_VERSION 2
/* The first is more than a tree's file ever needs, unpacked, the last what all files
 * together may take. */
#define RSH_INDEX_FILE_MAX (UINT64_C(32) << 20)
/* LZ4 makes no more of a byte, so that a small file takes no large memory. */
#define RSH_INDEX_UNPACKED_MOST 256
#define RSH_INDEX_DIR_MAX (UINT64_C(64) << 20)
#define RSH_INDEX_SUFFIX ".idx"
#define RSH_VERDICT_SUFFIX ".right"
/* An empty file counts as so many bytes, for it takes a directory's place. */
#define RSH_VERDICT_BYTES 1024

/* The file begins with this.  The blobs' places, the files, and the blobs
 * (wire/index_codec.h) follow, all of that packed (util/pack.h); places and
 * lengths are those of before. */
struct rsh_index_head {
	uint64_t magic;
	uint32_t version;
	uint32_t n_blobs;
	uint32_t n_files;
	uint32_t unused;
	uint64_t bytes; /* bytes of the whole file, as it was before */
	uint64_t sum;   /* xxh3 of what stands before the blobs, with this 0 */
};

struct rsh_index_blob {
	uint64_t offset;
	uint64_t length;
};

struct rsh_index_file {
	struct rsh_index_key key;
	uint64_t name; /* xxh3 of the name */
	uint32_t blob;
	uint32_t unused;
};

/* What is set when a cache is opened is constant from then on. */
struct rsh_index_cache {
	const char *path; /* of the tree, for messages */
	int dirfd;
	char name[32]; /* name of the file in the directory */
	uint8_t *data; /* the file, unpacked; NULL: there is none */
	uint32_t n_blobs, n_files;
	const struct rsh_index_blob *blobs; /* in `data`, as the next is */
	const struct rsh_index_file *files; /* the latest first */
	uint32_t *order;                    /* numbers of files, by key */
	atomic_flag reported;         /* the log was told that a blob is
				       * damaged */

	bool saving; /* there is a thread to be waited for */
	pthread_t saver;
};

uint64_t rsh_index_sum(const struct rsh_index_head *head,
		       const struct rsh_index_blob *blobs,
		       const struct rsh_index_file *files);
/* Reads `len` bytes of a file in the directory; true if all of them are
 * there. */
bool rsh_index_read_at(int fd, void *buf, size_t len, uint64_t offset);
/* Gives a blob, which stays the cache's, or NULL if it is not intact. */
const uint8_t *rsh_index_cache_blob(const struct rsh_index_cache *c,
				    uint32_t which, size_t *len);

_Static_assert(sizeof(struct rsh_index_head) == 40 &&
	       sizeof(struct rsh_index_file) == 64, "the form of the file");

#endif
