/* SPDX-License-Identifier: Apache-2.0 */
/* formats/output.c has the functions that outputs share.  An output that has a
 * directory for each rank has this tree, with the values of the source that are
 * not tensors:
 *
 *   /rank_N/<prefix>N.ckpt   or .safetensors
 *   /extra_state.json */
#include "config.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/formats/outputs.h"
#include "rsh/source/inspect.h"
#include "rsh/util/mem.h"

#define VALUES_NAME "extra_state.json"

int rsh_output_add_text(struct rsh_output_tree *t,
			const struct rsh_output_text *text, uint32_t *leaf)
{
	*leaf = rsh_plan_n_files(t->plan) + (uint32_t)t->n_texts;
	return rsh_push(t->texts, t->n_texts, t->cap_texts, *text);
}

int rsh_output_add_file(struct rsh_output_tree *t, uint64_t node,
			uint64_t parent, const char *name,
			const struct rsh_output_text *text)
{
	struct rsh_item *item = rsh_arena_array(&t->tree->arena,
						struct rsh_item, 1);
	const struct rsh_row row = {
		.n = 1, .first = node, .step = 1, .parent = parent,
		.items = item,
	};

	if (!item)
		return -ENOMEM;
	*item = (struct rsh_item){ name, RSH_NODE_FILE, 0 };
	return rsh_output_add_text(t, text, &item->leaf) ?:
	       rsh_tree_add(t->tree, &row);
}

void rsh_output_tree_clear(struct rsh_output_tree *t)
{
	if (t->output && t->output->free)
		t->output->free(t->state);
	free(t->texts);
	free(t->values_text);
	*t = (struct rsh_output_tree){ 0 };
}

int rsh_output_file_name(const struct rsh_tree *t, uint32_t file, char *name,
			 size_t max)
{
	struct rsh_node node, above;
	int n = 0;

	rsh_tree_node(t, RSH_NODE_OF_FILE(file), &node);
	/* Files that all have one name differ in their directory. */
	if (node.row->apart && node.row->items &&
	    rsh_tree_node(t, node.parent, &above)) {
		n = rsh_node_name(&above, name, max);
		if (n + 1 >= (int)max)
			return n;
		name[n++] = '/';
	}
	return n + rsh_node_name(&node, name + n, max - (size_t)n);
}

/* The numbers of these files come after those of all directories. */
int rsh_output_add_values_file(struct rsh_output_tree *t, uint32_t number,
			       const char *name, const void *bytes, size_t n)
{
	const uid_t uid = t->tree->uid;
	const gid_t gid = t->tree->gid;
	struct rsh_output_text text = {
		.body = rsh_body_of_text(bytes, n),
		.mode = rsh_store_mode_as(&t->values->attr, uid, gid),
	};
	struct rsh_source_file_info f;
	struct rsh_store_attr a;

	for (uint32_t i = 0; i < rsh_source_n_files(t->source); i++) {
		rsh_source_file_info(t->source, i, &f);
		if (f.valid && rsh_source_attr(t->source, f.rank, &a))
			text.mode &= rsh_store_mode_as(&a, uid, gid);
	}
	return rsh_output_add_file(
		t, RSH_NODE_BESIDE(rsh_plan_n_files(t->plan)) + number,
		t->tree->root, name, &text);
}

int rsh_output_add_values(struct rsh_output_tree *t)
{
	const struct rsh_values *v = t->values;
	size_t n;

	if (!rsh_any(i, v->n, v->values[i].json))
		return 0;
	if (rsh_plain_join(v->names, v->values, v->n, &t->values_text, &n))
		return -ENOMEM;
	return rsh_output_add_values_file(t, 0, VALUES_NAME, t->values_text, n);
}

int rsh_output_build_ranks(struct rsh_output_tree *t, struct rsh_error *err)
{
	struct rsh_arena *arena = &t->tree->arena;
	const uint32_t n = rsh_plan_n_files(t->plan);
	char name[NAME_MAX + 1], after[64];
	const int length = snprintf(after, sizeof(after), "%s%s",
				    rsh_plan_name_suffix(t->plan),
				    t->output->suffix);
	const struct rsh_row dirs = {
		.n = n, .first = RSH_NODE_BESIDE(0), .step = 2,
		.parent = t->tree->root, .kind = RSH_NODE_DIR,
		.before = "rank_", .after = "",
	};
	const struct rsh_row files = {
		.n = n, .first = RSH_NODE_OF_FILE(0), .step = 2,
		.parent = RSH_NODE_BESIDE(0), .apart = 2, .kind = RSH_NODE_FILE,
		.before = rsh_arena_strndup(arena, t->prefix,
					    strlen(t->prefix)),
		.after = rsh_arena_strndup(arena, after, (size_t)length),
	};

	if (!files.before || !files.after || rsh_tree_add(t->tree, &dirs) ||
	    rsh_tree_add(t->tree, &files) || rsh_output_add_values(t))
		return rsh_error_nomem(err);
	if (n > 0 && rsh_output_file_name(t->tree, n - 1, name,
					  sizeof(name)) > NAME_MAX)
		return rsh_error_set(err, ENAMETOOLONG, "the prefix \"%s\" "
				     "makes file names too long", t->prefix);
	return 0;
}

#define OF_RANKS                                                             \
	.division = RSH_DIVIDE_RANKS, .build = rsh_output_build_ranks,       \
	.takes = RSH_TAKES_RANKS | RSH_TAKES_CONVERTER | RSH_TAKES_HF_NAMES | \
		 RSH_TAKES_VALUES,                                           \
	.options = "dst-ranks|compat"

/* MindSpore's .ckpt files, and safetensors files as MindSpore writes them. */
const struct rsh_output rsh_output_ckpt = {
	.name = "ckpt", .suffix = ".ckpt", .framing = &rsh_ckpt_framing,
	OF_RANKS
};

const struct rsh_output rsh_output_safetensors = {
	.name = "safetensors", .suffix = ".safetensors",
	.framing = &rsh_safetensors_framing, OF_RANKS
};
