/* SPDX-License-Identifier: Apache-2.0 */
/* copy/target.c makes the directories and files that are written.
 *
 * The writer of a temporary file locks it.  If a temporary file can be locked,
 * its writer has ended.
 */
#include "config.h"

#include "copy_i.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rsh/util/compat.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

#define TEMP_PREFIX ".reshardfs-"
#define TEMP_SUFFIX ".part"

/* ---- refused targets ---- */

/* Opens the deepest directory of the path that exists.  Returns the descriptor
 * or -errno. */
static int open_existing(const char *path)
{
	cleanup_free char *part = strdup(path);

	if (!part)
		return -ENOMEM;
	for (;;) {
		int fd = open(*part ? part : ".", O_PATH | O_DIRECTORY |
						  O_CLOEXEC);
		char *slash;

		if (fd >= 0)
			return fd;
		if (!rsh_errno_is_absent(errno) || !*part)
			return -errno;
		slash = strrchr(part, '/');
		if (!slash)
			*part = '\0';
		else if (slash == part)
			part[1] = '\0';
		else
			*slash = '\0';
	}
}

static bool same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* Returns 1 if the directory is `root` or below it, 0 if not, or -errno.  It
 * takes the descriptor over. */
static int is_below(int dirfd, const struct stat *root)
{
	cleanup_fd int fd = dirfd;
	struct stat st, last = { 0 };

	for (;;) {
		int up;

		if (fstat(fd, &st) != 0)
			return -errno;
		if (same_file(&st, root) || same_file(&st, &last))
			return same_file(&st, root);
		last = st;
		up = openat(fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (up < 0)
			return -errno;
		close(fd);
		fd = up;
	}
}

int rsh_target_check(const char *path, const struct rsh_source *source,
		     struct rsh_error *err)
{
	const int dirfd = rsh_store_dirfd(rsh_source_store(source));
	struct stat root, st;
	int rc;

	if (dirfd < 0)
		return 0;
	if (fstat(dirfd, &root) != 0)
		return rsh_error_file(err, errno, path);
	/* If SOURCE is a single file, a copy may be written to its
	 * directory. */
	if (rsh_source_file(source)) {
		rc = stat(path, &st) == 0 && same_file(&st, &root);
	} else {
		rc = open_existing(path);
		if (rc >= 0)
			rc = is_below(rc, &root);
	}
	if (rc < 0)
		return rsh_error_file(err, -rc, path);
	return rc ? rsh_error_set(err, EINVAL, "%s is SOURCE or in it, where "
					       "nothing is ever written", path) : 0;
}

/* ---- directories ---- */

int rsh_target_dir(int at, const char *name, mode_t mode)
{
	const int links = at == AT_FDCWD ? 0 : O_NOFOLLOW;
	int fd;

	if (mkdirat(at, name, mode) != 0 && errno != EEXIST)
		return -errno;
	fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | links);
	return fd < 0 ? -errno : fd;
}

/* ---- temporary files ---- */

/* Locks a file; `how` is LOCK_NB not to wait for it.  Returns false if another
 * process has locked it.  If the file system does not support locks, the file
 * counts as locked. */
static bool lock(int fd, int how)
{
	int rc;

	do {
		rc = flock(fd, LOCK_EX | how);
	} while (rc != 0 && errno == EINTR);
	return rc == 0 || errno != EWOULDBLOCK;
}

/* Returns whether a file still has a name: another process may have removed it
 * before it was locked. */
static bool has_name(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && st.st_nlink > 0;
}

/* Removes a temporary file unless a process is writing it.  Returns 0 or
 * -errno. */
static int remove_dead(int dirfd, const char *name)
{
	cleanup_fd int fd = openat(dirfd, name, O_RDWR | O_NOFOLLOW |
				   O_NONBLOCK | O_CLOEXEC);

	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	if (!lock(fd, LOCK_NB))
		return -EBUSY;
	return has_name(fd) && unlinkat(dirfd, name, 0) != 0 ? -errno : 0;
}

/* The temporary files of this process, for a signal handler.  A place is free
 * while its `dirfd` is -1, taken while it is -2, and otherwise its name is
 * complete. */
static struct temp_place {
	atomic_int dirfd;
	char name[sizeof(((struct rsh_temp *)0)->name)];
} temp_places[RSH_COPY_JOBS_MAX] = {
	[0 ... RSH_COPY_JOBS_MAX - 1] = { .dirfd = -1 },
};

static void temp_enlist(struct rsh_temp *t)
{
	for (unsigned i = 0; i < RSH_COPY_JOBS_MAX; i++) {
		struct temp_place *p = &temp_places[i];
		int free_place = -1;

		if (!atomic_compare_exchange_strong(&p->dirfd, &free_place, -2))
			continue;
		memcpy(p->name, t->name, sizeof(p->name));
		atomic_store(&p->dirfd, t->dirfd);
		t->place = i + 1;
		return;
	}
}

static void temp_delist(struct rsh_temp *t)
{
	if (t->place)
		atomic_store(&temp_places[t->place - 1].dirfd, -1);
	t->place = 0;
}

void rsh_temp_remove_all(void)
{
	for (unsigned i = 0; i < RSH_COPY_JOBS_MAX; i++) {
		const int dirfd = atomic_load(&temp_places[i].dirfd);

		if (dirfd >= 0)
			unlinkat(dirfd, temp_places[i].name, 0);
	}
}

int rsh_temp_open(struct rsh_temp *t, int dirfd, uint32_t number)
{
	*t = (struct rsh_temp){ .dirfd = dirfd, .fd = -1 };
	snprintf(t->name, sizeof(t->name), TEMP_PREFIX "%" PRIu32 TEMP_SUFFIX,
		 number);
	for (;;) {
		int rc;

		t->fd = openat(dirfd, t->name,
			       O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		/* A process that takes it for a dead one has it locked for a
		 * moment. */
		if (t->fd >= 0 && lock(t->fd, 0) && has_name(t->fd)) {
			temp_enlist(t);
			return 0;
		}
		if (t->fd < 0 && errno != EEXIST)
			return -errno;
		if (t->fd >= 0)
			close(steal_fd(&t->fd));
		rc = remove_dead(dirfd, t->name);
		if (rc)
			return rc;
	}
}

/* Renames the file if `name` does not exist.  If the kernel or the file system
 * does not support RENAME_NOREPLACE, checks this before the rename. */
static int rename_new(const struct rsh_temp *t, const char *name)
{
	if (rsh_renameat2(t->dirfd, t->name, t->dirfd, name,
			  RENAME_NOREPLACE) == 0)
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return -errno;
	if (faccessat(t->dirfd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return -EEXIST;
	return renameat(t->dirfd, t->name, t->dirfd, name) == 0 ? 0 : -errno;
}

int rsh_temp_commit(struct rsh_temp *t, const char *name, bool replace)
{
	int rc = 0;

	if (!replace)
		rc = rename_new(t, name);
	else if (renameat(t->dirfd, t->name, t->dirfd, name) != 0)
		rc = -errno;
	if (rc)
		return rc;
	temp_delist(t);
	close(steal_fd(&t->fd));
	return fsync(t->dirfd) == 0 ? 0 : -errno;
}

void rsh_temp_drop(struct rsh_temp *t)
{
	if (t->fd < 0)
		return;
	temp_delist(t);
	unlinkat(t->dirfd, t->name, 0);
	close(steal_fd(&t->fd));
}

/* Returns whether rsh_temp_open() makes files of this name.  The record of a
 * manifest has a similar name (.reshardfs-manifest.jsonl.part), but a run that
 * was killed needs it to resume. */
static bool is_temp_name(const char *name)
{
	const size_t n = strlen(TEMP_PREFIX);
	size_t digits;

	if (strncmp(name, TEMP_PREFIX, n) != 0)
		return false;
	digits = rsh_count_digits(name + n, SIZE_MAX);
	return digits && strcmp(name + n + digits, TEMP_SUFFIX) == 0;
}

void rsh_temp_sweep(int dirfd)
{
	DIR *dir = rsh_dir_of(openat(dirfd, ".", O_RDONLY | O_DIRECTORY |
				     O_CLOEXEC));
	const struct dirent *e;

	if (!dir)
		return;
	while ((e = readdir(dir)))
		if (is_temp_name(e->d_name))
			remove_dead(dirfd, e->d_name);
	closedir(dir);
}
