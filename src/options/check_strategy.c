/* SPDX-License-Identifier: Apache-2.0 */
/* options/check_strategy.c checks what each form of `strategy` takes. */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "rsh/options/check.h"
#include "rsh/options/commands.h"
#include "rsh/options/table.h"

static int check_operands(const struct rsh_options *o, struct rsh_error *err)
{
	const char *name = o->form->operands[0];

	if (o->n_operands < 2)
		return rsh_error_set(err, EINVAL, "%s: no %.*s given",
				     o->form->name, (int)strcspn(name, "|."),
				     name);
	if (!strstr(name, "...") && o->n_operands > 2)
		return rsh_error_set(err, EINVAL, "too many operands: %s",
				     o->operands[2]);
	return 0;
}

static bool is_about_files(const struct rsh_option *def)
{
	const size_t from = offsetof(struct rsh_options, vfs.files);

	return def->at >= from &&
	       def->at < from + sizeof(struct rsh_source_options);
}

/* Refuses options that only the other forms take, and those that say which
 * files of a tree are meant where there is no tree. */
static int check_use(const struct rsh_options *o, struct rsh_error *err)
{
	const bool tree = o->form->id == RSH_COMMAND_INFER || o->checkpoint;
	size_t n;
	const struct rsh_option *table = rsh_option_table(&n);

	for (size_t i = 0; i < n; i++) {
		const struct rsh_option *def = &table[i];

		if (!rsh_option_is_of(def, o->command) || !def->name ||
		    !rsh_option_given(o, def->name))
			continue;
		if (!rsh_option_is_of(def, o->form))
			return rsh_error_set(err, EINVAL, "%s has no use for "
					     "--%s", o->form->name, def->name);
		if (is_about_files(def) && !tree)
			return rsh_error_set(err, EINVAL, "%s has no use for "
					     "--%s without --checkpoint",
					     o->form->name, def->name);
	}
	return rsh_check_files(o, err);
}

/* Refuses a form that was not told what it has to be told. */
static int check_missing(const struct rsh_options *o, struct rsh_error *err)
{
	const enum rsh_command_id id = o->form->id;
	const char *name = o->form->name;

	if ((id == RSH_COMMAND_MERGE || id == RSH_COMMAND_DERIVE) && !o->output)
		return rsh_error_set(err, EINVAL, "%s: -o FILE is missing",
				     name);
	if (id == RSH_COMMAND_CHECK && o->checkpoint && !o->vfs.src.from)
		return rsh_error_set(err, EINVAL, "--src-strategy is missing "
				     "(\"none\" if --checkpoint is not "
				     "sharded)");
	if (o->vfs.src.from && !o->checkpoint)
		return rsh_error_set(err, EINVAL, "--src-strategy is for "
				     "strategy check --checkpoint");
	if (id == RSH_COMMAND_DERIVE && !rsh_option_given(o, "mesh"))
		return rsh_error_set(err, EINVAL, "%s: --mesh is missing, as "
				     "in --mesh dp=2,mp=4", name);
	return 0;
}

int rsh_check_form(struct rsh_options *o, const char *word,
		   struct rsh_error *err)
{
	o->form = rsh_command_form(word);
	return o->form ? 0 :
		rsh_error_set(err, EINVAL, "strategy %s: expected show, merge, "
			      "check, derive or infer", word);
}

int rsh_check_strategy(struct rsh_options *o, struct rsh_error *err)
{
	int rc = rsh_check_form(o, o->operands[0], err);

	if (rc == 0)
		rc = check_operands(o, err);
	if (rc == 0)
		rc = check_use(o, err);
	if (rc == 0)
		rc = check_missing(o, err);
	if (rc == 0)
		o->vfs.source = o->operands[1];
	return rc;
}
