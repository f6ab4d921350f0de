/* SPDX-License-Identifier: Apache-2.0 */
/* fuse/passthrough.c has files that are a source file byte for byte read by the
 * kernel from that file, without a request (Linux 6.9; device.c asks
 * for it).
 *
 * The kernel wants one backing for all that have a file open at a time: the
 * list holds those in use, and none comes into it once the kernel has refused
 * one, so that a file which was opened without a backing does not get one
 * beside that.
 */
#include "config.h"

#include "ops_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rsh/util/log.h"

/* Says why files are not passed through, once a mount. */
static void say_off(const struct rsh_server *s, const char *why)
{
	rsh_log(s->io_mode == RSH_IO_PASSTHROUGH ? RSH_LOG_WARNING :
		RSH_LOG_INFO, "files are not passed through: %s", why);
}

struct rsh_backing {
	uint32_t file; /* number of the source file */
	int fd;
	int id;        /* the kernel's; 0: none */
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
	/* The kernel holds on to a descriptor, which may die with its
	 * source. */
	if (s->io_mode == RSH_IO_AUTO && rsh_vfs_backing_is_remote(s->vfs)) {
		say_off(s, "the source may go away and come back");
		return;
	}
	/* The kernel does not let a file be read through the page cache and be
	 * passed through at a time.  It stacks two file systems and no more: a
	 * mount that may stand on another one cannot have an overlay on top. */
	p->granted = s->direct_io &&
		     rsh_device_ask_passthrough(s, conn,
				rsh_vfs_backing_is_stacked(s->vfs));
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

/* Makes a backing; *refused says why the kernel has not given an id.  When this
 * returns 0 the request is claimed. */
static int new_backing(struct rsh_server *s, const struct rsh_request *r,
		       uint32_t file, struct rsh_backing **out,
		       struct rsh_error *refused)
{
	struct rsh_backing *b = calloc(1, sizeof(*b));
	int rc;

	if (!b)
		return -ENOMEM;
	b->file = file;
	b->users = 1;
	b->fd = -1;
	rc = rsh_vfs_backing_open(s->vfs, file, &b->fd);
	if (rc == 0 && !rsh_pending_claim(r->pending)) {
		close(b->fd);
		rc = -EINTR;
	}
	if (rc) {
		free(b);
		return rc;
	}
	b->id = rsh_device_backing_open(s, r->req, b->fd, refused);
	*out = b;
	return 0;
}

static int backing_make(struct rsh_server *s, const struct rsh_request *r,
			uint32_t file, struct rsh_backing **out)
{
	struct rsh_error refused = RSH_ERROR_INIT;
	struct rsh_backing *mine;
	bool first = false;
	int rc = new_backing(s, r, file, &mine, &refused);
	struct rsh_backing *b;

	/* Without descriptors the file is read as others are. */
	if (rc)
		return rc == -EMFILE ? 0 : rc;
	pthread_mutex_lock(&s->passthrough.lock);
	b = backing_find_file(&s->passthrough, mine->file);
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
	if (*out != mine)
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
	rc = rsh_vfs_backing_check(s->vfs, file, b->fd);
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

	/* The ids have gone with the connection. */
	while ((b = LIST_FIRST(&s->passthrough.list))) {
		LIST_REMOVE(b, next);
		close(b->fd);
		free(b);
	}
}
