/* SPDX-License-Identifier: Apache-2.0 */
/* source/walk.c finds the files of a tree that a template matches.
 *
 * A plain part of the template is entered.  Any other part is matched with all
 * names of its directory, and the first "{rank}" decides which rank owns the
 * files below.
 */
#include "config.h"

#include "source_i.h"
#include "walk_i.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/files.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

static bool walk_counts(const struct rsh_walk *w, uint32_t rank)
{
	return rank >= w->first && rank - w->first < w->n;
}

int rsh_walk_add(struct rsh_walk *w, struct rsh_checkpoint *c)
{
	struct rsh_listing *l = &w->source->listing;

	if (walk_counts(w, c->rank))
		return rsh_listing_add(l, c);
	if (w->first == 0)
		return rsh_listing_add_beyond(l, c);
	free(c->name);
	return 0;
}

static char *walk_join(const char *dir, const char *name, size_t n)
{
	return rsh_text_format("%s%s%.*s", dir, *dir ? "/" : "", (int)n, name);
}

int rsh_walk_unreadable(struct rsh_walk *w, const char *dir, int rc,
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

void rsh_walk_log_unreadable(const struct rsh_walk *w)
{
	if (w->n_unreadable == 1)
		rsh_log_warning("%s: the directory is left out",
				w->unreadable.text);
	else if (w->n_unreadable > 1)
		rsh_log_warning("%s: the directory is left out, and so are %u "
				"others, which --log-level info lists",
				w->unreadable.text, w->n_unreadable - 1);
}

/* Returns whether a file with that name counts.  The name may set the rank. */
static bool walk_matches(const struct rsh_walk *w, const char *name,
			 uint32_t *rank)
{
	if (name[0] == '.' || rsh_has_suffix(name, ".tmp"))
		return false;
	return w->file ? rsh_template_match(w->file, strlen(w->file), name,
					    rank) :
			 rsh_file_type_of(name) != RSH_FILE_OTHER;
}

/* Returns whether it is unknown what the name is, because it cannot be reached.
 * A broken link does not exist. */
static bool walk_is_out_of_reach(int rc)
{
	return rsh_errno_is_unread(-rc);
}

/* Returns whether the entry is a file.  An entry that cannot be reached counts
 * as a file: opening it reports the error, and the file used instead is
 * logged. */
static bool walk_is_file(struct rsh_dir *dir, const char *name,
			 struct rsh_checkpoint *c)
{
	struct rsh_stat st;
	int rc = rsh_dir_look(dir, name, &st);

	if (rc == 0) {
		c->mtime = st.attr.mtime;
		c->ctime = st.attr.ctime;
	}
	return rc ? walk_is_out_of_reach(rc) : st.kind == RSH_IS_FILE;
}

static int walk_list_files(struct rsh_walk *w, const char *at, uint32_t rank,
			   struct rsh_error *err)
{
	cleanup_dir struct rsh_dir *dir = NULL;
	int more = rsh_dir_open(w->source->store, at, &dir);
	const char *name;

	while (more >= 0 && (more = rsh_dir_next(dir, &name)) > 0) {
		struct rsh_checkpoint c = {
			.rank = rank, .n_dir = w->n_dir,
			.step = { .dir_epoch = w->dir_epoch,
				  .dir_step = w->dir_step },
		};

		if (!walk_matches(w, name, &c.rank) ||
		    !walk_is_file(dir, name, &c))
			continue;
		w->any = w->named = true;
		c.name = walk_join(at, name, strlen(name));
		if (rsh_walk_add(w, &c))
			return rsh_error_nomem(err);
	}
	return more < 0 ? rsh_walk_unreadable(w, at, more, err) : 0;
}

/* This is a part of a template, and the directory in which it is matched. */
struct part {
	const char *at, *text;
	size_t n;
	bool has_rank; /* the first part with "{rank}" */
};

/* Continues below `name` in the directory. */
static int walk_enter(struct rsh_walk *w, const struct part *p,
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
		return walk_is_out_of_reach(rc) ?
			rsh_walk_unreadable(w, below, rc, err) : 0;
	if (st.kind != RSH_IS_DIR)
		return 0;
	if (!p->has_rank)
		return rsh_walk_template(w, below, rest, rank, err);
	w->any = true;
	w->beyond = !walk_counts(w, rank);
	if (w->beyond && w->first > 0)
		return 0;
	/* The second walk finds the same directories. */
	if (!w->beyond && !w->again &&
	    rsh_listing_add_dir(&w->source->listing, below, rank))
		rc = rsh_error_nomem(err);
	if (rc == 0)
		rc = rsh_walk_template(w, below, rest, rank, err);
	w->beyond = false;
	return rc;
}

static int walk_enter_matches(struct rsh_walk *w, const struct part *p,
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
	return more < 0 ? rsh_walk_unreadable(w, p->at, more, err) : rc;
}

int rsh_walk_template(struct rsh_walk *w, const char *at, const char *rest,
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
		return rsh_walk_template(w, at, rest + p.n, rank, err);
	below = walk_join(at, rest, p.n);
	return below ? rsh_walk_template(w, below, rest + p.n, rank, err) :
		       rsh_error_nomem(err);
}

int rsh_source_unreadable(struct rsh_source *s, const char *dir, int rc,
			  struct rsh_error *err)
{
	struct rsh_walk w = { .source = s };

	rc = rsh_walk_unreadable(&w, dir, rc, err);
	rsh_walk_log_unreadable(&w);
	return rc;
}

#define RANK_MARK "{rank}"

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

static bool template_match_rank(const char *t, const char *end, const char *s,
				uint32_t *rank)
{
	const size_t n = rsh_count_digits(s, strlen(s));
	uint64_t v;

	if (!rsh_digits_read(s, n, RSH_RANK_UNKNOWN - 1, &v) ||
	    (*rank != RSH_RANK_UNKNOWN && *rank != v))
		return false;
	*rank = (uint32_t)v;
	return template_match(t, end, s + n, rank);
}

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

	for (; t < end; t++, s++) {
		if ((size_t)(end - t) >= n_mark &&
		    memcmp(t, RANK_MARK, n_mark) == 0)
			return template_match_rank(t + n_mark, end, s, rank);
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
