/* SPDX-License-Identifier: Apache-2.0 */
/* fuse/server.c has the life cycle of a mount: session, mount, loop,
 * unmount. */
#include "config.h"

#include "ops_i.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "rsh/util/mem.h"

/* While reads compute, one thread for each processor is enough, up to this
 * number. */
#define FEW_THREADS 8
#define MAX_THREADS 64

/* A lean server has this many threads that serve, this many that prepare
 * windows, and this many windows. */
#define LEAN_THREADS 2
#define LEAN_WINDOWS 4

static void choose_threads(struct rsh_server *s,
			   const struct rsh_server_options *o)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	if (o->lean) {
		s->n_threads = LEAN_THREADS;
		s->max_threads = LEAN_THREADS;
		return;
	}
	n = n < 2 ? 2 : n < FEW_THREADS ? n : FEW_THREADS;
	s->n_threads = o->max_idle_threads ? o->max_idle_threads : (unsigned)n;
	s->max_threads = o->max_threads ? o->max_threads : MAX_THREADS;
	if (s->n_threads > s->max_threads)
		s->n_threads = s->max_threads;
}

static struct rsh_streams_options choose_windows(
	const struct rsh_server_options *o)
{
	struct rsh_streams_options so =
		rsh_streams_suited(o->far, o->shared, o->readahead);

	so.prepare_at_release = true;
	if (o->lean) {
		so.max_windows = LEAN_WINDOWS;
		so.max_threads = LEAN_THREADS;
	}
	return so;
}

/* ---- memory ---- */

/* A thread needs its stack (if mappings are limited), the buffer of its
 * request, and a buffer to gather rows in. */
#define THREAD_BYTES ((uint64_t)(512 + 1100 + 900) * 1024)
/* The number of threads for signals and the caches. */
#define MORE_THREADS 5
/* The memory for open files, waiting requests and texts of .reshardfs. */
#define SMALL_BYTES ((uint64_t)8 * 1024 * 1024)

uint64_t rsh_server_maps(const struct rsh_server_options *o)
{
	const uint64_t windows = choose_windows(o).max_windows;
	uint64_t threads;
	struct rsh_server s;

	choose_threads(&s, o);
	threads = (uint64_t)s.max_threads + 1 + choose_windows(o).max_threads +
		  (o->far && !o->shared ? RSH_READ_HELPERS : 0) + MORE_THREADS;
	/* A thread that serves may use two windows that are in no list. */
	return rsh_stream_maps((unsigned)(windows + 2 * threads)) +
	       threads * THREAD_BYTES + SMALL_BYTES;
}

uint64_t rsh_server_resident(const struct rsh_server_options *o)
{
	return (uint64_t)(o->lean ? 32 : o->far && !o->shared ? 192 : 64) << 20;
}

static int mount_session(struct rsh_server *s, const char *mountpoint,
			 struct rsh_error *err)
{
	cleanup_fd int fd = -1;
	char name[32];
	int rc;

	/* Shells start background jobs with SIGINT ignored, and libfuse sets no
	 * handler for an ignored signal. */
	signal(SIGTERM, SIG_DFL);
	signal(SIGINT, SIG_DFL);
	/* The handlers are set before the mount, so that no signal can end the
	 * process without an unmount. */
	if (fuse_set_signal_handlers(s->session))
		return rsh_error_set(err, EINVAL, "cannot set signal handlers");
	s->has_signals = true;
	if (s->mounter && rsh_mountpoint_fd(mountpoint) < 0) {
		/* Use the connection that another process has mounted. */
		rc = rsh_mounter_mount(s->mounter, &fd, err);
		if (rc)
			return rc;
		s->mounted = true;
		snprintf(name, sizeof(name), "/dev/fd/%d", fd);
		if (fuse_session_mount(s->session, name))
			return -EIO;
		steal_fd(&fd);
	} else {
		rc = rsh_session_mount(s->session, mountpoint);
		if (rc)
			return rc;
		s->mounted = true;
	}
	return rsh_device_attach(s);
}

int rsh_server_mount(struct rsh_vfs *vfs, const struct rsh_server_options *o,
		     struct rsh_server **out, struct rsh_error *err)
{
	const struct rsh_streams_options streams = choose_windows(o);
	struct rsh_error said = RSH_ERROR_INIT;
	struct rsh_server *s;
	char mountpoint[PATH_MAX];
	int rc = rsh_mountpoint_check(o->mountpoint, mountpoint, err);

	if (rc == 0 && !o->mounter)
		rc = rsh_mount_rights_check(mountpoint, err);
	if (rc)
		return rc;
	s = calloc(1, sizeof(*s));
	if (!s)
		return rsh_error_nomem(err);
	if (pthread_mutex_init(&s->files.lock, NULL) ||
	    pthread_mutex_init(&s->passthrough.lock, NULL) ||
	    rsh_queue_init(&s->queue) ||
	    rsh_interrupts_init(&s->interrupts)) {
		free(s);
		return rsh_error_nomem(err);
	}
	s->vfs = vfs;
	s->io_mode = o->io_mode;
	s->mounter = o->mounter;
	s->max_read = rsh_max_read(o);
	choose_threads(s, o);

	rsh_libfuse_listen(&said);
	rc = rsh_session_new(o, &rsh_fuse_ops, s, &s->session, &said) ?:
	     rsh_streams_new(&streams, &s->streams) ?:
	     mount_session(s, mountpoint, &said);
	rsh_libfuse_listen(NULL);
	if (rc) {
		rsh_server_free(s);
		return rsh_error_set(err, -rc, "cannot mount on %s%s%s",
				     o->mountpoint, *said.text ? ": " : "",
				     said.text);
	}
	*out = s;
	return 0;
}

/* Unmounts as libfuse does: not if the tree is already unmounted, and after the
 * connection is closed, so that no process waits for an answer. */
static void server_unmount(struct rsh_server *s)
{
	struct pollfd device = { .fd = -1 };
	bool gone;

	if (!s->mounted)
		return;
	s->mounted = false;
	if (!s->mounter) {
		fuse_session_unmount(s->session);
		return;
	}
	device.fd = fuse_session_fd(s->session);
	gone = poll(&device, 1, 0) == 1 && (device.revents & POLLERR);
	rsh_device_close(device.fd);
	if (!gone)
		rsh_mounter_unmount(s->mounter);
}

int rsh_server_run(struct rsh_server *s, const struct rsh_server_events *e)
{
	int rc;

	s->events = *e;
	rc = rsh_loop_run(s);
	server_unmount(s);
	if (!rsh_streams_stop(s->streams))
		s->stuck = true;
	return rc;
}

bool rsh_server_is_stuck(const struct rsh_server *s)
{
	return s->stuck;
}

bool rsh_server_is_direct(const struct rsh_server *s)
{
	return s->direct_io;
}

void rsh_server_stats(const struct rsh_server *s, struct rsh_stream_stats *out)
{
	rsh_streams_stats(s->streams, out);
}

const char *rsh_server_library_version(void)
{
	return fuse_pkgversion();
}

void rsh_server_free(struct rsh_server *s)
{
	if (!s)
		return;
	server_unmount(s);
	if (s->has_signals)
		fuse_remove_signal_handlers(s->session);
	if (s->stuck)
		return;
	if (s->session)
		fuse_session_destroy(s->session);
	rsh_streams_free(s->streams);
	rsh_open_files_clear(&s->files);
	rsh_passthrough_free(s);
	pthread_mutex_destroy(&s->files.lock);
	pthread_mutex_destroy(&s->passthrough.lock);
	pthread_mutex_destroy(&s->queue.lock);
	pthread_mutex_destroy(&s->interrupts.lock);
	free(s);
}
