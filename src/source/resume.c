/* SPDX-License-Identifier: Apache-2.0 */
/* source/resume.c lists what the units of a job have saved, by the names that a
 * format knows, and tries the candidates (steps.c) until one is found that all
 * units have and whose files are complete. */
#include "config.h"

#include "source_i.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/source/failures.h"
#include "rsh/source/resume.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

struct finder {
	struct rsh_source *source;
	const struct rsh_format *format;
	const struct rsh_source_options *options;
	struct rsh_error *err;
};

/* ---- directories ---- */

/* The sorted names of a directory. */
struct listed {
	struct rsh_path_list names;
	struct rsh_stat *st; /* [name]; kind RSH_IS_OTHER: it has gone */
};

static void listed_clear(struct listed *l)
{
	rsh_path_list_clear(&l->names);
	free(l->st);
}
#define cleanup_listed __attribute__((cleanup(listed_clear)))

/* Lists a directory below SOURCE.  One that must not be read is empty if its
 * name has no number, as the lost+found of a file system: it cannot be a rank's
 * or that of a step. */
static int find_list(struct finder *f, const char *dir, struct listed *out)
{
	cleanup_dir struct rsh_dir *at = NULL;
	struct rsh_path_list *all = &out->names;
	const char *name;
	int rc = rsh_dir_open(f->source->store, dir, &at);

	while (rc >= 0 && at && (rc = rsh_dir_next(at, &name)) > 0)
		if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0 &&
		    rsh_path_list_add(all, name))
			return rsh_error_nomem(f->err);
	if (rc == -EACCES && *dir && !dir[strcspn(dir, "0123456789")]) {
		rsh_log_info("%s/%s: permission denied; it has no step in its "
			     "name, and is left out", f->source->path, dir);
		return 0;
	}
	if (rc)
		return rsh_store_open_error(f->source->store, dir, rc, f->err);
	rsh_path_list_sort(all);
	out->st = calloc(all->n + 1, sizeof(*out->st));
	if (!out->st)
		return rsh_error_nomem(f->err);
	for (size_t i = 0; i < all->n; i++) {
		rc = rsh_dir_look(at, all->v[i], &out->st[i]);
		if (rc)
			out->st[i].kind = RSH_IS_OTHER;
		/* It may have been deleted in the meantime. */
		if (rc && rc != -ENOENT)
			return rsh_error_set(f->err, -rc, "%s%s%s/%s: %s",
					     f->source->path, *dir ? "/" : "",
					     dir, all->v[i], strerror(-rc));
	}
	return 0;
}

/* ---- adding files ---- */

/* Sets the number of the unit with that name, which is added if it is new. */
static int find_unit(struct finder *f, const char *name, uint32_t *unit)
{
	struct rsh_listing *l = &f->source->listing;

	/* Entries of one directory are consecutive, so the unit is mostly the
	 * last one. */
	for (size_t i = l->n_dirs; i-- > 0;)
		if (strcmp(l->dirs[i].name, name) == 0) {
			*unit = l->dirs[i].rank;
			return 0;
		}
	*unit = (uint32_t)l->n_dirs;
	return rsh_listing_add_dir(l, name, *unit) ? rsh_error_nomem(f->err) :
						     0;
}

static enum rsh_part find_part(const struct finder *f, const char *dir,
			       const char *name, const char *after,
			       struct rsh_step_name *says)
{
	char path[2 * NAME_MAX + 8];

	*says = (struct rsh_step_name){ .step = { .n = 0 } };
	snprintf(path, sizeof(path), "%s%s%s%s", dir, *dir ? "/" : "", name,
		 after);
	return f->format->part(path, says);
}

/* Adds a file, unless --select name= excludes it. */
static int find_add(struct finder *f, uint32_t unit, const char *dir,
		    const char *file, const struct rsh_step_name *name,
		    const struct rsh_stat *st)
{
	cleanup_free char *path = NULL;

	if (!rsh_name_is_selected(name->label, f->options))
		return 0;
	path = rsh_text_format("%s%s%s", dir, *dir ? "/" : "", file);
	return rsh_source_list(f->source, &(struct rsh_checkpoint){
		.rank = unit, .step = name->step, .name = path,
		.label = name->label, .series = name->series,
		.mtime = st->attr.mtime, .ctime = st->attr.ctime,
	}) ? rsh_error_nomem(f->err) : 0;
}

/* Adds the files of a directory by their names in `in`. */
static int find_add_all(struct finder *f, uint32_t unit, const char *dir,
			const char *in, const struct listed *l)
{
	struct rsh_step_name says;
	int rc = 0;

	for (size_t i = 0; i < l->names.n && rc == 0; i++)
		if (l->st[i].kind == RSH_IS_FILE &&
		    (*in || *l->names.v[i] != '.') &&
		    find_part(f, in, l->names.v[i], "", &says))
			rc = find_add(f, unit, dir, l->names.v[i], &says,
				      &l->st[i]);
	return rc;
}

/* Adds the files of a directory that is that of a step, or of a unit in it. */
static int find_in_step(struct finder *f, const char *dir, const char *unit)
{
	cleanup_listed struct listed l = { .st = NULL };
	struct rsh_step_name says;
	bool any = false;
	uint32_t number;
	int rc = find_list(f, dir, &l);

	for (size_t i = 0; i < l.names.n && rc == 0; i++) {
		const char *name = l.names.v[i];
		cleanup_free char *path = NULL;

		if (l.st[i].kind == RSH_IS_FILE)
			any |= find_part(f, dir, name, "", &says) ==
			       RSH_PART_YES;
		if (l.st[i].kind != RSH_IS_DIR || *unit || *name == '.' ||
		    find_part(f, dir, name, "/", &says) != RSH_PART_YES)
			continue;
		path = rsh_text_format("%s/%s", dir, name);
		rc = path ? find_in_step(f, path, name) :
			    rsh_error_nomem(f->err);
	}
	/* The directory of a unit shows that there is one, even if it has no
	 * file yet. */
	if (rc || (!any && !*unit))
		return rc;
	return find_unit(f, unit, &number) ?:
	       find_add_all(f, number, dir, dir, &l);
}

/* Adds the files of a directory of a rank.  Files in rank_3/checkpoint and
 * similar directories are shown as files of rank_3. */
static int find_in_rank(struct finder *f, const char *dir, uint32_t unit,
			bool inner)
{
	static const char prefix[] = "checkpoint";
	cleanup_listed struct listed l = { .st = NULL };
	int rc = find_list(f, dir, &l) ?: find_add_all(f, unit, dir, "", &l);

	for (size_t i = 0; i < l.names.n && rc == 0 && !inner; i++) {
		cleanup_free char *path = NULL;

		if (l.st[i].kind != RSH_IS_DIR ||
		    strncmp(l.names.v[i], prefix, strlen(prefix)) != 0)
			continue;
		path = rsh_text_format("%s/%s", dir, l.names.v[i]);
		rc = path ? find_in_rank(f, path, unit, true) :
			    rsh_error_nomem(f->err);
	}
	return rc;
}

/* Adds the files in SOURCE itself, which belong to the rank in their names.  If
 * some names have a rank, files without one are ignored. */
static int find_in_root(struct finder *f, const struct listed *root)
{
	struct rsh_step_name says;
	bool any_rank = false;
	uint64_t rank;
	uint32_t unit;
	int rc = 0;

	for (unsigned pass = 0; pass < 2; pass++)
		for (size_t i = 0; i < root->names.n && rc == 0; i++) {
			const char *name = root->names.v[i];
			char dir[32] = "";
			size_t begin, end;
			bool has;

			if (root->st[i].kind != RSH_IS_FILE || *name == '.' ||
			    !find_part(f, "", name, "", &says))
				continue;
			has = rsh_rank_in_name(says.label, strlen(says.label),
					       &begin, &end) &&
			      rsh_number_read(says.label + begin, end - begin,
					      &rank);
			if (pass == 0)
				any_rank |= has;
			if (pass == 0 || (any_rank && !has))
				continue;
			if (any_rank)
				snprintf(dir, sizeof(dir), "rank_%llu",
					 (unsigned long long)rank);
			rc = find_unit(f, dir, &unit) ?:
			     find_add(f, unit, "", name, &says, &root->st[i]);
		}
	return rc;
}

/* Lists the checkpoints that a format knows in the source's listing, whose
 * directories are the units, ascending by name: SOURCE/rank_N or ckpt_N, and
 * directories named checkpoint* in them.  If there is no such directory, it
 * lists SOURCE, where names may have ranks. */
static int find_all(struct finder *f)
{
	cleanup_listed struct listed root = { .st = NULL };
	struct rsh_step_name says;
	bool any_dir = false;
	uint32_t unit;
	int rc = find_list(f, "", &root);

	for (size_t i = 0; i < root.names.n && rc == 0; i++) {
		const char *name = root.names.v[i];

		if (root.st[i].kind != RSH_IS_DIR)
			continue;
		if (f->format->step_dirs) {
			if (*name != '.' && find_part(f, "", name, "/", &says))
				rc = find_in_step(f, name, "");
		} else if (rsh_rank_dir_is(name, strlen(name))) {
			any_dir = true;
			rc = find_unit(f, name, &unit) ?:
			     find_in_rank(f, name, unit, false);
		}
	}
	return rc || any_dir || f->format->step_dirs ? rc :
						       find_in_root(f, &root);
}

/* ---- a candidate ---- */

/* Fills r->saved with the files of a candidate for each unit.  The files ascend
 * by unit, so the first one that is not at its place shows a missing unit or
 * one with two files. */
static int resume_take_saved(struct rsh_resume *r, uint32_t candidate,
			     struct rsh_error *err)
{
	const struct rsh_listing *l = &r->source->listing;
	const struct rsh_candidate *range = &r->source->candidates[candidate];
	const char **names = rsh_arena_array(&r->arena, const char *,
					     range->end - range->first);
	const char *missing;

	r->n = 0;
	for (size_t i = range->first; i < range->end && names; i++) {
		const struct rsh_checkpoint *c = &l->files[i];
		const uint32_t file = (uint32_t)(i - range->first);
		const size_t n = (size_t)(c->base - c->name);

		names[file] = c->base;
		if (file > 0 && c->rank == c[-1].rank) {
			if (n != (size_t)(c[-1].base - c[-1].name) ||
			    memcmp(c->name, c[-1].name, n) != 0 ||
			    strcmp(c->label, c[-1].label) != 0)
				return rsh_error_set(err, EBADMSG,
			"%s and %s have the same rank and step: use --select "
			"name=GLOB", c[-1].label, c->label);
		} else if (c->rank != r->n) {
			break;
		} else {
			r->saved[r->n++] = (struct rsh_saved){
				.unit = l->dirs[c->rank].name,
				.dir = rsh_arena_strndup(&r->arena, c->name,
							 n ? n - 1 : 0),
				.label = rsh_checkpoint_label(c),
				.step = &c->step, .names = &names[file],
				.first_file = file,
			};
		}
		r->saved[r->n - 1].n++;
	}
	if (r->arena.failed)
		return rsh_error_nomem(err);
	if (r->n == l->n_dirs)
		return 0;
	missing = l->dirs[r->n].name;
	return rsh_error_set(err, EBADMSG, "%s has none",
			     *missing ? missing : "its own directory");
}

/* ---- trying a candidate ---- */

/* Checks the checkpoint of one unit.  Its files stay open in the store. */
static int resume_check_saved(struct rsh_source *s,
			      const struct rsh_saved *saved,
			      struct rsh_counters *says, struct rsh_error *err)
{
	cleanup_free struct rsh_byte_source *bytes =
		calloc(saved->n, sizeof(*bytes));
	const uint32_t first = saved->first_file;
	size_t n = 0;
	int rc = bytes ? 0 : rsh_error_nomem(err);

	for (; n < saved->n && rc == 0; n++) {
		const uint32_t file = first + (uint32_t)n;
		struct rsh_handle *h = NULL;

		rc = rsh_store_identify(s->store, file, &h, err);
		bytes[n] = (struct rsh_byte_source){
			.pread_fn = rsh_handle_pread, .ctx = h,
			.size = rsh_store_identity(s->store, file)->size,
			.path = rsh_store_path(s->store, file),
		};
	}
	if (rc == 0)
		rc = s->format->check(bytes, saved->names, n,
				      s->check == RSH_CHECK_FULL, says, err);
	for (uint32_t i = 0; i < n && rc == 0; i++)
		if (rsh_store_compare(s->store, first + i, bytes[i].ctx))
			rc = rsh_error_set(err, EAGAIN, "%s: it is being "
					   "written", bytes[i].path);
	for (uint32_t i = 0; i < n; i++)
		if (rc)
			rsh_handle_close(bytes[i].ctx);
		else
			rsh_store_adopt(s->store, first + i, bytes[i].ctx);
	return rc;
}

/* Checks the checkpoints of all units, and that they are of one save. */
static int resume_check_all(const struct rsh_resume *r, struct rsh_error *err)
{
	cleanup_free struct rsh_counters *says =
		calloc((size_t)r->n + 1, sizeof(*says));
	cleanup_free const char **paths =
		rsh_alloc_array((size_t)r->n + 1, sizeof(*paths));
	int rc = says && paths ? 0 : rsh_error_nomem(err);

	for (size_t k = 0; k < r->n && rc == 0; k++) {
		rc = resume_check_saved(r->source, &r->saved[k], &says[k],
					err);
		paths[k] = rsh_store_path(r->source->store,
					  r->saved[k].first_file);
	}
	if (rc || r->n == 0 || r->source->check == RSH_CHECK_STRUCTURE)
		return rc;
	rc = rsh_counters_compare(says, paths, (uint32_t)r->n,
				  r->saved[0].step->n > 0, err);
	return rc > 0 ? 0 : rc;
}

/* If a unit of a step lacks a file that another one has, it was not
 * finished. */
static int resume_agree(const struct rsh_resume *r, struct rsh_error *err)
{
	const struct rsh_saved *end = r->saved + r->n;

	if (!r->source->format->step_dirs || r->source->format->unlike_units)
		return 0;
	for (const struct rsh_saved *s = r->saved; s < end; s++)
		for (size_t f = 0; f < s->n; f++)
			for (const struct rsh_saved *k = r->saved; k < end;
			     k++) {
				if (!rsh_any(i, k->n,
					     strcmp(k->names[i],
						    s->names[f]) == 0))
					return rsh_error_set(err, EBADMSG,
						"%s/%s has no %s, which %s has",
						r->source->path, k->dir,
						s->names[f], s->dir);
			}
	return 0;
}

/* ---- choosing ---- */

/* Refuses two series at one step if all units have both, because it is unknown
 * which one is meant. */
static int resume_check_only_one(struct rsh_resume *r, uint32_t i,
				 struct rsh_error *err)
{
	const struct rsh_source *s = r->source;
	const struct rsh_checkpoint *c, *next;

	if (i + 1 >= s->n_tried)
		return 0;
	c = &s->listing.files[s->candidates[i].first];
	next = &s->listing.files[s->candidates[i + 1].first];
	if (c->step.n == 0 || rsh_step_cmp(&c->step, &next->step) != 0 ||
	    c->step.run != next->step.run ||
	    c->step.breakpoint != next->step.breakpoint ||
	    resume_take_saved(r, i, NULL) || resume_take_saved(r, i + 1, NULL))
		return 0;
	return rsh_error_set(err, EINVAL, "%s: several checkpoints match: %s "
					  "and %s: use --select name=GLOB",
			     s->path, c->label, next->label);
}

/* The words for directories of a step, by unlike_units: one, and several. */
static const char *const resume_units[2][2] = {
	{ "rank", "ranks" }, { "directory", "directories" },
};

/* Tries the first n candidates. */
static int resume_try_all(struct rsh_resume *r, uint32_t n, bool by_time,
			  struct rsh_failures *f, struct rsh_error *err)
{
	const struct rsh_source *s = r->source;
	const char *const *units = resume_units[s->format->unlike_units];

	for (uint32_t i = 0; i < n; i++) {
		const struct rsh_candidate *range = &s->candidates[i];
		struct rsh_error why = RSH_ERROR_INIT;
		const char *label = rsh_checkpoint_label(
			&s->listing.files[range->first]);
		size_t n_units = 1;
		char who[96];
		int rc = by_time ? 0 : resume_check_only_one(r, i, err);

		if (rc)
			return rc;
		rc = resume_take_saved(r, i, &why) ?:
		     resume_agree(r, &why) ?:
		     rsh_source_choose(r->source, i, &why) ?:
		     resume_check_all(r, &why);
		if (rc == 0) {
			rsh_failures_log(f, i, label);
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
			return rsh_failures_unread(s->path, label, &why, err);
		for (size_t k = range->first + 1; k < range->end; k++)
			n_units += s->listing.files[k].rank !=
				   s->listing.files[k - 1].rank;
		snprintf(who, sizeof(who), "%zu of %zu %s %s it", n_units,
			 s->listing.n_dirs, units[s->listing.n_dirs != 1],
			 n_units == 1 ? "has" : "have");
		if (rsh_failures_add(f, label, who, &why))
			return rsh_error_nomem(err);
	}
	return rsh_failures_none(f, s->n_tried, EBADMSG,
				 "no checkpoint is complete on all ranks", err);
}

/* Warns if the directories of ranks have a gap. */
static void resume_log_gap(const struct rsh_resume *r)
{
	cleanup_free uint32_t *ranks =
		rsh_alloc_array(r->n + 1, sizeof(*ranks));
	size_t begin, end, n = 0;
	uint64_t rank;
	char text[160];

	for (size_t i = 0; ranks && i < r->n; i++) {
		const char *unit = r->saved[i].unit;

		if (!rsh_rank_in_name(unit, strlen(unit), &begin, &end) ||
		    !rsh_number_read(unit + begin, end - begin, &rank) ||
		    rank > UINT32_MAX)
			return;
		ranks[n++] = (uint32_t)rank;
	}
	if (!ranks)
		return;
	rsh_ranks_gap(ranks, rsh_sort_distinct(ranks, n), text, sizeof(text));
	if (*text)
		rsh_log_warning("%s: %s", r->source->path, text);
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
	r->saved = rsh_arena_array(&r->arena, struct rsh_saved,
				   s->listing.n_dirs);
	if (!r->saved || rsh_failures_init(&f, s->path, n))
		return rsh_error_nomem(err);
	rc = resume_try_all(r, n, o->select == RSH_SELECT_MTIME, &f, err);
	rsh_failures_clear(&f);
	if (rc)
		return rc;
	unit = s->format->step_dirs ? "" : r->saved->unit;
	rsh_candidates_beside(s, beside, sizeof(beside));
	rsh_log_notice("%s: %s, %zu %s, taking %s%s%s%s%s", s->path,
		       s->format->framework, r->n,
		       resume_units[s->format->unlike_units][r->n != 1], unit,
		       *unit ? "/" : "", r->saved->label,
		       s->n_tried > 1 ? " of several checkpoints" : "", beside);
	if (!s->format->unlike_units)
		resume_log_gap(r);
	return 0;
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
			rsh_text_add(names, sizeof(names), &at, "%s%s",
				     at == 0 ? "" :
				     *formats == last ? " or " : ", ",
				     (*formats)->framework);
	return rsh_error_set(err, ENOENT, "%s: it contains no checkpoint of "
					  "%s%s%s",
			     s->path, names, glob ? " named " : "",
			     glob ? glob : "");
}

/* Finds the only kind of checkpoint in the tree. */
static int resume_find_kind(struct rsh_source *s,
			    const struct rsh_source_options *o,
			    struct rsh_error *err)
{
	const char *glob = o->select == RSH_SELECT_NAME ? o->glob : NULL;
	struct finder at = { .source = s, .options = o, .err = err };
	const struct rsh_format *const *f, *found = NULL;
	struct rsh_listing all = { .n = 0 };
	int rc = 0;

	for (f = o->formats; *f && rc == 0; f++) {
		if (!(*f)->framework)
			continue;
		at.format = *f;
		rc = find_all(&at);
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
		rc = resume_none(s, o->formats, glob, err);
	return rc ? rc : resume_check_units(s, glob, err);
}

int rsh_resume_open(const char *path, const struct rsh_source_options *opts,
		    uint32_t fallbacks, struct rsh_resume *r,
		    struct rsh_error *err)
{
	int rc;

	*r = (struct rsh_resume){ .n = 0 };
	rc = rsh_source_new(path, &opts->store, &r->source, err);
	if (rc == 0) {
		r->source->check = opts->check;
		r->source->resumed = true;
		rc = resume_find_kind(r->source, opts, err) ?:
		     resume_choose_step(r, opts, fallbacks, err);
	}
	/* One step may have files that look like several. */
	if ((rc ? rc != -ENOMEM : !r->source->format->step_dirs) &&
	    rsh_source_is_one_step(path, &opts->store, opts->formats))
		rc = rsh_error_set(err, EINVAL, "%s: this is one checkpoint, "
				   "but --resume finds the newest of several: "
				   "use the directory above it", path);
	if (rc == 0 && rsh_store_start(r->source->store))
		rc = rsh_error_nomem(err);
	return rc;
}

void rsh_resume_close(struct rsh_resume *r)
{
	rsh_source_free(r->source);
	rsh_arena_clear(&r->arena);
}
