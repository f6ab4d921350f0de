/* SPDX-License-Identifier: Apache-2.0 */
/* storage/store/files.c is the medium of most stores: the files below one
 * directory of a file system. */
#include "config.h"

#include "file_system_i.h"
#include "medium_i.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "rsh/storage/hub.h"
#include "rsh/util/clock.h"
#include "rsh/util/compat.h"
#include "rsh/util/mem.h"
#include "rsh/util/xxh3.h"

#define FD_PATH_MAX 32

/* After a search that did not find the root, the next one does not begin before
 * this: a search may need a process, and many threads may read files that
 * cannot be reached. */
#define SEARCH_PAUSE_NS UINT64_C(40000000)

/* An access control list may name more users than the bits of a mode. */
#define ACCESS_LIST "system.posix_acl_access"

struct rsh_files {
	struct rsh_medium base;
	char *place; /* path of the root without links; NULL: unknown */
	struct statfs fs; /* of the root; f_type is 0 if it is unknown */
	dev_t root_dev;
	atomic_uint_fast64_t search_after; /* no search for the root begins
					    * before this */
	bool follow_outside;
	const char *within;
	bool fresh; /* files_refresh() is needed */
	const struct rsh_store_opener *opener;
};

/* O_NONBLOCK is needed because a FIFO may have replaced a file. */
#define OPEN_FLAGS (O_RDONLY | O_NOCTTY | O_NONBLOCK)

struct open_file {
	struct rsh_handle base;
	int fd;
};

struct open_dir {
	struct rsh_dir base;
	DIR *dir;
	bool fresh; /* as in the medium */
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

/* Has the kernel ask the server for attributes, which the next call uses. */
static void files_refresh(bool fresh, int fd, const char *name)
{
	struct statx unused;

	if (fresh)
		rsh_statx(fd, name, AT_EMPTY_PATH | AT_STATX_FORCE_SYNC,
			  STATX_BASIC_STATS, &unused);
}

/* ---- access rights and links ----
 *
 * Both need the real path of an open descriptor, which /proc has.  If it is
 * unknown the strictest result is used.
 */

static void access_fd_path(int fd, char path[FD_PATH_MAX])
{
	snprintf(path, FD_PATH_MAX, "/proc/self/fd/%d", fd);
}

static bool access_place_of(int fd, char place[PATH_MAX])
{
	char link[FD_PATH_MAX];
	ssize_t n;

	access_fd_path(fd, link);
	n = readlink(link, place, PATH_MAX);
	if (n <= 0 || n >= PATH_MAX || *place != '/')
		return false;
	place[n] = '\0';
	return true;
}

/* Returns the offset in `place` of the part below `root`; 0 if it is not
 * below. */
static size_t access_below(const char *root, const char *place)
{
	size_t n = strlen(root);

	if (n == 1)
		return 1; /* root is "/" */
	return strncmp(root, place, n) == 0 && place[n] == '/' ? n + 1 : 0;
}

/* ---- access rights ---- */

mode_t rsh_store_mode_as(const struct rsh_store_attr *a, uid_t uid, gid_t gid)
{
	mode_t user = a->mode >> 6 & 7, group = a->mode >> 3 & 7;
	mode_t other = a->mode & 7;

	/* Members of the new group may or may not be in the old group, and so
	 * may other users. */
	if (a->gid != gid)
		group = other = group & other;
	/* The old owner may be in the group, or one of the other users. */
	if (a->uid != uid) {
		group &= user;
		other &= user;
	}
	return user << 6 | group << 3 | other;
}

/* Removes from the file's mode the rights of readers that cannot enter a
 * directory above it. */
static void access_limit_by_dir(struct rsh_store_attr *file, const char *dir)
{
	struct rsh_store_attr a = { 0 };
	struct stat st;

	if (stat(dir, &st) != 0 || getxattr(dir, ACCESS_LIST, NULL, 0) > 0) {
		file->mode &= S_IRUSR;
		return;
	}
	a.mode = st.st_mode;
	a.uid = st.st_uid;
	a.gid = st.st_gid;
	a.mode = rsh_store_mode_as(&a, file->uid, file->gid);
	/* Users that may enter the directory keep the right to read. */
	file->mode &= (a.mode & 0111) << 2;
}

/* ---- links ---- */

/* Opens without openat2(): checks the real path of the file before it is
 * opened.  Absolute links into the tree also need this way, because openat2()
 * refuses them. */
static int access_open_found(int root, const char *within, const char *name,
			     int flags)
{
	cleanup_fd int found = openat(root, name, O_PATH | O_CLOEXEC);
	cleanup_free char *also = within ? realpath(within, NULL) : NULL;
	char top[PATH_MAX], place[PATH_MAX], again[FD_PATH_MAX];
	int fd;

	if (found < 0)
		return -errno;
	if (!access_place_of(root, top) || !access_place_of(found, place) ||
	    (strcmp(top, place) != 0 && !access_below(top, place) &&
	     !(also && access_below(also, place)) &&
	     !rsh_hub_is_blob(top, place)))
		return -EXDEV;
	access_fd_path(found, again);
	fd = open(again, flags);
	return fd < 0 ? -errno : fd;
}

/* Opens `name` from the directory `root`. */
static int access_open_from(int root, bool outside, const char *within,
			    const char *name, int flags)
{
	int fd;

	flags |= O_CLOEXEC;
	/* Only a map of files has absolute names, which are allowed. */
	if (outside || *name == '/') {
		fd = openat(root, name, flags);
		return fd < 0 ? -errno : fd;
	}
	/* openat2() needs Linux 5.6. */
	fd = rsh_openat2(root, name, flags,
			 RSH_RESOLVE_BENEATH | RSH_RESOLVE_NO_MAGICLINKS);
	if (fd >= 0)
		return fd;
	if (errno == ENOENT || errno == EACCES || errno == ENOTDIR)
		return -errno;
	return access_open_found(root, within, name, flags);
}

void rsh_store_find(const char *place, bool outside, const char *within,
		    const char *name, int fd[2])
{
	fd[0] = open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd[0] < 0)
		fd[0] = -errno;
	fd[1] = fd[0] < 0 ? fd[0] :
		access_open_from(fd[0], outside, within, name, OPEN_FLAGS);
}

static bool file_is_remote(const struct rsh_handle *h)
{
	struct statfs fs;

	return fstatfs(handle_fd(h), &fs) == 0 &&
	       rsh_file_system_is_remote((uint32_t)fs.f_type);
}

/* ---- identities ---- */

static void files_stat(const struct stat *st, struct rsh_stat *out)
{
	*out = (struct rsh_stat){
		.kind = S_ISREG(st->st_mode) ? RSH_IS_FILE :
			S_ISDIR(st->st_mode) ? RSH_IS_DIR : RSH_IS_OTHER,
		.size = (uint64_t)st->st_size,
		.attr = {
			.mode = st->st_mode & 07777, .uid = st->st_uid,
			.gid = st->st_gid, .mtime = st->st_mtim,
			.ctime = st->st_ctim,
		},
	};
}

static void files_identity(const struct rsh_files *f, int fd,
			   const struct stat *st,
			   struct rsh_store_identity *out)
{
	struct statfs fs = f->fs;

	*out = (struct rsh_store_identity){
		.size = (uint64_t)st->st_size,
		.mtime = st->st_mtim, .ctime = st->st_ctim,
		.which = { st->st_dev, st->st_ino },
	};
	/* While the root is open no other file system has its device. */
	if ((!fs.f_type || st->st_dev != f->root_dev) && fstatfs(fd, &fs) != 0)
		return;
	out->keeps_ctime = rsh_file_system_keeps_ctime(&fs, st, f->root_dev);
	out->place = out->keeps_ctime ? rsh_file_system_number(&fs) :
		     rsh_file_system_mount(fd);
}

static int file_identify(const struct rsh_handle *h,
			 struct rsh_store_identity *id, struct rsh_stat *out)
{
	struct stat st;

	if (fstat(handle_fd(h), &st) != 0)
		return -errno;
	if (id)
		files_identity(files_of(h->medium), handle_fd(h), &st, id);
	if (out)
		files_stat(&st, out);
	return 0;
}

/* File servers return one ctime to all nodes, and it cannot be set: a tree that
 * was copied to the path of another one, with its mtimes, has other ctimes. */
static void file_share(const struct rsh_medium *m, const char *name,
		       const struct rsh_store_identity *id, uint64_t out[2])
{
	const char *place = *name == '/' ? "" : files_of(m)->place;
	const uint64_t times[] = {
		(uint64_t)id->mtime.tv_sec, (uint64_t)id->mtime.tv_nsec,
		(uint64_t)id->ctime.tv_sec, (uint64_t)id->ctime.tv_nsec,
		id->place,
	};
	cleanup_free char *text = NULL;
	XXH128_hash_t hash;
	int n = -1;

	out[0] = out[1] = 0;
	if (place && id->keeps_ctime)
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

/* The root and the directories below it count, or all directories of the path
 * if the file is outside the root. */
static void file_limit(const struct rsh_handle *h, struct rsh_store_attr *attr)
{
	char top[PATH_MAX], place[PATH_MAX];
	const int fd = handle_fd(h);
	size_t begin;

	if (fgetxattr(fd, ACCESS_LIST, NULL, 0) > 0)
		attr->mode &= S_IRUSR;
	if (!access_place_of(h->medium->dirfd, top) ||
	    !access_place_of(fd, place)) {
		attr->mode &= S_IRUSR;
		return;
	}
	begin = rsh_hub_is_blob(top, place) ? rsh_hub_model(top) + 1 :
					      access_below(top, place);
	if (begin > 1)
		begin--;
	for (char *p = place + begin; (p = strchr(p, '/')); p++) {
		*p = '\0';
		access_limit_by_dir(attr, *place ? place : "/");
		*p = '/';
	}
}

/* Compares the file systems of a file that was opened by path.  0, RSH_CHANGED
 * or a positive errno. */
static int identity_compare_anew(const struct rsh_store_identity *id, int fd,
				 const struct stat *st)
{
	const bool same_dev = st->st_dev == id->which[0];
	const bool same_ino = st->st_ino == id->which[1];
	struct statfs fs;

	if (same_dev && same_ino && id->keeps_ctime)
		return 0;
	/* The kernel may cache the result of fstat() for a second after a
	 * server has died. */
	if (fstatfs(fd, &fs) != 0)
		return errno;
	if (!same_ino && !rsh_file_system_renumbers((uint32_t)fs.f_type))
		return RSH_CHANGED;
	/* If no ctime tells one content from another, only the mount does. */
	return id->place == (id->keeps_ctime ? rsh_file_system_number(&fs) :
			     rsh_file_system_mount(fd)) ? 0 : RSH_CHANGED;
}

int rsh_files_compare(const struct rsh_store_identity *id, int fd, bool anew)
{
	struct statfs fs;
	struct stat st;
	bool same;

	if (fstat(fd, &st) != 0)
		return errno;
	same = st.st_dev == id->which[0] && st.st_ino == id->which[1];
	if ((uint64_t)st.st_size != id->size ||
	    rsh_clock_compare(&st.st_mtim, &id->mtime) != 0)
		return RSH_CHANGED;
	/* The removal of its last name changes the ctime, not the content. */
	if (rsh_clock_compare(&st.st_ctim, &id->ctime) != 0)
		return same && st.st_nlink == 0 ? 0 : RSH_CHANGED;
	if (anew)
		return identity_compare_anew(id, fd, &st);
	if (same)
		return 0;
	if (fstatfs(fd, &fs) != 0)
		return errno;
	return st.st_dev == id->which[0] &&
	       rsh_file_system_renumbers((uint32_t)fs.f_type) ? 0 : RSH_CHANGED;
}

static int file_compare(const struct rsh_handle *h,
			const struct rsh_store_identity *id, bool anew)
{
	files_refresh(files_of(h->medium)->fresh, handle_fd(h), "");
	return rsh_files_compare(id, handle_fd(h), anew);
}

/* ---- open files ---- */

/* Takes ownership of the descriptor, or returns it if it is an -errno. */
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
	return file_handle_new(m, access_open_from(m->dirfd,
						   files_of(m)->follow_outside,
						   files_of(m)->within, name,
						   OPEN_FLAGS), out);
}

static int file_open_again(struct rsh_medium *m, const char *name, int rc,
			   struct rsh_handle **out)
{
	struct rsh_files *f = (struct rsh_files *)m;
	const uint64_t after = atomic_load(&f->search_after);
	const uint64_t now = rsh_clock_ns();
	struct timespec left = { .tv_nsec = (long)(after - now) };
	int fd[2] = { -1, -1 };
	struct statx stx;
	struct statfs fs;
	bool alike;

	/* If the root answers, and not from the kernel's cache, it need not be
	 * searched.  A file of a map of files may be outside the root, so it is
	 * always searched. */
	if (!f->place ||
	    (*name != '/' &&
	     rsh_statx(m->dirfd, "", AT_EMPTY_PATH | AT_STATX_FORCE_SYNC,
		       STATX_BASIC_STATS, &stx) == 0))
		return rc;
	/* Waits for the time of the next search, and does not search if another
	 * thread's search fails meanwhile. */
	if (now < after) {
		nanosleep(&left, NULL);
		if (atomic_load(&f->search_after) != after)
			return rc;
	}
	if (!f->opener)
		rsh_store_find(f->place, f->follow_outside, f->within, name,
			       fd);
	else if (f->opener->find(f->opener->ctx, name, fd))
		fd[0] = fd[1] = -1;
	/* A mount point without a mount is a directory too, so the file systems
	 * are compared. */
	alike = fd[0] >= 0 && fstatfs(fd[0], &fs) == 0 &&
		fs.f_type == f->fs.f_type;
	if (fd[0] >= 0)
		close(fd[0]);
	if (alike) {
		rc = file_handle_new(m, fd[1], out);
		if (rc == 0)
			(*out)->anew = true;
		return rc;
	}
	if (fd[1] >= 0)
		close(fd[1]);
	atomic_store(&f->search_after, rsh_clock_ns() + SEARCH_PAUSE_NS);
	return rc;
}

static void file_close(struct rsh_handle *h)
{
	close(handle_fd(h));
	free(h);
}

static ssize_t file_read(struct rsh_handle *h, const struct iovec *iov, int n,
			 uint64_t offset)
{
	const int fd = handle_fd(h);
	ssize_t got;

	/* Scans read a few bytes at a time, for which preadv() with one vector
	 * is slower. */
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
	cleanup_fd int fd = openat(m->dirfd, name, O_PATH | O_CLOEXEC);

	return fd >= 0 && access_place_of(fd, place);
}

static int look_from(bool fresh, int dirfd, const char *name,
		     struct rsh_stat *out)
{
	struct stat st;

	files_refresh(fresh, dirfd, name);
	if (fstatat(dirfd, name, &st, 0) != 0)
		return -errno;
	files_stat(&st, out);
	return 0;
}

static int file_look(struct rsh_medium *m, const char *name,
		     struct rsh_stat *out)
{
	return look_from(files_of(m)->fresh, m->dirfd, *name ? name : ".", out);
}

static int file_list(struct rsh_medium *m, const char *name,
		     struct rsh_dir **out)
{
	int fd = access_open_from(m->dirfd, files_of(m)->follow_outside,
				  files_of(m)->within, *name ? name : ".",
				  O_RDONLY | O_DIRECTORY);
	const bool fresh = files_of(m)->fresh;
	struct open_dir *d;
	int rc;

	if (fd < 0)
		return fd;
	d = malloc(sizeof(*d));
	if (!d) {
		close(fd);
		return -ENOMEM;
	}
	files_refresh(fresh, fd, "");
	*d = (struct open_dir){ { &files_ops }, rsh_dir_of(fd), fresh };
	if (d->dir) {
		*out = &d->base;
		return 0;
	}
	rc = -errno;
	free(d);
	return rc;
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
	const struct open_dir *at = (struct open_dir *)d;

	return look_from(at->fresh, dirfd(at->dir), name, out);
}

static void file_dir_close(struct rsh_dir *d)
{
	closedir(((struct open_dir *)d)->dir);
	free(d);
}

/* ---- the root ---- */

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
	char place[PATH_MAX];
	struct rsh_stat root;
	uint32_t type;
	struct stat st;

	m->dirfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (m->dirfd < 0 || fstat(m->dirfd, &st) != 0)
		return -errno;
	files_stat(&st, &root);
	m->attr = root.attr;
	if (access_place_of(m->dirfd, place))
		f->place = strdup(place);
	if (fstatfs(m->dirfd, &f->fs) != 0)
		f->fs.f_type = 0;
	f->root_dev = st.st_dev;
	files_identity(f, m->dirfd, &st, &m->root);
	type = (uint32_t)f->fs.f_type;
	m->is_remote = rsh_file_system_is_remote(type);
	f->fresh &= m->is_remote;
	m->is_stacked = rsh_file_system_is_stacked(type);
	return 0;
}

int rsh_files_open(const char *path, const struct rsh_store_options *opts,
		   struct rsh_medium **out, struct rsh_error *err)
{
	struct rsh_files *f = calloc(1, sizeof(*f));
	char hint[PATH_MAX];
	int rc;

	if (!f)
		return rsh_error_nomem(err);
	f->base.ops = &files_ops;
	f->follow_outside = opts->follow_outside;
	f->within = opts->within;
	f->fresh = opts->fresh;
	f->opener = opts->opener;
	rc = files_open_root(f, path);
	if (rc) {
		files_free(&f->base);
		rsh_hub_hint(path, hint, sizeof(hint));
		return rsh_error_set(err, -rc, "source %s: %s%s", path,
				     strerror(-rc), hint);
	}
	*out = &f->base;
	return 0;
}

/* ---- files outside a store ---- */

int rsh_handle_open_path(const char *path, struct rsh_handle **out)
{
	/* Such a file has no root, and its access rights are not used. */
	static struct rsh_files anywhere = {
		.base = { .ops = &files_ops, .dirfd = -1 },
	};
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	return file_handle_new(&anywhere.base, fd < 0 ? -errno : fd, out);
}
