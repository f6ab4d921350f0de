/* SPDX-License-Identifier: Apache-2.0 */
/* formats/hf_config.h - what the config.json of a Hugging Face model says,
 * held against the weights beside it.
 *
 * transformers believes config.json: of tensors that the weights lack it makes
 * some, and those that it has no place for it passes over.  So what is said of
 * the weights has to follow from them.
 *
 * Only what is certain is told.  The sizes are those of models whose decoder
 * has Hugging Face's usual names, at the top or, of models with several parts,
 * in "text_config"; of others the type and the quantisation are looked at.
 * That no model of transformers is refused with a config.json of its own is
 * tested for all of them (tests/oracle/config_says.py).
 *
 * This is arithmetic, which reads no file.
 */
#ifndef RSH_FORMATS_HF_CONFIG_H
#define RSH_FORMATS_HF_CONFIG_H

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
	/* Tensors were left out by intent: what the config has more is told
	 * (`note`), and no error. */
	bool partial;
	/* Are the contents of two tensors of one type and shape known to
	 * differ? */
	bool (*differ)(void *ctx, uint32_t a, uint32_t b);
	/* Hears a sentence on what is passed over. */
	void (*note)(void *ctx, const char *sentence);
	void *ctx;
};

/* Holds a file against the weights: sets "dtype" and "torch_dtype" to the type
 * that the weights have, and leaves "quantization_config" out where none of
 * them is quantised.  With `complete`, keys that are known and lacking are added, if
 * the file says which model it is.  `path` is for sentences.  0, -ENOMEM, or
 * -EINVAL with a sentence that names path, key, its value, and what the weights
 * say. */
int rsh_hf_config_settle(const struct rsh_hf_weights *w,
			 struct rsh_json_edit *e, const char *path,
			 bool complete, struct rsh_error *err);

#endif
