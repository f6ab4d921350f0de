/* SPDX-License-Identifier: Apache-2.0 */
/* wire/aws_keys.c reads profiles, and the answers of credential services. */
#include "rsh/wire/aws_keys.h"

#include <string.h>

/* ---- profiles ---- */

static bool ini_is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

static char *ini_trim(char *s)
{
	char *end = s + strlen(s);

	while (end > s && ini_is_blank(end[-1]))
		*--end = '\0';
	while (ini_is_blank(*s))
		s++;
	return s;
}

/* Returns whether this line, which begins with a bracket, is the header of the
 * section. */
static bool ini_is_section(char *line, enum rsh_aws_section kind,
			   const char *wanted)
{
	const char *word = kind == RSH_AWS_SERVICES ? "services" : "profile";
	const size_t n = strlen(word);
	char *end = strchr(line, ']');
	char *name;

	if (!end)
		return false;
	*end = '\0';
	name = ini_trim(line + 1);
	if (kind != RSH_AWS_CREDENTIALS && !strncmp(name, word, n) &&
	    ini_is_blank(name[n]))
		return !strcmp(ini_trim(name + n), wanted);
	if (kind == RSH_AWS_SERVICES ||
	    (kind == RSH_AWS_PROFILE && strcmp(name, "default")))
		return false;
	return !strcmp(name, wanted);
}

/* An indented line is a setting of *parent, which is the last setting that has
 * no value of its own.  It is ignored if there is none. */
static void ini_setting(char *line, const char **parent, rsh_aws_setting *each,
			void *ctx)
{
	const bool is_nested = ini_is_blank(*line);
	char *value = strchr(line, '=');
	const char *key;

	if (!value || (is_nested && !*parent))
		return;
	*value++ = '\0';
	key = ini_trim(line);
	value = ini_trim(value);
	each(ctx, is_nested ? *parent : NULL, key, value);
	if (!is_nested)
		*parent = *value ? NULL : key;
}

static bool ini_is_comment(const char *line)
{
	line += strspn(line, " \t");
	return *line == '#' || *line == ';';
}

bool rsh_aws_section(char *text, size_t len, enum rsh_aws_section kind,
		     const char *name, rsh_aws_setting *each, void *ctx)
{
	bool found = false, within = false;
	char *line = text, *end = text + len;
	const char *parent = NULL;

	while (line < end) {
		char *next = memchr(line, '\n', (size_t)(end - line));

		if (next)
			*next++ = '\0';
		if (*line == '[') {
			within = ini_is_section(line, kind, name);
			found |= within;
			parent = NULL;
		} else if (within && !ini_is_comment(line)) {
			ini_setting(line, &parent, each, ctx);
		}
		if (!next)
			break;
		line = next;
	}
	return found;
}

/* ---- answers ---- */

static char *answer_blanks(char *p)
{
	while (*p == ' ' || *p == '\t' || *p == '\r' || *p == '\n')
		p++;
	return p;
}

/* Ends the string at p with a NUL and returns the text after it.  Returns NULL
 * if the string has no end.  The only escapes in keys and tokens are those of
 * slashes. */
static char *answer_string(char **p)
{
	char *from = *p + 1, *to = from;

	if (**p != '"')
		return NULL;
	*p = to;
	for (; *from && *from != '"'; from++) {
		if (*from == '\\' && (from[1] == '/' || from[1] == '"' ||
				      from[1] == '\\'))
			from++;
		*to++ = *from;
	}
	if (*from != '"')
		return NULL;
	*to = '\0';
	return from + 1;
}

/* Skips a value that is not a string: a number, a word, or a list or object
 * with its contents. */
static char *answer_pass(char *p)
{
	const char *begin = p;
	unsigned depth = 0;

	for (; *p; p++) {
		if (*p == '"') {
			char *string = p;

			p = answer_string(&string);
			if (!p)
				return NULL;
			p--;
		} else if (*p == '{' || *p == '[') {
			depth++;
		} else if (depth && (*p == '}' || *p == ']')) {
			depth--;
		} else if (!depth && (*p == ',' || *p == '}')) {
			return p > begin ? p : NULL;
		}
	}
	return NULL;
}

/* Reads "KEY": VALUE and returns the text after it. */
static char *answer_member(char *p, rsh_aws_setting *each, void *ctx)
{
	char *key = p, *value;

	p = answer_string(&key);
	if (!p)
		return NULL;
	p = answer_blanks(p);
	if (*p++ != ':')
		return NULL;
	value = answer_blanks(p);
	if (*value != '"')
		return answer_pass(value);
	p = answer_string(&value);
	if (!p)
		return NULL;
	each(ctx, NULL, key, value);
	return answer_blanks(p);
}

bool rsh_aws_answer(char *text, size_t len, rsh_aws_setting *each, void *ctx)
{
	char *p = answer_blanks(text);

	if (strlen(text) != len || *p++ != '{')
		return false;
	do {
		p = answer_member(answer_blanks(p), each, ctx);
		if (!p)
			return false;
	} while (*p++ == ',');
	return p[-1] == '}';
}

bool rsh_aws_xml(char *text, size_t len, rsh_aws_setting *each, void *ctx)
{
	char *p = answer_blanks(text), *name, *value;

	if (strlen(text) != len || *p != '<')
		return false;
	/* An element without elements has a value, up to the next tag, which
	 * ends it. */
	while ((name = strchr(p, '<'))) {
		size_t n;

		value = strchr(++name, '>');
		if (!value)
			return false;
		n = (size_t)(value++ - name);
		p = value + strcspn(value, "<");
		if (p[0] != '<' || p[1] != '/' || strncmp(p + 2, name, n) ||
		    p[2 + n] != '>')
			continue;
		name[n] = *p = '\0';
		each(ctx, NULL, name, value);
		p += 2 + n;
	}
	return true;
}
