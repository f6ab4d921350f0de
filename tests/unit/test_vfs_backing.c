/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_vfs_backing.c - which virtual files are a source file byte for
 * byte. */
#include "config.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rsh/formats/formats.h"
#include "rsh/util/log.h"
#include "rsh/vfs/vfs.h"
#include "source_support.h"

#define N_BYTES 60
#define NAME "rank_0/x-1_5.ckpt"

/* One vector, on one device, wanted on three. */
static const char cut[] =
	"{\"current_stage\":1,\"parallel_layout_item\":{\"data\":{"
	"\"dev_matrix\":[3],\"field\":0,\"opt_weight_shard_size\":0,"
	"\"opt_weight_shard_step\":0,\"tensor_map\":[0],"
	"\"tensor_shape\":[60]}},\"parallel_strategy_item\":{\"op\":{"
	"\"parallel_strategy\":[[1]],\"stage\":0}}}";

struct fixture {
	char *tree;
	char path[256]; /* of rank 0's file */
	size_t size, header;
	uint8_t bytes[256]; /* of the file, and room */
	struct rsh_store_io *io;
	struct rsh_vfs_config cfg;
	struct rsh_vfs *vfs;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	uint8_t content[N_BYTES];
	FILE *file;

	for (int i = 0; i < N_BYTES; i++)
		content[i] = (uint8_t)(100 + i);
	f->tree = tree_make();
	f->header = (size_t)tree_write_vector(f->tree, NAME, content, N_BYTES);
	snprintf(f->path, sizeof(f->path), "%s/" NAME, f->tree);
	file = fopen(f->path, "rb");
	assert_non_null(file);
	f->size = fread(f->bytes, 1, sizeof(f->bytes), file);
	fclose(file);
	assert_int_equal(f->size, f->header + N_BYTES);
	f->cfg = (struct rsh_vfs_config){
		.files.formats = rsh_formats,
		.output = &rsh_output_ckpt,
		.source = f->tree, .tree = { .prefix = "net_" },
	};
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	rsh_vfs_free(f->vfs);
	rsh_store_io_free(f->io);
	tree_remove(f->tree);
	free(f);
	return 0;
}

static void mount(struct fixture *f)
{
	struct rsh_error err = RSH_ERROR_INIT;

	assert_good(rsh_vfs_open(&f->cfg, &f->vfs, &err), err);
}

static uint64_t at(const struct fixture *f, const char *dir, const char *file)
{
	uint64_t node = rsh_vfs_lookup(f->vfs, RSH_VFS_ROOT, dir);

	node = rsh_vfs_lookup(f->vfs, node, file);
	assert_true(node != 0 && node != UINT64_MAX);
	return node;
}

/* The virtual file's bytes are those of the source file that backs it. */
static void assert_backed(const struct fixture *f, uint64_t node)
{
	uint8_t virtual[256], source[256];
	uint32_t file;
	int fd;

	assert_int_equal(rsh_vfs_backing(f->vfs, node, &file), 0);
	assert_int_equal(rsh_store_descriptor(rsh_vfs_store(f->vfs), file, &fd), 0);
	assert_int_equal(rsh_store_check(rsh_vfs_store(f->vfs), file, fd), 0);
	assert_int_equal(pread(fd, source, sizeof(source), 0), f->size);
	assert_int_equal(rsh_vfs_read(f->vfs, node, virtual, sizeof(virtual),
				      0), f->size);
	assert_memory_equal(virtual, source, f->size);
	close(fd);
}

static void assert_not_backed(const struct fixture *f, uint64_t node)
{
	uint32_t file;

	/* The second answer is the one that is remembered. */
	for (int i = 0; i < 2; i++)
		assert_int_equal(rsh_vfs_backing(f->vfs, node, &file),
				 -ENODATA);
}

/* The number of the source file that backs the file of this rank. */
static uint32_t backing(const struct fixture *f, unsigned rank)
{
	char dir[16], name[16];
	uint32_t file;

	snprintf(dir, sizeof(dir), "rank_%u", rank);
	snprintf(name, sizeof(name), "net_%u.ckpt", rank);
	assert_int_equal(rsh_vfs_backing(f->vfs, at(f, dir, name), &file), 0);
	return file;
}

TEST_OF_FIXTURE(copies_are_the_file)
{
	f->cfg.plan.n_shown_ranks = 2;
	f->cfg.plan.replicas = true;
	mount(f);
	assert_backed(f, at(f, "rank_0", "net_0.ckpt"));
	assert_backed(f, at(f, "rank_1", "net_1.ckpt"));
	assert_int_equal(backing(f, 0), backing(f, 1));
}

TEST_OF_FIXTURE(each_rank_has_its_own)
{
	tree_write(f->tree, "rank_1/x-1_5.ckpt", f->bytes, f->size);
	f->cfg.plan.n_shown_ranks = 2;
	mount(f);
	assert_backed(f, at(f, "rank_1", "net_1.ckpt"));
	assert_int_not_equal(backing(f, 0), backing(f, 1));
}

TEST_OF_FIXTURE(other_nodes_have_none)
{
	mount(f);
	assert_not_backed(f, 0);
	assert_not_backed(f, RSH_VFS_ROOT);
	assert_not_backed(f, rsh_vfs_lookup(f->vfs, RSH_VFS_ROOT, "rank_0"));
	assert_not_backed(f, UINT64_MAX);
}

TEST_OF_FIXTURE(slices_have_none)
{
	char path[256];

	tree_write(f->tree, "./strategy.json", cut, sizeof(cut) - 1);
	snprintf(path, sizeof(path), "%s/strategy.json", f->tree);
	f->cfg.dst = (struct rsh_strategy_at){ path, RSH_FROM_FILE };
	mount(f);
	assert_not_backed(f, at(f, "rank_0", "net_0.ckpt"));
	assert_not_backed(f, at(f, "rank_2", "net_2.ckpt"));
}

/* A vector cut in two, each half held by two of four ranks. */
static const char halves[] =
	"{\"current_stage\":1,\"parallel_layout_item\":{\"data\":{"
	"\"dev_matrix\":[2,2],\"field\":0,\"opt_weight_shard_size\":0,"
	"\"opt_weight_shard_step\":0,\"tensor_map\":[0],"
	"\"tensor_shape\":[120]}},\"parallel_strategy_item\":{\"op\":{"
	"\"parallel_strategy\":[[1]],\"stage\":0}}}";

/* Two records: the slice of the rank, and one that no strategy lists, which
 * begins with `byte`. */
static void write_two(struct fixture *f, unsigned rank, uint8_t byte)
{
	uint8_t both[512];
	char name[32];

	memcpy(both, f->bytes, f->size);
	memcpy(both + f->size, f->bytes, f->size);
	memcpy(memmem(both + f->size, f->header, "data", 4), "note", 4);
	both[f->header] = (uint8_t)(rank % 2);
	both[f->size + f->header] = byte;
	snprintf(name, sizeof(name), "rank_%u/x-1_5.ckpt", rank);
	tree_write(f->tree, name, both, 2 * f->size);
}

/* Rank 1 is lost: its half is rank 3's.  To the converter the other record is
 * rank 0's. */
static void lose_rank_1(struct fixture *f, uint8_t byte_of_rank_3)
{
	static char path[256];

	write_two(f, 0, 1);
	write_two(f, 2, 1);
	write_two(f, 3, byte_of_rank_3);
	tree_write(f->tree, "./strategy.json", halves, sizeof(halves) - 1);
	snprintf(path, sizeof(path), "%s/strategy.json", f->tree);
	f->cfg.src = f->cfg.dst =
		(struct rsh_strategy_at){ path, RSH_FROM_FILE };
	f->cfg.plan.replicas = true;
	f->size *= 2;
}

TEST_OF_FIXTURE(a_lost_rank_is_one_that_holds_the_same)
{
	lose_rank_1(f, 2);
	mount(f);
	assert_backed(f, at(f, "rank_1", "net_1.ckpt"));
	assert_int_equal(backing(f, 1), backing(f, 3));
}

/* The converter's order is here that of the files. */
static void mount_compat(struct fixture *f)
{
	f->cfg.plan.compat = true;
	mount(f);
}

TEST_OF_FIXTURE(a_small_record_from_elsewhere_may_be_the_same)
{
	lose_rank_1(f, 1);
	mount_compat(f);
	assert_backed(f, at(f, "rank_1", "net_1.ckpt"));
	assert_int_equal(backing(f, 1), backing(f, 3));
}

TEST_OF_FIXTURE(a_small_record_from_elsewhere_may_differ)
{
	lose_rank_1(f, 2);
	mount_compat(f);
	assert_not_backed(f, at(f, "rank_1", "net_1.ckpt"));
	assert_backed(f, at(f, "rank_3", "net_3.ckpt"));
}

/* Of the same length, with the type before the dimension. */
TEST_OF_FIXTURE(another_header_has_none)
{
	static const uint8_t dim[] = { 0x08, N_BYTES };
	uint8_t got[256], want[256];
	uint8_t *p = memmem(f->bytes, f->header, dim, sizeof(dim));
	uint64_t node;

	memcpy(want, f->bytes, f->size);
	assert_non_null(p);
	memmove(p, p + 2, 7); /* "UInt8" and what stands before it */
	memcpy(p + 7, dim, sizeof(dim));
	assert_memory_not_equal(f->bytes, want, f->size);
	tree_write(f->tree, NAME, f->bytes, f->size);
	mount_compat(f);
	node = at(f, "rank_0", "net_0.ckpt");
	assert_not_backed(f, node);
	assert_int_equal(rsh_vfs_read(f->vfs, node, got, sizeof(got), 0),
			 f->size);
	assert_memory_equal(got, want, f->size);
}

TEST_OF_FIXTURE(a_longer_file_has_none)
{
	memcpy(f->bytes + f->size, "crc_num\0\0\0\0\0\0" "1234", 17);
	tree_write(f->tree, NAME, f->bytes, f->size + 17);
	mount_compat(f);
	assert_not_backed(f, at(f, "rank_0", "net_0.ckpt"));
}

/* Whatever it looks like, a file that is shown as it is has itself. */
TEST_OF_FIXTURE(odd_files_are_themselves)
{
	static const uint8_t unknown[] = { 0x50, 1 }; /* field 10: 1 */

	memmove(f->bytes + 2, f->bytes, f->size);
	memcpy(f->bytes, unknown, sizeof(unknown));
	memcpy(f->bytes + f->size + 2, "crc_num\0\0\0\0\0\0" "1234", 17);
	f->size += 2 + 17;
	tree_write(f->tree, NAME, f->bytes, f->size);
	mount(f);
	assert_backed(f, at(f, "rank_0", "net_0.ckpt"));
}

TEST_OF_FIXTURE(another_format_has_none)
{
	f->cfg.output = &rsh_output_safetensors;
	mount(f);
	assert_not_backed(f, at(f, "rank_0", "net_0.safetensors"));
}

/* Neither the faults nor the cache may be passed by. */
TEST_OF_FIXTURE(what_reads_straight_is_backed)
{
	static const struct {
		struct rsh_store_io_options options;
		bool backed;
	} cases[] = {
		{ { .caching = RSH_CACHING_OFF }, true },
		{ { .caching = RSH_CACHING_OFF, .faults = "short" }, false },
		{ { .caching = RSH_CACHING_ON,
		    .cache = { .memory_bytes = 64 << 20 } }, false },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct rsh_error err = RSH_ERROR_INIT;

		rsh_vfs_free(f->vfs);
		rsh_store_io_free(f->io);
		f->vfs = NULL;
		if (rsh_store_io_new(&cases[i].options, &f->io, &err))
			fail_msg("%s", err.text);
		f->cfg.files.store.io = f->io;
		mount(f);
		(cases[i].backed ? assert_backed : assert_not_backed)(
			f, at(f, "rank_0", "net_0.ckpt"));
	}
}

static void touch(const struct fixture *f)
{
	const struct timespec times[2] = { { 1, 2 }, { 3, 4 } };

	assert_int_equal(utimensat(AT_FDCWD, f->path, times, 0), 0);
}

TEST_OF_FIXTURE(a_changed_file_is_stale)
{
	uint64_t node;
	uint32_t file;
	int fd, other;

	mount(f);
	node = at(f, "rank_0", "net_0.ckpt");
	assert_int_equal(rsh_vfs_backing(f->vfs, node, &file), 0);
	assert_int_equal(rsh_store_descriptor(rsh_vfs_store(f->vfs), file, &fd), 0);
	touch(f);
	assert_int_equal(rsh_vfs_backing(f->vfs, node, &file), 0);
	assert_int_equal(rsh_store_descriptor(rsh_vfs_store(f->vfs), file, &other),
			 -ESTALE);
	assert_int_equal(rsh_store_check(rsh_vfs_store(f->vfs), file, fd), -ESTALE);
	close(fd);
}

TEST_OF_FIXTURE(a_file_that_changed_before_is_stale)
{
	uint32_t file;
	int fd;

	mount(f);
	touch(f);
	assert_int_equal(rsh_vfs_backing(f->vfs, at(f, "rank_0", "net_0.ckpt"),
					 &file), 0);
	assert_int_equal(rsh_store_descriptor(rsh_vfs_store(f->vfs), file, &fd),
			 -ESTALE);
}

/* Its headers would have to be compared. */
TEST_OF_FIXTURE(a_file_that_changed_before_is_not_read)
{
	uint32_t file;

	mount_compat(f);
	touch(f);
	assert_int_equal(rsh_vfs_backing(f->vfs, at(f, "rank_0", "net_0.ckpt"),
					 &file), -ESTALE);
}

/* Where others may hold the same, reading through the tree finds them. */
TEST_OF_FIXTURE(a_changed_file_is_left_to_replicas)
{
	uint64_t node;

	f->cfg.plan.replicas = true;
	mount(f);
	node = at(f, "rank_0", "net_0.ckpt");
	assert_backed(f, node);
	touch(f);
	assert_not_backed(f, node);
}

TEST_OF_FIXTURE(files_to_resume_are_backed)
{
	const struct rsh_vfs_config cfg = {
		.source = f->tree, .files.formats = rsh_formats,
	};
	struct rsh_error err = RSH_ERROR_INIT;

	assert_good(rsh_vfs_open_resume(&cfg, &f->vfs, &err), err);
	assert_backed(f, at(f, "rank_0", "x-1_5.ckpt"));
	assert_not_backed(f, at(f, "rank_0", "latest.ckpt"));
	assert_not_backed(f, rsh_vfs_lookup(f->vfs, RSH_VFS_ROOT, "rank_0"));
	assert_not_backed(f, UINT64_MAX);
}

int main(void)
{
	/* Errors are expected. */
	if (rsh_log_to_file("/dev/null"))
		return 1;
	return unit_run(NULL, NULL);
}
