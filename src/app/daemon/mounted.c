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

#define TABLE "/proc/self/mounts"

/* Reads the mounts on the n paths in *v and, if `cap` is not NULL, on those
 * after them that have a mount of reshardfs.  The last line for a path is the
 * topmost mount. */
static int read_table(struct rsh_mounted **v, size_t *n, size_t *cap)
{
	FILE *f = setmntent(TABLE, "re");
	char buf[2 * PATH_MAX + 1024];
	struct mntent e;
	int rc = f ? 0 : -errno;

	while (rc == 0 && getmntent_r(f, &e, buf, sizeof(buf))) {
		const bool ours = strcmp(e.mnt_type, RSH_MOUNTED_TYPE) == 0;
		const char *user = hasmntopt(&e, "user_id");
		const char *group = hasmntopt(&e, "group_id");
		struct rsh_mounted *m;
		const size_t i = rsh_index(
			k, *n, strcmp((*v)[k].path, e.mnt_dir) == 0);

		if (i == *n && (!cap || !ours))
			continue;
		rc = i == *n ? rsh_push(*v, *n, *cap,
					(struct rsh_mounted){ .n = 0 }) : 0;
		if (rc)
			continue;
		m = &(*v)[i];
		m->n++;
		snprintf(m->path, sizeof(m->path), "%s", e.mnt_dir);
		snprintf(m->type, sizeof(m->type), "%s", e.mnt_type);
		snprintf(m->source, sizeof(m->source), "%s", e.mnt_fsname);
		if (user)
			m->user = (uid_t)strtoul(user + strlen("user_id="),
						 NULL, 10);
		if (group)
			m->group = (gid_t)strtoul(group + strlen("group_id="),
						  NULL, 10);
	}
	if (f)
		endmntent(f);
	return rc;
}

/* Finds what is mounted on m->path. */
static int look_up(struct rsh_mounted *m)
{
	size_t one = 1;

	m->n = 0;
	m->user = 0;
	m->group = 0;
	*m->type = *m->source = '\0';
	return read_table(&m, &one, NULL);
}

int rsh_mounted_list(struct rsh_mounted **out, size_t *n,
		     struct rsh_error *err)
{
	cleanup_free struct rsh_mounted *v = NULL;
	size_t listed = 0, cap = 0;
	int rc = read_table(&v, &listed, &cap);

	*n = 0;
	/* Another one may be mounted over it. */
	for (size_t i = 0; i < listed; i++)
		if (strcmp(v[i].type, RSH_MOUNTED_TYPE) == 0)
			v[(*n)++] = v[i];
	if (rc)
		return rsh_error_file(err, -rc, TABLE);
	*out = steal_pointer(&v);
	return 0;
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
	cleanup_free struct rsh_mounted *v = NULL;
	size_t n;

	if (rsh_mounted_list(&v, &n, NULL) || n == 0)
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
		for (size_t i = 0; i < n; i++)
			if (strcmp(m->path, v[i].path) == 0) {
				*m = v[i];
				return true;
			}
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
