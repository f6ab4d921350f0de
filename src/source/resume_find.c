/* SPDX-License-Identifier: Apache-2.0 */
/* source/resume_find.c lists what the ranks of a job have saved, by the names
 * that a format knows. */
#include "config.h"

#include "source_i.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

struct finder {
	struct rsh_source *source;
	const struct rsh_format *format;
	const struct rsh_source_options *options;
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

/* Returns whether a directory that must not be read cannot be a rank's or that
 * of a step, as the lost+found of a file system. */
static bool find_is_foreign(const char *dir)
{
	return *dir && !dir[strcspn(dir, "0123456789")];
}

/* Lists a directory below SOURCE; one that is foreign and must not be read is
 * empty. */
static int find_list(struct finder *f, const char *dir, struct listed *out,
		     struct rsh_error *err)
{
	cleanup_dir struct rsh_dir *at = NULL;
	struct rsh_path_list *all = &out->names;
	const char *name;
	int rc = rsh_dir_open(f->source->store, dir, &at);

	while (rc >= 0 && at && (rc = rsh_dir_next(at, &name)) > 0)
		if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0 &&
		    rsh_path_list_add(all, name))
			return rsh_error_nomem(err);
	if (rc == -EACCES && find_is_foreign(dir)) {
		rsh_log_info("%s/%s: permission denied; it has no step in its "
			     "name, and is left out", f->source->path, dir);
		return 0;
	}
	if (rc)
		return rsh_store_open_error(f->source->store, dir, rc, err);
	rsh_path_list_sort(all);
	out->st = calloc(all->n + 1, sizeof(*out->st));
	if (!out->st)
		return rsh_error_nomem(err);
	for (size_t i = 0; i < all->n; i++) {
		rc = rsh_dir_look(at, all->v[i], &out->st[i]);
		if (rc)
			out->st[i].kind = RSH_IS_OTHER;
		/* It may have been deleted in the meantime. */
		if (rc && rc != -ENOENT)
			return rsh_error_set(err, -rc, "%s%s%s/%s: %s",
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
	return rsh_listing_add_dir(l, name, *unit);
}

/* Adds a file, unless --select name= excludes it. */
static int find_add(struct finder *f, uint32_t unit, const char *dir,
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

/* ---- steps that are directories ---- */

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

/* Adds the files of a directory that is that of a step, or of a unit in it. */
static int find_in_step(struct finder *f, const char *dir, const char *unit,
			struct rsh_error *err)
{
	cleanup_listed struct listed l = { .st = NULL };
	struct rsh_step_name says;
	bool any = false;
	uint32_t number;
	int rc = find_list(f, dir, &l, err);

	for (size_t i = 0; i < l.names.n && rc == 0; i++) {
		const char *name = l.names.v[i];

		if (l.st[i].kind == RSH_IS_FILE)
			any |= find_part(f, dir, name, "", &says) ==
			       RSH_PART_YES;
		else if (l.st[i].kind == RSH_IS_DIR && !*unit &&
			 *name != '.' &&
			 find_part(f, dir, name, "/", &says) == RSH_PART_YES) {
			cleanup_free char *path =
				rsh_text_format("%s/%s", dir, name);

			rc = path ? find_in_step(f, path, name, err) :
				    rsh_error_nomem(err);
		}
	}
	/* The directory of a unit shows that there is one, even if it has no
	 * file yet. */
	if (rc || (!any && !*unit))
		return rc;
	if (find_unit(f, unit, &number))
		return rsh_error_nomem(err);
	for (size_t i = 0; i < l.names.n; i++)
		if (l.st[i].kind == RSH_IS_FILE &&
		    find_part(f, dir, l.names.v[i], "", &says) &&
		    find_add(f, number, dir, l.names.v[i], &says, &l.st[i]))
			return rsh_error_nomem(err);
	return 0;
}

/* ---- rank_N ---- */

/* Adds the files of a directory of a rank.  Files in rank_3/checkpoint and
 * similar directories are shown as files of rank_3. */
static int find_in_rank(struct finder *f, const char *dir, uint32_t unit,
			bool inner, struct rsh_error *err)
{
	static const char prefix[] = "checkpoint";
	cleanup_listed struct listed l = { .st = NULL };
	struct rsh_step_name says;
	int rc = find_list(f, dir, &l, err);

	for (size_t i = 0; i < l.names.n && rc == 0; i++)
		if (l.st[i].kind == RSH_IS_FILE && *l.names.v[i] != '.' &&
		    find_part(f, "", l.names.v[i], "", &says) &&
		    find_add(f, unit, dir, l.names.v[i], &says, &l.st[i]))
			rc = rsh_error_nomem(err);
	for (size_t i = 0; i < l.names.n && rc == 0 && !inner; i++) {
		cleanup_free char *path = NULL;

		if (l.st[i].kind != RSH_IS_DIR ||
		    strncmp(l.names.v[i], prefix, strlen(prefix)) != 0)
			continue;
		path = rsh_text_format("%s/%s", dir, l.names.v[i]);
		rc = path ? find_in_rank(f, path, unit, true, err) :
			    rsh_error_nomem(err);
	}
	return rc;
}

static bool find_rank_in(const char *label, uint64_t *rank)
{
	size_t begin, end;

	return rsh_rank_in_name(label, strlen(label), &begin, &end) &&
	       rsh_number_read(label + begin, end - begin, rank);
}

/* Adds the files in SOURCE itself, which belong to the rank in their names.  If
 * some names have a rank, files without one are ignored. */
static int find_in_root(struct finder *f, const struct listed *root)
{
	struct rsh_step_name says;
	bool any_rank = false;
	uint64_t rank;
	uint32_t unit;

	for (unsigned pass = 0; pass < 2; pass++)
		for (size_t i = 0; i < root->names.n; i++) {
			const char *name = root->names.v[i];
			char dir[32] = "";

			if (root->st[i].kind != RSH_IS_FILE || *name == '.' ||
			    !find_part(f, "", name, "", &says))
				continue;
			if (pass == 0) {
				any_rank |= find_rank_in(says.label, &rank);
				continue;
			}
			if (any_rank && !find_rank_in(says.label, &rank))
				continue;
			if (any_rank)
				snprintf(dir, sizeof(dir), "rank_%llu",
					 (unsigned long long)rank);
			if (find_unit(f, dir, &unit) ||
			    find_add(f, unit, "", name, &says, &root->st[i]))
				return -ENOMEM;
		}
	return 0;
}

/* Lists SOURCE/rank_N or ckpt_N, and directories named checkpoint* in them.  If
 * there is no such directory, it lists SOURCE, where names may have ranks. */
int rsh_resume_find(struct rsh_source *s, const struct rsh_format *format,
		    const struct rsh_source_options *o, struct rsh_error *err)
{
	struct finder f = { .source = s, .format = format, .options = o };
	cleanup_listed struct listed root = { .st = NULL };
	struct rsh_step_name says;
	bool any_dir = false;
	uint32_t unit;
	int rc = find_list(&f, "", &root, err);

	for (size_t i = 0; i < root.names.n && rc == 0; i++) {
		const char *name = root.names.v[i];
		const size_t n = rsh_rank_dir_length(name);

		if (root.st[i].kind != RSH_IS_DIR)
			continue;
		if (format->step_dirs) {
			if (*name != '.' && find_part(&f, "", name, "/", &says))
				rc = find_in_step(&f, name, "", err);
		} else if (n > 0 && !name[n]) {
			any_dir = true;
			rc = find_unit(&f, name, &unit) ? rsh_error_nomem(err) :
			     find_in_rank(&f, name, unit, false, err);
		}
	}
	return rc || any_dir || format->step_dirs ? rc :
	       find_in_root(&f, &root) ? rsh_error_nomem(err) : 0;
}
