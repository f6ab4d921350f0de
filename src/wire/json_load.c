/* SPDX-License-Identifier: Apache-2.0 */
/* wire/json_load.c parses JSON objects with jansson. */
#include "rsh/wire/json_load.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "rsh/util/mem.h"

#define END_WINDOW ((size_t)16 * 1024)

/* ---- what Python writes and JSON does not have ---- */

static bool is_in_number(char c)
{
	return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' ||
	       c == 'e' || c == 'E';
}

/* Returns whether the n characters are a number that jansson cannot
 * represent. */
static bool is_beyond(const char *number, size_t n)
{
	char *end;

	errno = 0;
	(void)strtoll(number, &end, 10);
	if (errno == ERANGE && end == number + n)
		return true;
	return isinf(strtod(number, &end)) && end == number + n;
}

static size_t string_length(const char *s)
{
	size_t n = 1;

	while (s[n] && s[n] != '"')
		n += s[n] == '\\' && s[n + 1] ? 2 : 1;
	return n + (s[n] == '"');
}

/* Sets *n to the length of the string, number or character at s.  Returns
 * whether it is a value that JSON, or jansson, does not have. */
static bool is_of_python(const char *s, size_t *n)
{
	static const char *const words[] = { "NaN", "Infinity", "-Infinity" };

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strncmp(s, words[i], strlen(words[i])) == 0) {
			*n = strlen(words[i]);
			return true;
		}
	*n = *s == '"' ? string_length(s) : 1;
	if (*s != '-' && (*s < '0' || *s > '9'))
		return false;
	while (is_in_number(s[*n]))
		(*n)++;
	return is_beyond(s, *n);
}

/* Makes a string of each such value, so that nobody takes it for a number; the
 * length of the text, and so the places in messages, stay the same. */
static json_t *parse_python(const struct rsh_memory *text, size_t flags,
			    json_error_t *where)
{
	cleanup_free char *copy = rsh_alloc_array(text->len + 1, 1);
	size_t n;

	if (!copy)
		return NULL;
	memcpy(copy, text->data, text->len);
	copy[text->len] = '\0';
	for (char *p = copy; *p; p += n)
		if (is_of_python(p, &n))
			p[0] = p[n - 1] = '"';
	return json_loadb(copy, text->len, flags, where);
}

json_t *rsh_json_parse(const struct rsh_memory *text, size_t flags,
		       json_error_t *where)
{
	json_t *root = json_loadb(text->data, text->len, flags, where);
	const enum json_error_code code = json_error_code(where);

	if (root || (code != json_error_invalid_syntax &&
		     code != json_error_numeric_overflow))
		return root;
	return parse_python(text, flags, where);
}

/* ---- objects ---- */

int rsh_json_load(const struct rsh_memory *text, size_t flags, const char *path,
		  const char *what, json_t **out, struct rsh_error *err)
{
	json_error_t where;
	json_t *root = rsh_json_parse(text, flags, &where);

	if (json_is_object(root)) {
		*out = root;
		return 0;
	}
	if (root) {
		json_decref(root);
		return rsh_error_set(err, EBADMSG, "%s: not %s: the JSON is not "
				     "an object", path, what);
	}
	if (json_error_code(&where) == json_error_out_of_memory)
		return rsh_error_nomem(err);
	return rsh_error_set(err, EBADMSG, "%s: not JSON: %s (line %d, column "
			     "%d)", path, where.text, where.line, where.column);
}

/* ---- files that a saver writes in place ---- */

struct json_end {
	bool quoted, escaped, ended;
	size_t depth;
};

static void end_take(struct json_end *e, char c)
{
	if (e->escaped)
		e->escaped = false;
	else if (e->quoted && c == '\\')
		e->escaped = true;
	else if (c == '"')
		e->quoted = !e->quoted;
	else if (!e->quoted && (c == '{' || c == '['))
		e->depth++;
	else if (!e->quoted && (c == '}' || c == ']'))
		e->ended = e->depth == 0 || --e->depth == 0;
}

int rsh_json_is_ended(const struct rsh_byte_source *src, bool *ended,
		      struct rsh_error *err)
{
	struct json_end e = { .depth = 0 };
	char window[END_WINDOW];
	uint64_t at = 0;
	size_t got = 1;

	while (!e.ended && got > 0 && at < src->size) {
		int rc = rsh_bytes_read_some(src, window, sizeof(window), at,
					     &got, err);

		if (rc)
			return rc;
		for (size_t i = 0; i < got && !e.ended; i++)
			end_take(&e, window[i]);
		at += got;
	}
	*ended = e.ended;
	return 0;
}

void rsh_json_unref(json_t **j)
{
	json_decref(*j);
}
