/* SPDX-License-Identifier: Apache-2.0 */
/* fuse/ops_i.h has the request handlers and what they share, for this room
 * only. */
#ifndef RSH_FUSE_OPS_I_H
#define RSH_FUSE_OPS_I_H

#include <fuse_lowlevel.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "rsh/fuse/server.h"
#include "rsh/read/stream.h"
#include "rsh/vfs/digest.h"

/* Counts the source files that the kernel reads by itself (passthrough.c).
 *
 * All who have a file open have the same backing, or the kernel fails the open
 * with EIO, and none may have it open through the page cache beside that.
 * Linux stacks two file systems: to ask for room below (SOURCE on an overlay)
 * takes it from above, so it is asked for if it is needed.  Reads of such files
 * never come by: no faults, no cache, no replicas and no check after a read.
 * So what is read with the first two is not passed through, the others are
 * looked at when a file is opened, and `auto` leaves out FUSE and networks,
 * whose dead descriptors it would keep. */
struct rsh_backing;
struct rsh_passthrough {
	bool granted; /* set by INIT */

	pthread_mutex_t lock; /* guards all below, and the backings' users */
	bool refused;         /* the kernel has refused one: no more are asked
			       * for */
	LIST_HEAD(, rsh_backing) list;
};

/* Says what a file handle stands for: a virtual file, or a text that the mount
 * tells about itself. */
struct rsh_open_file {
	struct rsh_stream *stream;
	struct rsh_backing *backing; /* NULL: it is read here */
	char *text;                  /* what a control file says, else NULL */
	LIST_ENTRY(rsh_open_file) next;
};

/* Lists all open files: they may still be open when the mount ends, or their
 * release may not have arrived. */
struct rsh_open_files {
	pthread_mutex_t lock; /* guards the line below */
	LIST_HEAD(, rsh_open_file) list;
};

/* A pending request waits for the source, and its reader may be interrupted
 * meanwhile (pending.c).  Functions that take one take NULL for a request that
 * does not wait. */
struct rsh_pending;
struct rsh_interrupts {
	pthread_mutex_t lock; /* guards `list` and what stands in it */
	TAILQ_HEAD(, rsh_pending) list; /* interrupted ones, the next one due
					 * first */
	sem_t *news;          /* is posted when one is interrupted */
};

/* Has a request that may have to wait for the source. */
struct rsh_request {
	/* Replies, with the error if `rc` is one, because the request has not
	 * come to its turn.  It is called by whoever serves a request that was
	 * left. */
	void (*serve)(const struct rsh_request *r, int rc);
	struct rsh_server *server;
	fuse_req_t req; /* not to be touched before `pending` is claimed */
	struct rsh_pending *pending;
	struct rsh_stream *stream; /* that a read is of; it is held */
	fuse_ino_t ino;
	size_t size; /* bytes of a read, from `off` on */
	off_t off;
	struct fuse_file_info fi;
	STAILQ_ENTRY(rsh_request) next;
};
STAILQ_HEAD(rsh_request_list, rsh_request);

/* Counts requests that are served, and lists those that wait until it is their
 * turn (request_queue.c). */
struct rsh_request_queue {
	pthread_mutex_t lock; /* guards all below; counts may be read without */
	unsigned n_served, most;
	struct rsh_request_list waiting;
	atomic_uint n_waiting;
	atomic_uint_fast64_t n_done; /* turns that have ended since the start */
	bool closed;
};

struct rsh_server {
	struct rsh_vfs *vfs;
	struct rsh_streams *streams;
	struct rsh_digests *digests;
	unsigned max_read;  /* bytes a request */
	enum rsh_io_mode io_mode;
	bool direct_io; /* files are read past the page cache; set by INIT */
	struct fuse_session *session;
	struct rsh_mounter *mounter; /* NULL: the server mounts by itself */
	unsigned n_threads, max_threads;
	bool stuck;         /* a thread did not come back from its source */
	bool has_signals;   /* our handlers are set */
	bool mounted;

	/* The kernel's INIT tells these (device.c): whether it was read, its
	 * number until it is answered, and whether files that are read past the
	 * page cache may be mapped shared. */
	atomic_bool init_read;
	_Atomic uint64_t init_unique;
	bool may_map;
	/* INIT also tells whether files may be passed through; stack_depth is
	 * how many file systems are on top of one another then; 0: files are
	 * not passed through. */
	bool may_pass;
	uint32_t stack_depth;

	struct rsh_passthrough passthrough;

	struct rsh_open_files files;

	struct rsh_request_queue queue;
	struct rsh_interrupts interrupts;

	/* Is called once, by the thread that answers the kernel's INIT. */
	void (*ready)(void *ctx);
	void *ready_ctx;
};

/* open_files.c: a new open file is all NULL.  Returns NULL if memory is out. */
struct rsh_open_file *rsh_open_file_new(struct rsh_open_files *all);
struct rsh_open_file *rsh_open_file_of(const struct fuse_file_info *fi);
/* Frees the text and the object; the caller has closed the rest before. */
void rsh_open_file_free(struct rsh_open_files *all, struct rsh_open_file *f);
/* Frees the files that are left, once the session and the streams have
 * ended. */
void rsh_open_files_clear(struct rsh_open_files *all);

/* mount.c makes libfuse's session for the options, and mounts it on an absolute
 * path without links, or on /dev/fd/N.  Both return 0 or -errno; libfuse says the reason. */
int rsh_session_new(const struct rsh_server_options *o, void *userdata,
		    struct fuse_session **out, struct rsh_error *err);
int rsh_session_mount(struct fuse_session *session, const char *mountpoint);
/* Gives such a path of what is to be mounted on.  Returns 0 or -errno with a
 * sentence. */
int rsh_mountpoint_check(const char *path, char *resolved,
			 struct rsh_error *err);
/* Says early what libfuse would only say after the source was read: whether this
 * process or fusermount3 can mount.  It cannot be asked within the sandbox.
 * Returns 0 or -errno with a sentence. */
int rsh_mount_rights_check(const char *mountpoint, struct rsh_error *err);
/* Returns how many bytes a request may read. */
unsigned rsh_max_read(const struct rsh_server_options *o);

/* mounter.c: *fd is that of the mounted connection, and the caller's to close.
 * Returns 0 or -errno with a sentence. */
int rsh_mounter_mount(struct rsh_mounter *m, int *fd, struct rsh_error *err);
void rsh_mounter_unmount(struct rsh_mounter *m);
/* Asks that process for rsh_thread_dies(), since it may read /proc. */
int rsh_mounter_ask_fatal_signals(struct rsh_mounter *m, pid_t thread);
/* fatal_signals.c: returns 1 if a signal has come to the thread that will end
 * it, 0 if not, or -errno if that cannot be told. */
int rsh_thread_dies(pid_t thread);
/* Ends the connection of a descriptor whose number libfuse goes on using. */
void rsh_device_close(int fd);
/* pending.c.  Returns 0 or -errno. */
int rsh_interrupts_init(struct rsh_interrupts *i);
void rsh_interrupts_destroy(struct rsh_interrupts *i);
/* Answers the readers whose time has come; only the thread of the loop calls
 * it.  Returns in how many ns it is to be called again, unless `news` is posted
 * before. */
uint64_t rsh_interrupts_answer(struct rsh_server *s);
/* `of_page` is true if the kernel wants the bytes for its page cache, or for a
 * mapping.  Returns NULL if memory is out. */
struct rsh_pending *rsh_pending_new(struct rsh_server *s, fuse_req_t req,
				    bool of_page);
fuse_req_t rsh_pending_req(const struct rsh_pending *p);
/* Returns whether the reader has been answered, and has gone. */
bool rsh_pending_is_over(struct rsh_pending *p);
/* Returns true if the request is the caller's to use and to answer, and will
 * not be interrupted any more; false if it has been answered, and is gone. */
bool rsh_pending_claim(struct rsh_pending *p);
/* Claims the request as rsh_pending_claim() does, and frees `p`. */
bool rsh_pending_end(struct rsh_pending *p);

/* request_queue.c.  Returns 0 or -errno. */
int rsh_queue_init(struct rsh_request_queue *t);
void rsh_queue_destroy(struct rsh_request_queue *t);
/* Allows so many requests at a time; at first it is 1. */
void rsh_queue_allow(struct rsh_request_queue *t, unsigned most);
/* Returns 0 if it is the request's turn, and then rsh_queue_end() is due when
 * it has been served; RSH_QUEUE_LATER if it has been left, in a copy, to
 * whoever ends a turn; or -errno if it is not to have a turn. */
#define RSH_QUEUE_LATER 1
int rsh_queue_begin(struct rsh_request_queue *t, const struct rsh_request *r);
/* Ends a turn and serves those whose turn has come then. */
void rsh_queue_end(struct rsh_request_queue *t);
/* Serves those who wait, if there is room. */
void rsh_queue_help(struct rsh_request_queue *t);
/* Takes a request that has been answered out of the line, if it still waits. */
void rsh_queue_forget(struct rsh_request_queue *t, const struct rsh_pending *p);
/* Ends all waiting: requests that wait get ECONNABORTED. */
void rsh_queue_close(struct rsh_request_queue *t);

/* Puts itself between libfuse and the mounted session's descriptor where that is
 * needed.  Returns 0 or -errno. */
int rsh_device_attach(struct rsh_server *s);

/* Serves until the session ends.  Sets server->stuck if a thread has not come
 * back by then: what that thread uses must stay.  Returns 0 or -errno. */
int rsh_loop_run(struct rsh_server *server);

/* Has to be called first when INIT is answered: says whether files that are read
 * past the page cache may be mapped shared (may_map). */
void rsh_device_init(struct rsh_server *s, struct fuse_conn_info *conn);
/* Asks for passthrough to files that lie on `below` stacked file systems; false:
 * the kernel or libfuse does not offer it. */
bool rsh_device_ask_passthrough(struct rsh_server *s,
				struct fuse_conn_info *conn, unsigned below);
/* Returns the id of a backing, or 0 with the reason in `refused`. */
int rsh_device_backing_open(const struct rsh_server *s, fuse_req_t req, int fd,
			    struct rsh_error *refused);
void rsh_device_backing_close(const struct rsh_server *s, fuse_req_t req,
			      int id);
/* Makes the backing part of the next reply of this thread, which is to the open
 * that `fi` is of. */
void rsh_device_reply_backing(struct fuse_file_info *fi, int id);

/* Has to be called while INIT is answered, once direct_io is known. */
void rsh_passthrough_init(struct rsh_server *s, struct fuse_conn_info *conn);
/* Gives what the kernel is to read in place of the file of the turn's node;
 * *out is NULL if nothing is.  Returns 0, or -ESTALE and the like, with which
 * the file must not be opened. */
int rsh_passthrough_open(struct rsh_server *s, const struct rsh_request *r,
			 struct rsh_backing **out);
/* Ends one use.  If `req` is NULL, which libfuse needs to end a backing, the
 * kernel's backing stays for the next user. */
void rsh_passthrough_close(struct rsh_server *s, fuse_req_t req,
			   struct rsh_backing *b);
/* Makes the backing the answer to an open. */
void rsh_passthrough_fill(const struct rsh_backing *b,
			  struct fuse_file_info *fi);
void rsh_passthrough_free(struct rsh_server *s);

/* Errors of libfuse that come up in this thread become the sentence of `err`
 * instead of lines in the log, until it is called with NULL. */
void rsh_libfuse_listen(struct rsh_error *err);

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

#endif
