/* SPDX-License-Identifier: Apache-2.0 */
/* storage/objects/why.c makes the sentences about failed requests. */
#include "config.h"

#include "objects_i.h"

#include <stdio.h>
#include <string.h>

const char *rsh_object_why(CURLcode code)
{
	switch (code) {
	case CURLE_COULDNT_RESOLVE_HOST:
	case CURLE_COULDNT_RESOLVE_PROXY:
		return "cannot be found";
	case CURLE_COULDNT_CONNECT:
		return "cannot be reached";
	case CURLE_SSL_CONNECT_ERROR:
	case CURLE_SSL_CIPHER:
		return "does not answer by TLS: is it an http:// server?";
	case RSH_CURLE_UNVERIFIED:
		return "has a certificate that is not trusted: see --ca-file";
	case CURLE_SSL_CACERT_BADFILE:
		return "cannot be verified, because the CA file cannot be read";
	case CURLE_TOO_MANY_REDIRECTS:
		return "redirects too often";
	case CURLE_UNSUPPORTED_PROTOCOL:
	case CURLE_URL_MALFORMAT:
		return "redirects to an address that cannot be followed";
	case CURLE_GOT_NOTHING:
		return "closes the connection without an answer";
	case CURLE_PARTIAL_FILE:
	case CURLE_RECV_ERROR:
	case CURLE_SEND_ERROR:
		return "closed the connection too early";
	default:
		return "sent an incomplete answer";
	}
}

const char *rsh_object_detail(const struct object_transfer *t, CURLcode code)
{
	long number = 0;
	const char *text;

	rsh_curl.easy_getinfo(t->easy, CURLINFO_OS_ERRNO, &number);
	text = code == CURLE_COULDNT_CONNECT && number ?
		strerror((int)number) : NULL;
	return text ? text : rsh_curl.easy_strerror(code);
}

void rsh_object_put_server(char *to, size_t size, const char *address)
{
	const char *host = strstr(address, "://");
	int n = host ? (int)(host - address) + 3 +
		       (int)strcspn(host + 3, "/?") : 0;

	snprintf(to, size, "%.*s", n, address);
}

/* The connection to the proxy, or its answer, is the cause. */
static bool why_is_of_proxy(const struct object_request *q)
{
	return q->proxy && (q->is_unconnected || q->answer.status == 407);
}

void rsh_object_say(const struct object_request *q, const char *code,
		    char *to, size_t size)
{
	const bool is_s3 = !strncmp(q->what, "s3:", 3);
	const int status = q->answer.status;
	const bool is_proxy = why_is_of_proxy(q);
	char server[300] = "", detail[160], by[256] = "";

	if (!status || is_s3)
		rsh_object_put_server(server, sizeof(server), q->address);
	if (is_proxy)
		snprintf(server, sizeof(server), "%s", q->proxy);
	else if (q->proxy)
		snprintf(by, sizeof(by), ", by the proxy %s", q->proxy);
	if (status)
		snprintf(detail, sizeof(detail), "HTTP %d%s%s", status,
			 *code ? " " : "", code);
	else
		snprintf(detail, sizeof(detail), "%s",
			 q->detail ? q->detail : "no answer");
	if (q->is_cut_off && status != 407) {
		rsh_object_put_server(server, sizeof(server), q->address);
		snprintf(to, size, "the proxy %s does not connect to %s (%s); "
			 "http_proxy or https_proxy sets the proxy", q->proxy,
			 server, detail);
		return;
	}
	if (q->redirect[0]) {
		snprintf(to, size, "the server %s redirects to %s (%s)%s%s",
			 server, q->redirect, detail, by, is_s3 ?
			 "; AWS_ENDPOINT_URL sets the server" : "");
		return;
	}
	snprintf(to, size, "the %s%s%s %s (%s)%s%s",
		 is_proxy ? "proxy" : "server", *server ? " " : "", server,
		 status == 407 && is_proxy ? "wants a name and a password" :
		 q->why, detail, by,
		 is_proxy ? "; http_proxy or https_proxy sets the proxy" :
		 is_s3 && !status ? "; AWS_ENDPOINT_URL sets the server" : "");
}
