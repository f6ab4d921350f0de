/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_store_outage.c - files that cannot be reached and can be again: who
 * notices, what is logged, and what counts as the same file. */
#include "config.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rsh/util/clock.h"
#include "rsh/util/log.h"
#include "storage/store/store_i.h"
#include "support.h"

#define N_FILES 4
#define BYTES 5000

static uint64_t now_ns;

static uint64_t stopped_clock(void)
{
	return now_ns;
}

/* Files of N_FILES owners, from byte 0 on full of their number, plus 1. */
struct fixture {
	char *tree;
	uint8_t content[N_FILES][BYTES];
	struct rsh_store_io *io;
	struct rsh_store *store;
};

static void name_of(unsigned file, char name[64])
{
	snprintf(name, 64, "dir_%u/file", file);
}

static void open_file(struct fixture *f, unsigned file)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_handle *h;

	assert_int_equal(rsh_store_identify(f->store, file, &h, &err), 0);
	rsh_store_adopt(f->store, file, h);
}

static void setup_owned(struct fixture *f, const char *faults,
			const uint32_t owners[N_FILES])
{
	const struct rsh_store_io_options io = {
		.caching = RSH_CACHING_OFF, .faults = faults,
	};
	struct rsh_store_options o = { .follow_outside = false };
	struct rsh_error err = RSH_ERROR_INIT;
	char name[64];

	memset(f, 0, sizeof(*f));
	f->tree = tree_make();
	assert_int_equal(rsh_store_io_new(&io, &f->io, &err), 0);
	o.io = f->io;
	assert_int_equal(rsh_store_open(f->tree, &o, &f->store, &err), 0);
	for (unsigned i = 0; i < N_FILES; i++) {
		const struct rsh_store_entry e = {
			.name = name, .owner = owners[i],
		};

		memset(f->content[i], (int)i + 1, BYTES);
		name_of(i, name);
		tree_write(f->tree, name, f->content[i], BYTES);
		assert_int_equal(rsh_store_add(f->store, &e), 0);
	}
	for (unsigned i = 0; i < N_FILES; i++)
		open_file(f, i);
	assert_int_equal(rsh_store_start(f->store), 0);
	now_ns = 1000000000;
	f->store->outage.now = stopped_clock;
	f->store->outage.unwatched = true;
}

static void setup_with(struct fixture *f, const char *faults)
{
	setup_owned(f, faults, (const uint32_t[N_FILES]){ 0, 1, 2, 3 });
}

static void teardown(struct fixture *f)
{
	rsh_store_free(f->store);
	rsh_store_io_free(f->io);
	tree_remove(f->tree);
}

static int read_file(struct fixture *f, unsigned file, bool wait)
{
	uint8_t got[BYTES];
	int rc = rsh_store_read(f->store, file, 0, got, BYTES,
				wait ? RSH_WAIT : NULL);

	if (rc == 0)
		assert_memory_equal(got, f->content[file], BYTES);
	return rc;
}

static void expect_state(struct fixture *f, unsigned n_failed, bool on,
			 unsigned n)
{
	struct rsh_store_outages o;

	rsh_store_outages(f->store, &o);
	assert_int_equal(rsh_store_n_failed(f->store), n_failed);
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

/* The first one: the log has the lines of all that ran before. */
TEST(logged_once_a_store)
{
	FREED_BY(teardown) struct fixture f;
	char *log;

	/* Of four files two attempts each, and the looks of the first four. */
	setup_with(&f, "eio,times=12");
	for (unsigned i = 0; i < N_FILES; i++)
		assert_int_equal(read_file(&f, i, false), -EIO);
	expect_state(&f, 4, true, 1);
	assert_false(rsh_outage_look(f.store));
	now_ns += UINT64_C(31000000000);
	assert_true(rsh_outage_look(f.store));
	expect_state(&f, 0, false, 1);
	log = rsh_log_recent();
	assert_non_null(log);
	assert_int_equal(count_lines(log, "cannot be reached ("), 1);
	assert_int_equal(count_lines(log, "dir_0/file: cannot be "
				     "reached (Input/output error)"), 1);
	free(log);
}

/* ---- what fails once is tried again at once ---- */

TEST(one_failure_is_none)
{
	FREED_BY(teardown) struct fixture f;

	setup_with(&f, "eio@dir_1/,times=1");
	assert_int_equal(read_file(&f, 1, false), 0);
	expect_state(&f, 0, false, 0);
}

TEST(two_are_an_outage)
{
	FREED_BY(teardown) struct fixture f;

	setup_with(&f, "eio@dir_1/,times=2");
	assert_int_equal(read_file(&f, 1, false), -EIO);
	expect_state(&f, 1, true, 1);
	assert_true(rsh_store_failed(f.store)[1]);
	assert_false(rsh_store_failed(f.store)[0]);
	assert_int_equal(read_file(&f, 0, false), 0);
	/* Nobody but who looks has seen it come back. */
	assert_int_equal(read_file(&f, 1, false), 0);
	expect_state(&f, 1, true, 1);
	assert_true(rsh_outage_look(f.store));
	expect_state(&f, 0, false, 1);
	assert_false(rsh_store_failed(f.store)[1]);
}

/* An owner is well when all of its files are. */
TEST(files_of_one_owner)
{
	FREED_BY(teardown) struct fixture f;

	setup_owned(&f, "eio@dir_0/,times=2;eio@dir_2/,times=3",
		    (const uint32_t[N_FILES]){ 7, 0, 7, 0 });
	assert_int_equal(read_file(&f, 0, false), -EIO);
	assert_int_equal(read_file(&f, 2, false), -EIO);
	expect_state(&f, 2, true, 1);
	assert_true(rsh_store_failed(f.store)[7]);
	assert_true(rsh_outage_look(f.store));
	expect_state(&f, 1, false, 1);
	assert_false(rsh_store_file_failed(f.store, 0));
	assert_true(rsh_store_failed(f.store)[7]);
	assert_true(rsh_outage_look(f.store));
	expect_state(&f, 0, false, 1);
	assert_false(rsh_store_failed(f.store)[7]);
	assert_false(rsh_store_failed(f.store)[0]);
}

/* In a long one no reader waits. */
TEST(patience_ends)
{
	FREED_BY(teardown) struct fixture f;
	uint64_t start;

	setup_with(&f, "eio@dir_1/");
	assert_int_equal(read_file(&f, 1, false), -EIO);
	now_ns += RSH_PATIENCE_NS;
	start = rsh_clock_ns();
	for (int i = 0; i < 100; i++)
		assert_int_equal(read_file(&f, 1, true), -EIO);
	assert_true(rsh_clock_ns() - start < RSH_PATIENCE_NS * 10);
	assert_false(rsh_outage_look(f.store));
	expect_state(&f, 1, true, 1);
}

/* A bad place of a disk is no reason to keep quiet about all that comes later. */
TEST(one_that_never_comes_back)
{
	FREED_BY(teardown) struct fixture f;

	setup_with(&f, "eio@dir_1/;eio@dir_2/,times=2;eio@dir_3/,times=2");
	assert_int_equal(read_file(&f, 1, false), -EIO);
	assert_int_equal(read_file(&f, 2, false), -EIO);
	expect_state(&f, 2, true, 1);
	assert_true(rsh_outage_look(f.store));
	expect_state(&f, 1, false, 1);
	/* It is known. */
	assert_int_equal(read_file(&f, 1, false), -EIO);
	expect_state(&f, 1, false, 1);
	assert_int_equal(read_file(&f, 3, false), -EIO);
	expect_state(&f, 2, true, 2);
	assert_true(rsh_outage_look(f.store));
	expect_state(&f, 1, false, 2);
}

/* Where it failed it is tried again, not where all is well. */
TEST(a_bad_place_stays_bad)
{
	FREED_BY(teardown) struct fixture f;
	uint8_t c;

	setup_with(&f, "eio@dir_1/:4000-4001");
	assert_int_equal(read_file(&f, 1, false), -EIO);
	assert_int_equal(rsh_store_read(f.store, 1, 0, &c, 1, NULL), 0);
	assert_false(rsh_outage_look(f.store));
	expect_state(&f, 1, true, 1);
}

/* ---- the thread, and readers who wait for it ---- */

TEST(waited_for)
{
	FREED_BY(teardown) struct fixture f;

	/* Two attempts, and one look in vain. */
	setup_with(&f, "eio@dir_1/,times=3");
	f.store->outage.unwatched = false;
	assert_int_equal(read_file(&f, 1, true), 0);
	/* The end is told after the file is free. */
	while (atomic_load(&f.store->outage.on))
		usleep(1000);
	expect_state(&f, 0, false, 1);
}

struct crowd {
	struct fixture *fixture;
	unsigned number, failed;
};

static void *read_on(void *arg)
{
	struct crowd *c = arg;

	for (unsigned i = 0; i < 300; i++)
		c->failed += read_file(c->fixture, (c->number + i) % N_FILES,
				       i % 2) != 0;
	return NULL;
}

/* More files than descriptors: those that nobody uses are closed for others, and
 * one that was replaced meanwhile is found out. */
TEST(more_files_than_descriptors)
{
	char name[64], path[512];
	FREED_BY(teardown) struct fixture f;

	setup_with(&f, NULL);
	f.store->pool.max_open = 2;
	for (unsigned i = 0; i < 5 * N_FILES; i++)
		assert_int_equal(read_file(&f, i % N_FILES, false), 0);
	assert_int_equal(f.store->pool.n_open, 2);
	assert_null(f.store->files[0].open);
	name_of(0, name);
	snprintf(path, sizeof(path), "%s/%s", f.tree, name);
	assert_int_equal(unlink(path), 0);
	tree_write(f.tree, name, f.content[1], BYTES);
	assert_int_equal(read_file(&f, 0, true), -ESTALE);
	expect_state(&f, 1, false, 0);
	assert_int_equal(read_file(&f, 1, false), 0);
}

/* What is cleared takes other files in, under the same numbers. */
TEST(cleared_and_filled_again)
{
	const struct rsh_store_entry e = { .name = "dir_3/file", .owner = 1 };
	uint8_t got[BYTES];
	FREED_BY(teardown) struct fixture f;

	setup_with(&f, "eio@dir_0/");
	assert_int_equal(read_file(&f, 0, false), -EIO);
	assert_true(rsh_store_clear(f.store));
	assert_int_equal(f.store->n_files, 0);
	assert_int_equal(rsh_store_add(f.store, &e), 0);
	open_file(&f, 0);
	assert_int_equal(rsh_store_start(f.store), 0);
	assert_int_equal(rsh_store_read(f.store, 0, 0, got, BYTES, NULL), 0);
	assert_memory_equal(got, f.content[3], BYTES);
	expect_state(&f, 0, false, 1);
}

TEST(by_many_at_once)
{
	pthread_t threads[8];
	struct crowd crowd[8];
	FREED_BY(teardown) struct fixture f;

	setup_with(&f, "eio,p=0.2,times=1000");
	f.store->outage.now = rsh_clock_ns;
	f.store->outage.unwatched = false;
	f.store->pool.max_open = 2;
	for (unsigned i = 0; i < 8; i++) {
		crowd[i] = (struct crowd){ &f, i, 0 };
		assert_int_equal(pthread_create(&threads[i], NULL, read_on,
						&crowd[i]), 0);
	}
	for (unsigned i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; rsh_store_n_failed(f.store) && i < 30000; i++)
		usleep(1000);
	assert_int_equal(rsh_store_n_failed(f.store), 0);
	for (unsigned i = 0; i < N_FILES; i++)
		assert_false(rsh_store_failed(f.store)[i]);
}

/* Stopped while it has work. */
TEST(closed_in_the_middle)
{
	FREED_BY(teardown) struct fixture f;

	setup_with(&f, "eio");
	f.store->outage.unwatched = false;
	for (unsigned i = 0; i < N_FILES; i++)
		assert_int_equal(read_file(&f, i, false), -EIO);
}

/* Not every one of thousands is worth a line. */
TEST(comes_and_goes_all_the_time)
{
	FREED_BY(teardown) struct fixture f;
	uint64_t warnings, errors, before;

	setup_with(&f, "eio@dir_1/,p=0.7");
	rsh_log_counts(&before, &warnings);
	for (unsigned i = 0; i < 3000; i++) {
		read_file(&f, 1, false);
		rsh_outage_look(f.store);
	}
	assert_true(atomic_load(&f.store->outage.n_outages) > 300);
	rsh_log_counts(&errors, &warnings);
	assert_in_range(errors - before, 1, 30);
}

/* ---- changed, and what it was again ---- */

TEST(moved_away_and_back)
{
	char name[64], path[512], dir[512], away[520];
	FREED_BY(teardown) struct fixture f;

	setup_with(&f, NULL);
	f.store->pool.max_open = 1;
	name_of(2, name);
	snprintf(path, sizeof(path), "%s/%s", f.tree, name);
	snprintf(dir, sizeof(dir), "%s/dir_2", f.tree);
	snprintf(away, sizeof(away), "%s.away", dir);
	/* It is closed for others that are wanted. */
	for (unsigned i = 2; i < 2 + 2 * N_FILES; i++)
		assert_int_equal(read_file(&f, i % N_FILES, false), 0);
	assert_int_equal(rename(dir, away), 0);
	assert_int_equal(read_file(&f, 2, true), -ESTALE);
	/* It is no outage, and nothing is waited for. */
	expect_state(&f, 1, false, 0);
	tree_write(f.tree, name, f.content[3], BYTES);
	assert_int_equal(read_file(&f, 2, true), -ESTALE);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir(dir), 0);
	assert_int_equal(rename(away, dir), 0);
	assert_int_equal(read_file(&f, 2, true), 0);
	expect_state(&f, 0, false, 0);
	assert_false(rsh_store_failed(f.store)[2]);
}

/* Each of these changes the ctime, and the mtime stays or is restored. */
TEST(status_changes)
{
	char name[64], path[512], other[520];
	struct fixture f;

	for (int way = 0; way < 4; way++) {
		struct timespec times[2];
		struct stat st;
		int rc;

		setup_with(&f, NULL);
		name_of(2, name);
		snprintf(path, sizeof(path), "%s/%s", f.tree, name);
		snprintf(other, sizeof(other), "%s.other", path);
		assert_int_equal(read_file(&f, 2, true), 0);
		assert_int_equal(stat(path, &st), 0);
		times[0] = st.st_atim;
		times[1] = st.st_mtim;
		/* The clock of files is not finer than this. */
		nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
		rc = way == 0 ? utimensat(AT_FDCWD, path, times, 0) :
		     way == 1 ? chmod(path, 0600 ^ (st.st_mode & 0777)) :
		     way == 2 ? link(path, other) : unlink(path);
		assert_int_equal(rc, 0);
		/* What is open stays when its last name goes. */
		assert_int_equal(read_file(&f, 2, true), way < 3 ? -ESTALE : 0);
		if (way == 2)
			assert_int_equal(unlink(other), 0);
		teardown(&f);
	}
}

/* A descriptor that cannot be asked says nothing about the file. */
TEST(not_told_is_not_changed)
{
	FREED_BY(teardown) struct fixture f;

	setup_with(&f, NULL);
	assert_int_equal(rsh_files_compare(&f.store->files[0].id, -1, false),
			 EBADF);
	assert_int_equal(rsh_reader_errno(&f.store->files[0], EBADF), -EIO);
	assert_int_equal(rsh_reader_errno(&f.store->files[0], ESTALE), -EIO);
	assert_int_equal(rsh_store_check(f.store, 0, -1), -EIO);
	expect_state(&f, 1, true, 1);
	assert_true(rsh_outage_look(f.store));
	expect_state(&f, 0, false, 1);
}

static void rename_file(struct fixture *f, const char *from, const char *to)
{
	char old[512], new[512];

	snprintf(old, sizeof(old), "%s/%s", f->tree, from);
	snprintf(new, sizeof(new), "%s/%s", f->tree, to);
	assert_int_equal(rename(old, new), 0);
}

/* Begins an outage by file 1, which answers at the next look; file 2 is not
 * open. */
static void setup_outage(struct fixture *f)
{
	setup_with(f, "eio@dir_1/,times=2");
	f->store->pool.max_open = 1;
	for (unsigned i = 2; i < 2 + 2 * N_FILES; i++)
		if (i % N_FILES != 1)
			assert_int_equal(read_file(f, i % N_FILES, false), 0);
	assert_int_equal(read_file(f, 0, false), 0);
	assert_int_equal(read_file(f, 1, false), -EIO);
	expect_state(f, 1, true, 1);
}

/* A file system that comes back does not know all of its files at once. */
TEST(not_there_for_a_moment)
{
	FREED_BY(teardown) struct fixture f;

	setup_outage(&f);
	rename_file(&f, "dir_2", "away");
	assert_int_equal(read_file(&f, 2, false), -EIO);
	expect_state(&f, 2, true, 1);
	assert_true(rsh_outage_look(f.store)); /* file 1 is back */
	expect_state(&f, 1, false, 1);
	now_ns += 1000000000;
	assert_int_equal(read_file(&f, 2, false), -EIO);
	assert_false(rsh_outage_look(f.store));
	rename_file(&f, "away", "dir_2");
	now_ns += UINT64_C(60000000000);
	assert_true(rsh_outage_look(f.store));
	assert_int_equal(read_file(&f, 2, false), 0);
	expect_state(&f, 0, false, 1);
}

/* It is not there, and was not a while ago. */
TEST(gone_in_an_outage)
{
	FREED_BY(teardown) struct fixture f;

	setup_outage(&f);
	rename_file(&f, "dir_2", "away");
	assert_int_equal(read_file(&f, 2, false), -EIO);
	now_ns += UINT64_C(2000000000);
	assert_int_equal(read_file(&f, 2, false), -EIO);
	now_ns += UINT64_C(1000000000);
	assert_int_equal(read_file(&f, 2, false), -ESTALE);
	rename_file(&f, "away", "dir_2");
	assert_int_equal(read_file(&f, 2, false), 0);
	assert_true(rsh_outage_look(f.store));
	expect_state(&f, 0, false, 1);
	/* A while after the outage what is gone is gone at once. */
	now_ns += UINT64_C(3000000000);
	read_file(&f, 0, false);
	rename_file(&f, "dir_2", "away");
	assert_int_equal(read_file(&f, 2, false), -ESTALE);
	expect_state(&f, 1, false, 1);
}
