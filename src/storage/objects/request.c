/* SPDX-License-Identifier: Apache-2.0 */
/* storage/objects/request.c waits for single requests, gets complete bodies,
 * and looks up names of servers outside the sandbox.  Inside, libc opens only
 * the files /etc/hosts and resolv.conf that were there when the mount began,
 * not those that have replaced them. */
#include "config.h"

#include "objects_i.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/clock.h"
#include "rsh/util/text.h"

#define MS UINT64_C(1000000)
/* libcurl keeps addresses for this time too. */
#define NAMES_KEPT_NS (UINT64_C(300) * 1000000000)
#define NAMES_SERVER_MAX 300
#define NAMES_ADDRESSES_MAX 1024

int rsh_objects_look_up(const char *host, char *to, size_t size)
{
	const struct addrinfo how = { .ai_socktype = SOCK_STREAM };
	struct addrinfo *found = NULL;
	size_t at = 0;

	if (getaddrinfo(host, NULL, &how, &found) != 0)
		return -EHOSTUNREACH;
	for (const struct addrinfo *a = found; a; a = a->ai_next) {
		const void *v4 = &((struct sockaddr_in *)a->ai_addr)->sin_addr;
		const void *v6 =
			&((struct sockaddr_in6 *)a->ai_addr)->sin6_addr;
		char text[INET6_ADDRSTRLEN];

		if (inet_ntop(a->ai_family, a->ai_family == AF_INET ? v4 : v6,
			      text, sizeof(text)) &&
		    at + strlen(text) + 2 < size)
			rsh_text_add(to, size, &at, "%s%s", at ? "," : "",
				     text);
	}
	freeaddrinfo(found);
	return at ? 0 : -EHOSTUNREACH;
}

/* Writes HOST:PORT of an address, and returns the length of the host; 0 if
 * there is no name. */
static size_t names_server(const char *address, const char *proxy,
			   char server[NAMES_SERVER_MAX])
{
	const bool is_tls = !strncmp(address, "https:", 6);
	const uint16_t usual = proxy ? 1080 : is_tls ? 443 : 80;
	const char *host = strstr(address, "://");
	struct in_addr unused;
	uint16_t port;
	size_t n, n_host;

	host = host ? host + 3 : address;
	n = strcspn(host, "/?");
	n_host = strcspn(host, ":/?");
	if (*host == '[' || n + 8 > NAMES_SERVER_MAX ||
	    !rsh_object_port(host, n, usual, &port))
		return 0;
	snprintf(server, NAMES_SERVER_MAX, "%.*s", (int)n_host, host);
	if (inet_pton(AF_INET, server, &unused) == 1)
		return 0;
	snprintf(server + n_host, NAMES_SERVER_MAX - n_host, ":%u", port);
	return n_host;
}

/* Returns the entry of a server, or the oldest one, which it gets. */
static struct object_name *names_entry(struct rsh_objects *o,
				       const char *server)
{
	struct object_name *oldest = o->names;

	for (size_t i = 0; i < OBJECT_NAMES; i++) {
		struct object_name *n = &o->names[i];

		if (n->server && !strcmp(n->server, server))
			return n;
		if (n->asked < oldest->asked)
			oldest = n;
	}
	free(oldest->server);
	free(oldest->addresses);
	*oldest = (struct object_name){ .server = strdup(server) };
	return oldest->server ? oldest : NULL;
}

/* Looks up the server of an address, or of the proxy unless that is NULL, if it
 * was not looked up since that time; 0: not in the last minutes.  Without an
 * opener, or if the lookup fails, libcurl looks up the name. */
static void names_look_up(struct rsh_objects *o, const char *address,
			  const char *proxy, uint64_t since)
{
	char server[NAMES_SERVER_MAX], host[NAMES_SERVER_MAX];
	char addresses[NAMES_ADDRESSES_MAX];
	const uint64_t now = rsh_clock_ns();
	const size_t n =
		o->opener.look_up ? names_server(proxy ? proxy : address, proxy,
						 server) : 0;
	struct object_name *entry;
	bool due;

	if (!n)
		return;
	if (!since && now > NAMES_KEPT_NS)
		since = now - NAMES_KEPT_NS;
	/* Only one thread looks up; the others use the addresses that are
	 * known. */
	pthread_mutex_lock(&o->lock);
	entry = names_entry(o, server);
	due = entry && (!entry->asked || entry->asked < since);
	if (due)
		entry->asked = rsh_clock_ns();
	pthread_mutex_unlock(&o->lock);
	memcpy(host, server, n);
	host[n] = '\0';
	if (!due || o->opener.look_up(o->opener.ctx, host, addresses,
				      sizeof(addresses)))
		return;
	pthread_mutex_lock(&o->lock);
	entry = names_entry(o, server);
	if (entry) {
		free(entry->addresses);
		entry->addresses = strdup(addresses);
	}
	pthread_mutex_unlock(&o->lock);
}

void rsh_object_names_clear(struct rsh_objects *o)
{
	for (size_t i = 0; i < OBJECT_NAMES; i++) {
		free(o->names[i].server);
		free(o->names[i].addresses);
	}
}

/* ---- requests ---- */

uint64_t rsh_object_deadline(const struct rsh_objects *o)
{
	return rsh_clock_ns() + o->timeout_ms * MS;
}

static int request_carry_out(struct rsh_objects *o, struct object_request *q)
{
	int rc = rsh_object_submit(o, q);

	return rc ? rsh_error_nomem(&q->err) : rsh_object_wait(q);
}

int rsh_object_once(struct rsh_objects *o, struct object_request *q)
{
	const char *proxy = q->direct ? NULL : o->proxy;
	const uint64_t now = rsh_clock_ns();
	const bool was_lost = q->is_lost;
	int rc;

	names_look_up(o, q->address, proxy, 0);
	rc = request_carry_out(o, q);
	if (was_lost || !q->is_lost || !rc)
		return rc;
	names_look_up(o, q->lost,
		      proxy && !strcmp(q->lost, proxy) ? proxy : NULL, now);
	q->rc = 0;
	return request_carry_out(o, q);
}

static bool get_take(struct object_request *q, const char *data, size_t len)
{
	struct object_get *g = q->ctx;

	if (len > g->max - g->len) {
		q->rc = rsh_error_set(&q->err, EFBIG, "%s: too large", q->what);
		return false;
	}
	memcpy(g->data + g->len, data, len);
	g->len += len;
	g->data[g->len] = '\0';
	return true;
}

static void get_restart(struct object_request *q)
{
	struct object_get *g = q->ctx;

	g->len = 0;
	g->data[0] = '\0';
}

int rsh_object_get(struct rsh_objects *o, struct object_get *g,
		   object_perform *perform, struct rsh_error *err)
{
	int rc;

	g->q.ctx = g;
	g->q.sink = get_take;
	g->q.restart = get_restart;
	g->data = rsh_secret_alloc(g->max + 1);
	if (!g->data)
		return rsh_error_nomem(err);
	get_restart(&g->q);
	rc = perform(o, &g->q);
	if (rc == 0)
		return 0;
	rsh_secret_free(g->data);
	g->data = NULL;
	return rsh_error_set(err, g->q.err.code, "%s", g->q.err.text);
}
