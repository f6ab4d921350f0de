/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/inspect.h - returns the objects from which a tree was made, for commands
 * that report on the tree.  Any thread may call these functions. */
#pragma once

#include "rsh/vfs/vfs.h"

/* The tree owns all of these objects, so they are valid as long as the tree. */
struct rsh_vfs_view {
	const struct rsh_vfs *vfs; /* the tree itself */
	const struct rsh_plan *plan;
	const struct rsh_source *source;
	const struct rsh_reader *reader; /* of the plan's files */
	const struct rsh_strategy *src, *dst; /* NULL: none */
	struct rsh_names *names;
	const struct rsh_output *output; /* the form that the tree shows */
};

/* Fills *out.  Returns false if the tree is not the tree of a conversion. */
bool rsh_vfs_view(const struct rsh_vfs *v, struct rsh_vfs_view *out);

/* Sets *rank to the number of the plan's file that a node is.  Returns false,
 * and does not change *rank, if the node is a directory or a text of the output
 * (such as the index of a model's parts), or if the tree is not the tree of a
 * conversion. */
bool rsh_vfs_rank(const struct rsh_vfs *v, uint64_t node, uint32_t *rank);

/* Writes the name that a file of a conversion's plan has in the tree, without
 * its directory.  No two files have the same name. */
void rsh_vfs_file_name(const struct rsh_vfs *v, uint32_t file, char *name,
		       size_t max);

/* Gives an array (from malloc) and its length, the number of source ranks.
 * Element i is the lowest rank that holds the same slice of every parameter as
 * source rank i.  Without a strategy gives NULL and 0.  Returns 0 or
 * -ENOMEM. */
int rsh_vfs_replicas(const struct rsh_strategy *src, uint32_t **first,
		     uint32_t *n);
