/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/umount.c runs `umount`, which unmounts a mount of reshardfs. */
#include "config.h"

#include "commands.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "rsh/app/mounted.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"

#define WAIT_SECONDS 30
/* A longer wait is announced. */
#define SILENT_SECONDS 2

/* Unmounts what is mounted on m->path. */
static int umount_one(const struct rsh_options *o, const struct rsh_mounted *m,
		      struct rsh_error *err)
{
	const char *const path = m->path;
	int rc;

	if (o->force) {
		rc = rsh_unmount_force(path, err);
		if (rc == 0)
			rsh_log_notice("%s: unmounted by force: its daemon "
				       "has ended, and open files return "
				       "errors", path);
		return rc;
	}
	rc = rsh_unmount(path, o->lazy, err);
	if (rc == -EPERM && geteuid() != 0 && geteuid() != m->user)
		rc = rsh_error_set(err, EPERM, "%s: cannot be unmounted: user "
				   "%u mounted it; only this user and root can "
				   "unmount it", path, (unsigned)m->user);
	if (rc == 0 && o->lazy)
		rsh_log_notice("%s: detached; its daemon ends when no "
			       "process uses the mount any more", path);
	if (rc || o->lazy || rsh_unmount_wait(path, SILENT_SECONDS))
		return rc;
	rsh_log_notice("%s: unmounted; waiting up to %d seconds for its "
		       "daemon to end", path, WAIT_SECONDS);
	if (rsh_unmount_wait(path, WAIT_SECONDS - SILENT_SECONDS))
		return 0;
	return rsh_error_set(err, ETIMEDOUT, "%s: unmounted, but its daemon "
			     "has not ended in %d seconds", path, WAIT_SECONDS);
}

static bool is_ours(const struct rsh_mounted *m)
{
	return m->n && strcmp(m->type, RSH_MOUNTED_TYPE) == 0 &&
	       (geteuid() == 0 || geteuid() == m->user);
}

/* Unmounts all that is ours on a path, down to another file system. */
static int umount_path(const struct rsh_options *o,
		       const struct rsh_mounted *top, struct rsh_error *err)
{
	struct rsh_mounted m = *top;
	int rc = 0;

	for (unsigned left = top->n; rc == 0 && left > 0 && is_ours(&m);
	     left--) {
		rc = umount_one(o, &m, err);
		if (rc == 0 && rsh_mounted_find(top->path, &m))
			break;
	}
	return rc;
}

/* What fails is logged, but for the first failure, which is returned. */
static int umount_all(const struct rsh_options *o, struct rsh_error *err)
{
	cleanup_free struct rsh_mounted *v = NULL;
	size_t n = 0;
	int first = rsh_mounted_list(&v, &n, err);

	if (first)
		return first;
	/* A mount may be inside of an earlier one. */
	while (n--) {
		struct rsh_error failed = RSH_ERROR_INIT;
		const int rc = umount_path(o, &v[n], first ? &failed : err);

		if (first && rc)
			rsh_log_error("%s", failed.text);
		first = first ?: rc;
	}
	return first;
}

int rsh_umount(const struct rsh_options *o, struct rsh_run *run)
{
	struct rsh_error *err = &run->err;
	struct rsh_mounted m;
	int rc;

	if (o->all_mounts)
		return umount_all(o, err);
	rc = rsh_mounted_find(o->mountpoint, &m);
	if (rc)
		return rsh_error_set(err, -rc, "mount point %s: %s",
				     o->mountpoint, strerror(-rc));
	if (m.n == 0)
		return rsh_error_set(err, EINVAL, "%s: nothing is mounted "
				     "there", o->mountpoint);
	if (strcmp(m.type, RSH_MOUNTED_TYPE) != 0)
		return rsh_error_set(err, EINVAL, "%s: a mount of type %s, "
				     "not of reshardfs", o->mountpoint, m.type);
	return umount_one(o, &m, err);
}
