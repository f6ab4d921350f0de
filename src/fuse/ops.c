/* SPDX-License-Identifier: Apache-2.0 */
/* fuse/ops.c has one handler a request: it decodes, asks vfs, and replies.
 *
 * Threads: handlers run in the workers of loop.c, several at a time, those that
 * may wait for the source when it is their turn (request_queue.c); all they
 * touch is the request and trees, which are immutable (vfs/steps.h).
 */
#include "config.h"

#include "ops_i.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/vfs/control.h"

/* Nothing in the tree of a step ever changes, so the kernel may keep what it
 * was told. */
#define CACHE_SECONDS (24 * 3600.0)

/* Larger requests gain nothing, and most kernels give no more by default. */
#define READAHEAD_BYTES (1024 * 1024)

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
	/* Numbers of nodes are those of the plan, so a server of NFS finds them
	 * again.  Those of steps that come and go are not. */
	if (!rsh_vfs_has_steps(s->vfs))
		conn->want |= conn->capable & FUSE_CAP_EXPORT_SUPPORT;
	rsh_passthrough_init(s, conn);
	s->events.ready(s->events.ctx);
}

/* ---- names and attributes ---- */

static double op_seconds(const struct rsh_vfs_at *at)
{
	return at->lasting ? CACHE_SECONDS : 0;
}

/* Fills the properties of a node of the tree, with numbers of the mount. */
static int op_stat(const struct rsh_server *s, const struct rsh_vfs_at *at,
		   uint64_t node, struct stat *st)
{
	const bool control = rsh_control_owns(node);
	int rc = rsh_vfs_stat(control ? s->vfs : at->vfs, node, st);

	st->st_ino += at->base;
	/* How many directories a step has is known when it is planned: 1 means
	 * that the number is unknown. */
	if (rc == 0 && !at->lasting && !control && node != RSH_VFS_ROOT &&
	    S_ISDIR(st->st_mode))
		st->st_nlink = 1;
	return rc;
}

static void op_fill_entry(const struct rsh_server *s,
			  const struct rsh_vfs_at *at, uint64_t node,
			  struct fuse_entry_param *e)
{
	*e = (struct fuse_entry_param){
		.ino = node + at->base,
		.attr_timeout = op_seconds(at),
		.entry_timeout = op_seconds(at),
	};
	op_stat(s, at, node, &e->attr);
	/* In another mount at this place the number may be that of another
	 * file, which an old handle of an NFS client must not find. */
	if (!rsh_vfs_has_steps(s->vfs))
		e->generation = (uint64_t)e->attr.st_ctim.tv_nsec << 1 | 1;
}

/* Sets the number of a node to 0 if there is no such name. */
static int op_find_in(struct rsh_server *s, fuse_ino_t parent, const char *name,
		      struct fuse_entry_param *e)
{
	struct rsh_vfs_at at;
	uint64_t node;
	int rc = rsh_vfs_enter(s->vfs, parent, true, &at);

	if (rc)
		return rc;
	node = rsh_vfs_lookup(at.vfs, at.node, name);
	if (node == (uint64_t)-1)
		rc = -ENOTDIR;
	else if (node == 0)
		*e = (struct fuse_entry_param){ .entry_timeout =
						op_seconds(&at) };
	else
		op_fill_entry(s, &at, node, e);
	rsh_vfs_leave(&at);
	return rc;
}

/* A name that is not in the root of several steps may be that of a step which
 * has just been saved.  Programs often look for hidden names. */
static int op_find(struct rsh_server *s, fuse_ino_t parent, const char *name,
		   struct fuse_entry_param *e)
{
	int rc = op_find_in(s, parent, name, e);

	if (rc || e->ino || parent != RSH_VFS_ROOT || *name == '.' ||
	    !rsh_vfs_has_steps(s->vfs))
		return rc;
	rsh_steps_look_anew(s->vfs);
	return op_find_in(s, parent, name, e);
}

static void serve_lookup(const struct rsh_request *r, int rc)
{
	struct fuse_entry_param e = { .ino = 0 };

	if (rc == 0 && !rsh_pending_is_over(r->pending))
		rc = op_find(r->server, r->ino, r->name, &e);
	rsh_op_free_name(r);
	/* A node number of 0 lets the kernel remember that there is no such
	 * name. */
	if (rc == 0 && e.ino == 0 && e.entry_timeout <= 0)
		rc = -ENOENT;
	if (rsh_op_end(r, rc))
		fuse_reply_entry(r->req, &e);
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	rsh_op_dispatch_name(&(struct rsh_request){
		.serve = serve_lookup, .req = req, .ino = parent,
	}, name);
}

static void serve_getattr(const struct rsh_request *r, int rc)
{
	double seconds = 0;
	struct rsh_vfs_at at;
	struct stat st;

	rc = rc ?: rsh_vfs_enter(r->server->vfs, r->ino, false, &at);
	if (rc == 0) {
		rc = op_stat(r->server, &at, at.node, &st);
		seconds = op_seconds(&at);
		rsh_vfs_leave(&at);
	}
	if (rsh_op_end(r, rc))
		fuse_reply_attr(r->req, &st, seconds);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino,
		       struct fuse_file_info *fi)
{
	(void)fi;
	rsh_op_dispatch(&(struct rsh_request){
		.serve = serve_getattr, .req = req, .ino = ino,
	});
}

static void serve_readlink(const struct rsh_request *r, int rc)
{
	const char *target = NULL;
	struct rsh_vfs_at at = { .users = NULL };

	rc = rc ?: rsh_vfs_enter(r->server->vfs, r->ino, false, &at);
	if (rc == 0)
		target = rsh_vfs_link(at.vfs, at.node);
	/* `latest` is gone while no step is shown.  The kernel looks up the
	 * name again. */
	if (rc == 0 && !target)
		rc = -ESTALE;
	if (rsh_op_end(r, rc))
		fuse_reply_readlink(r->req, target);
	rsh_vfs_leave(&at);
}

static void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
	rsh_op_dispatch(&(struct rsh_request){
		.serve = serve_readlink, .req = req, .ino = ino,
	});
}

static void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
	const struct rsh_server *s = fuse_req_userdata(req);
	struct statvfs out;

	(void)ino;
	rsh_vfs_statfs(s->vfs, &out);
	fuse_reply_statfs(req, &out);
}

/* ---- directories ----
 *
 * With several steps an open directory keeps its tree. */

/* Returns 0 or -errno; *out is NULL for a tree that never ends. */
static int op_open_dir(struct rsh_server *s, fuse_ino_t ino,
		       struct rsh_vfs_at *at, struct rsh_open_file **out)
{
	struct stat st;
	int rc = rsh_vfs_enter(s->vfs, ino, true, at);

	*out = NULL;
	if (rc)
		return rc;
	rc = op_stat(s, at, at->node, &st);
	if (rc == 0 && !S_ISDIR(st.st_mode))
		rc = -ENOTDIR;
	if (rc == 0 && at->users) {
		*out = rsh_open_file_new(&s->files);
		rc = *out ? 0 : -ENOMEM;
	}
	if (rc)
		rsh_vfs_leave(at);
	else if (*out)
		(*out)->at = *at;
	return rc;
}

static void op_close_dir(struct rsh_server *s, struct rsh_open_file *f)
{
	if (f)
		rsh_vfs_leave(&f->at);
	rsh_open_file_free(&s->files, f);
}

static void serve_opendir(const struct rsh_request *r, int rc)
{
	struct rsh_server *s = r->server;
	struct fuse_file_info fi = r->fi;
	struct rsh_open_file *f = NULL;
	struct rsh_vfs_at at;
	bool mine;

	if (rc == 0 && !rsh_pending_is_over(r->pending))
		rc = op_open_dir(s, r->ino, &at, &f);
	else if (rc == 0)
		rc = -EINTR;
	mine = rsh_op_end(r, rc);
	if (rc)
		return;
#ifdef HAVE_STRUCT_FUSE_FILE_INFO_CACHE_READDIR
	fi.cache_readdir = at.lasting;
#endif
	fi.keep_cache = at.lasting;
	fi.fh = (uintptr_t)f;
	if (!mine || fuse_reply_open(r->req, &fi))
		op_close_dir(s, f);
}

static void op_opendir(fuse_req_t req, fuse_ino_t ino,
		       struct fuse_file_info *fi)
{
	rsh_op_dispatch(&(struct rsh_request){
		.serve = serve_opendir, .req = req, .ino = ino, .fi = *fi,
	});
}

static void op_releasedir(fuse_req_t req, fuse_ino_t ino,
			  struct fuse_file_info *fi)
{
	(void)ino;
	op_close_dir(fuse_req_userdata(req), rsh_open_file_of(fi));
	fuse_reply_err(req, 0);
}

static void op_list_dir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
			const struct fuse_file_info *fi, bool plus)
{
	const struct rsh_server *s = fuse_req_userdata(req);
	const struct rsh_open_file *f = rsh_open_file_of(fi);
	const struct rsh_vfs_at at = f ? f->at : (struct rsh_vfs_at){
		.vfs = s->vfs, .node = ino, .lasting = true,
	};
	cleanup_free char *buf = malloc(size ? size : 1);
	struct fuse_entry_param e;
	char name[NAME_MAX + 1];
	uint64_t child, i = (uint64_t)off;
	size_t pos = 0, n;
	int rc;

	if (!buf) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	for (;; i++) {
		rc = rsh_vfs_entry(at.vfs, at.node, i, &child, name,
				   sizeof(name));
		if (rc)
			break;
		op_fill_entry(s, &at, child, &e);
		n = plus ? fuse_add_direntry_plus(req, buf + pos, size - pos,
						  name, &e, (off_t)i + 1) :
			   fuse_add_direntry(req, buf + pos, size - pos, name,
					     &e.attr, (off_t)i + 1);
		if (n > size - pos)
			break;
		pos += n;
	}
	if (rc && rc != -ENOENT)
		fuse_reply_err(req, -rc);
	else
		fuse_reply_buf(req, buf, pos);
}

static void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		       struct fuse_file_info *fi)
{
	op_list_dir(req, ino, size, off, fi, false);
}

static void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size,
			   off_t off, struct fuse_file_info *fi)
{
	op_list_dir(req, ino, size, off, fi, true);
}

/* ---- files ---- */

/* ---- files that programs map ----
 *
 * When a program maps a file that was opened with direct I/O, the kernel drops
 * all pages of the file, also those that others have mapped: workers that map a
 * model one after the other would each read it again.  So a file is opened
 * through the page cache once a page of it was read.  A file that is not mapped
 * is read faster without. */

/* Only reads past the page cache say who reads. */
static bool mapped_is_page(const struct rsh_request *r)
{
	return r->fi.lock_owner == 0;
}

static _Atomic uint64_t *mapped_word(struct rsh_server *s, fuse_ino_t ino,
				     uint64_t *bit)
{
	const uint64_t at = ino % RSH_MAPPED_BITS;

	*bit = UINT64_C(1) << at % 64;
	return &s->mapped.bits[at / 64];
}

static bool mapped_has(struct rsh_server *s, fuse_ino_t ino)
{
	uint64_t bit;

	return atomic_load(mapped_word(s, ino, &bit)) & bit;
}

/* The kernel refuses the page cache for a file that it passes through, and it
 * may do so at the next open, so such a file stays as it is. */
static void mapped_add(struct rsh_server *s, fuse_ino_t ino)
{
	uint64_t bit;
	_Atomic uint64_t *word = mapped_word(s, ino, &bit);
	uint32_t file;

	if (!s->direct_io || s->io_mode == RSH_IO_DIRECT ||
	    (atomic_load(word) & bit) ||
	    (s->passthrough.granted &&
	     rsh_vfs_backing(s->vfs, ino, &file) != -ENODATA))
		return;
	atomic_fetch_or(word, bit);
	if (!atomic_exchange(&s->mapped.any, true))
		s->events.mapped(s->events.ctx);
}

/* ---- open, read, release ---- */

/* Closes what the file has; `req` is as in rsh_passthrough_close(). */
static void op_close_file(struct rsh_server *s, fuse_req_t req,
			  struct rsh_open_file *f)
{
	if (f->backing)
		rsh_passthrough_close(s, req, f->backing);
	rsh_stream_close(f->stream);
	rsh_open_file_free(&s->files, f);
}

/* Returns 0 or -errno.  The tree is used until no thread reads the stream. */
static int op_open_file(struct rsh_server *s, const struct rsh_request *r,
			struct rsh_open_file **out)
{
	struct rsh_open_file *f = rsh_open_file_new(&s->files);
	const int flags = r->fi.flags;
	struct rsh_vfs_at at;
	int rc;

	if (!f)
		return -ENOMEM;
	rc = rsh_vfs_enter(s->vfs, r->ino, true, &at);
	if (rc == 0) {
		rc = rsh_vfs_open_stream(at.vfs, at.node, s->streams,
					 &f->stream);
		if (rc)
			rsh_vfs_leave(&at);
		else if (at.users)
			rsh_stream_tell_end(f->stream, rsh_vfs_leave_users,
					    at.users);
	}
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

static void serve_open(const struct rsh_request *r, int rc)
{
	struct rsh_server *s = r->server;
	struct fuse_file_info fi = r->fi;
	struct rsh_open_file *f = NULL;
	bool mine;

	if (rc == 0 && !rsh_pending_is_over(r->pending))
		rc = op_open_file(s, r, &f);
	mine = rsh_op_end(r, rc);
	if (!mine && f)
		op_close_file(s, NULL, f);
	if (!mine || !f)
		return;
	fi.fh = (uintptr_t)f;
	if (f->backing) {
		rsh_passthrough_fill(f->backing, &fi);
	} else {
		fi.keep_cache = 1;
		fi.direct_io = s->direct_io && !mapped_has(s, r->ino);
	}
	rsh_log_debug("open node %llu%s", (unsigned long long)r->ino,
		      f->backing ? ", passed through" : "");
	/* This fails when the caller was interrupted: there is no file then. */
	if (fuse_reply_open(r->req, &fi))
		op_close_file(s, NULL, f);
}

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct rsh_server *s = fuse_req_userdata(req);
	struct rsh_request r = {
		.serve = serve_open, .req = req, .ino = ino, .fi = *fi,
	};

	if (rsh_control_owns(ino))
		rsh_control_op_open(req, ino, fi);
	else if (s->passthrough.granted)
		rsh_op_queue(&r); /* opening may compare bytes */
	else
		rsh_op_dispatch(&r);
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
		if (mapped_is_page(r))
			mapped_add(r->server, r->ino);
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
	struct rsh_request r = {
		.serve = serve_read, .req = req, .ino = ino, .size = size,
		.off = off, .fi = *fi,
	};

	if (rsh_control_owns(ino)) {
		rsh_control_op_read(req, size, off, fi);
		return;
	}
	r.stream = rsh_open_file_of(fi)->stream;
	rsh_stream_hold(r.stream);
	rsh_op_queue(&r);
}

/* ---- writes ----
 *
 * The mount is `ro`, so the kernel itself answers EROFS; these are for a mount
 * that root has remounted `rw`. */

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
	.getattr = op_getattr,
	.readlink = op_readlink,
	.statfs = op_statfs,
	.opendir = op_opendir,
	.readdir = op_readdir,
	.readdirplus = op_readdirplus,
	.releasedir = op_releasedir,
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
