/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/infer.h has `strategy infer`, which prints what the contents of a tree
 * say of the strategy it was saved under.
 *   infer.c        chooses the step, reads its tensors, and runs the command
 *   infer_mesh.c   finds what explains each tensor, and all of a set
 *   infer_messages.c    says hints, and what cannot be known, in sentences
 *   infer_print.c  prints the table
 *   infer_json.c   prints JSON
 */
#ifndef RSH_APP_CLI_INFER_H
#define RSH_APP_CLI_INFER_H

#include "printer.h"
#include "rsh/app/exit.h"
#include "rsh/contents/infer.h"
#include "rsh/strategy/partition.h"

enum rsh_verdict {
	RSH_VERDICT_ALONE,     /* one rank holds it */
	RSH_VERDICT_UNREAD,    /* reads failed, of all ranks but one */
	RSH_VERDICT_SCATTERED, /* its holders do not follow each other */
	RSH_VERDICT_SIMPLE,    /* what was read tells nothing */
	RSH_VERDICT_MESH,
	RSH_VERDICT_SEVERAL,   /* several meshes would do: too few are known */
	RSH_VERDICT_NONE,      /* no mesh gives these groups */
	RSH_VERDICT_PRIVATE,   /* each rank seems to keep its own */
	RSH_N_VERDICTS
};

struct rsh_infer_mesh {
	struct rsh_partition_axis axes[RSH_PARTITION_MAX_AXES];
	unsigned n_axes;
};

struct rsh_infer_tensor {
	/* These are as in struct rsh_inferred, but the arrays belong to the
	 * tensor. */
	uint32_t name, state_of, odd_rank;
	const struct rsh_ckpt_index *index;
	const struct rsh_record *record;
	uint32_t n, n_groups, n_failed;
	uint32_t *ranks, *group;
	bool simple, may_be_private;

	uint32_t set; /* number of the set of ranks that hold it */
	enum rsh_verdict verdict;
	struct rsh_infer_mesh mesh; /* if the verdict is RSH_VERDICT_MESH */
	bool fits; /* the set's mesh explains it */
};

/* A set is of ranks that hold the same tensors: a pipeline stage, or all. */
struct rsh_infer_set {
	uint32_t n;
	uint32_t *ranks; /* ascending */
	/* The ranks of the stage are `span` from `first` on: from the first to
	 * the last of `ranks`, lost ones included, and lost ones beside them if
	 * that explains more. */
	uint32_t first, span;
	bool follows;    /* no rank with a file is left out between them */
	struct rsh_infer_mesh mesh; /* the one that explains most tensors */
	uint32_t n_tensors;
	uint32_t by_verdict[RSH_N_VERDICTS];
	uint32_t n_fit; /* tensors of RSH_VERDICT_MESH that it explains */
};

struct rsh_infer {
	const struct rsh_options *options;
	struct rsh_source *source;
	struct rsh_names *names;
	struct rsh_choice *choice;
	char step[256];
	uint32_t *there; /* ranks of the tree, with a valid file or not */
	size_t n_there;
	struct rsh_source_view view;

	struct rsh_infer_tensor *tensors;
	size_t n_tensors, cap_tensors;
	struct rsh_infer_set *sets;
	size_t n_sets, cap_sets;
	char **sentences; /* from malloc */
	size_t n_sentences, cap_sentences;
	size_t n_hints; /* the first ones; the others say what is unknown */
};

enum rsh_exit rsh_infer_command(const struct rsh_options *o);

/* Returns whether the rank has a valid file of the step. */
static inline bool rsh_infer_has_file(const struct rsh_infer *x, uint32_t rank)
{
	return rank < x->view.n_ranks && x->view.index[rank];
}

/* Fills verdicts, meshes and sets, once all tensors are there.  Returns 0 or
 * -ENOMEM. */
int rsh_infer_explain(struct rsh_infer *x);
/* Returns the groups of all holders, by the mesh of a tensor if it has one:
 * [set->n] numbers below set->span, or RSH_PARTITION_UNKNOWN (from malloc).
 * Returns NULL if memory is out. */
uint32_t *rsh_infer_groups(const struct rsh_infer *x,
			   const struct rsh_infer_tensor *t);

/* Adds the sentences.  Returns 0 or -ENOMEM. */
int rsh_infer_print_messages(struct rsh_infer *x);

/* Both return 0 or -ENOMEM. */
int rsh_infer_print(const struct rsh_printer *out, const struct rsh_infer *x);
int rsh_infer_json(const struct rsh_printer *out, const struct rsh_infer *x);

#endif
