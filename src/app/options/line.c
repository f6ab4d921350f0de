/* SPDX-License-Identifier: Apache-2.0 */
/* app/options/line.c writes command lines that can be pasted into a shell. */
#include "config.h"

#include "rsh/app/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/app/commands.h"
#include "rsh/app/table.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

/* A shell does not interpret a word of these characters alone. */
#define PLAIN "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ" \
	      "0123456789_-./:=,@%+"

static int line_quoted(FILE *to, const char *begin, const char *text,
		       const char *quote)
{
	fputs(begin, to);
	for (; *text; text++)
		if (*text == '\'')
			fputs(quote, to);
		else
			fputc(*text, to);
	fputc('\'', to);
	return 0;
}

/* Characters that are not safe on a terminal are escaped as everywhere in the
 * program; shells understand these escapes in $'...'. */
static int line_word(FILE *to, const char *word)
{
	cleanup_free char *safe = rsh_text_escape(word);

	if (!safe)
		return -ENOMEM;
	if (strcmp(safe, word) != 0)
		return line_quoted(to, "$'", safe, "\\'");
	if (!*word || strspn(word, PLAIN) < strlen(word))
		return line_quoted(to, "'", word, "'\"'\"'");
	fputs(word, to);
	return 0;
}

/* An option that exists only for -o is written with -o. */
static int line_option(FILE *to, const struct rsh_option_at *at,
		       const struct rsh_given *given)
{
	fprintf(to, at->list->bare ? " -o %s" : " --%s", given->name);
	if (!given->value)
		return 0;
	fputc('=', to);
	return line_word(to, given->value);
}

char *rsh_options_line(const struct rsh_options *o,
		       const struct rsh_command *command,
		       const char *const *operands)
{
	cleanup_free char *text = NULL;
	size_t size;
	FILE *to = open_memstream(&text, &size);
	bool dash = false;
	int rc = 0;

	if (!to)
		return NULL;
	fprintf(to, "reshardfs %s", command->name);
	for (size_t i = 0; i < o->n_given; i++) {
		const char *name = o->given[i].name;
		struct rsh_option_at at;

		if (rsh_option_find(command, name, strlen(name), &at) &&
		    (!at.row->aside || command == o->command))
			rc |= line_option(to, &at, &o->given[i]);
	}
	for (size_t i = 0; operands[i]; i++)
		dash |= operands[i][0] == '-';
	if (dash)
		fputs(" --", to);
	for (size_t i = 0; operands[i]; i++) {
		fputc(' ', to);
		rc |= line_word(to, operands[i]);
	}
	return fclose(to) == 0 && rc == 0 ? steal_pointer(&text) : NULL;
}
