/* SPDX-License-Identifier: Apache-2.0 */
/* weights/scheme_compressed.c recognises the tensors of compressed-tensors:
 * FP8, FP4 of two kinds, and integers of 4 or 8 bits in words. */
#include <errno.h>
#include <string.h>

#include "rsh/util/checked.h"
#include "rsh/wire/bytes.h"
#include "schemes_i.h"

static int ct_float(struct quantised_work *w, struct quantised_tensor *t)
{
	const struct rsh_offer *o = &w->v[t->at];
	int rc;

	if (o->n_dims != 2)
		return quantised_bad(w, t->at, "is quantised, and has %u "
				     "dimensions instead of 2", o->n_dims);
	t->q.packing = RSH_PACK_E4M3;
	t->rows = o->dims[0];
	t->columns = o->dims[1];
	rc = scheme_take_blocks(w, t, "_scale");
	if (rc == 0 && !scheme_is_float(t->q.scale_type))
		return scheme_bad_scales(w, quantised_find(w, t->at, t->stem,
							   "_scale"), t);
	t->q.via = t->q.scale_type;
	return rc;
}

/* FP4: the scales are E4M3 and divided by a number, or E8M0. */
static int ct_fp4(struct quantised_work *w, struct quantised_tensor *t)
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
		return quantised_bad(w, t->at, "has rows of %llu elements, "
				     "which are not blocks of %llu",
				     (unsigned long long)t->columns,
				     (unsigned long long)width);
	scales = (struct scheme_beside){
		"_scale", g ? RSH_DTYPE_FLOAT8E4M3FN : RSH_DTYPE_UINT8,
		t->rows, t->q.n_columns
	};
	rc = scheme_take(w, t, &scales, &t->q.scales);
	if (rc || !g)
		return rc;
	if (g->dtype != RSH_DTYPE_FLOAT32 || g->n_dims != 1 || g->dims[0] != 1)
		return rsh_error_set(w->err, EINVAL, "%s is not one Float32 of "
				     "shape [1]",
				     rsh_names_text(w->cat->names, g->name));
	t->q.divisor = quantised_take(w, t->at, t->stem, "_global_scale");
	return t->q.divisor ? 0 : -ENOTSUP;
}

/* Returns the width of integers of which `words` hold so many columns, among
 * those of the config; 0: there is none. */
static unsigned ct_width(const struct quantised_work *w, uint64_t columns,
			 uint64_t words)
{
	const uint32_t widths = w->says->widths ? w->says->widths : 1u << 4;

	for (unsigned bits = 4; bits <= 8; bits += 4)
		if ((widths >> bits & 1) &&
		    rsh_div_up(columns, 32 / bits) == words)
			return bits;
	return 0;
}

/* Finds how many columns a packed matrix has, and their width.  The last word
 * of a row may have padding, so the words tell it only if there are many
 * groups; then weight_shape is compared when the scales are read. */
static int ct_columns(struct quantised_work *w, struct quantised_tensor *t,
		      uint64_t words, uint64_t groups)
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
	rc = w->o->load(w->o->ctx, w->cat, s, raw, 2 * (size_t)width, w->err);
	if (rc)
		return rc;
	rows = width == 4 ? rsh_le32(raw) : rsh_le64(raw);
	t->columns = width == 4 ? rsh_le32(raw + 4) : rsh_le64(raw + 8);
	t->q.zero_bits = (uint8_t)ct_width(w, t->columns, words);
	if (rows == t->rows && t->columns && t->q.zero_bits)
		return 0;
	return rsh_error_set(w->err, EINVAL, "%s is [%llu,%llu], which does "
			     "not fit %s of %llu rows of %llu words with "
			     "integers of 4 or 8 bits",
			     rsh_names_text(w->cat->names, s->name),
			     (unsigned long long)rows,
			     (unsigned long long)t->columns,
			     quantised_name(w, t->at),
			     (unsigned long long)t->rows,
			     (unsigned long long)words);
}

static int ct_take_shape(struct quantised_work *w, struct quantised_tensor *t)
{
	const struct rsh_offer *o = quantised_find(w, t->at, t->stem, "_shape");

	if (!o)
		return quantised_lacks(w, t, "_shape");
	if ((o->dtype != RSH_DTYPE_INT32 && o->dtype != RSH_DTYPE_INT64) ||
	    o->n_dims != 1 || o->dims[0] != 2)
		return rsh_error_set(w->err, EINVAL, "%s is not two integers",
				     rsh_names_text(w->cat->names, o->name));
	t->q.shape = quantised_take(w, t->at, t->stem, "_shape");
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
static int ct_integers(struct quantised_work *w, struct quantised_tensor *t)
{
	const struct rsh_offer *o = &w->v[t->at], *s, *z;
	struct scheme_beside zeros;
	unsigned bits;
	int rc;

	if (quantised_find(w, t->at, t->stem, "_g_idx"))
		return rsh_error_set(w->err, ENOTSUP, "%.*s_g_idx orders the "
				     "columns of its weight, which is not "
				     "supported", (int)t->stem,
				     quantised_name(w, t->at));
	s = quantised_find(w, t->at, t->stem, "_scale");
	if (!s)
		return quantised_lacks(w, t, "_scale");
	t->q.scale_type = t->q.via = s->dtype;
	t->rows = o->dims[0];
	rc = ct_take_shape(w, t) ?:
	     ct_columns(w, t, o->dims[1], s->n_dims == 2 ? s->dims[1] : 0);
	if (rc)
		return rc;
	bits = t->q.zero_bits;
	if (!bits)
		return rsh_error_set(w->err, ENOTSUP, "%s: no \"num_bits\" is "
				     "4 or 8",
				     rsh_model_config_path(w->o->config));
	t->q.packing = bits == 4 ? RSH_PACK_U4 : RSH_PACK_U8;
	t->q.zero = (uint8_t)(1u << (bits - 1));
	t->q.shape_is[0] = t->rows;
	t->q.shape_is[1] = t->columns;
	if (!scheme_is_float(s->dtype) || s->n_dims != 2 ||
	    s->dims[0] != t->rows || !s->dims[1] ||
	    t->columns % s->dims[1])
		return scheme_bad_scales(w, s, t);
	if (!ct_has_group(w, t->columns / s->dims[1], s->dims[1] == 1))
		return quantised_bad(w, t->at, "has %llu columns in %llu "
				     "groups, and config.json has no such "
				     "\"group_size\"",
				     (unsigned long long)t->columns,
				     (unsigned long long)s->dims[1]);
	t->q.n_rows = t->rows;
	t->q.n_columns = s->dims[1];
	scheme_set_block(t, 1, t->columns / s->dims[1]);
	t->q.scales = quantised_take(w, t->at, t->stem, "_scale");
	if (!t->q.scales)
		return -ENOTSUP;
	z = quantised_find(w, t->at, t->stem, "_zero_point");
	if (!z)
		return 0;
	t->q.zeros_packing = RSH_ZEROS_ROWS;
	t->q.zero = 0;
	zeros = (struct scheme_beside){
		"_zero_point", RSH_DTYPE_INT32,
		rsh_div_up(t->rows, 32 / bits), t->q.n_columns
	};
	return scheme_take(w, t, &zeros, &t->q.zeros);
}

int scheme_recognise_compressed(struct quantised_work *w, uint32_t at,
				struct quantised_tensor *t, bool *is)
{
	const struct rsh_offer *o = &w->v[at];
	const char *name = quantised_name(w, at);
	int rc;

	if (o->dtype == RSH_DTYPE_FLOAT8E4M3FN) {
		t->stem = strlen(name);
		if (!quantised_find(w, at, t->stem, "_scale"))
			return 0;
		rc = ct_float(w, t);
	} else if (!quantised_ends(name, "_packed", &t->stem)) {
		return 0;
	} else if (o->n_dims != 2) {
		return quantised_bad(w, at, "is quantised, and has %u "
				     "dimensions instead of 2", o->n_dims);
	} else if (o->dtype == RSH_DTYPE_UINT8) {
		rc = ct_fp4(w, t);
	} else if (o->dtype == RSH_DTYPE_INT32) {
		rc = ct_integers(w, t);
	} else {
		return !quantised_find(w, at, t->stem, "_scale") ? 0 :
			scheme_bad_type(w, at);
	}
	t->dense = "";
	*is = rc == 0;
	return rc;
}
