/* SPDX-License-Identifier: Apache-2.0 */
/* storage/cache/items.c asks servers for blocks, claims them, and puts them
 * there. */
#include "config.h"

#include "servers_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/pack.h"

/* A claim ends by itself when its holder dies.  It outlasts the wait of
 * others. */
#define LEASE_SECONDS 10

/* Those are the items of one server in which a request is interested. */
struct share {
	struct rsh_cache_servers *servers;
	struct rsh_item *items;
	size_t n;
	uint32_t server;
	enum rsh_item_state wanted;
};

static bool share_has(const struct share *sh, const struct rsh_item *item)
{
	return item->server == sh->server &&
	       (item->state == sh->wanted ||
		(sh->wanted == RSH_ITEM_WANTED &&
		 item->state == RSH_ITEM_TAKEN));
}

/* Takes what stands behind the header of a value that is the item's.  False if
 * it cannot be unpacked. */
static bool item_take_content(struct rsh_item *item, const uint8_t *bytes,
			      size_t n)
{
	item->stored = (uint32_t)n;
	if (n == item->len) {
		memcpy(item->content, bytes, n);
		return true;
	}
	if (!rsh_unpack(bytes, n, item->content, item->len))
		return false;
	item->packed = malloc(n);
	if (item->packed)
		memcpy(item->packed, bytes, n);
	return true;
}

static void item_take_value(const struct share *sh, struct rsh_item *item,
			    const uint8_t *value, size_t n)
{
	const size_t lease = strlen(RSH_VALUE_LEASE);

	if (n == lease && memcmp(value, RSH_VALUE_LEASE, lease) == 0) {
		item->state = RSH_ITEM_TAKEN;
	} else if (rsh_value_check(rsh_servers_key(sh->servers), item->digest,
				   value, n, item->len) &&
		   item_take_content(item, value + RSH_VALUE_HEADER,
				     n - RSH_VALUE_HEADER)) {
		item->state = RSH_ITEM_FOUND;
	} else {
		item->refused = true;
	}
}

static void share_take_value(void *ctx, const char *name, const uint8_t *value,
			     size_t n)
{
	const struct share *sh = ctx;

	for (size_t i = 0; i < sh->n; i++) {
		struct rsh_item *item = &sh->items[i];

		if (item->name == name && item->state == RSH_ITEM_FREE)
			item_take_value(sh, item, value, n);
	}
}

/* Finds no more than it did when it is made again. */
static int share_get(struct rsh_link *l, void *ctx)
{
	struct share *sh = ctx;
	const char *names[RSH_LINK_NAMES];
	size_t n = 0;

	for (size_t i = 0; i < sh->n && n < RSH_LINK_NAMES; i++) {
		struct rsh_item *item = &sh->items[i];

		if (!share_has(sh, item) &&
		    !(item->server == sh->server &&
		      item->state == RSH_ITEM_FREE))
			continue;
		item->state = RSH_ITEM_FREE;
		names[n++] = item->name;
	}
	return rsh_link_get(l, names, n, share_take_value, sh);
}

static int item_remove(struct rsh_link *l, void *item)
{
	return rsh_link_remove(l, ((const struct rsh_item *)item)->name);
}

static int item_claim(struct rsh_link *l, void *item)
{
	return rsh_link_store(l, ((const struct rsh_item *)item)->name,
			      RSH_VALUE_LEASE, strlen(RSH_VALUE_LEASE),
			      LEASE_SECONDS, true);
}

void rsh_servers_get(struct rsh_cache_servers *s, struct rsh_item *items,
		     size_t n, struct rsh_servers_tally *tally)
{
	for (size_t i = 0; i < n; i++) {
		struct share sh = { s, items, n, items[i].server,
				    RSH_ITEM_WANTED };
		bool found = false;
		int code;

		if (!share_has(&sh, &items[i]))
			continue;
		if (items[i].server == RSH_SERVER_NONE) {
			items[i].state = RSH_ITEM_ALONE;
			continue;
		}
		code = rsh_servers_request(s, sh.server, share_get, &sh);
		tally->errors += rsh_request_failed(code);
		for (size_t k = 0; k < n; k++) {
			struct rsh_item *item = &items[k];

			if (item->server != sh.server)
				continue;
			found |= item->state == RSH_ITEM_FOUND;
			if (item->refused) {
				rsh_servers_judge(s, sh.server, false);
				tally->rejected++;
				rsh_servers_request(s, sh.server,
						    item_remove, item);
				item->refused = false;
			}
			if (code && item->state != RSH_ITEM_FOUND &&
			    item->state != RSH_ITEM_OURS)
				item->state = RSH_ITEM_ALONE;
		}
		if (code == 0 && found)
			rsh_servers_judge(s, sh.server, true);
	}
}

void rsh_servers_claim(struct rsh_cache_servers *s, struct rsh_item *items,
		       size_t n, struct rsh_servers_tally *tally)
{
	for (size_t i = 0; i < n; i++) {
		int code;

		if (items[i].state != RSH_ITEM_FREE)
			continue;
		code = rsh_servers_request(s, items[i].server, item_claim,
					   &items[i]);
		tally->errors += rsh_request_failed(code);
		items[i].state = code == 0 ? RSH_ITEM_OURS :
				 code == EEXIST ? RSH_ITEM_TAKEN :
						  RSH_ITEM_ALONE;
	}
}

struct put {
	const struct rsh_item *item;
	const uint8_t *value;
};

static int item_put(struct rsh_link *l, void *ctx)
{
	const struct put *p = ctx;

	return rsh_link_store(l, p->item->name, p->value,
			      (size_t)RSH_VALUE_HEADER + p->item->stored, 0,
			      false);
}

int rsh_servers_put(struct rsh_cache_servers *s, const struct rsh_item *item,
		    const uint8_t *value)
{
	struct put p = { item, value };

	return rsh_servers_request(s, item->server, item_put, &p);
}

void rsh_servers_release(struct rsh_cache_servers *s,
			 const struct rsh_item *item)
{
	struct rsh_item copy = *item;

	rsh_servers_request(s, item->server, item_remove, &copy);
}
