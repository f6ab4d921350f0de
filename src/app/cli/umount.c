/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/umount.c runs `umount`, which unmounts a mount of reshardfs. */
#include "config.h"

#include "commands.h"

#include <errno.h>
#include <string.h>

#include "rsh/app/mounted.h"
#include "rsh/util/log.h"

#define WAIT_SECONDS 30
/* A longer wait is announced. */
#define SILENT_SECONDS 2

int rsh_umount(const struct rsh_options *o, struct rsh_run *run)
{
	struct rsh_error *err = &run->err;
	struct rsh_mounted m;
	const char *const path = m.path;
	int rc = rsh_mounted_find(o->mountpoint, &m);

	if (rc)
		return rsh_error_set(err, -rc, "mount point %s: %s",
				     o->mountpoint, strerror(-rc));
	if (m.n == 0)
		return rsh_error_set(err, EINVAL, "%s: nothing is mounted "
				     "there", o->mountpoint);
	if (strcmp(m.type, RSH_MOUNTED_TYPE) != 0)
		return rsh_error_set(err, EINVAL, "%s: a mount of type %s, "
				     "not of reshardfs", o->mountpoint, m.type);
	if (o->force) {
		rc = rsh_unmount_force(path, err);
		if (rc == 0)
			rsh_log_notice("%s: unmounted by force: its daemon "
				       "has ended, and open files return "
				       "errors", path);
		return rc;
	}
	rc = rsh_unmount(path, o->lazy, err);
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
