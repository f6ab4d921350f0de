/* SPDX-License-Identifier: Apache-2.0 */
/* storage/cache/login.c logs in to servers that want it, by libsasl2, which
 * agrees with the server upon how.  It is loaded where there is a login, and
 * all of its memory is secret. */
#include "config.h"

#include "protocol_i.h"

#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <sasl/sasl.h>
#include <string.h>

#include "rsh/util/library.h"
#include "rsh/util/secret.h"

#define LOGIN "MEMCACHED_USERNAME"
#define SASL_LIBRARY "libsasl2.so.2"
#define SASL_PACKAGE "libsasl2-2 (RPM: cyrus-sasl-lib)"
#define CRYPTO_READS_SETTINGS 0x40

/* No mechanism takes more steps. */
#define STEPS_MAX 8

static struct {
	__typeof__(&sasl_client_init) client_init;
	__typeof__(&sasl_client_new) client_new;
	__typeof__(&sasl_client_start) client_start;
	__typeof__(&sasl_client_step) client_step;
	__typeof__(&sasl_dispose) dispose;
	__typeof__(&sasl_set_alloc) set_alloc;
	__typeof__(&sasl_set_mutex) set_mutex;
} sasl;

/* ---- loading ---- */

static void *sasl_mutex_make(void)
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

static void sasl_mutex_release(void *m)
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

	if (rsh_library_load_crypto(LOGIN, &crypto, 1, &ignored) == 0)
		init_crypto(CRYPTO_READS_SETTINGS, NULL);
	sasl.set_alloc(rsh_secret_alloc, rsh_secret_calloc, rsh_secret_realloc,
		       rsh_secret_free);
	sasl.set_mutex(sasl_mutex_make, sasl_mutex_lock, sasl_mutex_unlock,
		       sasl_mutex_release);
	sasl_started = sasl.client_init(NULL);
}

int rsh_memcached_login_load(struct rsh_error *err)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	static const struct rsh_library_symbol symbols[] = {
		{ "sasl_client_init", &sasl.client_init },
		{ "sasl_client_new", &sasl.client_new },
		{ "sasl_client_start", &sasl.client_start },
		{ "sasl_client_step", &sasl.client_step },
		{ "sasl_dispose", &sasl.dispose },
		{ "sasl_set_alloc", &sasl.set_alloc },
		{ "sasl_set_mutex", &sasl.set_mutex },
	};
	int rc = rsh_library_load(SASL_LIBRARY, SASL_PACKAGE, LOGIN, symbols,
				  sizeof(symbols) / sizeof(symbols[0]), err);

	if (rc)
		return rc;
	pthread_once(&once, sasl_start);
	return sasl_started == SASL_OK ? 0 :
	       rsh_error_set(err, ENOTSUP, LOGIN ": libsasl2 cannot be "
			     "started (%d)", sasl_started);
}

/* ---- what libsasl2 asks ---- */

static int tell_name(void *ctx, int id, const char **result, unsigned *len)
{
	const struct rsh_login *login = ctx;

	(void)id;
	*result = login->name;
	if (len)
		*len = (unsigned)strlen(login->name);
	return SASL_OK;
}

static int tell_password(sasl_conn_t *conn, void *ctx, int id,
			 sasl_secret_t **out)
{
	(void)conn, (void)id;
	*out = ctx;
	return SASL_OK;
}

static sasl_secret_t *password_new(const char *password)
{
	const size_t n = strlen(password);
	sasl_secret_t *s = rsh_secret_alloc(sizeof(*s) + n);

	if (!s)
		return NULL;
	s->len = n;
	memcpy(s->data, password, n + 1);
	return s;
}

/* Functions of all types are put into one. */
#define SASL_FUNCTION(fn) ((int (*)(void))(void (*)(void))(fn))

/* ---- logging in ---- */

static int sasl_errno(int rc)
{
	return rc == SASL_NOMEM ? ENOMEM : EKEYREJECTED;
}

/* Asks for the mechanisms, a list of words.  Who knows no login knows not this
 * either. */
static int login_list(struct rsh_conn *c, char *list, size_t size)
{
	struct rsh_packet p;
	int code = rsh_packet_send(c, RSH_PACKET_AUTH_LIST, 0, NULL, NULL, 0);

	if (!code)
		code = rsh_packet_take(c, RSH_PACKET_AUTH_LIST, &p);
	if (code)
		return code == EPROTO ? EPROTONOSUPPORT : code;
	if (p.status || p.n_value >= size || memchr(p.value, '\0', p.n_value))
		return EPROTONOSUPPORT;
	memcpy(list, p.value, p.n_value);
	list[p.n_value] = '\0';
	return 0;
}

/* Goes through the steps of a mechanism. */
static int login_steps(struct rsh_conn *c, sasl_conn_t *conn, const char *list)
{
	unsigned what = RSH_PACKET_AUTH_START, n = 0;
	const char *data = NULL, *mechanism = NULL;
	int rc = sasl.client_start(conn, list, NULL, &data, &n, &mechanism);

	for (unsigned i = 0; i < STEPS_MAX; i++) {
		struct rsh_packet p;
		int code;

		if (rc != SASL_OK && rc != SASL_CONTINUE)
			return sasl_errno(rc);
		code = rsh_packet_send(c, what, i, mechanism, data, n);
		if (!code)
			code = rsh_packet_take(c, what, &p);
		if (code || p.status == 0)
			return code;
		if (p.status != RSH_PACKET_CONTINUE)
			return EKEYREJECTED;
		what = RSH_PACKET_AUTH_STEP;
		data = NULL;
		n = 0;
		rc = sasl.client_step(conn, (const char *)p.value,
				      (unsigned)p.n_value, NULL, &data, &n);
	}
	return EPROTO;
}

int rsh_memcached_login(struct rsh_conn *c, const struct rsh_address *to,
			const struct rsh_login *login)
{
	void *name = (void *)(uintptr_t)login;
	sasl_secret_t *password = password_new(login->password);
	const sasl_callback_t asked[] = {
		{ SASL_CB_USER, SASL_FUNCTION(tell_name), name },
		{ SASL_CB_AUTHNAME, SASL_FUNCTION(tell_name), name },
		{ SASL_CB_PASS, SASL_FUNCTION(tell_password), password },
		{ SASL_CB_LIST_END, NULL, NULL },
	};
	char host[NI_MAXHOST], list[512];
	sasl_conn_t *conn = NULL;
	int rc, code = password ? login_list(c, list, sizeof(list)) : ENOMEM;

	if (!code && getnameinfo((const struct sockaddr *)&to->at, to->len,
				 host, sizeof(host), NULL, 0, NI_NUMERICHOST))
		code = EINVAL;
	if (!code) {
		rc = sasl.client_new("memcached", host, NULL, NULL, asked, 0,
				     &conn);
		code = rc == SASL_OK ? login_steps(c, conn, list) :
				       sasl_errno(rc);
	}
	if (conn)
		sasl.dispose(&conn);
	rsh_secret_free(password);
	return code;
}
