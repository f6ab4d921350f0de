/* SPDX-License-Identifier: Apache-2.0 */
/* storage/store/io_i.h - reads of files, and what goes wrong with them as it is told
 * to; for this room only. */
#ifndef RSH_STORAGE_IO_I_H
#define RSH_STORAGE_IO_I_H

#include <stdatomic.h>
#include <stddef.h>
#include <sys/types.h>

#include "rsh/storage/io.h"

struct rsh_handle;
struct rsh_medium;
struct rsh_store;
struct rsh_store_file;

/* ---- faults (fault.c) ---- */

struct rsh_faults;

/* Parses a text of faults.  0, or -EINVAL with a sentence that names the fault;
 * -ENOMEM. */
int rsh_faults_new(const char *text, struct rsh_faults **out,
		   struct rsh_error *err);
void rsh_faults_free(struct rsh_faults *f);

/* To be called before a read of [offset, offset + *len) of the file: waits as
 * long as the read has to, and may shorten *len (to 0: the file ends here).  0
 * or a positive errno. */
int rsh_faults_apply(struct rsh_faults *f, const char *name, uint64_t offset,
		     size_t *len);

/* To be called after a read of [offset, offset + len): turns over the bits that
 * are to be, the same ones of a file each time. */
void rsh_faults_flip(const struct rsh_faults *f, const char *name,
		     uint64_t offset, void *buf, size_t len);
bool rsh_faults_flip_any(const struct rsh_faults *f);

/* Makes a medium that lets reads of another one go wrong, and does nothing
 * else; NULL: out of memory.  Both outlive it. */
struct rsh_medium *rsh_faults_before(struct rsh_faults *f,
				     struct rsh_medium *medium);

/* ---- reads (io.c) ---- */

struct rsh_store_io {
	enum rsh_caching caching;
	bool has_dir, has_servers, compress; /* of the cache */
	struct rsh_cache *cache;   /* NULL: off */
	struct rsh_faults *faults; /* NULL: none */
	size_t page_bytes;

	bool kept; /* a thread may still need it */
	atomic_bool cached, drop_all;
	atomic_uint_fast64_t keep_free;
	/* This is free memory as it was seen last, and when that was. */
	atomic_uint_fast64_t free_bytes, free_seen_ns;
	atomic_uint_fast64_t reads, bytes, failed, ns, dropped;
	uint64_t memory_bytes; /* that the cache may have, if there is one */
	atomic_bool ceded;     /* the cache has given room to tiles */
	atomic_uint_fast64_t tiles, tile_bytes, tile_bytes_peak;
};

/* Lets the object outlive rsh_store_io_free(). */
void rsh_store_io_keep(struct rsh_store_io *io);

/* Reads all of [offset, offset + len), past any cache.  Returns what
 * rsh_store_pread() does. */
int rsh_file_read(struct rsh_store *s, struct rsh_store_file *f,
		  struct rsh_handle *h, void *buf, size_t len, uint64_t offset);
/* Reads what could not be read last, past any cache, to see whether it can be
 * now.  Returns what rsh_file_read() does, or ENOMEM. */
int rsh_file_read_again(struct rsh_store *s, struct rsh_store_file *f,
			struct rsh_handle *h);

/* ---- whether through the cache (cache_policy.c) ---- */

/* The way of a store is RSH_POLICY_OPEN until its first read tells. */
enum rsh_cache_policy {
	RSH_POLICY_OPEN,
	RSH_POLICY_STRAIGHT,
	RSH_POLICY_CACHE
};

/* Makes the files that can be cached known to the cache. */
void rsh_store_settle_files(struct rsh_store *s);
/* Is the file read through the cache?  To find out takes a few reads at
 * first. */
bool rsh_file_is_cached(struct rsh_store *s, struct rsh_store_file *f,
			struct rsh_handle *h);

#endif
