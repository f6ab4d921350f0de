/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_store_fault.c - bytes that are turned over: which, and that they
 * stay the same. */
#include "config.h"

#include <pthread.h>

#include "rsh/util/clock.h"
#include "storage/store/io_i.h"
#include "support.h"

#define FILE_BYTES 20000

/* The file, read in one piece. */
static uint8_t *flipped(const char *text, const char *name)
{
	struct rsh_error err = RSH_ERROR_INIT;
	uint8_t *data = calloc(FILE_BYTES, 1);
	struct rsh_faults *f = NULL;

	assert_good(rsh_faults_new(text, &f, &err), err);
	rsh_faults_flip(f, name, 0, data, FILE_BYTES);
	rsh_faults_free(f);
	return data;
}

static size_t count_flipped(const uint8_t *data, size_t from, size_t to)
{
	size_t n = 0;

	for (size_t i = from; i < to; i++) {
		/* One bit of a byte. */
		assert_int_equal(data[i] & (data[i] - 1), 0);
		n += data[i] != 0;
	}
	return n;
}

TEST(range_and_file)
{
	uint8_t *data = flipped("flip@rank_3/:100-200", "rank_3/a.ckpt");

	assert_int_equal(count_flipped(data, 0, 100), 0);
	assert_int_equal(count_flipped(data, 100, 200), 100);
	assert_int_equal(count_flipped(data, 200, FILE_BYTES), 0);
	free(data);
	data = flipped("flip@rank_3/:100-200", "rank_2/a.ckpt");
	assert_int_equal(count_flipped(data, 0, FILE_BYTES), 0);
	free(data);
	data = flipped("flip", "rank_2/a.ckpt");
	assert_int_equal(count_flipped(data, 0, FILE_BYTES), FILE_BYTES);
	free(data);
}

TEST(probability_of_a_byte)
{
	uint8_t *data = flipped("flip,p=0.1", "a.ckpt");
	size_t n = count_flipped(data, 0, FILE_BYTES);

	assert_in_range(n, FILE_BYTES / 12, FILE_BYTES / 8);
	free(data);
	data = flipped("flip,p=0", "a.ckpt");
	assert_int_equal(count_flipped(data, 0, FILE_BYTES), 0);
	free(data);
}

TEST(seed_and_name_make_others)
{
	uint8_t *data = flipped("flip,p=0.1", "a.ckpt");
	uint8_t *same = flipped("flip,p=0.1,seed=0", "a.ckpt");
	cleanup_free uint8_t *seed = flipped("flip,p=0.1,seed=1", "a.ckpt");
	cleanup_free uint8_t *name = flipped("flip,p=0.1", "b.ckpt");

	assert_memory_equal(data, same, FILE_BYTES);
	assert_memory_not_equal(data, seed, FILE_BYTES);
	assert_memory_not_equal(data, name, FILE_BYTES);
	free(data);
	free(same);
}

/* However it is read. */
TEST(pieces_are_as_the_whole)
{
	static const char text[] = "flip@a:3000-9000,p=0.3;flip@:8000-8100";
	struct numbers x = { numbers_seed() };
	struct rsh_error err = RSH_ERROR_INIT;
	cleanup_free uint8_t *data = flipped(text, "a.ckpt");
	struct rsh_faults *f = NULL;
	uint8_t piece[700];

	assert_int_equal(rsh_faults_new(text, &f, &err), 0);
	for (unsigned i = 0; i < 2000; i++) {
		size_t len = 1 + numbers_below(&x, sizeof(piece));
		size_t at = numbers_below(&x, FILE_BYTES - len);

		memset(piece, 0, len);
		rsh_faults_flip(f, "a.ckpt", at, piece, len);
		assert_memory_equal(piece, data + at, len);
	}
	rsh_faults_free(f);
}

/* A fault that turns bytes over does nothing before a read, and any other
 * nothing behind it. */
TEST(kinds_keep_apart)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_faults *f = NULL;
	uint8_t *data = flipped("eio;short;truncate@:5-6", "a.ckpt");
	size_t len = 1000;

	assert_int_equal(count_flipped(data, 0, FILE_BYTES), 0);
	free(data);
	assert_int_equal(rsh_faults_new("eio", &f, &err), 0);
	assert_false(rsh_faults_flip_any(f));
	rsh_faults_free(f);
	assert_int_equal(rsh_faults_new("eio@nowhere;flip", &f, &err), 0);
	assert_true(rsh_faults_flip_any(f));
	assert_int_equal(rsh_faults_apply(f, "a.ckpt", 0, &len), 0);
	assert_int_equal(len, 1000);
	rsh_faults_free(f);
}

TEST(reads_before_and_behind_are_spared)
{
	static const int expected[] = { 0, 0, EIO, EIO, EIO, 0, 0 };
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_faults *f = NULL;
	size_t len = 1000;

	assert_int_equal(rsh_faults_new("eio@a:500-600,after=2,times=3", &f,
					&err), 0);
	for (size_t i = 0; i < sizeof(expected) / sizeof(*expected); i++) {
		/* These do not count. */
		assert_int_equal(rsh_faults_apply(f, "b.ckpt", 0, &len), 0);
		assert_int_equal(rsh_faults_apply(f, "a.ckpt", 600, &len), 0);
		assert_int_equal(rsh_faults_apply(f, "a.ckpt", 0, &len),
				 expected[i]);
	}
	rsh_faults_free(f);
}

/* ---- reads side by side ---- */

enum { N_READERS = 4, N_READS = 8, DELAY_MS = 5, CROWD = 4 };

struct reader {
	pthread_t thread;
	struct rsh_faults *faults;
	uint64_t longest; /* ns */
};

static void *read_some(void *arg)
{
	struct reader *r = arg;

	for (unsigned i = 0; i < N_READS; i++) {
		const uint64_t start = rsh_clock_ns();
		size_t len = 1000;
		uint64_t took;

		rsh_faults_apply(r->faults, "a.ckpt", 0, &len);
		took = rsh_clock_ns() - start;
		if (took > r->longest)
			r->longest = took;
	}
	return NULL;
}

TEST(a_crowd_takes_longer)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct reader readers[N_READERS] = { 0 };
	struct rsh_faults *f = NULL;
	uint64_t longest = 0;

	assert_int_equal(rsh_faults_new("delay=5ms,crowd=4", &f, &err), 0);
	for (unsigned i = 0; i < N_READERS; i++) {
		readers[i].faults = f;
		assert_int_equal(pthread_create(&readers[i].thread, NULL,
						read_some, &readers[i]), 0);
	}
	for (unsigned i = 0; i < N_READERS; i++) {
		pthread_join(readers[i].thread, NULL);
		if (readers[i].longest > longest)
			longest = readers[i].longest;
	}
	/* One at least met another. */
	assert_true(longest >= UINT64_C(1000000) * DELAY_MS * CROWD);
	rsh_faults_free(f);
}
