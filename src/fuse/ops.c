/* SPDX-License-Identifier: Apache-2.0 */
/* fuse/ops.c has one handler a request: it decodes, asks vfs, and replies.
 *
 * Threads: handlers run in the workers of loop.c, several at a time, those that
 * may wait for the source when it is their turn (request_queue.c); all they
 * touch is the request and the vfs, which is immutable.
 */
#include "config.h"

#include "ops_i.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/vfs/control.h"

/* Nothing in the tree ever changes, so the kernel may keep what it was told. */
#define CACHE_SECONDS (24 * 3600.0)

/* Larger requests gain nothing, and most kernels give no more by default. */
#define READAHEAD_BYTES (1024 * 1024)

static const struct rsh_vfs *vfs_of(fuse_req_t req)
{
	const struct rsh_server *s = fuse_req_userdata(req);

	return s->vfs;
}

static void op_init(void *userdata, struct fuse_conn_info *conn)
{
	struct rsh_server *s = userdata;

	/* libfuse demands the value that the mount was told. */
	conn->max_read = s->max_read;
	/* libfuse has cut this to what the kernel had before the mount's
	 * read-ahead was raised (mount.c); the kernel cuts it again. */
	conn->max_readahead = READAHEAD_BYTES;
	rsh_device_init(s, conn);
	s->direct_io = s->io_mode == RSH_IO_DIRECT ||
		       (s->io_mode != RSH_IO_CACHED && s->may_map);
	rsh_passthrough_init(s, conn);
	if (s->ready)
		s->ready(s->ready_ctx);
}

/* ---- names and attributes ---- */

static void op_fill_entry(const struct rsh_vfs *v, uint64_t node,
			  struct fuse_entry_param *e)
{
	*e = (struct fuse_entry_param){
		.ino = node,
		.attr_timeout = CACHE_SECONDS,
		.entry_timeout = CACHE_SECONDS,
	};
	rsh_vfs_stat(v, node, &e->attr);
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	const struct rsh_vfs *v = vfs_of(req);
	uint64_t node = rsh_vfs_lookup(v, parent, name);
	struct fuse_entry_param e;

	if (node == (uint64_t)-1) {
		fuse_reply_err(req, ENOTDIR);
		return;
	}
	if (node == 0) {
		/* A node number of 0 lets the kernel remember that there is no
		 * such name. */
		e = (struct fuse_entry_param){ .entry_timeout = CACHE_SECONDS };
		fuse_reply_entry(req, &e);
		return;
	}
	op_fill_entry(v, node, &e);
	fuse_reply_entry(req, &e);
}

/* Nodes live as long as the mount, so that lookups need not be counted. */
static void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup)
{
	(void)ino;
	(void)nlookup;
	fuse_reply_none(req);
}

static void op_forget_multi(fuse_req_t req, size_t count,
			    struct fuse_forget_data *forgets)
{
	(void)count;
	(void)forgets;
	fuse_reply_none(req);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino,
		       struct fuse_file_info *fi)
{
	struct stat st;
	int rc = rsh_vfs_stat(vfs_of(req), ino, &st);

	(void)fi;
	if (rc)
		fuse_reply_err(req, -rc);
	else
		fuse_reply_attr(req, &st, CACHE_SECONDS);
}

static void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
	const char *target = rsh_vfs_link(vfs_of(req), ino);

	if (target)
		fuse_reply_readlink(req, target);
	else
		fuse_reply_err(req, EINVAL);
}

static void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct statvfs out;

	(void)ino;
	rsh_vfs_statfs(vfs_of(req), &out);
	fuse_reply_statfs(req, &out);
}

/* ---- directories ---- */

static void op_opendir(fuse_req_t req, fuse_ino_t ino,
		       struct fuse_file_info *fi)
{
	struct stat st;
	int rc = rsh_vfs_stat(vfs_of(req), ino, &st);

	if (rc == 0 && !S_ISDIR(st.st_mode))
		rc = -ENOTDIR;
	if (rc) {
		fuse_reply_err(req, -rc);
		return;
	}
#ifdef HAVE_STRUCT_FUSE_FILE_INFO_CACHE_READDIR
	fi->cache_readdir = 1;
#endif
	fi->keep_cache = 1;
	fuse_reply_open(req, fi);
}

static void op_list_dir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
			bool plus)
{
	cleanup_free char *buf = malloc(size ? size : 1);
	struct fuse_entry_param e;
	char name[NAME_MAX + 1];
	uint64_t child, i = (uint64_t)off;
	size_t at = 0, n;
	int rc;

	if (!buf) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	for (;; i++) {
		rc = rsh_vfs_entry(vfs_of(req), ino, i, &child, name,
				   sizeof(name));
		if (rc)
			break;
		op_fill_entry(vfs_of(req), child, &e);
		n = plus ? fuse_add_direntry_plus(req, buf + at, size - at,
						  name, &e, (off_t)i + 1) :
			   fuse_add_direntry(req, buf + at, size - at, name,
					     &e.attr, (off_t)i + 1);
		if (n > size - at)
			break;
		at += n;
	}
	if (rc && rc != -ENOENT)
		fuse_reply_err(req, -rc);
	else
		fuse_reply_buf(req, buf, at);
}

static void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		       struct fuse_file_info *fi)
{
	(void)fi;
	op_list_dir(req, ino, size, off, false);
}

static void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size,
			   off_t off, struct fuse_file_info *fi)
{
	(void)fi;
	op_list_dir(req, ino, size, off, true);
}

/* ---- files ---- */

/* Closes what the file has; `req` is as in rsh_passthrough_close(). */
static void op_close_file(struct rsh_server *s, fuse_req_t req,
			  struct rsh_open_file *f)
{
	if (f->backing)
		rsh_passthrough_close(s, req, f->backing);
	rsh_stream_close(f->stream);
	rsh_open_file_free(&s->files, f);
}

/* Returns 0 or -errno. */
static int op_open_file(struct rsh_server *s, const struct rsh_request *r,
			struct rsh_open_file **out)
{
	struct rsh_open_file *f = rsh_open_file_new(&s->files);
	const int flags = r->fi.flags;
	int rc;

	if (!f)
		return -ENOMEM;
	rc = rsh_vfs_open_stream(s->vfs, r->ino, s->streams, &f->stream);
	if (rc) {
		rsh_open_file_free(&s->files, f);
		return rc;
	}
	if ((flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC))
		rc = -EROFS;
	else
		rc = rsh_passthrough_open(s, r, &f->backing);
	if (rc)
		op_close_file(s, NULL, f);
	else
		*out = f;
	return rc;
}

static void op_reply_open(struct rsh_server *s, const struct rsh_request *r,
			  struct rsh_open_file *f)
{
	struct fuse_file_info fi = r->fi;

	fi.fh = (uintptr_t)f;
	if (f->backing) {
		rsh_passthrough_fill(f->backing, &fi);
	} else {
		fi.keep_cache = 1;
		fi.direct_io = s->direct_io;
	}
	rsh_log_debug("open node %llu%s", (unsigned long long)r->ino,
		      f->backing ? ", passed through" : "");
	/* This fails when the caller was interrupted: there is no file then. */
	if (fuse_reply_open(r->req, &fi))
		op_close_file(s, NULL, f);
}

/* Returns what rsh_queue_begin() does.  The request can be interrupted from now
 * on. */
static int op_begin(struct rsh_request *r, bool of_page)
{
	r->pending = rsh_pending_new(r->server, r->req, of_page);
	return r->pending ? rsh_queue_begin(&r->server->queue, r) : -ENOMEM;
}

static void serve_open(const struct rsh_request *r, int rc)
{
	struct rsh_server *s = r->server;
	struct rsh_open_file *f = NULL;
	bool mine;

	if (rc == 0 && !rsh_pending_is_over(r->pending))
		rc = op_open_file(s, r, &f);
	mine = rsh_pending_end(r->pending);
	if (mine && rc)
		fuse_reply_err(r->req, -rc);
	else if (mine)
		op_reply_open(s, r, f);
	else if (f)
		op_close_file(s, NULL, f);
}

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct rsh_server *s = fuse_req_userdata(req);
	struct rsh_request r = {
		.server = s, .serve = serve_open, .req = req, .ino = ino,
		.fi = *fi,
	};
	int rc;

	if (rsh_control_owns(ino)) {
		rsh_control_op_open(req, ino, fi);
		return;
	}
	if (!s->passthrough.granted) {
		serve_open(&r, 0);
		return;
	}
	rc = op_begin(&r, false); /* opening may compare bytes */
	if (rc != RSH_QUEUE_LATER)
		serve_open(&r, rc);
	if (rc == 0)
		rsh_queue_end(&s->queue);
}

static void op_release(fuse_req_t req, fuse_ino_t ino,
		       struct fuse_file_info *fi)
{
	if (rsh_control_owns(ino)) {
		rsh_control_op_release(req, fi);
		return;
	}
	op_close_file(fuse_req_userdata(req), req, rsh_open_file_of(fi));
	fuse_reply_err(req, 0);
}

/* The file may be closed once the reader has an answer, so the turn holds the
 * stream. */
static void serve_read(const struct rsh_request *r, int rc)
{
	struct rsh_view view;
	ssize_t n = rc;
	bool mine;

	if (n == 0 && rsh_pending_is_over(r->pending))
		n = -EINTR;
	if (n == 0) {
		n = rsh_stream_read(r->stream, (uint64_t)r->off, r->size,
				    &view);
		rsh_log_debug("read node %llu offset %lld size %zu: %zd",
			      (unsigned long long)r->ino, (long long)r->off,
			      r->size, n);
	}
	mine = rsh_pending_end(r->pending);
	if (mine && n < 0)
		fuse_reply_err(r->req, (int)-n);
	else if (mine)
		fuse_reply_iov(r->req, view.part, view.n_parts);
	if (n >= 0)
		rsh_view_release(&view);
	rsh_stream_drop(r->stream);
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		    struct fuse_file_info *fi)
{
	struct rsh_server *s = fuse_req_userdata(req);
	struct rsh_request r = {
		.server = s, .serve = serve_read, .req = req, .ino = ino,
		.size = size, .off = off, .fi = *fi,
	};
	int rc;

	if (rsh_control_owns(ino)) {
		rsh_control_op_read(req, size, off, fi);
		return;
	}
	r.stream = rsh_open_file_of(fi)->stream;
	rsh_stream_hold(r.stream);
	/* The kernel names an owner of its locks only where a process reads,
	 * not where a page is filled. */
	rc = op_begin(&r, fi->lock_owner == 0);
	if (rc != RSH_QUEUE_LATER)
		serve_read(&r, rc);
	if (rc == 0)
		rsh_queue_end(&s->queue);
}

/* ---- writes ----
 *
 * The mount is `ro`, so the kernel itself answers EROFS; these are for a mount that
 * root has remounted `rw`. */

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"

#define REFUSE(name, ...)                                     \
	static void op_##name(fuse_req_t req, __VA_ARGS__)    \
	{                                                     \
		fuse_reply_err(req, EROFS);                   \
	}

REFUSE(setattr, fuse_ino_t ino, struct stat *attr, int to_set,
       struct fuse_file_info *fi)
REFUSE(mknod, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
REFUSE(mkdir, fuse_ino_t parent, const char *name, mode_t mode)
REFUSE(remove, fuse_ino_t parent, const char *name)
REFUSE(symlink, const char *link, fuse_ino_t parent, const char *name)
REFUSE(rename, fuse_ino_t parent, const char *name, fuse_ino_t newparent,
       const char *newname, unsigned int flags)
REFUSE(link, fuse_ino_t ino, fuse_ino_t newparent, const char *newname)
REFUSE(create, fuse_ino_t parent, const char *name, mode_t mode,
       struct fuse_file_info *fi)
REFUSE(setxattr, fuse_ino_t ino, const char *name, const char *value,
       size_t size, int flags)
REFUSE(removexattr, fuse_ino_t ino, const char *name)

#pragma GCC diagnostic pop

const struct fuse_lowlevel_ops rsh_fuse_ops = {
	.init = op_init,
	.lookup = op_lookup,
	.forget = op_forget,
	.forget_multi = op_forget_multi,
	.getattr = op_getattr,
	.readlink = op_readlink,
	.statfs = op_statfs,
	.opendir = op_opendir,
	.readdir = op_readdir,
	.readdirplus = op_readdirplus,
	.open = op_open,
	.release = op_release,
	.read = op_read,
	.setattr = op_setattr,
	.mknod = op_mknod,
	.mkdir = op_mkdir,
	.unlink = op_remove,
	.rmdir = op_remove,
	.symlink = op_symlink,
	.rename = op_rename,
	.link = op_link,
	.create = op_create,
	.getxattr = rsh_op_getxattr,
	.listxattr = rsh_op_listxattr,
	.setxattr = op_setxattr,
	.removexattr = op_removexattr,
};
