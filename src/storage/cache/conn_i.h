/* SPDX-License-Identifier: Apache-2.0 */
/* storage/cache/conn_i.h - a connection to a server, which sends and receives
 * bytes within a bounded time and bounded memory; for this layer only.
 *
 * One thread at a time may use a connection.  All functions return 0 or a
 * positive errno: ETIMEDOUT, ECONNRESET if the server has closed it, EPROTO if
 * more bytes arrive than allowed.  After a failure the connection can only be
 * closed.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>

struct rsh_address {
	struct sockaddr_storage at;
	socklen_t len; /* 0: unknown */
};

struct rsh_conn {
	int fd;              /* -1: not connected */
	unsigned timeout_ms; /* limit of each wait */
	uint64_t until;      /* end of the time for the whole request */
	uint8_t *buf;        /* received bytes, from begin to end */
	size_t size, begin, end;
};

/* Initializes a connection without connecting, for replies with parts of up to
 * `largest` bytes.  Returns false if memory is exhausted. */
bool rsh_conn_init(struct rsh_conn *c, unsigned timeout_ms, size_t largest);
void rsh_conn_close(struct rsh_conn *c);

/* Starts the time limit of a request. */
void rsh_conn_begin(struct rsh_conn *c);
int rsh_conn_open(struct rsh_conn *c, const struct rsh_address *to);
/* Sends all bytes, and changes `v`. */
int rsh_conn_send(struct rsh_conn *c, struct iovec *v, size_t n);
/* Takes the next n bytes, which stay at *at until the next call. */
int rsh_conn_take(struct rsh_conn *c, size_t n, const uint8_t **at);
/* Takes the next line, without its end, as a string; it is valid until the next
 * call. */
int rsh_conn_take_line(struct rsh_conn *c, const char **line);
/* Checks that no bytes have arrived between two requests: they would belong to
 * neither. */
int rsh_conn_is_quiet(const struct rsh_conn *c);
