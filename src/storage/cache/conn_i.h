/* SPDX-License-Identifier: Apache-2.0 */
/* storage/cache/conn_i.h - a connection to a server: bytes out and bytes in, within a
 * bounded time and bounded memory; for this room only.
 *
 * For one thread at a time.  All return 0 or a positive errno: ETIMEDOUT,
 * ECONNRESET if the server has closed it, EPROTO for more bytes than there may
 * be.  After a failure the connection can only be closed.
 */
#ifndef RSH_STORAGE_CONN_I_H
#define RSH_STORAGE_CONN_I_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>

struct rsh_address {
	struct sockaddr_storage at;
	socklen_t len; /* 0: it is not known */
};

struct rsh_conn {
	int fd;              /* -1: it is not connected */
	unsigned timeout_ms; /* for each wait */
	uint64_t until;      /* for the request as a whole */
	uint8_t *buf;        /* bytes that came, from begin to end */
	size_t size, begin, end;
};

/* Makes a connection without connecting, for replies with parts of up to
 * `largest` bytes.  False: memory is out. */
bool rsh_conn_init(struct rsh_conn *c, unsigned timeout_ms, size_t largest);
void rsh_conn_close(struct rsh_conn *c);

/* From now on the time of a request is counted. */
void rsh_conn_begin(struct rsh_conn *c);
int rsh_conn_open(struct rsh_conn *c, const struct rsh_address *to);
/* Sends all of it, and changes `v`. */
int rsh_conn_send(struct rsh_conn *c, struct iovec *v, size_t n);
/* Takes the next n bytes, which stay at *at until the next call. */
int rsh_conn_take(struct rsh_conn *c, size_t n, const uint8_t **at);
/* Takes the next line, without its end, as a string; likewise. */
int rsh_conn_take_line(struct rsh_conn *c, const char **line);
/* Between two requests nothing comes: or else it belongs to neither. */
int rsh_conn_is_quiet(const struct rsh_conn *c);

#endif
