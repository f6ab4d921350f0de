/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_objects_peer.c - moto, which is not ours, serves the objects and
 * verifies what is signed (lib/s3_peer.py). */
#include "config.h"

#include "objects_support.h"
#include "rsh/storage/objects.h"
#include "rsh/util/thread.h"
#include "support.h"

#define PATIENCE_MS 600000

struct peer {
	struct object_server server;
	char endpoint[64], id[64], secret[128];
};

static void peer_start(struct peer *p, const char *python)
{
	object_server_run(&p->server, python, "s3_peer.py", NULL);
	assert_int_equal(sscanf(p->server.line, "%*u %63s %127s", p->id,
				p->secret), 2);
	snprintf(p->endpoint, sizeof(p->endpoint), "http://127.0.0.1:%u",
		 p->server.port);
	setenv("AWS_ENDPOINT_URL", p->endpoint, 1);
	setenv("AWS_ACCESS_KEY_ID", p->id, 1);
	setenv("AWS_SECRET_ACCESS_KEY", p->secret, 1);
	setenv("AWS_REGION", "us-east-1", 1);
	setenv("AWS_CONFIG_FILE", "/nonexistent", 1);
	setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent", 1);
	unsetenv("AWS_SESSION_TOKEN");
	unsetenv("AWS_ENDPOINT_URL_S3");
	unsetenv("AWS_PROFILE");
	unsetenv("http_proxy");
	unsetenv("all_proxy");
}

static int list(const char *url, struct rsh_objects **o,
		struct rsh_object_listing *l, struct rsh_error *err)
{
	/* Beside many other programs moto takes minutes for a page. */
	const struct rsh_objects_options opts = {
		.stall_ms = PATIENCE_MS, .timeout_ms = PATIENCE_MS,
	};

	assert_int_equal(rsh_objects_open(url, &opts, o, err), 0);
	return rsh_objects_list(*o, NULL, l, err);
}

/* Reads what lies between the first and the last tenth. */
static int read_inner(struct rsh_objects *o, const struct rsh_object *object,
		      struct rsh_error *err)
{
	uint64_t offset = object->size / 10;
	size_t len = (size_t)(object->size - 2 * offset);
	uint8_t *got = malloc(len + 1), *right = malloc(len + 1);
	struct iovec v = { got, len };
	int rc = rsh_objects_read(o, &(struct rsh_object_range){
				object, offset, &v, 1 }, 0, err);

	object_bytes(object->name, offset, right, len);
	if (rc == 0 && memcmp(got, right, len))
		rc = rsh_error_set(err, EIO, "%s: other bytes", object->name);
	free(got);
	free(right);
	return rc;
}

struct listed {
	struct rsh_objects *o;
	const struct rsh_object_listing *l;
};

static int read_each(void *ctx, size_t i, struct rsh_error *err)
{
	const struct listed *all = ctx;

	return read_inner(all->o, &all->l->objects[i], err);
}

static void expect_all(const char *url, size_t n, size_t n_read)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_object_listing l;
	struct rsh_objects *o;
	struct listed all = { NULL, &l };

	assert_good(list(url, &o, &l, &err), err);
	all.o = o;
	assert_int_equal(l.n, n);
	assert_good(rsh_parallel_for(4, n_read, read_each, &all, &err), err);
	rsh_object_listing_clear(&l);
	rsh_objects_free(o);
}

/* Of a copy, which no listing clears. */
static void expect_read(struct rsh_objects *o, struct rsh_object *of, int rc)
{
	struct rsh_error err = RSH_ERROR_INIT;

	assert_int_equal(read_inner(o, of, &err), rc);
	free(of->held);
}

static void expect_no_other(void)
{
	static const char tag[] = "\"0123456789abcdef0123456789abcdef\"";
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_object_listing l;
	struct rsh_object other;
	struct rsh_objects *o;

	assert_int_equal(list("s3://bucket/odd names+", &o, &l, &err), 0);
	other = l.objects[0];
	other.etag = tag;
	/* Some servers have other tags in listings: size and date tell then. */
	expect_read(o, &other, 0);
	other = l.objects[0];
	other.etag = tag;
	other.is_listed = false;
	expect_read(o, &other, -EREMCHG);
	other = l.objects[0];
	other.size--;
	expect_read(o, &other, -EREMCHG);
	other = l.objects[0];
	other.name = "not there";
	expect_read(o, &other, -ENOENT);
	rsh_object_listing_clear(&l);
	rsh_objects_free(o);
}

static void expect_no_strangers(void)
{
	const struct rsh_objects_options opts = {
		.keys = RSH_OBJECTS_KEYS_NONE,
		.stall_ms = PATIENCE_MS, .timeout_ms = PATIENCE_MS,
	};
	const struct rsh_object object = { .name = "file_0100", .size = 100 };
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_objects *o;

	assert_int_equal(rsh_objects_open("s3://bucket/dir", &opts, &o, &err),
			 0);
	assert_int_equal(read_inner(o, &object, &err), -EACCES);
	rsh_objects_free(o);
}

static void expect_refused(const char *url, int rc)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_object_listing l;
	struct rsh_objects *o;
	int got = list(url, &o, &l, &err);

	if (got != rc)
		fail_msg("%d: %s", got, err.text);
	assert_null(strstr(err.text, getenv("AWS_SECRET_ACCESS_KEY")));
	rsh_objects_free(o);
}

TEST(a_server_verifies_what_is_signed)
{
	const char *python = getenv("RSH_MOTO_PYTHON");
	struct peer p;

	if (!python || !*python) {
		unit_skip("RSH_MOTO_PYTHON does not name a Python with moto");
		return;
	}
	peer_start(&p, python);
	expect_all("s3://bucket/dir", 1203, 40);
	expect_all("s3://bucket/odd names+/", 7, 7);
	expect_no_other();
	expect_refused("s3://bucket/nothing", -ENOENT);
	expect_refused("s3://nobucket", -ENOENT);
	expect_no_strangers();
	setenv("AWS_SECRET_ACCESS_KEY", "another secret", 1);
	expect_refused("s3://bucket", -EACCES);
	object_server_stop(&p.server);
}
