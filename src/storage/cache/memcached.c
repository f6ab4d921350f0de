/* SPDX-License-Identifier: Apache-2.0 */
/* storage/cache/memcached.c has links, which speak memcached's protocol
 * themselves.
 *
 * The library for that, libmemcached, asserts that a server answers as it
 * expects: an END to `add` ends the process, which may be a program that
 * trains.  Checks in front of it would have to parse all replies, as these
 * files do.  A process for it would have to be forked in programs that have
 * threads, and every value would be copied once more.  What is needed are three
 * commands, get, store and delete: in lines (text_protocol.c), and where there
 * is a login in packets (binary_protocol.c).  These are 150 and 300 lines,
 * which take any bytes and are fuzzed (fuzz/fuzz_memcached.c), and there is a
 * library less. */
#include "config.h"

#include "protocol_i.h"

#include <stdlib.h>

struct rsh_link {
	struct rsh_conn conn;
	const struct rsh_address *to;
	const struct rsh_login *login; /* NULL: none */
	const struct rsh_protocol *protocol;
};

int rsh_memcached_check(struct rsh_error *err)
{
	(void)err;
	return 0;
}

struct rsh_link *rsh_link_new(const struct rsh_address *to,
			      const struct rsh_login *login,
			      unsigned timeout_ms, size_t largest)
{
	struct rsh_link *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	l->to = to;
	l->login = login;
	l->protocol = login ? &rsh_protocol_binary : &rsh_protocol_text;
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
	int code;

	rsh_conn_begin(&l->conn);
	if (l->conn.fd >= 0)
		return rsh_conn_is_quiet(&l->conn);
	code = rsh_conn_open(&l->conn, l->to);
	return code || !l->login ? code :
	       rsh_memcached_login(&l->conn, l->to, l->login);
}

int rsh_link_get(struct rsh_link *l, const char *const *names, size_t n,
		 rsh_link_value_fn *fn, void *ctx)
{
	return link_begin(l) ?: l->protocol->get(&l->conn, names, n, fn, ctx);
}

int rsh_link_store(struct rsh_link *l, const char *name, const void *value,
		   size_t n, unsigned seconds, bool add)
{
	int code = link_begin(l);

	return code ? code :
	       l->protocol->store(&l->conn, name, value, n, seconds, add);
}

int rsh_link_remove(struct rsh_link *l, const char *name)
{
	return link_begin(l) ?: l->protocol->remove(&l->conn, name);
}
