/* SPDX-License-Identifier: Apache-2.0 */
/* fuse/mount.c makes a session with its options, and mounts it. */
#include "config.h"

#include "ops_i.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rsh/util/log.h"
#include "rsh/util/mem.h"

/* As long as this is set, libfuse's complaints become the error's sentence. */
static _Thread_local struct rsh_error *complaint;

void rsh_libfuse_listen(struct rsh_error *err)
{
	complaint = err;
}

#ifdef HAVE_FUSE_SET_LOG_FUNC

static void take_complaint(const char *text)
{
	if (complaint->code)
		rsh_error_set(complaint, EIO, "%s; %s",
			      strdupa(complaint->text), text);
	else
		rsh_error_set(complaint, EIO, "%s", text);
}

__attribute__((format(printf, 2, 0)))
static void log_libfuse(enum fuse_log_level level, const char *fmt, va_list ap)
{
	enum rsh_log_level ours = level <= FUSE_LOG_ERR ? RSH_LOG_ERROR :
				  level == FUSE_LOG_WARNING ? RSH_LOG_WARNING :
				  level <= FUSE_LOG_INFO ? RSH_LOG_INFO :
							   RSH_LOG_DEBUG;
	char line[1024];
	size_t n;

	vsnprintf(line, sizeof(line), fmt, ap);
	n = strlen(line);
	while (n > 0 && line[n - 1] == '\n')
		line[--n] = '\0';
	if (complaint && ours == RSH_LOG_ERROR)
		take_complaint(line);
	else
		rsh_log(ours, "%s", line);
}

static void take_libfuse_log(void)
{
	fuse_set_log_func(log_libfuse);
}

#else

/* libfuse (before 3.7) prints them. */
static void take_libfuse_log(void)
{
}

#endif

/* ---- options for libfuse ---- */

/* Appends "<sep><key><value>"; commas and backslashes of the value are escaped
 * as libfuse's option parser wants it. */
static bool session_add_option(char **opts, const char *key, const char *value)
{
	size_t have = *opts ? strlen(*opts) : 0;
	char *p = realloc(*opts, have + strlen(key) + 2 * strlen(value) + 2);

	if (!p)
		return false;
	*opts = p;
	p += have;
	if (have)
		*p++ = ',';
	p = stpcpy(p, key);
	for (; *value; value++) {
		if (*value == ',' || *value == '\\')
			*p++ = '\\';
		*p++ = *value;
	}
	*p = '\0';
	return true;
}

static bool collect_options(const struct rsh_server_options *o, char **opts)
{
	char number[16], *have;

	snprintf(number, sizeof(number), "%u", rsh_max_read(o));
	if (!session_add_option(opts, "ro", "") ||
	    !session_add_option(opts, "default_permissions", "") ||
	    !session_add_option(opts, "subtype=", o->subtype) ||
	    !session_add_option(opts, "fsname=", o->fsname))
		return false;
	if (!session_add_option(opts, "max_read=", number))
		return false;
	if (!o->mount_opts)
		return true;
	have = *opts;
	if (asprintf(opts, "%s,%s", have, o->mount_opts) < 0)
		*opts = NULL;
	free(have);
	return *opts != NULL;
}

unsigned rsh_max_read(const struct rsh_server_options *o)
{
	/* A stream lends no more at once. */
	return o->max_read && o->max_read < RSH_STREAM_MAX ?
	       o->max_read : (unsigned)RSH_STREAM_MAX;
}

int rsh_session_new(const struct rsh_server_options *o, void *userdata,
		    struct fuse_session **out, struct rsh_error *err)
{
	struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
	cleanup_free char *opts = NULL;

	if (!collect_options(o, &opts) ||
	    fuse_opt_add_arg(&args, "reshardfs") ||
	    fuse_opt_add_arg(&args, "-o") || fuse_opt_add_arg(&args, opts) ||
	    (o->debug && fuse_opt_add_arg(&args, "-d"))) {
		fuse_opt_free_args(&args);
		return rsh_error_nomem(err);
	}
	take_libfuse_log();
	*out = fuse_session_new(&args, &rsh_fuse_ops, sizeof(rsh_fuse_ops),
				userdata);
	fuse_opt_free_args(&args);
	return *out ? 0 : -EINVAL;
}

/* ---- read-ahead ---- */

#define READAHEAD_KB 1024

/* Finds the number of the block device that stands for a mount in
 * /sys/class/bdi, without asking the file system, which does not answer yet. */
static bool device_of_mount(const char *mountpoint, char *device, size_t max)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	cleanup_free char *line = NULL;
	size_t cap = 0;
	bool found = false;

	if (!f)
		return false;
	/* The last line of a mount point is that of the mount on top. */
	while (getline(&line, &cap, f) > 0) {
		char where[PATH_MAX], dev[32];
		char *s, *to;

		if (sscanf(line, "%*s %*s %31s %*s %4095s", dev, where) != 2)
			continue;
		/* mountinfo writes blanks and backslashes as \ooo. */
		s = where;
		to = s;
		while (*s) {
			if (s[0] == '\\' && s[1] && s[2] && s[3]) {
				*to++ = (char)((s[1] - '0') << 6 |
					       (s[2] - '0') << 3 |
					       (s[3] - '0'));
				s += 4;
			} else {
				*to++ = *s++;
			}
		}
		*to = '\0';
		if (strcmp(where, mountpoint) == 0) {
			snprintf(device, max, "%s", dev);
			found = true;
		}
	}
	fclose(f);
	return found;
}

/* The kernel reads ahead 128 KiB on a new mount, whatever the file system
 * offers; root may raise that.  Where it stays, reads are only smaller. */
static void raise_readahead(const char *mountpoint)
{
	char device[32], path[96], value[16];
	cleanup_fd int fd = -1;
	int n = snprintf(value, sizeof(value), "%d", READAHEAD_KB);

	if (!device_of_mount(mountpoint, device, sizeof(device)))
		return;
	snprintf(path, sizeof(path), "/sys/class/bdi/%s/read_ahead_kb", device);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, value, (size_t)n) != n)
		rsh_log_info("%s: %s: read-ahead stays at its default", path,
			     strerror(errno));
}

/* ---- mount ---- */

int rsh_mountpoint_check(const char *path, char *resolved,
			 struct rsh_error *err)
{
	struct stat st;

	if (!realpath(path, resolved) || stat(resolved, &st) != 0)
		return rsh_error_set(err, errno, "mount point %s: %s", path,
				     strerror(errno));
	if (!S_ISDIR(st.st_mode))
		return rsh_error_set(err, ENOTDIR, "mount point %s: not a "
				     "directory", path);
	return 0;
}

int rsh_session_mount(struct fuse_session *session, const char *mountpoint)
{
	if (fuse_session_mount(session, mountpoint))
		return -EIO;
	raise_readahead(mountpoint);
	return 0;
}
