/* SPDX-License-Identifier: Apache-2.0 */
/* storage/cache/binary_protocol.c speaks the protocol of packets, which is the
 * only one that knows logins.  A packet is a head, extras, a name and a value;
 * all numbers are big-endian:
 *
 *    0  0x80 of a request, 0x81 of a reply
 *    1  what is asked
 *    2  length of the name, 2 bytes
 *    4  length of the extras
 *    5  type of the value, 0
 *    6  status of a reply, 2 bytes
 *    8  length of extras, name and value, 4 bytes
 *   12  number of the request, 4 bytes
 *   16  version of the value, 8 bytes
 */
#include "config.h"

#include "protocol_i.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

enum { HEAD = 24, REQUEST = 0x80, REPLY = 0x81 };

enum what {
	WHAT_SET = 0x01,
	WHAT_ADD = 0x02,
	WHAT_DELETE = 0x04,
	WHAT_NOOP = 0x0a,
	WHAT_GET = 0x0d, /* with the name, and no reply if there is none */
};

enum status {
	STATUS_OK = 0,
	STATUS_NOT_FOUND = 1,
	STATUS_EXISTS = 2,
	STATUS_TOO_LARGE = 3,
	STATUS_NOT_STORED = 5,
	STATUS_OUT_OF_MEMORY = 0x82,
};

static void put_u16(uint8_t *at, size_t value)
{
	const uint16_t v = htons((uint16_t)value);

	memcpy(at, &v, sizeof(v));
}

static void put_u32(uint8_t *at, size_t value)
{
	const uint32_t v = htonl((uint32_t)value);

	memcpy(at, &v, sizeof(v));
}

static uint32_t get_u16(const uint8_t *at)
{
	return (uint32_t)at[0] << 8 | at[1];
}

static uint32_t get_u32(const uint8_t *at)
{
	return get_u16(at) << 16 | get_u16(at + 2);
}

/* A packet that is to be sent. */
struct request {
	unsigned what;
	uint32_t number;
	const uint8_t *extras;
	size_t n_extras;
	const char *name; /* NULL: none */
	const void *value;
	size_t n;
};

/* Appends the request to a list of what is sent. */
static size_t request_put(const struct request *r, uint8_t head[HEAD],
			  struct iovec *v)
{
	const size_t n_name = r->name ? strlen(r->name) : 0;

	memset(head, 0, HEAD);
	head[0] = REQUEST;
	head[1] = (uint8_t)r->what;
	put_u16(head + 2, n_name);
	head[4] = (uint8_t)r->n_extras;
	put_u32(head + 8, r->n_extras + n_name + r->n);
	put_u32(head + 12, r->number);
	v[0] = (struct iovec){ head, HEAD };
	v[1] = (struct iovec){ (void *)(uintptr_t)r->extras, r->n_extras };
	v[2] = (struct iovec){ (void *)(uintptr_t)r->name, n_name };
	v[3] = (struct iovec){ (void *)(uintptr_t)r->value, r->n };
	return 4;
}

static int request_send(struct rsh_conn *c, const struct request *r)
{
	uint8_t head[HEAD];
	struct iovec v[4];

	return rsh_conn_send(c, v, request_put(r, head, v));
}

int rsh_packet_send(struct rsh_conn *c, unsigned what, uint32_t number,
		    const char *name, const void *value, size_t n)
{
	const struct request r = {
		.what = what, .number = number, .name = name, .value = value,
		.n = n,
	};

	return request_send(c, &r);
}

/* Takes any reply, and which it is. */
static int packet_take(struct rsh_conn *c, unsigned *what,
		       struct rsh_packet *out)
{
	const uint8_t *at;
	size_t n_extras, n;
	int code = rsh_conn_take(c, HEAD, &at);

	if (code)
		return code;
	*what = at[1];
	out->n_name = get_u16(at + 2);
	n_extras = at[4];
	out->status = get_u16(at + 6);
	n = get_u32(at + 8);
	out->number = get_u32(at + 12);
	if (at[0] != REPLY || out->n_name + n_extras > n)
		return EPROTO;
	code = rsh_conn_take(c, n, &at);
	if (code)
		return code;
	out->name = at + n_extras;
	out->value = out->name + out->n_name;
	out->n_value = n - n_extras - out->n_name;
	return 0;
}

int rsh_packet_take(struct rsh_conn *c, unsigned what, struct rsh_packet *out)
{
	unsigned found = 0;
	int code = packet_take(c, &found, out);

	return code || found == what ? code : EPROTO;
}

/* Makes one request with one reply, of which the status is all that matters. */
static int status_ask(struct rsh_conn *c, const struct request *r,
		      unsigned *status)
{
	struct rsh_packet p;
	int code = request_send(c, r);

	if (!code)
		code = rsh_packet_take(c, r->what, &p);
	if (code)
		return code;
	*status = p.status;
	return p.number == r->number ? 0 : EPROTO;
}

/* What every request may be answered with. */
static int status_errno(unsigned status)
{
	return status == RSH_PACKET_DENIED ? EKEYREJECTED : EREMOTEIO;
}

static int binary_get(struct rsh_conn *c, const char *const *names, size_t n,
		      rsh_link_value_fn *fn, void *ctx)
{
	uint8_t heads[RSH_LINK_NAMES + 1][HEAD];
	struct iovec v[4 * (RSH_LINK_NAMES + 1)];
	size_t k = 0;
	int code;

	/* The last one asks for a reply in any case. */
	for (size_t i = 0; i <= n; i++) {
		const struct request r = {
			.what = i < n ? WHAT_GET : WHAT_NOOP,
			.number = (uint32_t)i,
			.name = i < n ? names[i] : NULL,
		};

		k += request_put(&r, heads[i], v + k);
	}
	code = rsh_conn_send(c, v, k);
	for (size_t got = 0; !code && got <= n; got++) {
		struct rsh_packet p;
		unsigned what = 0;

		code = packet_take(c, &what, &p);
		if (code)
			return code;
		if (p.status == STATUS_NOT_FOUND && what == WHAT_GET)
			continue;
		if (p.status != STATUS_OK)
			return status_errno(p.status);
		if (what == WHAT_NOOP)
			return p.number == n ? 0 : EPROTO;
		if (what != WHAT_GET || got == n || p.number >= n ||
		    p.n_name != strlen(names[p.number]) ||
		    memcmp(p.name, names[p.number], p.n_name) != 0)
			return EPROTO;
		fn(ctx, names[p.number], p.value, p.n_value);
	}
	return code ? code : EPROTO;
}

static int binary_store(struct rsh_conn *c, const char *name, const void *value,
			size_t n, unsigned seconds, bool add)
{
	uint8_t extras[8] = { 0 };
	const struct request r = {
		.what = add ? WHAT_ADD : WHAT_SET, .extras = extras,
		.n_extras = sizeof(extras), .name = name, .value = value,
		.n = n,
	};
	unsigned status = 0;
	int code;

	put_u32(extras + 4, seconds);
	code = status_ask(c, &r, &status);
	if (code || status == STATUS_OK)
		return code;
	if (add && (status == STATUS_EXISTS || status == STATUS_NOT_STORED))
		return EEXIST;
	return status == STATUS_TOO_LARGE || status == STATUS_OUT_OF_MEMORY ?
		       ENOSPC : status_errno(status);
}

static int binary_remove(struct rsh_conn *c, const char *name)
{
	const struct request r = { .what = WHAT_DELETE, .name = name };
	unsigned status = 0;
	int code = status_ask(c, &r, &status);

	if (code || status == STATUS_OK || status == STATUS_NOT_FOUND)
		return code;
	return status_errno(status);
}

const struct rsh_protocol rsh_protocol_binary = {
	binary_get, binary_store, binary_remove,
};
