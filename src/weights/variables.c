/* SPDX-License-Identifier: Apache-2.0 */
/* weights/variables.c computes the values of `let`. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "rsh/util/checked.h"
#include "weights_i.h"

/* Returns the term that was used for a `let`; NULL: there is no such `let`, or
 * its keys are absent. */
static const struct rsh_rule_term *
weights_let_term(const struct weights_work *w, const char *name,
		 uint64_t *value)
{
	for (uint32_t i = 0; i < w->o->table->n_lets; i++)
		if (strcmp(w->o->table->lets[i].name, name) == 0) {
			*value = w->lets[i];
			return w->let_terms[i];
		}
	return NULL;
}

bool weights_let(const struct weights_work *w, const char *name,
		 uint64_t *value)
{
	return weights_let_term(w, name, value) != NULL;
}

const char *weights_let_key(const struct weights_work *w, const char *name)
{
	uint64_t value;
	const struct rsh_rule_term *t = weights_let_term(w, name, &value);
	const char *key = t && t->n == 1 ? t->operands->key : NULL;

	return key && !weights_let(w, key, &value) ? key : NULL;
}

static bool weights_operand(const struct weights_work *w,
			    const struct rsh_rule_operand *o, uint64_t *value)
{
	*value = o->number;
	if (o->key && w->o->vocab_multiple &&
	    strcmp(o->key, RSH_VOCAB_MULTIPLE) == 0) {
		*value = w->o->vocab_multiple;
		return true;
	}
	return !o->key || weights_let(w, o->key, value) ||
	       (w->o->config &&
		rsh_model_config_number(w->o->config, o->key, value));
}

static bool weights_apply(char operation, uint64_t *a, uint64_t b)
{
	switch (operation) {
	case '*':
		return rsh_mul_u64(*a, b, a);
	case '/':
		if (b == 0 || *a % b)
			return false;
		*a /= b;
		return true;
	case '-':
		if (b > *a)
			return false;
		*a -= b;
		return true;
	default:
		return rsh_add_u64(*a, b, a);
	}
}

/* Computes a sum of products.  Returns false if the result is not an
 * integer. */
static bool weights_compute(const struct weights_work *w,
			    const struct rsh_rule_term *t, uint64_t *out)
{
	uint64_t sum = 0, product = 0, value;
	char sign = '+';

	for (uint32_t i = 0; i < t->n; i++) {
		const char op = t->operands[i].operation;

		(void)weights_operand(w, &t->operands[i], &value);
		if (op == '*' || op == '/') {
			if (!weights_apply(op, &product, value))
				return false;
			continue;
		}
		if (i && !weights_apply(sign, &sum, product))
			return false;
		sign = op;
		product = value;
	}
	*out = sum;
	return weights_apply(sign, out, product);
}

static bool weights_has_keys(const struct weights_work *w,
			     const struct rsh_rule_term *t)
{
	uint64_t value;

	for (uint32_t i = 0; i < t->n; i++)
		if (!weights_operand(w, &t->operands[i], &value))
			return false;
	return true;
}

static const char *weights_term_text(const struct weights_work *w,
				     const struct rsh_rule_term *t, char *text,
				     size_t size)
{
	size_t at = 0;

	*text = '\0';
	for (uint32_t i = 0; i < t->n && at + 128 < size; i++) {
		const struct rsh_rule_operand *o = &t->operands[i];
		uint64_t value;

		if (o->key && weights_operand(w, o, &value))
			at += (size_t)snprintf(text + at, size - at,
					       "%s\"%.60s\" %" PRIu64,
					       at ? " and " : "", o->key,
					       value);
	}
	return text;
}

const char *weights_let_text(const struct weights_work *w, const char *name,
			     char *text, size_t size)
{
	uint64_t value;
	const struct rsh_rule_term *t = weights_let_term(w, name, &value);

	*text = '\0';
	return t ? weights_term_text(w, t, text, size) : text;
}

static int weights_read_let(struct weights_work *w, uint32_t i,
			    const struct rsh_rule_let *l)
{
	char text[512];

	for (uint32_t k = 0; k < l->n_terms; k++) {
		const struct rsh_rule_operand *o = l->terms[k].operands;

		for (uint32_t j = 0; j < l->terms[k].n; j++)
			if (o[j].key && w->o->config &&
			    rsh_model_config_differs(w->o->config, o[j].key))
				return rsh_error_set(
					w->err, EINVAL, "%s:%u: %s has several "
					"numbers for %s, of which %s is one",
					w->o->table->path, l->line,
					rsh_model_config_path(w->o->config),
					o[j].key, l->name);
		if (!weights_has_keys(w, &l->terms[k]))
			continue;
		if (!weights_compute(w, &l->terms[k], &w->lets[i]))
			return rsh_error_set(w->err, EINVAL, "%s:%u: with the "
					     "numbers of %s, %s is not an "
					     "integer of 0 or more: it is of %s",
					     w->o->table->path,
					     l->line, w->o->config ?
					     rsh_model_config_path(w->o->config)
					     : "the table", l->name,
					     weights_term_text(w, &l->terms[k],
							       text,
							       sizeof(text)));
		w->let_terms[i] = &l->terms[k];
		break;
	}
	return 0;
}

int weights_read_lets(struct weights_work *w)
{
	const uint32_t n = w->o->table->n_lets;
	int rc = 0;

	w->lets = rsh_arena_array(&w->scratch, uint64_t, n);
	w->let_terms = rsh_arena_array(&w->scratch,
				       const struct rsh_rule_term *, n);
	if (!w->lets || !w->let_terms)
		return rsh_error_nomem(w->err);
	for (uint32_t i = 0; rc == 0 && i < n; i++)
		rc = weights_read_let(w, i, &w->o->table->lets[i]);
	return rc;
}
