/* SPDX-License-Identifier: Apache-2.0 */
/* app/options/check_strategy.c checks what each form of `strategy` takes. */
#include "config.h"

#include <errno.h>

#include "rsh/app/check.h"
#include "rsh/app/commands.h"

/* Refuses a form if an option that it needs is missing. */
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
		return rsh_error_set(err, EINVAL, "--src-strategy needs "
				     "strategy check --checkpoint");
	if (id == RSH_COMMAND_DERIVE && !rsh_option_given(o, "mesh"))
		return rsh_error_set(err, EINVAL, "%s: --mesh is missing, as "
				     "in --mesh dp=2,mp=4", name);
	return 0;
}

int rsh_check_strategy(struct rsh_options *o, struct rsh_error *err)
{
	int rc = rsh_check_form_operands(o, err);

	if (rc == 0)
		rc = rsh_check_form_use(o, o->form->id == RSH_COMMAND_INFER ||
					   o->checkpoint, "--checkpoint", err);
	if (rc == 0)
		rc = check_missing(o, err);
	if (rc == 0)
		o->vfs.source = o->operands[1];
	return rc;
}
