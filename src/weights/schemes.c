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
#include <string.h>

#include "rsh/util/checked.h"
#include "rsh/util/mem.h"
#include "schemes_i.h"

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
			 struct quantised_tensor *t, bool *is)
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
		return quantised_bad(w, at, "is quantised, and has %u "
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
			return scheme_bad_blocks(w, s, t, t->q.block);
		t->q.scale_type = RSH_DTYPE_FLOAT8E8M0;
		t->q.n_rows = t->rows;
		t->q.n_columns = t->columns / 32;
		t->q.scales = quantised_take(w, at, t->stem, end);
		rc = t->q.scales ? 0 : -ENOTSUP;
	} else {
		rc = scheme_take_blocks(w, t, end);
	}
	*is = rc == 0;
	return rc;
}

/* ---- mxfp4 ---- */

static int mxfp4_recognise(struct quantised_work *w, uint32_t at,
			   struct quantised_tensor *t, bool *is)
{
	const struct rsh_offer *o = &w->v[at], *s;
	const struct rsh_tensor *in;

	if (!quantised_ends(quantised_name(w, at), "_blocks", &t->stem))
		return 0;
	if (o->dtype != RSH_DTYPE_UINT8 || o->n_dims != 4 || o->dims[3] != 16)
		return quantised_bad(w, at, "does not have blocks of 16 "
				     "bytes, as mxfp4 has");
	s = quantised_find(w, at, t->stem, "_scales");
	if (!s)
		return quantised_lacks(w, t, "_scales");
	scheme_set_block(t, 1, 32);
	if (s->dtype != RSH_DTYPE_UINT8 || s->n_dims != 3 ||
	    memcmp(s->dims, o->dims, 3 * sizeof(*s->dims)) != 0)
		return scheme_bad_blocks(w, s, t, t->q.block);
	t->q.packing = RSH_PACK_E2M1;
	t->q.scale_type = RSH_DTYPE_FLOAT8E8M0;
	t->q.scales = quantised_take(w, at, t->stem, "_scales");
	in = quantised_plain(w, o);
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

/* ---- gptq and awq ---- */

static int gptq_take_groups(struct quantised_work *w,
			    struct quantised_tensor *t)
{
	const struct rsh_offer *g = quantised_find(w, t->at, t->stem, ".g_idx");

	if (!g || g->dtype != RSH_DTYPE_INT32 || g->n_dims != 1 ||
	    g->dims[0] != t->rows)
		return quantised_bad(w, t->at, "is quantised, and %.*s%s "
				     "is %s", (int)t->stem,
				     quantised_name(w, t->at), ".g_idx",
				     g ? "not one Int32 for each of its rows" :
					 "not in the source");
	t->q.groups = quantised_take(w, t->at, t->stem, ".g_idx");
	return t->q.groups ? 0 : -ENOTSUP;
}

static int words_recognise(struct quantised_work *w, uint32_t at,
			   struct quantised_tensor *t, bool *is)
{
	const struct rsh_offer *o = &w->v[at], *s;
	const bool gptq = scheme_is(w, "gptq");
	struct scheme_beside scales, zeros;
	uint64_t n_groups;
	int rc;

	if (!quantised_ends(quantised_name(w, at), ".qweight", &t->stem))
		return 0;
	if (o->dtype != RSH_DTYPE_INT32 || o->n_dims != 2)
		return quantised_bad(w, at, "is not a matrix of Int32");
	s = quantised_find(w, at, t->stem, ".scales");
	if (!s || s->n_dims != 2 || !s->dims[0] ||
	    (s->dtype != RSH_DTYPE_FLOAT16 &&
	     (!gptq || s->dtype != RSH_DTYPE_BFLOAT16)))
		return quantised_bad(w, at, "is quantised, and %.*s%s "
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
		return quantised_bad(w, at, "has %llu columns, which are "
				     "not a multiple of 8",
				     (unsigned long long)t->columns);
	scheme_set_block(t, w->says->group_size > 0 ?
			 (uint64_t)w->says->group_size : t->rows, 1);
	scales = (struct scheme_beside){
		".scales", s->dtype,
		gptq ? n_groups : rsh_div_up(t->rows, t->q.block[0]),
		t->columns
	};
	zeros = (struct scheme_beside){
		".qzeros", RSH_DTYPE_INT32, n_groups, t->columns / 8
	};
	rc = scheme_take(w, t, &scales, &t->q.scales) ?:
	     scheme_take(w, t, &zeros, &t->q.zeros);
	if (rc == 0 && gptq)
		rc = gptq_take_groups(w, t);
	*is = rc == 0;
	return rc;
}

/* ---- all ---- */

static const struct {
	const char *method;
	int (*recognise)(struct quantised_work *w, uint32_t at,
			 struct quantised_tensor *t, bool *is);
	/* The only number of bits, and the versions; 0 and NULL: any. */
	uint64_t bits;
	const char *versions[2];
} schemes[] = {
	{ "fp8", fp8_recognise, 0, { NULL } },
	{ "mxfp8", fp8_recognise, 0, { NULL } },
	{ "mxfp4", mxfp4_recognise, 0, { NULL } },
	{ "compressed-tensors", scheme_recognise_compressed, 0, { NULL } },
	{ "gptq", words_recognise, 4, { "gptq", "gptq_v2" } },
	{ "awq", words_recognise, 4, { "gemm" } },
};
#define N_SCHEMES (sizeof(schemes) / sizeof(schemes[0]))

static size_t scheme_of(const struct quantised_work *w)
{
	return rsh_index(i, N_SCHEMES, scheme_is(w, schemes[i].method));
}

static int quantised_refuse_method(const struct quantised_work *w)
{
	const char *path = rsh_model_config_path(w->o->config);

	if (!w->says->method)
		return rsh_error_set(w->err, EINVAL, "%s: "
				     "\"quantization_config\" has no "
				     "\"quant_method\"", path);
	return rsh_error_set(w->err, ENOTSUP, "%s: \"quant_method\" \"%s\" is "
			     "not supported by --dequantize", path,
			     w->says->method);
}

int quantised_check_config(const struct quantised_work *w)
{
	const size_t i = scheme_of(w);
	const char *path = w->o->config ? rsh_model_config_path(w->o->config) :
					  "";
	const char *const *v;

	if (i == N_SCHEMES)
		return w->says ? quantised_refuse_method(w) : 0;
	v = schemes[i].versions;
	if (schemes[i].bits && w->says->bits != schemes[i].bits)
		return rsh_error_set(w->err, ENOTSUP, "%s: %s of %llu bits is "
				     "not supported, only of %llu", path,
				     schemes[i].method,
				     (unsigned long long)w->says->bits,
				     (unsigned long long)schemes[i].bits);
	if (v[0] && w->says->version &&
	    strcmp(w->says->version, v[0]) != 0 &&
	    (!v[1] || strcmp(w->says->version, v[1]) != 0))
		return rsh_error_set(w->err, ENOTSUP, "%s: version \"%s\" of "
				     "%s is not supported", path,
				     w->says->version, schemes[i].method);
	if (w->says->unknown)
		return rsh_error_set(w->err, ENOTSUP, "%s: \"%s\" of "
				     "\"quantization_config\" is set, and "
				     "--dequantize does not know what it "
				     "changes in the model", path,
				     w->says->unknown);
	return 0;
}

/* Without a scheme only fp8 is recognised, by the names of its scales. */
int quantised_recognise(struct quantised_work *w, uint32_t at,
			struct quantised_tensor *t, bool *is)
{
	const size_t i = scheme_of(w);
	int rc = 0;

	if (i < N_SCHEMES)
		rc = schemes[i].recognise(w, at, t, is);
	else if (!w->says)
		rc = fp8_recognise(w, at, t, is);
	/* Without elements blocks have no size. */
	if (rc == 0 && *is && (!t->rows || !t->columns))
		return quantised_bad(w, at, "is quantised, and has no "
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

/* Returns whether X.scale can only be the scales of X.weight, by its type or
 * shape: other tensors have such names as well. */
static bool scheme_scales_weight(const struct quantised_work *w, uint32_t at,
				 size_t stem)
{
	const struct rsh_offer *s = &w->v[at],
		*o = quantised_find(w, at, stem, ".weight");

	if (s->dtype == RSH_DTYPE_FLOAT8E8M0)
		return true;
	for (uint32_t i = 0; o && o->n_dims == 2 && i < w->says->n_blocks;
	     i++) {
		const uint64_t *b = w->says->blocks[i];

		if (scheme_has_shape(s, rsh_div_up(o->dims[0], b[0]),
				     rsh_div_up(o->dims[1], b[1])))
			return true;
	}
	return false;
}

/* Returns whether a tensor is beside quantised elements in some scheme. */
static bool scheme_is_beside(const struct quantised_work *w, uint32_t at)
{
	static const char *const ends[] = {
		".weight_scale", ".weight_scale_inv", ".weight_zero_point",
		".weight_shape", ".weight_global_scale", ".qzeros", ".g_idx",
	};
	const bool words = scheme_is(w, "gptq") || scheme_is(w, "awq");
	const char *name = quantised_name(w, at);
	size_t stem;

	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		if (quantised_ends(name, ends[i], &stem))
			return true;
	if (quantised_ends(name, ".scale", &stem))
		return scheme_scales_weight(w, at, stem);
	/* AWQ has scales of activations as well ("act.scales"). */
	return (scheme_is(w, "mxfp4") &&
		quantised_ends(name, "_scales", &stem)) ||
	       (words && quantised_ends(name, ".scales", &stem));
}

/* Returns whether a tensor is beside a weight that is dense now, and is neither
 * a bias nor about activations. */
static bool scheme_is_unread(const struct quantised_work *w, uint32_t at)
{
	const char *name = quantised_name(w, at);
	const char *dot = strrchr(name, '.');
	const uint32_t weight = dot ?
		quantised_index(w, at, (size_t)(dot - name), ".weight") : 0;
	const char *word = dot ? dot + 1 : name;
	size_t stem;

	if (weight == 0 || weight == at + 1 || !w->made[weight - 1] ||
	    strncmp(word, "input_", 6) == 0 ||
	    strncmp(word, "output_", 7) == 0 ||
	    strncmp(word, "activation_", 11) == 0)
		return false;
	return strcmp(word, "bias") != 0 && !quantised_ends(word, "_bias", &stem);
}

/* Returns whether a tensor that no config explains cannot be a dense weight: it
 * has integers, or eight bits and scales beside it. */
static bool scheme_is_odd(const struct quantised_work *w, uint32_t at)
{
	static const char *const codes[] = {
		".weight", ".qweight", "_packed", "_qdata", ".W_q", "._data",
		"_blocks",
	};
	static const char *const scales[] = {
		".weight_scale", ".weight_scale_inv", ".scale", ".scales",
		".scale_weight", ".weight_scales",
	};
	const struct rsh_offer *o = &w->v[at];
	const char *name = quantised_name(w, at);
	size_t stem;

	if (w->says || o->n_dims == 0 || scheme_is_float(o->dtype) ||
	    o->dtype == RSH_DTYPE_FLOAT64 || o->dtype == RSH_DTYPE_BOOL)
		return false;
	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
		if (!quantised_ends(name, codes[i], &stem))
			continue;
		if (o->dtype != RSH_DTYPE_FLOAT8E4M3FN &&
		    o->dtype != RSH_DTYPE_FLOAT8E5M2)
			return true;
		for (size_t k = 0; k < sizeof(scales) / sizeof(scales[0]); k++)
			if (quantised_find(w, at, stem, scales[k]))
				return true;
	}
	return false;
}

int quantised_check_left(struct quantised_work *w, uint32_t at)
{
	const struct rsh_offer *o = &w->v[at];

	if (scheme_is_odd(w, at))
		return rsh_error_set(w->err, ENOTSUP, "%.400s is %s and looks "
				     "quantised, but no config.json has a "
				     "\"quantization_config\" that says how",
				     quantised_name(w, at),
				     rsh_dtype_name(o->dtype));
	if (!w->says)
		return 0;
	if (scheme_looks_packed(w, at))
		return scheme_bad_type(w, at);
	if (o->dtype == RSH_DTYPE_FLOAT8E4M3FN ||
	    o->dtype == RSH_DTYPE_FLOAT4X2)
		return quantised_bad(w, at, "is %s and has no scales",
				     rsh_dtype_name(o->dtype));
	if (scheme_is_beside(w, at))
		return quantised_bad(w, at, "is there, but its quantised "
				     "weight is missing or has another type; "
				     "scales of activations (awq) cannot be "
				     "part of a dense model");
	return 0;
}

int quantised_check_unread(struct quantised_work *w, uint32_t at)
{
	if (!w->says || !scheme_is_unread(w, at))
		return 0;
	return quantised_bad(w, at, "is beside a quantised weight, and %s "
			     "does not have such a tensor", w->says->method);
}
