/* SPDX-License-Identifier: Apache-2.0 */
/* cache/memcached.c speaks to servers through libmemcached.
 *
 * The library believes what lengths a server tells, so its memory is counted
 * here, and refused beyond what a value may take. */
#include "config.h"

#include "memcached_i.h"

#include <errno.h>
#include <libmemcached/memcached.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/library.h"

#define LIBRARY "libmemcached.so.11"

/* A piece of memory of the library's has so much more than a value. */
#define BESIDE_VALUE (64 * 1024)

/* The functions of the library that are used, by their names. */
#define FUNCTIONS(use)                                                    \
	use(create) use(free) use(behavior_set) use(server_add)           \
	use(generate_hash) use(mget) use(fetch_result) use(result_create) \
	use(result_free) use(result_key_value) use(result_key_length)     \
	use(result_value) use(result_length) use(set) use(add)            \
	use(delete) use(last_error) use(last_error_errno)                 \
	use(set_memory_allocators)

static struct {
#define MEMBER(name) __typeof__(&memcached_##name) name;
	FUNCTIONS(MEMBER)
#undef MEMBER
} lib;

int rsh_memcached_load(struct rsh_error *err)
{
	static const struct rsh_library_symbol symbols[] = {
#define SYMBOL(name) { "memcached_" #name, &lib.name },
		FUNCTIONS(SYMBOL)
#undef SYMBOL
	};

	return rsh_library_load(LIBRARY, "--cache-servers", symbols,
				sizeof(symbols) / sizeof(symbols[0]), err);
}

/* ---- which server has what ---- */

struct rsh_ring {
	memcached_st *st;
};

struct rsh_ring *rsh_ring_new(void)
{
	struct rsh_ring *r = calloc(1, sizeof(*r));

	if (r)
		r->st = lib.create(NULL);
	if (r && r->st && lib.behavior_set(r->st, MEMCACHED_BEHAVIOR_KETAMA,
					   1) == MEMCACHED_SUCCESS)
		return r;
	rsh_ring_free(r);
	return NULL;
}

void rsh_ring_free(struct rsh_ring *r)
{
	if (r && r->st)
		lib.free(r->st);
	free(r);
}

int rsh_ring_add(struct rsh_ring *r, const char *host, uint16_t port)
{
	return lib.server_add(r->st, host, port) == MEMCACHED_SUCCESS ?
		       0 : -ENOMEM;
}

uint32_t rsh_ring_find(const struct rsh_ring *r, const char *name)
{
	return lib.generate_hash(r->st, name, strlen(name));
}

/* ---- connections ---- */

struct rsh_link {
	memcached_st *st;
	size_t largest;
};

static bool link_may_have(const void *ctx, size_t n)
{
	return n <= ((const struct rsh_link *)ctx)->largest;
}

static void *link_malloc(const memcached_st *st, size_t n, void *ctx)
{
	(void)st;
	return link_may_have(ctx, n) ? malloc(n) : NULL;
}

static void link_release(const memcached_st *st, void *at, void *ctx)
{
	(void)st, (void)ctx;
	free(at);
}

static void *link_realloc(const memcached_st *st, void *at, size_t n, void *ctx)
{
	(void)st;
	return link_may_have(ctx, n) ? realloc(at, n) : NULL;
}

static void *link_calloc(const memcached_st *st, size_t n, size_t of, void *ctx)
{
	(void)st;
	return n == 0 || (of <= SIZE_MAX / n && link_may_have(ctx, n * of)) ?
		       calloc(n, of) : NULL;
}

static bool link_set_up(struct rsh_link *l, const char *address, uint16_t port,
			unsigned timeout_ms)
{
	const struct {
		memcached_behavior_t which;
		uint64_t value;
	} wanted[] = {
		{ MEMCACHED_BEHAVIOR_TCP_NODELAY, 1 },
		{ MEMCACHED_BEHAVIOR_CONNECT_TIMEOUT, timeout_ms },
		{ MEMCACHED_BEHAVIOR_POLL_TIMEOUT, timeout_ms },
	};

	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
		if (lib.behavior_set(l->st, wanted[i].which, wanted[i].value) !=
		    MEMCACHED_SUCCESS)
			return false;
	return lib.set_memory_allocators(l->st, link_malloc, link_release,
					 link_realloc, link_calloc, l) ==
		       MEMCACHED_SUCCESS &&
	       lib.server_add(l->st, address, port) == MEMCACHED_SUCCESS;
}

struct rsh_link *rsh_link_new(const char *address, uint16_t port,
			      unsigned timeout_ms, size_t largest)
{
	struct rsh_link *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	l->largest = largest + BESIDE_VALUE;
	l->st = lib.create(NULL);
	if (l->st && link_set_up(l, address, port, timeout_ms))
		return l;
	rsh_link_free(l);
	return NULL;
}

void rsh_link_free(struct rsh_link *l)
{
	if (l && l->st)
		lib.free(l->st);
	free(l);
}

void rsh_link_hurry(struct rsh_link *l)
{
	/* The library looks at this each time before it waits. */
	__atomic_store_n(&l->st->poll_timeout, 0, __ATOMIC_RELAXED);
}

/* Translates what the library said into an errno. */
static int link_errno(struct rsh_link *l, memcached_return_t rc)
{
	int code;

	switch (rc) {
	case MEMCACHED_SUCCESS:
	case MEMCACHED_END:
	case MEMCACHED_NOTFOUND:
		return 0;
	case MEMCACHED_NOTSTORED:
	case MEMCACHED_DATA_EXISTS:
		return EEXIST;
	case MEMCACHED_SERVER_MEMORY_ALLOCATION_FAILURE:
	case MEMCACHED_SERVER_ERROR:
	case MEMCACHED_E2BIG:
		return ENOSPC;
	case MEMCACHED_TIMEOUT:
		return ETIMEDOUT;
	case MEMCACHED_PROTOCOL_ERROR:
	case MEMCACHED_UNKNOWN_READ_FAILURE:
	case MEMCACHED_MEMORY_ALLOCATION_FAILURE:
	case MEMCACHED_CLIENT_ERROR:
	case MEMCACHED_PARTIAL_READ:
		return EPROTO;
	default:
		code = lib.last_error_errno(l->st);
		return code > 0 ? code : ECONNRESET;
	}
}

int rsh_link_get(struct rsh_link *l, const char *const *names, size_t n,
		 rsh_link_value_fn *fn, void *ctx)
{
	/* The library would free one that it had allocated, at the end. */
	memcached_result_st r;
	size_t lengths[RSH_LINK_NAMES], got = 0;
	memcached_return_t rc;

	for (size_t i = 0; i < n; i++)
		lengths[i] = strlen(names[i]);
	rc = lib.mget(l->st, names, lengths, n);
	if (rc != MEMCACHED_SUCCESS)
		return link_errno(l, rc);
	lib.result_create(l->st, &r);
	/* After n values there is the end, if the server is a sane one. */
	while (got <= n && lib.fetch_result(l->st, &r, &rc) &&
	       rc == MEMCACHED_SUCCESS && got++ < n)
		fn(ctx, lib.result_key_value(&r), lib.result_key_length(&r),
		   (const uint8_t *)lib.result_value(&r),
		   lib.result_length(&r));
	lib.result_free(&r);
	if (got > n)
		return EPROTO;
	/* Of values that it could not take it says nothing but this. */
	return link_errno(l, lib.last_error(l->st) == MEMCACHED_SUCCESS ? rc :
			  lib.last_error(l->st));
}

int rsh_link_store(struct rsh_link *l, const char *name, const void *value,
		   size_t n, unsigned seconds, bool add)
{
	const __typeof__(&memcached_set) fn = add ? lib.add : lib.set;

	return link_errno(l, fn(l->st, name, strlen(name), value, n,
				(time_t)seconds, 0));
}

int rsh_link_remove(struct rsh_link *l, const char *name)
{
	return link_errno(l, lib.delete(l->st, name, strlen(name), 0));
}
