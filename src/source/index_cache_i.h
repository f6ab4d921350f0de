/* SPDX-License-Identifier: Apache-2.0 */
/* source/index_cache_i.h keeps indexes from one mount to the next, in a
 * directory of the user.
 *
 * A source tree has one file there.  The file lists checkpoint files by their
 * identity, with the index that each one has, and stores each distinct index
 * once.  So the next mount of the tree reads no header.  Any error of the
 * directory or of the file causes a line in the log and a scan, and is not an
 * error.
 *
 * The ctime is compared as well, because `rsync --inplace -t` and `touch -r`
 * restore mtimes.  A file that changed less than two seconds before the mount
 * is not stored, because a second change could result in the same times.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "rsh/source/metadata.h"
#include "rsh/storage/store.h"
#include "rsh/util/names.h"
#include "rsh/wire/ckpt.h"

/* Returns whether the key may be stored: the file system keeps the ctime, and
 * the file was unchanged for so long at `now` that a later change must change
 * its times. */
bool rsh_index_key_settled(const struct rsh_index_key *key, time_t now);

/* Opens the directory, and creates it if it is missing.  Returns -1 if that
 * fails or if other users can write to it; this is a warning if the user
 * `asked` for the directory. */
int rsh_index_dir_open(const char *path, bool asked);

struct rsh_index_cache;

/* Opens the file in `dirfd` for the tree with that root; the caller owns
 * `dirfd`.  The cache is empty if there is no file or it is not usable; `path`
 * is the tree's, for messages.  NULL: out of memory. */
struct rsh_index_cache *
rsh_index_cache_open(int dirfd, const struct rsh_store_identity *root,
		     const char *path);
/* Waits until saving is complete, and frees the cache. */
void rsh_index_cache_close(struct rsh_index_cache *c);

/* Returns the number of indexes in the cache. */
uint32_t rsh_index_cache_count(const struct rsh_index_cache *c);
/* Finds the index of the file; returns false if it is not stored.  Any thread
 * may call this. */
bool rsh_index_cache_find(const struct rsh_index_cache *c,
			  const struct rsh_index_key *key, uint32_t *which);
/* Reads an index: 0 and *out, which the caller owns, or -errno; a damaged index
 * is logged only once.  Any thread may call this. */
int rsh_index_cache_load(struct rsh_index_cache *c, uint32_t which,
			 struct rsh_names *names, struct rsh_ckpt_index **out);

/* Frees the memory of the cache; nothing is found in it any more. */
void rsh_index_cache_forget(struct rsh_index_cache *c);

/* This is a file with its index, to be saved. */
struct rsh_index_entry {
	struct rsh_index_key key;
	const char *name; /* name of the file in the tree */
	const struct rsh_ckpt_index *index;
};

/* Writes a new file with these entries and with the old file's entries for
 * other files, and then frees the memory of the cache.  This happens in a
 * separate thread, which uses none of the arguments except the cache.  It is
 * called at most once, and nothing is looked up afterwards. */
void rsh_index_cache_save(struct rsh_index_cache *c,
			  const struct rsh_index_entry *entries, uint32_t n,
			  const struct rsh_names *names);

/* ---- results of checks ---- */

/* rsh_index_verdict_is_kept() returns whether an earlier check of `digest`
 * found no error.  rsh_index_verdict_keep() stores that a check found no error,
 * as an empty file in the directory whose name is the digest. */
bool rsh_index_verdict_is_kept(int dirfd, uint64_t digest);
void rsh_index_verdict_keep(int dirfd, uint64_t digest);

/* ---- format of the file, for index_cache.c and index_save.c ---- */

#define RSH_INDEX_MAGIC UINT64_C(0x7865646e69687372) /* "rshindex" */
#define RSH_INDEX_VERSION 3
/* RSH_INDEX_FILE_MAX is more than the unpacked file of a tree ever needs;
 * RSH_INDEX_DIR_MAX is the limit for all files together. */
#define RSH_INDEX_FILE_MAX (UINT64_C(32) << 20)
/* LZ4 cannot unpack more from one byte, so a small file cannot need much
 * memory. */
#define RSH_INDEX_UNPACKED_MOST 256
#define RSH_INDEX_DIR_MAX (UINT64_C(64) << 20)
#define RSH_INDEX_SUFFIX ".idx"
#define RSH_VERDICT_SUFFIX ".right"
/* An empty file counts as so many bytes, because it needs an entry of the
 * directory. */
#define RSH_VERDICT_BYTES 1024

/* The file begins with this.  The offsets of the blobs, the files, and the
 * blobs (wire/index_codec.h) follow; all of that is packed (util/pack.h).
 * Offsets and lengths are those of the unpacked file. */
struct rsh_index_head {
	uint64_t magic;
	uint32_t version;
	uint32_t n_blobs;
	uint32_t n_files;
	uint32_t unused;
	uint64_t bytes; /* bytes of the whole unpacked file */
	uint64_t sum;   /* xxh3 of everything before the blobs, with 0 here */
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

/* Members that are set when a cache is opened do not change afterwards. */
struct rsh_index_cache {
	const char *path; /* path of the tree, for messages */
	int dirfd;
	char name[32]; /* name of the file in the directory */
	uint8_t *data; /* the unpacked file; NULL: there is none */
	uint32_t n_blobs, n_files;
	const struct rsh_index_blob *blobs; /* in `data`, as `files` is */
	const struct rsh_index_file *files; /* the newest first */
	uint32_t *order;                    /* numbers of files, sorted by
					     * key */
	atomic_flag reported;         /* a damaged blob was logged */

	bool saving; /* there is a thread to wait for */
	pthread_t saver;
};

uint64_t rsh_index_sum(const struct rsh_index_head *head,
		       const struct rsh_index_blob *blobs,
		       const struct rsh_index_file *files);
/* Reads `len` bytes of a file in the directory; returns true if all of them
 * were read. */
bool rsh_index_read_at(int fd, void *buf, size_t len, uint64_t offset);
/* Returns a blob, which the cache owns, or NULL if it is damaged. */
const uint8_t *rsh_index_cache_blob(const struct rsh_index_cache *c,
				    uint32_t which, size_t *len);

_Static_assert(sizeof(struct rsh_index_head) == 40 &&
	       sizeof(struct rsh_index_file) == 80, "the form of the file");
