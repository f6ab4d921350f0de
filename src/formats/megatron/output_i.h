/* SPDX-License-Identifier: Apache-2.0 */
/* formats/megatron/output_i.h - any model as a tree of Megatron-LM:
 *
 *   wanted.c    the mesh and the layers of stages, as the user wrote them
 *   place.c     which stage, chunk and experts' rank have a tensor, under which
 *               name, and how it is cut
 *   framing.c   the bytes of a file
 *   output.c    the arguments that the files have, the plan, and the tree
 *
 * A tensor is shown in a shape in which each slice is a box: linear_fc1 as
 * [2, f, h], weight1 as [n, h, 2, f], weight2 as [n, f, h].  Its file has the
 * same bytes, and says the shape that Megatron has. */
#pragma once

#include "megatron_i.h"
#include "rsh/formats/output.h"
#include "rsh/plan/writer.h"
#include "rsh/wire/model_config.h"

/* ---- the mesh (wanted.c) ---- */

struct rsh_megatron_wanted {
	uint32_t tensor, pipeline, expert, expert_tensor;
	uint32_t n_chunks; /* of a stage */
	/* Files of a stage.  File r has slice r % tensor of dense weights, and
	 * slice r % expert_tensor of experts, of rank r / expert_tensor %
	 * expert. */
	uint32_t n_ranks;
	const char *layers; /* of chunks, in order: "1,3,2"; NULL: equal */
	const char *step;   /* the name of its directory */
	uint64_t iteration; /* 0 for a release */
};

/* Reads the mesh of the tree.  Returns 0, or -EINVAL with a sentence. */
int rsh_megatron_wanted_read(const struct rsh_output_mesh *mesh,
			     struct rsh_megatron_wanted *out,
			     struct rsh_error *err);
/* Divides layers over chunks: ends[i] is the number of the first layer after
 * chunk i.  Returns 0, or -EINVAL with a sentence. */
int rsh_megatron_wanted_divide(const struct rsh_megatron_wanted *w,
			       uint32_t n_layers, uint32_t *ends,
			       struct rsh_error *err);

/* ---- the model ---- */

/* A tensor that is shown. */
struct rsh_megatron_shown {
	struct rsh_offer o;
	const char *name; /* of the offer */
	uint32_t n_raw; /* the shape that it has in the source */
	const uint64_t *raw;
	struct rsh_megatron_name is;
	uint32_t number; /* in the order of the offers */
	bool again; /* the embedding for prediction layers in the last stage */
	uint32_t order; /* the chunk that has it, in the order of the model */
	struct rsh_placed place;
};

struct rsh_megatron_model {
	const struct rsh_megatron_wanted *wanted;
	struct rsh_catalogue *cat;
	struct rsh_arena arena;
	struct rsh_megatron_shown *v; /* in the order of the files */
	size_t n, cap;
	uint32_t *by_name; /* [name]: 1 + its place in v while that is made */
	uint32_t n_names;  /* length of by_name */
	uint32_t n_layers, n_experts;
	bool latent, engine, untied, predicts;
	/* Heads, and those of keys and values; 0: not known. */
	uint64_t heads, groups;
	const struct rsh_model_config *config; /* NULL: there is none */
	/* Of SOURCE (enum rsh_megatron_arg); NULL: it is no tree of
	 * Megatron's. */
	const uint64_t *args;
};

/* Takes the wanted offers, and finds their names, chunks and experts.  Returns
 * 0, or -errno with a sentence. */
int rsh_megatron_place(struct rsh_megatron_model *m,
		       const struct rsh_offers *offers,
		       const struct rsh_plan_options *opts,
		       struct rsh_error *err);
/* ---- bytes ---- */

/* An argument of a run. */
struct rsh_megatron_said {
	const char *name;
	enum { RSH_MEGATRON_NONE, RSH_MEGATRON_FLAG, RSH_MEGATRON_NUMBER } kind;
	uint64_t value;
};
#define RSH_MEGATRON_SAID_MAX 32

/* What a file has beside its tensors. */
struct rsh_megatron_form {
	struct rsh_megatron_said args[RSH_MEGATRON_SAID_MAX];
	uint32_t n_args; /* 0: the file has no args */
	uint64_t iteration;
	uint32_t n_chunks;
};

extern const struct rsh_framing rsh_megatron_framing;
