/* SPDX-License-Identifier: Apache-2.0 */
/* source/resume_find.c lists what the ranks of a job have saved, by the names
 * that a format parses. */
#include "config.h"

#include "resume_i.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

struct rsh_finder {
	struct rsh_source *source;
	const struct rsh_resume_format *resume;
	const struct rsh_source_options *options;
};

/* ---- directories ---- */

/* Returns the sorted names of a directory. */
static int find_names(struct rsh_dir *dir, bool hidden,
		      struct rsh_path_list *all)
{
	const char *name;
	int rc;

	while ((rc = rsh_dir_next(dir, &name)) > 0)
		if ((hidden || *name != '.') && rsh_path_list_add(all, name))
			return -ENOMEM;
	rsh_path_list_sort(all);
	return rc;
}

struct find_each {
	const char *dir;
	enum rsh_stat_kind kind;
	bool hidden; /* also names that begin with a dot */
};

/* Returns whether a directory that must not be read cannot be a rank's or that
 * of a step, as the lost+found of a file system. */
static bool find_is_foreign(const char *dir)
{
	return *dir && !dir[strcspn(dir, "0123456789")];
}

static int find_each(struct rsh_finder *f, const struct find_each *what,
		     rsh_found_fn *fn, void *ctx, struct rsh_error *err)
{
	cleanup_path_list struct rsh_path_list all = { 0 };
	cleanup_dir struct rsh_dir *at = NULL;
	int rc = rsh_dir_open(f->source->store, what->dir, &at);
	struct rsh_stat st;

	if (rc == 0)
		rc = find_names(at, what->hidden, &all);
	if (rc == -EACCES && find_is_foreign(what->dir)) {
		rsh_log_info("%s/%s: permission denied; it has no step in its "
			     "name, and is left out", f->source->path,
			     what->dir);
		return 0;
	}
	if (rc)
		return rsh_store_open_error(f->source->store, what->dir, rc,
					    err);
	for (size_t i = 0; i < all.n && rc == 0; i++) {
		rc = rsh_dir_look(at, all.v[i], &st);
		if (rc == -ENOENT) /* it was deleted in the meantime */
			rc = 0;
		else if (rc)
			return rsh_error_set(err, -rc, "%s%s%s/%s: %s",
					     f->source->path,
					     *what->dir ? "/" : "", what->dir,
					     all.v[i], strerror(-rc));
		else if (st.kind == what->kind)
			rc = fn(f, ctx, all.v[i], &st, err);
	}
	return rc;
}

int rsh_finder_each(struct rsh_finder *f, const char *dir,
		    enum rsh_stat_kind kind, rsh_found_fn *fn, void *ctx,
		    struct rsh_error *err)
{
	return find_each(f, &(struct find_each){ dir, kind, false }, fn, ctx,
			 err);
}

int rsh_finder_each_file(struct rsh_finder *f, const char *dir,
			 rsh_found_fn *fn, void *ctx, struct rsh_error *err)
{
	return find_each(f, &(struct find_each){ dir, RSH_IS_FILE, true }, fn,
			 ctx, err);
}

/* ---- adding files ---- */

int rsh_finder_unit(struct rsh_finder *f, const char *name, uint32_t *unit)
{
	struct rsh_listing *l = &f->source->listing;
	char *copy;

	/* Entries of one directory are consecutive, so the unit is mostly the
	 * last one. */
	for (size_t i = l->n_dirs; i-- > 0;)
		if (strcmp(l->dirs[i].name, name) == 0) {
			*unit = l->dirs[i].rank;
			return 0;
		}
	copy = strdup(name);
	if (!copy || rsh_grow(&l->dirs, &l->cap_dirs, l->n_dirs + 1,
			      sizeof(*l->dirs))) {
		free(copy);
		return -ENOMEM;
	}
	*unit = (uint32_t)l->n_dirs;
	l->dirs[l->n_dirs++] = (struct rsh_rank_dir){ *unit, copy };
	return 0;
}

int rsh_finder_add(struct rsh_finder *f, uint32_t unit, const char *dir,
		   const char *file, const struct rsh_step_name *name,
		   const struct rsh_stat *st)
{
	struct rsh_listing *l = &f->source->listing;
	struct rsh_checkpoint c = { .rank = unit, .step = name->step,
				    .mtime = st->attr.mtime,
				    .ctime = st->attr.ctime };

	if (!rsh_name_is_selected(name->label, f->options))
		return 0;
	c.name = rsh_text_format("%s%s%s", dir, *dir ? "/" : "", file);
	c.label = strdup(name->label);
	c.series = strdup(name->series);
	if (!c.name || !c.label || !c.series ||
	    rsh_grow(&l->files, &l->cap, l->n + 1, sizeof(*l->files))) {
		rsh_checkpoint_clear(&c);
		return -ENOMEM;
	}
	c.base = c.name + strlen(c.name) - strlen(file);
	l->files[l->n++] = c;
	return 0;
}

/* ---- rank_N ---- */

struct find_in_ranks {
	bool any_dir;    /* there is a rank directory */
	bool any_rank;   /* a name in SOURCE itself has a rank */
	const char *dir; /* the directory that is being listed */
	uint32_t unit;
};

static int found_in_rank(struct rsh_finder *f, void *ctx, const char *name,
			 const struct rsh_stat *st, struct rsh_error *err)
{
	const struct find_in_ranks *x = ctx;
	struct rsh_step_name says = { .step = { .n = 0 } };

	if (!f->resume->parse(name, &says))
		return 0;
	return rsh_finder_add(f, x->unit, x->dir, name, &says, st) ?
	       rsh_error_nomem(err) : 0;
}

/* Files in rank_3/checkpoint and similar directories are shown as files of
 * rank_3. */
static int found_inner_dir(struct rsh_finder *f, void *ctx, const char *name,
			   const struct rsh_stat *st, struct rsh_error *err)
{
	static const char prefix[] = "checkpoint";
	struct find_in_ranks inner = *(const struct find_in_ranks *)ctx;
	cleanup_free char *dir = NULL;

	(void)st;
	if (strncmp(name, prefix, strlen(prefix)) != 0)
		return 0;
	dir = rsh_text_format("%s/%s", inner.dir, name);
	if (!dir)
		return rsh_error_nomem(err);
	inner.dir = dir;
	return rsh_finder_each(f, dir, RSH_IS_FILE, found_in_rank, &inner, err);
}

static int found_rank_dir(struct rsh_finder *f, void *ctx, const char *name,
			  const struct rsh_stat *st, struct rsh_error *err)
{
	struct find_in_ranks *x = ctx;
	const size_t n = strlen("rank_");

	(void)st;
	if ((strncmp(name, "rank_", n) != 0 &&
	     strncmp(name, "ckpt_", n) != 0) || !name[n] ||
	    name[n + rsh_count_digits(name + n, strlen(name + n))])
		return 0;
	x->any_dir = true;
	x->dir = name;
	if (rsh_finder_unit(f, name, &x->unit))
		return rsh_error_nomem(err);
	return rsh_finder_each(f, name, RSH_IS_FILE, found_in_rank, x, err) ?:
	       rsh_finder_each(f, name, RSH_IS_DIR, found_inner_dir, x, err);
}

static bool find_rank_in(const char *label, uint64_t *rank)
{
	size_t begin, end;

	return rsh_rank_in_name(label, strlen(label), &begin, &end) &&
	       rsh_number_read(label + begin, end - begin, rank);
}

static int found_rank_name(struct rsh_finder *f, void *ctx, const char *name,
			   const struct rsh_stat *st, struct rsh_error *err)
{
	struct find_in_ranks *x = ctx;
	struct rsh_step_name says = { .step = { .n = 0 } };
	uint64_t rank;

	(void)st, (void)err;
	x->any_rank |= f->resume->parse(name, &says) &&
		       find_rank_in(says.label, &rank);
	return 0;
}

/* A file in SOURCE itself belongs to the rank in its name.  If some names have
 * a rank, files without one are ignored. */
static int found_in_root(struct rsh_finder *f, void *ctx, const char *name,
			 const struct rsh_stat *st, struct rsh_error *err)
{
	const struct find_in_ranks *x = ctx;
	struct rsh_step_name says = { .step = { .n = 0 } };
	char dir[32] = "";
	uint64_t rank;
	uint32_t unit;

	if (!f->resume->parse(name, &says))
		return 0;
	if (x->any_rank) {
		if (!find_rank_in(says.label, &rank))
			return 0;
		snprintf(dir, sizeof(dir), "rank_%llu",
			 (unsigned long long)rank);
	}
	return rsh_finder_unit(f, dir, &unit) ||
	       rsh_finder_add(f, unit, "", name, &says, st) ?
	       rsh_error_nomem(err) : 0;
}

/* Without a function of the format, lists SOURCE/rank_N or ckpt_N, and
 * directories named checkpoint* in them.  If there is no such directory, it
 * lists SOURCE, where names may have ranks. */
int rsh_resume_find(struct rsh_source *s,
		    const struct rsh_resume_format *resume,
		    const struct rsh_source_options *o, struct rsh_error *err)
{
	struct rsh_finder f = { .source = s, .resume = resume,
				.options = o };
	struct find_in_ranks x = { .dir = "" };
	int rc;

	if (resume->find)
		return resume->find(&f, err);
	rc = rsh_finder_each(&f, "", RSH_IS_DIR, found_rank_dir, &x, err);
	if (rc || x.any_dir)
		return rc;
	rc = rsh_finder_each(&f, "", RSH_IS_FILE, found_rank_name, &x, err);
	return rc ? rc :
	       rsh_finder_each(&f, "", RSH_IS_FILE, found_in_root, &x, err);
}
