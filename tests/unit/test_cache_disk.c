/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_cache_disk.c - the directory of a cache: what is found there again,
 * what is not believed, and what happens when it fails. */
#include "config.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "storage/cache/cache_i.h"
#include "cache_support.h"
#include "rsh/util/log.h"

#define BLOCK (64 * KIB)
#define N_BLOCKS 12
#define FILE_BYTES (N_BLOCKS * BLOCK - 1000)
/* What a block of the file takes on disk. */
#define COST (BLOCK + 4 * KIB)

/* A clock that only the test moves. */
static _Atomic uint64_t now_ns = 1;

/* The writer hangs while this is set. */
static atomic_bool hangs;
static pthread_t reader;

static uint64_t read_clock(void)
{
	while (hangs && !pthread_equal(pthread_self(), reader))
		usleep(1000);
	return now_ns;
}

/* More than a second passes: it is time to try a directory again. */
static void let_retry(void)
{
	now_ns += UINT64_C(1100000000);
}

static struct rsh_cache *open_cache(const char *dir, uint64_t disk_bytes)
{
	const struct rsh_cache_options opts = {
		.memory_bytes = 300 * BLOCK, .block_bytes = BLOCK,
		.dir = dir,
		.disk_bytes = disk_bytes, .disk_retry_seconds = 1,
		.clock_ns = read_clock,
	};

	return cache_make(&opts);
}

/* Reads one file block by block, with time to write; how many were loaded. */
static unsigned read_all(struct rsh_cache *c, struct made_file *f)
{
	unsigned loads = 0;

	for (uint64_t at = 0; at < f->id.size; at += BLOCK) {
		loads += loads_of(c, f, at, f->id.size - at < BLOCK ?
				  f->id.size - at : BLOCK);
		rsh_cache_settle(c);
	}
	return loads;
}

/* The same by a cache of its own. */
static unsigned read_anew(const char *dir, uint64_t number)
{
	struct rsh_cache *c = open_cache(dir, GIB);
	struct made_file f;
	unsigned loads;

	made_file_init(&f, c, number, FILE_BYTES);
	loads = read_all(c, &f);
	rsh_cache_free(c);
	return loads;
}

/* ---- names in the directory ---- */

static struct rsh_block_key key_of(uint64_t number, uint64_t block)
{
	struct rsh_block_key key = { .offset = block * BLOCK, .len = BLOCK };
	struct made_file f;

	made_file_describe(&f, number, FILE_BYTES);
	key.file = f.id;
	if (key.len > FILE_BYTES - key.offset)
		key.len = (uint32_t)(FILE_BYTES - key.offset);
	return key;
}

/* The path of a block's file; the next call but three overwrites it. */
static const char *path_of(const char *dir, uint64_t number, uint64_t block)
{
	static char paths[4][4096];
	static unsigned next;
	const struct rsh_block_key key = key_of(number, block);
	char name[RSH_BLOCK_FILE_NAME_MAX];
	char *path = paths[next++ % 4];

	rsh_block_file_name(&key, name);
	snprintf(path, sizeof(paths[0]), "%s/%s", dir, name);
	return path;
}

static char *join(const char *dir, const char *name)
{
	char *path = NULL;

	assert_true(asprintf(&path, "%s/%s", dir, name) > 0);
	return path;
}

static unsigned count_files(const char *dir, const char *suffix)
{
	const size_t suffix_len = strlen(suffix);
	DIR *d = opendir(dir);
	struct dirent *e;
	unsigned n = 0;

	assert_non_null(d);
	while ((e = readdir(d))) {
		const size_t len = strlen(e->d_name);

		n += e->d_name[0] != '.' && len >= suffix_len &&
		     strcmp(e->d_name + len - suffix_len, suffix) == 0;
	}
	closedir(d);
	return n;
}

/* ---- the format ---- */

TEST(test_format)
{
	static const uint8_t content[] = "some content";
	const struct rsh_block_key key = {
		.file = { 0x0102, 3, 1000000, -5, 999999999, 7, 8, 9, false },
		.offset = 65536, .len = sizeof(content),
	};
	uint8_t header[RSH_BLOCK_FILE_HEADER];
	char name[RSH_BLOCK_FILE_NAME_MAX];
	struct rsh_block_key other = key;
	const uint32_t n = sizeof(content);

	/* As other processes, of other releases, know them. */
	rsh_block_file_name(&key, name);
	assert_string_equal(name, "93338a0eca2ccb036a01a4b4236bfed6.blk");
	assert_true(rsh_block_file_is_name(name));
	rsh_block_file_header(&key, content, sizeof(content), header);
	assert_memory_equal(header, "rshblk3\n\x02\x01\0", 11);
	assert_memory_equal(header + 88,
			    "\x0d\0\0\0\0\0\0\0"
			    "\xe0\x6b\xc8\x65\x00\xe4\x57\xa6"
			    "\x52\x8a\xc6\x46\xf5\x4a\xc5\x41", 24);

	assert_true(rsh_block_file_check(header, &key, content, n));
	assert_false(rsh_block_file_check(header, &key, content, n - 1));
	for (size_t bit = 0; bit < 8 * sizeof(header); bit++) {
		header[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_false(rsh_block_file_check(header, &key, content, n));
		header[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	assert_false(rsh_block_file_check(header, &key,
					  (const uint8_t *)"some Content", n));
	/* Compressed it is shorter than the block, and never longer. */
	rsh_block_file_header(&key, content, 5, header);
	assert_true(rsh_block_file_check(header, &key, content, 5));
	rsh_block_file_header(&key, content, 0, header);
	assert_false(rsh_block_file_check(header, &key, content, 0));
	other.len--;
	rsh_block_file_header(&other, content, n, header);
	assert_false(rsh_block_file_check(header, &other, content, n));
}

/* Whatever differs, the name and the verdict do. */
TEST(test_keys)
{
	static const uint8_t content[BLOCK];
	const struct rsh_block_key key = key_of(1, 0);
	uint8_t header[RSH_BLOCK_FILE_HEADER];
	char name[RSH_BLOCK_FILE_NAME_MAX], other[RSH_BLOCK_FILE_NAME_MAX];
	struct rsh_block_key k[10];

	rsh_block_file_name(&key, name);
	rsh_block_file_header(&key, content, BLOCK, header);
	for (int i = 0; i < 10; i++)
		k[i] = key;
	k[0].file.dev++;
	k[1].file.ino++;
	k[2].file.size++;
	k[3].file.mtime_sec++;
	k[4].file.mtime_nsec++;
	k[5].file.epoch++;
	k[6].file.step++;
	k[7].offset += BLOCK;
	k[8].len /= 2;
	k[9].file.state++;
	for (int i = 0; i < 10; i++) {
		rsh_block_file_name(&k[i], other);
		assert_string_not_equal(name, other);
		assert_false(rsh_block_file_check(header, &k[i], content,
						  BLOCK));
	}
	assert_false(rsh_block_file_is_name("x.blk"));
	assert_false(rsh_block_file_is_name(name + 1));
	strcpy(other, name);
	other[3] = 'G';
	assert_false(rsh_block_file_is_name(other));
}

/* ---- finding it again ---- */

TEST(test_outlives_the_cache)
{
	cleanup_tree char *dir = tree_make();
	struct rsh_cache_stats s;
	struct rsh_cache *c;
	struct made_file f;
	struct stat st;

	c = open_cache(dir, GIB);
	made_file_init(&f, c, 1, FILE_BYTES);
	assert_int_equal(read_all(c, &f), N_BLOCKS);
	assert_int_equal(read_all(c, &f), 0);
	s = cache_stats(c);
	assert_int_equal(s.disk_written, N_BLOCKS);
	assert_int_equal(s.disk_written_bytes, FILE_BYTES);
	assert_int_equal(s.disk_dropped + s.disk_errors + s.hits_disk, 0);
	assert_int_equal(s.disk_bytes, (N_BLOCKS - 1) * COST + BLOCK);
	/* Written once, and found when the memory is gone. */
	rsh_cache_drop(c);
	assert_int_equal(read_all(c, &f), 0);
	s = cache_stats(c);
	assert_int_equal(s.hits_disk, N_BLOCKS);
	assert_int_equal(s.disk_written, N_BLOCKS);
	rsh_cache_free(c);

	assert_int_equal(count_files(dir, ".blk"), N_BLOCKS);
	assert_int_equal(count_files(dir, ""), N_BLOCKS);
	assert_int_equal(stat(path_of(dir, 1, 3), &st), 0);
	assert_int_equal(st.st_mode, S_IFREG | 0600);
	assert_int_equal(read_anew(dir, 1), 0);
	/* Not for another file. */
	assert_int_equal(read_anew(dir, 2), N_BLOCKS);
	assert_int_equal(read_anew(dir, 1), 0);
}

TEST(test_is_shared)
{
	cleanup_tree char *dir = tree_make();
	cleanup_cache struct rsh_cache *a = open_cache(dir, GIB);
	cleanup_cache struct rsh_cache *b = open_cache(dir, GIB);
	struct made_file of_a, of_b;

	made_file_init(&of_a, a, 1, FILE_BYTES);
	made_file_init(&of_b, b, 1, FILE_BYTES);
	assert_int_equal(loads_of(a, &of_a, 0, BLOCK), 1);
	rsh_cache_settle(a);
	assert_int_equal(loads_of(b, &of_b, 0, BLOCK), 0);
	/* Between blocks that are there, one load each. */
	assert_int_equal(loads_of(b, &of_b, 4 * BLOCK, BLOCK), 1);
	rsh_cache_settle(b);
	assert_int_equal(loads_of(a, &of_a, BLOCK, 6 * BLOCK), 2);
	assert_int_equal(of_a.bytes, 6 * BLOCK);
	assert_int_equal(cache_stats(a).hits_disk, 1);
	assert_int_equal(cache_stats(a).misses, 6);
}

/* Prefetching finds it there too. */
TEST(test_prefetch)
{
	cleanup_tree char *dir = tree_make();
	struct rsh_cache *c;
	struct made_file f;

	assert_int_equal(read_anew(dir, 1), N_BLOCKS);
	c = open_cache(dir, GIB);
	made_file_init(&f, c, 1, FILE_BYTES);
	assert_int_equal(rsh_cache_prefetch(c, f.handle, 0, FILE_BYTES,
					    MADE(&f)), 0);
	assert_int_equal(read_all(c, &f), 0);
	assert_int_equal(f.loads, 0);
	assert_int_equal(cache_stats(c).prefetched, N_BLOCKS);
	assert_int_equal(cache_stats(c).prefetched_disk, N_BLOCKS);
	rsh_cache_free(c);
}

/* Caches with other blocks do not take each other's files for damaged. */
TEST(test_other_block_size)
{
	cleanup_tree char *dir = tree_make();
	/* A block has one page at least. */
	const uint32_t page = (uint32_t)sysconf(_SC_PAGESIZE);
	const uint32_t other = BLOCK / 4 >= page ? BLOCK / 4 : 4 * BLOCK;
	const struct rsh_cache_options opts = {
		.memory_bytes = 300 * BLOCK, .block_bytes = other,
		.dir = dir, .disk_bytes = GIB,
	};
	struct rsh_cache *c = cache_make(&opts);
	struct made_file f;

	assert_int_equal(read_anew(dir, 1), N_BLOCKS);
	made_file_init(&f, c, 1, FILE_BYTES);
	read_all(c, &f);
	assert_int_equal(cache_stats(c).misses,
			 (FILE_BYTES + other - 1) / other);
	assert_int_equal(cache_stats(c).disk_rejected, 0);
	rsh_cache_free(c);
	assert_int_equal(read_anew(dir, 1), 0);
}

TEST(test_read_only)
{
	cleanup_tree char *dir = tree_make();
	struct rsh_cache *c;
	struct made_file f;

	read_anew(dir, 1);
	assert_int_equal(unlink(path_of(dir, 1, 2)), 0);
	c = open_cache(dir, 0);
	made_file_init(&f, c, 1, FILE_BYTES);
	assert_int_equal(read_all(c, &f), 1);
	assert_int_equal(cache_stats(c).disk_written, 0);
	rsh_cache_free(c);
	assert_int_equal(count_files(dir, ""), N_BLOCKS - 1);
}

/* ---- what is not believed ---- */

/* Block 5 of file 1 is not used, is removed, and is written anew. */
static void assert_rejected(const char *dir)
{
	struct rsh_cache *c = open_cache(dir, GIB);
	struct made_file f;

	made_file_init(&f, c, 1, FILE_BYTES);
	assert_int_equal(read_all(c, &f), 1);
	assert_int_equal(f.last_offset, 5 * BLOCK);
	assert_int_equal(cache_stats(c).disk_rejected, 1);
	assert_int_equal(cache_stats(c).disk_errors, 0);
	assert_int_equal(cache_stats(c).disk_written, 1);
	rsh_cache_free(c);
	assert_int_equal(read_anew(dir, 1), 0);
	assert_int_equal(count_files(dir, ""), N_BLOCKS);
}

static void flip(const char *path, off_t at)
{
	int fd = open(path, O_RDWR);
	uint8_t byte;

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &byte, 1, at), 1);
	byte ^= 0x10;
	assert_int_equal(pwrite(fd, &byte, 1, at), 1);
	close(fd);
}

TEST(test_flipped_bytes)
{
	const off_t places[] = { 0, 7, 8, 30, 64, 72, 80, 88, 96, 104, 111, 112,
				 5000, 103 + BLOCK };
	cleanup_tree char *dir = tree_make();

	read_anew(dir, 1);
	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
		flip(path_of(dir, 1, 5), places[i]);
		assert_rejected(dir);
	}
}

TEST(test_wrong_lengths)
{
	const off_t header = RSH_BLOCK_FILE_HEADER;
	const off_t lengths[] = { 0, 1, header - 1, header, header + 1,
				  header + BLOCK / 2, header + BLOCK - 1,
				  header + BLOCK + 1, 1 << 30 };
	cleanup_tree char *dir = tree_make();

	read_anew(dir, 1);
	for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
		assert_int_equal(truncate(path_of(dir, 1, 5), lengths[i]), 0);
		assert_rejected(dir);
	}
}

TEST(test_file_of_another_block)
{
	cleanup_tree char *dir = tree_make();

	read_anew(dir, 1);
	read_anew(dir, 2);
	/* One of the same file, and one of another. */
	assert_int_equal(rename(path_of(dir, 2, 4), path_of(dir, 1, 5)), 0);
	for (unsigned i = 0; i < N_BLOCKS; i++)
		unlink(path_of(dir, 2, i));
	assert_rejected(dir);
	unlink(path_of(dir, 1, 5));
	assert_int_equal(link(path_of(dir, 1, 4), path_of(dir, 1, 5)), 0);
	assert_rejected(dir);
}

TEST(test_planted_things)
{
	char *dir = tree_make(), *outside = tree_make();
	const char *victim = path_of(dir, 1, 5);
	char target[4096];
	struct stat st;

	read_anew(dir, 1);
	/* A link to a file that would even be right. */
	snprintf(target, sizeof(target), "%s/file", outside);
	assert_int_equal(rename(victim, target), 0);
	assert_int_equal(symlink(target, victim), 0);
	assert_rejected(dir);
	assert_int_equal(lstat(target, &st), 0);
	assert_int_equal(st.st_size, RSH_BLOCK_FILE_HEADER + BLOCK);
	assert_int_equal(lstat(victim, &st), 0);
	assert_true(S_ISREG(st.st_mode));

	assert_int_equal(unlink(victim), 0);
	assert_int_equal(mkfifo(victim, 0600), 0);
	assert_rejected(dir);
	tree_remove(outside);
	tree_remove(dir);
}

/* It cannot be removed: the block is loaded each time, that is all. */
TEST(test_planted_directory)
{
	cleanup_tree char *dir = tree_make();
	struct rsh_cache *c;
	struct made_file f;

	assert_int_equal(mkdir(path_of(dir, 1, 5), 0755), 0);
	c = open_cache(dir, GIB);
	made_file_init(&f, c, 1, FILE_BYTES);
	assert_int_equal(read_all(c, &f), N_BLOCKS);
	rsh_cache_free(c);
	assert_int_equal(rmdir(path_of(dir, 1, 5)), 0);
}

/* ---- directories that will not do ---- */

static void expect_refusal(const char *dir, int code, const char *text)
{
	const struct rsh_cache_options opts = {
		.memory_bytes = MIB, .dir = dir, .disk_bytes = GIB,
	};
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_cache *c = NULL;

	assert_int_equal(rsh_cache_new(&opts, &c, &err), -code);
	if (!strstr(err.text, dir) || !strstr(err.text, text))
		fail_msg("%s", err.text);
}

TEST(test_directories)
{
	cleanup_tree char *dir = tree_make();
	char path[4096];
	struct rsh_cache *c;
	struct stat st;

	snprintf(path, sizeof(path), "%s/new", dir);
	c = open_cache(path, GIB);
	rsh_cache_free(c);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode, S_IFDIR | 0700);
	assert_int_equal(chmod(path, 0770), 0);
	expect_refusal(path, EPERM, "others can write to it");
	assert_int_equal(chmod(path, 0755), 0);
	rsh_cache_free(open_cache(path, GIB));
	if (geteuid() == 0) {
		assert_int_equal(chown(path, 1, 1), 0);
		expect_refusal(path, EPERM, "another user");
	}
	snprintf(path, sizeof(path), "%s/none/new", dir);
	expect_refusal(path, ENOENT, "No such file");
	tree_write(dir, "file", "x", 1);
	snprintf(path, sizeof(path), "%s/file", dir);
	expect_refusal(path, ENOTDIR, "Not a directory");
}

/* ---- keeping to the bound ---- */

static void set_age(const char *path, time_t age)
{
	const struct timespec times[] = { { time(NULL) - age, 0 },
					  { time(NULL) - age, 0 } };

	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static bool is_there(const char *dir, uint64_t number, uint64_t block)
{
	return access(path_of(dir, number, block), F_OK) == 0;
}

TEST(test_oldest_files_go)
{
	const time_t ages[N_BLOCKS] = { 1000, 100000, 5000, 400, 90000, 700,
					4000, 3000, 2000, 800, 80000, 600 };
	cleanup_tree char *dir = tree_make();
	cleanup_free char *left = join(dir, "0123-4567-0.tmp");
	cleanup_free char *young = join(dir, "0123-4567-1.tmp");
	cleanup_free char *notes = join(dir, "notes.txt");
	struct rsh_cache *c;
	struct made_file f;

	read_anew(dir, 1);
	for (unsigned i = 0; i < N_BLOCKS; i++)
		set_age(path_of(dir, 1, i), ages[i]);
	tree_write(dir, "notes.txt", "x", 1);
	tree_write(dir, "0123-4567-0.tmp", "left behind", 11);
	tree_write(dir, "0123-4567-1.tmp", "being written", 13);
	set_age(left, 1000);
	set_age(notes, 1000000);

	/* Used just now, so young again. */
	c = open_cache(dir, 12 * COST + 8 * KIB);
	made_file_init(&f, c, 1, FILE_BYTES);
	assert_int_equal(loads_of(c, &f, 4 * BLOCK, 1), 0);
	/* 13 are too many; 10 stay and the new one. */
	made_file_init(&f, c, 2, FILE_BYTES);
	assert_int_equal(loads_of(c, &f, 0, 1), 1);
	rsh_cache_settle(c);
	assert_int_equal(cache_stats(c).disk_trimmed, 3);
	assert_int_equal(cache_stats(c).disk_written, 1);
	for (unsigned i = 0; i < N_BLOCKS; i++)
		assert_int_equal(is_there(dir, 1, i), i != 1 && i != 10);
	assert_true(is_there(dir, 2, 0));
	assert_int_equal(access(left, F_OK), -1);
	assert_int_equal(access(young, F_OK), 0);
	assert_int_equal(access(notes, F_OK), 0);
	rsh_cache_free(c);
}

static uint64_t disk_use(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	struct stat st;
	uint64_t sum = 0;

	while ((e = readdir(d)))
		if (fstatat(dirfd(d), e->d_name, &st, 0) == 0 &&
		    S_ISREG(st.st_mode))
			sum += (uint64_t)st.st_size;
	closedir(d);
	return sum;
}

TEST(test_disk_bound)
{
	const uint64_t bound = 40 * BLOCK;
	cleanup_tree char *dir = tree_make();
	struct rsh_cache *c[3];
	struct made_file f;

	for (unsigned i = 0; i < 3; i++)
		c[i] = open_cache(dir, bound);
	for (unsigned i = 0; i < 30; i++) {
		made_file_init(&f, c[i % 3], i, FILE_BYTES);
		read_all(c[i % 3], &f);
		assert_true(disk_use(dir) <= bound + 2 * bound / 16);
	}
	assert_true(disk_use(dir) >= bound * 3 / 4);
	for (unsigned i = 0; i < 3; i++)
		rsh_cache_free(c[i]);
	/* Smaller than a block. */
	c[0] = open_cache(dir, BLOCK / 2);
	made_file_init(&f, c[0], 99, FILE_BYTES);
	assert_int_equal(read_all(c[0], &f), N_BLOCKS);
	assert_int_equal(cache_stats(c[0]).disk_written, 0);
	rsh_cache_free(c[0]);
}

/* ---- failures ---- */

static char log_path[4096];

/* Lines of the log with this text. */
static unsigned logged(const char *text)
{
	FILE *f = fopen(log_path, "r");
	char line[4096];
	unsigned n = 0;

	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		n += strstr(line, text) != NULL;
	fclose(f);
	return n;
}

/* Reads file after file while writing fails; readers see nothing of it. */
static void read_on(struct rsh_cache *c, uint64_t first)
{
	struct made_file f;

	for (uint64_t i = first; i < first + 4; i++) {
		made_file_init(&f, c, i, FILE_BYTES);
		assert_int_equal(read_all(c, &f), N_BLOCKS);
		assert_int_equal(read_all(c, &f), 0);
	}
}

TEST(test_directory_vanishes)
{
	cleanup_tree char *dir = tree_make();
	char *cache_dir = join(dir, "vanishing"), *away = join(dir, "away");
	struct rsh_cache *c = open_cache(cache_dir, GIB);
	struct rsh_cache_stats s;
	struct made_file f;

	made_file_init(&f, c, 1, FILE_BYTES);
	read_all(c, &f);
	assert_int_equal(count_files(cache_dir, ".blk"), N_BLOCKS);
	tree_remove(strdup(cache_dir));
	rsh_cache_drop(c);
	assert_int_equal(read_all(c, &f), N_BLOCKS);
	read_on(c, 10);
	s = cache_stats(c);
	/* Left alone. */
	assert_int_equal(s.disk_errors, 1);
	assert_int_equal(s.disk_written, N_BLOCKS);
	assert_int_equal(logged("vanishing: it was removed"), 1);
	/* Time to try again, in vain, and not a second line about it. */
	let_retry();
	read_on(c, 20);
	assert_int_equal(logged("vanishing: "), 1);
	assert_int_equal(access(cache_dir, F_OK), -1);
	/* There is one again. */
	assert_int_equal(mkdir(cache_dir, 0700), 0);
	let_retry();
	read_on(c, 30);
	assert_int_equal(count_files(cache_dir, ".blk"), 4 * N_BLOCKS);
	/* A file is in its place. */
	assert_int_equal(rename(cache_dir, away), 0);
	tree_remove(away);
	tree_write(dir, "vanishing", "x", 1);
	read_on(c, 40);
	let_retry();
	read_on(c, 50);
	assert_int_equal(logged("vanishing: "), 2);
	rsh_cache_free(c);
	free(cache_dir);
}

/* No file may be longer than this. */
TEST(test_file_size_limit)
{
	cleanup_tree char *dir = tree_make();
	cleanup_cache struct rsh_cache *c = open_cache(dir, GIB);
	struct rlimit saved, low;

	assert_int_equal(getrlimit(RLIMIT_FSIZE, &saved), 0);
	low = saved;
	low.rlim_cur = BLOCK / 2;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
	read_on(c, 1);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &saved), 0);
	assert_int_equal(cache_stats(c).disk_errors, 1);
	assert_int_equal(cache_stats(c).disk_written, 0);
	assert_int_equal(logged("File too large"), 1);
	assert_int_equal(count_files(dir, ""), 0);
	let_retry();
	read_on(c, 10);
	assert_int_equal(count_files(dir, ""), 4 * N_BLOCKS);
}

/* A file system of 20 blocks; in a child, so that its mount ends with it. */
static void full_disk_child(const char *dir)
{
	struct rsh_cache_stats s;
	struct rsh_cache *c;
	struct made_file f;

	if (!mount_own_tmpfs(dir, "size=1360k,mode=700"))
		_exit(77);
	c = open_cache(dir, GIB);
	read_on(c, 1);
	s = cache_stats(c);
	if (s.disk_errors != 1 || s.disk_written < 10 ||
	    s.disk_written > 20 || count_files(dir, ".tmp") ||
	    logged("No space left") != 1)
		_exit(1);
	/* What is there is still of use. */
	rsh_cache_drop(c);
	made_file_init(&f, c, 1, FILE_BYTES);
	if (loads_of(c, &f, 0, BLOCK) != 0)
		_exit(2);
	rsh_cache_free(c);
	_exit(0);
}

TEST(test_full_disk)
{
	char *dir = tree_make();
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0)
		full_disk_child(dir);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	tree_remove(dir);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		unit_skip("needs a mount namespace");
	else
		assert_int_equal(status, 0);
}

/* ---- kill -9 ---- */

static void write_for_ever(const char *dir)
{
	struct rsh_cache *c = open_cache(dir, GIB);
	struct made_file f;

	for (uint64_t i = 0;; i = (i + 1) % 20) {
		made_file_init(&f, c, i, FILE_BYTES);
		read_checked(c, &f, 0, FILE_BYTES);
		rsh_cache_drop(c);
	}
}

static bool enough(const char *dir)
{
	return count_files(dir, ".blk") > 10;
}

TEST(test_kill)
{
	cleanup_tree char *dir = tree_make();
	struct rsh_cache *c;
	struct made_file f;
	unsigned loads = 0;

	/* Thirty times, or on a busy machine until something is there. */
	for (useconds_t t = 0; t < 30 || (t < 300 && !enough(dir)); t++) {
		pid_t pid = fork();

		assert_true(pid >= 0);
		if (pid == 0)
			write_for_ever(dir);
		usleep(5000 + 1777 * t);
		assert_int_equal(kill(pid, SIGKILL), 0);
		assert_int_equal(waitpid(pid, NULL, 0), pid);
	}
	/* Whatever it was doing: there is something, and it is right. */
	assert_true(enough(dir));
	c = open_cache(dir, GIB);
	for (uint64_t i = 0; i < 20; i++) {
		made_file_init(&f, c, i, FILE_BYTES);
		loads += read_all(c, &f);
	}
	assert_true(cache_stats(c).hits_disk > 10);
	assert_int_equal(cache_stats(c).hits_disk + loads, 20 * N_BLOCKS);
	assert_int_equal(cache_stats(c).disk_rejected, 0);
	rsh_cache_free(c);
}

/* The threads start when they are needed, so a daemon may fork before. */
TEST(test_fork)
{
	cleanup_tree char *dir = tree_make();
	struct rsh_cache *c = open_cache(dir, GIB);
	struct made_file f;
	int status;
	pid_t pid;

	made_file_init(&f, c, 1, FILE_BYTES);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		read_checked(c, &f, 0, FILE_BYTES);
		rsh_cache_free(c);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(count_files(dir, ".blk"), N_BLOCKS);
	rsh_cache_free(c);
}

/* The loads of costly blocks wait for a directory that is slow, and not each for
 * one that hangs. */
TEST(test_hangs)
{
	cleanup_tree char *dir = tree_make();
	struct rsh_cache *c = cache_make(&(struct rsh_cache_options){
		.memory_bytes = 24 * BLOCK, .block_bytes = BLOCK, .dir = dir,
		.disk_bytes = GIB, .clock_ns = read_clock,
	});
	struct timespec begun, end;
	uint8_t *buf = malloc(BLOCK);
	struct rsh_cache_loader loader = { .load = made_file_load };
	struct made_file f;

	made_file_init(&f, c, 1, FILE_BYTES);
	loader.ctx = &f;
	loader.costly = true;
	reader = pthread_self();
	hangs = true;
	clock_gettime(CLOCK_MONOTONIC, &begun);
	for (uint64_t at = 0; at + BLOCK < FILE_BYTES; at += BLOCK)
		assert_int_equal(rsh_cache_read(c, f.handle, at, buf, BLOCK,
						&loader), 0);
	clock_gettime(CLOCK_MONOTONIC, &end);
	assert_true(end.tv_sec - begun.tv_sec < 4);
	assert_true(cache_stats(c).disk_dropped > 4);
	hangs = false;
	rsh_cache_settle(c);
	assert_true(cache_stats(c).disk_written > 0);
	free(buf);
	rsh_cache_free(c);
}

static int log_to_a_file(void **state)
{
	char *dir = tree_make();

	*state = dir;
	snprintf(log_path, sizeof(log_path), "%s/log", dir);
	return rsh_log_to_file(log_path);
}

static int log_away(void **state)
{
	tree_remove(*state);
	return 0;
}

int main(void)
{
	return unit_run(log_to_a_file, log_away);
}
