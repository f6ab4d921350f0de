/* SPDX-License-Identifier: Apache-2.0 */
/* weights/units.c makes a unit of each rule and prefix, and finds names in
 * them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/mem.h"
#include "weights_i.h"

/* ---- names with their prefixes ---- */

/* Appends a name to the text that *out already has. */
static int weights_join(struct weights_work *w, const struct rsh_rule_name *n,
			struct weights_name *out)
{
	const char **last = &out->texts[out->n_holes];

	*last = rsh_arena_format(&w->scratch, "%s%s", *last, n->texts[0]);
	if (!*last)
		return -ENOMEM;
	for (uint32_t i = 0; i < n->n_holes; i++) {
		struct weights_hole *h = &out->holes[out->n_holes];

		*h = (struct weights_hole){ .letter = n->holes[i].letter,
					    .least_name = n->holes[i].least };
		h->least_known = h->least_name &&
				 weights_let(w, h->least_name, &h->least);
		if (!h->least_known)
			h->least = 0;
		out->texts[++out->n_holes] = n->texts[i + 1];
	}
	return 0;
}

static int weights_read_names(struct weights_work *w, struct weights_unit *u,
			      const struct rsh_rule_under *under, int side)
{
	const uint32_t n = u->rule->n_tensors[side];
	struct weights_name *names = rsh_arena_array(&w->scratch,
						     struct weights_name, n);
	int rc = names ? 0 : -ENOMEM;

	for (uint32_t i = 0; i < n && rc == 0; i++) {
		const struct rsh_rule_name *name =
			&u->rule->tensors[side][i].name;

		names[i].texts[0] = "";
		if (under && name->texts[0][0] == '.')
			rc = weights_join(w, &under->prefix[side], &names[i]);
		if (rc == 0)
			rc = weights_join(w, name, &names[i]);
	}
	u->names[side] = names;
	return rc;
}

static int weights_read_when(struct weights_work *w, struct weights_unit *u,
			     const struct rsh_rule_under *under)
{
	if (!u->rule->when || u->rule->when->n_says)
		return 0;
	for (int s = 0; s < RSH_N_SIDES; s++) {
		u->when[s] = rsh_arena_array(&w->scratch, struct weights_name,
					     1);
		if (!u->when[s])
			return -ENOMEM;
		u->when[s]->texts[0] = "";
		if (weights_join(w, &under->prefix[s], u->when[s]) ||
		    weights_join(w, &u->rule->when->name[s], u->when[s]))
			return -ENOMEM;
	}
	return 0;
}

/* ---- letters ---- */

static bool weights_is_shared(const struct weights_unit *u, const char *letter)
{
	return rsh_any(i, u->n_shared, strcmp(u->shared[i], letter) == 0);
}

static bool weights_name_has(const struct weights_name *n, const char *letter)
{
	return rsh_any(i, n->n_holes, strcmp(n->holes[i].letter, letter) == 0);
}

uint32_t weights_letter(const struct weights_unit *u, const char *letter)
{
	return rsh_index(i, u->n_letters, strcmp(u->letters[i], letter) == 0);
}

static void weights_add_letter(struct weights_unit *u, const char *letter)
{
	if (weights_letter(u, letter) == u->n_letters)
		u->letters[u->n_letters++] = letter;
}

static void weights_add_product(struct weights_unit *u,
				const struct rsh_rule_product *f)
{
	for (uint32_t i = 0; i < f->n; i++)
		weights_add_letter(u, f->factors[i]);
}

static void weights_add_tensor(struct weights_unit *u,
			       const struct rsh_rule_tensor *t)
{
	for (uint32_t d = 0; d < t->n_dims; d++) {
		weights_add_product(u, &t->dims[d].before);
		for (uint32_t a = 0; a < t->dims[d].n_alternatives; a++)
			weights_add_product(u, &t->dims[d].alternatives[a]);
		weights_add_product(u, &t->dims[d].after);
	}
}

uint32_t weights_stacks(const struct weights_unit *u,
			const struct weights_name *n, uint32_t *letters)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < n->n_holes; i++)
		if (!weights_is_shared(u, n->holes[i].letter))
			letters[count++] =
				weights_letter(u, n->holes[i].letter);
	return count;
}

/* ---- numbers ---- */

/* Returns the index of a hole's number among the numbers of a match. */
static uint32_t weights_number_at(const struct weights_unit *u,
				  const struct weights_name *n, uint32_t hole)
{
	uint32_t at = 0;

	for (; at < u->n_shared; at++)
		if (strcmp(u->shared[at], n->holes[hole].letter) == 0)
			return at;
	for (uint32_t i = 0; i < hole; i++)
		at += !weights_is_shared(u, n->holes[i].letter);
	return at;
}

void weights_arrange(const struct weights_unit *u, const struct weights_name *n,
		     const uint64_t *holes, uint64_t *numbers)
{
	for (uint32_t i = 0; i < n->n_holes; i++)
		numbers[weights_number_at(u, n, i)] = holes[i];
}

void weights_spread(const struct weights_unit *u, const struct weights_name *n,
		    const uint64_t *numbers, uint64_t *holes)
{
	for (uint32_t i = 0; i < n->n_holes; i++)
		holes[i] = numbers[weights_number_at(u, n, i)];
}

/* ---- all units ---- */

RSH_ORDER(weights_by_fold, struct weights_template,
	  rsh_compare_u64(x->fold, y->fold) ?:
	  rsh_compare_u64(x->unit, y->unit) ?:
	  rsh_compare_u64(x->side, y->side) ?:
	  rsh_compare_u64(x->tensor, y->tensor))

static int weights_read_unit(struct weights_work *w, const struct rsh_rule *r,
			     uint32_t under)
{
	const uint32_t number = w->n_units++;
	struct weights_unit *u = &w->units[number];
	const struct rsh_rule_under *at = r->n_under ? &r->under[under] : NULL;
	int rc = 0;
	const struct weights_name *a, *b;
	uint32_t most;

	u->rule = r;
	for (int s = 0; s < RSH_N_SIDES && rc == 0; s++)
		rc = weights_read_names(w, u, at, s);
	rc = rc ?: weights_read_when(w, u, at);
	if (rc)
		return rc;
	/* The parser has checked that all names have the holes of both
	 * sides. */
	a = u->names[RSH_SIDE_HF];
	b = u->names[RSH_SIDE_MINDSPORE];
	for (uint32_t i = 0; i < a->n_holes; i++)
		if (u->rule->n_tensors[RSH_SIDE_MINDSPORE] &&
		    weights_name_has(b, a->holes[i].letter))
			u->shared[u->n_shared++] = a->holes[i].letter;
	while (r->when && r->when->n_says && u->layer < u->n_shared &&
	       strcmp(u->shared[u->layer], r->under[under]
			.prefix[RSH_SIDE_HF].holes->letter) != 0)
		u->layer++;
	/* A tensor and its alternative have the same letters. */
	most = r->tensors[0][0].has_dims ?
		       (r->n_tensors[0] + r->n_tensors[1]) * WEIGHTS_AXES_MAX :
		       2 * WEIGHTS_HOLES_MAX;
	u->letters = rsh_arena_array(&w->scratch, const char *, most);
	if (!u->letters)
		return -ENOMEM;
	for (int s = 0; s < RSH_N_SIDES; s++)
		for (uint32_t i = 0; i < u->rule->n_tensors[s]; i++) {
			const struct weights_name *n = &u->names[s][i];

			if (!r->tensors[s][i].again)
				w->templates[w->n_templates++] =
					(struct weights_template){
					.fold = weights_fold_name(n),
					.unit = number,
					.side = (uint8_t)s,
					.tensor = (uint8_t)i,
				};
			weights_add_tensor(u, &u->rule->tensors[s][i]);
			for (uint32_t k = 0; k < n->n_holes; k++)
				if (!weights_is_shared(u, n->holes[k].letter))
					weights_add_letter(u,
							   n->holes[k].letter);
		}
	return 0;
}

int weights_read_units(struct weights_work *w)
{
	const struct rsh_rule_table *t = w->o->table;
	const struct rsh_rule *r;
	uint32_t units = 0, names = 0;

	for (r = t->rules; r < t->rules + t->n_rules; r++) {
		const uint32_t n = r->n_under ? r->n_under : 1;

		units += n;
		names += n * (r->n_tensors[0] + r->n_tensors[1]);
		if (names > WEIGHTS_NAMES_MAX)
			return rsh_error_set(w->err, EINVAL, "%s: more than %d "
					     "names", t->path,
					     WEIGHTS_NAMES_MAX);
	}
	w->units = rsh_arena_array(&w->scratch, struct weights_unit, units);
	w->templates = rsh_arena_array(&w->scratch, struct weights_template,
				       names);
	if (!w->units || !w->templates)
		return rsh_error_nomem(w->err);
	for (r = t->rules; r < t->rules + t->n_rules; r++)
		for (uint32_t u = 0; u < (r->n_under ? r->n_under : 1); u++)
			if (weights_read_unit(w, r, u))
				return rsh_error_nomem(w->err);
	qsort(w->templates, w->n_templates, sizeof(*w->templates),
	      weights_by_fold);
	return 0;
}

const struct weights_template *weights_find(const struct weights_work *w,
					    const char *text, uint32_t *n)
{
	const uint64_t fold = weights_fold_text(text);
	const uint32_t low = rsh_first(i, w->n_templates,
				       w->templates[i].fold < fold);

	for (*n = 0; low + *n < w->n_templates &&
		     w->templates[low + *n].fold == fold; (*n)++)
		;
	return w->templates + low;
}
