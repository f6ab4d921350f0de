/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/ls_source.c prints which steps a tree has, the tensors of one, and
 * what a mount would show, for `ls SOURCE`. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "rsh/contents/contents.h"
#include "rsh/plan/conversion.h"
#include "rsh/source/format.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/vfs/inspect.h"

/* This is one step while it is printed. */
struct step {
	char text[256];
	struct rsh_candidate_step number;
	struct rsh_source_file_info *files;
	uint32_t *missing;
	uint32_t *beyond; /* ranks that have a file but are not in the
			   * strategy */
	size_t n_files, n_valid, n_missing, n_beyond;
	uint64_t bytes;
	const char *bad; /* why the first file that does not count does not */
	struct rsh_error why; /* why no file of the step can be used */
	char about[160];      /* what it is, by its format; empty: nothing */
	bool tried; /* by a mount; other steps do not count */
	bool whole;
};

struct tree {
	const struct rsh_options *options;
	struct rsh_source *source;
	struct rsh_names *names;
	struct rsh_strategy *src; /* NULL: there is none */
	uint32_t first, n;        /* ranks that count */
	uint32_t *ranks; /* ranks that must have files */
	size_t n_ranks;
	/* These are of the newest complete step, or else of the newest step, if
	 * a strategy was given, in the order of the files. */
	struct rsh_printer tensors;
	uint32_t n_tensors;
	uint64_t bytes;       /* of the whole tensors as they are stored */
	struct rsh_error why; /* why the tensors contradict the strategy; code
			       * 0: they do not */
	bool whole_tensors;   /* the tensors are of a complete step */
	bool is_model;        /* the source is a whole model in parts */
	char about[512];      /* of that step, by its format; empty: nothing */
	struct rsh_ls_model model;
	char newest_whole[256]; /* empty: no step is complete */
	char gap[160]; /* about missing ranks; empty: nothing */
	/* These say what a mount would show, if the strategies were given. */
	bool asked;
	char takes[256];
	uint32_t n_virtual;
	uint64_t virtual_bytes;
	bool refused;
	struct rsh_error refusal;
	struct rsh_error unread; /* why the first of all files that could not be
				  * read was not; code 0: there is none */
};

/* ---- reading ---- */

/* Finds the ranks of the source's strategy, or else the ranks of the tree. */
static int ls_source_find_ranks(struct tree *t, struct rsh_error *err)
{
	const char *path = t->options->vfs.src.path;
	int rc;

	t->n = UINT32_MAX;
	if (!path) {
		rsh_source_gap(t->source, t->gap, sizeof(t->gap));
		return rsh_source_ranks(t->source, &t->ranks, &t->n_ranks) ?
			rsh_error_nomem(err) : 0;
	}
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

static void add_step_file(const struct tree *t, struct step *s,
			  const struct rsh_source_file_info *info)
{
	struct rsh_source_file_info *f = &s->files[s->n_files++];

	*f = *info;
	if (!f->valid && !f->why)
		rsh_source_n_bad(t->source, &f->why);
	if (f->valid || s->why.code)
		f->why = NULL;
	s->bad = s->bad ? s->bad : f->why;
	s->n_valid += f->valid;
	s->bytes += f->bytes;
}

/* Returns 0 or -ENOMEM. */
static int add_step_files(const struct tree *t, struct step *s,
			  const struct rsh_source_view *view)
{
	const struct rsh_step_facts *facts = rsh_source_facts(t->source);
	struct rsh_source_file_info f;
	uint32_t n = facts->n_absent;

	s->files = rsh_alloc_array((size_t)rsh_source_n_files(t->source) + 1,
				   sizeof(*s->files));
	s->missing = rsh_alloc_array(t->n_ranks + n, sizeof(*s->missing));
	s->beyond = rsh_alloc_array(view->n_ranks, sizeof(*s->beyond));
	if (!s->files || !s->missing || !s->beyond)
		return -ENOMEM;
	for (uint32_t rank = 0; rank < view->n_ranks; rank++) {
		const struct rsh_ckpt_index *ix = view->index[rank];
		uint32_t first;

		if (!view->path[rank])
			continue;
		if (rank < t->first || rank - t->first >= t->n) {
			s->beyond[s->n_beyond++] = rank;
			continue;
		}
		n = rsh_source_rank_files(t->source, rank, &first);
		for (uint32_t i = 0; i < n; i++) {
			rsh_source_file_info(t->source, first + i, &f);
			add_step_file(t, s, &f);
		}
		/* A model in parts counts as one file. */
		f = (struct rsh_source_file_info){
			.rank = rank, .path = view->path[rank], .valid = ix,
			.bytes = ix ? ix->file_bytes : 0,
		};
		if (n == 0)
			add_step_file(t, s, &f);
	}
	if (rsh_source_format(t->source)->layout != RSH_LAYOUT_OWN) {
		for (size_t i = 0; i < t->n_ranks; i++)
			if (t->ranks[i] >= view->n_ranks ||
			    !view->path[t->ranks[i]])
				s->missing[s->n_missing++] = t->ranks[i];
		return 0;
	}
	/* Some steps list their files, so the ranks without a file are
	 * known. */
	for (n = 0; n < facts->n_absent; n++)
		s->missing[n] = facts->absent[n].rank;
	s->n_missing = rsh_sort_distinct(s->missing, n);
	return 0;
}

static void begin_tensors(struct tree *t, const struct rsh_printer *out)
{
	static const struct rsh_column columns[] = {
		{ "name", "TENSOR", .shorten = true },
		{ "dtype", "DTYPE" },
		{ "shape", "WHOLE" },
		{ "file_shape", "IN A FILE" },
		{ "listed", NULL },
		{ NULL, NULL }
	};

	t->n_tensors = 0;
	t->bytes = 0;
	t->why = (struct rsh_error)RSH_ERROR_INIT;
	rsh_printer_init_part(&t->tensors, out);
	rsh_rows(&t->tensors, columns);
}

/* Prints the first record of each name.  Its whole shape is known by now. */
static void print_tensors_of(struct tree *t, const struct rsh_ckpt_index *ix,
			     const struct rsh_derive_shapes *shapes, bool *seen)
{
	for (uint32_t i = 0; i < ix->n_records; i++) {
		const struct rsh_record *r = &ix->records[i];
		const int64_t *whole = rsh_derive_shapes_dims(shapes, r->name);
		const int64_t *dims = rsh_record_dims(ix, r);
		uint64_t bytes = r->content_bytes;

		if (!whole || seen[r->name])
			continue;
		seen[r->name] = true;
		rsh_row(&t->tensors, rsh_names_text(t->names, r->name),
			rsh_dtype_name((enum rsh_dtype)r->dtype),
			rsh_v_dims(whole, r->n_dims),
			rsh_v_dims(dims, r->n_dims),
			rsh_v_bool(t->src &&
				   rsh_strategy_find(t->src, r->name)));
		for (uint32_t d = 0; d < r->n_dims; d++)
			if (dims[d] > 0)
				bytes *= (uint64_t)(whole[d] / dims[d]);
		t->bytes += bytes;
		t->n_tensors++;
	}
}

/* Takes the tensors of the newest complete step, or of the newest step if no
 * step is complete.  For a complete step it checks whether the strategy fits
 * this tree, as a mount of that step would. */
static int take_tensors(struct tree *t, const struct step *s, bool newest,
			const struct rsh_source_view *view,
			const struct rsh_printer *out)
{
	struct rsh_derive_shapes *shapes;
	cleanup_free bool *seen = NULL;
	const struct rsh_ckpt_index *before = NULL;
	const struct rsh_vfs_config *v = &t->options->vfs;
	const enum rsh_grid_rule rule = v->plan.compat ? RSH_GRID_CONVERTER :
							 RSH_GRID_RUNTIME;
	int rc = 0;

	/* Of a model in parts the files have no whole tensors. */
	if (!v->src.from || t->whole_tensors || !(newest || s->whole) ||
	    rsh_format_lists(rsh_source_format(t->source)))
		return 0;
	t->whole_tensors = s->whole;
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
	rsh_printer_put_part(NULL, &t->tensors);
	begin_tensors(t, out);
	shapes = rsh_derive_shapes_new();
	seen = calloc((size_t)rsh_names_count(view->names) + 1, sizeof(*seen));
	t->tensors.failed |= !shapes || !seen;
	for (uint32_t rank = t->first; rank < view->n_ranks &&
	     rank - t->first < t->n && !t->tensors.failed; rank++) {
		const struct rsh_ckpt_index *ix = view->index[rank];

		/* Ranks of one stage mostly share an index, which is read only
		 * once. */
		if (!ix || (ix == before && t->src &&
			    rank % t->src->stage_ranks != 0))
			continue;
		before = ix;
		if (rsh_derive_shapes_add(shapes, t->src, rank, ix, view->names,
					  &t->why)) {
			rsh_error_prefix(&t->why, "%s", view->path[rank]);
			break;
		}
		print_tensors_of(t, ix, shapes, seen);
	}
	rsh_derive_shapes_free(shapes);
	return t->tensors.failed || t->why.code == ENOMEM ? -ENOMEM : 0;
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
		rsh_source_chosen_text(view.source, t->takes,
				       sizeof(t->takes));
		t->n_virtual = rsh_plan_n_files(view.plan);
		for (uint32_t i = 0; i < t->n_virtual; i++)
			t->virtual_bytes += rsh_plan_size(view.plan, i);
	}
	rsh_vfs_free(vfs);
	return 0;
}

/* Takes what the format says of a step that lists its tensors. */
static int take_about(struct tree *t, const struct rsh_source_view *view)
{
	cleanup_arena struct rsh_arena arena = { NULL, 0 };
	struct rsh_error why = RSH_ERROR_INIT;
	const struct rsh_list_job job = {
		.source = t->source, .part = RSH_LIST_CHUNKS, .arena = &arena,
		.view = view,
	};
	struct rsh_listed l = { .n_tensors = 0 };
	int rc = 0;

	if (!rsh_format_lists(rsh_source_format(t->source)) ||
	    !rsh_source_format(t->source)->choose)
		return 0;
	rc = rsh_source_format(t->source)->list(&job, &l, &why);
	if (rc == 0 && l.about)
		snprintf(t->about, sizeof(t->about), "%s", l.about);
	return rc == -ENOMEM ? rc : 0;
}

/* ---- a step ---- */

#define LISTED_MAX 6 /* so many ranks are listed, the others are counted */

static void put_files(struct rsh_printer *out, const void *ctx)
{
	const struct step *s = ctx;

	rsh_json(out, "[");
	for (size_t i = 0; i < s->n_files; i++)
		rsh_json(out, "{rank:% path:% bytes:% reason:%}",
			 s->files[i].rank, s->files[i].path, s->files[i].bytes,
			 s->files[i].why);
	rsh_json(out, "]");
	rsh_say(out, "%/%", s->n_valid, s->n_files + s->n_missing);
}

static void list_ranks(struct rsh_printer *out, const char *what,
		       const uint32_t *ranks, size_t n)
{
	rsh_say(out, n > 1 ? "% of ranks" : "% of rank", what);
	for (size_t i = 0; i < n && i < LISTED_MAX; i++)
		rsh_say(out, " %", ranks[i]);
	if (n > LISTED_MAX)
		rsh_say(out, " and % more", n - LISTED_MAX);
}

static void put_state(struct rsh_printer *out, const void *ctx)
{
	const struct step *s = ctx;

	/* The step itself may be complete. */
	if (s->n_beyond > 0) {
		rsh_say(out, s->whole ? "complete, but with " :
			"incomplete, and with ");
		list_ranks(out, "files", s->beyond, s->n_beyond);
		rsh_say(out, ", which the strategy does not have");
	} else if (s->whole) {
		rsh_say(out, s->tried ? "complete%%" : "complete, without a "
			"step: use --select name=GLOB%%",
			*s->about ? "; " : "", s->about);
	} else if (s->bad || s->why.code) {
		rsh_say(out, "%", s->bad ? s->bad : s->why.text);
	} else {
		list_ranks(out, "no file", s->missing, s->n_missing);
	}
}

static void print_step(struct rsh_printer *out, const struct step *s,
		       const char *format)
{
	const struct rsh_candidate_step *n = &s->number;
	const enum rsh_mark mark =
		s->n_beyond > 0 || !s->whole ? RSH_MARK_BAD :
		s->tried ? RSH_MARK_GOOD : RSH_MARK_NONE;

	rsh_row(out, s->text, RSH_V_IF(n->stepped && !n->alone, n->epoch),
		RSH_V_IF(n->stepped, n->step), RSH_V_IF(n->stepped, n->run),
		n->breakpoint, s->tried, format, s->whole,
		RSH_V_IF(s->why.code, s->why.text), rsh_v_call(put_files, s),
		rsh_v_bytes(s->bytes), rsh_v_u32s(s->missing, s->n_missing),
		rsh_v_u32s(s->beyond, s->n_beyond),
		RSH_V_IF(*s->about, s->about), rsh_v_call(put_files, s),
		rsh_v_marked(mark, rsh_v_call(put_state, s)));
}

/* Checks that each slice of a parameter is in a file. */
static int check_slices(const struct tree *t,
			const struct rsh_source_view *view,
			struct rsh_error *err)
{
	const uint32_t n = t->src->n_stages * t->src->stage_ranks;
	cleanup_free struct rsh_lost_slices *lost =
		calloc((size_t)n + 1, sizeof(*lost));
	char more[48] = "";
	uint32_t r;

	if (!lost || rsh_contents_lost_slices(t->src, view->index,
					      view->n_ranks, lost))
		return rsh_error_nomem(err);
	r = rsh_index(i, n, lost[i].n > 0);
	if (r == n)
		return 0;
	if (lost[r].n > 1)
		snprintf(more, sizeof(more), " (and those of %u more)",
			 lost[r].n - 1);
	return rsh_error_set(err, EBADMSG, "%s: it lacks its slice of "
			     "parameter %s%s, which no other file has",
			     view->path[r], rsh_names_text(t->names,
							   lost[r].name), more);
}

/* An error is printed with its step; the list itself fails only if memory is
 * out. */
static int look_at_step(struct tree *t, uint32_t i, struct rsh_printer *out)
{
	const struct rsh_format *format;
	const struct rsh_error *unread;
	struct step s = {
		.tried = i < rsh_source_n_candidates(t->source),
	};
	struct rsh_source_view view;
	int rc, status, lacks = 0;

	rsh_source_candidate_text(t->source, i, s.text, sizeof(s.text));
	rsh_source_candidate_step(t->source, i, &s.number);
	rc = rsh_source_choose(t->source, i, &s.why) ?:
	     rsh_source_index(t->source, t->names, &s.why) ?:
	     rsh_source_check_counters(t->source, t->names, &s.why);
	format = rsh_source_format(t->source);
	if (rc == 0 && format->layout == RSH_LAYOUT_OWN) {
		rsh_strategy_free(t->src);
		rc = rsh_source_strategy(t->source, true, t->names, &t->src,
					 &s.why);
	}
	if (rc == 0 && format->layout == RSH_LAYOUT_WHOLE && format->choose)
		rc = rsh_source_judge(t->source, true, &s.why);
	if (rc == 0 && rsh_source_facts(t->source)->about)
		snprintf(s.about, sizeof(s.about), "%s",
			 rsh_source_facts(t->source)->about);
	unread = rsh_source_unread(t->source);
	if (unread && !t->unread.code)
		t->unread = *unread;
	if (rc == 0)
		s.why.code = 0;
	rsh_source_view(t->source, t->names, &view);
	status = rc == -ENOMEM ? rc : add_step_files(t, &s, &view);
	if (rc == 0 && t->src && format->layout == RSH_LAYOUT_GIVEN)
		lacks = check_slices(t, &view, &s.why);
	status = lacks == -ENOMEM ? lacks : status;
	s.whole = rc == 0 && !lacks && s.n_missing == 0 && s.n_files > 0 &&
		  s.n_valid == s.n_files;
	if (s.whole && s.tried && !*t->newest_whole) {
		memcpy(t->newest_whole, s.text, sizeof(s.text));
		status = status ?: take_about(t, &view);
	}
	t->is_model = s.whole && format->layout == RSH_LAYOUT_WHOLE &&
		      rsh_source_n_candidates(t->source) == 1;
	if (status == 0 && t->is_model)
		status = rsh_ls_model_take(&t->model, t->options->vfs.source,
					   t->source, &view);
	if (status == 0 && rc == 0 && s.tried)
		status = take_tensors(t, &s, i == 0, &view, out);
	if (status == 0)
		print_step(out, &s, rsh_format_lists(format) ? format->name :
				    rsh_file_type_suffix(view.format) + 1);
	free(s.files);
	free(s.missing);
	free(s.beyond);
	return status;
}

/* ---- the tree ---- */

/* The tensors are printed before the steps for people: on a terminal the last
 * lines are read first. */
static void print_whole_tensors(struct rsh_printer *out, struct tree *t)
{
	if (!t->options->vfs.src.from || (t->is_model && !out->json)) {
		rsh_json(out, "tensors:%", RSH_V_NULL);
	} else if (t->why.code) {
		rsh_json(out, "tensors:{list:% reason:%}", RSH_V_NULL,
			 t->why.text);
		rsh_say(out, "whole tensors are unknown: %\n\n", t->why.text);
	} else {
		rsh_json(out, "tensors:{list:");
		rsh_rows_end(&t->tensors);
		rsh_printer_put_part(out, &t->tensors);
		rsh_json(out, "reason:%}", RSH_V_NULL);
		rsh_say(out, "% tensor{|s}, whole %\n\n", t->n_tensors,
			rsh_v_bytes(t->bytes));
	}
}

static const struct rsh_column step_columns[] = {
	{ "name", "STEP", .shorten = true },
	{ "epoch", NULL },
	{ "step", NULL },
	{ "run", NULL },
	{ "breakpoint", NULL },
	{ "tried", NULL },
	{ "format", "FORMAT" },
	{ "whole", NULL },
	{ "reason", NULL },
	{ NULL, "FILES", .right = true },
	{ "bytes", "SIZE", .right = true },
	{ "missing_ranks", NULL },
	{ "beyond_ranks", NULL },
	{ "about", NULL },
	{ "files", NULL },
	{ NULL, "STATE", .wrap = ' ' },
	{ NULL, NULL }
};

/* The steps are looked at first, so their part is printed later. */
static int print_tree(struct rsh_printer *out, struct tree *t)
{
	const uint32_t n = rsh_source_n_listed(t->source);
	struct rsh_printer steps;
	bool next;
	int rc = 0;

	begin_tensors(t, out);
	rsh_printer_init_part(&steps, out);
	rsh_rows(&steps, step_columns);
	for (uint32_t i = 0; rc == 0 && i < n; i++)
		rc = look_at_step(t, i, &steps);
	rsh_rows_end(&steps);
	rc = rc ?: ask_mount(t);
	if (rc) {
		rsh_printer_put_part(NULL, &steps);
		return rc;
	}
	rsh_json(out, "{source:% ranks:% steps:", t->options->vfs.source,
		 rsh_v_u32s(t->ranks, t->n_ranks));
	if (!out->json && !rsh_format_lists(rsh_source_format(t->source)))
		print_whole_tensors(out, t);
	rsh_printer_put_part(t->is_model && !out->json ? NULL : out, &steps);
	if (*t->about)
		rsh_say(out, "%: %\n", t->newest_whole, t->about);
	rsh_json(out, "newest_whole:%",
		 RSH_V_IF(*t->newest_whole, t->newest_whole));
	if (out->json)
		print_whole_tensors(out, t);
	else if (t->is_model)
		rsh_ls_model_print(out, &t->model);
	if (t->refused) {
		rsh_json(out, "mount:{takes:% reason:%}", RSH_V_NULL,
			 t->refusal.text);
		rsh_say(out, "a mount would fail\n");
	} else if (t->asked) {
		rsh_json(out, "mount:{takes:% reason:% files:% bytes:%}",
			 t->takes, RSH_V_NULL, t->n_virtual, t->virtual_bytes);
		rsh_say(out, "a mount takes %: % file{|s}, %\n", t->takes,
			t->n_virtual, rsh_v_bytes(t->virtual_bytes));
	} else {
		rsh_json(out, "mount:%", RSH_V_NULL);
		if (!t->is_model)
			rsh_say(out, "newest complete: %\n",
				*t->newest_whole ? t->newest_whole : "none");
	}
	rsh_json(out, "model:%",
		 RSH_V_IF(t->is_model,
			  rsh_v_call(rsh_ls_model_print, &t->model)));
	next = *t->newest_whole && !t->refused && !t->model.is_adapter &&
	       (t->asked || t->is_model ||
		rsh_source_format(t->source)->layout == RSH_LAYOUT_OWN);
	if (t->is_model)
		rsh_ls_beside(out, t->options);
	if (*t->gap)
		rsh_say(out, "note: %\n", t->gap);
	rsh_ls_next(out, t->options, t->source, next);
	rsh_json(out, "}");
	return 0;
}

int rsh_ls_source(struct rsh_run *run, const struct rsh_options *o,
		  struct rsh_source *source)
{
	struct rsh_error *err = &run->err;
	struct tree t = {
		.options = o, .source = source, .names = rsh_names_new(),
	};
	int rc = t.names ? ls_source_find_ranks(&t, err) : rsh_error_nomem(err);

	if (rc == 0 && print_tree(&run->out, &t))
		rc = rsh_error_nomem(err);
	rc = rsh_printer_end(&run->out, rc, err);
	run->status = t.refused || (!t.asked && !*t.newest_whole) ?
		      RSH_EXIT_NO : RSH_EXIT_GOOD;
	if (rc == 0 && t.refused && !o->json)
		rsh_log_error("%s", t.refusal.text);
	if (rc == 0 && t.unread.code)
		rc = rsh_error_set(err, t.unread.code, "%s", t.unread.text);
	free(t.ranks);
	rsh_printer_put_part(NULL, &t.tensors);
	free(t.model.architecture);
	rsh_strategy_free(t.src);
	rsh_names_free(t.names);
	return rc;
}
