/* SPDX-License-Identifier: Apache-2.0 */
/* formats/tree.c finds nodes in the rows of a tree.
 *
 * There are few rows, or as many as directories, and the kernel caches answers
 * for a day.  So the rows are searched one after the other. */
#include "config.h"

#include "rsh/formats/tree.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/mem.h"

int rsh_tree_add(struct rsh_tree *t, const struct rsh_row *row)
{
	return rsh_push(t->rows, t->n_rows, t->cap_rows, *row);
}

void rsh_tree_clear(struct rsh_tree *t)
{
	free(t->rows);
	rsh_arena_clear(&t->arena);
	*t = (struct rsh_tree){ 0 };
}

static struct rsh_node row_node(const struct rsh_row *row, uint32_t i)
{
	const struct rsh_item *item = row->items ? &row->items[i] : NULL;
	const enum rsh_node_kind kind = item ? item->kind : row->kind;

	return (struct rsh_node){
		.number = row->first + i * row->step,
		.parent = row->parent + i * row->apart,
		.kind = kind,
		.leaf = kind == RSH_NODE_DIR ? RSH_NO_LEAF :
			item ? item->leaf :
			row->leaf + i * (row->leaf_step ? row->leaf_step : 1),
		.row = row, .i = i,
	};
}

/* Returns whether `number` is one of first, first + step ..; *i is its
 * index. */
static bool is_counted(uint64_t number, uint64_t first, uint64_t step,
		       uint32_t n, uint32_t *i)
{
	if (number < first || (number - first) % step != 0 ||
	    (number - first) / step >= n)
		return false;
	*i = (uint32_t)((number - first) / step);
	return true;
}

/* Returns how many nodes of a row are in the directory.  *i is the first
 * one. */
static uint32_t row_children(const struct rsh_row *row, uint64_t dir,
			     uint32_t *i)
{
	*i = 0;
	if (row->apart)
		return is_counted(dir, row->parent, row->apart, row->n, i);
	return row->parent == dir ? row->n : 0;
}

bool rsh_tree_node(const struct rsh_tree *t, uint64_t number,
		   struct rsh_node *out)
{
	uint32_t i;

	if (number == t->root) {
		*out = (struct rsh_node){
			.number = number, .parent = t->above,
			.kind = RSH_NODE_DIR, .leaf = RSH_NO_LEAF,
		};
		return number != 0;
	}
	for (size_t k = 0; k < t->n_rows; k++) {
		const struct rsh_row *row = &t->rows[k];

		if (is_counted(number, row->first, row->step, row->n, &i)) {
			*out = row_node(row, i);
			return true;
		}
	}
	return false;
}

bool rsh_tree_child(const struct rsh_tree *t, uint64_t dir, uint64_t i,
		    struct rsh_node *out)
{
	for (size_t k = 0; k < t->n_rows; k++) {
		const struct rsh_row *row = &t->rows[k];
		uint32_t from;
		const uint32_t n = row_children(row, dir, &from);

		if (i < n) {
			*out = row_node(row, from + (uint32_t)i);
			return true;
		}
		i -= n;
	}
	return false;
}

/* ---- names ---- */

int rsh_node_name(const struct rsh_node *node, char *name, size_t max)
{
	const struct rsh_row *row = node->row;

	if (row->items)
		return snprintf(name, max, "%s", row->items[node->i].name);
	return snprintf(name, max, "%s%0*" PRIu32 "%s", row->before,
			row->digits, row->from + node->i, row->after);
}

static uint64_t row_find(const struct rsh_row *row, uint64_t dir,
			 const char *name)
{
	const size_t before = row->items ? 0 : strlen(row->before);
	uint32_t i, n = row_children(row, dir, &i);
	struct rsh_node node;
	char own[NAME_MAX + 1];

	for (; row->items && n > 0; n--, i++)
		if (strcmp(name, row->items[i].name) == 0)
			return row->first + i * row->step;
	/* Of several generated names one could be this one. */
	if (n == 0 || strncmp(name, row->before, before) != 0 ||
	    (n > 1 && !is_counted(strtoull(name + before, NULL, 10), row->from,
				  1, row->n, &i)))
		return 0;
	node = row_node(row, i);
	rsh_node_name(&node, own, sizeof(own));
	return strcmp(name, own) == 0 ? node.number : 0;
}

uint64_t rsh_tree_find(const struct rsh_tree *t, uint64_t dir, const char *name)
{
	uint64_t found = 0;

	for (size_t k = 0; k < t->n_rows && !found; k++)
		found = row_find(&t->rows[k], dir, name);
	return found;
}

/* ---- counts ---- */

uint32_t rsh_tree_n_dirs(const struct rsh_tree *t, uint64_t dir)
{
	uint32_t n_dirs = 0;

	for (size_t k = 0; k < t->n_rows; k++) {
		const struct rsh_row *row = &t->rows[k];
		uint32_t i, n = row_children(row, dir, &i);

		for (; n > 0 && row->items; n--, i++)
			n_dirs += row->items[i].kind == RSH_NODE_DIR;
		n_dirs += row->kind == RSH_NODE_DIR ? n : 0;
	}
	return n_dirs;
}

uint64_t rsh_tree_n_nodes(const struct rsh_tree *t)
{
	uint64_t n = 1;

	for (size_t k = 0; k < t->n_rows; k++)
		n += t->rows[k].n;
	return n;
}
