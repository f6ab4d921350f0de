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

/* The file is read only for somebody with room for the answer. */
static void get_xxh3(fuse_req_t req, fuse_ino_t ino, size_t room)
{
	static const struct rsh_digest_calls calls = { gave_up, xattr_answer };
	struct rsh_server *s = fuse_req_userdata(req);
	struct rsh_pending *p;
	struct stat st;

	if (rsh_control_owns(ino) || rsh_vfs_stat(s->vfs, ino, &st) ||
	    !S_ISREG(st.st_mode))
		fuse_reply_err(req, ENODATA);
	else if (room < XXH3_DIGITS)
		reply_value(req, NULL, XXH3_DIGITS, room);
	else if ((p = rsh_pending_new(s, req, false)))
		rsh_digests_ask(s->digests, ino, &calls, p);
	else
		fuse_reply_err(req, ENOMEM);
}

void rsh_op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name,
		     size_t room)
{
	const struct rsh_server *s = fuse_req_userdata(req);
	cleanup_free char *value = NULL;
	size_t n;
	int rc;

	if (strcmp(name, RSH_ATTRIBUTE_XXH3) == 0) {
		get_xxh3(req, ino, room);
		return;
	}
	rc = rsh_vfs_attribute(s->vfs, ino, name, &value, &n);
	if (rc)
		fuse_reply_err(req, -rc);
	else
		reply_value(req, value, n, room);
}

void rsh_op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t room)
{
	const struct rsh_server *s = fuse_req_userdata(req);
	char names[RSH_ATTRIBUTE_NAMES_MAX];

	reply_value(req, names, rsh_vfs_attribute_names(s->vfs, ino, names),
		    room);
}
