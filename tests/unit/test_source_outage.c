/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_source_outage.c - files that cannot be reached and can be again: who
 * notices, what is logged, and what counts as the same file. */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "rsh/util/clock.h"
#include "rsh/util/log.h"
#include "source/source_i.h"
#include "source_support.h"

#define N_RANKS 4
#define BYTES 5000

static uint64_t now_ns;

static uint64_t stopped_clock(void)
{
	return now_ns;
}

struct fixture {
	char *tree;
	uint8_t content[N_RANKS][BYTES];
	uint64_t at; /* of the content in each file */
	struct rsh_names *names;
	struct rsh_source_io *io;
	struct rsh_source *source;
};

static void name_of(unsigned rank, char name[64])
{
	snprintf(name, 64, "rank_%u/net-1_1.ckpt", rank);
}

static void setup_with(struct fixture *f, const char *faults)
{
	const struct rsh_source_io_options io = {
		.caching = RSH_CACHING_OFF, .faults = faults,
	};
	struct rsh_source_options o = { .n_threads = 1 };
	struct rsh_error err = RSH_ERROR_INIT;
	char name[64];

	memset(f, 0, sizeof(*f));
	f->tree = tree_make();
	for (unsigned rank = 0; rank < N_RANKS; rank++) {
		memset(f->content[rank], (int)rank + 1, BYTES);
		name_of(rank, name);
		f->at = tree_write_vector(f->tree, name, f->content[rank],
					  BYTES);
	}
	f->names = rsh_names_new();
	assert_non_null(f->names);
	assert_int_equal(rsh_source_io_new(&io, &f->io, &err), 0);
	o.io = f->io;
	assert_int_equal(rsh_source_open(f->tree, 0, N_RANKS, &o, &f->source,
					 &err), 0);
	assert_int_equal(rsh_source_choose(f->source, 0, &err), 0);
	assert_int_equal(rsh_source_index(f->source, f->names, &err), 0);
	now_ns = 1000000000;
	f->source->outage.now = stopped_clock;
	f->source->outage.unwatched = true;
}

static void teardown(struct fixture *f)
{
	rsh_source_free(f->source);
	rsh_source_io_free(f->io);
	rsh_names_free(f->names);
	tree_remove(f->tree);
}

static int read_rank(struct fixture *f, unsigned rank, bool wait)
{
	uint8_t got[BYTES];
	int rc = rsh_source_read_at(f->source, rank, f->at, got, BYTES, wait);

	if (rc == 0)
		assert_memory_equal(got, f->content[rank], BYTES);
	return rc;
}

static void expect_state(struct fixture *f, unsigned n_failed, bool on,
			 unsigned n)
{
	struct rsh_source_outages o;

	rsh_source_outages(f->source, &o);
	assert_int_equal(rsh_source_n_failed(f->source), n_failed);
	assert_int_equal(o.on, on);
	assert_int_equal(o.n, n);
}

static unsigned count_lines(const char *log, const char *words)
{
	unsigned n = 0;

	for (; (log = strstr(log, words)); log++)
		n++;
	return n;
}

/* ---- what fails once is tried again at once ---- */

static void one_failure_is_none(void **state)
{
	struct fixture f;

	(void)state;
	setup_with(&f, "eio@rank_1/,times=1");
	assert_int_equal(read_rank(&f, 1, false), 0);
	expect_state(&f, 0, false, 0);
	teardown(&f);
}

static void two_are_an_outage(void **state)
{
	struct fixture f;

	(void)state;
	setup_with(&f, "eio@rank_1/,times=2");
	assert_int_equal(read_rank(&f, 1, false), -EIO);
	expect_state(&f, 1, true, 1);
	assert_true(rsh_source_failed(f.source)[1]);
	assert_false(rsh_source_failed(f.source)[0]);
	assert_int_equal(read_rank(&f, 0, false), 0);
	/* Nobody but who looks has seen it come back. */
	assert_int_equal(read_rank(&f, 1, false), 0);
	expect_state(&f, 1, true, 1);
	assert_true(rsh_outage_look(f.source));
	expect_state(&f, 0, false, 1);
	assert_false(rsh_source_failed(f.source)[1]);
	teardown(&f);
}

/* In a long one no reader waits. */
static void patience_ends(void **state)
{
	struct fixture f;
	uint64_t start;

	(void)state;
	setup_with(&f, "eio@rank_1/");
	assert_int_equal(read_rank(&f, 1, false), -EIO);
	now_ns += RSH_PATIENCE_NS;
	start = rsh_clock_ns();
	for (int i = 0; i < 100; i++)
		assert_int_equal(read_rank(&f, 1, true), -EIO);
	assert_true(rsh_clock_ns() - start < RSH_PATIENCE_NS * 10);
	assert_false(rsh_outage_look(f.source));
	expect_state(&f, 1, true, 1);
	teardown(&f);
}

/* ---- the log ---- */

static void logged_once_a_source(void **state)
{
	struct fixture f;
	char *log;

	(void)state;
	/* Of four files two attempts each, and the looks of the first four. */
	setup_with(&f, "eio,times=12");
	for (unsigned rank = 0; rank < N_RANKS; rank++)
		assert_int_equal(read_rank(&f, rank, false), -EIO);
	expect_state(&f, 4, true, 1);
	assert_false(rsh_outage_look(f.source));
	now_ns += UINT64_C(31000000000);
	assert_true(rsh_outage_look(f.source));
	expect_state(&f, 0, false, 1);
	log = rsh_log_recent();
	assert_non_null(log);
	assert_int_equal(count_lines(log, "cannot be reached ("), 1);
	assert_int_equal(count_lines(log, "rank_0/net-1_1.ckpt: cannot be "
				     "reached (Input/output error)"), 1);
	free(log);
	teardown(&f);
}

/* A bad place of a disk is no reason to keep quiet about all that comes later. */
static void one_that_never_comes_back(void **state)
{
	struct fixture f;

	(void)state;
	setup_with(&f, "eio@rank_1/;eio@rank_2/,times=2;eio@rank_3/,times=2");
	assert_int_equal(read_rank(&f, 1, false), -EIO);
	assert_int_equal(read_rank(&f, 2, false), -EIO);
	expect_state(&f, 2, true, 1);
	assert_true(rsh_outage_look(f.source));
	expect_state(&f, 1, false, 1);
	/* It is known. */
	assert_int_equal(read_rank(&f, 1, false), -EIO);
	expect_state(&f, 1, false, 1);
	assert_int_equal(read_rank(&f, 3, false), -EIO);
	expect_state(&f, 2, true, 2);
	assert_true(rsh_outage_look(f.source));
	expect_state(&f, 1, false, 2);
	teardown(&f);
}

/* Where it failed it is tried again, not where all is well. */
static void a_bad_place_stays_bad(void **state)
{
	struct fixture f;
	uint8_t c;

	(void)state;
	setup_with(&f, "eio@rank_1/:4000-4001");
	assert_int_equal(read_rank(&f, 1, false), -EIO);
	assert_int_equal(rsh_source_read_at(f.source, 1, f.at, &c, 1, false),
			 0);
	assert_false(rsh_outage_look(f.source));
	expect_state(&f, 1, true, 1);
	teardown(&f);
}

/* ---- the thread, and readers who wait for it ---- */

static void waited_for(void **state)
{
	struct fixture f;

	(void)state;
	/* Two attempts, and one look in vain. */
	setup_with(&f, "eio@rank_1/,times=3");
	f.source->outage.unwatched = false;
	assert_int_equal(read_rank(&f, 1, true), 0);
	/* The end is told after the file is free. */
	while (atomic_load(&f.source->outage.on))
		usleep(1000);
	expect_state(&f, 0, false, 1);
	teardown(&f);
}

struct crowd {
	struct fixture *fixture;
	unsigned number, failed;
};

static void *read_on(void *arg)
{
	struct crowd *c = arg;

	for (unsigned i = 0; i < 300; i++)
		c->failed += read_rank(c->fixture, (c->number + i) % N_RANKS,
				       i % 2) != 0;
	return NULL;
}

static void by_many_at_once(void **state)
{
	pthread_t threads[8];
	struct crowd crowd[8];
	struct fixture f;

	(void)state;
	setup_with(&f, "eio,p=0.2,times=1000");
	f.source->outage.now = rsh_clock_ns;
	f.source->outage.unwatched = false;
	f.source->pool.max_open = 2;
	for (unsigned i = 0; i < 8; i++) {
		crowd[i] = (struct crowd){ &f, i, 0 };
		assert_int_equal(pthread_create(&threads[i], NULL, read_on,
						&crowd[i]), 0);
	}
	for (unsigned i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; rsh_source_n_failed(f.source) && i < 30000; i++)
		usleep(1000);
	assert_int_equal(rsh_source_n_failed(f.source), 0);
	for (unsigned rank = 0; rank < N_RANKS; rank++)
		assert_false(rsh_source_failed(f.source)[rank]);
	teardown(&f);
}

/* Stopped while it has work. */
static void closed_in_the_middle(void **state)
{
	struct fixture f;

	(void)state;
	setup_with(&f, "eio");
	f.source->outage.unwatched = false;
	for (unsigned rank = 0; rank < N_RANKS; rank++)
		assert_int_equal(read_rank(&f, rank, false), -EIO);
	teardown(&f);
}

/* Not every one of thousands is worth a line. */
static void comes_and_goes_all_the_time(void **state)
{
	struct fixture f;
	uint64_t warnings, errors, before;

	(void)state;
	setup_with(&f, "eio@rank_1/,p=0.7");
	rsh_log_counts(&before, &warnings);
	for (unsigned i = 0; i < 3000; i++) {
		read_rank(&f, 1, false);
		rsh_outage_look(f.source);
	}
	assert_true(atomic_load(&f.source->outage.n_outages) > 300);
	rsh_log_counts(&errors, &warnings);
	assert_in_range(errors - before, 1, 30);
	teardown(&f);
}

/* ---- changed, and what it was again ---- */

static void moved_away_and_back(void **state)
{
	char name[64], path[512], away[520];
	struct fixture f;

	(void)state;
	setup_with(&f, NULL);
	f.source->pool.max_open = 1;
	name_of(2, name);
	snprintf(path, sizeof(path), "%s/%s", f.tree, name);
	snprintf(away, sizeof(away), "%s.away", path);
	/* It is closed for others that are wanted. */
	for (unsigned i = 2; i < 2 + 2 * N_RANKS; i++)
		assert_int_equal(read_rank(&f, i % N_RANKS, false), 0);
	assert_int_equal(rename(path, away), 0);
	assert_int_equal(read_rank(&f, 2, true), -ESTALE);
	/* It is no outage, and nothing is waited for. */
	expect_state(&f, 1, false, 0);
	tree_write_vector(f.tree, name, f.content[3], BYTES);
	assert_int_equal(read_rank(&f, 2, true), -ESTALE);
	assert_int_equal(rename(away, path), 0);
	assert_int_equal(read_rank(&f, 2, true), 0);
	expect_state(&f, 0, false, 0);
	assert_false(rsh_source_failed(f.source)[2]);
	teardown(&f);
}

/* A descriptor that cannot be asked says nothing about the file. */
static void not_told_is_not_changed(void **state)
{
	struct fixture f;

	(void)state;
	setup_with(&f, NULL);
	assert_int_equal(rsh_file_compare(&f.source->files[0], -1, false),
			 EBADF);
	assert_int_equal(rsh_reader_errno(EBADF), -EIO);
	assert_int_equal(rsh_reader_errno(ESTALE), -EIO);
	assert_int_equal(rsh_reader_errno(ENOTCONN), -EIO);
	assert_int_equal(rsh_reader_errno(RSH_CHANGED), -ESTALE);
	assert_int_equal(rsh_source_file_check(f.source, 0, -1), -EIO);
	expect_state(&f, 1, true, 1);
	assert_true(rsh_outage_look(f.source));
	expect_state(&f, 0, false, 1);
	teardown(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(logged_once_a_source),
		cmocka_unit_test(one_failure_is_none),
		cmocka_unit_test(two_are_an_outage),
		cmocka_unit_test(patience_ends),
		cmocka_unit_test(one_that_never_comes_back),
		cmocka_unit_test(a_bad_place_stays_bad),
		cmocka_unit_test(waited_for),
		cmocka_unit_test(by_many_at_once),
		cmocka_unit_test(closed_in_the_middle),
		cmocka_unit_test(comes_and_goes_all_the_time),
		cmocka_unit_test(moved_away_and_back),
		cmocka_unit_test(not_told_is_not_changed),
	};

	return cmocka_run_group_tests_name("source_outage", tests, NULL, NULL);
}
