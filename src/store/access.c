/* SPDX-License-Identifier: Apache-2.0 */
/* store/access.c tells who may read a file, and where links may lead.
 *
 * For both it asks /proc where an open descriptor really is, and is strict
 * where that does not tell. */
#include "config.h"

#include "files_i.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "rsh/util/clock.h"
#include "rsh/util/mem.h"

#define FD_PATH_MAX 32

/* A search for the root that was in vain is not repeated before this: it may
 * cost a process, and many may read what cannot be reached. */
#define SEARCH_PAUSE_NS UINT64_C(40000000)

/* An access control list speaks of more users than the bits of a mode do. */
#define ACCESS_LIST "system.posix_acl_access"

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

/* Says where in `place` the part below `root` begins; 0 if it is not below
 * it. */
static size_t access_below(const char *root, const char *place)
{
	size_t n = strlen(root);

	if (n == 1)
		return 1; /* it is "/" */
	return strncmp(root, place, n) == 0 && place[n] == '/' ? n + 1 : 0;
}

/* ---- who may read ---- */

mode_t rsh_store_mode_as(const struct rsh_store_attr *a, uid_t uid, gid_t gid)
{
	mode_t user = a->mode >> 6 & 7, group = a->mode >> 3 & 7;
	mode_t other = a->mode & 7;

	/* Members of the new group may be of the old one or not, and so may all
	 * others. */
	if (a->gid != gid)
		group = other = group & other;
	/* The old owner may be in the group, or one of the others. */
	if (a->uid != uid) {
		group &= user;
		other &= user;
	}
	return user << 6 | group << 3 | other;
}

/* Takes from the file's mode what a directory above it keeps from readers. */
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
	/* Who may enter may read. */
	file->mode &= (a.mode & 0111) << 2;
}

/* Limits the file's mode by all directories from the root on, or by all that
 * there are if it lies elsewhere. */
static void access_limit_by_dirs(struct rsh_store_attr *file, int root, int fd)
{
	char top[PATH_MAX], place[PATH_MAX];
	size_t begin;

	if (!access_place_of(root, top) || !access_place_of(fd, place)) {
		file->mode &= S_IRUSR;
		return;
	}
	begin = access_below(top, place);
	if (begin > 1)
		begin--;
	for (char *p = place + begin; (p = strchr(p, '/')); p++) {
		*p = '\0';
		access_limit_by_dir(file, *place ? place : "/");
		*p = '/';
	}
}

void rsh_files_limit(int root, int fd, struct rsh_store_attr *attr)
{
	if (fgetxattr(fd, ACCESS_LIST, NULL, 0) > 0)
		attr->mode &= S_IRUSR;
	access_limit_by_dirs(attr, root, fd);
}

/* ---- where links lead ---- */

/* Opens by a kernel that knows how to stay below a directory (Linux 5.6). */
static int access_open_beneath(int root, const char *name, int flags)
{
	const struct open_how how = {
		.flags = (unsigned)flags,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS,
	};
	long fd = syscall(SYS_openat2, root, name, &how, sizeof(how));

	return fd < 0 ? -errno : (int)fd;
}

/* Opens without such a kernel: looks where the file is before it is opened.
 * Absolute links into the tree have to go this way, too. */
static int access_open_found(int root, const char *name, int flags)
{
	cleanup_fd int found = openat(root, name, O_PATH | O_CLOEXEC);
	char top[PATH_MAX], place[PATH_MAX], again[FD_PATH_MAX];
	int fd;

	if (found < 0)
		return -errno;
	if (!access_place_of(root, top) || !access_place_of(found, place) ||
	    (strcmp(top, place) != 0 && !access_below(top, place)))
		return -EXDEV;
	access_fd_path(found, again);
	fd = open(again, flags);
	return fd < 0 ? -errno : fd;
}

/* Opens `name` from the directory `root`. */
static int access_open_from(int root, bool outside, const char *name, int flags)
{
	int fd;

	flags |= O_CLOEXEC;
	/* Only a map of files has such names, and means them. */
	if (outside || *name == '/') {
		fd = openat(root, name, flags);
		return fd < 0 ? -errno : fd;
	}
	fd = access_open_beneath(root, name, flags);
	if (fd >= 0 || fd == -ENOENT || fd == -EACCES || fd == -ENOTDIR)
		return fd;
	return access_open_found(root, name, flags);
}

int rsh_files_openat(const struct rsh_files *f, const char *name, int flags)
{
	return access_open_from(f->base.dirfd, f->follow_outside, name, flags);
}

bool rsh_files_lead(const struct rsh_files *f, const char *name,
		    char place[PATH_MAX])
{
	cleanup_fd int fd = openat(f->base.dirfd, name, O_PATH | O_CLOEXEC);

	return fd >= 0 && access_place_of(fd, place);
}

/* ---- a root that has gone ---- */

char *rsh_files_place(int root)
{
	char place[PATH_MAX];

	return access_place_of(root, place) ? strdup(place) : NULL;
}

void rsh_store_find(const char *place, bool outside, const char *name,
		     int fd[2])
{
	fd[0] = open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd[0] < 0)
		fd[0] = -errno;
	fd[1] = fd[0] < 0 ? fd[0] :
		access_open_from(fd[0], outside, name, RSH_FILES_OPEN_FLAGS);
}

/* Does the root answer, and not out of what the kernel has kept? */
static bool root_is_alive(int root)
{
	struct statx stx;

	return statx(root, "", AT_EMPTY_PATH | AT_STATX_FORCE_SYNC,
		     STATX_BASIC_STATS, &stx) == 0;
}

/* A mount point that nothing is mounted on is a directory, too, so the file
 * systems are compared. */
static bool root_is_alike(const struct rsh_files *f, int root)
{
	struct statfs fs;

	return fstatfs(root, &fs) == 0 && (uint32_t)fs.f_type == f->fs_type;
}

/* Waits briefly until a search is allowed; false if another one was in vain
 * since. */
static bool root_may_search(struct rsh_files *f)
{
	const uint64_t after = atomic_load(&f->search_after);
	const uint64_t now = rsh_clock_ns();
	struct timespec left = { .tv_nsec = (long)(after - now) };

	if (now >= after)
		return true;
	nanosleep(&left, NULL);
	return atomic_load(&f->search_after) == after;
}

int rsh_files_open_again(struct rsh_files *f, const char *name, int rc,
			 bool *anew)
{
	int fd[2] = { -1, -1 };

	/* What a map of files names may lie anywhere. */
	if (!f->place || (*name != '/' && root_is_alive(f->base.dirfd)))
		return rc;
	if (!root_may_search(f))
		return rc;
	if (!f->opener)
		rsh_store_find(f->place, f->follow_outside, name, fd);
	else if (f->opener->find(f->opener->ctx, name, fd))
		fd[0] = fd[1] = -1;
	*anew = fd[0] >= 0 && root_is_alike(f, fd[0]);
	if (fd[0] >= 0)
		close(fd[0]);
	if (*anew)
		return fd[1];
	if (fd[1] >= 0)
		close(fd[1]);
	atomic_store(&f->search_after, rsh_clock_ns() + SEARCH_PAUSE_NS);
	return rc;
}
