/* SPDX-License-Identifier: Apache-2.0 */
/* app/daemon/mount.c runs a mount from its options to the exit status. */
#include "config.h"

#include "rsh/app/mount.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon_i.h"
#include "rsh/app/mounted.h"
#include "rsh/app/reading.h"
#include "rsh/fuse/server.h"
#include "rsh/storage/store.h"
#include "rsh/util/checked.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/memory_limits.h"
#include "rsh/util/secret.h"
#include "rsh/util/text.h"
#include "rsh/vfs/attribute.h"
#include "rsh/vfs/vfs.h"
#include "rsh/wire/json_load.h"

/* ---- a mount point where the mount would hide files ---- */

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

/* Returns 0, or -errno with a sentence if a mount at o->mountpoint would hide
 * SOURCE, or other files without o->allow_non_empty.  Must be called in the
 * directory of the command. */
static int check_hidden(const struct rsh_options *o, struct rsh_error *err)
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

#define N_OBJECTS (3 + RSH_LORAS_MAX)

struct service {
	const struct rsh_options *options;
	const json_t *identity;
	rsh_mount_planner *plan;
	struct rsh_server_options so;
	char *place; /* path of the source, with all links resolved */
	/* the objects at the addresses of SOURCE, of --base, of --model-files
	 * and of adapters; NULL: it has a path, or is in SOURCE's */
	struct rsh_objects *objects[N_OBJECTS];
	struct rsh_cache_servers *servers; /* of the cache; NULL: none */
	struct rsh_store_opener opener;
	/* what a mount with the same options shows that is there; NULL: none */
	const char *there;
	int lock; /* lock on the mountpoint until it is mounted; -1: none */
	int mark; /* lock on the mountpoint until this process ends */
	struct rsh_daemon *daemon; /* NULL in the foreground */
	/* This is how much memory the mount may use, measured before it has
	 * used any. */
	struct {
		uint64_t map, resident; /* as util/memory_limits.h has them */
	} room;
	struct rsh_store_io *io;
	struct rsh_vfs *vfs;     /* the checkpoints */
	struct rsh_mount_steps steps;
	struct rsh_server *server;
	struct rsh_facts facts;
	struct rsh_signals *signals;
};

static void on_ready(void *ctx)
{
	const struct service *s = ctx;

	/* With direct I/O the mount has no pages in the page cache, so no byte
	 * is in memory twice. */
	rsh_reading_keep_free(s->options, s->vfs, s->io,
			      !rsh_server_is_direct(s->server));
	if (s->daemon) {
		if (s->options->log_to == RSH_LOG_TO_AUTO)
			rsh_log_to_syslog();
		/* The paths of strategies may be relative, and each step reads
		 * them again. */
		rsh_daemon_ready(s->daemon, s->options->steps);
	}
	rsh_notify("READY=1");
}

static void on_mapped(void *ctx)
{
	const struct service *s = ctx;

	rsh_store_io_drop_all(s->io);
}

static void log_statistics(const struct service *s, enum rsh_log_level level)
{
	struct rsh_stream_stats stats;

	rsh_server_stats(s->server, &stats);
	rsh_reading_log(level, s->io, &stats);
}

/* The signal thread calls this after SIGUSR1. */
static void tell_statistics(void *ctx)
{
	enum rsh_log_level level = rsh_log_get_level();

	/* The statistics are written at every log level. */
	if (level < RSH_LOG_NOTICE)
		rsh_log_set_level(RSH_LOG_NOTICE);
	log_statistics(ctx, RSH_LOG_NOTICE);
	rsh_log_set_level(level);
}

/* ---- limits of memory ---- */

/* The cache may use this part of the available memory: 1 / CACHE_PART. */
#define CACHE_PART 4
#define MIB (UINT64_C(1) << 20)

static uint64_t cache_bytes(const struct service *s)
{
	return rsh_min_u64(s->options->io.cache.memory_bytes,
			   s->room.resident / CACHE_PART);
}

/* Returns how much address space the cache may map; 0 if it is not limited or
 * there is no cache. */
static uint64_t for_cache(const struct service *s)
{
	return s->room.map == RSH_MEMORY_UNLIMITED ||
	       s->options->io.caching == RSH_CACHING_OFF ? 0 :
	       s->room.map / CACHE_PART;
}

static int open_io(struct service *s, struct rsh_error *err)
{
	struct rsh_store_io_options io = s->options->io;

	io.cache.memory_bytes = cache_bytes(s);
	io.cache.map_bytes = for_cache(s);
	io.cache.opened = s->servers;
	if (io.cache.memory_bytes < s->options->io.cache.memory_bytes)
		rsh_log_info("the control group limits the cache to "
			     "%" PRIu64 " MiB", io.cache.memory_bytes / MIB);
	return rsh_store_io_new(&io, &s->io, err);
}

static uint64_t resident_bytes(const struct service *s)
{
	return rsh_server_resident(&s->so) +
	       (s->options->io.caching == RSH_CACHING_OFF ? 0 :
							    cache_bytes(s));
}

static bool service_fits(const struct service *s, uint64_t map)
{
	return rsh_server_maps(&s->so) + for_cache(s) <= map &&
	       resident_bytes(s) <= s->room.resident;
}

/* The memory for serving must be available before the mount is announced. */
static int fit_memory(struct service *s, struct rsh_error *err)
{
	const uint64_t map = rsh_memory_left_to_map();
	uint64_t missing;

	if (service_fits(s, map))
		return 0;
	s->so.lean = true;
	if (service_fits(s, map)) {
		rsh_log_notice("memory limits are low: fewer threads and "
			       "less readahead are used");
		return 0;
	}
	if (resident_bytes(s) > s->room.resident)
		return rsh_error_set(
			err, ENOMEM,
			"too little memory: the control group leaves "
			"%" PRIu64 " MiB, but a mount needs %" PRIu64,
			s->room.resident / MIB, resident_bytes(s) / MIB);
	/* The cache also takes its part of the additional memory. */
	missing = (rsh_server_maps(&s->so) + for_cache(s) - map) * CACHE_PART /
		  (CACHE_PART - 1);
	return rsh_error_set(err, ENOMEM, "too little memory: ulimit -v or "
			     "-d leaves %" PRIu64 " MiB, but a mount needs "
			     "%" PRIu64 " more", map / MIB, missing / MIB + 1);
}

/* ---- beginning and end ---- */

static void add_reading(struct service *s, struct rsh_source_options *files)
{
	files->store.io = s->io;
	files->store.place = s->objects[0];
	files->store.joined = s->objects + 1;
	files->store.n_joined = N_OBJECTS - 1;
	s->opener = (struct rsh_store_opener){ rsh_mounter_find,
						 s->so.mounter };
	files->store.opener = s->so.mounter ? &s->opener : NULL;
}

/* The server does not run yet, so no request reads these members. */
static int add_control(struct service *s, struct rsh_error *err)
{
	struct rsh_control_options co = {
		.make = rsh_facts_make,
		.ctx = &s->facts,
		.steps = rsh_vfs_has_steps(s->vfs),
	};
	struct rsh_vfs_config cfg = s->options->vfs;
	struct rsh_error why = RSH_ERROR_INIT;
	struct rsh_vfs_view view;
	int rc = rsh_facts_init(&s->facts, s->options, s->identity, s->plan);

	s->facts.tree = s->vfs;
	s->facts.io = s->io;
	s->facts.cache_bytes = cache_bytes(s);
	/* There is a plan of each virtual file of a conversion. */
	if (rsh_vfs_view(s->vfs, &view))
		co.n_plans = rsh_plan_n_files(view.plan) /
			     rsh_plan_files_of_rank(view.plan);
	rc = rc ?: rsh_control_add(s->vfs, &co);
	if (rc)
		return rsh_error_nomem(err);
	add_reading(s, &cfg.files);
	rc = rsh_facts_set_shown(&s->facts, &cfg, &why);
	/* The mount is good without it. */
	if (rc)
		rsh_log_info("a second mount cannot be compared with this one: "
			     "%s", why.text);
	return rc == -ENOMEM ? rsh_error_nomem(err) : 0;
}

/* Returns whether the mount that is there shows the same: nothing is to be
 * done. */
static bool is_there(const struct service *s)
{
	cleanup_free char *step = NULL;
	const struct rsh_facts *f = &s->facts;

	if (!s->there || !f->shown)
		return false;
	if (strcmp(s->there, f->shown) != 0) {
		rsh_log_notice("%s: %s is mounted there with the same options, "
			       "and has changed since: the new mount covers it "
			       "when it is ready", f->mountpoint, f->source);
		return false;
	}
	if (rsh_vfs_step(s->vfs, &step))
		step = NULL;
	rsh_stack_tell_same(f->mountpoint, f->source, step);
	return true;
}

/* ---- a source that was mounted again ---- */

struct wanted {
	const char *name;
	bool found;
};

static void look_for(void *ctx, const char *path)
{
	struct wanted *w = ctx;

	w->found |= strcmp(path, w->name) == 0;
}

/* Runs in a process outside the sandbox when the daemon requests it.  A
 * relative path is below SOURCE; any other path must be in the map of files, or
 * be that of an adapter. */
static void find_for_source(void *ctx, const char *name, int fd[2])
{
	const struct service *s = ctx;
	const struct rsh_source_options *f = &s->options->vfs.files;
	struct rsh_error err = RSH_ERROR_INIT;
	struct wanted w = {
		.name = name,
		.found = *name != '/' || f->store.follow_outside,
	}, of_user = { .name = name };

	if (!w.found && f->source_map &&
	    rsh_source_map_each(f->source_map, look_for, &w, &err))
		rsh_log_warning("%s", err.text);
	for (unsigned i = 0; i < s->options->vfs.weights.n_loras; i++)
		look_for(&w, s->options->vfs.weights.lora_files[i]);
	/* Keys and certificates are files of the user, not of the source. */
	if (!w.found)
		for (unsigned i = 0; i < N_OBJECTS; i++)
			if (s->objects[i])
				rsh_objects_each_file(s->objects[i], look_for,
						      &of_user);
	if (of_user.found) {
		fd[0] = -ENOENT;
		fd[1] = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
		fd[1] = fd[1] < 0 ? -errno : fd[1];
		return;
	}
	if (w.found && s->place)
		rsh_store_find(s->place, f->store.follow_outside,
			       f->store.within, name, fd);
}

static int ask_to_open(void *ctx, const char *path)
{
	int fd[2];
	int rc = rsh_mounter_find(ctx, path, fd);

	if (rc)
		return rc;
	if (fd[0] >= 0)
		close(fd[0]);
	return fd[1];
}

/* Libraries, keys and host names must be loaded now, because the sandbox blocks
 * them later.  The secrets are then removed from the environment. */
static int open_network(struct service *s, struct rsh_error *err)
{
	const struct rsh_options *o = s->options;
	cleanup_free char *dir = rsh_source_directory(o->vfs.source);
	/* The other steps, or the other files of the model, may be above
	 * SOURCE. */
	const char *above = o->vfs.files.steps_dir ?: o->vfs.model_files;
	const char *files = o->vfs.model_files;
	const char *places[N_OBJECTS] = { dir, o->vfs.files.base };
	int rc = dir ? 0 : rsh_error_nomem(err);

	if (dir && above && rsh_objects_is_in(dir, above))
		places[0] = above;
	if (dir && files && !rsh_objects_is_in(files, dir) &&
	    !rsh_objects_is_in(dir, files))
		places[2] = files;
	for (unsigned i = 0; i < o->vfs.weights.n_loras; i++)
		places[3 + i] = o->vfs.weights.loras[i].directory;
	for (unsigned i = 0; rc == 0 && i < N_OBJECTS; i++)
		if (places[i] && rsh_store_is_address(places[i]))
			rc = rsh_objects_open(places[i], &o->objects,
					      &s->objects[i], err);
	if (rc == 0 && o->io.cache.servers.list &&
	    o->io.caching != RSH_CACHING_OFF)
		rc = rsh_cache_servers_open(&o->io.cache.servers, &s->servers,
					    err);
	rsh_secret_wipe_environment();
	return rc;
}

/* Mounting and unmounting need rights that this process drops, so another
 * process keeps them. */
static int confine_service(struct service *s, struct rsh_error *err)
{
	const struct rsh_options *o = s->options;
	cleanup_free char *dir = rsh_source_directory(o->vfs.source);
	int rc = dir ? open_network(s, err) : rsh_error_nomem(err);

	if (rc == 0 && !o->no_sandbox) {
		s->place = realpath(dir, NULL);
		s->so.find = find_for_source;
		s->so.find_ctx = s;
		for (unsigned i = 0; i < N_OBJECTS; i++)
			if (s->objects[i])
				s->so.look_up = rsh_objects_look_up;
		rc = rsh_mounter_start(&s->so, &s->so.mounter, err);
	}
	if (rc)
		return rc;
	for (unsigned i = 0; s->so.mounter && i < N_OBJECTS; i++)
		if (s->objects[i])
			rsh_objects_set_opener(
				s->objects[i], &(struct rsh_objects_opener){
					ask_to_open, rsh_mounter_look_up,
					s->so.mounter });
	s->mark = rsh_unmount_mark_open(o->mountpoint);
	return o->no_sandbox ? 0 : rsh_sandbox_enter(o, s->objects,
						     N_OBJECTS, s->servers,
						     err);
}

static int open_tree(const struct rsh_options *o, struct service *s,
		     struct rsh_error *err)
{
	struct rsh_vfs_config cfg = o->vfs;

	add_reading(s, &cfg.files);
	if (o->resume)
		return rsh_vfs_open_resume(&cfg, &s->vfs, err);
	if (!o->steps)
		return rsh_vfs_open(&cfg, &s->vfs, err);
	s->steps = (struct rsh_mount_steps){ .options = o, .files = cfg.files };
	/* The opener finds files below SOURCE, but a step may be a source of
	 * its own. */
	s->steps.files.store.opener = NULL;
	s->steps.files.store.within = o->vfs.source;
	s->steps.files.store.fresh = true;
	return rsh_mount_steps_open(&s->steps, &s->vfs, err);
}

/* Sets *done if nothing is to be served. */
static int begin_service(struct service *s, bool *done, struct rsh_error *err)
{
	const struct rsh_options *o = s->options;
	int rc;

	s->so = o->server;
	s->so.far = rsh_store_far(o->vfs.source, &o->vfs.files.store);
	s->so.shared = o->io.cache.servers.list != NULL;
	/* The sandbox must be complete before the first byte of files from
	 * other users is read. */
	s->room.map = rsh_memory_left_to_map();
	s->room.resident = rsh_memory_left_resident();
	rc = confine_service(s, err) ?:
	     open_io(s, err) ?:
	     open_tree(o, s, err) ?:
	     add_control(s, err) ?:
	     fit_memory(s, err);
	*done = rc == 0 && is_there(s);
	if (*done)
		return 0;
	if (rc == 0 && s->daemon)
		rsh_daemon_detach();
	rc = rc ?: rsh_server_mount(s->vfs, &s->so, &s->server, err);
	/* A command that has waited for the lock then checks what is
	 * mounted. */
	rsh_stack_unlock(s->lock);
	rsh_unmount_mark(s->mark);
	s->facts.server = s->server;
	if (rc)
		return rc;
	rc = rsh_signals_start(tell_statistics, s, &s->signals) ?:
	     rsh_steps_start(s->vfs) ?:
	     rsh_holder_watch(o->holder);
	return rc ? rsh_error_set(err, -rc, "cannot start the signal thread: "
					    "%s", strerror(-rc)) : 0;
}

static int run_service(struct service *s)
{
	const struct rsh_options *o = s->options;
	int rc;

	rsh_log_info("%s mounted on %s", o->vfs.source, o->mountpoint);
	rc = rsh_server_run(s->server, &(struct rsh_server_events){
		on_ready, on_mapped, s });
	rsh_notify("STOPPING=1");
	log_statistics(s, RSH_LOG_INFO);
	if (rc)
		rsh_log_error("%s: %s", o->mountpoint, strerror(-rc));
	else
		rsh_log_info("%s unmounted", o->mountpoint);
	return rc;
}

static void end_service(struct service *s)
{
	bool stuck = s->server && rsh_server_is_stuck(s->server);

	rsh_signals_stop(s->signals);
	stuck |= s->vfs && !rsh_steps_stop(s->vfs);
	rsh_server_free(s->server);
	rsh_mounter_end(s->so.mounter);
	if (stuck) {
		rsh_log_warning("%s: a read has not returned; the daemon "
				"ends without its thread",
				s->options->vfs.source);
		return;
	}
	rsh_facts_clear(&s->facts);
	rsh_vfs_free(s->vfs);
	rsh_store_io_free(s->io);
	rsh_cache_servers_free(s->servers);
	for (unsigned i = 0; i < N_OBJECTS; i++)
		rsh_objects_free(s->objects[i]);
	free(s->place);
}

/* Serves until the mount is unmounted; `d` is NULL in the foreground. */
static enum rsh_exit serve_mount(const struct rsh_options *o,
				 const json_t *identity,
				 rsh_mount_planner *plan, const char *there,
				 int lock, struct rsh_daemon *d)
{
	/* The service is static because a thread that could not be stopped may
	 * still use it. */
	static struct service s;
	struct rsh_error err = RSH_ERROR_INIT;
	enum rsh_exit result;
	bool done = false;
	int rc;

	s.options = o;
	s.identity = identity;
	s.plan = plan;
	s.there = there;
	s.lock = lock;
	s.daemon = d;
	rc = begin_service(&s, &done, &err);
	result = rc ? rsh_exit_failed(o, rc, &err) :
		 done ? RSH_EXIT_GOOD : rsh_exit_of(run_service(&s));
	end_service(&s);
	/* The command returns when this process keeps nothing of the mount. */
	if (done) {
		close(s.mark);
		rsh_stack_unlock(s.lock);
	}
	if (done && d)
		rsh_daemon_ready(d, true);
	return result;
}

enum rsh_exit rsh_mount(const struct rsh_options *o, rsh_mount_planner *plan)
{
	cleanup_json json_t *identity = rsh_identity(o);
	cleanup_free char *there = NULL;
	struct rsh_error err = RSH_ERROR_INIT;
	bool same = false;
	struct rsh_daemon d;
	int rc = identity ? 0 : rsh_error_nomem(&err), lock = -1;

	rsh_signals_block();
	if (rc == 0 && !o->stack && rsh_mountpoint_fd(o->mountpoint) < 0)
		rc = rsh_stack_look(o, identity, &same, &there, &lock,
				    &err);
	if (rc)
		return rsh_exit_failed(o, rc, &err);
	if (same)
		return RSH_EXIT_GOOD;
	rc = check_hidden(o, &err);
	if (rc)
		return rsh_exit_failed(o, rc, &err);
	if (o->foreground)
		return serve_mount(o, identity, plan, there, lock, NULL);
	rc = rsh_daemon_start(&d);
	if (rc) {
		rsh_error_set(&err, -rc, "cannot start the daemon: %s",
			      strerror(-rc));
		return rsh_exit_failed(o, rc, &err);
	}
	return d.child ? rsh_daemon_wait(&d, o->mountpoint) :
			 serve_mount(o, identity, plan, there, lock, &d);
}
