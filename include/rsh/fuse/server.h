/* SPDX-License-Identifier: Apache-2.0 */
/* fuse/server.h offers to mount a virtual tree: this is the one room that
 * speaks FUSE.  It decodes a request, calls vfs, and replies.
 *
 * Threads: a server is made, run and freed by one thread; while it runs, any
 * thread may ask for its figures and how it reads.  Errors are -errno, with a
 * sentence where one can be given.
 */
#ifndef RSH_FUSE_SERVER_H
#define RSH_FUSE_SERVER_H

#include "rsh/util/error.h"
#include "rsh/read/stream.h"
#include "rsh/vfs/vfs.h"

struct rsh_server;
struct rsh_mounter;

enum rsh_io_mode {
	/* Files are passed through where possible, else read direct, unless the
	 * kernel (before Linux 6.6) would then not let files be mapped
	 * shared. */
	RSH_IO_AUTO,
	/* Does what RSH_IO_AUTO does; if the mount cannot pass files through
	 * this is a warning.
	 *
	 * A file that is a source file byte for byte is read from that one by
	 * the kernel itself, which takes Linux 6.9 and CAP_SYS_ADMIN.  A source
	 * that changed is met when a file is opened, no longer when it is
	 * read. */
	RSH_IO_PASSTHROUGH,
	/* Reads go past the page cache of the mount: that is fastest for one
	 * who reads a file once, and no memory holds the bytes twice. */
	RSH_IO_DIRECT,
	/* Reads are kept in the page cache, for files that are read again and
	 * again. */
	RSH_IO_CACHED,
};

struct rsh_server_options {
	const char *mountpoint;   /* or /dev/fd/N, see rsh_mountpoint_fd() */
	const char *fsname;       /* what df and mount show as the device */
	const char *subtype;      /* the type shown is fuse.<subtype> */
	const char *mount_opts;   /* comma list for libfuse and the kernel, in
				   * libfuse's escaping; `ro` and
				   * `default_permissions` are always added */
	unsigned max_read;        /* bytes a request; 0: 1 MiB, the most */
	enum rsh_io_mode io_mode;
	unsigned far; /* as rsh_streams_suited() has it, */
	bool shared;  /* and this, too */
	unsigned readahead;       /* as rsh_streams_options.max_loads */
	struct rsh_mounter *mounter; /* NULL: the server mounts by itself */
	/* rsh_mounter_find() has this called in a process of its own; NULL:
	 * nothing can be found. */
	void (*find)(void *ctx, const char *name, int fd[2]);
	void *find_ctx;
	bool debug;               /* libfuse logs its requests */
	unsigned max_idle_threads; /* threads that serve; 0: one a processor */
	unsigned max_threads;      /* threads in reads, if these are stuck; 0:
				    * the default */
	bool lean;                 /* few threads and little prepared: slower,
				    * in a fraction of the memory */
};

/* Returns N if the mountpoint is /dev/fd/N, else -1.  Another process has then
 * opened /dev/fuse and mounted with that descriptor, and has to unmount: the
 * server only serves it. */
int rsh_mountpoint_fd(const char *mountpoint);

/* Return how many bytes a server takes at most beside the tree: mapped, and
 * resident. */
uint64_t rsh_server_maps(const struct rsh_server_options *o);
uint64_t rsh_server_resident(const struct rsh_server_options *o);

/* Forks a process that mounts and unmounts once, as these options say, for a
 * server that will give up what it takes to do so; has to be called before
 * that, and single-threaded.  The process obeys nobody else, answers no signal
 * but SIGKILL, and ends with the server's process, whose crash leaves the mount
 * behind.  The options have to stay valid.  Returns 0, or -errno with a
 * sentence: the mountpoint must be an existing directory, and
 * this process or fusermount3 must be able to mount. */
int rsh_mounter_start(const struct rsh_server_options *o,
		      struct rsh_mounter **out, struct rsh_error *err);
/* Gives what the option find() gives for the name, called where the server was
 * before it gave up anything.  Descriptors are the caller's; a negative one is
 * an -errno.  Returns 0, or -errno: -ETIMEDOUT after RSH_FIND_SECONDS.  Any
 * thread may call it. */
int rsh_mounter_find(struct rsh_mounter *m, const char *name, int fd[2]);
#define RSH_FIND_SECONDS 3
/* Ends the process and waits for that; to be called after the server was freed.
 * The object stays, for threads that were left behind in a read. */
void rsh_mounter_end(struct rsh_mounter *m);

/* Mounts; has to be called single-threaded, before any thread is started.  The
 * mountpoint must be as rsh_mounter_start() has it.  Returns 0, or -errno with a
 * sentence, and then nothing stays mounted. */
int rsh_server_mount(struct rsh_vfs *vfs, const struct rsh_server_options *o,
		     struct rsh_server **out, struct rsh_error *err);
/* Serves until unmounted or told to stop by SIGTERM, SIGINT or SIGHUP, then
 * unmounts (lazily when busy).  Calls ready(ctx), from another thread, when the
 * kernel's first request is being answered: whatever is asked of the mount from
 * then on gets its answer.  Returns 0, or -errno. */
int rsh_server_run(struct rsh_server *s, void (*ready)(void *ctx), void *ctx);
/* Returns, after the end, whether a thread has not come back from its source.
 * What the server was given must not be freed then. */
bool rsh_server_is_stuck(const struct rsh_server *s);
/* Returns whether reads go past the page cache; it is known when ready() is
 * called. */
bool rsh_server_is_direct(const struct rsh_server *s);
void rsh_server_stats(const struct rsh_server *s, struct rsh_stream_stats *out);
void rsh_server_free(struct rsh_server *s);

/* Returns the version of libfuse, for --version. */
const char *rsh_server_library_version(void);

#endif
