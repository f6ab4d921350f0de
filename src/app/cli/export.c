/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/export.c runs `export`, which writes a virtual tree as real files. */
#include "config.h"

#include "commands.h"

#include <errno.h>
#include <inttypes.h>

#include "rsh/app/options.h"
#include "rsh/copy/export.h"
#include "rsh/source/inspect.h"
#include "rsh/util/mem.h"
#include "rsh/vfs/inspect.h"

/* ---- the summary ---- */

static void report_export(struct rsh_printer *out, const struct rsh_work *w,
			  const struct rsh_export_result *r)
{
	const struct rsh_options *o = w->options;
	const double seconds = rsh_work_seconds(w);
	struct rsh_vfs_view view;
	char step[256] = "";

	if (rsh_vfs_view(w->vfs, &view))
		rsh_source_chosen_text(view.source, step, sizeof(step));
	rsh_json(out, "{source:% step:% directory:% files:{written:% kept:% "
		 "lost:%} bytes:{written:% kept:% read:%} verified:% seconds:% "
		 "manifest:%}", o->vfs.source, step, o->directory, r->n_written,
		 r->n_kept, r->n_lost, r->bytes_written, r->bytes_kept,
		 rsh_work_source_bytes(w), o->verify, seconds, r->manifest);
	if (o->quiet)
		return;
	rsh_say(out, "%: % file{|s} of % written to %% in %, %/s", step,
		r->n_written, rsh_v_bytes(r->bytes_written), o->directory,
		o->verify ? " and verified" : "", rsh_v_seconds(seconds),
		rsh_v_bytes(seconds > 0 ? (uint64_t)((double)r->bytes_written /
						     seconds) : 0));
	if (r->n_kept)
		rsh_say(out, "; % already existed", r->n_kept);
	if (r->n_lost)
		rsh_say(out, "; % omitted because their slices are lost",
			r->n_lost);
	rsh_say(out, "\n");
}

/* ---- the command ---- */

static int export_ranks(struct rsh_work *w, struct rsh_export_result *r,
			struct rsh_error *err)
{
	const struct rsh_options *o = w->options;
	cleanup_free bool *wanted = NULL;
	struct rsh_export_options eo = {
		.dir = o->directory,
		.manifest = o->manifest,
		.share = { o->share, o->n_shares },
		.verify = o->verify,
		.overwrite = o->overwrite,
	};
	struct rsh_vfs_view view;
	int rc = rsh_work_open(w, false, err);

	if (rc)
		return rc;
	eo.control = rsh_work_control(w);
	if (!rsh_vfs_view(w->vfs, &view))
		return rsh_error_set(err, EINVAL, "nothing is converted");
	rc = rsh_ranks_mark_files(o, 2, view.plan, &wanted, err);
	eo.wanted = wanted;
	return rc ?: rsh_export(w->vfs, &w->cfg, &eo, r, err);
}

int rsh_export_command(const struct rsh_options *o, struct rsh_run *run)
{
	struct rsh_export_result r = { 0 };
	struct rsh_error why;
	struct rsh_work w;
	int rc;

	rsh_work_begin(&w, o, "exporting");
	rc = export_ranks(&w, &r, &run->err);
	rsh_work_end_progress(&w);
	why = run->err;
	/* Say how many files are complete, and what to do next.  Another
	 * source makes another export. */
	if (rc == -EINTR || (rc && r.n_written > 0))
		rsh_error_set(&run->err, why.code, "%s; %" PRIu32 " of %" PRIu32
			      " files are complete; run the same command %s",
			      why.text, r.n_written + r.n_kept,
			      r.n_written + r.n_kept + r.n_left,
			      rc == -ESTALE ? "with --overwrite" : "to resume");
	if (rc == 0)
		report_export(&run->out, &w, &r);
	run->status = r.n_lost ? RSH_EXIT_NO : RSH_EXIT_GOOD;
	rsh_export_result_clear(&r);
	rsh_work_end(&w);
	return rc;
}
