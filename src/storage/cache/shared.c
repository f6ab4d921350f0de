/* SPDX-License-Identifier: Apache-2.0 */
/* storage/cache/shared.c looks up blocks on servers, and stores loaded blocks
 * there in a thread. */
#include "config.h"

#include "cache_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "rsh/util/blocking.h"
#include "rsh/util/checked.h"
#include "rsh/util/clock.h"
#include "rsh/util/mem.h"
#include "rsh/util/pack.h"

/* ---- blocks on servers ---- */

/* A claim ends by itself when its holder dies.  It outlasts the wait of
 * others. */
#define LEASE_SECONDS 10

/* The items of one server are got together. */
struct share {
	struct rsh_cache_servers *servers;
	struct rsh_lookup *h;
	uint32_t server;
};

static bool item_is_sought(const struct rsh_item *item)
{
	return item->state == RSH_ITEM_WANTED || item->state == RSH_ITEM_TAKEN;
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
	} else if (rsh_value_check(&sh->servers->key, item->digest,
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

	for (unsigned i = 0; i < sh->h->n; i++) {
		struct rsh_item *item = &sh->h->items[i];

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

	for (unsigned i = 0; i < sh->h->n && n < RSH_LINK_NAMES; i++) {
		struct rsh_item *item = &sh->h->items[i];

		if (item->server != sh->server ||
		    (!item_is_sought(item) && item->state != RSH_ITEM_FREE))
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

/* Gets the items that are WANTED or TAKEN, the items of one server together. */
static void servers_get(struct rsh_cache_servers *s, struct rsh_lookup *h)
{
	for (unsigned i = 0; i < h->n; i++) {
		struct share sh = { s, h, h->items[i].server };
		bool found = false;
		int code;

		if (!item_is_sought(&h->items[i]))
			continue;
		if (sh.server == RSH_SERVER_NONE) {
			h->items[i].state = RSH_ITEM_ALONE;
			continue;
		}
		code = rsh_servers_request(s, sh.server, share_get, &sh);
		h->errors += rsh_request_failed(code);
		for (unsigned k = 0; k < h->n; k++) {
			struct rsh_item *item = &h->items[k];

			if (item->server != sh.server)
				continue;
			found |= item->state == RSH_ITEM_FOUND;
			if (item->refused) {
				rsh_servers_judge(s, sh.server, false);
				h->rejected++;
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

/* Claims the items that are FREE. */
static void servers_claim(struct rsh_cache_servers *s, struct rsh_lookup *h)
{
	for (unsigned i = 0; i < h->n; i++) {
		struct rsh_item *item = &h->items[i];
		int code;

		if (item->state != RSH_ITEM_FREE)
			continue;
		code = rsh_servers_request(s, item->server, item_claim, item);
		h->errors += rsh_request_failed(code);
		item->state = code == 0 ? RSH_ITEM_OURS :
			      code == EEXIST ? RSH_ITEM_TAKEN : RSH_ITEM_ALONE;
	}
}

struct put {
	const struct rsh_item *item;
	const uint8_t *value;
};

/* Stores a sealed value of item->stored bytes in place of the claim. */
static int item_put(struct rsh_link *l, void *ctx)
{
	const struct put *p = ctx;

	return rsh_link_store(l, p->item->name, p->value,
			      (size_t)RSH_VALUE_HEADER + p->item->stored, 0,
			      false);
}

/* Blocks of a part of a file of this size are on one server, so that neighbours
 * are fetched together. */
#define GROUP_BYTES (4 * 1024 * 1024)

/* The most servers on which a block is looked up if servers fail. */
#define SERVERS_TRIED 3

/* The time until another node's claim is checked first.  Each pause is half as
 * long again as the one before, up to PAUSE_LAST_NS. */
#define PAUSE_FIRST_NS UINT64_C(2000000)
#define PAUSE_LAST_NS UINT64_C(50000000)

/* The minimum of the time to wait for a claim. */
#define WAIT_LEAST_NS UINT64_C(250000000)

/* ---- storing ---- */

/* Makes a job, when the stored form is known: the block is PLAIN, and
 * compressed or not.  The lock is held. */
static struct rsh_shared_job shared_job_of(struct rsh_cache_block *b,
					   const struct rsh_item *item)
{
	struct rsh_shared_job job = { .block = b, .item = *item };

	if (b) {
		job.bytes = b->mem;
		job.item.stored = rsh_block_stored(b);
	}
	return job;
}

/* `value` has room for the value of the block. */
static int shared_job_do(struct rsh_shared *sh, const struct rsh_shared_job *j,
			 uint8_t *value)
{
	struct rsh_item item = j->item;
	struct put put = { &item, value };
	int code;

	if (j->bytes && value) {
		memcpy(value + RSH_VALUE_HEADER, j->bytes, item.stored);
		rsh_value_seal(&sh->servers->key, item.digest, value,
			       item.stored, item.len);
		code = rsh_servers_request(sh->servers, item.server, item_put,
					   &put);
		/* A full server has evicted the claim, or will. */
		if (code != ENOSPC)
			return code;
	} else {
		code = ENOMEM;
	}
	/* The claim is removed. */
	rsh_servers_request(sh->servers, item.server, item_remove, &item);
	return code;
}

static void shared_count(struct rsh_cache *c, const struct rsh_item *item,
			 int code)
{
	if (code == 0) {
		c->stats.shared_written++;
		c->stats.shared_written_bytes += item->stored;
	} else {
		c->stats.shared_dropped++;
		c->stats.shared_errors += code != EAGAIN && code != ENOSPC;
	}
}

/* Stores the next block of the queue; a step of the worker. */
static bool shared_store_next(struct rsh_cache *c)
{
	struct rsh_shared *sh = c->shared;
	struct rsh_shared_job job;
	int code;

	if (!sh->n)
		return false;
	job = sh->queue[sh->head];
	sh->head = (sh->head + 1) % RSH_SHARED_QUEUE;
	sh->n--;
	pthread_mutex_unlock(&c->lock);
	code = shared_job_do(sh, &job, sh->value);
	pthread_mutex_lock(&c->lock);
	if (!job.block)
		return true;
	sh->n_blocks--;
	shared_count(c, &job.item, code);
	rsh_block_unhold(c, job.block);
	return true;
}

/* Queues the block to be stored or, if it is NULL, its claim to be removed.
 * The lock is held, and may be released meanwhile. */
static void shared_store(struct rsh_cache *c, const struct rsh_item *item,
			 struct rsh_cache_block *b)
{
	struct rsh_shared *sh = c->shared;

	if (sh->n >= RSH_SHARED_QUEUE ||
	    (b && sh->n_blocks >= sh->max_blocks) ||
	    !rsh_worker_kick(&sh->writer)) {
		const struct rsh_shared_job job = shared_job_of(b, item);
		cleanup_free uint8_t *value = NULL;
		int code;

		/* The worker has too much work, and other nodes wait for the
		 * block: this thread stores it. */
		pthread_mutex_unlock(&c->lock);
		if (b)
			value = malloc(RSH_VALUE_HEADER +
				       (size_t)job.item.stored);
		code = shared_job_do(c->shared, &job, value);
		pthread_mutex_lock(&c->lock);
		if (b)
			shared_count(c, &job.item, code);
		return;
	}
	if (b) {
		rsh_block_ref(c, b);
		sh->n_blocks++;
	}
	sh->queue[(sh->head + sh->n++) % RSH_SHARED_QUEUE] =
		shared_job_of(b, item);
}

/* ---- lookup ---- */

static void lookup_name(struct rsh_cache *c, const struct rsh_cache_block *b,
		      const uint64_t file[2], struct rsh_item *item)
{
	const struct rsh_block_key key = rsh_block_key_of(c, b);
	const uint64_t words[5] = {
		key.file.size, key.file.epoch, key.file.step, key.offset,
		key.len,
	};

	*item = (struct rsh_item){
		.state = RSH_ITEM_WANTED, .content = b->mem, .len = key.len,
	};
	rsh_value_digest(file, words, item->digest);
	rsh_value_name(&c->shared->servers->key, item->digest,
		       item->name);
}

/* Sets the servers of the blocks that are WANTED.  Neighbours mostly have the
 * same server. */
static void lookup_place(struct rsh_cache *c, struct rsh_lookup *h)
{
	uint32_t server = RSH_SERVER_NONE;
	uint64_t last = UINT64_MAX;

	for (unsigned i = 0; i < h->n; i++) {
		const uint64_t at = (h->blocks[i] ? h->blocks[i]->number : 0)
				    << c->block_shift;
		const uint64_t group[2] = {
			h->file[0], h->file[1] ^ at / GROUP_BYTES,
		};

		if (h->items[i].state != RSH_ITEM_WANTED)
			continue;
		if (at / GROUP_BYTES != last)
			server = rsh_servers_pick(c->shared->servers, group);
		h->items[i].server = server;
		last = at / GROUP_BYTES;
	}
}

/* Settles the blocks that were found.  The lock is held. */
static void lookup_settle(struct rsh_cache *c, struct rsh_lookup *h)
{
	c->stats.shared_errors += h->errors;
	c->stats.shared_rejected += h->rejected;
	h->errors = h->rejected = 0;
	for (unsigned i = 0; i < h->n; i++) {
		struct rsh_cache_block *b = h->blocks[i];

		if (!b || h->items[i].state != RSH_ITEM_FOUND)
			continue;
		rsh_block_settle(c, b, RSH_BLOCK_PLAIN);
		h->blocks[i] = NULL;
		h->n_found++;
		if (h->items[i].packed)
			rsh_block_keep_packed(c, b, h->items[i].packed,
					      h->items[i].stored);
		free(h->items[i].packed);
		h->items[i].packed = NULL;
		if (rsh_file_is_on_disk(c, b->file))
			rsh_disk_enqueue(c, b, false);
	}
}

/* Looks up the WANTED blocks, and claims those that no node has.  The lock is
 * not held. */
static void lookup_look(struct rsh_cache *c, struct rsh_lookup *h)
{
	const long begin = rsh_blocking_begin();
	bool any = true;

	for (unsigned k = 1; any && k <= SERVERS_TRIED; k++) {
		lookup_place(c, h);
		servers_get(c->shared->servers, h);
		servers_claim(c->shared->servers, h);
		any = false;
		/* Blocks whose server has just failed are looked up on another
		 * one. */
		for (unsigned i = 0; k < SERVERS_TRIED && i < h->n; i++) {
			struct rsh_item *item = &h->items[i];

			if (!h->blocks[i] || item->state != RSH_ITEM_ALONE ||
			    item->server == RSH_SERVER_NONE)
				continue;
			item->state = RSH_ITEM_WANTED;
			any = true;
		}
	}
	rsh_blocking_end(begin);
}

void rsh_lookup_begin(struct rsh_cache *c, struct rsh_cache_block **blocks,
		    unsigned n, struct rsh_lookup *h)
{
	h->n = h->n_found = 0;
	h->errors = h->rejected = 0;
	h->since = h->until = h->pause = 0;
	if (!n || !c->files.shared)
		return;
	memcpy(h->file, c->files.shared[blocks[0]->file], sizeof(h->file));
	if (!h->file[0] && !h->file[1])
		return;
	for (unsigned i = 0; i < n; i++) {
		if (blocks[i]->state != RSH_BLOCK_LOADING)
			continue;
		h->blocks[h->n] = blocks[i];
		lookup_name(c, blocks[i], h->file, &h->items[h->n++]);
	}
	if (!h->n)
		return;
	pthread_mutex_unlock(&c->lock);
	lookup_look(c, h);
	pthread_mutex_lock(&c->lock);
	for (unsigned i = 0; i < h->n; i++)
		c->stats.shared_waits += h->items[i].state == RSH_ITEM_TAKEN;
	lookup_settle(c, h);
}

bool rsh_lookup_is_ours(const struct rsh_lookup *h, const struct rsh_cache_block *b)
{
	for (unsigned i = 0; i < h->n; i++)
		if (h->blocks[i] == b)
			return h->items[i].state != RSH_ITEM_TAKEN;
	return true;
}

void rsh_lookup_loaded(struct rsh_cache *c, struct rsh_lookup *h,
		     struct rsh_cache_block *b, bool good)
{
	for (unsigned i = 0; i < h->n; i++) {
		if (h->blocks[i] != b)
			continue;
		if (h->items[i].state == RSH_ITEM_OURS)
			shared_store(c, &h->items[i], good ? b : NULL);
		h->blocks[i] = NULL;
		h->items[i].state = RSH_ITEM_ALONE;
	}
}

/* ---- waiting ---- */

static bool lookup_has(const struct rsh_lookup *h, bool taken)
{
	return rsh_any(i, h->n,
		       h->blocks[i] &&
		       (h->items[i].state == RSH_ITEM_TAKEN) == taken);
}

/* Returns the minimum time to wait for a claim. */
static uint64_t shared_least_wait(const struct rsh_shared *sh)
{
	return rsh_min_u64(WAIT_LEAST_NS, sh->servers->wait_ns);
}

/* If blocks are not stored in time, because a node has failed or a claim is
 * false, the next wait is half as long.  When a block arrives the wait has its
 * full time again.  The lock is held. */
static void lookup_judge(struct rsh_shared *sh, const struct rsh_lookup *h,
		       unsigned late, bool came)
{
	const uint64_t all = sh->servers->wait_ns;

	if (came)
		sh->wait_ns = all;
	/* Waits at the same time count once. */
	if (!late || h->since < sh->cut_ns)
		return;
	sh->cut_ns = rsh_clock_ns();
	sh->wait_ns = rsh_max_u64(sh->wait_ns / 2, shared_least_wait(sh));
}

bool rsh_lookup_wait(struct rsh_cache *c, struct rsh_lookup *h, bool hasten)
{
	struct rsh_shared *sh = c->shared;
	const unsigned before = h->n_found;
	unsigned late = 0;

	if (!lookup_has(h, true))
		return false;
	if (!h->until) {
		h->since = rsh_clock_ns();
		h->until = h->since + sh->wait_ns;
	}
	pthread_mutex_unlock(&c->lock);
	/* A server that hung and continues processes claims that nodes sent
	 * meanwhile, although these nodes no longer use it. */
	for (unsigned i = 0; i < h->n; i++)
		if (h->blocks[i] && h->items[i].state == RSH_ITEM_TAKEN &&
		    rsh_servers_is_doubtful(sh->servers, h->items[i].server))
			h->until = rsh_min_u64(h->until, h->since +
					       shared_least_wait(sh));
	while (!lookup_has(h, false)) {
		struct timespec t;

		/* End the wait for all claims. */
		if (hasten || rsh_clock_ns() >= h->until) {
			for (unsigned i = 0; i < h->n; i++)
				if (h->items[i].state == RSH_ITEM_TAKEN) {
					h->items[i].state = RSH_ITEM_ALONE;
					late++;
				}
			break;
		}
		h->pause = h->pause ? rsh_min_u64(h->pause + h->pause / 2,
						  PAUSE_LAST_NS) :
				      PAUSE_FIRST_NS;
		t = (struct timespec){ .tv_nsec = (long)h->pause };
		nanosleep(&t, NULL);
		lookup_look(c, h);
	}
	pthread_mutex_lock(&c->lock);
	lookup_settle(c, h);
	c->stats.shared_late += late;
	lookup_judge(sh, h, hasten ? 0 : late, h->n_found > before);
	return true;
}

/* ---- opening and closing ---- */

int rsh_shared_open(struct rsh_cache *c, const struct rsh_cache_options *opts,
		    struct rsh_error *err)
{
	const uint64_t part = c->bound / RSH_SHARED_QUEUE_PART / c->block_bytes;
	struct rsh_shared *sh = calloc(1, sizeof(*sh));
	int rc = 0;

	if (!sh || rsh_worker_init(&sh->writer, c, shared_store_next)) {
		free(sh);
		return rsh_error_nomem(err);
	}
	c->shared = sh;
	sh->max_blocks = part < 1 ? 1 :
			 (uint32_t)rsh_min_u64(part, RSH_SHARED_QUEUE / 2);
	sh->value = malloc(RSH_VALUE_HEADER + (size_t)c->block_bytes);
	if (!sh->value)
		return rsh_error_nomem(err);
	sh->servers = opts->opened;
	sh->is_mine = !sh->servers;
	if (sh->is_mine)
		rc = rsh_cache_servers_open(&opts->servers, &sh->servers, err);
	if (rc)
		return rc;
	sh->servers->largest = c->block_bytes + RSH_VALUE_HEADER;
	sh->wait_ns = sh->servers->wait_ns;
	return 0;
}

void rsh_shared_close(struct rsh_cache *c)
{
	struct rsh_shared *sh = c->shared;

	if (!sh)
		return;
	rsh_worker_destroy(&sh->writer);
	if (sh->is_mine)
		rsh_cache_servers_free(sh->servers);
	free(sh->value);
	free(sh);
}
