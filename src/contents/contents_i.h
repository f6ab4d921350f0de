/* SPDX-License-Identifier: Apache-2.0 */
/* contents/contents_i.h has what the files share that compare contents with a
 * strategy:
 *   check.c    reads in rounds; uses results of earlier checks
 *   list.c     lists the tensors with kind and cut, and sorts them
 *   holders.c  chooses the ranks whose copies of a tensor are compared
 *   read.c     reads, several ranks at a time
 *   find.c     finds what the bytes of one tensor show about its cut
 *   judge.c    decides about all findings
 *   shapes.c   checks whether the whole tensors of a model fit each other
 *   messages.c makes the sentence of an error
 *   infer.c    finds, without a strategy, which ranks hold the same
 *   slices.c   finds slices that no file has
 *   ranks.c    checks for ranks that the strategy does not have, in the
 *              chosen step and in older ones */
#pragma once

#include "rsh/contents/contents.h"
#include "rsh/source/sample.h"

/* A sample has at most so many reads.  Some of them are reserved for the
 * explanation of a contradiction. */
#define RSH_CONTENTS_READS 256
#define RSH_CONTENTS_EXPLAIN 64
#define RSH_CONTENTS_BLOCK 4096
/* For one tensor of a sample at most so many ranks are compared. */
#define RSH_CONTENTS_HOLDERS 24
/* Bytes with fewer different elements may be equal by chance. */
#define RSH_CONTENTS_DISTINCT 4

/* The kind decides how equal the replicas of a tensor must be: replicas of
 * kinds up to RSH_TENSOR_OTHER may differ. */
enum rsh_tensor_kind {
	RSH_TENSOR_OWN,     /* it differs by rank: gradients that are not
			     * reduced yet */
	RSH_TENSOR_OTHER,   /* it may differ by rank: moving averages, loads */
	RSH_TENSOR_WEIGHT,  /* its name is that of a weight */
	RSH_TENSOR_TRAINED, /* it has optimizer states */
	RSH_TENSOR_STATE,   /* it is an optimizer state */
};

/* This is a rank that holds a slice of the tensor, and what was read of it. */
struct rsh_sampled {
	uint32_t rank;
	uint32_t cell; /* number of its slice by the strategy */
	uint32_t rest; /* number of its slice if dimension 0 is ignored */
	uint32_t distinct; /* different elements in the bytes; 0: none read */
	uint64_t hash; /* hash of all bytes that were read */
	bool failed;   /* a read failed, so the rank is ignored */
};

/* This is what the bytes show about one tensor. */
struct rsh_finding {
	bool told;    /* the bytes show anything at all */
	bool finer;   /* ranks of one slice differ: `differ` are two of them */
	bool coarser; /* ranks of two slices are equal: `same` */
	bool total;   /* coarser, and all bytes that were read are equal */
	bool along_first; /* coarser, but only slices are equal that differ in
			   * dimension 0 alone */
	uint32_t differ[2], same[2];
};

/* A subject is one tensor of one stage. */
struct rsh_subject {
	uint32_t name;
	const struct rsh_strategy_item *item; /* NULL: all ranks hold the whole
					       * tensor */
	uint32_t first, n_local; /* ranks of the stage */
	bool shared; /* several stages have it */
	/* If there is no strategy, these are the first and the last of the
	 * stage's ranks that hold the tensor. */
	uint32_t from, to;
	const struct rsh_ckpt_index *index; /* index of a rank that holds it */
	const struct rsh_record *record;
	enum rsh_tensor_kind kind;
	uint64_t layout;    /* hash of mesh, map and optimizer shard */
	uint64_t partition; /* equal for all tensors that are cut over the same
			     * ranks, in whichever dimension */
	uint64_t pattern;   /* hash of the name without the layer's number */
	uint64_t family;    /* hash of the layout and of the name without any
			     * numbers */
	uint64_t lot;       /* hash of the name: decides which tensor of a
			     * family is read first */
	unsigned n_read;    /* number of blocks that were read */
	bool expanded;      /* `holders` has all ranks that hold it, not a
			     * selection */
	uint32_t n_holders;
	struct rsh_sampled *holders;
	struct rsh_finding finding;
};

struct rsh_contents {
	struct rsh_source *source;
	struct rsh_source_view view;
	const char *path;    /* path of the source, for messages */
	uint32_t first_rank; /* rank of the source that is the strategy's rank
			      * 0 */
	const struct rsh_strategy *src; /* NULL: none */
	const struct rsh_strategy *dst; /* NULL: none */
	struct rsh_names *names;
	enum rsh_grid_rule rule;
	bool full;
	unsigned most_reads; /* limit of the reads of this sample */
	uint32_t n_subjects;
	size_t cap_subjects;
	struct rsh_subject *subjects;
	unsigned n_reads;
	unsigned n_kept; /* subjects that keep their holders, if `full` */
	bool failed; /* some reads failed, so not all was compared */
};

/* Returns the index of a rank; NULL: the rank has no file. */
static inline const struct rsh_ckpt_index *
rsh_contents_index(const struct rsh_contents *c, uint32_t rank)
{
	return rank < c->view.n_ranks ? c->view.index[rank] : NULL;
}

/* ---- list.c ---- */

/* Sets the members for the source; `names` are those of its view. */
void rsh_contents_init(struct rsh_contents *c, struct rsh_source *source,
		       struct rsh_names *names);
/* Frees the subjects. */
void rsh_contents_clear(struct rsh_contents *c);
/* Lists every tensor of every stage whose cut the strategy describes, without
 * its holders.  Without a strategy it lists every tensor, in the order of the
 * lowest rank that has it.  Returns 0 or -ENOMEM. */
int rsh_contents_list(struct rsh_contents *c);
/* Lists the weights and optimizer states among the copied names that `src` does
 * not list, for each stage that holds them.  Returns 0 or -ENOMEM. */
int rsh_contents_list_unlisted(struct rsh_contents *c, const bool *copied);

/* Returns the parameter of an optimizer state, by its name without the first
 * part: "adam_m.dense.weight" is a state of "dense.weight", for any optimizer.
 * Returns RSH_NAME_NONE if the name is not a state. */
uint32_t rsh_contents_state_of(const struct rsh_contents *c, uint32_t name);

/* Makes the grid by which the tensor is cut.  Returns 0, or -errno if its item
 * does not fit it. */
int rsh_subject_grid(const struct rsh_contents *c, const struct rsh_subject *s,
		     struct rsh_grid **out);
/* Sets which slice each holder has, by s->item over the ranks from s->first on.
 * Returns 0, or -errno if the item does not fit the tensor. */
int rsh_subject_set_cells(const struct rsh_contents *c, struct rsh_subject *s);

/* Sorts the subjects so that the most informative ones of each layout come
 * first, and layouts alternate. */
void rsh_contents_sort(struct rsh_contents *c);

/* ---- holders.c ---- */

/* Finds the ranks to be compared: with `all` every rank that holds the tensor,
 * or else ranks that distinguish any two meshes.  Returns 0, -ENOMEM, or
 * -ENODATA if there are fewer than two. */
int rsh_subject_find_holders(const struct rsh_contents *c,
			     struct rsh_subject *s, bool all);

/* ---- read.c ---- */

/* Reads another block of each of the n subjects, or all of their contents if
 * `whole` is set. */
void rsh_contents_read(struct rsh_contents *c, struct rsh_subject **subjects,
		       uint32_t n, bool whole);
/* Returns whether the first two rows of a slice in dimension 0 are equal, as in
 * experts that were copied from one. */
bool rsh_subject_repeats(struct rsh_contents *c, const struct rsh_subject *s);

/* ---- find.c ---- */

/* Sets s->finding.  Returns 0 or -ENOMEM. */
int rsh_subject_find(struct rsh_subject *s);
/* Returns how many different elements a block needs so that blocks are not
 * equal by chance; for a slice with fewer elements it is their number.
 * UINT32_MAX means that a slice is too small to be sure. */
uint32_t rsh_subject_enough(const struct rsh_subject *s);

/* These groups show which holders have equal bytes in what was read. */
struct rsh_groups {
	uint32_t n;
	uint32_t *ranks; /* ascending, without those that failed */
	uint32_t *group; /* number of the first holder with equal bytes */
};
/* Sorts the holders by rank.  Returns 0 or -ENOMEM; *g must be cleared in both
 * cases. */
int rsh_subject_group(struct rsh_subject *s, struct rsh_groups *g);
void rsh_groups_clear(struct rsh_groups *g);

/* ---- judge.c ---- */

/* Decides by all findings.  Returns 0, or -EINVAL with the sentence if the
 * strategy does not fit the tree. */
int rsh_contents_judge(struct rsh_contents *c, struct rsh_error *err);
/* Warns if ranks hold slices of tensors that the strategy does not list.
 * Returns whether there are no such tensors. */
bool rsh_contents_judge_unlisted(const struct rsh_contents *c);

/* ---- shapes.c ---- */

/* Checks whether the matrices of the model have the width of its vectors.
 * Returns 0, -EINVAL with the sentence if another cut would give them that
 * width, or -ENOMEM. */
int rsh_contents_check_shapes(struct rsh_contents *c, struct rsh_error *err);

/* ---- messages.c ---- */

int rsh_contents_refuse(struct rsh_contents *c, struct rsh_subject *worst,
			unsigned n_against, unsigned n_told,
			struct rsh_error *err);
