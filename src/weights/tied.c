/* SPDX-License-Identifier: Apache-2.0 */
/* weights/tied.c handles heads that are tied to the embedding.  In Hugging
 * Face's form such a head is no tensor; MindSpore's form may have it.  The
 * config.json of the model decides. */
#include <errno.h>
#include <string.h>

#include "weights_i.h"

static uint32_t tied_find_source(const struct weights_work *w, const char *name)
{
	uint32_t i = 0;

	while (i < w->n && strcmp(weights_text(w, i), name) != 0)
		i++;
	return i;
}

static struct weights_made *tied_find_made(const struct weights_work *w,
					   const char *name)
{
	for (uint32_t i = 0; i < w->n_made; i++)
		if (strcmp(w->made[i].text, name) == 0)
			return &w->made[i];
	return NULL;
}

/* ---- from Hugging Face ---- */

/* Adds the offer of `source` under another name. */
static int tied_add_source(struct weights_work *w, uint32_t source,
			   const char *name, struct rsh_error *err)
{
	struct rsh_offer *in = rsh_arena_array(w->arena, struct rsh_offer,
					       w->n + 1);
	uint32_t *given = rsh_arena_array(&w->scratch, uint32_t, w->n + 1);

	if (!in || !given)
		return rsh_error_nomem(err);
	for (uint32_t i = 0; i < w->n; i++)
		given[i] = weights_given(w, i);
	given[w->n] = given[source];
	memcpy(in, w->in, w->n * sizeof(*in));
	in[w->n] = in[source];
	in[w->n].name = rsh_names_add(w->cat->names, name, strlen(name));
	if (in[w->n].name == RSH_NAME_NONE)
		return rsh_error_nomem(err);
	w->in = in;
	w->given = given;
	w->n++;
	return 0;
}

int weights_untie(struct weights_work *w, struct rsh_error *err)
{
	const uint32_t n = w->o->untie ? w->o->table->n_tied : 0;
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < n; i++) {
		const struct rsh_rule_tied *t = &w->o->table->tied[i];
		const uint32_t source = tied_find_source(w, t->original);

		if (source < w->n && tied_find_source(w, t->copy) == w->n)
			rc = tied_add_source(w, source, t->copy, err);
	}
	return rc;
}

/* ---- for Hugging Face ---- */

/* Leaves out the copy.  If the copy was trained by itself, it must not be
 * lost. */
static int tied_leave_out(struct weights_work *w, struct weights_made *copy,
			  const struct weights_made *original,
			  struct rsh_error *err)
{
	const struct rsh_offer *x = &copy->offer, *y = &original->offer;
	struct weights_list *l = &w->copies;
	uint32_t n = 0;
	int same = 0;

	if (x->dtype == y->dtype && x->n_dims == y->n_dims &&
	    memcmp(x->dims, y->dims, x->n_dims * sizeof(*x->dims)) == 0)
		same = w->o->same ? w->o->same(w->o->ctx, x, y, err) :
				    -ENOTSUP;
	if (same < 0)
		return same == -ENOTSUP ? 0 : same;
	if (!same)
		return rsh_error_set(err, EINVAL, "%s: \"tie_word_embeddings\" "
				     "is true, and the weights say false: "
				     "%.200s is not %.200s",
				     rsh_model_config_path(w->o->config),
				     copy->text, original->text);
	weights_note(w, 1, *copy->sources, "is tied to the embedding by "
		     "config.json, has the same elements and is left out");
	/* The tensors that `also` lines make of the head are tied too. */
	for (uint32_t i = 0; i < l->n; i++)
		if (weights_given(w, l->m[i].source) != *copy->sources)
			l->m[n++] = l->m[i];
	l->n = n;
	w->n_made--;
	memmove(copy, copy + 1, (size_t)(w->made + w->n_made - copy) *
				sizeof(*copy));
	return 0;
}

int weights_tie(struct weights_work *w, struct rsh_error *err)
{
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < w->o->table->n_tied; i++) {
		const struct rsh_rule_tied *t = &w->o->table->tied[i];
		struct weights_made *copy = tied_find_made(w, t->copy);
		const struct weights_made *original =
			tied_find_made(w, t->original);
		const bool is_tied = w->o->config &&
				     rsh_model_config_is_tied(w->o->config);

		if (original && copy && is_tied)
			rc = tied_leave_out(w, copy, original, err);
		else if (original && !copy && !is_tied && w->o->untie)
			rc = weights_make_copy(w, t->copy, original->rule,
					       original->sources, err);
		rc = weights_wrong(w, rc, err);
	}
	return rc;
}
