/* SPDX-License-Identifier: Apache-2.0 */
/* app/options/line.c writes command lines that can be pasted into a shell. */
#include "config.h"

#include "rsh/app/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rsh/app/commands.h"
#include "rsh/app/table.h"
#include "rsh/formats/formats.h"
#include "rsh/util/files.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"
#include "rsh/wire/file_type.h"

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
static int line_option(FILE *to, const struct rsh_option *def,
		       const struct rsh_given *given)
{
	fprintf(to, def->bare ? " -o %s" : " --%s", def->name);
	if (!given->value)
		return 0;
	fputc('=', to);
	return line_word(to, given->value);
}

char *rsh_options_line(const struct rsh_options *o,
		       const struct rsh_command *command,
		       const char *const *operands)
{
	char *text = NULL;
	size_t size;
	FILE *to = open_memstream(&text, &size);
	bool dash = false;
	int rc = 0;

	if (!to)
		return NULL;
	fprintf(to, "reshardfs %s", command->name);
	for (size_t i = 0; i < o->n_given; i++) {
		const char *name = o->given[i].name;
		const struct rsh_option *def =
			rsh_option_find(command, name, strlen(name));

		if (def && (!def->aside || command == o->command))
			rc |= line_option(to, def, &o->given[i]);
	}
	for (size_t i = 0; operands[i]; i++)
		dash |= operands[i][0] == '-';
	if (dash)
		fputs(" --", to);
	for (size_t i = 0; operands[i]; i++) {
		fputc(' ', to);
		rc |= line_word(to, operands[i]);
	}
	if (fclose(to) == 0 && rc == 0)
		return text;
	free(text);
	return NULL;
}

/* ---- a correction of a command line ---- */

#define OPERANDS_MAX 64

/* Returns whether the command would accept the source without more options. */
static bool line_suits(const struct rsh_options *o, const struct rsh_format *f)
{
	const bool file = o->vfs.src.from == RSH_FROM_FILE;

	if (o->command->id == RSH_COMMAND_LS || o->resume)
		return true;
	return f->layout == RSH_LAYOUT_GIVEN ?
	       o->vfs.src.from && o->vfs.dst.from : !file;
}

static char *line_with_source(const struct rsh_options *o, const char *source,
			      const struct rsh_format *f)
{
	const char *operands[OPERANDS_MAX + 1] = { source };
	struct rsh_options bare = { .n_given = 0 };
	const unsigned n = o->n_operands;

	/* Where a mount cannot be made, the line would fail. */
	if (!line_suits(o, f) ||
	    (o->mountpoint && access(o->mountpoint, F_OK) != 0))
		return rsh_options_line(&bare, rsh_command_find("ls"),
					operands);
	for (unsigned i = 1; i < n && i < OPERANDS_MAX; i++)
		operands[i] = o->operands[i];
	return rsh_options_line(o, o->command, operands);
}

/* Handles MOUNTPOINT and SOURCE in the wrong order. */
static char *line_swapped(const struct rsh_options *o)
{
	const char *operands[] = { o->operands[1], o->operands[0], NULL };
	const struct rsh_store_options how = { .objects = &o->objects };
	struct rsh_error unused = RSH_ERROR_INIT;
	const struct rsh_format *f;
	int bid;

	rsh_source_format_at(operands[1], &how, rsh_formats, &bid, &unused);
	if (bid > RSH_BID_ANY)
		return NULL;
	f = rsh_source_format_at(operands[0], &how, rsh_formats, &bid, &unused);
	if (bid <= RSH_BID_ANY)
		return NULL;
	if (!line_suits(o, f))
		return line_with_source(o, operands[0], f);
	return rsh_options_line(o, o->command, operands);
}

char *rsh_options_meant(const struct rsh_options *o)
{
	const struct rsh_source_options *f = &o->vfs.files;
	const struct rsh_format *format;
	char *source, *line = NULL;

	/* If the operand is a file that the command reads by itself, another
	 * SOURCE is not the correction. */
	if (!o->operands || o->n_operands == 0 || !o->vfs.source ||
	    f->rank_dir || f->file || f->source_map ||
	    o->command->operands[0] == NULL ||
	    !strstr(o->command->operands[0], "SOURCE") ||
	    (rsh_is_file(o->operands[0]) &&
	     (o->command->id == RSH_COMMAND_VERIFY ||
	      (o->command->id == RSH_COMMAND_LS &&
	       rsh_file_type_of(o->operands[0]) != RSH_FILE_OTHER))))
		return NULL;
	if (o->command->id == RSH_COMMAND_MOUNT && o->n_operands == 2)
		line = line_swapped(o);
	/* One step is no SOURCE of all steps. */
	if (line || o->steps)
		return line;
	source = rsh_source_meant(o->operands[0], &f->store, rsh_formats,
				  &format);
	line = source ? line_with_source(o, source, format) : NULL;
	free(source);
	return line;
}
