/* SPDX-License-Identifier: Apache-2.0 */
/* util/suggestion.c counts typing errors between words (Damerau's distance). */
#include "rsh/util/suggestion.h"

#include <stdio.h>
#include <string.h>

#include "rsh/util/checked.h"

static char normal_letter(char c)
{
	return c == '_' ? '-' : c;
}

static void copy_normalized(char to[RSH_SUGGESTION_MAX], const char *from, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] = normal_letter(from[i]);
	to[n] = '\0';
}

/* Counts letters that were omitted, inserted, replaced, or swapped with their
 * neighbours. */
static unsigned count_errors(const char *a, size_t n, const char *b, size_t m)
{
	unsigned d[RSH_SUGGESTION_MAX][RSH_SUGGESTION_MAX];

	for (size_t i = 0; i <= n; i++)
		d[i][0] = (unsigned)i;
	for (size_t j = 0; j <= m; j++)
		d[0][j] = (unsigned)j;
	for (size_t i = 1; i <= n; i++)
		for (size_t j = 1; j <= m; j++) {
			d[i][j] = (unsigned)rsh_min_u64(
				d[i - 1][j - 1] + (a[i - 1] != b[j - 1]),
				1 + (unsigned)rsh_min_u64(d[i - 1][j], d[i][j - 1]));
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] &&
			    a[i - 2] == b[j - 1])
				d[i][j] = (unsigned)rsh_min_u64(d[i][j],
						      d[i - 2][j - 2] + 1);
		}
	return d[n][m];
}

void rsh_suggestion_begin(struct rsh_suggestion *g, const char *word, size_t n)
{
	*g = (struct rsh_suggestion){
		/* A short word with several errors has little in common with
		 * it. */
		.fewest = n < 3 ? 1 : n < 6 ? 2 : 3,
		.n = n < RSH_SUGGESTION_MAX ? n : 0,
	};
	copy_normalized(g->word, word, g->n);
}

void rsh_suggestion_offer(struct rsh_suggestion *g, const char *name)
{
	const size_t m = strlen(name);
	char other[RSH_SUGGESTION_MAX];
	unsigned errors;

	if (g->n < 2 || m >= RSH_SUGGESTION_MAX)
		return;
	copy_normalized(other, name, m);
	errors = count_errors(g->word, g->n, other, m);
	if (strncmp(other, g->word, g->n) == 0)
		errors = 0; /* the beginning of the name */
	if (errors < g->fewest + !g->best) {
		g->fewest = errors;
		g->best = name;
	}
}

void rsh_suggestion_put(const struct rsh_suggestion *g, const char *before,
			char text[RSH_SUGGESTION_BYTES])
{
	*text = '\0';
	if (g->best)
		snprintf(text, RSH_SUGGESTION_BYTES, " (did you mean %s%s?)",
			 before, g->best);
}

bool rsh_suggestion_begins(const char *name, const char *word, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!name[i] || normal_letter(name[i]) != normal_letter(word[i]))
			return false;
	return true;
}

bool rsh_suggestion_same(const char *name, const char *word, size_t n)
{
	return strlen(name) == n && rsh_suggestion_begins(name, word, n);
}
