/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/ls_source.c prints which steps a tree has, and what a mount would
 * show, for `ls SOURCE`. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ls.h"
#include "rsh/contents/contents.h"
#include "rsh/plan/conversion.h"
#include "rsh/source/format.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/vfs/inspect.h"

/* This is the file of one rank at one step. */
struct step_file {
	uint32_t rank;
	char *path;
	uint64_t bytes;
	char *reason; /* why the file does not count; NULL: it counts */
};

struct step {
	char text[256];
	struct rsh_candidate_step number;
	enum rsh_file_type format;
	size_t n_files, n_valid;
	struct step_file *files;
	size_t n_missing;
	uint32_t *missing;
	size_t n_beyond; /* number of ranks that have a file but are not in the
			  * strategy */
	uint32_t *beyond;
	uint64_t bytes;
	char *reason; /* why no file of the step can be used, or NULL */
};

struct tree {
	const struct rsh_options *options;
	struct rsh_source *source;
	struct rsh_names *names;
	struct rsh_strategy *src; /* NULL: there is none */
	uint32_t first, n;        /* ranks that count */
	uint32_t *ranks; /* ranks that must have files */
	size_t n_ranks;
	struct rsh_ls_tensors tensors; /* of the newest complete step, or else
				        * of the newest step, if a strategy was
				        * given */
	bool whole_tensors; /* the tensors are of a complete step */
	bool is_model;      /* the source is a whole model in parts */
	struct rsh_ls_model model;
	struct step *steps;
	uint32_t n_steps;
	/* These say what a mount would show, if the strategies were given. */
	bool asked;
	char takes[256];
	uint32_t n_virtual;
	uint64_t virtual_bytes;
	bool refused;
	struct rsh_error refusal;
	struct rsh_error unread; /* why the first of all files that could not be
				  * read was not; code 0: there is none */
	uint32_t n_tried; /* number of steps that a mount tries; the other steps
			   * then do not count */
};

static bool is_whole(const struct step *s)
{
	return !s->reason && s->n_missing == 0 && s->n_files > 0 &&
	       s->n_valid == s->n_files;
}

/* ---- reading ---- */

/* Finds the ranks of the source's strategy, or else the ranks of the tree. */
static int ls_source_find_ranks(struct tree *t, struct rsh_error *err)
{
	const char *path = t->options->vfs.src.path;
	int rc;

	t->n = UINT32_MAX;
	if (!path)
		return rsh_source_ranks(t->source, &t->ranks, &t->n_ranks) ?
			rsh_error_nomem(err) : 0;
	rc = rsh_strategy_load(path, t->options->vfs.plan.compat, t->names,
			       &t->src, err);
	if (rc)
		return rc;
	rsh_conversion_source_ranks(t->src, NULL, t->names, true, &t->first,
				    &t->n);
	t->ranks = rsh_alloc_array(t->n, sizeof(*t->ranks));
	if (!t->ranks)
		return rsh_error_nomem(err);
	for (t->n_ranks = 0; t->n_ranks < t->n; t->n_ranks++)
		t->ranks[t->n_ranks] = t->first + (uint32_t)t->n_ranks;
	return 0;
}

static int add_step_file(const struct tree *t, struct step *s,
			 const struct rsh_source_file_info *info)
{
	struct step_file *f = &s->files[s->n_files++];
	const char *first;

	*f = (struct step_file){ .rank = info->rank,
				 .path = strdup(info->path) };
	if (!f->path)
		return -ENOMEM;
	f->bytes = info->bytes;
	s->n_valid += info->valid;
	if (!info->valid && !s->reason) {
		rsh_source_n_bad(t->source, &first);
		f->reason = strdup(info->why ? info->why : first);
		if (!f->reason)
			return -ENOMEM;
	}
	s->bytes += f->bytes;
	return 0;
}

/* A model in parts counts as one file. */
static int add_rank_files(const struct tree *t, struct step *s, uint32_t rank,
			  const struct rsh_source_view *view)
{
	const struct rsh_ckpt_index *ix = view->index[rank];
	struct rsh_source_file_info f = {
		.rank = rank, .path = view->path[rank], .valid = ix,
		.bytes = ix ? ix->file_bytes : 0,
	};
	uint32_t first, n = rsh_source_rank_files(t->source, rank, &first);
	int rc = n ? 0 : add_step_file(t, s, &f);

	for (uint32_t i = 0; i < n && rc == 0; i++) {
		rsh_source_file_info(t->source, first + i, &f);
		rc = add_step_file(t, s, &f);
	}
	return rc;
}

static int add_step_files(const struct tree *t, struct step *s,
			  const struct rsh_source_view *view)
{
	s->files = rsh_alloc_array((size_t)rsh_source_n_files(t->source) + 1,
				   sizeof(*s->files));
	s->missing = rsh_alloc_array(t->n_ranks, sizeof(*s->missing));
	s->beyond = rsh_alloc_array(view->n_ranks, sizeof(*s->beyond));
	if (!s->files || !s->missing || !s->beyond)
		return -ENOMEM;
	for (uint32_t rank = 0; rank < view->n_ranks; rank++) {
		if (!view->path[rank])
			continue;
		if (rank < t->first || rank - t->first >= t->n)
			s->beyond[s->n_beyond++] = rank;
		else if (add_rank_files(t, s, rank, view))
			return -ENOMEM;
	}
	if (rsh_source_format(t->source)->absent) {
		/* Some steps list their files, so the ranks without a file are
		 * known. */
		struct rsh_source_file_info f;
		uint32_t n = 0;

		while (rsh_source_absent(t->source, n, &f))
			n++;
		free(s->missing);
		s->missing =
			rsh_alloc_array((size_t)n + 1, sizeof(*s->missing));
		if (!s->missing)
			return -ENOMEM;
		for (uint32_t i = 0; rsh_source_absent(t->source, i, &f); i++)
			s->missing[i] = f.rank;
		qsort(s->missing, n, sizeof(*s->missing), rsh_by_u32);
		for (uint32_t i = 0; i < n; i++)
			if (s->n_missing == 0 ||
			    s->missing[i] != s->missing[s->n_missing - 1])
				s->missing[s->n_missing++] = s->missing[i];
		return 0;
	}
	for (size_t i = 0; i < t->n_ranks; i++)
		if (t->ranks[i] >= view->n_ranks || !view->path[t->ranks[i]])
			s->missing[s->n_missing++] = t->ranks[i];
	return 0;
}

/* Takes the tensors of the newest complete step, or of the newest step if no
 * step is complete.  For a complete step it checks whether the strategy fits
 * this tree, as a mount of that step would. */
static int take_tensors(struct tree *t, const struct step *s, bool newest,
			const struct rsh_source_view *view)
{
	const struct rsh_vfs_config *v = &t->options->vfs;
	const enum rsh_grid_rule rule = v->plan.compat ? RSH_GRID_CONVERTER :
							 RSH_GRID_RUNTIME;
	int rc = 0;

	if (!v->src.from || t->whole_tensors || !(newest || is_whole(s)))
		return 0;
	t->whole_tensors = is_whole(s);
	if (t->whole_tensors && !v->dst.from) {
		if (t->src)
			rc = rsh_contents_check_ranks(t->source, t->src, NULL,
						      &t->refusal);
		rc = rc ?: rsh_contents_check(t->source, t->src, NULL, rule,
					      t->names, &t->refusal) ?:
			   rsh_contents_check_older(t->source, &v->files,
						    t->src, rule, t->names,
						    &t->refusal);
		t->refused = rc != 0;
		if (rc == -ENOMEM)
			return rc;
	}
	return rsh_ls_tensors_take(&t->tensors, t->src, t->first, t->n, view);
}

/* An error is printed with its step; the list itself fails only if memory is
 * out. */
static int look_at_step(struct tree *t, uint32_t i)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct step *s = &t->steps[i];
	struct rsh_source_view view;
	int rc;

	const struct rsh_error *unread;

	rsh_source_candidate_text(t->source, i, s->text, sizeof(s->text));
	rsh_source_candidate_step(t->source, i, &s->number);
	rc = rsh_source_choose(t->source, i, &err) ?:
	     rsh_source_index(t->source, t->names, &err);
	if (rc == 0 &&
	    rsh_source_format(t->source)->layout == RSH_LAYOUT_OWN) {
		rsh_strategy_free(t->src);
		rc = rsh_source_strategy(t->source, true, t->names, &t->src,
					 &err);
	}
	unread = rsh_source_unread(t->source);
	if (unread && !t->unread.code)
		t->unread = *unread;
	if (rc)
		s->reason = strdup(err.text);
	rsh_source_view(t->source, t->names, &view);
	s->format = view.format;
	if (rc == -ENOMEM || (rc && !s->reason) || add_step_files(t, s, &view))
		return -ENOMEM;
	t->is_model = is_whole(s) &&
		      rsh_source_format(t->source)->layout == RSH_LAYOUT_WHOLE;
	if (t->is_model && rsh_ls_model_take(&t->model, t->options->vfs.source,
					     t->source, &view))
		return -ENOMEM;
	return rc || i >= t->n_tried ? 0 : take_tensors(t, s, i == 0, &view);
}

static int ask_mount(struct tree *t)
{
	struct rsh_vfs_view view;
	struct rsh_vfs *vfs;
	int rc;

	t->asked = rsh_options_convert(t->options);
	if (!t->asked)
		return 0;
	rc = rsh_vfs_open(&t->options->vfs, &vfs, &t->refusal);
	t->refused = rc != 0;
	if (rc)
		return rc == -ENOMEM ? rc : 0;
	if (rsh_vfs_view(vfs, &view)) {
		rsh_source_candidate_text(view.source,
					  rsh_source_chosen(view.source),
					  t->takes, sizeof(t->takes));
		t->n_virtual = rsh_plan_n_files(view.plan);
		for (uint32_t i = 0; i < t->n_virtual; i++)
			t->virtual_bytes += rsh_plan_size(view.plan, i);
	}
	rsh_vfs_free(vfs);
	return 0;
}

static int look_at_tree(struct tree *t, struct rsh_error *err)
{
	uint32_t n = rsh_source_n_listed(t->source);
	int rc;

	t->names = rsh_names_new();
	rc = t->names ? ls_source_find_ranks(t, err) : rsh_error_nomem(err);

	if (rc)
		return rc;
	t->n_tried = rsh_source_n_candidates(t->source);
	t->steps = calloc(n, sizeof(*t->steps));
	if (!t->steps)
		return rsh_error_nomem(err);
	while (rc == 0 && t->n_steps < n)
		rc = look_at_step(t, t->n_steps++);
	rc = rc ?: ask_mount(t);
	return rc ? rsh_error_nomem(err) : 0;
}

static const struct step *newest_whole(const struct tree *t)
{
	for (uint32_t i = 0; i < t->n_tried; i++)
		if (is_whole(&t->steps[i]))
			return &t->steps[i];
	return NULL;
}

/* ---- JSON ---- */

static json_t *files_json(const struct step *s)
{
	json_t *all = json_array();

	for (size_t i = 0; i < s->n_files; i++) {
		const struct step_file *f = &s->files[i];

		json_array_append_new(
			all, json_pack("{s:i,s:o,s:o,s:o}", "rank",
				       (int)f->rank, "path",
				       rsh_json_text(f->path), "bytes",
				       rsh_json_u64(f->bytes), "reason",
				       rsh_json_optional(f->reason)));
	}
	return all;
}

static json_t *tree_step_json(const struct step *s, bool tried)
{
	bool stepped = s->number.stepped, alone = s->number.alone;

	return json_pack(
		"{s:o,s:o,s:o,s:o,s:b,s:b,s:s,s:b,s:o,s:o,s:o,s:o,s:o}", "name",
		rsh_json_text(s->text), "epoch",
		stepped && !alone ? rsh_json_u64(s->number.epoch) : json_null(),
		"step",
		stepped ? rsh_json_u64(s->number.step) : json_null(), "run",
		stepped ? rsh_json_u64(s->number.run) : json_null(),
		"breakpoint", s->number.breakpoint, "tried", tried, "format",
		rsh_file_type_suffix(s->format) + 1, "whole", is_whole(s),
		"reason", rsh_json_optional(s->reason), "bytes",
		rsh_json_u64(s->bytes), "missing_ranks",
		rsh_json_u32s(s->missing, s->n_missing), "beyond_ranks",
		rsh_json_u32s(s->beyond, s->n_beyond), "files", files_json(s));
}

static json_t *mount_json(const struct tree *t)
{
	if (!t->asked && !t->refused)
		return json_null();
	if (t->refused)
		return json_pack("{s:n,s:o}", "takes", "reason",
				 rsh_json_text(t->refusal.text));
	return json_pack("{s:o,s:n,s:i,s:o}", "takes", rsh_json_text(t->takes),
			 "reason", "files", (int)t->n_virtual, "bytes",
			 rsh_json_u64(t->virtual_bytes));
}

static json_t *tensors_json(const struct tree *t)
{
	if (!t->options->vfs.src.from)
		return json_null();
	if (t->tensors.why.code)
		return json_pack("{s:n,s:o}", "list", "reason",
				 rsh_json_text(t->tensors.why.text));
	return json_pack("{s:o,s:n}", "list",
			 rsh_ls_tensors_json(&t->tensors, t->names), "reason");
}

/* Returns whether the next command, a mount, is known. */
static bool has_next(const struct tree *t)
{
	return newest_whole(t) && !t->refused &&
	       (t->asked || t->is_model ||
		rsh_source_format(t->source)->layout == RSH_LAYOUT_OWN);
}

static int print_tree_json(const struct rsh_printer *out, const struct tree *t)
{
	const struct step *whole = newest_whole(t);
	json_t *steps = json_array();

	for (uint32_t i = 0; i < t->n_steps; i++)
		json_array_append_new(steps, tree_step_json(&t->steps[i],
							    i < t->n_tried));
	return rsh_printer_json(
		out, json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "source",
			       rsh_json_text(t->options->vfs.source), "ranks",
			       rsh_json_u32s(t->ranks, t->n_ranks), "steps",
			       steps, "newest_whole",
			       rsh_json_optional(whole ? whole->text : NULL),
			       "tensors", tensors_json(t), "mount",
			       mount_json(t), "model", t->is_model ?
			       rsh_ls_model_json(&t->model) : json_null(),
			       "next", has_next(t) ?
			       rsh_ls_next_json(t->options) : json_null()));
}

/* ---- for people ---- */

#define LISTED_MAX 6 /* so many ranks are listed, the others are counted */

static const struct rsh_column columns[] = {
	{ "STEP", .shorten = true },
	{ "FORMAT" },
	{ "FILES", .right = true },
	{ "SIZE", .right = true },
	{ "STATE", .shorten = true },
};

static void ranks_text(const char *what, const uint32_t *ranks, size_t n,
		       char text[160])
{
	size_t at = (size_t)snprintf(text, 160, "%s of rank%s", what,
				     n > 1 ? "s" : "");

	for (size_t i = 0; i < n && i < LISTED_MAX; i++)
		at += (size_t)snprintf(text + at, 160 - at, " %" PRIu32,
				       ranks[i]);
	if (n > LISTED_MAX)
		snprintf(text + at, 160 - at, " and %zu more", n - LISTED_MAX);
}

static void add_state(struct rsh_table *table, const struct step *s, bool tried)
{
	char ranks[160], text[256];

	/* The step itself may be complete. */
	if (s->n_beyond > 0) {
		ranks_text("files", s->beyond, s->n_beyond, ranks);
		snprintf(text, sizeof(text), "%s%s, which the strategy does "
			 "not have", is_whole(s) ? "complete, but with " :
			 "incomplete, and with ", ranks);
		rsh_table_mark(table, RSH_MARK_BAD, text);
		return;
	}
	if (is_whole(s)) {
		rsh_table_mark(table, tried ? RSH_MARK_GOOD : RSH_MARK_NONE,
			       tried ? "complete" : "complete, without a step: "
			       "use --select name=GLOB");
		return;
	}
	for (size_t i = 0; i < s->n_files && !s->reason; i++)
		if (s->files[i].reason) {
			rsh_table_mark(table, RSH_MARK_BAD, s->files[i].reason);
			return;
		}
	ranks_text("no file", s->missing, s->n_missing, ranks);
	rsh_table_mark(table, RSH_MARK_BAD, s->reason ? s->reason : ranks);
}

static void print_mount_verdict(const struct rsh_printer *out,
				const struct tree *t)
{
	const struct step *whole = newest_whole(t);
	char size[32];

	if (t->refused) {
		fputs("a mount would fail", out->f);
	} else if (t->asked) {
		fputs("a mount takes ", out->f);
		rsh_printer_put(out, t->takes);
		fprintf(out->f, ": %" PRIu32 " file%s, %s", t->n_virtual,
			t->n_virtual == 1 ? "" : "s",
			rsh_text_bytes(t->virtual_bytes, size, sizeof(size)));
	} else {
		fputs("newest complete: ", out->f);
		rsh_printer_put(out, whole ? whole->text : "none");
	}
	fputc('\n', out->f);
}

/* The tensors are printed before the steps: on a terminal the last lines are
 * read first. */
static int print_tensors(const struct rsh_printer *out, const struct tree *t)
{
	int rc;

	if (!t->options->vfs.src.from || t->is_model)
		return 0;
	if (t->tensors.why.code) {
		fputs("whole tensors are unknown: ", out->f);
		rsh_printer_put(out, t->tensors.why.text);
		fputs("\n\n", out->f);
		return 0;
	}
	rc = rsh_ls_tensors_print(&t->tensors, out, t->names);
	fputc('\n', out->f);
	return rc;
}

static int print_tree(const struct rsh_printer *out, const struct tree *t)
{
	int rc = print_tensors(out, t);
	struct rsh_table *table;

	if (rc == 0 && t->is_model) {
		rsh_ls_model_print(&t->model, out);
		if (t->asked || t->refused)
			print_mount_verdict(out, t);
	} else if (rc == 0) {
		table = RSH_TABLE(columns);
		for (uint32_t i = 0; i < t->n_steps; i++) {
			const struct step *s = &t->steps[i];
			char size[32];

			rsh_table_cell(table, "%s", s->text);
			rsh_table_cell(table, "%s",
				       rsh_file_type_suffix(s->format) + 1);
			rsh_table_cell(table, "%zu/%zu", s->n_valid,
				       s->n_files + s->n_missing);
			rsh_table_cell(
				table, "%s",
				rsh_text_bytes(s->bytes, size, sizeof(size)));
			add_state(table, s, i < t->n_tried);
		}
		rc = rsh_table_print(table, out);
		print_mount_verdict(out, t);
	}
	return rc == 0 && has_next(t) ? rsh_ls_next_print(out, t->options) : rc;
}

int rsh_ls_source(const struct rsh_printer *out, const struct rsh_options *o,
		  struct rsh_source *source, bool *taken, struct rsh_error *err)
{
	struct tree t = { .options = o, .source = source };
	int rc = look_at_tree(&t, err);

	if (rc == 0 && (out->json ? print_tree_json(out, &t) :
				    print_tree(out, &t)))
		rc = rsh_error_nomem(err);
	*taken = !t.refused;
	if (rc == 0 && !*taken && !out->json)
		rsh_log_error("%s", t.refusal.text);
	if (rc == 0 && t.unread.code)
		rc = rsh_error_set(err, t.unread.code, "%s", t.unread.text);
	for (uint32_t i = 0; i < t.n_steps; i++) {
		struct step *s = &t.steps[i];

		for (size_t k = 0; k < s->n_files; k++) {
			free(s->files[k].path);
			free(s->files[k].reason);
		}
		free(s->files);
		free(s->missing);
		free(s->beyond);
		free(s->reason);
	}
	free(t.steps);
	free(t.ranks);
	free(t.tensors.v);
	free(t.model.architecture);
	rsh_strategy_free(t.src);
	rsh_names_free(t.names);
	return rc;
}
