/* SPDX-License-Identifier: Apache-2.0 */
/* formats/checkpoint2/reconcile.c compares the metadata.json of a Checkpoint
 * 2.0 step with the step's files, and makes a strategy of what both say.
 *
 * If they disagree, the files are used.  A parameter that is described but in
 * no file is not in the checkpoint: mindformers describes accu_grads, which it
 * does not save.  A parameter that is split in the description may have been
 * gathered before it was saved. A missing file alone is not an error: other
 * files may have the same slices. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "steps_i.h"
#include "rsh/plan/param_kind.h"
#include "rsh/strategy/checkpoint2.h"
#include "rsh/util/arena.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"

#define NO_PARAM UINT32_MAX

/* These files have a parameter in slices, and whole; NULL: none does. */
struct param_found {
	const char *slice, *whole;
};

struct comparing {
	const struct rsh_source *source;
	struct rsh_described *d;
	const struct rsh_names *names;
	struct rsh_arena arena; /* of the arrays */
	uint32_t *param_of; /* [name]: number of the parameter, or NO_PARAM */
	bool *unlisted;     /* [name]: counted already */
	/* [rank]: a lost file of the rank; NULL: none */
	struct param_found *found;
	const char **lost; /* [rank]: a file that it lost; NULL: none */
	struct rsh_ckpt2_param *params; /* as they are in the files */
	uint32_t n_params;
};

static int comparing_start(struct comparing *x, struct rsh_names *names)
{
	const struct rsh_ckpt2 *m = x->d->metadata;
	const uint32_t n_names = rsh_names_count(names);

	x->names = names;
	x->param_of = rsh_arena_array(&x->arena, uint32_t, n_names);
	x->unlisted = rsh_arena_array(&x->arena, bool, n_names);
	x->found = rsh_arena_array(&x->arena, struct param_found, m->n_params);
	x->lost = rsh_arena_array(&x->arena, const char *, m->n_ranks);
	x->params = rsh_arena_array(&x->arena, struct rsh_ckpt2_param,
				    m->n_params);
	if (x->arena.failed)
		return -ENOMEM;
	for (uint32_t i = 0; i < n_names; i++)
		x->param_of[i] = NO_PARAM;
	for (uint32_t i = 0; i < m->n_params; i++) {
		const char *name = m->params[i].name;
		const uint32_t id = rsh_names_find(names, name, strlen(name));

		if (id != RSH_NAME_NONE)
			x->param_of[id] = i;
	}
	x->d->n_nowhere = x->d->n_unlisted = 0;
	return 0;
}

/* Returns whether the record has the parameter's shape, split by its layout or
 * whole. */
static bool held_shape_is(const struct rsh_ckpt2_param *p,
			  const struct rsh_ckpt_index *ix,
			  const struct rsh_record *r, bool cut)
{
	const struct rsh_strategy_item *it = cut ? p->layout : NULL;
	const int64_t *dims = rsh_record_dims(ix, r);
	bool is = r->n_dims == p->n_dims;

	for (uint32_t d = 0; d < p->n_dims && is; d++) {
		const uint32_t n = it && d < it->n_map ? it->map[d].n : 0;
		int64_t slices = 1;

		for (uint32_t i = 0; i < n; i++)
			slices *= it->mesh[it->n_mesh - 1 -
					   (uint32_t)it->map[d].axes[i]];
		is = dims[d] == p->dims[d] / slices;
	}
	return is;
}

static int held_compare_record(struct comparing *x, const char *path,
			       const struct rsh_ckpt_index *ix,
			       const struct rsh_record *r,
			       struct rsh_error *err)
{
	char here[256], whole[256], layout[160];
	const struct rsh_ckpt2_param *p;
	struct param_found *found;

	if (x->param_of[r->name] == NO_PARAM) {
		if (!x->unlisted[r->name] && x->d->n_unlisted++ == 0)
			x->d->unlisted = rsh_names_text(x->names, r->name);
		x->unlisted[r->name] = true;
		return 0;
	}
	p = &x->d->metadata->params[x->param_of[r->name]];
	found = &x->found[x->param_of[r->name]];
	if (held_shape_is(p, ix, r, true))
		found->slice = path;
	else if (held_shape_is(p, ix, r, false))
		found->whole = path;
	else /* the dimensions are not negative */
		return rsh_error_set(err, EINVAL, "%s: parameter %s has shape "
			"%s; by metadata.json it is %s%s%s", path, p->name,
			rsh_dims_text((const uint64_t *)rsh_record_dims(ix, r),
				      r->n_dims, here, sizeof(here)),
			rsh_dims_text((const uint64_t *)p->dims, p->n_dims,
				      whole, sizeof(whole)),
			p->layout ? ", cut by " : "",
			p->layout ? rsh_item_text(p->layout, layout,
						  sizeof(layout)) : "");
	if (!found->slice || !found->whole)
		return 0;
	return rsh_error_set(err, EINVAL, "%s: parameter %s is not cut there, "
			     "but a slice in %s", found->whole, p->name,
			     found->slice);
}

/* Files with equal indexes are compared only once. */
static int held_compare_files(struct comparing *x, struct rsh_error *err)
{
	const struct rsh_source *s = x->source;
	const uint32_t n = rsh_source_n_files(s);
	cleanup_free const struct rsh_ckpt_index **seen =
		rsh_alloc_array((size_t)n + 1, sizeof(*seen));
	uint32_t n_seen = 0;
	int rc = seen ? 0 : rsh_error_nomem(err);

	for (uint32_t i = 0; i < n && rc == 0; i++) {
		const struct rsh_ckpt_index *ix = rsh_source_file_index(s, i);
		uint32_t k = n_seen;

		while (k > 0 && seen[k - 1] != ix)
			k--;
		if (!ix || k > 0)
			continue;
		seen[n_seen++] = ix;
		for (uint32_t r = 0; r < ix->n_records && rc == 0; r++)
			rc = held_compare_record(
				x, rsh_store_path(rsh_source_store(s), i), ix,
				&ix->records[r], err);
	}
	return rc;
}

/* ---- parameters that no file has ---- */

/* Finds one file of each rank that is missing or was left out. */
static void held_find_lost(struct comparing *x)
{
	const struct rsh_source *s = x->source;
	struct rsh_ckpt2_name parts;

	for (uint32_t i = 0; i < x->d->facts.n_absent; i++) {
		const struct rsh_absent_file *f = &x->d->absent[i];

		/* If there are no optimizer files at all, the state was removed
		 * on purpose. */
		if (!x->d->any_opt && rsh_ckpt2_name_parse(f->name, &parts) &&
		    parts.opt)
			continue;
		if (!x->lost[f->rank])
			x->lost[f->rank] = f->name;
	}
	for (uint32_t i = 0; i < rsh_source_n_files(s); i++) {
		struct rsh_source_file_info f;

		rsh_source_file_info(s, i, &f);
		if (!f.valid && !x->lost[f.rank])
			x->lost[f.rank] = f.path;
	}
}

/* A parameter that may have been in a lost file is lost.  Otherwise it was
 * never saved. */
static int held_judge_nowhere(const struct comparing *x,
			      const struct rsh_ckpt2_param *p,
			      bool allow_missing, struct rsh_error *err)
{
	static const char never_saved[] = "accu_grads.";
	const char *file = NULL;

	if (p->n_stored == 0 ||
	    strncmp(p->name, never_saved, strlen(never_saved)) == 0)
		return 0;
	for (uint32_t i = 0; i < p->ranks->n && !file; i++)
		file = x->lost[p->ranks->ranks[i]];
	if (!file)
		return 0;
	rsh_error_set(err, ENOENT, "%s: parameter %s is in no file that is "
		      "there, and %s, which may have it, is missing or damaged",
		      rsh_source_path(x->source), p->name, file);
	if (!allow_missing)
		return -ENOENT;
	rsh_log_warning("%s; the parameter is left out", err->text);
	*err = (struct rsh_error)RSH_ERROR_INIT;
	return 0;
}

/* Makes the parameters as they are in the files. */
static int comparing_finish(struct comparing *x, bool allow_missing,
			    struct rsh_error *err)
{
	const struct rsh_ckpt2 *m = x->d->metadata;
	const char *weight = NULL;
	uint32_t n_weights = 0;

	for (uint32_t i = 0; i < m->n_params; i++) {
		const struct param_found *found = &x->found[i];
		struct rsh_ckpt2_param *p = &x->params[x->n_params];

		*p = m->params[i];
		if (found->whole) {
			p->layout = NULL;
			p->n_slices = 1;
		}
		if (found->whole || found->slice) {
			x->n_params++;
			continue;
		}
		if (held_judge_nowhere(x, p, allow_missing, err))
			return err->code ? -err->code : -ENOENT;
		if (x->d->n_nowhere++ == 0)
			x->d->nowhere = m->params[i].name;
		if (p->n_stored > 0 && rsh_kind_of(p->name) ==
				       RSH_KIND_WEIGHT && n_weights++ == 0)
			weight = p->name;
	}
	/* Jobs describe states of the optimizer that they do not save. */
	if (n_weights)
		rsh_log_warning("%s: %u weight%s that %s describes %s in no "
				"file and left out, such as %s: a file may be "
				"that of another rank or of another save",
				rsh_source_path(x->source), n_weights,
				n_weights > 1 ? "s" : "", x->d->path,
				n_weights > 1 ? "are" : "is", weight);
	return 0;
}

int rsh_checkpoint2_note(struct rsh_described *d)
{
	const struct rsh_ckpt2 *m = d->metadata;
	const uint32_t n = d->facts.n_absent;
	char *text = NULL;
	size_t size;
	FILE *to = open_memstream(&text, &size);

	if (!to)
		return -ENOMEM;
	if (n > 0)
		fprintf(to, "; %u of the %u files that it names are not there, "
			"such as %s", n, m->n_files, d->absent[n - 1].name);
	if (d->n_nowhere > 0)
		fprintf(to, "; %u of the %u parameters that it describes are "
			"in no file and left out, such as %s", d->n_nowhere,
			m->n_params, d->nowhere);
	if (d->n_unlisted > 0)
		fprintf(to, "; %u parameters in the files are not described "
			"and count as unlisted, such as %s", d->n_unlisted,
			d->unlisted);
	if (fclose(to)) {
		free(text);
		return -ENOMEM;
	}
	free(d->notes);
	d->facts.notes = d->notes = text;
	return 0;
}

int rsh_checkpoint2_strategy(const struct rsh_list_job *job,
			     struct rsh_strategy **out, struct rsh_error *err)
{
	struct rsh_described *d = rsh_source_state(job->source);
	struct comparing x = { .source = job->source, .d = d };
	struct rsh_names *names = job->view->names;
	struct rsh_ckpt2 held;
	int rc;

	if (!d)
		return 0;
	rc = comparing_start(&x, names) ? rsh_error_nomem(err) :
					  held_compare_files(&x, err);
	if (rc == 0) {
		held_find_lost(&x);
		rc = comparing_finish(&x, job->allow_missing, err);
	}
	if (rc == 0 && x.n_params == 0)
		rc = rsh_error_set(err, ENOENT, "%s: nothing that it describes "
				   "is in a file", d->path);
	if (rsh_checkpoint2_note(d))
		rc = rsh_error_nomem(err);
	held = *d->metadata;
	held.n_params = x.n_params;
	held.params = x.params;
	if (rc == 0)
		rc = rsh_strategy_of_checkpoint2(&held, d->path,
						 names, out, err);
	rsh_arena_clear(&x.arena);
	return rc;
}
