/* SPDX-License-Identifier: Apache-2.0 */
/* wire/rule_table.c reads the lines of a rule table. */
#include "rsh/wire/rule_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/mem.h"
#include "rule_table_i.h"

/* Adds a line to a list of the table, unless something was wrong. */
#define rule_push(p, v, n, cap, ...)                                          \
	do {                                                                  \
		if (n == RULE_LINES_MAX)                                      \
			rule_bad(p, "more than %d lines of one kind",         \
				 RULE_LINES_MAX);                             \
		if (!(p)->rc && rsh_push(v, n, cap, __VA_ARGS__))             \
			rule_nomem(p);                                        \
	} while (0)
#define rule_add(p, list, ...)                                                \
	rule_push(p, (p)->t->list, (p)->t->n_##list, (p)->t->list##_cap,      \
		  __VA_ARGS__)

/* Takes the word, if it is next.  A word before "=" is a tensor's name. */
static bool rule_begins(struct rule_parse *p, const char *word)
{
	const char *at = p->at;
	const size_t len = strlen(word);

	if ((size_t)(p->end - p->at) <= len || memcmp(p->at, word, len) != 0 ||
	    (p->at[len] != ' ' && p->at[len] != '\t'))
		return false;
	p->at += len;
	rule_skip_blanks(p);
	if (p->at < p->end && *p->at != '=')
		return true;
	p->at = at;
	return false;
}

/* ---- kinds of lines; each function parses what follows the first word ---- */

static void rule_line_for(struct rule_parse *p)
{
	do {
		const char *suit = rule_parse_word(p);

		rule_add(p, suits, suit);
		rule_skip_blanks(p);
	} while (!p->rc && p->at < p->end);
}

static const struct rsh_rule_let *rule_find_let(const struct rsh_rule_table *t,
						const char *name)
{
	for (uint32_t i = 0; i < t->n_lets; i++)
		if (strcmp(t->lets[i].name, name) == 0)
			return &t->lets[i];
	return NULL;
}

bool rsh_rule_let_uses(const struct rsh_rule_let *l, const char *name)
{
	for (uint32_t i = 0; i < l->n_terms; i++)
		for (uint32_t k = 0; k < l->terms[i].n; k++) {
			const char *key = l->terms[i].operands[k].key;

			if (key && strcmp(key, name) == 0)
				return true;
		}
	return false;
}

/* A line may use only what earlier lines define, so that there are no
 * cycles. */
static void rule_line_let(struct rule_parse *p)
{
	struct rsh_rule_table *t = p->t;
	struct rsh_rule_let let = { .line = p->line };
	const struct rsh_rule_let *old;

	if (t->n_lets == RULE_LETS_MAX)
		rule_bad(p, "more than %d `let`", RULE_LETS_MAX);
	rule_parse_let(p, &let);
	if (p->rc)
		return;
	old = rule_find_let(t, let.name);
	if (old)
		rule_bad(p, "%s is there already, in line %u", let.name,
			 old->line);
	if (rsh_rule_let_uses(&let, let.name))
		rule_bad(p, "%s is made of itself", let.name);
	for (uint32_t i = 0; i < t->n_lets; i++)
		if (rsh_rule_let_uses(&t->lets[i], let.name))
			rule_bad(p, "line %u, which comes before, uses %s",
				 t->lets[i].line, let.name);
	rule_add(p, lets, let);
}

static void rule_check_least(struct rule_parse *p,
			     const struct rsh_rule_name *n)
{
	for (uint32_t i = 0; i < n->n_holes; i++)
		if (n->holes[i].least &&
		    !rule_find_let(p->t, n->holes[i].least))
			rule_bad(p, "no `let` before says what %s is",
				 n->holes[i].least);
}

static void rule_equals(struct rule_parse *p)
{
	if (rule_take(p, '='))
		return;
	if (p->at == p->end)
		rule_bad(p, "no \"=\"");
	else
		rule_bad(p, "no \"=\" before \"%.*s\"",
			 (int)(p->end - p->at < 24 ? p->end - p->at : 24),
			 p->at);
}

static void rule_line_under(struct rule_parse *p)
{
	struct rsh_rule_under under;

	if (!p->in_row) {
		p->under = rsh_arena_array(&p->t->arena, struct rsh_rule_under,
					   RULE_UNDER_MAX);
		p->n_under = 0;
		p->when = NULL;
	}
	if (!p->under)
		rule_nomem(p);
	if (p->n_under == RULE_UNDER_MAX)
		rule_bad(p, "more than %d `under` in a row", RULE_UNDER_MAX);
	rule_parse_name(p, &under.prefix[RSH_SIDE_HF]);
	rule_equals(p);
	rule_parse_name(p, &under.prefix[RSH_SIDE_MINDSPORE]);
	rule_parse_end(p);
	for (int s = 0; s < RSH_N_SIDES; s++)
		rule_check_least(p, &under.prefix[s]);
	if (!p->rc)
		p->under[p->n_under++] = under;
}

/* Reads KEY is WORD and KEY is WORD. */
static void rule_parse_says(struct rule_parse *p, struct rsh_rule_when *when)
{
	const struct rsh_rule_name *left;

	do {
		if (when->n_says == RSH_RULE_SAYS_MAX)
			rule_bad(p, "more than %d keys in a `when`",
				 RSH_RULE_SAYS_MAX);
		if (p->rc)
			return;
		when->says[when->n_says].key = rule_parse_word(p);
		rule_skip_blanks(p);
		if (!rule_begins(p, "is"))
			rule_bad(p, "no \"is\" after the key of a `when`");
		when->says[when->n_says++].word = rule_parse_word(p);
		rule_skip_blanks(p);
	} while (rule_begins(p, "and"));
	for (uint32_t i = 0; i < p->n_under; i++) {
		left = &p->under[i].prefix[RSH_SIDE_HF];
		if (left->n_holes != 1 || left->holes->least)
			rule_bad(p, "the prefix has no number from 0, which a "
				 "`when` with a key needs");
	}
}

static void rule_line_when(struct rule_parse *p)
{
	struct rsh_rule_when when = { .n_says = 0 };

	if (!p->n_under)
		rule_bad(p, "no `under` says in which layers `when` looks");
	if (!p->rc && !memchr(p->at, '=', (size_t)(p->end - p->at)))
		rule_parse_says(p, &when);
	for (int s = 0; s < RSH_N_SIDES && !when.n_says; s++) {
		rule_parse_name(p, &when.name[s]);
		if (!p->rc && (when.name[s].n_holes ||
			       !rule_is_under(&when.name[s])))
			rule_bad(p, "a name of `when` begins with a dot and "
				 "has no hole");
		if (s == RSH_SIDE_HF)
			rule_equals(p);
	}
	rule_parse_end(p);
	p->when = rule_keep_list(p, &when, sizeof(when));
}

/* Reads a name without holes; `what` is for messages. */
static const char *rule_parse_plain(struct rule_parse *p, const char *what)
{
	struct rsh_rule_name n;

	rule_parse_name(p, &n);
	if (n.n_holes)
		rule_bad(p, "a hole in %s", what);
	return p->rc ? "" : n.texts[0];
}

/* What a line of a kind has in its names, for messages; NULL: words. */
static const struct {
	const char *word, *what;
} rule_pairs[] = {
	[RSH_RULE_STATE] = { "state", "what a state's name begins with" },
	[RSH_RULE_TIED] = { "tied", "the name of a tied tensor" },
	[RSH_RULE_REST] = { "rest", "a prefix" },
	[RSH_RULE_CONFIG] = { "config", NULL },
};

static void rule_line_pair(struct rule_parse *p, enum rsh_rule_pairs kind)
{
	struct rsh_rule_pair pair;
	struct rsh_rule_table *t = p->t;

	for (int s = 0; s < RSH_N_SIDES; s++) {
		if (kind == RSH_RULE_REST &&
		    (p->at == p->end || (s == RSH_SIDE_HF && *p->at == '=')))
			pair.side[s] = "";
		else if (rule_pairs[kind].what)
			pair.side[s] = rule_parse_plain(p,
							rule_pairs[kind].what);
		else
			pair.side[s] = rule_parse_word(p);
		if (s == RSH_SIDE_HF)
			rule_equals(p);
	}
	rule_parse_end(p);
	rule_push(p, t->pairs[kind], t->n_pairs[kind], t->pairs_cap[kind],
		  pair);
}

/* Reads the name of an earlier `let`. */
static const char *rule_parse_let_name(struct rule_parse *p)
{
	const char *name = rule_parse_word(p);

	rule_skip_blanks(p);
	if (!rule_find_let(p->t, name))
		rule_bad(p, "no `let` before says what %s is", name);
	return name;
}

static void rule_line_pad(struct rule_parse *p)
{
	struct rsh_rule_pad pad = { .line = p->line };
	const char *with;

	pad.name = rule_parse_plain(p, "the name of a padded tensor");
	rule_equals(p);
	pad.rows = rule_parse_let_name(p);
	pad.multiple = rule_parse_let_name(p);
	with = rule_parse_word(p);
	rule_parse_end(p);
	pad.last = strcmp(with, "last") == 0;
	if (!pad.last && strcmp(with, "zeros") != 0)
		rule_bad(p, "padding is zeros or last, not %s", with);
	rule_add(p, pads, pad);
}

static void rule_line_group(struct rule_parse *p)
{
	const char *group = rule_parse_word(p);

	rule_parse_end(p);
	if (p->t->group)
		rule_bad(p, "a table is in one group only");
	p->t->group = group;
}

/* ---- rules ---- */

static bool rule_same_product(const struct rsh_rule_product *a,
			      const struct rsh_rule_product *b)
{
	bool same = a->n == b->n;

	for (uint32_t i = 0; same && i < a->n; i++)
		same = strcmp(a->factors[i], b->factors[i]) == 0;
	return same;
}

static bool rule_same_tensor(const struct rsh_rule_tensor *a,
			     const struct rsh_rule_tensor *b)
{
	bool same = a->name.n_holes == b->name.n_holes &&
		    a->has_dims && a->n_dims == b->n_dims;

	for (uint32_t i = 0; same && i <= a->name.n_holes; i++)
		same = strcmp(a->name.texts[i], b->name.texts[i]) == 0;
	for (uint32_t i = 0; same && i < a->name.n_holes; i++)
		same = strcmp(a->name.holes[i].letter,
			      b->name.holes[i].letter) == 0 &&
		       !a->name.holes[i].least == !b->name.holes[i].least;
	for (uint32_t i = 0; same && i < a->n_dims; i++)
		same = !a->dims[i].n_alternatives &&
		       !b->dims[i].n_alternatives &&
		       rule_same_product(&a->dims[i].before,
					 &b->dims[i].before);
	return same;
}

/* Finds the tensor that the last one of the list repeats. */
static void rule_find_again(struct rule_parse *p, struct rsh_rule_tensor *list,
			    uint32_t last)
{
	uint32_t i = 0;

	while (!p->rc && i < last && !rule_same_tensor(&list[i], &list[last]))
		i++;
	if (i == last)
		rule_bad(p, "`again` names no earlier tensor of the rule with "
			 "its dimensions");
	list[last].of = i;
}

static void rule_parse_side(struct rule_parse *p, struct rsh_rule *r,
			    enum rsh_side side)
{
	struct rsh_rule_tensor list[RULE_TENSORS_MAX];
	uint32_t n = 0;
	bool again;

	do {
		if (n == RULE_TENSORS_MAX) {
			rule_bad(p, "more than %d tensors on one side",
				 RULE_TENSORS_MAX);
			return;
		}
		again = side == RSH_SIDE_HF && rule_begins(p, "again");
		rule_parse_tensor(p, &list[n++]);
		list[n - 1].again = again;
		if (again)
			rule_find_again(p, list, n - 1);
		rule_check_least(p, &list[n - 1].name);
	} while (rule_take(p, '+'));
	r->tensors[side] = rule_keep_list(p, list, n * sizeof(*list));
	r->n_tensors[side] = n;
}

/* Reads `add 1` at the end of a rule. */
static bool rule_parse_add(struct rule_parse *p, const struct rsh_rule *r)
{
	static const char add[] = "add ";

	rule_skip_blanks(p);
	if ((size_t)(p->end - p->at) < sizeof(add) - 1 ||
	    memcmp(p->at, add, sizeof(add) - 1) != 0)
		return false;
	p->at += sizeof(add) - 1;
	if (!rule_take(p, '1') || p->at != p->end)
		rule_bad(p, "only 1 can be added");
	if (r->kind != RSH_RULE_SAME || r->n_tensors[0] > 1 ||
	    r->n_tensors[1] > 1 || (!p->rc && r->tensors[0][0].has_dims))
		rule_bad(p, "`add` where more than a name changes");
	return true;
}

/* Checks that names which begin with a dot have prefixes. */
static void rule_use_prefixes(struct rule_parse *p, struct rsh_rule *r)
{
	for (int s = 0; s < RSH_N_SIDES; s++)
		for (uint32_t i = 0; !p->rc && i < r->n_tensors[s]; i++) {
			if (!rule_is_under(&r->tensors[s][i].name))
				continue;
			if (!p->n_under)
				rule_bad(p, "a name begins with a dot, and no "
					 "`under` holds");
			r->under = p->under;
			r->n_under = p->n_under;
			r->when = p->when;
		}
	if (r->when && r->kind != RSH_RULE_SAME)
		rule_bad(p, "`also` and `skip` do not look at a `when`: put "
			 "them before it");
}

static void rule_line_rule(struct rule_parse *p, enum rsh_rule_kind kind,
			   const char *text)
{
	struct rsh_rule r = { .kind = kind, .line = p->line, .text = text };

	rule_parse_side(p, &r, RSH_SIDE_HF);
	if (kind != RSH_RULE_SKIP) {
		rule_equals(p);
		rule_parse_side(p, &r, RSH_SIDE_MINDSPORE);
		r.adds_one = rule_parse_add(p, &r);
	}
	rule_parse_end(p);
	if (kind != RSH_RULE_SAME &&
	    (r.n_tensors[0] > 1 || r.n_tensors[1] > 1))
		rule_bad(p, "several names where one is wanted");
	rule_use_prefixes(p, &r);
	if (!p->rc && rule_check(p, &r) == 0)
		rule_add(p, rules, r);
}

/* ---- lines ---- */

static const char *rule_keep_line(struct rule_parse *p)
{
	return rule_keep_text(p, p->at, (size_t)(p->end - p->at));
}

/* Returns whether the line is a `rest` with nothing on both sides. */
static bool rule_begins_rest(struct rule_parse *p)
{
	static const char rest[] = "rest";
	const char *at = p->at;

	if ((size_t)(p->end - p->at) < sizeof(rest) ||
	    memcmp(p->at, rest, sizeof(rest) - 1) != 0)
		return false;
	p->at += sizeof(rest) - 1;
	if (rule_take(p, '=') && p->at == p->end) {
		p->at = p->end - 1; /* "=" */
		return true;
	}
	p->at = at;
	return false;
}

static void rule_parse_line(struct rule_parse *p)
{
	static const struct {
		const char *word;
		void (*parse)(struct rule_parse *p);
	} kinds[] = {
		{ "under", rule_line_under }, { "when", rule_line_when },
		{ "group", rule_line_group }, { "pad", rule_line_pad },
		{ "for", rule_line_for }, { "let", rule_line_let },
	};
	const size_t n = sizeof(kinds) / sizeof(kinds[0]);
	const char *text = rule_keep_line(p);
	enum rsh_rule_pairs pair = 0;
	const size_t i = rsh_index(k, n, rule_begins(p, kinds[k].word));

	while (i == n && pair < RSH_RULE_N_PAIRS &&
	       !rule_begins(p, rule_pairs[pair].word) &&
	       (pair != RSH_RULE_REST || !rule_begins_rest(p)))
		pair++;
	if (i < n)
		kinds[i].parse(p);
	else if (pair < RSH_RULE_N_PAIRS)
		rule_line_pair(p, pair);
	else if (rule_begins(p, "also"))
		rule_line_rule(p, RSH_RULE_ALSO, text);
	else if (rule_begins(p, "skip"))
		rule_line_rule(p, RSH_RULE_SKIP, text);
	else
		rule_line_rule(p, RSH_RULE_SAME, text);
	p->in_row = i == 0;
}

/* Removes the comment: a "#" at the beginning of the line or after a blank, and
 * the rest of the line. */
static void rule_cut_line(struct rule_parse *p)
{
	const char *begin = p->at;

	for (const char *c = begin; c < p->end; c++) {
		if (((unsigned char)*c < ' ' && *c != '\t' && *c != '\r') ||
		    *c == 0x7f)
			rule_bad(p, "a control character (byte %d)", *c);
		if (*c != '#' ||
		    (c > begin && c[-1] != ' ' && c[-1] != '\t'))
			continue;
		if (c == begin && !*p->t->title) {
			p->at = c + 1;
			rule_skip_blanks(p);
			p->t->title = rule_keep_line(p);
			p->at = begin;
		}
		p->end = c;
	}
	while (p->end > begin && strchr(" \t\r", p->end[-1]))
		p->end--;
	rule_skip_blanks(p);
}

int rsh_rule_table_parse(const void *data, size_t len, const char *path,
			 struct rsh_rule_table **out, struct rsh_error *err)
{
	struct rule_parse p = { .err = err };
	const char *at = data, *end = at + len;

	if (len > RSH_RULE_TABLE_MAX)
		return rsh_error_set(err, EBADMSG, "%s: %zu bytes, a rule "
				     "table has %zu at most", path, len,
				     RSH_RULE_TABLE_MAX);
	p.t = calloc(1, sizeof(*p.t));
	if (!p.t)
		return rsh_error_nomem(err);
	p.t->title = "";
	p.t->path = rule_keep_text(&p, path, strlen(path));
	for (p.line = 1; at < end && !p.rc; p.line++) {
		const char *stop = memchr(at, '\n', (size_t)(end - at));

		p.at = at;
		p.end = stop ? stop : end;
		at = stop ? stop + 1 : end;
		rule_cut_line(&p);
		if (!p.rc && p.at < p.end)
			rule_parse_line(&p);
	}
	if (!p.rc && p.t->n_rules == 0 && p.t->n_pairs[RSH_RULE_REST] == 0)
		p.rc = rsh_error_set(err, EBADMSG, "%s: no rule in it", path);
	if (p.rc)
		rsh_rule_table_free(p.t);
	else
		*out = p.t;
	return p.rc;
}

void rsh_rule_table_free(struct rsh_rule_table *t)
{
	if (!t)
		return;
	free(t->suits);
	free(t->lets);
	free(t->pads);
	for (int k = 0; k < RSH_RULE_N_PAIRS; k++)
		free(t->pairs[k]);
	free(t->rules);
	rsh_arena_clear(&t->arena);
	free(t);
}

const char *rsh_rule_let_key(const struct rsh_rule_table *t,
			     const struct rsh_rule_let *l, uint32_t term)
{
	const struct rsh_rule_term *k = &l->terms[term];

	if (term >= l->n_terms || k->n != 1 || !k->operands->key ||
	    rule_find_let(t, k->operands->key))
		return NULL;
	return k->operands->key;
}
