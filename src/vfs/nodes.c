/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/nodes.c sorts the paths of a tree and links each to its parent.
 *
 * They are sorted by depth and then by path, so that the children of a
 * directory are neighbours. */
#include "config.h"

#include "nodes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/mem.h"

static size_t depth_of(const char *path)
{
	size_t depth = *path != '\0';

	for (; *path; path++)
		depth += *path == '/';
	return depth;
}

/* Returns the place of a byte of a name: where the name ends comes first,
 * whatever bytes are in it. */
static unsigned char order_of(char c)
{
	return c == '/' ? 0 : (unsigned char)c;
}

/* Compares name by name, so that the directories of one depth and the children
 * of the next are in the same order. */
static int by_place(const void *a, const void *b)
{
	const struct rsh_node *x = a, *y = b;
	size_t dx = depth_of(x->path), dy = depth_of(y->path);
	const char *p = x->path, *q = y->path;

	if (dx != dy)
		return dx < dy ? -1 : 1;
	while (*p && order_of(*p) == order_of(*q))
		p++, q++;
	return (int)order_of(*p) - (int)order_of(*q);
}

static int add(struct rsh_nodes *t, const char *path, size_t n, size_t leaf)
{
	struct rsh_node *node;
	const char *slash;

	if (rsh_grow(&t->list, &t->cap, t->n + 1, sizeof(*t->list)))
		return -ENOMEM;
	node = &t->list[t->n];
	*node = (struct rsh_node){ .path = strndup(path, n), .leaf = leaf };
	if (!node->path)
		return -ENOMEM;
	slash = strrchr(node->path, '/');
	node->name = slash ? (size_t)(slash + 1 - node->path) : 0;
	t->n++;
	return 0;
}

int rsh_nodes_add(struct rsh_nodes *t, const char *path, size_t leaf)
{
	for (const char *s = path; (s = strchr(s, '/')); s++)
		if (add(t, path, (size_t)(s - path), RSH_NO_LEAF))
			return -ENOMEM;
	return add(t, path, strlen(path), leaf);
}

/* A directory was added with each of its leaves. */
static int merge_directories(struct rsh_nodes *t)
{
	size_t kept = 1;

	for (size_t i = 1; i < t->n; i++) {
		struct rsh_node *last = &t->list[kept - 1];

		if (strcmp(t->list[i].path, last->path) != 0) {
			struct rsh_node node = t->list[i];

			t->list[i].path = NULL;
			t->list[kept++] = node;
			continue;
		}
		if (last->leaf != RSH_NO_LEAF ||
		    t->list[i].leaf != RSH_NO_LEAF)
			return -EEXIST;
		free(t->list[i].path);
		t->list[i].path = NULL;
	}
	t->n = kept;
	return 0;
}

/* Both lists of parents and of children have one order, so that the parent of
 * the next node is the same or a later one. */
static void link_parents(struct rsh_nodes *t)
{
	size_t parent = 0;

	for (size_t i = 1; i < t->n; i++) {
		struct rsh_node *node = &t->list[i];
		const size_t n = node->name ? node->name - 1 : 0;

		while (strlen(t->list[parent].path) != n ||
		       memcmp(t->list[parent].path, node->path, n) != 0)
			parent++;
		node->parent = parent;
		if (t->list[parent].n_children++ == 0)
			t->list[parent].first_child = i;
		t->list[parent].n_dirs += node->leaf == RSH_NO_LEAF;
	}
}

int rsh_nodes_finish(struct rsh_nodes *t)
{
	if (add(t, "", 0, RSH_NO_LEAF))
		return -ENOMEM;
	qsort(t->list, t->n, sizeof(*t->list), by_place);
	if (merge_directories(t))
		return -EEXIST;
	link_parents(t);
	return 0;
}

void rsh_nodes_clear(struct rsh_nodes *t)
{
	for (size_t i = 0; i < t->n; i++)
		free(t->list[i].path);
	free(t->list);
	*t = (struct rsh_nodes){ 0 };
}

const struct rsh_node *rsh_nodes_get(const struct rsh_nodes *t, uint64_t node)
{
	return node >= 1 && node <= t->n ? &t->list[node - 1] : NULL;
}

uint64_t rsh_nodes_child(const struct rsh_nodes *t, const struct rsh_node *dir,
			 const char *name)
{
	size_t lo = dir->first_child, hi = lo + dir->n_children;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		const struct rsh_node *node = &t->list[mid];
		int d = strcmp(name, node->path + node->name);

		if (d == 0)
			return rsh_nodes_number(mid);
		if (d < 0)
			hi = mid;
		else
			lo = mid + 1;
	}
	return 0;
}
