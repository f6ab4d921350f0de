/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/help.c prints the help of the program and of each command from the
 * tables of commands and options, wrapped to a width. */
#include "config.h"

#include "commands.h"

#include <string.h>

#include "rsh/app/table.h"

#define COLUMNS 79
#define FEW_OPTIONS 14
#define OPTION_COLUMN 32  /* column at which the text of an option begins */
#define SUMMARY_COLUMN 12 /* column at which the text of a command begins */

/* Prints words from column `at` on; the following lines begin at `indent`. */
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

/* A name that is too long gets its own line. */
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

static void help_option(FILE *f, const struct rsh_option_at *at)
{
	const struct rsh_option *def = at->row;
	const char *arg = def->arg ? def->arg : "";
	char left[96], letter[8] = "    ";

	if (def->letter)
		snprintf(letter, sizeof(letter), "-%c%s", def->letter,
			 def->name ? ", " : " ");
	if (at->list->bare)
		snprintf(left, sizeof(left), "-o %s%s%s", def->name,
			 def->arg ? "=" : "", arg);
	else if (def->name)
		snprintf(left, sizeof(left), "%s--%s%s%s", letter, def->name,
			 def->arg ? " " : "", arg);
	else
		snprintf(left, sizeof(left), "%s%s", letter, arg);
	help_entry(f, left, def->help, OPTION_COLUMN);
}

/* Prints the options of a command: those marked `first`, or all of them below
 * their headings.  If a command has few options, all are printed.  Returns
 * whether all were printed. */
static bool help_options(FILE *f, const struct rsh_command *command, bool all)
{
	struct rsh_option_at at = { .list = NULL };
	const struct rsh_option_list *last = NULL;
	const char *heading = NULL, *printed = NULL;
	size_t n_own = 0;

	while (rsh_option_next_of(command, &at))
		n_own++;
	if (!all)
		fputc('\n', f);
	at.list = NULL;
	while (rsh_option_next(&at)) {
		if (at.list != last && at.list->heading)
			heading = at.list->heading;
		last = at.list;
		if (!(rsh_option_commands(&at) & rsh_command_bits(command)) ||
		    !(all || at.row->first || n_own <= FEW_OPTIONS))
			continue;
		if (all && heading != printed)
			fprintf(f, "\n%s:\n", heading);
		printed = heading;
		help_option(f, &at);
	}
	return all || n_own <= FEW_OPTIONS;
}

void rsh_help_command(FILE *f, const struct rsh_command *command, bool all)
{
	size_t n;
	const struct rsh_command *commands = rsh_command_table(&n);

	fprintf(f, "usage: reshardfs %s [options]", command->name);
	for (size_t i = 0; i < RSH_MAX_OPERANDS && command->operands[i]; i++)
		fprintf(f, " %s", command->operands[i]);
	fputs("\n\n", f);
	wrap(f, command->about, 0, 0);
	if (command->forms)
		fputc('\n', f);
	for (size_t i = 0; i < n; i++)
		if (command->forms & RSH_IN(commands[i].id))
			help_entry(f, strchr(commands[i].name, ' ') + 1,
				   commands[i].summary, SUMMARY_COLUMN);
	if (!help_options(f, command, all))
		fprintf(f, "\nAll options: reshardfs %s --help-all\n",
			command->name);
}

void rsh_help_program(FILE *f, bool all)
{
	size_t n_commands;
	const struct rsh_command *commands = rsh_command_table(&n_commands);
	struct rsh_option_at at = { .list = NULL };

	fputs("usage: reshardfs COMMAND [options] ...\n"
	      "       reshardfs [options] SOURCE MOUNTPOINT\n\n", f);
	for (size_t i = 0; i < n_commands; i++)
		if (commands[i].summary && !strchr(commands[i].name, ' '))
			help_entry(f, commands[i].name, commands[i].summary,
				   SUMMARY_COLUMN);
	fputs("\nOptions of all commands, also before COMMAND:\n", f);
	while (rsh_option_next(&at))
		if (rsh_option_commands(&at) == RSH_IN_ALL &&
		    (all || !at.row->arg))
			help_option(f, &at);
	fputs("\nOptions: reshardfs COMMAND --help; "
	      "messages: man reshardfs-troubleshooting\n", f);
}

int rsh_help(const struct rsh_options *o, struct rsh_run *run)
{
	const struct rsh_command *command =
		o->n_operands ? rsh_command_find(o->operands[0]) : NULL;

	(void)run;
	if (o->n_operands > 1)
		command = rsh_command_form(command, o->operands[1]);
	if (command)
		rsh_help_command(stdout, command, false);
	else
		rsh_help_program(stdout, false);
	return 0;
}
