/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_util_files.c - suffixes, and files that are replaced or are not. */
#include "config.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rsh/util/files.h"
#include "support.h"

TEST(test_suffix)
{
	assert_true(rsh_has_suffix("a.ckpt", ".ckpt"));
	assert_true(rsh_has_suffix("a.ckpt.ckpt", ".ckpt"));
	assert_false(rsh_has_suffix(".ckpt", ".ckpt"));
	assert_false(rsh_has_suffix("ckpt", ".ckpt"));
	assert_false(rsh_has_suffix("", ".ckpt"));
	assert_false(rsh_has_suffix("a.ckpt2", ".ckpt"));
	assert_false(rsh_has_suffix("a.CKPT", ".ckpt"));
}

/* ---- writing ---- */

struct content {
	const char *text;
	int rc; /* what filling comes to after that */
};

static int fill(void *ctx, int fd)
{
	const struct content *c = ctx;
	int rc = rsh_write_all(fd, c->text, strlen(c->text), 0);

	return rc ? rc : c->rc;
}

static int open_dir(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

static int replace(int dirfd, const char *text, int rc)
{
	struct content c = { text, rc };

	return rsh_file_replace(dirfd, "file", "new", 0600, fill, &c);
}

/* The file has this content, and no other one is left. */
static void expect(int dirfd, const char *text)
{
	int fd = openat(dirfd, "file", O_RDONLY);
	char got[64] = "";

	assert_true(fd >= 0);
	assert_int_equal(read(fd, got, sizeof(got) - 1), strlen(text));
	assert_string_equal(got, text);
	close(fd);
	assert_int_equal(faccessat(dirfd, "new", F_OK, AT_SYMLINK_NOFOLLOW), -1);
}

TEST(test_replace)
{
	cleanup_tree char *path = tree_make();
	int dirfd = open_dir(path), before;
	struct stat st;

	assert_int_equal(replace(dirfd, "one", 0), 0);
	expect(dirfd, "one");
	assert_int_equal(fstatat(dirfd, "file", &st, 0), 0);
	assert_int_equal(st.st_mode, S_IFREG | 0600);
	/* Who has it open keeps what it was. */
	before = openat(dirfd, "file", O_RDONLY);
	assert_int_equal(replace(dirfd, "another", 0), 0);
	expect(dirfd, "another");
	assert_int_equal(lseek(before, 0, SEEK_END), 3);
	close(before);
	close(dirfd);
}

TEST(test_failures)
{
	cleanup_tree char *path = tree_make();
	int dirfd = open_dir(path);

	assert_int_equal(replace(dirfd, "one", 0), 0);
	assert_int_equal(replace(dirfd, "half", -ENOSPC), -ENOSPC);
	expect(dirfd, "one");
	/* Nothing that is in the way is written to, whatever it leads to. */
	assert_int_equal(symlinkat("file", dirfd, "new"), 0);
	assert_int_equal(replace(dirfd, "two", 0), -EEXIST);
	assert_int_equal(unlinkat(dirfd, "new", 0), 0);
	expect(dirfd, "one");
	assert_int_equal(unlinkat(dirfd, "file", 0), 0);
	assert_int_equal(mkdirat(dirfd, "file", 0700), 0);
	assert_int_equal(replace(dirfd, "two", 0), -EISDIR);
	assert_int_equal(faccessat(dirfd, "new", F_OK, 0), -1);
	close(dirfd);
}

TEST(test_write_all)
{
	cleanup_tree char *path = tree_make();
	int dirfd = open_dir(path), fd;
	char got[8] = "";

	fd = openat(dirfd, "file", O_RDWR | O_CREAT, 0600);
	assert_int_equal(rsh_write_all(fd, "world", 5, 2), 0);
	assert_int_equal(rsh_write_all(fd, "a ", 2, 0), 0);
	assert_int_equal(rsh_write_all(fd, "", 0, 100), 0);
	assert_int_equal(pread(fd, got, sizeof(got), 0), 7);
	assert_string_equal(got, "a world");
	close(fd);
	assert_int_equal(rsh_write_all(fd, "a", 1, 0), -EBADF);
	fd = open("/dev/full", O_WRONLY);
	assert_int_equal(rsh_write_all(fd, "a", 1, 0), -ENOSPC);
	close(fd);
	close(dirfd);
}

TEST(test_read_all)
{
	char got[8] = "";
	int ends[2];

	/* A pipe gives what there is: here one write at a time. */
	assert_int_equal(pipe2(ends, O_DIRECT), 0);
	assert_int_equal(write(ends[1], "ab", 2), 2);
	assert_int_equal(write(ends[1], "cde", 3), 3);
	assert_int_equal(write(ends[1], "f", 1), 1);
	assert_int_equal(rsh_read_all(ends[0], got, 5), 5);
	assert_string_equal(got, "abcde");
	close(ends[1]);
	assert_int_equal(rsh_read_all(ends[0], got, sizeof(got)), 1);
	assert_int_equal(got[0], 'f');
	assert_int_equal(rsh_read_all(ends[0], got, sizeof(got)), 0);
	close(ends[0]);
	assert_int_equal(rsh_read_all(ends[0], got, 1), -EBADF);
	assert_int_equal(rsh_pread_all(ends[0], got, 1, 0), -EBADF);
	assert_int_equal(rsh_pread_all(ends[0], got, 1, UINT64_MAX), -EINVAL);
}
