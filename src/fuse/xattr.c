/* SPDX-License-Identifier: Apache-2.0 */
/* fuse/xattr.c answers for extended attributes: it decodes, asks vfs, and
 * replies. */
#include "config.h"

#include "ops_i.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/limits.h>
#include <stdio.h>
#include <string.h>

#include "rsh/util/mem.h"
#include "rsh/vfs/attribute.h"
#include "rsh/vfs/control.h"

#define XXH3_DIGITS 16

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

static bool gave_up(void *ctx)
{
	return rsh_pending_is_over(ctx);
}

static void xattr_answer(void *ctx, int rc, uint64_t xxh3)
{
	fuse_req_t req = rsh_pending_req(ctx);
	char text[XXH3_DIGITS + 1];

	if (!rsh_pending_end(ctx))
		return;
	if (rc) {
		fuse_reply_err(req, -rc);
		return;
	}
	snprintf(text, sizeof(text), "%016" PRIx64, xxh3);
	fuse_reply_buf(req, text, XXH3_DIGITS);
}

/* Returns 0 if the node is a file of a checkpoint. */
static int xxh3_check(struct rsh_server *s, fuse_ino_t ino)
{
	struct rsh_vfs_at at;
	struct stat st;
	int rc = rsh_control_owns(ino) ? -ENODATA :
		 rsh_vfs_enter(s->vfs, ino, false, &at);

	if (rc)
		return rc;
	rc = rsh_vfs_stat(at.vfs, at.node, &st);
	rsh_vfs_leave(&at);
	return rc || !S_ISREG(st.st_mode) ? -ENODATA : 0;
}

/* The file is read only for somebody with room for the answer. */
static void serve_xxh3(const struct rsh_request *r, int rc)
{
	static const struct rsh_digest_calls calls = { gave_up, xattr_answer };
	struct rsh_pending *p = r->pending;

	rc = rc ?: xxh3_check(r->server, r->ino);
	if (rc == 0 && r->size >= XXH3_DIGITS && !p) {
		p = rsh_pending_new(r->server, r->req);
		rc = p ? 0 : -ENOMEM;
	}
	if (rc == 0 && r->size >= XXH3_DIGITS) {
		rsh_digests_ask(r->server->digests, r->ino, &calls, p);
		return;
	}
	if (rsh_op_end(r, rc))
		reply_value(r->req, NULL, XXH3_DIGITS, r->size);
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

	if (strcmp(name, RSH_ATTRIBUTE_XXH3) == 0) {
		r.serve = serve_xxh3;
		rsh_op_dispatch(&r);
	} else {
		rsh_op_dispatch_name(&r, name);
	}
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
