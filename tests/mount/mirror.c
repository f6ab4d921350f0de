/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A FUSE server that comes and goes: shows a directory as it is, until it is
 * killed or told to be sick.
 *
 *	mirror DIRECTORY SICK MOUNTPOINT [stable]
 *
 * While the file SICK exists requests wait, or get the error that it names, and
 * only those for paths with a part of that name if it gives one: "EIO",
 * "ENOTCONN rank_3", "ESTALE", "HANG".  Those that hang do so until SICK is gone.
 * Inodes have the numbers of those that it shows if they are to be stable, and
 * else such as they come, as those of many servers have.  Stays in the
 * foreground.
 */
#define FUSE_USE_VERSION 314
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int top;
static const char *sick;
static int stable;

static int health(const char *path)
{
	FILE *f = fopen(sick, "re");
	char word[32] = "", part[256] = "";
	int n;

	if (!f)
		return 0;
	n = fscanf(f, "%31s %255s", word, part);
	fclose(f);
	if (n == 2 && !strstr(path, part))
		return 0;
	if (strcmp(word, "HANG") == 0)
		while (access(sick, F_OK) == 0)
			usleep(50000);
	if (strcmp(word, "EIO") == 0)
		return -EIO;
	if (strcmp(word, "ENOTCONN") == 0)
		return -ENOTCONN;
	return strcmp(word, "ESTALE") == 0 ? -ESTALE : 0;
}

static const char *below(const char *path)
{
	return path[1] ? path + 1 : ".";
}

static void *op_init(struct fuse_conn_info *conn, struct fuse_config *cfg)
{
	(void)conn;
	cfg->use_ino = stable;
	cfg->direct_io = 1;
	cfg->attr_timeout = 0;
	cfg->entry_timeout = 0;
	return NULL;
}

static int op_getattr(const char *path, struct stat *st,
		      struct fuse_file_info *fi)
{
	int rc = health(path);

	(void)fi;
	if (rc)
		return rc;
	return fstatat(top, below(path), st, AT_SYMLINK_NOFOLLOW) ? -errno : 0;
}

static int op_readdir(const char *path, void *buf, fuse_fill_dir_t fill,
		      off_t offset, struct fuse_file_info *fi,
		      enum fuse_readdir_flags flags)
{
	int rc = health(path);
	int fd = rc ? -1 : openat(top, below(path), O_RDONLY | O_DIRECTORY);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *e;

	(void)offset;
	(void)fi;
	(void)flags;
	if (!dir)
		return rc ? rc : -errno;
	while ((e = readdir(dir)))
		fill(buf, e->d_name, NULL, 0, 0);
	closedir(dir);
	return 0;
}

static int op_open(const char *path, struct fuse_file_info *fi)
{
	int rc = health(path);
	int fd = rc ? -1 : openat(top, below(path), O_RDONLY);

	if (fd < 0)
		return rc ? rc : -errno;
	fi->fh = (uint64_t)fd;
	return 0;
}

static int op_read(const char *path, char *buf, size_t len, off_t offset,
		   struct fuse_file_info *fi)
{
	int rc = health(path);
	ssize_t n;

	if (rc)
		return rc;
	n = pread((int)fi->fh, buf, len, offset);
	return n < 0 ? -errno : (int)n;
}

static int op_release(const char *path, struct fuse_file_info *fi)
{
	(void)path;
	close((int)fi->fh);
	return 0;
}

static const struct fuse_operations ops = {
	.init = op_init,
	.getattr = op_getattr,
	.readdir = op_readdir,
	.open = op_open,
	.read = op_read,
	.release = op_release,
};

int main(int argc, char **argv)
{
	char foreground[] = "-f";
	char *args[] = { argv[0], foreground, argv[3], NULL };

	if (argc < 4) {
		fprintf(stderr, "usage: mirror DIRECTORY SICK MOUNTPOINT "
				"[stable]\n");
		return 2;
	}
	top = open(argv[1], O_RDONLY | O_DIRECTORY);
	sick = argv[2];
	if (top < 0) {
		perror(argv[1]);
		return 1;
	}
	stable = argc > 4;
	return fuse_main(3, args, &ops, NULL);
}
