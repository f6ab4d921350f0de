/* SPDX-License-Identifier: Apache-2.0 */
/* weights/aliases.c makes more copies of a tensor.  In Hugging Face's form a
 * model has copies of its embedding and head for prediction layers.
 *
 * The name of a copy may have numbers that the name of the original does not
 * have.  These are the numbers of the other tensors that are made: if there is
 * a model.layers.61, it gets a copy.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "weights_i.h"

struct weights_copying {
	const struct weights_unit *u;
	const struct weights_name *name;
	const struct weights_match *m;
	uint32_t n_own; /* number of made tensors that are not copies */
};

static int weights_copy_as(struct weights_work *w,
			   const struct weights_copying *c,
			   const uint64_t *holes, struct rsh_error *err)
{
	char text[WEIGHTS_TEXT];
	uint32_t *source = rsh_arena_array(w->arena, uint32_t, 1);

	if (!source)
		return rsh_error_nomem(err);
	*source = c->m->source;
	if (!weights_print(c->name, holes, "", text))
		return weights_bad(w, c->u->rule, err, "a number in the name "
				   "of a copy of %s is not known or too large",
				   weights_text(w, c->m->source));
	return weights_make_copy(w, text, c->u->rule, source, err);
}

/* Copies the tensor for each made one that has its numbers and more.  The made
 * tensors are sorted, so equal numbers are adjacent. */
static int weights_copy_each(struct weights_work *w,
			     const struct weights_copying *c,
			     struct rsh_error *err)
{
	uint64_t last[WEIGHTS_HOLES_MAX], holes[WEIGHTS_HOLES_MAX];
	const size_t bytes = c->name->n_holes * sizeof(*holes);
	bool any = false;
	int rc = 0;

	for (uint32_t i = 0; i < c->n_own && rc == 0; i++) {
		uint64_t numbers[WEIGHTS_HOLES_MAX] = { 0 };

		if (weights_fit_begin(c->name, w->made[i].text, holes) !=
		    WEIGHTS_YES)
			continue;
		weights_arrange(c->u, c->name, holes, numbers);
		if (memcmp(numbers, c->m->numbers,
			   c->u->n_shared * sizeof(*numbers)) != 0 ||
		    (any && memcmp(last, holes, bytes) == 0))
			continue;
		rc = weights_copy_as(w, c, holes, err);
		memcpy(last, holes, bytes);
		any = true;
	}
	return rc;
}

/* A copy is skipped because its original has the same elements.  If the
 * original is not made, the elements would be lost. */
int weights_check_copies(struct weights_work *w, struct rsh_error *err)
{
	int rc = 0;

	for (uint32_t i = 0; i < w->copies.n && rc == 0; i++) {
		const struct weights_match *m = &w->copies.m[i];
		const struct weights_unit *u = &w->units[m->unit];
		const struct weights_name *n = &u->names[w->to][0];
		uint64_t holes[WEIGHTS_HOLES_MAX];
		char text[WEIGHTS_TEXT];
		const struct weights_made key = { .text = text };

		weights_spread(u, n, m->numbers, holes);
		if (weights_print(n, holes, "", text) &&
		    (!weights_is_wanted(w, text) ||
		     (w->n_made && bsearch(&key, w->made, w->n_made,
					   sizeof(key), weights_by_text))))
			continue;
		rc = weights_bad(w, u->rule, err, "%.400s is a copy of what "
				 "becomes %.400s, which is not there",
				 weights_text(w, m->source), text);
		rc = weights_wrong(w, rc, err);
	}
	return rc;
}

int weights_make_also(struct weights_work *w, struct rsh_error *err)
{
	const uint32_t n_own = w->n_made;
	int rc = 0;

	for (uint32_t i = 0; i < w->copies.n && rc == 0; i++) {
		const struct weights_match *m = &w->copies.m[i];
		const struct weights_unit *u = &w->units[m->unit];
		const struct weights_copying c = {
			.u = u,
			.name = &u->names[w->to][0],
			.m = m,
			.n_own = n_own,
		};
		uint64_t holes[WEIGHTS_HOLES_MAX];

		if (c.name->n_holes > u->n_shared) {
			rc = weights_copy_each(w, &c, err);
		} else {
			weights_spread(u, c.name, m->numbers, holes);
			rc = weights_copy_as(w, &c, holes, err);
		}
		rc = weights_wrong(w, rc, err);
	}
	return rc;
}
