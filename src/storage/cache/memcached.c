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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/text.h"

static struct iovec iov_of(const void *at, size_t n)
{
	return (struct iovec){ (void *)(uintptr_t)at, n };
}

/* What every command may be answered with. */
static int line_errno(const char *line)
{
	static const char *const errors[] = {
		"ERROR", "CLIENT_ERROR ", "SERVER_ERROR ",
	};

	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
		if (strncmp(line, errors[i], strlen(errors[i])) == 0)
			return EREMOTEIO;
	return EPROTO;
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

int rsh_memcached_get(struct rsh_conn *c, const char *const *names, size_t n,
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
	code = rsh_conn_send(c, v, k);
	for (size_t got = 0; !code; got++) {
		const char *line;
		const uint8_t *value;
		uint64_t len;
		size_t i;

		code = rsh_conn_take_line(c, &line);
		if (code)
			return code;
		if (strcmp(line, "END") == 0)
			return 0;
		i = value_line(line, names, n, c->size - 2, &len);
		if (i == n || got == n)
			return line_errno(line);
		code = rsh_conn_take(c, len + 2, &value);
		if (!code && memcmp(value + len, "\r\n", 2) != 0)
			code = EPROTO;
		if (!code)
			fn(ctx, names[i], value, len);
	}
	return code;
}

int rsh_memcached_store(struct rsh_conn *c, const char *name, const void *value,
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
	code = rsh_conn_send(c, v, sizeof(v) / sizeof(v[0])) ?:
	       rsh_conn_take_line(c, &line);
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

int rsh_memcached_remove(struct rsh_conn *c, const char *name)
{
	struct iovec v[] = {
		iov_of("delete ", 7), iov_of(name, strlen(name)),
		iov_of("\r\n", 2),
	};
	const char *line;
	int code = rsh_conn_send(c, v, sizeof(v) / sizeof(v[0])) ?:
		   rsh_conn_take_line(c, &line);

	if (code || strcmp(line, "DELETED") == 0 ||
	    strcmp(line, "NOT_FOUND") == 0)
		return code;
	return line_errno(line);
}

/* ---- links ---- */

struct rsh_link {
	struct rsh_conn conn;
	const struct rsh_address *to;
};

struct rsh_link *rsh_link_new(const struct rsh_address *to, unsigned timeout_ms,
			      size_t largest)
{
	struct rsh_link *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	l->to = to;
	if (rsh_conn_init(&l->conn, timeout_ms, largest))
		return l;
	free(l);
	return NULL;
}

void rsh_link_free(struct rsh_link *l)
{
	if (l)
		rsh_conn_close(&l->conn);
	free(l);
}

static int link_begin(struct rsh_link *l)
{
	rsh_conn_begin(&l->conn);
	return l->conn.fd >= 0 ? rsh_conn_is_quiet(&l->conn) :
				 rsh_conn_open(&l->conn, l->to);
}

int rsh_link_get(struct rsh_link *l, const char *const *names, size_t n,
		 rsh_link_value_fn *fn, void *ctx)
{
	return link_begin(l) ?: rsh_memcached_get(&l->conn, names, n, fn, ctx);
}

int rsh_link_store(struct rsh_link *l, const char *name, const void *value,
		   size_t n, unsigned seconds, bool add)
{
	return link_begin(l) ?: rsh_memcached_store(&l->conn, name, value, n,
						    seconds, add);
}

int rsh_link_remove(struct rsh_link *l, const char *name)
{
	return link_begin(l) ?: rsh_memcached_remove(&l->conn, name);
}
