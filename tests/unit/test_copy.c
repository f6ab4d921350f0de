/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_copy.c - hashes of records on the way and of strategies, lines of
 * long files, and temporary files. */
#include "config.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

#include "copy/copy_i.h"
#include "rsh/util/files.h"
#include "tests.h"

/* Hashes are held against the plain function, whatever the layer takes. */
#undef XXH3_64bits

/* ---- digests ---- */

#define FILE_BYTES 5000

static uint64_t hash_of(const uint8_t *data, uint64_t from, uint64_t n)
{
	return XXH3_64bits(data + from, n);
}

/* Gaps, neighbours, records without bytes at all places. */
static const struct rsh_manifest_record records[] = {
	{ .offset = 0, .bytes = 0 },   { .offset = 0, .bytes = 100 },
	{ .offset = 100, .bytes = 1 }, { .offset = 150, .bytes = 0 },
	{ .offset = 150, .bytes = 600 }, { .offset = 760, .bytes = 4240 },
	{ .offset = 5000, .bytes = 0 },
};
#define N_RECORDS (sizeof(records) / sizeof(records[0]))

TEST(test_digest)
{
	uint8_t data[FILE_BYTES];

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 31 >> 3);
	for (size_t step = 1; step <= FILE_BYTES; step += step < 8 ? 1 : 37) {
		struct rsh_manifest_record to[N_RECORDS] = { 0 };
		struct rsh_digest d;

		assert_int_equal(rsh_digest_init(&d, records, N_RECORDS), 0);
		for (size_t at = 0; at < FILE_BYTES; at += step)
			rsh_digest_sink(&d, data + at, FILE_BYTES - at < step ?
					FILE_BYTES - at : step, at);
		assert_true(rsh_digest_end(&d, to) ==
			    hash_of(data, 0, FILE_BYTES));
		for (size_t i = 0; i < N_RECORDS; i++)
			assert_true(to[i].xxh3 ==
				    hash_of(data, records[i].offset,
					    records[i].bytes));
		rsh_digest_clear(&d);
	}
}

/* ---- strategies ---- */

/* A strategy with one parameter, of which a test changes one member. */
struct one_param {
	struct rsh_strategy s;
	struct rsh_strategy_param param;
	struct rsh_param_stage stages[2];
	struct rsh_strategy_item item;
	struct rsh_map_entry map[2];
	uint32_t mesh[2];
	int32_t axes[2];
	int64_t shape[2], rows[2];
	struct rsh_names *names;
};

static void one_param_make(struct one_param *o)
{
	*o = (struct one_param){
		.mesh = { 2, 4 }, .axes = { 0, 1 }, .shape = { 8, 8 },
		.rows = { 3, 5 }, .map = { { 1, o->axes }, { 1, o->axes + 1 } },
		.item = {
			.n_mesh = 2, .mesh = o->mesh, .n_map = 2, .map = o->map,
			.n_shape = 2, .shape = o->shape, .n_rows = 2,
			.rows = o->rows, .n_offsets = 2, .rows_follow = true,
			.opt_step = 1, .opt_size = -1,
		},
		.stages = { { 0, &o->item }, { 1, &o->item } },
		.param = { .n_stages = 1, .stages = o->stages },
		.s = { .stage_ranks = 8, .n_stages = 1, .n_params = 1,
		       .params = &o->param },
		.names = rsh_names_new(),
	};
	assert_non_null(o->names);
	rsh_names_add(o->names, "a", 1);
	rsh_names_add(o->names, "b", 1);
}

/* Changes member number i.  Returns false past the last. */
static bool one_param_change(struct one_param *o, unsigned i)
{
	switch (i) {
	case 0: o->s.stage_ranks = 4; return true;
	case 1: o->s.n_stages = 2; return true;
	case 2: o->s.lone_stage = 1; return true;
	case 3: o->s.n_params = 0; return true;
	case 4: o->param.name = 1; return true;
	case 5: o->param.n_stages = 2; return true;
	case 6: o->stages[0].stage = 1; return true;
	case 7: o->stages[0].item = NULL; return true;
	case 8: o->item.n_mesh = 1; return true;
	case 9: o->mesh[1] = 5; return true;
	case 10: o->item.n_map = 1; return true;
	case 11: o->map[0].n = 2; return true;
	case 12: o->map[1].n = 0; return true;
	case 13: o->axes[0] = 1; return true;
	case 14: o->item.nested = true; return true;
	case 15: o->item.n_shape = 1; return true;
	case 16: o->shape[1] = 16; return true;
	case 17: o->item.n_rows = 1; return true;
	case 18: o->rows[0] = 4; return true;
	case 19: o->item.n_offsets = 0; return true;
	case 20: o->item.rows_follow = false; return true;
	case 21: o->item.opt_step = 2; return true;
	case 22: o->item.opt_size = 2; return true;
	default: return false;
	}
}

TEST(test_every_member_of_a_strategy_is_hashed)
{
	uint64_t hashes[32];
	struct one_param o;
	unsigned n = 0;
	bool more = true;

	/* The last one is not changed. */
	while (more) {
		one_param_make(&o);
		more = one_param_change(&o, n);
		assert_int_equal(rsh_origin_hash_strategy(&o.s, o.names,
							  &hashes[n]), 0);
		for (unsigned k = 0; k < n; k++)
			if (hashes[k] == hashes[n])
				fail_msg("%u and %u have one hash", k, n);
		rsh_names_free(o.names);
		n++;
	}
	one_param_make(&o);
	assert_int_equal(rsh_origin_hash_strategy(&o.s, o.names, &hashes[n]),
			 0);
	assert_true(hashes[n] == hashes[n - 1]);
	rsh_names_free(o.names);
}

/* ---- lines ---- */

static int file_of(const char *text, size_t len)
{
	FILE *f = tmpfile();
	int fd;

	assert_non_null(f);
	assert_int_equal(fwrite(text, 1, len, f), len);
	assert_int_equal(fflush(f), 0);
	fd = dup(fileno(f));
	fclose(f);
	return fd;
}

TEST(test_lines)
{
	const char text[] = "one\n\n\ntwo\nthree";
	int fd = file_of(text, sizeof(text) - 1);
	struct rsh_lines l;
	const char *line;
	size_t len;

	rsh_lines_init(&l, fd, "f");
	assert_int_equal(rsh_lines_next(&l, &line, &len, NULL), 1);
	assert_true(len == 3 && memcmp(line, "one", 3) == 0 && l.begin == 0);
	assert_int_equal(rsh_lines_next(&l, &line, &len, NULL), 1);
	assert_true(len == 3 && memcmp(line, "two", 3) == 0 && l.begin == 6);
	assert_int_equal(l.number, 4);
	assert_int_equal(rsh_lines_next(&l, &line, &len, NULL), 1);
	assert_true(len == 5 && memcmp(line, "three", 5) == 0);
	assert_int_equal(rsh_lines_next(&l, &line, &len, NULL), 0);
	rsh_lines_clear(&l);
	close(fd);
}

TEST(test_long_lines)
{
	const size_t n = 1000003; /* several reads */
	cleanup_free char *text = malloc(2 * n);
	struct rsh_lines l;
	const char *line;
	size_t len;
	int fd;

	assert_non_null(text);
	memset(text, 'a', n);
	memset(text + n, 'b', n);
	text[n - 1] = text[2 * n - 1] = '\n';
	fd = file_of(text, 2 * n);
	rsh_lines_init(&l, fd, "f");
	for (size_t i = 0; i < 2; i++) {
		assert_int_equal(rsh_lines_next(&l, &line, &len, NULL), 1);
		assert_int_equal(len, n - 1);
		assert_int_equal(l.begin, i * n);
		assert_memory_equal(line, text + i * n, n - 1);
	}
	assert_int_equal(rsh_lines_next(&l, &line, &len, NULL), 0);
	rsh_lines_clear(&l);
	close(fd);
}

TEST(test_endless_line)
{
	struct rsh_error err = RSH_ERROR_INIT;
	int fd = file_of("", 0);
	struct rsh_lines l;
	const char *line;
	size_t len;

	/* A hole: zeros without an end. */
	assert_int_equal(ftruncate(fd, (off_t)1 << 40), 0);
	rsh_lines_init(&l, fd, "f");
	assert_int_equal(rsh_lines_next(&l, &line, &len, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "too long"));
	rsh_lines_clear(&l);
	close(fd);
}

/* ---- temporary files ---- */

struct place {
	char path[32];
	int fd;
};

static int make_place(void **state)
{
	struct place *p = malloc(sizeof(*p));

	if (!p)
		return -1;
	strcpy(p->path, "test_copy.XXXXXX");
	if (!mkdtemp(p->path))
		return -1;
	p->fd = open(p->path, O_RDONLY | O_DIRECTORY);
	*state = p;
	return p->fd < 0 ? -1 : 0;
}

static int remove_place(void **state)
{
	struct place *p = *state;
	int rc;

	unlinkat(p->fd, "name", 0);
	close(p->fd);
	rc = rmdir(p->path); /* nothing else is left */
	free(p);
	return rc;
}

static bool is_there(const struct place *p, const char *name)
{
	return faccessat(p->fd, name, F_OK, 0) == 0;
}

TEST_WITH(test_commit, make_place, remove_place)
{
	const struct place *p = *state;
	struct rsh_temp t;

	assert_int_equal(rsh_temp_open(&t, p->fd, 1), 0);
	assert_true(is_there(p, t.name));
	assert_int_equal(rsh_write_all(t.fd, "a", 1, 0), 0);
	assert_int_equal(rsh_temp_commit(&t, "name", false), 0);
	rsh_temp_drop(&t);
	assert_true(is_there(p, "name") && !is_there(p, t.name));
	/* A name that is taken, and then taken over. */
	assert_int_equal(rsh_temp_open(&t, p->fd, 1), 0);
	assert_int_equal(rsh_temp_commit(&t, "name", false), -EEXIST);
	assert_int_equal(rsh_temp_commit(&t, "name", true), 0);
	rsh_temp_drop(&t);
	assert_true(is_there(p, "name"));
}

TEST_WITH(test_the_living_are_left_alone, make_place, remove_place)
{
	const struct place *p = *state;
	struct rsh_temp t, other;

	assert_int_equal(rsh_temp_open(&t, p->fd, 7), 0);
	assert_int_equal(rsh_temp_open(&other, p->fd, 7), -EBUSY);
	rsh_temp_sweep(p->fd);
	assert_true(is_there(p, t.name));
	rsh_temp_drop(&t);
	assert_false(is_there(p, t.name));
}

TEST_WITH(test_the_dead_are_swept, make_place, remove_place)
{
	const struct place *p = *state;
	struct rsh_temp t;

	for (int i = 0; i < 2; i++) {
		assert_int_equal(rsh_temp_open(&t, p->fd, 7), 0);
		close(t.fd); /* as the end of a process does */
		assert_true(is_there(p, t.name));
		if (i == 0)
			rsh_temp_sweep(p->fd);
		else
			assert_int_equal(rsh_temp_open(&t, p->fd, 7), 0);
	}
	rsh_temp_drop(&t);
	assert_false(is_there(p, t.name));
}

#define N_SWEPT 3000
#define N_SWEEPERS 4

struct sweeping {
	int dirfd;
	atomic_bool ended;
};

static void *sweep(void *arg)
{
	struct sweeping *s = arg;

	while (!atomic_load(&s->ended))
		rsh_temp_sweep(s->dirfd);
	return NULL;
}

/* Another share sweeps the directory when it begins. */
TEST_WITH(test_a_file_is_made_while_others_sweep, make_place, remove_place)
{
	const struct place *p = *state;
	struct sweeping s = { p->fd, false };
	pthread_t threads[N_SWEEPERS];
	unsigned busy = 0;

	for (unsigned i = 0; i < N_SWEEPERS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, sweep, &s),
				 0);
	for (unsigned i = 0; i < N_SWEPT; i++) {
		struct rsh_temp t;
		int rc = rsh_temp_open(&t, p->fd, 7);

		busy += rc != 0;
		if (rc == 0)
			rsh_temp_drop(&t);
	}
	atomic_store(&s.ended, true);
	for (unsigned i = 0; i < N_SWEEPERS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(busy, 0);
}
