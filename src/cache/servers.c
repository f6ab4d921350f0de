/* SPDX-License-Identifier: Apache-2.0 */
/* cache/servers.c opens servers, and knows which of them can be asked. */
#include "config.h"

#include "servers_i.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memcached_i.h"
#include "rsh/util/clock.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"

#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S UINT64_C(1000000000)

#define DEFAULT_PORT 11211
#define DEFAULT_TIMEOUT_MS 1000
#define DEFAULT_RETRY_SECONDS 10
#define DEFAULT_WAIT_MS 5000

/* A claim ends by itself when its holder dies.  It outlasts the wait of
 * others. */
#define LEASE_SECONDS 10

/* A server has so many connections of this process. */
#define LINKS_MAX 8
/* One that gives so many bad values in a row is taken for a bad one. */
#define LIES_MAX 8

struct server {
	char *host;
	uint16_t port;
	char address[INET6_ADDRSTRLEN]; /* empty: the name is not known */

	/* The lock guards these. */
	struct rsh_link *idle[LINKS_MAX];
	unsigned n_idle, n_links;
	bool off;        /* it is left alone until `off_until` */
	bool probing;    /* somebody tries whether it works again */
	bool complained; /* since it last worked */
	uint64_t off_until;
	unsigned lies;   /* bad values since the last good one */
};

struct rsh_cache_servers {
	/* These do not change. */
	struct rsh_value_key key;
	struct rsh_ring *ring;
	unsigned timeout_ms;
	uint64_t retry_ns, wait_ns;
	uint32_t largest;
	uint32_t n;
	struct server *v;

	pthread_mutex_t lock;
	pthread_cond_t freed; /* a link is idle, or one more may be made */
	bool ready;           /* these two are */
};

/* ---- the list ---- */

/* Takes the next server off the list.  Returns false at its end. */
static bool list_next(const char **list, char host[NI_MAXHOST], unsigned *port,
		      bool *good)
{
	const char *at = *list, *end, *colon;
	size_t n;

	if (!at)
		return false;
	end = strchrnul(at, ',');
	*list = *end ? end + 1 : NULL;
	colon = memchr(at, ']', (size_t)(end - at));
	colon = memchr(colon ? colon : at, ':',
		       (size_t)(end - (colon ? colon : at)));
	n = (size_t)((colon ? colon : end) - at);
	if (n >= 2 && *at == '[' && at[n - 1] == ']') {
		at++;
		n -= 2;
	}
	*good = n > 0 && n < NI_MAXHOST && !memchr(at, '/', n);
	if (*good) {
		memcpy(host, at, n);
		host[n] = '\0';
	}
	*port = DEFAULT_PORT;
	if (colon) {
		char *stop;

		*port = (unsigned)strtoul(colon + 1, &stop, 10);
		*good &= colon[1] >= '1' && colon[1] <= '9' && stop == end &&
			 *port <= UINT16_MAX;
	}
	return true;
}

static int list_count(const char *list, uint32_t *n, struct rsh_error *err)
{
	const char *at = list;
	char host[NI_MAXHOST];
	unsigned port;
	bool good;

	*n = 0;
	while (list_next(&at, host, &port, &good)) {
		if (!good)
			return rsh_error_set(err, EINVAL, "--cache-servers: "
					     "\"%s\" is no list of HOST[:PORT]",
					     list);
		++*n;
	}
	return *n <= RSH_CACHE_SERVERS_MAX ? 0 :
	       rsh_error_set(err, EINVAL, "--cache-servers: more than %d",
			     RSH_CACHE_SERVERS_MAX);
}

int rsh_cache_servers_check(const char *list, struct rsh_error *err)
{
	uint32_t n;
	int rc = list_count(list, &n, err);

	return rc ? rc : rsh_memcached_load(err);
}

/* ---- opening ---- */

/* Names are looked up once: it can take longer than a reader may wait. */
static void server_find_address(struct server *v)
{
	const struct addrinfo how = { .ai_socktype = SOCK_STREAM };
	struct addrinfo *found = NULL;
	int rc = getaddrinfo(v->host, NULL, &how, &found);

	if (rc == 0)
		rc = getnameinfo(found->ai_addr, found->ai_addrlen, v->address,
				 sizeof(v->address), NULL, 0, NI_NUMERICHOST);
	if (found)
		freeaddrinfo(found);
	if (rc == 0)
		return;
	*v->address = '\0';
	rsh_log_warning("cache server %s: %s; going on without it", v->host,
			gai_strerror(rc));
}

static int servers_take_list(struct rsh_cache_servers *s, const char *list,
			     struct rsh_error *err)
{
	uint32_t n;
	char host[NI_MAXHOST];
	unsigned port;
	bool good;
	int rc = list_count(list, &n, err);

	if (rc)
		return rc;
	s->ring = rsh_ring_new();
	s->v = calloc(n, sizeof(*s->v));
	if (!s->ring || !s->v)
		return rsh_error_nomem(err);
	while (list_next(&list, host, &port, &good)) {
		struct server *v = &s->v[s->n++];

		v->port = (uint16_t)port;
		v->host = strdup(host);
		if (!v->host || rsh_ring_add(s->ring, host, v->port))
			return rsh_error_nomem(err);
		server_find_address(v);
	}
	return 0;
}

static int servers_init(struct rsh_cache_servers *s,
			const struct rsh_cache_servers_options *o,
			struct rsh_error *err)
{
	int rc = rsh_memcached_load(err);

	s->timeout_ms = o->timeout_ms ? o->timeout_ms : DEFAULT_TIMEOUT_MS;
	s->retry_ns = NS_PER_S * (o->retry_seconds ? o->retry_seconds :
						     DEFAULT_RETRY_SECONDS);
	s->wait_ns = NS_PER_MS * (o->wait_ms ? o->wait_ms : DEFAULT_WAIT_MS);
	if (rc == 0)
		rc = rsh_value_key_read(o->key_file, &s->key, err);
	if (rc == 0)
		rc = servers_take_list(s, o->list, err);
	if (rc)
		return rc;
	if (pthread_mutex_init(&s->lock, NULL))
		return rsh_error_nomem(err);
	if (rsh_clock_cond_init(&s->freed)) {
		pthread_mutex_destroy(&s->lock);
		return rsh_error_nomem(err);
	}
	s->ready = true;
	return 0;
}

int rsh_cache_servers_open(const struct rsh_cache_servers_options *opts,
			   struct rsh_cache_servers **out,
			   struct rsh_error *err)
{
	struct rsh_cache_servers *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return rsh_error_nomem(err);
	rc = servers_init(s, opts, err);
	if (rc) {
		rsh_cache_servers_free(s);
		return rc;
	}
	*out = s;
	return 0;
}

void rsh_cache_servers_free(struct rsh_cache_servers *s)
{
	if (!s)
		return;
	for (uint32_t i = 0; i < s->n; i++) {
		for (unsigned k = 0; k < s->v[i].n_idle; k++)
			rsh_link_free(s->v[i].idle[k]);
		free(s->v[i].host);
	}
	free(s->v);
	rsh_ring_free(s->ring);
	rsh_value_key_clear(&s->key);
	if (s->ready) {
		pthread_cond_destroy(&s->freed);
		pthread_mutex_destroy(&s->lock);
	}
	free(s);
}

uint16_t rsh_cache_servers_port(const struct rsh_cache_servers *s, size_t i)
{
	return i < s->n ? s->v[i].port : 0;
}

void rsh_servers_begin(struct rsh_cache_servers *s, uint32_t largest)
{
	s->largest = largest + RSH_VALUE_HEADER;
}

uint64_t rsh_servers_wait_ns(const struct rsh_cache_servers *s)
{
	return s->wait_ns;
}

const struct rsh_value_key *rsh_servers_key(const struct rsh_cache_servers *s)
{
	return &s->key;
}

/* ---- which can be asked ---- */

/* The lock is held. */
static bool server_may_be_asked(const struct server *v)
{
	return *v->address &&
	       (!v->off || (!v->probing && rsh_clock_ns() >= v->off_until));
}

uint32_t rsh_servers_pick(struct rsh_cache_servers *s, const uint64_t group[2])
{
	char name[64];

	/* What a failed server would have, consistent hashing of other names
	 * deals out to the others, on all nodes alike. */
	for (unsigned i = 0; i < 4 * s->n; i++) {
		uint32_t at;
		bool good;

		snprintf(name, sizeof(name), "%016llx%016llx-%u",
			 (unsigned long long)group[0],
			 (unsigned long long)group[1], i);
		at = rsh_ring_find(s->ring, name);
		pthread_mutex_lock(&s->lock);
		good = at < s->n && server_may_be_asked(&s->v[at]);
		pthread_mutex_unlock(&s->lock);
		if (good)
			return at;
	}
	return RSH_SERVER_NONE;
}

/* Leaves the server alone for a while, and logs one line for all failures until
 * it works again.  The lock is held. */
static void server_stop(struct rsh_cache_servers *s, struct server *v,
			const char *why)
{
	v->off = true;
	v->off_until = rsh_clock_ns() + s->retry_ns;
	if (!v->complained)
		rsh_log_warning("cache server %s:%u: %s; going on without it, "
				"with a new try every %llu s", v->host, v->port,
				why, (unsigned long long)s->retry_ns /
				NS_PER_S);
	v->complained = true;
}

/* The lock is held. */
static void server_works(struct server *v)
{
	v->off = false;
	if (!v->complained || v->lies)
		return;
	v->complained = false;
	rsh_log_notice("cache server %s:%u: reachable again", v->host, v->port);
}

/* Notes whether the server gave what was stored. */
static void server_judge(struct rsh_cache_servers *s, struct server *v,
			 bool good)
{
	pthread_mutex_lock(&s->lock);
	v->lies = good ? 0 : v->lies + 1;
	if (v->lies >= LIES_MAX)
		server_stop(s, v, "its values are not what was stored");
	else if (good)
		server_works(v);
	pthread_mutex_unlock(&s->lock);
}

/* ---- requests ---- */

typedef int link_request_fn(struct rsh_link *l, void *ctx);

static struct rsh_link *server_link_new(const struct rsh_cache_servers *s,
					const struct server *v)
{
	return rsh_link_new(v->address, v->port, s->timeout_ms, s->largest);
}

/* Takes a link, which *used tells to have served before.  NULL: the server is
 * not to be asked, or its links are in use for too long. */
static struct rsh_link *server_enter(struct rsh_cache_servers *s,
				     struct server *v, bool *used)
{
	const uint64_t until = rsh_clock_ns() + s->timeout_ms * NS_PER_MS;
	struct rsh_link *l = NULL;
	bool may, late = false;

	pthread_mutex_lock(&s->lock);
	for (;;) {
		may = !late && server_may_be_asked(v);
		if (!may || v->n_idle || v->n_links < LINKS_MAX)
			break;
		late = rsh_clock_wait(&s->freed, &s->lock, until) == ETIMEDOUT;
	}
	*used = may && v->n_idle;
	if (*used)
		l = v->idle[--v->n_idle];
	else if (may)
		v->n_links++;
	if (may && v->off)
		v->probing = true;
	pthread_mutex_unlock(&s->lock);
	if (!may || l)
		return l;
	l = server_link_new(s, v);
	if (l)
		return l;
	pthread_mutex_lock(&s->lock);
	v->n_links--;
	v->probing = false;
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

static bool is_failure(int code)
{
	return code && code != EEXIST && code != ENOSPC;
}

/* Gives the link back, or NULL for one that was closed, and tells what came of
 * the request. */
static void server_leave(struct rsh_cache_servers *s, struct server *v,
			 struct rsh_link *l, int code)
{
	struct rsh_link *drop[LINKS_MAX];
	unsigned n = 0;

	pthread_mutex_lock(&s->lock);
	v->probing = false;
	if (l && code != ENOSPC && !is_failure(code)) {
		v->idle[v->n_idle++] = l;
	} else {
		drop[n++] = l;
		v->n_links--;
	}
	if (is_failure(code))
		server_stop(s, v, strerror(code));
	else
		server_works(v);
	/* What is idle may be as dead. */
	while (is_failure(code) && v->n_idle) {
		drop[n++] = v->idle[--v->n_idle];
		v->n_links--;
	}
	pthread_cond_broadcast(&s->freed);
	pthread_mutex_unlock(&s->lock);
	while (n)
		rsh_link_free(drop[--n]);
}

/* Makes a request, once more if the server has closed a link that was idle, as
 * one does that was restarted.  Returns 0 or a positive errno: EAGAIN if the
 * server was not asked. */
static int server_request(struct rsh_cache_servers *s, uint32_t server,
			  link_request_fn *fn, void *ctx)
{
	struct server *v;
	struct rsh_link *l;
	bool used;
	int code;

	if (server >= s->n)
		return EAGAIN;
	v = &s->v[server];
	l = server_enter(s, v, &used);
	if (!l)
		return EAGAIN;
	code = fn(l, ctx);
	if (used && is_failure(code) && code != ETIMEDOUT) {
		rsh_link_free(l);
		l = server_link_new(s, v);
		code = l ? fn(l, ctx) : ENOMEM;
	}
	server_leave(s, v, l, code);
	return code;
}

/* ---- items ---- */

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

static void item_take_value(const struct share *sh, struct rsh_item *item,
			    const uint8_t *value, size_t n)
{
	const size_t lease = strlen(RSH_VALUE_LEASE);

	if (n == lease && memcmp(value, RSH_VALUE_LEASE, lease) == 0) {
		item->state = RSH_ITEM_TAKEN;
	} else if (rsh_value_check(&sh->servers->key, item->digest, value, n,
				   item->len)) {
		memcpy(item->content, value + RSH_VALUE_HEADER, item->len);
		item->state = RSH_ITEM_FOUND;
	} else {
		item->refused = true;
	}
}

static void share_take_value(void *ctx, const char *name, size_t n_name,
			     const uint8_t *value, size_t n)
{
	const struct share *sh = ctx;

	for (size_t i = 0; i < sh->n; i++) {
		struct rsh_item *item = &sh->items[i];

		if (item->server == sh->server &&
		    item->state == RSH_ITEM_FREE &&
		    strlen(item->name) == n_name &&
		    memcmp(item->name, name, n_name) == 0)
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

/* Says of each of the share's items what the answer means for it. */
static void share_settle(struct share *sh, int code,
			 struct rsh_servers_tally *tally)
{
	struct server *v = &sh->servers->v[sh->server];

	tally->errors += is_failure(code) && code != EAGAIN;
	for (size_t i = 0; i < sh->n; i++) {
		struct rsh_item *item = &sh->items[i];

		if (item->server != sh->server)
			continue;
		if (item->refused) {
			server_judge(sh->servers, v, false);
			tally->rejected++;
			server_request(sh->servers, sh->server, item_remove,
				       item);
			item->refused = false;
		}
		if (code && item->state != RSH_ITEM_FOUND &&
		    item->state != RSH_ITEM_OURS)
			item->state = RSH_ITEM_ALONE;
	}
}

static bool share_found(const struct share *sh)
{
	for (size_t i = 0; i < sh->n; i++)
		if (sh->items[i].server == sh->server &&
		    sh->items[i].state == RSH_ITEM_FOUND)
			return true;
	return false;
}

void rsh_servers_get(struct rsh_cache_servers *s, struct rsh_item *items,
		     size_t n, struct rsh_servers_tally *tally)
{
	for (size_t i = 0; i < n; i++) {
		struct share sh = { s, items, n, items[i].server,
				    RSH_ITEM_WANTED };
		int code;

		if (!share_has(&sh, &items[i]))
			continue;
		if (items[i].server == RSH_SERVER_NONE) {
			items[i].state = RSH_ITEM_ALONE;
			continue;
		}
		code = server_request(s, sh.server, share_get, &sh);
		share_settle(&sh, code, tally);
		if (share_found(&sh))
			server_judge(s, &s->v[sh.server], true);
	}
}

void rsh_servers_claim(struct rsh_cache_servers *s, struct rsh_item *items,
		       size_t n, struct rsh_servers_tally *tally)
{
	for (size_t i = 0; i < n; i++) {
		int code;

		if (items[i].state != RSH_ITEM_FREE)
			continue;
		code = server_request(s, items[i].server, item_claim,
				      &items[i]);
		tally->errors += is_failure(code) && code != EAGAIN;
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
			      (size_t)RSH_VALUE_HEADER + p->item->len, 0,
			      false);
}

int rsh_servers_put(struct rsh_cache_servers *s, const struct rsh_item *item,
		    const uint8_t *value)
{
	struct put p = { item, value };

	return server_request(s, item->server, item_put, &p);
}

void rsh_servers_release(struct rsh_cache_servers *s,
			 const struct rsh_item *item)
{
	struct rsh_item copy = *item;

	server_request(s, item->server, item_remove, &copy);
}
