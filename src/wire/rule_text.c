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

	va_start(ap, fmt);
	rsh_error_vset(p->err, EBADMSG, fmt, ap);
	va_end(ap);
	rsh_error_prefix(p->err, "%s:%u", p->t->path, p->line);
	return -EBADMSG;
}

int rule_nomem(struct rule_parse *p)
{
	return rsh_error_nomem(p->err);
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
	if (p->at == p->end || *p->at != c)
		return false;
	p->at++;
	rule_skip_blanks(p);
	return true;
}

/* Sets an error that says what is expected and what was found instead. */
static int rule_wanted(struct rule_parse *p, const char *what)
{
	size_t left = (size_t)(p->end - p->at);

	if (left == 0)
		return rule_bad(p, "the line ends where %s is wanted", what);
	return rule_bad(p, "\"%.*s%s\" where %s is wanted",
			(int)(left < 24 ? left : 24), p->at,
			left < 24 ? "" : "...", what);
}

int rule_parse_end(struct rule_parse *p)
{
	rule_skip_blanks(p);
	return p->at == p->end ? 0 : rule_wanted(p, "the end of the line");
}

static int rule_keep(struct rule_parse *p, const char *from, const char **out)
{
	size_t len = (size_t)(p->at - from);

	if (len > RULE_NAME_MAX)
		return rule_bad(p, "a name of %zu bytes; at most %d are read",
				len, RULE_NAME_MAX);
	*out = rsh_arena_strndup(&p->t->arena, from, len);
	return *out ? 0 : rule_nomem(p);
}

const void *rule_keep_list(struct rule_parse *p, const void *list, size_t size)
{
	void *kept = rsh_arena_alloc(&p->t->arena, size, _Alignof(max_align_t));

	return kept ? memcpy(kept, list, size) : NULL;
}

int rule_parse_word(struct rule_parse *p, const char **out)
{
	const char *from = p->at;

	while (p->at < p->end && (rule_is_letter(*p->at) ||
				  (p->at > from && rule_is_digit(*p->at))))
		p->at++;
	return p->at == from ? rule_wanted(p, "a letter or word") :
			       rule_keep(p, from, out);
}

/* ---- names ---- */

static int rule_parse_text(struct rule_parse *p, const char **out)
{
	const char *from = p->at;

	while (p->at < p->end && !rule_is_blank(*p->at) &&
	       !strchr("{}[]()|=+,", *p->at))
		p->at++;
	return rule_keep(p, from, out);
}

/* The text after a number must not change where the number ends. */
static int rule_check_texts(struct rule_parse *p, const char *const *texts,
			    uint32_t n_holes)
{
	for (uint32_t i = 0; i <= n_holes; i++) {
		const size_t len = strlen(texts[i]);

		if (i > 0 && i < n_holes && len == 0)
			return rule_bad(p, "two holes with nothing between");
		if ((i > 0 && rule_is_digit(*texts[i])) ||
		    (i < n_holes && len && rule_is_digit(texts[i][len - 1])))
			return rule_bad(p, "a digit beside a hole");
	}
	return 0;
}

bool rule_is_under(const struct rsh_rule_name *n)
{
	return n->texts[0][0] == '.';
}

int rule_parse_name(struct rule_parse *p, struct rsh_rule_name *out)
{
	const char *texts[RULE_HOLES_MAX + 1];
	struct rsh_rule_hole holes[RULE_HOLES_MAX];
	uint32_t n = 0;
	int rc = rule_parse_text(p, &texts[0]);

	while (rc == 0 && p->at < p->end && *p->at == '{') {
		if (n == RULE_HOLES_MAX)
			return rule_bad(p, "a name of more than %d holes",
					RULE_HOLES_MAX);
		/* {l} or {L+i} */
		holes[n].least = NULL;
		(void)rule_take(p, '{');
		rc = rule_parse_word(p, &holes[n].letter);
		if (rc == 0 && rule_take(p, '+')) {
			holes[n].least = holes[n].letter;
			rc = rule_parse_word(p, &holes[n].letter);
		}
		rule_skip_blanks(p);
		if (rc == 0 && (p->at == p->end || *p->at != '}'))
			rc = rule_wanted(p, "the \"}\" of a hole");
		p->at += rc == 0;
		rc = rc ?: rule_parse_text(p, &texts[++n]);
	}
	if (rc == 0 && n == 0 && !*texts[0])
		rc = rule_wanted(p, "the name of a tensor");
	rc = rc ?: rule_check_texts(p, texts, n);
	if (rc)
		return rc;
	*out = (struct rsh_rule_name){
		n, rule_keep_list(p, texts, (n + 1) * sizeof(*texts)),
		rule_keep_list(p, holes, n * sizeof(*holes)),
	};
	return out->texts && out->holes ? 0 : rule_nomem(p);
}

/* ---- dimensions ---- */

/* Reads factors up to the first text that is not one; `1` adds nothing.
 * *found: there was one. */
static int rule_parse_product(struct rule_parse *p,
			      struct rsh_rule_product *out, bool *found)
{
	const char *list[RULE_FACTORS_MAX];
	uint32_t n = 0;
	int rc;

	*found = false;
	rule_skip_blanks(p);
	while (p->at < p->end &&
	       (rule_is_letter(*p->at) || rule_is_digit(*p->at))) {
		if (*p->at == '1' &&
		    (p->at + 1 == p->end || (!rule_is_digit(p->at[1]) &&
					     !rule_is_letter(p->at[1])))) {
			p->at++;
		} else if (rule_is_digit(*p->at)) {
			return rule_bad(p, "a number other than 1 among the "
					"factors; give it a name: let two = 2");
		} else if (n == RULE_FACTORS_MAX) {
			return rule_bad(p, "a product of more than %d factors",
					RULE_FACTORS_MAX);
		} else {
			rc = rule_parse_word(p, &list[n++]);
			if (rc)
				return rc;
		}
		rule_skip_blanks(p);
		*found = true;
	}
	*out = (struct rsh_rule_product){
		n, rule_keep_list(p, list, n * sizeof(*list)),
	};
	return out->factors ? 0 : rule_nomem(p);
}

static int rule_parse_dim(struct rule_parse *p, struct rsh_rule_dim *out)
{
	bool before, after;
	int rc = rule_parse_product(p, &out->before, &before);
	struct rsh_rule_product list[RULE_TENSORS_MAX];
	uint32_t n = 0;
	bool found;

	out->n_alternatives = 0;
	out->after = (struct rsh_rule_product){ 0, NULL };
	if (rc)
		return rc;
	if (!rule_take(p, '('))
		return before ? 0 : rule_wanted(p, "a factor, or 1,");
	do {
		if (n == RULE_TENSORS_MAX)
			return rule_bad(p, "more than %d alternatives",
					RULE_TENSORS_MAX);
		rc = rule_parse_product(p, &list[n++], &found);
		if (rc == 0 && !found)
			rc = rule_wanted(p, "a factor, or 1,");
	} while (rc == 0 && rule_take(p, '|'));
	if (rc == 0 && !rule_take(p, ')'))
		rc = rule_wanted(p, "\"|\" or \")\"");
	if (rc)
		return rc;
	out->alternatives = rule_keep_list(p, list, n * sizeof(*list));
	out->n_alternatives = n;
	if (!out->alternatives)
		return rule_nomem(p);
	rc = rule_parse_product(p, &out->after, &after);
	if (rc == 0 && p->at < p->end && *p->at == '(')
		rc = rule_bad(p, "two lists of alternatives in one dimension");
	return rc;
}

/* Reads the text after a "[". */
static int rule_parse_dims(struct rule_parse *p, struct rsh_rule_tensor *out)
{
	struct rsh_rule_dim list[RSH_MAX_DIMS];
	uint32_t n = 0;
	int rc = 0;

	out->has_dims = true;
	if (rule_take(p, ']'))
		return 0;
	do {
		if (n == RSH_MAX_DIMS)
			return rule_bad(p, "more than %d dimensions",
					RSH_MAX_DIMS);
		rc = rule_parse_dim(p, &list[n++]);
	} while (rc == 0 && rule_take(p, ','));
	if (rc == 0 && !rule_take(p, ']'))
		rc = rule_wanted(p, "\",\" or \"]\"");
	if (rc)
		return rc;
	out->dims = rule_keep_list(p, list, n * sizeof(*list));
	out->n_dims = n;
	return out->dims ? 0 : rule_nomem(p);
}

int rule_parse_tensor(struct rule_parse *p, struct rsh_rule_tensor *out)
{
	int rc;

	memset(out, 0, sizeof(*out));
	rule_skip_blanks(p);
	rc = rule_parse_name(p, &out->name);
	if (rc == 0 && rule_take(p, '['))
		rc = rule_parse_dims(p, out);
	return rc;
}

/* ---- let ---- */

static int rule_parse_operand(struct rule_parse *p,
			      struct rsh_rule_operand *out)
{
	size_t digits;

	rule_skip_blanks(p);
	digits = rsh_count_digits(p->at, (size_t)(p->end - p->at));
	if (!digits)
		return rule_parse_word(p, &out->key);
	if (!rsh_number_read(p->at, digits, &out->number))
		return rule_bad(p, "a number that is too large");
	p->at += digits;
	return 0;
}

static int rule_parse_term(struct rule_parse *p, struct rsh_rule_term *out)
{
	struct rsh_rule_operand list[RULE_TERMS_MAX] = { { .operation = '+' } };
	uint32_t n = 0;
	int rc;

	for (;;) {
		rc = rule_parse_operand(p, &list[n++]);
		rule_skip_blanks(p);
		if (rc || p->at == p->end || !strchr("+-*/", *p->at))
			break;
		if (n == RULE_TERMS_MAX)
			return rule_bad(p, "a term of more than %d operands",
					RULE_TERMS_MAX);
		list[n] = (struct rsh_rule_operand){ .operation = *p->at++ };
	}
	*out = (struct rsh_rule_term){
		n, rule_keep_list(p, list, n * sizeof(*list)),
	};
	return rc ?: (out->operands ? 0 : rule_nomem(p));
}

int rule_parse_let(struct rule_parse *p, struct rsh_rule_let *out)
{
	struct rsh_rule_term list[RULE_TERMS_MAX];
	uint32_t n = 0;
	int rc = rule_parse_word(p, &out->name);

	if (rc == 0 && !rule_take(p, '='))
		rc = rule_wanted(p, "\"=\"");
	if (rc)
		return rc;
	do {
		if (n == RULE_TERMS_MAX)
			return rule_bad(p, "more than %d terms",
					RULE_TERMS_MAX);
		rc = rule_parse_term(p, &list[n++]);
	} while (rc == 0 && rule_take(p, '|'));
	if (rc)
		return rc;
	out->terms = rule_keep_list(p, list, n * sizeof(*list));
	out->n_terms = n;
	return out->terms ? rule_parse_end(p) : rule_nomem(p);
}
