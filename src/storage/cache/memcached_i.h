/* SPDX-License-Identifier: Apache-2.0 */
/* storage/cache/memcached_i.h has what the cache asks of a server of memcached; for
 * this room only. */
#ifndef RSH_STORAGE_MEMCACHED_I_H
#define RSH_STORAGE_MEMCACHED_I_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conn_i.h"
#include "rsh/util/error.h"

/* 0, or -errno with a sentence: this build does without. */
int rsh_memcached_check(struct rsh_error *err);

/* What servers want to see from those who log in (SASL); in secret memory. */
struct rsh_login {
	char *name, *password;
};

/* Loads what it takes to log in.  0, or -errno with a sentence: there is no
 * such library. */
int rsh_memcached_login_load(struct rsh_error *err);

/* A link is a connection to one server, for one thread at a time.  What can be
 * said of a failed request only is that it failed: the link is to be closed. */
struct rsh_link;

/* Makes a link without connecting, to an address that outlives it.  A request
 * waits `timeout_ms` for the server each time that it has to wait, and twice as
 * long in all; values of more than `largest` bytes, or a little more, are
 * refused.  Who has a login (NULL: none) speaks the binary protocol.  NULL:
 * memory is out. */
struct rsh_link *rsh_link_new(const struct rsh_address *to,
			      const struct rsh_login *login,
			      unsigned timeout_ms, size_t largest);
void rsh_link_free(struct rsh_link *l); /* l may be NULL */

/* These return 0 or a positive errno, EPROTO for an answer that is none of
 * memcached's, EREMOTEIO for one that says that the server failed, EKEYREJECTED
 * for a login that it does not take, EPROTONOSUPPORT if it knows none. */

/* So many names are asked for at a time. */
#define RSH_LINK_NAMES 16

/* Is called for each value, in any order, with the name that was asked for. */
typedef void rsh_link_value_fn(void *ctx, const char *name,
			       const uint8_t *value, size_t n);
int rsh_link_get(struct rsh_link *l, const char *const *names, size_t n,
		 rsh_link_value_fn *fn, void *ctx);
/* Stores a value for so many seconds, 0 for good; with `add` only where there
 * is none, or else EEXIST.  ENOSPC: the server did not take it. */
int rsh_link_store(struct rsh_link *l, const char *name, const void *value,
		   size_t n, unsigned seconds, bool add);
int rsh_link_remove(struct rsh_link *l, const char *name);

#endif
