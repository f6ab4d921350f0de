/* SPDX-License-Identifier: Apache-2.0 */
/* formats/tree.h - a tree of virtual nodes, which are directories, files and
 * links.  Nodes are found by number and by name.
 *
 * The tree stores rows of nodes.  The nodes of a row follow each other in one
 * directory, or one of them is in each of many directories.  The names of a row
 * are a list or are generated from a counter, and so are the numbers.  A job of
 * any size has two rows:
 *
 *   rank_0   rank_1   rank_2  ..   nodes 2, 4, 6 ..  in the root, which is 1
 *   f0.ckpt  f1.ckpt  f2.ckpt ..   nodes 3, 5, 7 ..  in 2, 4, 6 ..
 *
 * A tree of files with other names has a row for each directory.  Only the
 * tree's owner knows the content of a file or a link; the owner numbers them as
 * leaves.
 *
 * A tree does not change after it is built; then any thread may read it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "rsh/util/arena.h"

/* Directories have this number instead of a leaf. */
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
	/* If `apart` is 0, all nodes are in `parent`.  Otherwise node i is
	 * alone in the directory parent + i * apart. */
	uint64_t parent, apart;
	/* The n nodes.  If this is NULL, the name of node i is `before`, then
	 * from + i with at least `digits` digits, then `after`; node i is a
	 * directory or a leaf. */
	const struct rsh_item *items;
	const char *before, *after;
	uint32_t from;
	int digits;
	enum rsh_node_kind kind;
	uint32_t leaf;
	/* the leaf of node i is leaf + i * leaf_step; 0 means 1 */
	uint32_t leaf_step;
};

/* A tree whose bytes are all zero has no nodes. */
struct rsh_tree {
	uint64_t root;
	uint64_t above; /* the number of ".." in the root */
	uid_t uid;      /* of all nodes */
	gid_t gid;
	mode_t dir_mode; /* permission bits of all directories */
	struct timespec dir_mtime;
	/* Of all nodes: a time that no other mount or step has, since a reader
	 * of the mount recognises a file by it. */
	struct timespec ctime;

	struct rsh_row *rows;
	size_t n_rows, cap_rows;
	struct rsh_arena arena; /* may contain what rows point to */
};

struct rsh_node {
	uint64_t number;
	uint64_t parent;
	enum rsh_node_kind kind;
	uint32_t leaf;
	const struct rsh_row *row; /* NULL: the root */
	uint32_t i;                /* its place in the row */
};

/* Adds a row.  Rows of one directory are listed in the order in which they were
 * added.  Returns 0 or -ENOMEM. */
int rsh_tree_add(struct rsh_tree *t, const struct rsh_row *row);
void rsh_tree_clear(struct rsh_tree *t);

struct rsh_path {
	const char *path; /* below the root; must outlive the tree */
	enum rsh_node_kind kind;
	uint32_t leaf;
};
/* Adds the paths, and the directories above them, as nodes that are numbered
 * from `first` on by depth and then by name.  Returns 0, -ENOMEM, or -EEXIST if
 * a path occurs twice, or is also a directory (paths.c). */
int rsh_tree_add_paths(struct rsh_tree *t, uint64_t first,
		       const struct rsh_path *paths, size_t n);

/* Returns false if no node has that number. */
bool rsh_tree_node(const struct rsh_tree *t, uint64_t number,
		   struct rsh_node *out);
/* Finds child number i of a directory.  Returns false past the last. */
bool rsh_tree_child(const struct rsh_tree *t, uint64_t dir, uint64_t i,
		    struct rsh_node *out);
/* Returns the number of the child with that name, or 0 if there is none. */
uint64_t rsh_tree_find(const struct rsh_tree *t, uint64_t dir,
		       const char *name);
/* Returns how many children are directories. */
uint32_t rsh_tree_n_dirs(const struct rsh_tree *t, uint64_t dir);
uint64_t rsh_tree_n_nodes(const struct rsh_tree *t);
/* Writes the name of a node that is not the root.  Returns the result of
 * snprintf(). */
int rsh_node_name(const struct rsh_node *node, char *name, size_t max);
