/* SPDX-License-Identifier: Apache-2.0 */
/* fuse/mount.c makes a session from its options, and mounts it. */
#include "config.h"

#include "ops_i.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "rsh/util/compat.h"
#include "rsh/util/files.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

/* While this is set, error messages of libfuse become the sentence of this
 * error. */
static _Thread_local struct rsh_error *complaint;

void rsh_libfuse_listen(struct rsh_error *err)
{
	complaint = err;
}

/* libfuse before 3.7 has no function for its messages; it prints them. */
#ifdef HAVE_FUSE_SET_LOG_FUNC

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
	if (!complaint || ours != RSH_LOG_ERROR)
		rsh_log(ours, "%s", line);
	else if (complaint->code)
		rsh_error_set(complaint, EIO, "%s; %s",
			      strdupa(complaint->text), line);
	else
		rsh_error_set(complaint, EIO, "%s", line);
}

#endif

/* ---- options for libfuse ---- */

/* The result is from malloc; NULL: memory is out. */
static char *collect_options(const struct rsh_server_options *o)
{
	cleanup_free char *subtype = rsh_mount_option_escape(o->subtype);
	cleanup_free char *fsname = rsh_mount_option_escape(o->fsname);

	return !subtype || !fsname ? NULL :
	       rsh_text_format("ro,default_permissions,subtype=%s,fsname=%s,"
			       "max_read=%u%s%s", subtype, fsname,
			       rsh_max_read(o), o->mount_opts ? "," : "",
			       o->mount_opts ?: "");
}

unsigned rsh_max_read(const struct rsh_server_options *o)
{
	/* A view of a stream has at most RSH_STREAM_MAX bytes. */
	return o->max_read && o->max_read < RSH_STREAM_MAX ?
	       o->max_read : (unsigned)RSH_STREAM_MAX;
}

int rsh_session_new(const struct rsh_server_options *o,
		    const struct fuse_lowlevel_ops *ops, void *userdata,
		    struct fuse_session **out, struct rsh_error *err)
{
	struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
	cleanup_free char *opts = collect_options(o);

	if (!opts ||
	    fuse_opt_add_arg(&args, "reshardfs") ||
	    fuse_opt_add_arg(&args, "-o") || fuse_opt_add_arg(&args, opts) ||
	    (o->debug && fuse_opt_add_arg(&args, "-d"))) {
		fuse_opt_free_args(&args);
		return rsh_error_nomem(err);
	}
#ifdef HAVE_FUSE_SET_LOG_FUNC
	fuse_set_log_func(log_libfuse);
#endif
	*out = fuse_session_new(&args, ops, sizeof(*ops), userdata);
	fuse_opt_free_args(&args);
	return *out ? 0 : -EINVAL;
}

/* ---- read-ahead ---- */

#define READAHEAD_KB 1024

/* The kernel reads ahead 128 KiB on a new mount, even if the file system offers
 * more.  root can raise this.  If it is not raised, reads are only smaller. */
static void raise_readahead(const char *mountpoint)
{
	char path[96], value[16];
	struct statx st;
	cleanup_fd int fd = -1;
	int n = snprintf(value, sizeof(value), "%d", READAHEAD_KB);

	/* The file system does not answer requests yet, so none may be sent. */
	if (rsh_statx(AT_FDCWD, mountpoint, AT_STATX_DONT_SYNC, STATX_TYPE,
		      &st))
		return;
	snprintf(path, sizeof(path), "/sys/class/bdi/%u:%u/read_ahead_kb",
		 st.stx_dev_major, st.stx_dev_minor);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, value, (size_t)n) != n)
		rsh_log_info("%s: %s: read-ahead stays at its default", path,
			     strerror(errno));
}

/* ---- where to mount ---- */

#define FUSE_MAJOR 10
#define FUSE_MINOR 229
#define FUSE_DEVICE "/dev/fuse"
#define CONTAINER "in a container, start it with --device " FUSE_DEVICE \
		  " --cap-add SYS_ADMIN; export and the Python module need no mount"

int rsh_mountpoint_fd(const char *mountpoint)
{
	unsigned fd;
	int length = 0;

	if (sscanf(mountpoint, "/dev/fd/%8u%n", &fd, &length) != 1 ||
	    mountpoint[length])
		return -1;
	return (int)fd;
}

static bool may_call_mount(void)
{
	char caps[32];

	return rsh_file_line("/proc/self/status", "CapEff:", caps,
			     sizeof(caps)) &&
	       strtoull(caps, NULL, 16) >> CAP_SYS_ADMIN & 1;
}

/* Returns whether fusermount3 is in a directory in which libfuse searches for
 * it. */
static bool has_fusermount(void)
{
	const char *path = getenv("PATH");
	cleanup_free char *dirs = NULL;
	char name[PATH_MAX];
	char *dir, *rest;

	if (asprintf(&dirs, "/usr/bin:%s", path ? path : "/bin") < 0)
		return true;
	rest = dirs;
	while ((dir = strsep(&rest, ":"))) {
		snprintf(name, sizeof(name), "%s/fusermount3", dir);
		if (access(name, X_OK) == 0)
			return true;
	}
	return false;
}

int rsh_mount_rights_check(const char *mountpoint, struct rsh_error *err)
{
	cleanup_fd int fd = -1;
	int failed;

	if (rsh_mountpoint_fd(mountpoint) >= 0)
		return 0;
	fd = open(FUSE_DEVICE, O_RDWR | O_CLOEXEC);
	failed = fd < 0 ? errno : 0;
	if (failed == ENOENT || failed == ENODEV || failed == ENXIO)
		return rsh_error_set(err, ENODEV, "there is no " FUSE_DEVICE
				     ": load the kernel module (modprobe fuse); "
				     CONTAINER);
	if (failed && geteuid() == 0)
		return rsh_error_set(err, failed, FUSE_DEVICE ": %s; " CONTAINER,
				     strerror(failed));
	if (!may_call_mount() && !has_fusermount())
		return geteuid() == 0 ?
			rsh_error_set(err, EPERM, "this process may not mount; "
				      CONTAINER) :
			rsh_error_set(err, EPERM, "there is no fusermount3, "
				      "which mounts for users: install the "
				      "package fuse3, or mount as root");
	/* fusermount3 opens it as the user. */
	if (failed == EACCES)
		return rsh_error_set(err, EACCES, FUSE_DEVICE ": %s: only its "
				     "owner and group may mount; root lets all "
				     "users mount with chmod 666 " FUSE_DEVICE,
				     strerror(failed));
	return 0;
}

int rsh_mountpoint_check(const char *path, char *resolved,
			 struct rsh_error *err)
{
	const int handed = rsh_mountpoint_fd(path);
	struct stat st;

	if (handed >= 0 ? fstat(handed, &st) != 0 :
			  !realpath(path, resolved) || stat(resolved, &st) != 0)
		return rsh_error_set(err, errno, "mount point %s: %s%s", path,
				     strerror(errno), errno == ENOENT ?
				     "; make it with mkdir -p" : "");
	if (handed < 0)
		return S_ISDIR(st.st_mode) ? 0 :
			rsh_error_set(err, ENOTDIR, "mount point %s: not a "
				      "directory", path);
	if (!S_ISCHR(st.st_mode) ||
	    st.st_rdev != makedev(FUSE_MAJOR, FUSE_MINOR))
		return rsh_error_set(err, ENODEV, "mount point %s: the "
				     "descriptor is not one of " FUSE_DEVICE,
				     path);
	stpcpy(resolved, path);
	return 0;
}

/* ---- mount ---- */

int rsh_session_mount(struct fuse_session *session, const char *mountpoint)
{
	if (fuse_session_mount(session, mountpoint))
		return -EIO;
	if (rsh_mountpoint_fd(mountpoint) < 0)
		raise_readahead(mountpoint);
	return 0;
}
