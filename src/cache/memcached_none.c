/* SPDX-License-Identifier: Apache-2.0 */
/* cache/memcached_none.c stands in for libmemcached in a build without it,
 * where no servers can be opened. */
#include "config.h"

#include "memcached_i.h"

#include <errno.h>

int rsh_memcached_load(struct rsh_error *err)
{
	return rsh_error_set(err, ENOTSUP, "--cache-servers: this program was "
			     "built without memcached");
}

int rsh_memcached_login_load(struct rsh_error *err)
{
	return rsh_memcached_load(err);
}

struct rsh_ring *rsh_ring_new(void)
{
	return NULL;
}

void rsh_ring_free(struct rsh_ring *r)
{
	(void)r;
}

int rsh_ring_add(struct rsh_ring *r, const char *host, uint16_t port)
{
	(void)r, (void)host, (void)port;
	return -ENOMEM;
}

uint32_t rsh_ring_find(const struct rsh_ring *r, const char *name)
{
	(void)r, (void)name;
	return 0;
}

struct rsh_link *rsh_link_new(const char *address, uint16_t port,
			      const struct rsh_login *login,
			      unsigned timeout_ms, size_t largest)
{
	(void)address, (void)port, (void)login, (void)timeout_ms, (void)largest;
	return NULL;
}

void rsh_link_free(struct rsh_link *l)
{
	(void)l;
}

void rsh_link_hurry(struct rsh_link *l)
{
	(void)l;
}

int rsh_link_get(struct rsh_link *l, const char *const *names, size_t n,
		 rsh_link_value_fn *fn, void *ctx)
{
	(void)l, (void)names, (void)n, (void)fn, (void)ctx;
	return ENOTSUP;
}

int rsh_link_store(struct rsh_link *l, const char *name, const void *value,
		   size_t n, unsigned seconds, bool add)
{
	(void)l, (void)name, (void)value, (void)n, (void)seconds, (void)add;
	return ENOTSUP;
}

int rsh_link_remove(struct rsh_link *l, const char *name)
{
	(void)l, (void)name;
	return ENOTSUP;
}
