/* SPDX-License-Identifier: Apache-2.0 */
/* strategy/strategy.h - the strategy of a whole job: all stages, all
 * parameters.
 *
 * Global rank = stage * ranks of a stage + local rank.  All layouts of a job
 * have the same number of ranks, that of a stage.
 *
 * A strategy does not change once it is made and owns all that it points to, so
 * any thread may ask it.  Names are numbers of the table that it was made with.
 */
#ifndef RSH_STRATEGY_STRATEGY_H
#define RSH_STRATEGY_STRATEGY_H

#include <stdbool.h>
#include <stdint.h>

#include "rsh/util/error.h"
#include "rsh/util/names.h"
#include "rsh/wire/strategy_file.h"

/* A job of more ranks is a damaged file or a typing error.  Tables go by the rank,
 * and the bound keeps global ranks far from 2^32. */
#define RSH_MAX_RANKS (1u << 20)

/* Several stages may list a parameter, as they do with shared embeddings. */
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
	/* This is 0, but for the unmerged file of a later stage: then it is
	 * that stage. */
	uint32_t lone_stage;
	uint32_t n_params;
	const struct rsh_strategy_param *params; /* first-seen order */
	const uint32_t *by_name; /* indexes into params, sorted by name id */
	uint32_t n_files; /* the files that it was made of */
	const struct rsh_strategy_file *const *files;
};

enum rsh_strategy_form {
	/* There is one file, which is taken as it stands.  If every name in it
	 * is "<stage>-<param>", it is a merged one; otherwise a "-" is part of
	 * a name. */
	RSH_STRATEGY_FILE,
	/* The files of a directory are merged as merge_pipeline_strategys does
	 * it.  The stage of a file is that of its first strategy item; of
	 * several files of one stage the first by name counts; stages are taken
	 * in ascending order. */
	RSH_STRATEGY_DIR,
	/* The files of a directory are merged likewise, but in the order given.
	 * The converter takes files as the directory lists them, which decides
	 * where stages disagree. */
	RSH_STRATEGY_DIR_AS_LISTED,
};

/* Makes one strategy of `n` >= 1 parsed files (RSH_STRATEGY_FILE: of one) and
 * takes over the array (from malloc) and the files, also on failure.  Returns 0
 * and *out, which the caller frees, -ENOMEM, or -EINVAL with a sentence:
 * formats are mixed, a stage is missing, a file of a directory has no strategy
 * items, layouts have different numbers of ranks, or there are more than 2^20
 * ranks. */
int rsh_strategy_merge(struct rsh_strategy_file **files, uint32_t n,
		       enum rsh_strategy_form form, const char *path,
		       struct rsh_names *names, struct rsh_strategy **out,
		       struct rsh_error *err);
void rsh_strategy_free(struct rsh_strategy *s);

/* Returns the parameter, NULL if the strategy does not list the name. */
const struct rsh_strategy_param *rsh_strategy_find(const struct rsh_strategy *s,
						   uint32_t name);

/* Returns the stage whose layout counts when the parameter is read: the lowest
 * that lists it. */
const struct rsh_param_stage *
rsh_param_source_stage(const struct rsh_strategy_param *p);
/* Returns the layout that a stage gives the parameter, NULL if the stage does
 * not list it. */
const struct rsh_strategy_item *
rsh_param_item(const struct rsh_strategy_param *p, uint32_t stage);
bool rsh_param_in_stage(const struct rsh_strategy_param *p, uint32_t stage);
/* Returns the stage whose layout counts for destination rank `rank` (global).
 * That is the rank's own stage if it lists the parameter; else, and always if
 * `converter`, it is the one that MindSpore's converter picks. */
const struct rsh_param_stage *
rsh_param_dest_stage(const struct rsh_strategy *s,
		     const struct rsh_strategy_param *p, uint32_t rank,
		     bool converter);

/* Tells whether the global ranks a and b hold the same slice of every parameter
 * of their stage.  If not, *differs is a parameter of which they hold different
 * slices, or RSH_NAME_NONE if they are of two stages. */
bool rsh_strategy_same_slices(const struct rsh_strategy *s, uint32_t a,
			      uint32_t b, uint32_t *differs);

/* Fills first[0 .. n_stages * stage_ranks - 1]: for each rank the lowest rank
 * that holds the same slice of every parameter.  Returns 0 or -ENOMEM. */
int rsh_strategy_replicas(const struct rsh_strategy *s, uint32_t *first);

/* ---- layout items ---- */

/* Returns the number of ranks of an item's mesh. */
uint32_t rsh_item_ranks(const struct rsh_strategy_item *it);
/* Tells whether the tensor map splits a dimension over mesh axis `axis`,
 * counted as the file lists the mesh. */
bool rsh_item_uses_axis(const struct rsh_strategy_item *item, uint32_t axis);

/* Tells whether both items cut every tensor the same way; NULL equals only
 * NULL. */
bool rsh_item_same_layout(const struct rsh_strategy_item *a,
			  const struct rsh_strategy_item *b);
/* Writes a layout for messages as "mesh [2,4] map [1,-1] optimizer shard -1"
 * ("unsharded" for NULL) to text[size], cut if it does not fit; returns
 * text. */
const char *rsh_item_text(const struct rsh_strategy_item *it, char *text,
			  size_t size);
/* These write only its mesh, "[2,4]", or only its map, "[1,-1]", likewise; `it`
 * is not NULL. */
const char *rsh_item_mesh_text(const struct rsh_strategy_item *it, char *text,
			       size_t size);
const char *rsh_item_map_text(const struct rsh_strategy_item *it, char *text,
			      size_t size);

#endif
