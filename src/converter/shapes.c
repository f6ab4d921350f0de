/* SPDX-License-Identifier: Apache-2.0 */
/* converter/shapes.c tells what a record looks like when it is shown: its name,
 * the type that its elements become, and what the converter makes of odd
 * ones. */
#include <string.h>

#include "converter_i.h"

const char *rsh_written_name(const struct rsh_converter *c, uint32_t name)
{
	return c->renamed && c->renamed[name] ? c->renamed[name] :
						rsh_names_text(c->cat->names, name);
}

/* Is it state of an optimizer, by the prefixes that MindSpore's optimizers give
 * it? */
static bool is_optimizer_state(const char *name)
{
	static const char *const prefixes[] = {
		"adam_m.", "adam_v.", "accu_grads.", "moments.", "moment1.",
		"moment2.", "momentum.", "exp_avg.", "exp_avg_sq.",
		"accum.", "mean_square.", "mean_gradient.",
	};

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
		if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
			return true;
	return false;
}

/* Gives the codec of a cast, RSH_CODEC_COUNT where there is none between the
 * two types. */
static enum rsh_codec cast_codec(const struct rsh_record *r, enum rsh_dtype to)
{
	bool wide = r->wide_bf16;

	if (r->dtype == RSH_DTYPE_BFLOAT16 && to == RSH_DTYPE_FLOAT16)
		return wide ? RSH_CODEC_WIDE_TO_F16 : RSH_CODEC_BF16_TO_F16;
	if (r->dtype == RSH_DTYPE_BFLOAT16 && to == RSH_DTYPE_FLOAT32)
		return wide ? RSH_CODEC_WIDE_TO_F32 : RSH_CODEC_BF16_TO_F32;
	if (r->dtype == RSH_DTYPE_FLOAT16 && to == RSH_DTYPE_BFLOAT16)
		return RSH_CODEC_F16_TO_BF16;
	if (r->dtype == RSH_DTYPE_FLOAT16 && to == RSH_DTYPE_FLOAT32)
		return RSH_CODEC_F16_TO_F32;
	if (r->dtype == RSH_DTYPE_FLOAT32 && to == RSH_DTYPE_BFLOAT16)
		return RSH_CODEC_F32_TO_BF16;
	if (r->dtype == RSH_DTYPE_FLOAT32 && to == RSH_DTYPE_FLOAT16)
		return RSH_CODEC_F32_TO_F16;
	return RSH_CODEC_COUNT;
}

enum rsh_codec rsh_record_codec(const struct rsh_converter *c,
				const struct rsh_record *r,
				enum rsh_dtype *dtype)
{
	enum rsh_codec cast = RSH_CODEC_COUNT;
	/* The converter makes a detour over float32, for which safetensors have
	 * no need. */
	bool canonical = c->compat && c->src_format == RSH_FORMAT_CKPT;

	*dtype = c->compat && r->dtype == RSH_DTYPE_INT4 ? RSH_DTYPE_INT8 :
							   r->dtype;
	if (c->cast != RSH_DTYPE_UNKNOWN && r->n_dims > 0 &&
	    !is_optimizer_state(rsh_names_text(c->cat->names, r->name)))
		cast = cast_codec(r, c->cast);
	if (cast != RSH_CODEC_COUNT) {
		*dtype = c->cast;
		return cast;
	}
	if (r->dtype != RSH_DTYPE_BFLOAT16)
		return RSH_CODEC_NONE;
	if (r->wide_bf16)
		return canonical ? RSH_CODEC_BF16_WIDE_NAN :
				   RSH_CODEC_BF16_WIDE;
	return canonical ? RSH_CODEC_BF16_NAN : RSH_CODEC_NONE;
}

/* Is it an empty vector, which the converter reads as a scalar and writes as
 * the number 0 (compat)? */
static bool becomes_zero(const struct rsh_ckpt_index *ix,
		      const struct rsh_record *r)
{
	return r->content_bytes == 0 && r->dtype != RSH_DTYPE_STR &&
	       r->n_dims == 1 && rsh_record_dims(ix, r)[0] == 0;
}

void rsh_copy_shape(const struct rsh_converter *c,
		    const struct rsh_ckpt_index *ix, const struct rsh_record *r,
		    struct rsh_record_shape *out, enum rsh_codec *codec)
{
	uint32_t in, written;

	*codec = rsh_record_codec(c, r, &out->dtype);
	rsh_codec_units(*codec, &in, &written);
	out->name = rsh_written_name(c, r->name);
	out->name_len = strlen(out->name);
	out->n_dims = r->n_dims;
	out->dims = rsh_record_dims(ix, r);
	out->content_bytes = r->content_bytes / in * written;
	if (c->compat && c->src_format == RSH_FORMAT_CKPT &&
	    becomes_zero(ix, r)) {
		out->n_dims = 0;
		out->content_bytes = rsh_dtype_size(out->dtype);
	}
}

/* The reading and the writing of .ckpt both lose tensors without elements. */
bool rsh_drops_empty(const struct rsh_converter *c)
{
	return c->src_format == RSH_FORMAT_CKPT || c->format == RSH_FORMAT_CKPT;
}
