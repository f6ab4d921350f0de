/* SPDX-License-Identifier: Apache-2.0 */
/* weights/schemes.c recognises quantised tensors by the scheme that config.json
 * names, and by their names, types and shapes.
 *
 * What the tensors beside a tensor X.weight are called:
 *   fp8, mxfp8          X.weight_scale_inv, X.scale or X.weight_scale
 *   mxfp4               P_blocks and P_scales become P
 *   compressed-tensors  X.weight_scale, X.weight_shape, X.weight_zero_point,
 *                       X.weight_global_scale beside X.weight or
 *                       X.weight_packed
 *   gptq, awq           X.qweight, X.qzeros, X.scales, X.g_idx */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "quantised_i.h"

/* ---- names and shapes ---- */

static bool scheme_is(const struct quantised_work *w, const char *method)
{
	return w->says && w->says->method &&
	       strcmp(w->says->method, method) == 0;
}

static uint64_t scheme_blocks(uint64_t n, uint64_t block)
{
	return n ? (n - 1) / block + 1 : 0;
}

static bool scheme_has_shape(const struct rsh_offer *o, uint64_t rows,
			     uint64_t columns)
{
	return o->n_dims == 2 && o->dims[0] == rows && o->dims[1] == columns;
}

/* Returns whether it has one element. */
static bool scheme_is_single(const struct rsh_offer *o)
{
	for (uint32_t d = 0; d < o->n_dims; d++)
		if (o->dims[d] != 1)
			return false;
	return true;
}

static bool scheme_is_byte(const struct rsh_offer *o)
{
	return o->dtype == RSH_DTYPE_INT8 || o->dtype == RSH_DTYPE_UINT8 ||
	       o->dtype == RSH_DTYPE_FLOAT4X2;
}

/* A matrix that must be beside the one with the elements. */
struct scheme_beside {
	const char *end; /* of its name, after the stem */
	enum rsh_dtype type;
	uint64_t rows, columns;
};

/* Takes it.  Sets a sentence if it is missing or has another type or shape. */
static int scheme_take(struct quantised_work *w,
		       const struct quantised_tensor *t,
		       const struct scheme_beside *want,
		       const struct rsh_tensor **out, struct rsh_error *err)
{
	const struct rsh_offer *o =
		quantised_find(w, t->at, t->stem, want->end);
	char is[160];

	if (!o)
		return quantised_bad(w, t->at, err, "is quantised, and %.*s%s "
				     "is not in the source", (int)t->stem,
				     quantised_name(w, t->at), want->end);
	if (o->dtype != want->type ||
	    !scheme_has_shape(o, want->rows, want->columns))
		return rsh_error_set(err, EINVAL, "%.400s is %s %s, which does "
				     "not fit %.400s: it must be %s "
				     "[%llu,%llu]",
				     rsh_names_text(w->cat->names, o->name),
				     rsh_dtype_name(o->dtype),
				     rsh_dims_text(o->dims, o->n_dims, is,
						   sizeof(is)),
				     quantised_name(w, t->at),
				     rsh_dtype_name(want->type),
				     (unsigned long long)want->rows,
				     (unsigned long long)want->columns);
	*out = quantised_take(w, t->at, t->stem, want->end, err);
	return *out ? 0 : -ENOTSUP;
}

static int scheme_bad_type(const struct quantised_work *w, uint32_t at,
			   struct rsh_error *err)
{
	return quantised_bad(w, at, err, "is %s, which is not how %s weights "
			     "are quantised", rsh_dtype_name(w->v[at].dtype),
			     w->says->method);
}

static bool scheme_is_float(enum rsh_dtype type)
{
	return type == RSH_DTYPE_FLOAT32 || type == RSH_DTYPE_BFLOAT16 ||
	       type == RSH_DTYPE_FLOAT16;
}

/* ---- scales ---- */

static void scheme_set_block(struct quantised_tensor *t, uint64_t rows,
			     uint64_t columns)
{
	t->q.block[0] = rows;
	t->q.block[1] = columns;
}

/* Finds the size of blocks with which a matrix would have scales of this shape:
 * a size that the config gives, one row and 32 columns, or the whole. */
static bool scheme_find_block(const struct quantised_work *w,
			      const struct rsh_offer *s,
			      struct quantised_tensor *t)
{
	const struct rsh_quantisation *says = w->says;
	const bool e8m0 = t->q.scale_type == RSH_DTYPE_FLOAT8E8M0;

	for (uint32_t i = 0; says && i < says->n_blocks; i++) {
		const uint64_t *b = says->blocks[i];

		if (scheme_has_shape(s, scheme_blocks(t->rows, b[0]),
				     scheme_blocks(t->columns, b[1]))) {
			scheme_set_block(t, b[0], b[1]);
			return true;
		}
	}
	if (e8m0 && t->columns % 32 == 0 &&
	    scheme_has_shape(s, t->rows, t->columns / 32))
		scheme_set_block(t, 1, 32);
	else if (scheme_is_single(s))
		scheme_set_block(t, t->rows, t->columns);
	else if (says && (!says->n_blocks || scheme_is(w, "compressed-tensors"))
		 && scheme_has_shape(s, t->rows, 1))
		scheme_set_block(t, 1, t->columns);
	else
		return false;
	return true;
}

static int scheme_bad_blocks(const struct quantised_work *w,
			     const struct rsh_offer *s,
			     const struct quantised_tensor *t,
			     const uint64_t block[2], struct rsh_error *err)
{
	return rsh_error_set(err, EINVAL, "%s is not of the type and shape "
			     "that scales of %s in blocks of %llu x %llu have",
			     rsh_names_text(w->cat->names, s->name),
			     quantised_name(w, t->at),
			     (unsigned long long)block[0],
			     (unsigned long long)block[1]);
}

static int scheme_bad_scales(const struct quantised_work *w,
			     const struct rsh_offer *s,
			     const struct quantised_tensor *t,
			     struct rsh_error *err)
{
	const char *name = rsh_names_text(w->cat->names, s->name);
	char is[160];

	if (!w->says)
		return quantised_bad(w, t->at, err, "has scales of blocks, and "
				     "no \"weight_block_size\" of a config.json "
				     "says how large these are");
	rsh_dims_text(s->dims, s->n_dims, is, sizeof(is));
	if (!w->says->n_blocks)
		return rsh_error_set(err, EINVAL, "%s is %s %s, which is not "
				     "how scales of %s of shape [%llu,%llu] "
				     "are stored",
				     name, rsh_dtype_name(s->dtype), is,
				     quantised_name(w, t->at),
				     (unsigned long long)t->rows,
				     (unsigned long long)t->columns);
	return scheme_bad_blocks(w, s, t, w->says->blocks[0], err);
}

/* Takes the scales of blocks of a matrix. */
static int scheme_take_blocks(struct quantised_work *w,
			      struct quantised_tensor *t, const char *end,
			      struct rsh_error *err)
{
	const struct rsh_offer *s = quantised_find(w, t->at, t->stem, end);

	t->q.scale_type = s->dtype == RSH_DTYPE_UINT8 ? RSH_DTYPE_FLOAT8E8M0 :
							s->dtype;
	if ((!scheme_is_float(t->q.scale_type) &&
	     t->q.scale_type != RSH_DTYPE_FLOAT8E8M0) ||
	    !scheme_find_block(w, s, t))
		return scheme_bad_scales(w, s, t, err);
	t->q.n_rows = scheme_blocks(t->rows, t->q.block[0]);
	t->q.n_columns = scheme_blocks(t->columns, t->q.block[1]);
	t->q.scales = quantised_take(w, t->at, t->stem, end, err);
	return t->q.scales ? 0 : -ENOTSUP;
}

/* ---- fp8, mxfp8 ---- */

/* Returns the end of the name of a tensor's scales, and sets where it begins;
 * NULL: it has none. */
static const char *fp8_scales(const struct quantised_work *w, uint32_t at,
			      size_t *stem)
{
	const char *name = quantised_name(w, at);

	*stem = strlen(name);
	if (quantised_find(w, at, *stem, "_scale_inv"))
		return "_scale_inv";
	if (quantised_find(w, at, *stem, "_scale"))
		return "_scale";
	return quantised_ends(name, ".weight", stem) &&
	       quantised_find(w, at, *stem, ".scale") ? ".scale" : NULL;
}

static int fp8_recognise(struct quantised_work *w, uint32_t at,
			 struct quantised_tensor *t, bool *is,
			 struct rsh_error *err)
{
	const struct rsh_offer *o = &w->v[at];
	const bool fp8 = o->dtype == RSH_DTYPE_FLOAT8E4M3FN;
	const char *end;
	int rc;

	if (!fp8 && !(scheme_is_byte(o) && w->says))
		return 0;
	end = fp8_scales(w, at, &t->stem);
	if (!end)
		return 0;
	if (o->n_dims != 2)
		return quantised_bad(w, at, err, "is quantised, and has %u "
				     "dimensions instead of 2", o->n_dims);
	t->q.packing = fp8 ? RSH_PACK_E4M3 : RSH_PACK_E2M1;
	t->rows = o->dims[0];
	t->columns = fp8 ? o->dims[1] : 2 * o->dims[1];
	t->dense = quantised_name(w, at) + t->stem;
	if (!fp8) {
		const struct rsh_offer *s = quantised_find(w, at, t->stem, end);

		scheme_set_block(t, 1, 32);
		/* Integers with scales of another kind are not fp4. */
		if (s->dtype != RSH_DTYPE_FLOAT8E8M0 || t->columns % 32 ||
		    !scheme_has_shape(s, t->rows, t->columns / 32))
			return scheme_bad_blocks(w, s, t, t->q.block, err);
		t->q.scale_type = RSH_DTYPE_FLOAT8E8M0;
		t->q.n_rows = t->rows;
		t->q.n_columns = t->columns / 32;
		t->q.scales = quantised_take(w, at, t->stem, end, err);
		rc = t->q.scales ? 0 : -ENOTSUP;
	} else {
		rc = scheme_take_blocks(w, t, end, err);
	}
	*is = rc == 0;
	return rc;
}

/* ---- mxfp4 ---- */

static int mxfp4_recognise(struct quantised_work *w, uint32_t at,
			   struct quantised_tensor *t, bool *is,
			   struct rsh_error *err)
{
	const struct rsh_offer *o = &w->v[at], *s;
	const struct rsh_tensor *in;

	if (!quantised_ends(quantised_name(w, at), "_blocks", &t->stem))
		return 0;
	if (o->dtype != RSH_DTYPE_UINT8 || o->n_dims != 4 || o->dims[3] != 16)
		return quantised_bad(w, at, err, "does not have blocks of 16 "
				     "bytes, as mxfp4 has");
	s = quantised_find(w, at, t->stem, "_scales");
	if (!s)
		return quantised_bad(w, at, err, "is quantised, and %.*s%s is "
				     "not in the source", (int)t->stem,
				     quantised_name(w, at), "_scales");
	scheme_set_block(t, 1, 32);
	if (s->dtype != RSH_DTYPE_UINT8 || s->n_dims != 3 ||
	    memcmp(s->dims, o->dims, 3 * sizeof(*s->dims)) != 0)
		return scheme_bad_blocks(w, s, t, t->q.block, err);
	t->q.packing = RSH_PACK_E2M1;
	t->q.scale_type = RSH_DTYPE_FLOAT8E8M0;
	t->q.scales = quantised_take(w, at, t->stem, "_scales", err);
	in = quantised_plain(w, o, err);
	if (!t->q.scales || !in)
		return -ENOTSUP;
	t->planes = o->dims[0];
	t->rows = o->dims[1];
	t->columns = 32 * o->dims[2];
	t->q.n_rows = t->planes * t->rows;
	t->q.n_columns = o->dims[2];
	if (!rsh_cut_is_whole(in->cut, in->dims, 3)) {
		t->divided = 32;
		t->q.n_rows *= o->dims[2];
		t->q.n_columns = 1;
	}
	t->transposed = true;
	t->dense = "";
	*is = true;
	return 0;
}

/* ---- compressed-tensors ---- */

static int ct_float(struct quantised_work *w, struct quantised_tensor *t,
		    struct rsh_error *err)
{
	const struct rsh_offer *o = &w->v[t->at];
	int rc;

	if (o->n_dims != 2)
		return quantised_bad(w, t->at, err, "is quantised, and has %u "
				     "dimensions instead of 2", o->n_dims);
	t->q.packing = RSH_PACK_E4M3;
	t->rows = o->dims[0];
	t->columns = o->dims[1];
	rc = scheme_take_blocks(w, t, "_scale", err);
	if (rc == 0 && !scheme_is_float(t->q.scale_type))
		return scheme_bad_scales(w, quantised_find(w, t->at, t->stem,
							   "_scale"), t, err);
	t->q.via = t->q.scale_type;
	return rc;
}

/* FP4: the scales are E4M3 and divided by a number, or E8M0. */
static int ct_fp4(struct quantised_work *w, struct quantised_tensor *t,
		  struct rsh_error *err)
{
	const struct rsh_offer *o = &w->v[t->at], *g;
	struct scheme_beside scales;
	uint64_t width;
	int rc;

	g = quantised_find(w, t->at, t->stem, "_global_scale");
	width = g ? 16 : 32;
	t->q.packing = RSH_PACK_E2M1;
	t->q.via = RSH_DTYPE_BFLOAT16;
	t->rows = o->dims[0];
	t->columns = 2 * o->dims[1];
	t->q.n_rows = t->rows;
	t->q.n_columns = t->columns / width;
	t->q.scale_type = g ? RSH_DTYPE_FLOAT8E4M3FN : RSH_DTYPE_FLOAT8E8M0;
	scheme_set_block(t, 1, width);
	if (t->columns % width)
		return quantised_bad(w, t->at, err, "has rows of %llu elements, "
				     "which are not blocks of %llu",
				     (unsigned long long)t->columns,
				     (unsigned long long)width);
	scales = (struct scheme_beside){
		"_scale", g ? RSH_DTYPE_FLOAT8E4M3FN : RSH_DTYPE_UINT8,
		t->rows, t->q.n_columns
	};
	rc = scheme_take(w, t, &scales, &t->q.scales, err);
	if (rc || !g)
		return rc;
	if (g->dtype != RSH_DTYPE_FLOAT32 || g->n_dims != 1 || g->dims[0] != 1)
		return rsh_error_set(err, EINVAL, "%s is not one Float32 of "
				     "shape [1]",
				     rsh_names_text(w->cat->names, g->name));
	t->q.divisor = quantised_take(w, t->at, t->stem, "_global_scale", err);
	return t->q.divisor ? 0 : -ENOTSUP;
}

static uint64_t ct_integer(const uint8_t *p, unsigned width)
{
	uint64_t v = 0;

	for (unsigned i = width; i-- > 0;)
		v = v << 8 | p[i];
	return v;
}

/* Returns the width of integers of which `words` hold so many columns, among
 * those of the config; 0: there is none. */
static unsigned ct_width(const struct quantised_work *w, uint64_t columns,
			 uint64_t words)
{
	const uint32_t widths = w->says->widths ? w->says->widths : 1u << 4;

	for (unsigned bits = 4; bits <= 8; bits += 4)
		if ((widths >> bits & 1) &&
		    scheme_blocks(columns, 32 / bits) == words)
			return bits;
	return 0;
}

/* Finds how many columns a packed matrix has, and their width.  The last word
 * of a row may have padding, so the words tell it only if there are many
 * groups; then weight_shape is compared when the scales are read. */
static int ct_columns(struct quantised_work *w, struct quantised_tensor *t,
		      uint64_t words, uint64_t groups, struct rsh_error *err)
{
	const struct rsh_tensor *s = t->q.shape;
	const unsigned width = rsh_dtype_size(s->dtype);
	const bool both = (w->says->widths >> 4 & 17) == 17;
	uint8_t raw[16] = { 0 };
	uint64_t rows;
	int rc;

	t->columns = words * 8;
	t->q.zero_bits = (uint8_t)ct_width(w, t->columns, words);
	if (!t->q.zero_bits) {
		t->columns = words * 4;
		t->q.zero_bits = (uint8_t)ct_width(w, t->columns, words);
	}
	if (!w->o->load || (!both && groups >= 8 && groups <= t->columns &&
			    t->columns % groups == 0 && w->n > QUANTISED_FEW))
		return 0;
	rc = w->o->load(w->o->ctx, w->cat, s, raw, 2 * (size_t)width, err);
	if (rc)
		return rc;
	rows = ct_integer(raw, width);
	t->columns = ct_integer(raw + width, width);
	t->q.zero_bits = (uint8_t)ct_width(w, t->columns, words);
	if (rows == t->rows && t->columns && t->q.zero_bits)
		return 0;
	return rsh_error_set(err, EINVAL, "%s is [%llu,%llu], which does not "
			     "fit %s of %llu rows of %llu words with integers "
			     "of 4 or 8 bits",
			     rsh_names_text(w->cat->names, s->name),
			     (unsigned long long)rows,
			     (unsigned long long)t->columns,
			     quantised_name(w, t->at),
			     (unsigned long long)t->rows,
			     (unsigned long long)words);
}

static int ct_take_shape(struct quantised_work *w, struct quantised_tensor *t,
			 struct rsh_error *err)
{
	const struct rsh_offer *o = quantised_find(w, t->at, t->stem, "_shape");

	if (!o)
		return quantised_bad(w, t->at, err, "is quantised, and %.*s%s "
				     "is not in the source", (int)t->stem,
				     quantised_name(w, t->at), "_shape");
	if ((o->dtype != RSH_DTYPE_INT32 && o->dtype != RSH_DTYPE_INT64) ||
	    o->n_dims != 1 || o->dims[0] != 2)
		return rsh_error_set(err, EINVAL, "%s is not two integers",
				     rsh_names_text(w->cat->names, o->name));
	t->q.shape = quantised_take(w, t->at, t->stem, "_shape", err);
	return t->q.shape ? 0 : -ENOTSUP;
}

/* Returns whether the config may mean groups of so many columns, as far as it
 * says; `whole`: that is a whole row. */
static bool ct_has_group(const struct quantised_work *w, uint64_t size,
			 bool whole)
{
	const struct rsh_quantisation *says = w->says;
	bool has = says->n_sizes == 0 ||
		   says->n_sizes > RSH_QUANTISED_BLOCKS_MAX;

	for (uint32_t i = 0; !has && i < says->n_sizes; i++)
		has = says->sizes[i] ? says->sizes[i] == size : whole;
	return has;
}

/* Integers of 4 or 8 bits in words. */
static int ct_integers(struct quantised_work *w, struct quantised_tensor *t,
		       struct rsh_error *err)
{
	const struct rsh_offer *o = &w->v[t->at], *s, *z;
	struct scheme_beside zeros;
	unsigned bits;
	int rc;

	if (quantised_find(w, t->at, t->stem, "_g_idx"))
		return rsh_error_set(err, ENOTSUP, "%.*s_g_idx orders the "
				     "columns of its weight, which is not "
				     "supported", (int)t->stem,
				     quantised_name(w, t->at));
	s = quantised_find(w, t->at, t->stem, "_scale");
	if (!s)
		return quantised_bad(w, t->at, err, "is quantised, and %.*s%s "
				     "is not in the source", (int)t->stem,
				     quantised_name(w, t->at), "_scale");
	t->q.scale_type = t->q.via = s->dtype;
	t->rows = o->dims[0];
	rc = ct_take_shape(w, t, err);
	if (rc == 0)
		rc = ct_columns(w, t, o->dims[1],
				s->n_dims == 2 ? s->dims[1] : 0, err);
	if (rc)
		return rc;
	bits = t->q.zero_bits;
	if (!bits)
		return rsh_error_set(err, ENOTSUP, "%s: no \"num_bits\" is 4 or "
				     "8", rsh_model_config_path(w->o->config));
	t->q.packing = bits == 4 ? RSH_PACK_U4 : RSH_PACK_U8;
	t->q.zero = (uint8_t)(1u << (bits - 1));
	t->q.shape_is[0] = t->rows;
	t->q.shape_is[1] = t->columns;
	if (!scheme_is_float(s->dtype) || s->n_dims != 2 ||
	    s->dims[0] != t->rows || !s->dims[1] ||
	    t->columns % s->dims[1])
		return scheme_bad_scales(w, s, t, err);
	if (!ct_has_group(w, t->columns / s->dims[1], s->dims[1] == 1))
		return quantised_bad(w, t->at, err, "has %llu columns in %llu "
				     "groups, and config.json has no such "
				     "\"group_size\"",
				     (unsigned long long)t->columns,
				     (unsigned long long)s->dims[1]);
	t->q.n_rows = t->rows;
	t->q.n_columns = s->dims[1];
	scheme_set_block(t, 1, t->columns / s->dims[1]);
	t->q.scales = quantised_take(w, t->at, t->stem, "_scale", err);
	if (!t->q.scales)
		return -ENOTSUP;
	z = quantised_find(w, t->at, t->stem, "_zero_point");
	if (!z)
		return 0;
	t->q.zeros_packing = RSH_ZEROS_ROWS;
	t->q.zero = 0;
	zeros = (struct scheme_beside){
		"_zero_point", RSH_DTYPE_INT32,
		scheme_blocks(t->rows, 32 / bits), t->q.n_columns
	};
	return scheme_take(w, t, &zeros, &t->q.zeros, err);
}

static int ct_recognise(struct quantised_work *w, uint32_t at,
			struct quantised_tensor *t, bool *is,
			struct rsh_error *err)
{
	const struct rsh_offer *o = &w->v[at];
	const char *name = quantised_name(w, at);
	int rc;

	if (o->dtype == RSH_DTYPE_FLOAT8E4M3FN) {
		t->stem = strlen(name);
		if (!quantised_find(w, at, t->stem, "_scale"))
			return 0;
		rc = ct_float(w, t, err);
	} else if (!quantised_ends(name, "_packed", &t->stem)) {
		return 0;
	} else if (o->n_dims != 2) {
		return quantised_bad(w, at, err, "is quantised, and has %u "
				     "dimensions instead of 2", o->n_dims);
	} else if (o->dtype == RSH_DTYPE_UINT8) {
		rc = ct_fp4(w, t, err);
	} else if (o->dtype == RSH_DTYPE_INT32) {
		rc = ct_integers(w, t, err);
	} else {
		return !quantised_find(w, at, t->stem, "_scale") ? 0 :
			scheme_bad_type(w, at, err);
	}
	t->dense = "";
	*is = rc == 0;
	return rc;
}

/* ---- gptq and awq ---- */

static int gptq_take_groups(struct quantised_work *w,
			    struct quantised_tensor *t, struct rsh_error *err)
{
	const struct rsh_offer *g = quantised_find(w, t->at, t->stem, ".g_idx");

	if (!g || g->dtype != RSH_DTYPE_INT32 || g->n_dims != 1 ||
	    g->dims[0] != t->rows)
		return quantised_bad(w, t->at, err, "is quantised, and %.*s%s "
				     "is %s", (int)t->stem,
				     quantised_name(w, t->at), ".g_idx",
				     g ? "not one Int32 for each of its rows" :
					 "not in the source");
	t->q.groups = quantised_take(w, t->at, t->stem, ".g_idx", err);
	return t->q.groups ? 0 : -ENOTSUP;
}

static int words_recognise(struct quantised_work *w, uint32_t at,
			   struct quantised_tensor *t, bool *is,
			   struct rsh_error *err)
{
	const struct rsh_offer *o = &w->v[at], *s;
	const bool gptq = scheme_is(w, "gptq");
	struct scheme_beside scales, zeros;
	uint64_t n_groups;
	int rc;

	if (!quantised_ends(quantised_name(w, at), ".qweight", &t->stem))
		return 0;
	if (o->dtype != RSH_DTYPE_INT32 || o->n_dims != 2)
		return quantised_bad(w, at, err, "is not a matrix of Int32");
	s = quantised_find(w, at, t->stem, ".scales");
	if (!s || s->n_dims != 2 || !s->dims[0] ||
	    (s->dtype != RSH_DTYPE_FLOAT16 &&
	     (!gptq || s->dtype != RSH_DTYPE_BFLOAT16)))
		return quantised_bad(w, at, err, "is quantised, and %.*s%s "
				     "is %s", (int)t->stem,
				     quantised_name(w, at), ".scales",
				     s ? "not a matrix of Float16" :
					 "not in the source");
	n_groups = s->dims[0];
	t->q.packing = gptq ? RSH_PACK_GPTQ : RSH_PACK_AWQ;
	t->rows = gptq ? 8 * o->dims[0] : o->dims[0];
	t->columns = gptq ? o->dims[1] : 8 * o->dims[1];
	t->q.scale_type = s->dtype;
	t->q.via = gptq ? RSH_DTYPE_UNKNOWN : s->dtype;
	t->q.n_rows = n_groups;
	t->q.n_columns = t->columns;
	t->q.zero_bits = 4;
	t->q.zeros_packing = gptq ? RSH_ZEROS_COLUMNS : RSH_ZEROS_AWQ;
	/* The first version of the format stores zero points minus 1. */
	t->q.zero = gptq && (!w->says->version ||
			     strcmp(w->says->version, "gptq") == 0);
	t->transposed = true;
	t->dense = ".weight";
	if (t->columns % 8)
		return quantised_bad(w, at, err, "has %llu columns, which are "
				     "not a multiple of 8",
				     (unsigned long long)t->columns);
	scheme_set_block(t, w->says->group_size > 0 ?
			 (uint64_t)w->says->group_size : t->rows, 1);
	scales = (struct scheme_beside){
		".scales", s->dtype,
		gptq ? n_groups : scheme_blocks(t->rows, t->q.block[0]),
		t->columns
	};
	zeros = (struct scheme_beside){
		".qzeros", RSH_DTYPE_INT32, n_groups, t->columns / 8
	};
	rc = scheme_take(w, t, &scales, &t->q.scales, err);
	if (rc == 0)
		rc = scheme_take(w, t, &zeros, &t->q.zeros, err);
	if (rc == 0 && gptq)
		rc = gptq_take_groups(w, t, err);
	*is = rc == 0;
	return rc;
}

/* ---- all ---- */

static const struct {
	const char *method;
	int (*recognise)(struct quantised_work *w, uint32_t at,
			 struct quantised_tensor *t, bool *is,
			 struct rsh_error *err);
	/* The only number of bits, and the versions; 0 and NULL: any. */
	uint64_t bits;
	const char *versions[2];
} schemes[] = {
	{ "fp8", fp8_recognise, 0, { NULL } },
	{ "mxfp8", fp8_recognise, 0, { NULL } },
	{ "mxfp4", mxfp4_recognise, 0, { NULL } },
	{ "compressed-tensors", ct_recognise, 0, { NULL } },
	{ "gptq", words_recognise, 4, { "gptq", "gptq_v2" } },
	{ "awq", words_recognise, 4, { "gemm" } },
};
#define N_SCHEMES (sizeof(schemes) / sizeof(schemes[0]))

static size_t scheme_of(const struct quantised_work *w)
{
	size_t i = 0;

	while (i < N_SCHEMES && !scheme_is(w, schemes[i].method))
		i++;
	return i;
}

bool quantised_is_known(const struct quantised_work *w)
{
	return scheme_of(w) < N_SCHEMES;
}

int quantised_refuse_method(const struct quantised_work *w,
			    struct rsh_error *err)
{
	const char *path = rsh_model_config_path(w->o->config);

	if (!w->says->method)
		return rsh_error_set(err, EINVAL, "%s: \"quantization_config\" "
				     "has no \"quant_method\"", path);
	return rsh_error_set(err, ENOTSUP, "%s: \"quant_method\" \"%s\" is not "
			     "supported by --dequantize", path,
			     w->says->method);
}

int quantised_check_config(const struct quantised_work *w,
			   struct rsh_error *err)
{
	const size_t i = scheme_of(w);
	const char *path = w->o->config ? rsh_model_config_path(w->o->config) :
					  "";
	const char *const *v;

	if (i == N_SCHEMES)
		return 0;
	v = schemes[i].versions;
	if (schemes[i].bits && w->says->bits != schemes[i].bits)
		return rsh_error_set(err, ENOTSUP, "%s: %s of %llu bits is not "
				     "supported, only of %llu", path,
				     schemes[i].method,
				     (unsigned long long)w->says->bits,
				     (unsigned long long)schemes[i].bits);
	if (!v[0] || !w->says->version ||
	    strcmp(w->says->version, v[0]) == 0 ||
	    (v[1] && strcmp(w->says->version, v[1]) == 0))
		return 0;
	return rsh_error_set(err, ENOTSUP, "%s: version \"%s\" of %s is not "
			     "supported", path, w->says->version,
			     schemes[i].method);
}

/* Without a scheme only fp8 is recognised, by the names of its scales. */
int quantised_recognise(struct quantised_work *w, uint32_t at,
			struct quantised_tensor *t, bool *is,
			struct rsh_error *err)
{
	const size_t i = scheme_of(w);
	int rc = 0;

	if (i < N_SCHEMES)
		rc = schemes[i].recognise(w, at, t, is, err);
	else if (!w->says)
		rc = fp8_recognise(w, at, t, is, err);
	/* Without elements blocks have no size. */
	if (rc == 0 && *is && (!t->rows || !t->columns))
		return quantised_bad(w, at, err, "is quantised, and has no "
				     "elements");
	return rc;
}

static bool scheme_looks_packed(const struct quantised_work *w, uint32_t at)
{
	static const char *const ends[] = {
		"_packed", ".qweight", "_blocks", ".weight",
	};
	const struct rsh_offer *o = &w->v[at];
	const char *name = quantised_name(w, at);
	size_t stem;

	if (o->dtype == RSH_DTYPE_FLOAT8E4M3FN || scheme_is_byte(o) ||
	    o->dtype == RSH_DTYPE_FLOAT8E8M0 ||
	    ((o->dtype == RSH_DTYPE_INT32 || o->dtype == RSH_DTYPE_INT64) &&
	     o->n_dims > 1))
		for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
			if (quantised_ends(name, ends[i], &stem) &&
			    (i < 3 || fp8_scales(w, at, &stem)))
				return true;
	return false;
}

/* Returns whether a tensor is beside quantised elements in some scheme. */
static bool scheme_is_beside(const struct quantised_work *w, uint32_t at)
{
	static const char *const ends[] = {
		".weight_scale", ".weight_scale_inv", ".weight_zero_point",
		".weight_shape", ".weight_global_scale", ".qzeros", ".g_idx",
	};
	const char *name = quantised_name(w, at);
	size_t stem;

	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		if (quantised_ends(name, ends[i], &stem))
			return true;
	return scheme_is(w, "mxfp4") && quantised_ends(name, "_scales", &stem);
}

int quantised_check_left(struct quantised_work *w, uint32_t at,
			 struct rsh_error *err)
{
	const struct rsh_offer *o = &w->v[at];

	if (!w->says)
		return 0;
	if (!quantised_is_known(w))
		return !scheme_looks_packed(w, at) ? 0 :
			quantised_refuse_method(w, err);
	if (scheme_looks_packed(w, at))
		return scheme_bad_type(w, at, err);
	if (o->dtype == RSH_DTYPE_FLOAT8E4M3FN ||
	    o->dtype == RSH_DTYPE_FLOAT4X2)
		return quantised_bad(w, at, err, "is %s and has no scales",
				     rsh_dtype_name(o->dtype));
	if (scheme_is_beside(w, at))
		return quantised_bad(w, at, err, "is there, but its quantised "
				     "weight is missing or has another type");
	return 0;
}
