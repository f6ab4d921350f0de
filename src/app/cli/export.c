/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/export.c runs `export`, which writes a virtual tree as real files. */
#include "config.h"

#include "commands.h"

#include <errno.h>
#include <inttypes.h>

#include "printer.h"
#include "rsh/app/options.h"
#include "rsh/copy/export.h"
#include "rsh/source/inspect.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/vfs/inspect.h"
#include "work.h"

/* ---- the summary ---- */

static int print_export_json(const struct rsh_printer *out,
			     const struct rsh_work *w,
			     const struct rsh_export_result *r,
			     const char *step)
{
	const struct rsh_options *o = w->options;

	return rsh_printer_json(
		out, json_pack("{s:o,s:o,s:o,s:{s:i,s:i,s:i},s:{s:o,s:o,s:o},"
			       "s:b,s:f,s:o}", "source",
			       rsh_json_text(o->vfs.source), "step",
			       rsh_json_text(step), "directory",
			       rsh_json_text(o->directory), "files", "written",
			       (int)r->n_written, "kept", (int)r->n_kept,
			       "lost", (int)r->n_lost, "bytes", "written",
			       rsh_json_u64(r->bytes_written), "kept",
			       rsh_json_u64(r->bytes_kept), "read",
			       rsh_json_u64(rsh_work_source_bytes(w)),
			       "verified", o->verify, "seconds",
			       rsh_work_seconds(w), "manifest",
			       rsh_json_text(r->manifest)));
}

static int report_export(const struct rsh_work *w,
			 const struct rsh_export_result *r)
{
	struct rsh_vfs_view view;
	struct rsh_printer out;
	char step[256] = "";

	rsh_printer_init(&out, w->options);
	if (rsh_vfs_view(w->vfs, &view))
		rsh_source_candidate_text(view.source,
					  rsh_source_chosen(view.source), step,
					  sizeof(step));
	if (out.json)
		return print_export_json(&out, w, r, step);
	if (!w->options->quiet) {
		const double seconds = rsh_work_seconds(w);
		char size[32], time[32], rate[32];

		rsh_printer_put(&out, step);
		fprintf(out.f, ": %" PRIu32 " file%s of %s written to ",
			r->n_written, r->n_written == 1 ? "" : "s",
			rsh_text_bytes(r->bytes_written, size, sizeof(size)));
		rsh_printer_put(&out, w->options->directory);
		fprintf(out.f, "%s in %s, %s/s",
			w->options->verify ? " and verified" : "",
			rsh_text_seconds(seconds, time, sizeof(time)),
			rsh_text_bytes(
				seconds > 0 ?
					(uint64_t)((double)r->bytes_written /
						   seconds) :
					0, rate, sizeof(rate)));
		if (r->n_kept)
			fprintf(out.f, "; %" PRIu32 " already existed",
				r->n_kept);
		if (r->n_lost)
			fprintf(out.f,
				"; %" PRIu32 " omitted because their slices "
				"are lost", r->n_lost);
		fputc('\n', out.f);
	}
	return 0;
}

/* ---- the command ---- */

/* Adds to the error how many files are complete, and what to do next. */
static void explain(int rc, const struct rsh_export_result *r,
		    struct rsh_error *err)
{
	const struct rsh_error why = *err;

	if (r->n_written == 0 && rc != -EINTR)
		return;
	rsh_error_set(err, why.code, "%s; %" PRIu32 " of %" PRIu32 " files "
		      "are complete; run the same command to resume", why.text,
		      r->n_written + r->n_kept,
		      r->n_written + r->n_kept + r->n_left);
}

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
		.control = rsh_work_control(w),
	};
	struct rsh_vfs_view view;
	int rc;

	if (!rsh_vfs_view(w->vfs, &view))
		return rsh_error_set(err, EINVAL, "nothing is converted");
	rc = rsh_ranks_mark_files(o, 2, view.plan, &wanted, err);
	eo.wanted = wanted;
	return rc ? rc : rsh_export(w->vfs, &w->cfg, &eo, r, err);
}

enum rsh_exit rsh_export_command(const struct rsh_options *o)
{
	struct rsh_export_result result = { 0 };
	struct rsh_error err = RSH_ERROR_INIT;
	enum rsh_exit status;
	struct rsh_work w;
	int rc;

	rsh_work_begin(&w, o, "exporting");
	rc = rsh_work_open(&w, false, &err) ?:
	     export_ranks(&w, &result, &err);
	rsh_work_end_progress(&w);
	if (rc)
		explain(rc, &result, &err);
	else if (report_export(&w, &result))
		rc = rsh_error_nomem(&err);
	status = rc ? rsh_exit_failed(o, rc, &err) :
		 result.n_lost ? RSH_EXIT_NO : RSH_EXIT_GOOD;
	rsh_export_result_clear(&result);
	rsh_work_end(&w);
	return status;
}
