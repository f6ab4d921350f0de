/* SPDX-License-Identifier: Apache-2.0 */
/* app/options/check_form.c finds the forms of a command, and has the checks that
 * all commands with forms share. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "rsh/app/check.h"
#include "rsh/app/commands.h"
#include "rsh/app/table.h"

const char *rsh_command_form_word(const struct rsh_command *form)
{
	return strchr(form->name, ' ') + 1;
}

const struct rsh_command *rsh_command_form(const struct rsh_command *command,
					   const char *word)
{
	for (size_t i = 0; i < command->n_forms; i++) {
		const struct rsh_command *form = &command->forms[i];

		if (strcmp(rsh_command_form_word(form), word) == 0)
			return form;
	}
	return NULL;
}

void rsh_form_guess(const struct rsh_command *command, const char *word,
		    char text[RSH_SUGGESTION_BYTES])
{
	struct rsh_suggestion guess;

	rsh_suggestion_begin(&guess, word, strlen(word));
	for (size_t i = 0; i < command->n_forms; i++)
		rsh_suggestion_offer(&guess,
				     rsh_command_form_word(&command->forms[i]));
	rsh_suggestion_put(&guess, "", text);
}

int rsh_check_form(struct rsh_options *o, const struct rsh_command *command,
		   const char *word, struct rsh_error *err)
{
	char words[128] = "", guess[RSH_SUGGESTION_BYTES];
	size_t at = 0;

	o->form = rsh_command_form(command, word);
	if (o->form)
		return 0;
	for (size_t i = 0; i < command->n_forms && at < sizeof(words); i++)
		at += (size_t)snprintf(words + at, sizeof(words) - at, "%s%s",
				       i == 0 ? "" :
				       i + 1 < command->n_forms ? ", " : " or ",
				       rsh_command_form_word(
					       &command->forms[i]));
	rsh_form_guess(command, word, guess);
	return rsh_error_set(err, EINVAL, "%s %s: expected %s%s", command->name,
			     word, words, guess);
}

int rsh_check_form_operands(struct rsh_options *o, struct rsh_error *err)
{
	const char *const *names;
	unsigned i = 0, n = o->n_operands - 1;
	int rc = rsh_check_form(o, o->command, o->operands[0], err);

	if (rc)
		return rc;
	names = o->form->operands;
	while (i < RSH_MAX_OPERANDS && names[i] && i < n)
		if (strstr(names[i++], "..."))
			return 0;
	if (i < n)
		return rsh_error_set(err, EINVAL, "too many operands: %s",
				     o->operands[i + 1]);
	if (i < RSH_MAX_OPERANDS && names[i] && names[i][0] != '[')
		return rsh_error_set(err, EINVAL, "%s: %.*s is missing",
				     o->form->name,
				     (int)strcspn(names[i], "|."), names[i]);
	return 0;
}

static bool is_about_files(const struct rsh_option *def)
{
	const size_t from = offsetof(struct rsh_options, vfs.files);

	return def->at >= from &&
	       def->at < from + sizeof(struct rsh_source_options);
}

int rsh_check_form_use(const struct rsh_options *o, bool tree,
		       const char *without, struct rsh_error *err)
{
	size_t n;
	const struct rsh_option *table = rsh_option_table(&n);

	for (size_t i = 0; i < n; i++) {
		const struct rsh_option *def = &table[i];

		if (!rsh_option_is_of(def, o->command) || !def->name ||
		    !rsh_option_given(o, def->name))
			continue;
		if (!rsh_option_is_of(def, o->form))
			return rsh_error_set(err, EINVAL, "%s does not take "
					     "--%s", o->form->name, def->name);
		if (is_about_files(def) && !tree)
			return rsh_error_set(err, EINVAL, "%s: --%s needs %s",
					     o->form->name,
					     def->name, without);
	}
	return rsh_check_files(o, err);
}
