/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/help.c prints the help of the program and of each command, wrapped to a
 * width, from the tables of commands and options. */
#include "config.h"

#include "help.h"

#include <string.h>

#include "rsh/app/table.h"

#define COLUMNS 79
#define FEW_OPTIONS 14
#define OPTION_COLUMN 32  /* where the text of an option begins */
#define SUMMARY_COLUMN 12 /* where the text of a command begins */

/* Prints words from column `at` on; further lines begin at `indent`. */
static void wrap(FILE *f, const char *text, size_t at, size_t indent)
{
	size_t blanks = 0;

	while (*text) {
		size_t n = strcspn(text, " ");

		if (at > indent && at + blanks + n > COLUMNS) {
			fputc('\n', f);
			at = 0;
			blanks = indent;
		}
		fprintf(f, "%*s%.*s", (int)blanks, "", (int)n, text);
		at += blanks + n;
		blanks = strspn(text + n, " ");
		text += n + blanks;
	}
	fputc('\n', f);
}

/* A name that is too long stands on a line of its own. */
static void help_entry(FILE *f, const char *left, const char *text,
		       size_t indent)
{
	int n = fprintf(f, "  %s", left);
	size_t at = n > 0 ? (size_t)n : 0;

	if (!*text) {
		fputc('\n', f);
		return;
	}
	if (at + 1 > indent) {
		fputc('\n', f);
		at = 0;
	}
	fprintf(f, "%*s", (int)(indent - at), "");
	wrap(f, text, indent, indent);
}

static void help_option(FILE *f, const struct rsh_option *def)
{
	const char *arg = def->arg ? def->arg : "";
	char left[96], letter[8] = "    ";

	if (def->letter)
		snprintf(letter, sizeof(letter), "-%c%s", def->letter,
			 def->name ? ", " : " ");
	if (def->bare)
		snprintf(left, sizeof(left), "-o %s%s%s", def->name,
			 def->arg ? "=" : "", arg);
	else if (def->name)
		snprintf(left, sizeof(left), "%s--%s%s%s", letter, def->name,
			 def->arg ? " " : "", arg);
	else
		snprintf(left, sizeof(left), "%s%s", letter, arg);
	help_entry(f, left, def->help, OPTION_COLUMN);
}

/* Few options are all told at once. */
static bool are_few(const struct rsh_command *command)
{
	size_t n, of = 0;
	const struct rsh_option *table = rsh_option_table(&n);

	for (size_t i = 0; i < n; i++)
		of += rsh_option_is_of(&table[i], command);
	return of <= FEW_OPTIONS;
}

/* Prints the options of a command below their headings; returns false if there
 * are more than were printed. */
static bool help_options(FILE *f, const struct rsh_command *command, bool all)
{
	size_t n;
	const struct rsh_option *table = rsh_option_table(&n);
	const char *heading = NULL;

	all |= are_few(command);
	for (size_t i = 0; i < n; i++) {
		if (!table[i].commands)
			heading = table[i].help;
		if (!table[i].help || !rsh_option_is_of(&table[i], command) ||
		    !(all || table[i].first))
			continue;
		if (heading)
			fprintf(f, "\n%s:\n", heading);
		heading = NULL;
		help_option(f, &table[i]);
	}
	return all;
}

static void common_options(FILE *f)
{
	size_t n;
	const struct rsh_option *table = rsh_option_table(&n);

	for (size_t i = 0; i < n; i++)
		if (table[i].commands == RSH_IN_ALL)
			help_option(f, &table[i]);
}

void rsh_help_usage(FILE *f, const struct rsh_command *command)
{
	fprintf(f, "reshardfs %s [options]", command->name);
	for (size_t i = 0; i < RSH_MAX_OPERANDS && command->operands[i]; i++)
		fprintf(f, " %s", command->operands[i]);
}

static void help_forms(FILE *f, const struct rsh_command *command)
{
	fputc('\n', f);
	for (size_t i = 0; i < command->n_forms; i++) {
		const struct rsh_command *form = &command->forms[i];

		help_entry(f, rsh_command_form_word(form), form->summary,
			   SUMMARY_COLUMN);
	}
}

void rsh_help_command(FILE *f, const struct rsh_command *command, bool all)
{
	fputs("usage: ", f);
	rsh_help_usage(f, command);
	fputs("\n\n", f);
	wrap(f, command->about, 0, 0);
	if (command->n_forms)
		help_forms(f, command);
	if (!help_options(f, command, all))
		fprintf(f, "\nThese are the usual options; all: reshardfs %s "
			"--help-all\n", command->name);
}

void rsh_help_program(FILE *f)
{
	size_t n;
	const struct rsh_command *table = rsh_command_table(&n);

	fputs("usage: reshardfs COMMAND [options] ...\n"
	      "       reshardfs [options] SOURCE MOUNTPOINT\n"
	      "       reshardfs COMMAND --help\n\n", f);
	wrap(f, "Shows a MindSpore checkpoint tree as it would be under "
	     "another sharding strategy.  Without a COMMAND it mounts.", 0, 0);
	fputc('\n', f);
	for (size_t i = 0; i < n; i++)
		help_entry(f, table[i].name, table[i].summary, SUMMARY_COLUMN);
	fputs("\nOptions that all commands have, also in front of COMMAND:\n", f);
	common_options(f);
}

enum rsh_exit rsh_help(const struct rsh_options *o)
{
	if (o->n_operands)
		rsh_help_command(stdout, o->form ? o->form :
				 rsh_command_find(o->operands[0]), false);
	else
		rsh_help_program(stdout);
	return RSH_EXIT_GOOD;
}
