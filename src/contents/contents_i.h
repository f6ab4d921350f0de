/* SPDX-License-Identifier: Apache-2.0 */
/* contents/contents_i.h - what the files share that hold contents against a
 * strategy:
 *   check.c    rounds of reading; what is known from an earlier time
 *   list.c     which tensors there are, what each of them is, how the strategy
 *              cuts it, and which of them tell most
 *   holders.c  on which ranks it is compared
 *   read.c     the reads themselves, several at a time
 *   find.c     what the bytes of one tensor say of its cut
 *   judge.c    the verdict over all of them
 *   shapes.c   whether whole tensors would fit each other
 *   messages.c its sentence
 *   infer.c    the same without a strategy: which ranks hold the same
 *   ranks.c    by itself: ranks that the strategy does not have, and what they
 *              saved before, if nothing of the chosen step
 */
#ifndef RSH_CONTENTS_CONTENTS_I_H
#define RSH_CONTENTS_CONTENTS_I_H

#include "rsh/contents/contents.h"
#include "rsh/source/sample.h"

/* A sample has so many reads, of which some are kept back to explain what was
 * found. */
#define RSH_CONTENTS_READS 256
#define RSH_CONTENTS_EXPLAIN 64
#define RSH_CONTENTS_BLOCK 4096
/* So many ranks are compared at most for one tensor of a sample. */
#define RSH_CONTENTS_HOLDERS 24
/* Bytes with fewer different elements may be the same by chance. */
#define RSH_CONTENTS_DISTINCT 4

/* The kind tells how much is to be expected of a tensor's replicas: up to
 * RSH_TENSOR_OTHER they may differ. */
enum rsh_tensor_kind {
	RSH_TENSOR_OWN,     /* each rank's own: gradients not yet summed up */
	RSH_TENSOR_OTHER,   /* a rank may keep its own: moving averages,
			     * loads */
	RSH_TENSOR_WEIGHT,  /* it looks like a weight */
	RSH_TENSOR_TRAINED, /* it has optimizer states */
	RSH_TENSOR_STATE,   /* it is an optimizer state */
};

/* A rank that holds a slice of the tensor is described by this, with what was
 * read of it. */
struct rsh_sampled {
	uint32_t rank;
	uint32_t cell; /* which slice it is by the strategy */
	uint32_t rest; /* which slice it is but for dimension 0 */
	uint32_t distinct; /* different elements that were seen; 0: none read */
	uint64_t hash; /* hash of all that was read */
	bool failed;   /* a read failed: it says nothing */
};

/* This is what the bytes say of one tensor. */
struct rsh_finding {
	bool told;    /* the bytes say anything at all */
	bool finer;   /* ranks of one slice differ: `differ` are two of them */
	bool coarser; /* ranks of two slices are the same: `same` */
	bool total;   /* coarser, and all that was read is the same */
	bool along_first; /* coarser, but only where just dimension 0 is cut */
	uint32_t differ[2], same[2];
};

/* A subject is one tensor of one stage. */
struct rsh_subject {
	uint32_t name;
	const struct rsh_strategy_item *item; /* NULL: all ranks hold it
					       * whole */
	uint32_t first, n_local; /* ranks of the stage */
	/* Without a strategy: the first and the last of these that hold it. */
	uint32_t from, to;
	const struct rsh_ckpt_index *index; /* index of a rank that holds it */
	const struct rsh_record *record;
	enum rsh_tensor_kind kind;
	uint64_t layout;    /* hash of mesh, map and shard */
	uint64_t partition; /* equal for all that are cut over the same ranks,
			     * whichever dimension is */
	uint64_t pattern;   /* hash of the name without the layer's number */
	uint64_t family;    /* hash of the layout and the name without any
			     * numbers */
	uint64_t lot;       /* hash of the name: which of a family comes
			     * first */
	unsigned n_read;    /* how many blocks were read */
	bool expanded;      /* all its holders are there, not just a choice */
	uint32_t n_holders;
	struct rsh_sampled *holders;
	struct rsh_finding finding;
};

struct rsh_contents {
	struct rsh_source *source;
	struct rsh_source_view view;
	const char *path;    /* path of the source, for messages */
	uint32_t first_rank; /* the strategy's rank 0 */
	const struct rsh_strategy *src; /* NULL: none */
	const struct rsh_strategy *dst; /* NULL: none */
	struct rsh_names *names;
	enum rsh_grid_rule rule;
	bool full;
	unsigned most_reads; /* of this sample */
	uint32_t n_subjects;
	size_t cap_subjects;
	struct rsh_subject *subjects;
	unsigned n_reads;
	unsigned n_kept; /* subjects that keep their holders, if full */
	bool failed; /* some reads did: not all was compared */
};

/* Gives the index of a rank; NULL: it has no file. */
static inline const struct rsh_ckpt_index *
rsh_contents_index(const struct rsh_contents *c, uint32_t rank)
{
	return rank < c->view.n_ranks ? c->view.index[rank] : NULL;
}

/* ---- list.c ---- */

/* Takes what the others need of the source; `names` are those of its view. */
void rsh_contents_init(struct rsh_contents *c, struct rsh_source *source,
		       struct rsh_names *names);
/* Frees the subjects. */
void rsh_contents_clear(struct rsh_contents *c);
/* Lists every tensor of every stage whose cut the strategy tells, without its
 * holders; without a strategy every tensor, in the order of the lowest rank
 * that has it.  0 or -ENOMEM. */
int rsh_contents_list(struct rsh_contents *c);
/* Lists the weights and optimizer states among the copied names that `src` does
 * not list, for each stage that holds them.  0 or -ENOMEM. */
int rsh_contents_list_unlisted(struct rsh_contents *c, const bool *copied);

/* Gives the name of the parameter that a name is an optimizer state of, which
 * is the name without its first part: "adam_m.dense.weight" is a state of
 * "dense.weight", whatever the optimizer calls its states.  RSH_NAME_NONE: it
 * is no such state. */
uint32_t rsh_contents_state_of(const struct rsh_contents *c, uint32_t name);

/* Makes the grid by which the tensor is cut.  0 or -errno if its item does not
 * fit it. */
int rsh_subject_grid(const struct rsh_contents *c, const struct rsh_subject *s,
		     struct rsh_grid **out);
/* Fills in which slice each holder has, by s->item over ranks s->first and on.
 * 0 or -errno if the item does not fit the tensor. */
int rsh_subject_set_cells(const struct rsh_contents *c, struct rsh_subject *s);

/* Sorts the subjects so that those which tell most of a layout come first, and
 * each layout in turn. */
void rsh_contents_sort(struct rsh_contents *c);

/* ---- holders.c ---- */

/* Finds the ranks to be compared: `all` that hold it, or those that tell any
 * two meshes apart.  0, -ENOMEM, or -ENODATA if there are not two. */
int rsh_subject_find_holders(const struct rsh_contents *c,
			     struct rsh_subject *s, bool all);

/* ---- read.c ---- */

/* Reads one block more of each of the n subjects, or all of their contents if
 * `whole` is set. */
void rsh_contents_read(struct rsh_contents *c, struct rsh_subject **subjects,
		       uint32_t n, bool whole);
/* Does a slice hold the same at two places of dimension 0, as that of experts
 * which began as copies of one does? */
bool rsh_subject_repeats(struct rsh_contents *c, const struct rsh_subject *s);

/* ---- find.c ---- */

/* Fills s->finding.  0 or -ENOMEM. */
int rsh_subject_find(struct rsh_subject *s);
/* Says how many different elements a block needs so that it is not the same by
 * chance: of a slice that has fewer elements, all of them.  A slice of fewer
 * bytes may always be. */
uint32_t rsh_subject_enough(const struct rsh_subject *s);

/* These groups say which holders hold the same, as far as was read. */
struct rsh_groups {
	uint32_t n;
	uint32_t *ranks; /* ascending, without those that failed */
	uint32_t *group; /* number of the first holder with the same bytes */
};
/* Sorts the holders by rank.  0 or -ENOMEM; *g is to be cleared then, too. */
int rsh_subject_group(struct rsh_subject *s, struct rsh_groups *g);
void rsh_groups_clear(struct rsh_groups *g);

/* ---- infer.c ---- */

/* Are both records of one type and shape? */
bool rsh_contents_is_alike(const struct rsh_ckpt_index *ia,
			   const struct rsh_record *a,
			   const struct rsh_ckpt_index *ib,
			   const struct rsh_record *b);

/* ---- judge.c ---- */

/* Judges over all findings: 0, or -EINVAL and the sentence if the strategy is
 * another tree's. */
int rsh_contents_judge(struct rsh_contents *c, struct rsh_error *err);
/* Warns of what the strategy does not list and ranks hold slices of, and
 * returns whether there is no such thing. */
bool rsh_contents_judge_unlisted(const struct rsh_contents *c);

/* ---- shapes.c ---- */

/* Checks whether matrices are as wide as the vectors of the model.  0, -EINVAL
 * and the sentence if another cut would make them so, or -ENOMEM. */
int rsh_contents_check_shapes(struct rsh_contents *c, struct rsh_error *err);

/* ---- messages.c ---- */

int rsh_contents_refuse(struct rsh_contents *c, struct rsh_subject *worst,
			unsigned n_against, unsigned n_told,
			struct rsh_error *err);

#endif
