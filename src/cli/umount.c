/* cli/umount.c - `umount`: takes down what is a mount of reshardfs. */
#include "config.h"

#include "umount.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <mntent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "force.h"
#include "rsh/util/mem.h"
#include "unmount.h"

#define OUR_TYPE "fuse.reshardfs"
#define WAIT_SECONDS 30

/* The type of what is mounted on `path`, the topmost if there are several; ""
 * if nothing is.  Does not touch the mount, whose daemon may be gone. */
static int find_type(const char *path, char *type, size_t size)
{
	FILE *f = setmntent("/proc/self/mounts", "re");
	char buf[2 * PATH_MAX + 1024];
	struct mntent m;

	*type = '\0';
	if (!f)
		return -errno;
	while (getmntent_r(f, &m, buf, sizeof(buf)))
		if (strcmp(m.mnt_dir, path) == 0)
			snprintf(type, size, "%s", m.mnt_type);
	endmntent(f);
	return 0;
}

/* `given` without links in what stands before its last part, which may be a
 * mount that does not answer. */
static int resolve_parent(const char *given, char *path, size_t size)
{
	cleanup_free char *a = strdup(given), *b = strdup(given);
	char parent[PATH_MAX];
	const char *base;

	if (!a || !b)
		return -ENOMEM;
	base = basename(b);
	if (strcmp(base, ".") == 0 || strcmp(base, "..") == 0 ||
	    strcmp(base, "/") == 0)
		return -EINVAL; /* only realpath(3) knows */
	if (!realpath(dirname(a), parent))
		return -errno;
	return snprintf(path, size, "%s/%s",
			strcmp(parent, "/") == 0 ? "" : parent, base) <
			(int)size ? 0 : -ENAMETOOLONG;
}

/* Finds the name under which the mount is known.  0 or -errno. */
static int find_mount(const char *given, char *path, char *type, size_t size)
{
	int rc = resolve_parent(given, path, PATH_MAX);

	*type = '\0';
	if (rc == 0)
		rc = find_type(path, type, size);
	if (rc == 0 && *type)
		return 0;
	if (!realpath(given, path))
		return -errno;
	return find_type(path, type, size);
}

static int wait_for_daemon(const char *path, struct rsh_error *err)
{
	if (rsh_unmount_wait(path, WAIT_SECONDS))
		return 0;
	return rsh_error_set(err, ETIMEDOUT, "%s: unmounted, but its daemon "
			     "has not ended in %d seconds", path,
			     WAIT_SECONDS);
}

static int take_down(const struct rsh_options *o, struct rsh_error *err)
{
	char path[PATH_MAX], type[128];
	int rc = find_mount(o->mountpoint, path, type, sizeof(type));

	if (rc)
		return rsh_error_set(err, -rc, "%s: %s", o->mountpoint,
				     strerror(-rc));
	if (!*type)
		return rsh_error_set(err, EINVAL, "%s: nothing is mounted "
				     "there", o->mountpoint);
	if (strcmp(type, OUR_TYPE) != 0)
		return rsh_error_set(err, EINVAL, "%s: a mount of type %s, "
				     "not of reshardfs", o->mountpoint, type);
	if (o->force)
		return rsh_unmount_force(path, err);
	rc = rsh_unmount(path, o->lazy, err);
	if (rc == 0 && !o->lazy)
		rc = wait_for_daemon(path, err);
	return rc;
}

enum rsh_exit rsh_umount(const struct rsh_options *o)
{
	struct rsh_error err = RSH_ERROR_INIT;
	int rc = take_down(o, &err);

	return rc ? rsh_exit_failed(o, rc, &err) : RSH_EXIT_GOOD;
}
