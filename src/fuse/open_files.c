/* SPDX-License-Identifier: Apache-2.0 */
/* fuse/open_files.c lists the files that are open.  It opens, reads and closes
 * what a mount tells about itself: a reader gets what the file said when it was
 * opened. */
#include "config.h"

#include "ops_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/mem.h"
#include "rsh/util/thread.h"
#include "rsh/vfs/control.h"

struct rsh_open_file *rsh_open_file_new(struct rsh_open_files *all)
{
	struct rsh_open_file *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	rsh_hold_lock(&all->lock);
	LIST_INSERT_HEAD(&all->list, f, next);
	return f;
}

struct rsh_open_file *rsh_open_file_of(const struct fuse_file_info *fi)
{
	return (struct rsh_open_file *)(uintptr_t)fi->fh;
}

static void open_file_discard(struct rsh_open_file *f)
{
	LIST_REMOVE(f, next);
	free(f->text);
	free(f);
}

void rsh_open_file_free(struct rsh_open_files *all, struct rsh_open_file *f)
{
	if (!f)
		return;
	rsh_hold_lock(&all->lock);
	open_file_discard(f);
}

void rsh_open_files_clear(struct rsh_open_files *all)
{
	struct rsh_open_file *f;

	while ((f = LIST_FIRST(&all->list)))
		open_file_discard(f);
}

/* ---- the files of the control directory ---- */

void rsh_control_op_open(fuse_req_t req, fuse_ino_t ino,
			 struct fuse_file_info *fi)
{
	struct rsh_server *s = fuse_req_userdata(req);
	struct rsh_open_file *f;
	int rc;

	if ((fi->flags & O_ACCMODE) != O_RDONLY || (fi->flags & O_TRUNC)) {
		fuse_reply_err(req, EROFS);
		return;
	}
	f = rsh_open_file_new(&s->files);
	rc = f ? rsh_control_make(s->vfs, ino, &f->text) : -ENOMEM;
	if (rc) {
		rsh_open_file_free(&s->files, f);
		fuse_reply_err(req, -rc);
		return;
	}
	fi->fh = (uintptr_t)f;
	fi->direct_io = 1; /* its size is not known before */
	/* This fails when the caller was interrupted: there is no file then. */
	if (fuse_reply_open(req, fi))
		rsh_open_file_free(&s->files, f);
}

/* Sends a copy: once the reader has its bytes, the file may be closed by
 * another thread before this one is back from the kernel. */
void rsh_control_op_read(fuse_req_t req, size_t size, off_t off,
			 struct fuse_file_info *fi)
{
	const char *text = rsh_open_file_of(fi)->text;
	size_t all = strlen(text), at = (uint64_t)off < all ? (size_t)off : all;
	size_t n = size < all - at ? size : all - at;
	cleanup_free char *copy = malloc(n ? n : 1);

	if (copy)
		fuse_reply_buf(req, memcpy(copy, text + at, n), n);
	else
		fuse_reply_err(req, ENOMEM);
}

void rsh_control_op_release(fuse_req_t req, struct fuse_file_info *fi)
{
	struct rsh_server *s = fuse_req_userdata(req);

	rsh_open_file_free(&s->files, rsh_open_file_of(fi));
	fuse_reply_err(req, 0);
}
