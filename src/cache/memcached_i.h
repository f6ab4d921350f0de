/* SPDX-License-Identifier: Apache-2.0 */
/* cache/memcached_i.h has what the cache asks of libmemcached; for this room
 * only.  The library is loaded by rsh_memcached_load(), which comes before all
 * others. */
#ifndef RSH_CACHE_MEMCACHED_I_H
#define RSH_CACHE_MEMCACHED_I_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rsh/util/error.h"

/* 0, or -errno with a sentence: there is no such library, or this build does
 * without. */
int rsh_memcached_load(struct rsh_error *err);

/* What servers want to see from those who log in (SASL); in secret memory. */
struct rsh_login {
	char *name, *password;
};

/* Loads what it takes to log in, after rsh_memcached_load().  0, or -errno with
 * a sentence: the library can do no such thing. */
int rsh_memcached_login_load(struct rsh_error *err);

/* ---- which server has what ---- */

/* A ring deals names out to servers by consistent hashing.  Any thread may ask
 * it. */
struct rsh_ring;
struct rsh_ring *rsh_ring_new(void);
void rsh_ring_free(struct rsh_ring *r); /* r may be NULL */
/* Adds the next server, by its name.  Returns 0 or -ENOMEM. */
int rsh_ring_add(struct rsh_ring *r, const char *host, uint16_t port);
uint32_t rsh_ring_find(const struct rsh_ring *r, const char *name);

/* ---- connections ---- */

/* A link is a connection to one server, for one thread at a time.  What can be
 * said of a failed request only is that it failed: the link is to be closed. */
struct rsh_link;

/* Makes a link without connecting.  A request waits `timeout_ms` for the server
 * each time that it has to wait; values of more than `largest` bytes are
 * refused.  Who has a login (NULL: none) speaks the binary protocol.  NULL:
 * memory is out. */
struct rsh_link *rsh_link_new(const char *address, uint16_t port,
			      const struct rsh_login *login,
			      unsigned timeout_ms, size_t largest);
void rsh_link_free(struct rsh_link *l); /* l may be NULL */
/* Makes the request that is under way in another thread fail when it next has
 * to wait. */
void rsh_link_hurry(struct rsh_link *l);

/* These return 0 or a positive errno, EKEYREJECTED for a login that the server
 * does not take, EPROTONOSUPPORT if it knows none. */

/* So many names are asked for at a time. */
#define RSH_LINK_NAMES 16

/* Is called for each value, in any order. */
typedef void rsh_link_value_fn(void *ctx, const char *name, size_t n_name,
			       const uint8_t *value, size_t n);
int rsh_link_get(struct rsh_link *l, const char *const *names, size_t n,
		 rsh_link_value_fn *fn, void *ctx);
/* Stores a value for so many seconds, 0 for good; with `add` only where there
 * is none, or else EEXIST.  ENOSPC: the server did not take it. */
int rsh_link_store(struct rsh_link *l, const char *name, const void *value,
		   size_t n, unsigned seconds, bool add);
int rsh_link_remove(struct rsh_link *l, const char *name);

#endif
