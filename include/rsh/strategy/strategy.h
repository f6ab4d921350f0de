/* SPDX-License-Identifier: Apache-2.0 */
/* strategy/strategy.h - the sharding strategy of a whole job: all stages, all
 * parameters.
 *
 * Global rank = stage * ranks-per-stage + local rank.  All layouts of a job
 * have the same device count, that of a stage.
 */
#ifndef RSH_STRATEGY_STRATEGY_H
#define RSH_STRATEGY_STRATEGY_H

#include <stdbool.h>
#include <stdint.h>

#include "rsh/util/error.h"
#include "rsh/util/names.h"
#include "rsh/wire/strategy_file.h"

/* A parameter may be listed by several stages (shared embeddings). */
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
	const char *path;       /* for messages: the file or directory */
	uint32_t stage_ranks;   /* ranks of one stage */
	uint32_t n_stages;
	/* 0, but for the unmerged file of a later stage: then that stage. */
	uint32_t lone_stage;
	uint32_t n_params;
	const struct rsh_strategy_param *params; /* first-seen order */
	const uint32_t *by_name; /* indexes into params, sorted by name id */
	uint32_t n_files; /* that it was made of */
	const struct rsh_strategy_file *const *files;
};

enum rsh_strategy_form {
	/* One file as it stands; one in which every name is "<stage>-<param>"
	 * is a merged one, in any other a "-" is part of a name. */
	RSH_STRATEGY_FILE,
	/* The files of a directory, merged as merge_pipeline_strategys does:
	 * the stage of a file is that of its first strategy item; of several
	 * files of one stage the first by name counts; stages are taken in
	 * ascending order. */
	RSH_STRATEGY_DIR,
	/* The same in the order given.  The converter takes files as the
	 * directory lists them, which decides where stages disagree. */
	RSH_STRATEGY_DIR_AS_LISTED,
};

/* Makes one strategy of `n` >= 1 parsed files and takes over the array (from
 * malloc) and the files, also on failure.
 * Errors (-EINVAL, sentence): formats mixed, a stage missing, a file without
 * strategy items in a directory, layouts over different device counts, more
 * than 2^20 ranks. */
int rsh_strategy_merge(struct rsh_strategy_file **files, uint32_t n,
		       enum rsh_strategy_form form, const char *path,
		       struct rsh_names *names, struct rsh_strategy **out,
		       struct rsh_error *err);
void rsh_strategy_free(struct rsh_strategy *s);

/* NULL when the strategy does not list the name. */
const struct rsh_strategy_param *rsh_strategy_find(const struct rsh_strategy *s,
						   uint32_t name);

/* Whose layout counts when the parameter is read: the smallest stage's. */
const struct rsh_param_stage *
rsh_param_source_stage(const struct rsh_strategy_param *p);
/* The layout that a stage gives it, NULL if the stage does not list it. */
const struct rsh_strategy_item *
rsh_param_item(const struct rsh_strategy_param *p, uint32_t stage);
bool rsh_param_in_stage(const struct rsh_strategy_param *p, uint32_t stage);
/* Whose layout counts for destination rank `rank` (global): the one of the
 * rank's own stage; `converter`: the one MindSpore's converter picks. */
const struct rsh_param_stage *
rsh_param_dest_stage(const struct rsh_strategy *s,
		     const struct rsh_strategy_param *p, uint32_t rank,
		     bool converter);

/* True if the global ranks a and b hold the same slice of every parameter of
 * their stage.  *differs is else a parameter that they do not share,
 * RSH_NAME_NONE if they are of two stages. */
bool rsh_strategy_same_slices(const struct rsh_strategy *s, uint32_t a,
			      uint32_t b, uint32_t *differs);

/* Fills first[0..n_stages*stage_ranks) with the lowest rank that holds the same
 * slice of every parameter as that rank.  0 or -ENOMEM. */
int rsh_strategy_replicas(const struct rsh_strategy *s, uint32_t *first);

/* ---- layout items ---- */

/* Ranks of an item's mesh. */
uint32_t rsh_item_ranks(const struct rsh_strategy_item *it);
/* Does the tensor map split a dimension over mesh axis `axis`, counted as the
 * file lists the mesh? */
bool rsh_item_uses_axis(const struct rsh_strategy_item *item, uint32_t axis);

/* True if both items cut every tensor the same way; NULL equals NULL only. */
bool rsh_item_same_layout(const struct rsh_strategy_item *a,
			  const struct rsh_strategy_item *b);
/* "mesh [2,4] map [1,-1] optimizer shard -1" ("unsharded" for NULL) for
 * messages, cut at size; returns text. */
const char *rsh_item_text(const struct rsh_strategy_item *it, char *text,
			  size_t size);
/* Its mesh, "[2,4]", and its map, "[1,-1]", alike. */
const char *rsh_item_mesh_text(const struct rsh_strategy_item *it, char *text,
			       size_t size);
const char *rsh_item_map_text(const struct rsh_strategy_item *it, char *text,
			      size_t size);

#endif
