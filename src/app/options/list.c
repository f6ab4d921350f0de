/* SPDX-License-Identifier: Apache-2.0 */
/* app/options/list.c parses -o name[=value][,name[=value]...], as mount(8) has
 * it, and guesses which option an unknown name means. */
#include "config.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "rsh/util/mem.h"
#include "set_i.h"

void rsh_option_guess(const struct rsh_command *command, const char *word,
		      size_t n, const char *before,
		      char text[RSH_SUGGESTION_BYTES])
{
	const char *ours = rsh_other_word(word, n);
	const struct rsh_option *def = NULL;
	struct rsh_suggestion guess;

	rsh_suggestion_begin(&guess, word, n);
	while ((def = rsh_option_next_of(command, def)))
		if (def->name)
			rsh_suggestion_offer(&guess, def->name);
	if (ours && *ours < 'a') {
		before = "the operand ";
		ours = command->operands[strcmp(ours, "SOURCE") != 0];
	}
	if (ours)
		guess.best = ours;
	if (!before)
		before = guess.best && strchr(guess.best, '_') ? "-o " : "--";
	rsh_suggestion_put(&guess, before, text);
}

bool rsh_option_is_named(const struct rsh_command *command, const char *operand,
			 char text[RSH_SUGGESTION_BYTES])
{
	const size_t n = strcspn(operand, "=");

	if (!operand[n] || !memchr(operand, '_', n) ||
	    (!rsh_other_word(operand, n) &&
	     !rsh_option_find(command, operand, n)) ||
	    access(operand, F_OK) == 0)
		return false;
	rsh_option_guess(command, operand, n, NULL, text);
	return true;
}

static int apply_listed(struct rsh_options *o, char *given,
			struct rsh_error *err)
{
	/* libreshard takes such words without -o. */
	const char *dash_o = o->command->id == RSH_COMMAND_LIBRARY ? "" : "-o ";
	char *value = strchr(given, '=');
	size_t n = value ? (size_t)(value - given) : strlen(given);
	const struct rsh_option *def = rsh_option_find(o->command, given, n);

	if (value)
		value++;
	if (!def) {
		char text[RSH_SUGGESTION_BYTES];

		rsh_option_guess(o->command, given, n, dash_o, text);
		/* Names in lists are usually written with '_'. */
		for (char *c = strrchr(text, ' '); c && *c; c++)
			*c = *c == '-' ? '_' : *c;
		return rsh_error_set(err, EINVAL, "unknown option %s%.*s%s",
				     dash_o, (int)n, given, text);
	}
	if (def->arg && !value)
		return rsh_error_set(err, EINVAL, "%s%s needs a value (%s)",
				     dash_o, given, def->arg);
	if (!def->arg && value)
		return rsh_error_set(err, EINVAL, "%s%.*s takes no value",
				     dash_o, (int)n, given);
	return rsh_option_take(o, def, value, err);
}

/* Cuts the next option off a comma list in place, removing backslashes. */
static char *next_listed(char **list)
{
	char *start = *list, *to = start, *s = start;

	if (!s)
		return NULL;
	for (; *s && *s != ','; s++) {
		if (s[0] == '\\' && s[1])
			s++;
		*to++ = *s;
	}
	*list = *s ? s + 1 : NULL;
	*to = '\0';
	return start;
}

int rsh_option_take(struct rsh_options *o, const struct rsh_option *def,
		    const char *value, struct rsh_error *err)
{
	char *list;
	char *one;
	int rc = 0;

	/* -o itself is not recorded as given; the options in its list are. */
	if (def->name && rsh_grow(&o->given, &o->cap_given, o->n_given + 1,
				  sizeof(*o->given)))
		return rsh_error_nomem(err);
	if (def->name) {
		o->given[o->n_given] = (struct rsh_given){
			def->name, def->arg ? value : NULL, o->n_given,
		};
		o->n_given++;
	}
	if (def->set)
		return def->set(o, def, value, err);
	list = rsh_options_keep(o, value);
	if (!list)
		return rsh_error_nomem(err);
	while (rc == 0 && (one = next_listed(&list)))
		if (*one)
			rc = apply_listed(o, one, err);
	return rc;
}

int rsh_options_set(struct rsh_options *o, const char *given,
		    struct rsh_error *err)
{
	char *copy = rsh_options_keep(o, given);

	return copy ? apply_listed(o, copy, err) : rsh_error_nomem(err);
}
