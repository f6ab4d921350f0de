/* SPDX-License-Identifier: Apache-2.0 */
/* storage/cache/servers_i.h has what blocks are asked of servers; for this room only.
 *
 * No call fails, and each comes back: a request waits a bounded time for its
 * server, and a server that failed is left alone for a while, in which the
 * others have its part of the blocks.
 *
 * A server has the blocks for which a hash of its name and theirs is greater
 * than those of the other servers that have not failed, on all nodes alike.  A
 * server that hung has claims of nodes that have given it up, so none waits for
 * a claim there for a while (rsh_servers_is_doubtful()). */
#ifndef RSH_STORAGE_SERVERS_I_H
#define RSH_STORAGE_SERVERS_I_H

#include <errno.h>

#include "memcached_i.h"
#include "rsh/storage/servers.h"
#include "value_i.h"

#define RSH_SERVER_NONE UINT32_MAX

enum rsh_item_state {
	RSH_ITEM_WANTED,
	RSH_ITEM_FOUND, /* `content` has it */
	RSH_ITEM_FREE,  /* the server does not have it */
	RSH_ITEM_OURS,  /* the same, and we have claimed it */
	RSH_ITEM_TAKEN, /* another node has */
	RSH_ITEM_ALONE, /* no server is to be asked for it */
};

/* An item is a block that is looked for. */
struct rsh_item {
	uint8_t digest[RSH_VALUE_DIGEST];
	char name[RSH_VALUE_NAME_MAX];
	uint32_t server;
	enum rsh_item_state state;
	uint8_t *content;
	uint32_t len;
	uint32_t stored; /* bytes behind the header of its value */
	/* If it was found compressed these are the bytes, from malloc, or NULL
	 * if memory was out. */
	uint8_t *packed;
	bool refused; /* what the server had was not what was stored */
};

/* Counts what went wrong. */
struct rsh_servers_tally {
	unsigned errors, rejected;
};

/* A value of up to `largest` bytes of content is allowed from now on. */
void rsh_servers_begin(struct rsh_cache_servers *s, uint32_t largest);
uint64_t rsh_servers_wait_ns(const struct rsh_cache_servers *s);
const struct rsh_value_key *rsh_servers_key(const struct rsh_cache_servers *s);

/* Says which server has a group of blocks, those of failed ones being dealt out
 * to others; RSH_SERVER_NONE if all have failed. */
uint32_t rsh_servers_pick(struct rsh_cache_servers *s, const uint64_t group[2]);

/* Has the server failed not long ago?  Who has claimed something there may have
 * given the server up since, and will not store it. */
bool rsh_servers_is_doubtful(struct rsh_cache_servers *s, uint32_t server);

/* Looks for the items that are WANTED or TAKEN, of one server together. */
void rsh_servers_get(struct rsh_cache_servers *s, struct rsh_item *items,
		     size_t n, struct rsh_servers_tally *tally);
/* Claims the items that are FREE. */
void rsh_servers_claim(struct rsh_cache_servers *s, struct rsh_item *items,
		       size_t n, struct rsh_servers_tally *tally);
/* Stores a sealed value, of item->stored bytes, in place of the claim.  Returns 0 or a positive
 * errno. */
int rsh_servers_put(struct rsh_cache_servers *s, const struct rsh_item *item,
		    const uint8_t *value);
/* Gives the claim up. */
void rsh_servers_release(struct rsh_cache_servers *s,
			 const struct rsh_item *item);

/* ---- between items.c, which knows blocks, and servers.c, which knows servers and
 * their links ---- */

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
