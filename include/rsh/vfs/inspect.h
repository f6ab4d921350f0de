/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/inspect.h - what a tree was made of, for those who report on it. */
#ifndef RSH_VFS_INSPECT_H
#define RSH_VFS_INSPECT_H

#include "rsh/vfs/vfs.h"

/* Owned by the tree, which must outlive their use. */
struct rsh_vfs_view {
	const struct rsh_plan *plan;
	const struct rsh_source *source;
	const struct rsh_strategy *src, *dst; /* NULL: none */
	struct rsh_names *names;
};

/* False if the tree is no conversion's. */
bool rsh_vfs_view(const struct rsh_vfs *v, struct rsh_vfs_view *out);

/* Which file of the conversion a node is; false, and *rank is left alone, if it
 * is a directory or the map of a model's parts. */
bool rsh_vfs_rank(const struct rsh_vfs *v, uint64_t node, uint32_t *rank);

/* What a tree reads from. */
const struct rsh_source *rsh_vfs_source(const struct rsh_vfs *v);

/* [source rank]: the lowest rank that holds the same slice of every parameter
 * (from malloc), and how many ranks there are; NULL and 0 without a strategy.
 * 0 or -ENOMEM. */
int rsh_vfs_replicas(const struct rsh_strategy *src, uint32_t **first,
		     uint32_t *n);

#endif
