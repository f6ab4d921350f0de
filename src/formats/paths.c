/* SPDX-License-Identifier: Apache-2.0 */
/* formats/paths.c makes rows of a tree from the paths of its files.
 *
 * Paths are sorted by depth and then by name, so that the children of a
 * directory are adjacent, and those of the next directory follow. */
#include "config.h"

#include "rsh/formats/tree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/mem.h"

/* A place is a path, or a directory at the beginning of a path. */
struct tree_place {
	const char *path;
	/* lengths of this place and of the directory above it */
	size_t len, dir_len;
	unsigned depth;
	enum rsh_node_kind kind;
	uint32_t leaf;
};

struct tree_places {
	struct tree_place *list;
	size_t n, cap;
};

/* Returns the sort key of a byte of a name.  The end of a name sorts before all
 * bytes. */
static unsigned place_order_at(const struct tree_place *p, size_t i)
{
	return i >= p->len ? 0 : p->path[i] == '/' ? 1 :
	       1 + (unsigned)(unsigned char)p->path[i];
}

static int by_depth_and_name(const void *a, const void *b)
{
	const struct tree_place *x = a, *y = b;
	size_t i = 0;

	while (i < x->len && place_order_at(x, i) == place_order_at(y, i))
		i++;
	return rsh_compare_u64(x->depth, y->depth) ?:
	       rsh_compare_u64(place_order_at(x, i), place_order_at(y, i));
}

static int places_add(struct tree_places *p, const struct rsh_path *path)
{
	struct tree_place at = { .path = path->path, .kind = RSH_NODE_DIR,
			    .leaf = RSH_NO_LEAF };
	bool last;

	do {
		const char *rest = at.path + at.len + (at.depth > 0);

		at.dir_len = at.len;
		at.len = (size_t)(strchrnul(rest, '/') - at.path);
		at.depth++;
		last = !at.path[at.len];
		if (last) {
			at.kind = path->kind;
			at.leaf = path->leaf;
		}
		if (rsh_push(p->list, p->n, p->cap, at))
			return -ENOMEM;
	} while (!last);
	return 0;
}

/* Removes duplicates: a directory was added with each of its files. */
static int places_merge(struct tree_places *p)
{
	size_t kept = 0;

	for (size_t i = 0; i < p->n; i++) {
		const struct tree_place *at = &p->list[i];
		const struct tree_place *before =
			kept ? &p->list[kept - 1] : NULL;

		if (!before || by_depth_and_name(before, at) != 0)
			p->list[kept++] = *at;
		else if (before->kind != RSH_NODE_DIR ||
			 at->kind != RSH_NODE_DIR)
			return -EEXIST;
	}
	p->n = kept;
	return 0;
}

static int tree_add_items(struct rsh_tree *t, uint64_t first,
			  const struct tree_places *p)
{
	struct rsh_item *items =
		rsh_arena_array(&t->arena, struct rsh_item, p->n);
	size_t dir = 0, n;
	int rc = 0;

	if (!items)
		return -ENOMEM;
	for (size_t i = 0; i < p->n; i++) {
		const struct tree_place *at = &p->list[i];
		const size_t skip = at->dir_len + (at->depth > 1);

		items[i] = (struct rsh_item){ at->path + skip, at->kind,
					      at->leaf };
		/* The name of a directory is not terminated in the path, so it
		 * is copied. */
		if (at->path[at->len])
			items[i].name = rsh_arena_strndup(&t->arena,
							  at->path + skip,
							  at->len - skip);
		if (!items[i].name)
			return -ENOMEM;
	}
	/* Rows and directories have the same order, so the directory of the
	 * next row never comes before that of this one. */
	for (size_t i = 0; i < p->n && rc == 0; i += n) {
		const struct tree_place *at = &p->list[i];
		struct rsh_row row = {
			.first = first + i, .step = 1,
			.parent = t->root, .items = &items[i],
		};

		for (n = 1; i + n < p->n && at[n].depth == at->depth &&
			    at[n].dir_len == at->dir_len &&
			    memcmp(at[n].path, at->path, at->dir_len) == 0;)
			n++;
		while (at->depth > 1 &&
		       (p->list[dir].depth + 1 != at->depth ||
			p->list[dir].len != at->dir_len ||
			memcmp(p->list[dir].path, at->path, at->dir_len) != 0))
			dir++;
		if (at->depth > 1)
			row.parent = first + dir;
		row.n = (uint32_t)n;
		rc = rsh_tree_add(t, &row);
	}
	return rc;
}

int rsh_tree_add_paths(struct rsh_tree *t, uint64_t first,
		       const struct rsh_path *paths, size_t n)
{
	struct tree_places p = { 0 };
	int rc = 0;

	for (size_t i = 0; i < n && rc == 0; i++)
		rc = places_add(&p, &paths[i]);
	if (rc == 0 && p.n) {
		qsort(p.list, p.n, sizeof(*p.list), by_depth_and_name);
		rc = places_merge(&p) ?: tree_add_items(t, first, &p);
	}
	free(p.list);
	return rc;
}
