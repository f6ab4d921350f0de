/* SPDX-License-Identifier: Apache-2.0 */
/* weights/strides.c computes where a tensor of a rule has its elements: the
 * step in the tensor for the next value of a letter. */
#include "rsh/util/checked.h"
#include "weights_i.h"

static uint64_t weights_size(const struct weights_instance *x,
			     const char *letter)
{
	return x->sizes[weights_letter(x->u, letter)];
}

static bool weights_product(const struct weights_instance *x,
			    const struct rsh_rule_product *p, uint64_t *out)
{
	*out = 1;
	for (uint32_t i = 0; i < p->n; i++)
		if (!rsh_mul_u64(*out, weights_size(x, p->factors[i]), out))
			return false;
	return true;
}

/* Computes the offset at which alternative `a` begins; for the number of
 * alternatives it is the width of all. */
static bool weights_width(const struct weights_instance *x,
			  const struct rsh_rule_dim *dim, uint32_t a,
			  uint64_t *out)
{
	uint64_t one;

	*out = 0;
	for (uint32_t i = 0; i < a; i++)
		if (!weights_product(x, &dim->alternatives[i], &one) ||
		    !rsh_add_u64(*out, one, out))
			return false;
	return true;
}

bool weights_dim(const struct weights_instance *x,
		 const struct rsh_rule_dim *dim, uint64_t *size)
{
	uint64_t width = 1, after;

	return weights_product(x, &dim->before, size) &&
	       weights_product(x, &dim->after, &after) &&
	       (!dim->n_alternatives ||
		weights_width(x, dim, dim->n_alternatives, &width)) &&
	       rsh_mul_u64(*size, width, size) &&
	       rsh_mul_u64(*size, after, size) && *size <= INT64_MAX;
}

/* Adds an axis for each factor of a product; the last one advances by
 * `step`. */
static void weights_put_product(const struct weights_instance *x,
				const struct rsh_rule_product *p, uint32_t dim,
				uint64_t step, struct weights_place *out)
{
	for (uint32_t i = p->n; i-- > 0;) {
		out->axes[out->n + i] = (struct weights_axis){
			.letter = weights_letter(x->u, p->factors[i]),
			.dim = (uint8_t)dim,
			.step = step,
		};
		step *= weights_size(x, p->factors[i]);
	}
	out->n += p->n;
}

/* Products cannot overflow here: no step is larger than its dimension, whose
 * size was checked before.  If a size is 0, the tensor has no elements, and
 * steps have no meaning. */
void weights_find_place(const struct weights_instance *x,
			const struct rsh_rule_tensor *t, uint32_t alternative,
			struct weights_place *out)
{
	out->n = 0;
	out->from_dim = 0;
	out->from = 0;
	for (uint32_t d = 0; d < t->n_dims; d++) {
		const struct rsh_rule_dim *dim = &t->dims[d];
		uint64_t after, width = 1;

		(void)weights_product(x, &dim->after, &after);
		if (dim->n_alternatives) {
			(void)weights_width(x, dim, dim->n_alternatives,
					    &width);
			(void)weights_width(x, dim, alternative, &out->from);
			out->from *= after;
			out->from_dim = (uint8_t)d;
		}
		weights_put_product(x, &dim->before, d, width * after, out);
		if (dim->n_alternatives)
			weights_put_product(x, &dim->alternatives[alternative],
					    d, after, out);
		weights_put_product(x, &dim->after, d, 1, out);
	}
}
