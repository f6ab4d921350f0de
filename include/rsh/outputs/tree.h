/* SPDX-License-Identifier: Apache-2.0 */
/* outputs/tree.h has a tree of virtual nodes, which are directories, files and
 * links, found by number and by name.
 *
 * What is stored is not nodes but rows of them: nodes that follow each other in
 * a directory, or of which one stands in each of many directories.  The names
 * of a row are a list, or are counted, and so are the numbers: a job of any
 * size has two rows,
 *
 *   rank_0   rank_1   rank_2  ..   nodes 2, 4, 6 ..  in the root, which is 1
 *   f0.ckpt  f1.ckpt  f2.ckpt ..   nodes 3, 5, 7 ..  in 2, 4, 6 ..
 *
 * and a tree of files that others have named has a row a directory.  What a
 * file or a link is, only the tree's owner knows, who numbers them as leaves.
 *
 * A tree is built once and never changes afterwards: then any thread may look
 * at it. */
#ifndef RSH_OUTPUTS_TREE_H
#define RSH_OUTPUTS_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "rsh/util/arena.h"

/* A directory has no leaf, and this number in place of one. */
#define RSH_NO_LEAF UINT32_MAX

enum rsh_node_kind { RSH_NODE_DIR, RSH_NODE_FILE, RSH_NODE_LINK };

struct rsh_item {
	const char *name;
	enum rsh_node_kind kind;
	uint32_t leaf;
};

struct rsh_row {
	uint32_t n;
	uint64_t first, step; /* node i has the number first + i * step */
	/* If `apart` is 0 all nodes are in `parent`, or else node i by itself
	 * in the directory parent + i * apart. */
	uint64_t parent, apart;
	/* These are the n nodes.  If it is NULL, the name of node i is
	 * `before`, then from + i with at least so many digits, then `after`;
	 * node i is a directory or a leaf. */
	const struct rsh_item *items;
	const char *before, *after;
	uint32_t from;
	int digits;
	enum rsh_node_kind kind;
	uint32_t leaf;
	uint32_t leaf_step; /* a leaf is leaf + i * leaf_step; 0 is 1 */
};

/* A tree that is all zero has no node. */
struct rsh_tree {
	uint64_t root;
	uint64_t above; /* the node that ".." of the root is */
	uid_t uid;      /* of all nodes */
	gid_t gid;
	mode_t dir_mode; /* permission bits of all directories */
	struct timespec dir_mtime;

	struct rsh_row *rows;
	size_t n_rows, cap_rows;
	struct rsh_arena arena; /* what rows point to may be here */
};

struct rsh_node {
	uint64_t number;
	uint64_t parent;
	enum rsh_node_kind kind;
	uint32_t leaf;
	const struct rsh_row *row; /* NULL: the root */
	uint32_t i;                /* its place in the row */
};

/* Rows of one directory are listed as they were added.  Returns 0 or
 * -ENOMEM. */
int rsh_tree_add(struct rsh_tree *t, const struct rsh_row *row);
void rsh_tree_clear(struct rsh_tree *t);

struct rsh_path {
	const char *path; /* below the root; has to outlive the tree */
	enum rsh_node_kind kind;
	uint32_t leaf;
};
/* Adds all nodes of a tree that has none yet: the paths and the directories
 * above them, numbered by depth and then by name.  Returns 0, -ENOMEM, or
 * -EEXIST when a path is there twice, or is a directory as well (paths.c). */
int rsh_tree_add_paths(struct rsh_tree *t, const struct rsh_path *paths,
		       size_t n);

/* Returns false if no node has that number. */
bool rsh_tree_node(const struct rsh_tree *t, uint64_t number,
		   struct rsh_node *out);
/* Gives child number i of a directory; returns false past the last. */
bool rsh_tree_child(const struct rsh_tree *t, uint64_t dir, uint64_t i,
		    struct rsh_node *out);
/* Returns the number of the child of that name, or 0 if there is none. */
uint64_t rsh_tree_find(const struct rsh_tree *t, uint64_t dir,
		       const char *name);
/* Returns how many children are directories. */
uint32_t rsh_tree_n_dirs(const struct rsh_tree *t, uint64_t dir);
uint64_t rsh_tree_n_nodes(const struct rsh_tree *t);
/* Writes the name of a node that is not the root; returns what snprintf()
 * does. */
int rsh_node_name(const struct rsh_node *node, char *name, size_t max);

#endif
