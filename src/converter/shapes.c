/* SPDX-License-Identifier: Apache-2.0 */
/* converter/shapes.c tells what a record looks like when it is shown: its name,
 * the type that its elements become, and what the converter makes of odd
 * ones. */
#include <string.h>

#include "converter_i.h"
#include "rsh/plan/param_kind.h"

const char *rsh_written_name(const struct rsh_converter *c, uint32_t name)
{
	const char *renamed = rsh_name_filter_name(&c->chosen, name);

	return renamed ? renamed : rsh_names_text(c->cat->names, name);
}

enum rsh_codec rsh_record_codec(const struct rsh_converter *c,
				const struct rsh_record *r,
				enum rsh_dtype *dtype)
{
	enum rsh_codec cast = RSH_CODEC_COUNT;
	/* The converter makes a detour over float32, for which safetensors have
	 * no need. */
	bool canonical = c->o.compat && c->src_format == RSH_FILE_CKPT;

	*dtype = c->o.compat && r->dtype == RSH_DTYPE_INT4 ? RSH_DTYPE_INT8 :
							   r->dtype;
	if (rsh_is_weight(rsh_names_text(c->cat->names, r->name), r->n_dims))
		cast = rsh_codec_cast(r->dtype, r->wide_bf16, c->o.cast);
	if (cast != RSH_CODEC_COUNT) {
		*dtype = c->o.cast;
		return cast;
	}
	if (r->dtype != RSH_DTYPE_BFLOAT16)
		return RSH_CODEC_NONE;
	if (r->wide_bf16)
		return canonical ? RSH_CODEC_BF16_WIDE_NAN :
				   RSH_CODEC_BF16_WIDE;
	return canonical ? RSH_CODEC_BF16_NAN : RSH_CODEC_NONE;
}

uint32_t rsh_record_unit(const struct rsh_converter *c,
			 const struct rsh_record *r)
{
	enum rsh_dtype dtype;
	uint32_t in, out;

	rsh_codec_units(rsh_record_codec(c, r, &dtype), &in, &out);
	return in;
}

void rsh_copy_shape(const void *converter, const struct rsh_ckpt_index *ix,
		    const struct rsh_record *r, struct rsh_record_shape *out,
		    enum rsh_codec *codec)
{
	const struct rsh_converter *c = converter;
	uint32_t in, written;

	*codec = rsh_record_codec(c, r, &out->dtype);
	rsh_codec_units(*codec, &in, &written);
	out->name = rsh_written_name(c, r->name);
	out->name_len = strlen(out->name);
	out->n_dims = r->n_dims;
	out->dims = rsh_record_dims(ix, r);
	out->content_bytes = r->content_bytes / in * written;
	/* The converter reads an empty vector as a scalar and writes it as the
	 * number 0. */
	if (c->o.compat && c->src_format == RSH_FILE_CKPT &&
	    r->content_bytes == 0 && r->dtype != RSH_DTYPE_STR &&
	    r->n_dims == 1 && rsh_record_dims(ix, r)[0] == 0) {
		out->n_dims = 0;
		out->content_bytes = rsh_dtype_size(out->dtype);
	}
}

/* The reading and the writing of .ckpt both lose tensors without elements. */
bool rsh_drops_empty(const struct rsh_converter *c)
{
	return c->src_format == RSH_FILE_CKPT || c->o.framing->type == RSH_FILE_CKPT;
}
