/* SPDX-License-Identifier: Apache-2.0 */
/* outputs/hf_config_i.h - the config.json of a Hugging Face model, compared
 * with the weights beside it, for this directory only.
 *
 * transformers trusts config.json: it makes up tensors that the weights lack,
 * and skips those that it has no place for.  So what a shown config.json says
 * of the weights has to follow from them.
 *
 * Only what is certain is checked.  The sizes are those of models whose decoder
 * has Hugging Face's usual names, at the top or, in models of several parts, in
 * "text_config"; of other models the type and the quantisation are checked.
 * tests/oracle/config_says.py proves for all models of transformers that none
 * is refused with a config.json of its own.
 *
 * This is arithmetic, which reads no file. / */
#ifndef RSH_OUTPUTS_HF_CONFIG_I_H
#define RSH_OUTPUTS_HF_CONFIG_I_H

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
	/* The options leave tensors out: what the config has and the weights do
	 * not is passed to `note`, and is no error. */
	bool partial;
	/* Tells whether the contents of two tensors of one type and shape are
	 * known to differ. */
	bool (*differ)(void *ctx, uint32_t a, uint32_t b);
	/* Takes a sentence on what does not fit and is no error. */
	void (*note)(void *ctx, const char *sentence);
	void *ctx;
};

/* Compares a config.json with the weights.  Sets "dtype" and "torch_dtype" to
 * the type of the weights, and removes "quantization_config" if no weight is
 * quantised.  With `complete`, adds missing keys whose values are known, if the
 * file says which model it is.  `path` is for messages.  Returns 0, -ENOMEM, or
 * -EINVAL with a sentence that names path, key, its value, and what the weights
 * say. */
int rsh_hf_config_update(const struct rsh_hf_weights *w,
			 struct rsh_json_edit *e, const char *path,
			 bool complete, struct rsh_error *err);

/* ---- what the weights tell (hf_facts.c) ---- */

#define HF_NONE UINT32_MAX

/* Sizes that config.json has; some have several names (hf_keys.c). */
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

/* A dimension is times * (a + b), where HF_KEY_NONE is left out; a dimension
 * that has HF_KEY_NONE three times is not compared. */
struct hf_dim {
	enum hf_key times, a, b;
};
/* A tensor below the decoder's prefix or, with `layer`, below that of a layer.
 * {} stands for the number of an expert. */
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
/* The norm of queries, which is as long as one head, or as all heads. */
#define HF_QUERY_NORM 19

/* What names, shapes and types of the weights tell.  Weights are numbers, or
 * HF_NONE. */
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

/* Returns 0 or -ENOMEM. */
int hf_facts_find(const struct rsh_hf_weights *w, struct hf_facts *out);

/* ---- the comparison ---- */

#define HF_TEXT "text_config"

struct hf_check {
	struct hf_facts f;
	struct rsh_json_edit *e;
	const char *in; /* where the decoder's keys are; NULL: at the top */
	const char *path;
	bool complete;  /* add missing keys */
	uint64_t added[HF_N_KEYS]; /* sizes to be added; 0: none */
	bool doubtful[HF_N_KEYS];  /* weights give it different values */
	struct rsh_error *err;
};

static inline const struct rsh_hf_weight *hf_weight(const struct hf_check *h,
						    uint32_t i)
{
	return &h->f.w->v[i];
}

/* Sizes, and number of layers and experts (hf_sizes.c).  Missing sizes are
 * noted by hf_add_size(). */
int hf_check_sizes(struct hf_check *h);
/* "quantization_config" and "dtype" (hf_types.c). */
int hf_check_quantization(struct hf_check *h);
int hf_set_all_types(struct hf_check *h);

/* ---- keys (hf_keys.c) ---- */

/* Tells whether the model predicts the next word, and so has a head. */
bool hf_predicts_words(const struct hf_check *h);
/* Finds a key of the decoder. */
const struct rsh_json_member *hf_find(const struct hf_check *h,
				      const char *key);
/* Returns the i-th of a key's names that has a size; NULL past the last. */
const struct rsh_json_member *hf_size(const struct hf_check *h,
				      enum hf_key key, unsigned i);
/* Gives the size that the file has, or that will be added; false: neither. */
bool hf_value(const struct hf_check *h, enum hf_key key, uint64_t *value);
int hf_set(struct hf_check *h, const char *in, const char *key,
	   const char *value);
/* Adds a key at the top, if keys are to be added. */
int hf_add(struct hf_check *h, const char *key, const char *value);
/* Notes a size that the file lacks; it is doubtful if two weights differ in
 * it. */
void hf_add_size(struct hf_check *h, enum hf_key key, uint64_t size);
/* Adds all sizes that were noted and are not doubtful. */
int hf_add_sizes(struct hf_check *h);

/* Writes "NAME has shape [..]" and returns `text`. */
const char *hf_shape_text(const struct hf_check *h, uint32_t i, char *text,
			  size_t size);
/* Refuses a key whose value is `is`; `say` is what the weights say. */
int hf_refuse(const struct hf_check *h, const char *key, const char *is,
	      const char *say);
int hf_refuse_size(const struct hf_check *h, const struct rsh_json_member *m,
		   const char *say);
/* Does the same where something is missing among the weights; if the options
 * leave tensors out, it is a note. */
int hf_miss(const struct hf_check *h, const char *key, const char *is,
	    const char *say);

#endif
