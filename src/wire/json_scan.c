/* SPDX-License-Identifier: Apache-2.0 */
/* wire/json_scan.c reads JSON through a window of 1 MiB.
 *
 * A tree in memory would be several times as large as the file.  Parsers that
 * call a function for every token (yajl: some 150 MB/s) take longer for a large
 * metadata.json than the whole mount should take.  Here no memory is allocated
 * for a token, and strings and numbers are read in place.  The NUL after the
 * window ends every inner loop, so a loop needs only one comparison for each
 * byte. */
#include "config.h"

#include "json_scan_i.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/checked.h"
#include "rsh/wire/bytes.h"

#define WINDOW_BYTES ((size_t)1024 * 1024)
#define MAX_STRING_BYTES ((size_t)64 * 1024)
#define MAX_NUMBER_BYTES ((size_t)32)
#define MAX_DEPTH 32

/* ---- failures ---- */

uint64_t rsh_json_offset(const struct json_scan *s)
{
	return s->next - (uint64_t)(s->end - s->p);
}

bool rsh_json_stop(struct json_scan *s, int rc)
{
	if (s->rc)
		return false;
	s->rc = rc;
	s->p = s->end = s->window;
	*s->end = '\0';
	s->next = s->src->size;
	return false;
}

bool rsh_json_fail(struct json_scan *s, const char *fmt, ...)
{
	va_list ap;

	if (s->rc)
		return false;
	va_start(ap, fmt);
	rsh_bytes_vdamaged(s->src, s->name, rsh_json_offset(s), s->err, fmt,
			   ap);
	va_end(ap);
	return rsh_json_stop(s, -EBADMSG);
}

bool rsh_json_nomem(struct json_scan *s)
{
	return s->rc ? false : rsh_json_stop(s, rsh_error_nomem(s->err));
}

/* ---- the window ---- */

bool rsh_json_open(struct json_scan *s, const struct rsh_byte_source *src,
		   struct rsh_error *err)
{
	char *window = malloc(WINDOW_BYTES + 1);

	if (!window)
		return false;
	*s = (struct json_scan){ .src = src, .err = err, .window = window };
	rsh_json_seek(s, 0);
	return true;
}

void rsh_json_close(struct json_scan *s)
{
	free(s->window);
}

void rsh_json_seek(struct json_scan *s, uint64_t offset)
{
	if (s->rc)
		return;
	s->p = s->end = s->window;
	*s->end = '\0';
	s->next = offset;
}

/* Moves the unread bytes to the front of the window and reads more.  Returns
 * false if no more bytes were read. */
static bool js_more(struct json_scan *s)
{
	size_t kept = (size_t)(s->end - s->p), got;
	uint64_t len = rsh_min_u64(WINDOW_BYTES - kept, s->src->size - s->next);
	int rc;

	if (!len)
		return false;
	memmove(s->window, s->p, kept);
	rc = rsh_bytes_read_some(s->src, s->window + kept, len, s->next, &got,
				 s->err);
	if (rc)
		return rsh_json_stop(s, rc);
	s->p = s->window;
	s->end = s->window + kept + got;
	*s->end = '\0';
	s->next += got;
	return got > 0 || rsh_json_fail(s, "the file became shorter");
}

/* Makes n bytes readable, or fewer at the end of the file. */
static inline void js_fill(struct json_scan *s, size_t n)
{
	while ((size_t)(s->end - s->p) < n && js_more(s))
		;
}

int rsh_json_peek(struct json_scan *s)
{
	for (;;) {
		while (*s->p == ' ' || *s->p == '\n' || *s->p == '\r' ||
		       *s->p == '\t')
			s->p++;
		if (s->p < s->end)
			return (unsigned char)*s->p;
		if (!js_more(s))
			return 0;
	}
}

/* Sets an error that says what was expected here. */
static bool js_expected(struct json_scan *s, const char *what)
{
	if (rsh_json_peek(s) == 0 && s->p == s->end)
		return rsh_json_fail(s, "the file ends here, where %s is "
				     "expected", what);
	return rsh_json_fail(s, "%s is expected here", what);
}

/* ---- lists and objects ---- */

bool rsh_json_begin(struct json_scan *s, char bracket)
{
	if (rsh_json_peek(s) != bracket)
		return js_expected(s, bracket == '{' ? "an object" : "a list");
	if (++s->depth > MAX_DEPTH)
		return rsh_json_fail(s, "it is nested deeper than %d levels",
				     MAX_DEPTH);
	s->p++;
	s->fresh = true;
	return true;
}

static bool js_next(struct json_scan *s, char close)
{
	int c = rsh_json_peek(s);

	if (c == close) {
		s->p++;
		s->depth--;
		s->fresh = false;
		return false;
	}
	if (!s->fresh) {
		if (c != ',')
			return js_expected(s, close == '}' ? "',' or '}'" :
							     "',' or ']'");
		s->p++;
	}
	s->fresh = false;
	return c != 0 || js_expected(s, "more");
}

bool rsh_json_element(struct json_scan *s)
{
	return js_next(s, ']');
}

bool rsh_json_key(struct json_scan *s, struct json_string *key)
{
	if (!js_next(s, '}') || !rsh_json_string(s, key))
		return false;
	while (*s->p == ' ' || *s->p == '\n' || *s->p == '\r' ||
	       *s->p == '\t' || s->p == s->end) {
		size_t n = (size_t)(s->p - key->s);

		if (s->p++ < s->end)
			continue;
		s->p = key->s; /* so that the key is moved with the rest */
		if (!js_more(s))
			return js_expected(s, "':' after a key");
		key->s = s->p;
		s->p += n;
	}
	return *s->p++ == ':' || (s->p--, js_expected(s, "':' after a key"));
}

/* ---- strings ---- */

bool rsh_json_hex(const char *p, const char *end, size_t n, uint32_t *out)
{
	if ((size_t)(end - p) < n)
		return false;
	for (*out = 0; n; n--, p++) {
		int c = *p | 0x20;

		if (c >= '0' && c <= '9')
			*out = *out << 4 | (uint32_t)(c - '0');
		else if (c >= 'a' && c <= 'f')
			*out = *out << 4 | (uint32_t)(c - 'a' + 10);
		else
			return false;
	}
	return true;
}

/* Reads the digits after "\u", both halves of a surrogate pair.  Returns how
 * many bytes were read, 0 if they are not a character. */
static size_t js_unicode(const char *p, const char *end, uint32_t *c)
{
	uint32_t low;

	if (!rsh_json_hex(p, end, 4, c) || !*c ||
	    (*c >= 0xdc00 && *c <= 0xdfff))
		return 0;
	if (*c < 0xd800 || *c > 0xdfff)
		return 4;
	if (end - p < 10 || p[4] != '\\' || p[5] != 'u' ||
	    !rsh_json_hex(p + 6, end, 4, &low) || low < 0xdc00 || low > 0xdfff)
		return 0;
	*c = 0x10000 + ((*c - 0xd800) << 10) + (low - 0xdc00);
	return 10;
}

size_t rsh_utf8_put(char *to, uint32_t c)
{
	size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
	static const uint8_t lead[] = { 0, 0, 0xc0, 0xe0, 0xf0 };

	for (size_t i = n; i-- > 1; c >>= 6)
		to[i] = (char)(0x80 | (c & 0x3f));
	to[0] = (char)(lead[n] | c);
	return n;
}

/* Replaces the escapes in place: the characters are shorter than the
 * escapes. */
static bool js_unescape(struct json_scan *s, struct json_string *text)
{
	static const char letters[] = "\"\\/bfnrt", plain[] = "\"\\/\b\f\n\r\t";
	const char *p = text->s, *end = p + text->len;
	char *to = text->s;

	while (p < end) {
		const char *found;
		uint32_t c;
		size_t n;

		if (*p != '\\') {
			*to++ = *p++;
			continue;
		}
		found = strchr(letters, p[1]);
		if (found && *found) {
			*to++ = plain[found - letters];
			p += 2;
			continue;
		}
		n = p[1] == 'u' ? js_unicode(p + 2, end, &c) : 0;
		if (!n)
			return rsh_json_fail(s, "a string with an escape that "
				     "is not a character");
		to += rsh_utf8_put(to, c);
		p += 2 + n;
	}
	text->len = (size_t)(to - text->s);
	return true;
}

/* Finds the end of the string whose quote is at s->p.  *len is the number of
 * its bytes including that quote. */
static bool js_string_end(struct json_scan *s, size_t *len, bool *escaped)
{
	size_t i = 1;

	for (*escaped = false;; ) {
		while ((unsigned char)s->p[i] >= ' ' && s->p[i] != '"' &&
		       s->p[i] != '\\')
			i++;
		if (i > MAX_STRING_BYTES)
			return rsh_json_fail(s, "a string of more than %zu "
					     "bytes", MAX_STRING_BYTES);
		if (s->p[i] == '"')
			break;
		if (s->p[i] == '\\' && s->p + i + 1 < s->end) {
			*escaped = true;
			i += 2;
		} else if (s->p + i + (s->p[i] == '\\') < s->end) {
			return rsh_json_fail(s, "a string with a control "
					     "character");
		} else if (!js_more(s)) {
			return rsh_json_fail(s, "the file ends within this "
					     "string");
		}
	}
	*len = i;
	return true;
}

bool rsh_json_string(struct json_scan *s, struct json_string *out)
{
	bool escaped;
	size_t len = 0;

	if (rsh_json_peek(s) != '"')
		return js_expected(s, "a string");
	if (!js_string_end(s, &len, &escaped))
		return false;
	*out = (struct json_string){ s->p + 1, len - 1 };
	s->p += len + 1;
	return !escaped || js_unescape(s, out);
}

/* ---- other values ---- */

bool rsh_json_int(struct json_scan *s, int64_t lo, int64_t hi, int64_t *out)
{
	const char *p;
	bool minus;
	int64_t v = 0;

	rsh_json_peek(s);
	js_fill(s, MAX_NUMBER_BYTES);
	minus = *s->p == '-';
	p = s->p + minus;
	if (*p < '0' || *p > '9')
		return js_expected(s, "an integer");
	for (; *p >= '0' && *p <= '9'; p++)
		if (__builtin_mul_overflow(v, 10, &v) ||
		    __builtin_add_overflow(v, *p - '0', &v))
			return rsh_json_fail(s, "an integer out of range");
	if (*p == '.' || *p == 'e' || *p == 'E')
		return js_expected(s, "an integer");
	if (p - s->p >= (ptrdiff_t)MAX_NUMBER_BYTES || (minus ? -v : v) < lo ||
	    (minus ? -v : v) > hi)
		return rsh_json_fail(s, "an integer out of range");
	s->p += p - s->p;
	*out = minus ? -v : v;
	return true;
}

bool rsh_json_word(struct json_scan *s, const char *word)
{
	size_t len = strlen(word);

	if (rsh_json_peek(s) != *word)
		return false;
	js_fill(s, len);
	if ((size_t)(s->end - s->p) < len || memcmp(s->p, word, len))
		return js_expected(s, word);
	s->p += len;
	return true;
}

/* Python writes integers of any length. */
static void js_skip_number(struct json_scan *s)
{
	bool any = false;
	size_t n;

	js_fill(s, MAX_NUMBER_BYTES);
	if (s->p[0] == '-' && s->p[1] == 'I') {
		s->p++;
		rsh_json_word(s, "Infinity");
		return;
	}
	do {
		n = strspn(s->p, "+-.0123456789Ee");
		any |= n > 0;
		s->p += n;
	} while (n > 0 && s->p == s->end && js_more(s));
	if (!any)
		js_expected(s, "a value");
}

void rsh_json_skip(struct json_scan *s)
{
	struct json_string text;

	switch (rsh_json_peek(s)) {
	case '{':
		rsh_json_begin(s, '{');
		while (rsh_json_key(s, &text))
			rsh_json_skip(s);
		break;
	case '[':
		rsh_json_begin(s, '[');
		while (rsh_json_element(s))
			rsh_json_skip(s);
		break;
	case '"':
		rsh_json_string(s, &text);
		break;
	case 't':
		rsh_json_word(s, "true");
		break;
	case 'f':
		rsh_json_word(s, "false");
		break;
	case 'n':
		rsh_json_word(s, "null");
		break;
	case 'N':
		rsh_json_word(s, "NaN");
		break;
	case 'I':
		rsh_json_word(s, "Infinity");
		break;
	default:
		js_skip_number(s);
	}
}

bool rsh_json_same(struct json_scan *s, const char *text, size_t len)
{
	rsh_json_peek(s);
	js_fill(s, len);
	if (!len || (size_t)(s->end - s->p) < len || memcmp(s->p, text, len))
		return false;
	s->p += len;
	s->fresh = false;
	return true;
}

const char *rsh_json_since(const struct json_scan *s, uint64_t offset,
			   size_t *len)
{
	uint64_t n = rsh_json_offset(s) - offset;

	if (s->rc || n > (uint64_t)(s->p - s->window))
		return NULL;
	*len = (size_t)n;
	return s->p - n;
}

bool rsh_json_finish(struct json_scan *s)
{
	if (rsh_json_peek(s) || s->p < s->end)
		return rsh_json_fail(s, "there is something after the end");
	return s->rc == 0;
}
