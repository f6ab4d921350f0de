/* SPDX-License-Identifier: Apache-2.0 */
/* app/options/unknown.c suggests a correction for an option that the command
 * does not have. */
#include "config.h"


#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "rsh/app/table.h"
#include "rsh/util/suggestion.h"
#include "set_i.h"

/* Lists the options of the command that begin with the word, as "--a, --b or
 * --c"; returns their number. */
static unsigned list_begun(const struct rsh_command *command, const char *word,
			   size_t length, char *text, size_t size)
{
	size_t n, at = 0;
	const struct rsh_option *table = rsh_option_table(&n), *last = NULL;
	unsigned count = 0;

	for (size_t i = 0; i < n && at < size; i++) {
		const struct rsh_option *def = &table[i];

		if (!rsh_option_is_of(def, command) || def->bare ||
		    !def->name ||
		    !rsh_suggestion_begins(def->name, word, length))
			continue;
		if (last)
			at += (size_t)snprintf(text + at, size - at, "%s--%s",
					       count > 1 ? ", " : "",
					       last->name);
		last = def;
		count++;
	}
	if (last && at < size)
		snprintf(text + at, size - at, "%s--%s",
			 count > 1 ? " or " : "", last->name);
	return count;
}

/* Lists the commands that have the option of that name, as "ls and plan". */
static unsigned list_owners(const char *word, size_t length, char *text,
			    size_t size)
{
	size_t n, n_commands, at = 0;
	const struct rsh_option *table = rsh_option_table(&n);
	const struct rsh_command *commands = rsh_command_table(&n_commands);
	unsigned in = 0, count = 0, all;

	for (size_t i = 0; i < n; i++)
		if (table[i].name && !table[i].bare &&
		    rsh_suggestion_same(table[i].name, word, length))
			in |= table[i].commands;
	for (size_t i = 0; i < n_commands; i++)
		count += (in & RSH_IN(commands[i].id)) != 0;
	all = count;
	for (size_t i = 0; i < n_commands && at < size; i++)
		if (in & RSH_IN(commands[i].id)) {
			at += (size_t)snprintf(text + at, size - at, "%s%s",
					       commands[i].name, --count > 1 ?
					       ", " : count ? " and " : "");
		}
	return all;
}

int rsh_unknown_long(const struct rsh_command *command, const char *word,
		     bool before, struct rsh_error *err)
{
	const size_t length = strcspn(word, "=");
	size_t n;
	const struct rsh_option *table = rsh_option_table(&n);
	char text[RSH_SUGGESTION_BYTES], names[256] = "";
	struct rsh_suggestion guess;

	if (list_begun(command, word, length, names, sizeof(names)) > 1)
		return rsh_error_set(err, EINVAL, "option --%.*s is "
				     "ambiguous: %s",
				     (int)length, word, names);
	if (list_owners(word, length, names, sizeof(names)))
		return rsh_error_set(err, EINVAL, "%s has no option --%.*s; "
				     "it is an option of %s%s", command->name,
				     (int)length, word, names,
				     before ? ", to be given after the "
					      "command" :
				     "");
	rsh_suggestion_begin(&guess, word, length);
	for (size_t i = 0; i < n; i++)
		if (rsh_option_is_of(&table[i], command) && table[i].name)
			rsh_suggestion_offer(&guess, table[i].name);
	rsh_suggestion_put(&guess,
			   guess.best && strchr(guess.best, '_') ? "-o " : "--",
			   text);
	return rsh_error_set(err, EINVAL, "unknown option --%.*s%s",
			     (int)length, word, text);
}

/* The word may be a long option with only one hyphen. */
int rsh_unknown_letter(const struct rsh_command *command, const char *word,
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
