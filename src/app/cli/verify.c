/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/verify.c runs `verify`, which checks whether the bytes are
 * correct. */
#include "config.h"

#include "commands.h"

#include <errno.h>
#include <sys/stat.h>

#include "rsh/app/check.h"
#include "rsh/app/options.h"
#include "rsh/copy/verify.h"
#include "rsh/plan/conversion.h"
#include "rsh/source/format.h"
#include "rsh/source/inspect.h"
#include "rsh/util/files.h"
#include "rsh/util/mem.h"
#include "rsh/vfs/inspect.h"

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

/* Adds a phrase for each kind of comparison that was made. */
static void phrase_compared(const struct report *r, struct rsh_sentences *to)
{
	const struct rsh_answer *a = &r->answer;
	const char *s = a->n_by_manifest == 1 ? "" : "s";
	char size[32];

	if (r->kind == RSH_VERIFY_MANIFEST && a->n_by_manifest)
		rsh_sentences_add(to, "what a mount shows of %u file%s against "
				  "the manifest", a->n_by_manifest, s);
	else if (a->n_by_manifest)
		rsh_sentences_add(to, "%u file%s against %s manifest",
				  a->n_by_manifest, s, *s ? "their" : "its");
	if (a->n_by_plan)
		rsh_sentences_add(to, "%u file%s against what a mount shows",
				  a->n_by_plan, a->n_by_plan == 1 ? "" : "s");
	if (a->n_by_crc)
		rsh_sentences_add(to, "%u %s CRC", a->n_by_crc, a->n_by_crc ==
				  1 ? "file against its" :
				  "files against their");
	if (a->n_replicas)
		rsh_sentences_add(to, "%u slice%s of %u ranks against each "
				  "other", a->n_replicas,
				  a->n_replicas == 1 ? "" : "s", a->n_ranks);
	if (to->n == 0)
		rsh_sentences_add(to, "headers and sizes only, which is all that can be compared");
	else if (a->uncompared)
		rsh_sentences_add(to, "headers and sizes only of %s",
				  rsh_text_bytes(a->uncompared, size,
						 sizeof(size)));
}

static void print_notes(struct rsh_printer *out, const struct report *r)
{
	const struct rsh_answer *a = &r->answer;

	if (r->apart)
		rsh_say(out, "note: replicas were not compared: this needs "
			"--src-strategy\n");
	if (a->another && a->n_problems)
		rsh_say(out, "note: the manifest is of another conversion: "
			"other options, strategies or source files\n");
	if (a->n_made_up)
		rsh_say(out, "note: % {rank has|ranks have} no file, but "
			"others hold the same\n", a->n_made_up);
	if (a->n_unsummed)
		rsh_say(out, "note: % {item has|items have} no CRC (torch was "
			"configured to write none)\n", a->n_unsummed);
	if (a->n_by_manifest < a->n_of)
		rsh_say(out, "note: the manifest has % of the % files of its "
			"tree; % other files {was|were} not verified\n",
			a->n_by_manifest, a->n_of, a->n_unlisted);
}

static void print_answer(struct rsh_printer *out, const struct report *r)
{
	const struct rsh_answer *a = &r->answer;
	const double seconds = rsh_work_seconds(&r->work);
	struct rsh_sentences compared = { 0 };
	struct rsh_value texts;

	phrase_compared(r, &compared);
	out->failed |= compared.failed;
	texts = rsh_v_texts((const char *const *)compared.v, compared.n);
	rsh_json(out, "{good:% step:% files:% bytes:% compared:",
		 rsh_v_bool(a->n_problems == 0), RSH_V_IF(*r->step, r->step),
		 a->n_files, a->bytes);
	rsh_json(out, "% by_manifest:% by_plan:% by_crc:% replicas:% ranks:% "
		 "uncompared:% without_crc:% unlisted:% made_up:% "
		 "another_conversion:% seconds:%",
		 texts, a->n_by_manifest,
		 a->n_by_plan, a->n_by_crc, a->n_replicas, a->n_ranks,
		 a->uncompared, a->n_unsummed, a->n_unlisted, a->n_made_up,
		 a->another, seconds);
	rsh_json(out, "problems:[");
	for (size_t i = 0; i < a->n_problems; i++) {
		const struct rsh_problem *p = &a->problems[i];

		rsh_json(out, "{path:% record:% offset:% what:%}", p->path,
			 p->record, RSH_V_IF(p->placed, p->offset), p->what);
		rsh_say(out, "%: %", rsh_v_marked(RSH_MARK_BAD,
						  rsh_v_text(p->path)),
			p->what);
		if (p->record)
			rsh_say(out, ", record %", p->record);
		if (p->placed)
			rsh_say(out, ", offset %", p->offset);
		rsh_say(out, "\n");
	}
	rsh_json(out, "]}");
	if (!out->json && !r->work.options->quiet) {
		print_notes(out, r);
		rsh_say(out, "%%% file{|s} of %, checked in %: %", r->step,
			*r->step ? ": " : "", a->n_files, rsh_v_bytes(a->bytes),
			rsh_v_seconds(seconds),
			texts);
		if (r->n_written)
			rsh_say(out, ", a manifest of % file{|s} written",
				r->n_written);
		/* The word "good" is printed only if something was
		 * compared. */
		if (a->n_problems)
			rsh_say(out, ": % problem{|s}\n", a->n_problems);
		else if (a->uncompared || !(a->n_by_manifest || a->n_by_plan ||
					    a->n_by_crc || a->n_replicas))
			rsh_say(out, ": no problem found\n");
		else
			rsh_say(out, ": good\n");
	}
	rsh_sentences_clear(&compared);
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

/* Verifies TREE by a manifest, in either order. */
static int verify_files(struct report *r, struct rsh_error *err)
{
	const struct rsh_options *o = r->work.options;
	const struct rsh_copy_control control = rsh_work_control(&r->work);
	const bool swapped = o->n_operands > 1 && !rsh_is_file(o->operands[0]);
	const char *manifest = o->operands[swapped], *dir;
	cleanup_free char *beside = rsh_path_directory(manifest);

	dir = o->n_operands > 1 ? o->operands[!swapped] : beside;
	if (!dir)
		return rsh_error_nomem(err);
	return find_tree(dir, err) ?:
	       rsh_verify_files(manifest, dir, &o->vfs.files.store,
				&control, &r->answer, err);
}

/* Verifies the files that a mount shows. */
static int verify_plan(struct report *r, const struct rsh_vfs_view *view,
		       struct rsh_error *err)
{
	const struct rsh_options *o = r->work.options;
	cleanup_free bool *wanted = NULL;
	struct rsh_verify_options vo = {
		.tree = r->kind == RSH_VERIFY_TREE ? o->operands[1] : NULL,
		.manifest = r->kind == RSH_VERIFY_MANIFEST ? o->operands[1] :
							     NULL,
		.write = o->write_manifest,
		.overwrite = o->overwrite,
		.control = rsh_work_control(&r->work),
	};
	int rc = rsh_ranks_mark_files(o, 2, view->plan, &wanted, err);

	vo.wanted = wanted;
	return rc ?: rsh_verify_plan(r->work.vfs, &r->work.cfg, &vo,
				     &r->answer, err);
}

/* Verifies the chosen step of a source. */
static int verify_step(struct report *r, const struct rsh_source *source,
		       const struct rsh_strategy *strategy,
		       struct rsh_names *names,
		       const struct rsh_copy_control *control,
		       struct rsh_error *err)
{
	const struct rsh_format *f = rsh_source_format(source);
	const struct rsh_verify_source vs = {
		.source = source, .strategy = strategy, .names = names,
		/* A file has whole parameters if no strategy is given and the
		 * format does not describe its sharding. */
		.whole = r->work.options->vfs.src.from == RSH_FROM_NONE &&
			 f->layout != RSH_LAYOUT_OWN && f->by_name,
	};

	rsh_source_chosen_text(source, r->step, sizeof(r->step));
	return rsh_verify_source(&vs, control, &r->answer, err);
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
	cleanup_strategy struct rsh_strategy *strategy = NULL;
	cleanup_names struct rsh_names *names = rsh_names_new();
	cleanup_source struct rsh_source *source = NULL;
	uint32_t first = 0, n = UINT32_MAX;
	char gap[160] = "";
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
	if (rc == 0)
		rsh_source_log_other(source);
	if (rc == 0 && path &&
	    rsh_source_format(source)->layout != RSH_LAYOUT_GIVEN)
		rc = rsh_source_needs_none(source, err);
	rc = rc ?: rsh_source_choose(source, 0, err);
	if (rc == 0)
		rsh_source_log_doubt(source);
	if (rc == 0 && !path)
		rsh_source_gap(source, gap, sizeof(gap));
	if (*gap)
		rsh_log_warning("%s: %s", o->vfs.source, gap);
	if (rc == 0 && rsh_source_format(source)->layout == RSH_LAYOUT_OWN) {
		rc = rsh_source_index(source, names, err) ?:
		     rsh_source_strategy(source, true, names, &strategy, err);
	}
	if (rc == 0) {
		r->apart = is_apart(r, source);
		rc = verify_step(r, source, strategy, names, &control, err);
	}
	return rc;
}

static int ask_of_source(struct report *r, struct rsh_error *err)
{
	const struct rsh_options *o = r->work.options;
	const bool of_tree = r->kind == RSH_VERIFY_TREE;
	struct rsh_copy_control control;
	struct rsh_vfs_view view;
	int rc;

	if (r->kind == RSH_VERIFY_SOURCE && !o->vfs.dst.from)
		return verify_best(r, err);
	rc = of_tree ? find_tree(o->operands[1], err) : 0;
	/* The content of a converted tree says nothing about replicas of the
	 * source. */
	rc = rc ?: rsh_work_open(&r->work, !of_tree, err);
	if (rc)
		return rc;
	if (!rsh_vfs_view(r->work.vfs, &view))
		return rsh_error_set(err, EINVAL, "nothing is converted");
	if (r->kind == RSH_VERIFY_SOURCE) {
		/* Verify the step that a mount takes.  With --write-manifest
		 * also write a manifest of what the mount would show. */
		control = rsh_work_control(&r->work);
		rc = verify_step(r, view.source, view.src, view.names, &control,
				 err);
		if (rc || !o->write_manifest || r->answer.n_problems)
			return rc;
		rsh_work_end_progress(&r->work);
		r->answer.n_files = 0;
		r->answer.bytes = 0;
	}
	rsh_source_chosen_text(view.source, r->step, sizeof(r->step));
	rc = verify_plan(r, &view, err);
	if (r->kind == RSH_VERIFY_SOURCE)
		r->n_written = rc ? 0 : r->answer.n_files;
	return rc;
}

static int ask_question(struct report *r, struct rsh_error *err)
{
	const struct rsh_options *o = r->work.options;
	struct rsh_answer by_manifest = { 0 };
	struct rsh_copy_control control;
	int rc;

	r->kind = rsh_verify_kind_of(o);
	if (r->kind == RSH_VERIFY_FILES)
		return verify_files(r, err);
	if (r->kind == RSH_VERIFY_SOURCE && rsh_verify_has_manifest(o)) {
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

int rsh_verify(const struct rsh_options *o, struct rsh_run *run)
{
	struct report r = { 0 };
	int rc;

	rsh_work_begin(&r.work, o, "verifying");
	rc = ask_question(&r, &run->err);
	rsh_work_end_progress(&r.work);
	if (rc == 0)
		print_answer(&run->out, &r);
	run->status = r.answer.n_problems ? RSH_EXIT_NO : RSH_EXIT_GOOD;
	rsh_answer_clear(&r.answer);
	rsh_work_end(&r.work);
	return rc;
}
