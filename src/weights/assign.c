/* SPDX-License-Identifier: Apache-2.0 */
/* weights/assign.c assigns each source tensor to the first rule that names it.
 * Names are searched by their text without numbers, so the cost does not depend
 * on the number of rules. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/plan/kinds.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"
#include "weights_i.h"

static int weights_list_add(struct weights_list *l,
			    const struct weights_match *m,
			    struct rsh_error *err)
{
	if (rsh_push(l->m, l->n, l->cap, *m))
		return rsh_error_nomem(err);
	return 0;
}

/* Finds the rule for a name, NULL if there is none.  Originals of an `also` are
 * added to w->copies. */
static int weights_take(struct weights_work *w, const char *text,
			struct weights_match *m, const struct rsh_rule **rule,
			struct rsh_error *err)
{
	struct weights_match found = *m;
	uint32_t n;
	const struct weights_template *t = weights_find(w, text, &n);

	*rule = NULL;
	for (; n > 0; n--, t++) {
		const struct weights_unit *u = &w->units[t->unit];
		const struct weights_name *name = &u->names[t->side][t->tensor];
		const bool copies = u->rule->kind == RSH_RULE_ALSO &&
				    t->side == RSH_SIDE_MINDSPORE;
		uint64_t holes[WEIGHTS_HOLES_MAX];
		enum weights_fit fit;

		if (t->side != w->from || (!copies && *rule) ||
		    (copies && m->state))
			continue;
		fit = weights_fit(name, text, holes);
		if (fit == WEIGHTS_UNKNOWN)
			return weights_bad(w, u->rule, err, "%s may be meant, "
					   "but no config.json says how large "
					   "the numbers are of which it is one",
					   text);
		if (fit == WEIGHTS_NO)
			continue;
		found.unit = t->unit;
		found.tensor = t->tensor;
		found.n_shared = (uint16_t)u->n_shared;
		memset(found.numbers, 0, sizeof(found.numbers));
		weights_arrange(u, name, holes, found.numbers);
		if (!copies) {
			*rule = u->rule;
			*m = found;
		} else if (weights_list_add(&w->copies, &found, err)) {
			return -ENOMEM;
		}
	}
	return 0;
}

/* Returns whether a rule names this tensor on the side of SOURCE. */
static bool weights_is_named(const struct weights_work *w, const char *text)
{
	uint64_t holes[WEIGHTS_HOLES_MAX];
	uint32_t n;
	const struct weights_template *t = weights_find(w, text, &n);

	for (; n > 0; n--, t++)
		if (t->side == w->from &&
		    weights_fit(&w->units[t->unit].names[t->side][t->tensor],
				text, holes) != WEIGHTS_NO)
			return true;
	return false;
}

/* Refuses to leave out a tensor that has the place of a weight of the table, as
 * the codes of an unknown scheme have: the model would lack the weight. */
static int weights_drop(struct weights_work *w, uint32_t source,
			const char *text, struct rsh_error *err)
{
	const char *dot = strrchr(text, '.');
	cleanup_free char *weight = !dot ? NULL :
		rsh_text_format("%.*s.weight", (int)(dot - text), text);

	if (dot && !weight)
		return rsh_error_nomem(err);
	if (weight && weights_is_named(w, weight) &&
	    rsh_names_find(w->cat->names, weight, strlen(weight)) ==
		    RSH_NAME_NONE)
		return rsh_error_set(err, EINVAL, "%s is missing, which %s "
				     "names, and %s has its place: --unlisted "
				     "drop would leave the weight out", weight,
				     w->o->table->path, text);
	if (w->n_dropped++ == 0)
		w->a_dropped = source;
	return 0;
}

/* ---- all tensors ---- */

static int weights_assign_one(struct weights_work *w, uint32_t source,
			      struct rsh_error *err)
{
	const char *text = weights_text(w, source);
	struct weights_match m = { .source = source };
	const struct rsh_rule *rule;
	int rc = weights_take(w, text, &m, &rule, err);

	while (rc == 0 && !rule && m.state < w->o->table->n_states) {
		const struct rsh_rule_state *s =
			&w->o->table->states[m.state++];
		const size_t len = strlen(s->prefix[w->from]);

		if (strncmp(text, s->prefix[w->from], len) == 0)
			rc = weights_take(w, text + len, &m, &rule, err);
	}
	if (rc)
		return rc;
	if (!rule) {
		if (w->from == RSH_SIDE_MINDSPORE &&
		    (w->in[source].n_dims == 0 ||
		     w->in[source].dtype == RSH_DTYPE_STR ||
		     rsh_kinds_of(w->cat->kinds, w->in[source].name, text) !=
			RSH_KIND_WEIGHT)) {
			if (w->n_states++ == 0)
				w->a_state = source;
		} else if (!weights_is_wanted(w, text)) {
			;
		} else if (w->o->unlisted == RSH_UNLISTED_COPY) {
			return weights_make_copy(w, text, NULL,
						 &w->sources[source], err);
		} else if (w->o->unlisted == RSH_UNLISTED_ERROR) {
			return rsh_error_set(err, EINVAL,
					     "no rule of %s names tensor "
					     "%s", w->o->table->path, text);
		} else {
			rc = weights_drop(w, source, text, err);
		}
		weights_passed(w, source, NULL);
		return rc;
	}
	if (rule->kind == RSH_RULE_SAME)
		return weights_list_add(&w->matches, &m, err);
	weights_passed(w, source, rule);
	return rule->kind == RSH_RULE_ALSO && !m.state ?
		weights_list_add(&w->copies, &m, err) : 0;
}

/* Sorts by instance, and inside an instance by the rule's order of tensors. */
static int weights_by_instance(const void *a, const void *b)
{
	const struct weights_match *x = a, *y = b;
	int c = rsh_compare_u64(x->unit, y->unit);

	if (c == 0)
		c = rsh_compare_u64(x->state, y->state);
	for (uint32_t i = 0; c == 0 && i < x->n_shared; i++)
		c = rsh_compare_u64(x->numbers[i], y->numbers[i]);
	if (c == 0)
		c = rsh_compare_u64(x->tensor, y->tensor);
	for (uint32_t i = x->n_shared; c == 0 && i < WEIGHTS_HOLES_MAX; i++)
		c = rsh_compare_u64(x->numbers[i], y->numbers[i]);
	return c;
}

int weights_assign(struct weights_work *w, struct rsh_error *err)
{
	w->sources = rsh_arena_array(w->arena, uint32_t, w->n);
	if (!w->sources)
		return rsh_error_nomem(err);
	for (uint32_t i = 0; i < w->n; i++)
		w->sources[i] = i;
	for (uint32_t i = 0; i < w->n; i++) {
		int rc = weights_wrong(w, weights_assign_one(w, i, err), err);

		if (rc)
			return rc;
	}
	weights_note(w, w->n_states, w->a_state, "of an optimizer's state and "
		     "of bookkeeping have no place in Hugging Face's form");
	weights_note(w, w->n_dropped, w->a_dropped,
		     "that no rule names are left out");
	if (w->matches.n)
		qsort(w->matches.m, w->matches.n, sizeof(*w->matches.m),
		      weights_by_instance);
	return 0;
}
