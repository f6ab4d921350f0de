/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/control.c is the tree of the control directory: it answers for nodes of
 * its own and passes all others on to the tree that it surrounds. */
#include "config.h"

#include "rsh/vfs/control.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "vfs_i.h"

/* Node numbers above those of all trees: the directory, its files, the
 * directory of plans, the plans. */
#define NODE_DIR (UINT64_C(1) << 40)
#define NODE_FILES (NODE_DIR + 1)
#define NODE_PLAN_DIR (NODE_FILES + N_FILES)
#define NODE_PLANS (NODE_PLAN_DIR + 1)

#define PLAN_DIR_NAME "plan"

static const char *const file_names[] = {
	[RSH_CONTROL_STATS] = "stats",
	[RSH_CONTROL_METRICS] = "metrics",
	[RSH_CONTROL_LOG] = "log",
	[RSH_CONTROL_CONFIG] = "config",
};
#define N_FILES (sizeof(file_names) / sizeof(file_names[0]))

struct control {
	struct rsh_vfs vfs;
	const struct rsh_vfs *tree;
	struct rsh_control_options options;
	uid_t uid;
	gid_t gid;
	struct timespec begun;
};

static const struct control *control_of(const struct rsh_vfs *v)
{
	return (const struct control *)v;
}

static void free_control(struct rsh_vfs *v)
{
	free(v);
}

bool rsh_control_owns(uint64_t node)
{
	return node >= NODE_DIR;
}

static bool is_dir(const struct control *c, uint64_t node)
{
	return node == NODE_DIR ||
	       (node == NODE_PLAN_DIR && c->options.n_plans > 0);
}

static bool is_file(const struct control *c, uint64_t node)
{
	return (node >= NODE_FILES && node < NODE_PLAN_DIR) ||
	       (node >= NODE_PLANS && node - NODE_PLANS < c->options.n_plans);
}

/* ---- names ---- */

static void plan_name(uint32_t rank, char *name, size_t max)
{
	snprintf(name, max, "rank_%" PRIu32 ".json", rank);
}

/* 0 if there is none of that name. */
static uint64_t find_plan(const struct control *c, const char *name)
{
	char canonical[32];
	uint32_t rank;

	if (sscanf(name, "rank_%" SCNu32, &rank) != 1 ||
	    rank >= c->options.n_plans)
		return 0;
	plan_name(rank, canonical, sizeof(canonical));
	return strcmp(name, canonical) == 0 ? NODE_PLANS + rank : 0;
}

static uint64_t find_file(const struct control *c, const char *name)
{
	for (size_t i = 0; i < N_FILES; i++)
		if (strcmp(name, file_names[i]) == 0)
			return NODE_FILES + i;
	return c->options.n_plans > 0 && strcmp(name, PLAN_DIR_NAME) == 0 ?
	       NODE_PLAN_DIR : 0;
}

static uint64_t lookup(const struct rsh_vfs *v, uint64_t parent,
		       const char *name)
{
	const struct control *c = control_of(v);

	if (parent == RSH_VFS_ROOT && strcmp(name, RSH_CONTROL_NAME) == 0)
		return NODE_DIR;
	if (!rsh_control_owns(parent))
		return rsh_vfs_lookup(c->tree, parent, name);
	if (!is_dir(c, parent))
		return (uint64_t)-1;
	return parent == NODE_DIR ? find_file(c, name) : find_plan(c, name);
}

static void file_entry(uint64_t i, uint64_t *child, char *name, size_t max)
{
	*child = NODE_FILES + i;
	snprintf(name, max, "%s", i < N_FILES ? file_names[i] : PLAN_DIR_NAME);
}

static int entry(const struct rsh_vfs *v, uint64_t dir, uint64_t i,
		 uint64_t *child, char *name, size_t max)
{
	const struct control *c = control_of(v);
	uint64_t n = dir == NODE_DIR ? N_FILES + (c->options.n_plans > 0) :
				       c->options.n_plans;

	if (!rsh_control_owns(dir))
		return rsh_vfs_entry(c->tree, dir, i, child, name, max);
	if (!is_dir(c, dir))
		return -ENOTDIR;
	if (i >= n + 2)
		return -ENOENT;
	if (i < 2) {
		*child = i == 0 ? dir :
			 dir == NODE_DIR ? RSH_VFS_ROOT : NODE_DIR;
		snprintf(name, max, "%s", i == 0 ? "." : "..");
	} else if (dir == NODE_DIR) {
		file_entry(i - 2, child, name, max);
	} else {
		*child = NODE_PLANS + i - 2;
		plan_name((uint32_t)(i - 2), name, max);
	}
	return 0;
}

/* ---- attributes ---- */

static int stat_node(const struct rsh_vfs *v, uint64_t node, struct stat *st)
{
	const struct control *c = control_of(v);

	if (!rsh_control_owns(node))
		return rsh_vfs_stat(c->tree, node, st);
	if (is_dir(c, node))
		rsh_stat_fill(st, node, S_IFDIR | 0500, 0, &c->begun);
	else if (is_file(c, node))
		rsh_stat_fill(st, node, S_IFREG | 0400, 0, &c->begun);
	else
		return -ENOENT;
	if (is_dir(c, node))
		st->st_nlink = 2 + (node == NODE_DIR && c->options.n_plans > 0);
	st->st_uid = c->uid;
	st->st_gid = c->gid;
	return 0;
}

static int attribute(const struct rsh_vfs *v, uint64_t node,
		     enum rsh_attribute which, FILE *to)
{
	const struct rsh_vfs *tree = control_of(v)->tree;

	if (rsh_control_owns(node) || !tree->ops->attribute)
		return -ENODATA;
	return tree->ops->attribute(tree, node, which, to);
}

/* The directory is no part of what df and the like are told. */
static void totals(const struct rsh_vfs *v, uint64_t *bytes, uint64_t *nodes)
{
	const struct rsh_vfs *tree = control_of(v)->tree;

	tree->ops->totals(tree, bytes, nodes);
}

/* ---- content ---- */

int rsh_control_make(const struct rsh_vfs *v, uint64_t node, char **text)
{
	const struct control *c = control_of(v);
	const struct rsh_control_options *o = &c->options;

	if (is_dir(c, node))
		return -EISDIR;
	if (!is_file(c, node))
		return -ENOENT;
	if (node >= NODE_PLANS)
		return o->make(o->ctx, RSH_CONTROL_PLAN,
			       (uint32_t)(node - NODE_PLANS), text);
	return o->make(o->ctx, (enum rsh_control_file)(node - NODE_FILES), 0,
		       text);
}

static const char *link_target(const struct rsh_vfs *v, uint64_t node)
{
	return rsh_control_owns(node) ? NULL :
	       rsh_vfs_link(control_of(v)->tree, node);
}

/* Files of the directory are opened elsewhere, see rsh_control_make(). */
static int body(const struct rsh_vfs *v, uint64_t node, struct rsh_body *out)
{
	return rsh_control_owns(node) ? -EINVAL :
	       rsh_vfs_body(control_of(v)->tree, node, out);
}

static int backing(const struct rsh_vfs *v, uint64_t node, uint32_t *file)
{
	return rsh_control_owns(node) ? -ENODATA :
	       rsh_vfs_backing(control_of(v)->tree, node, file);
}

static struct rsh_source *source(const struct rsh_vfs *v)
{
	const struct rsh_vfs *tree = control_of(v)->tree;

	return tree->ops->source(tree);
}

static const struct rsh_vfs_ops control_ops = {
	.free = free_control,
	.lookup = lookup,
	.stat = stat_node,
	.entry = entry,
	.link = link_target,
	.body = body,
	.backing = backing,
	.source = source,
	.totals = totals,
	.attribute = attribute,
};

int rsh_control_new(const struct rsh_vfs *tree,
		    const struct rsh_control_options *o, struct rsh_vfs **out)
{
	struct control *c = calloc(1, sizeof(*c));
	struct stat root;

	if (!c)
		return -ENOMEM;
	rsh_vfs_stat(tree, RSH_VFS_ROOT, &root);
	c->vfs.ops = &control_ops;
	c->tree = tree;
	c->options = *o;
	c->uid = root.st_uid;
	c->gid = root.st_gid;
	clock_gettime(CLOCK_REALTIME, &c->begun);
	*out = &c->vfs;
	return 0;
}
