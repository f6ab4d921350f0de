/* SPDX-License-Identifier: Apache-2.0 */
/* storage/servers.h - the servers of a cache: memcached, by which the nodes of
 * a job share the blocks that they read, so that one of them reads each.
 *
 * They are opened separately from the cache, because this loads a library,
 * resolves names and reads a file: a process does so before it enters its
 * sandbox.  No request is sent before a cache reads.  One object serves one
 * cache; any thread may use it.
 *
 * All values are verified.  Without a key, anyone who can write to the servers
 * and knows this program can store wrong bytes that pass verification; with a
 * key only those who have the key can.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "rsh/util/error.h"

struct rsh_cache_servers;

#define RSH_CACHE_SERVERS_MAX 64

struct rsh_cache_servers_options {
	/* HOST[:PORT],...: the same text on all nodes; NULL: none. */
	const char *list;
	/* The file with the key, of at least 32 bytes; NULL: none.  Nodes with
	 * different keys share nothing. */
	const char *key_file;

	/* 0 means the default.  The time for an answer (1,000 ms); the time
	 * until a server is used again after a failure (10 s); the time to wait
	 * for a block that another node is loading (5,000 ms). */
	unsigned timeout_ms, retry_seconds, wait_ms;
};

/* Checks a list.  Returns 0, or -EINVAL or (in a build without memcached)
 * -ENOTSUP with a sentence. */
int rsh_cache_servers_check(const char *list, struct rsh_error *err);

/* Opens the servers, which the caller frees.  If a name cannot be resolved,
 * this is logged and the server is not used.  Returns 0, or -errno with a
 * sentence if the library or the key is missing. */
int rsh_cache_servers_open(const struct rsh_cache_servers_options *opts,
			   struct rsh_cache_servers **out,
			   struct rsh_error *err);
/* The cache must have been freed; NULL is allowed. */
void rsh_cache_servers_free(struct rsh_cache_servers *s);

/* Returns the port of server i, or 0 if i is the number of servers or more. */
uint16_t rsh_cache_servers_port(const struct rsh_cache_servers *s, size_t i);
