/* SPDX-License-Identifier: Apache-2.0 */
/* source/resume_name.c - numbers in the names of checkpoints. */
#include "config.h"

#include "resume_i.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/mem.h"

size_t rsh_stem_length(const char *name, const char *suffix)
{
	return strlen(name) - strlen(suffix);
}

static size_t digits_end(const char *name, size_t n, size_t begin)
{
	while (begin < n && isdigit((unsigned char)name[begin]))
		begin++;
	return begin;
}

bool rsh_rank_in_name(const char *name, size_t n, size_t *begin, size_t *end)
{
	static const char word[] = "rank";
	const size_t k = sizeof(word) - 1;

	for (size_t i = 0; i + k < n; i++) {
		if (strncasecmp(name + i, word, k) != 0 ||
		    (i > 0 && isalpha((unsigned char)name[i - 1])))
			continue;
		*begin = i + k;
		*begin += name[*begin] == '_' || name[*begin] == '-';
		*end = digits_end(name, n, *begin);
		if (*end > *begin)
			return true;
	}
	return false;
}

/* False if there is no room for it, or it is too large: then it stays text. */
static bool take_number(struct rsh_saved *out, const char *s, size_t n)
{
	uint64_t v = 0;

	if (out->n_numbers == RSH_STEP_NUMBERS_MAX)
		return false;
	for (size_t i = 0; i < n; i++)
		if (__builtin_mul_overflow(v, 10, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(s[i] - '0'), &v))
			return false;
	out->numbers[out->n_numbers++] = v;
	return true;
}

int rsh_number_name(struct rsh_job *job, const char *name, size_t n,
		    struct rsh_saved *out)
{
	size_t rank_begin = n, rank_end = n, i = 0;
	char *series = rsh_arena_alloc(&job->arena, strlen(name) + 1, 1);
	char *to = series;

	if (!series)
		return -ENOMEM;
	rsh_rank_in_name(name, n, &rank_begin, &rank_end);
	while (i < n) {
		size_t end = digits_end(name, n, i);

		if (end > i && (i == rank_begin ||
				take_number(out, name + i, end - i))) {
			*to++ = '#';
			i = end;
		} else {
			do
				*to++ = name[i++];
			while (i < end);
		}
	}
	stpcpy(to, name + n); /* the suffix belongs to the series */
	out->series = series;
	return 0;
}

char *rsh_job_printf(struct rsh_job *job, const char *fmt, ...)
{
	cleanup_free char *text = NULL;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&text, fmt, ap);
	va_end(ap);
	if (n < 0) {
		text = NULL;
		return NULL;
	}
	return rsh_arena_strndup(&job->arena, text, (size_t)n);
}
