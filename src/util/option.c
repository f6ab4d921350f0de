/* SPDX-License-Identifier: Apache-2.0 */
/* util/option.c has setters of options, which check a usual value and store
 * it. */
#include "config.h"

#include "rsh/util/option.h"

#include <errno.h>
#include <string.h>

#include "rsh/util/mem.h"
#include "rsh/util/memory_limits.h"
#include "rsh/util/pattern.h"
#include "rsh/util/text.h"

int rsh_set_nothing(const struct rsh_setting *s)
{
	(void)s;
	return 0;
}

int rsh_set_flag(const struct rsh_setting *s)
{
	*(bool *)s->to = true;
	return 0;
}

int rsh_set_text(const struct rsh_setting *s)
{
	const struct rsh_option *def = s->def;
	int rc = 0;

	if (def->none && strcmp(s->value, def->none) == 0) {
		*(const char **)s->to = NULL;
		return 0;
	}
	if (!*s->value && !def->may_be_empty)
		return rsh_error_set(s->err, EINVAL, "%s: the value is empty",
				     def->name);
	if (def->check)
		rc = def->check(s->value, s->err);
	if (rc == 0)
		*(const char **)s->to = s->value;
	return rc;
}

int rsh_set_regex(const struct rsh_setting *s)
{
	cleanup_free char *what = rsh_text_format("%s:", s->def->name);
	regex_t re;
	int rc = what ? rsh_pattern_compile(&re, what, s->value, s->err) :
			rsh_error_nomem(s->err);

	if (rc)
		return rc;
	regfree(&re);
	return rsh_set_text(s);
}

int rsh_set_number(const struct rsh_setting *s)
{
	const struct rsh_option *def = s->def;
	uint64_t n;

	if (!rsh_digits_read(s->value, strlen(s->value), def->max, &n) ||
	    n < def->min)
		return rsh_error_set(s->err, EINVAL, "%s: \"%s\" is not a "
				     "number from %u to %u", def->name,
				     s->value, def->min, def->max);
	*(unsigned *)s->to = (unsigned)n * (def->unit ? def->unit : 1);
	return 0;
}

/* ---- words ---- */

int rsh_option_word(const struct rsh_setting *s)
{
	return rsh_word_place(s->def->arg, "|", s->value, strlen(s->value));
}

void rsh_words_put(char *to, size_t size, const char *before,
		   const char *words)
{
	size_t at = 0;

	*to = '\0';
	rsh_text_add(to, size, &at, "%s", before);
	for (; *words; words++)
		if (*words == '|')
			rsh_text_add(to, size, &at, "%s%s",
				     strchr(words + 1, '|') ? ", " : " or ",
				     before);
		else
			rsh_text_add(to, size, &at, "%c", *words);
}

int rsh_option_refuse_word(const struct rsh_setting *s)
{
	char words[128];

	rsh_words_put(words, sizeof(words), "", s->def->arg);
	return rsh_error_set(s->err, EINVAL, "%s: \"%s\" is not %s",
			     s->def->name, s->value, words);
}

int rsh_set_word(const struct rsh_setting *s)
{
	const struct rsh_option *def = s->def;
	const int i = rsh_option_word(s);
	unsigned n;

	if (i < 0)
		return rsh_option_refuse_word(s);
	n = def->values ? def->values[i] : def->min + (unsigned)i;
	if (def->size == sizeof(bool))
		*(bool *)s->to = n;
	else
		*(unsigned *)s->to = n;
	return 0;
}

/* ---- bytes ---- */

/* 5GB are 5 * 1000^3 bytes, as in Hugging Face's tools; 5G and 5GiB are 5 *
 * 1024^3. */
static bool parse_bytes(const char *value, uint64_t *bytes)
{
	static const char prefixes[] = "KMGT";
	const size_t digits = rsh_count_digits(value, strlen(value));
	const char *end = value + digits;
	const char *prefix = *end ? strchr(prefixes, *end) : NULL;
	const bool decimal = prefix && strcmp(end + 1, "B") == 0;
	uint64_t n, unit = 1;

	if (!rsh_number_read(value, digits, &n) || (*end && !prefix) ||
	    (prefix && end[1] && !decimal && strcmp(end + 1, "iB") != 0))
		return false;
	for (const char *p = prefixes; prefix && p <= prefix; p++)
		unit *= decimal ? 1000 : 1024;
	return !__builtin_mul_overflow(n, unit, bytes);
}

int rsh_set_size(const struct rsh_setting *s)
{
	const size_t digits = rsh_count_digits(s->value, strlen(s->value));
	uint64_t *bytes = s->to, percent;

	if (strchr(s->def->arg, '%') && strcmp(s->value + digits, "%") == 0 &&
	    rsh_number_read(s->value, digits, &percent)) {
		if (percent > 100)
			return rsh_error_set(s->err, EINVAL, "%s: \"%s\" is "
					     "more than 100%%", s->def->name,
					     s->value);
		*bytes = rsh_physical_memory() / 100 * percent;
		return 0;
	}
	if (parse_bytes(s->value, bytes) && *bytes >= s->def->min)
		return 0;
	return rsh_error_set(s->err, EINVAL, "%s: \"%s\" is not a size such as "
			     "5GB or 500MiB", s->def->name, s->value);
}
