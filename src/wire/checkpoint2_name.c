/* SPDX-License-Identifier: Apache-2.0 */
/* wire/checkpoint2_name.c reads the names of files, directories and slices of
 * Checkpoint 2.0. */
#include "checkpoint2_i.h"

#include <string.h>

#include "rsh/util/text.h"

#define STEP_DIGITS 8
#define SUFFIX ".safetensors"

/* Reads the digits before *end and moves *end to their start. */
static bool ck2_number_before(const char *s, size_t *end, uint32_t *out)
{
	uint64_t v = 0, unit = 1;
	size_t at = *end;

	for (; at > 0 && s[at - 1] >= '0' && s[at - 1] <= '9'; at--) {
		uint64_t digit = (uint64_t)(s[at - 1] - '0');

		if (digit && unit > UINT32_MAX)
			return false;
		v += digit * unit;
		if (unit <= UINT32_MAX)
			unit *= 10;
	}
	if (at == *end || v > UINT32_MAX)
		return false;
	*end = at;
	*out = (uint32_t)v;
	return true;
}

/* Removes the word before *end. */
static bool ck2_word_before(const char *s, size_t *end, const char *word)
{
	size_t len = strlen(word);

	if (*end < len || memcmp(s + *end - len, word, len) != 0)
		return false;
	*end -= len;
	return true;
}

bool rsh_ckpt2_name_parse(const char *name, struct rsh_ckpt2_name *out)
{
	size_t end = strlen(name);

	if (!ck2_word_before(name, &end, SUFFIX) ||
	    !ck2_number_before(name, &end, &out->of) ||
	    !ck2_word_before(name, &end, "-") ||
	    !ck2_number_before(name, &end, &out->rank))
		return false;
	out->opt = ck2_word_before(name, &end, "opt-");
	if (!out->opt && !ck2_word_before(name, &end, "model-"))
		return false;
	out->n_prefix = 0;
	if (end == 0)
		return true;
	out->n_prefix = end - 1;
	return end > 1 && name[end - 1] == '-';
}

bool rsh_ckpt2_step_parse(const char *name, uint64_t *step)
{
	const size_t before = strlen(RSH_CKPT2_STEP), n = strlen(name);

	/* Numbers of more than STEP_DIGITS digits are not padded with zeros. */
	return rsh_number_after(RSH_CKPT2_STEP, name, n, step) &&
	       (n == before + STEP_DIGITS ||
		(n > before + STEP_DIGITS && name[before] != '0'));
}

bool rsh_ckpt2_is_metadata(const void *data, size_t len)
{
	static const char *const keys[] = { "\"state_dict_metadata\"",
					    "\"storage_data\"" };
	const char *p = data, *end = p + len;
	bool open = false;

	for (; p < end && (memchr(" \t\r\n", *p, 4) || (*p == '{' && !open));
	     p++)
		open |= *p == '{';
	for (size_t i = 0; i < 2; i++)
		if (open && (size_t)(end - p) >= strlen(keys[i]) &&
		    !memcmp(p, keys[i], strlen(keys[i])))
			return true;
	return false;
}

/* ---- slices ---- */

/* Reads the characters after a backslash.  Returns their number of bytes;
 * returns 0 if Python does not write such an escape. */
static size_t ck2_escape(const char *p, const char *end, uint32_t *c)
{
	static const char letters[] = "\\'\"nrt", plain[] = "\\'\"\n\r\t";
	const char *found = p < end && *p ? strchr(letters, *p) : NULL;
	size_t n;

	if (found) {
		*c = (unsigned char)plain[found - letters];
		return 1;
	}
	n = p == end ? 0 : *p == 'x' ? 2 : *p == 'u' ? 4 : *p == 'U' ? 8 : 0;
	if (!n || !rsh_json_hex(p + 1, end, n, c) || !*c || *c > 0x10ffff)
		return 0;
	return n + 1;
}

/* Reverses the escapes of Python's repr() in a string. */
static bool ck2_unescape(struct json_string *text)
{
	const char *p = memchr(text->s, '\\', text->len);
	const char *end = text->s + text->len;
	char *to = p ? text->s + (p - text->s) : NULL;

	if (!p)
		return true;
	while (p < end) {
		uint32_t c;
		size_t n;

		if (*p != '\\') {
			*to++ = *p++;
			continue;
		}
		n = ck2_escape(p + 1, end, &c);
		if (!n)
			return false;
		to += rsh_utf8_put(to, c);
		p += 1 + n;
	}
	text->len = (size_t)(to - text->s);
	return true;
}

bool rsh_ckpt2_key_parse(const struct json_string *key,
			 struct json_string *name, uint32_t *slice)
{
	const char *s = key->s;
	size_t end = key->len;

	if (!ck2_word_before(s, &end, ",))") ||
	    !ck2_number_before(s, &end, slice) ||
	    !ck2_word_before(s, &end, ", (") || end < 3 || s[0] != '(' ||
	    (s[1] != '\'' && s[1] != '"') || s[end - 1] != s[1])
		return false;
	*name = (struct json_string){ key->s + 2, end - 3 };
	return ck2_unescape(name);
}

bool rsh_tracker_parse(const char *text, uint64_t *step)
{
	static const char blanks[] = " \t\r\n";
	size_t n;

	text += strspn(text, blanks);
	n = rsh_count_digits(text, strlen(text));
	return !text[n + strspn(text + n, blanks)] &&
	       rsh_number_read(text, n, step);
}
