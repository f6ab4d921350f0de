/* SPDX-License-Identifier: Apache-2.0 */
/* fuse/dispatch.c serves a request at once or, if it may wait for the source,
 * when the queue allows it. */
#include "config.h"

#include "ops_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void rsh_op_queue(struct rsh_request *r, bool of_page)
{
	int rc;

	r->pending = rsh_pending_new(r->server, r->req, of_page);
	rc = r->pending ? rsh_queue_begin(&r->server->queue, r) : -ENOMEM;
	if (rc != RSH_QUEUE_LATER)
		r->serve(r, rc);
	if (rc == 0)
		rsh_queue_end(&r->server->queue);
}

void rsh_op_dispatch(struct rsh_request *r)
{
	if (rsh_vfs_has_steps(r->server->vfs))
		rsh_op_queue(r, false);
	else
		r->serve(r, 0);
}

void rsh_op_dispatch_name(struct rsh_request *r, const char *name)
{
	r->name = rsh_vfs_has_steps(r->server->vfs) ? strdup(name) : name;
	if (r->name)
		rsh_op_dispatch(r);
	else
		fuse_reply_err(r->req, ENOMEM);
}

void rsh_op_free_name(const struct rsh_request *r)
{
	if (rsh_vfs_has_steps(r->server->vfs))
		free((char *)(uintptr_t)r->name);
}
