/* vfs/read.c - bytes of a virtual file. */
#include "config.h"

#include "vfs_i.h"

#include <errno.h>
#include <limits.h>

ssize_t rsh_vfs_read(const struct rsh_vfs *v, uint64_t node, void *buf,
		     size_t len, uint64_t offset)
{
	struct rsh_piece_iter *it;
	uint64_t size;
	uint32_t rank;
	int rc;

	switch (rsh_node_decode(v, node, &rank)) {
	case RSH_NODE_FILE:
		break;
	case RSH_NODE_ROOT:
	case RSH_NODE_DIR:
		return -EISDIR;
	case RSH_NODE_NONE:
		return -ENOENT;
	}
	size = rsh_conversion_size(v->conversion, rank);
	if (offset >= size)
		return 0;
	if (len > size - offset)
		len = (size_t)(size - offset);
	if (len > SSIZE_MAX)
		len = SSIZE_MAX;

	it = rsh_piece_iter_new(v->conversion, rank, offset, len);
	if (!it)
		return -ENOMEM;
	rc = rsh_source_gather(v->source, it, buf, len);
	rsh_piece_iter_free(it);
	return rc ? rc : (ssize_t)len;
}
