/* SPDX-License-Identifier: Apache-2.0 */
/* app/options/check_form.c finds the forms of a command, and checks what each
 * form takes. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "rsh/app/check.h"
#include "rsh/app/commands.h"
#include "rsh/app/table.h"
#include "rsh/source/tables.h"
#include "rsh/util/text.h"

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

int rsh_check_form(struct rsh_options *o, const struct rsh_command *command,
		   const char *word, struct rsh_error *err)
{
	char words[128] = "", guess[RSH_SUGGESTION_BYTES];
	struct rsh_suggestion offered;
	size_t at = 0;

	o->form = rsh_command_form(command, word);
	if (o->form)
		return 0;
	rsh_suggestion_begin(&offered, word, strlen(word));
	for (size_t i = 0; i < command->n_forms; i++) {
		const char *form = rsh_command_form_word(&command->forms[i]);

		rsh_text_add(words, sizeof(words), &at, "%s%s", i == 0 ? "" :
			     i + 1 < command->n_forms ? ", " : " or ", form);
		rsh_suggestion_offer(&offered, form);
	}
	rsh_suggestion_put(&offered, "", guess);
	return rsh_error_set(err, EINVAL, "%s %s: expected %s%s", command->name,
			     word, words, guess);
}

/* Sets the form from the first operand, and checks the number of the operands
 * after it. */
static int check_form_operands(struct rsh_options *o, struct rsh_error *err)
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

/* Refuses options that only other forms take.  If the form has no `tree` to
 * read, it also refuses options that choose files of a tree; `without` is the
 * text that says how to give the form a tree. */
static int check_form_use(const struct rsh_options *o, bool tree,
			  const char *without, struct rsh_error *err)
{
	const size_t from = offsetof(struct rsh_options, vfs.files);
	const struct rsh_option *def = NULL;

	while ((def = rsh_option_next_of(o->command, def))) {
		if (!def->name || !rsh_option_given(o, def->name))
			continue;
		if (!rsh_option_is_of(def, o->form))
			return rsh_error_set(err, EINVAL, "%s does not take "
					     "--%s", o->form->name, def->name);
		if (!tree && def->at >= from &&
		    def->at < from + sizeof(struct rsh_source_options))
			return rsh_error_set(err, EINVAL, "%s: --%s needs %s",
					     o->form->name, def->name, without);
	}
	return rsh_check_files(o, err);
}

int rsh_check_strategy(struct rsh_options *o, struct rsh_error *err)
{
	int rc = check_form_operands(o, err);
	enum rsh_command_id id;

	if (rc)
		return rc;
	id = o->form->id;
	rc = check_form_use(o, id == RSH_COMMAND_INFER || o->checkpoint,
			    "--checkpoint", err);
	if (rc)
		return rc;
	if ((id == RSH_COMMAND_MERGE || id == RSH_COMMAND_DERIVE) && !o->output)
		return rsh_error_set(err, EINVAL, "%s: -o FILE is missing",
				     o->form->name);
	if (id == RSH_COMMAND_CHECK && o->checkpoint && !o->vfs.src.from)
		return rsh_error_set(err, EINVAL, "--src-strategy is missing "
				     "(\"none\" if --checkpoint is not "
				     "sharded)");
	if (o->vfs.src.from && !o->checkpoint)
		return rsh_error_set(err, EINVAL, "--src-strategy needs "
				     "strategy check --checkpoint");
	if (id == RSH_COMMAND_DERIVE && !rsh_option_given(o, "mesh"))
		return rsh_error_set(err, EINVAL, "%s: --mesh is missing, as "
				     "in --mesh dp=2,mp=4", o->form->name);
	o->vfs.source = o->operands[1];
	return 0;
}

int rsh_check_convert(struct rsh_options *o, struct rsh_error *err)
{
	static const char *const of_source[] = {
		"from", "config", "dequantize", "src-strategy", "unlisted",
		"vocab-multiple", "untie",
	};
	int rc = check_form_operands(o, err);

	if (rc)
		return rc;
	if (o->n_operands > 1)
		o->vfs.weights.table = o->operands[1];
	if (o->n_operands > 2)
		o->vfs.source = o->operands[2];
	o->vfs.weights.unlisted = rsh_option_given(o, "unlisted") ?
		o->vfs.plan.unlisted : RSH_UNLISTED_ERROR;
	rc = check_form_use(o, o->vfs.source, "SOURCE", err);
	if (rc || o->vfs.source)
		return rc;
	for (size_t i = 0; i < sizeof(of_source) / sizeof(of_source[0]); i++)
		if (rsh_option_given(o, of_source[i]))
			return rsh_error_set(err, EINVAL, "%s: --%s needs "
					     "SOURCE", o->form->name,
					     of_source[i]);
	if (o->form->id == RSH_COMMAND_TABLE_CHECK &&
	    strcmp(o->vfs.weights.table, RSH_TABLE_AUTO) == 0)
		return rsh_error_set(err, EINVAL, "%s: " RSH_TABLE_AUTO
				     " needs SOURCE", o->form->name);
	return 0;
}
