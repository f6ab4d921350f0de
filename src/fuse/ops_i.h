/* fuse/ops_i.h - the request handlers, for this layer only. */
#ifndef RSH_FUSE_OPS_I_H
#define RSH_FUSE_OPS_I_H

#include <fuse_lowlevel.h>

#include "rsh/fuse/server.h"
#include "rsh/vfs/stream.h"

struct rsh_server {
	struct rsh_vfs *vfs;
	struct rsh_streams *streams;
	bool direct_io;     /* files are read past the page cache */
	struct fuse_session *session;
	struct fuse_loop_config *loop;
	unsigned max_read;  /* 0: what the kernel gives */
	bool has_signals;   /* our handlers are set */
	bool mounted;

	/* Called once, by the thread that answers the kernel's INIT. */
	void (*ready)(void *ctx);
	void *ready_ctx;
};

extern const struct fuse_lowlevel_ops rsh_fuse_ops;

#endif
