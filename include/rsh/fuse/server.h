/* SPDX-License-Identifier: Apache-2.0 */
/* fuse/server.h mounts a virtual tree.  Only this layer uses FUSE: it decodes a
 * request, calls vfs, and replies.
 *
 * Threads: one thread makes, runs and frees a server.  While the server runs,
 * any thread may call rsh_server_stats() and rsh_server_is_direct().  Errors
 * are -errno, with a sentence if a reason is known.
 */
#pragma once

#include "rsh/util/error.h"
#include "rsh/read/stream.h"
#include "rsh/vfs/vfs.h"
#include "rsh/util/option.h"

struct rsh_server;
struct rsh_mounter;

enum rsh_io_mode {
	/* Passthrough for the files that allow it.  Other files are read with
	 * direct I/O until a program maps them, and then through the page
	 * cache: the kernel drops the pages of a file with direct I/O whenever
	 * another program maps it.  Before Linux 6.6 direct I/O would not allow
	 * shared mappings, so all files use the page cache. */
	RSH_IO_AUTO,
	/* Like RSH_IO_AUTO, but a warning is logged if the mount cannot use
	 * passthrough.
	 *
	 * With passthrough, the kernel itself reads a file that is a source
	 * file byte for byte from the source file.  This needs Linux 6.9 and
	 * CAP_SYS_ADMIN.  A source that changed is then found when a file is
	 * opened, not when it is read.
	 */
	RSH_IO_PASSTHROUGH,
	/* Direct I/O: reads do not use the page cache of the mount.  This is
	 * fastest for a program that reads a file once, and memory does not
	 * hold the bytes twice. */
	RSH_IO_DIRECT,
	/* The page cache keeps what was read, for files that are read
	 * repeatedly. */
	RSH_IO_CACHED,
};

struct rsh_server_options {
	const char *mountpoint;   /* or /dev/fd/N, see rsh_mountpoint_fd() */
	const char *fsname;       /* the device that df and mount show */
	const char *subtype;      /* the type that is shown is fuse.<subtype> */
	const char *mount_opts;   /* options for libfuse and the kernel,
				   * separated by commas and escaped as libfuse
				   * needs it; `ro` and `default_permissions`
				   * are always added */
	unsigned max_read;        /* bytes of a request; 0: 1 MiB, the
				   * maximum */
	enum rsh_io_mode io_mode;
	/* `far` and `shared` are arguments of rsh_streams_suited(). */
	unsigned far;
	bool shared;
	unsigned readahead;       /* rsh_streams_options.max_loads */
	struct rsh_mounter *mounter; /* NULL: the server mounts by itself */
	/* rsh_mounter_find() calls this in a separate process.  NULL: nothing
	 * can be found. */
	void (*find)(void *ctx, const char *name, int fd[2]);
	void *find_ctx;
	/* rsh_mounter_look_up() calls this in the same way. */
	int (*look_up)(const char *host, char *to, size_t size);
	bool debug;               /* libfuse logs its requests */
	unsigned max_idle_threads; /* threads that serve requests; 0: one for
				    * each processor */
	unsigned max_threads;      /* most threads, if some are stuck in reads;
				    * 0: the default */
	bool lean;                 /* few threads and windows: slower, but uses
				    * much less memory */
};

/* The options of the command line, those of -o, and those that mount(8)
 * explains. */
extern const struct rsh_option rsh_server_rows[], rsh_server_mount_rows[],
	rsh_server_kernel_rows[];

/* Returns N if the mountpoint is /dev/fd/N, else -1.  In that case another
 * process has opened /dev/fuse, has mounted with that descriptor, and has to
 * unmount.  The server only serves the descriptor. */
int rsh_mountpoint_fd(const char *mountpoint);

/* Return the most bytes that a server uses in addition to the tree: mapped
 * memory, and resident memory. */
uint64_t rsh_server_maps(const struct rsh_server_options *o);
uint64_t rsh_server_resident(const struct rsh_server_options *o);

/* Forks a process that mounts and unmounts once, with these options.  It is for
 * a server that will drop the privileges for this.  The function has to be
 * called before that, while the caller has one thread.  The process accepts
 * requests only from the server, ignores SIGHUP, SIGINT, SIGQUIT, SIGTERM and
 * SIGPIPE, and ends with the server's process.  If the server crashes the mount
 * remains.  The options have to stay valid.  Returns 0, or -errno with a
 * sentence: the mountpoint must be an existing directory, and this process or
 * fusermount3 must be able to mount. */
int rsh_mounter_start(const struct rsh_server_options *o,
		      struct rsh_mounter **out, struct rsh_error *err);
/* Calls the option find() for the name, in a process with the privileges that
 * the server had before it dropped them, and returns the results of find() in
 * fd.  The caller owns the descriptors; a negative number is an -errno.
 * Returns 0 or -errno: -ETIMEDOUT after RSH_FIND_SECONDS.  Any thread may call
 * it; `mounter` is a struct rsh_mounter. */
int rsh_mounter_find(void *mounter, const char *name, int fd[2]);
#define RSH_FIND_SECONDS 3
/* Does the same with the option look_up(), and returns its text and result. */
int rsh_mounter_look_up(void *mounter, const char *host, char *to, size_t size);
/* Ends the process and waits until it has ended.  It has to be called after the
 * server is freed.  The object is not freed, because threads that are stuck in
 * a read may still use it. */
void rsh_mounter_end(struct rsh_mounter *m);

/* Mounts.  It has to be called before any thread is started.  The requirements
 * for the mountpoint are those of rsh_mounter_start().  Returns 0, or -errno
 * with a sentence; after an error nothing remains mounted. */
int rsh_server_mount(struct rsh_vfs *vfs, const struct rsh_server_options *o,
		     struct rsh_server **out, struct rsh_error *err);
/* These are called once, from other threads.  They must not wait. */
struct rsh_server_events {
	/* The kernel's first request is being answered: from now on the mount
	 * answers requests. */
	void (*ready)(void *ctx);
	/* A program has mapped a file that was opened with direct I/O.  From
	 * now on such files are in the page cache of the mount. */
	void (*mapped)(void *ctx);
	void *ctx;
};

/* Serves until the tree is unmounted or SIGTERM, SIGINT or SIGHUP arrives, then
 * unmounts (lazily if the mount is busy).  Returns 0 or -errno. */
int rsh_server_run(struct rsh_server *s, const struct rsh_server_events *e);
/* Returns, after rsh_server_run(), whether a thread is still stuck in a read of
 * its source.  If so, the objects that were passed to the server must not be
 * freed. */
bool rsh_server_is_stuck(const struct rsh_server *s);
/* Returns whether reads bypass the page cache, but for files that are mapped.
 * The result is valid when ready() is called. */
bool rsh_server_is_direct(const struct rsh_server *s);
void rsh_server_stats(const struct rsh_server *s, struct rsh_stream_stats *out);
void rsh_server_free(struct rsh_server *s);

/* Returns the value of an option as libfuse's parser needs it, from malloc:
 * commas and backslashes have a backslash.  NULL: out of memory. */
char *rsh_mount_option_escape(const char *value);
/* Checks whether this process or fusermount3 can mount.  libfuse would report
 * this only after the source was read.  It cannot be checked in the sandbox.
 * Returns 0 or -errno with a sentence. */
int rsh_mount_rights_check(const char *mountpoint, struct rsh_error *err);
/* Returns the version of libfuse, for --version. */
const char *rsh_server_library_version(void);
