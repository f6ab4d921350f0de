/* SPDX-License-Identifier: Apache-2.0 */
/* unit/cache_support.h - files that exist as a rule only, and their loader. */
#ifndef UNIT_CACHE_SUPPORT_H
#define UNIT_CACHE_SUPPORT_H

#include <stdatomic.h>
#include <stdbool.h>

#include "rsh/storage/cache.h"
#include "support.h"

RSH_GUARD(cleanup_cache_, struct rsh_cache, rsh_cache_free)
#define cleanup_cache __attribute__((cleanup(cleanup_cache_)))

#define KIB ((uint64_t)1024)
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)

/* What the bytes of a file are like. */
enum made_shape {
	MADE_RANDOM,
	MADE_HALVES, /* numbers of four bytes, of which the lower two are 0 */
	MADE_ZEROS,
	MADE_MIXED,  /* all of these and runs, in stretches of 20,000 bytes */
};

/* A file whose bytes follow from its number. */
struct made_file {
	enum made_shape shape;
	struct rsh_cache_file_id id; /* ino is the number */
	rsh_cache_file handle;

	/* What the loader is to do: */
	atomic_int fail;       /* errno of all loads, 0: they go well */
	atomic_uint delay_us;  /* of each load */
	atomic_bool hold_back; /* loads do not come back while it is set */

	/* What it did: */
	atomic_uint loads;
	atomic_uint holding; /* loads that wait for hold_back */
	atomic_ullong bytes;
	atomic_ullong last_offset, last_len;
};

/* Without a cache, for its identity. */
void made_file_describe(struct made_file *f, uint64_t number, uint64_t size);
void made_file_init(struct made_file *f, struct rsh_cache *c, uint64_t number,
		    uint64_t size);
/* The bytes as they must be. */
void made_file_bytes(const struct made_file *f, uint64_t offset, uint8_t *buf,
		     size_t len);
/* The loader; ctx is the file. */
#define MADE(f) (&(struct rsh_cache_loader){ made_file_load, f })
int made_file_load(void *ctx, uint64_t offset, const struct iovec *iov,
		   int n_iov);

/* Reads through the cache and compares: 0, or what the cache said.  Wrong bytes
 * end the test program. */
int read_checked(struct rsh_cache *c, struct made_file *f, uint64_t offset,
		 size_t len);
/* The same, and how many loads it took; it must go well. */
unsigned loads_of(struct rsh_cache *c, struct made_file *f, uint64_t offset,
		  size_t len);

/* Mounts a tmpfs on `dir` for this process alone, which has a copy of no other
 * mount of this program: a daemon lives as long as any copy of its mount.  False
 * where that may not be done. */
bool mount_own_tmpfs(const char *dir, const char *options);

struct rsh_cache *cache_make(const struct rsh_cache_options *opts);
struct rsh_cache_stats cache_stats(struct rsh_cache *c);

#endif
