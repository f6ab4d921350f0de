/* SPDX-License-Identifier: Apache-2.0 */
/* app/options/steps.c makes the options of a mount of one step from those of a
 * mount of all steps. */
#include "config.h"

#include <stdlib.h>

#include "rsh/app/check.h"
#include "rsh/source/save_dir.h"

int rsh_options_of_step(const struct rsh_options *o,
			const struct rsh_saved_step *step,
			const struct rsh_store_options *store,
			struct rsh_options *out, struct rsh_error *err)
{
	struct rsh_source_options *f = &out->vfs.files;
	int rc;

	*out = *o;
	out->copies = NULL;
	out->n_copies = out->cap_copies = 0;
	out->steps = false;
	out->vfs = o->asked;
	out->vfs.source = step->path;
	out->vfs.fallbacks = 0;
	f->store = *store;
	f->step_files = step->files;
	if (step->selected && step->step.n >= 2) {
		f->select = RSH_SELECT_STEP;
		f->epoch = step->step.numbers[0];
		f->step = step->step.numbers[1];
	} else if (step->selected) {
		f->select = RSH_SELECT_LONE_STEP;
		f->step = step->step.numbers[0];
	}
	rc = rsh_check_conversion(out, err);
	if (rc == 0)
		rsh_options_settle(out);
	return rc;
}

void rsh_options_clear_step(struct rsh_options *out)
{
	for (size_t i = 0; i < out->n_copies; i++)
		free(out->copies[i]);
	free(out->copies);
}
