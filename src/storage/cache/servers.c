/* SPDX-License-Identifier: Apache-2.0 */
/* storage/cache/servers.c opens servers, keeps their state and their
 * connections. */
#include "config.h"

#include "cache_i.h"

#include <endian.h>
#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/clock.h"
#include "rsh/util/log.h"
#include "rsh/util/thread.h"
#include "rsh/util/xxh3.h"

#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S UINT64_C(1000000000)

#define DEFAULT_PORT 11211
#define DEFAULT_TIMEOUT_MS 1000
#define DEFAULT_RETRY_SECONDS 10
#define DEFAULT_WAIT_MS 5000

/* Connections of this process to one server. */
#define LINKS_MAX 8
/* After this many bad values in a row a server counts as failed. */
#define BAD_VALUES_MAX 8

struct rsh_cache_server {
	char *host;
	uint16_t port;
	struct rsh_address address;
	uint64_t id; /* the same on all nodes */

	/* The lock guards these. */
	struct rsh_link *idle[LINKS_MAX];
	unsigned n_idle, n_links;
	bool off;        /* it is not used until `off_until` */
	bool probing;    /* a thread tries whether it works again */
	bool complained; /* since it last worked */
	/* The request with an unexpected answer; the server works again when
	 * such a request succeeds.  NULL: any request. */
	rsh_link_request_fn *failed_at;
	uint64_t off_until;
	uint64_t doubt_until; /* claims there may be stale */
	unsigned n_bad;   /* bad values since the last good one */
};

/* ---- the list ---- */

/* Parses the next server of the list.  Returns false at its end. */
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

/* ---- opening ---- */

static int server_take(struct rsh_cache_server *v, const char *host, unsigned port)
{
	const struct addrinfo how = {
		.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV,
	};
	struct addrinfo *found = NULL;
	char text[NI_MAXHOST + 16];
	int rc;

	v->port = (uint16_t)port;
	v->host = strdup(host);
	if (!v->host)
		return -ENOMEM;
	snprintf(text, sizeof(text), "%s:%u", host, port);
	v->id = XXH3_64bits(text, strlen(text));
	/* Names are resolved once: it can take longer than a reader may
	 * wait. */
	rc = getaddrinfo(host, strrchr(text, ':') + 1, &how, &found);
	if (rc) {
		rsh_log_warning("cache server %s: %s; it is not used",
				host, gai_strerror(rc));
		return 0;
	}
	v->address.len = found->ai_addrlen;
	memcpy(&v->address.at, found->ai_addr, found->ai_addrlen);
	freeaddrinfo(found);
	return 0;
}

/* Takes the servers of a list; `s` NULL: it is only checked. */
static int servers_take_list(struct rsh_cache_servers *s, const char *list,
			     struct rsh_error *err)
{
	const char *at = list;
	char host[NI_MAXHOST];
	unsigned port, n = 0;
	bool good;

	while (list_next(&at, host, &port, &good)) {
		if (!good)
			return rsh_error_set(err, EINVAL, "--cache-servers: "
					     "\"%s\" is not a list of "
					     "HOST[:PORT]", list);
		if (++n <= RSH_CACHE_SERVERS_MAX && s &&
		    server_take(&s->v[s->n++], host, port))
			return rsh_error_nomem(err);
	}
	return n <= RSH_CACHE_SERVERS_MAX ? 0 :
	       rsh_error_set(err, EINVAL, "--cache-servers: more than %d "
			     "servers", RSH_CACHE_SERVERS_MAX);
}

int rsh_cache_servers_check(const char *list, struct rsh_error *err)
{
	return servers_take_list(NULL, list, err);
}

/* Earlier versions logged in, and then used only servers that want it. */
static int servers_check_no_login(struct rsh_error *err)
{
	static const char *const names[] = {
		"MEMCACHED_USERNAME", "MEMCACHED_PASSWORD",
	};

	for (size_t i = 0; i < 2; i++) {
		const char *value = getenv(names[i]);

		if (value && *value)
			return rsh_error_set(err, EINVAL, "--cache-servers: %s "
				"is set, but servers with a login (SASL) are "
				"not supported: unset it, start memcached "
				"without -S, and use --cache-key-file", names[i]);
	}
	return 0;
}

static int servers_init(struct rsh_cache_servers *s,
			const struct rsh_cache_servers_options *o,
			struct rsh_error *err)
{
	int rc;

	s->timeout_ms = o->timeout_ms ? o->timeout_ms : DEFAULT_TIMEOUT_MS;
	s->retry_ns = NS_PER_S * (o->retry_seconds ? o->retry_seconds :
						     DEFAULT_RETRY_SECONDS);
	s->wait_ns = NS_PER_MS * (o->wait_ms ? o->wait_ms : DEFAULT_WAIT_MS);
	s->v = calloc(RSH_CACHE_SERVERS_MAX, sizeof(*s->v));
	if (!s->v)
		return rsh_error_nomem(err);
	rc = servers_check_no_login(err) ?:
	     rsh_value_key_read(o->key_file, &s->key, err) ?:
	     servers_take_list(s, o->list, err);
	if (rc)
		return rc;
	if (pthread_mutex_init(&s->lock, NULL) ||
	    rsh_clock_cond_init(&s->freed))
		return rsh_error_nomem(err);
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

/* ---- which are used ---- */

/* The lock is held. */
static bool server_may_be_asked(const struct rsh_cache_server *v)
{
	return v->address.len &&
	       (!v->off || (!v->probing && rsh_clock_ns() >= v->off_until));
}

/* The server with the greatest weight stores the group (rendezvous hashing).
 * So the groups of a failed server go to all others evenly, and no other group
 * moves. */
static uint64_t server_weight(const struct rsh_cache_server *v, const uint64_t group[2])
{
	const uint64_t words[3] = {
		htole64(group[0]), htole64(group[1]), htole64(v->id),
	};

	return XXH3_64bits(words, sizeof(words));
}

uint32_t rsh_servers_pick(struct rsh_cache_servers *s, const uint64_t group[2])
{
	uint32_t best = RSH_SERVER_NONE;
	uint64_t most = 0;

	rsh_hold_lock(&s->lock);
	for (uint32_t i = 0; i < s->n; i++) {
		const uint64_t weight = server_weight(&s->v[i], group);

		if (!server_may_be_asked(&s->v[i]) ||
		    (best != RSH_SERVER_NONE && weight <= most))
			continue;
		best = i;
		most = weight;
	}
	return best;
}

bool rsh_servers_is_doubtful(struct rsh_cache_servers *s, uint32_t server)
{
	rsh_hold_lock(&s->lock);
	return server < s->n && rsh_clock_ns() < s->v[server].doubt_until;
}

/* Stops using the server for a while, and logs one line for all failures until
 * it works again.  The lock is held. */
static void server_stop(struct rsh_cache_servers *s, struct rsh_cache_server *v,
			const char *why)
{
	v->off = true;
	v->off_until = rsh_clock_ns() + s->retry_ns;
	v->doubt_until = rsh_clock_ns() + s->wait_ns;
	if (!v->complained)
		rsh_log_warning("cache server %s:%u: %s; it is not used, "
				"with a retry every %llu s", v->host, v->port,
				why, (unsigned long long)s->retry_ns /
				NS_PER_S);
	v->complained = true;
}

/* Notes that a request succeeded; NULL: one that returned a correct value.  The
 * lock is held. */
static void server_works(const struct rsh_cache_servers *s, struct rsh_cache_server *v,
			 rsh_link_request_fn *fn)
{
	if (v->off)
		v->doubt_until = rsh_clock_ns() + s->wait_ns;
	v->off = false;
	if (!v->complained || v->n_bad || (v->failed_at && v->failed_at != fn))
		return;
	v->complained = false;
	v->failed_at = NULL;
	rsh_log_notice("cache server %s:%u: reachable again", v->host, v->port);
}

void rsh_servers_judge(struct rsh_cache_servers *s, uint32_t server, bool good)
{
	struct rsh_cache_server *v = &s->v[server];

	rsh_hold_lock(&s->lock);
	v->n_bad = good ? 0 : v->n_bad + 1;
	if (v->n_bad >= BAD_VALUES_MAX)
		server_stop(s, v, "it returns wrong values");
	else if (good && !v->off)
		server_works(s, v, NULL);
}

/* ---- requests ---- */

/* The use of a link by one request. */
struct visit {
	struct rsh_link *link;
	bool used;   /* the link has served a request before */
	bool probes; /* the request tries a failed server */
};

/* Takes a link.  Returns false if the server is not used, or if its links are
 * in use for too long. */
static bool server_enter(struct rsh_cache_servers *s, struct rsh_cache_server *v,
			 struct visit *out)
{
	const uint64_t until = rsh_clock_ns() + s->timeout_ms * NS_PER_MS;
	bool may, late = false;

	*out = (struct visit){ 0 };
	rsh_hold_lock(&s->lock);
	for (;;) {
		may = !late && server_may_be_asked(v);
		if (!may || v->n_idle || v->n_links < LINKS_MAX)
			break;
		late = rsh_clock_wait(&s->freed, &s->lock, until) == ETIMEDOUT;
	}
	out->used = may && v->n_idle;
	if (out->used)
		out->link = v->idle[--v->n_idle];
	else if (may)
		out->link = rsh_link_new(-1, s->timeout_ms, s->largest);
	v->n_links += out->link && !out->used;
	out->probes = out->link && v->off;
	v->probing |= out->probes;
	return out->link;
}

static const char *request_why(int code)
{
	switch (code) {
	case EPROTO:
		return "its answer is not memcached's protocol";
	case EREMOTEIO:
		return "it reports an error";
	default:
		return strerror(code);
	}
}

/* Returns the link, NULL if it was closed, and notes the result of the
 * request. */
static void server_leave(struct rsh_cache_servers *s, struct rsh_cache_server *v,
			 const struct visit *visit, rsh_link_request_fn *fn,
			 int code)
{
	struct rsh_link *l = visit->link;
	const bool failed = rsh_request_failed(code);
	struct rsh_link *drop[LINKS_MAX];
	unsigned n = 0;

	pthread_mutex_lock(&s->lock);
	v->probing &= !visit->probes;
	if (failed) {
		if (code == EPROTO || code == EREMOTEIO)
			v->failed_at = fn;
		server_stop(s, v, request_why(code));
	} else if (!v->off || visit->probes) {
		/* A request that began before the failure does not show that
		 * the server works again. */
		server_works(s, v, fn);
	}
	if (l && code != ENOSPC && !failed) {
		v->idle[v->n_idle++] = l;
	} else {
		drop[n++] = l;
		v->n_links--;
	}
	/* Idle links may be dead as well. */
	while (failed && v->n_idle) {
		drop[n++] = v->idle[--v->n_idle];
		v->n_links--;
	}
	pthread_cond_broadcast(&s->freed);
	pthread_mutex_unlock(&s->lock);
	while (n)
		rsh_link_free(drop[--n]);
}

int rsh_servers_request(struct rsh_cache_servers *s, uint32_t server,
			rsh_link_request_fn *fn, void *ctx)
{
	struct rsh_cache_server *v;
	struct visit visit;
	int code;

	if (server >= s->n)
		return EAGAIN;
	v = &s->v[server];
	if (!server_enter(s, v, &visit))
		return EAGAIN;
	code = rsh_link_begin(visit.link, &v->address) ?: fn(visit.link, ctx);
	if (visit.used && rsh_request_failed(code) && code != ETIMEDOUT) {
		rsh_link_free(visit.link);
		visit.link = rsh_link_new(-1, s->timeout_ms, s->largest);
		code = visit.link ? rsh_link_begin(visit.link, &v->address) ?:
				    fn(visit.link, ctx) : ENOMEM;
	}
	server_leave(s, v, &visit, fn, code);
	return code;
}
