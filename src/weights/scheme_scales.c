/* SPDX-License-Identifier: Apache-2.0 */
/* weights/scheme_scales.c checks the tensors beside a quantised one: their
 * types and shapes, and the blocks that the shape of scales means. */
#include <errno.h>
#include <string.h>

#include "rsh/util/checked.h"
#include "rsh/util/mem.h"
#include "schemes_i.h"

/* ---- names and shapes ---- */

bool scheme_is(const struct quantised_work *w, const char *method)
{
	return w->says && w->says->method &&
	       strcmp(w->says->method, method) == 0;
}

bool scheme_has_shape(const struct rsh_offer *o, uint64_t rows,
		      uint64_t columns)
{
	return o->n_dims == 2 && o->dims[0] == rows && o->dims[1] == columns;
}

/* Returns whether it has one element. */
static bool scheme_is_single(const struct rsh_offer *o)
{
	return rsh_all(d, o->n_dims, o->dims[d] == 1);
}

bool scheme_is_byte(const struct rsh_offer *o)
{
	return o->dtype == RSH_DTYPE_INT8 || o->dtype == RSH_DTYPE_UINT8 ||
	       o->dtype == RSH_DTYPE_FLOAT4X2;
}

int scheme_take(struct quantised_work *w, const struct quantised_tensor *t,
		const struct scheme_beside *want, const struct rsh_tensor **out)
{
	const struct rsh_offer *o =
		quantised_find(w, t->at, t->stem, want->end);
	char is[160];

	if (!o)
		return quantised_lacks(w, t, want->end);
	if (o->dtype != want->type ||
	    !scheme_has_shape(o, want->rows, want->columns))
		return rsh_error_set(w->err, EINVAL, "%.400s is %s %s, which "
				     "does not fit %.400s: it must be %s "
				     "[%llu,%llu]",
				     rsh_names_text(w->cat->names, o->name),
				     rsh_dtype_name(o->dtype),
				     rsh_dims_text(o->dims, o->n_dims, is,
						   sizeof(is)),
				     quantised_name(w, t->at),
				     rsh_dtype_name(want->type),
				     (unsigned long long)want->rows,
				     (unsigned long long)want->columns);
	*out = quantised_take(w, t->at, t->stem, want->end);
	return *out ? 0 : -ENOTSUP;
}

int scheme_bad_type(const struct quantised_work *w, uint32_t at)
{
	return quantised_bad(w, at, "is %s, which is not how %s weights "
			     "are quantised", rsh_dtype_name(w->v[at].dtype),
			     w->says->method);
}

bool scheme_is_float(enum rsh_dtype type)
{
	return type == RSH_DTYPE_FLOAT32 || type == RSH_DTYPE_BFLOAT16 ||
	       type == RSH_DTYPE_FLOAT16;
}

/* ---- scales ---- */

void scheme_set_block(struct quantised_tensor *t, uint64_t rows,
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

		if (scheme_has_shape(s, rsh_div_up(t->rows, b[0]),
				     rsh_div_up(t->columns, b[1]))) {
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

int scheme_bad_blocks(const struct quantised_work *w, const struct rsh_offer *s,
		      const struct quantised_tensor *t, const uint64_t block[2])
{
	return rsh_error_set(w->err, EINVAL, "%s is not of the type and shape "
			     "that scales of %s in blocks of %llu x %llu have",
			     rsh_names_text(w->cat->names, s->name),
			     quantised_name(w, t->at),
			     (unsigned long long)block[0],
			     (unsigned long long)block[1]);
}

int scheme_bad_scales(const struct quantised_work *w, const struct rsh_offer *s,
		      const struct quantised_tensor *t)
{
	const char *name = rsh_names_text(w->cat->names, s->name);
	char is[160];

	if (!w->says)
		return quantised_bad(w, t->at, "has scales of blocks, and no "
				     "\"weight_block_size\" of a config.json "
				     "says how large these are");
	rsh_dims_text(s->dims, s->n_dims, is, sizeof(is));
	if (!w->says->n_blocks)
		return rsh_error_set(w->err, EINVAL, "%s is %s %s, which is "
				     "not how scales of %s of shape "
				     "[%llu,%llu] are stored", name,
				     rsh_dtype_name(s->dtype), is,
				     quantised_name(w, t->at),
				     (unsigned long long)t->rows,
				     (unsigned long long)t->columns);
	return scheme_bad_blocks(w, s, t, w->says->blocks[0]);
}

int scheme_take_blocks(struct quantised_work *w,
		       struct quantised_tensor *t, const char *end)
{
	const struct rsh_offer *s = quantised_find(w, t->at, t->stem, end);

	t->q.scale_type = s->dtype == RSH_DTYPE_UINT8 ? RSH_DTYPE_FLOAT8E8M0 :
							s->dtype;
	if ((!scheme_is_float(t->q.scale_type) &&
	     t->q.scale_type != RSH_DTYPE_FLOAT8E8M0) ||
	    !scheme_find_block(w, s, t))
		return scheme_bad_scales(w, s, t);
	t->q.n_rows = rsh_div_up(t->rows, t->q.block[0]);
	t->q.n_columns = rsh_div_up(t->columns, t->q.block[1]);
	t->q.scales = quantised_take(w, t->at, t->stem, end);
	return t->q.scales ? 0 : -ENOTSUP;
}
