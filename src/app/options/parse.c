/* SPDX-License-Identifier: Apache-2.0 */
/* app/options/parse.c makes struct rsh_options from argv and the tables. */
#include "config.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "rsh/app/commands.h"
#include "rsh/app/table.h"
#include "rsh/util/mem.h"
#include "rsh/util/suggestion.h"
#include "rsh/util/text.h"
#include "set_i.h"

/* Lists the options of the command that begin with the word, as "--a, --b or
 * --c"; returns their number. */
static unsigned list_begun(const struct rsh_command *command, const char *word,
			   size_t length, char *text, size_t size)
{
	const struct rsh_option *def = NULL, *last = NULL;
	unsigned count = 0;
	size_t at = 0;

	while ((def = rsh_option_next_of(command, def))) {
		if (def->bare || !def->name ||
		    !rsh_suggestion_begins(def->name, word, length))
			continue;
		if (last)
			rsh_text_add(text, size, &at, "%s--%s",
				     count > 1 ? ", " : "", last->name);
		last = def;
		count++;
	}
	if (last)
		rsh_text_add(text, size, &at, "%s--%s",
			     count > 1 ? " or " : "", last->name);
	return count;
}

/* Lists the commands that have the option of that name, as "ls and plan". */
static unsigned list_owners(const char *word, size_t length, char *text,
			    size_t size)
{
	size_t n_commands, at = 0;
	const struct rsh_option *def = NULL;
	const struct rsh_command *commands = rsh_command_table(&n_commands);
	unsigned in = 0, count = 0, all;

	while ((def = rsh_option_next(def)))
		if (def->name && !def->bare &&
		    rsh_suggestion_same(def->name, word, length))
			in |= def->commands;
	for (size_t i = 0; i < n_commands; i++)
		count += (in & RSH_IN(commands[i].id)) != 0;
	all = count;
	for (size_t i = 0; i < n_commands; i++)
		if (in & RSH_IN(commands[i].id))
			rsh_text_add(text, size, &at, "%s%s",
				     commands[i].name, --count > 1 ? ", " :
				     count ? " and " : "");
	return all;
}

static int unknown_long(const struct rsh_command *command, const char *word,
		     bool before, struct rsh_error *err)
{
	const size_t length = strcspn(word, "=");
	char text[RSH_SUGGESTION_BYTES], names[256] = "";

	if (list_begun(command, word, length, names, sizeof(names)) > 1)
		return rsh_error_set(err, EINVAL, "option --%.*s is "
				     "ambiguous: %s", (int)length, word, names);
	if (list_owners(word, length, names, sizeof(names)))
		return rsh_error_set(err, EINVAL, "%s has no option --%.*s; "
				     "it is an option of %s%s%s", command->name,
				     (int)length, word, names,
				     before ? ", to be given after the "
					      "command" :
				     "",
				     length == strlen("steps") &&
				     strncmp(word, "steps", length) == 0 ?
				     ": give one step as SOURCE, or of rank "
				     "files by --select" : "");
	rsh_option_guess(command, word, length, NULL, text);
	return rsh_error_set(err, EINVAL, "unknown option --%.*s%s",
			     (int)length, word, text);
}

/* The word may be a long option with only one hyphen. */
static int unknown_letter(const struct rsh_command *command, const char *word,
		       int letter, struct rsh_error *err)
{
	char names[256] = "";

	if (strlen(word) > 2 && word[0] == '-' && word[1] != '-' &&
	    list_begun(command, word + 1, strcspn(word + 1, "="), names,
		       sizeof(names)))
		return rsh_error_set(err, EINVAL, "unknown option %s (did you "
				     "mean %s?)", word, names);
	return rsh_error_set(err, EINVAL, "unknown option -%c", letter);
}

/* ---- parsing ---- */

#define FIRST_LONG_VALUE 256 /* above all letters */

/* This is the table of options as getopt needs it, for one command.  Names with
 * hyphens are included with underscores as well: for getopt two names of one
 * option are not ambiguous. */
struct getopt_tables {
	char *letters;
	struct option *longs;
};

static int make_getopt_tables(struct rsh_options *o, struct getopt_tables *t)
{
	const struct rsh_option *const first = rsh_option_next(NULL);
	const struct rsh_option *def = NULL;
	struct option *to;
	char *letter, *name;
	size_t n = 0;

	while ((def = rsh_option_next(def)))
		n++;
	t->letters = letter = rsh_alloc_array(2 * n + 2, 1);
	t->longs = to = rsh_alloc_array(2 * n + 1, sizeof(*t->longs));
	if (!letter || !to)
		return -ENOMEM;
	*letter++ = ':'; /* getopt returns what is wrong and prints nothing */
	while ((def = rsh_option_next_of(o->command, def))) {
		if (def->bare)
			continue;
		if (def->letter)
			*letter++ = def->letter;
		if (def->letter && def->arg)
			*letter++ = ':';
		if (!def->name)
			continue;
		*to++ = (struct option){
			.name = def->name,
			.has_arg = def->arg ? required_argument : no_argument,
			.val = FIRST_LONG_VALUE + (int)(def - first),
		};
		if (!strchr(def->name, '-'))
			continue;
		name = rsh_options_keep(o, def->name);
		if (!name)
			return -ENOMEM;
		*to = to[-1];
		(to++)->name = name;
		for (; *name; name++)
			*name = *name == '-' ? '_' : *name;
	}
	*letter = '\0';
	*to = (struct option){ 0 };
	return 0;
}

static const struct rsh_option *find_option(const struct rsh_command *command,
					    int c)
{
	const struct rsh_option *def = NULL;

	if (c >= FIRST_LONG_VALUE)
		return rsh_option_next(NULL) + (c - FIRST_LONG_VALUE);
	while (c && (def = rsh_option_next_of(command, def)) &&
	       c != def->letter)
		;
	return def;
}

/* ---- unknown options ---- */

static int bad_option(const struct rsh_options *o, int c, char **argv,
		      struct rsh_error *err)
{
	const char *word = argv[optind - 1], *next = argv[optind];
	const struct rsh_option *def = optopt ?
		find_option(o->command, optopt) : NULL;
	bool before = false;

	if (c == ':')
		return rsh_error_set(err, EINVAL, "option %s needs a value "
				     "(%s)", word, def ? def->arg : "");
	/* If an option without a value is given as --name=value, optopt is its
	 * number; if the name is unknown, optopt is 0. */
	if (optopt >= FIRST_LONG_VALUE)
		return rsh_error_set(err, EINVAL, "option --%s takes no value",
				     def->name);
	/* getopt increments optind only after the last letter of a word. */
	if (optopt)
		return unknown_letter(o->command, next && next[0] == '-' &&
					  next[1] != '-' &&
					  strchr(next, optopt) ? next : word,
					  optopt, err);
	/* Options before the name of a command must be options that all
	 * commands have. */
	for (char **at = argv + optind; o->unnamed && *at; at++)
		before |= rsh_command_find(*at) != NULL;
	return unknown_long(o->command, word + 2, before, err);
}

static bool wants_no_command(const struct rsh_options *o)
{
	return o->help || o->help_all || o->version;
}

/* Secrets are removed because ps(1) and the table of mounts show the arguments
 * of this process. */
static int hide_secrets(struct rsh_options *o, char *place,
			struct rsh_error *err)
{
	return rsh_objects_hide(place, &o->objects) ? rsh_error_nomem(err) : 0;
}

static int parse_options(int argc, char **argv, struct rsh_options *o,
			 struct rsh_error *err)
{
	cleanup_free char *letters = NULL;
	cleanup_free struct option *longs = NULL;
	struct getopt_tables tables = { 0 };
	const struct rsh_option *def;
	int c, rc = make_getopt_tables(o, &tables);

	letters = tables.letters;
	longs = tables.longs;
	if (rc)
		return rsh_error_nomem(err);
	opterr = 0;
	optind = 0; /* getopt starts again: tests parse more than once */
	while (rc == 0 && !wants_no_command(o) &&
	       (c = getopt_long(argc, argv, letters, longs, NULL)) != -1) {
		def = c == '?' || c == ':' ? NULL : find_option(o->command, c);
		if (def && def->is_source)
			rc = hide_secrets(o, optarg, err);
		if (rc == 0)
			rc = def ? rsh_option_take(o, def, optarg, err) :
				   bad_option(o, c, argv, err);
	}
	return rc;
}

/* ---- operands ---- */

static int missing_operand(const struct rsh_options *o, struct rsh_error *err)
{
	char guess[RSH_SUGGESTION_BYTES], name[64];

	rsh_words_put(name, sizeof(name), o->command->operands[o->n_operands]);
	if (o->unnamed && o->n_operands == 1) {
		rsh_command_guess(o->operands[0], guess);
		return rsh_error_set(err, EINVAL, "\"%s\" is not a "
				     "command%s; to mount it, %s is missing",
				     o->operands[0], guess, name);
	}
	return rsh_error_set(err, EINVAL, "%s%s is missing",
			     o->unnamed ? "command or " : "", name);
}

static int count_operands(const struct rsh_options *o, struct rsh_error *err)
{
	const char *const *names = o->command->operands;
	char guess[RSH_SUGGESTION_BYTES];
	unsigned i = 0;

	/* An empty operand is mostly a shell variable that was not set. */
	for (; i < o->n_operands; i++)
		if (!*o->operands[i])
			return rsh_error_set(err, EINVAL, "operand %u is empty",
					     i + 1);
		else if (rsh_option_is_named(o->command, o->operands[i], guess))
			return rsh_error_set(err, EINVAL, "operand %s is not "
					     "a file%s", o->operands[i], guess);
	i = 0;
	for (; i < RSH_MAX_OPERANDS && names[i]; i++) {
		if (strstr(names[i], "..."))
			return 0;
		if (i >= o->n_operands)
			return names[i][0] == '[' ? 0 :
						    missing_operand(o, err);
	}
	if (o->n_operands > i)
		return rsh_error_set(err, EINVAL, "too many operands: %s",
				     o->operands[i]);
	return 0;
}

/* Returns how many words of argv the option takes if all commands have it; 0 if
 * it is not such an option. */
static int common_option(char *const *argv)
{
	const char *word = argv[0];
	const bool is_long = word[0] == '-' && word[1] == '-' && word[2];
	const size_t length = is_long ? strcspn(word + 2, "=") : 0;
	const struct rsh_option *def = NULL;

	while ((def = rsh_option_next(def))) {
		if (def->commands != RSH_IN_ALL)
			continue;
		if (is_long ? rsh_suggestion_begins(def->name, word + 2, length)
			    : word[0] == '-' && def->letter && !def->arg &&
				      word[1] == def->letter && !word[2])
			return def->arg && !word[2 + length] && argv[1] ? 2 : 1;
	}
	return 0;
}

static int parse_command(int argc, char **argv, struct rsh_options *o,
			 struct rsh_error *err)
{
	int rc = parse_options(argc, argv, o, err);

	if (rc || wants_no_command(o))
		return rc;
	o->operands = argv + optind;
	o->n_operands = (unsigned)(argc - optind);
	for (unsigned i = 0; i < o->n_operands && rc == 0; i++)
		rc = hide_secrets(o, o->operands[i], err);
	rc = rc ?: count_operands(o, err) ?: o->command->check(o, err);
	rsh_options_settle(o);
	return rc;
}

int rsh_options_parse(int argc, char **argv, struct rsh_options *o,
		      struct rsh_error *err)
{
	char *word, guess[RSH_SUGGESTION_BYTES];
	cleanup_free char *why = NULL;
	int rc, at = 1, words;
	size_t n;

	/* Options that all commands have may come before the command's name,
	 * which is moved to the front. */
	while (at < argc && (words = common_option(argv + at)))
		at += words;
	word = at < argc ? argv[at] : NULL;
	if (word && rsh_command_find(word)) {
		memmove(argv + 2, argv + 1, (size_t)(at - 1) * sizeof(*argv));
		argv[1] = word;
	}
	rsh_options_init(o);
	/* Remove the command's name from argv, because getopt skips argv[0] as
	 * the program's name. */
	o->command = argc > 1 ? rsh_command_find(argv[1]) : NULL;
	o->unnamed = !o->command;
	if (o->unnamed) {
		o->command = rsh_command_table(&n);
	} else {
		argc--;
		argv++;
	}
	if (argc > 1)
		o->form = rsh_command_form(o->command, argv[1]);
	rc = parse_command(argc, argv, o, err);
	if (!o->unnamed || !word || !*word || *word == '-' ||
	    strchr(word, '/') || access(word, F_OK) == 0)
		return rc;
	/* The SOURCE of a mount may be a mistyped command.  For a single
	 * operand the message is already the right one.  Two operands may be a
	 * correct mount of a SOURCE that does not exist. */
	rsh_command_guess(word, guess);
	if (rc == -EINVAL || o->look == -ENOENT ? o->n_operands == 1 :
						  rc || !*guess)
		return rc;
	o->look = 0;
	why = strdup(err->text);
	if (!why)
		return rsh_error_nomem(err);
	return rsh_error_set(err, EINVAL, "\"%s\" is not a command%s, and "
			     "there is no such file to mount%s%s", word, guess,
			     *why ? ": " : "", why);
}
