/* SPDX-License-Identifier: Apache-2.0 */
/* source/ranks.c lists the files of ranks: in the usual directories, where the
 * options say, or the files of a source map.
 *
 * A plain part of a template is entered.  Any other part is matched with all
 * names of its directory, and the first "{rank}" decides which rank owns the
 * files below.
 */
#include "config.h"

#include "source_i.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/files.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"
#include "rsh/wire/source_map.h"

struct walk {
	struct rsh_source *source;
	const char *file; /* the last part of the template; NULL: any
			   * checkpoint */
	uint32_t first, n; /* ranks that count */
	uint64_t dir_epoch, dir_step;
	size_t n_dir;
	bool any;   /* a directory of a rank was found */
	bool usual; /* its name is rank_N, so ckpt_N is not looked for */
	bool named; /* a file with a matching name was found */
	bool again; /* the same directories are walked again */
	bool beyond; /* the directory is that of a rank that does not count */
	unsigned n_unreadable; /* number of directories that were left out */
	struct rsh_error unreadable; /* the sentence about the first one */
};

static bool walk_counts(const struct walk *w, uint32_t rank)
{
	return rank >= w->first && rank - w->first < w->n;
}

/* Adds a file with the step in its name.  If the rank does not count, the file
 * is recorded as well, because the strategy may have fewer ranks than the tree.
 * Returns 0 or -ENOMEM. */
static int walk_add(struct walk *w, const struct rsh_checkpoint *found)
{
	const bool counts = walk_counts(w, found->rank);
	struct rsh_checkpoint c = *found;
	const char *base = c.name ? rsh_path_name(c.name) : "";
	const enum rsh_file_type type = rsh_file_type_of(base);
	size_t n = strlen(base);

	if (!counts && w->first > 0)
		return 0;
	if (type != RSH_FILE_OTHER)
		n -= strlen(rsh_file_type_suffix(type));
	rsh_modelcheckpoint_read(base, n, c.rank, &c.step);
	return rsh_listing_add(&w->source->listing, &c, !counts);
}

static char *walk_join(const char *dir, const char *name, size_t n)
{
	return rsh_text_format("%s%s%.*s", dir, *dir ? "/" : "", (int)n, name);
}

/* Handles a directory that cannot be read because of rc: returns 0 if it is
 * left out, or -errno with a sentence.  The root is never left out, and a
 * directory that must not be read is not left out either. */
static int walk_unreadable(struct walk *w, const char *dir, int rc,
			   struct rsh_error *err)
{
	rsh_store_open_error(w->source->store, dir, rc, err);
	/* A directory of a step may be that of the newest one. */
	if (!*dir || rc == -ENOMEM || (rc == -EXDEV && !w->beyond) ||
	    (w->n_dir && !w->beyond && rsh_errno_is_unread(-rc)))
		return rc;
	if (!w->again && !w->beyond) {
		if (w->n_unreadable++ == 0)
			w->unreadable = *err;
		rsh_log_info("%s: the directory is left out", err->text);
	}
	err->code = 0;
	return 0;
}

static void walk_log_unreadable(const struct walk *w)
{
	if (w->n_unreadable == 1)
		rsh_log_warning("%s: the directory is left out",
				w->unreadable.text);
	else if (w->n_unreadable > 1)
		rsh_log_warning("%s: the directory is left out, and so are %u "
				"others, which --log-level info lists",
				w->unreadable.text, w->n_unreadable - 1);
}

static int walk_list_files(struct walk *w, const char *at, uint32_t rank,
			   struct rsh_error *err)
{
	cleanup_dir struct rsh_dir *dir = NULL;
	int more = rsh_dir_open(w->source->store, at, &dir), rc;
	const char *name;
	struct rsh_stat st;

	while (more >= 0 && (more = rsh_dir_next(dir, &name)) > 0) {
		cleanup_free char *path = NULL;
		struct rsh_checkpoint c = {
			.rank = rank, .n_dir = w->n_dir,
			.step = { .dir_epoch = w->dir_epoch,
				  .dir_step = w->dir_step },
		};

		/* The name may set the rank. */
		if (name[0] == '.' || rsh_has_suffix(name, ".tmp") ||
		    (w->file ? !rsh_template_match(w->file, strlen(w->file),
						   name, &c.rank) :
			       rsh_file_type_of(name) == RSH_FILE_OTHER))
			continue;
		/* An entry that cannot be reached counts as a file: opening it
		 * reports the error, and the file used instead is logged.  A
		 * broken link does not exist. */
		rc = rsh_dir_look(dir, name, &st);
		if (rc ? !rsh_errno_is_unread(-rc) : st.kind != RSH_IS_FILE)
			continue;
		if (rc == 0) {
			c.mtime = st.attr.mtime;
			c.ctime = st.attr.ctime;
		}
		w->any = w->named = true;
		c.name = path = walk_join(at, name, strlen(name));
		if (walk_add(w, &c))
			return rsh_error_nomem(err);
	}
	return more < 0 ? walk_unreadable(w, at, more, err) : 0;
}

/* This is a part of a template, and the directory in which it is matched. */
struct part {
	const char *at, *text;
	size_t n;
	bool has_rank; /* the first part with "{rank}" */
};

/* Lists the files below `at` that the rest of a template matches; only those of
 * `rank` if it is known.  Returns 0 or -errno with a sentence. */
static int walk_template(struct walk *w, const char *at, const char *rest,
			 uint32_t rank, struct rsh_error *err);

/* Continues below `name` in the directory. */
static int walk_enter(struct walk *w, const struct part *p,
		      const char *name, uint32_t rank, struct rsh_error *err)
{
	cleanup_free char *below = walk_join(p->at, name, strlen(name));
	const char *rest = p->text + p->n;
	struct rsh_stat st;
	int rc;

	if (!below)
		return rsh_error_nomem(err);
	rc = rsh_store_look(w->source->store, below, &st);
	if (rc)
		return rsh_errno_is_unread(-rc) ?
			walk_unreadable(w, below, rc, err) : 0;
	if (st.kind != RSH_IS_DIR)
		return 0;
	if (!p->has_rank)
		return walk_template(w, below, rest, rank, err);
	w->any = true;
	w->beyond = !walk_counts(w, rank);
	if (w->beyond && w->first > 0)
		return 0;
	/* The second walk finds the same directories. */
	if (!w->beyond && !w->again &&
	    rsh_listing_add_dir(&w->source->listing, below, rank))
		rc = rsh_error_nomem(err);
	if (rc == 0)
		rc = walk_template(w, below, rest, rank, err);
	w->beyond = false;
	return rc;
}

static int walk_enter_matches(struct walk *w, const struct part *p,
			      uint32_t known, struct rsh_error *err)
{
	cleanup_dir struct rsh_dir *dir = NULL;
	int more = rsh_dir_open(w->source->store, p->at, &dir), rc = 0;
	const char *name;

	while (more >= 0 && rc == 0 && (more = rsh_dir_next(dir, &name)) > 0) {
		uint32_t rank = known;

		if (*name != '.' &&
		    rsh_template_match(p->text, p->n, name, &rank))
			rc = walk_enter(w, p, name, rank, err);
	}
	return more < 0 ? walk_unreadable(w, p->at, more, err) : rc;
}

static int walk_template(struct walk *w, const char *at, const char *rest,
			 uint32_t rank, struct rsh_error *err)
{
	cleanup_free char *below = NULL;
	struct part p = { .at = at };

	p.text = rest += strspn(rest, "/");
	p.n = strcspn(rest, "/");
	if (p.n == 0)
		return walk_list_files(w, at, rank, err);
	if (!rsh_template_is_plain(rest, p.n)) {
		p.has_rank = rank == RSH_RANK_UNKNOWN &&
			     rsh_template_has_rank(rest, p.n);
		return walk_enter_matches(w, &p, rank, err);
	}
	if (p.n == 1 && *rest == '.')
		return walk_template(w, at, rest + p.n, rank, err);
	below = walk_join(at, rest, p.n);
	return below ? walk_template(w, below, rest + p.n, rank, err) :
		       rsh_error_nomem(err);
}

int rsh_source_unreadable(struct rsh_source *s, const char *dir, int rc,
			  struct rsh_error *err)
{
	struct walk w = { .source = s };

	rc = walk_unreadable(&w, dir, rc, err);
	walk_log_unreadable(&w);
	return rc;
}

bool rsh_template_is_plain(const char *t, size_t n)
{
	return !memchr(t, '*', n) && !memchr(t, '?', n) &&
	       !rsh_template_has_rank(t, n);
}

bool rsh_template_has_rank(const char *t, size_t n)
{
	return memmem(t, n, RANK_MARK, strlen(RANK_MARK)) != NULL;
}

static bool template_match(const char *t, const char *end, const char *s,
			   uint32_t *rank);

static bool template_match_any(const char *t, const char *end, const char *s,
			       uint32_t *rank)
{
	for (;; s++) {
		uint32_t tried = *rank;

		if (template_match(t, end, s, &tried)) {
			*rank = tried;
			return true;
		}
		if (!*s)
			return false;
	}
}

static bool template_match(const char *t, const char *end, const char *s,
			   uint32_t *rank)
{
	const size_t n_mark = strlen(RANK_MARK);
	uint64_t v;
	size_t n;

	for (; t < end; t++, s++) {
		if ((size_t)(end - t) >= n_mark &&
		    memcmp(t, RANK_MARK, n_mark) == 0) {
			n = rsh_count_digits(s, strlen(s));
			if (!rsh_digits_read(s, n, RSH_RANK_UNKNOWN - 1, &v) ||
			    (*rank != RSH_RANK_UNKNOWN && *rank != v))
				return false;
			*rank = (uint32_t)v;
			return template_match(t + n_mark, end, s + n, rank);
		}
		if (*t == '*')
			return template_match_any(t + 1, end, s, rank);
		if (!*s || (*t != '?' && *t != *s))
			return false;
	}
	return !*s;
}

bool rsh_template_match(const char *t, size_t n, const char *name,
			uint32_t *rank)
{
	uint32_t found = *rank;

	if (!template_match(t, t + n, name, &found))
		return false;
	*rank = found;
	return true;
}

/* ---- where files are ---- */

#define SUBDIRS "/checkpoint*"
/* A map has a file for each rank, with some hundred bytes each. */
static const struct rsh_small_file source_map_file = { "map of files",
						       UINT64_C(1) << 28 };

/* Lists the files in the directories of ranks, and in the directories inside
 * these that some trainers create. */
static int list_rank_dirs(struct walk *w, const char *at,
			  const char *rank_dir, struct rsh_error *err)
{
	cleanup_free char *subdirs = NULL;
	int rc = walk_template(w, at, rank_dir, RSH_RANK_UNKNOWN, err);

	if (rc || !w->any || w->source->select == RSH_SELECT_MINDSPORE)
		return rc;
	if (asprintf(&subdirs, "%s%s", rank_dir, SUBDIRS) < 0)
		return rsh_error_nomem(err);
	w->again = true;
	rc = walk_template(w, at, subdirs, RSH_RANK_UNKNOWN, err);
	w->again = false;
	return rc;
}

static int list_default(struct walk *w, const char *at,
			struct rsh_error *err)
{
	int rc = list_rank_dirs(w, at, "rank_{rank}", err);

	w->usual = w->any;
	if (rc == 0 && !w->any)
		rc = list_rank_dirs(w, at, "ckpt_{rank}", err);
	return rc;
}

/* ---- power-off saves ---- */

/* These are directories that are logged in one line. */
struct passed_over {
	unsigned n;
	char first[NAME_MAX + 1];
};

static void pass_over(struct passed_over *p, const char *name)
{
	if (p->n++ == 0 || strverscmp(name, p->first) < 0)
		snprintf(p->first, sizeof(p->first), "%s", name);
}

static void log_passed_over(const struct rsh_source *s,
			    const struct passed_over *p, const char *why)
{
	char more[48] = "";

	if (p->n > 1)
		snprintf(more, sizeof(more), " (and %u more)", p->n - 1);
	if (p->n > 0)
		rsh_log_warning("%s/%s%s%s", s->path, p->first, why, more);
}

/* Lists the files in the directories of power-off saves, or only says that
 * there are some: their steps are counted differently, so it is unknown whether
 * they are newer than those of directories of ranks. */
static int list_power_offs(struct walk *w, bool mention,
			   struct passed_over *incomplete,
			   struct rsh_error *err)
{
	cleanup_dir struct rsh_dir *dir = NULL;
	int more = rsh_dir_open(w->source->store, "", &dir), rc = 0;
	struct passed_over beside = { 0 }, unusual = { 0 };
	uint64_t epoch, step;
	const char *name;
	bool any = false, complete;

	while (more >= 0 && rc == 0 && (more = rsh_dir_next(dir, &name)) > 0) {
		if (mention && w->usual && *name == 'c' &&
		    rsh_rank_dir_is(name, strlen(name)))
			pass_over(&unusual, name);
		if (!rsh_power_off_read(name, &epoch, &step, &complete))
			continue;
		if (mention || !complete) {
			pass_over(complete ? &beside : incomplete, name);
			continue;
		}
		w->any = false;
		w->dir_epoch = epoch;
		w->dir_step = step;
		w->n_dir = strlen(name);
		rc = list_default(w, name, err);
		any |= w->any;
	}
	if (mention) {
		log_passed_over(w->source, &beside, " is ignored, since there "
				"are directories of ranks; it can be mounted "
				"separately");
		log_passed_over(w->source, &unusual, " is ignored, since there "
				"are directories rank_N; use --rank-dir "
				"'ckpt_{rank}' for it");
		return 0;
	}
	w->any = any;
	log_passed_over(w->source, incomplete,
			": the save is incomplete and is ignored");
	return more < 0 ? walk_unreadable(w, "", more, err) : rc;
}

/* The path is resolved because SOURCE may be ".", end in '/' or be a link. */
static int refuse_incomplete(const struct rsh_source *s, struct rsh_error *err)
{
	cleanup_free char *real = realpath(s->path, NULL);
	const char *path = real ? real : s->path;
	uint64_t epoch, step;
	bool complete;

	if (!rsh_power_off_read(rsh_path_name(path), &epoch, &step,
				&complete) || complete)
		return 0;
	return rsh_error_set(err, EINVAL, "%s: this save is incomplete", path);
}

static int list_usual(struct walk *w, struct rsh_error *err)
{
	struct rsh_source *s = w->source;
	struct passed_over incomplete = { 0 };
	int rc = refuse_incomplete(s, err) ?: list_default(w, "", err);

	s->usual_dirs = !w->file;
	if (rc == 0 && (w->any || s->select != RSH_SELECT_MINDSPORE))
		rc = list_power_offs(w, w->any, &incomplete, err);
	if (rc || w->any)
		return rc;
	if (incomplete.n)
		return rsh_error_set(err, ENOENT,
			"%s: it contains no complete save", s->path);
	s->no_rank_dirs = true;
	return rsh_error_set(err, ENOENT, "%s: no rank_N directory in it",
			     s->path);
}

/* ---- files given by options ---- */

static int list_described(struct walk *w,
			  const struct rsh_source_options *opts,
			  struct rsh_error *err)
{
	const char *slash = opts->file ? strrchr(opts->file, '/') : NULL;
	const char *rank_dir = opts->rank_dir, *file;
	size_t n;
	cleanup_free char *dirs = NULL;
	int rc;

	if (slash)
		w->file = slash + 1;
	if (!rank_dir && !slash)
		return list_usual(w, err);
	file = w->file ? w->file : "*.ckpt or *.safetensors";
	if (asprintf(&dirs, "%s/%.*s", rank_dir ? rank_dir : "",
		     slash ? (int)(slash - opts->file) : 0,
		     slash ? opts->file : "") < 0)
		return rsh_error_nomem(err);
	rc = walk_template(w, "", dirs, RSH_RANK_UNKNOWN, err);
	if (rc || w->any)
		return rc;
	n = strlen(dirs);
	while (n && dirs[n - 1] == '/')
		dirs[--n] = '\0';
	return rsh_error_set(
		err, ENOENT, "%s: it contains no file named %s%s%s",
		w->source->path, dirs + strspn(dirs, "/"), n ? "/" : "", file);
}

/* Paths are relative to the map itself. */
static char *mapped_path(const char *map, const char *path)
{
	cleanup_free char *dir = NULL, *real = NULL;

	if (*path == '/')
		return strdup(path);
	dir = rsh_path_directory(map);
	if (!dir)
		return NULL;
	/* The path is made absolute because the working directory changes. */
	real = realpath(dir, NULL);
	return rsh_text_format("%s/%s", real ? real : dir, path);
}

static int load_map(const char *map, struct rsh_source_map **out,
		    struct rsh_error *err)
{
	cleanup_free uint8_t *data = NULL;
	size_t len;

	return rsh_load_whole(map, &source_map_file, &data, &len, err) ?:
	       rsh_source_map_parse(data, len, map, out, err);
}

int rsh_source_map_each(const char *map,
			void (*fn)(void *ctx, const char *path), void *ctx,
			struct rsh_error *err)
{
	struct rsh_source_map *m;
	int rc = load_map(map, &m, err);

	if (rc)
		return rc;
	for (uint32_t i = 0; i < m->n && rc == 0; i++) {
		cleanup_free char *path = mapped_path(map, m->entries[i].path);

		if (path)
			fn(ctx, path);
		else
			rc = rsh_error_nomem(err);
	}
	rsh_source_map_free(m);
	return rc;
}

/* ---- the listing ---- */

RSH_ORDER(dir_by_rank, struct rsh_rank_dir,
	  rsh_compare_u64(x->rank, y->rank) ?: strcmp(x->name, y->name))

/* A rank may have a directory in each power-off save, but not two directories
 * in the same place. */
static int check_dirs(const struct rsh_source *s, struct rsh_error *err)
{
	const struct rsh_listing *l = &s->listing;

	for (size_t i = 1; i < l->n_dirs; i++) {
		const char *a = l->dirs[i - 1].name, *b = l->dirs[i].name;
		const char *a_base = strrchr(a, '/'), *b_base = strrchr(b, '/');
		size_t n = a_base ? (size_t)(a_base - a) : 0;

		if (l->dirs[i].rank != l->dirs[i - 1].rank ||
		    n != (b_base ? (size_t)(b_base - b) : 0) ||
		    strncmp(a, b, n) != 0)
			continue;
		return rsh_error_set(
			err, EINVAL,
			"%s: rank %u has two directories: %s and %s", s->path,
			l->dirs[i].rank, a, b);
	}
	return 0;
}

static int list_known(struct walk *w, const struct rsh_step_files *files,
		      struct rsh_error *err)
{
	for (size_t i = 0; i < files->n; i++) {
		const struct rsh_step_file *f = &files->v[i];
		cleanup_free char *dir = strndup(f->name, f->n_folder);
		struct rsh_checkpoint c = {
			.rank = f->rank, .name = f->name,
			.mtime = f->mtime, .ctime = f->ctime,
		};

		if (walk_add(w, &c) || !dir ||
		    rsh_listing_add_dir(&w->source->listing, dir, f->rank))
			return rsh_error_nomem(err);
	}
	return 0;
}

static int listing_make(struct rsh_source *s, uint32_t first, uint32_t n,
			const struct rsh_source_options *opts,
			struct rsh_error *err)
{
	struct walk w = {
		.source = s, .first = first, .n = n,
		.file = opts->file,
	};
	int rc;
	struct rsh_source_map *m;

	if (opts->step_files)
		return list_known(&w, opts->step_files, err);
	if (opts->source_map) {
		rc = load_map(opts->source_map, &m, err);
		if (rc)
			return rc;
		for (uint32_t i = 0; i < m->n && rc == 0; i++) {
			cleanup_free char *path = mapped_path(
				opts->source_map, m->entries[i].path);

			if (walk_add(&w, &(struct rsh_checkpoint){
				.rank = m->entries[i].rank, .name = path }))
				rc = rsh_error_nomem(err);
		}
		rsh_source_map_free(m);
		return rc;
	}
	rc = list_described(&w, opts, err);
	walk_log_unreadable(&w);
	if (rc == 0 && w.file && !w.named)
		rc = rsh_error_set(err, ENOENT, "%s: no rank has a file named "
				   "%s", s->path, w.file);
	if (rc)
		return rc;
	rsh_sort(s->listing.dirs, s->listing.n_dirs, dir_by_rank);
	return check_dirs(s, err);
}

int rsh_source_list_ranks(struct rsh_source *s,
			  const struct rsh_source_options *opts,
			  struct rsh_error *err)
{
	return listing_make(s, s->first_rank, s->n_listed_ranks, opts, err) ?:
	       rsh_candidates_make(s, opts, err);
}
