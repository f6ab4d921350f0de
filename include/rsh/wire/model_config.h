/* SPDX-License-Identifier: Apache-2.0 */
/* wire/model_config.h - the config.json of a Hugging Face model: its
 * architecture and its numbers.  It does not change after it is parsed, so any
 * thread may read it.  It owns everything that the functions return. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rsh/util/error.h"

#define RSH_MODEL_CONFIG_MAX ((size_t)4 * 1024 * 1024)

struct rsh_model_config;

/* Parses the `len` bytes at `data`; `path` is for messages.  Returns 0 and
 * *out, which the caller frees, -ENOMEM, or -EBADMSG with a sentence that names
 * path and offset or key. */
int rsh_model_config_parse(const void *data, size_t len, const char *path,
			   struct rsh_model_config **out,
			   struct rsh_error *err);
void rsh_model_config_free(struct rsh_model_config *c);

const char *rsh_model_config_path(const struct rsh_model_config *c);
/* Returns the i-th of "architectures"; NULL past the last. */
const char *rsh_model_config_architecture(const struct rsh_model_config *c,
					  uint32_t i);
/* Returns "model_type"; NULL: there is none. */
const char *rsh_model_config_type(const struct rsh_model_config *c);
/* Finds an integer >= 0.  Returns false if the key does not exist or has
 * another value (null is like a missing key).  Keys that are not at the top are
 * searched in "text_config"; vision_config.hidden_size is in that object.  Of
 * per_layer_config.*.head_dim all values that exist must be equal. */
bool rsh_model_config_number(const struct rsh_model_config *c, const char *key,
			     uint64_t *out);
/* Returns whether objects have different values where the key has a "*". */
bool rsh_model_config_differs(const struct rsh_model_config *c,
			      const char *key);
/* Writes what a key has as a word: a text, true or false; of a list what it has
 * at `number`.  Returns false if the key is not there, or has another value or
 * one that is longer. */
bool rsh_model_config_word(const struct rsh_model_config *c, const char *key,
			   uint64_t number, char *word, size_t size);
/* Returns whether the file has a key, with any value but null. */
bool rsh_model_config_has(const struct rsh_model_config *c, const char *key);
/* Returns whether the model predicts the next word, and so has a head. */
bool rsh_model_config_predicts_words(const struct rsh_model_config *c);
/* Returns whether "tie_word_embeddings" is true. */
bool rsh_model_config_is_tied(const struct rsh_model_config *c);
/* What "quantization_config" says.  Values of other types are as if missing. */
#define RSH_QUANTISED_BLOCKS_MAX 8
struct rsh_quantisation {
	const char *method;  /* "quant_method"; NULL: none */
	/* The first key that is set and not known to leave the dense weights as
	 * they are; NULL: none, or the method is not known. */
	const char *unknown;
	const char *version; /* of the method: "version" or
			      * "checkpoint_format"; NULL: none */
	uint64_t bits;       /* 0: none */
	int64_t group_size;  /* 0: none */
	uint32_t widths;     /* bit n: a group has "num_bits" n, up to 31 */
	/* "weight_block_size", or the "block_structure" of each group. */
	uint32_t n_blocks;
	uint64_t blocks[RSH_QUANTISED_BLOCKS_MAX][2];
	/* "group_size" of each group, 0: null.  More than
	 * RSH_QUANTISED_BLOCKS_MAX: not known, or too many. */
	uint32_t n_sizes;
	uint64_t sizes[RSH_QUANTISED_BLOCKS_MAX];
};
/* Returns what it says; NULL if there is no "quantization_config". */
const struct rsh_quantisation *
rsh_model_config_quantisation(const struct rsh_model_config *c);
