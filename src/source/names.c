/* SPDX-License-Identifier: Apache-2.0 */
/* source/names.c parses numbers, ranks and steps in the names of
 * checkpoints. */
#include "config.h"

#include "rsh/source/step.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "rsh/util/text.h"

#define BREAKPOINT_SUFFIX "_breakpoint"

/* Parses the digits that end at s[*end], and moves *end before them. */
static bool name_number_before(const char *s, size_t *end, uint64_t *out)
{
	size_t start = *end;

	while (start > 0 && isdigit((unsigned char)s[start - 1]))
		start--;
	if (!rsh_number_read(s + start, *end - start, out))
		return false;
	*end = start;
	return true;
}

static bool name_char_before(const char *s, size_t *end, char c)
{
	return *end > 0 && s[*end - 1] == c && (*end)--;
}

static bool name_ends_in(const char *s, size_t n, const char *tail)
{
	size_t k = strlen(tail);

	return n >= k && memcmp(s + n - k, tail, k) == 0;
}

/* Returns whether a name ends before `at` with the word for another rank than
 * that of a process: "lora_rank16", "low-rank-8". */
static bool rank_is_of_matrix(const char *name, size_t at)
{
	static const char *const words[] = { "lora", "low" };
	size_t n = at;

	if (n > 0 && !isalnum((unsigned char)name[n - 1]))
		n--;
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		const size_t k = strlen(words[i]);

		if (n >= k && strncasecmp(name + n - k, words[i], k) == 0 &&
		    (n == k || !isalpha((unsigned char)name[n - k - 1])))
			return true;
	}
	return false;
}

bool rsh_rank_in_name(const char *name, size_t n, size_t *begin, size_t *end)
{
	static const char word[] = "rank";
	const size_t k = sizeof(word) - 1;
	uint64_t unused;

	for (size_t i = 0; i + k < n; i++) {
		if (strncasecmp(name + i, word, k) != 0 ||
		    (i > 0 && isalpha((unsigned char)name[i - 1])) ||
		    rank_is_of_matrix(name, i))
			continue;
		*begin = i + k;
		*begin += name[*begin] == '_' || name[*begin] == '-';
		*end = *begin + rsh_count_digits(name + *begin, n - *begin);
		if (rsh_number_read(name + *begin, *end - *begin, &unused))
			return true;
	}
	return false;
}

bool rsh_rank_dir_is(const char *name, size_t n)
{
	const size_t k = strlen("rank_");

	return n > k && rsh_count_digits(name + k, n - k) == n - k &&
	       (strncmp(name, "rank_", k) == 0 ||
		strncmp(name, "ckpt_", k) == 0);
}

bool rsh_rank_dir_may_be(const char *name, size_t n)
{
	static const char *const words[] = { "rank", "device", "card", "npu" };

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		size_t k = strlen(words[i]);

		if (n <= k || strncasecmp(name, words[i], k) != 0)
			continue;
		k += name[k] == '_' || name[k] == '-';
		if (k < n && rsh_count_digits(name + k, n - k) == n - k)
			return true;
	}
	return false;
}

size_t rsh_modelcheckpoint_read(const char *name, size_t n, uint32_t rank,
				struct rsh_step *out)
{
	size_t end, at;
	uint64_t k;

	out->breakpoint = name_ends_in(name, n, BREAKPOINT_SUFFIX);
	if (out->breakpoint)
		n -= strlen(BREAKPOINT_SUFFIX);
	end = n;
	out->n = name_number_before(name, &end, &out->numbers[1]) &&
		 name_char_before(name, &end, '_') &&
		 name_number_before(name, &end, &out->numbers[0]) &&
		 name_char_before(name, &end, '-') ? 2 : 0;
	out->run = 0;
	if (out->n == 0) {
		out->numbers[0] = out->numbers[1] = 0;
		return n;
	}
	/* The _<K> of a run may be the rank instead. */
	at = end;
	if (!name_number_before(name, &at, &k) ||
	    !name_char_before(name, &at, '_') ||
	    ((k == rank || rank == RSH_RANK_UNKNOWN) &&
	     name_ends_in(name, at, "rank")))
		return end;
	out->run = k;
	return at;
}

static bool name_number_at(const char **s, uint64_t *out)
{
	size_t n = rsh_count_digits(*s, strlen(*s));
	bool is = rsh_number_read(*s, n, out);

	*s += n;
	return is;
}

bool rsh_power_off_read(const char *name, uint64_t *epoch, uint64_t *step,
			bool *complete)
{
	const char stem[] = "_saved_checkpoints-", form[] = "step_";

	if (strncmp(name, "tft", 3) != 0 && strncmp(name, "ttp", 3) != 0)
		return false;
	if (strncmp(name + 3, stem, strlen(stem)) != 0)
		return false;
	name += 3 + strlen(stem);
	*epoch = 0;
	if (strncmp(name, form, strlen(form)) == 0)
		name += strlen(form);
	else if (!name_number_at(&name, epoch) || *name++ != '_')
		return false;
	if (!name_number_at(&name, step))
		return false;
	*complete = *name == '\0';
	return *complete || strcmp(name, "_tmp") == 0;
}

/* Returns whether the number at name[at] is behind a word for a step. */
static bool step_has_word(const char *name, size_t at)
{
	static const char *const words[] = {
		"step", "iter", "iteration", "epoch",
	};

	if (at > 0 && strchr("_-=", name[at - 1]))
		at--;
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		const size_t k = strlen(words[i]);
		const char *word = name + at - k;

		/* In "trainStep5" the capital letter begins a word. */
		if (at >= k && strncasecmp(word, words[i], k) == 0 &&
		    (at == k || !isalpha((unsigned char)word[-1]) ||
		     (isupper((unsigned char)*word) &&
		      islower((unsigned char)word[-1]))))
			return true;
	}
	return false;
}

/* Adds a number behind those of its kind. */
static void step_add(struct rsh_step *s, uint64_t number, bool has_word)
{
	const unsigned at = has_word ? s->n_words++ : s->n;

	memmove(&s->numbers[at + 1], &s->numbers[at],
		(s->n - at) * sizeof(*s->numbers));
	s->numbers[at] = number;
	s->n++;
}

void rsh_step_name_read(const char *name, size_t n, struct rsh_step_name *out)
{
	size_t rank_begin = n, rank_end = n, i = 0;
	char *to = out->series;
	struct rsh_step *s = &out->step;

	rsh_rank_in_name(name, n, &rank_begin, &rank_end);
	while (i < n) {
		size_t digits = rsh_count_digits(name + i, n - i);
		uint64_t number;

		if (digits > 0 && i != rank_begin &&
		    (s->n == RSH_STEP_NUMBERS_MAX ||
		     !rsh_number_read(name + i, digits, &number))) {
			to = mempcpy(to, name + i, digits);
			i += digits;
			continue;
		}
		if (digits > 0 && i != rank_begin)
			step_add(s, number, step_has_word(name, i));
		*to++ = digits ? '#' : name[i];
		i += digits ? digits : 1;
	}
	strcpy(to, name + n); /* the suffix is part of the series */
	strcpy(out->label, name);
	out->n_stem = n;
}
