/* SPDX-License-Identifier: Apache-2.0 */
/* plan/slices.h - finds the slices of one parameter in the files of ranks,
 * checks them against the source's strategy, and adds them to a catalogue.
 *
 * The *key* of a file is its rank within its stage.  Several stages may hold a
 * parameter.  If they cut it as rsh_slices.item says, files with equal keys
 * hold the same slice, and the file of the lowest stage is preferred.  One
 * thread calls these functions.
 */
#pragma once

#include "rsh/plan/catalogue.h"
#include "rsh/strategy/grid.h"
#include "rsh/strategy/strategy.h"

/* ---- the files of a job ---- */

struct rsh_job_files {
	struct rsh_catalogue *cat;
	const struct rsh_strategy *src; /* NULL: there is none */
	uint32_t first_rank;    /* global rank of stage 0, key 0 */
	uint32_t stage_ranks;   /* ranks of a stage */
	uint32_t n_stages;
	uint32_t n_held;
	uint32_t *held; /* keys that some stage has a file of, ascending */
};

/* Fills `held`, which the caller frees.  0 or -ENOMEM. */
int rsh_job_files_list(struct rsh_job_files *f);
/* Returns the index in `held` of the first key >= `key`, or n_held. */
uint32_t rsh_job_files_from(const struct rsh_job_files *f, uint32_t key);
/* Gives the files of a stage: cat->present[*from] .. cat->present[*to - 1]. */
void rsh_job_files_of(const struct rsh_job_files *f, uint32_t stage,
		      uint32_t *from, uint32_t *to);
/* Returns 0 if a stage has a file, else -ENOENT with a message that parameter
 * `name` needs it. */
int rsh_job_files_check(const struct rsh_job_files *f, uint32_t stage,
			uint32_t name, struct rsh_error *err);
/* Returns whether the stage cuts the parameter as `item` says, or its layout is
 * not known. */
bool rsh_job_stage_cuts(const struct rsh_job_files *f, uint32_t name,
			uint32_t stage, const struct rsh_strategy_item *item);

/* Returns the global rank of a stage and key. */
static inline uint32_t rsh_job_rank(const struct rsh_job_files *f,
				    uint32_t stage, uint32_t key)
{
	return f->first_rank + stage * f->stage_ranks + key;
}

/* ---- one parameter ---- */

struct rsh_slices {
	/* The caller sets these, and all others to zero: */
	const struct rsh_job_files *files;
	uint32_t first_file; /* the file of key 0, for messages */
	uint32_t name;
	const struct rsh_strategy_item *item; /* the layout that is used; NULL:
					       * each file has it whole */
	uint32_t n_stages;      /* stages whose files are used */
	const uint32_t *stages; /* ascending; NULL: from 0 on */
	bool all_alike;         /* a record that differs from the reference is
				 * an error in every stage */
	/* rsh_slices_begin() finds the reference record, with which the others
	 * are compared: the lowest key of the lowest stage. */
	uint32_t rank;
	const struct rsh_ckpt_index *ix;
	const struct rsh_record *rec;
	/* rsh_slices_find() finds the holders. */
	struct rsh_holder *holders;
	uint32_t n;
	bool *found; /* [held]: some file has this key's slice */
	struct rsh_grid *manual; /* rsh_item_manual() */
};

/* Finds the reference record.  False: no file of these stages has the
 * parameter. */
bool rsh_slices_begin(struct rsh_slices *s);
/* Finds the holders.  The first file of a key must agree with the strategy.
 * The file of another stage is used only if it is equal.  No chunk of a record
 * may end within a unit of `unit` bytes.  0, -ENOMEM, or -EINVAL with a message
 * that names both files. */
int rsh_slices_find(struct rsh_slices *s, uint32_t unit, struct rsh_error *err);
void rsh_slices_clear(struct rsh_slices *s);

/* Adds the tensor with its holders to the catalogue.  `other`, which may be
 * NULL, is another layout of the tensor.  If it has the whole shape, this shape
 * decides how an expanded map is folded when the slice alone does not.
 * Returns what rsh_item_cut() does. */
int rsh_slices_add(const struct rsh_slices *s,
		   const struct rsh_strategy_item *other,
		   enum rsh_grid_rule rule, bool replicas, uint32_t *number,
		   struct rsh_error *err);

/* ---- records ---- */

/* Returns whether both records have the same type, shape and size. */
bool rsh_records_alike(const struct rsh_ckpt_index *a,
		       const struct rsh_record *x,
		       const struct rsh_ckpt_index *b,
		       const struct rsh_record *y);
/* Checks that no chunk of a record ends within a unit of `unit` bytes. */
int rsh_record_check_chunks(const struct rsh_catalogue *cat, uint32_t file,
			    const struct rsh_record *r, uint32_t unit,
			    struct rsh_error *err);
/* Formats the sizes of a record for messages, "[4,2]".  Cuts a text that does
 * not fit.  Returns text. */
const char *rsh_record_dims_text(const struct rsh_ckpt_index *ix,
				 const struct rsh_record *r, char *text,
				 size_t size);
