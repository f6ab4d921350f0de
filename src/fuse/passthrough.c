/* SPDX-License-Identifier: Apache-2.0 */
/* fuse/passthrough.c: the kernel reads a file that is a source file byte for
 * byte from the source file, without a request (Linux 6.9; device.c requests
 * it).
 *
 * All users that have a file open at a time must have the same backing.  The
 * list has the backings in use.  After the kernel has refused a backing none is
 * added to the list, so that a file that was opened without a backing does not
 * get one while it is open.
 */
#include "config.h"

#include "ops_i.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "rsh/util/log.h"

/* Logs why files are not passed through, once for a mount. */
static void say_off(const struct rsh_server *s, const char *why)
{
	rsh_log(s->io_mode == RSH_IO_PASSTHROUGH ? RSH_LOG_WARNING :
		RSH_LOG_INFO, "files are not passed through: %s", why);
}

struct rsh_backing {
	uint32_t file; /* number of the source file */
	int fd;
	int id;        /* the kernel's id; 0: none */
	unsigned users;
	LIST_ENTRY(rsh_backing) next;
};

void rsh_passthrough_fill(const struct rsh_backing *b,
			  struct fuse_file_info *fi)
{
	rsh_device_reply_backing(fi, b->id);
}

void rsh_passthrough_init(struct rsh_server *s, struct fuse_conn_info *conn)
{
	struct rsh_passthrough *p = &s->passthrough;

	if (s->io_mode != RSH_IO_AUTO && s->io_mode != RSH_IO_PASSTHROUGH)
		return;
	/* A job may overwrite a step in place, which only our reads notice.
	 * Source files of different steps have the same numbers, too. */
	if (rsh_vfs_has_steps(s->vfs)) {
		say_off(s, "the mount shows several steps");
		return;
	}
	/* The kernel keeps a descriptor, which may stop working if the source
	 * does. */
	if (s->io_mode == RSH_IO_AUTO &&
	    rsh_store_is_remote(rsh_vfs_store(s->vfs))) {
		say_off(s, "the source may go away and come back");
		return;
	}
	/* The kernel does not allow a file to be read through the page cache
	 * and by passthrough at a time.  It supports a stack of two file
	 * systems: a mount whose source may be on a stacked one cannot have an
	 * overlay on top. */
	p->granted = s->direct_io &&
		     rsh_device_ask_passthrough(s, conn,
				rsh_store_is_stacked(rsh_vfs_store(s->vfs)));
	if (!p->granted)
		say_off(s, "the kernel does not offer it");
}

/* ---- the list; lock held ---- */

static struct rsh_backing *backing_find_file(struct rsh_passthrough *p,
					     uint32_t file)
{
	struct rsh_backing *b;

	LIST_FOREACH(b, &p->list, next)
		if (b->file == file)
			return b;
	return NULL;
}

/* ---- backings ---- */

static void backing_discard(struct rsh_server *s, fuse_req_t req,
			    struct rsh_backing *b)
{
	if (b->id)
		rsh_device_backing_close(s, req, b->id);
	if (b->fd >= 0)
		close(b->fd);
	free(b);
}

/* Makes a backing.  If the kernel gives no id, the reason is logged once.  When
 * this returns 0 with *out the request is claimed. */
static int backing_make(struct rsh_server *s, const struct rsh_request *r,
			uint32_t file, struct rsh_backing **out)
{
	struct rsh_error refused = RSH_ERROR_INIT;
	struct rsh_backing *mine = calloc(1, sizeof(*mine)), *b;
	bool first = false;
	int rc;

	if (!mine)
		return -ENOMEM;
	mine->file = file;
	mine->users = 1;
	mine->fd = -1;
	rc = rsh_store_descriptor(rsh_vfs_store(s->vfs), file, &mine->fd);
	if (rc == 0 && !rsh_pending_claim(r->pending)) {
		close(mine->fd);
		rc = -EINTR;
	}
	/* If the process has no more descriptors the file is read without
	 * passthrough. */
	if (rc) {
		free(mine);
		return rc == -EMFILE ? 0 : rc;
	}
	mine->id = rsh_device_backing_open(s, r->req, mine->fd, &refused);
	pthread_mutex_lock(&s->passthrough.lock);
	b = backing_find_file(&s->passthrough, file);
	if (b) {
		b->users++;
	} else if (mine->id == 0 || s->passthrough.refused) {
		first = !s->passthrough.refused;
		s->passthrough.refused = true;
	} else {
		LIST_INSERT_HEAD(&s->passthrough.list, mine, next);
		b = mine;
	}
	pthread_mutex_unlock(&s->passthrough.lock);
	*out = b;
	if (b != mine)
		backing_discard(s, r->req, mine);
	if (first)
		say_off(s, refused.text);
	return 0;
}

int rsh_passthrough_open(struct rsh_server *s, const struct rsh_request *r,
			 struct rsh_backing **out)
{
	struct rsh_passthrough *p = &s->passthrough;
	struct rsh_backing *b;
	uint32_t file;
	bool refused;
	int rc;

	*out = NULL;
	if (!p->granted)
		return 0;
	rc = rsh_vfs_backing(s->vfs, r->ino, &file);
	if (rc)
		return rc == -ENODATA ? 0 : rc;
	pthread_mutex_lock(&p->lock);
	b = backing_find_file(p, file);
	if (b)
		b->users++;
	refused = p->refused;
	pthread_mutex_unlock(&p->lock);
	if (!b)
		return refused ? 0 : backing_make(s, r, file, out);
	rc = rsh_store_check(rsh_vfs_store(s->vfs), file, b->fd);
	if (rc)
		rsh_passthrough_close(s, rsh_pending_claim(r->pending) ?
				      r->req : NULL, b);
	else
		*out = b;
	return rc;
}

void rsh_passthrough_close(struct rsh_server *s, fuse_req_t req,
			   struct rsh_backing *b)
{
	struct rsh_passthrough *p = &s->passthrough;
	bool last;

	pthread_mutex_lock(&p->lock);
	last = --b->users == 0 && req;
	if (last)
		LIST_REMOVE(b, next);
	pthread_mutex_unlock(&p->lock);
	if (last)
		backing_discard(s, req, b);
}

void rsh_passthrough_free(struct rsh_server *s)
{
	struct rsh_backing *b;

	/* The kernel closed the ids with the connection. */
	while ((b = LIST_FIRST(&s->passthrough.list))) {
		LIST_REMOVE(b, next);
		close(b->fd);
		free(b);
	}
}
