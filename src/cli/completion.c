/* cli/completion.c - see completion.h.
 *
 * What a value is follows from how --help calls it: "a|b" are words of which
 * one is meant, and where a capital one among them is a place on disk
 * (rsh_is_place()), files as well. */
#include "config.h"

#include "completion.h"

#include <string.h>

#include "option_table.h"

static bool is_capital(const char *s)
{
	return *s >= 'A' && *s <= 'Z';
}

bool rsh_is_place(const char *name)
{
	static const char *const places[] = { "PATH",       "FILE", "SOURCE",
					      "MOUNTPOINT", "DIR",  "TREE",
					      "MANIFEST",   "OUT",
					      "STRATEGY" };

	for (size_t i = 0; name && i < sizeof(places) / sizeof(places[0]); i++)
		if (strstr(name, places[i]))
			return true;
	return false;
}

/* True of an operand that is one of some words, and no name of something. */
static bool is_choice(const char *operand)
{
	return operand && *operand >= 'a' && *operand <= 'z';
}

/* True of an operand that is the name of a command. */
static bool is_command(const char *operand)
{
	return operand && strcmp(operand, "[COMMAND]") == 0;
}

static void each_command(FILE *f)
{
	size_t n;
	const struct rsh_command *commands = rsh_command_table(&n);

	for (size_t i = 0; i < n; i++)
		fprintf(f, "%s ", commands[i].name);
}

/* Calls put(f, word) for each word that `arg` offers. */
static void each_word(FILE *f, const char *arg,
		      void (*put)(FILE *f, const char *word, size_t n))
{
	while (arg && *arg) {
		size_t n = strcspn(arg, "|");

		if (!is_capital(arg))
			put(f, arg, n);
		arg += n + (arg[n] == '|');
	}
}

static void put_word(FILE *f, const char *word, size_t n)
{
	fprintf(f, "%.*s ", (int)n, word);
}

/* Is the option one that stands on its own in the command line? */
static bool is_plain(const struct rsh_option *def,
		     const struct rsh_command *command)
{
	return !def->bare && rsh_option_is_of(def, command);
}

/* Its name after -o, or none. */
static const char *list_name(const struct rsh_option *def,
			     const struct rsh_command *command, char *name,
			     size_t size)
{
	if (!def->name || !rsh_option_is_of(def, command))
		return NULL;
	snprintf(name, size, "%s%s", def->name, def->arg ? "=" : "");
	for (char *c = name; *c; c++)
		if (*c == '-')
			*c = '_';
	return name;
}

/* ---- bash ---- */

static const char bash_head[] =
	"# bash completion of reshardfs, made by `reshardfs --completion bash`\n"
	"_reshardfs()\n"
	"{\n"
	"\tlocal cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
	"\tlocal command=mount words= files= list= head=\n"
	"\t# --name=value comes as three words.\n"
	"\tif [[ $cur == = ]]; then\n"
	"\t\tcur=\n"
	"\telif [[ $prev == = ]]; then\n"
	"\t\tprev=${COMP_WORDS[COMP_CWORD-2]}\n"
	"\tfi\n";

static const char bash_tail[] =
	"\tif [[ $list && $cur == *,* ]]; then\n"
	"\t\thead=${cur%,*},\n"
	"\t\tcur=${cur##*,}\n"
	"\tfi\n"
	"\tCOMPREPLY=($(compgen -P \"$head\" -W \"$words$list\" -- \"$cur\"))\n"
	"\tif [[ ${COMPREPLY[0]} == *= ]]; then\n"
	"\t\tcompopt -o nospace\n"
	"\tfi\n"
	"\tif [[ $files ]]; then\n"
	"\t\tcompopt -o filenames\n"
	"\t\tlocal IFS=$'\\n'\n"
	"\t\tCOMPREPLY+=($(compgen -f -- \"$cur\"))\n"
	"\tfi\n"
	"}\n"
	"complete -F _reshardfs reshardfs\n";

static void bash_commands(FILE *f)
{
	size_t n;
	const struct rsh_command *commands = rsh_command_table(&n);

	fputs("\tcase ${COMP_WORDS[1]} in\n\t", f);
	for (size_t i = 0; i < n; i++)
		fprintf(f, "%s%s", i ? "|" : "", commands[i].name);
	fputs(")\n\t\tcommand=${COMP_WORDS[1]} ;;\n\tesac\n", f);
}

/* "--name" or "--name|-l" or "-l" */
static void bash_pattern(FILE *f, const struct rsh_option *def)
{
	if (def->name)
		fprintf(f, "--%s", def->name);
	if (def->letter)
		fprintf(f, "%s-%c", def->name ? "|" : "", def->letter);
}

static void bash_list(FILE *f, const struct rsh_command *command)
{
	size_t n;
	const struct rsh_option *table = rsh_option_table(&n);
	char name[64];

	fputs("list='", f);
	for (size_t i = 0; i < n; i++)
		if (list_name(&table[i], command, name, sizeof(name)))
			fprintf(f, "%s ", name);
	fputs("'", f);
}

/* A case for each option that takes a value. */
static void bash_values(FILE *f, const struct rsh_command *command)
{
	size_t n;
	const struct rsh_option *table = rsh_option_table(&n);

	for (size_t i = 0; i < n; i++) {
		const struct rsh_option *def = &table[i];

		if (!def->arg || !is_plain(def, command))
			continue;
		fputs("\t\t", f);
		bash_pattern(f, def);
		fputs(")\n\t\t\t", f);
		if (!def->name && def->letter == 'o' && is_capital(def->arg) &&
		    !rsh_is_place(def->arg)) {
			bash_list(f, command);
		} else {
			fputs("words='", f);
			each_word(f, def->arg, put_word);
			fprintf(f, "' files=%s", rsh_is_place(def->arg) ? "1" : "");
		}
		fputs(" ;;\n", f);
	}
}

static void bash_command(FILE *f, const struct rsh_command *command)
{
	size_t n;
	const struct rsh_option *table = rsh_option_table(&n);
	bool files = false;

	fprintf(f, "\t%s)\n\t\tcase $prev in\n", command->name);
	bash_values(f, command);
	fputs("\t\t*)\n\t\t\twords='", f);
	for (size_t i = 0; i < n; i++)
		if (is_plain(&table[i], command) && table[i].name)
			fprintf(f, "--%s ", table[i].name);
	for (size_t i = 0; i < RSH_MAX_OPERANDS; i++)
		files |= rsh_is_place(command->operands[i]);
	fprintf(f, "'\n\t\t\t[[ $cur == -* ]] || words= files=%s\n",
		files ? "1" : "");
	if (is_choice(command->operands[0]) ||
	    is_command(command->operands[0])) {
		fputs("\t\t\t[[ $COMP_CWORD != 2 || $cur == -* ]] || "
		      "files= words='", f);
		if (is_command(command->operands[0]))
			each_command(f);
		else
			each_word(f, command->operands[0], put_word);
		fputs("'\n", f);
	}
	fputs("\t\t\t;;\n\t\tesac ;;\n", f);
}

static void write_bash(FILE *f)
{
	size_t n;
	const struct rsh_command *commands = rsh_command_table(&n);

	fputs(bash_head, f);
	bash_commands(f);
	fputs("\tcase $command in\n", f);
	for (size_t i = 0; i < n; i++)
		bash_command(f, &commands[i]);
	fputs("\tesac\n\tif [[ $COMP_CWORD == 1 && $cur != -* ]]; then\n"
	      "\t\twords='", f);
	each_command(f);
	fputs("'\n\tfi\n", f);
	fputs(bash_tail, f);
}

/* ---- zsh ---- */

/* Within '...' and as text of _arguments. */
static void zsh_text(FILE *f, const char *s, const char *special)
{
	for (; *s; s++) {
		if (*s == '\'')
			fputs("'\\''", f);
		else if (strchr(special, *s))
			fprintf(f, "\\%c", *s);
		else
			fputc(*s, f);
	}
}

/* ":what:how to complete it" */
static void zsh_value(FILE *f, const char *arg)
{
	bool words = !is_capital(arg) || strchr(arg, '|');

	fputc(':', f);
	zsh_text(f, arg, ":\\");
	fputc(':', f);
	if (rsh_is_place(arg) && words)
		fputs("{_files; compadd -- ", f);
	else if (rsh_is_place(arg))
		fputs("_files", f);
	else if (words)
		fputc('(', f);
	if (words)
		each_word(f, arg, put_word);
	if (words)
		fputc(rsh_is_place(arg) ? '}' : ')', f);
}

static void zsh_spec(FILE *f, const struct rsh_option *def)
{
	bool both = def->name && def->letter;

	fputs(" \\\n\t\t\t", f);
	if (both)
		fprintf(f, "'(-%c --%s)'{-%c,--%s%s}'", def->letter, def->name,
			def->letter, def->name, def->arg ? "=" : "");
	else if (def->name)
		fprintf(f, "'--%s%s", def->name, def->arg ? "=" : "");
	else
		fprintf(f, "'*-%c+", def->letter);
	fputc('[', f);
	zsh_text(f, def->help, "[]\\:");
	fputc(']', f);
	if (def->arg)
		zsh_value(f, def->arg);
	fputc('\'', f);
}

static void zsh_command(FILE *f, const struct rsh_command *command)
{
	size_t n;
	const struct rsh_option *table = rsh_option_table(&n);

	fprintf(f, "\t%s)\n\t\t_arguments -s -S", command->name);
	for (size_t i = 0; i < n; i++)
		if (is_plain(&table[i], command))
			zsh_spec(f, &table[i]);
	for (size_t i = 0; i < RSH_MAX_OPERANDS && command->operands[i]; i++) {
		const char *name = command->operands[i];
		const bool words = is_choice(name) || is_command(name);

		fprintf(f, " \\\n\t\t\t'%s:",
			strstr(name, "...") ? "*" : *name == '[' ? ":" : "");
		zsh_text(f, name, ":\\[]");
		fputs(words ? ":(" : ":", f);
		if (is_command(name))
			each_command(f);
		else if (words)
			each_word(f, name, put_word);
		fputs(words ? ")'" : rsh_is_place(name) ? "_files'" :
							       "'", f);
	}
	fputs(" ;;\n", f);
}

static void write_zsh(FILE *f)
{
	size_t n;
	const struct rsh_command *commands = rsh_command_table(&n);

	fputs("#compdef reshardfs\n"
	      "# zsh completion of reshardfs, made by `reshardfs --completion "
	      "zsh`\n_reshardfs() {\n\tlocal command=mount\n"
	      "\tlocal -a commands\n\tcommands=(", f);
	for (size_t i = 0; i < n; i++) {
		fprintf(f, "\n\t\t'%s:", commands[i].name);
		zsh_text(f, commands[i].summary, ":\\");
		fputc('\'', f);
	}
	fputs(")\n\tif (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then\n"
	      "\t\t_describe command commands\n\t\t_files\n\t\treturn\n\tfi\n"
	      "\tif (( ${commands[(I)$words[2]:*]} )); then\n"
	      "\t\tcommand=$words[2]\n\t\tshift words\n\t\t(( CURRENT-- ))\n"
	      "\tfi\n\tcase $command in\n", f);
	for (size_t i = 0; i < n; i++)
		zsh_command(f, &commands[i]);
	fputs("\tesac\n}\n_reshardfs \"$@\"\n", f);
}

void rsh_completion_write(FILE *f, enum rsh_shell shell)
{
	if (shell == RSH_SHELL_BASH)
		write_bash(f);
	else
		write_zsh(f);
}
