/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_store_made.c - files that are made of others: what they are, when
 * they change, and those of another directory in the cache. */
#include "config.h"

#include <sys/stat.h>
#include <unistd.h>

#include "rsh/storage/made.h"
#include "storage/store/store_i.h"
#include "support.h"

#define N_INPUTS 3
#define BYTES 300000

/* Byte i of file number k is the sum of byte i of all inputs, plus k. */
struct maker {
	struct rsh_store *inputs;
	int fail;
	bool is_closed;
};

struct fixture {
	char *tree;
	struct rsh_store_options how;
	struct rsh_store *store;
};

static int find(void *ctx, const char *name, uint32_t *file, uint64_t *size)
{
	(void)ctx;
	if (sscanf(name, "made/%u", file) != 1)
		return -ENOENT;
	*size = BYTES;
	return 0;
}

static ssize_t read_sum(void *ctx, uint32_t file, void *buf, size_t len,
			uint64_t offset)
{
	const struct maker *m = ctx;
	uint8_t *to = buf, *one = malloc(len);

	len = offset < BYTES ? (BYTES - offset < len ? BYTES - offset : len) : 0;
	memset(to, (int)file, len);
	for (uint32_t i = 0; i < m->inputs->n_files; i++) {
		int rc = m->fail ? m->fail :
			 rsh_store_read_input(m->inputs, i, offset, one, len);

		if (rc) {
			free(one);
			return rc;
		}
		for (size_t k = 0; k < len; k++)
			to[k] = (uint8_t)(to[k] + one[k]);
	}
	free(one);
	return (ssize_t)len;
}

static void close_maker(void *ctx)
{
	struct maker *m = ctx;

	rsh_store_free(m->inputs);
	m->is_closed = true;
}

static uint8_t input_byte(uint32_t input, uint64_t at)
{
	return (uint8_t)(at * (2 * input + 3) + input + (at >> 8));
}

static void write_input(struct fixture *f, uint32_t i)
{
	char name[32];
	cleanup_free uint8_t *bytes = malloc(BYTES);

	snprintf(name, sizeof(name), "input_%u", i);
	for (uint64_t k = 0; k < BYTES; k++)
		bytes[k] = input_byte(i, k);
	tree_write(f->tree, name, bytes, BYTES);
}

static void add(struct rsh_store *s, const char *name, uint64_t epoch)
{
	struct rsh_error err = RSH_ERROR_INIT;
	const uint32_t number = s->n_files;
	struct rsh_handle *h;

	assert_int_equal(rsh_store_add(s, &(struct rsh_store_entry){
			.name = name, .epoch = epoch }), 0);
	assert_int_equal(rsh_store_identify(s, number, &h, &err), 0);
	rsh_store_adopt(s, number, h);
}

/* Opens a store with the files 5 and 6 that are made of the first inputs. */
static void join(struct fixture *f, struct maker *m, uint32_t n_inputs)
{
	const struct rsh_made made = {
		.ctx = m, .find = find, .read = read_sum, .close = close_maker,
	};
	struct rsh_made with_inputs = made;
	struct rsh_error err = RSH_ERROR_INIT;
	char name[32];

	*m = (struct maker){ .fail = 0 };
	assert_int_equal(rsh_store_open(f->tree, &f->how, &m->inputs, &err), 0);
	for (uint32_t i = 0; i < n_inputs; i++) {
		snprintf(name, sizeof(name), "input_%u", i);
		add(m->inputs, name, 0);
	}
	assert_int_equal(rsh_store_start(m->inputs), 0);
	with_inputs.inputs = m->inputs;
	assert_int_equal(rsh_store_open(f->tree, &f->how, &f->store, &err), 0);
	assert_int_equal(rsh_store_join_made(f->store, "made", &with_inputs), 0);
	add(f->store, "made/5", n_inputs);
	add(f->store, "made/6", n_inputs);
	assert_int_equal(rsh_store_start(f->store), 0);
}

static void setup(struct fixture *f, const struct rsh_cache_options *cache)
{
	const struct rsh_store_io_options io = {
		.caching = cache ? RSH_CACHING_AUTO : RSH_CACHING_OFF,
		.cache = cache ? *cache : (struct rsh_cache_options){ 0 },
	};
	struct rsh_error err = RSH_ERROR_INIT;

	*f = (struct fixture){ .tree = tree_make() };
	assert_int_equal(rsh_store_io_new(&io, &f->how.io, &err), 0);
	for (uint32_t i = 0; i < N_INPUTS; i++)
		write_input(f, i);
}

static void teardown(struct fixture *f)
{
	rsh_store_io_free(f->how.io);
	tree_remove(f->tree);
}

static uint8_t made_byte(uint32_t file, uint32_t n_inputs, uint64_t at)
{
	uint8_t sum = (uint8_t)file;

	for (uint32_t i = 0; i < n_inputs; i++)
		sum = (uint8_t)(sum + input_byte(i, at));
	return sum;
}

static void expect(const uint8_t *got, uint32_t file, uint32_t n_inputs,
		   uint64_t at, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (got[i] != made_byte(file, n_inputs, at + i))
			fail_msg("byte %llu", (unsigned long long)(at + i));
}

static void read_all(struct fixture *f, uint32_t n_inputs)
{
	cleanup_free uint8_t *got = malloc(BYTES);

	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(rsh_store_read(f->store, i, 0, got, BYTES,
						NULL), 0);
		expect(got, 5 + i, n_inputs, 0, BYTES);
		assert_int_equal(rsh_store_read(f->store, i, 7777, got, 99,
						NULL), 0);
		expect(got, 5 + i, n_inputs, 7777, 99);
	}
}

TEST(reads)
{
	struct rsh_store_io_stats stats;
	FREED_BY(teardown) struct fixture f;
	struct maker m;

	setup(&f, NULL);
	join(&f, &m, N_INPUTS);
	read_all(&f, N_INPUTS);
	/* Only inputs are the source. */
	rsh_store_io_stats_get(f.how.io, &stats);
	assert_int_equal(stats.bytes, N_INPUTS * 2 * (BYTES + 99));
	rsh_store_free(f.store);
	assert_true(m.is_closed);
}

/* Those may read it that may read all inputs. */
TEST(is_as_its_inputs)
{
	struct rsh_stat st;
	FREED_BY(teardown) struct fixture f;
	struct maker m;
	char path[4096];

	setup(&f, NULL);
	snprintf(path, sizeof(path), "%s/input_1", f.tree);
	assert_int_equal(chmod(path, 0040), 0);
	join(&f, &m, N_INPUTS);
	assert_int_equal(f.store->files[0].attr.mode, 0);
	assert_int_equal(f.store->files[0].id.size, BYTES);
	assert_int_equal(rsh_store_look(f.store, "made/5", &st), 0);
	assert_int_equal(st.size, BYTES);
	assert_int_equal(st.attr.mode, 0);
	assert_int_equal(rsh_store_look(f.store, "made/x", &st), -ENOENT);
	assert_memory_not_equal(f.store->files[0].id.which,
				f.store->files[1].id.which,
				sizeof(f.store->files[0].id.which));
	rsh_store_free(f.store);
}

/* It has changed if an input has. */
TEST(changes_with_its_inputs)
{
	struct rsh_store_identity before;
	FREED_BY(teardown) struct fixture f;
	struct maker m;
	uint8_t got[100];

	setup(&f, NULL);
	join(&f, &m, N_INPUTS);
	before = f.store->files[0].id;
	write_input(&f, 2);
	assert_int_equal(rsh_store_read(f.store, 0, 0, got, sizeof(got), NULL),
			 -ESTALE);
	rsh_store_free(f.store);
	join(&f, &m, N_INPUTS);
	assert_memory_not_equal(before.which, f.store->files[0].id.which,
				sizeof(before.which));
	read_all(&f, N_INPUTS);
	rsh_store_free(f.store);
}

/* Damage is an error of the read, and no outage. */
TEST(damage_is_no_outage)
{
	struct rsh_store_outages o;
	FREED_BY(teardown) struct fixture f;
	struct maker m;
	uint8_t got[100];

	setup(&f, NULL);
	join(&f, &m, N_INPUTS);
	m.fail = -EBADMSG;
	assert_int_equal(rsh_store_read(f.store, 0, 0, got, sizeof(got), NULL),
			 -EBADMSG);
	rsh_store_outages(f.store, &o);
	assert_int_equal(o.n, 0);
	m.fail = 0;
	read_all(&f, N_INPUTS);
	rsh_store_free(f.store);
}

/* A directory that is joined again has other files. */
TEST(joined_again)
{
	struct rsh_made made = {
		.find = find, .read = read_sum, .close = close_maker,
	};
	struct maker one = { .fail = 0 }, two = { .fail = 0 };
	struct rsh_error err = RSH_ERROR_INIT;
	FREED_BY(teardown) struct fixture f;

	setup(&f, NULL);
	assert_int_equal(rsh_store_open(f.tree, &f.how, &f.store, &err), 0);
	assert_int_equal(rsh_store_open(f.tree, &f.how, &one.inputs, &err), 0);
	assert_int_equal(rsh_store_open(f.tree, &f.how, &two.inputs, &err), 0);
	made.ctx = &one;
	made.inputs = one.inputs;
	assert_int_equal(rsh_store_join_made(f.store, "made", &made), 0);
	made.ctx = &two;
	made.inputs = two.inputs;
	assert_int_equal(rsh_store_join_made(f.store, "made", &made), 0);
	assert_true(one.is_closed && !two.is_closed);
	rsh_store_free(f.store);
	assert_true(two.is_closed);
}

/* ---- those that the cache has ---- */

static bool peek(struct maker *m, uint32_t n_inputs, uint32_t file,
		 uint64_t epoch, uint64_t at, size_t len)
{
	const uint32_t made = rsh_store_find_made(m->inputs, n_inputs, file,
						  BYTES, epoch);
	uint8_t *got = malloc(len);
	const bool found = rsh_store_peek_made(m->inputs, made, at, got, len);

	if (found)
		expect(got, file, n_inputs, at, len);
	free(got);
	return found;
}

/* Reads files that are made of two inputs, and finds them from a directory of
 * three. */
static void found_in_cache(const char *dir)
{
	const struct rsh_cache_options cache = {
		.memory_bytes = UINT64_C(16) << 20, .dir = dir,
		.block_bytes = 65536, .disk_bytes = UINT64_C(64) << 20,
	};
	FREED_BY(teardown) struct fixture f;
	struct maker m;

	setup(&f, &cache);
	join(&f, &m, 2);
	assert_false(peek(&m, 2, 5, 2, 0, 100));
	read_all(&f, 2);
	rsh_store_free(f.store);
	join(&f, &m, N_INPUTS);
	if (dir) {
		rsh_cache_settle(f.how.io->cache);
		rsh_cache_drop(f.how.io->cache);
	}
	assert_true(peek(&m, 2, 5, 2, 0, BYTES));
	assert_true(peek(&m, 2, 6, 2, 65000, 1000));
	assert_true(peek(&m, 2, 6, 2, BYTES - 1, 1));
	/* Past the end, of other inputs, of another file, of another step. */
	assert_false(peek(&m, 2, 5, 2, 1, BYTES));
	assert_false(peek(&m, 3, 5, 2, 0, 100));
	assert_false(peek(&m, 1, 5, 2, 0, 100));
	assert_false(peek(&m, 2, 4, 2, 0, 100));
	assert_false(peek(&m, 2, 5, 3, 0, 100));
	read_all(&f, N_INPUTS);
	rsh_store_free(f.store);
}

TEST(found_in_memory)
{
	found_in_cache(NULL);
}

TEST(found_in_directory)
{
	char *tree = tree_make(), dir[4096];

	snprintf(dir, sizeof(dir), "%s/cache", tree);
	found_in_cache(dir);
	tree_remove(tree);
}

TEST(no_cache_has_none)
{
	FREED_BY(teardown) struct fixture f;
	struct maker m;

	setup(&f, NULL);
	join(&f, &m, N_INPUTS);
	read_all(&f, N_INPUTS);
	assert_false(peek(&m, N_INPUTS, 5, N_INPUTS, 0, 100));
	rsh_store_free(f.store);
}
