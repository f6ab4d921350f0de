/* SPDX-License-Identifier: Apache-2.0 */
/* storage/cache/memcached_i.h has the requests to a memcached server; for this
 * layer only. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

struct rsh_address {
	struct sockaddr_storage at;
	socklen_t len; /* 0: unknown */
};

/* A link is a connection to one server, for one thread at a time.  After a
 * failed request the result of the request is unknown, and the link has to be
 * closed. */
struct rsh_link;

/* Makes a link, with a connected socket that it takes over, or without one if
 * `fd` is -1.  A request waits up to `timeout_ms` each time that it waits for
 * the server, and twice as long in total.  Values of more than `largest` bytes,
 * or a little more, are refused.  Returns NULL if memory is exhausted. */
struct rsh_link *rsh_link_new(int fd, unsigned timeout_ms, size_t largest);
void rsh_link_free(struct rsh_link *l); /* l may be NULL */

/* The following functions return 0 or a positive errno: ETIMEDOUT, ECONNRESET
 * if the server has closed the connection, EPROTO for an answer that does not
 * follow the protocol or is too long, EREMOTEIO if the server reports a
 * failure. */

/* Connects the link to its server if it is not connected.  It comes before each
 * request. */
int rsh_link_begin(struct rsh_link *l, const struct rsh_address *to);

/* The most names in one request. */
#define RSH_LINK_NAMES 16

/* Called for each value, in any order, with its name from the request. */
typedef void rsh_link_value_fn(void *ctx, const char *name,
			       const uint8_t *value, size_t n);
int rsh_link_get(struct rsh_link *l, const char *const *names, size_t n,
		 rsh_link_value_fn *fn, void *ctx);
/* Stores a value for `seconds`, 0: without a limit.  With `add`, a name that
 * exists is not changed (EEXIST).  ENOSPC: the server did not store it. */
int rsh_link_store(struct rsh_link *l, const char *name, const void *value,
		   size_t n, unsigned seconds, bool add);
int rsh_link_remove(struct rsh_link *l, const char *name);
