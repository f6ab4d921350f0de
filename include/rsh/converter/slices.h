/* SPDX-License-Identifier: Apache-2.0 */
/* converter/slices.h - the slices of one parameter in the files of ranks: which
 * files hold them, whether these are what the source's strategy says, and how
 * the catalogue comes to know of it.
 *
 * The files of a stage are told apart by their *keys*, the ranks within the
 * stage.  Several stages may hold a parameter; those that cut it as the layout
 * does that counts make up for each other, key by key, the lowest stage first.
 * One thread does all of it.
 */
#ifndef RSH_CONVERTER_SLICES_H
#define RSH_CONVERTER_SLICES_H

#include "rsh/plan/catalogue.h"
#include "rsh/strategy/grid.h"
#include "rsh/strategy/strategy.h"

/* ---- the files that there are ---- */

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
/* Gives the place in `held` of the first key that is no lower than `key`;
 * n_held if none is. */
uint32_t rsh_job_files_from(const struct rsh_job_files *f, uint32_t key);
/* Gives the files of one stage: cat->present[*from] .. cat->present[*to -
 * 1]. */
void rsh_job_files_of(const struct rsh_job_files *f, uint32_t stage,
		      uint32_t *from, uint32_t *to);
/* Has a stage any file?  If not, -ENOENT with a sentence, in which the stage is
 * needed for parameter `name`. */
int rsh_job_files_check(const struct rsh_job_files *f, uint32_t stage,
			uint32_t name, struct rsh_error *err);
/* Does the stage cut the parameter as `item` does, or does the strategy not
 * say? */
bool rsh_job_stage_cuts(const struct rsh_job_files *f, uint32_t name,
			uint32_t stage, const struct rsh_strategy_item *item);

/* Gives the global rank of a stage and key. */
static inline uint32_t rsh_job_rank(const struct rsh_job_files *f,
				    uint32_t stage, uint32_t key)
{
	return f->first_rank + stage * f->stage_ranks + key;
}

/* ---- one parameter ---- */

struct rsh_slices {
	/* The caller sets these, and the others to zero: */
	const struct rsh_job_files *files;
	uint32_t name;
	const struct rsh_strategy_item *item; /* the layout that counts; NULL:
					       * each file has it whole */
	uint32_t n_stages;      /* those that count */
	const uint32_t *stages; /* ascending; NULL: from 0 on */
	bool all_alike;         /* one that is not like the reference is an
				 * error, in whichever stage */
	/* rsh_slices_begin() finds the reference, with which the others are
	 * compared: the lowest key of the lowest stage. */
	uint32_t rank;
	const struct rsh_ckpt_index *ix;
	const struct rsh_record *rec;
	/* rsh_slices_find() finds the holders. */
	struct rsh_holder *holders;
	uint32_t n;
	bool *found; /* [held]: some file has this key's slice */
};

/* False: no file of the stages that count has the parameter. */
bool rsh_slices_begin(struct rsh_slices *s);
/* Finds the holders.  The first file of a key has to be as the strategy says;
 * another stage's may be anything, and is used where it is the same.  Of
 * records whose elements are taken `unit` bytes at a time no chunk may end
 * within one.  0, -ENOMEM, or -EINVAL with a sentence that names both files. */
int rsh_slices_find(struct rsh_slices *s, uint32_t unit,
		    struct rsh_error *err);
void rsh_slices_clear(struct rsh_slices *s);

/* Sizes of a tensor: those of a slice, if they are local, or of the whole. */
struct rsh_cut_sizes {
	const int64_t *dims;
	uint32_t n_dims;
	bool local;
};
/* Makes the cut of a layout, which the catalogue keeps; with NULL that of one
 * rank with the whole tensor.  Returns what rsh_grid_new() does. */
int rsh_job_cut(const struct rsh_job_files *f,
		const struct rsh_strategy_item *item,
		const struct rsh_cut_sizes *sizes, enum rsh_grid_rule rule,
		const struct rsh_cut **out, struct rsh_error *err);
/* Puts the tensor with its holders into the catalogue, cut as the layout that
 * counts says.  `other`, which may be NULL, is a layout of the same tensor
 * elsewhere: where it tells the whole shape, that explains an expanded map which
 * the slice alone may explain in several ways.  Sentences name `first_file` as
 * that of key 0.  Returns what rsh_grid_new() does. */
int rsh_slices_add(const struct rsh_slices *s,
		   const struct rsh_strategy_item *other,
		   enum rsh_grid_rule rule, bool replicas, uint32_t first_file,
		   uint32_t *number, struct rsh_error *err);

/* ---- records ---- */

/* Are both records of the same type, shape and size? */
bool rsh_records_alike(const struct rsh_ckpt_index *a,
		       const struct rsh_record *x,
		       const struct rsh_ckpt_index *b,
		       const struct rsh_record *y);
/* Checks that no chunk of a record ends within a unit of so many bytes. */
int rsh_record_check_chunks(const struct rsh_catalogue *cat, uint32_t file,
			    const struct rsh_record *r, uint32_t unit,
			    struct rsh_error *err);
/* Writes the sizes of a record for messages, "[4,2]", cut if they do not fit;
 * returns text. */
const char *rsh_record_dims_text(const struct rsh_ckpt_index *ix,
				 const struct rsh_record *r, char *text,
				 size_t size);

#endif
