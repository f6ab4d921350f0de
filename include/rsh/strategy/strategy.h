/* SPDX-License-Identifier: Apache-2.0 */
/* strategy/strategy.h has the strategy of a whole job: all stages, all
 * parameters.
 *
 * Global rank = stage * ranks of a stage + local rank.  All layouts of a job
 * have the same number of ranks, that of a stage.
 *
 * A strategy does not change after it is made, and owns everything to which it
 * points, so any thread may read it.  Names are numbers of the table with which
 * it was made.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "rsh/util/error.h"
#include "rsh/util/mem.h"
#include "rsh/util/names.h"
#include "rsh/wire/strategy_file.h"

/* A file of a job with more ranks is damaged or has a typing error.  Arrays are
 * indexed by rank, and this limit keeps global ranks far from 2^32. */
#define RSH_MAX_RANKS (1u << 20)

/* Several stages may list a parameter, such as a shared embedding. */
struct rsh_param_stage {
	uint32_t stage;
	const struct rsh_strategy_item *item;
};

struct rsh_strategy_param {
	uint32_t name;
	uint32_t n_stages;
	const struct rsh_param_stage *stages; /* in file order */
};

struct rsh_strategy {
	const char *path;       /* the file or directory, for messages */
	uint32_t stage_ranks;   /* ranks of one stage */
	uint32_t n_stages;
	/* This is 0, except for the unmerged file of a later stage: then it is
	 * that stage. */
	uint32_t lone_stage;
	uint32_t n_params;
	const struct rsh_strategy_param *params; /* in the order of their first
						  * appearance */
	const uint32_t *by_name; /* indexes into params, sorted by name
				  * number */
	uint32_t n_files; /* the files from which it was made */
	const struct rsh_strategy_file *const *files;
};

enum rsh_strategy_form {
	/* One file is used as it is.  If every name in it is "<stage>-<param>",
	 * the file is a merged one; otherwise a "-" is part of a name. */
	RSH_STRATEGY_FILE,
	/* The files of a directory are merged as merge_pipeline_strategys
	 * merges them.  The stage of a file is that of its first strategy item.
	 * Several files of one stage must say the same; stages are taken in
	 * ascending order. */
	RSH_STRATEGY_DIR,
	/* The files of a directory are merged in the same way, but in the given
	 * order, and the first file of a stage is used.  The converter takes
	 * files in the order of the directory, which decides if stages
	 * disagree. */
	RSH_STRATEGY_DIR_AS_LISTED,
};

/* These are the parsed files of a strategy: n >= 1, and one for
 * RSH_STRATEGY_FILE.  The array is from malloc; `path` is for messages. */
struct rsh_strategy_set {
	struct rsh_strategy_file **files;
	uint32_t n;
	enum rsh_strategy_form form;
	const char *path;
};

/* Makes one strategy.  It takes ownership of the array and of the files, also
 * on failure.  Returns 0 and *out, which the caller frees; -ENOMEM; or -EINVAL
 * with a sentence: formats are mixed, a stage is missing, a file of a directory
 * has no strategy items, files are of two jobs, layouts have different numbers
 * of ranks, or there are more than 2^20 ranks. */
int rsh_strategy_merge(const struct rsh_strategy_set *set,
		       struct rsh_names *names, struct rsh_strategy **out,
		       struct rsh_error *err);
void rsh_strategy_free(struct rsh_strategy *s);
RSH_GUARD(rsh_strategy_guard_, struct rsh_strategy, rsh_strategy_free)
#define cleanup_strategy __attribute__((cleanup(rsh_strategy_guard_)))

/* Returns the parameter, NULL if the strategy, which may be NULL, does not list
 * it. */
const struct rsh_strategy_param *rsh_strategy_find(const struct rsh_strategy *s,
						   uint32_t name);

/* Returns the stage whose layout is used to read the parameter: the lowest that
 * lists it. */
const struct rsh_param_stage *
rsh_param_source_stage(const struct rsh_strategy_param *p);
/* Returns the layout of the parameter in a stage, NULL if the stage does not
 * list it. */
const struct rsh_strategy_item *
rsh_param_item(const struct rsh_strategy_param *p, uint32_t stage);
bool rsh_param_in_stage(const struct rsh_strategy_param *p, uint32_t stage);
/* Returns the stage whose layout is used for destination rank `rank` (global).
 * That is the rank's own stage if it lists the parameter.  Otherwise, and
 * always if `converter` is true, it is the stage that MindSpore's converter
 * uses. */
const struct rsh_param_stage *
rsh_param_dest_stage(const struct rsh_strategy *s,
		     const struct rsh_strategy_param *p, uint32_t rank,
		     bool converter);

/* Returns whether the global ranks a and b hold the same slice of every
 * parameter of their stage.  If not, *differs is a parameter of which they hold
 * different slices, or RSH_NAME_NONE if they are in two stages. */
bool rsh_strategy_same_slices(const struct rsh_strategy *s, uint32_t a,
			      uint32_t b, uint32_t *differs);

/* Fills first[0 .. n_stages * stage_ranks - 1] with the lowest rank that holds
 * the same slice of every parameter as this rank.  Returns 0 or -ENOMEM. */
int rsh_strategy_replicas(const struct rsh_strategy *s, uint32_t *first);

/* ---- layout items ---- */

/* Returns the number of ranks of an item's mesh. */
uint32_t rsh_item_ranks(const struct rsh_strategy_item *it);
/* Returns whether the tensor map splits a dimension over mesh axis `axis`,
 * counted in the order of the file. */
bool rsh_item_uses_axis(const struct rsh_strategy_item *item, uint32_t axis);

/* Returns whether both items cut every tensor in the same way; NULL equals only
 * NULL. */
bool rsh_item_same_layout(const struct rsh_strategy_item *a,
			  const struct rsh_strategy_item *b);
/* Writes a layout for messages as "mesh [2,4] map [1,-1] optimizer shard -1"
 * ("unsharded" for NULL) to text[size], truncated if it does not fit; returns
 * text. */
const char *rsh_item_text(const struct rsh_strategy_item *it, char *text,
			  size_t size);
/* These write only its mesh, "[2,4]", or only its map, "[1,-1]", in the same
 * way; `it` must not be NULL. */
const char *rsh_item_mesh_text(const struct rsh_strategy_item *it, char *text,
			       size_t size);
const char *rsh_item_map_text(const struct rsh_strategy_item *it, char *text,
			      size_t size);
