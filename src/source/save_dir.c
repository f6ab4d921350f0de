/* SPDX-License-Identifier: Apache-2.0 */
/* source/save_dir.c looks at a directory into which a job saves, and waits for
 * changes in it, by inotify(7). */
#include "config.h"

#include "save_dir_i.h"
#include "source_i.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "rsh/source/save_dir.h"
#include "rsh/util/clock.h"
#include "rsh/util/files.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

/* What one look uses. */
struct rsh_save_look {
	const struct rsh_save_dir_options *o;
	struct rsh_source *root;
	const struct rsh_saved_steps *before;
	struct rsh_saved_steps *out;
	size_t n_kept; /* files of steps that are kept */
	bool unreadable; /* a directory below it could not be read */
};

/* ---- whether a step is complete ---- */

/* Sets why a step is not complete. */
static int save_look_explain(struct rsh_saved_step *t,
			     const struct rsh_error *why)
{
	t->why = strdup(why->text);
	return t->why ? 0 : -ENOMEM;
}

/* Returns whether the next look may have another result, although no file
 * changes. */
static bool is_passing(int code)
{
	return code == EAGAIN || rsh_errno_is_unread(code);
}

/* The first sentence stays: it names what is missing.  A step in a directory of
 * its own may be the newest one. */
static int save_look_check(struct rsh_save_look *l, struct rsh_source *s,
			   uint32_t i, const struct rsh_saved_step *t,
			   struct rsh_names *names, struct rsh_error *err)
{
	const struct rsh_save_dir_options *o = l->o;
	struct rsh_error unused = RSH_ERROR_INIT;
	int rc = rsh_source_check_whole(s, i, names, err), covers;

	if (rc == 0 || rc == -ENOMEM || !o->covers ||
	    s->format->owner != RSH_OWNER_RANK)
		return rc;
	covers = o->covers(o->ctx, t, o->partly && t->selected && !t->newest,
			   &unused);
	if (covers == 0)
		return 1;
	return covers == -ENOMEM || is_passing(-covers) ? covers : rc;
}

/* Takes the result of the last look, or -ENOMEM as *rc.  Returns false if there
 * is none. */
static bool save_look_take_before(const struct rsh_save_look *l,
				  struct rsh_saved_step *t, int *rc)
{
	const struct rsh_saved_step *old = rsh_saved_steps_find(l->before, t);
	struct rsh_saved_step copy;

	*rc = 0;
	if (!old || old->state.hash != t->state.hash ||
	    (old->why && old->newest && !t->newest))
		return false;
	*rc = rsh_saved_step_copy(old, &copy);
	if (*rc == 0) {
		copy.newest = t->newest;
		rsh_saved_step_clear(t);
		*t = copy;
	}
	return true;
}

/* Records the result of a check. */
static int save_look_judge(struct rsh_saved_step *t, int rc,
			   const struct rsh_error *err)
{
	if (rc == 0)
		return 0;
	if (is_passing(-rc))
		t->state.hash = 0;
	t->unread = rsh_errno_is_unread(-rc);
	return rc == -ENOMEM ? rc : save_look_explain(t, err);
}

/* Frameworks remove the files of a step in any order, so what is left of it may
 * look complete.  The number of its files is kept until a file is written. */
static bool save_look_is_removing(const struct rsh_save_look *l,
				  struct rsh_saved_step *t,
				  const struct rsh_files_state *now,
				  struct rsh_error *err)
{
	const struct rsh_saved_step *old = rsh_saved_steps_find(l->before, t);

	if (!old || now->n >= old->state.n ||
	    rsh_clock_compare(&now->newest, &old->state.newest) > 0)
		return false;
	if (t->state.n < old->state.n)
		t->state.n = old->state.n;
	if (rsh_clock_compare(&old->state.newest, &t->state.newest) > 0)
		t->state.newest = old->state.newest;
	if (now->unreadable)
		rsh_error_set(err, EACCES, "%s: a directory with files of "
			      "step %s cannot be read", l->o->path, t->name);
	else
		rsh_error_set(err, ENOENT, "%s: files were removed of step %s",
			      l->o->path, t->name);
	return true;
}

/* ---- steps that are entries of the directory ---- */

/* Frameworks write under these names first. */
static bool is_unfinished_name(const char *name)
{
	return rsh_has_suffix(name, ".tmp") || rsh_has_suffix(name, "_tmp") ||
	       rsh_has_suffix(name, ".partial") ||
	       rsh_has_suffix(name, "-unfinished");
}

static int check_entry(struct rsh_save_look *l, const struct rsh_saved_step *t,
		       bool is_file, struct rsh_error *err)
{
	struct rsh_source_options files = *l->o->files;
	struct rsh_names *names;
	struct rsh_source *s;
	int rc;

	files.select = RSH_SELECT_NEWEST;
	files.steps_dir = l->o->path;
	/* A directory has one index cache, which keeps the indexes of a few
	 * files that are steps, and is written again for each of them. */
	if (is_file)
		files.index_cache = NULL;
	rc = rsh_source_open(t->path, l->o->first_rank, l->o->n_ranks, &files,
			     &s, err);
	if (rc)
		return rc;
	names = rsh_names_new();
	rc = names ? save_look_check(l, s, 0, t, names, err) :
		     rsh_error_nomem(err);
	rsh_source_free(s);
	rsh_names_free(names);
	return rc > 0 ? 0 : rc;
}

/* Returns -ESTALE if the files of the step have changed since the look. */
static int save_entry_check_same(const struct rsh_store *store,
				 const struct rsh_saved_step *t,
				 struct rsh_error *err)
{
	const char *name = t->path + t->place;
	struct rsh_files_state state;
	struct rsh_stat st;
	int rc = rsh_store_look(store, name, &st) ?:
		 rsh_files_state_of(store, name, &st, &state);

	if (rc && rc != -ENOENT)
		return rsh_store_open_error(store, name, rc, err);
	return rc || state.hash != t->state.hash ? -ESTALE : 0;
}

static int judge_entry(struct rsh_save_look *l, struct rsh_saved_step *t,
		       bool is_file)
{
	struct rsh_error err = RSH_ERROR_INIT;
	int rc;

	if (is_unfinished_name(t->name)) {
		rsh_error_set(&err, EBADMSG, "%s: its name says that it is "
			      "not finished", t->path);
		return save_look_explain(t, &err);
	}
	if (save_look_take_before(l, t, &rc))
		return rc;
	if (save_look_is_removing(l, t, &t->state, &err))
		return save_look_judge(t, -err.code, &err);
	rc = check_entry(l, t, is_file, &err);
	if (rc == 0 && save_entry_check_same(rsh_source_store(l->root), t,
					     &err))
		rc = rsh_error_set(&err, EAGAIN, "%s: it is being written",
				   t->path);
	return save_look_judge(t, rc, &err);
}

static bool is_readable(const struct rsh_save_look *l, const char *name)
{
	cleanup_handle struct rsh_handle *h = NULL;
	char byte;

	return rsh_handle_open(rsh_source_store(l->root), name, &h) == 0 &&
	       rsh_handle_pread(h, &byte, 1, 0) >= 0;
}

/* A file counts only if a format accepts it as SOURCE.  Others are not opened
 * again until they change. */
static int check_step_file(const struct rsh_save_look *l, const char *name,
			   const char *path, uint64_t hash, bool *is)
{
	const struct rsh_source_options *files = l->o->files;
	bool known = rsh_saved_steps_has_foreign(l->before, hash);
	struct rsh_error unused = RSH_ERROR_INIT;
	int bid;

	*is = !known && rsh_source_format_at(path, &files->store,
					     files->formats, &bid, &unused) &&
	      bid >= RSH_BID_MODEL;
	known = known || (!*is && is_readable(l, name));
	return known ? rsh_saved_steps_add_foreign(l->out, hash) : 0;
}

/* Returns the directory in a step that has the weights; NULL: there is none. */
static const char *find_below(const struct rsh_save_look *l, const char *name)
{
	const struct rsh_format *const *f = l->o->files->formats;
	const char *below = NULL;

	for (; f && *f && !below; f++) {
		cleanup_free char *path = NULL;
		struct rsh_stat st;

		if (!(*f)->below)
			continue;
		path = rsh_text_format("%s/%s", name, (*f)->below);
		if (path && rsh_store_look(rsh_source_store(l->root), path,
					   &st) == 0 && st.kind == RSH_IS_DIR)
			below = (*f)->below;
	}
	return below;
}

static int take_entry(struct rsh_save_look *l, const char *name,
		      const struct rsh_stat *st)
{
	const struct rsh_store *store = rsh_source_store(l->root);
	struct rsh_step_name says = { .step = { .n = 0 } };
	struct rsh_error leads = RSH_ERROR_INIT;
	cleanup_free char *path = NULL, *copy = strdup(name);
	const char *below = st->kind == RSH_IS_DIR ? find_below(l, name) : NULL;
	struct rsh_saved_step like, *t;
	struct rsh_stat at = *st;
	struct rsh_files_state alone = { .hash = 0 };
	bool is = true;
	int rc = 0;

	rsh_step_name_read(name, strlen(name), &says);
	if (st->kind == RSH_IS_OTHER ||
	    (st->kind == RSH_IS_FILE &&
	     (says.step.n == 0 || is_unfinished_name(name))))
		return 0;
	path = rsh_text_format("%s/%s%s%s", rsh_source_path(l->root), name,
			       below ? "/" : "", below ? below : "");
	if (!path)
		return -ENOMEM;
	if (!copy)
		return -ENOMEM;
	like = (struct rsh_saved_step){
		.name = copy, .path = path, .step = says.step,
		.place = strlen(rsh_source_path(l->root)) + 1,
	};
	rsh_files_state_add(&alone, name, st);
	if (st->kind == RSH_IS_FILE && !rsh_saved_steps_find(l->before, &like))
		rc = check_step_file(l, name, path, alone.hash, &is);
	if (rc || !is)
		return rc;
	t = rsh_saved_steps_add(l->out, &like);
	if (!t)
		return -ENOMEM;
	if (below)
		rc = rsh_store_look(store, t->path + t->place, &at);
	if (rc == 0)
		rc = rsh_files_state_of(store, t->path + t->place, &at,
					&t->state);
	if (rc == -EXDEV) {
		rsh_store_open_error(store, t->path + t->place, rc, &leads);
		return save_look_explain(t, &leads);
	}
	return rc ? rc : judge_entry(l, t, st->kind == RSH_IS_FILE);
}

static int save_look_at_entries(struct rsh_save_look *l)
{
	struct rsh_store *store = rsh_source_store(l->root);
	cleanup_dir struct rsh_dir *dir = NULL;
	int rc = rsh_dir_open(store, "", &dir);
	const char *name;

	while (rc >= 0 && (rc = rsh_dir_next(dir, &name)) > 0) {
		struct rsh_stat st;

		/* A mount has a link with the second name. */
		if (*name == '.' || strcmp(name, "latest") == 0)
			continue;
		rc = rsh_dir_look(dir, name, &st);
		if (rc && !rsh_errno_is_unread(-rc))
			continue;
		rc = rc ?: take_entry(l, name, &st);
		/* The entry was removed in the meantime. */
		if (rc == -ENOENT)
			rc = 0;
	}
	return rc;
}

/* ---- steps of directories of ranks ---- */

/* The files of this many ranks and steps are kept, with some 100 bytes each. */
#define KEPT_FILES_MAX 65536

/* Returns whether a file belongs to the step.  The files and the ranks of the
 * step ascend; *at is the first of them that was not asked for. */
static bool step_has_rank(const struct rsh_saved_step *t, uint32_t rank,
			  size_t *at)
{
	if (!t->ranks)
		return true;
	while (*at < t->n_ranks && t->ranks[*at] < rank)
		++*at;
	return *at < t->n_ranks && t->ranks[*at] == rank;
}

/* Computes the state of the candidate's files that belong to the step. */
static struct rsh_files_state
state_of_candidate(const struct rsh_source *s, const struct rsh_candidate *of,
		   const struct rsh_saved_step *t)
{
	struct rsh_files_state state = { .hash = 0 };
	size_t at = 0;

	for (size_t i = of->first; i < of->end; i++) {
		const struct rsh_checkpoint *c = &s->listing.files[i];
		const struct rsh_stat st = {
			.kind = RSH_IS_FILE,
			.attr = { .mtime = c->mtime, .ctime = c->ctime },
		};

		if (step_has_rank(t, c->rank, &at))
			rsh_files_state_add(&state, c->name, &st);
	}
	return state;
}

#define CANDIDATE_NAME_BYTES 48

static void candidate_name(const struct rsh_step *step,
			   char name[CANDIDATE_NAME_BYTES])
{
	if (step->n >= 2)
		snprintf(name, CANDIDATE_NAME_BYTES, "%" PRIu64 "_%" PRIu64,
			 step->numbers[0], step->numbers[1]);
	else
		snprintf(name, CANDIDATE_NAME_BYTES, "%" PRIu64,
			 step->numbers[0]);
}

static int check_candidate(struct rsh_save_look *l, struct rsh_source *s,
			   uint32_t i, struct rsh_saved_step *t,
			   struct rsh_names *names, struct rsh_error *err)
{
	const struct rsh_candidate *of = &s->candidates[i];
	const int rc = save_look_check(l, s, i, t, names, err);

	if (rc <= 0)
		return rc;
	t->ranks = rsh_alloc_array(of->end - of->first, sizeof(*t->ranks));
	if (!t->ranks)
		return -ENOMEM;
	for (size_t k = of->first; k < of->end; k++)
		t->ranks[t->n_ranks++] = s->listing.files[k].rank;
	return 0;
}

/* Keeps the files of a step of all ranks. */
static int step_keep_files(struct rsh_save_look *l, struct rsh_source *s,
			   const struct rsh_candidate *of,
			   struct rsh_saved_step *t)
{
	const size_t n = of->end - of->first;

	if (t->why || t->ranks || l->n_kept + n > KEPT_FILES_MAX)
		return 0;
	l->n_kept += n;
	return rsh_step_files_new(s, of, &t->files);
}

/* The files of ranks that the last look has not found do not change a step that
 * is complete without them. */
static int judge_candidate(struct rsh_save_look *l, struct rsh_source *s,
			   uint32_t i, struct rsh_saved_step *t,
			   struct rsh_names *names)
{
	const struct rsh_candidate *of = &s->candidates[i];
	const struct rsh_saved_step *old = rsh_saved_steps_find(l->before, t);
	const struct rsh_saved_step *known = old && !old->why ? old : t;
	struct rsh_files_state found = state_of_candidate(s, of, known);
	struct rsh_error err = RSH_ERROR_INIT;
	int rc;

	found.unreadable = l->unreadable;
	t->state = found;
	if (save_look_take_before(l, t, &rc)) {
		l->n_kept += t->files ? t->files->n : 0;
		return rc;
	}
	t->state = state_of_candidate(s, of, t);
	if (save_look_is_removing(l, t, &found, &err))
		return save_look_judge(t, -err.code, &err);
	rc = check_candidate(l, s, i, t, names, &err);
	rc = save_look_judge(t, rc, &err);
	return rc ? rc : step_keep_files(l, s, of, t);
}

static int take_candidate(struct rsh_save_look *l, struct rsh_source *s,
			  uint32_t i, struct rsh_names *names)
{
	const struct rsh_candidate *of = &s->candidates[i];
	const struct rsh_step *step = &s->listing.files[of->first].step;
	const size_t n = l->out->n;
	char name[CANDIDATE_NAME_BYTES];
	struct rsh_saved_step *t;

	candidate_name(step, name);
	/* Candidates descend by step, and of several runs of a step the newest
	 * is the first one. */
	if (step->n == 0 || (n && strcmp(l->out->v[n - 1].name, name) == 0))
		return 0;
	t = rsh_saved_steps_add(l->out, &(struct rsh_saved_step){
			.name = name, .path = (char *)(uintptr_t)l->o->path,
			.selected = true, .step = *step, .newest = n == 0,
		});
	return t ? judge_candidate(l, s, i, t, names) : -ENOMEM;
}

static int candidates_open(const struct rsh_save_dir_options *o,
			   struct rsh_source **out, struct rsh_error *err)
{
	struct rsh_source_options files = *o->files;

	files.select = RSH_SELECT_NEWEST;
	return rsh_source_open(o->path, o->first_rank, o->n_ranks, &files, out,
			       err);
}

/* Does the same for ranks whose files are kept: it asks for each of them. Files
 * that other ranks have saved since the look belong to the next one. */
static int save_files_check_same(const struct rsh_store *store,
				 const struct rsh_saved_step *t,
				 struct rsh_error *err)
{
	struct rsh_files_state state = { .hash = 0 };
	int rc = 0;

	for (size_t i = 0; i < t->files->n && rc == 0; i++) {
		const char *name = t->files->v[i].name;
		struct rsh_stat st;

		rc = rsh_store_look(store, name, &st);
		st.size = 0;
		if (rc == 0)
			rsh_files_state_add(&state, name, &st);
		else if (rc != -ENOENT && rc != -ENOTDIR)
			return rsh_store_open_error(store, name, rc, err);
	}
	return rc || state.hash != t->state.hash ? -ESTALE : 0;
}

/* Does the same for other ranks: it lists the directory. */
static int save_ranks_check_same(const struct rsh_save_dir_options *o,
				 const struct rsh_saved_step *t,
				 struct rsh_error *err)
{
	char name[CANDIDATE_NAME_BYTES];
	struct rsh_source *s;
	int rc = candidates_open(o, &s, err);
	bool same = false;

	if (rc)
		return rc == -ENOENT ? -ESTALE : rc;
	for (uint32_t i = 0; i < s->n_candidates; i++) {
		const struct rsh_candidate *of = &s->candidates[i];

		candidate_name(&s->listing.files[of->first].step, name);
		if (strcmp(name, t->name) != 0)
			continue;
		same = state_of_candidate(s, of, t).hash == t->state.hash;
		break;
	}
	rsh_source_free(s);
	return same ? 0 : -ESTALE;
}

static int save_look_at_ranks(struct rsh_save_look *l, struct rsh_error *err)
{
	struct rsh_names *names;
	struct rsh_source *s;
	int rc = candidates_open(l->o, &s, err);

	/* No rank has saved anything yet. */
	if (rc == -ENOENT)
		return 0;
	if (rc)
		return rc;
	names = rsh_names_new();
	rc = names ? 0 : -ENOMEM;
	for (uint32_t i = 0; i < s->n_candidates && rc == 0; i++)
		rc = take_candidate(l, s, i, names);
	rsh_source_free(s);
	rsh_names_free(names);
	return rc ? rsh_error_nomem(err) : 0;
}

/* ---- a look at all of it ---- */

static bool format_lists_steps(const struct rsh_save_dir_options *o)
{
	const struct rsh_source_options *f = o->files;
	struct rsh_error unused = RSH_ERROR_INIT;
	const struct rsh_format *format;
	int bid;

	if (f->rank_dir || f->file)
		return true;
	format = rsh_source_format_at(o->path, &f->store, f->formats, &bid,
				      &unused);
	return format && bid >= RSH_BID_RANKS &&
	       format->layout == RSH_LAYOUT_GIVEN;
}

static int look_copy(const struct rsh_saved_steps *from,
		     struct rsh_saved_steps *to, struct rsh_error *err)
{
	for (size_t i = 0; i < from->n; i++)
		if (!rsh_saved_steps_add(to, &from->v[i]))
			return rsh_error_nomem(err);
	for (size_t i = 0; i < from->n_foreign; i++)
		if (rsh_saved_steps_add_foreign(to, from->foreign[i]))
			return rsh_error_nomem(err);
	return 0;
}

static int look_anew(struct rsh_save_look *l, struct rsh_error *err)
{
	int rc;

	if (format_lists_steps(l->o)) {
		rc = save_look_at_ranks(l, err);
	} else {
		rc = save_look_at_entries(l);
		if (rc)
			rsh_store_open_error(rsh_source_store(l->root), "", rc,
					     err);
	}
	rsh_saved_steps_sort(l->out);
	/* A step that changed during the check must be checked again. */
	for (size_t i = 0; i < l->out->n; i++)
		if (l->out->v[i].state.hash == 0)
			l->out->state = 0;
	return rc;
}

int rsh_save_dir_open(const struct rsh_save_dir_options *o,
		      struct rsh_source **out, struct rsh_error *err)
{
	return rsh_source_new(o->path, &o->files->store, out, err);
}

int rsh_save_dir_look(const struct rsh_save_dir_options *o,
		      const struct rsh_saved_steps *before,
		      struct rsh_saved_steps *out, struct rsh_error *err)
{
	struct rsh_save_look l = { .o = o, .before = before, .out = out };
	struct rsh_files_state state = { .hash = 0 };
	int rc = rsh_save_dir_open(o, &l.root, err);

	*out = (struct rsh_saved_steps){ .n = 0 };
	/* All steps were removed: object storage has no empty directories. */
	if (rc == -ENOENT && rsh_store_is_address(o->path))
		return 0;
	if (rc)
		return rc;
	rc = rsh_files_state_add_dir(rsh_source_store(l.root), "",
				     RSH_SAVE_DEPTH_MAX, &state);
	out->state = state.hash;
	l.unreadable = state.unreadable;
	if (rc)
		rsh_store_open_error(rsh_source_store(l.root), "", rc, err);
	else if (out->state == before->state)
		rc = look_copy(before, out, err);
	else
		rc = look_anew(&l, err);
	rsh_source_free(l.root);
	if (rc)
		rsh_saved_steps_clear(out);
	return rc;
}

int rsh_saved_step_check(const struct rsh_save_dir_options *o,
			 const struct rsh_saved_step *t, struct rsh_error *err)
{
	struct rsh_store *store;
	int rc;

	if (t->selected && !t->files)
		return save_ranks_check_same(o, t, err);
	rc = rsh_store_open(o->path, &o->files->store, &store, err);
	if (rc)
		return rc == -ENOENT ? -ESTALE : rc;
	rc = t->selected ? save_files_check_same(store, t, err) :
			   save_entry_check_same(store, t, err);
	rsh_store_free(store);
	return rc;
}

/* ---- waiting for changes ---- */

/* Files of steps are in SOURCE/STEP/rank_N at most. */
#define WATCH_DEPTH 3
#define WATCHES_MAX 4096

#define CHANGES                                                          \
	(IN_CREATE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE |           \
	 IN_CLOSE_WRITE | IN_MOVE_SELF | IN_DELETE_SELF | IN_ONLYDIR)

struct rsh_save_watch {
	const struct rsh_save_dir_options *dir;
	int fd;      /* of inotify */
	int wake[2]; /* a pipe: rsh_save_watch_wake() writes to it */
	unsigned n;  /* directories that the last update has found */
	bool said;   /* it was logged that not all are watched */
};

/* Whatever is not watched is found at the end of the interval. */
static void watch_say(const struct rsh_save_dir_options *o, int code)
{
	rsh_log_notice("%s: new steps are found only each --steps-interval: %s",
		       o->path,
		       code == ENOSPC ? "fs.inotify.max_user_watches is used "
					"up" :
		       code == EMFILE ? "fs.inotify.max_user_instances is used "
					"up" :
		       code == E2BIG ? "it has too many directories to watch" :
				       strerror(code));
}

int rsh_save_watch_open(const struct rsh_save_dir_options *o,
			struct rsh_save_watch **out)
{
	struct rsh_save_watch *w = calloc(1, sizeof(*w));
	int rc = w ? 0 : -ENOMEM;

	*out = NULL;
	if (rc)
		return rc;
	w->dir = o;
	w->fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	if (w->fd < 0 || pipe2(w->wake, O_CLOEXEC | O_NONBLOCK)) {
		rc = -errno;
		watch_say(o, errno);
		if (w->fd >= 0)
			close(w->fd);
		free(w);
		return rc;
	}
	*out = w;
	return 0;
}

void rsh_save_watch_free(struct rsh_save_watch *w)
{
	if (!w)
		return;
	close(w->fd);
	close(w->wake[0]);
	close(w->wake[1]);
	free(w);
}

/* Returns whether the directory is watched.  One that is already watched stays
 * so. */
static bool watch_dir(struct rsh_save_watch *w, const char *path)
{
	int code = E2BIG;

	if (w->n++ < WATCHES_MAX) {
		if (inotify_add_watch(w->fd, path, CHANGES) >= 0)
			return true;
		code = errno;
	}
	/* Others have gone, or cannot be read, which the look says. */
	if (!w->said && (code == ENOSPC || code == E2BIG)) {
		watch_say(w->dir, code);
		w->said = true;
	}
	return false;
}

static void watch_add(struct rsh_save_watch *w, const struct rsh_store *store,
		      const char *dir, unsigned depth)
{
	cleanup_dir struct rsh_dir *at = NULL;
	cleanup_free char *full = rsh_text_format("%s/%s", w->dir->path, dir);
	const char *name;

	if (!full || !watch_dir(w, full) || depth == 1 ||
	    rsh_dir_open(store, dir, &at))
		return;
	while (rsh_dir_next(at, &name) > 0) {
		cleanup_free char *path = NULL;
		struct rsh_stat st;

		if (*name == '.' || rsh_dir_look(at, name, &st) ||
		    st.kind != RSH_IS_DIR)
			continue;
		path = rsh_text_format("%s%s%s", dir, *dir ? "/" : "", name);
		if (path)
			watch_add(w, store, path, depth - 1);
	}
}

void rsh_save_watch_update(struct rsh_save_watch *w)
{
	struct rsh_error unused = RSH_ERROR_INIT;
	struct rsh_store *store;

	/* Another directory may have its place now. */
	if (rsh_store_open(w->dir->path, &w->dir->files->store, &store,
			   &unused))
		return;
	w->n = 0;
	watch_add(w, store, "", WATCH_DEPTH);
	rsh_store_free(store);
}

/* Forgets the events: the next look finds what they say. */
static bool watch_drain(int fd)
{
	char buf[4096];
	bool any = false;

	while (read(fd, buf, sizeof(buf)) > 0)
		any = true;
	return any;
}

bool rsh_save_watch_wait(struct rsh_save_watch *w, uint64_t ns)
{
	struct pollfd p[] = {
		{ .fd = w->fd, .events = POLLIN },
		{ .fd = w->wake[0], .events = POLLIN },
	};

	/* The result of poll() does not matter: the descriptors are asked. */
	poll(p, 2, (int)(ns / 1000000));
	watch_drain(w->wake[0]);
	return watch_drain(w->fd);
}

void rsh_save_watch_wake(struct rsh_save_watch *w)
{
	const ssize_t n = write(w->wake[1], "", 1);

	(void)n; /* a full pipe wakes as well */
}
