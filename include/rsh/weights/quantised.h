/* SPDX-License-Identifier: Apache-2.0 */
/* weights/quantised.h - the dense form of a quantised model: each quantised
 * tensor and the tensors beside it (scales, zero points) become one tensor with
 * the shape that the model's code has.
 *
 * "quantization_config" of config.json gives the scheme; names, types and
 * shapes of tensors tell the rest.  Schemes: fp8 and mxfp8 (also DeepSeek-V4,
 * with fp4), mxfp4 (gpt-oss), compressed-tensors (float, int4, int8, nvfp4,
 * mxfp4), gptq and awq of 4 bits.  reshardfs-convert(1) says what each
 * computes.
 *
 * One thread converts; it reads nothing but by `load`. */
#pragma once

#include "rsh/plan/writer.h"
#include "rsh/util/arena.h"
#include "rsh/wire/model_config.h"

struct rsh_dequantise {
	const struct rsh_model_config *config; /* NULL: there is none */
	/* The type that is made; RSH_DTYPE_UNKNOWN: BFloat16, and a source that
	 * is not quantised is no error. */
	enum rsh_dtype type;
	/* Reads the content of a tensor that has so many bytes.  Returns 0 or
	 * -errno with a sentence.  NULL: contents are not compared now. */
	int (*load)(void *ctx, const struct rsh_catalogue *c,
		    const struct rsh_tensor *t, uint8_t *to, size_t bytes,
		    struct rsh_error *err);
	void *ctx;
};

/* Replaces the quantised tensors among the offers by dense ones, and takes out
 * the tensors beside them.  Adds tensors to the catalogue, which are valid as
 * long as `arena`.  Returns 0, -ENOMEM, or -EINVAL, -ENOTSUP or what `load`
 * returns, with a sentence that names the tensor or the key: an unknown scheme,
 * a tensor that is missing or has another type or shape. */
int rsh_weights_dequantise(const struct rsh_dequantise *o,
			   struct rsh_arena *arena, struct rsh_offers *io,
			   struct rsh_error *err);
