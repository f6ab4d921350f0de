/* SPDX-License-Identifier: Apache-2.0 */
/* weights/quantised.c replaces quantised tensors by dense ones.  A dense tensor
 * is a tensor of the catalogue with the records of the quantised one, whose
 * dimensions count elements instead of bytes or words. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quantised_i.h"
#include "rsh/util/mem.h"

/* ---- the tensor of the catalogue ---- */

/* Cuts the dense tensor as the stored one is cut. */
static int quantised_cut(struct quantised_work *w, const struct rsh_tensor *in,
			 uint32_t per, struct rsh_tensor *t)
{
	const uint32_t n = rsh_cut_n_ranks(in->cut);
	const uint32_t down = rsh_packing_rows(t->quantised->packing);
	cleanup_free struct rsh_box *boxes = rsh_alloc_array(n, sizeof(*boxes));
	struct rsh_cut *cut = NULL;
	uint64_t inner = per;
	int rc;

	if (!boxes)
		return rsh_error_nomem(w->err);
	/* A grid has ratios, which do not change. */
	if (t->n_dims == in->n_dims &&
	    (rsh_cut_grid(in->cut) || (per == 1 && down == 1)))
		return 0;
	/* Blocks of bytes that are not cut become columns. */
	for (uint32_t d = t->n_dims; d < in->n_dims; d++)
		inner *= in->dims[d];
	for (uint32_t r = 0; r < n; r++) {
		struct rsh_box *b = &boxes[r];

		rsh_cut_box(in->cut, in->dims, rsh_cut_cell(in->cut, r), b);
		b->n_dims = t->n_dims;
		b->from[0] *= down;
		b->size[0] *= down;
		b->from[t->n_dims - 1] *= inner;
		b->size[t->n_dims - 1] *= inner;
	}
	rc = rsh_cut_of_boxes(t->dims, t->n_dims, boxes, n, &cut, w->err);
	if (rc)
		return rc;
	t->cut = rsh_catalogue_keep_cut(w->cat, cut);
	if (!t->cut)
		return rsh_error_nomem(w->err);
	t->copies = rsh_catalogue_keep_copies(
		w->cat, t->cut, rsh_copies_holders(in->copies),
		rsh_copies_n_holders(in->copies),
		rsh_copies_have_replicas(in->copies));
	return t->copies ? 0 : rsh_error_nomem(w->err);
}

/* Adds the dense tensor to the catalogue. */
static int quantised_add(struct quantised_work *w,
			 const struct quantised_tensor *x,
			 const struct rsh_tensor *in, uint32_t *number)
{
	struct rsh_quantised *q = rsh_arena_array(w->arena,
						  struct rsh_quantised, 1);
	struct rsh_tensor t = *in;
	uint64_t dims[4], *d = dims;
	uint32_t per, bytes;
	int rc;

	if (!q)
		return rsh_error_nomem(w->err);
	*q = x->q;
	rsh_packing_unit(q->packing, &per, &bytes);
	if (x->planes)
		*d++ = x->planes;
	*d++ = x->rows;
	if (x->divided)
		*d++ = x->columns / x->divided;
	*d++ = x->divided ? x->divided : (x->columns + per - 1) / per * per;
	/* Padding after the last column fills a word. */
	if (q->packing == RSH_PACK_U4 || q->packing == RSH_PACK_U8)
		d[-1] = in->dims[in->n_dims - 1] *
			rsh_dtype_size(in->dtype) / bytes * per;
	t.dims = dims;
	t.n_dims = (uint8_t)(d - dims);
	t.quantised = q;
	rc = quantised_cut(w, in, rsh_dtype_size(in->dtype) / bytes * per, &t);
	if (rc == 0 && rsh_catalogue_add(w->cat, &t, number))
		rc = rsh_error_nomem(w->err);
	return rc;
}

/* ---- the offer ---- */

/* A stack whose rows are divided into blocks is shown transposed: a column has
 * the rows of all blocks. */
static int quantised_offer_divided(struct quantised_work *w,
				   const struct quantised_tensor *x,
				   uint32_t number, struct rsh_offer *o)
{
	struct rsh_recipe_part *p =
		rsh_arena_array(w->arena, struct rsh_recipe_part, 1);
	struct rsh_factor *f = rsh_arena_array(w->arena, struct rsh_factor, 4);
	const uint64_t *zeros = rsh_arena_array(w->arena, uint64_t, 4);

	if (!p || !f || !zeros)
		return -ENOMEM;
	f[0] = (struct rsh_factor){ x->planes, 1, 1, 0, 0 };
	f[1] = (struct rsh_factor){ x->columns / x->divided, x->divided, 1,
				    1, 2 };
	f[2] = (struct rsh_factor){ x->divided, 1, 1, 1, 3 };
	f[3] = (struct rsh_factor){ x->rows, 1, 1, 2, 1 };
	*p = (struct rsh_recipe_part){ .tensor = number, .n_factors = 4,
					 .factors = f, .shown_from = zeros,
					 .from = zeros };
	o->n_parts = 1;
	o->parts = p;
	o->boxes = false;
	return 0;
}

static int quantised_offer(struct quantised_work *w,
			   const struct quantised_tensor *x, uint32_t number,
			   struct rsh_offer *o)
{
	static const uint8_t turned[2][3] = { { 1, 0 }, { 0, 2, 1 } };
	uint64_t *dims = rsh_arena_array(w->arena, uint64_t, 3);
	const uint32_t first = x->planes != 0;

	if (!dims)
		return -ENOMEM;
	dims[0] = x->planes;
	dims[first] = x->transposed ? x->columns : x->rows;
	dims[first + 1] = x->transposed ? x->rows : x->columns;
	o->dtype = x->q.type;
	o->n_dims = first + 2;
	o->dims = dims;
	return x->divided ? quantised_offer_divided(w, x, number, o) :
	       rsh_offer_whole(w->cat, w->arena, number,
			       x->transposed ? turned[first] : NULL, o);
}

static int quantised_make(struct quantised_work *w,
			  const struct quantised_tensor *x)
{
	struct rsh_offer *o = &w->v[x->at];
	const struct rsh_tensor *in = quantised_plain(w, o);
	const uint32_t there = quantised_index(w, x->at, x->stem, x->dense);
	char text[QUANTISED_TEXT];
	int len = snprintf(text, sizeof(text), "%.*s%s", (int)x->stem,
			   quantised_name(w, x->at), x->dense);
	uint32_t number = 0;
	int rc;

	if (!in)
		return -ENOTSUP;
	w->made[x->at] = true;
	rc = quantised_add(w, x, in, &number);
	if (rc)
		return rc;
	if (there && there != x->at + 1)
		return quantised_bad(w, x->at, "becomes %.400s, which is "
				     "in the source as well", text);
	if (len < 0 || (size_t)len >= sizeof(text))
		return quantised_bad(w, x->at, "has too long a name");
	o->name = rsh_names_add(w->cat->names, text, (size_t)len);
	return o->name == RSH_NAME_NONE || quantised_offer(w, x, number, o) ?
		rsh_error_nomem(w->err) : 0;
}

/* ---- scales of activations ---- */

/* Returns whether a dense tensor's name begins so. */
static bool quantised_has_made(const struct quantised_work *w,
			       const char *begin, size_t n)
{
	return rsh_any(i, w->n,
		       w->made[i] &&
		       strncmp(quantised_name(w, i), begin, n) == 0);
}

/* Takes out the scales of activations beside weights that are dense now. */
static void quantised_drop_activations(struct quantised_work *w)
{
	static const char *const beside[] = {
		".activation_scale", ".input_scale", ".input_global_scale",
		".input_zero_point", ".output_scale", ".output_zero_point",
		".output_global_scale",
	};
	static const char *const attention[] = {
		"self_attn.k_scale", "self_attn.v_scale", "self_attn.q_scale",
	};
	size_t stem;

	for (uint32_t i = 0; i < w->n; i++) {
		const char *name = quantised_name(w, i);

		for (size_t k = 0; k < sizeof(beside) /
				       sizeof(beside[0]); k++) {
			const uint32_t at = !quantised_ends(name, beside[k],
							    &stem) ? 0 :
				quantised_index(w, i, stem, ".weight");

			if (at && w->made[at - 1])
				w->used[i] = true;
			if (k < 3 && quantised_ends(name, attention[k], &stem) &&
			    quantised_has_made(w, name, stem + 10))
				w->used[i] = true;
		}
	}
}

/* ---- all offers ---- */

/* Names of dense tensors are found after this, so it comes last. */
static int quantised_finish(struct quantised_work *w, struct rsh_arena *scratch,
			    struct rsh_offers *io)
{
	uint32_t n = 0;

	if (rsh_offers_index(io, scratch, &w->names))
		return rsh_error_nomem(w->err);
	quantised_drop_activations(w);
	for (uint32_t i = 0; i < w->n; i++) {
		const int rc = w->used[i] || w->made[i] ? 0 :
			       quantised_check_unread(w, i);

		if (rc)
			return rc;
	}
	/* The arrays are by the numbers of offers, so these move at last. */
	for (uint32_t i = 0; i < w->n; i++)
		if (!w->used[i])
			io->v[n++] = w->v[i];
	io->n = n;
	return 0;
}

static int quantised_run(struct quantised_work *w)
{
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < w->n; i++) {
		struct quantised_tensor t = { .at = i };
		bool is = false;

		t.q.type = w->o->type ? w->o->type : RSH_DTYPE_BFLOAT16;
		if (w->used[i])
			continue;
		rc = quantised_recognise(w, i, &t, &is);
		if (rc == 0 && is)
			rc = quantised_make(w, &t);
	}
	for (uint32_t i = 0; rc == 0 && i < w->n; i++)
		if (!w->used[i] && !w->made[i])
			rc = quantised_check_left(w, i);
	return rc;
}

int rsh_weights_dequantise(const struct rsh_dequantise *o,
			   struct rsh_arena *arena, struct rsh_offers *io,
			   struct rsh_error *err)
{
	struct quantised_work w = {
		.o = o, .arena = arena, .cat = io->cat, .v = io->v, .n = io->n,
		.says = o->config ? rsh_model_config_quantisation(o->config) :
				    NULL,
		.err = err,
	};
	cleanup_arena struct rsh_arena scratch = { 0 };
	int rc = 0;

	w.used = rsh_arena_array(&scratch, bool, w.n);
	w.made = rsh_arena_array(&scratch, bool, w.n);
	if (!w.used || !w.made || rsh_offers_index(io, &scratch, &w.names))
		rc = rsh_error_nomem(err);
	if (rc == 0 && o->type && !w.says)
		rc = rsh_error_set(err, EINVAL, "--dequantize needs a "
				   "config.json with \"quantization_config\", "
				   "but %s%s", o->config ?
				   rsh_model_config_path(o->config) :
				   "there is none",
				   o->config ? " has none" : ": use --config");
	return rc ?: quantised_check_config(&w) ?: quantised_run(&w) ?:
	       quantised_finish(&w, &scratch, io);
}
