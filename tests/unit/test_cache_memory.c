/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_cache_memory.c - what is kept, what goes first, what is loaded how
 * often, and that the bound holds. */
#include "config.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "storage/cache/cache_i.h"
#include "cache_support.h"

#define BLOCK (64 * KIB)

/* A cache with room for n blocks and what is needed to find them. */
static struct rsh_cache *cache_of(unsigned n)
{
	const struct rsh_cache_options opts = {
		.memory_bytes = n * BLOCK + BLOCK / 2,
		.block_bytes = BLOCK,
	};

	return cache_make(&opts);
}

/* Reads the first bytes of a block; was it loaded? */
static bool touch(struct rsh_cache *c, struct made_file *f, uint64_t number)
{
	return loads_of(c, f, number * BLOCK, 8) > 0;
}

TEST(test_files)
{
	cleanup_cache struct rsh_cache *c = cache_of(4);
	const struct rsh_cache_file_id id = { 1, 2, 3, 4, 5, 6, 7 };
	struct rsh_cache_file_id other[7];
	rsh_cache_file file = rsh_cache_file_open(c, &id);

	for (int i = 0; i < 7; i++)
		other[i] = id;
	other[0].dev++;
	other[1].ino++;
	other[2].size++;
	other[3].mtime_sec++;
	other[4].mtime_nsec++;
	other[5].epoch++;
	other[6].step++;
	for (int i = 0; i < 7; i++)
		assert_int_equal(rsh_cache_file_open(c, &other[i]),
				 file + 1 + (rsh_cache_file)i);
	for (int i = 0; i < 7; i++)
		assert_int_equal(rsh_cache_file_open(c, &other[i]),
				 file + 1 + (rsh_cache_file)i);
	assert_int_equal(rsh_cache_file_open(c, &id), file);
	assert_int_equal(cache_stats(c).n_files, 8);
}

/* The table of files is part of the bound, and blocks make way for it. */
TEST(test_many_files)
{
	cleanup_cache struct rsh_cache *c = cache_of(4);
	struct rsh_cache_file_id id = { .size = 1 };
	struct made_file f;
	rsh_cache_file last = 0;

	made_file_init(&f, c, 1, 4 * BLOCK);
	for (unsigned i = 0; i < 4; i++)
		touch(c, &f, i);
	while (last != RSH_CACHE_FILE_NONE) {
		id.ino++;
		last = rsh_cache_file_open(c, &id);
		assert_true(cache_stats(c).memory_bytes <=
			    4 * BLOCK + BLOCK / 2);
	}
	assert_in_range(id.ino, 1000, 4 * BLOCK / 64);
	assert_in_range(cache_stats(c).evicted_plain, 1, 4);
	id.ino = 5;
	assert_true(rsh_cache_file_open(c, &id) != RSH_CACHE_FILE_NONE);
	assert_int_equal(read_checked(c, &f, 0, 4 * BLOCK), 0);
}

TEST(test_hits)
{
	cleanup_cache struct rsh_cache *c = cache_of(8);
	struct rsh_cache_stats s;
	struct made_file f, g;

	made_file_init(&f, c, 1, 3 * BLOCK + 100);
	made_file_init(&g, c, 2, BLOCK);
	assert_int_equal(loads_of(c, &f, 10, 20), 1);
	assert_int_equal(f.last_offset, 0);
	assert_int_equal(f.last_len, BLOCK);
	assert_int_equal(loads_of(c, &f, 30, BLOCK - 30), 0);
	assert_int_equal(loads_of(c, &g, 30, 1), 1);
	/* The last block is short. */
	assert_int_equal(loads_of(c, &f, 3 * BLOCK + 99, 1), 1);
	assert_int_equal(f.last_offset, 3 * BLOCK);
	assert_int_equal(f.last_len, 100);
	s = cache_stats(c);
	assert_int_equal(s.hits_plain, 1);
	assert_int_equal(s.misses, 3);
	assert_int_equal(s.bytes_served, 20 + BLOCK - 30 + 1 + 1);
	assert_int_equal(s.bytes_loaded, 2 * BLOCK + 100);
	assert_int_equal(s.loads, 3);
	assert_int_equal(s.n_plain + s.n_spent, 3);
}

TEST(test_neighbours_are_loaded_together)
{
	cleanup_cache struct rsh_cache *c = cache_of(64);
	struct made_file f;

	made_file_init(&f, c, 1, 64 * BLOCK);
	assert_int_equal(loads_of(c, &f, 100, 3 * BLOCK), 1);
	assert_int_equal(f.last_offset, 0);
	assert_int_equal(f.last_len, 4 * BLOCK);
	/* Up to what is there, and on behind it. */
	assert_int_equal(loads_of(c, &f, 6 * BLOCK, 1), 1);
	assert_int_equal(loads_of(c, &f, 2 * BLOCK, 6 * BLOCK), 2);
	assert_int_equal(f.bytes, 8 * BLOCK);
	/* Wherever a MiB begins, it is one load, and more than that is several. */
	assert_int_equal(loads_of(c, &f, 8 * BLOCK + 100, RSH_CACHE_LOAD_MAX), 1);
	assert_int_equal(loads_of(c, &f, 25 * BLOCK, 39 * BLOCK), 3);
}

TEST(test_ranges)
{
	cleanup_cache struct rsh_cache *c = cache_of(4);
	struct made_file f, empty;
	uint8_t byte;

	made_file_init(&f, c, 1, BLOCK + 1);
	made_file_init(&empty, c, 2, 0);
	assert_int_equal(loads_of(c, &f, BLOCK + 1, 0), 0);
	assert_int_equal(loads_of(c, &empty, 0, 0), 0);
	assert_int_equal(rsh_cache_prefetch(c, empty.handle, 0, 100,
					    MADE(&empty)), 0);
	assert_int_equal(rsh_cache_prefetch(c, f.handle, 5 * BLOCK, 100,
					    MADE(&f)), 0);
	assert_int_equal(rsh_cache_read(c, f.handle, BLOCK + 1, &byte, 1,
					MADE(&f)), -EINVAL);
	assert_int_equal(rsh_cache_read(c, f.handle, UINT64_MAX, &byte, 1,
					MADE(&f)), -EINVAL);
	assert_int_equal(rsh_cache_read(c, f.handle, 0, &byte, SIZE_MAX,
					MADE(&f)), -EINVAL);
	assert_int_equal(rsh_cache_read(c, empty.handle + 1, 0, &byte, 1,
					MADE(&f)), -EINVAL);
	assert_int_equal(f.loads + empty.loads, 0);
}

TEST(test_options)
{
	const uint32_t wrong[] = { 1, 100, 4096 + 512, 3 * 65536, 8 << 20 };
	struct rsh_cache_options opts = { .memory_bytes = MIB };
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_cache *c = NULL;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		opts.block_bytes = wrong[i];
		assert_int_equal(rsh_cache_new(&opts, &c, &err), -EINVAL);
		assert_non_null(strstr(err.text, "not a size of cache blocks"));
	}
	opts.block_bytes = 0;
	c = cache_make(&opts);
	assert_int_equal(c->block_bytes, RSH_CACHE_BLOCK_DEFAULT);
	rsh_cache_free(c);
	rsh_cache_free(NULL);
}

/* ---- which block goes ---- */

TEST(test_least_recently_used_goes)
{
	cleanup_cache struct rsh_cache *c = cache_of(4);
	struct made_file f;

	made_file_init(&f, c, 1, 16 * BLOCK);
	for (unsigned i = 0; i < 4; i++)
		assert_true(touch(c, &f, i));
	assert_false(touch(c, &f, 0));
	assert_false(touch(c, &f, 2));
	assert_true(touch(c, &f, 4)); /* instead of 1 */
	assert_true(touch(c, &f, 5)); /* instead of 3 */
	assert_false(touch(c, &f, 0));
	assert_false(touch(c, &f, 2));
	assert_false(touch(c, &f, 4));
	assert_false(touch(c, &f, 5));
	assert_true(touch(c, &f, 1)); /* instead of 0 */
	assert_true(touch(c, &f, 0));
	assert_int_equal(cache_stats(c).evicted_plain, 4);
	assert_int_equal(cache_stats(c).evicted_spent, 0);
}

TEST(test_spent_goes_first)
{
	cleanup_cache struct rsh_cache *c = cache_of(4);
	struct made_file f;

	made_file_init(&f, c, 1, 16 * BLOCK);
	for (unsigned i = 0; i < 4; i++)
		touch(c, &f, i);
	/* Two readers, each of its part, in rows. */
	for (unsigned at = 0; at < BLOCK; at += 1024)
		assert_int_equal(loads_of(c, &f, 2 * BLOCK + at, 512), 0);
	assert_int_equal(cache_stats(c).n_spent, 0);
	for (unsigned at = 512; at < BLOCK; at += 1024)
		assert_int_equal(loads_of(c, &f, 2 * BLOCK + at, 512), 0);
	assert_int_equal(cache_stats(c).n_spent, 1);
	assert_true(touch(c, &f, 4)); /* instead of 2 */
	assert_false(touch(c, &f, 0));
	assert_false(touch(c, &f, 1));
	assert_false(touch(c, &f, 3));
	assert_int_equal(cache_stats(c).evicted_spent, 1);
	assert_int_equal(cache_stats(c).evicted_plain, 0);
	assert_true(touch(c, &f, 2));
}

TEST(test_spent_and_read_again_stays)
{
	cleanup_cache struct rsh_cache *c = cache_of(4);
	struct made_file f;

	made_file_init(&f, c, 1, 16 * BLOCK);
	for (unsigned i = 0; i < 3; i++)
		touch(c, &f, i);
	assert_int_equal(loads_of(c, &f, 3 * BLOCK, BLOCK), 1);
	assert_int_equal(cache_stats(c).n_spent, 1);
	assert_false(touch(c, &f, 3));
	assert_int_equal(cache_stats(c).n_spent, 0);
	assert_true(touch(c, &f, 4)); /* instead of 0 */
	assert_false(touch(c, &f, 3));
}

TEST(test_no_memory)
{
	const uint64_t sizes[] = { 0, 100, BLOCK, BLOCK + 1000 };
	struct rsh_cache_options opts = { .block_bytes = BLOCK };
	struct made_file f;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		struct rsh_cache *c;

		opts.memory_bytes = sizes[i];
		c = cache_make(&opts);
		made_file_init(&f, c, 1, 16 * BLOCK);
		assert_int_equal(f.handle, RSH_CACHE_FILE_NONE);
		assert_int_equal(loads_of(c, &f, 5, 5 * BLOCK), 1);
		assert_int_equal(loads_of(c, &f, 5, 5 * BLOCK), 1);
		assert_int_equal(loads_of(c, &f, 5, 0), 0);
		assert_int_equal(rsh_cache_prefetch(c, f.handle, 5, 5,
						    MADE(&f)), 0);
		assert_int_equal(cache_stats(c).memory_peak, 0);
		assert_int_equal(cache_stats(c).bypasses, 2);
		rsh_cache_free(c);
	}
}

TEST(test_prefetch)
{
	cleanup_cache struct rsh_cache *c = cache_of(32);
	struct made_file f;

	made_file_init(&f, c, 1, 20 * BLOCK + 1);
	touch(c, &f, 18);
	assert_int_equal(rsh_cache_prefetch(c, f.handle, BLOCK + 5, 2 * BLOCK,
					    MADE(&f)), 0);
	assert_int_equal(f.last_offset, BLOCK);
	assert_int_equal(f.last_len, 3 * BLOCK);
	assert_int_equal(rsh_cache_prefetch(c, f.handle, 3 * BLOCK, UINT64_MAX,
					    MADE(&f)), 0);
	assert_int_equal(f.bytes, 19 * BLOCK + 1);
	assert_int_equal(cache_stats(c).prefetched, 19);
	assert_int_equal(cache_stats(c).bytes_served, 8);
	assert_int_equal(cache_stats(c).misses, 1);
	assert_int_equal(loads_of(c, &f, BLOCK, 19 * BLOCK + 1), 0);
	f.fail = EIO;
	assert_int_equal(rsh_cache_prefetch(c, f.handle, 0, 1, MADE(&f)), -EIO);
}

/* ---- memory ---- */

static size_t resident_pages(void)
{
	size_t size, resident = 0;
	FILE *f = fopen("/proc/self/statm", "r");

	if (!f || fscanf(f, "%zu %zu", &size, &resident) != 2)
		fail_msg("no /proc/self/statm");
	fclose(f);
	return resident;
}

TEST(test_memory_is_given_back)
{
	cleanup_cache struct rsh_cache *c = cache_of(1000);
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct rsh_cache_stats s;
	struct made_file f;
	size_t before, full, after;

	made_file_init(&f, c, 1, 1000 * BLOCK);
	before = resident_pages() * page;
	assert_int_equal(rsh_cache_prefetch(c, f.handle, 0, 1000 * BLOCK,
					    MADE(&f)), 0);
	full = resident_pages() * page;
	assert_true(full > before + 900 * BLOCK);
	rsh_cache_drop(c);
	after = resident_pages() * page;
	assert_true(after < before + 100 * BLOCK);
	s = cache_stats(c);
	assert_int_equal(s.plain_bytes + s.spare_bytes, 0);
	assert_int_equal(s.memory_bytes, s.bookkeeping_bytes);
	assert_true(touch(c, &f, 0));
}

/* Files of a few bytes take a page each, not a block. */
TEST(test_small_files)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	const struct rsh_cache_options opts = {
		.memory_bytes = 8 * 16 * page + BLOCK / 2,
		.block_bytes = (uint32_t)(16 * page),
	};
	cleanup_cache struct rsh_cache *c = cache_make(&opts);
	struct made_file f[40];

	for (unsigned i = 0; i < 40; i++) {
		made_file_init(&f[i], c, i, 100 + i);
		assert_true(touch(c, &f[i], 0));
	}
	for (unsigned i = 0; i < 40; i++)
		assert_false(touch(c, &f[i], 0));
	assert_int_equal(cache_stats(c).plain_bytes, 40 * page);
}

/* ---- several threads ---- */

struct reader {
	pthread_t thread;
	struct rsh_cache *c;
	struct made_file *f;
	uint64_t offset;
	size_t len;
	int rc;
};

static void *reader_main(void *arg)
{
	struct reader *r = arg;

	r->rc = read_checked(r->c, r->f, r->offset, r->len);
	return NULL;
}

static void start(struct reader *r, struct rsh_cache *c, struct made_file *f,
		  uint64_t offset, size_t len)
{
	*r = (struct reader){ .c = c, .f = f, .offset = offset, .len = len };
	assert_int_equal(pthread_create(&r->thread, NULL, reader_main, r), 0);
}

static void wait_until(struct rsh_cache *c, uint64_t waits)
{
	for (int i = 0; cache_stats(c).waits < waits; i++) {
		assert_true(i < 60 * 1000);
		usleep(1000);
	}
}

static void wait_until_held(struct made_file *f, unsigned n)
{
	for (int i = 0; f->holding < n; i++) {
		assert_true(i < 60 * 1000);
		usleep(1000);
	}
}

/* Who comes to a block that another one loads loads those behind it first. */
TEST(test_what_others_do_not_load)
{
	cleanup_cache struct rsh_cache *c = cache_of(8);
	struct reader readers[2];
	struct made_file f;

	made_file_init(&f, c, 1, 8 * BLOCK);
	f.hold_back = true;
	for (unsigned i = 0; i < 2; i++) {
		start(&readers[i], c, &f, BLOCK, (1 + 4 * i) * BLOCK);
		wait_until_held(&f, i + 1);
	}
	f.hold_back = false;
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(pthread_join(readers[i].thread, NULL), 0);
		assert_int_equal(readers[i].rc, 0);
	}
	assert_int_equal(f.loads, 2);
	assert_int_equal(f.bytes, 5 * BLOCK);
	assert_int_equal(cache_stats(c).misses, 5);
	/* The block of the other one: it was waited for, or there by then. */
	assert_int_equal(cache_stats(c).hits_plain + cache_stats(c).waits, 1);
}

/* One loads, while the others come and wait. */
static void all_at_once(int code)
{
	enum { N = 12 };
	cleanup_cache struct rsh_cache *c = cache_of(8);
	struct reader readers[N];
	struct made_file f;

	made_file_init(&f, c, 1, 8 * BLOCK);
	f.hold_back = true;
	f.fail = code;
	start(&readers[0], c, &f, BLOCK, BLOCK);
	wait_until_held(&f, 1);
	for (int i = 1; i < N; i++)
		start(&readers[i], c, &f, BLOCK + 5 * (uint64_t)i, 1000);
	wait_until(c, N - 1);
	f.hold_back = false;
	for (int i = 0; i < N; i++) {
		pthread_join(readers[i].thread, NULL);
		assert_int_equal(readers[i].rc, -code);
	}
	assert_int_equal(f.loads, 1);
	assert_int_equal(cache_stats(c).loads_failed, code != 0);
	assert_int_equal(cache_stats(c).n_in_use, 0);
	/* A failure is not remembered. */
	f.fail = 0;
	assert_int_equal(loads_of(c, &f, BLOCK, 10), code != 0);
}

TEST(test_one_load_for_all)
{
	all_at_once(0);
}

TEST(test_one_failure_for_all)
{
	all_at_once(EIO);
	all_at_once(ESTALE);
	all_at_once(EAGAIN);
}

/* Two readers that load what the other one needs next. */
TEST(test_crosswise)
{
	cleanup_cache struct rsh_cache *c = cache_of(8);
	struct reader readers[2];
	struct made_file f;

	made_file_init(&f, c, 1, 8 * BLOCK);
	touch(c, &f, 1);
	touch(c, &f, 4);
	f.hold_back = true;
	start(&readers[0], c, &f, 0, 4 * BLOCK); /* 0, then 2 and 3 */
	wait_until_held(&f, 1);
	start(&readers[1], c, &f, 2 * BLOCK, 4 * BLOCK); /* 2, 3, then 5 */
	wait_until_held(&f, 2);
	f.hold_back = false;
	for (int i = 0; i < 2; i++) {
		pthread_join(readers[i].thread, NULL);
		assert_int_equal(readers[i].rc, 0);
	}
	assert_int_equal(f.bytes, 6 * BLOCK);
}

/* A slow load holds up nobody who wants something else. */
TEST(test_slow_load_is_alone)
{
	cleanup_cache struct rsh_cache *c = cache_of(4);
	struct made_file slow, quick;
	struct reader reader;

	made_file_init(&slow, c, 1, 8 * BLOCK);
	made_file_init(&quick, c, 2, 8 * BLOCK);
	slow.hold_back = true;
	start(&reader, c, &slow, 0, 3 * BLOCK);
	wait_until_held(&slow, 1);
	for (unsigned i = 0; i < 8; i++)
		assert_true(touch(c, &quick, i));
	assert_false(touch(c, &quick, 7));
	slow.hold_back = false;
	pthread_join(reader.thread, NULL);
}

/* Reads bypass the cache while all of its memory is in use. */
TEST(test_all_memory_in_use)
{
	cleanup_cache struct rsh_cache *c = cache_of(2);
	struct made_file slow, f;
	struct reader readers[2];
	struct rsh_cache_stats s;

	made_file_init(&slow, c, 1, 16 * BLOCK);
	made_file_init(&f, c, 2, 16 * BLOCK);
	slow.hold_back = true;
	for (unsigned i = 0; i < 2; i++) {
		start(&readers[i], c, &slow, (4 + 2 * i) * BLOCK, BLOCK);
		wait_until_held(&slow, i + 1);
	}
	assert_int_equal(cache_stats(c).n_in_use, 2);
	assert_int_equal(loads_of(c, &f, 10, 8 * BLOCK), 1);
	assert_int_equal(f.last_offset, 10);
	assert_int_equal(f.last_len, 8 * BLOCK);
	assert_int_equal(loads_of(c, &f, 10, 8 * BLOCK), 1);
	assert_int_equal(rsh_cache_prefetch(c, f.handle, 0, 4 * BLOCK,
					    MADE(&f)), 0);
	assert_int_equal(f.loads, 2);
	s = cache_stats(c);
	assert_int_equal(s.bypasses, 2);
	assert_int_equal(s.bytes_bypassed, 16 * BLOCK);
	slow.hold_back = false;
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(pthread_join(readers[i].thread, NULL), 0);
		assert_int_equal(readers[i].rc, 0);
	}
	assert_int_equal(cache_stats(c).n_in_use, 0);
	assert_int_equal(loads_of(c, &f, 10, 10), 1);
	assert_int_equal(loads_of(c, &f, 10, 10), 0);
}

struct random_reader {
	pthread_t thread;
	struct rsh_cache *c;
	struct made_file *files;
	unsigned n_files;
	struct numbers numbers;
	uint64_t bound;
	bool exceeded;
};

static void *random_main(void *arg)
{
	struct random_reader *r = arg;

	for (int i = 0; i < 400; i++) {
		struct made_file *f =
			&r->files[numbers_below(&r->numbers, r->n_files)];
		const uint64_t offset = numbers_below(&r->numbers, f->id.size);
		uint64_t len = UINT64_C(1) << numbers_below(&r->numbers, 20);

		if (len > f->id.size - offset)
			len = f->id.size - offset;
		switch (numbers_below(&r->numbers, 8)) {
		case 0:
			rsh_cache_prefetch(r->c, f->handle, offset, len,
					   MADE(f));
			break;
		default:
			read_checked(r->c, f, offset, (size_t)len);
		}
		if (numbers_below(&r->numbers, 100) == 0)
			rsh_cache_drop(r->c);
		r->exceeded |= cache_stats(r->c).memory_peak > r->bound;
	}
	return NULL;
}

static void random_load(unsigned blocks)
{
	enum { N = 6, FILES = 5 };
	const struct rsh_cache_options opts = {
		.memory_bytes = blocks * BLOCK + 7777,
		.block_bytes = BLOCK,
	};
	cleanup_cache struct rsh_cache *c = cache_make(&opts);
	struct random_reader readers[N];
	struct made_file files[FILES];
	struct numbers numbers = { numbers_seed() };
	struct rsh_cache_stats s;

	for (unsigned i = 0; i < FILES; i++)
		made_file_init(&files[i], c, i, 30 * BLOCK + 10 * i + 1);
	for (unsigned i = 0; i < N; i++) {
		readers[i] = (struct random_reader){
			.c = c, .files = files, .n_files = FILES,
			.numbers = { numbers_next(&numbers) },
			.bound = opts.memory_bytes,
		};
		assert_int_equal(pthread_create(&readers[i].thread, NULL,
						random_main, &readers[i]), 0);
	}
	for (unsigned i = 0; i < N; i++) {
		pthread_join(readers[i].thread, NULL);
		assert_false(readers[i].exceeded);
	}
	rsh_cache_settle(c);
	s = cache_stats(c);
	assert_int_equal(s.n_in_use, 0);
	assert_true(s.memory_peak > opts.memory_bytes - 2 * BLOCK);
	assert_true(s.memory_peak <= opts.memory_bytes);
	assert_int_equal(s.memory_bytes, s.bookkeeping_bytes + s.plain_bytes +
			 s.spare_bytes);
	rsh_cache_drop(c);
	s = cache_stats(c);
	assert_int_equal(s.memory_bytes, s.bookkeeping_bytes);
}

TEST(test_bound)
{
	static const unsigned blocks[] = { 3, 40, 100 };
	const uint64_t first = numbers_seed();

	for (unsigned i = 0; i < (unsigned)rounds(3); i++)
		random_load(blocks[(first + i) % 3]);
}
