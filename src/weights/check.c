/* SPDX-License-Identifier: Apache-2.0 */
/* weights/check.c finds the errors of a table, alone or with the tensors of a
 * source. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/mem.h"
#include "weights_i.h"

/* ---- with a source ---- */

int rsh_weights_check(const struct rsh_weights_options *o,
		      const struct rsh_offers *in, struct rsh_arena *arena,
		      const struct rsh_weights_watch *watch,
		      struct rsh_error *err)
{
	struct rsh_error own = RSH_ERROR_INIT;
	struct weights_work w = {
		.o = o, .cat = in->cat, .in = in->v, .n = in->n,
		.arena = arena, .watch = watch, .err = &own,
	};
	int rc = weights_run(&w);

	if (rc == 0) {
		for (uint32_t i = 0; w.watch->made && i < w.n_made; i++)
			w.watch->made(w.watch->ctx, &w.made[i].offer,
				      w.made[i].rule, w.made[i].sources,
				      w.made[i].n_sources);
	}
	rc = weights_wrong(&w, rc);
	if (rc)
		rc = rsh_error_nomem(err);
	else if (w.n_wrong)
		rc = rsh_error_set(err, EINVAL, "%u contradiction%s between %s "
				   "and the source", w.n_wrong,
				   w.n_wrong > 1 ? "s" : "", o->table->path);
	weights_clear(&w);
	return rc;
}

/* ---- without a source ---- */

/* This is a name that takes tensors, with "{}" for its holes. */
struct weights_claim {
	char *text;
	const struct weights_template *t;
	const struct weights_name *name;
	const struct rsh_rule *rule;
};

struct weights_talk {
	struct weights_work *w;
	void (*say)(void *ctx, bool wrong, const char *sentence);
	void *ctx;
	bool wrong;
};

RSH_ORDER(weights_by_claim, struct weights_claim,
	  rsh_compare_u64(x->t->side, y->t->side) ?:
	  strcmp(x->text, y->text) ?:
	  rsh_compare_u64(x->t->unit, y->t->unit) ?:
	  rsh_compare_u64(x->t->tensor, y->t->tensor))

static char *weights_claim_text(struct weights_work *w,
				const struct weights_name *n)
{
	size_t size = 1;
	char *text, *at;

	for (uint32_t i = 0; i <= n->n_holes; i++)
		size += strlen(n->texts[i]) + 2;
	text = rsh_arena_alloc(&w->scratch, size, 1);
	if (!text)
		return NULL;
	at = stpcpy(text, n->texts[0]);
	for (uint32_t i = 1; i <= n->n_holes; i++)
		at = stpcpy(stpcpy(at, "{}"), n->texts[i]);
	return text;
}

/* Returns whether the first name takes all tensors that the second one could
 * take. */
static bool weights_covers(const struct weights_name *a,
			   const struct weights_name *b)
{
	for (uint32_t i = 0; i < a->n_holes; i++) {
		const char *least = a->holes[i].least_name;
		const char *other = b->holes[i].least_name;

		if (least && (!other || strcmp(least, other) != 0))
			return false;
	}
	return true;
}

/* A rule below a `when` leaves other layers to later rules. */
static bool weights_when_covers(const struct weights_claim *a,
				const struct weights_claim *b)
{
	return !a->rule->when || a->rule->when == b->rule->when;
}

static void weights_say(struct weights_talk *k, bool wrong, uint32_t line,
			const char *what, const char *name, uint32_t other)
{
	char text[RSH_ERROR_TEXT_MAX], of[32] = "";

	if (other)
		snprintf(of, sizeof(of), " line %u", other);
	snprintf(text, sizeof(text), "%.400s:%u: %.1200s %s%s",
		 k->w->o->table->path, line, name, what, of);
	k->wrong |= wrong;
	k->say(k->ctx, wrong, text);
}

/* Lists the names that take tensors; the right side of an `also` takes none. */
static int weights_check_claims(struct weights_talk *k)
{
	struct weights_work *w = k->w;
	struct weights_claim *c = rsh_arena_array(&w->scratch,
						  struct weights_claim,
						  w->n_templates);
	uint32_t n = 0;

	if (!c)
		return -ENOMEM;
	for (uint32_t i = 0; i < w->n_templates; i++) {
		const struct weights_template *t = &w->templates[i];
		const struct weights_unit *u = &w->units[t->unit];

		if (u->rule->kind != RSH_RULE_SAME &&
		    t->side == RSH_SIDE_MINDSPORE)
			continue;
		c[n] = (struct weights_claim){
			.t = t,
			.name = &u->names[t->side][t->tensor],
			.rule = u->rule,
		};
		c[n].text = weights_claim_text(w, c[n].name);
		if (!c[n++].text)
			return -ENOMEM;
	}
	rsh_sort(c, n, weights_by_claim);
	for (uint32_t i = 1, first = 0; i < n; i++) {
		if (c[i].t->side != c[first].t->side ||
		    strcmp(c[i].text, c[first].text) != 0)
			first = i;
		for (uint32_t j = first; j < i; j++) {
			if (!weights_covers(c[j].name, c[i].name) ||
			    !weights_when_covers(&c[j], &c[i]))
				continue;
			weights_say(k, true, c[i].rule->line,
				    "is named already in", c[i].text,
				    c[j].rule->line);
			break;
		}
	}
	return 0;
}

static bool weights_let_is_used(const struct weights_work *w, const char *name)
{
	const struct rsh_rule_table *table = w->o->table;

	for (uint32_t i = 0; i < w->n_units; i++)
		if (weights_letter(&w->units[i], name) < w->units[i].n_letters)
			return true;
	for (uint32_t i = 0; i < w->n_templates; i++) {
		const struct weights_template *t = &w->templates[i];
		const struct weights_name *n =
			&w->units[t->unit].names[t->side][t->tensor];

		for (uint32_t m = 0; m < n->n_holes; m++)
			if (n->holes[m].least_name &&
			    strcmp(n->holes[m].least_name, name) == 0)
				return true;
	}
	for (uint32_t i = 0; i < table->n_pads; i++)
		if (strcmp(table->pads[i].rows, name) == 0 ||
		    strcmp(table->pads[i].multiple, name) == 0)
			return true;
	return rsh_any(i, table->n_lets,
		       rsh_rule_let_uses(&table->lets[i], name));
}

int rsh_weights_check_table(const struct rsh_rule_table *table,
			    void (*say)(void *ctx, bool wrong,
					const char *sentence), void *ctx)
{
	const struct rsh_weights_options o = { .table = table };
	struct rsh_error err = RSH_ERROR_INIT;
	struct weights_work w = { .o = &o, .err = &err };
	struct weights_talk k = { .w = &w, .say = say, .ctx = ctx };
	int rc = weights_read_lets(&w) ?: weights_read_units(&w);

	if (rc && rc != -ENOMEM)
		say(ctx, true, err.text);
	if (rc == 0)
		rc = weights_check_claims(&k);
	for (uint32_t i = 0; rc == 0 && i < table->n_lets; i++)
		if (!weights_let_is_used(k.w, table->lets[i].name))
			weights_say(&k, false, table->lets[i].line,
				    "is used nowhere", table->lets[i].name, 0);
	weights_clear(&w);
	return rc == 0 && k.wrong ? -EINVAL : rc;
}
