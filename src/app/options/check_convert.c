/* SPDX-License-Identifier: Apache-2.0 */
/* app/options/check_convert.c checks what each form of `convert` takes. */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "rsh/app/check.h"
#include "rsh/app/commands.h"
#include "rsh/source/tables.h"

/* Refuses options about a SOURCE if there is no SOURCE. */
static int check_no_source(const struct rsh_options *o, struct rsh_error *err)
{
	static const char *const options[] = {
		"from", "config", "dequantize", "src-strategy", "unlisted",
		"vocab-multiple", "untie",
	};

	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
		if (rsh_option_given(o, options[i]))
			return rsh_error_set(err, EINVAL, "%s: --%s needs "
					     "SOURCE",
					     o->form->name, options[i]);
	if (o->form->id == RSH_COMMAND_TABLE_CHECK &&
	    strcmp(o->vfs.weights.table, RSH_TABLE_AUTO) == 0)
		return rsh_error_set(err, EINVAL, "%s: " RSH_TABLE_AUTO
				     " needs SOURCE", o->form->name);
	return 0;
}

int rsh_check_convert(struct rsh_options *o, struct rsh_error *err)
{
	int rc = rsh_check_form_operands(o, err);

	if (rc)
		return rc;
	if (o->n_operands > 1)
		o->vfs.weights.table = o->operands[1];
	if (o->n_operands > 2)
		o->vfs.source = o->operands[2];
	o->vfs.weights.unlisted = rsh_option_given(o, "unlisted") ?
		o->vfs.plan.unlisted : RSH_UNLISTED_ERROR;
	rc = rsh_check_form_use(o, o->vfs.source, "SOURCE", err);
	return rc || o->vfs.source ? rc : check_no_source(o, err);
}
