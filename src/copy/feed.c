/* SPDX-License-Identifier: Apache-2.0 */
/* copy/feed.c feeds the bytes of files, virtual and real, from front to
 * back. */
#include "config.h"

#include "copy_i.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "rsh/util/checked.h"
#include "rsh/util/mem.h"

bool rsh_copy_stopped(const struct rsh_copy_control *c)
{
	return c->stop && atomic_load(c->stop);
}

static int pass_on(const struct rsh_copy_control *c, rsh_copy_sink *sink,
		   void *ctx, const uint8_t *data, size_t len, uint64_t offset)
{
	int rc = sink(ctx, data, len, offset);

	if (rc == 0 && c->progress)
		c->progress(c->ctx, len);
	return rc;
}

int rsh_copy_feed_virtual(const struct rsh_vfs *vfs,
			  struct rsh_streams *streams,
			  const struct rsh_copy_file *f,
			  const struct rsh_copy_control *c,
			  rsh_copy_sink *sink, void *ctx)
{
	struct rsh_stream *stream;
	int rc = rsh_vfs_open_stream(vfs, f->node, streams, &stream);
	uint64_t at = 0;

	if (rc)
		return rc;
	while (rc == 0 && at < f->size) {
		struct rsh_view view;
		ssize_t n = rsh_copy_stopped(c) ? -EINTR :
			rsh_stream_read(stream, at, RSH_STREAM_MAX, &view);
		uint64_t offset;

		if (n <= 0) {
			rc = n ? (int)n : -EIO;
			break;
		}
		offset = at;
		rc = 0;
		for (int i = 0; i < view.n_parts && rc == 0; i++) {
			rc = pass_on(c, sink, ctx, view.part[i].iov_base,
				     view.part[i].iov_len, offset);
			offset += view.part[i].iov_len;
		}
		rsh_view_release(&view);
		at += (uint64_t)n;
	}
	rsh_stream_close(stream);
	return rc;
}

int rsh_copy_feed_real(const struct rsh_byte_source *file,
		       const struct rsh_copy_control *c, rsh_copy_sink *sink,
		       void *ctx)
{
	cleanup_free uint8_t *buf = malloc(RSH_STREAM_MAX);
	uint64_t at = 0;
	int rc = buf ? 0 : -ENOMEM;

	while (rc == 0 && at < file->size) {
		ssize_t n;

		if (rsh_copy_stopped(c))
			return -EINTR;
		n = file->pread_fn(file->ctx, buf, (size_t)rsh_min_u64(
				   RSH_STREAM_MAX, file->size - at), at);
		if (n <= 0)
			return n ? (int)n : -EIO;
		rc = pass_on(c, sink, ctx, buf, (size_t)n, at);
		at += (uint64_t)n;
	}
	return rc;
}
