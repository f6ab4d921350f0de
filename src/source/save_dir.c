/* SPDX-License-Identifier: Apache-2.0 */
/* source/save_dir.c lists the steps of a directory into which a job saves. */
#include "config.h"

#include "rsh/source/save_dir.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "rsh/util/files.h"
#include "rsh/util/mem.h"
#include "source_i.h"

/* A step has its files in SOURCE/STEP/rank_N/checkpoint at most. */
#define DEPTH_MAX 4

/* The files of this many ranks and steps are kept, with some 100 bytes each. */
#define KEPT_FILES_MAX 65536

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

/* Adds a copy of a step. */
static struct rsh_saved_step *saved_steps_add(struct rsh_saved_steps *l,
					      const struct rsh_saved_step *from)
{
	if (rsh_grow(&l->v, &l->cap, l->n + 1, sizeof(*l->v)) ||
	    rsh_saved_step_copy(from, &l->v[l->n]))
		return NULL;
	return &l->v[l->n++];
}

static int step_order(const void *a, const void *b)
{
	const struct rsh_saved_step *x = a, *y = b;
	const int d = (x->step.n > 0) - (y->step.n > 0);

	/* A name without a number comes first: it is never the newest. */
	if (d)
		return d;
	if (x->step.n > 0 && rsh_step_cmp(&x->step, &y->step))
		return -rsh_step_cmp(&x->step, &y->step);
	return strcmp(x->name, y->name);
}

const struct rsh_saved_step *
rsh_saved_steps_find(const struct rsh_saved_steps *l,
		     const struct rsh_saved_step *like)
{
	return l->n ? bsearch(like, l->v, l->n, sizeof(*l->v), step_order) :
		      NULL;
}

/* ---- the state of files ---- */

/* NFS gives this name to a file that was removed while it is open, also by this
 * program. */
static bool is_removed_file(const char *name)
{
	return strncmp(name, ".nfs", strlen(".nfs")) == 0;
}

/* Python and safetensors make the other names: tmpabcdefgh, .tmpabcdef. */
static bool is_temporary(const char *name)
{
	return rsh_has_suffix(name, ".tmp") || strncmp(name, "tmp", 3) == 0 ||
	       strncmp(name, ".tmp", 4) == 0;
}

static bool is_newer(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec != b->tv_sec ? a->tv_sec > b->tv_sec :
					a->tv_nsec > b->tv_nsec;
}

/* Adds a file or a directory.  Directories list names in no particular order,
 * so the hashes are added. */
static void state_add(struct rsh_files_state *state, const char *path,
		      const struct rsh_stat *st)
{
	const bool dir = st->kind == RSH_IS_DIR;
	const char *slash = strrchr(path, '/');
	const uint64_t parts[] = {
		(uint64_t)st->kind, dir ? 0 : st->size,
		dir ? 0 : (uint64_t)st->attr.mtime.tv_sec,
		dir ? 0 : (uint64_t)st->attr.mtime.tv_nsec,
	};

	state->hash += XXH3_64bits_withSeed(path, strlen(path),
					    XXH3_64bits(parts, sizeof(parts)));
	if (dir || is_temporary(slash ? slash + 1 : path))
		return;
	state->n++;
	if (is_newer(&st->attr.mtime, &state->newest))
		state->newest = st->attr.mtime;
}

/* Adds everything below a directory. */
static int state_add_dir(const struct rsh_store *store, const char *dir,
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
	if (rc == -ENOENT || rc == -ENOTDIR)
		return 0;
	while (rc >= 0 && (rc = rsh_dir_next(at, &name)) > 0) {
		cleanup_free char *path = NULL;
		struct rsh_stat st;

		if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
		    is_removed_file(name) || rsh_dir_look(at, name, &st))
			continue;
		if (asprintf(&path, "%s%s%s", dir, *dir ? "/" : "", name) < 0) {
			path = NULL;
			return -ENOMEM;
		}
		state_add(state, path, &st);
		if (st.kind == RSH_IS_DIR && depth > 1)
			rc = state_add_dir(store, path, depth - 1, state);
	}
	return rc;
}

/* Sets the state of one entry of the directory of all steps, or of a directory
 * in it. */
static int state_of_entry(const struct rsh_store *store, const char *name,
			  const struct rsh_stat *st,
			  struct rsh_files_state *state)
{
	*state = (struct rsh_files_state){ .hash = 0 };
	state_add(state, name, st);
	return st->kind == RSH_IS_DIR ?
	       state_add_dir(store, name, DEPTH_MAX - 1, state) : 0;
}

/* ---- names ---- */

/* Frameworks write under these names first. */
static bool is_unfinished_name(const char *name)
{
	return rsh_has_suffix(name, ".tmp") || rsh_has_suffix(name, "_tmp") ||
	       rsh_has_suffix(name, ".partial") ||
	       rsh_has_suffix(name, "-unfinished");
}

/* ---- steps that are entries of the directory ---- */

/* What one look uses. */
struct look {
	const struct rsh_save_dir_options *o;
	struct rsh_source *root;
	const struct rsh_saved_steps *before;
	struct rsh_saved_steps *out;
	size_t n_kept; /* files of steps that are kept */
	bool unreadable; /* a directory below it could not be read */
};

static int step_explain(struct rsh_saved_step *t, const struct rsh_error *why)
{
	t->why = strdup(why->text);
	return t->why ? 0 : -ENOMEM;
}

/* Returns whether the next look may have another result, although no file
 * changes. */
static bool is_passing(int code)
{
	static const int passing[] = { EIO,    ESTALE, ETIMEDOUT, EMFILE,
				       ENFILE, EACCES, EAGAIN };

	for (size_t i = 0; i < sizeof(passing) / sizeof(passing[0]); i++)
		if (code == passing[i])
			return true;
	return false;
}

/* Returns 0 if a candidate is complete, and 1 if it can be shown with the files
 * that it has.  The first sentence stays: it names what is missing.  A step in
 * a directory of its own may be the newest one. */
static int check_files(struct look *l, struct rsh_source *s, uint32_t i,
		       const struct rsh_saved_step *t, struct rsh_names *names,
		       struct rsh_error *err)
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

static int check_entry(struct look *l, const struct rsh_saved_step *t,
		       bool is_file, struct rsh_error *err)
{
	struct rsh_source_options files = *l->o->files;
	struct rsh_names *names;
	struct rsh_source *s;
	int rc;

	files.select = RSH_SELECT_NEWEST;
	/* A directory has one index cache, which keeps the indexes of a few
	 * files that are steps, and is written again for each of them. */
	if (is_file)
		files.index_cache = NULL;
	rc = rsh_source_open(t->path, l->o->first_rank, l->o->n_ranks, &files,
			     &s, err);
	if (rc)
		return rc;
	names = rsh_names_new();
	rc = names ? check_files(l, s, 0, t, names, err) : rsh_error_nomem(err);
	rsh_source_free(s);
	rsh_names_free(names);
	return rc > 0 ? 0 : rc;
}

/* Returns 0, -ESTALE or another -errno with a sentence. */
static int entry_check_same(const struct rsh_store *store,
			    const struct rsh_saved_step *t,
			    struct rsh_error *err)
{
	const char *name = t->path + t->place;
	struct rsh_files_state state;
	struct rsh_stat st;
	int rc = rsh_store_look(store, name, &st);

	if (rc == 0)
		rc = state_of_entry(store, name, &st, &state);
	if (rc && rc != -ENOENT)
		return rsh_store_open_error(store, name, rc, err);
	return rc || state.hash != t->state.hash ? -ESTALE : 0;
}

/* Takes the result of the last look.  Returns false if there is none. */
static bool step_take_before(const struct look *l, struct rsh_saved_step *t,
			     int *rc)
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
static int step_judge(struct rsh_saved_step *t, int rc,
		      const struct rsh_error *err)
{
	if (rc == 0)
		return 0;
	if (is_passing(-rc))
		t->state.hash = 0;
	return rc == -ENOMEM ? rc : step_explain(t, err);
}

/* Frameworks remove the files of a step in any order, so what is left of it may
 * look complete.  The number of its files is kept until a file is written.
 * `now` is the state of the files that the last look has found. */
static bool is_being_removed(const struct look *l, struct rsh_saved_step *t,
			     const struct rsh_files_state *now,
			     struct rsh_error *err)
{
	const struct rsh_saved_step *old = rsh_saved_steps_find(l->before, t);

	if (!old || now->n >= old->state.n ||
	    is_newer(&now->newest, &old->state.newest))
		return false;
	if (t->state.n < old->state.n)
		t->state.n = old->state.n;
	if (is_newer(&old->state.newest, &t->state.newest))
		t->state.newest = old->state.newest;
	if (now->unreadable)
		rsh_error_set(err, EACCES, "%s: a directory with files of "
			      "step %s cannot be read", l->o->path, t->name);
	else
		rsh_error_set(err, ENOENT, "%s: files were removed of step %s",
			      l->o->path, t->name);
	return true;
}

static int judge_entry(struct look *l, struct rsh_saved_step *t,
		       bool is_file)
{
	struct rsh_error err = RSH_ERROR_INIT;
	int rc;

	if (is_unfinished_name(t->name)) {
		rsh_error_set(&err, EBADMSG, "%s: its name says that it is "
			      "not finished", t->path);
		return step_explain(t, &err);
	}
	if (step_take_before(l, t, &rc))
		return rc;
	if (is_being_removed(l, t, &t->state, &err))
		return step_judge(t, -err.code, &err);
	rc = check_entry(l, t, is_file, &err);
	if (rc == 0 && entry_check_same(rsh_source_store(l->root), t, &err))
		rc = rsh_error_set(&err, EAGAIN, "%s: it is being written",
				   t->path);
	return step_judge(t, rc, &err);
}

static bool is_readable(const struct look *l, const char *name)
{
	cleanup_handle struct rsh_handle *h = NULL;
	char byte;

	return rsh_handle_open(rsh_source_store(l->root), name, &h) == 0 &&
	       rsh_handle_pread(h, &byte, 1, 0) >= 0;
}

static int by_hash(const void *a, const void *b)
{
	return rsh_compare_u64(*(const uint64_t *)a, *(const uint64_t *)b);
}

static int foreign_add(struct rsh_saved_steps *l, uint64_t hash)
{
	int rc = rsh_grow(&l->foreign, &l->cap_foreign, l->n_foreign + 1,
			  sizeof(*l->foreign));

	if (rc == 0)
		l->foreign[l->n_foreign++] = hash;
	return rc;
}

/* A file counts only if a format accepts it as SOURCE.  Others are not opened
 * again until they change. */
static int check_step_file(const struct look *l, const char *name,
			   const char *path, uint64_t hash, bool *is)
{
	const struct rsh_source_options *files = l->o->files;
	const struct rsh_saved_steps *before = l->before;
	bool known = before->n_foreign > 0 &&
		     bsearch(&hash, before->foreign, before->n_foreign,
			     sizeof(hash), by_hash);
	int bid;

	*is = !known && rsh_source_format_at(path, &files->store,
					     files->formats, &bid) &&
	      bid >= RSH_BID_MODEL;
	known = known || (!*is && is_readable(l, name));
	return known ? foreign_add(l->out, hash) : 0;
}

/* Returns the directory in a step that has the weights; NULL: there is none. */
static const char *find_below(const struct look *l, const char *name)
{
	const struct rsh_format *const *f = l->o->files->formats;
	const char *below = NULL;

	for (; f && *f && !below; f++) {
		cleanup_free char *path = NULL;
		struct rsh_stat st;

		if (!(*f)->below)
			continue;
		if (asprintf(&path, "%s/%s", name, (*f)->below) < 0)
			path = NULL;
		else if (rsh_store_look(rsh_source_store(l->root), path, &st) ==
				 0 && st.kind == RSH_IS_DIR)
			below = (*f)->below;
	}
	return below;
}

static int take_entry(struct look *l, const char *name,
		      const struct rsh_stat *st)
{
	struct rsh_step_name says = { .step = { .n = 0 } };
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
	if (asprintf(&path, "%s/%s%s%s", rsh_source_path(l->root), name,
		     below ? "/" : "", below ? below : "") < 0) {
		path = NULL;
		return -ENOMEM;
	}
	if (!copy)
		return -ENOMEM;
	like = (struct rsh_saved_step){
		.name = copy, .path = path, .step = says.step,
		.place = strlen(rsh_source_path(l->root)) + 1,
	};
	state_add(&alone, name, st);
	if (st->kind == RSH_IS_FILE && !rsh_saved_steps_find(l->before, &like))
		rc = check_step_file(l, name, path, alone.hash, &is);
	if (rc || !is)
		return rc;
	t = saved_steps_add(l->out, &like);
	if (!t)
		return -ENOMEM;
	if (below)
		rc = rsh_store_look(rsh_source_store(l->root),
				    t->path + t->place, &at);
	if (rc == 0)
		rc = state_of_entry(rsh_source_store(l->root),
				    t->path + t->place, &at, &t->state);
	return rc ? rc : judge_entry(l, t, st->kind == RSH_IS_FILE);
}

static int look_at_entries(struct look *l)
{
	struct rsh_store *store = rsh_source_store(l->root);
	cleanup_dir struct rsh_dir *dir = NULL;
	int rc = rsh_dir_open(store, "", &dir);
	const char *name;

	while (rc >= 0 && (rc = rsh_dir_next(dir, &name)) > 0) {
		struct rsh_stat st;

		/* A mount has a link with the second name. */
		if (*name == '.' || strcmp(name, "latest") == 0 ||
		    rsh_dir_look(dir, name, &st))
			continue;
		rc = take_entry(l, name, &st);
		/* The entry was removed in the meantime. */
		if (rc == -ENOENT)
			rc = 0;
	}
	return rc;
}

/* ---- steps that the format lists ---- */

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
		const struct rsh_stat st = { .kind = RSH_IS_FILE,
					     .attr.mtime = c->mtime };

		if (step_has_rank(t, c->rank, &at))
			state_add(&state, c->name, &st);
	}
	return state;
}

static int step_keep_ranks(const struct rsh_source *s,
			   const struct rsh_candidate *of,
			   struct rsh_saved_step *t)
{
	t->ranks = rsh_alloc_array(of->end - of->first, sizeof(*t->ranks));
	if (!t->ranks)
		return -ENOMEM;
	for (size_t i = of->first; i < of->end; i++)
		t->ranks[t->n_ranks++] = s->listing.files[i].rank;
	return 0;
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

static int check_candidate(struct look *l, struct rsh_source *s,
			   uint32_t i, struct rsh_saved_step *t,
			   struct rsh_names *names, struct rsh_error *err)
{
	const int rc = check_files(l, s, i, t, names, err);

	return rc > 0 ? step_keep_ranks(s, &s->candidates[i], t) : rc;
}

/* Keeps the files of a step of all ranks. */
static int step_keep_files(struct look *l, struct rsh_source *s,
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
static int judge_candidate(struct look *l, struct rsh_source *s,
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
	if (step_take_before(l, t, &rc)) {
		l->n_kept += t->files ? t->files->n : 0;
		return rc;
	}
	t->state = state_of_candidate(s, of, t);
	if (is_being_removed(l, t, &found, &err))
		return step_judge(t, -err.code, &err);
	rc = check_candidate(l, s, i, t, names, &err);
	rc = step_judge(t, rc, &err);
	return rc ? rc : step_keep_files(l, s, of, t);
}

static int take_candidate(struct look *l, struct rsh_source *s,
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
	t = saved_steps_add(l->out, &(struct rsh_saved_step){
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

/* Asks for each file of the step.  Those that other ranks have saved since then
 * belong to the next look. */
static int kept_check_same(const struct rsh_store *store,
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
			state_add(&state, name, &st);
		else if (rc != -ENOENT && rc != -ENOTDIR)
			return rsh_store_open_error(store, name, rc, err);
	}
	return rc || state.hash != t->state.hash ? -ESTALE : 0;
}

static int candidate_check_same(const struct rsh_save_dir_options *o,
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

int rsh_saved_step_check(const struct rsh_save_dir_options *o,
			 const struct rsh_saved_step *t, struct rsh_error *err)
{
	struct rsh_store *store;
	int rc;

	if (t->selected && !t->files)
		return candidate_check_same(o, t, err);
	rc = rsh_store_open(o->path, &o->files->store, &store, err);
	if (rc)
		return rc == -ENOENT ? -ESTALE : rc;
	rc = t->selected ? kept_check_same(store, t, err) :
			   entry_check_same(store, t, err);
	rsh_store_free(store);
	return rc;
}

static int look_at_candidates(struct look *l, struct rsh_error *err)
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

/* ---- one look ---- */

static bool format_lists_steps(const struct rsh_save_dir_options *o)
{
	const struct rsh_source_options *f = o->files;
	const struct rsh_format *format;
	int bid;

	if (f->rank_dir || f->file)
		return true;
	format = rsh_source_format_at(o->path, &f->store, f->formats, &bid);
	return format && bid >= RSH_BID_RANKS && !format->lone &&
	       !format->is_step;
}

static int look_copy(const struct rsh_saved_steps *from,
		     struct rsh_saved_steps *to, struct rsh_error *err)
{
	for (size_t i = 0; i < from->n; i++)
		if (!saved_steps_add(to, &from->v[i]))
			return rsh_error_nomem(err);
	for (size_t i = 0; i < from->n_foreign; i++)
		if (foreign_add(to, from->foreign[i]))
			return rsh_error_nomem(err);
	return 0;
}

static int look_anew(struct look *l, struct rsh_error *err)
{
	int rc;

	if (format_lists_steps(l->o)) {
		rc = look_at_candidates(l, err);
	} else {
		rc = look_at_entries(l);
		if (rc)
			rsh_store_open_error(rsh_source_store(l->root), "", rc,
					     err);
	}
	if (rc == 0 && l->out->n > 0)
		qsort(l->out->v, l->out->n, sizeof(*l->out->v), step_order);
	if (l->out->n_foreign > 0)
		qsort(l->out->foreign, l->out->n_foreign,
		      sizeof(*l->out->foreign), by_hash);
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
	struct look l = { .o = o, .before = before, .out = out };
	struct rsh_files_state state = { .hash = 0 };
	int rc = rsh_save_dir_open(o, &l.root, err);

	*out = (struct rsh_saved_steps){ .n = 0 };
	/* All steps were removed: object storage has no empty directories. */
	if (rc == -ENOENT && rsh_store_is_address(o->path))
		return 0;
	if (rc)
		return rc;
	rc = state_add_dir(rsh_source_store(l.root), "", DEPTH_MAX, &state);
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
