/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_source_index.c - indexing files in parallel, and their attributes.
 */
#include "config.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rsh/source/source.h"
#include "rsh/util/log.h"
#include "source_support.h"

#define N_RANKS 40

static const uint8_t zeros[100];

static char *tree_of_vectors(void)
{
	char *tree = tree_make();
	char name[64];

	for (unsigned r = 0; r < N_RANKS; r++) {
		snprintf(name, sizeof(name), "rank_%u/x.ckpt", r);
		/* Two kinds of files in turn. */
		tree_write_vector(tree, name, zeros, r % 2 ? 10 : 20);
	}
	return tree;
}

static struct rsh_source *open_tree(const char *tree, unsigned n_threads)
{
	const struct rsh_source_options opts = { .n_threads = n_threads };
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_source *s;

	assert_good(rsh_source_open(tree, 0, N_RANKS, &opts, &s, &err) ||
		    rsh_source_choose(s, 0, &err), err);
	return s;
}

TEST(test_equal_files_share)
{
	cleanup_tree char *tree = tree_of_vectors();

	for (unsigned threads = 0; threads < 12; threads += 3) {
		struct rsh_names *names = rsh_names_new();
		struct rsh_source *s = open_tree(tree, threads);
		struct rsh_error err = RSH_ERROR_INIT;
		struct rsh_source_view v;

		assert_int_equal(rsh_source_index(s, names, &err), 0);
		rsh_source_view(s, names, &v);
		assert_int_equal(v.n_ranks, N_RANKS);
		assert_ptr_not_equal(v.index[0], v.index[1]);
		for (unsigned r = 0; r < N_RANKS; r++) {
			assert_ptr_equal(v.index[r], v.index[r % 2]);
			assert_int_equal(v.index[r]->n_records, 1);
		}
		rsh_source_free(s);
		rsh_names_free(names);
	}
}

/* Whatever the timing, the first complaint is about the lowest rank. */
TEST(test_broken_files_are_left_out)
{
	cleanup_tree char *tree = tree_of_vectors();
	const char *first;

	tree_write(tree, "rank_7/x.ckpt", "\x0a\xff\xff\xff", 4);
	tree_write(tree, "rank_8/x.ckpt", "\x0a\xff\xff\xff", 4);
	tree_write(tree, "rank_30/x.ckpt", "", 0);
	for (int i = 0; i < 50; i++) {
		struct rsh_names *names = rsh_names_new();
		struct rsh_source *s = open_tree(tree, 8);
		struct rsh_error err = RSH_ERROR_INIT;
		struct rsh_source_view v;

		assert_int_equal(rsh_source_index(s, names, &err), 0);
		assert_int_equal(rsh_source_n_bad(s, &first), 3);
		assert_non_null(strstr(first, "rank_7/x.ckpt"));
		rsh_source_view(s, names, &v);
		for (unsigned r = 0; r < N_RANKS; r++)
			assert_int_equal(v.index[r] == NULL,
					 r == 7 || r == 8 || r == 30);
		rsh_source_free(s);
		rsh_names_free(names);
	}
}

TEST(test_file_that_went)
{
	cleanup_tree char *tree = tree_of_vectors();
	cleanup_names struct rsh_names *names = rsh_names_new();
	struct rsh_source *s = open_tree(tree, 2);
	struct rsh_error err = RSH_ERROR_INIT;
	const char *first;
	char path[256];

	snprintf(path, sizeof(path), "%s/rank_3/x.ckpt", tree);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rsh_source_index(s, names, &err), 0);
	assert_int_equal(rsh_source_n_bad(s, &first), 1);
	assert_non_null(strstr(first, path));
	rsh_source_free(s);
}

TEST(test_attributes)
{
	const struct timespec times[2] = { { 5, 6 }, { 1234567890, 987654321 } };
	cleanup_tree char *tree = tree_of_vectors();
	cleanup_names struct rsh_names *names = rsh_names_new();
	struct rsh_source *s;
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_store_attr a;
	char path[256];

	assert_int_equal(chmod(tree, 0751), 0);
	snprintf(path, sizeof(path), "%s/rank_3/x.ckpt", tree);
	assert_int_equal(chmod(path, 0640), 0);
	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
	s = open_tree(tree, 0);
	assert_int_equal(rsh_source_index(s, names, &err), 0);

	assert_true(rsh_source_attr(s, 3, &a));
	assert_int_equal(a.mode, 0440);
	assert_int_equal(a.uid, getuid());
	assert_int_equal(a.gid, getgid());
	assert_int_equal(a.mtime.tv_sec, 1234567890);
	assert_int_equal(a.mtime.tv_nsec, 987654321);
	assert_false(rsh_source_attr(s, N_RANKS, &a));
	assert_false(rsh_source_attr(s, UINT32_MAX, &a));
	rsh_store_root_attr(rsh_source_store(s), &a);
	assert_int_equal(a.mode, 0751);
	assert_int_equal(fcntl(rsh_store_dirfd(rsh_source_store(s)), F_GETFD),
			 FD_CLOEXEC);
	rsh_source_free(s);
}

int main(void)
{
	rsh_log_set_level(RSH_LOG_ERROR);
	return unit_run(NULL, NULL);
}
