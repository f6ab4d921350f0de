/* fuse/ops_i.h - the request handlers, for this layer only. */
#ifndef RSH_FUSE_OPS_I_H
#define RSH_FUSE_OPS_I_H

#include <fuse_lowlevel.h>
#include <stdatomic.h>

#include "rsh/fuse/server.h"
#include "rsh/vfs/stream.h"

struct rsh_server {
	struct rsh_vfs *vfs;
	struct rsh_streams *streams;
	unsigned max_read;  /* bytes a request */
	enum rsh_io_mode io_mode;
	bool direct_io;     /* files are read past the page cache; set by INIT */
	struct fuse_session *session;
	unsigned n_threads, max_threads;
	bool stuck;         /* a thread did not come back from its source */
	bool has_signals;   /* our handlers are set */
	bool mounted;

	/* Of the kernel's INIT (device.c): whether it was read, its number
	 * until it is answered, and whether files that are read past the page
	 * cache may be mapped shared. */
	atomic_bool init_read;
	_Atomic uint64_t init_unique;
	bool may_map;

	/* Called once, by the thread that answers the kernel's INIT. */
	void (*ready)(void *ctx);
	void *ready_ctx;
};

/* Puts itself between libfuse and the mounted session's descriptor.  0 or
 * -errno. */
int rsh_device_attach(struct rsh_server *s);

/* Serves until the session ends.  Sets server->stuck if a thread has not come
 * back by then: what it uses must stay.  0 or -errno. */
int rsh_loop_run(struct rsh_server *server);

extern const struct fuse_lowlevel_ops rsh_fuse_ops;

#endif
