/* SPDX-License-Identifier: Apache-2.0 */
/* weights/convert.c runs a conversion, and finds its direction and its table.
 * It also makes tied tensors and copies. */
#include "weights_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/plan/kinds.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

/* ---- the rule of each source tensor ---- */

/* Names are searched by their text without numbers, so the cost does not depend
 * on the number of rules. */

static int weights_list_add(struct weights_work *w, struct weights_list *l,
			    const struct weights_match *m)
{
	if (rsh_push(l->m, l->n, l->cap, *m))
		return rsh_error_nomem(w->err);
	return 0;
}

/* Lists the names that the source has, for `when`. */
static int weights_list_names(struct weights_work *w)
{
	if (!rsh_any(i, w->n_units, w->units[i].when[w->from]))
		return 0;
	w->n_has = rsh_names_count(w->cat->names);
	w->has = rsh_arena_array(&w->scratch, bool, w->n_has);
	if (!w->has)
		return rsh_error_nomem(w->err);
	for (uint32_t i = 0; i < w->n; i++)
		w->has[w->in[i].name] = true;
	return 0;
}

/* Sets whether config.json has the words of a `when` for this number. */
static int weights_config_says(const struct weights_work *w,
			       const struct weights_unit *u, uint64_t number,
			       const char *text, bool *out)
{
	const struct rsh_rule_when *when = u->rule->when;
	char word[64];

	*out = true;
	for (uint32_t i = 0; *out && i < when->n_says; i++) {
		if (!w->o->config ||
		    !rsh_model_config_word(w->o->config, when->says[i].key,
					   number, word, sizeof(word)))
			return weights_bad(w, u->rule, "%s may be meant, "
					   "but %s what \"%s\" is there", text,
					   w->o->config ?
					   "config.json does not say" :
					   "no config.json says",
					   when->says[i].key);
		*out = strcmp(word, when->says[i].word) == 0;
	}
	return 0;
}

/* Sets whether the unit is for the instance with these numbers, to which the
 * tensor of that name belongs. */
static int weights_holds(const struct weights_work *w,
			 const struct weights_unit *u, const uint64_t *numbers,
			 const char *of, bool *out)
{
	const struct weights_name *when = u->when[w->from];
	uint64_t holes[WEIGHTS_HOLES_MAX];
	char text[WEIGHTS_TEXT];
	uint32_t name;

	if (u->rule->when && u->rule->when->n_says)
		return weights_config_says(w, u, numbers[u->layer], of, out);
	*out = !when;
	if (!when)
		return 0;
	weights_spread(u, when, numbers, holes);
	if (!weights_print(when, holes, "", text))
		return 0;
	name = rsh_names_find(w->cat->names, text, strlen(text));
	*out = name < w->n_has && w->has[name];
	return 0;
}

/* Finds the rule for a name, NULL if there is none.  Originals of an `also` are
 * added to w->copies. */
static int weights_take(struct weights_work *w, const char *text,
			struct weights_match *m, const struct rsh_rule **rule)
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
		bool holds = true;
		int rc;

		if (t->side != w->from || (!copies && *rule) ||
		    (copies && m->state))
			continue;
		fit = weights_fit(name, text, holes);
		memset(found.numbers, 0, sizeof(found.numbers));
		if (fit == WEIGHTS_YES)
			weights_arrange(u, name, holes, found.numbers);
		rc = fit == WEIGHTS_YES ?
			weights_holds(w, u, found.numbers, text, &holds) :
			0;
		if (rc)
			return rc;
		if (fit == WEIGHTS_YES && !holds)
			continue;
		if (fit == WEIGHTS_UNKNOWN)
			return weights_bad(w, u->rule, "%s may be meant, "
					   "but no config.json says how large "
					   "the numbers are of which it is one",
					   text);
		if (fit == WEIGHTS_NO)
			continue;
		found.unit = t->unit;
		found.tensor = t->tensor;
		found.n_shared = (uint16_t)u->n_shared;
		if (!copies) {
			*rule = u->rule;
			*m = found;
		} else if (weights_list_add(w, &w->copies, &found)) {
			return -ENOMEM;
		}
	}
	return 0;
}

/* Marks the names of a side that fit; `used` may be NULL.  Returns whether
 * there is one. */
static bool names_mark(const struct weights_work *w, enum rsh_side side,
		       const char *text, bool *used)
{
	uint64_t holes[WEIGHTS_HOLES_MAX];
	bool found = false;
	uint32_t n;
	const struct weights_template *t = weights_find(w, text, &n);

	for (; n > 0; n--, t++)
		if (t->side == side &&
		    weights_fit(&w->units[t->unit].names[t->side][t->tensor],
				text, holes) != WEIGHTS_NO) {
			if (!used)
				return true;
			found = used[t - w->templates] = true;
		}
	return found;
}

/* Returns whether a rule names this tensor on the side of SOURCE. */
static bool weights_is_named(const struct weights_work *w, const char *text)
{
	return names_mark(w, w->from, text, NULL);
}

/* Returns the rule of which the table wants tensors below a path where the
 * source has none; NULL: there is none. */
static const struct rsh_rule *weights_find_lost(struct weights_work *w,
						const char *path)
{
	const size_t len = strlen(path);
	uint32_t at = rsh_first(i, w->n_named, strcmp(w->named[i], path) < 0);

	for (; at < w->n_named && strncmp(w->named[at], path, len) == 0; at++)
		if (w->named[at][len] == '.')
			return NULL;
	for (uint32_t i = 0; i < w->n_templates; i++) {
		const struct weights_template *t = &w->templates[i];
		const struct weights_unit *u = &w->units[t->unit];

		if (t->side == w->from && u->rule->kind == RSH_RULE_SAME &&
		    weights_is_below(&u->names[t->side][t->tensor], path))
			return u->rule;
	}
	return NULL;
}

/* Lists the tensors that a rule names. */
static int weights_list_named(struct weights_work *w)
{
	if (w->named)
		return 0;
	w->named = rsh_arena_array(&w->scratch, const char *, w->n);
	if (!w->named)
		return rsh_error_nomem(w->err);
	for (uint32_t i = 0; i < w->n; i++)
		if (weights_is_named(w, weights_text(w, i)))
			w->named[w->n_named++] = weights_text(w, i);
	rsh_sort(w->named, w->n_named, rsh_by_text);
	return 0;
}

/* Refuses to leave out a tensor that has the place of others of the table, as a
 * stack of experts has that of the experts: the model would lack them. */
static int weights_drop_place(struct weights_work *w, const char *path,
			      const char *text)
{
	const struct rsh_rule *rule;

	if (weights_list_named(w))
		return -ENOMEM;
	rule = weights_find_lost(w, path);
	return rule ? rsh_error_set(w->err, EINVAL, "%s:%u: nothing that the "
				    "rule names is below %s, and %s has its "
				    "place: --unlisted drop would leave it out",
				    w->o->table->path, rule->line, path, text) :
		      0;
}

/* Refuses to leave out a tensor that has the place of a weight of the table, as
 * the codes of an unknown scheme have: the model would lack the weight. */
static int weights_drop(struct weights_work *w, uint32_t source,
			const char *text)
{
	const char *dot = strrchr(text, '.');
	cleanup_free char *weight = !dot ? NULL :
		rsh_text_format("%.*s.weight", (int)(dot - text), text);

	if (dot && !weight)
		return rsh_error_nomem(w->err);
	if (weights_is_named(w, text))
		return rsh_error_set(w->err, EINVAL, "%s is named by %s, and "
				     "no `when` holds for its layer: "
				     "--unlisted drop would leave it out", text,
				     w->o->table->path);
	if (weight && weights_is_named(w, weight) &&
	    rsh_names_find(w->cat->names, weight, strlen(weight)) ==
		    RSH_NAME_NONE)
		return rsh_error_set(w->err, EINVAL, "%s is missing, which %s "
				     "names, and %s has its place: --unlisted "
				     "drop would leave the weight out", weight,
				     w->o->table->path, text);
	if (w->n_dropped++ == 0)
		w->a_dropped = source;
	if (!weight)
		return 0;
	weight[dot - text] = '\0';
	return weights_drop_place(w, weight, text);
}

/* ---- tensors of which only the beginning of the name is said ---- */

/* Returns how much of a name the prefix takes: its length, or -1 if the name
 * does not begin with it, and with a dot behind it, or is not it. */
static int rest_length(const char *prefix, const char *text)
{
	const size_t n = strlen(prefix);

	return n == 0 || (strncmp(text, prefix, n) == 0 &&
			  (text[n] == '.' || text[n] == '\0')) ? (int)n : -1;
}

static const struct rsh_rule_pair *rest_find(const struct rsh_rule_table *t,
					     enum rsh_side side,
					     const char *text)
{
	const struct rsh_rule_pair *rests = t->pairs[RSH_RULE_REST];

	for (uint32_t i = 0; i < t->n_pairs[RSH_RULE_REST]; i++)
		if (rest_length(rests[i].side[side], text) >= 0)
			return &rests[i];
	return NULL;
}

/* Copies a tensor that a `rest` line names.  The optimizer's state of a weight
 * would not follow it. */
static int rest_copy(struct weights_work *w, uint32_t source,
		     const struct rsh_rule_pair *r)
{
	const char *text = weights_text(w, source), *to = r->side[w->to];
	const char *behind = text + strlen(r->side[w->from]);
	const char *made;

	behind += *behind == '.' && behind > text;
	made = rsh_arena_format(&w->scratch, "%s%s%s", to,
				*to && *behind ? "." : "", behind);
	if (!made)
		return rsh_error_nomem(w->err);
	if (!*made)
		return rsh_error_set(w->err, EINVAL, "%s would have no name by "
				     "%s", text, w->o->table->path);
	if (!weights_is_wanted(w, made))
		weights_passed(w, source, NULL);
	return weights_make_copy(w, made, NULL, &w->sources[source]);
}

/* ---- all tensors ---- */

/* A tensor that its rule repeats is there once more. */
static int weights_list_match(struct weights_work *w, struct weights_match *m,
			      const struct rsh_rule *rule)
{
	const struct rsh_rule_tensor *list = rule->tensors[w->from];
	const uint32_t of = m->tensor;
	int rc = weights_list_add(w, &w->matches, m);

	for (uint32_t i = of + 1; rc == 0 && i < rule->n_tensors[w->from]; i++)
		if (list[i].again && list[i].of == of) {
			m->tensor = (uint16_t)i;
			rc = weights_list_add(w, &w->matches, m);
		}
	return rc;
}

static int weights_assign_one(struct weights_work *w, uint32_t source)
{
	const char *text = weights_text(w, source);
	struct weights_match m = { .source = source };
	const struct rsh_rule_table *t = w->o->table;
	const struct rsh_rule_pair *rest;
	const struct rsh_rule *rule;
	int rc = weights_take(w, text, &m, &rule);

	while (rc == 0 && !rule && m.state < t->n_pairs[RSH_RULE_STATE]) {
		const char *of = weights_of_state(t, m.state++, w->from, text);

		rc = of ? weights_take(w, of, &m, &rule) : 0;
	}
	if (rc)
		return rc;
	rest = rest_find(t, w->from, text);
	if (!rule && rest &&
	    rsh_kinds_of(w->cat->kinds, w->in[source].name, text) ==
	    RSH_KIND_WEIGHT)
		return rest_copy(w, source, rest);
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
						 &w->sources[source]);
		} else if (w->o->unlisted == RSH_UNLISTED_ERROR) {
			return rsh_error_set(w->err, EINVAL,
					     "no rule of %s names tensor "
					     "%s", w->o->table->path, text);
		} else {
			rc = weights_drop(w, source, text);
		}
		weights_passed(w, source, NULL);
		return rc;
	}
	if (rule->kind == RSH_RULE_SAME)
		return weights_list_match(w, &m, rule);
	weights_passed(w, source, rule);
	return rule->kind == RSH_RULE_ALSO && !m.state ?
		weights_list_add(w, &w->copies, &m) : 0;
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

/* Assigns each tensor to a unit, and handles tensors that no rule names. */
static int weights_assign(struct weights_work *w)
{
	w->sources = rsh_arena_array(w->arena, uint32_t, w->n);
	if (!w->sources)
		return rsh_error_nomem(w->err);
	for (uint32_t i = 0; i < w->n; i++)
		w->sources[i] = i;
	for (uint32_t i = 0; i < w->n; i++) {
		int rc = weights_wrong(w, weights_assign_one(w, i));

		if (rc)
			return rc;
	}
	weights_note(w, w->n_states, w->a_state, "of an optimizer's state and "
		     "of bookkeeping have no place in Hugging Face's form");
	weights_note(w, w->n_dropped, w->a_dropped,
		     "that no rule names are left out");
	rsh_sort(w->matches.m, w->matches.n, weights_by_instance);
	return 0;
}

/* ---- tied tensors ---- */

static uint32_t tied_find_source(const struct weights_work *w, const char *name)
{
	return rsh_index(i, w->n, strcmp(weights_text(w, i), name) == 0);
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
			   const char *name)
{
	struct rsh_offer *in = rsh_arena_array(w->arena, struct rsh_offer,
					       w->n + 1);
	uint32_t *given = rsh_arena_array(&w->scratch, uint32_t, w->n + 1);

	if (!in || !given)
		return rsh_error_nomem(w->err);
	for (uint32_t i = 0; i < w->n; i++)
		given[i] = weights_given(w, i);
	given[w->n] = given[source];
	memcpy(in, w->in, w->n * sizeof(*in));
	in[w->n] = in[source];
	in[w->n].name = rsh_names_add(w->cat->names, name, strlen(name));
	if (in[w->n].name == RSH_NAME_NONE)
		return rsh_error_nomem(w->err);
	w->in = in;
	w->given = given;
	w->n++;
	return 0;
}

/* Before rules are used: adds tied tensors that a Hugging Face source lacks. */
static int weights_untie(struct weights_work *w)
{
	const struct rsh_rule_table *t = w->o->table;
	const struct rsh_model_config *config = w->o->config;
	const bool is_apart = config && !rsh_model_config_is_tied(config) &&
			      rsh_model_config_has(config, "tie_word_embeddings");
	const uint32_t n = w->o->untie ? t->n_pairs[RSH_RULE_TIED] : 0;
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < n; i++) {
		const char *const *tied = t->pairs[RSH_RULE_TIED][i].side;
		const uint32_t source = tied_find_source(w, tied[1]);

		if (source == w->n || tied_find_source(w, tied[0]) < w->n)
			continue;
		if (is_apart)
			return rsh_error_set(w->err, EINVAL, "%s: "
				"\"tie_word_embeddings\" is false, so --untie "
				"cannot make %.200s, which is missing, from the "
				"embedding", rsh_model_config_path(config),
				tied[0]);
		rc = tied_add_source(w, source, tied[0]);
	}
	return rc;
}

/* ---- for Hugging Face ---- */

/* Leaves out the copy.  If the copy was trained by itself, it must not be
 * lost. */
static int tied_leave_out(struct weights_work *w, struct weights_made *copy,
			  const struct weights_made *original)
{
	const struct rsh_offer *x = &copy->offer, *y = &original->offer;
	struct weights_list *l = &w->copies;
	uint32_t n = 0;
	int same = 0;

	if (x->dtype == y->dtype &&
	    rsh_dims_equal(x->dims, x->n_dims, y->dims, y->n_dims))
		same = w->o->same ? w->o->same(w->o->ctx, x, y, w->err) :
				    -ENOTSUP;
	if (same < 0)
		return same == -ENOTSUP ? 0 : same;
	if (!same)
		return rsh_error_set(w->err, EINVAL, "%s: "
				     "\"tie_word_embeddings\" is true, and the "
				     "weights say false: %.200s is not %.200s",
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

/* After rules were used: adds or leaves out tied tensors of Hugging Face's
 * form. */
static int weights_tie(struct weights_work *w)
{
	const struct rsh_rule_table *t = w->o->table;
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < t->n_pairs[RSH_RULE_TIED]; i++) {
		const char *const *tied = t->pairs[RSH_RULE_TIED][i].side;
		struct weights_made *copy = tied_find_made(w, tied[0]);
		const struct weights_made *original =
			tied_find_made(w, tied[1]);
		const bool is_tied = w->o->config &&
				     rsh_model_config_is_tied(w->o->config);

		if (original && copy && is_tied)
			rc = tied_leave_out(w, copy, original);
		else if (original && !copy && !is_tied && w->o->untie)
			rc = weights_make_copy(w, tied[0], original->rule,
					       original->sources);
		rc = weights_wrong(w, rc);
	}
	return rc;
}

/* ---- copies ----
 *
 * The name of a copy may have numbers that the name of the original does not
 * have.  These are the numbers of the other tensors that are made: if there is
 * a model.layers.61, it gets a copy. */

struct weights_copying {
	const struct weights_unit *u;
	const struct weights_name *name;
	const struct weights_match *m;
	uint32_t n_own; /* number of made tensors that are not copies */
};

static int weights_copy_as(struct weights_work *w,
			   const struct weights_copying *c,
			   const uint64_t *holes)
{
	char text[WEIGHTS_TEXT];
	uint32_t *source = rsh_arena_array(w->arena, uint32_t, 1);

	if (!source)
		return rsh_error_nomem(w->err);
	*source = c->m->source;
	if (!weights_print(c->name, holes, "", text))
		return weights_bad(w, c->u->rule, "a number in the name "
				   "of a copy of %s is not known or too large",
				   weights_text(w, c->m->source));
	return weights_make_copy(w, text, c->u->rule, source);
}

/* Copies the tensor for each made one that has its numbers and more.  The made
 * tensors are sorted, so equal numbers are adjacent. */
static int weights_copy_each(struct weights_work *w,
			     const struct weights_copying *c)
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
		rc = weights_copy_as(w, c, holes);
		memcpy(last, holes, bytes);
		any = true;
	}
	return rc;
}

/* A copy is skipped because its original has the same elements.  If the
 * original is not made, the elements would be lost. */
static int weights_check_copies(struct weights_work *w)
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
		     rsh_find(&key, w->made, w->n_made, weights_by_text)))
			continue;
		rc = weights_bad(w, u->rule, "%.400s is a copy of what "
				 "becomes %.400s, which is not there",
				 weights_text(w, m->source), text);
		rc = weights_wrong(w, rc);
	}
	return rc;
}

static int weights_make_also(struct weights_work *w)
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
			rc = weights_copy_each(w, &c);
		} else {
			weights_spread(u, c.name, m->numbers, holes);
			rc = weights_copy_as(w, &c, holes);
		}
		rc = weights_wrong(w, rc);
	}
	return rc;
}

/* ---- the conversion ---- */

static void weights_sort(struct weights_work *w)
{
	rsh_sort(w->made, w->n_made, weights_by_text);
}

static int weights_made_twice(const struct weights_work *w, uint32_t i)
{
	const struct rsh_rule *a = w->made[i - 1].rule, *b = w->made[i].rule;
	const struct rsh_rule *rule = b ? b : a;

	if (!rule)
		return rsh_error_set(w->err, EINVAL, "%s is in the source "
				     "twice", w->made[i].text);
	return weights_bad(w, rule, "%.400s is made twice, of %.400s and "
			   "of %.400s", w->made[i].text,
			   weights_text(w, *w->made[i - 1].sources),
			   weights_text(w, *w->made[i].sources));
}

int weights_run(struct weights_work *w)
{
	const bool from_hf = w->o->from == RSH_SIDE_HF;
	int rc;

	w->from = w->o->from;
	w->to = from_hf ? RSH_SIDE_MINDSPORE : RSH_SIDE_HF;
	rc = weights_read_lets(w) ?:
	     weights_read_units(w) ?:
	     (from_hf ? weights_untie(w) : weights_cut_padding(w)) ?:
	     weights_list_names(w) ?:
	     weights_assign(w) ?:
	     weights_make(w) ?:
	     weights_check_lacks(w) ?:
	     (from_hf ? weights_add_padding(w) : weights_tie(w));
	weights_sort(w);
	if (rc == 0 && from_hf) {
		rc = weights_check_copies(w);
	} else if (rc == 0 && w->copies.n) {
		rc = weights_make_also(w);
		weights_sort(w);
	}
	rsh_catalogue_update_names(w->cat);
	if (rc)
		return rc;
	for (uint32_t i = 1; i < w->n_made && rc == 0; i++)
		if (w->made[i - 1].offer.name == w->made[i].offer.name)
			rc = weights_wrong(w, weights_made_twice(w, i));
	return rc;
}

int rsh_weights_convert(const struct rsh_weights_options *o,
			const struct rsh_offers *in, struct rsh_arena *arena,
			struct rsh_offers *out, struct rsh_error *err)
{
	struct weights_work w = {
		.o = o, .cat = in->cat, .in = in->v, .n = in->n,
		.arena = arena, .err = err,
	};
	int rc = weights_run(&w);

	if (rc == 0) {
		*out = (struct rsh_offers){ .cat = in->cat, .n = w.n_made };
		out->v = rsh_arena_array(arena, struct rsh_offer, w.n_made);
		if (!out->v)
			rc = rsh_error_nomem(err);
	}
	for (uint32_t i = 0; rc == 0 && i < w.n_made; i++)
		out->v[i] = w.made[i].offer;
	weights_clear(&w);
	return rc;
}

/* ---- direction ---- */

/* Returns the length of the longest prefix of a side's `rest` lines with which
 * the name begins; -1: there is none. */
static int side_rest(const struct rsh_rule_table *t, enum rsh_side side,
		     const char *text)
{
	int longest = -1;

	for (uint32_t i = 0; i < t->n_pairs[RSH_RULE_REST]; i++) {
		const int n = rest_length(t->pairs[RSH_RULE_REST][i].side[side],
					  text);

		longest = n > longest ? n : longest;
	}
	return longest;
}

/* Counts the tensors of which the name is that of one side.  Names that both
 * sides have do not show the direction, so they are not counted. */
static int side_count(const struct rsh_rule_table *table,
		      const struct rsh_offer *in, uint32_t n,
		      const struct rsh_names *names,
		      uint32_t votes[RSH_N_SIDES], struct rsh_error *err)
{
	const struct rsh_weights_options o = { .table = table };
	struct weights_work w = { .o = &o, .err = err };
	int rc = weights_read_lets(&w) ?: weights_read_units(&w);

	for (uint32_t i = 0; rc == 0 && i < n; i++) {
		const char *text = rsh_names_text(names, in[i].name);
		int fits[RSH_N_SIDES];

		for (int s = 0; s < RSH_N_SIDES; s++)
			fits[s] = names_mark(&w, s, text, NULL);
		if (!fits[0] && !fits[1])
			for (int s = 0; s < RSH_N_SIDES; s++)
				fits[s] = side_rest(table, s, text);
		votes[0] += fits[0] > fits[1];
		votes[1] += fits[1] > fits[0];
	}
	weights_clear(&w);
	return rc;
}

int rsh_weights_side(const struct rsh_rule_table *table, int given,
		     const struct rsh_offer *in, uint32_t n,
		     const struct rsh_names *names, enum rsh_side *out,
		     bool *told, struct rsh_error *err)
{
	uint32_t v[RSH_N_SIDES] = { 0, 0 };
	const bool loose = table->n_pairs[RSH_RULE_REST] > 0;
	uint32_t hf, other;
	int rc = given && !loose ? 0 :
		 side_count(table, in, n, names, v, err);

	hf = v[RSH_SIDE_HF];
	other = v[RSH_SIDE_MINDSPORE];
	*out = given ? (enum rsh_side)(given - 1) :
	       hf >= other && (hf || loose) ? RSH_SIDE_HF : RSH_SIDE_MINDSPORE;
	if (told)
		*told = hf || other;
	if (rc || (given && !loose))
		return rc;
	/* Where `rest` names all others, what a rule does not name is copied
	 * under its own name, which must not be one of the other form. */
	if (given)
		return v[*out] >= v[!*out] ? 0 :
		       rsh_error_set(err, EINVAL, "%u of the tensors have "
				     "names of the other side of %s: --from "
				     "is wrong", v[!*out], table->path);
	if (loose ? 4 * (uint64_t)(hf < other ? hf : other) >
		    (uint64_t)hf + other : hf && other)
		return rsh_error_set(err, EINVAL, "%u of the tensors have names "
				     "of the left side of %s, and %u of the "
				     "right", hf, table->path, other);
	return hf || other || loose ? 0 :
	       rsh_error_set(err, EINVAL, "none of the tensors has a name "
			     "that only one side of %s has", table->path);
}

int rsh_weights_count_names(const struct rsh_rule_table *table,
			    enum rsh_side side, const struct rsh_offer *in,
			    uint32_t n, const struct rsh_names *names,
			    uint32_t *unnamed, uint32_t *unused,
			    struct rsh_error *err)
{
	const struct rsh_weights_options o = { .table = table };
	struct weights_work w = { .o = &o, .err = err };
	int rc = weights_read_lets(&w) ?: weights_read_units(&w);
	bool *used = rsh_arena_array(&w.scratch, bool, w.n_templates + 1);

	*unnamed = *unused = 0;
	if (rc == 0 && !used)
		rc = rsh_error_nomem(err);
	for (uint32_t i = 0; rc == 0 && i < n; i++) {
		const char *text = rsh_names_text(names, in[i].name);
		bool found = names_mark(&w, side, text, used);

		for (uint32_t k = 0;
		     k < table->n_pairs[RSH_RULE_STATE] && !found; k++) {
			const char *of = weights_of_state(table, k, side, text);

			found = of && names_mark(&w, side, of, used);
		}
		*unnamed += !found;
	}
	for (uint32_t i = 0; rc == 0 && i < w.n_templates; i++)
		*unused += w.templates[i].side == side && !used[i];
	weights_clear(&w);
	return rc;
}

/* Returns whether the table converts the tensors from a side; *changes is set
 * if it changes more than names. */
static int side_try(const struct rsh_weights_options *o,
		    const struct rsh_offers *in, enum rsh_side side,
		    bool *changes, struct rsh_error *err)
{
	const struct rsh_weights_options trial = {
		.table = o->table, .config = o->config, .from = side,
		.unlisted = o->unlisted, .wanted = o->wanted,
		.vocab_multiple = o->vocab_multiple, .untie = o->untie,
		.ctx = o->ctx,
	};
	cleanup_arena struct rsh_arena arena = { 0 };
	struct rsh_offers made;
	int rc = rsh_weights_convert(&trial, in, &arena, &made, err);

	for (uint32_t i = 0; rc == 0 && i < made.n; i++)
		*changes |= (made.v[i].n_parts > 0 && !made.v[i].boxes) ||
			    made.v[i].add;
	return rc;
}

int rsh_weights_find_side(const struct rsh_weights_options *o,
			  const struct rsh_offers *in, enum rsh_side *out,
			  bool *told, struct rsh_error *err)
{
	struct rsh_error why = RSH_ERROR_INIT;
	bool named, changes = false;
	int rc = rsh_weights_side(o->table, o->given, in->v, in->n,
				  in->cat->names, out, &named, err);
	int left, right;

	if (told)
		*told = named;
	if (rc || named || o->given)
		return rc;
	left = side_try(o, in, RSH_SIDE_HF, &changes, &why);
	right = side_try(o, in, RSH_SIDE_MINDSPORE, &changes, &why);
	if (left == -ENOMEM || right == -ENOMEM)
		return rsh_error_nomem(err);
	*out = left && !right ? RSH_SIDE_MINDSPORE : RSH_SIDE_HF;
	if (told)
		*told = !left != !right;
	return left || right || !changes ? 0 :
	       rsh_error_set(err, EINVAL, "names and shapes of the tensors "
			     "are those of both sides of %s: --from hf is the "
			     "left one, --from mindspore the right one",
			     o->table->path);
}

/* ---- tables ---- */

int rsh_weights_choose(const struct rsh_weights_options *o,
		       struct rsh_rule_table *const *tables, size_t n,
		       const struct rsh_offers *in,
		       const struct rsh_rule_table **out, struct rsh_error *err)
{
	*out = tables[0];
	for (size_t i = 0; n > 1 && i < n; i++) {
		struct rsh_weights_options trial = *o;
		struct rsh_error why = RSH_ERROR_INIT;
		bool changes = false;
		int rc;

		trial.table = tables[i];
		trial.unlisted = RSH_UNLISTED_ERROR;
		rc = rsh_weights_find_side(&trial, in, &trial.from, NULL,
					   &why) ?:
		     side_try(&trial, in, trial.from, &changes, &why);
		if (rc == -ENOMEM)
			return rsh_error_nomem(err);
		if (rc == 0) {
			*out = tables[i];
			break;
		}
		if (o->refused)
			o->refused(o->ctx, tables[i], why.text);
	}
	return 0;
}
