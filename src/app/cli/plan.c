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

struct files {
	struct rsh_plan_file *v;
	size_t n;
};

static void files_clear(struct files *f)
{
	for (size_t i = 0; i < f->n; i++)
		rsh_plan_file_clear(&f->v[i]);
	free(f->v);
}

static int measure_ranks(const struct rsh_options *o,
			 const struct rsh_vfs_view *view, struct files *files,
			 struct rsh_error *err)
{
	uint32_t n = rsh_plan_n_files(view->plan);
	cleanup_free bool *wanted = NULL;
	int rc = rsh_ranks_mark_files(o, 1, view->plan, &wanted, err);

	files->v = rsh_alloc_array(n, sizeof(*files->v));
	if (rc == 0 && !files->v)
		rc = rsh_error_nomem(err);
	for (uint32_t i = 0; i < n && rc == 0; i++) {
		if (!wanted[i])
			continue;
		if (rsh_plan_measure(view->plan, i, &files->v[files->n++]))
			rc = rsh_error_nomem(err);
	}
	return rc;
}

static int report_plan(const struct rsh_options *o, const struct rsh_vfs *vfs,
		       struct rsh_error *err)
{
	struct rsh_plan_report r = { .options = o, .slices = o->slices,
				     .tensors = o->slices };
	struct files files = { 0 };
	struct rsh_vfs_view view;
	struct rsh_printer out;
	int rc;

	rsh_printer_init(&out, o);
	if (!rsh_vfs_view(vfs, &view))
		return rsh_error_set(err, EINVAL, "nothing is converted");
	rc = measure_ranks(o, &view, &files, err);
	r.view = &view;
	r.n = files.n;
	r.files = files.v;
	if (rc == 0 && rsh_plan_print(&out, &r))
		rc = rsh_error_nomem(err);
	files_clear(&files);
	return rc;
}

enum rsh_exit rsh_plan(const struct rsh_options *o)
{
	const struct rsh_vfs_config *cfg = &o->vfs;
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
		rc = rsh_vfs_open(cfg, &vfs, &err);
	if (rc == 0 && vfs)
		rc = report_plan(o, vfs, &err);
	rsh_vfs_free(vfs);
	if (rc)
		return rsh_exit_failed(o, rc, &err);
	return refused ? RSH_EXIT_NO : RSH_EXIT_GOOD;
}
