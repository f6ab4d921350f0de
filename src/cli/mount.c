/* cli/mount.c - the life of a mount, from options to exit code. */
#include "config.h"

#include "mount.h"

#include <string.h>
#include <unistd.h>

#include "conversion.h"
#include "daemon.h"
#include "rsh/fuse/server.h"
#include "rsh/util/log.h"
#include "rsh/vfs/vfs.h"
#include "unmount.h"

static int open_resume(const struct rsh_options *o, struct rsh_vfs **vfs,
		       struct rsh_error *err)
{
	const struct rsh_vfs_resume_config cfg = {
		.source = o->source,
		.files = o->files,
		.fallbacks = o->fallbacks,
		.uid = getuid(),
		.gid = getgid(),
	};

	return rsh_vfs_open_resume(&cfg, vfs, err);
}

static int open_conversion(const struct rsh_options *o, struct rsh_vfs **vfs,
			   struct rsh_error *err)
{
	const struct rsh_vfs_config cfg = rsh_conversion_of(o);

	return rsh_vfs_open(&cfg, vfs, err);
}

static int mount_vfs(const struct rsh_options *o, struct rsh_vfs *vfs,
		     struct rsh_server **server, struct rsh_error *err)
{
	const struct rsh_server_options so = {
		.mountpoint = o->mountpoint,
		.fsname = o->fsname,
		.subtype = o->subtype,
		.mount_opts = o->mount_opts,
		.max_read = o->max_read,
		.debug = o->debug,
		.max_threads = o->max_threads,
		.max_idle_threads = o->max_idle_threads,
		.clone_fd = o->clone_fd,
	};

	return rsh_server_mount(vfs, &so, server, err);
}

struct service {
	const struct rsh_options *options;
	struct rsh_daemon *daemon; /* NULL in the foreground */
};

static void on_ready(void *ctx)
{
	const struct service *s = ctx;

	if (!s->daemon)
		return;
	if (!s->options->log_file)
		rsh_log_to_syslog();
	rsh_daemon_ready(s->daemon);
}

/* Runs until unmounted; `d` is NULL in the foreground. */
static enum rsh_exit serve(const struct rsh_options *o, struct rsh_daemon *d)
{
	struct service service = { o, d };
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_server *server = NULL;
	struct rsh_vfs *vfs = NULL;
	int rc = o->resume ? open_resume(o, &vfs, &err) :
			     open_conversion(o, &vfs, &err);

	if (rc == 0 && d)
		rsh_daemon_detach();
	rsh_unmount_mark(o->mountpoint);
	if (rc == 0)
		rc = mount_vfs(o, vfs, &server, &err);
	if (rc) {
		rsh_vfs_free(vfs);
		return rsh_exit_failed(o, rc, &err);
	}
	rsh_log_info("%s mounted on %s", o->source, o->mountpoint);
	rc = rsh_server_run(server, on_ready, &service);
	if (rc)
		rsh_log_error("%s: %s", o->mountpoint, strerror(-rc));
	else
		rsh_log_info("%s unmounted", o->mountpoint);
	rsh_server_free(server);
	rsh_vfs_free(vfs);
	return rsh_exit_of(rc);
}

enum rsh_exit rsh_mount(const struct rsh_options *o)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_daemon d;
	int rc;

	if (o->foreground)
		return serve(o, NULL);
	rc = rsh_daemon_start(&d);
	if (rc) {
		rsh_error_set(&err, -rc, "no daemon: %s", strerror(-rc));
		return rsh_exit_failed(o, rc, &err);
	}
	return d.child ? rsh_daemon_wait(&d, o->mountpoint) : serve(o, &d);
}
