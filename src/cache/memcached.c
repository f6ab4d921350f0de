/* SPDX-License-Identifier: Apache-2.0 */
/* cache/memcached.c speaks to servers through libmemcached.
 *
 * The library believes what lengths a server tells, so its memory is counted
 * here, and refused beyond what a value may take. */
#include "config.h"

#include "memcached_i.h"

#include <errno.h>
#include <libmemcached/memcached.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/library.h"
#include "rsh/util/secret.h"

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
	use(version) use(set_memory_allocators)

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

/* ---- logging in ---- */

#define LOGIN "MEMCACHED_USERNAME"
#define CRYPTO_LIBRARY "libcrypto.so.3"
#define CRYPTO_READS_SETTINGS 0x40
#define SASL_OKAY 0

/* libmemcached logs in by libsasl2, which it brings along; a build of it without
 * has neither. */
static struct {
	memcached_return_t (*set_auth_data)(memcached_st *st, const char *name,
					    const char *password);
	int (*client_init)(const void *callbacks);
	void (*set_alloc)(void *(*alloc)(size_t), void *(*calloc)(size_t, size_t),
			  void *(*realloc)(void *, size_t),
			  void (*release)(void *));
	void (*set_mutex)(void *(*make)(void), int (*lock)(void *),
			  int (*unlock)(void *), void (*release)(void *));
} sasl;

static void *sasl_mutex_new(void)
{
	pthread_mutex_t *m = rsh_secret_alloc(sizeof(*m));

	if (m)
		pthread_mutex_init(m, NULL);
	return m;
}

static int sasl_mutex_lock(void *m)
{
	return pthread_mutex_lock(m);
}

static int sasl_mutex_unlock(void *m)
{
	return pthread_mutex_unlock(m);
}

static void sasl_mutex_free(void *m)
{
	pthread_mutex_destroy(m);
	rsh_secret_free(m);
}

static int sasl_started;

/* What libsasl2 and libcrypto look for on disk they find now; the former has no
 * locks of its own. */
static void sasl_start(void)
{
	struct rsh_error ignored = RSH_ERROR_INIT;
	int (*init_crypto)(uint64_t what, const void *settings);
	const struct rsh_library_symbol crypto = { "OPENSSL_init_crypto",
						   &init_crypto };

	if (rsh_library_load(CRYPTO_LIBRARY, LOGIN, &crypto, 1, &ignored) == 0)
		init_crypto(CRYPTO_READS_SETTINGS, NULL);
	sasl.set_alloc(rsh_secret_alloc, rsh_secret_calloc, rsh_secret_realloc,
		       rsh_secret_free);
	sasl.set_mutex(sasl_mutex_new, sasl_mutex_lock, sasl_mutex_unlock,
		       sasl_mutex_free);
	sasl_started = sasl.client_init(NULL);
}

int rsh_memcached_login_load(struct rsh_error *err)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	static const struct rsh_library_symbol symbols[] = {
		{ "memcached_set_sasl_auth_data", &sasl.set_auth_data },
		{ "sasl_client_init", &sasl.client_init },
		{ "sasl_set_alloc", &sasl.set_alloc },
		{ "sasl_set_mutex", &sasl.set_mutex },
	};
	int rc = rsh_library_load(LIBRARY, LOGIN, symbols,
				  sizeof(symbols) / sizeof(symbols[0]), err);

	if (rc)
		return rc;
	pthread_once(&once, sasl_start);
	return sasl_started == SASL_OKAY ? 0 :
	       rsh_error_set(err, ENOTSUP, LOGIN ": libsasl2 cannot be "
			     "started (%d)", sasl_started);
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

/* Of a link that logs in all memory is secret, since that is where the library
 * has the password, and what it sends. */
struct rsh_link {
	memcached_st st;
	size_t largest;
	bool is_secret, is_logged_in;
};

static bool link_may_have(const void *ctx, size_t n)
{
	return n <= ((const struct rsh_link *)ctx)->largest;
}

static void *link_realloc(const memcached_st *st, void *at, size_t n, void *ctx)
{
	const struct rsh_link *l = ctx;

	(void)st;
	if (!link_may_have(l, n))
		return NULL;
	return l->is_secret ? rsh_secret_realloc(at, n) : realloc(at, n);
}

static void *link_malloc(const memcached_st *st, size_t n, void *ctx)
{
	return link_realloc(st, NULL, n, ctx);
}

static void link_release(const memcached_st *st, void *at, void *ctx)
{
	const struct rsh_link *l = ctx;

	(void)st;
	if (l->is_secret)
		rsh_secret_free(at);
	else
		free(at);
}

static void *link_calloc(const memcached_st *st, size_t n, size_t of, void *ctx)
{
	const struct rsh_link *l = ctx;

	(void)st;
	if (n && (of > SIZE_MAX / n || !link_may_have(l, n * of)))
		return NULL;
	return l->is_secret ? rsh_secret_calloc(n, of) : calloc(n, of);
}

static bool link_set_up(struct rsh_link *l, unsigned timeout_ms)
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
		if (lib.behavior_set(&l->st, wanted[i].which,
				     wanted[i].value) != MEMCACHED_SUCCESS)
			return false;
	return lib.set_memory_allocators(&l->st, link_malloc, link_release,
					 link_realloc, link_calloc, l) ==
	       MEMCACHED_SUCCESS;
}

struct rsh_link *rsh_link_new(const char *address, uint16_t port,
			      const struct rsh_login *login,
			      unsigned timeout_ms, size_t largest)
{
	struct rsh_link *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	l->largest = largest + BESIDE_VALUE;
	l->is_secret = login != NULL;
	lib.create(&l->st);
	if (link_set_up(l, timeout_ms) &&
	    (!login || sasl.set_auth_data(&l->st, login->name,
					  login->password) ==
	     MEMCACHED_SUCCESS) &&
	    lib.server_add(&l->st, address, port) == MEMCACHED_SUCCESS)
		return l;
	rsh_link_free(l);
	return NULL;
}

void rsh_link_free(struct rsh_link *l)
{
	if (l)
		lib.free(&l->st);
	free(l);
}

void rsh_link_hurry(struct rsh_link *l)
{
	/* The library looks at this each time before it waits. */
	__atomic_store_n(&l->st.poll_timeout, 0, __ATOMIC_RELAXED);
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
	case MEMCACHED_AUTH_PROBLEM:
	case MEMCACHED_AUTH_FAILURE:
	case MEMCACHED_AUTH_CONTINUE:
		return EKEYREJECTED;
	default:
		code = lib.last_error_errno(&l->st);
		return code > 0 ? code : ECONNRESET;
	}
}

/* The library logs in when it connects, and of a request of several names does
 * not tell how that went: so one is made that tells. */
static int link_log_in(struct rsh_link *l)
{
	int code = 0;

	if (!l->is_secret || l->is_logged_in)
		return 0;
	if (lib.version(&l->st) != MEMCACHED_SUCCESS)
		code = link_errno(l, lib.last_error(&l->st));
	l->is_logged_in = code == 0;
	return code == EPROTO ? EPROTONOSUPPORT : code;
}

int rsh_link_get(struct rsh_link *l, const char *const *names, size_t n,
		 rsh_link_value_fn *fn, void *ctx)
{
	/* The library would free one that it had allocated, at the end. */
	memcached_result_st r;
	size_t lengths[RSH_LINK_NAMES], got = 0;
	memcached_return_t rc;
	int code = link_log_in(l);

	if (code)
		return code;
	for (size_t i = 0; i < n; i++)
		lengths[i] = strlen(names[i]);
	rc = lib.mget(&l->st, names, lengths, n);
	if (rc != MEMCACHED_SUCCESS)
		return link_errno(l, rc);
	lib.result_create(&l->st, &r);
	/* After n values there is the end, if the server is a sane one. */
	while (got <= n && lib.fetch_result(&l->st, &r, &rc) &&
	       rc == MEMCACHED_SUCCESS && got++ < n)
		fn(ctx, lib.result_key_value(&r), lib.result_key_length(&r),
		   (const uint8_t *)lib.result_value(&r),
		   lib.result_length(&r));
	lib.result_free(&r);
	if (got > n)
		return EPROTO;
	/* Of values that it could not take it says nothing but this. */
	return link_errno(l, lib.last_error(&l->st) == MEMCACHED_SUCCESS ? rc :
			  lib.last_error(&l->st));
}

int rsh_link_store(struct rsh_link *l, const char *name, const void *value,
		   size_t n, unsigned seconds, bool add)
{
	const __typeof__(&memcached_set) fn = add ? lib.add : lib.set;
	int code = link_log_in(l);

	if (code)
		return code;
	return link_errno(l, fn(&l->st, name, strlen(name), value, n,
				(time_t)seconds, 0));
}

int rsh_link_remove(struct rsh_link *l, const char *name)
{
	int code = link_log_in(l);

	return code ? code :
	       link_errno(l, lib.delete(&l->st, name, strlen(name), 0));
}
