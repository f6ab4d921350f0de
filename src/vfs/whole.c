/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/whole.c looks at a plan for what it lacks: weights that nothing else asks
 * for, so that they would be left out without a word. */
#include "config.h"

#include "vfs_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/plan/param_kind.h"
#include "rsh/source/format.h"
#include "rsh/source/inspect.h"
#include "rsh/util/files.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/wire/json_edit.h"

/* ---- files without weights ---- */

/* A rank's file without a record is empty, and is no checkpoint. */
static void warn_empty(const struct rsh_reshard *v,
		       const struct rsh_vfs_config *cfg)
{
	const struct rsh_plan *plan = v->plan;
	const uint32_t n = rsh_plan_n_files(plan);
	uint32_t empty = 0;

	for (uint32_t i = 0; i < n; i++)
		empty += !rsh_plan_is_lost(plan, i) &&
			 rsh_plan_n_records(plan, i) == 0;
	if (empty > 0 && !cfg->plan.remove_redundancy)
		rsh_log_warning("%s: %u of %u files have no parameter, since "
				"--only and --drop leave none for them",
				cfg->source, empty, n);
}

/* A model has fewer weights of the shape [0] than so many, or at most one of so
 * many of its weights is such. */
#define PLACEHOLDERS 8
#define PLACEHOLDERS_OF 4

/* Refuses a model of which many weights have the shape [0]. */
static int check_placeholders(const struct rsh_reshard *v,
			      const struct rsh_vfs_config *cfg,
			      struct rsh_error *err)
{
	const struct rsh_plan *plan = v->plan;
	const char *first = NULL, *name;
	uint32_t n = 0, empty = 0;

	for (uint32_t f = 0; f < rsh_plan_n_files(plan); f++) {
		if (f > 0 && rsh_plan_same_records(plan, f - 1, f))
			continue;
		for (uint32_t i = 0; i < rsh_plan_n_records(plan, f); i++) {
			struct rsh_virtual_record r;

			rsh_plan_record(plan, f, i, &r);
			name = rsh_names_text(v->names, r.name);
			if (!rsh_has_suffix(name, ".weight"))
				continue;
			n++;
			if (r.shape.n_dims != 1 || r.shape.dims[0] > 0)
				continue;
			empty++;
			first = first ? first : name;
		}
	}
	if (empty < PLACEHOLDERS || empty < n / PLACEHOLDERS_OF)
		return 0;
	return rsh_error_set(err, EBADMSG, "%s: %u of %u weights have no "
			     "elements, such as %s: DeepSpeed's ZeRO 3 leaves "
			     "such placeholders in the model of a process, and "
			     "the weights in its checkpoint", cfg->source,
			     empty, n, first);
}

/* ---- weights that were not saved ---- */

/* Marks the names that some file has. */
static bool *names_saved(const struct rsh_source_view *view, uint32_t n_names)
{
	bool *saved = calloc((size_t)n_names + 1, sizeof(*saved));
	const struct rsh_ckpt_index *last = NULL;

	for (uint32_t r = 0; saved && r < view->n_ranks; r++) {
		const struct rsh_ckpt_index *ix = view->index[r];

		for (uint32_t i = 0; ix && ix != last && i < ix->n_records; i++)
			saved[ix->records[i].name] = true;
		last = ix ? ix : last;
	}
	return saved;
}

/* Returns whether a rank of a stage that has the parameter has a file. */
static bool has_stage_of(const struct rsh_source_view *view,
			 const struct rsh_strategy *s,
			 const struct rsh_strategy_param *param)
{
	for (uint32_t i = 0; i < param->n_stages; i++) {
		const uint64_t first = (uint64_t)param->stages[i].stage *
			s->stage_ranks;

		for (uint64_t r = first; r < first + s->stage_ranks &&
		     r < view->n_ranks; r++)
			if (view->index[r])
				return true;
	}
	return false;
}

/* Warns of weights that the strategies have and no file.  A job may have saved
 * an adapter alone; its states of the optimizer are often not saved. */
static void warn_unsaved(const struct rsh_reshard *v,
			 const struct rsh_vfs_config *cfg,
			 const struct rsh_choice *choice,
			 const struct rsh_source_view *view, const bool *saved)
{
	const char *first = NULL;
	uint32_t n = 0;

	for (uint32_t i = 0; i < v->src->n_params; i++) {
		const struct rsh_strategy_param *param = &v->src->params[i];
		const char *name = rsh_names_text(v->names, param->name);

		if (saved[param->name] || rsh_kind_of(name) != RSH_KIND_WEIGHT ||
		    (v->dst && !rsh_strategy_find(v->dst, param->name)) ||
		    (choice && !rsh_choice_wants(choice, name)) ||
		    !has_stage_of(view, v->src, param))
			continue;
		first = first ? first : name;
		n++;
	}
	if (n > 0)
		rsh_log_warning("%s: %u parameters of the strategy were not "
				"saved, such as %s: no file has them",
				cfg->source, n, first);
}

/* ---- weights that have one name in the file, and two in the model ---- */

/* Notes of save_model() of safetensors have the name that is left out, and the
 * one that is there. */
struct notes {
	struct rsh_names *names;
	const bool *saved; /* [name] */
	const char *path;  /* of SOURCE */
	uint32_t n;
};

static bool notes_has(const struct notes *n, const char *name)
{
	const uint32_t i = rsh_names_find(n->names, name, strlen(name));

	return i != RSH_NAME_NONE && n->saved[i];
}

/* Returns 0 or -ENOMEM. */
static int notes_warn(struct notes *n, const char *metadata)
{
	struct rsh_error err = RSH_ERROR_INIT;
	const struct rsh_json_member *m;
	struct rsh_json_edit *all;
	const int rc = rsh_json_edit_open(metadata, strlen(metadata), n->path,
					  &all, &err);

	if (rc)
		return rc == -ENOMEM ? rc : 0;
	for (uint32_t i = 0; (m = rsh_json_edit_at(all, i)); i++)
		if (m->kind == RSH_JSON_STRING && !notes_has(n, m->key) &&
		    notes_has(n, m->string) && n->n++ == 0)
			rsh_log_warning("%s: by its header %s is also %s, and "
					"is shown under the first name alone",
					n->path, m->string, m->key);
	rsh_json_edit_free(all);
	return 0;
}

static int warn_noted(const struct rsh_reshard *v,
		      const struct rsh_vfs_config *cfg,
		      const struct rsh_source_view *view, const bool *saved)
{
	const struct rsh_ckpt_index *last = NULL;
	struct notes n = { v->names, saved, cfg->source, 0 };
	int rc = 0;

	for (uint32_t r = 0; r < view->n_ranks && rc == 0; r++) {
		const struct rsh_ckpt_index *ix = view->index[r];

		if (ix && ix != last && ix->metadata)
			rc = notes_warn(&n, ix->metadata);
		last = ix ? ix : last;
	}
	return rc;
}

/* ---- all ---- */

int rsh_vfs_check_whole(const struct rsh_reshard *v,
			const struct rsh_vfs_config *cfg,
			const struct rsh_choice *choice, struct rsh_error *err)
{
	const struct rsh_format *f = rsh_source_format(v->source);
	cleanup_free bool *saved = NULL;
	struct rsh_source_view view;

	rsh_source_view(v->source, v->names, &view);
	saved = names_saved(&view, rsh_names_count(v->names));
	if (!saved)
		return rsh_error_nomem(err);
	if (choice)
		warn_empty(v, cfg);
	if (v->src && f->by_name)
		warn_unsaved(v, cfg, choice, &view, saved);
	if (!v->output->take_headers && warn_noted(v, cfg, &view, saved))
		return rsh_error_nomem(err);
	return f->shown == RSH_SHOWN_RANKS ? 0 :
	       check_placeholders(v, cfg, err);
}
