/* SPDX-License-Identifier: Apache-2.0 */
/* source/kept_i.h keeps what mounts have found out in a directory of the user,
 * the index cache: packed files with a checksum.
 *
 * The directory belongs to the user, but its contents are not trusted: links
 * are not followed, files of other owners are not read, and every number is
 * checked before it is used.  A new file replaces the old one by rename(2), so
 * a reader gets one of the two, and the last of several writers wins.  Nothing
 * is synced: a file that is incomplete after a crash does not match its
 * checksum.  Any thread may call these functions.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
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

/* This is more bytes than the content of a file ever needs. */
#define RSH_KEPT_MAX (UINT64_C(32) << 20)
#define RSH_KEPT_NAME 32 /* bytes of a name, with the NUL */

/* The kinds of content, with their versions. */
#define RSH_KEPT_INDEXES UINT64_C(0x0500786469687372)  /* "rshidx", 5 */
#define RSH_KEPT_METADATA UINT64_C(0x0400746d69687372) /* "rshimt", 4 */

/* Makes the name of the file of what has this identity. */
void rsh_kept_name(uint64_t identity, char name[RSH_KEPT_NAME]);
/* Reads a file.  Returns 0 and its content (from malloc), -ENOENT, or another
 * -errno: -EBADMSG if it is damaged, -EPROTO if it is of another kind or
 * version. */
int rsh_kept_get(int dirfd, const char *name, uint64_t kind, uint8_t **data,
		 size_t *len);
/* Writes or replaces a file, and removes those that were not used for the
 * longest time, if all together are too large.  Returns 0 or -errno. */
int rsh_kept_put(int dirfd, const char *name, uint64_t kind,
		 const uint8_t *data, size_t len);

/* rsh_kept_is_right() returns whether an earlier check of `digest` found no
 * error.  rsh_kept_put_right() stores that a check found none, as an empty file
 * whose name is the digest. */
bool rsh_kept_is_right(int dirfd, uint64_t digest);
void rsh_kept_put_right(int dirfd, uint64_t digest);

/* A file begins with this; the packed content (util/pack.h) follows. */
struct rsh_kept_head {
	uint64_t kind;
	uint64_t bytes; /* of the content */
	uint64_t sum;   /* xxh3 of the content, with the kind as seed */
};

/* ---- the indexes of a step ----
 *
 * A step has one file in the directory.  The file lists checkpoint
 * files by their identity, with the index that each one has, and has each
 * distinct index once.  So the next mount of the step reads no header.  Any
 * error causes a line in the log and a scan, and is not an error.
 *
 * The ctime is compared as well, because `rsync --inplace -t` and `touch -r`
 * restore mtimes.  A file that changed less than two seconds before the mount
 * is not stored, because a second change could result in the same times.
 */

/* A catalogue, which is made of indexes at each mount, is not stored.  For
 * 1,024 ranks with 2,000 records each, of the instructions of such a mount a
 * plan takes 95 %: the tensors of the catalogue 0.6 %, and finding the files
 * that have them 11 %.  Strategies and listing take 4 %, and stored indexes
 * 0.5 %.  For a model of Hugging Face with 723 tensors in 50 parts, indexes and
 * catalogue take 8 % of 10 ms, and the map of its parts 28 %.  The key of a
 * stored catalogue would be all files of a step, the strategies, and options
 * that decide about cuts and copies: all of it would be made again if one file
 * has changed. */

/* The content of the file begins with this.  The places of the indexes, the
 * files, and the indexes (wire/index_codec.h) follow.  Offsets are counted from
 * the beginning of the content. */
struct rsh_index_head {
	uint32_t n_blobs, n_files;
};

struct rsh_index_blob {
	uint64_t offset, length;
};

struct rsh_index_file {
	struct rsh_index_key key;
	uint64_t blob;
};

/* Members that are set when a cache is opened do not change afterwards. */
struct rsh_index_cache {
	const char *path; /* path of the tree, for messages */
	int dirfd;
	char name[RSH_KEPT_NAME]; /* of the file in the directory */
	uint8_t *data; /* its content, or that to save; NULL: there is none */
	size_t len;
	uint32_t n_blobs, n_files;
	const struct rsh_index_blob *blobs; /* in `data`, as `files` is */
	struct rsh_index_file *files;       /* sorted by key */

	bool saving; /* there is a thread to wait for */
	pthread_t saver;
};

/* Opens the file in `dirfd` for a step of the tree with that root; the caller
 * owns `dirfd`.  The cache is empty if there is no file or it is not usable;
 * `path` is the tree's, for messages.  NULL: out of memory. */
struct rsh_index_cache *
rsh_index_cache_open(int dirfd, const struct rsh_store_identity *root,
		     const char *step, const char *path);
/* Waits until saving is complete, and frees the cache. */
void rsh_index_cache_close(struct rsh_index_cache *c);

/* Finds the index of the file, a number below n_blobs; returns false if it is
 * not stored.  Any thread may call this. */
bool rsh_index_cache_find(const struct rsh_index_cache *c,
			  const struct rsh_index_key *key, uint32_t *which);
/* Reads an index: 0 and *out, which the caller owns, or -errno.  Any thread may
 * call this. */
int rsh_index_cache_load(const struct rsh_index_cache *c, uint32_t which,
			 struct rsh_names *names, struct rsh_ckpt_index **out);

/* Frees the memory of the cache; nothing is found in it any more. */
void rsh_index_cache_forget(struct rsh_index_cache *c);

/* This is a file with its index, to be saved. */
struct rsh_index_entry {
	struct rsh_index_key key;
	const struct rsh_ckpt_index *index;
};

/* Replaces the file by one with these entries, and then frees the memory of the
 * cache.  A separate thread writes it, and uses none of the arguments except
 * the cache.  It is called at most once, and nothing is looked up
 * afterwards. */
void rsh_index_cache_save(struct rsh_index_cache *c,
			  const struct rsh_index_entry *entries, uint32_t n,
			  const struct rsh_names *names);
