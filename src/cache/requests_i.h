/* SPDX-License-Identifier: Apache-2.0 */
/* cache/requests_i.h is between items.c, which knows blocks, and servers.c,
 * which knows servers and their links. */
#ifndef RSH_CACHE_REQUESTS_I_H
#define RSH_CACHE_REQUESTS_I_H

#include <errno.h>

#include "memcached_i.h"
#include "servers_i.h"

/* Does something by a link and returns 0 or a positive errno.  It may be called
 * once more. */
typedef int rsh_link_request_fn(struct rsh_link *l, void *ctx);

/* Makes a request, once more if the server has closed a link that was idle, as
 * one does that was restarted.  Returns 0 or a positive errno: EAGAIN if the
 * server was not asked. */
int rsh_servers_request(struct rsh_cache_servers *s, uint32_t server,
			rsh_link_request_fn *fn, void *ctx);

/* Does that speak against the server? */
static inline bool rsh_request_failed(int code)
{
	return code && code != EAGAIN && code != EEXIST && code != ENOSPC;
}

/* Notes whether the server gave what was stored. */
void rsh_servers_judge(struct rsh_cache_servers *s, uint32_t server, bool good);

#endif
