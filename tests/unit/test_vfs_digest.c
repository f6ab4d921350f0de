/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_vfs_digest.c - digests of files that are computed: many who wait,
 * who gives up, reads that fail, an end while somebody waits. */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include <xxhash.h>

#include "rsh/vfs/digest.h"
#include "vfs/vfs_i.h"

#define FILE_BYTES ((uint64_t)5 * 1024 * 1024 + 4711)
#define N_FILES 4 /* nodes 2 .. 5; the last one cannot be read */
#define BROKEN 5
#define N_WAITERS 24

static atomic_uint delay_us;
static atomic_bool hold; /* reads do not come back */
static atomic_uint n_held;
static _Atomic uint64_t bytes_read;

static uint8_t byte_at(uint64_t node, uint64_t offset)
{
	return (uint8_t)((offset * 2654435761u + node * 97) >> 11);
}

static int fake_read(const struct rsh_body *b, struct rsh_target *to,
		     size_t len, uint64_t offset)
{
	const struct timespec t = { 0, (long)atomic_load(&delay_us) * 1000 };

	to->data = to->area;
	do {
		nanosleep(&t, NULL);
		atomic_fetch_add(&n_held, atomic_load(&hold));
	} while (atomic_load(&hold));
	if (b->file == BROKEN)
		return -EIO;
	for (size_t i = 0; i < len; i++)
		to->data[i] = byte_at(b->file, offset + i);
	atomic_fetch_add(&bytes_read, len);
	return 0;
}

static struct rsh_body fake_body(const struct rsh_vfs *v, uint32_t leaf)
{
	(void)v;
	return (struct rsh_body){
		.size = FILE_BYTES, .read = fake_read, .file = leaf,
	};
}

static const struct rsh_vfs_ops fake_ops = { .body = fake_body };
static struct rsh_row files = {
	.n = N_FILES, .first = 2, .step = 1, .parent = RSH_VFS_ROOT,
	.kind = RSH_NODE_FILE, .leaf = 2,
};
static struct rsh_vfs fake = {
	.ops = &fake_ops,
	.tree = { .root = RSH_VFS_ROOT, .rows = &files, .n_rows = 1 },
};

static uint64_t expected(uint64_t node)
{
	uint8_t *all = malloc(FILE_BYTES);
	uint64_t xxh3;

	for (uint64_t i = 0; i < FILE_BYTES; i++)
		all[i] = byte_at(node, i);
	xxh3 = XXH3_64bits(all, FILE_BYTES);
	free(all);
	return xxh3;
}

struct fixture {
	struct rsh_streams *streams;
	struct rsh_digests *digests;
};

static int setup(void **state)
{
	const struct rsh_streams_options o = { 0 };
	struct fixture *f = calloc(1, sizeof(*f));

	atomic_store(&delay_us, 0);
	atomic_store(&bytes_read, 0);
	assert_int_equal(rsh_streams_new(&o, &f->streams), 0);
	assert_int_equal(rsh_digests_new(&fake, f->streams, &f->digests), 0);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	rsh_digests_free(f->digests);
	rsh_streams_free(f->streams);
	free(f);
	return 0;
}

/* One who waits. */
struct asker {
	atomic_bool gives_up;
	atomic_int answers;
	int rc;
	uint64_t xxh3;
};

static bool gave_up(void *ctx)
{
	struct asker *a = ctx;

	/* Nobody is asked after the answer. */
	assert_int_equal(atomic_load(&a->answers), 0);
	return atomic_load(&a->gives_up);
}

static void answer(void *ctx, int rc, uint64_t xxh3)
{
	struct asker *a = ctx;

	a->rc = rc;
	a->xxh3 = xxh3;
	atomic_fetch_add(&a->answers, 1);
}

static const struct rsh_digest_calls calls = { gave_up, answer };

static void ask(struct fixture *f, uint64_t node, struct asker *a)
{
	*a = (struct asker){ .rc = 1 };
	rsh_digests_ask(f->digests, node, &calls, a);
}

static void wait_for(struct asker *a)
{
	const struct timespec t = { 0, 1000000 };

	while (atomic_load(&a->answers) == 0)
		nanosleep(&t, NULL);
	assert_int_equal(atomic_load(&a->answers), 1);
}

static void test_one(void **state)
{
	struct fixture *f = *state;
	struct asker a;

	ask(f, 2, &a);
	wait_for(&a);
	assert_int_equal(a.rc, 0);
	assert_true(a.xxh3 == expected(2));
	assert_true(a.xxh3 != expected(3));
	/* The second time nothing is read, and the answer is there at once. */
	atomic_store(&bytes_read, 0);
	ask(f, 2, &a);
	assert_int_equal(atomic_load(&a.answers), 1);
	assert_true(a.xxh3 == expected(2));
	assert_int_equal(atomic_load(&bytes_read), 0);
}

static void test_many(void **state)
{
	struct fixture *f = *state;
	struct asker a[N_WAITERS];

	for (unsigned i = 0; i < N_WAITERS; i++)
		ask(f, 2 + i % N_FILES, &a[i]);
	for (unsigned i = 0; i < N_WAITERS; i++) {
		uint64_t node = 2 + i % N_FILES;

		wait_for(&a[i]);
		assert_int_equal(a[i].rc, node == BROKEN ? -EIO : 0);
		assert_true(a[i].xxh3 == (node == BROKEN ? 0 : expected(node)));
	}
	/* Each file once, whoever waits for it; streams may read a little
	 * twice. */
	assert_true(atomic_load(&bytes_read) < 2 * (N_FILES - 1) * FILE_BYTES);
}

static void test_failures(void **state)
{
	struct fixture *f = *state;
	struct asker a;

	ask(f, BROKEN, &a);
	wait_for(&a);
	assert_int_equal(a.rc, -EIO);
	ask(f, 99, &a);
	wait_for(&a);
	assert_int_equal(a.rc, -ENOENT);
}

/* Also one whose file's turn has not come. */
static void test_giving_up(void **state)
{
	struct fixture *f = *state;
	struct asker a, b, c;

	atomic_store(&delay_us, 20000);
	ask(f, 2, &a);
	ask(f, 3, &b);
	ask(f, 2, &c);
	atomic_store(&b.gives_up, true);
	atomic_store(&a.gives_up, true);
	wait_for(&a);
	wait_for(&b);
	assert_int_equal(a.rc, -EINTR);
	assert_int_equal(b.rc, -EINTR);
	wait_for(&c);
	assert_int_equal(c.rc, 0);
	assert_true(c.xxh3 == expected(2));
}

static void test_end(void **state)
{
	struct fixture *f = *state;
	struct asker a[N_WAITERS];

	atomic_store(&delay_us, 20000);
	for (unsigned i = 0; i < N_WAITERS; i++)
		ask(f, 2 + i % (N_FILES - 1), &a[i]);
	assert_true(rsh_digests_stop(f->digests));
	for (unsigned i = 0; i < N_WAITERS; i++) {
		assert_int_equal(atomic_load(&a[i].answers), 1);
		assert_int_equal(a[i].rc, -EINTR);
	}
}

/* A read that does not come back holds nothing up. */
static void test_stuck(void **state)
{
	struct fixture *f = *state;
	struct asker a;

	atomic_store(&hold, true);
	atomic_store(&delay_us, 1000);
	ask(f, 2, &a);
	while (atomic_load(&n_held) == 0)
		;
	assert_false(rsh_digests_stop(f->digests));
	assert_int_equal(atomic_load(&a.answers), 0);
	atomic_store(&hold, false);
	wait_for(&a);
	assert_int_equal(a.rc, -EINTR);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_one, setup, teardown),
		cmocka_unit_test_setup_teardown(test_many, setup, teardown),
		cmocka_unit_test_setup_teardown(test_failures, setup, teardown),
		cmocka_unit_test_setup_teardown(test_giving_up, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_end, setup, teardown),
		cmocka_unit_test_setup_teardown(test_stuck, setup, teardown),
	};

	return cmocka_run_group_tests_name("vfs_digest", tests, NULL, NULL);
}
