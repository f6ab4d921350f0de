/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_cache_stress.c - many readers, little memory, and a directory that
 * somebody deletes from, writes into and fills up meanwhile.
 *
 * Every byte that a reader gets is compared with what it must be.  Made for the
 * sanitizers: RSH_STRESS_SECONDS says how long the whole takes (4). */
#include "config.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cache_support.h"
#include "rsh/util/log.h"

enum { N_READERS = 32, N_FILES = 12, N_CACHES = 2 };

#define BLOCK (16 * KIB)
#define FILE_BLOCKS 60
#define MEMORY (2 * MIB)

struct stage {
	char *dir;
	struct rsh_cache *caches[N_CACHES]; /* of one directory */
	struct made_file files[N_CACHES][N_FILES];
	atomic_bool stop;
	atomic_ullong reads, failures, spoilt;
};

struct actor {
	pthread_t thread;
	struct stage *stage;
	unsigned number;
	struct numbers numbers;
};

static double seconds_per_part(void)
{
	const char *given = getenv("RSH_STRESS_SECONDS");

	return (given ? atof(given) : 4) / 4;
}

/* Of all caches. */
static struct rsh_cache_stats sums(struct stage *s)
{
	struct rsh_cache_stats sum = { 0 };

	for (unsigned i = 0; i < N_CACHES; i++) {
		const struct rsh_cache_stats one = cache_stats(s->caches[i]);

		sum.hits_disk += one.hits_disk;
		sum.disk_written += one.disk_written;
		sum.disk_rejected += one.disk_rejected;
		sum.disk_errors += one.disk_errors;
		sum.packed += one.packed;
		sum.unpacked += one.unpacked;
	}
	return sum;
}

/* ---- readers ---- */

static void read_some(struct actor *a, struct rsh_cache *c, struct made_file *f)
{
	const uint64_t at = numbers_below(&a->numbers, f->id.size);
	const uint64_t max = UINT64_C(2) << numbers_below(&a->numbers, 17);
	uint64_t len = 1 + numbers_below(&a->numbers, max);

	if (len > f->id.size - at)
		len = f->id.size - at;
	if (numbers_below(&a->numbers, 10) == 0)
		rsh_cache_prefetch(c, f->handle, at, 2 * len, MADE(f));
	if (read_checked(c, f, at, (size_t)len))
		a->stage->failures++;
	a->stage->reads++;
}

static void *reader_main(void *arg)
{
	struct actor *a = arg;
	struct stage *s = a->stage;
	struct rsh_cache_stats stats;

	while (!s->stop) {
		const unsigned i = a->number % N_CACHES;
		struct rsh_cache *c = s->caches[i];
		struct made_file *f =
			&s->files[i][numbers_below(&a->numbers, N_FILES)];

		read_some(a, c, f);
		rsh_cache_stats_get(c, &stats);
		if (stats.memory_peak > MEMORY)
			abort();
	}
	return NULL;
}

/* ---- what happens to the directory ---- */

/* The name of some file in it, or none. */
static bool pick(struct actor *a, DIR *d, char name[256])
{
	const uint64_t number = numbers_below(&a->numbers, 100);
	struct dirent *e;

	rewinddir(d);
	for (uint64_t i = 0; i <= number && (e = readdir(d)); i++)
		snprintf(name, 256, "%s", e->d_name);
	return strstr(name, ".blk") || strstr(name, ".tmp");
}

static void spoil(struct actor *a, int dirfd, const char *name)
{
	const uint64_t at = numbers_below(&a->numbers, BLOCK);
	const uint8_t byte = (uint8_t)numbers_next(&a->numbers);
	int fd;

	switch (numbers_below(&a->numbers, 4)) {
	case 0:
		unlinkat(dirfd, name, 0);
		return;
	case 1:
		unlinkat(dirfd, name, 0);
		(void)!symlinkat("/dev/zero", dirfd, name);
		return;
	default:
		fd = openat(dirfd, name, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0)
			return;
		if (numbers_below(&a->numbers, 2))
			(void)!pwrite(fd, &byte, 1, (off_t)at);
		else
			(void)!ftruncate(fd, (off_t)at);
		close(fd);
	}
}

/* Spoils no more than every other block, or a slow disk would never get to read
 * a good one. */
static void *vandal_main(void *arg)
{
	struct actor *a = arg;
	struct stage *s = a->stage;
	char name[256] = "";
	DIR *d = opendir(s->dir);

	while (d && !s->stop) {
		if (2 * s->spoilt < sums(s).disk_written && pick(a, d, name)) {
			spoil(a, dirfd(d), name);
			s->spoilt++;
		}
		usleep(200);
	}
	if (d)
		closedir(d);
	return NULL;
}

/* The loaders fail now and then. */
static void *trouble_main(void *arg)
{
	struct actor *a = arg;

	while (!a->stage->stop) {
		struct made_file *f =
			&a->stage->files[numbers_below(&a->numbers, N_CACHES)]
					[numbers_below(&a->numbers, N_FILES)];

		f->fail = EIO;
		usleep(500);
		f->fail = 0;
		usleep(5000);
		if (numbers_below(&a->numbers, 20) == 0)
			rsh_cache_drop(a->stage->caches[0]);
	}
	return NULL;
}

/* Until it is gone: the caches may still be writing into it. */
static void destroy(const char *path)
{
	struct dirent *e;
	DIR *d;

	while (rmdir(path) != 0) {
		d = opendir(path);
		while (d && (e = readdir(d)))
			unlinkat(dirfd(d), e->d_name, 0);
		closedir(d);
	}
}

static uint64_t disk_hits(struct stage *s)
{
	return sums(s).hits_disk;
}

static uint64_t disk_errors(struct stage *s)
{
	return sums(s).disk_errors;
}

/* Waits for more of it, or for the end: the disk says how long that takes. */
static void await_more(struct stage *s, uint64_t (*figure)(struct stage *s))
{
	const uint64_t before = figure(s);

	while (!s->stop && figure(s) == before)
		usleep(1000);
}

/* The directory is taken away as soon as it serves, and put back, or another
 * one when the caches have noticed. */
static void *thief_main(void *arg)
{
	struct actor *a = arg;
	struct stage *s = a->stage;
	bool for_good = true;
	char away[4096];

	snprintf(away, sizeof(away), "%s-away", s->dir);
	while (!s->stop) {
		await_more(s, disk_hits);
		if (rename(s->dir, away) != 0)
			abort();
		if (for_good) {
			destroy(away);
			await_more(s, disk_errors);
			if (mkdir(away, 0700) != 0)
				abort();
		}
		for_good = !for_good;
		usleep(50 * 1000);
		if (rename(away, s->dir) != 0)
			abort();
	}
	return NULL;
}

/* ---- the play ---- */

static void stage_begin(struct stage *s, char *dir)
{
	const struct rsh_cache_options opts = {
		.memory_bytes = MEMORY, .block_bytes = BLOCK,
		.dir = dir, .disk_bytes = 4 * MIB, .disk_retry_seconds = 1,
	};

	memset(s, 0, sizeof(*s));
	s->dir = dir;
	for (unsigned i = 0; i < N_CACHES; i++) {
		s->caches[i] = cache_make(&opts);
		for (unsigned j = 0; j < N_FILES; j++) {
			made_file_init(&s->files[i][j], s->caches[i], j,
				       FILE_BLOCKS * BLOCK + j);
			s->files[i][j].shape = j % 3 ? MADE_MIXED : MADE_RANDOM;
		}
	}
}

static void stage_end(struct stage *s)
{
	struct rsh_cache_stats stats;

	for (unsigned i = 0; i < N_CACHES; i++) {
		rsh_cache_settle(s->caches[i]);
		stats = cache_stats(s->caches[i]);
		assert_int_equal(stats.n_in_use, 0);
		assert_true(stats.memory_peak <= MEMORY);
		rsh_cache_drop(s->caches[i]);
		stats = cache_stats(s->caches[i]);
		assert_int_equal(stats.memory_bytes, stats.bookkeeping_bytes);
		rsh_cache_free(s->caches[i]);
	}
}

static void start(struct actor *a, struct stage *s, unsigned number,
		  struct numbers *seed, void *(*run)(void *))
{
	*a = (struct actor){ .stage = s, .number = number,
			     .numbers = { numbers_next(seed) } };
	assert_int_equal(pthread_create(&a->thread, NULL, run, a), 0);
}

/* Lasts the time that is given, and as long as it takes on a busy machine for
 * what the part is about to have happened.  Returns whether it has. */
static bool wait_until(struct stage *s, bool (*happened)(struct stage *s))
{
	usleep((useconds_t)(seconds_per_part() * 1e6));
	for (int i = 0; i < 1200; i++) {
		if (happened(s))
			return true;
		usleep(100 * 1000);
	}
	return false;
}

static void play(struct stage *s, void *(*const *others)(void *), unsigned n,
		 bool (*happened)(struct stage *s))
{
	struct actor actors[N_READERS + 4];
	struct numbers seed = { numbers_seed() };
	struct rsh_cache_stats sum;
	bool has;

	for (unsigned i = 0; i < N_READERS; i++)
		start(&actors[i], s, i, &seed, reader_main);
	for (unsigned i = 0; i < n; i++)
		start(&actors[N_READERS + i], s, i, &seed, others[i]);
	has = wait_until(s, happened);
	s->stop = true;
	for (unsigned i = 0; i < N_READERS + n; i++)
		pthread_join(actors[i].thread, NULL);
	sum = sums(s);
	printf("# %llu reads, %llu compressed, %llu parts unpacked, %llu "
	       "blocks written, %llu found again, %llu rejected, %llu errors\n",
	       (unsigned long long)s->reads, (unsigned long long)sum.packed,
	       (unsigned long long)sum.unpacked,
	       (unsigned long long)sum.disk_written,
	       (unsigned long long)sum.hits_disk,
	       (unsigned long long)sum.disk_rejected,
	       (unsigned long long)sum.disk_errors);
	assert_true(has);
}

static bool memory_was_short(struct stage *s)
{
	struct rsh_cache_stats stats;

	for (unsigned i = 0; i < N_CACHES; i++) {
		stats = cache_stats(s->caches[i]);
		if (stats.memory_peak < MEMORY * 3 / 4 ||
		    !stats.evicted_plain || !stats.packed || !stats.unpacked)
			return false;
	}
	return true;
}

static bool damage_was_met(struct stage *s)
{
	const struct rsh_cache_stats sum = sums(s);

	return memory_was_short(s) && sum.hits_disk && sum.disk_rejected;
}

TEST(test_deletion_and_damage)
{
	void *(*const others[])(void *) = { vandal_main, vandal_main };
	cleanup_free struct stage *s = malloc(sizeof(*s));
	cleanup_tree char *dir = tree_make();

	stage_begin(s, dir);
	play(s, others, 2, damage_was_met);
	assert_int_equal(s->failures, 0);
	stage_end(s);
}

static bool loads_failed(struct stage *s)
{
	return memory_was_short(s) && s->failures;
}

TEST(test_failing_loads)
{
	void *(*const others[])(void *) = { trouble_main, trouble_main };
	cleanup_free struct stage *s = malloc(sizeof(*s));
	cleanup_tree char *dir = tree_make();

	stage_begin(s, dir);
	play(s, others, 2, loads_failed);
	stage_end(s);
}

static bool directory_failed(struct stage *s)
{
	const struct rsh_cache_stats sum = sums(s);

	return memory_was_short(s) && sum.hits_disk && sum.disk_errors;
}

TEST(test_vanishing_directory)
{
	void *(*const others[])(void *) = { thief_main };
	cleanup_free struct stage *s = malloc(sizeof(*s));
	cleanup_tree char *dir = tree_make();

	stage_begin(s, dir);
	play(s, others, 1, directory_failed);
	assert_int_equal(s->failures, 0);
	stage_end(s);
}

/* In a child, so that its mount ends with it. */
static int full_disk_child(struct stage *s, char *dir)
{
	if (!mount_own_tmpfs(dir, "size=1m,mode=700"))
		return 77;
	stage_begin(s, dir);
	play(s, NULL, 0, directory_failed);
	if (s->failures)
		return 1;
	stage_end(s);
	return 0;
}

TEST(test_full_disk)
{
	struct stage *s = malloc(sizeof(*s));
	char *dir = tree_make();
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		status = full_disk_child(s, dir);
		fflush(stdout);
		_exit(status);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	tree_remove(dir);
	free(s);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		unit_skip("needs a mount namespace");
	else
		assert_int_equal(status, 0);
}

/* ---- room that is ceded ---- */

static struct rsh_cache_file_id numbered_id(uint64_t number)
{
	return (struct rsh_cache_file_id){ .dev = 1, .ino = number, .size = 1 };
}

static void *opener_main(void *arg)
{
	for (uint64_t i = 0; i < 5000; i++) {
		const struct rsh_cache_file_id id = numbered_id(i);

		rsh_cache_file_open(arg, &id);
	}
	return NULL;
}

/* Steps are opened while the first transposed weights of another one are
 * read. */
TEST(test_room_is_ceded)
{
	const struct rsh_cache_options opts = { .memory_bytes = MEMORY,
						.block_bytes = BLOCK };
	cleanup_cache struct rsh_cache *c = cache_make(&opts);
	const struct rsh_cache_file_id known = numbered_id(0);
	rsh_cache_file file = rsh_cache_file_open(c, &known), last = file;
	unsigned n = 0;
	pthread_t opener;

	assert_int_not_equal(file, RSH_CACHE_FILE_NONE);
	assert_int_equal(pthread_create(&opener, NULL, opener_main, c), 0);
	while (rsh_cache_cede(c, 4 * KIB))
		n++;
	pthread_join(opener, NULL);
	assert_true(n > 0);
	/* No more files are cached than there is room for; those that had
	 * room before still are. */
	for (uint64_t i = 0; i < MEMORY && last != RSH_CACHE_FILE_NONE; i++) {
		const struct rsh_cache_file_id id = numbered_id(10000 + i);

		last = rsh_cache_file_open(c, &id);
	}
	assert_int_equal(last, RSH_CACHE_FILE_NONE);
	assert_int_equal(rsh_cache_file_open(c, &known), file);
}

int main(void)
{
	/* The failures would be logged as such. */
	if (rsh_log_to_file("/dev/null"))
		return 1;
	return unit_run(NULL, NULL);
}
