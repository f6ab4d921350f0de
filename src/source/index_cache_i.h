/* SPDX-License-Identifier: Apache-2.0 */
/* source/index_cache_i.h keeps the indexes of a step from one mount to the
 * next.
 *
 * A step has one file in the directory (kept_i.h).  The file lists checkpoint
 * files by their identity, with the index that each one has, and has each
 * distinct index once.  So the next mount of the step reads no header.  Any
 * error causes a line in the log and a scan, and is not an error.
 *
 * The ctime is compared as well, because `rsync --inplace -t` and `touch -r`
 * restore mtimes.  A file that changed less than two seconds before the mount
 * is not stored, because a second change could result in the same times.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "kept_i.h"
#include "rsh/storage/store.h"
#include "rsh/util/names.h"
#include "rsh/wire/ckpt.h"

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
