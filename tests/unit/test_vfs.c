/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_vfs.c - the virtual tree without a mount: names, numbers,
 * attributes and bytes. */
#include "config.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "rsh/formats/formats.h"
#include "rsh/util/log.h"
#include "rsh/vfs/vfs.h"
#include "source_support.h"

#define N_BYTES 60

/* One vector, on one device, wanted on three. */
static const char strategy[] =
	"{\"current_stage\":1,\"parallel_layout_item\":{\"data\":{"
	"\"dev_matrix\":[3],\"field\":0,\"opt_weight_shard_size\":0,"
	"\"opt_weight_shard_step\":0,\"tensor_map\":[0],"
	"\"tensor_shape\":[60]}},\"parallel_strategy_item\":{\"op\":{"
	"\"parallel_strategy\":[[1]],\"stage\":0}}}";

struct fixture {
	char *tree;
	uint8_t content[N_BYTES];
	struct rsh_vfs *vfs;
};

static int setup(void **state)
{
	const struct timespec times[2] = { { 1, 2 }, { 1700000000, 123 } };
	struct fixture *f = calloc(1, sizeof(*f));
	struct rsh_error err = RSH_ERROR_INIT;
	char path[256], strategy_path[256];
	struct rsh_vfs_config cfg = {
		.files.formats = rsh_formats,
		.output = &rsh_output_ckpt,
		.dst = { strategy_path, RSH_FROM_FILE },
		.tree = { .prefix = "net_", .uid = 12, .gid = 34 },
	};

	for (int i = 0; i < N_BYTES; i++)
		f->content[i] = (uint8_t)(100 + i);
	f->tree = tree_make();
	cfg.source = f->tree;
	tree_write_vector(f->tree, "rank_0/x-1_5.ckpt", f->content, N_BYTES);
	tree_write(f->tree, "./strategy.json", strategy, sizeof(strategy) - 1);
	snprintf(strategy_path, sizeof(strategy_path), "%s/strategy.json",
		 f->tree);
	snprintf(path, sizeof(path), "%s/rank_0/x-1_5.ckpt", f->tree);
	assert_int_equal(chmod(path, 0640), 0);
	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
	assert_int_equal(chmod(f->tree, 0755), 0);
	assert_good(rsh_vfs_open(&cfg, &f->vfs, &err), err);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	rsh_vfs_free(f->vfs);
	tree_remove(f->tree);
	free(f);
	return 0;
}

static uint64_t file_of(const struct rsh_vfs *v, unsigned rank)
{
	char dir[32], file[32];

	snprintf(dir, sizeof(dir), "rank_%u", rank);
	snprintf(file, sizeof(file), "net_%u.ckpt", rank);
	return rsh_vfs_lookup(v, rsh_vfs_lookup(v, RSH_VFS_ROOT, dir), file);
}

TEST(test_lookup)
{
	const struct rsh_vfs *v = ((struct fixture *)*state)->vfs;
	static const char *const absent[] = {
		"rank_3", "rank_00", "rank_+1", "rank_ 1", "rank_", "rank",
		"rank_1x", "rank_-1", "rank_4294967296", "net_0.ckpt",
		"rank_18446744073709551616", "", "RANK_0",
	};
	uint64_t dir = rsh_vfs_lookup(v, RSH_VFS_ROOT, "rank_1");

	assert_int_not_equal(dir, 0);
	assert_int_not_equal(file_of(v, 1), 0);
	assert_int_not_equal(file_of(v, 1), file_of(v, 2));
	for (size_t i = 0; i < sizeof(absent) / sizeof(absent[0]); i++)
		assert_int_equal(rsh_vfs_lookup(v, RSH_VFS_ROOT, absent[i]),
				 0);
	assert_int_equal(rsh_vfs_lookup(v, dir, "net_2.ckpt"), 0);
	assert_int_equal(rsh_vfs_lookup(v, dir, "net_1.ckp"), 0);
	assert_int_equal(rsh_vfs_lookup(v, dir, "net_1.ckptx"), 0);
	assert_int_equal(rsh_vfs_lookup(v, file_of(v, 0), "x"), UINT64_MAX);
	assert_int_equal(rsh_vfs_lookup(v, 0, "x"), UINT64_MAX);
	assert_int_equal(rsh_vfs_lookup(v, 8, "x"), UINT64_MAX);
}

TEST(test_entries)
{
	const struct rsh_vfs *v = ((struct fixture *)*state)->vfs;
	static const char *const root[] = { ".", "..", "rank_0", "rank_1",
					    "rank_2" };
	static const char *const dir[] = { ".", "..", "net_1.ckpt" };
	uint64_t rank_1 = rsh_vfs_lookup(v, RSH_VFS_ROOT, "rank_1"), child;
	char name[64];

	for (unsigned i = 0; i < 5; i++) {
		assert_int_equal(rsh_vfs_entry(v, RSH_VFS_ROOT, i, &child,
					       name, sizeof(name)), 0);
		assert_string_equal(name, root[i]);
		assert_int_equal(child, i < 2 ? RSH_VFS_ROOT :
				 rsh_vfs_lookup(v, RSH_VFS_ROOT, name));
	}
	assert_int_equal(rsh_vfs_entry(v, RSH_VFS_ROOT, 5, &child, name,
				       sizeof(name)), -ENOENT);
	assert_int_equal(rsh_vfs_entry(v, RSH_VFS_ROOT, UINT64_MAX, &child,
				       name, sizeof(name)), -ENOENT);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(rsh_vfs_entry(v, rank_1, i, &child, name,
					       sizeof(name)), 0);
		assert_string_equal(name, dir[i]);
	}
	assert_int_equal(child, file_of(v, 1));
	assert_int_equal(rsh_vfs_entry(v, rank_1, 3, &child, name,
				       sizeof(name)), -ENOENT);
	assert_int_equal(rsh_vfs_entry(v, file_of(v, 1), 0, &child, name,
				       sizeof(name)), -ENOTDIR);
	assert_int_equal(rsh_vfs_entry(v, 99, 0, &child, name, sizeof(name)),
			 -ENOTDIR);
}

TEST(test_stat)
{
	const struct rsh_vfs *v = ((struct fixture *)*state)->vfs;
	struct stat st;

	assert_int_equal(rsh_vfs_stat(v, RSH_VFS_ROOT, &st), 0);
	assert_int_equal(st.st_mode, S_IFDIR | 0755);
	assert_int_equal(st.st_nlink, 5);
	assert_int_equal(st.st_ino, RSH_VFS_ROOT);

	assert_int_equal(rsh_vfs_stat(v, file_of(v, 2), &st), 0);
	assert_int_equal(st.st_ino, file_of(v, 2));
	/* Of a file 0440 of another group. */
	assert_int_equal(st.st_mode, S_IFREG | 0400);
	assert_int_equal(st.st_nlink, 1);
	assert_int_equal(st.st_uid, 12);
	assert_int_equal(st.st_gid, 34);
	assert_true(st.st_size > 20 && st.st_size < 100);
	assert_int_equal(st.st_blocks, 1);
	assert_int_equal(st.st_mtim.tv_sec, 1700000000);
	assert_int_equal(st.st_mtim.tv_nsec, 123);

	assert_int_equal(rsh_vfs_stat(v, 0, &st), -ENOENT);
	assert_int_equal(rsh_vfs_stat(v, 8, &st), -ENOENT);
	assert_int_equal(rsh_vfs_stat(v, UINT64_MAX, &st), -ENOENT);
}

TEST(test_statfs)
{
	const struct rsh_vfs *v = ((struct fixture *)*state)->vfs;
	struct statvfs fs;

	rsh_vfs_statfs(v, &fs);
	assert_int_equal(fs.f_blocks, 1);
	assert_int_equal(fs.f_frsize, 4096);
	assert_int_equal(fs.f_bfree, 1);
	assert_int_equal(fs.f_bavail, 1);
	assert_int_equal(fs.f_files, 7);
	assert_int_equal(fs.f_namemax, 255);
}

TEST(test_read)
{
	const struct fixture *f = *state;
	uint64_t file = file_of(f->vfs, 1);
	uint8_t all[256], part[256];
	struct stat st;
	size_t size;

	assert_int_equal(rsh_vfs_stat(f->vfs, file, &st), 0);
	size = (size_t)st.st_size;
	assert_int_equal(rsh_vfs_read(f->vfs, file, all, sizeof(all), 0), size);
	/* The middle third of the vector ends the file. */
	assert_memory_equal(all + size - N_BYTES / 3,
			    f->content + N_BYTES / 3, N_BYTES / 3);
	for (size_t at = 0; at <= size + 1; at++) {
		for (size_t len = 0; len <= size + 1; len++) {
			size_t want = at >= size ? 0 : size - at;

			if (want > len)
				want = len;
			assert_int_equal(rsh_vfs_read(f->vfs, file, part, len,
						      at), want);
			assert_memory_equal(part, all + at, want);
		}
	}
	assert_int_equal(rsh_vfs_read(f->vfs, file, part, 10, UINT64_MAX), 0);
	assert_int_equal(rsh_vfs_read(f->vfs, RSH_VFS_ROOT, part, 10, 0),
			 -EISDIR);
	assert_int_equal(rsh_vfs_read(f->vfs, 0, part, 10, 0), -ENOENT);
}

TEST(test_prefix_too_long)
{
	const struct fixture *f = *state;
	char prefix[260], path[256];
	const struct rsh_vfs_config cfg = {
		.files.formats = rsh_formats,
		.output = &rsh_output_ckpt,
		.source = f->tree, .dst = { path, RSH_FROM_FILE },
		.tree = { .prefix = prefix },
	};
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_vfs *v = NULL;

	snprintf(path, sizeof(path), "%s/strategy.json", f->tree);
	memset(prefix, 'p', sizeof(prefix));
	prefix[249] = '\0'; /* and "2.ckpt" makes 255 */
	assert_int_equal(rsh_vfs_open(&cfg, &v, &err), 0);
	rsh_vfs_free(v);
	prefix[249] = 'p';
	prefix[250] = '\0';
	assert_int_equal(rsh_vfs_open(&cfg, &v, &err), -ENAMETOOLONG);
	assert_non_null(strstr(err.text, "prefix"));
}

int main(void)
{
	rsh_log_set_level(RSH_LOG_ERROR);
	return unit_run(setup, teardown);
}
