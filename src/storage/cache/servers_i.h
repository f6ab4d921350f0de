/* SPDX-License-Identifier: Apache-2.0 */
/* storage/cache/servers_i.h - blocks on servers; for this layer only.
 *
 * No call fails or hangs: a request waits a bounded time for its server.  A
 * server that failed is not used for a while, and the other servers store its
 * blocks meanwhile.
 *
 * A block is stored on the server with the greatest hash of the names of server
 * and block, among the servers that have not failed; all nodes choose the same
 * server.  A server that hung has claims of nodes that no longer use it, so for
 * a while no node waits for a claim there (rsh_servers_is_doubtful()).
 */
#pragma once

#include <errno.h>

#include "memcached_i.h"
#include "rsh/storage/servers.h"
#include "value_i.h"

#define RSH_SERVER_NONE UINT32_MAX

enum rsh_item_state {
	RSH_ITEM_WANTED,
	RSH_ITEM_FOUND, /* `content` has it */
	RSH_ITEM_FREE,  /* the server does not have it */
	RSH_ITEM_OURS,  /* like FREE, and this node has claimed it */
	RSH_ITEM_TAKEN, /* another node has claimed it */
	RSH_ITEM_ALONE, /* no server is used for it */
};

/* A block in a lookup. */
struct rsh_item {
	uint8_t digest[RSH_VALUE_DIGEST];
	char name[RSH_VALUE_NAME_MAX];
	uint32_t server;
	enum rsh_item_state state;
	uint8_t *content;
	uint32_t len;
	uint32_t stored; /* bytes after the header of its value */
	uint8_t *packed; /* the compressed bytes, from malloc; NULL: the value
			  * is uncompressed, or memory is exhausted */
	bool refused;    /* the value was damaged or forged */
};

struct rsh_servers_tally {
	unsigned errors, rejected;
};

/* Allows values of up to `largest` bytes of content from now on. */
void rsh_servers_begin(struct rsh_cache_servers *s, uint32_t largest);
uint64_t rsh_servers_wait_ns(const struct rsh_cache_servers *s);
const struct rsh_value_key *rsh_servers_key(const struct rsh_cache_servers *s);

/* Returns the server of a group of blocks; RSH_SERVER_NONE if all have
 * failed. */
uint32_t rsh_servers_pick(struct rsh_cache_servers *s, const uint64_t group[2]);

/* Returns whether the server failed recently: a node that has claimed a block
 * there may no longer use the server and will not store the block. */
bool rsh_servers_is_doubtful(struct rsh_cache_servers *s, uint32_t server);

/* ---- servers.c for shared.c ---- */

/* Makes a request by a link and returns 0 or a positive errno.  It may be
 * called twice. */
typedef int rsh_link_request_fn(struct rsh_link *l, void *ctx);

/* Makes a request, and repeats it if the server has closed an idle link, as
 * after a restart.  Returns 0 or a positive errno; EAGAIN if no request was
 * sent. */
int rsh_servers_request(struct rsh_cache_servers *s, uint32_t server,
			rsh_link_request_fn *fn, void *ctx);

/* Returns whether this result counts as a failure of the server. */
static inline bool rsh_request_failed(int code)
{
	return code && code != EAGAIN && code != EEXIST && code != ENOSPC;
}

/* Notes whether the server returned a correct value. */
void rsh_servers_judge(struct rsh_cache_servers *s, uint32_t server, bool good);
