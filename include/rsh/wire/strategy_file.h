/* SPDX-License-Identifier: Apache-2.0 */
/* wire/strategy_file.h - parses one strategy file, protobuf
 * (proto/node_strategy.proto) or JSON, without interpreting it.
 *
 * Order matters: MindSpore reads the device count from the first layout item,
 * and the items are in the hash order of its writer.  So items stay in file
 * order; if two items have one name, the last one is used, at the place of the
 * first one.  A file does not change after it is parsed, so any thread may read
 * it; the caller that parsed it frees it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rsh/util/error.h"
#include "rsh/wire/bytes.h"

/* No layout has more mesh axes, tensor map entries or shape dimensions than
 * this.  (The expanded form of an 8-dimensional tensor has fewer.) */
#define RSH_STRATEGY_MAX_DIMS 32

/* An entry says which mesh axes split one dimension, most significant first. A
 * number m means mesh axis n_mesh - 1 - m.  n == 0 means that the dimension is
 * not split (-1 in the file). */
struct rsh_map_entry {
	uint32_t n;
	const int32_t *axes; /* all >= 0 and < n_mesh */
};

/* This is the layout of one parameter (ParallelLayouts). */
struct rsh_strategy_item {
	const char *name;     /* as in the file: "<stage>-<param>" if merged */
	uint32_t n_mesh;      /* dev_matrix; every size >= 1, product < 2^31 */
	const uint32_t *mesh;
	/* tensor_map: one entry for each tensor dimension, or more in the
	 * expanded form of JSON files */
	uint32_t n_map;
	const struct rsh_map_entry *map;
	bool nested;          /* the file has several TensorMap messages */
	uint32_t n_shape;     /* tensor_shape: JSON only, else 0; as expanded */
	const int64_t *shape;
	/* param_split_shape: the rows of each slice of a table that is split by
	 * hand (the attribute manual_split of Gather).  Files that were written
	 * by hand may have the shape of the tensor or of its slice here
	 * (rsh_item_rows()). */
	uint32_t n_rows;
	const int64_t *rows;
	uint32_t n_offsets;   /* numbers in indices_offset */
	bool rows_follow;     /* there is one for each of the rows, and it is
			       * the sum of those before */
	int32_t opt_step;     /* opt_weight_shard_step; 0 if absent */
	int32_t opt_size;     /* opt_weight_shard_size; -1: the whole group */
};

/* Returns into how many slices one map entry cuts. */
static inline uint32_t rsh_map_entry_split(const struct rsh_strategy_item *item,
					   const struct rsh_map_entry *e)
{
	uint32_t split = 1;

	/* This cannot overflow: each axis occurs only once, and the mesh has
	 * fewer than 2^31 ranks. */
	for (uint32_t i = 0; i < e->n; i++)
		split *= item->mesh[item->n_mesh - 1 - (uint32_t)e->axes[i]];
	return split;
}

/* This is an operator of the planned network (ParallelStrategyItem). */
struct rsh_strategy_op {
	const char *name; /* "<primitive>_<its first parameter>" */
	/* true: the operator was planned with tuples of numbers.  false: with
	 * Layout objects, which are not written to the file. */
	bool tuples;
};

struct rsh_strategy_file {
	const char *path;      /* for messages */
	bool json;
	bool has_stage;        /* there is at least one strategy item */
	uint32_t first_stage;  /* stage of the first one */
	uint32_t n_ops;        /* strategy items */
	const struct rsh_strategy_op *ops;
	uint32_t n_items;      /* layout items */
	const struct rsh_strategy_item *items;
	uint64_t content_hash; /* xxh3 of the file's bytes */
	void *arena_;          /* owns everything that the file points to */
};

/* Parses the `len` bytes at `data`.  `path` is for messages and decides the
 * format: JSON if it ends in ".json" (case-sensitive), else protobuf.  Returns
 * 0 and *out, -ENOMEM, or -EBADMSG with a sentence that names path and, where
 * known, the item: an empty file, not a strategy, no layout item, no dev_matrix
 * (pipeline only), an axis that is not in the mesh, a mesh size of 0, an axis
 * used twice by one tensor, sizes out of range.  If the file is a .ckpt
 * checkpoint, the sentence says so. */
int rsh_strategy_parse(const void *data, size_t len, const char *path,
		       struct rsh_strategy_file **out, struct rsh_error *err);

/* Parses a file as rsh_strategy_parse() does, but continues after a bad layout
 * item: `report` gets the sentence about it, and the item is left out. The
 * result may have no items. */
typedef void rsh_strategy_report_fn(void *ctx, const char *sentence);
int rsh_strategy_parse_all(const struct rsh_memory *text, const char *path,
			   rsh_strategy_report_fn *report, void *ctx,
			   struct rsh_strategy_file **out,
			   struct rsh_error *err);

void rsh_strategy_file_free(struct rsh_strategy_file *f);

/* ---- group_info.pb ----
 *
 * A job writes it to the path in GROUP_INFO_FILE.  It is a ParallelGroupMap
 * (proto/node_strategy.proto), whose ckpt_restore_rank_list names the ranks
 * whose checkpoints can replace the rank's own. */

/* Reads the restore list.  The caller frees it.  *n is 0 if the file has none.
 * Returns 0, or -ENOMEM or -EBADMSG with a sentence. */
int rsh_group_info_parse(const void *data, size_t len, const char *path,
			 uint32_t **ranks, uint32_t *n, struct rsh_error *err);
