/* SPDX-License-Identifier: Apache-2.0 */
/* source/template.c matches names with templates that have "{rank}", '*' and
 * '?' in them. */
#include "config.h"

#include "source_i.h"

#include <ctype.h>
#include <string.h>

#define RANK_MARK "{rank}"

bool rsh_template_is_plain(const char *t, size_t n)
{
	return !memchr(t, '*', n) && !memchr(t, '?', n) &&
	       !rsh_template_has_rank(t, n);
}

bool rsh_template_has_rank(const char *t, size_t n)
{
	return memmem(t, n, RANK_MARK, strlen(RANK_MARK)) != NULL;
}

/* Reads the digits at s as a rank.  NULL if there are none or they are no rank,
 * else what follows them. */
static const char *template_read_rank(const char *s, uint32_t *rank)
{
	uint64_t v = 0;

	if (!isdigit((unsigned char)*s))
		return NULL;
	for (; isdigit((unsigned char)*s); s++) {
		v = v * 10 + (uint64_t)(*s - '0');
		if (v >= RSH_RANK_UNKNOWN)
			return NULL;
	}
	*rank = (uint32_t)v;
	return s;
}

static bool template_match(const char *t, const char *end, const char *s,
			   uint32_t *rank);

static bool template_match_rank(const char *t, const char *end, const char *s,
				uint32_t *rank)
{
	uint32_t found;

	s = template_read_rank(s, &found);
	if (!s || (*rank != RSH_RANK_UNKNOWN && *rank != found))
		return false;
	*rank = found;
	return template_match(t, end, s, rank);
}

static bool template_match_any(const char *t, const char *end, const char *s,
			       uint32_t *rank)
{
	for (;; s++) {
		uint32_t tried = *rank;

		if (template_match(t, end, s, &tried)) {
			*rank = tried;
			return true;
		}
		if (!*s)
			return false;
	}
}

static bool template_match(const char *t, const char *end, const char *s,
			   uint32_t *rank)
{
	const size_t n_mark = strlen(RANK_MARK);

	for (; t < end; t++, s++) {
		if ((size_t)(end - t) >= n_mark &&
		    memcmp(t, RANK_MARK, n_mark) == 0)
			return template_match_rank(t + n_mark, end, s, rank);
		if (*t == '*')
			return template_match_any(t + 1, end, s, rank);
		if (!*s || (*t != '?' && *t != *s))
			return false;
	}
	return !*s;
}

bool rsh_template_match(const char *t, size_t n, const char *name,
			uint32_t *rank)
{
	uint32_t found = *rank;

	if (!template_match(t, t + n, name, &found))
		return false;
	*rank = found;
	return true;
}
