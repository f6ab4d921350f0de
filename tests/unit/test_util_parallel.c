/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_util_parallel.c - threads do each thing once, until one fails. */
#include "config.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include "rsh/util/thread.h"
#include "tests.h"

#define N 5000

struct job {
	atomic_uint done[N];
	atomic_uint highest; /* that was begun */
	size_t bad;          /* which one fails, and those after it */
};

static int do_one(void *ctx, size_t i, struct rsh_error *err)
{
	struct job *j = ctx;
	unsigned seen = atomic_load(&j->highest);

	while (seen < i && !atomic_compare_exchange_weak(&j->highest, &seen,
							 (unsigned)i))
		;
	atomic_fetch_add(&j->done[i], 1);
	return i < j->bad ? 0 : rsh_error_set(err, EIO, "thing %zu", i);
}

TEST(test_each_once)
{
	static const unsigned threads[] = { 0, 1, 2, 7, 100 };

	for (size_t t = 0; t < sizeof(threads) / sizeof(*threads); t++) {
		static const size_t counts[] = { 0, 1, 2, 3, N };

		for (size_t c = 0; c < sizeof(counts) / sizeof(*counts); c++) {
			static struct job j;
			struct rsh_error err = RSH_ERROR_INIT;

			memset(&j, 0, sizeof(j));
			j.bad = N;
			assert_int_equal(rsh_parallel_for(threads[t], counts[c],
							  do_one, &j, &err), 0);
			for (size_t i = 0; i < N; i++)
				assert_int_equal(atomic_load(&j.done[i]),
						 i < counts[c]);
		}
	}
}

TEST(test_failure)
{
	static const unsigned threads[] = { 1, 8 };

	for (size_t t = 0; t < 2; t++) {
		static struct job j;
		struct rsh_error err = RSH_ERROR_INIT;

		memset(&j, 0, sizeof(j));
		j.bad = 100;
		assert_int_equal(
			rsh_parallel_for(threads[t], N, do_one, &j, &err),
			-EIO);
		assert_int_equal(err.code, EIO);
		assert_non_null(strstr(err.text, "thing 10"));
		/* All before it were done, and hardly any after it. */
		for (size_t i = 0; i < j.bad; i++)
			assert_int_equal(atomic_load(&j.done[i]), 1);
		assert_true(atomic_load(&j.highest) < j.bad + threads[t]);
	}
}

/* They meet, so that each does one thing. */
struct watch {
	pthread_t caller;
	pthread_barrier_t all;
	atomic_uint deaf; /* threads that take no signals */
};

static int look_at_signals(void *ctx, size_t i, struct rsh_error *err)
{
	struct watch *w = ctx;
	sigset_t now;

	(void)i;
	(void)err;
	pthread_sigmask(SIG_BLOCK, NULL, &now);
	if (sigismember(&now, SIGTERM) && sigismember(&now, SIGINT))
		atomic_fetch_add(&w->deaf, 1);
	else if (!pthread_equal(pthread_self(), w->caller))
		return -EIO;
	pthread_barrier_wait(&w->all);
	return 0;
}

/* Signals are for the threads of the caller. */
TEST(test_signals)
{
	struct watch w = { .caller = pthread_self() };
	struct rsh_error err = RSH_ERROR_INIT;

	pthread_barrier_init(&w.all, NULL, 4);
	assert_int_equal(rsh_parallel_for(4, 4, look_at_signals, &w, &err), 0);
	pthread_barrier_destroy(&w.all);
	assert_int_equal(atomic_load(&w.deaf), 3);
}
