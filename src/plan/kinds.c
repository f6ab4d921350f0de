/* SPDX-License-Identifier: Apache-2.0 */
/* plan/kinds.c compares the names of a source's parameters with each other, to
 * find the states of optimizers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/plan/kinds.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

#define ENOUGH_STATES 8
#define NAME_TEXT 4096

/* A parameter that some file has. */
struct param {
	const char *text;  /* its name, without the scope; NULL: in no file */
	uint32_t n_dims;
	uint64_t elements; /* of a slice */
	enum rsh_kind kind;
	bool has_state;
	bool may_be_state; /* some complete group has it */
};

/* The names that begin with a prefix. */
struct group {
	uint32_t example;
	uint32_t n_members; /* that have a partner, or should have one */
	uint32_t n_partners;
	uint32_t n_weights; /* partners that are weights */
	bool accepted;
};

struct kinds_work {
	struct rsh_names *names;
	struct param *v; /* [name] */
	uint32_t n;
	const char *scope; /* before the name of each weight; NULL: nothing */
	struct rsh_names *prefixes;
	struct group *groups; /* [prefix] */
	size_t groups_cap;
	uint32_t n_weights; /* of more than one element, and in no group */
	bool lists_states;  /* the list knows some name as that of a state */
};

struct rsh_kinds {
	struct rsh_names *names;
	uint32_t n;
	uint8_t *of; /* [name] */
	char *doubt;
};

/* ---- names ---- */

static const struct param *kinds_find(const struct kinds_work *w,
				      const char *text)
{
	char scoped[NAME_TEXT];
	uint32_t name;

	if (w->scope) {
		const int n = snprintf(scoped, sizeof(scoped), "%s%s",
				       w->scope, text);

		if (n < 0 || (size_t)n >= sizeof(scoped))
			return NULL;
		text = scoped;
	}
	name = rsh_names_find(w->names, text, strlen(text));
	return name < w->n && w->v[name].text ? &w->v[name] : NULL;
}

/* Returns the length of the next longer prefix of a name, which ends with "_"
 * or, the longest one, with a dot; 0: there is none. */
static size_t kinds_next_prefix(const char *text, size_t length)
{
	if (length && text[length - 1] == '.')
		return 0;
	length += strcspn(text + length, "_.");
	if (length == 0) /* The name begins so. */
		length = 1 + strcspn(text + 1, "_.");
	return text[length] && text[length + 1] ? length + 1 : 0;
}

static bool kinds_fit(const struct param *state, const struct param *weight)
{
	return state != weight &&
	       (state->elements <= 1 || state->n_dims == weight->n_dims ||
		state->n_dims + 1 == weight->n_dims);
}

/* Returns whether a state may have a part of the elements of a weight.  Counts
 * that large are not known. */
static bool kinds_divide(const struct param *state, const struct param *weight)
{
	return state->elements <= 1 || state->elements >= UINT32_MAX ||
	       weight->elements >= UINT32_MAX ||
	       weight->elements % state->elements == 0;
}

/* Goes through the prefixes of a name, by their lengths. */
#define each_prefix(length, text) \
	for (size_t length = 0; (length = kinds_next_prefix(text, length));)

/* Goes through the parameters of a kind. */
#define each_param(w, p, of)                                          \
	for (struct param *p = (w)->v; p < (w)->v + (w)->n; p++) \
		if (p->text && p->kind == (of))

/* ---- groups ---- */

static struct group *kinds_group(struct kinds_work *w, const char *text,
				 size_t length)
{
	const uint32_t before = rsh_names_count(w->prefixes);
	const uint32_t g = rsh_names_add(w->prefixes, text, length);

	if (g == RSH_NAME_NONE)
		return NULL;
	if (g < before)
		return &w->groups[g];
	if (rsh_room(w->groups, w->groups_cap, (size_t)g + 1))
		return NULL;
	w->groups[g] = (struct group){ .example = RSH_NAME_NONE };
	return &w->groups[g];
}

/* Adds a parameter to the groups of its prefixes.  One of one element without a
 * partner stands in the place of a state that the optimizer does not use. */
static int kinds_join(struct kinds_work *w, const struct param *p)
{
	const struct param *partner;

	each_prefix(length, p->text) {
		struct group *g = kinds_group(w, p->text, length);

		if (!g)
			return -1;
		partner = kinds_find(w, p->text + length);
		if (!partner && p->elements <= 1)
			continue;
		g->n_members++;
		if (!partner || !kinds_fit(p, partner))
			continue;
		g->n_partners++;
		g->example = (uint32_t)(p - w->v);
	}
	return 0;
}

static bool group_is_complete(const struct group *g)
{
	return g->n_partners && g->n_partners == g->n_members;
}

static struct group *kinds_of_prefix(const struct kinds_work *w,
				     const char *text, size_t length)
{
	const uint32_t g = rsh_names_find(w->prefixes, text, length);

	return g == RSH_NAME_NONE ? NULL : &w->groups[g];
}

/* Marks the members of complete groups. */
static void kinds_mark(struct kinds_work *w, struct param *p)
{
	each_prefix(length, p->text) {
		const struct group *g = kinds_of_prefix(w, p->text, length);

		p->may_be_state |= g && group_is_complete(g);
	}
}

/* Counts the weights that have a state in the groups of a parameter. */
static void kinds_count(struct kinds_work *w, const struct param *p)
{
	each_prefix(length, p->text) {
		struct group *g = kinds_of_prefix(w, p->text, length);
		const struct param *partner =
			g && group_is_complete(g) ?
			kinds_find(w, p->text + length) : NULL;

		if (partner && !partner->may_be_state &&
		    partner->kind == RSH_KIND_WEIGHT && partner->elements > 1)
			g->n_weights++;
	}
}

/* A part of a model may have the names of another one. */
static bool prefix_is_module(const char *prefix)
{
	return rsh_is_any(
		prefix, "backbone.", "base_model.", "bert.", "decoder.",
		"encoder.", "generator.", "gpt_neox.", "language_model.",
		"llm.", "model.", "module.", "net.", "network.", "roberta.",
		"student.", "target.", "teacher.", "text_encoder.",
		"text_model.", "transformer.", "vision_model.", "visual.",
		"_backbone.", "student_", "target_", "teacher_");
}

static void kinds_judge(struct kinds_work *w)
{
	const uint32_t n = rsh_names_count(w->prefixes);

	for (uint32_t i = 0; i < n; i++) {
		struct group *g = &w->groups[i];
		const char *prefix = rsh_names_text(w->prefixes, i);

		if (!group_is_complete(g) || prefix_is_module(prefix))
			continue;
		g->accepted = prefix[strlen(prefix) - 1] == '_' ?
			g->n_weights >= w->n_weights :
			2 * (uint64_t)g->n_weights >= w->n_weights ||
			g->n_weights >= ENOUGH_STATES;
	}
}

/* Sets the kind of a parameter that some prefix makes a state. */
static void kinds_set_state(struct kinds_work *w, struct param *p)
{
	each_prefix(length, p->text) {
		const struct group *g = kinds_of_prefix(w, p->text, length);
		const struct param *partner = kinds_find(w, p->text + length);

		if ((g && g->accepted) ||
		    (partner && kinds_fit(p, partner) &&
		     kinds_divide(p, partner) &&
		     rsh_kind_is_state_beside(p->text, length)))
			p->kind = RSH_KIND_STATE;
	}
}

/* Marks the parameters of which another one is a state. */
static void kinds_mark_partners(struct kinds_work *w, const struct param *p)
{
	each_prefix(length, p->text) {
		const struct param *partner = kinds_find(w, p->text + length);

		if (partner)
			w->v[partner - w->v].has_state = true;
	}
}

/* ---- parameters ---- */

static void kinds_add_record(struct kinds_work *w,
			     const struct rsh_ckpt_index *ix,
			     const struct rsh_record *r)
{
	const int64_t *dims = rsh_record_dims(ix, r);
	struct param *p = r->name < w->n ? &w->v[r->name] : NULL;

	if (!p || p->text)
		return;
	p->text = rsh_names_text(w->names, r->name);
	p->n_dims = r->n_dims;
	p->elements = 1;
	for (uint32_t d = 0; d < r->n_dims && p->elements < UINT32_MAX; d++)
		p->elements *= (uint64_t)dims[d];
}

static enum rsh_kind kinds_listed(const char *text, bool keyed)
{
	return rsh_is_flattened_state(text) ? RSH_KIND_STATE :
	       rsh_is_job_state(text, keyed) ? RSH_KIND_COUNTER :
					       rsh_kind_of(text);
}

/* Finds whether all weights have the name of a cell before their own. */
static const char *kinds_scope(const struct kinds_work *w)
{
	static const char *const scopes[] = { "optimizer.", "optim." };
	bool used[2] = { false };

	for (uint32_t i = 0; i < w->n; i++) {
		const struct param *p = &w->v[i];
		bool scoped = false;

		for (unsigned s = 0; p->text && s < 2; s++) {
			const size_t n = strlen(scopes[s]);

			if (strncmp(p->text, scopes[s], n) != 0)
				continue;
			/* A flattened dictionary has such keys. */
			if (rsh_begins_any(p->text + n, "state.",
					   "param_groups."))
				return NULL;
			scoped = used[s] = true;
		}
		if (p->text && !scoped && p->elements > 1 &&
		    rsh_kind_of(p->text) == RSH_KIND_WEIGHT)
			return NULL;
	}
	return used[0] && !used[1] ? scopes[0] :
	       used[1] && !used[0] ? scopes[1] : NULL;
}

/* Sets the kinds that the list knows. */
static void kinds_by_list(struct kinds_work *w)
{
	const size_t n = w->scope ? strlen(w->scope) : 0;
	bool keyed = false;

	for (uint32_t i = 0; i < w->n && !keyed; i++)
		keyed = w->v[i].text &&
			rsh_begins_any(w->v[i].text, "state_dict.");
	for (uint32_t i = 0; i < w->n; i++) {
		struct param *p = &w->v[i];

		if (!p->text)
			continue;
		if (w->scope && strncmp(p->text, w->scope, n) == 0)
			p->text += n;
		p->kind = w->scope ? rsh_kind_of(p->text) :
				     kinds_listed(p->text, keyed);
		w->lists_states |= p->kind == RSH_KIND_STATE;
	}
}

static int kinds_by_structure(struct kinds_work *w)
{
	each_param(w, p, RSH_KIND_WEIGHT)
		if (kinds_join(w, p))
			return -1;
	each_param(w, p, RSH_KIND_WEIGHT) {
		kinds_mark(w, p);
		w->n_weights += !p->may_be_state && p->elements > 1;
	}
	each_param(w, p, RSH_KIND_WEIGHT)
		if (p->may_be_state)
			kinds_count(w, p);
	kinds_judge(w);
	each_param(w, p, RSH_KIND_WEIGHT)
		kinds_set_state(w, p);
	return 0;
}

/* Finds counters.  Returns the first one that the list does not know, or
 * NULL. */
static const char *kinds_find_counters(struct kinds_work *w)
{
	const char *first = NULL;
	bool any = false;

	each_param(w, p, RSH_KIND_STATE) {
		kinds_mark_partners(w, p);
		any = true;
	}
	if (!any)
		return NULL;
	each_param(w, p, RSH_KIND_WEIGHT) {
		if (p->elements != 1 || p->has_state || strchr(p->text, '.'))
			continue;
		p->kind = RSH_KIND_COUNTER;
		if (!first)
			first = p->text;
	}
	return first;
}

/* ---- what is said ---- */

/* Returns whether it is worth a note that a complete group has this kind: the
 * norms of queries and of a layer have such names too. */
static bool group_is_told(const struct kinds_work *w, const struct group *g,
			  const char *prefix)
{
	/* Optimizers that have such states often have other ones too. */
	if (w->lists_states && rsh_kind_is_state_beside(prefix, strlen(prefix)))
		return false;
	return group_is_complete(g) &&
	       (g->accepted || strchr(prefix, '.') ||
		2 * (uint64_t)g->n_weights >= w->n_weights);
}

/* Says what only the structure says. */
static int kinds_doubts(const struct kinds_work *w, const char *counter,
			struct rsh_kinds *k)
{
	const uint32_t n = rsh_names_count(w->prefixes);
	const char *comma = "";
	size_t size;
	FILE *to = open_memstream(&k->doubt, &size);

	if (!to)
		return -1;
	for (uint32_t i = 0; i < n; i++) {
		const struct group *g = &w->groups[i];

		if (!group_is_told(w, g, rsh_names_text(w->prefixes, i)))
			continue;
		fprintf(to, w->v[g->example].kind == RSH_KIND_WEIGHT ?
			"%s%s is taken for a weight, as all that begin with "
			"%s, although the rest is the name of another one" :
			"%s%s is taken for an optimizer state, as all that "
			"begin with %s", comma,
			rsh_names_text(w->names, g->example),
			rsh_names_text(w->prefixes, i));
		comma = "; ";
	}
	/* A record that is a part of a tensor has a name of its own, which has
	 * control characters. */
	if (counter && !strpbrk(counter, "\1\2"))
		fprintf(to, "%s%s has one element, and is taken for a counter "
			"of the optimizer", comma, counter);
	return fclose(to);
}

/* ---- all ---- */

static int kinds_run(struct kinds_work *w, struct rsh_kinds *k)
{
	const char *counter;

	w->scope = kinds_scope(w);
	kinds_by_list(w);
	if (kinds_by_structure(w))
		return -1;
	counter = kinds_find_counters(w);
	for (uint32_t i = 0; i < w->n; i++)
		k->of[i] = (uint8_t)(w->v[i].text ? w->v[i].kind :
				     kinds_listed(rsh_names_text(w->names, i),
						  false));
	return kinds_doubts(w, counter, k);
}

struct rsh_kinds *rsh_kinds_new(struct rsh_names *names,
				const struct rsh_ckpt_index *const *index,
				uint32_t n)
{
	const struct rsh_ckpt_index *before = NULL;
	struct rsh_kinds *k = calloc(1, sizeof(*k));
	struct kinds_work w = {
		.names = names, .n = names ? rsh_names_count(names) : 0,
		.prefixes = rsh_names_new(),
	};
	int rc = -1;

	w.v = calloc((size_t)w.n + 1, sizeof(*w.v));
	if (k) {
		k->names = names;
		k->n = w.n;
		k->of = calloc((size_t)w.n + 1, sizeof(*k->of));
	}
	if (k && k->of && w.v && w.prefixes) {
		for (uint32_t f = 0; index && f < n; f++) {
			if (index[f] == before || !index[f])
				continue;
			before = index[f];
			for (uint32_t i = 0; i < before->n_records; i++)
				kinds_add_record(&w, before,
						 &before->records[i]);
		}
		rc = kinds_run(&w, k);
	}
	rsh_names_free(w.prefixes);
	free(w.groups);
	free(w.v);
	if (rc == 0)
		return k;
	rsh_kinds_free(k);
	return NULL;
}

void rsh_kinds_free(struct rsh_kinds *k)
{
	if (!k)
		return;
	free(k->of);
	free(k->doubt);
	free(k);
}

enum rsh_kind rsh_kinds_of(const struct rsh_kinds *k, uint32_t name,
			   const char *text)
{
	if (k && name < k->n)
		return (enum rsh_kind)k->of[name];
	return kinds_listed(text, false);
}

enum rsh_kind rsh_kinds_of_text(const struct rsh_kinds *k, const char *text)
{
	const uint32_t name = k ? rsh_names_find(k->names, text, strlen(text)) :
				  RSH_NAME_NONE;

	return rsh_kinds_of(k, name, text);
}

const char *rsh_kinds_doubt(const struct rsh_kinds *k)
{
	return k && *k->doubt ? k->doubt : NULL;
}
