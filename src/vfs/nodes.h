/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/nodes.h - a tree of any shape: directories, and leaves that are its
 * owner's.
 *
 * Nodes are added by path and then sorted once; from then on nothing changes.
 * Node 1 is the root; a node's number is the same whenever the same paths are
 * added. */
#ifndef RSH_VFS_NODES_H
#define RSH_VFS_NODES_H

#include <stddef.h>
#include <stdint.h>

/* A node that stands for no leaf is a directory. */
#define RSH_NO_LEAF SIZE_MAX

struct rsh_node {
	char *path;    /* owned; "" the root */
	size_t name;   /* where its own name begins in it */
	size_t leaf;   /* the owner's number of it, or RSH_NO_LEAF */
	size_t parent; /* in the list; of the root itself */
	size_t first_child, n_children;
	size_t n_dirs; /* among the children */
};

struct rsh_nodes {
	struct rsh_node *list; /* by depth, then by path */
	size_t n, cap;
};

/* Adds a leaf and the directories above it.  0 or -ENOMEM. */
int rsh_nodes_add(struct rsh_nodes *t, const char *path, size_t leaf);
/* 0, or -ENOMEM, or -EEXIST when a path was added twice, or is a leaf and a
 * directory. */
int rsh_nodes_finish(struct rsh_nodes *t);
void rsh_nodes_clear(struct rsh_nodes *t);

/* The node of that number; NULL if there is none. */
const struct rsh_node *rsh_nodes_get(const struct rsh_nodes *t, uint64_t node);
/* The number of the child of that name; 0: no such child. */
uint64_t rsh_nodes_child(const struct rsh_nodes *t, const struct rsh_node *dir,
			 const char *name);
static inline uint64_t rsh_nodes_number(size_t i)
{
	return (uint64_t)i + 1;
}

#endif
