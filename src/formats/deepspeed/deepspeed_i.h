/* SPDX-License-Identifier: Apache-2.0 */
/* formats/deepspeed/deepspeed_i.h - checkpoints of DeepSpeed: ZeRO 0, 1, 2 and
 * 3, and the universal form.
 *
 *   names.c     names of files: what a file has, and of which rank
 *   listing.c   the files of a source, its steps, the bid
 *   chosen.c    what the files of the chosen step are
 *   head.c      what a pickle says: names and shapes of parameters, the stage
 *   layout.c    where each parameter is in the flat groups: arithmetic
 *   file.c      what one file has
 *   describe.c  all files together, as a distributed checkpoint
 *               (formats/dcp.h), whose reader does the rest
 *
 * Terms are DeepSpeed's: a group of parameters is one flat tensor, of which
 * each data parallel rank has a part; masters are the float32 weights of the
 * optimizer; the module is the model, in the type of the training. */
#pragma once

#include "rsh/formats/joined.h"
#include "rsh/formats/torch.h"
#include "rsh/source/format.h"
#include "rsh/util/arena.h"
#include "rsh/wire/pickle_values.h"

/* A job is not larger. */
#define RSH_DS_RANKS_MAX 65536
/* A run of elements is so many boxes at most. */
#define RSH_DS_BOXES_MAX (2 * RSH_MAX_DIMS)
#define RSH_DS_OTHER_RANK "the file is of rank %u, not %u"
#define RSH_DS_LATEST "latest"
#define RSH_DS_LATEST_UNIVERSAL "latest_universal"

/* ---- names of files (names.c) ---- */

enum rsh_ds_role {
	RSH_DS_OTHER,
	RSH_DS_MODEL,	   /* mp_rank_00_model_states.pt */
	RSH_DS_MODEL_PART, /* zero_pp_rank_3_mp_rank_00_model_states.pt */
	RSH_DS_OPTIMIZER,  /* the same with optim_states, or bf16_ before it */
	RSH_DS_EXPERT,	   /* layer_0_expert_3_mp_rank_00_model_states.pt */
	RSH_DS_EXPERT_OPTIMIZER, /* expp_rank_3_mp_rank_00_optim_states.pt */
	RSH_DS_PIPELINE, /* layer_01-model_00-model_states.pt */
	/* These are below zero/ in the universal form. */
	RSH_DS_STATE,  /* NAME/exp_avg.pt; of masters it is fp32.pt */
	RSH_DS_VALUES, /* optimizer_state.pt */
};

/* What a name says. */
struct rsh_ds_name {
	enum rsh_ds_role role;
	uint32_t rank;	 /* data parallel */
	uint32_t tensor; /* tensor parallel rank */
	uint32_t layer, expert;
};
/* Reads the name of a file in the directory of a step.  Returns false if
 * DeepSpeed does not write such a name. */
bool rsh_ds_name_read(const char *name, struct rsh_ds_name *out);
/* Returns whether the name is that of a file with weights of a model. */
bool rsh_ds_name_is_model(const char *name);
/* Reads the number at the end of the name of a step, before "_universal". */
bool rsh_ds_step_read(const char *name, uint64_t *step);

/* ---- what a pickle says (head.c) ---- */

struct rsh_ds_param {
	const char *name;
	uint32_t n_dims;
	const uint64_t *dims;
	uint64_t elements;
	/* The first element of it, in the vector of its group; of ZeRO 3 in the
	 * flat tensor of each rank. */
	uint64_t at;
	uint64_t share; /* of ZeRO 3: elements of it that each rank has */
	bool frozen;
};

struct rsh_ds_params {
	uint32_t n;
	struct rsh_ds_param *v; /* in the order of the pickle */
};

/* What a file of a model says. */
struct rsh_ds_head {
	bool has_shapes;     /* false: ZeRO 0 */
	bool has_optimizer;  /* in the same file, of ZeRO 0 */
	uint32_t n_groups;
	struct rsh_ds_params *groups;
	struct rsh_ds_params frozen;
	/* Of the chosen file: all parameters, ascending by name (malloc). */
	struct rsh_ds_param **by_name;
	size_t n_names;
	uint32_t n_buffers, n_aliases;
	const char **buffers; /* ascending */
	struct rsh_ds_alias {
		const char *name, *of;
	} *aliases;
	uint64_t world;	     /* data parallel ranks; 0: not said */
	uint64_t step, skipped; /* the optimizer did not make the latter */
	bool round_robin;
	/* How many experts each layer has; n is 0: none. */
	uint32_t n_layers;
	uint64_t *experts;
	const char *version; /* "" if it is not known */
	/* Why the model cannot be shown; NULL: it can. */
	const char *wrong;
};

/* What a file of an optimizer says. */
struct rsh_ds_zero {
	uint32_t stage; /* 0: it has no flat groups */
	uint32_t n_groups;
	uint32_t world; /* the greatest partition count */
	/* [n_groups]: how many elements of padding follow each parameter; NULL:
	 * none.  n_paddings of a group is 0 if it has none. */
	uint32_t *n_paddings;
	uint64_t **paddings;
	/* What param_slice_mappings says that the file has; n_slices is 0:
	 * nothing.  It is only good enough to tell ranks from each other. */
	uint32_t n_slices;
	struct rsh_ds_slice {
		const char *name;
		uint32_t group;
		uint64_t at, n;
	} *slices;
	/* How many steps the optimizer made, as the first group says that has
	 * it. */
	bool has_step;
	uint32_t step_group;
	uint64_t step;
	const char *wrong;
};

/* These copy what they read.  Return 0, or -errno with a sentence;
 * arena->failed: memory is out. */
int rsh_ds_head_read(const struct rsh_pickle_value *root, const char *path,
		     struct rsh_arena *arena, struct rsh_ds_head *out,
		     struct rsh_error *err);
int rsh_ds_zero_read(const struct rsh_pickle_value *root, const char *path,
		     struct rsh_arena *arena, struct rsh_ds_zero *out,
		     struct rsh_error *err);
/* Returns whether both name the same parameters, with the same shapes, in the
 * same order. */
bool rsh_ds_heads_alike(const struct rsh_ds_head *a,
			const struct rsh_ds_head *b);
/* Sets by_name.  Returns 0 or -ENOMEM. */
int rsh_ds_head_index(struct rsh_ds_head *h);
/* Returns the parameter of a name; NULL: there is none, or h is NULL. */
struct rsh_ds_param *rsh_ds_param_find(const struct rsh_ds_head *h,
				       const char *name, bool frozen);
bool rsh_ds_is_buffer(const struct rsh_ds_head *h, const char *name);
/* Returns whether it is the second name of a tied parameter. */
bool rsh_ds_is_alias(const struct rsh_ds_head *h, const char *name);

/* ---- where parameters are (layout.c) ---- */

struct rsh_ds_layout {
	uint32_t stage; /* 0: there are no flat groups */
	uint32_t world;
	const struct rsh_ds_head *head;
	/* [head->n_groups], of ZeRO 1 and 2: elements of the vector that each
	 * rank has; of ZeRO 3 elements of the flat tensor of a rank. */
	const uint64_t *piece;
	/* Of ZeRO 1 and 2: without the padding at its end. */
	uint64_t *elements;
};

/* Sets where each parameter is.  `piece` has the lengths of the flat tensors of
 * rank 0, and lives as long as the layout.  Returns 0, -ENOMEM, or -EBADMSG
 * with a sentence. */
int rsh_ds_layout_make(struct rsh_ds_head *h, const struct rsh_ds_zero *z,
		       const uint64_t *piece, const char *path,
		       struct rsh_arena *arena, struct rsh_ds_layout *out,
		       struct rsh_error *err);
/* Sets the share of frozen parameters, of which each of `world` ranks has
 * one. */
void rsh_ds_layout_frozen(struct rsh_ds_head *h, uint32_t world);

/* Elements of a parameter that a rank has: `n` from `from` on, which begin at
 * `at` in its flat tensor. */
struct rsh_ds_run {
	uint64_t from, n, at;
};
/* Returns what a rank has of a parameter of a group. */
struct rsh_ds_run rsh_ds_run_of(const struct rsh_ds_layout *l, uint32_t group,
				const struct rsh_ds_param *p, uint32_t rank);
/* Returns what a rank has of a parameter of which each has a share. */
struct rsh_ds_run rsh_ds_share_of(const struct rsh_ds_param *p, uint32_t rank);
/* Divides a run into boxes, in the order of its elements, of which each is
 * contiguous.  Returns their number. */
uint32_t rsh_ds_run_boxes(const struct rsh_ds_param *p,
			  const struct rsh_ds_run *run,
			  struct rsh_box boxes[RSH_DS_BOXES_MAX]);

/* ---- one file (file.c) ---- */

/* A tensor that a file has whole, or its part of a frozen parameter. */
struct rsh_ds_tensor {
	const char *name;
	const char *record; /* its name in the index */
	enum rsh_dtype dtype;
	uint32_t n_dims;
	const uint64_t *dims;
	uint64_t elements;
	bool row_major;
	uint64_t offset; /* of the elements, if they are contiguous */
};

/* A flat tensor of a group. */
struct rsh_ds_flat {
	uint32_t group;
	const char *key; /* "exp_avg"; "": the masters */
	enum rsh_dtype dtype;
	uint64_t elements;
	bool is_scalar; /* of each parameter, as a step */
	bool is_odd;	/* it has another length than the group */
	const char *record; /* of a scalar */
};

struct rsh_ds_file {
	struct rsh_arena arena; /* first: rsh_joined_file_free() */
	struct rsh_ds_head head; /* of a model */
	struct rsh_ds_zero zero; /* of an optimizer */
	/* The name under which torch.save() wrote it; RSH_DS_OTHER: not
	 * known. */
	struct rsh_ds_name saved_as;
	/* Of the module, of an expert, or of the universal form, of which the
	 * name is "". */
	uint32_t n_tensors, n_fragments, n_flats;
	struct rsh_ds_tensor *tensors; /* ascending by name */
	struct rsh_ds_tensor *fragments; /* ascending by name */
	struct rsh_ds_flat *flats; /* ascending by group and key */
};

/* Is `read` of struct rsh_joined_format.  Of the state it uses `listed`, and
 * what the chosen files say: without it parts of parameters get no records. */
int rsh_ds_file_read(void *state, uint32_t file,
		     const struct rsh_byte_source *bytes, bool full,
		     struct rsh_names *names, void **out,
		     struct rsh_ckpt_index **index, struct rsh_error *err);
const struct rsh_ds_tensor *rsh_ds_tensor_find(const struct rsh_ds_tensor *v,
					       uint32_t n, const char *name);
const struct rsh_ds_flat *rsh_ds_flat_find(const struct rsh_ds_file *f,
					   uint32_t group, const char *key);
/* Returns the name of the record of a box of a parameter; NULL: memory is
 * out. */
char *rsh_ds_record(struct rsh_arena *arena, const char *key, const char *name,
		    uint32_t box);
/* The key of frozen parameters in such names. */
#define RSH_DS_FROZEN "frozen"
/* The key of masters in the universal form. */
#define RSH_DS_FP32 "fp32"

/* ---- a source (listing.c) ---- */

/* A file of the chosen step; its number is that in the source. */
struct rsh_ds_listed {
	struct rsh_ds_name is;
	const char *param, *key; /* of RSH_DS_STATE */
};

/* The state of a source. */
struct rsh_source_ds {
	struct rsh_joined all; /* is first */
	struct rsh_ds_listed *listed;
	bool is_file; /* SOURCE is the file of a model */
	bool is_universal;

	/* ---- set by rsh_ds_choose() ---- */
	/* Why the step cannot be shown, which the description says; code 0: it
	 * can. */
	struct rsh_error wrong;
	struct rsh_ds_file *head_file; /* owns `head` */
	struct rsh_ds_head *head;
	struct rsh_ds_layout layout;
	uint32_t model; /* the number of the file of the model */
	bool is_3;	/* this is a part of a model of ZeRO 3 */
	/* The model is that of the module, in the type of the training, because
	 * of this; NULL: it is that of the masters. */
	const char *from_module;
	bool lacks_optimizer; /* files of the optimizer are missing */
	bool has_some; /* but not all */

	/* ---- set by the description ---- */
	uint32_t n_frozen, n_aliases;
	/* A tensor of the module that is neither a buffer nor in a list of
	 * parameters; NULL: none. */
	const char *extra;
	const char *states; /* "exp_avg, exp_avg_sq, step"; "": none */
	const char *left_out; /* what is not shown, and why; "": nothing */
};

int rsh_ds_bid(const struct rsh_look *look, struct rsh_bid_more *more);
int rsh_ds_open(struct rsh_source *s, const struct rsh_source_options *opts,
		struct rsh_error *err);

/* ---- the chosen step (chosen.c) ---- */

int rsh_ds_choose(struct rsh_source *s, uint32_t candidate,
		  struct rsh_error *err);
extern const struct rsh_joined_format rsh_ds_files; /* describe.c */
