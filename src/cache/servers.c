/* SPDX-License-Identifier: Apache-2.0 */
/* cache/servers.c opens servers, and knows which of them can be asked. */
#include "config.h"

#include "requests_i.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "rsh/util/clock.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/secret.h"
#include "rsh/util/thread.h"

#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S UINT64_C(1000000000)

#define DEFAULT_PORT 11211
#define DEFAULT_TIMEOUT_MS 1000
#define DEFAULT_RETRY_SECONDS 10
#define DEFAULT_WAIT_MS 5000

/* The library waits each time anew for a server that answers by drops.  A
 * request as a whole has so many times the time of one wait. */
#define WAITS_PER_REQUEST 2

/* A server has so many connections of this process. */
#define LINKS_MAX 8
/* One that gives so many bad values in a row is taken for a bad one. */
#define LIES_MAX 8

/* A request that is under way. */
struct request {
	LIST_ENTRY(request) list;
	struct rsh_link *link;
	uint64_t until; /* it is to be over by then */
	bool late;
};

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
	uint64_t doubt_until; /* claims there may be nobody's any more */
	unsigned lies;   /* bad values since the last good one */
};

struct rsh_cache_servers {
	/* These do not change. */
	struct rsh_value_key key;
	struct rsh_login login; /* NULLs: none */
	struct rsh_ring *ring;
	unsigned timeout_ms;
	uint64_t retry_ns, wait_ns;
	uint32_t largest;
	uint32_t n;
	struct server *v;

	pthread_mutex_t lock;
	pthread_cond_t freed; /* a link is idle, or one more may be made */
	pthread_cond_t watch; /* what follows has changed */
	bool ready;           /* these three are */
	LIST_HEAD(, request) busy;
	pthread_t watcher;
	bool watched, stop;
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

static int login_take(const char *variable, char **to, struct rsh_error *err)
{
	const char *value = getenv(variable);

	if (!value || !*value)
		return 0;
	*to = rsh_secret_dup(value);
	return *to ? 0 : rsh_error_nomem(err);
}

static int servers_take_login(struct rsh_cache_servers *s,
			      struct rsh_error *err)
{
	struct rsh_login *l = &s->login;
	int rc = login_take("MEMCACHED_USERNAME", &l->name, err);

	if (rc == 0)
		rc = login_take("MEMCACHED_PASSWORD", &l->password, err);
	if (rc || (!l->name && !l->password))
		return rc;
	if (!l->name || !l->password)
		return rsh_error_set(err, EINVAL, "--cache-servers: of "
				     "MEMCACHED_USERNAME and "
				     "MEMCACHED_PASSWORD one is not set");
	return rsh_memcached_login_load(err);
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
		rc = servers_take_login(s, err);
	if (rc == 0)
		rc = servers_take_list(s, o->list, err);
	if (rc)
		return rc;
	if (pthread_mutex_init(&s->lock, NULL) ||
	    rsh_clock_cond_init(&s->freed) || rsh_clock_cond_init(&s->watch))
		return rsh_error_nomem(err);
	s->ready = true;
	return 0;
}

static void servers_end_watch(struct rsh_cache_servers *s)
{
	if (!s->watched)
		return;
	pthread_mutex_lock(&s->lock);
	s->stop = true;
	pthread_cond_signal(&s->watch);
	pthread_mutex_unlock(&s->lock);
	pthread_join(s->watcher, NULL);
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
	servers_end_watch(s);
	for (uint32_t i = 0; i < s->n; i++) {
		for (unsigned k = 0; k < s->v[i].n_idle; k++)
			rsh_link_free(s->v[i].idle[k]);
		free(s->v[i].host);
	}
	free(s->v);
	rsh_ring_free(s->ring);
	rsh_value_key_clear(&s->key);
	rsh_secret_free(s->login.name);
	rsh_secret_free(s->login.password);
	if (s->ready) {
		pthread_cond_destroy(&s->watch);
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

static bool servers_may_ask(struct rsh_cache_servers *s, uint32_t server)
{
	bool good;

	pthread_mutex_lock(&s->lock);
	good = server < s->n && server_may_be_asked(&s->v[server]);
	pthread_mutex_unlock(&s->lock);
	return good;
}

uint32_t rsh_servers_pick(struct rsh_cache_servers *s, const uint64_t group[2])
{
	char name[64];

	/* What a failed server would have, consistent hashing of other names
	 * deals out to the others, on all nodes alike. */
	for (unsigned i = 0; i < 4 * s->n; i++) {
		uint32_t at;

		snprintf(name, sizeof(name), "%016llx%016llx-%u",
			 (unsigned long long)group[0],
			 (unsigned long long)group[1], i);
		at = rsh_ring_find(s->ring, name);
		if (servers_may_ask(s, at))
			return at;
	}
	for (uint32_t i = 0; i < s->n; i++)
		if (servers_may_ask(s, i))
			return i;
	return RSH_SERVER_NONE;
}

/* The lock is held. */
static void server_doubt(const struct rsh_cache_servers *s, struct server *v)
{
	v->doubt_until = rsh_clock_ns() + s->wait_ns;
}

bool rsh_servers_is_doubtful(struct rsh_cache_servers *s, uint32_t server)
{
	bool doubtful;

	pthread_mutex_lock(&s->lock);
	doubtful = server < s->n &&
		   rsh_clock_ns() < s->v[server].doubt_until;
	pthread_mutex_unlock(&s->lock);
	return doubtful;
}

/* Leaves the server alone for a while, and logs one line for all failures until
 * it works again.  The lock is held. */
static void server_stop(struct rsh_cache_servers *s, struct server *v,
			const char *why)
{
	v->off = true;
	v->off_until = rsh_clock_ns() + s->retry_ns;
	server_doubt(s, v);
	if (!v->complained)
		rsh_log_warning("cache server %s:%u: %s; going on without it, "
				"with a new try every %llu s", v->host, v->port,
				why, (unsigned long long)s->retry_ns /
				NS_PER_S);
	v->complained = true;
}

/* The lock is held. */
static void server_works(const struct rsh_cache_servers *s, struct server *v)
{
	if (v->off)
		server_doubt(s, v);
	v->off = false;
	if (!v->complained || v->lies)
		return;
	v->complained = false;
	rsh_log_notice("cache server %s:%u: reachable again", v->host, v->port);
}

void rsh_servers_judge(struct rsh_cache_servers *s, uint32_t server, bool good)
{
	struct server *v = &s->v[server];

	pthread_mutex_lock(&s->lock);
	v->lies = good ? 0 : v->lies + 1;
	if (v->lies >= LIES_MAX)
		server_stop(s, v, "its values are not what was stored");
	else if (good)
		server_works(s, v);
	pthread_mutex_unlock(&s->lock);
}

/* ---- requests ---- */

static struct rsh_link *server_link_new(const struct rsh_cache_servers *s,
					const struct server *v)
{
	return rsh_link_new(v->address, v->port,
			    s->login.name ? &s->login : NULL, s->timeout_ms,
			    s->largest);
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

static const char *request_why(int code)
{
	switch (code) {
	case EKEYREJECTED:
		return "it does not take MEMCACHED_USERNAME and "
		       "MEMCACHED_PASSWORD";
	case EPROTONOSUPPORT:
		return "it knows no SASL, for which MEMCACHED_USERNAME asks";
	default:
		return strerror(code);
	}
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
	if (l && code != ENOSPC && !rsh_request_failed(code)) {
		v->idle[v->n_idle++] = l;
	} else {
		drop[n++] = l;
		v->n_links--;
	}
	if (rsh_request_failed(code))
		server_stop(s, v, request_why(code));
	else
		server_works(s, v);
	/* What is idle may be as dead. */
	while (rsh_request_failed(code) && v->n_idle) {
		drop[n++] = v->idle[--v->n_idle];
		v->n_links--;
	}
	pthread_cond_broadcast(&s->freed);
	pthread_mutex_unlock(&s->lock);
	while (n)
		rsh_link_free(drop[--n]);
}

/* Ends requests that take too long. */
static void *servers_watch(void *arg)
{
	struct rsh_cache_servers *s = arg;
	const uint64_t pause = s->timeout_ms * NS_PER_MS / 4;
	struct request *r;

	pthread_mutex_lock(&s->lock);
	while (!s->stop) {
		const uint64_t now = rsh_clock_ns();

		if (LIST_EMPTY(&s->busy)) {
			pthread_cond_wait(&s->watch, &s->lock);
			continue;
		}
		LIST_FOREACH(r, &s->busy, list) {
			if (r->late || now < r->until)
				continue;
			r->late = true;
			rsh_link_hurry(r->link);
		}
		rsh_clock_wait(&s->watch, &s->lock, now + pause);
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

/* Without a thread it is the library alone that bounds requests.  The lock is
 * held. */
static void servers_begin_watch(struct rsh_cache_servers *s)
{
	if (!s->watched)
		s->watched = rsh_thread_start(&s->watcher, servers_watch,
					      s) == 0;
}

/* Makes a request by this link. */
static int link_request(struct rsh_cache_servers *s, struct rsh_link *l,
			rsh_link_request_fn *fn, void *ctx)
{
	struct request r = {
		.link = l,
		.until = rsh_clock_ns() +
			 WAITS_PER_REQUEST * s->timeout_ms * NS_PER_MS,
	};
	int code;

	pthread_mutex_lock(&s->lock);
	servers_begin_watch(s);
	if (LIST_EMPTY(&s->busy))
		pthread_cond_signal(&s->watch);
	LIST_INSERT_HEAD(&s->busy, &r, list);
	pthread_mutex_unlock(&s->lock);
	code = fn(l, ctx);
	pthread_mutex_lock(&s->lock);
	LIST_REMOVE(&r, list);
	pthread_mutex_unlock(&s->lock);
	return r.late ? ETIMEDOUT : code;
}

int rsh_servers_request(struct rsh_cache_servers *s, uint32_t server,
			rsh_link_request_fn *fn, void *ctx)
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
	code = link_request(s, l, fn, ctx);
	if (used && rsh_request_failed(code) && code != ETIMEDOUT) {
		rsh_link_free(l);
		l = server_link_new(s, v);
		code = l ? link_request(s, l, fn, ctx) : ENOMEM;
	}
	server_leave(s, v, l, code);
	return code;
}
