/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/inspect.h - what a tree was made of, for commands that report on it.  Any
 * thread may call it. */
#ifndef RSH_VFS_INSPECT_H
#define RSH_VFS_INSPECT_H

#include "rsh/vfs/vfs.h"

/* All of it is owned by the tree, which must outlive its use. */
struct rsh_vfs_view {
	const struct rsh_vfs *vfs; /* the tree itself */
	const struct rsh_plan *plan;
	const struct rsh_source *source;
	const struct rsh_reader *reader; /* of the plan's files */
	const struct rsh_strategy *src, *dst; /* NULL: none */
	struct rsh_names *names;
	const struct rsh_output *output; /* in which it is shown */
};

/* Returns false if the tree is no conversion's. */
bool rsh_vfs_view(const struct rsh_vfs *v, struct rsh_vfs_view *out);

/* Says which file of the plan a node is.  Returns false, and leaves *rank
 * alone, if it is a directory or the map of a model's parts, or if the tree is
 * no conversion's. */
bool rsh_vfs_rank(const struct rsh_vfs *v, uint64_t node, uint32_t *rank);

/* Writes the name that a file of a conversion's plan has in the tree, without
 * its directory; no two files have the same. */
void rsh_vfs_file_name(const struct rsh_vfs *v, uint32_t file, char *name,
		       size_t max);

/* Returns what a tree reads from, which is the tree's. */
const struct rsh_source *rsh_vfs_source(const struct rsh_vfs *v);

/* Gives an array by source rank: the lowest rank that holds the same slice of
 * every parameter (from malloc), and how many ranks there are; it gives NULL
 * and 0 without a strategy.  Returns 0 or -ENOMEM. */
int rsh_vfs_replicas(const struct rsh_strategy *src, uint32_t **first,
		     uint32_t *n);

#endif
