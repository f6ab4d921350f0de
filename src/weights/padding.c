/* SPDX-License-Identifier: Apache-2.0 */
/* weights/padding.c adds rows to tensors of MindSpore's form, and cuts them
 * off:  the vocabulary is padded to a multiple so that it can be sharded. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "rsh/util/checked.h"
#include "weights_i.h"

/* Each row that repeats the last one is a part of a recipe. */
#define PADDING_LAST_MAX 16384

/* Returns the `pad` line for a name, also for the name of a state of that
 * tensor; NULL if there is none. */
static const struct rsh_rule_pad *padding_of(const struct weights_work *w,
					     const char *text)
{
	const struct rsh_rule_table *t = w->o->table;

	for (uint32_t i = 0; i < t->n_pads; i++) {
		const struct rsh_rule_pad *p = &t->pads[i];

		if (strcmp(text, p->name) == 0)
			return p;
		for (uint32_t k = 0; k < t->n_pairs[RSH_RULE_STATE]; k++) {
			const char *of = weights_of_state(
				t, k, RSH_SIDE_MINDSPORE, text);

			if (of && strcmp(of, p->name) == 0)
				return p;
		}
	}
	return NULL;
}

static int padding_bad(const struct weights_work *w,
		       const struct rsh_rule_pad *p, const char *text,
		       const char *what)
{
	return rsh_error_set(w->err, EINVAL, "%s:%u: %.400s %s",
			     w->o->table->path, p->line, text, what);
}

/* Sets the number of rows with padding; 0 if the multiple is not known, and
 * then there is none. */
static int padding_rows(const struct weights_work *w,
			const struct rsh_rule_pad *p, const char *text,
			uint64_t rows, uint64_t *padded)
{
	uint64_t multiple, rest;

	*padded = 0;
	if (!weights_let(w, p->multiple, &multiple))
		return 0;
	rest = multiple ? rows % multiple : 0;
	if (!multiple || !rsh_add_u64(rows, rest ? multiple - rest : 0, padded) ||
	    *padded > INT64_MAX)
		return padding_bad(w, p, text,
				   "cannot be padded to this multiple");
	return 0;
}

/* Returns whether an offer can be changed; else sets the error. */
static int padding_fits(const struct weights_work *w,
			const struct rsh_rule_pad *p, const char *text,
			const struct rsh_offer *o)
{
	if (o->n_dims == 0)
		return padding_bad(w, p, text, "has no rows");
	if (!o->boxes || !o->n_parts ||
	    w->cat->tensors[o->parts->tensor]->quantised)
		return padding_bad(w, p, text, "can only be padded if it is "
				   "not quantised and only renamed");
	return 0;
}

/* Returns the dimensions with another number of rows. */
static const uint64_t *padding_dims(struct weights_work *w,
				    const struct rsh_offer *o, uint64_t rows)
{
	uint64_t *dims = rsh_arena_copy(w->arena, o->dims, o->n_dims);

	if (!dims)
		return NULL;
	dims[0] = rows;
	return dims;
}

static uint64_t padding_part_rows(const struct rsh_recipe_part *p)
{
	return p->factors[0].size;
}

/* Makes a part of n rows of another one, from its row `first` on, which are
 * shown from row `at` on. */
static int padding_part(const struct weights_work *w,
			const struct rsh_recipe_part *of, uint64_t first,
			uint64_t n, uint64_t at, struct rsh_recipe_part *out)
{
	/* The offer has a dimension for each of the tensor. */
	const uint32_t n_dims = w->cat->tensors[of->tensor]->n_dims;
	struct rsh_factor *f = rsh_arena_copy(w->arena, of->factors, n_dims);
	uint64_t *from = rsh_arena_copy(w->arena, of->from, n_dims);
	uint64_t *shown = rsh_arena_copy(w->arena, of->shown_from, n_dims);

	if (!f || !from || !shown)
		return -ENOMEM;
	f[0].size = n;
	from[f[0].dim] += first;
	shown[0] = at;
	*out = (struct rsh_recipe_part){ of->tensor, n_dims, f, shown, from };
	return 0;
}

/* ---- cutting off ---- */

/* Without a multiple, rows that the source calls padding are cut off.  Returns
 * how many rows there are then with padding; 0: none is cut off. */
static uint64_t padding_told(const struct weights_work *w, uint32_t source,
			     uint64_t rows)
{
	const struct rsh_offer *o = &w->in[source];

	if (o->n_dims == 0 || o->dims[0] <= rows ||
	    o->dims[0] != w->cat->padded_rows)
		return 0;
	weights_note(w, 1, source, "has rows of padding, which are cut off");
	return o->dims[0];
}

static int padding_cut_one(struct weights_work *w, uint32_t source,
			   struct rsh_offer *o, const struct rsh_rule_pad *p,
			   const char *text)
{
	struct rsh_recipe_part *parts;
	char sentence[160];
	uint64_t rows, padded;
	uint32_t n = 0;
	int rc;

	if (!weights_let(w, p->rows, &rows))
		return 0;
	rc = padding_rows(w, p, text, rows, &padded);
	if (rc == 0 && !padded)
		padded = padding_told(w, source, rows);
	if (rc || !padded || (o->n_dims && o->dims[0] == rows))
		return rc;
	rc = padding_fits(w, p, text, o);
	if (rc)
		return rc;
	if (o->dims[0] != padded) {
		snprintf(sentence, sizeof(sentence), "has %" PRIu64 " rows, "
			 "and %" PRIu64 " rows are padded to %" PRIu64,
			 o->dims[0], rows, padded);
		return padding_bad(w, p, text, sentence);
	}
	parts = rsh_arena_array(w->arena, struct rsh_recipe_part, o->n_parts);
	o->dims = padding_dims(w, o, rows);
	if (!parts || !o->dims)
		return rsh_error_nomem(w->err);
	for (uint32_t i = 0; i < o->n_parts; i++) {
		const struct rsh_recipe_part *of = &o->parts[i];
		const uint64_t at = of->shown_from[0];

		if (at >= rows && rows > 0)
			continue;
		if (padding_part(w, of, 0, rsh_min_u64(padding_part_rows(of),
						       rows - at),
				 at, &parts[n++]))
			return rsh_error_nomem(w->err);
	}
	o->n_parts = n;
	o->parts = parts;
	return 0;
}

int weights_cut_padding(struct weights_work *w)
{
	struct rsh_offer *in = NULL;
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < w->n; i++) {
		const struct rsh_rule_pad *p = padding_of(w,
							  weights_text(w, i));

		if (!p)
			continue;
		if (!in) {
			in = rsh_arena_array(w->arena, struct rsh_offer, w->n);
			if (!in)
				return rsh_error_nomem(w->err);
			memcpy(in, w->in, w->n * sizeof(*in));
			w->in = in;
		}
		rc = weights_wrong(w, padding_cut_one(w, i, &in[i], p,
						      weights_text(w, i)));
	}
	return rc;
}

/* ---- adding ---- */

/* Adds a tensor to the catalogue that is in no file: all elements are zero. */
static int padding_add_zeros(struct weights_work *w, struct rsh_offer *o,
			     uint64_t padded, struct rsh_recipe_part *out)
{
	const struct rsh_tensor *of = w->cat->tensors[o->parts->tensor];
	const uint64_t rows = o->dims[0];
	struct rsh_tensor t = {
		.name = of->name, .dtype = of->dtype, .wide_bf16 = of->wide_bf16,
		.n_dims = (uint8_t)o->n_dims,
		.dims = padding_dims(w, o, padded - rows),
	};
	struct rsh_factor f[RSH_MAX_DIMS];
	struct rsh_recipe_part all;
	uint32_t number;

	if (!t.dims || rsh_catalogue_add_zeros(w->cat, &t, &number))
		return -ENOMEM;
	all = rsh_recipe_whole(w->cat, number, NULL, f);
	return padding_part(w, &all, 0, padded - rows, rows, out);
}

/* Adds parts that repeat the last row to the n parts at `out`. */
static int padding_add_last(const struct weights_work *w,
			    const struct rsh_offer *o, uint64_t padded,
			    struct rsh_recipe_part *out)
{
	const uint64_t rows = o->dims[0];
	int rc = 0;

	for (uint32_t i = 0; i < o->n_parts; i++) {
		const struct rsh_recipe_part *last = &o->parts[i];
		const uint64_t down = padding_part_rows(last) - 1;

		if (last->shown_from[0] + down != rows - 1)
			continue;
		for (uint64_t row = rows; row < padded && rc == 0; row++)
			rc = padding_part(w, last, down, 1, row, out++);
	}
	return rc;
}

/* Returns how many parts have elements of the last row. */
static uint32_t padding_last_parts(const struct rsh_offer *o)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < o->n_parts; i++)
		n += o->parts[i].shown_from[0] +
		     padding_part_rows(&o->parts[i]) == o->dims[0];
	return n;
}

static int padding_add(struct weights_work *w, struct rsh_offer *o,
		       const struct rsh_rule_pad *p, const char *text,
		       uint64_t padded)
{
	const uint64_t more = padded - o->dims[0];
	const uint32_t per_row = padding_last_parts(o);
	struct rsh_recipe_part *parts;
	uint64_t n = 1;

	if (p->last && (o->dims[0] == 0 || !rsh_mul_u64(more, per_row, &n) ||
			n > PADDING_LAST_MAX))
		return padding_bad(w, p, text,
				   "gets too many copies of its last row");
	parts = rsh_arena_array(w->arena, struct rsh_recipe_part,
				o->n_parts + n);
	if (!parts)
		return rsh_error_nomem(w->err);
	memcpy(parts, o->parts, o->n_parts * sizeof(*parts));
	if (p->last ? padding_add_last(w, o, padded, parts + o->n_parts) :
		      padding_add_zeros(w, o, padded, parts + o->n_parts))
		return rsh_error_nomem(w->err);
	o->parts = parts;
	o->n_parts += (uint32_t)n;
	o->dims = padding_dims(w, o, padded);
	return o->dims ? 0 : rsh_error_nomem(w->err);
}

static int padding_add_one(struct weights_work *w, struct weights_made *m,
			   const struct rsh_rule_pad *p)
{
	struct rsh_offer *o = &m->offer;
	char sentence[160];
	uint64_t rows, padded;
	int rc;

	if (!o->n_dims)
		return padding_fits(w, p, m->text, o);
	rc = padding_rows(w, p, m->text, o->dims[0], &padded);
	if (rc || !padded || padded == o->dims[0])
		return rc;
	if (weights_let(w, p->rows, &rows) && rows != o->dims[0]) {
		snprintf(sentence, sizeof(sentence), "has %" PRIu64 " rows "
			 "before padding, and not %" PRIu64 " (%.60s)",
			 o->dims[0], rows, p->rows);
		return padding_bad(w, p, m->text, sentence);
	}
	return padding_fits(w, p, m->text, o) ?:
	       padding_add(w, o, p, m->text, padded);
}

int weights_add_padding(struct weights_work *w)
{
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < w->n_made; i++) {
		const struct rsh_rule_pad *p = padding_of(w, w->made[i].text);

		if (p)
			rc = weights_wrong(w, padding_add_one(w, &w->made[i],
							      p));
	}
	return rc;
}
