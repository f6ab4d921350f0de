/* SPDX-License-Identifier: Apache-2.0 */
/* util/text.c escapes characters that mislead a terminal or a reader, formats
 * texts, and reads UTF-8 and numbers. */
#include "rsh/util/text.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/mem.h"

/* A character has at most 4 bytes, each of which may become "\xNN". */
#define UNIT_MAX 16

size_t rsh_utf8_decode(const char *s, size_t avail, uint32_t *out)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	const unsigned char lead = (unsigned char)*s;
	size_t n = lead < 0x80 ? 1 : lead >> 5 == 6 ? 2 : lead >> 4 == 14 ? 3 :
		   lead >> 3 == 30 ? 4 : 0;
	uint32_t c = n == 1 ? lead : lead & (0x7fu >> n);

	if (n > avail)
		return 0;
	for (size_t i = 1; i < n; i++) {
		if (((unsigned char)s[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | ((unsigned char)s[i] & 0x3f);
	}
	*out = c;
	return n && c >= least[n] && c <= 0x10ffff && c >> 11 != 0x1b ? n : 0;
}

/* Returns whether a character is invisible or changes how its neighbours are
 * shown. */
static bool misleads(uint32_t c)
{
	static const struct {
		uint32_t first, last;
	} ranges[] = {
		{ 0x00, 0x1f }, { 0x7f, 0x9f }, { 0xad, 0xad },
		{ 0x61c, 0x61c }, { 0x180e, 0x180e }, { 0x200b, 0x200f },
		{ 0x2028, 0x202e }, { 0x2060, 0x206f }, { 0xfeff, 0xfeff },
		{ 0xfff9, 0xfffb }, { 0xe0000, 0xe007f },
	};

	return rsh_any(i, sizeof(ranges) / sizeof(ranges[0]),
		       c >= ranges[i].first && c <= ranges[i].last);
}

/* Escapes one character of *s, or one byte that is not UTF-8, and moves *s
 * behind it.  Returns the length of the result. */
static size_t text_put_unit(char to[UNIT_MAX + 1], const char **s)
{
	uint32_t c = 0;
	size_t n = rsh_utf8_decode(*s, UNIT_MAX, &c), length = 0;

	if (n && c == '\\') {
		length = (size_t)sprintf(to, "\\\\");
	} else if (n && !misleads(c)) {
		memcpy(to, *s, n);
		length = n;
	} else {
		for (size_t i = 0; i < (n ? n : 1); i++)
			length += (size_t)sprintf(to + length, "\\x%02x",
						  (unsigned char)(*s)[i]);
	}
	*s += n ? n : 1;
	return length;
}

char *rsh_text_put(char *to, size_t size, const char *s)
{
	static const char dots[] = "...";
	size_t at = 0, cut = 0;

	while (*s) {
		char unit[UNIT_MAX + 1];
		size_t n = text_put_unit(unit, &s);

		if (at + n >= size) {
			at = cut;
			n = sizeof(dots) - 1;
			memcpy(unit, dots, n);
			s = "";
		}
		memcpy(to + at, unit, n);
		at += n;
		if (at + sizeof(dots) <= size)
			cut = at;
	}
	to[at] = '\0';
	return to;
}

char *rsh_text_escape(const char *s)
{
	const size_t size = strlen(s) * strlen("\\xNN") + 1;
	char *text = malloc(size);

	return text ? rsh_text_put(text, size, s) : NULL;
}

/* Writes a character as JSON does: in UTF-16. */
static char *put_json(char *to, uint32_t c)
{
	if (c < 0x10000)
		return to + sprintf(to, "\\u%04x", c);
	c -= 0x10000;
	return to + sprintf(to, "\\u%04x\\u%04x", 0xd800 + (c >> 10),
			    0xdc00 + (c & 0x3ff));
}

char *rsh_text_json(const char *json)
{
	/* DEL grows most: its one byte becomes six. */
	char *text = rsh_alloc_array(strlen(json) + 1, strlen("\\uNNNN"));
	char *to = text;
	uint32_t c = 0;

	while (text && *json) {
		size_t n = rsh_utf8_decode(json, UNIT_MAX, &c);

		/* Control characters below DEL are white space between strings
		 * of JSON. */
		if (n && c >= 0x7f && misleads(c)) {
			to = put_json(to, c);
		} else {
			n = n ? n : 1;
			to = mempcpy(to, json, n);
		}
		json += n;
	}
	if (text)
		*to = '\0';
	return text;
}

char *rsh_text_format(const char *fmt, ...)
{
	va_list args;
	char *text;
	int n;

	va_start(args, fmt);
	n = vasprintf(&text, fmt, args);
	va_end(args);
	return n < 0 ? NULL : text;
}

void rsh_text_add(char *text, size_t size, size_t *at, const char *fmt, ...)
{
	va_list args;
	int n;

	if (*at >= size)
		return;
	va_start(args, fmt);
	n = vsnprintf(text + *at, size - *at, fmt, args);
	va_end(args);
	*at += n > 0 ? (size_t)n : 0;
}

char *rsh_text_hex(char *to, const uint8_t *bytes, size_t n)
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < n; i++) {
		*to++ = digits[bytes[i] >> 4];
		*to++ = digits[bytes[i] & 15];
	}
	*to = '\0';
	return to;
}

bool rsh_digits_read(const char *digits, size_t n, uint64_t max, uint64_t *out)
{
	uint64_t v = 0;

	for (size_t i = 0; i < n; i++)
		if (digits[i] < '0' || digits[i] > '9' ||
		    __builtin_mul_overflow(v, 10, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(digits[i] - '0'), &v))
			return false;
	*out = v;
	return n > 0 && v <= max;
}

bool rsh_number_after(const char *prefix, const char *name, size_t n,
		      uint64_t *out)
{
	const size_t before = strlen(prefix);

	return n > before && strncmp(name, prefix, before) == 0 &&
	       rsh_number_read(name + before, n - before, out);
}

size_t rsh_count_digits(const char *s, size_t n)
{
	size_t i = 0;

	while (i < n && s[i] >= '0' && s[i] <= '9')
		i++;
	return i;
}

bool rsh_is_word_of(const char *text, bool begins, const char *const *words)
{
	for (; *words; words++)
		if (begins ? strncmp(text, *words, strlen(*words)) == 0 :
			     strcmp(text, *words) == 0)
			return true;
	return false;
}

int rsh_word_place(const char *list, const char *between, const char *text,
		   size_t n)
{
	for (int i = 0; list; i++) {
		const size_t length = strcspn(list, between);

		if (length == n && memcmp(list, text, n) == 0)
			return i;
		list = list[length] ? list + length + 1 : NULL;
	}
	return -1;
}
