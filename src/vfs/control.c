/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/control.c makes the tree of the control directory, which is separate from
 * the tree of the checkpoints. */
#include "config.h"

#include "rsh/vfs/control.h"

#include <errno.h>
#include <time.h>

#include "rsh/util/checked.h"
#include "vfs_i.h"

/* The nodes of the control directory have larger numbers than all nodes of a
 * checkpoint, and smaller ones than those of steps (step_trees_i.h).  Their
 * order is: the directory, its files, the directory of plans, the plans. */
#define NODE_DIR RSH_CONTROL_NODE
#define NODE_ITEMS (NODE_DIR + 1)
#define NODE_PLAN_DIR (NODE_DIR + N_ITEMS)
#define NODE_PLANS (NODE_PLAN_DIR + 1)

static const struct rsh_item items[] = {
	{ "stats", RSH_NODE_FILE, RSH_CONTROL_STATS },
	{ "metrics", RSH_NODE_FILE, RSH_CONTROL_METRICS },
	{ "log", RSH_NODE_FILE, RSH_CONTROL_LOG },
	{ "config", RSH_NODE_FILE, RSH_CONTROL_CONFIG },
	{ "plan", RSH_NODE_DIR, RSH_NO_LEAF }, /* last, and left out if there
						* are no plans */
};
/* With several steps these are the last ones instead. */
static const struct rsh_item steps_items[] = {
	{ "plan", RSH_NODE_FILE, RSH_CONTROL_NO_PLAN },
	{ "steps", RSH_NODE_FILE, RSH_CONTROL_STEPS },
};
#define N_ITEMS (sizeof(items) / sizeof(items[0]))

bool rsh_control_owns(uint64_t node)
{
	return node >= NODE_DIR && node < 2 * NODE_DIR;
}

int rsh_control_make(const struct rsh_vfs *v, uint64_t node, char **text)
{
	const struct rsh_control_options *o = &v->tell;
	struct rsh_node found;
	uint32_t which;

	if (!rsh_tree_node(&v->control, node, &found))
		return -ENOENT;
	if (found.kind == RSH_NODE_DIR)
		return -EISDIR;
	which = (uint32_t)rsh_min_u64(found.leaf, RSH_CONTROL_PLAN);
	return o->make(o->ctx, (enum rsh_control_file)which,
		       found.leaf - which, text);
}

int rsh_control_add(struct rsh_vfs *v, const struct rsh_control_options *o)
{
	const struct rsh_row files = {
		.n = N_ITEMS - (o->n_plans == 0), .first = NODE_ITEMS,
		.step = 1, .parent = NODE_DIR, .items = items,
	};
	const struct rsh_row plans = {
		.n = o->n_plans, .first = NODE_PLANS, .step = 1,
		.parent = NODE_PLAN_DIR, .kind = RSH_NODE_FILE,
		.before = "rank_", .after = ".json", .leaf = RSH_CONTROL_PLAN,
	};
	const struct rsh_row steps = {
		.n = o->steps ? 2 : 0, .first = NODE_PLAN_DIR, .step = 1,
		.parent = NODE_DIR, .items = steps_items,
	};
	struct rsh_tree *t = &v->control;
	int rc;

	*t = (struct rsh_tree){
		.root = NODE_DIR, .above = RSH_VFS_ROOT, .dir_mode = 0500,
		.uid = v->tree.uid, .gid = v->tree.gid,
	};
	clock_gettime(CLOCK_REALTIME, &t->dir_mtime);
	t->ctime = t->dir_mtime;
	v->tell = *o;
	rc = rsh_tree_add(t, &files);
	if (rc == 0 && o->steps)
		return rsh_tree_add(t, &steps);
	return rc ? rc : rsh_tree_add(t, &plans);
}
