/* SPDX-License-Identifier: Apache-2.0 */
/* wire/json_text.c writes texts and strings of JSON. */
#include "rsh/wire/json_text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/mem.h"
#include "rsh/util/text.h"

void rsh_json_text_put(struct rsh_json_text *t, const char *s, size_t len)
{
	/* The text always has room for the NUL. */
	if (t->failed || len >= SIZE_MAX - t->len ||
	    rsh_grow(&t->data, &t->cap, t->len + len + 1, 1)) {
		t->failed = true;
		return;
	}
	memcpy(t->data + t->len, s, len);
	t->len += len;
	t->data[t->len] = '\0';
}

void rsh_json_text_puts(struct rsh_json_text *t, const char *s)
{
	rsh_json_text_put(t, s, strlen(s));
}

void rsh_json_text_printf(struct rsh_json_text *t, const char *fmt, ...)
{
	cleanup_free char *text = NULL;
	va_list args;

	va_start(args, fmt);
	if (vasprintf(&text, fmt, args) < 0)
		t->failed = true;
	else
		rsh_json_text_puts(t, text);
	va_end(args);
}

void rsh_json_text_clear(struct rsh_json_text *t)
{
	free(t->data);
	*t = (struct rsh_json_text){ 0 };
}

/* ---- UTF-8 ---- */

bool rsh_is_utf8(const char *s, size_t len)
{
	uint32_t c;

	for (size_t i = 0; i < len;) {
		size_t n = rsh_utf8_decode(s + i, len - i, &c);

		if (!n)
			return false;
		i += n;
	}
	return true;
}

/* ---- strings ---- */

static void json_text_put_unit(struct rsh_json_text *t, uint32_t unit)
{
	char escape[8];

	snprintf(escape, sizeof(escape), "\\u%04" PRIx32, unit & 0xffff);
	rsh_json_text_puts(t, escape);
}

static bool needs_escape(uint32_t c, enum rsh_json_escapes escapes)
{
	if (c < 0x20 || c == '"' || c == '\\')
		return true;
	return escapes == RSH_ESCAPES_PYTHON && c > '~';
}

bool rsh_json_text_put_string(struct rsh_json_text *t, const char *s, size_t len,
			      enum rsh_json_escapes escapes)
{
	/* where the text begins that is copied without escapes */
	size_t start = 0;
	uint32_t c;

	if (!rsh_is_utf8(s, len))
		return false;
	rsh_json_text_put(t, "\"", 1);
	for (size_t i = 0, n; i < len; i += n) {
		static const char plain[] = "\"\\\b\f\n\r\t";
		static const char letters[] = "\"\\bfnrt";
		const char *found;

		n = rsh_utf8_decode(s + i, len - i, &c);
		if (!needs_escape(c, escapes))
			continue;
		rsh_json_text_put(t, s + start, i - start);
		found = c && c < 0x80 ? strchr(plain, (int)c) : NULL;
		if (found) {
			char escape[2] = { '\\', letters[found - plain] };

			rsh_json_text_put(t, escape, sizeof(escape));
		} else if (c > 0xffff) {
			json_text_put_unit(t, 0xd800 + ((c - 0x10000) >> 10));
			json_text_put_unit(t, 0xdc00 + ((c - 0x10000) & 0x3ff));
		} else {
			json_text_put_unit(t, c);
		}
		start = i + n;
	}
	rsh_json_text_put(t, s + start, len - start);
	rsh_json_text_put(t, "\"", 1);
	return true;
}
