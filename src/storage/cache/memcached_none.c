/* SPDX-License-Identifier: Apache-2.0 */
/* storage/cache/memcached_none.c stands in for links in a build without
 * memcached, where no servers can be opened. */
#include "config.h"

#include "memcached_i.h"

#include <errno.h>

int rsh_memcached_check(struct rsh_error *err)
{
	return rsh_error_set(err, ENOTSUP, "--cache-servers: this program was "
			     "built without memcached");
}

int rsh_memcached_login_load(struct rsh_error *err)
{
	return rsh_memcached_check(err);
}

struct rsh_link *rsh_link_new(const struct rsh_address *to,
			      const struct rsh_login *login,
			      unsigned timeout_ms, size_t largest)
{
	(void)to, (void)login, (void)timeout_ms, (void)largest;
	return NULL;
}

void rsh_link_free(struct rsh_link *l)
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
