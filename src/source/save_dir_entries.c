/* SPDX-License-Identifier: Apache-2.0 */
/* source/save_dir_entries.c lists steps that are entries of the directory. */
#include "config.h"

#include "save_dir_i.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/files.h"
#include "rsh/util/mem.h"
#include "source_i.h"

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
	/* A directory has one index cache, which keeps the indexes of a few
	 * files that are steps, and is written again for each of them. */
	if (is_file)
		files.index_cache = NULL;
	rc = rsh_source_open(t->path, l->o->first_rank, l->o->n_ranks, &files,
			     &s, err);
	if (rc)
		return rc;
	names = rsh_names_new();
	rc = names ? rsh_save_look_check(l, s, 0, t, names, err) :
		     rsh_error_nomem(err);
	rsh_source_free(s);
	rsh_names_free(names);
	return rc > 0 ? 0 : rc;
}

int rsh_save_entry_check_same(const struct rsh_store *store,
			      const struct rsh_saved_step *t,
			      struct rsh_error *err)
{
	const char *name = t->path + t->place;
	struct rsh_files_state state;
	struct rsh_stat st;
	int rc = rsh_store_look(store, name, &st);

	if (rc == 0)
		rc = rsh_files_state_of(store, name, &st, &state);
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
		return rsh_save_look_explain(t, &err);
	}
	if (rsh_save_look_take_before(l, t, &rc))
		return rc;
	if (rsh_save_look_is_removing(l, t, &t->state, &err))
		return rsh_save_look_judge(t, -err.code, &err);
	rc = check_entry(l, t, is_file, &err);
	if (rc == 0 && rsh_save_entry_check_same(rsh_source_store(l->root), t,
						 &err))
		rc = rsh_error_set(&err, EAGAIN, "%s: it is being written",
				   t->path);
	return rsh_save_look_judge(t, rc, &err);
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
	int bid;

	*is = !known && rsh_source_format_at(path, &files->store,
					     files->formats, &bid) &&
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
		if (asprintf(&path, "%s/%s", name, (*f)->below) < 0)
			path = NULL;
		else if (rsh_store_look(rsh_source_store(l->root), path, &st) ==
				 0 && st.kind == RSH_IS_DIR)
			below = (*f)->below;
	}
	return below;
}

static int take_entry(struct rsh_save_look *l, const char *name,
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
	rsh_files_state_add(&alone, name, st);
	if (st->kind == RSH_IS_FILE && !rsh_saved_steps_find(l->before, &like))
		rc = check_step_file(l, name, path, alone.hash, &is);
	if (rc || !is)
		return rc;
	t = rsh_saved_steps_add(l->out, &like);
	if (!t)
		return -ENOMEM;
	if (below)
		rc = rsh_store_look(rsh_source_store(l->root),
				    t->path + t->place, &at);
	if (rc == 0)
		rc = rsh_files_state_of(rsh_source_store(l->root),
				    t->path + t->place, &at, &t->state);
	return rc ? rc : judge_entry(l, t, st->kind == RSH_IS_FILE);
}

int rsh_save_look_at_entries(struct rsh_save_look *l)
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
