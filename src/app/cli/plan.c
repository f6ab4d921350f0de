/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/plan.c runs `plan`, which prints what a conversion reads and
 * costs. */
#include "config.h"

#include "commands.h"

#include <errno.h>
#include <stdlib.h>

#include "plan.h"
#include "rsh/app/ranks.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"

static int report_plan(const struct rsh_options *o, const struct rsh_vfs *vfs,
		       struct rsh_error *err)
{
	struct rsh_vfs_view view;
	struct rsh_plan_report r = {
		.options = o, .view = &view, .slices = o->slices,
		.tensors = o->slices,
	};
	cleanup_free struct rsh_plan_file *files = NULL;
	cleanup_free bool *wanted = NULL;
	uint32_t n;
	int rc;

	if (!rsh_vfs_view(vfs, &view))
		return rsh_error_set(err, EINVAL, "nothing is converted");
	n = rsh_plan_n_files(view.plan);
	rc = rsh_ranks_mark_files(o, 1, view.plan, &wanted, err);
	r.files = files = rsh_alloc_array(n, sizeof(*files));
	if (rc == 0 && !files)
		rc = rsh_error_nomem(err);
	for (uint32_t i = 0; i < n && rc == 0; i++)
		if (wanted[i] &&
		    rsh_plan_measure(view.plan, i, &files[r.n++]))
			rc = rsh_error_nomem(err);
	if (rc == 0 && rsh_plan_print(o, &r))
		rc = rsh_error_nomem(err);
	for (size_t i = 0; i < r.n; i++)
		free(files[i].sources);
	return rc;
}

enum rsh_exit rsh_plan(const struct rsh_options *o)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_vfs *vfs = NULL;
	bool refused = false;
	int rc;

	/* The report has the chosen step and the notes, so these are not
	 * logged. */
	if (!rsh_option_given(o, "log-level"))
		rsh_log_set_level(o->quiet ? RSH_LOG_ERROR : RSH_LOG_WARNING);
	if (o->rank_list)
		rc = rsh_plan_rank_lists(o, &refused, &err);
	else
		rc = rsh_vfs_open(&o->vfs, &vfs, &err);
	if (rc == 0 && vfs)
		rc = report_plan(o, vfs, &err);
	rsh_vfs_free(vfs);
	if (rc)
		return rsh_exit_failed(o, rc, &err);
	return refused ? RSH_EXIT_NO : RSH_EXIT_GOOD;
}
