/* SPDX-License-Identifier: Apache-2.0 */
/* formats/safetensors/hf_config_i.h - compares the config.json of a Hugging
 * Face model with the weights beside it, and corrects it; only this directory
 * includes it.
 *
 * transformers trusts config.json: it initializes tensors that are missing in
 * the weights, and skips tensors that the model does not have.  So what a shown
 * config.json says about the weights must match them.
 *
 * Only what is certain is checked.  Sizes are checked for models whose decoder
 * has Hugging Face's usual names, at the top or, in models of several parts, in
 * "text_config".  For other models the type and the quantization are checked.
 * tests/oracle/config_says.py proves for all models of transformers that none
 * is refused with its own config.json.
 *
 * No file is read. */
#pragma once

#include "rsh/formats/model_files.h"
#include "rsh/formats/output.h"
#include "rsh/tensor/box.h"
#include "rsh/tensor/dtype.h"
#include "rsh/util/error.h"
#include "rsh/wire/json_edit.h"

struct rsh_hf_weight {
	const char *name;
	enum rsh_dtype dtype;
	uint32_t n_dims;
	const int64_t *dims;
};

struct rsh_hf_weights {
	const struct rsh_hf_weight *v;
	uint32_t n;
	/* The options leave tensors out.  Tensors that the config has and the
	 * weights do not are passed to `note`, and are not an error. */
	bool partial;
	/* Weights and config.json are shown as SOURCE has them: all differences
	 * are passed to `note`. */
	bool as_saved;
	/* Returns whether the contents of two tensors of one type and shape are
	 * known to differ. */
	bool (*differ)(void *ctx, uint32_t a, uint32_t b);
	/* Gets a sentence about a difference that is not an error. */
	void (*note)(void *ctx, const char *sentence);
	void *ctx;
};

/* Notes if the names are those of a wrapped model, or of one with an adapter
 * that is not merged, and returns whether they are: transformers would look for
 * other ones, and initialize these weights.  `path` is for the message. */
bool rsh_hf_names_check(const struct rsh_hf_weights *w, const char *path);

/* Compares a config.json with the weights.  Sets "dtype" and "torch_dtype" to
 * the type of the weights, and removes "quantization_config" if no weight is
 * quantized.  With `complete`, adds missing keys whose values are known, if the
 * file names the model. `path` is for messages.  Returns 0, -ENOMEM, or -EINVAL
 * with a sentence that names path, key, its value, and the value that follows
 * from the weights. */
int rsh_hf_config_update(const struct rsh_hf_weights *w,
			 struct rsh_json_edit *e, const char *path,
			 bool complete, struct rsh_error *err);

/* ---- facts about the weights (hf_facts.c) ---- */

#define HF_NONE UINT32_MAX

/* These are the sizes in config.json; some have several names (hf_config.c). */
enum hf_key {
	HF_KEY_NONE,
	HF_LAYERS,
	HF_VOCAB,
	HF_HIDDEN,
	HF_MLP,
	HF_EXPERTS,
	HF_EXPERT_MLP,
	HF_HEAD_DIM,
	HF_HEADS,
	HF_KV_HEADS,
	HF_Q_RANK,
	HF_KV_RANK,
	HF_NOPE_DIM,
	HF_ROPE_DIM,
	HF_V_DIM,
	HF_N_KEYS
};

/* A dimension is times * (a + b), without the members that are HF_KEY_NONE. If
 * all three are HF_KEY_NONE, the dimension is not compared. */
struct hf_dim {
	enum hf_key times, a, b;
};
/* This is a tensor below the decoder's prefix or, with `layer`, below that of a
 * layer.  {} is the number of an expert. */
struct hf_shape {
	const char *name;
	bool layer;
	enum hf_attention {
		HF_EITHER,
		HF_PLAIN, /* all heads are alike */
		HF_RANKS  /* queries, keys and values have ranks (MLA) */
	} attention;
	uint32_t n_dims;
	struct hf_dim dims[3];
	/* Heads have the size of values, if the config has one. */
	bool of_values;
};
#define HF_N_SHAPES 34
extern const struct hf_shape hf_shapes[HF_N_SHAPES];
/* This shape is the norm of queries.  It is as long as one head, or as all
 * heads. */
#define HF_QUERY_NORM 22
/* This shape has the rows of queries, keys and values in one matrix. */
#define HF_FUSED_HEADS 23

/* These are the facts in names, shapes and types of the weights.  A weight is
 * given by its number, or is HF_NONE. */
struct hf_facts {
	const struct rsh_hf_weights *w;
	const char *prefix; /* prefix of the decoder; NULL: none, or several */
	const char *list;   /* name of its layers after the prefix: "layers." */
	uint32_t n_layers;  /* without those for prediction; 0: not known */
	uint32_t gap; /* the first one below n_layers that has no weight */
	uint32_t n_experts; /* 0: not known */
	/* an expert without a weight in a layer that has others */
	uint32_t gap_expert, gap_layer;
	bool sees;          /* some name is that of something for pictures */
	uint32_t n_blocks;  /* of the longest list of such; 0: not known */
	uint32_t gap_block; /* the first one below n_blocks without a weight */
	/* A layer has a norm; beside the layers there is a norm, and something
	 * whose name is that of an embedding. */
	bool layers_have_norms, has_norm, embeds;
	enum hf_attention attention;
	/* One weight of each shape, if all weights of that name are alike. */
	uint32_t of[HF_N_SHAPES];
	uint32_t embedding, head; /* at most one of each */
	bool other_head; /* some other tensor could be the head */
	bool drafts; /* it drafts words for another model, whose head it uses */
	/* the most frequent type among elements of floating-point types of 16
	 * bits and more; RSH_DTYPE_UNKNOWN: there are none */
	enum rsh_dtype dtype;
	bool one_dtype;       /* all of those elements have this type */
	/* a weight whose elements have less than 16 bits */
	uint32_t packed;
	uint32_t packed_ints; /* a weight of integers of 16 bits and more */
	uint32_t scales;      /* a weight that is the scale of another one */
};

/* Returns whether both have the same shape. */
bool hf_alike(const struct rsh_hf_weight *a, const struct rsh_hf_weight *b);
/* Returns 0 or -ENOMEM. */
int hf_facts_find(const struct rsh_hf_weights *w, struct hf_facts *out);
