/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/verify.c runs `verify`, which checks whether the bytes are
 * correct. */
#include "config.h"

#include "commands.h"

#include <errno.h>
#include <inttypes.h>
#include <sys/stat.h>

#include "printer.h"
#include "rsh/app/check.h"
#include "rsh/app/options.h"
#include "rsh/copy/verify.h"
#include "rsh/plan/conversion.h"
#include "rsh/source/format.h"
#include "rsh/source/inspect.h"
#include "rsh/util/files.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/vfs/inspect.h"
#include "work.h"

/* ---- printing the answer ---- */

struct report {
	struct rsh_work work;
	struct rsh_answer answer;
	enum rsh_verify_kind kind;
	bool apart;         /* it is unknown which ranks hold the same
			     * content */
	uint32_t n_written; /* number of files in the manifest that was
			     * written */
	char step[256]; /* empty: no source was read */
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

#define PHRASE_BYTES 96
#define PHRASES_MAX 6

/* These are phrases about what was compared. */
struct phrases {
	char text[PHRASES_MAX][PHRASE_BYTES];
	unsigned n;
};

static const char *plural(uint32_t n)
{
	return n == 1 ? "" : "s";
}

static void phrases_of(const struct report *r, struct phrases *out)
{
	const struct rsh_answer *a = &r->answer;
	char (*text)[PHRASE_BYTES] = out->text;
	char size[32];
	unsigned n = 0;

	if (r->kind == RSH_VERIFY_MANIFEST && a->n_by_manifest)
		snprintf(text[n++], PHRASE_BYTES, "what a mount shows of %"
			 PRIu32 " file%s against the manifest",
			 a->n_by_manifest, plural(a->n_by_manifest));
	else if (a->n_by_manifest)
		snprintf(text[n++], PHRASE_BYTES, "%" PRIu32 " file%s against "
			 "%s manifest", a->n_by_manifest,
			 plural(a->n_by_manifest),
			 a->n_by_manifest == 1 ? "its" : "their");
	if (a->n_by_plan)
		snprintf(text[n++], PHRASE_BYTES, "%" PRIu32 " file%s against "
			 "what a mount shows", a->n_by_plan,
			 plural(a->n_by_plan));
	if (a->n_by_crc)
		snprintf(text[n++], PHRASE_BYTES, "%" PRIu32 " file%s against "
			 "%s CRC", a->n_by_crc, plural(a->n_by_crc),
			 a->n_by_crc == 1 ? "its" : "their");
	if (a->n_replicas)
		snprintf(text[n++], PHRASE_BYTES, "%" PRIu32 " slice%s of %"
			 PRIu32 " ranks against each other", a->n_replicas,
			 plural(a->n_replicas), a->n_ranks);
	if (n == 0)
		snprintf(text[n++], PHRASE_BYTES, "headers and sizes only");
	else if (a->uncompared)
		snprintf(text[n++], PHRASE_BYTES,
			 "headers and sizes only of %s",
			 rsh_text_bytes(a->uncompared, size, sizeof(size)));
	out->n = n;
}

static json_t *phrases_json(const struct report *r)
{
	json_t *all = json_array();
	struct phrases p;

	phrases_of(r, &p);
	for (unsigned i = 0; i < p.n; i++)
		json_array_append_new(all, json_string(p.text[i]));
	return all;
}

static int print_answer_json(const struct rsh_printer *out,
			     const struct report *r)
{
	const struct rsh_answer *a = &r->answer;

	return rsh_printer_json(
		out, json_pack("{s:b,s:o,s:i,s:o,s:o,s:i,s:i,s:i,s:i,s:i,s:o,"
			       "s:o,s:i,s:i,s:b,s:f,s:o}", "good",
			       a->n_problems == 0, "step",
			       rsh_json_optional(*r->step ? r->step : NULL),
			       "files", (int)a->n_files, "bytes",
			       rsh_json_u64(a->bytes), "compared",
			       phrases_json(r), "by_manifest",
			       (int)a->n_by_manifest, "by_plan",
			       (int)a->n_by_plan, "by_crc", (int)a->n_by_crc,
			       "replicas", (int)a->n_replicas, "ranks",
			       (int)a->n_ranks, "uncompared",
			       rsh_json_u64(a->uncompared), "without_crc",
			       rsh_json_u64(a->n_unsummed), "unlisted",
			       (int)a->n_unlisted, "made_up",
			       (int)a->n_made_up, "another_conversion",
			       a->another, "seconds",
			       rsh_work_seconds(&r->work), "problems",
			       problems_json(a)));
}

static void print_notes(const struct rsh_printer *out, const struct report *r)
{
	const struct rsh_answer *a = &r->answer;

	if (r->apart)
		fprintf(out->f, "note: replicas were not compared: this "
			"needs --src-strategy\n");
	if (a->another && a->n_problems)
		fprintf(out->f, "note: the manifest is of another conversion: "
			"other options, strategies or source files\n");
	if (a->n_made_up)
		fprintf(out->f, "note: %" PRIu32 " rank%s no file, but others "
			"hold the same\n", a->n_made_up,
			a->n_made_up == 1 ? " has" : "s have");
	if (a->n_unsummed)
		fprintf(out->f, "note: %" PRIu64 " item%s no CRC (torch was "
			"configured to write none)\n", a->n_unsummed,
			a->n_unsummed == 1 ? " has" : "s have");
	if (a->n_by_manifest < a->n_of)
		fprintf(out->f, "note: the manifest has %" PRIu32 " of the "
			"%" PRIu32 " files of its tree; %" PRIu32 " other "
			"files %s not verified\n", a->n_by_manifest,
			a->n_of, a->n_unlisted,
			a->n_unlisted == 1 ? "was" : "were");
}

static void print_lines(const struct rsh_printer *out, const struct report *r)
{
	const struct rsh_answer *a = &r->answer;
	char size[32], time[32];
	struct phrases p;

	for (size_t i = 0; i < a->n_problems; i++) {
		fputs(out->color ? "\033[31m" : "", out->f);
		rsh_printer_put(out, a->problems[i].path);
		fputs(out->color ? "\033[0m: " : ": ", out->f);
		rsh_printer_put(out, a->problems[i].what);
		if (a->problems[i].record) {
			fputs(", record ", out->f);
			rsh_printer_put(out, a->problems[i].record);
		}
		if (a->problems[i].placed)
			fprintf(out->f, ", offset %" PRIu64,
				a->problems[i].offset);
		fputc('\n', out->f);
	}
	if (r->work.options->quiet)
		return;
	print_notes(out, r);
	rsh_printer_put(out, r->step);
	fprintf(out->f, "%s%" PRIu32 " file%s of %s read in %s: ",
		*r->step ? ": " : "", a->n_files, plural(a->n_files),
		rsh_text_bytes(a->bytes, size, sizeof(size)),
		rsh_text_seconds(rsh_work_seconds(&r->work), time,
				 sizeof(time)));
	/* The word "good" is printed only if something was compared. */
	phrases_of(r, &p);
	for (unsigned i = 0; i < p.n; i++)
		fprintf(out->f, "%s%s", i ? ", " : "", p.text[i]);
	if (r->n_written)
		fprintf(out->f, ", a manifest of %" PRIu32 " file%s written",
			r->n_written, plural(r->n_written));
	if (a->n_problems)
		fprintf(out->f, ": %zu problem%s\n", a->n_problems,
			a->n_problems == 1 ? "" : "s");
	else if (a->uncompared || !(a->n_by_manifest || a->n_by_plan ||
				    a->n_by_crc || a->n_replicas))
		fputs(": no problem found\n", out->f);
	else
		fputs(": good\n", out->f);
}

static void take_verified_step(struct report *r, const struct rsh_source *s)
{
	rsh_source_candidate_text(s, rsh_source_chosen(s), r->step,
				  sizeof(r->step));
}

/* ---- verifying ---- */

/* A TREE that does not exist is an error of the command line, not a tree
 * without files. */
static int find_tree(const char *dir, struct rsh_error *err)
{
	struct stat st;

	if (stat(dir, &st) != 0)
		return rsh_error_file(err, errno, dir);
	return 0;
}

static int verify_files(struct report *r, struct rsh_error *err)
{
	const struct rsh_options *o = r->work.options;
	const struct rsh_copy_control control = rsh_work_control(&r->work);
	const char *manifest = o->operands[0], *dir;
	cleanup_free char *beside = NULL;

	dir = o->n_operands > 1 ? o->operands[1] : NULL;
	if (dir && !rsh_is_file(manifest)) {
		manifest = o->operands[1];
		dir = o->operands[0];
	}
	if (!dir) {
		dir = beside = rsh_path_directory(manifest);
		if (!beside)
			return rsh_error_nomem(err);
	}
	return find_tree(dir, err) ?:
	       rsh_verify_files(manifest, dir, &o->vfs.files.store,
				&control, &r->answer, err);
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

/* A file has whole parameters if no strategy is given and the format does not
 * describe its sharding. */
static bool verify_is_whole(const struct report *r,
			    const struct rsh_source *source)
{
	const struct rsh_format *f = rsh_source_format(source);

	return r->work.options->vfs.src.from == RSH_FROM_NONE &&
	       f->layout != RSH_LAYOUT_OWN && f->by_name;
}

/* Returns whether there are several ranks and it is unknown what they hold. */
static bool is_apart(const struct report *r, const struct rsh_source *source)
{
	uint32_t first;

	if (r->work.options->vfs.src.from ||
	    rsh_source_format(source)->layout != RSH_LAYOUT_GIVEN)
		return false;
	for (uint32_t i = 0; i < rsh_source_n_files(source); i++) {
		struct rsh_source_file_info f;

		rsh_source_file_info(source, i, &f);
		if (f.rank > 0 && rsh_source_rank_files(source, f.rank, &first))
			return true;
	}
	return false;
}

/* Verifies the best step without a conversion. */
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
	int rc = names ? rsh_store_io_new(&o->io, &r->work.io, err) :
			 rsh_error_nomem(err);

	files.store.io = r->work.io;
	if (rc == 0 && path)
		rc = rsh_strategy_load(path, o->vfs.plan.compat, names,
				       &strategy, err);
	if (rc == 0 && strategy)
		rsh_conversion_source_ranks(strategy, NULL, names, true, &first,
					    &n);
	rc = rc ?: rsh_source_open(o->vfs.source, first, n, &files, &source,
				   err);
	if (rc == 0 && path &&
	    rsh_source_format(source)->layout != RSH_LAYOUT_GIVEN)
		rc = rsh_source_needs_none(source, err);
	rc = rc ?: rsh_source_choose(source, 0, err);
	if (rc == 0 && rsh_source_format(source)->layout == RSH_LAYOUT_OWN) {
		rc = rsh_source_index(source, names, err) ?:
		     rsh_source_strategy(source, true, names, &strategy, err);
	}
	if (rc == 0) {
		take_verified_step(r, source);
		r->apart = is_apart(r, source);
		rc = rsh_verify_source(&(struct rsh_verify_source){
					source, strategy,
					verify_is_whole(r, source), names,
				       }, &control, &r->answer, err);
	}
	rsh_source_free(source);
	if (strategy)
		rsh_strategy_free(strategy);
	rsh_names_free(names);
	return rc;
}

static int ask_of_source(struct report *r, struct rsh_error *err)
{
	const struct rsh_options *o = r->work.options;
	const enum rsh_verify_kind kind = r->kind;
	struct rsh_copy_control control;
	struct rsh_vfs_view view;
	int rc;

	if (kind == RSH_VERIFY_SOURCE && !o->vfs.dst.from)
		return verify_best(r, err);
	rc = kind == RSH_VERIFY_TREE ? find_tree(o->operands[1], err) : 0;
	/* The content of a converted tree says nothing about replicas of the
	 * source. */
	rc = rc ?: rsh_work_open(&r->work, kind != RSH_VERIFY_TREE, err);
	if (rc)
		return rc;
	if (kind != RSH_VERIFY_SOURCE)
		return verify_plan(r, kind, err);
	/* Verify the step that a mount takes.  With --write-manifest also write
	 * a manifest of what the mount would show. */
	control = rsh_work_control(&r->work);
	if (!rsh_vfs_view(r->work.vfs, &view))
		return rsh_error_set(err, EINVAL, "nothing is converted");
	take_verified_step(r, view.source);
	rc = rsh_verify_source(&(struct rsh_verify_source){
				view.source, view.src,
				verify_is_whole(r, view.source), view.names,
			       }, &control, &r->answer, err);
	if (rc || !o->write_manifest || r->answer.n_problems)
		return rc;
	rsh_work_end_progress(&r->work);
	r->answer.n_files = 0;
	r->answer.bytes = 0;
	rc = verify_plan(r, RSH_VERIFY_SOURCE, err);
	r->n_written = rc ? 0 : r->answer.n_files;
	return rc;
}

static int ask_question(struct report *r, struct rsh_error *err)
{
	const struct rsh_options *o = r->work.options;
	const enum rsh_verify_kind kind = rsh_verify_kind_of(o);
	struct rsh_answer by_manifest = { 0 };
	struct rsh_copy_control control;
	int rc;

	r->kind = kind;
	if (kind == RSH_VERIFY_FILES)
		return verify_files(r, err);
	if (kind == RSH_VERIFY_SOURCE && rsh_verify_has_manifest(o)) {
		/* Verify a directory by the manifest in it. */
		control = rsh_work_control(&r->work);
		rc = rsh_verify_files(NULL, o->operands[0], &o->vfs.files.store,
				      &control, &r->answer, err);
		if (rc || r->answer.n_problems || !rsh_verify_of_source(o))
			return rc;
		rsh_work_end_progress(&r->work);
		by_manifest = r->answer;
		r->answer = (struct rsh_answer){ 0 };
	}
	rc = ask_of_source(r, err);
	if (by_manifest.n_by_manifest) {
		r->answer.n_by_manifest = by_manifest.n_by_manifest;
		r->answer.n_of = by_manifest.n_of;
		r->answer.n_unlisted = by_manifest.n_unlisted;
		if (by_manifest.n_by_manifest >= by_manifest.n_of)
			r->answer.uncompared = 0;
	}
	return rc;
}

enum rsh_exit rsh_verify(const struct rsh_options *o)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct report r = { 0 };
	struct rsh_printer out;
	enum rsh_exit status;
	int rc;

	rsh_work_begin(&r.work, o, "verifying");
	rc = ask_question(&r, &err);
	rsh_work_end_progress(&r.work);
	rsh_printer_init(&out, o);
	if (rc == 0 && !out.json)
		print_lines(&out, &r);
	else if (rc == 0 && print_answer_json(&out, &r))
		rc = rsh_error_nomem(&err);
	status = rc ? rsh_exit_failed(o, rc, &err) :
		 r.answer.n_problems ? RSH_EXIT_NO : RSH_EXIT_GOOD;
	rsh_answer_clear(&r.answer);
	rsh_work_end(&r.work);
	return status;
}
