/* SPDX-License-Identifier: Apache-2.0 */
/* storage/cache/memcached_i.h has the requests to a memcached server; for this
 * layer only. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conn_i.h"

/* A link is a connection to one server, for one thread at a time.  After a
 * failed request the result of the request is unknown, and the link has to be
 * closed. */
struct rsh_link;

/* Makes a link without connecting, to an address that outlives it.  A request
 * waits up to `timeout_ms` each time that it waits for the server, and twice as
 * long in total.  Values of more than `largest` bytes, or a little more, are
 * refused.  Returns NULL if memory is exhausted. */
struct rsh_link *rsh_link_new(const struct rsh_address *to, unsigned timeout_ms,
			      size_t largest);
void rsh_link_free(struct rsh_link *l); /* l may be NULL */

/* These return 0 or a positive errno: EPROTO for an answer that does not follow
 * the protocol, EREMOTEIO if the server reports a failure. */

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

/* The same on an open connection. */
int rsh_memcached_get(struct rsh_conn *c, const char *const *names, size_t n,
		      rsh_link_value_fn *fn, void *ctx);
int rsh_memcached_store(struct rsh_conn *c, const char *name, const void *value,
			size_t n, unsigned seconds, bool add);
int rsh_memcached_remove(struct rsh_conn *c, const char *name);
