/* SPDX-License-Identifier: Apache-2.0 */
/* util/suggestion.h guesses which of several names is meant by a word with a
 * slip of the pen in it.  A guess belongs to one thread. */
#ifndef RSH_UTIL_SUGGESTION_H
#define RSH_UTIL_SUGGESTION_H

#include <stdbool.h>
#include <stddef.h>

/* Longer words, and names, are no slips of the pen. */
#define RSH_GUESS_MAX 32

struct rsh_suggestion {
	const char *best; /* the name that is meant; NULL: none is near */
	/* These are the guess's own. */
	char word[RSH_GUESS_MAX];
	size_t n;
	unsigned fewest;
};

/* Begins to look for what is meant by the first n characters of `word`. */
void rsh_suggestion_begin(struct rsh_suggestion *g, const char *word, size_t n);
/* Offers a name, which has to live as long as the guess: it becomes the best if
 * it is nearer than those before.  '-' and '_' count as the same. */
void rsh_suggestion_offer(struct rsh_suggestion *g, const char *name);

/* Writes " (did you mean NAME?)" with `before` in front of the name, or "" if
 * none is near. */
#define RSH_GUESS_BYTES 64
void rsh_suggestion_put(const struct rsh_suggestion *g, const char *before,
			char text[RSH_GUESS_BYTES]);

/* Tells whether `name` begins with the first n characters of `word`, but for
 * '-' and '_'; rsh_suggestion_same() whether it is no longer. */
bool rsh_suggestion_begins(const char *name, const char *word, size_t n);
bool rsh_suggestion_same(const char *name, const char *word, size_t n);

#endif
