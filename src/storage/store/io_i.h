/* SPDX-License-Identifier: Apache-2.0 */
/* storage/store/io_i.h - reads of files and injected faults; only this room
 * includes it. */
#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "rsh/storage/io.h"

struct rsh_handle;
struct rsh_store;
struct rsh_store_file;
struct rsh_store_identity;

/* ---- faults (fault.c) ---- */

struct rsh_faults;

/* Parses a text of faults.  Returns 0, -EINVAL with a sentence that names the
 * fault, or -ENOMEM. */
int rsh_faults_new(const char *text, struct rsh_faults **out,
		   struct rsh_error *err);
void rsh_faults_free(struct rsh_faults *f);

/* Call this before a read of [offset, offset + *len) of the file: it waits if
 * the read is delayed, and may reduce *len (to 0: the file ends here).  Returns
 * 0 or a positive errno. */
int rsh_faults_apply(struct rsh_faults *f, const char *name, uint64_t offset,
		     size_t *len);

/* Call this after a read of [offset, offset + len): it flips the same bits of a
 * file each time. */
void rsh_faults_flip(const struct rsh_faults *f, const char *name,
		     uint64_t offset, void *buf, size_t len);
bool rsh_faults_flip_any(const struct rsh_faults *f);

/* Reads from an open file as its medium does, with faults. */
ssize_t rsh_faults_read(struct rsh_faults *f, struct rsh_handle *h,
			const struct iovec *iov, int n, uint64_t offset);

/* ---- reads (io.c) ---- */

struct rsh_store_io {
	enum rsh_caching caching;
	bool has_dir, has_servers, compress; /* of the cache */
	struct rsh_cache *cache;   /* NULL: off */
	struct rsh_faults *faults; /* NULL: none */
	size_t page_bytes;

	bool kept; /* it is never freed: a thread hangs in it */
	atomic_bool cached, drop_all;
	atomic_uint_fast64_t keep_free;
	/* Free memory at the last look, and the time of the look. */
	atomic_uint_fast64_t free_bytes, free_seen_ns;
	atomic_uint_fast64_t reads, bytes, failed, ns, dropped;
	uint64_t memory_bytes; /* the limit of the cache */
	atomic_bool ceded;     /* memory of tiles was taken from the cache */
	atomic_uint_fast64_t tiles, tile_bytes, tile_bytes_peak;
};

/* Makes rsh_store_io_free() keep the object. */
void rsh_store_io_keep(struct rsh_store_io *io);

/* What is read; the ctx of rsh_file_load_blocks(). */
struct rsh_store_load {
	struct rsh_store *store;
	struct rsh_store_file *file;
	struct rsh_handle *handle;
};
/* Fills the n buffers of `iov`, which it changes, with `len` bytes from the
 * offset on, without the cache, as one read.  Returns 0, or a positive errno
 * after it has noted the range, unless l->file is NULL. */
int rsh_file_read(const struct rsh_store_load *l, struct iovec *iov, size_t n,
		  size_t len, uint64_t offset);
/* Loads blocks for the cache.  It is an rsh_cache_load_fn. */
int rsh_file_load_blocks(void *ctx, uint64_t offset, const struct iovec *iov,
			 int n_iov);
/* Flips the bits of injected faults in bytes that were read.  This is done
 * after the cache, so that its blocks are correct. */
void rsh_file_flip(const struct rsh_store *s, const struct rsh_store_file *f,
		   uint64_t offset, void *buf, size_t len);
/* Reads the range of the last failure again, without the cache.  Returns like
 * rsh_file_read(), or ENOMEM. */
int rsh_file_read_again(struct rsh_store *s, struct rsh_store_file *f,
			struct rsh_handle *h);

/* ---- use of the cache (cache_policy.c) ---- */

/* The policy of a store is RSH_POLICY_OPEN until its first reads decide it. */
enum rsh_cache_policy {
	RSH_POLICY_OPEN,
	RSH_POLICY_STRAIGHT,
	RSH_POLICY_CACHE
};

/* Opens the files in the cache. */
void rsh_store_settle_files(struct rsh_store *s);
/* Opens a file with this identity, of a step, in the cache. */
rsh_cache_file rsh_file_in_cache(const struct rsh_store_io *io,
				 const struct rsh_store_identity *id,
				 uint64_t epoch, uint64_t step);
/* Returns whether the file is read through the cache; the first calls may read
 * the file to decide it. */
bool rsh_file_is_cached(struct rsh_store *s, struct rsh_store_file *f,
			struct rsh_handle *h);
