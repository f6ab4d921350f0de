/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_vfs_medium.c - a source that is no directory of a file system: what
 * is mounted is the same, and nobody gets a descriptor. */
#include "config.h"

#include <unistd.h>

#include "memory_medium.h"
#include "rsh/formats/formats.h"
#include "rsh/source/format.h"
#include "rsh/util/log.h"
#include "rsh/vfs/vfs.h"
#include "source_support.h"

#define N_BYTES 60

struct fixture {
	size_t header;
	struct rsh_store_io *io;
	struct rsh_vfs_config cfg;
	struct rsh_vfs *vfs;
};

/* What was written to a directory is gone when it is mounted. */
static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	char *tree = tree_make(), name[32];
	uint8_t content[N_BYTES];

	for (unsigned step = 4; step <= 5; step++)
		for (unsigned rank = 0; rank < 2; rank++) {
			memset(content, (int)(10 * step + rank), N_BYTES);
			snprintf(name, sizeof(name), "rank_%u/x-1_%u.ckpt",
				 rank, step);
			f->header = tree_write_vector(tree, name, content,
						      N_BYTES);
		}
	tree_write(tree, "note/README", "x", 1);
	memory_add_from(tree, "note/README");
	memory_add_from(tree, "rank_0/x-1_4.ckpt");
	memory_add_from(tree, "rank_0/x-1_5.ckpt");
	memory_add_from(tree, "rank_1/x-1_4.ckpt");
	memory_add_from(tree, "rank_1/x-1_5.ckpt");
	tree_remove(tree);
	f->cfg = (struct rsh_vfs_config){
		.files.formats = rsh_formats,
		.output = &rsh_output_ckpt,
		.source = "memory://tree", .tree = { .prefix = "net_" },
	};
	f->cfg.plan.n_shown_ranks = 2;
	f->cfg.files.store.medium = memory_open;
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	rsh_vfs_free(f->vfs);
	rsh_store_io_free(f->io);
	memory_clear();
	free(f);
	return 0;
}

static void mount(struct fixture *f, const struct rsh_store_io_options *io)
{
	struct rsh_error err = RSH_ERROR_INIT;

	if (io) {
		assert_int_equal(rsh_store_io_new(io, &f->io, &err), 0);
		f->cfg.files.store.io = f->io;
	}
	assert_good(rsh_vfs_open(&f->cfg, &f->vfs, &err), err);
}

static uint64_t file_of(const struct fixture *f, unsigned rank)
{
	char name[32];
	uint64_t node;

	snprintf(name, sizeof(name), "rank_%u", rank);
	node = rsh_vfs_lookup(f->vfs, RSH_VFS_ROOT, name);
	snprintf(name, sizeof(name), "net_%u.ckpt", rank);
	node = rsh_vfs_lookup(f->vfs, node, name);
	assert_true(node != 0 && node != UINT64_MAX);
	return node;
}

static void assert_shown(const struct fixture *f, unsigned rank)
{
	uint8_t got[512];

	assert_int_equal(rsh_vfs_read(f->vfs, file_of(f, rank), got,
				      sizeof(got), 0), f->header + N_BYTES);
	for (int i = 0; i < N_BYTES; i++)
		assert_int_equal(got[f->header + (size_t)i], 50 + rank);
}

static ssize_t read_some(const struct fixture *f, unsigned rank)
{
	uint8_t got[N_BYTES];

	return rsh_vfs_read(f->vfs, file_of(f, rank), got, N_BYTES, f->header);
}

TEST_OF_FIXTURE(the_newest_step_is_shown)
{
	mount(f, NULL);
	assert_shown(f, 0);
	assert_shown(f, 1);
	assert_true(rsh_store_is_remote(rsh_vfs_store(f->vfs)));
	assert_false(rsh_store_is_stacked(rsh_vfs_store(f->vfs)));
}

TEST_OF_FIXTURE(nobody_gets_a_descriptor)
{
	uint32_t file;
	int fd;

	mount(f, NULL);
	assert_int_equal(rsh_vfs_backing(f->vfs, file_of(f, 0), &file),
			 -ENODATA);
	assert_int_equal(rsh_store_descriptor(rsh_vfs_store(f->vfs), 0, &fd),
			 -ENOTSUP);
}

TEST_OF_FIXTURE(another_version_is_stale)
{
	mount(f, NULL);
	memory_replace(2);
	assert_int_equal(read_some(f, 0), -ESTALE);
	assert_shown(f, 1);
}

TEST_OF_FIXTURE(faults_stand_before_it)
{
	const struct rsh_store_io_options io = {
		.caching = RSH_CACHING_OFF, .faults = "eio@rank_1;short@rank_0",
	};

	mount(f, &io);
	assert_shown(f, 0);
	assert_int_equal(read_some(f, 1), -EIO);
}

TEST_OF_FIXTURE(what_fails_once_is_opened_again)
{
	mount(f, NULL);
	memory_fail(1);
	assert_shown(f, 0);
}

/* Nobody else keeps what was read, so that nothing need be tried first. */
TEST_OF_FIXTURE(the_cache_keeps_it)
{
	const struct rsh_store_io_options io = {
		.cache = { .memory_bytes = 64 << 20 },
	};
	struct rsh_store_io_stats stats;
	unsigned before;

	mount(f, &io);
	rsh_store_io_stats_get(f->io, &stats);
	assert_true(stats.cached);
	before = memory_reads();
	for (int i = 0; i < 3; i++)
		assert_shown(f, 0);
	assert_int_equal(memory_reads(), before + 1);
}

TEST_OF_FIXTURE(steps_are_found_to_resume)
{
	struct rsh_vfs_config cfg = {
		.source = "memory://tree", .files.formats = rsh_formats,
	};
	struct rsh_error err = RSH_ERROR_INIT;
	uint64_t node;

	cfg.files.store.medium = memory_open;
	assert_good(rsh_vfs_open_resume(&cfg, &f->vfs, &err), err);
	node = rsh_vfs_lookup(f->vfs, RSH_VFS_ROOT, "rank_1");
	node = rsh_vfs_lookup(f->vfs, node, "x-1_5.ckpt");
	assert_true(node != 0 && node != UINT64_MAX);
}

/* A step that lacks a file is not judged again, as one is that was not read. */
TEST_OF_FIXTURE(what_cannot_be_looked_at_is_not_missing)
{
	static const char *const files[] = {
		".metadata", "__0_0.distcp", "__1_0.distcp", "__2_0.distcp",
		"__3_0.distcp",
	};
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_source *s;
	char path[512];

	memory_clear();
	snprintf(path, sizeof(path), "%s/data/dcp/torch-2.4/uneven",
		 getenv("srcdir"));
	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++)
		memory_add_from(path, files[i]);
	assert_good(rsh_source_open("memory://tree", 0, UINT32_MAX,
				    &f->cfg.files, &s, &err), err);
	memory_fail_look("__1_0.distcp");
	assert_int_equal(rsh_source_judge(s, false, &err), -EIO);
	assert_non_null(strstr(err.text, "__1_0.distcp: "));
	memory_fail_look(NULL);
	assert_good(rsh_source_judge(s, false, &err), err);
	rsh_source_free(s);
}

int main(void)
{
	rsh_log_set_level(RSH_LOG_ERROR);
	return unit_run(NULL, NULL);
}
