/* SPDX-License-Identifier: Apache-2.0 */
/* storage/cache/conn.c moves bytes between a server and a buffer. */
#include "config.h"

#include "conn_i.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rsh/util/checked.h"
#include "rsh/util/clock.h"
#include "rsh/util/files.h"

#define NS_PER_MS UINT64_C(1000000)

/* A server that answers by drops is waited for each time anew.  A request as a
 * whole has so many times the time of one wait. */
#define WAITS_PER_REQUEST 2

/* No line and no message of an error is longer. */
#define LINE_MAX_BYTES 1024

bool rsh_conn_init(struct rsh_conn *c, unsigned timeout_ms, size_t largest)
{
	*c = (struct rsh_conn){
		.fd = -1, .timeout_ms = timeout_ms,
		.size = largest + LINE_MAX_BYTES,
	};
	c->buf = malloc(c->size);
	return c->buf;
}

void rsh_conn_close(struct rsh_conn *c)
{
	if (c->fd >= 0)
		close(c->fd);
	free(c->buf);
}

void rsh_conn_begin(struct rsh_conn *c)
{
	c->until = rsh_clock_ns() +
		   WAITS_PER_REQUEST * c->timeout_ms * NS_PER_MS;
}

/* Waits until the socket is ready, or a signal came. */
static int conn_wait(const struct rsh_conn *c, short what)
{
	struct pollfd p = { .fd = c->fd, .events = what };
	const uint64_t now = rsh_clock_ns();
	int n;

	if (now >= c->until)
		return ETIMEDOUT;
	n = poll(&p, 1, (int)rsh_min_u64(c->timeout_ms, (c->until - now) /
							NS_PER_MS + 1));
	if (n < 0 && errno != EINTR)
		return errno;
	return n == 0 ? ETIMEDOUT : 0;
}

int rsh_conn_open(struct rsh_conn *c, const struct rsh_address *to)
{
	const int yes = 1;
	int code = 0, failed = 0;
	socklen_t n = sizeof(failed);

	c->fd = socket(to->at.ss_family,
		       SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (c->fd < 0)
		return errno;
	setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
	if (connect(c->fd, (const struct sockaddr *)&to->at, to->len) == 0)
		return 0;
	if (errno != EINPROGRESS && errno != EINTR)
		return errno;
	code = conn_wait(c, POLLOUT);
	if (code)
		return code;
	return getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &failed, &n) ? errno :
								      failed;
}

int rsh_conn_send(struct rsh_conn *c, struct iovec *v, size_t n)
{
	int code = 0;

	rsh_iov_advance(&v, &n, 0);
	while (n && !code) {
		const struct msghdr m = { .msg_iov = v, .msg_iovlen = n };
		ssize_t sent = sendmsg(c->fd, &m, MSG_NOSIGNAL);

		if (sent >= 0)
			rsh_iov_advance(&v, &n, (size_t)sent);
		else if (errno == EAGAIN)
			code = conn_wait(c, POLLOUT);
		else if (errno != EINTR)
			code = errno;
	}
	return code;
}

/* Waits for more bytes, for which there is room behind `end`. */
static int conn_fill(struct rsh_conn *c)
{
	for (;;) {
		ssize_t got = recv(c->fd, c->buf + c->end, c->size - c->end, 0);
		int code = 0;

		if (got > 0) {
			c->end += (size_t)got;
			return 0;
		}
		if (got == 0)
			return ECONNRESET;
		if (errno == EAGAIN)
			code = conn_wait(c, POLLIN);
		else if (errno != EINTR)
			code = errno;
		if (code)
			return code;
	}
}

/* Makes room for n bytes from `begin` on. */
static int conn_room(struct rsh_conn *c, size_t n)
{
	if (n > c->size)
		return EPROTO;
	if (c->begin == c->end)
		c->begin = c->end = 0;
	if (n <= c->size - c->begin)
		return 0;
	memmove(c->buf, c->buf + c->begin, c->end - c->begin);
	c->end -= c->begin;
	c->begin = 0;
	return 0;
}

int rsh_conn_take(struct rsh_conn *c, size_t n, const uint8_t **at)
{
	int code = conn_room(c, n);

	while (!code && c->end - c->begin < n)
		code = conn_fill(c);
	if (code)
		return code;
	*at = c->buf + c->begin;
	c->begin += n;
	return 0;
}

int rsh_conn_take_line(struct rsh_conn *c, const char **line)
{
	int code = conn_room(c, LINE_MAX_BYTES);
	char *at, *end;

	for (; !code; code = conn_fill(c)) {
		const size_t n = rsh_min_u64(c->end - c->begin, LINE_MAX_BYTES);

		at = (char *)c->buf + c->begin;
		end = n ? memchr(at, '\n', n) : NULL;
		if (end)
			break;
		if (n == LINE_MAX_BYTES)
			return EPROTO;
	}
	if (code)
		return code;
	c->begin += (size_t)(end - at) + 1;
	if (end == at || end[-1] != '\r' ||
	    memchr(at, '\0', (size_t)(end - at)))
		return EPROTO;
	end[-1] = '\0';
	*line = at;
	return 0;
}

int rsh_conn_is_quiet(const struct rsh_conn *c)
{
	char byte;
	ssize_t n;

	if (c->begin != c->end)
		return EPROTO;
	n = recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : errno;
	return n ? EPROTO : ECONNRESET;
}
