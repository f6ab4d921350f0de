/* SPDX-License-Identifier: Apache-2.0 */
/* storage/servers.h names the servers of a cache: memcached, where the nodes of a
 * job keep the blocks that they read, so that one of them reads each.
 *
 * They are opened apart from the cache, because that loads libraries, looks up
 * names and reads a file, which a process that confines itself does before.
 * No request is made until a cache reads.  One object may serve one cache; any
 * thread may use it.
 *
 * Values are verified, always.  Without a key whoever can write to the servers
 * and knows this program can put wrong bytes there that pass for right ones;
 * with one he needs the key for that.
 *
 * MEMCACHED_USERNAME and MEMCACHED_PASSWORD of the environment, read when the
 * servers are opened, log in to those that want it (SASL).
 */
#ifndef RSH_STORAGE_SERVERS_H
#define RSH_STORAGE_SERVERS_H

#include <stddef.h>
#include <stdint.h>

#include "rsh/util/error.h"

struct rsh_cache_servers;

#define RSH_CACHE_SERVERS_MAX 64

struct rsh_cache_servers_options {
	/* This is HOST[:PORT], separated by commas, with the same words on all
	 * nodes; NULL for none. */
	const char *list;
	/* This file is the key, of 32 bytes at least; NULL for none.  Nodes
	 * with different keys share nothing. */
	const char *key_file;

	/* These may be 0 for what is usual.  A server has so long to answer a
	 * request (1,000 ms), is left alone so long when it failed (10 s), and
	 * a block that another node has claimed is waited for so long
	 * (5,000 ms). */
	unsigned timeout_ms, retry_seconds, wait_ms;
};

/* Checks a list: 0, or -EINVAL with a sentence, -ENOTSUP in a build without
 * memcached. */
int rsh_cache_servers_check(const char *list, struct rsh_error *err);

/* Opens the servers, which are the caller's.  A name that is not known is
 * logged, and the server of that name left alone.  0, or -errno with a sentence
 * if the library or the key is not to be had. */
int rsh_cache_servers_open(const struct rsh_cache_servers_options *opts,
			   struct rsh_cache_servers **out,
			   struct rsh_error *err);
/* The cache must have been freed; NULL is allowed. */
void rsh_cache_servers_free(struct rsh_cache_servers *s);

/* Gives the port of one server after the other, and 0 after the last. */
uint16_t rsh_cache_servers_port(const struct rsh_cache_servers *s, size_t i);

#endif
