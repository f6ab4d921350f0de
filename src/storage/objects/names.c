/* SPDX-License-Identifier: Apache-2.0 */
/* storage/objects/names.c looks up names of servers outside the sandbox.
 * Inside, libc opens only the files /etc/hosts and resolv.conf that were there
 * when the mount began, not those that have replaced them. */
#include "config.h"

#include "objects_i.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/clock.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

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

/* Only one thread looks up; the others use the addresses that are known. */
static bool names_begin(struct rsh_objects *o, const char *server,
			uint64_t since)
{
	struct object_name *n;
	bool due;

	pthread_mutex_lock(&o->lock);
	n = names_entry(o, server);
	due = n && (!n->asked || n->asked < since);
	if (due)
		n->asked = rsh_clock_ns();
	pthread_mutex_unlock(&o->lock);
	return due;
}

static void names_keep(struct rsh_objects *o, const char *server,
		       const char *addresses)
{
	struct object_name *n;
	char *copy = strdup(addresses);

	pthread_mutex_lock(&o->lock);
	n = copy ? names_entry(o, server) : NULL;
	if (n) {
		free(n->addresses);
		n->addresses = copy;
		copy = NULL;
	}
	pthread_mutex_unlock(&o->lock);
	free(copy);
}

void rsh_object_look_up(struct rsh_objects *o, const char *address,
			const char *proxy, uint64_t since)
{
	char server[NAMES_SERVER_MAX], host[NAMES_SERVER_MAX];
	char addresses[NAMES_ADDRESSES_MAX];
	const uint64_t now = rsh_clock_ns();
	size_t n;

	if (!o->opener.look_up)
		return;
	n = names_server(proxy ? proxy : address, proxy, server);
	if (!since && now > NAMES_KEPT_NS)
		since = now - NAMES_KEPT_NS;
	if (!n || !names_begin(o, server, since))
		return;
	memcpy(host, server, n);
	host[n] = '\0';
	if (o->opener.look_up(o->opener.ctx, host, addresses,
			      sizeof(addresses)) == 0)
		names_keep(o, server, addresses);
}

/* Appends to the list unless *rc is an error. */
static void names_append(struct curl_slist **list, const char *a, const char *b,
			 const char *c, int *rc)
{
	cleanup_free char *text = rsh_text_format("%s%s%s", a, b, c);
	struct curl_slist *grown =
		text ? rsh_curl.slist_append(*list, text) : NULL;

	if (grown)
		*list = grown;
	else
		*rc = -ENOMEM;
}

int rsh_object_names_list(struct rsh_objects *o, struct curl_slist **list)
{
	int rc = 0;

	pthread_mutex_lock(&o->lock);
	for (size_t i = 0; i < OBJECT_NAMES && rc == 0; i++) {
		const struct object_name *n = &o->names[i];

		if (!n->addresses)
			continue;
		/* Old versions keep the addresses of a server that they
		 * know. */
		names_append(list, "-", n->server, "", &rc);
		names_append(list, n->server, ":", n->addresses, &rc);
	}
	pthread_mutex_unlock(&o->lock);
	return rc;
}

void rsh_object_names_clear(struct rsh_objects *o)
{
	for (size_t i = 0; i < OBJECT_NAMES; i++) {
		free(o->names[i].server);
		free(o->names[i].addresses);
	}
}
