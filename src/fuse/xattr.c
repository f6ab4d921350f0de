/* SPDX-License-Identifier: Apache-2.0 */
/* fuse/xattr.c answers for extended attributes: it decodes, asks vfs, and
 * replies. */
#include "config.h"

#include "ops_i.h"

#include <errno.h>
#include <linux/limits.h>

#include "rsh/util/mem.h"
#include "rsh/vfs/attribute.h"

/* A caller without room asks how much there is. */
static void reply_value(fuse_req_t req, const char *value, size_t n,
			size_t room)
{
	if (n > XATTR_SIZE_MAX)
		fuse_reply_err(req, E2BIG);
	else if (room == 0)
		fuse_reply_xattr(req, n);
	else if (n > room)
		fuse_reply_err(req, ERANGE);
	else
		fuse_reply_buf(req, value, n);
}

static void serve_getxattr(const struct rsh_request *r, int rc)
{
	cleanup_free char *value = NULL;
	struct rsh_vfs_at at;
	size_t n = 0;

	if (rc == 0 && !rsh_pending_is_over(r->pending)) {
		rc = rsh_vfs_enter(r->server->vfs, r->ino, false, &at);
		if (rc == 0) {
			rc = rsh_vfs_attribute(at.vfs, at.node, r->name,
					       &value, &n);
			rsh_vfs_leave(&at);
		}
	}
	rsh_op_free_name(r);
	if (rsh_op_end(r, rc))
		reply_value(r->req, value, n, r->size);
}

void rsh_op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name,
		     size_t room)
{
	struct rsh_request r = {
		.serve = serve_getxattr, .req = req, .ino = ino, .size = room,
	};

	rsh_op_dispatch_name(&r, name);
}

static void serve_listxattr(const struct rsh_request *r, int rc)
{
	char names[RSH_ATTRIBUTE_NAMES_MAX];
	struct rsh_vfs_at at;
	size_t n = 0;

	rc = rc ?: rsh_vfs_enter(r->server->vfs, r->ino, false, &at);
	if (rc == 0) {
		n = rsh_vfs_attribute_names(at.vfs, at.node, names);
		rsh_vfs_leave(&at);
	}
	if (rsh_op_end(r, rc))
		reply_value(r->req, names, n, r->size);
}

void rsh_op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t room)
{
	rsh_op_dispatch(&(struct rsh_request){
		.serve = serve_listxattr, .req = req, .ino = ino, .size = room,
	});
}
