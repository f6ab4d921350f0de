/* SPDX-License-Identifier: Apache-2.0 */
/* cli/verify.c runs `verify`, which tells whether the bytes are what they
 * should be. */
#include "config.h"

#include "commands.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "output.h"
#include "rsh/copy/verify.h"
#include "rsh/options/check.h"
#include "rsh/options/ranks.h"
#include "rsh/options/reading.h"
#include "rsh/source/dcp.h"
#include "rsh/source/inspect.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/vfs/inspect.h"
#include "text.h"
#include "work.h"

/* ---- the answer ---- */

struct report {
	struct rsh_work work;
	struct rsh_answer answer;
	char step[256]; /* empty: no source was looked at */
};

static json_t *problems_json(const struct rsh_answer *a)
{
	json_t *all = json_array();

	for (size_t i = 0; i < a->n_problems; i++) {
		const struct rsh_problem *p = &a->problems[i];

		json_array_append_new(
			all, json_pack("{s:o,s:o,s:o,s:o}", "path",
				       rsh_json_text(p->path), "record",
				       rsh_json_optional(p->record), "offset",
				       p->placed ? rsh_json_u64(p->offset) :
						   json_null(),
				       "what", rsh_json_text(p->what)));
	}
	return all;
}

static int print_answer_json(const struct rsh_output *out,
			     const struct report *r)
{
	const struct rsh_answer *a = &r->answer;

	return rsh_output_json(
		out, json_pack("{s:b,s:o,s:i,s:o,s:i,s:i,s:b,s:f,s:o}", "good",
			       a->n_problems == 0, "step",
			       rsh_json_optional(*r->step ? r->step : NULL),
			       "files", (int)a->n_files, "bytes",
			       rsh_json_u64(a->bytes), "replicas",
			       (int)a->n_replicas, "made_up",
			       (int)a->n_made_up, "another_conversion",
			       a->another, "seconds",
			       rsh_work_seconds(&r->work), "problems",
			       problems_json(a)));
}

static void print_problem(const struct rsh_output *out,
			  const struct rsh_problem *p)
{
	fputs(out->color ? "\033[31m" : "", out->f);
	rsh_output_put(out, p->path);
	fputs(out->color ? "\033[0m: " : ": ", out->f);
	rsh_output_put(out, p->what);
	if (p->record) {
		fputs(", record ", out->f);
		rsh_output_put(out, p->record);
	}
	if (p->placed)
		fprintf(out->f, ", offset %" PRIu64, p->offset);
	fputc('\n', out->f);
}

static void print_lines(const struct rsh_output *out, const struct report *r)
{
	const struct rsh_answer *a = &r->answer;
	char size[32], time[32];

	for (size_t i = 0; i < a->n_problems; i++)
		print_problem(out, &a->problems[i]);
	if (r->work.options->quiet)
		return;
	if (a->another && a->n_problems)
		fprintf(out->f, "note: the manifest is of another conversion: "
			"other options, strategies or source files\n");
	if (a->n_made_up)
		fprintf(out->f, "note: %" PRIu32 " rank%s no file, but others "
			"hold the same\n", a->n_made_up,
			a->n_made_up == 1 ? " has" : "s have");
	rsh_output_put(out, r->step);
	fprintf(out->f, "%s%" PRIu32 " file%s of %s", *r->step ? ": " : "",
		a->n_files, a->n_files == 1 ? "" : "s",
		rsh_text_bytes(a->bytes, size, sizeof(size)));
	if (a->n_replicas)
		fprintf(out->f, " and %" PRIu32 " replica%s", a->n_replicas,
			a->n_replicas == 1 ? "" : "s");
	fprintf(out->f, " verified in %s: ",
		rsh_text_seconds(rsh_work_seconds(&r->work), time,
				 sizeof(time)));
	if (a->n_problems)
		fprintf(out->f, "%zu problem%s\n", a->n_problems,
			a->n_problems == 1 ? "" : "s");
	else
		fputs("good\n", out->f);
}

static int print_answer(const struct report *r)
{
	struct rsh_output out;

	rsh_output_init(&out, r->work.options);
	if (out.json)
		return print_answer_json(&out, r);
	print_lines(&out, r);
	return 0;
}

static void take_verified_step(struct report *r, const struct rsh_source *s)
{
	rsh_source_candidate_text(s, rsh_source_chosen(s), r->step,
				  sizeof(r->step));
}

/* ---- the questions ---- */

/* A tree that is not there is a slip of the pen, not one without its files. */
static int find_tree(const char *dir, struct rsh_error *err)
{
	struct stat st;

	if (stat(dir, &st) != 0)
		return rsh_error_set(err, errno, "%s: %s", dir,
				     strerror(errno));
	return 0;
}

static int verify_files(struct report *r, struct rsh_error *err)
{
	const struct rsh_options *o = r->work.options;
	const struct rsh_copy_control control = rsh_work_control(&r->work);
	const char *manifest = o->operands[0], *dir, *slash;
	cleanup_free char *beside = NULL;
	int rc;

	dir = o->n_operands > 1 ? o->operands[1] : NULL;
	if (dir && !rsh_is_file(manifest)) {
		manifest = o->operands[1];
		dir = o->operands[0];
	}
	if (!dir) {
		slash = strrchr(manifest, '/');
		beside = slash ? strndup(manifest, slash == manifest ? 1 :
					 (size_t)(slash - manifest)) :
				 strdup(".");
		if (!beside)
			return rsh_error_nomem(err);
		dir = beside;
	}
	rc = find_tree(dir, err);
	return rc ? rc : rsh_verify_files(manifest, dir, &control, &r->answer,
					  err);
}

static int verify_plan(struct report *r, enum rsh_verify_kind kind,
		       struct rsh_error *err)
{
	const struct rsh_options *o = r->work.options;
	const char *other = o->n_operands > 1 ? o->operands[1] : NULL;
	cleanup_free bool *wanted = NULL;
	struct rsh_verify_options vo = {
		.tree = kind == RSH_VERIFY_TREE ? other : NULL,
		.manifest = kind == RSH_VERIFY_MANIFEST ? other : NULL,
		.write = o->write_manifest,
		.overwrite = o->overwrite,
		.control = rsh_work_control(&r->work),
	};
	struct rsh_vfs_view view;
	int rc;

	if (!rsh_vfs_view(r->work.vfs, &view))
		return rsh_error_set(err, EINVAL, "nothing is converted");
	take_verified_step(r, view.source);
	rc = rsh_ranks_mark_files(o, 2, view.plan, &wanted, err);
	vo.wanted = wanted;
	return rc ? rc : rsh_verify_plan(r->work.vfs, &r->work.cfg, &vo,
					 &r->answer, err);
}

/* Verifies the step that a mount takes, and with --write-manifest what it would
 * show. */
static int verify_mounted(struct report *r, struct rsh_error *err)
{
	const struct rsh_copy_control control = rsh_work_control(&r->work);
	struct rsh_vfs_view view;
	int rc;

	if (!rsh_vfs_view(r->work.vfs, &view))
		return rsh_error_set(err, EINVAL, "nothing is converted");
	take_verified_step(r, view.source);
	rc = rsh_verify_source(view.source, view.src, view.names, &control,
			       &r->answer, err);
	if (rc || !r->work.options->write_manifest || r->answer.n_problems)
		return rc;
	rsh_work_end_progress(&r->work);
	rsh_answer_clear(&r->answer);
	return verify_plan(r, RSH_VERIFY_SOURCE, err);
}

/* Verifies the best step there is, without asking for a conversion. */
static int verify_best(struct report *r, struct rsh_error *err)
{
	const struct rsh_options *o = r->work.options;
	const struct rsh_copy_control control = rsh_work_control(&r->work);
	struct rsh_source_options files = o->vfs.files;
	const char *path = o->vfs.src.path;
	struct rsh_strategy *strategy = NULL;
	struct rsh_names *names = rsh_names_new();
	struct rsh_source *source = NULL;
	uint32_t first = 0, n = UINT32_MAX;
	int rc = names ? rsh_reading_new(o, &r->work.io, err) :
			 rsh_error_nomem(err);

	files.dcp = true;
	files.store.io = r->work.io;
	if (rc == 0 && path)
		rc = rsh_strategy_load(path, o->vfs.plan.compat, names,
				       &strategy, err);
	if (rc == 0 && strategy)
		rsh_conversion_source_ranks(strategy, NULL, names, true, &first,
					    &n);
	if (rc == 0)
		rc = rsh_source_open(o->vfs.source, first, n, &files, &source,
				     err);
	if (rc == 0 && path &&
	    (rsh_source_is_described(source) || rsh_source_dcp(source)))
		rc = rsh_source_needs_none(source, err);
	if (rc == 0)
		rc = rsh_source_choose(source, 0, err);
	if (rc == 0 && rsh_source_is_described(source)) {
		rc = rsh_source_index(source, names, err);
		if (rc == 0)
			rc = rsh_source_strategy(source, true, names, &strategy,
						 err);
	}
	if (rc == 0) {
		take_verified_step(r, source);
		rc = rsh_verify_source(source, strategy, names, &control,
				       &r->answer, err);
	}
	rsh_source_free(source);
	if (strategy)
		rsh_strategy_free(strategy);
	rsh_names_free(names);
	return rc;
}

static int ask_question(struct report *r, struct rsh_error *err)
{
	const struct rsh_options *o = r->work.options;
	const enum rsh_verify_kind kind = rsh_verify_kind_of(o);
	int rc;

	if (kind == RSH_VERIFY_FILES)
		return verify_files(r, err);
	if (kind == RSH_VERIFY_SOURCE && !o->vfs.dst.from)
		return verify_best(r, err);
	rc = kind == RSH_VERIFY_TREE ? find_tree(o->operands[1], err) : 0;
	/* A converted tree proves nothing of the source. */
	if (rc == 0)
		rc = rsh_work_open(&r->work, kind != RSH_VERIFY_TREE, err);
	if (rc)
		return rc;
	return kind == RSH_VERIFY_SOURCE ? verify_mounted(r, err) :
					   verify_plan(r, kind, err);
}

enum rsh_exit rsh_verify(const struct rsh_options *o)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct report r = { 0 };
	enum rsh_exit status;
	int rc;

	if (!rsh_option_given(o, "log-level"))
		rsh_log_set_level(o->quiet ? RSH_LOG_ERROR : RSH_LOG_WARNING);
	rsh_work_begin(&r.work, o, "verifying");
	rc = ask_question(&r, &err);
	rsh_work_end_progress(&r.work);
	if (rc == 0 && print_answer(&r))
		rc = rsh_error_nomem(&err);
	status = rc ? rsh_exit_failed(o, rc, &err) :
		 r.answer.n_problems ? RSH_EXIT_NO : RSH_EXIT_GOOD;
	rsh_answer_clear(&r.answer);
	rsh_work_end(&r.work);
	return status;
}
