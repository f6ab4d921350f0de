/* SPDX-License-Identifier: Apache-2.0 */
/* formats/safetensors/hf_config_i.h - what the weights of a Hugging Face model tell by
 * their names and shapes; only this room includes it. */
#ifndef RSH_FORMATS_HF_CONFIG_I_H
#define RSH_FORMATS_HF_CONFIG_I_H

#include "rsh/formats/hf_config.h"

#define HF_NONE UINT32_MAX

/* What config.json calls a size; some have several names (hf_config.c). */
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

/* A dimension is times * (a + b), where HF_KEY_NONE is left out; one that is
 * HF_KEY_NONE throughout is anything. */
struct hf_dim {
	enum hf_key times, a, b;
};
/* A tensor below the decoder's prefix; with `layer` it is one of a layer.  A
 * number of an expert is written {}. */
struct hf_shape {
	const char *name;
	bool layer;
	enum hf_attention {
		HF_EITHER,
		HF_PLAIN, /* of heads that are all alike */
		HF_RANKS  /* of queries, keys and values with ranks (MLA) */
	} attention;
	uint32_t n_dims;
	struct hf_dim dims[2];
};
#define HF_N_SHAPES 30
extern const struct hf_shape hf_shapes[HF_N_SHAPES];
/* The norm of queries, which is as long as a head, or as all of them. */
#define HF_QUERY_NORM 19

/* What is told; numbers of weights are HF_NONE where there is none. */
struct hf_facts {
	const struct rsh_hf_weights *w;
	const char *prefix; /* of the decoder; NULL: none, or several */
	const char *list;   /* of its layers, behind the prefix: "layers." */
	uint32_t n_layers;  /* but those for prediction; 0: not known */
	uint32_t n_experts; /* 0: not known */
	enum hf_attention attention;
	/* A weight of each shape, if all of that name are alike. */
	uint32_t of[HF_N_SHAPES];
	uint32_t embedding, head; /* one at most of each */
	bool other_head; /* some other tensor could be the head */
	enum rsh_dtype dtype; /* that most elements have which are floats of 16
			       * bits and more; RSH_DTYPE_UNKNOWN: there are
			       * none */
	bool one_dtype;       /* all of those have it */
	uint32_t packed;      /* a weight of elements of less than 16 bits */
	uint32_t packed_ints; /* the same, of integers of 16 bits and more */
	uint32_t scales;      /* a weight that is the scale of another */
};

/* Finds out what there is.  0 or -ENOMEM. */
int hf_facts_find(const struct rsh_hf_weights *w, struct hf_facts *out);

#endif
