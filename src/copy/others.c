/* SPDX-License-Identifier: Apache-2.0 */
/* copy/others.c finds files that would stay in the target beside those of an
 * export, so that programs could load a mixture of two checkpoints. */
#include "config.h"

#include "copy_i.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "rsh/util/files.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

/* Some files of a kind: the first one, and how many more there are. */
struct some {
	char *first; /* from malloc */
	size_t n_more;
};

struct others {
	const struct rsh_manifest_writer *draft;
	const struct rsh_copy_list *list;
	struct rsh_arena arena;
	/* The paths of directories and of files that the export has, with '#'
	 * in place of each number, and the suffixes of its files of tensors.
	 * There are few. */
	const char **dirs, **files, **suffixes;
	size_t n_dirs, cap_dirs, n_files, cap_files, n_suffixes, cap_suffixes;
	/* Of another conversion: files that this one does not have, and those
	 * that another run replaces.  Last, those of which nothing is known. */
	struct some alien, outdated, unknown;
};

static int add_some(struct some *s, const char *path)
{
	if (s->first) {
		s->n_more++;
		return 0;
	}
	s->first = strdup(path);
	return s->first ? 0 : -ENOMEM;
}

/* Returns the words behind the first file. */
static const char *some_more(const struct some *s, char text[64])
{
	*text = '\0';
	if (s->n_more)
		snprintf(text, 64, " and %zu other file%s", s->n_more,
			 s->n_more == 1 ? "" : "s");
	return text;
}

/* ---- the form of paths ---- */

static char *form_of(struct others *o, const char *path, size_t n)
{
	char *form = rsh_arena_strndup(&o->arena, path, n), *to = form;

	for (const char *s = form; s && *s; to++) {
		const size_t digits = rsh_count_digits(s, SIZE_MAX);

		*to = digits ? '#' : *s;
		s += digits ? digits : 1;
	}
	if (form)
		*to = '\0';
	return form;
}

static bool is_among(const char *const *v, size_t n, const char *text)
{
	return rsh_any(i, n, strcmp(v[i], text) == 0);
}

/* Returns the suffix of a name, with its dot; "": it has none. */
static const char *suffix_of(const char *path)
{
	return strrchr(rsh_path_name(path), '.') ?: "";
}

#define add_form(o, which, text)                                      \
	(is_among((o)->which, (o)->n_##which, text) ? 0 :             \
	 rsh_push((o)->which, (o)->n_##which, (o)->cap_##which, text))

static int add_forms(struct others *o, const struct rsh_copy_file *f)
{
	const char *form = form_of(o, f->path, strlen(f->path));
	int rc = form ? add_form(o, files, form) : -ENOMEM;

	for (const char *s = f->path; rc == 0 && (s = strchr(s, '/')); s++) {
		form = form_of(o, f->path, (size_t)(s - f->path));
		rc = form ? add_form(o, dirs, form) : -ENOMEM;
	}
	return rc ?: f->rank == RSH_COPY_NO_RANK ? rc :
	       add_form(o, suffixes, suffix_of(f->path));
}

/* ---- what is there ---- */

/* Returns whether manifests and records of other conversions list a path. */
static bool is_foreign(const struct others *o, const char *path)
{
	return rsh_find(&path, o->draft->foreign, o->draft->n_foreign,
			rsh_by_text) != NULL;
}

/* Returns whether a file may be loaded with those of the export: its name has
 * the same form, or it has the suffix of tensors in such a directory. */
static int may_be_loaded(struct others *o, const char *path)
{
	const char *name = rsh_path_name(path);
	const char *form = form_of(o, path, strlen(path));
	const char *dir = name == path ? "" :
		form_of(o, path, (size_t)(name - path) - 1);

	if (!form || !dir)
		return -ENOMEM;
	return is_among(o->files, o->n_files, form) ||
	       ((!*dir || is_among(o->dirs, o->n_dirs, dir)) &&
		is_among(o->suffixes, o->n_suffixes, suffix_of(name)));
}

static int look_at_name(struct others *o, int dirfd, const char *path);

static int look_in(struct others *o, int fd, const char *below)
{
	DIR *dir = rsh_dir_of(fd);
	const struct dirent *e;
	int rc = 0;

	while (dir && rc == 0 && (e = readdir(dir))) {
		cleanup_free char *path = rsh_text_format(
			"%s%s%s", below, *below ? "/" : "", e->d_name);

		if (*e->d_name != '.')
			rc = path ? look_at_name(o, dirfd(dir), path) : -ENOMEM;
	}
	if (dir)
		closedir(dir);
	return rc;
}

/* Looks at an entry of a directory, of which `path` is the path in the
 * target. */
static int look_at_name(struct others *o, int dirfd, const char *path)
{
	const char *name = rsh_path_name(path), *form;
	struct stat st;
	int rc;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
		return 0;
	if (S_ISDIR(st.st_mode)) {
		form = form_of(o, path, strlen(path));
		if (!form)
			return -ENOMEM;
		rc = is_among(o->dirs, o->n_dirs, form) ?
			openat(dirfd, name, O_RDONLY | O_DIRECTORY |
			       O_NOFOLLOW | O_CLOEXEC) : -1;
		return rc < 0 ? 0 : look_in(o, rc, path);
	}
	if (rsh_copy_list_find(o->list, path) || is_foreign(o, path))
		return 0;
	rc = may_be_loaded(o, path);
	return rc > 0 ? add_some(&o->unknown, path) : rc;
}

/* A file that is asked for is replaced, by this run or by another share. */
static bool is_replaced(const struct rsh_copy_file *f)
{
	return f && f->asked && !f->lost;
}

static int look_at_foreign(struct others *o, int dirfd, const char *path)
{
	const struct rsh_copy_file *f = rsh_copy_list_find(o->list, path);
	struct stat st;

	if (is_replaced(f) ||
	    (f && o->draft->known[f - o->list->files].fd >= 0) ||
	    fstatat(dirfd, path, &st, AT_SYMLINK_NOFOLLOW) != 0)
		return 0;
	return add_some(f && !f->lost ? &o->outdated : &o->alien, path);
}

/* A file of this tree that is not asked for is of another conversion if it has
 * another size. */
static int look_at_listed(struct others *o, int dirfd, size_t i)
{
	const struct rsh_copy_file *f = &o->list->files[i];
	struct stat st;

	if (is_replaced(f) || o->draft->known[i].fd >= 0 ||
	    is_foreign(o, f->path) ||
	    fstatat(dirfd, f->path, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
	    (!f->lost && (uint64_t)st.st_size == f->size))
		return 0;
	return add_some(f->lost ? &o->alien : &o->outdated, f->path);
}

/* ---- the answer ---- */

static int judge_others(const struct others *o, const char *dir,
			struct rsh_error *err)
{
	char more[64];

	if (o->alien.first)
		return rsh_error_set(
			err, EEXIST, "%s/%s%s would stay beside the files of "
			"this export, and be loaded with them: %s of another "
			"conversion; remove %s, or export to another directory",
			dir, o->alien.first, some_more(&o->alien, more),
			o->alien.n_more ? "they are" : "it is",
			o->alien.n_more ? "them" : "it");
	if (o->outdated.first)
		rsh_log_warning("%s/%s%s stay%s beside the files of this "
				"export, and %s of another conversion: export "
				"%s rank%s, too", dir, o->outdated.first,
				some_more(&o->outdated, more),
				o->outdated.n_more ? "" : "s",
				o->outdated.n_more ? "are" : "is",
				o->outdated.n_more ? "their" : "its",
				o->outdated.n_more ? "s" : "");
	if (o->unknown.first)
		rsh_log_warning("%s/%s%s stay%s beside the files of this "
				"export, and may be loaded with them: remove "
				"%s if %s of another checkpoint", dir,
				o->unknown.first,
				some_more(&o->unknown, more),
				o->unknown.n_more ? "" : "s",
				o->unknown.n_more ? "them" : "it",
				o->unknown.n_more ? "they are" : "it is");
	return 0;
}

int rsh_target_judge_others(const struct rsh_manifest_writer *draft,
			    const struct rsh_copy_list *list, int dirfd,
			    const char *dir, struct rsh_error *err)
{
	struct others o = { .draft = draft, .list = list };
	int fd, rc = 0;

	for (size_t i = 0; rc == 0 && i < draft->n_foreign; i++)
		if (!i || strcmp(draft->foreign[i - 1], draft->foreign[i]))
			rc = look_at_foreign(&o, dirfd, draft->foreign[i]);
	for (size_t i = 0; rc == 0 && i < list->n; i++)
		rc = look_at_listed(&o, dirfd, i) ?: add_forms(&o, &list->files[i]);
	fd = rc ? -1 : openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	rc = fd < 0 ? rc : look_in(&o, fd, "");
	rc = rc ? rsh_error_nomem(err) : judge_others(&o, dir, err);
	free(o.alien.first);
	free(o.outdated.first);
	free(o.unknown.first);
	free(o.dirs);
	free(o.files);
	free(o.suffixes);
	rsh_arena_clear(&o.arena);
	return rc;
}
