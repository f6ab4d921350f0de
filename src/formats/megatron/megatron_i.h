/* SPDX-License-Identifier: Apache-2.0 */
/* formats/megatron/megatron_i.h - Megatron-LM's own trees (--ckpt-format
 * torch), which MindSpeed-LLM writes too: a directory for each model parallel
 * rank, iter_NNNNNNN/mp_rank_TT[_PPP][_EEE]/model_optim_rng.pt.
 *
 *   listing.c   the files of a source, its steps, the bid
 *   file.c      what one file has: its args, and tensors
 *   states.c    states of the optimizer beside it
 *   names.c     the table of names: how slices of a tensor are joined
 *   mesh.c      all files together: their mesh, the numbers of layers, which
 *               files are lost, or of another rank
 *   slices.c    the slices of one tensor, compared
 *   grouped.c   experts in weight1 and weight2
 *   describe.c  all tensors together, as a distributed checkpoint
 *               (formats/dcp.h), whose reader does the rest
 *
 * No file says how its tensors are cut: their names do.  What should be the
 * same on several ranks is compared.
 *
 * Terms are Megatron's: a stage is what one pipeline rank has; with virtual
 * pipelines it has several chunks, model0, model1, ... */
#pragma once

#include <string.h>

#include "rsh/formats/joined.h"
#include "rsh/formats/torch.h"
#include "rsh/source/format.h"
#include "rsh/util/arena.h"

#define RSH_MEGATRON_ITERATION "iter_"
#define RSH_MEGATRON_RELEASE "release"
#define RSH_MEGATRON_FILE "model_optim_rng.pt"
#define RSH_MEGATRON_OPTIMIZER "distrib_optim.pt"
/* The experts of a rank in one tensor: the ends of names (grouped.c). */
#define RSH_MEGATRON_WEIGHT1 ".mlp.experts.weight1"
#define RSH_MEGATRON_WEIGHT2 ".mlp.experts.weight2"
/* The record of up is that of the gate with this. */
#define RSH_MEGATRON_UP "\2"
#define RSH_MEGATRON_TRACKER "latest_checkpointed_iteration.txt"
/* Sizes of a mesh are not larger. */
#define RSH_MEGATRON_RANKS_MAX 65536

/* ---- one file (file.c) ---- */

/* The arguments of a run that decide what a tree has; 0: absent, None or
 * False. */
enum rsh_megatron_arg {
	RSH_MEGATRON_TENSOR,
	RSH_MEGATRON_PIPELINE,
	RSH_MEGATRON_EXPERT,
	RSH_MEGATRON_EXPERT_TENSOR,
	RSH_MEGATRON_EXPERTS,
	RSH_MEGATRON_LAYERS,
	RSH_MEGATRON_NOOPS, /* how many layers have no tensors */
	RSH_MEGATRON_UNTIED, /* 1, or 2: it is not */
	RSH_MEGATRON_LATENT, /* multi-latent attention */
	RSH_MEGATRON_Q_RANK,
	RSH_MEGATRON_KV_RANK,
	RSH_MEGATRON_ROPE_DIM,
	RSH_MEGATRON_EXTENDS, /* experts are cut over tensor ranks too */
	RSH_MEGATRON_DUAL,    /* the second chunks are in reverse order */
	/* For an output alone. */
	RSH_MEGATRON_HEADS,
	RSH_MEGATRON_GROUPS,
	RSH_MEGATRON_CHANNELS,
	/* For a conversion. */
	RSH_MEGATRON_PADDED,
	RSH_MEGATRON_ARGS
};

/* What a tensor is of its weight: the weight, or a state of it. */
enum rsh_megatron_state {
	RSH_MEGATRON_WEIGHT,
	RSH_MEGATRON_PARAM,
	RSH_MEGATRON_EXP_AVG,
	RSH_MEGATRON_EXP_AVG_SQ,
	RSH_MEGATRON_STATES
};
/* Before the names of states and weights. */
#define RSH_MEGATRON_STATE "optimizer.state."
extern const char *const rsh_megatron_state_names[RSH_MEGATRON_STATES];

static inline bool rsh_megatron_is_state(const char *name)
{
	return strncmp(name, RSH_MEGATRON_STATE,
		       strlen(RSH_MEGATRON_STATE)) == 0;
}

/* A tensor of a file. */
struct rsh_megatron_entry {
	const char *name; /* in its chunk; of a state that of the weight */
	enum rsh_megatron_state state;
	const char *key;  /* of its record */
	uint32_t chunk;
	/* The kind of a tensor that cannot be shown; NULL: it can. */
	const char *make;
	enum rsh_dtype dtype;
	uint32_t n_dims;
	const uint64_t *dims;
	bool row_major;
	/* Of a slice of linear_fc1: its rows are those of the gate, then as
	 * many of up, and each half has a record. */
	enum rsh_megatron_gate {
		RSH_MEGATRON_NO_GATE,
		RSH_MEGATRON_GATED,
		RSH_MEGATRON_ODD_GATE, /* nothing says whether it is */
	} gate;
	uint32_t storage; /* its number, and the first element in it */
	uint64_t from;
	bool has_crc; /* of exactly these elements */
	uint32_t crc;
	uint64_t offset, bytes; /* in the file, with gaps between elements */
};

struct rsh_megatron_file {
	struct rsh_arena arena; /* first: rsh_joined_file_free() */
	uint64_t args[RSH_MEGATRON_ARGS];
	/* The rank of the process and the number of all, from args; 0 of 0:
	 * not known.  With stages_inside a stage is not a range of ranks. */
	uint64_t rank, world;
	bool stages_inside;
	bool has_iteration; /* it says of which it is */
	uint64_t iteration;
	/* Why the file cannot be used, without its name; NULL: it can.  States
	 * are left out then. */
	const char *wrong;
	uint32_t n_chunks;
	bool has_optimizer; /* states that are not shown */
	/* Ascending by chunk, name and state. */
	struct rsh_megatron_entry *v;
	uint32_t n;
};

/* Is `read` of struct rsh_joined_format. */
int rsh_megatron_file_read(void *state, uint32_t file,
			   const struct rsh_byte_source *bytes, bool full,
			   struct rsh_names *names, void **out,
			   struct rsh_ckpt_index **index,
			   struct rsh_error *err);
extern const struct rsh_joined_format rsh_megatron_files; /* describe.c */
/* Returns the tensor of a chunk with that name; NULL: it has none. */
const struct rsh_megatron_entry *
rsh_megatron_find(const struct rsh_megatron_file *f, uint32_t chunk,
		  const char *name, enum rsh_megatron_state state);
/* Replaces the tensors of a distrib_optim.pt by states of the weights in the
 * file beside it; the keys of each are the chunk, the name of the weight, and
 * that of the state.  Sets f->wrong.  Returns 0 or -ENOMEM (states.c). */
int rsh_megatron_states_find(struct rsh_megatron_file *f,
			     const struct rsh_megatron_file *model,
			     struct rsh_torch_file *of);
/* Sets over how many ranks experts are divided, and over how many tensor ranks
 * each of these is cut. */
void rsh_megatron_expert_sizes(const uint64_t *args, uint64_t *n_blocks,
			       uint64_t *expert_tensor);
extern const char *const rsh_megatron_arg_names[RSH_MEGATRON_ARGS];

/* ---- names (names.c) ---- */

enum rsh_megatron_kind {
	RSH_MEGATRON_UNKNOWN,
	RSH_MEGATRON_SAME,    /* equal on all tensor ranks */
	RSH_MEGATRON_ROWS,    /* cut over dimension 0 */
	RSH_MEGATRON_VOCABULARY, /* the same, into parts of any size */
	RSH_MEGATRON_COLUMNS, /* cut over dimension 1 */
	RSH_MEGATRON_QKV,     /* rows; with latent attention the same */
	RSH_MEGATRON_GATE,    /* rows of the gate, then those of up */
	RSH_MEGATRON_Q_DOWN,  /* rows, or the same if a slice has all */
	RSH_MEGATRON_KV_DOWN,
};

/* What a name says. */
struct rsh_megatron_name {
	enum rsh_megatron_kind kind;
	bool of_expert; /* cut over the expert tensor ranks */
	/* Of a layer of the decoder: its number, and what follows it; else
	 * NULL. */
	const char *after_layer;
	uint64_t layer;
	/* Of one expert: where the digits of its number are; else n is 0. */
	size_t at, n;
	uint64_t expert;
	/* The experts of a rank are in one tensor, weight1 or weight2. */
	uint32_t grouped;
};
void rsh_megatron_name_read(const char *name, struct rsh_megatron_name *out);

/* Writes the name of the second matrix beside a linear_fc1.  Returns false if
 * the name is not that of one. */
bool rsh_megatron_second_name(const char *name, char *out, size_t max);

/* Returns the name of the directory of a place, "mp_rank_01_003", if there are
 * so many stages and expert ranks; NULL: memory is out. */
struct rsh_megatron_listed;
const char *rsh_megatron_dir(struct rsh_arena *arena,
			     const struct rsh_megatron_listed *at,
			     uint32_t pipeline, uint32_t expert);

/* ---- a source (listing.c) ---- */

#define RSH_MEGATRON_NO_FILE UINT32_MAX
/* A file of the chosen step; its number is that in the source. */
struct rsh_megatron_listed {
	/* Of states the file with their weights, or RSH_MEGATRON_NO_FILE; else
	 * the file itself. */
	uint32_t model;
	/* What the name of its directory says: one number for each dimension of
	 * the mesh. */
	uint32_t n_numbers, numbers[3];
	/* Its place in the mesh (mesh.c). */
	uint32_t tensor, stage, expert;
};

/* Two copies of which only their bytes say whether they are equal. */
struct rsh_megatron_pair {
	const char *name;
	uint32_t file[2];
	uint64_t offset[2], bytes;
};

/* Experts in one tensor, which the catalogue has in another form
 * (grouped.c). */
struct rsh_megatron_folded {
	const char *name;
	bool first; /* it is weight1 */
	struct rsh_megatron_group {
		uint64_t n; /* experts of a rank */
		uint64_t hidden;
		uint64_t width; /* columns of an expert in weight1 */
		uint64_t f;     /* rows of an expert in weight2 */
	} z;
	/* The shape that is shown, and that of the bytes. */
	uint64_t dims[2], by_bytes[2];
};

/* A layer of a chunk; its place in the array of all is its number. */
struct rsh_megatron_layer {
	uint32_t chunk; /* in the order of the model */
	uint64_t number; /* in the chunk */
};

/* The state of a source. */
struct rsh_source_megatron {
	struct rsh_joined all; /* files of struct rsh_megatron_file */
	/* [all.n_names]; the first n are of the model, then up to all.n of
	 * states, and the others are not there. */
	struct rsh_megatron_listed *listed;
	uint32_t n;

	/* ---- set by the description ---- */
	/* Sizes of the mesh.  Experts are cut over n_blocks, and each of these
	 * over expert_tensor ranks. */
	uint32_t tensor, pipeline, expert, expert_tensor, n_blocks, n_chunks;
	uint32_t first; /* file that can be read */
	const uint64_t *args; /* of it */
	/* Files that are not there, or cannot be read. */
	uint32_t *lost;
	size_t n_lost, cap_lost;
	const char *no_states; /* why states are left out; NULL: they are not,
				* or there are none */
	struct rsh_megatron_layer *layers;
	size_t n_layers, cap_layers;
	struct rsh_megatron_pair *pairs;
	size_t n_pairs, cap_pairs;
	struct rsh_megatron_folded *folded; /* ascending by name */
	size_t n_folded, cap_folded;
};

/* Returns which of the n_blocks of experts a file has. */
static inline uint32_t rsh_megatron_block(const struct rsh_source_megatron *st,
					  uint32_t file)
{
	const struct rsh_megatron_listed *l = &st->listed[file];

	return st->args[RSH_MEGATRON_EXTENDS] ?
	       l->expert * st->tensor + l->tensor : l->expert;
}

/* Reads "iter_5" and "release"; of the latter *step is 0. */
bool rsh_megatron_step_read(const char *name, size_t n, uint64_t *step);
int rsh_megatron_bid(const struct rsh_look *look, struct rsh_bid_more *more);
int rsh_megatron_open(struct rsh_source *s,
		      const struct rsh_source_options *opts,
		      struct rsh_error *err);
int rsh_megatron_choose(struct rsh_source *s, uint32_t candidate,
			struct rsh_error *err);

/* ---- all files (mesh.c, describe.c) ---- */

/* Finds the mesh and the layers: sets the sizes, the places of the files and
 * `layers`.  Returns 0, or -errno with a sentence: a file cannot be read, is
 * missing or is of another mesh; nothing says the sizes; layers are
 * missing. */
int rsh_megatron_mesh_find(struct rsh_source_megatron *st,
			   struct rsh_error *err);
/* Returns -errno with a sentence about a file that is lost. */
int rsh_megatron_refuse_lost(const struct rsh_source_megatron *st,
			     uint32_t file, struct rsh_error *err);
/* Returns a file that has the names which a lost one had. */
uint32_t rsh_megatron_sibling(const struct rsh_source_megatron *st,
			      uint32_t file);
/* Returns the number of a layer in the model. */
size_t rsh_megatron_layer_number(const struct rsh_source_megatron *st,
				 uint32_t chunk, uint64_t number);
/* Returns the number of a chunk in the order of the model. */
uint32_t rsh_megatron_chunk_order(const struct rsh_source_megatron *st,
				  uint32_t stage, uint32_t chunk);

/* ---- the slices of a tensor (slices.c) ---- */

/* A tensor of one file. */
struct rsh_megatron_ref {
	const char *name; /* as it is shown */
	const struct rsh_megatron_entry *e;
	struct rsh_megatron_name is;
	uint32_t file, order; /* of its chunk */
	uint32_t piece; /* which slice it is */
	/* The file is lost, and what it had is like that of another one. */
	bool lost;
	uint32_t like;
	bool spare; /* another file has it (rsh_megatron_slices_check()) */
};

struct rsh_megatron_work {
	struct rsh_source_megatron *st;
	struct rsh_joined *j; /* of st */
	struct rsh_arena *arena; /* of the description */
	struct rsh_megatron_ref *refs;
	size_t n_refs;
};

/* Orders them by name, piece and file. */
int rsh_megatron_ref_by_name(const void *a, const void *b);
#define RSH_MEGATRON_TOO_MANY "it has more elements than can be"
bool rsh_megatron_blame_unknown(struct rsh_megatron_work *w,
				const struct rsh_megatron_ref *r);
/* The slices of a tensor, in their order. */
struct rsh_megatron_cut {
	uint32_t n;    /* slices */
	uint32_t axis; /* that is cut; n is 1: none */
	bool gated;    /* each slice has two runs */
	bool uneven;   /* slices may have different sizes on the axis */
};
/* Sorts slices by their pieces, and checks that each of c->n pieces is there,
 * that copies are equal, and that all have one type and shape.  Copies that
 * were not compared are spare, and pairs of `st`.  Returns true after a
 * problem. */
bool rsh_megatron_slices_check(struct rsh_megatron_work *w,
			       struct rsh_megatron_ref *r, size_t n,
			       const struct rsh_megatron_cut *c);
/* ---- experts in weight1 and weight2 (grouped.c) ---- */

/* Makes the tensor of which n refs are slices.  Returns true after a
 * problem. */
bool rsh_megatron_grouped_take(struct rsh_megatron_work *w,
			       struct rsh_megatron_ref *r, size_t n,
			       struct rsh_dcp_tensor *t);
/* Says where offers of such tensors have their elements in the catalogue, and
 * gives them their shape. */
int rsh_megatron_fold(const struct rsh_source_megatron *st,
		      const struct rsh_read_job *job,
		      struct rsh_offers *offers);
/* Lists tensors in the shape that is shown. */
int rsh_megatron_list(const struct rsh_list_job *job, struct rsh_listed *out,
		      struct rsh_error *err);

/* Compares the copies that were not compared.  Returns 0, or -errno with a
 * sentence: -EBADMSG if they differ. */
int rsh_megatron_pair_check(const struct rsh_source_megatron *st,
			    const struct rsh_megatron_pair *pair,
			    struct rsh_error *err);
