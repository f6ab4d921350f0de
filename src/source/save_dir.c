/* SPDX-License-Identifier: Apache-2.0 */
/* source/save_dir.c looks at a directory into which a job saves. */
#include "config.h"

#include "save_dir_i.h"

#include <errno.h>

#include "source_i.h"

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
		rc = rsh_save_look_at_ranks(l, err);
	} else {
		rc = rsh_save_look_at_entries(l);
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
		return rsh_save_ranks_check_same(o, t, err);
	rc = rsh_store_open(o->path, &o->files->store, &store, err);
	if (rc)
		return rc == -ENOENT ? -ESTALE : rc;
	rc = t->selected ? rsh_save_files_check_same(store, t, err) :
			   rsh_save_entry_check_same(store, t, err);
	rsh_store_free(store);
	return rc;
}
