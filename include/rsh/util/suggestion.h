/* SPDX-License-Identifier: Apache-2.0 */
/* util/suggestion.h - finds the known name that a mistyped word is closest to.
 * One thread at a time uses a suggestion. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Longer words and names get no suggestion. */
#define RSH_SUGGESTION_MAX 32

struct rsh_suggestion {
	const char *best; /* the closest name; NULL: none is close */
	/* The rest is private. */
	char word[RSH_SUGGESTION_MAX];
	size_t n;
	unsigned fewest; /* typing errors of `best` */
};

/* Begins with the first n characters of `word`. */
void rsh_suggestion_begin(struct rsh_suggestion *g, const char *word, size_t n);
/* Offers a name, which must outlive the suggestion.  '-' and '_' count as
 * equal. */
void rsh_suggestion_offer(struct rsh_suggestion *g, const char *name);

/* Writes " (did you mean NAME?)" with `before` in front of the name, or "" if
 * no name is close. */
#define RSH_SUGGESTION_BYTES 64
void rsh_suggestion_put(const struct rsh_suggestion *g, const char *before,
			char text[RSH_SUGGESTION_BYTES]);

/* Returns whether `name` begins with the first n characters of `word`, where
 * '-' and '_' count as equal; rsh_suggestion_same(): and is no longer. */
bool rsh_suggestion_begins(const char *name, const char *word, size_t n);
bool rsh_suggestion_same(const char *name, const char *word, size_t n);
