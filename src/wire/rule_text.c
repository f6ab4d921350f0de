/* SPDX-License-Identifier: Apache-2.0 */
/* wire/rule_text.c parses a line of a rule table. */
#include "rule_table_i.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "rsh/util/text.h"

int rule_bad(struct rule_parse *p, const char *fmt, ...)
{
	va_list ap;

	if (p->rc)
		return p->rc;
	va_start(ap, fmt);
	p->rc = rsh_error_vset(p->err, EBADMSG, fmt, ap);
	va_end(ap);
	rsh_error_prefix(p->err, "%s:%u", p->t->path, p->line);
	return p->rc;
}

void rule_nomem(struct rule_parse *p)
{
	p->rc = p->rc ?: rsh_error_nomem(p->err);
}

static bool rule_is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

static bool rule_is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool rule_is_letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

void rule_skip_blanks(struct rule_parse *p)
{
	while (p->at < p->end && rule_is_blank(*p->at))
		p->at++;
}

bool rule_take(struct rule_parse *p, char c)
{
	rule_skip_blanks(p);
	if (p->rc || p->at == p->end || *p->at != c)
		return false;
	p->at++;
	rule_skip_blanks(p);
	return true;
}

/* Sets an error that says what is expected and what was found instead. */
static void rule_wanted(struct rule_parse *p, const char *what)
{
	size_t left = (size_t)(p->end - p->at);

	if (left == 0)
		rule_bad(p, "the line ends where %s is wanted", what);
	else
		rule_bad(p, "\"%.*s%s\" where %s is wanted",
			 (int)(left < 24 ? left : 24), p->at,
			 left < 24 ? "" : "...", what);
}

void rule_parse_end(struct rule_parse *p)
{
	rule_skip_blanks(p);
	if (p->at != p->end)
		rule_wanted(p, "the end of the line");
}

static const char *rule_keep(struct rule_parse *p, const char *from)
{
	size_t len = (size_t)(p->at - from);
	const char *kept = NULL;

	if (len > RULE_NAME_MAX)
		rule_bad(p, "a name of %zu bytes; at most %d are read", len,
			 RULE_NAME_MAX);
	else
		kept = rule_keep_text(p, from, len);
	return kept ? kept : "";
}

const char *rule_keep_text(struct rule_parse *p, const char *text, size_t len)
{
	const char *kept = rsh_arena_strndup(&p->t->arena, text, len);

	if (!kept)
		rule_nomem(p);
	return kept;
}

const void *rule_keep_list(struct rule_parse *p, const void *list, size_t size)
{
	void *kept = rsh_arena_alloc(&p->t->arena, size, _Alignof(max_align_t));

	if (!kept)
		rule_nomem(p);
	return kept ? memcpy(kept, list, size) : NULL;
}

const char *rule_parse_word(struct rule_parse *p)
{
	const char *from = p->at;

	while (p->at < p->end && (rule_is_letter(*p->at) ||
				  (p->at > from && rule_is_digit(*p->at))))
		p->at++;
	if (p->at == from)
		rule_wanted(p, "a letter or word");
	return rule_keep(p, from);
}

/* ---- names ---- */

static const char *rule_parse_text(struct rule_parse *p)
{
	const char *from = p->at;

	while (p->at < p->end && !rule_is_blank(*p->at) &&
	       !strchr("{}[]()|=+,", *p->at))
		p->at++;
	return rule_keep(p, from);
}

/* The text after a number must not change where the number ends. */
static void rule_check_texts(struct rule_parse *p, const char *const *texts,
			     uint32_t n_holes)
{
	for (uint32_t i = 0; i <= n_holes; i++) {
		const size_t len = strlen(texts[i]);

		if (i > 0 && i < n_holes && len == 0)
			rule_bad(p, "two holes with nothing between");
		if ((i > 0 && rule_is_digit(*texts[i])) ||
		    (i < n_holes && len && rule_is_digit(texts[i][len - 1])))
			rule_bad(p, "a digit beside a hole");
	}
}

bool rule_is_under(const struct rsh_rule_name *n)
{
	return n->texts[0][0] == '.';
}

void rule_parse_name(struct rule_parse *p, struct rsh_rule_name *out)
{
	const char *texts[RULE_HOLES_MAX + 1] = { rule_parse_text(p) };
	struct rsh_rule_hole holes[RULE_HOLES_MAX];
	uint32_t n = 0;

	while (!p->rc && p->at < p->end && *p->at == '{') {
		if (n == RULE_HOLES_MAX) {
			rule_bad(p, "a name of more than %d holes",
				 RULE_HOLES_MAX);
			break;
		}
		/* {l} or {L+i} */
		(void)rule_take(p, '{');
		holes[n].least = NULL;
		holes[n].letter = rule_parse_word(p);
		if (rule_take(p, '+')) {
			holes[n].least = holes[n].letter;
			holes[n].letter = rule_parse_word(p);
		}
		rule_skip_blanks(p);
		if (p->at < p->end && *p->at == '}')
			p->at++;
		else
			rule_wanted(p, "the \"}\" of a hole");
		texts[++n] = rule_parse_text(p);
	}
	if (n == 0 && !*texts[0])
		rule_wanted(p, "the name of a tensor");
	rule_check_texts(p, texts, n);
	out->texts = rule_keep_list(p, texts, (n + 1) * sizeof(*texts));
	out->holes = rule_keep_list(p, holes, n * sizeof(*holes));
	out->n_holes = p->rc ? 0 : n;
}

/* ---- dimensions ---- */

/* Reads factors up to the first text that is not one; `1` adds nothing.
 * Returns whether there was one. */
static bool rule_parse_product(struct rule_parse *p,
			       struct rsh_rule_product *out)
{
	const char *list[RULE_FACTORS_MAX];
	bool found = false;
	uint32_t n = 0;

	rule_skip_blanks(p);
	while (!p->rc && p->at < p->end &&
	       (rule_is_letter(*p->at) || rule_is_digit(*p->at))) {
		if (*p->at == '1' &&
		    (p->at + 1 == p->end || (!rule_is_digit(p->at[1]) &&
					     !rule_is_letter(p->at[1]))))
			p->at++;
		else if (rule_is_digit(*p->at))
			rule_bad(p, "a number other than 1 among the factors; "
				 "give it a name: let two = 2");
		else if (n == RULE_FACTORS_MAX)
			rule_bad(p, "a product of more than %d factors",
				 RULE_FACTORS_MAX);
		else
			list[n++] = rule_parse_word(p);
		rule_skip_blanks(p);
		found = true;
	}
	out->n = n;
	out->factors = rule_keep_list(p, list, n * sizeof(*list));
	return found;
}

static void rule_parse_dim(struct rule_parse *p, struct rsh_rule_dim *out)
{
	const bool before = rule_parse_product(p, &out->before);
	struct rsh_rule_product list[RULE_TENSORS_MAX];
	uint32_t n = 0;

	out->n_alternatives = 0;
	out->after = (struct rsh_rule_product){ 0, NULL };
	if (!rule_take(p, '(')) {
		if (!before)
			rule_wanted(p, "a factor, or 1,");
		return;
	}
	do {
		if (n == RULE_TENSORS_MAX) {
			rule_bad(p, "more than %d alternatives",
				 RULE_TENSORS_MAX);
			return;
		}
		if (!rule_parse_product(p, &list[n++]))
			rule_wanted(p, "a factor, or 1,");
	} while (rule_take(p, '|'));
	if (!rule_take(p, ')'))
		rule_wanted(p, "\"|\" or \")\"");
	out->alternatives = rule_keep_list(p, list, n * sizeof(*list));
	out->n_alternatives = n;
	rule_parse_product(p, &out->after);
	if (p->at < p->end && *p->at == '(')
		rule_bad(p, "two lists of alternatives in one dimension");
}

/* Reads the text after a "[". */
static void rule_parse_dims(struct rule_parse *p, struct rsh_rule_tensor *out)
{
	struct rsh_rule_dim list[RSH_MAX_DIMS];
	uint32_t n = 0;

	out->has_dims = true;
	if (rule_take(p, ']'))
		return;
	do {
		if (n == RSH_MAX_DIMS) {
			rule_bad(p, "more than %d dimensions", RSH_MAX_DIMS);
			return;
		}
		rule_parse_dim(p, &list[n++]);
	} while (rule_take(p, ','));
	if (!rule_take(p, ']'))
		rule_wanted(p, "\",\" or \"]\"");
	out->dims = rule_keep_list(p, list, n * sizeof(*list));
	out->n_dims = n;
}

void rule_parse_tensor(struct rule_parse *p, struct rsh_rule_tensor *out)
{
	memset(out, 0, sizeof(*out));
	rule_skip_blanks(p);
	rule_parse_name(p, &out->name);
	if (rule_take(p, '['))
		rule_parse_dims(p, out);
}

/* ---- let ---- */

/* Reads a word, or words with dots between, of which "*" may be one. */
static const char *rule_parse_key(struct rule_parse *p)
{
	const char *from = p->at;

	do
		if (p->at > from && p->at + 1 < p->end && p->at[0] == '*' &&
		    p->at[1] == '.')
			p->at++;
		else
			rule_parse_word(p);
	while (!p->rc && p->at < p->end && *p->at == '.' && ++p->at);
	return rule_keep(p, from);
}

static void rule_parse_operand(struct rule_parse *p,
			       struct rsh_rule_operand *out)
{
	size_t digits;

	rule_skip_blanks(p);
	digits = rsh_count_digits(p->at, (size_t)(p->end - p->at));
	if (!digits)
		out->key = rule_parse_key(p);
	else if (!rsh_number_read(p->at, digits, &out->number))
		rule_bad(p, "a number that is too large");
	p->at += digits;
}

static void rule_parse_term(struct rule_parse *p, struct rsh_rule_term *out)
{
	struct rsh_rule_operand list[RULE_TERMS_MAX] = { { .operation = '+' } };
	uint32_t n = 0;

	for (;;) {
		rule_parse_operand(p, &list[n++]);
		rule_skip_blanks(p);
		if (p->rc || p->at == p->end || !strchr("+-*/", *p->at))
			break;
		if (n == RULE_TERMS_MAX) {
			rule_bad(p, "a term of more than %d operands",
				 RULE_TERMS_MAX);
			break;
		}
		list[n] = (struct rsh_rule_operand){ .operation = *p->at++ };
	}
	out->n = n;
	out->operands = rule_keep_list(p, list, n * sizeof(*list));
}

void rule_parse_let(struct rule_parse *p, struct rsh_rule_let *out)
{
	struct rsh_rule_term list[RULE_TERMS_MAX];
	uint32_t n = 0;

	out->name = rule_parse_word(p);
	if (!rule_take(p, '='))
		rule_wanted(p, "\"=\"");
	do {
		if (n == RULE_TERMS_MAX) {
			rule_bad(p, "more than %d terms", RULE_TERMS_MAX);
			return;
		}
		rule_parse_term(p, &list[n++]);
	} while (rule_take(p, '|'));
	out->terms = rule_keep_list(p, list, n * sizeof(*list));
	out->n_terms = n;
	rule_parse_end(p);
}
