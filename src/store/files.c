/* SPDX-License-Identifier: Apache-2.0 */
/* store/files.c is the medium that most stores have: the files of a file
 * system below one directory. */
#include "config.h"

#include "files_i.h"

#include <errno.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "rsh/util/mem.h"
#include "rsh/util/xxh3.h"

/* These are file systems that linux/magic.h does not know. */
#define BEEGFS_MAGIC 0x19830326
#define GPFS_MAGIC 0x47504653
#define LUSTRE_MAGIC 0x0bd00bd0

struct open_file {
	struct rsh_handle base;
	int fd;
};

struct open_dir {
	struct rsh_dir base;
	DIR *dir;
};

static const struct rsh_files *files_of(const struct rsh_medium *m)
{
	return (const struct rsh_files *)m;
}

static int handle_fd(const struct rsh_handle *h)
{
	return ((const struct open_file *)h)->fd;
}

static const struct rsh_medium_ops files_ops;

/* ---- where they lie ---- */

static bool type_is_remote(uint32_t type)
{
	switch (type) {
	case NFS_SUPER_MAGIC:
	case SMB_SUPER_MAGIC:
	case CIFS_SUPER_MAGIC:
	case SMB2_SUPER_MAGIC:
	case CEPH_SUPER_MAGIC:
	case V9FS_MAGIC:
	case AFS_SUPER_MAGIC:
	case CODA_SUPER_MAGIC:
	case BEEGFS_MAGIC:
	case GPFS_MAGIC:
	case LUSTRE_MAGIC:
	case RSH_FUSE_MAGIC:
		return true;
	default:
		return false;
	}
}

static bool type_is_stacked(uint32_t type)
{
	switch (type) {
	case OVERLAYFS_SUPER_MAGIC:
	case ECRYPTFS_SUPER_MAGIC:
	case RSH_FUSE_MAGIC:
		return true;
	default:
		return false;
	}
}

static bool file_is_remote(const struct rsh_handle *h)
{
	struct statfs fs;

	return fstatfs(handle_fd(h), &fs) == 0 &&
	       type_is_remote((uint32_t)fs.f_type);
}

/* ---- what they are ---- */

static void files_stat(const struct stat *st, struct rsh_stat *out)
{
	*out = (struct rsh_stat){
		.kind = S_ISREG(st->st_mode) ? RSH_IS_FILE :
			S_ISDIR(st->st_mode) ? RSH_IS_DIR : RSH_IS_OTHER,
		.size = (uint64_t)st->st_size,
		.attr = {
			.mode = st->st_mode & 07777, .uid = st->st_uid,
			.gid = st->st_gid, .mtime = st->st_mtim,
		},
	};
}

static void files_identity(const struct stat *st,
			     struct rsh_store_identity *out)
{
	*out = (struct rsh_store_identity){
		.size = (uint64_t)st->st_size,
		.mtime = st->st_mtim, .ctime = st->st_ctim,
		.which = { st->st_dev, st->st_ino },
	};
}

static int file_identify(const struct rsh_handle *h,
			 struct rsh_store_identity *id, struct rsh_stat *out)
{
	struct stat st;

	if (fstat(handle_fd(h), &st) != 0)
		return -errno;
	if (id)
		files_identity(&st, id);
	if (out)
		files_stat(&st, out);
	return 0;
}

/* Servers of files give one ctime to all nodes, and it cannot be set: a tree
 * that was put where another was, with its times, has others. */
static void file_share(const struct rsh_medium *m, const char *name,
		       const struct rsh_store_identity *id, uint64_t out[2])
{
	const char *place = *name == '/' ? "" : files_of(m)->place;
	const uint64_t times[] = {
		(uint64_t)id->mtime.tv_sec, (uint64_t)id->mtime.tv_nsec,
		(uint64_t)id->ctime.tv_sec, (uint64_t)id->ctime.tv_nsec,
	};
	cleanup_free char *text = NULL;
	XXH128_hash_t hash;
	int n = -1;

	out[0] = out[1] = 0;
	if (place)
		n = asprintf(&text, "%s%c%s", place, 0, name);
	if (n < 0) {
		text = NULL;
		return;
	}
	hash = XXH3_128bits_withSeed(text, (size_t)n,
				     XXH3_64bits(times, sizeof(times)));
	out[0] = hash.low64;
	out[1] = hash.high64;
}

static void file_limit(const struct rsh_handle *h, struct rsh_store_attr *attr)
{
	rsh_files_limit(h->medium->dirfd, handle_fd(h), attr);
}

static bool identity_same_time(const struct timespec *a,
			       const struct timespec *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

/* May a file with another device or inode be the one that was identified? */
static bool identity_is_renumbered(const struct rsh_store_identity *id,
				   const struct statfs *fs,
				   const struct stat *st, bool anew)
{
	/* Many servers number inodes as they come to be known, and anew when
	 * the kernel has forgotten them. */
	if ((uint32_t)fs->f_type == RSH_FUSE_MAGIC)
		return identity_same_time(&st->st_ctim, &id->ctime);
	return anew && st->st_dev != id->which[0] && st->st_ino == id->which[1];
}

int rsh_files_compare(const struct rsh_store_identity *id, int fd, bool anew)
{
	struct statfs fs;
	struct stat st;

	if (fstat(fd, &st) != 0)
		return errno;
	if ((uint64_t)st.st_size != id->size ||
	    !identity_same_time(&st.st_mtim, &id->mtime))
		return RSH_CHANGED;
	if (st.st_dev == id->which[0] && st.st_ino == id->which[1])
		return 0;
	/* The kernel may remember for a second what fstat() said of a server
	 * that has died. */
	if (fstatfs(fd, &fs) != 0)
		return errno;
	return identity_is_renumbered(id, &fs, &st, anew) ? 0 : RSH_CHANGED;
}

static int file_compare(const struct rsh_handle *h,
			const struct rsh_store_identity *id, bool anew)
{
	return rsh_files_compare(id, handle_fd(h), anew);
}

/* ---- open files ---- */

/* Takes over the descriptor, or -errno that stands in its place. */
static int file_handle_new(struct rsh_medium *m, int fd,
			   struct rsh_handle **out)
{
	struct open_file *h;

	if (fd < 0)
		return fd;
	h = malloc(sizeof(*h));
	if (!h) {
		close(fd);
		return -ENOMEM;
	}
	*h = (struct open_file){ .base.medium = m, .fd = fd };
	*out = &h->base;
	return 0;
}

static int file_open(struct rsh_medium *m, const char *name,
		     struct rsh_handle **out)
{
	return file_handle_new(m, rsh_files_openat(files_of(m), name,
						   RSH_FILES_OPEN_FLAGS), out);
}

static int file_open_again(struct rsh_medium *m, const char *name, int rc,
			   struct rsh_handle **out)
{
	bool anew = false;

	rc = file_handle_new(m, rsh_files_open_again((struct rsh_files *)m,
						     name, rc, &anew), out);
	if (rc == 0)
		(*out)->anew = anew;
	return rc;
}

static void file_close(struct rsh_handle *h)
{
	close(handle_fd(h));
	free(h);
}

static ssize_t file_read(struct rsh_medium *m, struct rsh_handle *h,
			 const struct iovec *iov, int n, uint64_t offset)
{
	const int fd = handle_fd(h);
	ssize_t got;

	(void)m;
	/* Scans read a few bytes at a time, where a list of one costs. */
	got = n == 1 ? pread(fd, iov->iov_base, iov->iov_len, (off_t)offset) :
		       preadv(fd, iov, n, (off_t)offset);
	return got < 0 ? -errno : got;
}

static int file_forget(const struct rsh_handle *h, uint64_t offset,
		       uint64_t len)
{
	return -posix_fadvise(handle_fd(h), (off_t)offset, (off_t)len,
			      POSIX_FADV_DONTNEED);
}

/* ---- names ---- */

static bool file_leads(struct rsh_medium *m, const char *name,
		       char place[PATH_MAX])
{
	return rsh_files_lead(files_of(m), name, place);
}

static int look_from(int dirfd, const char *name, struct rsh_stat *out)
{
	struct stat st;

	if (fstatat(dirfd, name, &st, 0) != 0)
		return -errno;
	files_stat(&st, out);
	return 0;
}

static int file_look(struct rsh_medium *m, const char *name,
		     struct rsh_stat *out)
{
	return look_from(m->dirfd, *name ? name : ".", out);
}

/* Takes over the descriptor, or -errno that stands in its place. */
static int file_dir_new(int fd, struct rsh_dir **out)
{
	struct open_dir *d;
	int rc;

	if (fd < 0)
		return fd;
	d = malloc(sizeof(*d));
	if (!d) {
		close(fd);
		return -ENOMEM;
	}
	*d = (struct open_dir){ { &files_ops }, rsh_dir_of(fd) };
	if (d->dir) {
		*out = &d->base;
		return 0;
	}
	rc = -errno;
	free(d);
	return rc;
}

static int file_list(struct rsh_medium *m, const char *name,
		     struct rsh_dir **out)
{
	return file_dir_new(rsh_files_openat(files_of(m), *name ? name : ".",
					     O_RDONLY | O_DIRECTORY), out);
}

static int file_dir_next(struct rsh_dir *d, const char **name)
{
	const struct dirent *e;

	errno = 0;
	e = readdir(((struct open_dir *)d)->dir);
	if (!e)
		return -errno;
	*name = e->d_name;
	return 1;
}

static int file_dir_look(struct rsh_dir *d, const char *name,
			 struct rsh_stat *out)
{
	return look_from(dirfd(((struct open_dir *)d)->dir), name, out);
}

static void file_dir_close(struct rsh_dir *d)
{
	closedir(((struct open_dir *)d)->dir);
	free(d);
}

/* ---- the directory ---- */

static void files_free(struct rsh_medium *m)
{
	struct rsh_files *f = (struct rsh_files *)m;

	if (m->dirfd >= 0)
		close(m->dirfd);
	free(f->place);
	free(f);
}

static const struct rsh_medium_ops files_ops = {
	.free = files_free,
	.open = file_open,
	.open_again = file_open_again,
	.leads = file_leads,
	.look = file_look,
	.list = file_list,
	.dir_next = file_dir_next,
	.dir_look = file_dir_look,
	.dir_close = file_dir_close,
	.close = file_close,
	.identify = file_identify,
	.share = file_share,
	.limit = file_limit,
	.compare = file_compare,
	.read = file_read,
	.forget = file_forget,
	.is_remote = file_is_remote,
	.descriptor = handle_fd,
};

static int files_open_root(struct rsh_files *f, const char *path)
{
	struct rsh_medium *m = &f->base;
	struct rsh_stat root;
	struct statfs fs;
	struct stat st;

	m->dirfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (m->dirfd < 0 || fstat(m->dirfd, &st) != 0)
		return -errno;
	files_stat(&st, &root);
	m->attr = root.attr;
	files_identity(&st, &m->root);
	f->place = rsh_files_place(m->dirfd);
	if (fstatfs(m->dirfd, &fs) == 0)
		f->fs_type = (uint32_t)fs.f_type;
	m->is_remote = type_is_remote(f->fs_type);
	m->is_stacked = type_is_stacked(f->fs_type);
	return 0;
}

int rsh_files_open(const char *path, const struct rsh_store_options *opts,
		   struct rsh_medium **out, struct rsh_error *err)
{
	struct rsh_files *f = calloc(1, sizeof(*f));
	int rc;

	if (!f)
		return rsh_error_nomem(err);
	f->base.ops = &files_ops;
	f->follow_outside = opts->follow_outside;
	f->opener = opts->opener;
	rc = files_open_root(f, path);
	if (rc) {
		files_free(&f->base);
		return rsh_error_set(err, -rc, "source %s: %s%s", path,
				     strerror(-rc), rsh_store_hint(path));
	}
	*out = &f->base;
	return 0;
}

/* ---- anywhere ---- */

int rsh_files_list(const char *path, struct rsh_dir **out)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return file_dir_new(fd < 0 ? -errno : fd, out);
}

int rsh_handle_open_path(const char *path, struct rsh_handle **out)
{
	/* A file anywhere has no root, and nobody asks who may read it. */
	static struct rsh_medium anywhere = { .ops = &files_ops, .dirfd = -1 };
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	return file_handle_new(&anywhere, fd < 0 ? -errno : fd, out);
}
