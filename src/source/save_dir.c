/* SPDX-License-Identifier: Apache-2.0 */
/* source/save_dir.c looks at a directory into which a job saves. */
#include "config.h"

#include "source_i.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "rsh/source/save_dir.h"
#include "rsh/util/clock.h"
#include "rsh/util/files.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

/* A step has its files in SOURCE/STEP/rank_N/checkpoint at most. */
#define DEPTH_MAX 4

/* ---- the list of steps ---- */

void rsh_saved_step_clear(struct rsh_saved_step *t)
{
	free(t->name);
	free(t->path);
	free(t->ranks);
	free(t->why);
	rsh_step_files_free(t->files);
}

int rsh_saved_step_copy(const struct rsh_saved_step *from,
			struct rsh_saved_step *to)
{
	const size_t bytes = from->n_ranks * sizeof(*from->ranks);

	*to = *from;
	to->name = strdup(from->name);
	to->path = strdup(from->path);
	to->ranks = from->ranks ? malloc(bytes) : NULL;
	to->why = from->why ? strdup(from->why) : NULL;
	if (to->files)
		atomic_fetch_add(&to->files->users, 1);
	if (!to->name || !to->path || (from->ranks && !to->ranks) ||
	    (from->why && !to->why)) {
		rsh_saved_step_clear(to);
		return -ENOMEM;
	}
	if (to->ranks)
		memcpy(to->ranks, from->ranks, bytes);
	return 0;
}

void rsh_saved_steps_clear(struct rsh_saved_steps *l)
{
	for (size_t i = 0; i < l->n; i++)
		rsh_saved_step_clear(&l->v[i]);
	free(l->v);
	free(l->foreign);
	*l = (struct rsh_saved_steps){ .n = 0 };
}

/* Adds a copy of a step; NULL: out of memory. */
static struct rsh_saved_step *saved_steps_add(struct rsh_saved_steps *l,
					      const struct rsh_saved_step *from)
{
	if (rsh_room(l->v, l->cap, l->n + 1) ||
	    rsh_saved_step_copy(from, &l->v[l->n]))
		return NULL;
	return &l->v[l->n++];
}

/* A name without a number comes first: it is never the newest. */
RSH_ORDER(step_order, struct rsh_saved_step,
	  (x->step.n > 0) - (y->step.n > 0) ?:
	  -rsh_step_cmp(&x->step, &y->step) ?: strcmp(x->name, y->name))

const struct rsh_saved_step *
rsh_saved_steps_find(const struct rsh_saved_steps *l,
		     const struct rsh_saved_step *like)
{
	return rsh_find(like, l->v, l->n, step_order);
}

static int saved_steps_add_foreign(struct rsh_saved_steps *l, uint64_t hash)
{
	return rsh_push(l->foreign, l->n_foreign, l->cap_foreign, hash);
}

/* ---- the state of files ---- */

/* Adds a file or a directory to the state.  Directories list names in no
 * particular order, so the hashes are added. */
static void files_state_add(struct rsh_files_state *state, const char *path,
			 const struct rsh_stat *st)
{
	const bool dir = st->kind == RSH_IS_DIR;
	const char *base = rsh_path_name(path);
	const uint64_t parts[] = {
		(uint64_t)st->kind, dir ? 0 : st->size,
		dir ? 0 : (uint64_t)st->attr.mtime.tv_sec,
		dir ? 0 : (uint64_t)st->attr.mtime.tv_nsec,
		dir ? 0 : (uint64_t)st->attr.ctime.tv_sec,
		dir ? 0 : (uint64_t)st->attr.ctime.tv_nsec,
	};

	state->hash += XXH3_64bits_withSeed(path, strlen(path),
					    XXH3_64bits(parts, sizeof(parts)));
	/* Python and safetensors make the other temporary names: tmpabcdefgh,
	 * .tmpabcdef. */
	if (dir || rsh_has_suffix(base, ".tmp") ||
	    strncmp(base, "tmp", 3) == 0 || strncmp(base, ".tmp", 4) == 0)
		return;
	state->n++;
	if (rsh_clock_compare(&st->attr.mtime, &state->newest) > 0)
		state->newest = st->attr.mtime;
}

/* Adds everything below a directory, down to this depth. */
static int files_state_add_dir(const struct rsh_store *store, const char *dir,
			       unsigned depth, struct rsh_files_state *state)
{
	cleanup_dir struct rsh_dir *at = NULL;
	int rc = rsh_dir_open(store, dir, &at);
	const char *name;

	if (rc == -EACCES && *dir) {
		state->unreadable = true;
		return 0;
	}
	/* Something was removed in the meantime. */
	if (rsh_errno_is_absent(-rc))
		return 0;
	while (rc >= 0 && (rc = rsh_dir_next(at, &name)) > 0) {
		cleanup_free char *path = NULL;
		struct rsh_stat st;

		/* NFS gives the last name to a file that was removed while it
		 * is open, also by this program. */
		if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
		    strncmp(name, ".nfs", 4) == 0)
			continue;
		rc = rsh_dir_look(at, name, &st);
		state->unreadable |= rsh_errno_is_unread(-rc);
		if (rc)
			continue;
		path = rsh_text_format("%s%s%s", dir, *dir ? "/" : "", name);
		if (!path)
			return -ENOMEM;
		files_state_add(state, path, &st);
		if (st.kind == RSH_IS_DIR && depth > 1)
			rc = files_state_add_dir(store, path, depth - 1,
						     state);
		/* What reads such a directory says that it leads out. */
		if (rc == -EXDEV)
			rc = 0;
	}
	return rc;
}

/* Sets the state of one entry of the directory of all steps, or of a directory
 * in it. */
static int files_state_of(const struct rsh_store *store, const char *name,
			  const struct rsh_stat *st,
			  struct rsh_files_state *state)
{
	*state = (struct rsh_files_state){ .hash = 0 };
	files_state_add(state, name, st);
	return st->kind == RSH_IS_DIR ?
	       files_state_add_dir(store, name, DEPTH_MAX - 1, state) : 0;
}

RSH_ORDER(foreign_order, uint64_t, rsh_compare_u64(*x, *y))

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
	if (rc == 0 || rc == -ENOMEM)
		return rc;
	if (is_passing(-rc))
		t->state.hash = 0;
	t->unread = rsh_errno_is_unread(-rc);
	t->why = strdup(err->text);
	return t->why ? 0 : -ENOMEM;
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

/* Returns -ESTALE if the files of the step have changed since the look. */
static int save_entry_check_same(const struct rsh_store *store,
				 const struct rsh_saved_step *t,
				 struct rsh_error *err)
{
	const char *name = t->path + t->place;
	struct rsh_files_state state;
	struct rsh_stat st;
	int rc = rsh_store_look(store, name, &st) ?:
		 files_state_of(store, name, &st, &state);

	if (rc && rc != -ENOENT)
		return rsh_store_open_error(store, name, rc, err);
	return rc || state.hash != t->state.hash ? -ESTALE : 0;
}

/* The files of this many ranks and steps are kept, with some 100 bytes each. */
#define KEPT_FILES_MAX 65536

/* A step that is checked: a candidate, or an entry if there is no source. */
struct checked {
	struct rsh_source *source;
	uint32_t candidate;
	struct rsh_names *names;
	bool is_file;
};

static int check_entry(struct rsh_save_look *l, const struct rsh_saved_step *t,
		       bool is_file, struct rsh_error *err)
{
	struct rsh_source_options files = *l->o->files;
	struct rsh_names *names;
	cleanup_source struct rsh_source *s = NULL;
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
	rsh_names_free(names);
	if (rc >= 0 && save_entry_check_same(rsh_source_store(l->root), t, err))
		rc = rsh_error_set(err, EAGAIN, "%s: it is being written",
				   t->path);
	return rc > 0 ? 0 : rc;
}

static int check_candidate(struct rsh_save_look *l, struct rsh_saved_step *t,
			   const struct checked *c, struct rsh_error *err)
{
	struct rsh_source *s = c->source;
	const struct rsh_candidate *of = &s->candidates[c->candidate];
	const size_t n = of->end - of->first;
	const int rc = save_look_check(l, s, c->candidate, t, c->names, err);

	if (rc > 0) {
		t->ranks = rsh_alloc_array(n, sizeof(*t->ranks));
		for (; t->ranks && t->n_ranks < n; t->n_ranks++)
			t->ranks[t->n_ranks] =
				s->listing.files[of->first + t->n_ranks].rank;
		return t->ranks ? 0 : -ENOMEM;
	}
	if (rc || l->n_kept + n > KEPT_FILES_MAX)
		return rc;
	l->n_kept += n;
	return rsh_step_files_new(s, of, &t->files);
}

/* Judges a step whose state is set.  `own` is the state of its files only. */
static int save_look_take(struct rsh_save_look *l, struct rsh_saved_step *t,
			  struct rsh_files_state own, const struct checked *c)
{
	const struct rsh_files_state found = t->state;
	struct rsh_error err = RSH_ERROR_INIT;
	int rc;

	if (!c->source && is_unfinished_name(t->name)) {
		rc = rsh_error_set(&err, EBADMSG, "%s: its name says that it "
				   "is not finished", t->path);
		return save_look_judge(t, rc, &err);
	}
	if (save_look_take_before(l, t, &rc)) {
		l->n_kept += t->files ? t->files->n : 0;
		return rc;
	}
	t->state = own;
	if (save_look_is_removing(l, t, &found, &err))
		rc = -err.code;
	else if (c->source)
		rc = check_candidate(l, t, c, &err);
	else
		rc = check_entry(l, t, c->is_file, &err);
	return save_look_judge(t, rc, &err);
}

/* A file counts only if a format accepts it as SOURCE.  Others are not opened
 * again until they change. */
static int check_step_file(const struct rsh_save_look *l, const char *name,
			   const char *path, uint64_t hash, bool *is)
{
	const struct rsh_source_options *files = l->o->files;
	bool known = rsh_find(&hash, l->before->foreign, l->before->n_foreign,
			      foreign_order);
	cleanup_handle struct rsh_handle *h = NULL;
	struct rsh_error unused = RSH_ERROR_INIT;
	char byte;
	int bid;

	*is = !known && rsh_source_format_at(path, &files->store,
					     files->formats, &bid, &unused) &&
	      bid >= RSH_BID_MODEL;
	known = known ||
		(!*is &&
		 rsh_handle_open(rsh_source_store(l->root), name, &h) == 0 &&
		 rsh_handle_pread(h, &byte, 1, 0) >= 0);
	return known ? saved_steps_add_foreign(l->out, hash) : 0;
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
	if (!path || !copy)
		return -ENOMEM;
	like = (struct rsh_saved_step){
		.name = copy, .path = path, .step = says.step,
		.place = strlen(rsh_source_path(l->root)) + 1,
	};
	files_state_add(&alone, name, st);
	if (st->kind == RSH_IS_FILE && !rsh_saved_steps_find(l->before, &like))
		rc = check_step_file(l, name, path, alone.hash, &is);
	if (rc || !is)
		return rc;
	t = saved_steps_add(l->out, &like);
	if (!t)
		return -ENOMEM;
	if (below)
		rc = rsh_store_look(store, t->path + t->place, &at);
	if (rc == 0)
		rc = files_state_of(store, t->path + t->place, &at,
					&t->state);
	if (rc == -EXDEV) {
		rsh_store_open_error(store, t->path + t->place, rc, &leads);
		return save_look_judge(t, -EBADMSG, &leads);
	}
	return rc ? rc : save_look_take(l, t, t->state, &(struct checked){
		.is_file = st->kind == RSH_IS_FILE,
	});
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

		/* Files and ranks ascend. */
		while (at < t->n_ranks && t->ranks[at] < c->rank)
			at++;
		if (!t->ranks || (at < t->n_ranks && t->ranks[at] == c->rank))
			files_state_add(&state, c->name, &st);
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

static int take_candidate(struct rsh_save_look *l, struct rsh_source *s,
			  uint32_t i, struct rsh_names *names)
{
	const struct rsh_candidate *of = &s->candidates[i];
	const struct rsh_step *step = &s->listing.files[of->first].step;
	const size_t n = l->out->n;
	char name[CANDIDATE_NAME_BYTES];
	const struct rsh_saved_step *old;
	struct rsh_saved_step *t;

	candidate_name(step, name);
	/* Candidates descend by step, and of several runs of a step the newest
	 * is the first one. */
	if (step->n == 0 || (n && strcmp(l->out->v[n - 1].name, name) == 0))
		return 0;
	t = saved_steps_add(l->out, &(struct rsh_saved_step){
			.name = name, .path = (char *)(uintptr_t)l->o->path,
			.selected = true, .step = *step, .newest = n == 0,
		});
	if (!t)
		return -ENOMEM;
	/* The files of ranks that the last look has not found do not change a
	 * step that is complete without them. */
	old = rsh_saved_steps_find(l->before, t);
	t->state = state_of_candidate(s, of, old && !old->why ? old : t);
	t->state.unreadable = l->unreadable;
	return save_look_take(l, t, state_of_candidate(s, of, t),
			      &(struct checked){ s, i, names, false });
}

static int candidates_open(const struct rsh_save_dir_options *o,
			   struct rsh_source **out, struct rsh_error *err)
{
	struct rsh_source_options files = *o->files;

	files.select = RSH_SELECT_NEWEST;
	return rsh_source_open(o->path, o->first_rank, o->n_ranks, &files, out,
			       err);
}

/* Does the same as save_entry_check_same() for ranks whose files are kept: it
 * asks for each of them.  Files that other ranks have saved since the look
 * belong to the next one. */
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
			files_state_add(&state, name, &st);
		else if (!rsh_errno_is_absent(-rc))
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
	cleanup_source struct rsh_source *s = NULL;
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
	return same ? 0 : -ESTALE;
}

static int save_look_at_ranks(struct rsh_save_look *l, struct rsh_error *err)
{
	cleanup_names struct rsh_names *names = NULL;
	cleanup_source struct rsh_source *s = NULL;
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
	rsh_sort(l->out->v, l->out->n, step_order);
	rsh_sort(l->out->foreign, l->out->n_foreign, foreign_order);
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
	bool same;

	*out = (struct rsh_saved_steps){ .n = 0 };
	/* All steps were removed: object storage has no empty directories. */
	if (rc == -ENOENT && rsh_store_is_address(o->path))
		return 0;
	if (rc)
		return rc;
	rc = files_state_add_dir(rsh_source_store(l.root), "", DEPTH_MAX,
				 &state);
	same = rc == 0 && state.hash == before->state;
	out->state = state.hash;
	l.unreadable = state.unreadable;
	if (rc)
		rsh_store_open_error(rsh_source_store(l.root), "", rc, err);
	else if (!same)
		rc = look_anew(&l, err);
	for (size_t i = 0; same && i < before->n && rc == 0; i++)
		if (!saved_steps_add(out, &before->v[i]))
			rc = rsh_error_nomem(err);
	for (size_t i = 0; same && i < before->n_foreign && rc == 0; i++)
		if (saved_steps_add_foreign(out, before->foreign[i]))
			rc = rsh_error_nomem(err);
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
