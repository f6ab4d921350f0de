/* SPDX-License-Identifier: Apache-2.0 */
/* storage/cache/protocol_i.h - memcached's two protocols, text and binary, on
 * an open connection; for this layer only.
 *
 * The contract of links in memcached_i.h applies to these functions, too.
 */
#pragma once

#include "conn_i.h"
#include "memcached_i.h"

struct rsh_protocol {
	int (*get)(struct rsh_conn *c, const char *const *names, size_t n,
		   rsh_link_value_fn *fn, void *ctx);
	int (*store)(struct rsh_conn *c, const char *name, const void *value,
		     size_t n, unsigned seconds, bool add);
	int (*remove)(struct rsh_conn *c, const char *name);
};

extern const struct rsh_protocol rsh_protocol_text, rsh_protocol_binary;

/* ---- packets; logins use them, too ---- */

enum {
	RSH_PACKET_AUTH_LIST = 0x20,
	RSH_PACKET_AUTH_START = 0x21,
	RSH_PACKET_AUTH_STEP = 0x22,

	RSH_PACKET_DENIED = 0x20,   /* statuses */
	RSH_PACKET_CONTINUE = 0x21,
};

/* A received packet; its pointers are valid until the next one. */
struct rsh_packet {
	unsigned status;
	uint32_t number;
	const uint8_t *name, *value;
	size_t n_name, n_value;
};

/* Sends a request with a number that the caller chooses. */
int rsh_packet_send(struct rsh_conn *c, unsigned what, uint32_t number,
		    const char *name, const void *value, size_t n);
/* Takes the next reply.  Returns EPROTO if it is not a reply to `what`. */
int rsh_packet_take(struct rsh_conn *c, unsigned what, struct rsh_packet *out);

/* Logs in (SASL).  rsh_memcached_login_load() must have been called. */
int rsh_memcached_login(struct rsh_conn *c, const struct rsh_address *to,
			const struct rsh_login *login);
