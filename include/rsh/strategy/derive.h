/* SPDX-License-Identifier: Apache-2.0 */
/* strategy/derive.h derives a strategy that was never planned: the one that
 * MindSpore's planner would write for another mesh, computed from the strategy
 * of a job that it did plan.
 *
 * A strategy says over how many ranks each dimension is split, but not the
 * purpose of the split.  So the first step finds which mesh axis is model
 * parallel, and which one groups experts.  Then every layout is written for the
 * new sizes, the optimizer shard is computed again, and layers are distributed
 * over the stages.  What the source does not show is never guessed: it is an
 * error, whose sentence names the option that provides the missing information.
 *
 * This is arithmetic without I/O.  Objects have no lock: one thread at a time
 * may use one.  Functions return 0, or -errno with a sentence.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "rsh/strategy/strategy.h"
#include "rsh/util/error.h"
#include "rsh/util/names.h"
#include "rsh/util/option.h"
#include "rsh/wire/ckpt.h"
#include "rsh/wire/strategy_emit.h"
#include "rsh/wire/strategy_file.h"

/* ---- options ---- */

struct rsh_derive_options;

enum rsh_derive_option {
	RSH_DERIVE_MESH,     /* dp=2,mp=4[,pp=2]; must be given */
	RSH_DERIVE_SRC_MESH, /* the mesh of the source; inferred if it is not
			      * given */
	RSH_DERIVE_OPT,      /* -1, 0 or a number of ranks; default: as in the
			      * source */
	/* The next three may be given several times. */
	RSH_DERIVE_SPLIT,    /* REGEX=DIM:AXIS or REGEX=DIM:none */
	RSH_DERIVE_AXES,     /* REGEX=AXIS,AXIS...: the mesh of parameters,
			      * where "*" is all ranks that the other axes do
			      * not use */
	RSH_DERIVE_STAGE,    /* REGEX=N, REGEX=first or REGEX=last */
	/* These are used once; a later one replaces an earlier one. */
	RSH_DERIVE_LAYERS,   /* 2,1,1: layers of each stage */
	RSH_DERIVE_OPT_INCLUDE, /* REGEX: shard these if their size can be
				 * divided */
	RSH_DERIVE_OPT_EXCLUDE, /* REGEX: never shard these */
	RSH_DERIVE_DROP,     /* REGEX: leave these out */
};

struct rsh_derive_options *rsh_derive_options_new(void); /* NULL: out of
							  * memory */
void rsh_derive_options_free(struct rsh_derive_options *o);
/* Sets an option from its text.  Returns 0, -ENOMEM, or -EINVAL with a sentence
 * that names the text. */
int rsh_derive_options_set(struct rsh_derive_options *o,
			   enum rsh_derive_option which, const char *text,
			   struct rsh_error *err);

/* Sets the enum rsh_derive_option that `min` of the row is.  The member is a
 * pointer to struct rsh_derive_options, which is made if it is NULL; the caller
 * frees it. */
rsh_option_setter rsh_set_derive;
/* All options but RSH_DERIVE_MESH; their base is such a pointer. */
extern const struct rsh_option rsh_derive_rows[];

/* ---- shapes of whole tensors, in the order of the model ---- */

struct rsh_derive_shapes;

struct rsh_derive_shapes *rsh_derive_shapes_new(void); /* NULL: out of memory */
void rsh_derive_shapes_free(struct rsh_derive_shapes *s);
/* Adds the parameters of rank `rank`'s file that are not there yet, except
 * those of type str.  `src` is the strategy under which it was saved, NULL if
 * it holds whole tensors.  Returns 0, or -errno with a sentence if the file
 * contradicts its strategy or memory is out. */
int rsh_derive_shapes_add(struct rsh_derive_shapes *s,
			  const struct rsh_strategy *src, uint32_t rank,
			  const struct rsh_ckpt_index *index,
			  const struct rsh_names *names, struct rsh_error *err);

/* Returns the dimensions of a whole tensor.  `s` owns them; they are valid
 * until something is added.  NULL means that they are unknown, or that it is
 * not a tensor. */
const int64_t *rsh_derive_shapes_dims(const struct rsh_derive_shapes *s,
				      uint32_t name);

/* ---- the result ---- */

struct rsh_derived {
	uint32_t stage_ranks;
	struct rsh_staged_items items;
	uint32_t n_notes;
	const char *const *notes; /* sentences about what was inferred */
	void *arena_;
};

/* Derives a strategy from `src`, or from `shapes` and rules alone if `src` is
 * NULL.  `shapes` may be NULL if `src` is not NULL; then some meshes cannot be
 * derived.  Returns 0 and *out, which the caller frees; -ENOMEM; or -EINVAL
 * with a sentence about a contradiction or about what is unknown.  *out points
 * into `src`, `shapes` and `names`, which must outlive it; nothing may be added
 * to `shapes` until *out is freed. */
int rsh_strategy_derive(const struct rsh_strategy *src,
			const struct rsh_derive_shapes *shapes,
			const struct rsh_derive_options *options,
			struct rsh_names *names, struct rsh_derived **out,
			struct rsh_error *err);
/* Makes the strategy that would result from writing `d` to a file and loading
 * that file; `path` is for messages.  The caller frees it; it does not depend
 * on `d`. */
int rsh_derived_strategy(const struct rsh_derived *d, const char *path,
			 struct rsh_names *names, struct rsh_strategy **out,
			 struct rsh_error *err);
void rsh_derived_free(struct rsh_derived *d);

/* ---- checking a strategy ---- */

struct rsh_strategy_checked {
	struct rsh_strategy_file **files; /* from malloc */
	uint32_t n;
	bool directory;   /* the files are those of a directory */
	const char *path; /* path of the file or directory, for messages */
	const struct rsh_derive_shapes *shapes; /* NULL: unknown */
};

/* Checks the files of a strategy and calls `report` with a sentence for each
 * error, which names file and parameter: numbers of ranks that differ,
 * optimizer shards that do not fit, dimensions that cannot be divided (for
 * shapes in JSON files and in `shapes`), tensor maps with another number of
 * dimensions, names that the converter cannot read, stages that are missing or
 * in two different files, parameters that stages hold in different ways.
 *
 * The call takes ownership of the files and of the array, as
 * rsh_strategy_merge() does; n may be 0.  Returns 0 whatever it found, or
 * -ENOMEM.
 */
int rsh_strategy_check(const struct rsh_strategy_checked *c,
		       struct rsh_names *names, rsh_strategy_report_fn *report,
		       void *ctx, struct rsh_error *err);
