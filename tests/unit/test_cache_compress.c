/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_cache_compress.c - which blocks are compressed, what that saves in
 * memory and in the directory, and that all of them come back as they were. */
#include "config.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include "storage/cache/cache_i.h"
#include "cache_support.h"
#include "rsh/util/pack.h"

#define BLOCK (256 * KIB)
#define N_BLOCKS 128

/* ---- files of tensors ---- */

/* A tensor takes TENSOR_BLOCKS blocks. */
#define TENSOR_BLOCKS 64

static void kind_by_place(void *ctx, uint64_t offset, uint32_t len,
			  struct rsh_cache_kind *out)
{
	(void)ctx, (void)len;
	*out = (struct rsh_cache_kind){
		.tensor = offset / (TENSOR_BLOCKS * BLOCK), .unit = 4,
	};
}

static struct rsh_cache *cache_of(unsigned n, const char *dir, bool off)
{
	const struct rsh_cache_options opts = {
		.memory_bytes = n * BLOCK + BLOCK / 2,
		.block_bytes = BLOCK,
		.dir = dir, .disk_bytes = 64 * MIB,
		.compress = off ? RSH_COMPRESS_OFF : RSH_COMPRESS_AUTO,
		.kind = kind_by_place,
	};

	return cache_make(&opts);
}

static void file_of(struct made_file *f, struct rsh_cache *c, uint64_t number,
		    enum made_shape shape)
{
	made_file_init(f, c, number, N_BLOCKS * BLOCK);
	f->shape = shape;
}

/* Reads the blocks so that none is spent, and all are written. */
static void read_most(struct rsh_cache *c, struct made_file *f, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		assert_int_equal(read_checked(c, f, i * BLOCK, BLOCK - 8), 0);
		rsh_cache_settle(c);
	}
}

/* ---- memory ---- */

TEST(test_holds_more)
{
	/* What half a block takes in memory, with pages of 4 KiB and here. */
	const uint64_t small = BLOCK / 2 + 4 * KIB;
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	const uint64_t half = (small + page - 1) / page * page;
	const uint64_t newest = 57 * small / half;
	cleanup_cache struct rsh_cache *c = cache_of(32, NULL, false);
	struct rsh_cache_stats s;
	struct made_file f;

	file_of(&f, c, 1, MADE_HALVES);
	read_most(c, &f, N_BLOCKS);
	s = cache_stats(c);
	assert_int_equal(s.packed, N_BLOCKS);
	assert_int_equal(s.left, 0);
	assert_int_equal(s.packed_from, N_BLOCKS * BLOCK);
	assert_in_range(s.packed_to, N_BLOCKS * BLOCK / 3,
			N_BLOCKS * BLOCK * 11 / 20);
	assert_true(s.memory_peak <= 32 * BLOCK + BLOCK / 2);
	assert_true(s.held_bytes >= 18 * s.memory_bytes / 10 * small / half);
	/* The newest are held, and compressed. */
	assert_int_equal(loads_of(c, &f, (N_BLOCKS - newest) * BLOCK,
				  newest * BLOCK), 0);
	assert_true(cache_stats(c).unpacked_bytes > (newest - 7) * BLOCK);
}

TEST(test_random_is_left)
{
	cleanup_cache struct rsh_cache *c = cache_of(16, NULL, false);
	struct rsh_cache_stats s;
	struct made_file f;

	file_of(&f, c, 1, MADE_RANDOM);
	read_most(c, &f, N_BLOCKS);
	s = cache_stats(c);
	assert_int_equal(s.packed, 0);
	assert_int_equal(s.left, N_BLOCKS);
	assert_int_equal(s.left_bytes, N_BLOCKS * BLOCK);
	assert_int_equal(s.unpacked, 0);
}

TEST(test_off)
{
	cleanup_cache struct rsh_cache *c = cache_of(16, NULL, true);
	struct rsh_cache_stats s;
	struct made_file f;

	file_of(&f, c, 1, MADE_ZEROS);
	read_most(c, &f, N_BLOCKS);
	s = cache_stats(c);
	assert_int_equal(s.packed + s.left + s.n_packed, 0);
	assert_true(s.held_bytes <= s.memory_bytes);
}

/* The first tensor is random; the rows of the second that were never seen begin
 * in its middle, and a block of the third follows after that. */
struct rows {
	struct made_file file;
};

static int rows_load(void *ctx, uint64_t offset, const struct iovec *iov,
		     int n_iov)
{
	const struct rows *r = ctx;

	for (int i = 0; i < n_iov; i++) {
		const uint64_t block = offset / BLOCK;

		made_file_bytes(&r->file, offset, iov[i].iov_base,
				iov[i].iov_len);
		if (block >= TENSOR_BLOCKS + TENSOR_BLOCKS / 2 &&
		    block < 2 * TENSOR_BLOCKS)
			memset(iov[i].iov_base, 0, iov[i].iov_len);
		offset += iov[i].iov_len;
	}
	return 0;
}

TEST(test_rows_of_zeros)
{
	cleanup_cache struct rsh_cache *c = cache_of(2 * N_BLOCKS, NULL, false);
	struct rsh_cache_stats s;
	uint8_t byte;
	struct rows r;

	file_of(&r.file, c, 1, MADE_RANDOM);
	for (unsigned i = 0; i < N_BLOCKS; i++)
		assert_int_equal(rsh_cache_read(c, r.file.handle, i * BLOCK,
						&byte, 1, &(struct rsh_cache_loader){
					rows_load, &r }), 0);
	s = cache_stats(c);
	/* No more than 31 of the 32 blocks pass before it is seen. */
	assert_in_range(s.packed, 1, TENSOR_BLOCKS / 2);
	assert_int_equal(s.packed + s.left, N_BLOCKS);
	assert_true(s.packed_to < s.packed_from / 50);
}

/* While nothing else wants the memory the content stays besides. */
TEST(test_nothing_is_unpacked_early)
{
	cleanup_cache struct rsh_cache *c = cache_of(2 * N_BLOCKS, NULL, false);
	struct rsh_cache_stats s;
	struct made_file f;

	file_of(&f, c, 1, MADE_HALVES);
	read_most(c, &f, N_BLOCKS);
	read_most(c, &f, N_BLOCKS);
	s = cache_stats(c);
	assert_int_equal(s.n_packed, N_BLOCKS);
	assert_int_equal(s.unpacked, 0);
	rsh_cache_drop(c);
	s = cache_stats(c);
	assert_int_equal(s.memory_bytes, s.bookkeeping_bytes);
	assert_int_equal(s.n_packed, 0);
	assert_int_equal(s.held_bytes, 0);
}

/* ---- the directory ---- */

static uint64_t directory_bytes(const char *dir)
{
	DIR *d = opendir(dir);
	uint64_t sum = 0;
	struct dirent *e;
	struct stat st;

	while ((e = readdir(d)))
		if (strstr(e->d_name, RSH_BLOCK_FILE_SUFFIX) &&
		    fstatat(dirfd(d), e->d_name, &st, 0) == 0)
			sum += (uint64_t)st.st_size;
	closedir(d);
	return sum;
}

TEST(test_directory)
{
	cleanup_tree char *dir = tree_make();
	struct rsh_cache *c = cache_of(32, dir, false);
	struct rsh_cache_stats s;
	struct made_file f;

	file_of(&f, c, 1, MADE_HALVES);
	read_most(c, &f, N_BLOCKS);
	s = cache_stats(c);
	assert_int_equal(s.disk_written, N_BLOCKS);
	assert_true(s.disk_written_bytes <= N_BLOCKS * BLOCK * 6 / 10);
	assert_true(directory_bytes(dir) <= N_BLOCKS * BLOCK * 6 / 10);
	rsh_cache_free(c);

	/* Whoever finds them need not decide anew, and may do without. */
	for (int off = 0; off <= 1; off++) {
		c = cache_of(32, dir, off);
		file_of(&f, c, 1, MADE_HALVES);
		read_most(c, &f, N_BLOCKS);
		s = cache_stats(c);
		assert_int_equal(f.loads, 0);
		assert_int_equal(s.hits_disk, N_BLOCKS);
		assert_int_equal(s.packed + s.left, 0);
		assert_int_equal(s.n_packed > 30, !off);
		rsh_cache_free(c);
	}
}

/* Changes a byte of a block and makes its hashes right, as somebody might who
 * can write to the directory. */
static void forge(int fd, size_t at, uint8_t change)
{
	uint8_t bytes[RSH_BLOCK_FILE_HEADER + BLOCK];
	const ssize_t n = pread(fd, bytes, sizeof(bytes), 0);
	uint64_t hash;

	assert_true(n > RSH_BLOCK_FILE_HEADER);
	bytes[RSH_BLOCK_FILE_HEADER +
	      at % ((size_t)n - RSH_BLOCK_FILE_HEADER)] ^= change;
	hash = XXH3_64bits(bytes + RSH_BLOCK_FILE_HEADER,
			   (size_t)n - RSH_BLOCK_FILE_HEADER);
	memcpy(bytes + 88, &hash, sizeof(hash));
	hash = XXH3_64bits(bytes, 96);
	memcpy(bytes + 96, &hash, sizeof(hash));
	assert_int_equal(pwrite(fd, bytes, (size_t)n, 0), n);
}

static void each_block(const char *dir, void (*f)(int fd, unsigned number))
{
	DIR *d = opendir(dir);
	unsigned number = 0;
	struct dirent *e;

	while ((e = readdir(d))) {
		int fd;

		if (!strstr(e->d_name, RSH_BLOCK_FILE_SUFFIX))
			continue;
		fd = openat(dirfd(d), e->d_name, O_RDWR | O_CLOEXEC);
		f(fd, number++);
		close(fd);
	}
	closedir(d);
}

/* The bytes of an element and the length of the first piece can be nothing
 * else. */
static void spoil_structure(int fd, unsigned number)
{
	forge(fd, number % 5, (uint8_t)(0x40 | (number << 3 & 0x38)));
}

static void spoil_bytes(int fd, unsigned number)
{
	const uint8_t byte = 0;

	if (number % 2)
		assert_int_equal(ftruncate(fd, 3000 + 11 * number), 0);
	else
		assert_int_equal(pwrite(fd, &byte, 1, 2000 + 13 * number), 1);
}

static void damage(const char *dir, void (*f)(int fd, unsigned number),
		   unsigned least)
{
	cleanup_cache struct rsh_cache *c = cache_of(32, dir, false);
	struct made_file file;

	each_block(dir, f);
	file_of(&file, c, 1, MADE_HALVES);
	read_most(c, &file, N_BLOCKS);
	assert_in_range(cache_stats(c).disk_rejected, least, N_BLOCKS);
	rsh_cache_settle(c);
}

/* Every block is read as it must be, which read_checked() looks at. */
TEST(test_damage)
{
	cleanup_tree char *dir = tree_make();
	struct rsh_cache *c = cache_of(64, dir, false);
	struct made_file f;

	file_of(&f, c, 1, MADE_HALVES);
	read_most(c, &f, N_BLOCKS);
	rsh_cache_free(c);
	damage(dir, spoil_structure, N_BLOCKS);
	damage(dir, spoil_bytes, N_BLOCKS / 2);
}

/* ---- any ---- */

static void any_reads(struct numbers *x, struct rsh_cache *c,
		      struct made_file *files, unsigned n)
{
	for (unsigned i = 0; i < 300; i++) {
		struct made_file *f = &files[numbers_below(x, n)];
		const uint64_t at = numbers_below(x, f->id.size);
		uint64_t len = 1 + numbers_below(x, UINT64_C(1) <<
						    numbers_below(x, 20));

		if (len > f->id.size - at)
			len = f->id.size - at;
		assert_int_equal(read_checked(c, f, at, (size_t)len), 0);
	}
}

TEST(test_any)
{
	struct numbers x = { numbers_seed() };

	for (unsigned turn = 0; turn < (unsigned)rounds(30); turn++) {
		char *dir = tree_make();
		const unsigned room = 3 + (unsigned)numbers_below(&x, 60);
		struct made_file files[4];

		for (int again = 0; again < 2; again++) {
			struct rsh_cache *c = cache_of(room,
				numbers_below(&x, 2) ? dir : NULL,
				numbers_below(&x, 6) == 0);

			for (unsigned i = 0; i < 4; i++) {
				made_file_init(&files[i], c, 4 * turn + i,
					       BLOCK * (3 + 17 * i) + 77 * turn);
				files[i].shape = (enum made_shape)i;
			}
			any_reads(&x, c, files, 4);
			assert_true(cache_stats(c).memory_peak <=
				    room * BLOCK + BLOCK / 2);
			rsh_cache_free(c);
		}
		tree_remove(dir);
	}
}
