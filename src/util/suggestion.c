/* SPDX-License-Identifier: Apache-2.0 */
/* util/suggestion.c counts slips of the pen between words. */
#include "rsh/util/suggestion.h"

#include <stdio.h>
#include <string.h>

static unsigned guess_least(unsigned a, unsigned b)
{
	return a < b ? a : b;
}

static char guess_letter(char c)
{
	return c == '_' ? '-' : c;
}

static void guess_copy(char to[RSH_GUESS_MAX], const char *from, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] = guess_letter(from[i]);
	to[n] = '\0';
}

/* Counts the letters that were left out, put in, exchanged for others or for
 * their neighbours. */
static unsigned guess_slips(const char *a, size_t n, const char *b, size_t m)
{
	unsigned d[RSH_GUESS_MAX][RSH_GUESS_MAX];

	for (size_t i = 0; i <= n; i++)
		d[i][0] = (unsigned)i;
	for (size_t j = 0; j <= m; j++)
		d[0][j] = (unsigned)j;
	for (size_t i = 1; i <= n; i++)
		for (size_t j = 1; j <= m; j++) {
			d[i][j] = guess_least(
				d[i - 1][j - 1] + (a[i - 1] != b[j - 1]),
				1 + guess_least(d[i - 1][j], d[i][j - 1]));
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] &&
			    a[i - 2] == b[j - 1])
				d[i][j] = guess_least(d[i][j],
						      d[i - 2][j - 2] + 1);
		}
	return d[n][m];
}

void rsh_suggestion_begin(struct rsh_suggestion *g, const char *word, size_t n)
{
	*g = (struct rsh_suggestion){
		/* After a few slips little is left of a short word. */
		.fewest = n < 3 ? 1 : n < 6 ? 2 : 3,
		.n = n < RSH_GUESS_MAX ? n : 0,
	};
	guess_copy(g->word, word, g->n);
}

void rsh_suggestion_offer(struct rsh_suggestion *g, const char *name)
{
	const size_t m = strlen(name);
	char other[RSH_GUESS_MAX];
	unsigned slips;

	if (g->n < 2 || m >= RSH_GUESS_MAX)
		return;
	guess_copy(other, name, m);
	slips = guess_slips(g->word, g->n, other, m);
	if (strncmp(other, g->word, g->n) == 0)
		slips = 0; /* the word only was not ended */
	if (slips < g->fewest + !g->best) {
		g->fewest = slips;
		g->best = name;
	}
}

void rsh_suggestion_put(const struct rsh_suggestion *g, const char *before,
			char text[RSH_GUESS_BYTES])
{
	*text = '\0';
	if (g->best)
		snprintf(text, RSH_GUESS_BYTES, " (did you mean %s%s?)",
			 before, g->best);
}

bool rsh_suggestion_begins(const char *name, const char *word, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!name[i] || guess_letter(name[i]) != guess_letter(word[i]))
			return false;
	return true;
}

bool rsh_suggestion_same(const char *name, const char *word, size_t n)
{
	return strlen(name) == n && rsh_suggestion_begins(name, word, n);
}
