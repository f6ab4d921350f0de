/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_read_helpers.c - threads that help with a read: how many there are
 * at most, what they do, and what fails. */
#include "config.h"

#include <pthread.h>
#include <stdatomic.h>

#include "read/tiles_i.h"
#include "rsh/read/body.h"
#include "rsh/util/blocking.h"
#include "tests.h"

#define PIECES 100
#define INNER 8
#define BEGAN 12345

struct done {
	struct rsh_helpers helpers;
	atomic_uint times[PIECES], inner, by_others, began_else, most;
	pthread_t caller; /* of the inner pieces */
	size_t fails;
};

/* Notes how many helpers there are. */
static void look(struct done *d)
{
	const unsigned n = atomic_load(&d->helpers.n);
	unsigned most = atomic_load(&d->most);

	while (n > most && !atomic_compare_exchange_weak(&d->most, &most, n))
		;
}

static int count(void *ctx, size_t i, struct rsh_error *err)
{
	struct done *d = ctx;

	(void)err;
	look(d);
	atomic_fetch_add(&d->times[i], 1);
	if (rsh_work_began() != BEGAN)
		atomic_fetch_add(&d->began_else, 1);
	return i == d->fails ? -EILSEQ : 0;
}

/* Each piece is done once, by whom it may be, and on behalf of the caller. */
TEST(pieces_are_done_once)
{
	static const size_t n[] = { 0, 1, 2, 3, RSH_READ_HELPERS,
				    RSH_READ_HELPERS + 1, PIECES };

	rsh_work_set_began(BEGAN);
	for (size_t k = 0; k < sizeof(n) / sizeof(n[0]); k++) {
		struct done d = { .fails = PIECES };

		assert_int_equal(rsh_helpers_run(&d.helpers, n[k], count, &d),
				 0);
		for (size_t i = 0; i < PIECES; i++)
			assert_int_equal(d.times[i], i < n[k]);
		assert_int_equal(d.began_else, 0);
		/* The caller does one of them. */
		assert_int_equal(d.most, n[k] == 0 ? 0 :
				 n[k] <= RSH_READ_HELPERS ? n[k] - 1 :
				 RSH_READ_HELPERS);
		assert_int_equal(d.helpers.n, 0);
	}
	rsh_work_set_began(0);
}

TEST(one_piece_fails)
{
	static const size_t fails[] = { 0, 1, 7, 8 };

	for (size_t k = 0; k < sizeof(fails) / sizeof(fails[0]); k++) {
		struct done d = { .fails = fails[k] };

		assert_int_equal(rsh_helpers_run(&d.helpers, 8, count, &d),
				 fails[k] < 8 ? -EILSEQ : 0);
		assert_int_equal(d.helpers.n, 0);
	}
}

static int count_inner(void *ctx, size_t i, struct rsh_error *err)
{
	struct done *d = ctx;

	(void)i, (void)err;
	look(d);
	atomic_fetch_add(&d->inner, 1);
	if (!pthread_equal(pthread_self(), d->caller))
		atomic_fetch_add(&d->by_others, 1);
	return 0;
}

static int run_inner(void *ctx, size_t i, struct rsh_error *err)
{
	struct done *d = ctx;

	(void)err;
	if (i)
		return 0;
	d->caller = pthread_self();
	return rsh_helpers_run(&d->helpers, INNER, count_inner, d);
}

/* While all helpers are taken, another caller does all of its pieces. */
TEST(no_more_helpers_than_that)
{
	struct done d = { .fails = PIECES };

	assert_int_equal(rsh_helpers_run(&d.helpers, RSH_READ_HELPERS + 1,
					 run_inner, &d), 0);
	assert_int_equal(d.inner, INNER);
	assert_int_equal(d.by_others, 0);
	assert_int_equal(d.most, RSH_READ_HELPERS);
	assert_int_equal(d.helpers.n, 0);
}
