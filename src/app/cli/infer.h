/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/infer.h has `strategy infer`, which prints what the contents of a
 * tree show about the strategy under which it was saved.
 * infer.c chooses the step, reads its tensors, runs the command, and prints the
 * table, hints, and what cannot be known.
 * infer_mesh.c finds a mesh that explains each tensor, and one for a set. */
#pragma once

#include "rsh/app/printer.h"
#include "rsh/app/options.h"
#include "rsh/contents/infer.h"
#include "rsh/strategy/partition.h"
#include "rsh/util/arena.h"

enum rsh_verdict {
	RSH_VERDICT_ALONE,     /* only one rank holds it */
	RSH_VERDICT_UNREAD,    /* reads failed for all ranks but one */
	RSH_VERDICT_SCATTERED, /* its ranks are not consecutive */
	RSH_VERDICT_SIMPLE,    /* the content that was read decides nothing */
	RSH_VERDICT_MESH,
	RSH_VERDICT_SEVERAL,   /* several meshes are possible: too few ranks are
			        * known */
	RSH_VERDICT_NONE,      /* no mesh gives these groups */
	RSH_VERDICT_PRIVATE,   /* each rank seems to have its own content */
	RSH_N_VERDICTS
};

struct rsh_infer_mesh {
	struct rsh_partition_axis axes[RSH_PARTITION_MAX_AXES];
	unsigned n_axes;
};

struct rsh_infer_tensor {
	struct rsh_inferred of; /* without the holders */
	uint32_t set; /* number of the set of ranks that hold the tensor */
	enum rsh_verdict verdict;
	struct rsh_infer_mesh mesh; /* if the verdict is RSH_VERDICT_MESH */
	bool fits; /* the set's mesh explains the tensor */
};

/* A set has the ranks that hold the same tensors: a pipeline stage, or all
 * ranks. */
struct rsh_infer_set {
	uint32_t n;
	uint32_t *ranks; /* ascending */
	/* The stage has the ranks from `first` to `first` + `span` - 1.  These
	 * are the ranks from the first to the last of `ranks`, including lost
	 * ones, and lost ranks beside them if more tensors are explained
	 * then. */
	uint32_t first, span;
	bool follows;    /* no rank with a file is missing between them */
	struct rsh_infer_mesh mesh; /* the mesh that explains most tensors */
	uint32_t n_tensors;
	uint32_t by_verdict[RSH_N_VERDICTS];
	uint32_t n_fit; /* number of tensors of RSH_VERDICT_MESH that `mesh`
			 * explains */
};

struct rsh_infer {
	const struct rsh_options *options;
	struct rsh_source *source;
	struct rsh_names *names;
	struct rsh_choice *choice;
	char step[256];
	uint32_t *there; /* ranks of the tree, with or without a valid file */
	size_t n_there;
	struct rsh_source_view view;

	struct rsh_arena arena; /* of the arrays of tensors and sets */
	struct rsh_infer_tensor *tensors;
	size_t n_tensors, cap_tensors;
	struct rsh_infer_set *sets;
	size_t n_sets, cap_sets;
	struct rsh_sentences sentences; /* while it is printed */
};

/* Returns whether the rank has a valid file of the step. */
static inline bool rsh_infer_has_file(const struct rsh_infer *x, uint32_t rank)
{
	return rank < x->view.n_ranks && x->view.index[rank];
}

/* Sets verdicts, meshes and sets when all tensors are there.  Returns 0 or
 * -ENOMEM. */
int rsh_infer_explain(struct rsh_infer *x);
/* Returns the groups of all ranks of the set, by the tensor's mesh if it has
 * one: [set->n] numbers below set->span, or RSH_PARTITION_UNKNOWN (from
 * malloc).  Returns NULL if memory is out. */
uint32_t *rsh_infer_groups(const struct rsh_infer *x,
			   const struct rsh_infer_tensor *t);

