/* wire/bytes.c - exact reads. */
#include "config.h"

#include "bytes_i.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

int rsh_bytes_damaged(const struct rsh_byte_source *src, uint64_t offset,
		      const char *what, struct rsh_error *err)
{
	return rsh_error_set(err, EBADMSG, "%s: damaged at offset %" PRIu64
			     ": %s", src->path, offset, what);
}

int rsh_bytes_read(const struct rsh_byte_source *src, void *buf, size_t len,
		   uint64_t offset, struct rsh_error *err)
{
	ssize_t n;

	if (offset > src->size || len > src->size - offset)
		return rsh_error_set(err, EBADMSG, "%s: truncated: %zu bytes "
				     "at offset %" PRIu64 " are missing of a "
				     "file of %" PRIu64, src->path, len,
				     offset, src->size);
	n = src->pread_fn(src->ctx, buf, len, offset);
	if (n < 0)
		return rsh_error_set(err, (int)-n, "%s: cannot read at offset %"
				     PRIu64 ": %s", src->path, offset,
				     strerror((int)-n));
	if ((size_t)n < len)
		return rsh_bytes_damaged(src, offset, "it became shorter", err);
	return 0;
}
