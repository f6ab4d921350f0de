/* vfs/inspect.c - see inspect.h. */
#include "config.h"

#include "rsh/vfs/inspect.h"

#include "vfs_i.h"

bool rsh_vfs_view(const struct rsh_vfs *vfs, struct rsh_vfs_view *out)
{
	const struct rsh_reshard *v = rsh_reshard_of(vfs);

	if (vfs->ops != &rsh_reshard_ops)
		return false;
	*out = (struct rsh_vfs_view){
		.conversion = v->conversion,
		.source = v->source,
		.src = v->src,
		.dst = v->dst,
		.names = v->names,
	};
	return true;
}

bool rsh_vfs_rank(const struct rsh_vfs *vfs, uint64_t node, uint32_t *rank)
{
	uint32_t n;

	if (vfs->ops != &rsh_reshard_ops ||
	    rsh_node_decode(rsh_reshard_of(vfs), node, &n) != RSH_NODE_FILE)
		return false;
	*rank = n;
	return true;
}
