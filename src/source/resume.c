/* SPDX-License-Identifier: Apache-2.0 */
/* source/resume.c tries the candidates of a job (step.c), until one is found
 * that all units have and whose files are complete. */
#include "config.h"

#include "source_i.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/source/failures.h"
#include "rsh/source/resume.h"
#include "rsh/util/arena.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/wire/checkpoint2.h"

/* ---- what is shown ---- */

/* This is what one unit, a rank or Megatron's mp_rank, saved at one step. */
struct rsh_saved {
	const char *unit; /* directory in the mount that shows it; "": the
			   * root */
	const char *dir;  /* directory of the checkpoint below SOURCE; "":
			   * SOURCE itself */
	const char *label;
	const struct rsh_step *step;
	const char *const *names; /* names of its files, ascending */
	size_t n;
	uint32_t first_file; /* number of its first file in the source */
};

struct rsh_resume {
	struct rsh_source *source;
	/* These are the units' files of the step that is tried, ascending by
	 * unit. */
	struct rsh_saved *saved;
	size_t n_saved;
	const char **names; /* names of its files */
	struct rsh_arena arena;
	struct rsh_resume_entry *entries;
	size_t n_entries, cap_entries;
};

#define LATEST "latest"

static char *show_printf(struct rsh_resume *r, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static char *show_printf(struct rsh_resume *r, const char *fmt, ...)
{
	cleanup_free char *text = NULL;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&text, fmt, ap);
	va_end(ap);
	if (n < 0) {
		text = NULL;
		return NULL;
	}
	return rsh_arena_strndup(&r->arena, text, (size_t)n);
}

/* Adds an entry below `dir` of the mount.  A link or text has the times of the
 * first file of s. */
static int show_entry(struct rsh_resume *r, const char *dir, const char *name,
		      enum rsh_resume_kind kind, uint32_t file,
		      const char *text)
{
	const struct rsh_resume_entry e = {
		.kind = kind, .text = text, .file = file,
		.name = show_printf(r, "%s%s%s", dir, *dir ? "/" : "", name),
		.size = kind != RSH_RESUME_FILE ? 0 :
			(uint64_t)rsh_store_identity(r->source->store,
						     file)->size,
	};

	if (!e.name || (kind != RSH_RESUME_FILE && !text) ||
	    rsh_grow(&r->entries, &r->cap_entries, r->n_entries + 1,
		     sizeof(*r->entries)))
		return -ENOMEM;
	r->entries[r->n_entries++] = e;
	return 0;
}

static int show_files(struct rsh_resume *r, const struct rsh_saved *s,
		      const char *dir)
{
	int rc = 0;

	for (size_t i = 0; i < s->n && rc == 0; i++)
		rc = show_entry(r, dir, s->names[i], RSH_RESUME_FILE,
				s->first_file + (uint32_t)i, NULL);
	return rc;
}

/* Shows a link beside each file.  A file of the job may have that name
 * itself. */
static int show_links(struct rsh_resume *r, const struct rsh_saved *s)
{
	int rc = 0;

	for (size_t i = 0; i < s->n && rc == 0; i++) {
		struct rsh_step_name says = { .step = { .n = 0 } };
		char name[NAME_MAX + sizeof(LATEST)];

		r->source->format->part(s->names[i], &says);
		snprintf(name, sizeof(name), LATEST "%s",
			 s->names[i] + says.n_stem);
		if (strcmp(name, s->names[i]) != 0)
			rc = show_entry(r, s->unit, name, RSH_RESUME_LINK,
					s->first_file, s->names[i]);
	}
	return rc;
}

/* Shows the file "checkpoint" of TensorFlow, a protobuf as text. */
static int show_checkpoint(struct rsh_resume *r, const struct rsh_saved *s)
{
	char quoted[2 * NAME_MAX + 1], *to = quoted;

	for (const char *c = s->label; *c; c++) {
		if (*c == '"' || *c == '\\')
			*to++ = '\\';
		*to++ = *c;
	}
	*to = '\0';
	return show_entry(r, s->unit, "checkpoint", RSH_RESUME_TEXT,
			  s->first_file, show_printf(
				  r, "model_checkpoint_path: \"%s\"\n"
				  "all_model_checkpoint_paths: \"%s\"\n",
				  quoted, quoted));
}

/* Shows the directory of a step, a link to it, and the file that Megatron and
 * its successors read to find it; that one ends without a newline. */
static int show_dirs(struct rsh_resume *r)
{
	const char *tracked = r->source->format->tracked;
	const struct rsh_saved *first = r->saved;
	int rc = 0;

	for (size_t i = 0; i < r->n_saved && rc == 0; i++)
		rc = show_files(r, &r->saved[i], r->saved[i].dir);
	if (rc == 0 && r->source->format->latest_is_text)
		return show_entry(r, "", LATEST, RSH_RESUME_TEXT,
				  first->first_file,
				  show_printf(r, "%s", first->label));
	if (rc == 0)
		rc = show_entry(r, "", LATEST, RSH_RESUME_LINK,
				first->first_file, first->label);
	if (rc || strncmp(first->label, tracked, strlen(tracked)) != 0)
		return rc;
	return show_entry(r, "", RSH_CKPT2_TRACKER, RSH_RESUME_TEXT,
			  first->first_file,
			  show_printf(r, "%" PRIu64, first->step->numbers[0]));
}

static int resume_show(struct rsh_resume *r)
{
	const struct rsh_format *f = r->source->format;
	int rc = 0;

	if (f->step_dirs)
		return show_dirs(r);
	for (size_t i = 0; i < r->n_saved && rc == 0; i++) {
		const struct rsh_saved *s = &r->saved[i];

		rc = show_files(r, s, s->unit) ?: show_links(r, s);
		if (rc == 0 && f->tracked)
			rc = show_checkpoint(r, s);
	}
	return rc;
}

/* ---- a candidate ---- */

static const struct rsh_checkpoint *
resume_first(const struct rsh_resume *r, uint32_t candidate)
{
	const struct rsh_source *s = r->source;

	return &s->listing.files[s->candidates[candidate].first];
}

static const char *resume_label(const struct rsh_resume *r, uint32_t candidate)
{
	return rsh_checkpoint_label(resume_first(r, candidate));
}

static bool resume_are_one(const struct rsh_checkpoint *a,
			   const struct rsh_checkpoint *b)
{
	const size_t n = (size_t)(a->base - a->name);

	return n == (size_t)(b->base - b->name) &&
	       memcmp(a->name, b->name, n) == 0 &&
	       strcmp(a->label, b->label) == 0;
}

static int resume_add_saved(struct rsh_resume *r,
			    const struct rsh_checkpoint *c, uint32_t file)
{
	const size_t n_dir = c->base == c->name ? 0 :
			     (size_t)(c->base - c->name) - 1;
	const char *dir = rsh_arena_strndup(&r->arena, c->name, n_dir);

	if (!dir)
		return -ENOMEM;
	r->saved[r->n_saved++] = (struct rsh_saved){
		.unit = r->source->listing.dirs[c->rank].name, .dir = dir,
		.label = rsh_checkpoint_label(c), .step = &c->step,
		.names = &r->names[file], .first_file = file,
	};
	return 0;
}

/* Fills r->saved with the files of a candidate for each unit.  The files ascend
 * by unit, so the first one that is not at its place shows a missing unit or
 * one with two files. */
static int resume_take_saved(struct rsh_resume *r, uint32_t candidate,
			     struct rsh_error *err)
{
	const struct rsh_listing *l = &r->source->listing;
	const struct rsh_candidate *range = &r->source->candidates[candidate];

	r->n_saved = 0;
	for (size_t i = range->first; i < range->end; i++) {
		const struct rsh_checkpoint *c = &l->files[i];
		const uint32_t file = (uint32_t)(i - range->first);

		r->names[file] = c->base;
		if (file > 0 && c->rank == c[-1].rank) {
			if (!resume_are_one(c, c - 1))
				return rsh_error_set(err, EBADMSG,
			"%s and %s have the same rank and step: use --select "
			"name=GLOB", c[-1].label, c->label);
		} else if (c->rank != r->n_saved) {
			break;
		} else if (resume_add_saved(r, c, file)) {
			return rsh_error_nomem(err);
		}
		r->saved[r->n_saved - 1].n++;
	}
	return r->n_saved == l->n_dirs ? 0 :
	       rsh_error_set(err, EBADMSG, "%s has none",
			     *l->dirs[r->n_saved].name ?
				     l->dirs[r->n_saved].name :
				     "its own directory");
}

/* ---- trying a candidate ---- */

/* These are the open files of one unit's checkpoint. */
struct resume_opened {
	size_t n;
	struct rsh_handle **handles;
	struct rsh_byte_source *bytes;
};

static void resume_close(struct resume_opened *o)
{
	for (size_t i = 0; i < o->n; i++)
		rsh_handle_close(o->handles[i]);
	free(o->handles);
	free(o->bytes);
}
#define cleanup_opened __attribute__((cleanup(resume_close)))

static int resume_check_saved(struct rsh_source *s,
			      const struct rsh_saved *saved,
			      struct rsh_error *err)
{
	cleanup_opened struct resume_opened o = {
		.handles = rsh_alloc_array(saved->n, sizeof(*o.handles)),
		.bytes = rsh_alloc_array(saved->n, sizeof(*o.bytes)),
	};
	int rc = 0;

	if (!o.handles || !o.bytes)
		return rsh_error_nomem(err);
	for (; o.n < saved->n; o.n++) {
		const uint32_t file = saved->first_file + (uint32_t)o.n;

		rc = rsh_store_identify(s->store, file, &o.handles[o.n], err);
		if (rc)
			return rc;
		o.bytes[o.n] = (struct rsh_byte_source){
			.pread_fn = rsh_handle_pread, .ctx = o.handles[o.n],
			.size = rsh_store_identity(s->store, file)->size,
			.path = rsh_store_path(s->store, file),
		};
	}
	rc = s->format->check(o.bytes, saved->names, o.n,
				      s->check == RSH_CHECK_FULL, err);
	if (rc)
		return rc;
	for (size_t i = 0; i < o.n; i++)
		if (rsh_store_compare(s->store, saved->first_file + (uint32_t)i,
				      o.handles[i]))
			return rsh_error_set(err, EAGAIN, "%s: it is being "
					     "written", o.bytes[i].path);
	for (size_t i = 0; i < o.n; i++)
		rsh_store_adopt(s->store, saved->first_file + (uint32_t)i,
				steal_pointer(&o.handles[i]));
	return 0;
}

static bool saved_has(const struct rsh_saved *s, const char *name)
{
	for (size_t i = 0; i < s->n; i++)
		if (strcmp(s->names[i], name) == 0)
			return true;
	return false;
}

/* If a unit of a step lacks a file that another one has, it was not
 * finished. */
static int resume_agree(const struct rsh_resume *r, struct rsh_error *err)
{
	if (r->source->format->unlike_units)
		return 0;
	for (size_t i = 0; i < r->n_saved; i++)
		for (size_t f = 0; f < r->saved[i].n; f++)
			for (size_t k = 0; k < r->n_saved; k++)
				if (!saved_has(&r->saved[k],
					       r->saved[i].names[f]))
					return rsh_error_set(err, EBADMSG,
						"%s/%s has no %s, which %s has",
						r->source->path,
						r->saved[k].dir,
						r->saved[i].names[f],
						r->saved[i].dir);
	return 0;
}

/* Makes a candidate's files those of the source, if all of them are
 * complete. */
static int resume_try(struct rsh_resume *r, uint32_t candidate,
		      struct rsh_error *err)
{
	struct rsh_source *s = r->source;
	int rc = resume_take_saved(r, candidate, err);

	if (rc == 0 && s->format->step_dirs)
		rc = resume_agree(r, err);
	if (rc == 0)
		rc = rsh_source_choose(s, candidate, err);
	for (size_t i = 0; i < r->n_saved && rc == 0; i++)
		rc = resume_check_saved(s, &r->saved[i], err);
	return rc;
}

/* ---- choosing ---- */

static bool resume_is_complete(struct rsh_resume *r, uint32_t candidate)
{
	struct rsh_error unused = RSH_ERROR_INIT;

	return resume_take_saved(r, candidate, &unused) == 0;
}

/* Refuses two series at one step if all units have both, because it is unknown
 * which one is meant. */
static int resume_check_only_one(struct rsh_resume *r, uint32_t i,
				 struct rsh_error *err)
{
	const struct rsh_source *s = r->source;
	const struct rsh_checkpoint *c, *next;

	if (i + 1 >= s->n_tried)
		return 0;
	c = resume_first(r, i);
	next = resume_first(r, i + 1);
	if (c->step.n == 0 || rsh_step_cmp(&c->step, &next->step) != 0 ||
	    c->step.run != next->step.run ||
	    c->step.breakpoint != next->step.breakpoint ||
	    !resume_is_complete(r, i) || !resume_is_complete(r, i + 1))
		return 0;
	return rsh_error_set(err, EINVAL, "%s: several checkpoints match: %s "
					  "and %s: use --select name=GLOB",
			     s->path, c->label, next->label);
}

/* Returns the word for n directories of a step. */
static const char *resume_units(const struct rsh_resume *r, size_t n)
{
	const bool unlike = r->source->format->unlike_units;

	return n == 1 ? unlike ? "directory" : "rank" :
			unlike ? "directories" : "ranks";
}

static int resume_failed(struct rsh_failures *f, const struct rsh_resume *r,
			 uint32_t candidate, const struct rsh_error *why)
{
	const struct rsh_listing *l = &r->source->listing;
	const struct rsh_candidate *range = &r->source->candidates[candidate];
	size_t n = 1;
	char who[96];

	for (size_t i = range->first + 1; i < range->end; i++)
		n += l->files[i].rank != l->files[i - 1].rank;
	snprintf(who, sizeof(who), "%zu of %zu %s %s it", n, l->n_dirs,
		 resume_units(r, l->n_dirs), n == 1 ? "has" : "have");
	return rsh_failures_add(f, resume_label(r, candidate), who, why);
}

/* Tries the first n candidates. */
static int resume_try_all(struct rsh_resume *r, uint32_t n, bool by_time,
			  struct rsh_failures *f, struct rsh_error *err)
{
	for (uint32_t i = 0; i < n; i++) {
		struct rsh_error why = RSH_ERROR_INIT;
		int rc = by_time ? 0 : resume_check_only_one(r, i, err);

		if (rc)
			return rc;
		rc = resume_try(r, i, &why);
		if (rc == 0) {
			rsh_failures_log(f, i, resume_label(r, i));
			return 0;
		}
		/* A forbidden link is an error, even if older steps can be
		 * used. */
		if (rc == -ENOMEM || rc == -EXDEV) {
			*err = why;
			return rc;
		}
		/* It may be complete, so an older one is not taken. */
		if (rsh_errno_is_unread(-rc))
			return rsh_failures_unread(r->source->path,
						   resume_label(r, i), &why,
						   err);
		if (resume_failed(f, r, i, &why))
			return rsh_error_nomem(err);
	}
	return rsh_failures_none(f, r->source->n_tried, EBADMSG,
				 "no checkpoint is complete on all ranks", err);
}

static int resume_choose_step(struct rsh_resume *r,
			      const struct rsh_source_options *o,
			      uint32_t fallbacks, struct rsh_error *err)
{
	struct rsh_source *s = r->source;
	char beside[NAME_MAX + 128];
	const char *unit;
	struct rsh_failures f;
	uint32_t n;
	int rc = rsh_candidates_make(s, o, err);

	if (rc)
		return rc;
	n = s->n_tried - 1 > fallbacks ? fallbacks + 1 : s->n_tried;
	r->names = rsh_alloc_array(s->listing.n, sizeof(*r->names));
	r->saved = rsh_alloc_array(s->listing.n_dirs, sizeof(*r->saved));
	if (!r->names || !r->saved || rsh_failures_init(&f, s->path, n))
		return rsh_error_nomem(err);
	rc = resume_try_all(r, n, o->select == RSH_SELECT_MTIME, &f, err);
	rsh_failures_clear(&f);
	if (rc)
		return rc;
	unit = s->format->step_dirs ? "" : s->listing.dirs[0].name;
	rsh_candidates_beside(s, beside, sizeof(beside));
	rsh_log_notice("%s: %s, %zu %s, taking %s%s%s%s%s", s->path,
		       s->format->framework, r->n_saved,
		       resume_units(r, r->n_saved), unit, *unit ? "/" : "",
		       rsh_resume_step(r),
		       s->n_tried > 1 ? " of several checkpoints" : "", beside);
	return resume_show(r) ? rsh_error_nomem(err) : 0;
}

/* ---- opening ---- */

/* A rank without any checkpoint makes all steps incomplete. */
static int resume_check_units(const struct rsh_source *s, const char *glob,
			      struct rsh_error *err)
{
	const struct rsh_listing *l = &s->listing;
	cleanup_free bool *has = calloc(l->n_dirs + 1, sizeof(*has));

	if (!has)
		return rsh_error_nomem(err);
	/* Units are numbered from 0 in the order of their directories. */
	for (size_t i = 0; i < l->n; i++)
		has[l->files[i].rank] = true;
	for (size_t d = 0; d < l->n_dirs; d++)
		if (!has[l->dirs[d].rank])
			return rsh_error_set(err, ENOENT,
			"%s/%s contains no checkpoint%s%s", s->path,
					     l->dirs[d].name,
					     glob ? " named " : "",
					     glob ? glob : "");
	return 0;
}

static int resume_none(const struct rsh_source *s,
		       const struct rsh_format *const *formats,
		       const char *glob, struct rsh_error *err)
{
	const struct rsh_format *last = NULL;
	char names[256] = "";
	size_t at = 0;

	for (const struct rsh_format *const *f = formats; *f; f++)
		if ((*f)->framework)
			last = *f;
	for (; *formats && at < sizeof(names); formats++)
		if ((*formats)->framework)
			at += (size_t)snprintf(names + at, sizeof(names) - at,
					       "%s%s", at == 0 ? "" :
					       *formats == last ? " or " : ", ",
					       (*formats)->framework);
	return rsh_error_set(err, ENOENT, "%s: it contains no checkpoint of "
					  "%s%s%s",
			     s->path, names, glob ? " named " : "",
			     glob ? glob : "");
}

/* Finds the only kind of checkpoint in the tree. */
static int resume_find_kind(struct rsh_source *s,
			    const struct rsh_format *const *formats,
			    const struct rsh_source_options *o,
			    struct rsh_error *err)
{
	const char *glob = o->select == RSH_SELECT_NAME ? o->glob : NULL;
	const struct rsh_format *const *f, *found = NULL;
	struct rsh_listing all = { .n = 0 };
	int rc = 0;

	for (f = formats; *f && rc == 0; f++) {
		if (!(*f)->framework)
			continue;
		rc = rsh_resume_find(s, *f, o, err);
		if (rc == 0 && s->listing.n > 0 && found)
			rc = rsh_error_set(err, EINVAL,
					   "%s: checkpoints of %s (%s) and of "
					   "%s (%s): use --select name=GLOB",
					   s->path, found->framework,
					   all.files[0].label,
					   (*f)->framework,
					   s->listing.files[0].label);
		if (rc == 0 && s->listing.n > 0) {
			s->format = found = *f;
			all = s->listing;
		} else {
			rsh_listing_clear(&s->listing);
		}
		s->listing = (struct rsh_listing){ .n = 0 };
	}
	s->listing = all;
	if (rc == 0 && !found)
		rc = resume_none(s, formats, glob, err);
	return rc ? rc : resume_check_units(s, glob, err);
}

int rsh_resume_open(const char *path, const struct rsh_source_options *opts,
		    uint32_t fallbacks, const struct rsh_format *const *formats,
		    struct rsh_resume **out, struct rsh_error *err)
{
	struct rsh_resume *r = calloc(1, sizeof(*r));
	int rc;

	if (!r)
		return rsh_error_nomem(err);
	rc = rsh_source_new(path, &opts->store, &r->source, err);
	if (rc == 0) {
		r->source->check = opts->check;
		r->source->resumed = true;
		rc = resume_find_kind(r->source, formats, opts, err);
	}
	if (rc == 0)
		rc = resume_choose_step(r, opts, fallbacks, err);
	/* One step may have files that look like several. */
	if ((rc ? rc != -ENOMEM : !r->source->format->step_dirs) &&
	    rsh_source_is_one_step(path, &opts->store, formats))
		rc = rsh_error_set(err, EINVAL, "%s: this is one checkpoint, "
				   "but --resume finds the newest of several: "
				   "use the directory above it", path);
	if (rc == 0 && rsh_store_start(r->source->store))
		rc = rsh_error_nomem(err);
	if (rc) {
		rsh_resume_free(r);
		return rc;
	}
	*out = r;
	return 0;
}

void rsh_resume_free(struct rsh_resume *r)
{
	if (!r)
		return;
	free(r->entries);
	free(r->saved);
	free(r->names);
	rsh_source_free(r->source);
	rsh_arena_clear(&r->arena);
	free(r);
}

const struct rsh_resume_entry *rsh_resume_entries(const struct rsh_resume *r,
						  size_t *n)
{
	*n = r->n_entries;
	return r->entries;
}

const char *rsh_resume_step(const struct rsh_resume *r)
{
	return resume_label(r, r->source->chosen);
}

struct rsh_source *rsh_resume_source(const struct rsh_resume *r)
{
	return r->source;
}
