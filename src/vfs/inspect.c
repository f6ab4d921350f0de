/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/inspect.c returns the objects from which a tree was made: its conversion
 * and its source.  It also finds the source ranks that hold the same slices. */
#include "config.h"

#include "rsh/vfs/inspect.h"

#include <errno.h>
#include <stdlib.h>

#include "rsh/util/mem.h"
#include "vfs_i.h"

bool rsh_vfs_view(const struct rsh_vfs *vfs, struct rsh_vfs_view *out)
{
	const struct rsh_reshard *v = rsh_reshard_of(vfs);

	if (vfs->ops != &rsh_reshard_ops)
		return false;
	*out = (struct rsh_vfs_view){
		.vfs = vfs,
		.plan = v->plan,
		.source = v->source,
		.reader = v->reader,
		.src = v->src,
		.dst = v->dst,
		.names = v->names,
		.output = v->output,
	};
	return true;
}

bool rsh_vfs_rank(const struct rsh_vfs *vfs, uint64_t node, uint32_t *rank)
{
	struct rsh_node found;

	if (vfs->ops != &rsh_reshard_ops ||
	    !rsh_tree_node(&vfs->tree, node, &found) ||
	    found.kind != RSH_NODE_FILE ||
	    found.leaf >= rsh_reshard_of(vfs)->n_files)
		return false;
	*rank = found.leaf;
	return true;
}

void rsh_vfs_file_name(const struct rsh_vfs *v, uint32_t file, char *name,
		       size_t max)
{
	rsh_output_file_name(&v->tree, file, name, max);
}

const struct rsh_source *rsh_vfs_source(const struct rsh_vfs *v)
{
	return v->ops->source(v);
}

