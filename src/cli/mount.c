/* cli/mount.c - the life of a mount, from options to exit code. */
#include "config.h"

#include "mount.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "daemon.h"
#include "rsh/fuse/server.h"
#include "rsh/util/log.h"
#include "rsh/vfs/vfs.h"

/* The source of a thousand ranks is a thousand files. */
static void raise_fd_limit(void)
{
	struct rlimit lim;

	if (getrlimit(RLIMIT_NOFILE, &lim) != 0)
		return;
	lim.rlim_cur = lim.rlim_max;
	setrlimit(RLIMIT_NOFILE, &lim);
}

/* The reason goes to whoever typed the command, and to the log if that is
 * somewhere else. */
static void complain(const struct rsh_options *o, const struct rsh_error *err)
{
	if (o->log_file)
		fprintf(stderr, "reshardfs: error: %s\n", err->text);
	rsh_log_error("%s", err->text);
}

static const char *strategy_path(const char *given)
{
	return strcmp(given, "none") == 0 ? NULL : given;
}

static struct rsh_source_options source_options(const struct rsh_options *o)
{
	struct rsh_source_options so = o->files;

	/* The converter knows no steps. */
	if (o->compat && !o->has_select)
		so.select = RSH_SELECT_MINDSPORE;
	return so;
}

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
	const struct rsh_vfs_config cfg = {
		.source = o->source,
		.src_strategy = strategy_path(o->src_strategy),
		.dst_strategy = strategy_path(o->dst_strategy),
		.compat = o->compat,
		.replicas = !o->no_replicas,
		.allow_missing = o->allow_missing,
		.dst_ranks = o->dst_ranks,
		.files = source_options(o),
		.fallbacks = o->fallbacks,
		.group_info = o->group_info,
		.unlisted = o->unlisted,
		.only = o->only,
		.drop = o->drop,
		.rename = o->rename,
		.cast = o->cast,
		.remove_redundancy = o->remove_redundancy,
		.format = o->format,
		.part_bytes = o->in_parts ? o->part_bytes : 0,
		.tree = {
			.prefix = o->prefix,
			.uid = getuid(),
			.gid = getgid(),
		},
	};

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
static int serve(const struct rsh_options *o, struct rsh_daemon *d)
{
	struct service service = { o, d };
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_server *server = NULL;
	struct rsh_vfs *vfs = NULL;
	int rc = o->resume ? open_resume(o, &vfs, &err) :
			     open_conversion(o, &vfs, &err);

	if (rc == 0 && d)
		rsh_daemon_detach();
	if (rc == 0)
		rc = mount_vfs(o, vfs, &server, &err);
	if (rc) {
		complain(o, &err);
		rsh_vfs_free(vfs);
		return 1;
	}
	rsh_log_info("%s mounted on %s", o->source, o->mountpoint);
	rc = rsh_server_run(server, on_ready, &service);
	if (rc)
		rsh_log_error("%s: %s", o->mountpoint, strerror(-rc));
	else
		rsh_log_info("%s unmounted", o->mountpoint);
	rsh_server_free(server);
	rsh_vfs_free(vfs);
	return rc ? 1 : 0;
}

int rsh_mount(const struct rsh_options *o)
{
	struct rsh_daemon d;
	int rc;

	rsh_log_set_level(o->log_level);
	rc = o->log_file ? rsh_log_to_file(o->log_file) : 0;
	if (rc) {
		fprintf(stderr, "reshardfs: error: %s: %s\n", o->log_file,
			strerror(-rc));
		return 1;
	}
	raise_fd_limit();
	if (o->foreground)
		return serve(o, NULL);
	rc = rsh_daemon_start(&d);
	if (rc) {
		fprintf(stderr, "reshardfs: error: no daemon: %s\n",
			strerror(-rc));
		return 1;
	}
	return d.child ? rsh_daemon_wait(&d, o->mountpoint) : serve(o, &d);
}
