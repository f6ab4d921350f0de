/* SPDX-License-Identifier: Apache-2.0 */
/* weights/names.c compares texts with names that have holes, and writes such
 * names. */
#include <stdio.h>
#include <string.h>

#include "rsh/util/checked.h"
#include "rsh/util/text.h"
#include "weights_i.h"

static bool weights_is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* ---- folding: FNV-1a in which every run of digits is one byte ---- */

struct weights_folding {
	uint64_t hash;
	bool in_digits;
};

static void weights_fold_more(struct weights_folding *f, const char *s)
{
	for (; *s; s++) {
		const bool digit = weights_is_digit(*s);

		if (digit && f->in_digits)
			continue;
		f->in_digits = digit;
		f->hash ^= digit ? 0 : (unsigned char)*s;
		f->hash *= 1099511628211u;
	}
}

uint64_t weights_fold_text(const char *s)
{
	struct weights_folding f = { 14695981039346656037u, false };

	weights_fold_more(&f, s);
	return f.hash;
}

uint64_t weights_fold_name(const struct weights_name *n)
{
	struct weights_folding f = { 14695981039346656037u, false };

	for (uint32_t i = 0; i <= n->n_holes; i++) {
		weights_fold_more(&f, n->texts[i]);
		if (i < n->n_holes)
			weights_fold_more(&f, "0");
	}
	return f.hash;
}

/* ---- comparing ---- */

static enum weights_fit weights_fit_holes(const struct weights_name *n,
					  const char **s, uint64_t *numbers)
{
	enum weights_fit fit = WEIGHTS_YES;

	for (uint32_t i = 0; i < n->n_holes; i++) {
		const struct weights_hole *h = &n->holes[i];
		const size_t len = strlen(n->texts[i]);
		size_t digits;

		if (strncmp(*s, n->texts[i], len) != 0)
			return WEIGHTS_NO;
		*s += len;
		digits = strspn(*s, "0123456789");
		if ((**s == '0' && digits > 1) ||
		    !rsh_number_read(*s, digits, &numbers[i]))
			return WEIGHTS_NO;
		*s += digits;
		if (h->least_name && !h->least_known)
			fit = WEIGHTS_UNKNOWN;
		if (numbers[i] < h->least)
			return WEIGHTS_NO;
		numbers[i] -= h->least;
	}
	return fit;
}

enum weights_fit weights_fit(const struct weights_name *n, const char *s,
			     uint64_t *numbers)
{
	const enum weights_fit fit = weights_fit_holes(n, &s, numbers);

	return fit == WEIGHTS_NO || strcmp(s, n->texts[n->n_holes]) != 0 ?
		WEIGHTS_NO : fit;
}

enum weights_fit weights_fit_begin(const struct weights_name *n, const char *s,
				   uint64_t *numbers)
{
	const enum weights_fit fit = weights_fit_holes(n, &s, numbers);

	return fit == WEIGHTS_YES && (*s == '.' || !*s) ? fit : WEIGHTS_NO;
}

bool weights_is_below(const struct weights_name *n, const char *path)
{
	for (uint32_t i = 0; i <= n->n_holes; i++) {
		const char *text = n->texts[i];
		size_t digits;

		while (*text && *text == *path) {
			text++;
			path++;
		}
		digits = strspn(path, "0123456789");
		if (!*path)
			return *text == '.';
		if (*text || i == n->n_holes || digits == 0)
			return false;
		path += digits;
	}
	return false;
}

/* ---- writing ---- */

static bool weights_append(char *text, size_t *at, const char *s)
{
	const size_t len = strlen(s);

	if (len >= WEIGHTS_TEXT - *at)
		return false;
	memcpy(text + *at, s, len + 1);
	*at += len;
	return true;
}

bool weights_print(const struct weights_name *n, const uint64_t *numbers,
		   const char *before, char *text)
{
	size_t at = 0;

	if (!weights_append(text, &at, before) ||
	    !weights_append(text, &at, n->texts[0]))
		return false;
	for (uint32_t i = 0; i < n->n_holes; i++) {
		const struct weights_hole *h = &n->holes[i];
		char number[24];
		uint64_t value;

		if ((h->least_name && !h->least_known) ||
		    !rsh_add_u64(h->least, numbers[i], &value))
			return false;
		snprintf(number, sizeof(number), "%llu",
			 (unsigned long long)value);
		if (!weights_append(text, &at, number) ||
		    !weights_append(text, &at, n->texts[i + 1]))
			return false;
	}
	return true;
}

const char *weights_of_state(const struct rsh_rule_table *t, uint32_t k,
			     enum rsh_side side, const char *text)
{
	const char *prefix = t->pairs[RSH_RULE_STATE][k].side[side];
	const size_t len = strlen(prefix);

	return strncmp(text, prefix, len) == 0 ? text + len : NULL;
}

/* ---- order ---- */

int weights_by_text(const void *x, const void *y)
{
	const char *const a0 = ((const struct weights_made *)x)->text;
	const char *const b0 = ((const struct weights_made *)y)->text;
	const char *a = a0, *b = b0;

	while (*a && *b) {
		int c;

		if (weights_is_digit(*a) && weights_is_digit(*b)) {
			size_t na, nb;

			while (*a == '0' && weights_is_digit(a[1]))
				a++;
			while (*b == '0' && weights_is_digit(b[1]))
				b++;
			na = strspn(a, "0123456789");
			nb = strspn(b, "0123456789");
			c = na != nb ? (na > nb) - (na < nb) : memcmp(a, b, na);
			a += na;
			b += nb;
		} else {
			c = (unsigned char)*a - (unsigned char)*b;
			a++;
			b++;
		}
		if (c)
			return c;
	}
	/* Texts that differ only in zeros before a number are different. */
	return *a || *b ? (*a != 0) - (*b != 0) : strcmp(a0, b0);
}
