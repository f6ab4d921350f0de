/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_objects.c - objects of a server that misbehaves: right bytes or a
 * reason, by the deadline, and no secret anywhere. */
#include "config.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "storage/objects/objects_i.h"
#include "objects_support.h"
#include "rsh/storage/objects.h"
#include "rsh/util/blocking.h"
#include "rsh/util/clock.h"
#include "rsh/util/library.h"
#include "rsh/util/secret.h"
#include "rsh/util/thread.h"
#include "support.h"

#define SIZE 100000
/* As the server says: Fri, 02 Jan 2026 03:04:05 GMT. */
#define MODIFIED 1767323045
#define SECOND UINT64_C(1000000000)
/* What only ends a hang. */
#define LONG_S 120

static const char *const variables[] = {
	"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
	"AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_REGION",
	"AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3",
	"AWS_CA_BUNDLE", "SSL_CERT_FILE", "AWS_SHARED_CREDENTIALS_FILE",
	"AWS_CONFIG_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI",
	"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
	"AWS_CONTAINER_AUTHORIZATION_TOKEN",
	"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
	"AWS_EC2_METADATA_SERVICE_ENDPOINT",
	"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "http_proxy", "https_proxy",
	"HTTPS_PROXY", "all_proxy", "ALL_PROXY",
};

/* The server answers `late` after longer than this. */
#define STALL_MS 400

struct fixture {
	char *tree; /* the home directory, with the server's log */
	char log[4096];
	char endpoint[64];
	struct object_server server;
	struct rsh_objects *o;
	const char *slow;  /* an object, for read_slowly() */
	atomic_uint began; /* there */
};

static void setup_server(struct fixture *f, const char *tls)
{
	const char *more[] = {
		"--log", f->log, "--tree", NULL, tls ? "--tls" : NULL, tls,
		NULL,
	};

	memset(f, 0, sizeof(*f));
	f->tree = tree_make();
	more[3] = f->tree;
	snprintf(f->log, sizeof(f->log), "%s/log", f->tree);
	for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
		unsetenv(variables[i]);
	setenv("HOME", f->tree, 1);
	object_server_start(&f->server, more);
	snprintf(f->endpoint, sizeof(f->endpoint), "http%s://127.0.0.1:%u",
		 tls ? "s" : "", f->server.port);
}

static void teardown(struct fixture *f)
{
	rsh_objects_free(f->o);
	object_server_stop(&f->server);
	tree_remove(f->tree);
}

static int open_with(struct fixture *f, const char *url,
		     struct rsh_objects_options o, struct rsh_error *err)
{
	o.endpoint = f->endpoint;
	return rsh_objects_open(url, &o, &f->o, err);
}

static void setup(struct fixture *f)
{
	struct rsh_error err = RSH_ERROR_INIT;
	const struct rsh_objects_options o = {
		.keys = RSH_OBJECTS_KEYS_NONE, .stall_ms = STALL_MS,
	};

	setup_server(f, NULL);
	assert_int_equal(open_with(f, "s3://bucket", o, &err), 0);
}

/* ---- single reads ---- */

struct one_read {
	const char *name;
	uint64_t offset;
	size_t len;
	uint64_t deadline_ms; /* 0: a long one */
	const char *etag;
};

/* Reads into two vectors; 0 only if all bytes are right. */
static int read_with(struct rsh_objects *o, const struct one_read *r,
		     struct rsh_error *err)
{
	const struct rsh_object object = {
		.name = r->name, .size = SIZE,
		.etag = r->etag ? r->etag : "\"v0\"",
	};
	uint64_t ns = r->deadline_ms ? r->deadline_ms * 1000000 :
				       LONG_S * SECOND;
	uint8_t *got = calloc(1, r->len), *right = malloc(r->len);
	size_t half = r->len / 3;
	struct iovec iov[3] = {
		{ got, half }, { NULL, 0 }, { got + half, r->len - half },
	};
	int rc = rsh_objects_read(o, &(struct rsh_object_range){
				&object, r->offset, iov, 3 }, rsh_clock_ns() + ns, err);

	object_bytes(r->name, r->offset, right, r->len);
	if (rc == 0 && memcmp(got, right, r->len))
		rc = 1;
	free(got);
	free(right);
	return rc;
}

static int read_name(struct rsh_objects *o, const char *name,
		     struct rsh_error *err)
{
	const struct one_read r = { .name = name, .offset = 1000, .len = 9000 };

	return read_with(o, &r, err);
}

TEST(ranges_are_read)
{
	static const struct one_read reads[] = {
		{ "a", 0, 1 }, { "a", SIZE - 1, 1 }, { "a", 0, SIZE },
		{ "a", 12345, 54321 }, { "dir/b c+d%e", 7, 100 },
		{ "\xc3\xa4?&=#", 7, 100 },
	};
	struct rsh_error err = RSH_ERROR_INIT;
	const struct one_read beyond = { "a", SIZE - 1, 2 };
	FREED_BY(teardown) struct fixture f;

	setup(&f);
	for (size_t i = 0; i < sizeof(reads) / sizeof(reads[0]); i++)
		assert_int_equal(read_with(f.o, &reads[i], &err), 0);
	assert_int_equal(read_with(f.o, &beyond, &err), -EINVAL);
}

/* It is known by when it was modified; a server may overlook that it is asked for
 * that one, but not what it says itself. */
TEST(ranges_without_etag_are_read)
{
	static const struct {
		const char *name;
		time_t off;
		int rc;
		const char *say;
	} cases[] = {
		{ "a", 0, 0, "" }, { "a", -1, -EREMCHG, "HTTP 412" },
		{ "a", 1, -EREMCHG, "HTTP 412" },
		{ "a~*mix", -1, -EREMCHG, "another object" },
		{ "a~*mix", 1, -EREMCHG, "another object" },
	};
	uint8_t got[100], right[100];
	const struct iovec iov = { got, sizeof(got) };
	FREED_BY(teardown) struct fixture f;

	setup(&f);
	object_bytes("a", 7, right, sizeof(right));
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct rsh_object object = {
			.name = cases[i].name, .size = SIZE,
			.mtime.tv_sec = MODIFIED + cases[i].off,
		};
		struct rsh_error err = RSH_ERROR_INIT;

		const int rc = rsh_objects_read(f.o, &(struct rsh_object_range){
				&object, 7, &iov, 1 }, 0, &err);

		if (rc != cases[i].rc || !strstr(err.text, cases[i].say))
			fail_msg("%zu: %d, %s", i, rc, err.text);
	}
	assert_memory_equal(got, right, sizeof(got));
}

/* ---- faults ---- */

static const char *const passing[] = {
	"500", "502", "503", "504", "429", "408", "503r0", "429r1",
	"503-SlowDown", "400-RequestTimeout", "reset", "reset0", "trunc",
	"short", "half", "over", "overlen", "lie", "broken", "norange",
	"noetag", "gzip", "parts", "416", "whole", "302", "drip", "200", "206",
};
#define N_PASSING (sizeof(passing) / sizeof(passing[0]))

static int one_fault(void *ctx, size_t i, struct rsh_error *err)
{
	char name[64];

	snprintf(name, sizeof(name), "fault~%s", passing[i]);
	return read_name(ctx, name, err);
}

TEST(what_passes_is_survived)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_objects_stats s;
	FREED_BY(teardown) struct fixture f;

	setup(&f);
	assert_good(rsh_parallel_for(8, N_PASSING, one_fault, f.o, &err), err);
	rsh_objects_stats_get(f.o, &s);
	/* A label "gzip" and a whole object are no faults. */
	assert_true(s.retries >= N_PASSING - 5);
}

TEST(silence_is_survived)
{
	struct rsh_error err = RSH_ERROR_INIT;
	FREED_BY(teardown) struct fixture f;

	setup(&f);
	assert_int_equal(read_name(f.o, "a~hang", &err), 0);
	assert_int_equal(read_name(f.o, "a~stall~hang~stall", &err), 0);
}

/* Two reads without a deadline of their own, of which the second one waits for
 * the connection of the first. */
static int read_slowly(void *ctx, size_t i, struct rsh_error *err)
{
	struct fixture *f = ctx;
	const struct rsh_object object = {
		.name = i ? "a" : f->slow, .size = SIZE, .etag = "\"v0\"",
	};
	uint8_t got[3000] = { 0 }, right[3000];
	struct iovec v = { got, sizeof(got) };
	int rc;

	while (i && atomic_load(&f->began) == 0)
		usleep(1000);
	atomic_store(&f->began, 1);
	usleep(i ? 100000 : 0);
	rc = rsh_objects_read(f->o, &(struct rsh_object_range){
				&object, 5, &v, 1 }, 0, err);
	object_bytes(object.name, 5, right, sizeof(right));
	if (rc == 0 && memcmp(got, right, sizeof(right)))
		return rsh_error_set(err, EIO, "%s is wrong", object.name);
	return rc;
}

static const struct slow_case {
	const char *name;
	unsigned timeout_ms;
	int rc;
	const char *say, *cause;
} slow_cases[] = {
	{ "a~slow", 3000, 0, "", "" },
	{ "a~*ooze", 500, -ETIMEDOUT, "no answer in time", "" },
	{ "a~*429", 500, -ETIMEDOUT, "; last error: ",
	  "wants fewer requests (HTTP 429" },
	{ "a~*503-SlowDown", 500, -ETIMEDOUT, "; last error: ",
	  "limits the rate of requests" },
};
#define N_SLOW (sizeof(slow_cases) / sizeof(slow_cases[0]))

struct slow_reads {
	struct fixture f[N_SLOW];
	struct rsh_error why[N_SLOW]; /* of the first read that failed */
	atomic_int rc[N_SLOW];
};

static int one_slow(void *ctx, size_t i, struct rsh_error *err)
{
	struct slow_reads *s = ctx;
	struct rsh_error why = RSH_ERROR_INIT;
	const int rc = read_slowly(&s->f[i / 2], i % 2, &why);
	int good = 0;

	(void)err;
	if (rc && atomic_compare_exchange_strong(&s->rc[i / 2], &good, rc))
		s->why[i / 2] = why;
	return 0;
}

/* A slow line is no reason to give up, but what never comes to an end is. */
TEST(slow_reads_have_time)
{
	struct slow_reads s = { .f = { { .tree = NULL } } };
	struct rsh_error err = RSH_ERROR_INIT;

	for (size_t i = 0; i < N_SLOW; i++) {
		setup_server(&s.f[i], NULL);
		s.f[i].slow = slow_cases[i].name;
		assert_good(open_with(&s.f[i], "s3://bucket",
				      (struct rsh_objects_options){
			.keys = RSH_OBJECTS_KEYS_NONE, .requests = 1,
			.timeout_ms = slow_cases[i].timeout_ms }, &err), err);
	}
	assert_good(rsh_parallel_for(2 * N_SLOW, 2 * N_SLOW, one_slow, &s,
				     &err), err);
	/* A server ends when no other one has its pipe: the last comes first. */
	for (size_t i = N_SLOW; i-- > 0;) {
		const struct slow_case *c = &slow_cases[i];

		if (atomic_load(&s.rc[i]) != c->rc ||
		    !strstr(s.why[i].text, c->say) ||
		    !strstr(s.why[i].text, c->cause))
			fail_msg("%s: %d, %s", c->name, atomic_load(&s.rc[i]),
				 s.why[i].text);
		teardown(&s.f[i]);
	}
}

static const struct lasting {
	const char *name;
	int rc;
	const char *say;
} lasting[] = {
	{ "a~*lie", -EIO, "sends another range" },
	{ "a~*over", -EIO, "more than it says" },
	{ "a~*half", -EIO, "another range" },
	{ "a~*short", -EIO, "another length" },
	{ "a~*broken", -EIO, "cannot be" },
	{ "a~*norange", -EIO, "which range" },
	{ "a~*noetag", -EIO, "name the object" },
	{ "a~*parts", -EIO, "sends something else than bytes" },
	{ "a~*416", -EIO, "HTTP 416" },
	{ "a~*501", -EIO, "HTTP 501" },
	{ "a~*302", -EIO, "redirects to another address (HTTP 302" },
	{ "a~*202", -EIO, "gives an unexpected answer (HTTP 202" },
	{ "a~*301-PermanentRedirect", -EINVAL,
	  "the bucket is in region \"south-1\"; set AWS_REGION" },
	{ "a~total", -EREMCHG, "another object" },
	{ "a~change", -EREMCHG, "HTTP 412" },
	{ "a~mix", -EREMCHG, "another object" },
	{ "a~reset~change", -EREMCHG, "HTTP 412" },
	{ "a~trunc~mix", -EREMCHG, "another object" },
	{ "a~412", -EREMCHG, "HTTP 412" },
	{ "missing", -ENOENT, "has no such object (HTTP 404 NoSuchKey" },
	{ "a~404-NoSuchBucket", -ENOENT, "has no such bucket" },
	{ "a~500~410", -ENOENT, "HTTP 410" },
	{ "a~403-AccessDenied", -EACCES, "AccessDenied" },
	{ "a~403-RequestTimeTooSkewed", -EACCES,
	  "rejects the time of the request: check this machine's clock" },
	{ "a~400-ExpiredToken", -EACCES,
	  "reports that the credentials have expired" },
	{ "a~400-InvalidToken", -EACCES, "rejects the session token" },
	{ "a~403-InvalidAccessKeyId", -EACCES, "does not know the access key" },
	{ "a~403-SignatureDoesNotMatch", -EACCES,
	  "rejects the signature: check the secret key" },
	{ "a~403-InvalidObjectState", -EACCES, "has archived this object" },
	{ "a~401", -EACCES, "HTTP 401" },
	{ "a~503r100000", -ETIMEDOUT, "is overloaded, and wants a later retry" },
};

static int one_lasting(void *ctx, size_t i, struct rsh_error *err)
{
	struct rsh_error why = RSH_ERROR_INIT;
	int rc = read_name(ctx, lasting[i].name, &why);

	if (rc == lasting[i].rc && strstr(why.text, lasting[i].say) &&
	    strstr(why.text, "s3://bucket/"))
		return 0;
	return rsh_error_set(err, EIO, "%s: %d, %s", lasting[i].name, rc,
			     why.text);
}

TEST(what_lasts_has_a_reason)
{
	struct rsh_error err = RSH_ERROR_INIT;
	FREED_BY(teardown) struct fixture f;

	setup(&f);
	assert_good(rsh_parallel_for(8, sizeof(lasting) / sizeof(lasting[0]),
				     one_lasting, f.o, &err), err);
}

static int one_deadline(void *ctx, size_t i, struct rsh_error *err)
{
	static const char *const names[] = {
		"a~*hang", "a~*stall", "a~*500", "a~*reset0", "a~*503r0",
	};
	const struct one_read r = {
		.name = names[i], .len = 5000, .deadline_ms = 300,
	};
	struct rsh_error why = RSH_ERROR_INIT;
	int rc = read_with(ctx, &r, &why);

	return rc == -ETIMEDOUT && why.text[0] ? 0 :
	       rsh_error_set(err, EIO, "%s: %d, %s", names[i], rc, why.text);
}

/* That no read waits for what comes after its deadline is seen by the stall
 * time, which is longer than the test may take. */
TEST(deadlines_are_kept)
{
	struct rsh_error err = RSH_ERROR_INIT;
	const struct rsh_objects_options o = {
		.keys = RSH_OBJECTS_KEYS_NONE, .stall_ms = 3600000,
	};
	FREED_BY(teardown) struct fixture f;

	setup_server(&f, NULL);
	assert_int_equal(open_with(&f, "s3://bucket", o, &err), 0);
	assert_good(rsh_parallel_for(5, 5, one_deadline, f.o, &err), err);
}

TEST(no_server_is_said)
{
	struct rsh_error err = RSH_ERROR_INIT;
	FREED_BY(teardown) struct fixture f;

	setup(&f);
	object_server_stop(&f.server);
	assert_int_equal(read_name(f.o, "a", &err), -ECONNREFUSED);
	object_server_start(&f.server, NULL);
}

/* ---- many at once ---- */

static int one_of_many(void *ctx, size_t i, struct rsh_error *err)
{
	char name[64];
	const struct one_read r = {
		.name = name, .offset = 37 * i, .len = 1 + 190 * i,
	};

	snprintf(name, sizeof(name), "many%zu", i % 7);
	return read_with(ctx, &r, err);
}

TEST(many_share_few_connections)
{
	struct rsh_error err = RSH_ERROR_INIT;
	const struct rsh_objects_options o = { .keys = RSH_OBJECTS_KEYS_NONE,
					       .requests = 3 };
	struct rsh_objects_stats s;
	FREED_BY(teardown) struct fixture f;

	setup_server(&f, NULL);
	assert_int_equal(open_with(&f, "s3://bucket/p/", o, &err), 0);
	assert_good(rsh_parallel_for(24, 400, one_of_many, f.o, &err), err);
	rsh_objects_stats_get(f.o, &s);
	assert_int_equal(s.requests, 400 + s.retries);
	assert_in_range(s.connections, 1, 3 + s.retries);
}

/* ---- neighbours ---- */

#define N_PARTS 400
#define PART (SIZE / N_PARTS)

struct parts {
	struct rsh_objects *o;
	struct rsh_object object; /* one for all: only these are joined */
	bool hurry; /* every second part has little time */
	atomic_uint n_late;
};

static int one_part(void *ctx, size_t i, struct rsh_error *err)
{
	struct parts *p = ctx;
	const bool hurry = p->hurry && i % 2;
	const uint64_t ns = hurry ? SECOND / 2 : LONG_S * SECOND;
	uint8_t got[PART] = { 0 }, right[PART];
	struct iovec iov = { got, PART };
	int rc = rsh_objects_read(p->o, &(struct rsh_object_range){
				&p->object, i * PART, &iov, 1 }, rsh_clock_ns() + ns, err);

	object_bytes(p->object.name, i * PART, right, PART);
	if (rc == -ETIMEDOUT && hurry) {
		atomic_fetch_add(&p->n_late, 1);
		return 0;
	}
	if (rc == 0 && memcmp(got, right, PART))
		return rsh_error_set(err, EIO, "part %zu is wrong", i);
	return rc;
}

/* Reads an object in parts, more at once than there are connections; gives how
 * many requests that took, besides those that were tried again. */
static uint64_t read_parts(const char *name, struct parts *p)
{
	struct rsh_error err = RSH_ERROR_INIT;
	const struct rsh_objects_options o = {
		.keys = RSH_OBJECTS_KEYS_NONE, .requests = 2,
		.stall_ms = 2 * STALL_MS,
	};
	struct rsh_objects_stats s;
	struct fixture f;

	setup_server(&f, NULL);
	assert_int_equal(open_with(&f, "s3://bucket", o, &err), 0);
	p->o = f.o;
	p->object = (struct rsh_object){ .name = name, .size = SIZE,
					 .etag = "\"v0\"" };
	if (rsh_parallel_for(64, N_PARTS, one_part, p, &err))
		fail_msg("%s: %s", name, err.text);
	rsh_objects_stats_get(f.o, &s);
	teardown(&f);
	return s.requests - s.retries;
}

TEST(neighbours_are_asked_for_together)
{
	struct parts p = { 0 };

	assert_in_range(read_parts("parts", &p), 1, N_PARTS - 1);
}

/* A fault that meets several of them costs none of them its bytes. */
TEST(faults_meet_neighbours)
{
	struct numbers x = { numbers_seed() };
	struct parts p = { 0 };
	char name[256];

	for (int i = 0; i < rounds(20); i++) {
		size_t len = (size_t)snprintf(name, sizeof(name), "parts%d", i);
		unsigned wrong = 0;

		for (unsigned k = 0; k < 8; k++) {
			const uint64_t a = numbers_below(&x, N_PASSING);
			const bool plain = !strcmp(passing[a], "429r1") ||
					   numbers_below(&x, 2) ||
					   (a > 10 && ++wrong > 2);

			len += (size_t)snprintf(name + len, sizeof(name) - len,
						"~%s", plain ? "drip" :
						passing[a]);
		}
		read_parts(name, &p);
	}
}

static CURL *no_handle(void)
{
	return NULL;
}

static int one_starved(void *ctx, size_t i, struct rsh_error *err)
{
	struct parts *p = ctx;
	int rc = one_part(ctx, i, err);

	if (rc == -ENOMEM)
		atomic_fetch_add(&p->n_late, 1);
	return rc == -ENOMEM ? 0 : rc;
}

/* Each of them is told that memory is out, and none waits for ever. */
TEST(neighbours_are_told_of_no_memory)
{
	struct rsh_error err = RSH_ERROR_INIT;
	__typeof__(rsh_curl.easy_init) easy_init;
	struct parts p = {
		.object = { .name = "parts", .size = SIZE,
			    .etag = "\"v0\"" },
	};
	FREED_BY(teardown) struct fixture f;

	setup(&f);
	p.o = f.o;
	easy_init = rsh_curl.easy_init;
	rsh_curl.easy_init = no_handle;
	assert_int_equal(rsh_parallel_for(64, N_PARTS, one_starved, &p, &err),
			 0);
	rsh_curl.easy_init = easy_init;
	assert_int_equal(atomic_load(&p.n_late), N_PARTS);
	assert_int_equal(read_name(f.o, "a", &err), 0);
}

/* The time of one is over while that of others goes on. */
TEST(neighbours_have_their_own_time)
{
	struct parts p = { .hurry = true };

	read_parts("parts~503~hang~hang", &p);
	assert_true(p.n_late > 0);
}

static char *log_text(struct fixture *f)
{
	FILE *file = fopen(f->log, "r");
	char *text = calloc(1, 1 << 20);

	assert_non_null(file);
	assert_true(fread(text, 1, (1 << 20) - 1, file) > 0);
	fclose(file);
	return text;
}

#define N_OLD 8
#define N_NEW 40

/* Reads of threads of which some began before all others, and ask after them,
 * while the server stands still; the last one lets it go on. */
struct turns {
	struct rsh_objects *o;
	pid_t server;
	atomic_uint began, asked;
};

static void turn_await(const atomic_uint *what, unsigned n)
{
	while (atomic_load(what) < n)
		usleep(100);
}

static int one_turn(void *ctx, size_t i, struct rsh_error *err)
{
	const bool old = i >= N_NEW;
	struct turns *t = ctx;
	char name[64];
	int rc;

	if (i == N_NEW + N_OLD) {
		turn_await(&t->asked, N_NEW + N_OLD);
		usleep(100000);
		return kill(t->server, SIGCONT);
	}
	if (!old)
		turn_await(&t->began, N_OLD);
	rsh_work_set_began(rsh_clock_ns());
	atomic_fetch_add(&t->began, old);
	if (old) {
		turn_await(&t->asked, N_NEW);
		usleep(50000);
	}
	atomic_fetch_add(&t->asked, 1);
	snprintf(name, sizeof(name), "%s%zu", old ? "old" : "new", i);
	rc = read_name(t->o, name, err);
	rsh_work_set_began(0);
	return rc;
}

/* Were all old ones served before the last new one? */
static bool old_ones_overtake(void)
{
	const struct rsh_objects_options o = {
		.keys = RSH_OBJECTS_KEYS_NONE, .requests = 1,
		.stall_ms = LONG_S * 1000,
	};
	const unsigned n = N_NEW + N_OLD + 1;
	struct rsh_error err = RSH_ERROR_INIT;
	struct turns t = { 0 };
	struct fixture f;
	char *log, *at;
	unsigned behind = 0;

	setup_server(&f, NULL);
	assert_int_equal(open_with(&f, "s3://bucket", o, &err), 0);
	t.o = f.o;
	t.server = f.server.pid;
	assert_int_equal(kill(t.server, SIGSTOP), 0);
	assert_good(rsh_parallel_for(n, n, one_turn, &t, &err), err);
	log = log_text(&f);
	for (at = log; (at = strstr(at, "/old")); at++)
		behind += strstr(at, "/new") != NULL;
	free(log);
	teardown(&f);
	return behind == N_OLD;
}

/* On a busy machine an old one may ask later than it should. */
TEST(who_began_first_is_served_first)
{
	bool found = false;

	for (unsigned i = 0; i < 10 && !found; i++)
		found = old_ones_overtake();
	assert_true(found);
}

/* ---- by chance ---- */

struct drawn {
	struct rsh_objects *o;
	uint64_t seed;
};

static int one_drawn(void *ctx, size_t i, struct rsh_error *err)
{
	const struct drawn *d = ctx;
	struct numbers x = { d->seed + i * 1000003 };
	struct one_read r = { .offset = numbers_below(&x, SIZE) };
	uint64_t n = numbers_below(&x, 4);
	const struct lasting *last = numbers_below(&x, 3) ? NULL :
		&lasting[numbers_below(&x, sizeof(lasting) /
				       sizeof(lasting[0]) - 1)];
	struct rsh_error why = RSH_ERROR_INIT;
	char name[256];
	size_t len = (size_t)snprintf(name, sizeof(name), "drawn%zu", i);
	int rc;

	r.name = name;
	r.len = 1 + (size_t)numbers_below(&x, SIZE - r.offset);
	if (last && !strcmp(last->name, "missing"))
		last = NULL;
	/* Two wrong answers at most pass. */
	for (unsigned wrong = 0; n; n--) {
		uint64_t a = numbers_below(&x, N_PASSING);

		wrong += a > 10;
		if (wrong <= 2 && strcmp(passing[a], "429r1"))
			len += (size_t)snprintf(name + len, sizeof(name) - len,
						"~%s", passing[a]);
	}
	if (last)
		snprintf(name + len, sizeof(name) - len, "%s",
			 strchr(last->name, '~'));
	rc = read_with(d->o, &r, &why);
	/* Some of the faults pass at once, and then none lasts. */
	if (rc == 0 || (last && rc < 0))
		return 0;
	return rsh_error_set(err, EIO, "%s [%llu, +%zu): %d, %s", name,
			     (unsigned long long)r.offset, r.len, rc, why.text);
}

/* Whatever comes in whatever order: right bytes, or a failure where it lasts.
 */
TEST(drawn_faults_give_right_bytes)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct drawn d = { .seed = numbers_seed() };
	FREED_BY(teardown) struct fixture f;

	setup(&f);
	d.o = f.o;
	assert_good(rsh_parallel_for(16, 100, one_drawn, &d, &err), err);
}

/* ---- listings ---- */

static int list_url(struct fixture *f, const char *url,
		    struct rsh_object_listing *l, struct rsh_error *err)
{
	const struct rsh_objects_options o = {
		.keys = RSH_OBJECTS_KEYS_NONE, .stall_ms = STALL_MS,
	};

	rsh_objects_free(f->o);
	assert_int_equal(open_with(f, url, o, err), 0);
	return rsh_objects_list(f->o, NULL, l, err);
}

static void expect_listed(const struct rsh_object_listing *l, size_t n)
{
	assert_int_equal(l->n, n);
	for (size_t i = 0; i < n; i++) {
		const struct rsh_object *o = &l->objects[i];
		unsigned d, k;
		char etag[32];

		assert_int_equal(sscanf(o->name, "d%u/file %u", &d, &k), 2);
		assert_int_equal(d, k % 7);
		assert_int_equal(o->size, 10 * k);
		snprintf(etag, sizeof(etag), "\"v%u\"", k);
		assert_string_equal(o->etag, etag);
		assert_int_equal(o->mtime.tv_sec, MODIFIED);
		assert_int_equal(o->mtime.tv_nsec, 678000000);
		assert_true(!i || strcmp(l->objects[i - 1].name, o->name) < 0);
	}
}

TEST(pages_are_listed)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_object_listing l;
	FREED_BY(teardown) struct fixture f;

	setup(&f);
	assert_int_equal(list_url(&f, "s3://b/l@2500/", &l, &err), 0);
	expect_listed(&l, 2500);
	rsh_object_listing_clear(&l);
	assert_int_equal(list_url(&f, "s3://b/l@1000~500~reset~429~trunc~hang",
				  &l, &err), 0);
	expect_listed(&l, 1000);
	rsh_object_listing_clear(&l);
}

/* A server that takes longer than the time for an answer gets more of it, or no
 * attempt would end well. */
TEST(slow_servers_get_time)
{
	struct rsh_error err = RSH_ERROR_INIT;
	FREED_BY(rsh_object_listing_clear) struct rsh_object_listing l;
	FREED_BY(teardown) struct fixture f;

	setup(&f);
	assert_int_equal(read_name(f.o, "a~*late", &err), 0);
	assert_int_equal(list_url(&f, "s3://b/l@10~*late", &l, &err), 0);
	assert_int_equal(l.n, 10);
}

TEST(bad_listings_have_a_reason)
{
	static const struct lasting bad[] = {
		{ "s3://b/l@0", -ENOENT, "not found" },
		{ "s3://b/l@10~*again", -EIO, "same page of the listing" },
		{ "s3://b/l@10~*xml", -EIO, "cannot be parsed" },
		{ "s3://b/l@10~*cut", -EIO, "cannot be parsed" },
		{ "s3://b/l@10~404-NoSuchBucket", -ENOENT, "bucket" },
		{ "s3://b/l@10~403-AccessDenied", -EACCES, "AccessDenied" },
		{ "s3://b/l@10~403-SignatureDoesNotMatch", -EACCES, "secret" },
	};
	struct rsh_object_listing l;
	FREED_BY(teardown) struct fixture f;

	setup(&f);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct rsh_error err = RSH_ERROR_INIT;
		int rc = list_url(&f, bad[i].name, &l, &err);

		if (rc != bad[i].rc || !strstr(err.text, bad[i].say))
			fail_msg("%s: %d, %s", bad[i].name, rc, err.text);
		assert_null(l.objects);
	}
}

/* ---- index files ---- */

static void tree_text(struct fixture *f, const char *name, const char *text)
{
	tree_write(f->tree, name, text, strlen(text));
}

static void expect_names(struct fixture *f, const char *index,
			 const char *const *names, size_t n)
{
	const struct rsh_objects_options o = { .index = index };
	struct rsh_error err = RSH_ERROR_INIT;
	FREED_BY(rsh_object_listing_clear) struct rsh_object_listing l;
	char url[128], got[16] = "";
	struct iovec v = { got, 3 };

	snprintf(url, sizeof(url), "%s/tree/", f->endpoint);
	rsh_objects_free(f->o);
	assert_int_equal(open_with(f, url, o, &err), 0);
	assert_good(rsh_objects_list(f->o, NULL, &l, &err), err);
	assert_int_equal(l.n, n);
	for (size_t i = 0; i < n; i++)
		assert_string_equal(l.objects[i].name, names[i]);
	assert_int_equal(l.objects[0].size, 3);
	assert_int_equal(rsh_objects_read(f->o, &(struct rsh_object_range){
				&l.objects[0], 0, &v, 1 }, 0, &err), 0);
	assert_string_equal(got, "{ }");
}

TEST(index_files_name_objects)
{
	static const char *const of_model[] = {
		"config.json", "model-1.safetensors", "model-2.safetensors",
		"model.safetensors.index.json",
	};
	static const char *const of_lines[] = { "a/x y", "empty", "names" };
	FREED_BY(teardown) struct fixture f;

	setup(&f);
	tree_text(&f, "config.json", "{ }");
	tree_text(&f, "model-1.safetensors", "first");
	tree_text(&f, "model-2.safetensors", "second");
	tree_text(&f, "model.safetensors.index.json",
		  "{\"weight_map\": {\"a\": \"model-1.safetensors\","
		  " \"b\": \"model-2.safetensors\"}}");
	expect_names(&f, NULL, of_model, 4);
	tree_text(&f, "a/x y", "{ }");
	tree_text(&f, "empty", "");
	tree_text(&f, "names", "# all\na/x y\r\nempty\nnot there\n../log\n");
	expect_names(&f, "names", of_lines, 3);
}

TEST(no_index_is_said)
{
	const struct rsh_objects_options page = { .index = "page" }, o = { 0 };
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_object_listing l;
	FREED_BY(teardown) struct fixture f;
	char url[128];

	setup(&f);
	tree_text(&f, "page", "<html></html>");
	snprintf(url, sizeof(url), "%s/tree/", f.endpoint);
	rsh_objects_free(f.o);
	assert_int_equal(open_with(&f, url, page, &err), 0);
	assert_int_equal(rsh_objects_list(f.o, NULL, &l, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "a web page, not a list of names"));
	rsh_objects_free(f.o);
	assert_int_equal(open_with(&f, url, o, &err), 0);
	assert_int_equal(rsh_objects_list(f.o, NULL, &l, &err), -ENOENT);
	assert_non_null(strstr(err.text, "there is neither a list of files nor model.safetensors"));
}

TEST(redirections_are_followed)
{
	struct rsh_error err = RSH_ERROR_INIT;
	const struct rsh_objects_options o = { .keys = RSH_OBJECTS_KEYS_NONE };
	char url[128];
	FREED_BY(teardown) struct fixture f;

	setup_server(&f, NULL);
	snprintf(url, sizeof(url), "%s/bucket?sig=covert", f.endpoint);
	assert_int_equal(open_with(&f, url, o, &err), 0);
	assert_null(strchr(rsh_objects_url(f.o), '?'));
	assert_int_equal(read_name(f.o, "a~far~500", &err), 0);
	assert_int_equal(read_name(f.o, "a~*odd", &err), -EIO);
	assert_non_null(strstr(err.text, "redirects to an address that cannot be followed"));
	assert_int_equal(read_name(f.o, "a~*round", &err), -EIO);
	assert_non_null(strstr(err.text, "redirects too often"));
	assert_int_equal(read_name(f.o, "missing", &err), -ENOENT);
	assert_null(strstr(err.text, "covert"));
}

/* ---- keys ---- */

/* What the server has been told so far. */
static void expect_told(struct fixture *f, const char *what, bool told)
{
	cleanup_free char *text = log_text(f);

	if (!strstr(text, what) == told)
		fail_msg("%s: %s", what, text);
}

static int open_signed(struct fixture *f, const char *profile,
		       struct rsh_error *err)
{
	const struct rsh_objects_options o = { .profile = profile };

	rsh_objects_free(f->o);
	f->o = NULL;
	return open_with(f, "s3://bucket", o, err);
}

static void write_keys(struct fixture *f, const char *id)
{
	char text[512];

	snprintf(text, sizeof(text),
		 "[default]\naws_access_key_id = OTHER\n"
		 "aws_secret_access_key = x\n"
		 "[job]\naws_access_key_id = %s\n"
		 "aws_secret_access_key = of-job \n", id);
	tree_text(f, ".aws/credentials", text);
}

/* The first one is Amazon's own example, the others are signatures of botocore. */
TEST(requests_are_signed)
{
	static char id[] = "AKIAIOSFODNN7EXAMPLE", token[] = "some-token",
		    secret[] = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
	static const struct {
		const char *address;
		char *token;
		const char *signature;
		bool pays;
	} cases[] = {
		{ "https://examplebucket.s3.amazonaws.com/?max-keys=2&prefix=J", NULL,
		  "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7" },
		{ "https://examplebucket.s3.amazonaws.com/?max-keys=2&prefix=J", token,
		  "fe49d48a7bda8ff496eb8a90adcfd26ed9a31e7f31bb83e6d456e40a6d5fb282" },
		{ "http://127.0.0.1:9000/bucket/?list-type=2&prefix=a%20b%2B%2F", NULL,
		  "3c4188f2b20a5c406ff26cb4d86dc3aed6dad691e2929c98d4eead5d0064c62b" },
		{ "http://localhost:80/bucket/odd%20names%2B/a%25..", NULL,
		  "88302a05794840779b38d481e03211a6d6b4a42eaa8b25644fc85fba784a9599" },
		{ "https://bucket.host:443?versions=", NULL,
		  "daad00cfcb0b43445ea757997d3caa1b00ca9810d03e7bab51a3254007612522" },
		{ "https://examplebucket.s3.amazonaws.com/?max-keys=2&prefix=J", NULL,
		  "2b57e1fbc7f4132d84d0152d14616ed1692f6a66e804535705e46a7d9a8aff47", true },
		{ "https://examplebucket.s3.amazonaws.com/?max-keys=2&prefix=J", token,
		  "b54981125b8d02690041e9d814416c64d89a7e68d0067e4c307d202f97cd557a", true },
	};
	struct rsh_error err = RSH_ERROR_INIT;

	assert_int_equal(rsh_crypto_load("s3://bucket", &err), 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct object_keys keys = {
			.id = id, .secret = secret, .token = cases[i].token,
		};
		char *header = rsh_object_sign(cases[i].address, "us-east-1",
					       &keys, cases[i].pays,
					       "20130524T000000Z");
		char expected[512];

		snprintf(expected, sizeof(expected),
			 "Authorization: AWS4-HMAC-SHA256 Credential="
			 "AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, "
			 "SignedHeaders=host;x-amz-content-sha256;x-amz-date%s%s, "
			 "Signature=%s", cases[i].pays ? ";x-amz-request-payer" : "",
			 cases[i].token ? ";x-amz-security-token" : "",
			 cases[i].signature);
		assert_string_equal(header, expected);
		rsh_secret_free(header);
	}
}

TEST(keys_come_from_where_they_are)
{
	struct rsh_error err = RSH_ERROR_INIT;
	FREED_BY(teardown) struct fixture f;

	setup_server(&f, NULL);
	assert_int_equal(open_signed(&f, NULL, &err), -ENOENT);
	assert_non_null(strstr(err.text, "no credentials: set AWS_ACCESS_KEY_ID"));
	write_keys(&f, "JOBS");
	tree_text(&f, ".aws/config",
		  "[profile job]\nregion = north-9\n"
		  "[profile program]\ncredential_process = print-keys\n");
	assert_int_equal(open_signed(&f, "program", &err), -ENOTSUP);
	assert_non_null(strstr(err.text, "from a program or a service are not supported"));
	assert_int_equal(open_signed(&f, "none", &err), -ENOENT);
	assert_non_null(strstr(err.text, "\"none\""));
	assert_int_equal(open_signed(&f, "job", &err), 0);
	assert_int_equal(read_name(f.o, "a", &err), 0);
	expect_told(&f, "Credential=JOBS/", true);
	expect_told(&f, "/north-9/s3/aws4_request", true);
	setenv("AWS_ACCESS_KEY_ID", "ENVIRON", 1);
	setenv("AWS_SECRET_ACCESS_KEY", "of-environment", 1);
	setenv("AWS_SESSION_TOKEN", "some-token", 1);
	assert_int_equal(open_signed(&f, NULL, &err), 0);
	assert_int_equal(read_name(f.o, "a", &err), 0);
	expect_told(&f, "Credential=ENVIRON/", true);
	expect_told(&f, "'x-amz-security-token': 'some-token'", true);
	expect_told(&f, "of-environment", false);
	expect_told(&f, "of-job", false);
}

/* Opens as environment and profile say, with that style besides. */
static int open_as(struct fixture *f, enum rsh_objects_style style,
		   struct rsh_error *err)
{
	const struct rsh_objects_options o = { .style = style };

	rsh_objects_free(f->o);
	f->o = NULL;
	return rsh_objects_open("s3://bucket", &o, &f->o, err);
}

static void write_places(struct fixture *f)
{
	char text[1024];

	snprintf(text, sizeof(text),
		 "[profile job]\nendpoint_url = http://localhost:1\n"
		 "services = ours\ns3 =\n  addressing_style = path\n"
		 "[services ours]\nsts =\n  endpoint_url = http://other:2\n"
		 "s3 =\n  endpoint_url = http://localhost:%u\n"
		 "[profile host]\nendpoint_url = http://localhost:%u\n"
		 "s3 =\n  max_concurrent_requests = 7\n"
		 "  addressing_style = virtual\n"
		 "[profile odd]\ns3 =\n  addressing_style = sideways\n"
		 "[profile lost]\nservices = theirs\n"
		 "[profile odd-port]\nendpoint_url = http://localhost:1\n"
		 "[profile none]\nendpoint_url = http://localhost:1\n"
		 "ignore_configured_endpoint_urls = true\n",
		 f->server.port, f->server.port);
	tree_text(f, ".aws/config", text);
}

static void setup_places(struct fixture *f)
{
	setup_server(f, NULL);
	setenv("AWS_ACCESS_KEY_ID", "ENVIRON", 1);
	setenv("AWS_SECRET_ACCESS_KEY", "of-environment", 1);
	write_places(f);
}

/* Where neither libcurl nor the system knows that names below
 * "localhost" are this machine, the message says which one was asked. */
static bool is_unknown_host(const struct rsh_error *err)
{
	return strstr(err->text, "the server http://bucket.localhost:") &&
	       strstr(err->text, " cannot be found ");
}

TEST(profiles_say_how_buckets_stand)
{
	static const struct {
		const char *profile;
		enum rsh_objects_style style;
		const char *told;
	} cases[] = {
		{ "job", RSH_OBJECTS_STYLE_AUTO, "GET /bucket/a " },
		{ "job", RSH_OBJECTS_STYLE_HOST, "GET /b " },
		{ "host", RSH_OBJECTS_STYLE_AUTO, "GET /c " },
		{ "host", RSH_OBJECTS_STYLE_PATH, "GET /bucket/d " },
	};
	struct rsh_error err = RSH_ERROR_INIT;
	FREED_BY(teardown) struct fixture f;
	char name[2] = "a";

	setup_places(&f);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		setenv("AWS_PROFILE", cases[i].profile, 1);
		assert_int_equal(open_as(&f, cases[i].style, &err), 0);
		/* What bytes the server gives follows from the bucket. */
		if (read_name(f.o, name, &err) == 0 || !is_unknown_host(&err))
			expect_told(&f, cases[i].told, true);
		name[0]++;
	}
	setenv("AWS_PROFILE", "odd", 1);
	assert_int_equal(open_as(&f, RSH_OBJECTS_STYLE_AUTO, &err), -EINVAL);
	assert_non_null(strstr(err.text, "addressing_style is path, virtual or auto, "
			       "and not \"sideways\""));
}

/* The port tells which endpoint it is. */
static void expect_endpoint(struct fixture *f, const char *variable,
			    const char *value, unsigned port)
{
	struct rsh_error err = RSH_ERROR_INIT;
	uint16_t ports[2];

	setenv(variable, value, 1);
	assert_int_equal(open_as(f, RSH_OBJECTS_STYLE_AUTO, &err), 0);
	assert_int_equal(rsh_objects_ports(f->o, ports, 2), 2);
	assert_int_equal(ports[0], port);
}

TEST(endpoints_come_from_where_they_are)
{
	struct rsh_error err = RSH_ERROR_INIT;
	FREED_BY(teardown) struct fixture f;

	setup_places(&f);
	expect_endpoint(&f, "AWS_PROFILE", "none", 443);
	expect_endpoint(&f, "AWS_PROFILE", "odd-port", 1);
	expect_endpoint(&f, "AWS_PROFILE", "job", f.server.port);
	expect_endpoint(&f, "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "True", 443);
	expect_endpoint(&f, "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "no",
			f.server.port);
	expect_endpoint(&f, "AWS_ENDPOINT_URL", "http://localhost:7", 7);
	expect_endpoint(&f, "AWS_ENDPOINT_URL_S3", "http://localhost:8", 8);
	setenv("AWS_PROFILE", "lost", 1);
	assert_int_equal(open_as(&f, RSH_OBJECTS_STYLE_AUTO, &err), -ENOENT);
	assert_non_null(strstr(err.text, "\"services theirs\""));
}

TEST(keys_are_renewed)
{
	struct rsh_error err = RSH_ERROR_INIT;
	FREED_BY(teardown) struct fixture f;

	setup_server(&f, NULL);
	write_keys(&f, "OLD");
	assert_int_equal(open_signed(&f, "job", &err), 0);
	write_keys(&f, "NEW");
	assert_int_equal(read_name(f.o, "a", &err), 0);
	expect_told(&f, "Credential=NEW/", false);
	assert_int_equal(read_name(f.o, "a~400-ExpiredToken", &err), 0);
	expect_told(&f, "Credential=NEW/", true);
	assert_int_equal(read_name(f.o, "a~*403-AccessDenied", &err), -EACCES);
}

TEST(services_are_asked_where_named)
{
	struct rsh_error err = RSH_ERROR_INIT;
	char address[128];
	FREED_BY(teardown) struct fixture f;

	setup_server(&f, NULL);
	snprintf(address, sizeof(address), "%s/credentials", f.endpoint);
	setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", address, 1);
	setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "let me in", 1);
	assert_int_equal(open_signed(&f, NULL, &err), 0);
	rsh_secret_wipe_environment();
	assert_null(getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN"));
	assert_int_equal(read_name(f.o, "a", &err), 0);
	expect_told(&f, "Credential=SERVICE/", true);
	expect_told(&f, "'x-amz-security-token': 'session'", true);
}

/* A proxy would see the token and the keys.  Only the service is asked: the
 * proxy that is named for the rest does not answer. */
TEST(services_are_asked_without_a_proxy)
{
	static const char *const names[] = { "http_proxy", "all_proxy",
					     "ALL_PROXY" };
	struct rsh_error err = RSH_ERROR_INIT;
	char address[128];
	struct fixture f;

	for (size_t i = 0; i < 2 * sizeof(names) / sizeof(names[0]); i++) {
		setup_server(&f, NULL);
		snprintf(address, sizeof(address), "%s/credentials", f.endpoint);
		if (i % 2)
			setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f.endpoint, 1);
		else
			setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", address, 1);
		setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "let me in", 1);
		setenv(names[i / 2], "http://127.0.0.1:1", 1);
		assert_int_equal(open_signed(&f, NULL, &err), 0);
		assert_true(read_with(f.o, &(struct one_read){
				"a", 0, 5, .deadline_ms = 500 }, &err) < 0);
		expect_told(&f, i % 2 ? "/latest/api/token" : "/credentials", true);
		expect_told(&f, i % 2 ? "ttl" : "let me in", true);
		expect_told(&f, "/bucket", false);
		unsetenv(names[i / 2]);
		teardown(&f);
	}
}

TEST(tokens_are_not_sent_in_clear)
{
	static const struct {
		const char *address;
		bool refused;
	} cases[] = {
		{ "http://10.1.2.3/keys", true },
		{ "http://keys.example/v1", true },
		{ "http://localhost.example/", true },
		{ "http://127.0.0.1.example/", true },
		{ "http://169.254.170.20/", true },
		{ "HTTP://keys", true },
		{ "http://localhost:8080/keys", false },
		{ "http://127.3.2.1/", false },
		{ "http://[::1]:80/", false },
		{ "http://169.254.170.23/v1/credentials", false },
		{ "http://[fd00:ec2::23]/v1/credentials", false },
		{ "https://keys.example/v1", false },
	};
	struct rsh_error err = RSH_ERROR_INIT;
	FREED_BY(teardown) struct fixture f;

	setup_server(&f, NULL);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", cases[i].address, 1);
		assert_int_equal(open_signed(&f, NULL, &err),
				 cases[i].refused ? -EINVAL : 0);
		if (cases[i].refused)
			assert_non_null(strstr(err.text, "would send a secret in clear"));
	}
}

TEST(services_without_keys_are_said)
{
	struct rsh_error err = RSH_ERROR_INIT;
	char address[128];
	FREED_BY(teardown) struct fixture f;

	setup_server(&f, NULL);
	snprintf(address, sizeof(address), "%s/credentials/none", f.endpoint);
	setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", address, 1);
	setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "let me in", 1);
	assert_int_equal(open_signed(&f, NULL, &err), 0);
	assert_int_equal(read_name(f.o, "a", &err), -EBADMSG);
	assert_non_null(strstr(err.text, "the credentials service returned no credentials"));
	setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "/absent/token", 1);
	assert_int_equal(open_signed(&f, NULL, &err), 0);
	assert_int_equal(read_name(f.o, "a", &err), -ENOENT);
	assert_non_null(strstr(err.text, "cannot read the token for the credentials service"));
}

/* ---- secrets ---- */

#define SECRET_LEN 40

/* Makes the secret of something that is not it. */
static void secret_make(char *to)
{
	for (size_t i = 0; i < SECRET_LEN; i++)
		to[i] = (char)('A' + (i * 7 + 3) % 26);
	to[SECRET_LEN] = '\0';
}

/* Is the secret in these bytes, other than at `at`? */
static bool secret_within(const char *p, size_t len, const char *at)
{
	for (const char *end = p + len; p + SECRET_LEN <= end; p++) {
		size_t i = 0;

		while (i < SECRET_LEN &&
		       p[i] == (char)('A' + (i * 7 + 3) % 26))
			i++;
		if (i == SECRET_LEN && p != at)
			return true;
	}
	return false;
}

/* Looks through all memory that a core file would have. */
static bool secret_in_core(void)
{
	FILE *maps = fopen("/proc/self/smaps", "r");
	FILE *mem = fopen("/proc/self/mem", "r");
	unsigned long from = 0, to = 0, a, b;
	char line[4096], mode[5] = "";
	bool found = false;

	assert_true(maps && mem);
	while (fgets(line, sizeof(line), maps)) {
		size_t n = to - from;
		char *copy;

		if (sscanf(line, "%lx-%lx %4s", &a, &b, mode) == 3) {
			from = a;
			to = b;
			continue;
		}
		if (strncmp(line, "VmFlags:", 8) || strstr(line, " dd") ||
		    mode[1] != 'w')
			continue;
		copy = malloc(n);
		fseeko(mem, (off_t)from, SEEK_SET);
		n = fread(copy, 1, n, mem);
		found |= secret_within(copy, n, NULL);
		explicit_bzero(copy, n);
		free(copy);
	}
	fclose(maps);
	fclose(mem);
	return found;
}

/* Does the kernel tell what a core file leaves out?  qemu-user's does not. */
static bool smaps_tell(void)
{
	FILE *maps = fopen("/proc/self/smaps", "r");
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	unsigned long from = 0, to = 0, a, b;
	char line[4096];
	bool told = false;
	void *map = mmap(NULL, page, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(maps && map != MAP_FAILED);
	madvise(map, page, MADV_DONTDUMP);
	while (fgets(line, sizeof(line), maps))
		if (sscanf(line, "%lx-%lx ", &a, &b) == 2) {
			from = a;
			to = b;
		} else if (!strncmp(line, "VmFlags:", 8) &&
			   (unsigned long)map >= from &&
			   (unsigned long)map < to) {
			told = strstr(line, " dd");
		}
	fclose(maps);
	munmap(map, page);
	return told;
}

TEST(secrets_are_in_no_core)
{
	struct rsh_error err = RSH_ERROR_INIT;
	char secret[SECRET_LEN + 1];
	struct fixture f;

	if (!smaps_tell()) {
		unit_skip("this kernel does not tell what a core file has");
		return;
	}
	setup_server(&f, NULL);
	secret_make(secret);
	setenv("AWS_ACCESS_KEY_ID", "ENVIRON", 1);
	setenv("AWS_SECRET_ACCESS_KEY", secret, 1);
	setenv("AWS_SESSION_TOKEN", secret, 1);
	assert_true(secret_in_core());
	explicit_bzero(secret, sizeof(secret));
	assert_int_equal(open_signed(&f, NULL, &err), 0);
	rsh_secret_wipe_environment();
	assert_int_equal(read_name(f.o, "a~403-ExpiredToken", &err), -EACCES);
	assert_int_equal(read_name(f.o, "a~500~reset", &err), 0);
	assert_false(secret_in_core());
	teardown(&f);
	assert_false(secret_in_core());
}

/* ---- TLS ---- */

TEST(certificates_are_verified)
{
	const char *srcdir = getenv("srcdir");
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_objects_options o = { .keys = RSH_OBJECTS_KEYS_NONE };
	char pem[4096];
	FREED_BY(teardown) struct fixture f;

	snprintf(pem, sizeof(pem), "%s/unit/data/objects.pem",
		 srcdir ? srcdir : ".");
	setup_server(&f, pem);
	assert_int_equal(open_with(&f, "s3://bucket", o, &err), 0);
	assert_int_equal(read_name(f.o, "a", &err), -EPROTO);
	rsh_objects_free(f.o);
	o.ca_file = pem;
	assert_int_equal(open_with(&f, "s3://bucket", o, &err), 0);
	assert_good(read_name(f.o, "a", &err), err);
	assert_int_equal(read_name(f.o, "a~500~reset", &err), 0);
}

/* ---- addresses ---- */

TEST(addresses_are_told_apart)
{
	static const char *const bad[] = {
		"s3://", "s3:///key", "s3://-x/", "s3://a b/", "s3://a?b/",
		"s3://me:pass@bucket/", "http://", "https:///path",
		"http://host:0/", "http://host:99999/", "http://host:/",
		"http://host:1x/", "http://host:-1/", "http://:80/",
		"http://host/a b", "http://host/?a b", "http://me:pass@/",
		"http://[]/", "http://[]:80/", "http://[::1/", "http://::1/",
		"http://[::1]x/", "http://a[b/", "/path", "ftp://host/",
	}, *const good[] = {
		"s3://b", "s3://b/a b?c#d@e%20f", "s3://b/a:/", "http://host",
		"http://[::1]", "https://[fe80::1]:443/x", "http://h:1/a%20b",
	};
	struct rsh_error err = RSH_ERROR_INIT;
	const struct rsh_objects_options o = { .keys = RSH_OBJECTS_KEYS_NONE };
	struct rsh_objects *objects;
	uint16_t ports[2];

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(rsh_objects_open(bad[i], &o, &objects, &err),
				 -EINVAL);
		assert_null(strstr(err.text, "pass"));
	}
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		assert_int_equal(rsh_objects_open(good[i], &o, &objects, &err),
				 0);
		rsh_objects_free(objects);
	}
	assert_false(rsh_objects_is_url("s3/bucket"));
	assert_true(rsh_objects_is_url("https://host"));
	assert_int_equal(rsh_objects_open("https://me:pass@host:8443/p/?q=r#f",
					  &o, &objects, &err), 0);
	assert_string_equal(rsh_objects_url(objects), "https://host:8443/p");
	rsh_objects_free(objects);
	assert_int_equal(rsh_objects_open("s3://bucket//p//", &o, &objects,
					  &err), 0);
	assert_string_equal(rsh_objects_url(objects), "s3://bucket//p");
	assert_int_equal(rsh_objects_ports(objects, ports, 2), 2);
	assert_int_equal(ports[0], 443);
	rsh_objects_free(objects);
}

TEST(bad_addresses_have_a_reason)
{
	static const struct {
		const char *url, *endpoint, *say;
	} bad[] = {
		{ "http://host/a b", NULL, "this address contains blanks: write %20" },
		{ "/path", NULL, "not an address of object storage" },
		{ "s3://b", "http://host/?a", "the endpoint: not an address of a server" },
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		const struct rsh_objects_options o = {
			.keys = RSH_OBJECTS_KEYS_NONE, .endpoint = bad[i].endpoint,
		};
		struct rsh_error err = RSH_ERROR_INIT;
		struct rsh_objects *objects;

		assert_int_equal(rsh_objects_open(bad[i].url, &o, &objects, &err),
				 -EINVAL);
		assert_non_null(strstr(err.text, bad[i].say));
	}
}

TEST(secrets_leave_addresses)
{
	struct rsh_objects_options o = { .keys = RSH_OBJECTS_KEYS_NONE };
	char plain[] = "s3://bucket/p?a@b", half[] = "http://host/p@q#x";
	char whole[] = "https://me:pass@host:8443/p/?q=r#f";

	assert_int_equal(rsh_objects_hide(plain, &o), 0);
	assert_string_equal(plain, "s3://bucket/p?a@b");
	assert_int_equal(rsh_objects_hide(half, &o), 0);
	assert_string_equal(half, "http://host/p@q");
	assert_null(o.user);
	assert_null(o.query);
	assert_int_equal(rsh_objects_hide(whole, &o), 0);
	assert_string_equal(whole, "https://host:8443/p/");
	assert_null(memmem(whole, sizeof(whole), "pass", 4));
	assert_null(memmem(whole, sizeof(whole), "q=r", 3));
	assert_string_equal(o.user, "me:pass");
	assert_string_equal(o.query, "q=r");
	rsh_objects_options_clear(&o);
	assert_null(o.user);
}

TEST(absent_certificates_are_said)
{
	const struct rsh_objects_options o = {
		.keys = RSH_OBJECTS_KEYS_NONE, .ca_file = "/absent/ca.pem",
	};
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_objects *objects;

	assert_int_equal(rsh_objects_open("https://host/", &o, &objects, &err),
			 -ENOENT);
	assert_non_null(strstr(err.text, "/absent/ca.pem"));
}
