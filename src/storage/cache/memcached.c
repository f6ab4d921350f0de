/* SPDX-License-Identifier: Apache-2.0 */
/* storage/cache/memcached.c has links, which speak memcached's protocol of
 * lines themselves: memcached's protocol.txt has its words.
 *
 * The library for that, libmemcached, asserts that a server answers as it
 * expects: an END to `add` ends the process, which may be a program that
 * trains.  Checks in front of it would have to parse all replies, as this file
 * does.  A process for it would have to be forked in programs that have
 * threads, and every value would be copied once more.  What is needed are three
 * commands, get, store and delete.  This file takes any bytes and is fuzzed
 * (fuzz/fuzz_memcached.c), and there is a library less. */
#include "config.h"

#include "memcached_i.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "rsh/util/checked.h"
#include "rsh/util/clock.h"
#include "rsh/util/files.h"
#include "rsh/util/text.h"

#define NS_PER_MS UINT64_C(1000000)

/* A server that answers by drops is waited for each time anew.  A request as a
 * whole has so many times the time of one wait. */
#define WAITS_PER_REQUEST 2

/* No line and no message of an error is longer. */
#define LINE_MAX_BYTES 1024

struct rsh_link {
	int fd;              /* -1: not connected */
	unsigned timeout_ms; /* limit of each wait */
	uint64_t until;      /* end of the time for the whole request */
	uint8_t *buf;        /* received bytes, from begin to end */
	size_t size, begin, end;
};

/* ---- the connection ---- */

struct rsh_link *rsh_link_new(int fd, unsigned timeout_ms, size_t largest)
{
	struct rsh_link *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	l->fd = fd;
	l->timeout_ms = timeout_ms;
	l->size = largest + LINE_MAX_BYTES;
	l->buf = malloc(l->size);
	if (l->buf)
		return l;
	free(l);
	return NULL;
}

void rsh_link_free(struct rsh_link *l)
{
	if (!l)
		return;
	if (l->fd >= 0)
		close(l->fd);
	free(l->buf);
	free(l);
}

/* Waits until the socket is ready, or a signal came. */
static int link_wait(const struct rsh_link *l, short what)
{
	struct pollfd p = { .fd = l->fd, .events = what };
	const uint64_t now = rsh_clock_ns();
	int n;

	if (now >= l->until)
		return ETIMEDOUT;
	n = poll(&p, 1, (int)rsh_min_u64(l->timeout_ms, (l->until - now) /
							NS_PER_MS + 1));
	if (n < 0 && errno != EINTR)
		return errno;
	return n == 0 ? ETIMEDOUT : 0;
}

static int link_connect(struct rsh_link *l, const struct rsh_address *to)
{
	const int yes = 1;
	int code = 0, failed = 0;
	socklen_t n = sizeof(failed);

	l->fd = socket(to->at.ss_family,
		       SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (l->fd < 0)
		return errno;
	setsockopt(l->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
	if (connect(l->fd, (const struct sockaddr *)&to->at, to->len) == 0)
		return 0;
	if (errno != EINPROGRESS && errno != EINTR)
		return errno;
	code = link_wait(l, POLLOUT);
	if (code)
		return code;
	return getsockopt(l->fd, SOL_SOCKET, SO_ERROR, &failed, &n) ? errno :
								      failed;
}

/* Bytes that have arrived between two requests belong to neither. */
static int link_is_quiet(const struct rsh_link *l)
{
	char byte;
	ssize_t n;

	if (l->begin != l->end)
		return EPROTO;
	n = recv(l->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : errno;
	return n ? EPROTO : ECONNRESET;
}

int rsh_link_begin(struct rsh_link *l, const struct rsh_address *to)
{
	l->until = rsh_clock_ns() +
		   WAITS_PER_REQUEST * l->timeout_ms * NS_PER_MS;
	return l->fd >= 0 ? link_is_quiet(l) : link_connect(l, to);
}

/* Sends all bytes, and changes `v`. */
static int link_send(struct rsh_link *l, struct iovec *v, size_t n)
{
	int code = 0;

	rsh_iov_advance(&v, &n, 0);
	while (n && !code) {
		const struct msghdr m = { .msg_iov = v, .msg_iovlen = n };
		ssize_t sent = sendmsg(l->fd, &m, MSG_NOSIGNAL);

		if (sent >= 0)
			rsh_iov_advance(&v, &n, (size_t)sent);
		else if (errno == EAGAIN)
			code = link_wait(l, POLLOUT);
		else if (errno != EINTR)
			code = errno;
	}
	return code;
}

/* Waits for more bytes, for which there is room behind `end`. */
static int link_fill(struct rsh_link *l)
{
	for (;;) {
		ssize_t got = recv(l->fd, l->buf + l->end, l->size - l->end, 0);
		int code = 0;

		if (got > 0) {
			l->end += (size_t)got;
			return 0;
		}
		if (got == 0)
			return ECONNRESET;
		if (errno == EAGAIN)
			code = link_wait(l, POLLIN);
		else if (errno != EINTR)
			code = errno;
		if (code)
			return code;
	}
}

/* Makes room for n bytes from `begin` on. */
static int link_room(struct rsh_link *l, size_t n)
{
	if (n > l->size)
		return EPROTO;
	if (l->begin == l->end)
		l->begin = l->end = 0;
	if (n <= l->size - l->begin)
		return 0;
	memmove(l->buf, l->buf + l->begin, l->end - l->begin);
	l->end -= l->begin;
	l->begin = 0;
	return 0;
}

/* Takes the next n bytes, which stay at *at until the next call. */
static int link_take(struct rsh_link *l, size_t n, const uint8_t **at)
{
	int code = link_room(l, n);

	while (!code && l->end - l->begin < n)
		code = link_fill(l);
	if (code)
		return code;
	*at = l->buf + l->begin;
	l->begin += n;
	return 0;
}

/* Takes the next line, without its end, as a string; it is valid until the next
 * call. */
static int link_take_line(struct rsh_link *l, const char **line)
{
	int code = link_room(l, LINE_MAX_BYTES);
	char *at, *end;

	for (; !code; code = link_fill(l)) {
		const size_t n = rsh_min_u64(l->end - l->begin, LINE_MAX_BYTES);

		at = (char *)l->buf + l->begin;
		end = n ? memchr(at, '\n', n) : NULL;
		if (end)
			break;
		if (n == LINE_MAX_BYTES)
			return EPROTO;
	}
	if (code)
		return code;
	l->begin += (size_t)(end - at) + 1;
	if (end == at || end[-1] != '\r' ||
	    memchr(at, '\0', (size_t)(end - at)))
		return EPROTO;
	end[-1] = '\0';
	*line = at;
	return 0;
}

/* ---- requests ---- */

static struct iovec iov_of(const void *at, size_t n)
{
	return (struct iovec){ (void *)(uintptr_t)at, n };
}

/* What every command may be answered with. */
static int line_errno(const char *line)
{
	return rsh_begins_any(line, "ERROR", "CLIENT_ERROR ",
			      "SERVER_ERROR ") ? EREMOTEIO : EPROTO;
}

/* Takes " NUMBER" off the line.  Is it one, of this at most? */
static bool take_number(const char **at, uint64_t max, uint64_t *out)
{
	const char *s = *at + 1;
	const size_t n = **at == ' ' ? rsh_count_digits(s, strlen(s)) : 0;

	*at = s + n;
	return rsh_digits_read(s, n, max, out);
}

/* Reads "VALUE name flags length", perhaps with a version behind it.  Returns
 * the number of the name, or n if it is no such line. */
static size_t value_line(const char *line, const char *const *names, size_t n,
			 uint64_t max, uint64_t *len)
{
	static const char value[] = "VALUE ";
	uint64_t ignored;
	size_t i;

	if (strncmp(line, value, strlen(value)) != 0)
		return n;
	line += strlen(value);
	for (i = 0; i < n; i++)
		if (strncmp(line, names[i], strlen(names[i])) == 0 &&
		    line[strlen(names[i])] == ' ')
			break;
	if (i == n)
		return n;
	line += strlen(names[i]);
	if (!take_number(&line, UINT32_MAX, &ignored) ||
	    !take_number(&line, max, len) ||
	    (*line && !take_number(&line, UINT64_MAX, &ignored)) || *line)
		return n;
	return i;
}

int rsh_link_get(struct rsh_link *l, const char *const *names, size_t n,
		 rsh_link_value_fn *fn, void *ctx)
{
	struct iovec v[2 * RSH_LINK_NAMES + 2];
	size_t k = 0;
	int code;

	v[k++] = iov_of("get", 3);
	for (size_t i = 0; i < n; i++) {
		v[k++] = iov_of(" ", 1);
		v[k++] = iov_of(names[i], strlen(names[i]));
	}
	v[k++] = iov_of("\r\n", 2);
	code = link_send(l, v, k);
	for (size_t got = 0; !code; got++) {
		const char *line;
		const uint8_t *value;
		uint64_t len;
		size_t i;

		code = link_take_line(l, &line);
		if (code)
			return code;
		if (strcmp(line, "END") == 0)
			return 0;
		i = value_line(line, names, n, l->size - 2, &len);
		if (i == n || got == n)
			return line_errno(line);
		code = link_take(l, len + 2, &value);
		if (!code && memcmp(value + len, "\r\n", 2) != 0)
			code = EPROTO;
		if (!code)
			fn(ctx, names[i], value, len);
	}
	return code;
}

int rsh_link_store(struct rsh_link *l, const char *name, const void *value,
		   size_t n, unsigned seconds, bool add)
{
	char numbers[64];
	struct iovec v[] = {
		iov_of(add ? "add " : "set ", 4), iov_of(name, strlen(name)),
		iov_of(numbers, 0), iov_of(value, n), iov_of("\r\n", 2),
	};
	const char *line;
	int code;

	v[2].iov_len = (size_t)snprintf(numbers, sizeof(numbers),
					" 0 %u %zu\r\n", seconds, n);
	code = link_send(l, v, sizeof(v) / sizeof(v[0])) ?:
	       link_take_line(l, &line);
	if (code)
		return code;
	if (strcmp(line, "STORED") == 0)
		return 0;
	if (add && strcmp(line, "NOT_STORED") == 0)
		return EEXIST;
	/* So a server says that its memory is full, or the value too large. */
	return strncmp(line, "SERVER_ERROR ", strlen("SERVER_ERROR ")) ?
		       line_errno(line) : ENOSPC;
}

int rsh_link_remove(struct rsh_link *l, const char *name)
{
	struct iovec v[] = {
		iov_of("delete ", 7), iov_of(name, strlen(name)),
		iov_of("\r\n", 2),
	};
	const char *line;
	int code = link_send(l, v, sizeof(v) / sizeof(v[0])) ?:
		   link_take_line(l, &line);

	if (code || strcmp(line, "DELETED") == 0 ||
	    strcmp(line, "NOT_FOUND") == 0)
		return code;
	return line_errno(line);
}
