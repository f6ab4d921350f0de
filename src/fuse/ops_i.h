/* SPDX-License-Identifier: Apache-2.0 */
/* fuse/ops_i.h has the request handlers and what they share, for this layer
 * only. */
#pragma once

#include <fuse_lowlevel.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "rsh/fuse/server.h"
#include "rsh/read/stream.h"
#include "rsh/vfs/steps.h"

/* State of passthrough: the source files that the kernel reads itself
 * (passthrough.c).
 *
 * All users that have a file open at a time must have the same backing, else
 * the kernel fails the open with EIO.  Meanwhile no other user may have the
 * file open through the page cache.  Linux supports a stack of two file
 * systems.  If the mount requests one level for its source (SOURCE on an
 * overlay), no overlay can be on top of the mount.  So the level is requested
 * only if it is needed.
 *
 * The program does not see reads of such files, so they have no injected
 * faults, no cache, no replicas and no check after the read.  Therefore files
 * that are read with faults or through the cache use no passthrough, and a
 * failed or changed file is detected when it is opened.  `auto` does not use
 * passthrough for sources on FUSE and networks, because the kernel would keep
 * dead descriptors of them.
 */
struct rsh_backing;
struct rsh_passthrough {
	bool granted; /* INIT sets it */

	pthread_mutex_t lock; /* guards all below, and `users` of the
			       * backings */
	bool refused;         /* the kernel has refused one; no more are
			       * requested */
	LIST_HEAD(, rsh_backing) list;
};

/* An open file: a virtual file, a text with information about the mount or, in
 * a mount of several steps, a directory. */
struct rsh_open_file {
	struct rsh_stream *stream;
	struct rsh_backing *backing; /* NULL: the server reads the file */
	char *text;                  /* content of a control file, else NULL */
	struct rsh_vfs_at at;        /* of an open directory: its tree */
	LIST_ENTRY(rsh_open_file) next;
};

/* The numbers of files that programs map (ops.c).  A bit stands for many nodes,
 * so a file may be taken for one that is mapped, which only costs time. */
#define RSH_MAPPED_BITS 65536
struct rsh_mapped_nodes {
	atomic_bool any;
	_Atomic uint64_t bits[RSH_MAPPED_BITS / 64];
};

/* All open files.  Some may still be open when the mount ends, or their release
 * may not have arrived. */
struct rsh_open_files {
	pthread_mutex_t lock; /* guards `list` */
	LIST_HEAD(, rsh_open_file) list;
};

/* A pending request waits for the source.  Its reader may be interrupted
 * meanwhile (pending.c).  Functions with a parameter of this type accept NULL
 * for a request that does not wait. */
struct rsh_pending;
struct rsh_interrupts {
	pthread_mutex_t lock; /* guards `list` and its entries */
	TAILQ_HEAD(, rsh_pending) list; /* interrupted requests, sorted by the
					 * time when they are due */
	sem_t *news;          /* is posted when a request is interrupted */
};

/* A request that may have to wait for the source. */
struct rsh_request {
	/* Serves the request and replies.  If `rc` is an error, the request was
	 * not allowed to start, and the reply is this error.  The thread that
	 * takes the request from the queue calls this. */
	void (*serve)(const struct rsh_request *r, int rc);
	struct rsh_server *server; /* set when it is dispatched or queued */
	fuse_req_t req; /* not to be used before `pending` is claimed */
	struct rsh_pending *pending;
	struct rsh_stream *stream; /* the stream that is read; it is held */
	fuse_ino_t ino;
	const char *name; /* to look up, or of an attribute.  With several steps
			   * it is from malloc, and serve() frees it. */
	size_t size; /* bytes to read from `off`, or room for an attribute */
	off_t off;
	struct fuse_file_info fi;
	STAILQ_ENTRY(rsh_request) next;
};
STAILQ_HEAD(rsh_request_list, rsh_request);

/* The number of requests that are being served, and the list of those that wait
 * (request_queue.c). */
struct rsh_request_queue {
	pthread_mutex_t lock; /* guards all below; atomic counts may be read
			       * without it */
	unsigned n_served, most;
	struct rsh_request_list waiting;
	atomic_uint n_waiting;
	atomic_uint_fast64_t n_done; /* requests that have been served since the
				      * start */
	bool closed;
};

struct rsh_server {
	struct rsh_vfs *vfs;
	struct rsh_streams *streams;
	unsigned max_read;  /* bytes of a request */
	enum rsh_io_mode io_mode;
	bool direct_io; /* reads bypass the page cache, but for files that are
			 * mapped; INIT sets it */
	struct rsh_mapped_nodes mapped;
	struct fuse_session *session;
	struct rsh_mounter *mounter; /* NULL: the server mounts by itself */
	unsigned n_threads, max_threads;
	bool stuck;         /* a thread is still in a read of its source */
	bool has_signals;   /* the session's signal handlers are set */
	bool mounted;

	/* The kernel's INIT sets these (device.c): whether INIT was read, its
	 * number until it is answered, and whether files that bypass the page
	 * cache allow shared mappings. */
	atomic_bool init_read;
	_Atomic uint64_t init_unique;
	bool may_map;
	/* INIT also sets whether passthrough is available.  stack_depth is the
	 * number of stacked file systems, the mount included; 0: no
	 * passthrough. */
	bool may_pass;
	uint32_t stack_depth;

	struct rsh_passthrough passthrough;

	struct rsh_open_files files;

	struct rsh_request_queue queue;
	struct rsh_interrupts interrupts;

	struct rsh_server_events events;
};

/* open_files.c: all members of a new open file are NULL.  Returns NULL if
 * memory is exhausted. */
struct rsh_open_file *rsh_open_file_new(struct rsh_open_files *all);
struct rsh_open_file *rsh_open_file_of(const struct fuse_file_info *fi);
/* Frees the text and the object.  The caller closes the stream and the backing
 * before. */
void rsh_open_file_free(struct rsh_open_files *all, struct rsh_open_file *f);
/* Frees the files that are still open, after the session and the streams have
 * ended. */
void rsh_open_files_clear(struct rsh_open_files *all);

/* mount.c makes libfuse's session for the options, and mounts it on an absolute
 * path without links, or on /dev/fd/N.  Both return 0 or -errno; libfuse
 * reports the reason. */
int rsh_session_new(const struct rsh_server_options *o,
		    const struct fuse_lowlevel_ops *ops, void *userdata,
		    struct fuse_session **out, struct rsh_error *err);
int rsh_session_mount(struct fuse_session *session, const char *mountpoint);
/* Resolves the mountpoint to an absolute path without links, or to /dev/fd/N.
 * Returns 0 or -errno with a sentence. */
int rsh_mountpoint_check(const char *path, char *resolved,
			 struct rsh_error *err);
/* Returns the maximum number of bytes that a request may read. */
unsigned rsh_max_read(const struct rsh_server_options *o);

/* mounter.c: *fd is the descriptor of the mounted connection; the caller owns
 * it.  Returns 0 or -errno with a sentence. */
int rsh_mounter_mount(struct rsh_mounter *m, int *fd, struct rsh_error *err);
void rsh_mounter_unmount(struct rsh_mounter *m);
/* Calls rsh_thread_dies() in that process, because it may read /proc. */
int rsh_mounter_ask_fatal_signals(struct rsh_mounter *m, pid_t thread);
/* fatal_signals.c: returns 1 if the thread has a pending signal that will end
 * it, 0 if not, or -errno if this is unknown.  A debugger decides about every
 * signal of its thread but SIGKILL. */
int rsh_thread_dies(pid_t thread);
/* Closes the connection of a descriptor, whose number stays open because
 * libfuse still uses it. */
void rsh_device_close(int fd);
/* pending.c.  Returns 0 or -errno. */
int rsh_interrupts_init(struct rsh_interrupts *i);
/* Answers the interrupted readers that are due; only the thread of the loop
 * calls it.  Returns the ns until the next call is needed, unless `news` is
 * posted before. */
uint64_t rsh_interrupts_answer(struct rsh_server *s);
/* Returns whether the request has already been answered with EINTR. */
bool rsh_pending_is_over(struct rsh_pending *p);
/* Returns true if the caller may use the request and has to answer it; it can
 * no longer be interrupted.  Returns false if the request has been answered and
 * freed. */
bool rsh_pending_claim(struct rsh_pending *p);
/* Claims the request as rsh_pending_claim() does, and frees `p`. */
bool rsh_pending_end(struct rsh_pending *p);

/* request_queue.c.  Returns 0 or -errno. */
int rsh_queue_init(struct rsh_request_queue *t);
/* Sets how many requests may be served at a time; at first 1. */
void rsh_queue_allow(struct rsh_request_queue *t, unsigned most);
/* Returns 0 if the request may be served now; then rsh_queue_end() has to be
 * called after it.  Returns RSH_QUEUE_LATER if a copy of the request was put
 * into the queue; a thread that ends a request will serve it.  Returns -errno
 * if the request cannot be served. */
#define RSH_QUEUE_LATER 1
int rsh_queue_begin(struct rsh_request_queue *t, const struct rsh_request *r);
/* Marks a request as ended, and serves requests from the queue. */
void rsh_queue_end(struct rsh_request_queue *t);
/* Serves requests from the queue while the limit allows it. */
void rsh_queue_help(struct rsh_request_queue *t);
/* Removes an answered request from the queue, if it still waits. */
void rsh_queue_forget(struct rsh_request_queue *t, const struct rsh_pending *p);
/* Closes the queue: the requests in it get ECONNABORTED. */
void rsh_queue_close(struct rsh_request_queue *t);

/* Intercepts libfuse's reads and writes of the mounted session's descriptor, if
 * libfuse needs it.  Returns 0 or -errno. */
int rsh_device_attach(struct rsh_server *s);

/* Serves until the session ends.  Sets server->stuck if a thread has not ended
 * by then; what that thread uses must not be freed.  Returns 0 or -errno. */
int rsh_loop_run(struct rsh_server *server);

/* Sets may_map: whether files that bypass the page cache allow shared mappings.
 * It has to be called first when INIT is answered. */
void rsh_device_init(struct rsh_server *s, struct fuse_conn_info *conn);
/* Requests passthrough to files on `below` stacked file systems.  Returns false
 * if the kernel or libfuse does not support it. */
bool rsh_device_ask_passthrough(struct rsh_server *s,
				struct fuse_conn_info *conn, unsigned below);
/* Returns the id of a backing, or 0 with the reason in `refused`. */
int rsh_device_backing_open(const struct rsh_server *s, fuse_req_t req, int fd,
			    struct rsh_error *refused);
void rsh_device_backing_close(const struct rsh_server *s, fuse_req_t req,
			      int id);
/* Adds the backing to the next reply of this thread, which answers the open of
 * `fi`. */
void rsh_device_reply_backing(struct fuse_file_info *fi, int id);

/* Decides whether the mount uses passthrough.  It has to be called while INIT
 * is answered, after direct_io is set. */
void rsh_passthrough_init(struct rsh_server *s, struct fuse_conn_info *conn);
/* Sets *out to the backing that the kernel reads instead of the file of the
 * request; NULL if there is none.  Returns 0, or an error like -ESTALE, with
 * which the open has to fail. */
int rsh_passthrough_open(struct rsh_server *s, const struct rsh_request *r,
			 struct rsh_backing **out);
/* Ends one use.  libfuse needs `req` to close a backing; if it is NULL the
 * kernel's backing stays for the next user. */
void rsh_passthrough_close(struct rsh_server *s, fuse_req_t req,
			   struct rsh_backing *b);
/* Adds the backing to the reply to an open. */
void rsh_passthrough_fill(const struct rsh_backing *b,
			  struct fuse_file_info *fi);
void rsh_passthrough_free(struct rsh_server *s);

/* Puts libfuse's errors in this thread into `err` instead of the log, until it
 * is called with NULL. */
void rsh_libfuse_listen(struct rsh_error *err);

/* pending.c.  rsh_op_queue() serves a request that may wait for the source; it
 * can be interrupted from then on. */
void rsh_op_queue(struct rsh_request *r);
/* Serves a request, as a request that may wait for the source if the
 * mount has several steps: their trees are made when they are needed. */
void rsh_op_dispatch(struct rsh_request *r);
/* Does the same for a request with a name, which is copied if it is needed
 * later. */
void rsh_op_dispatch_name(struct rsh_request *r, const char *name);
/* Ends a request, and answers it if `rc` is an error.  Returns true if the
 * caller has to answer it. */
bool rsh_op_end(const struct rsh_request *r, int rc);
/* serve() calls it when it no longer needs the name. */
void rsh_op_free_name(const struct rsh_request *r);

/* control.c serves the nodes that rsh_control_owns(). */
void rsh_control_op_open(fuse_req_t req, fuse_ino_t ino,
			 struct fuse_file_info *fi);
void rsh_control_op_read(fuse_req_t req, size_t size, off_t off,
			 struct fuse_file_info *fi);
void rsh_control_op_release(fuse_req_t req, struct fuse_file_info *fi);

/* xattr.c serves the extended attributes. */
void rsh_op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name,
		     size_t room);
void rsh_op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t room);

extern const struct fuse_lowlevel_ops rsh_fuse_ops;
