/* SPDX-License-Identifier: Apache-2.0 */
/* app/daemon/mounted.c finds the topmost mount on a path in the kernel's table.
 * If the path is found from its parent directory, the mount itself is not
 * touched. */
#include "config.h"

#include "rsh/app/mounted.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <mntent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "rsh/util/mem.h"

/* Finds what is mounted on m->path. */
static int look_up(struct rsh_mounted *m)
{
	FILE *f = setmntent("/proc/self/mounts", "re");
	char buf[2 * PATH_MAX + 1024];
	const char *user, *group;
	struct mntent e;

	m->n = 0;
	m->user = 0;
	m->group = 0;
	*m->type = *m->source = '\0';
	if (!f)
		return -errno;
	/* The last line for a path is the topmost mount. */
	while (getmntent_r(f, &e, buf, sizeof(buf))) {
		if (strcmp(e.mnt_dir, m->path) != 0)
			continue;
		m->n++;
		snprintf(m->type, sizeof(m->type), "%s", e.mnt_type);
		snprintf(m->source, sizeof(m->source), "%s", e.mnt_fsname);
		user = hasmntopt(&e, "user_id");
		if (user)
			m->user = (uid_t)strtoul(user + strlen("user_id="),
						 NULL, 10);
		group = hasmntopt(&e, "group_id");
		if (group)
			m->group = (gid_t)strtoul(group + strlen("group_id="),
						  NULL, 10);
	}
	endmntent(f);
	return 0;
}

/* Returns whether there is any mount of reshardfs. */
static bool any_of_ours(void)
{
	FILE *f = setmntent("/proc/self/mounts", "re");
	char buf[2 * PATH_MAX + 1024];
	struct mntent e;
	bool found = false;

	if (!f)
		return false;
	while (!found && getmntent_r(f, &e, buf, sizeof(buf)))
		found = strcmp(e.mnt_type, RSH_MOUNTED_TYPE) == 0;
	endmntent(f);
	return found;
}

/* Adds the path, unless it is there. */
static int list_add(struct rsh_mounted **v, size_t *n, size_t *cap,
		    const char *path)
{
	for (size_t i = 0; i < *n; i++)
		if (strcmp((*v)[i].path, path) == 0)
			return 0;
	if (rsh_grow(v, cap, *n + 1, sizeof(**v)))
		return -ENOMEM;
	snprintf((*v)[(*n)++].path, sizeof((*v)->path), "%s", path);
	return 0;
}

int rsh_mounted_list(struct rsh_mounted **out, size_t *n)
{
	FILE *f = setmntent("/proc/self/mounts", "re");
	cleanup_free struct rsh_mounted *v = NULL;
	char buf[2 * PATH_MAX + 1024];
	size_t listed = 0, cap = 0;
	struct mntent e;
	int rc = f ? 0 : -errno;

	while (rc == 0 && getmntent_r(f, &e, buf, sizeof(buf)))
		if (strcmp(e.mnt_type, RSH_MOUNTED_TYPE) == 0)
			rc = list_add(&v, &listed, &cap, e.mnt_dir);
	if (f)
		endmntent(f);
	*n = 0;
	for (size_t i = 0; rc == 0 && i < listed; i++) {
		v[*n] = v[i];
		rc = look_up(&v[*n]);
		/* Another one may be mounted over it. */
		*n += strcmp(v[*n].type, RSH_MOUNTED_TYPE) == 0;
	}
	if (rc == 0) {
		*out = v;
		v = NULL;
	}
	return rc;
}

/* Resolves the links in `given` except in its last component, because that may
 * be a mount that does not answer. */
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
		return -EINVAL; /* only realpath(3) can resolve this */
	if (!realpath(dirname(a), parent))
		return -errno;
	return snprintf(path, size, "%s/%s",
			strcmp(parent, "/") == 0 ? "" : parent, base) <
			(int)size ? 0 : -ENAMETOOLONG;
}

int rsh_mounted_find(const char *given, struct rsh_mounted *m)
{
	int rc = resolve_parent(given, m->path, sizeof(m->path));

	m->n = 0;
	*m->type = *m->source = '\0';
	rc = rc ?: look_up(m);
	if (rc == 0 && m->n)
		return 0;
	if (!realpath(given, m->path))
		return -errno;
	return look_up(m);
}

/* The path is resolved one directory after the other, and the search stops at
 * the root of a mount of reshardfs.  So no request is sent to the daemon of
 * that mount. */
bool rsh_mounted_holds(const char *path, struct rsh_mounted *m)
{
	char all[2 * PATH_MAX] = "", *at = all;

	if (!any_of_ours())
		return false;
	if (*path != '/' && !getcwd(all, PATH_MAX))
		return false;
	at += strlen(all);
	if (snprintf(at, PATH_MAX, "/%s", path) >= PATH_MAX)
		return false;
	at = all;
	do {
		char end;

		at += strspn(at, "/");
		at += strcspn(at, "/");
		end = *at;
		*at = '\0';
		if (!realpath(all, m->path))
			return false;
		if (look_up(m) == 0 && m->n &&
		    strcmp(m->type, RSH_MOUNTED_TYPE) == 0)
			return true;
		*at = end;
	} while (*at);
	return false;
}

pid_t rsh_fork_with_pipe(int *pipe)
{
	int ends[2];
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC))
		return -errno;
	pid = fork();
	if (pid < 0)
		pid = -errno;
	close(ends[pid != 0]);
	if (pid < 0)
		close(ends[0]);
	*pipe = ends[pid == 0];
	return pid;
}

void rsh_mounted_kill_child(pid_t pid)
{
	const struct timespec pause = { .tv_nsec = 1000 * 1000 };

	kill(pid, SIGKILL);
	for (int i = 0; i < 100 && waitpid(pid, NULL, WNOHANG) == 0; i++)
		nanosleep(&pause, NULL);
}
