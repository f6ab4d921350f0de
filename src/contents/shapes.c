/* SPDX-License-Identifier: Apache-2.0 */
/* contents/shapes.c finds errors of a cut by shapes, where the bytes cannot
 * show them.
 *
 * If every rank has its own slice, as with an optimizer sharded over all data
 * parallel ranks, the ranks differ under two meshes in the same way, and only
 * the order of the slices is another.  For example, an output matrix of a layer
 * that is cut 4 x 2:
 *
 *     slices of [16, 64], 8 ranks     mesh [4,2]: [64, 128]
 *                                     mesh [2,4]: [32, 256]
 *
 * With the wrong mesh the matrix has a width that the model does not have: most
 * matrices have the width of the norms as input or output.  If several kinds of
 * matrices do not have such a width, and one change of the cut gives it to all
 * of them, the strategy is wrong.  A single kind may be an exception, unless
 * the change gives such widths to all of its dimensions.  Some matrices have
 * several widths at once: the matrices of all experts may be concatenated, as
 * one of [experts * width, ...], and hyper-connections mix several streams.
 * They alone are not a misfit, but a change must make them fit as well.  The
 * check is made only for trees that look like a model: layers have one shape,
 * and most matrices have the width of a norm.
 */
#include "config.h"

#include "contents_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/strategy/grid.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

/* At most so many kinds of matrices are compared. */
#define KINDS_MAX 256
/* So many kinds must have the width of a norm before another one is a
 * misfit. */
#define FITS_MIN 3
/* So many kinds must have the same shape in several layers, as in models. */
#define REPEATED_MIN 2

struct shape_kind {
	const struct rsh_subject *subject;
	uint32_t n_dims;
	int64_t whole[RSH_MAX_DIMS];
	uint32_t split[RSH_MAX_DIMS];
};

/* This describes layers that differ only in their number. */
struct shape_pattern {
	uint64_t hash;
	struct shape_kind first;
	bool repeated; /* another layer has that shape */
};

struct shapes {
	int64_t *widths; /* widths of norms */
	size_t n_widths, cap;
	struct shape_kind *misfits;
	uint32_t n_misfits;
	uint32_t n_plain; /* misfits that do not have several widths at once */
	uint64_t *fitting; /* families of the tensors that fit */
	uint32_t n_fits;
	struct shape_pattern *patterns;
	uint32_t n_patterns;
	bool odd;         /* norms are not vectors, or layers have several
			   * shapes: rules for models do not apply */
};

static bool shapes_has_width(const struct shapes *x, int64_t size)
{
	return rsh_any(i, x->n_widths, x->widths[i] == size);
}

/* Returns whether one of the dimensions, or with `all_over` each of them, has
 * the width of a norm. */
static bool shapes_fit(const struct shapes *x, const struct shape_kind *k,
		       bool all_over)
{
	uint32_t n = 0;

	for (uint32_t d = 0; d < k->n_dims; d++)
		n += shapes_has_width(x, k->whole[d]);
	return all_over ? n == k->n_dims : n > 0;
}

/* Adapters (LoRA) have their own widths, so they are not counted. */
static bool shapes_count(const struct rsh_contents *c,
			 const struct rsh_subject *s)
{
	return (s->kind == RSH_TENSOR_WEIGHT || s->kind == RSH_TENSOR_TRAINED) &&
	       !strcasestr(rsh_names_text(c->names, s->name), "lora");
}

/* Returns whether the name contains one of the words; the list ends with
 * NULL. */
static bool shapes_is_named(const struct rsh_contents *c,
			    const struct rsh_subject *s,
			    const char *const *words)
{
	const char *name = rsh_names_text(c->names, s->name);

	for (; *words; words++)
		if (strcasestr(name, *words))
			return true;
	return false;
}

static const char *const norms[] = { "norm", "ln", "gamma", NULL };
/* Tensors with these names have several widths at once. */
static const char *const manifold[] = { "expert", "_hc.", "hc_", NULL };

static int shapes_make_kind(const struct rsh_contents *c,
			    const struct rsh_subject *s, struct shape_kind *k)
{
	const int64_t *dims = rsh_record_dims(s->index, s->record);
	const struct rsh_grid_sizes sizes = { dims, s->record->n_dims, true };
	cleanup_grid struct rsh_grid *g = NULL;
	int rc = rsh_subject_grid(c, s, &g);

	if (rc)
		return rc;
	/* One slice does not show how many rows the others have. */
	if (s->item && rsh_item_rows(s->item, &sizes, g->split,
				     NULL) > 0)
		return -EINVAL;
	*k = (struct shape_kind){ .subject = s, .n_dims = s->record->n_dims };
	for (uint32_t d = 0; d < k->n_dims; d++) {
		k->split[d] = rsh_grid_split(g, d);
		k->whole[d] = dims[d] * k->split[d];
	}
	return 0;
}

static int shapes_add_width(struct rsh_contents *c, const struct rsh_subject *s,
			    struct shapes *x)
{
	struct shape_kind k;
	int rc = shapes_make_kind(c, s, &k);

	x->odd |= s->record->n_dims != 1;
	if (rc || x->odd || k.whole[0] < 2 || shapes_has_width(x, k.whole[0]))
		return rc == -ENOMEM ? rc : 0;
	return rsh_push(x->widths, x->n_widths, x->cap, k.whole[0]);
}

static void shapes_add_pattern(struct shapes *x, const struct shape_kind *k)
{
	for (uint32_t i = 0; i < x->n_patterns; i++) {
		struct shape_pattern *p = &x->patterns[i];

		if (p->hash != k->subject->pattern)
			continue;
		if (p->first.n_dims != k->n_dims ||
		    memcmp(p->first.whole, k->whole,
			   k->n_dims * sizeof(*k->whole)) != 0)
			x->odd = true;
		/* If stages share one tensor, this is not a repetition. */
		p->repeated |= p->first.subject->name != k->subject->name;
		return;
	}
	if (x->n_patterns < KINDS_MAX)
		x->patterns[x->n_patterns++] = (struct shape_pattern){
			.hash = k->subject->pattern, .first = *k,
		};
}

static int shapes_add_matrix(struct rsh_contents *c,
			     const struct rsh_subject *s, struct shapes *x)
{
	struct shape_kind k;
	int rc = shapes_make_kind(c, s, &k);

	if (rc)
		return rc == -ENOMEM ? rc : 0;
	shapes_add_pattern(x, &k);
	if (shapes_fit(x, &k, false)) {
		for (uint32_t i = 0; i < x->n_fits; i++)
			if (x->fitting[i] == s->family)
				return 0;
		if (x->n_fits < KINDS_MAX)
			x->fitting[x->n_fits++] = s->family;
		return 0;
	}
	for (uint32_t i = 0; i < x->n_misfits; i++)
		if (x->misfits[i].subject->family == s->family)
			return 0;
	if (x->n_misfits < KINDS_MAX)
		x->misfits[x->n_misfits++] = k;
	x->n_plain += !shapes_is_named(c, s, manifold);
	return 0;
}

static int shapes_collect(struct rsh_contents *c, struct shapes *x)
{
	int rc = 0;

	for (uint32_t i = 0; i < c->n_subjects && rc == 0; i++)
		if (shapes_count(c, &c->subjects[i]) &&
		    shapes_is_named(c, &c->subjects[i], norms))
			rc = shapes_add_width(c, &c->subjects[i], x);
	for (uint32_t i = 0; i < c->n_subjects && rc == 0; i++)
		if (shapes_count(c, &c->subjects[i]) &&
		    c->subjects[i].record->n_dims >= 2)
			rc = shapes_add_matrix(c, &c->subjects[i], x);
	return rc;
}

/* Returns whether all misfits would fit if dimension `from` were cut into `by`
 * times fewer slices and dimension `to` into `by` times more. */
static bool shapes_all_fit(const struct shapes *x, uint32_t from, uint32_t to,
			   uint32_t by)
{
	for (uint32_t i = 0; i < x->n_misfits; i++) {
		struct shape_kind k = x->misfits[i];

		if (from >= k.n_dims || to >= k.n_dims || k.split[from] % by)
			return false;
		k.whole[from] /= by;
		k.whole[to] *= by;
		if (!shapes_fit(x, &k, x->n_misfits == 1))
			return false;
	}
	return true;
}

static bool shapes_find_change(const struct shapes *x, uint32_t *from,
			       uint32_t *to, uint32_t *by)
{
	const struct shape_kind *k = &x->misfits[0];

	for (*from = 0; *from < k->n_dims; (*from)++)
		for (*to = 0; *to < k->n_dims; (*to)++)
			for (*by = 2; *by <= k->split[*from]; (*by)++)
				if (*from != *to &&
				    shapes_all_fit(x, *from, *to, *by))
					return true;
	return false;
}

static void shapes_text(const struct shape_kind *k, char *text, size_t size)
{
	size_t at = 0;

	for (uint32_t d = 0; d < k->n_dims; d++)
		rsh_text_add(text, size, &at, "%s%lld", d ? "," : "",
			     (long long)k->whole[d]);
}

static int shapes_refuse(const struct rsh_contents *c, const struct shapes *x,
			 uint32_t from, uint32_t to, uint32_t by,
			 struct rsh_error *err)
{
	struct shape_kind k = x->misfits[0];
	char layout[160], whole[160], other[160];

	shapes_text(&k, whole, sizeof(whole));
	k.whole[from] /= by;
	k.whole[to] *= by;
	shapes_text(&k, other, sizeof(other));
	return rsh_error_set(err, EINVAL, "%s: %s is not the strategy of this "
			     "tree: parameter %s (%s) would be of shape [%s], "
			     "and no norm is of one of these sizes (nor of "
			     "those of %u other kinds of weights); cut %u times "
			     "more over dimension %u and less over %u it would "
			     "be [%s] and fit; --check structure does not "
			     "compare them", c->path, c->src->path,
			     rsh_names_text(c->names, k.subject->name),
			     rsh_item_text(k.subject->item, layout,
					   sizeof(layout)),
			     whole, x->n_misfits - 1, by, to, from, other);
}

int rsh_contents_check_shapes(struct rsh_contents *c, struct rsh_error *err)
{
	struct shapes x = { .widths = NULL };
	uint32_t from, to, by, n_repeated = 0;
	int rc;

	if (!c->src)
		return 0;
	x.misfits = rsh_alloc_array(KINDS_MAX, sizeof(*x.misfits));
	x.fitting = rsh_alloc_array(KINDS_MAX, sizeof(*x.fitting));
	x.patterns = rsh_alloc_array(KINDS_MAX, sizeof(*x.patterns));
	rc = x.misfits && x.fitting && x.patterns ?
	     shapes_collect(c, &x) : -ENOMEM;
	for (uint32_t i = 0; rc == 0 && i < x.n_patterns; i++)
		n_repeated += x.patterns[i].repeated;
	/* A misfit is an exception to a rule, so a minimum of tensors must
	 * follow the rule. */
	if (rc)
		rc = rsh_error_nomem(err);
	else if (!x.odd && n_repeated >= REPEATED_MIN && x.n_plain > 0 &&
		 x.n_fits >= FITS_MIN && x.n_fits > x.n_misfits &&
		 shapes_find_change(&x, &from, &to, &by))
		rc = shapes_refuse(c, &x, from, to, by, err);
	free(x.widths);
	free(x.misfits);
	free(x.fitting);
	free(x.patterns);
	return rc;
}
