/* SPDX-License-Identifier: Apache-2.0 */
/* app/daemon/mountpoint.c refuses a mount point where the mount would hide
 * files. */
#include "config.h"

#include "daemon_i.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/app/mounted.h"
#include "rsh/storage/store.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

/* Returns whether `path` is `dir` or is below it.  Both are resolved. */
static bool is_in(const char *path, const char *dir)
{
	const size_t n = strcmp(dir, "/") == 0 ? 0 : strlen(dir);

	return strncmp(path, dir, n) == 0 && (!path[n] || path[n] == '/');
}

static int check_against_source(const struct rsh_options *o, const char *place,
				struct rsh_error *err)
{
	cleanup_free char *source = realpath(o->vfs.source, NULL);

	/* Opening SOURCE reports what is wrong with it. */
	if (rsh_store_is_address(o->vfs.source) || !source)
		return 0;
	if (is_in(source, place))
		return rsh_error_set(err, EINVAL, "mount point %s: the mount "
				     "would hide SOURCE, %s; mount on another "
				     "directory", place, source);
	/* --steps all looks at SOURCE again and again, and would find the
	 * mount itself there. */
	if (o->steps && is_in(place, source))
		return rsh_error_set(err, EINVAL, "mount point %s: it is inside "
				     "SOURCE, %s, where --steps all looks for "
				     "steps; mount outside of SOURCE", place,
				     source);
	return 0;
}

static int check_empty(const char *place, struct rsh_error *err)
{
	DIR *dir = opendir(place);
	char first[NAME_MAX + 32] = "";
	const struct dirent *e;
	size_t n = 0;

	/* Mounting reports what is wrong with the directory; one that may not
	 * be listed can be mounted on. */
	if (!dir)
		return 0;
	while ((e = readdir(dir))) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		if (n++ == 0)
			snprintf(first, NAME_MAX + 1, "%s", e->d_name);
	}
	closedir(dir);
	if (n == 0)
		return 0;
	if (n > 1)
		rsh_text_add(first, sizeof(first), &(size_t){ strlen(first) },
			     " and %zu more", n - 1);
	return rsh_error_set(err, ENOTEMPTY, "mount point %s: not empty; the "
			     "mount would hide %s. Mount on an empty "
			     "directory, or use --allow-non-empty", place,
			     first);
}

int rsh_mount_check_hidden(const struct rsh_options *o, struct rsh_error *err)
{
	struct rsh_mounted m;
	int rc;

	/* The process that mounts reports what is wrong with the path. */
	if (rsh_mountpoint_fd(o->mountpoint) >= 0 ||
	    rsh_mounted_find(o->mountpoint, &m))
		return 0;
	rc = check_against_source(o, m.path, err);
	/* What is mounted there is covered on purpose, as fstab does. */
	if (rc || m.n || o->allow_non_empty)
		return rc;
	return check_empty(m.path, err);
}
