/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/candidates.c tries the candidates of the source until one can be
 * planned. */
#include "config.h"

#include "vfs_i.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/contents/contents.h"
#include "rsh/plan/conversion.h"
#include "rsh/plan/blueprint.h"
#include "rsh/plan/kinds.h"
#include "rsh/plan/writer.h"
#include "rsh/source/failures.h"
#include "rsh/source/format.h"
#include "rsh/source/inspect.h"
#include "rsh/util/arena.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

/* ---- what a model leaves out ---- */

struct states {
	const struct rsh_kinds *kinds;
	uint32_t n;
	uint64_t bytes;
	const char *example;
};

static int states_of_tensor(void *ctx, const struct rsh_listed_tensor *t)
{
	struct states *s = ctx;
	uint64_t bytes = rsh_dtype_size(t->dtype);

	if (rsh_kinds_of_text(s->kinds, t->name) == RSH_KIND_WEIGHT)
		return 0;
	for (uint32_t d = 0; d < t->n_dims; d++)
		bytes *= t->dims[d];
	s->bytes += bytes;
	if (s->n++ == 0)
		s->example = t->name;
	return 0;
}

/* The files of neighbouring ranks mostly share an index, so the result of the
 * last index is used again. */
static int states_of_ranks(const struct rsh_source_view *view, struct states *s)
{
	cleanup_free bool *seen =
		calloc((size_t)rsh_names_count(view->names) + 1, sizeof(*seen));
	const struct rsh_ckpt_index *before = NULL;
	uint64_t bytes = 0;

	if (!seen)
		return -ENOMEM;
	for (uint32_t rank = 0; rank < view->n_ranks; rank++) {
		const struct rsh_ckpt_index *ix = view->index[rank];

		if (!ix)
			continue;
		if (ix != before)
			bytes = 0;
		for (uint32_t i = 0; ix != before && i < ix->n_records; i++) {
			const struct rsh_record *r = &ix->records[i];
			const char *name = rsh_names_text(view->names, r->name);

			if (rsh_kinds_of(s->kinds, r->name, name) ==
			    RSH_KIND_WEIGHT)
				continue;
			bytes += r->content_bytes;
			if (!seen[r->name] && s->n++ == 0)
				s->example = name;
			seen[r->name] = true;
		}
		s->bytes += bytes;
		before = ix;
	}
	return 0;
}

/* Adds a note to the plan about the optimizer parameters of the source that are
 * left out.  Returns 0 or -ENOMEM. */
static int note_states(struct rsh_reshard *v, const struct rsh_kinds *kinds)
{
	cleanup_arena struct rsh_arena arena = { NULL, 0 };
	struct states s = { .kinds = kinds };
	const struct rsh_list_job job = {
		.source = v->source, .arena = &arena,
		.take = states_of_tensor, .ctx = &s,
	};
	struct rsh_source_view view;
	struct rsh_listed all;
	char size[32];
	int rc;

	rsh_source_view(v->source, v->names, &view);
	rc = rsh_format_lists(rsh_source_format(v->source)) ?
	     rsh_source_each(&job, &all, NULL) : states_of_ranks(&view, &s);
	if (rc || s.n == 0)
		return rc;
	if (s.bytes < 1000000)
		snprintf(size, sizeof(size), "%" PRIu64 " bytes", s.bytes);
	else
		snprintf(size, sizeof(size), "%.1f MB", (double)s.bytes / 1e6);
	return rsh_blueprint_note(v->plan, rsh_text_format(
		"%u tensor%s of an optimizer, %s in the source, "
		"%s left out, such as %s (%s %s)",
		s.n, s.n > 1 ? "s" : "", size, s.n > 1 ? "are" : "is",
		s.example, v->output->takes & RSH_TAKES_OPTIMIZER ?
		"--optimizer keep shows" : "--format dcp has",
		s.n > 1 ? "them" : "it"));
}

/* ---- values that are not tensors ---- */

/* Adds a note to the plan about the values that the output cannot show. */
static int values_note(struct rsh_reshard *v)
{
	const bool pickles = v->output->takes & RSH_TAKES_PICKLES;
	const struct rsh_values *x = &v->extra;
	const char *first = NULL;
	uint32_t left = 0;

	for (uint32_t i = 0; i < x->n; i++) {
		if (pickles ? x->values[i].pickle != NULL :
			      x->values[i].json != NULL)
			continue;
		if (left++ == 0)
			first = x->names[i];
	}
	if (left == 0)
		return 0;
	return rsh_blueprint_note(v->plan, rsh_text_format(
		"%u value%s no tensor%s not shown, such as %s%s", left,
		left > 1 ? "s that are" : " that is",
		left > 1 ? "s are" : " is", first,
		left == x->n ? "" : pickles ? ", and the others are items" :
		", and extra_state.json has the others"));
}

/* Adds what a Checkpoint 2.0 says beside its tensors, with the names of its
 * common.json.  A number that is 0 is not known. */
static int values_of_training(struct rsh_source *s,
			      const struct rsh_plan_options *opts,
			      struct rsh_values *v)
{
	static const char *const names[] = {
		"epoch_num", "global_step", "global_batch_size", "loss_scale",
	};
	struct rsh_training_state state = { 0 };
	struct rsh_candidate_step step;
	int rc = 0;

	rsh_source_candidate_step(s, rsh_source_chosen(s), &step);
	if (rsh_source_training_state(s, &state) || rsh_values_alloc(v, 4))
		return -ENOMEM;
	for (size_t i = 0; i < 4 && rc == 0; i++) {
		const uint64_t n[] = { state.epoch, step.step,
				       state.batch_size };

		if ((i < 3 ? n[i] == 0 || n[i] > INT64_MAX :
			     state.loss_scale <= 0) ||
		    !rsh_plan_wants(opts, names[i]))
			continue;
		v->names[v->n] = names[i];
		rc = i < 3 ? rsh_plain_make_number((int64_t)n[i],
						   &v->values[v->n++]) :
			     rsh_plain_make_real(state.loss_scale,
						 &v->values[v->n++]);
	}
	return rc;
}

/* The state that the plans of all candidates have in common. */
struct planning {
	struct rsh_reshard *v;
	const struct rsh_vfs_config *cfg;
	struct rsh_error *err;
	bool fatal; /* no other candidate may be tried */
	const struct rsh_name_map *renames;
	struct rsh_choice *choice;
	struct rsh_kinds *kinds; /* of a candidate's parameters; NULL: they are
				  * not asked for */
	struct rsh_names *asked; /* names that were looked up in the choice or
				  * in the renames */
};

/* This may be called for each slice of each parameter, so the level is info. */
static void report_lost(void *ctx, const char *sentence)
{
	const struct planning *p = ctx;

	rsh_log_info("%s: %s", p->cfg->source, sentence);
}

static void report_doubt(void *ctx, const char *sentence)
{
	const struct planning *p = ctx;

	rsh_log_warning("%s: %s", p->cfg->source, sentence);
}

static bool is_of_kinds(const struct planning *p, const char *name,
			bool counters)
{
	const enum rsh_kind kind = p->cfg->leave_states ?
		rsh_kinds_of_text(p->kinds, name) : RSH_KIND_WEIGHT;

	rsh_names_add(p->asked, name, strlen(name));
	return (kind == RSH_KIND_WEIGHT ||
		(counters && kind == RSH_KIND_COUNTER)) &&
	       (!p->choice || rsh_choice_wants(p->choice, name));
}

static bool is_wanted(void *ctx, const char *name)
{
	return is_of_kinds(ctx, name, false);
}

/* MindSpore's optimizers have counters as parameters.  A value of such a name,
 * as global_step, is the state of the job. */
static bool is_wanted_value(void *ctx, const char *name)
{
	return is_of_kinds(ctx, name, true);
}

/* Reads the wanted values that are not tensors into v->extra, if the output
 * shows such values.  Returns 0, or -errno with a sentence. */
static int take_values(struct rsh_reshard *v,
		       const struct rsh_plan_options *opts,
		       struct rsh_error *err)
{
	const struct rsh_format *f = rsh_source_format(v->source);
	struct rsh_plan_options of_values = *opts;
	int rc = 0;

	of_values.wanted = opts->wanted ? is_wanted_value : NULL;
	rsh_values_clear(&v->extra);
	if (!(v->output->takes & RSH_TAKES_VALUES))
		return 0;
	if (f->values)
		rc = f->values(v->source, &of_values, &v->extra, err);
	else if (f->layout == RSH_LAYOUT_OWN &&
		 v->output->takes & RSH_TAKES_PICKLES &&
		 values_of_training(v->source, &of_values, &v->extra))
		rc = rsh_error_nomem(err);
	return rc;
}

static const char *new_name(void *ctx, const char *name)
{
	const struct planning *p = ctx;

	rsh_names_add(p->asked, name, strlen(name));
	return rsh_name_map_get(p->renames, name);
}

/* Plans by the rules of MindSpore's converter, or else what the format
 * offers. */
static int plan_source(struct planning *p, const struct rsh_read_job *job,
		       struct rsh_error *err)
{
	const struct rsh_format *f = rsh_source_format(job->source);
	cleanup_arena struct rsh_arena arena = { NULL, 0 };
	struct rsh_read_job in_arena = *job;
	const struct rsh_plan_options opts =
		rsh_vfs_offer_options(job->source, job->opts);
	struct rsh_offers o;

	if (f->by_name && !p->v->output->plan)
		return rsh_convert(job->src, job->dst, job->view, job->opts,
				   &p->v->plan, err);
	in_arena.arena = &arena;
	return f->read(&in_arena, &o, err) ?:
	       rsh_vfs_write_plan(p->v, p->cfg, &o, &opts, err);
}

static int convert(struct planning *p, bool allow_missing)
{
	const struct rsh_vfs_config *cfg = p->cfg;
	struct rsh_reshard *v = p->v;
	struct rsh_plan_options opts = cfg->plan;
	struct rsh_source_view view;
	const struct rsh_read_job job = {
		.source = v->source, .view = &view, .src = v->src,
		.dst = v->dst, .opts = &opts,
	};
	cleanup_free void *form = NULL;
	int rc = 0;

	rsh_output_set(cfg->output, cfg->plan.part_bytes, &opts);
	opts.allow_missing = allow_missing;
	opts.wanted = p->choice || cfg->leave_states ? is_wanted : NULL;
	opts.rename = p->renames ? new_name : NULL;
	opts.report_lost = report_lost;
	opts.report_doubt = report_doubt;
	if (opts.cast != RSH_DTYPE_UNKNOWN)
		opts.quantised_by = rsh_vfs_quantised_by(v, cfg);
	opts.ctx = p;
	rsh_source_view(v->source, v->names, &view);
	rsh_kinds_free(p->kinds);
	p->kinds = NULL;
	if (cfg->leave_states || opts.cast != RSH_DTYPE_UNKNOWN) {
		p->kinds = rsh_kinds_new(v->names, view.index, view.n_ranks);
		if (!p->kinds)
			return rsh_error_nomem(p->err);
	}
	/* Without strategies no later step would report missing files. */
	if (rsh_source_format(v->source)->by_name &&
	    !rsh_any(i, view.n_ranks, view.index[i]))
		return rsh_error_set(p->err, ENOENT, "no rank has a valid "
				     "checkpoint file");
	if (v->output->take_headers) {
		if (v->output->take_headers(v->source,
					    rsh_reshard_is_as_saved(v, cfg),
					    &opts, &form))
			return rsh_error_nomem(p->err);
		opts.form = form;
	}
	/* A file may be read again for values: there is more memory for this
	 * before the plan is made.  Another form of the model has none. */
	if (!v->weights || !cfg->weights.table)
		rc = take_values(v, &opts, p->err);
	if (rc == 0 && v->weights)
		rc = rsh_vfs_plan_weights(v, cfg, &view, &opts, p->err);
	else if (rc == 0)
		rc = plan_source(p, &job, p->err);
	return rc ?: values_note(v) ? rsh_error_nomem(p->err) : 0;
}

/* Logs the notes about what is shown in one line.  Logs differences from the
 * converter at level info, or with --compat at level notice. */
static int log_notes(const struct planning *p)
{
	const struct rsh_plan *plan = p->v->plan;
	cleanup_free char *all = NULL;
	size_t size;
	FILE *to = open_memstream(&all, &size);
	const char *note;
	bool any = false;

	if (!to)
		return -ENOMEM;
	for (uint32_t i = 0; (note = rsh_plan_note(plan, i)); i++) {
		if (rsh_plan_note_is_difference(plan, i)) {
			rsh_log(p->cfg->plan.compat ? RSH_LOG_NOTICE :
				RSH_LOG_INFO, "%s: %s", p->cfg->source, note);
			continue;
		}
		fprintf(to, "%s%s", any ? "; " : "", note);
		any = true;
	}
	if (fclose(to) != 0)
		return -ENOMEM;
	if (any)
		rsh_log_notice("%s: %s", p->cfg->source, all);
	return 0;
}

/* A message about a plan begins with a file of SOURCE or is about all of
 * SOURCE.  In the second case the path of SOURCE is added.  The sentence also
 * names files that were left out: the missing data may be in one of them.
 * Nothing is known of files that could not be read, so then this is the whole
 * sentence. */
static int explain_plan(const struct planning *p, int rc)
{
	const struct rsh_error *unread = rsh_source_unread(p->v->source);
	const char *first;
	struct rsh_error plan;
	char more[64] = "";
	const uint32_t n = rsh_source_n_bad(p->v->source, &first);

	rsh_error_place(p->err, p->cfg->source);
	plan = *p->err;
	if (n > 1)
		snprintf(more, sizeof(more), " (and %u other files cannot be "
			 "used)", n - 1);
	if (unread)
		return rsh_error_set(p->err, unread->code, "%s%s",
				     unread->text, more);
	if (n > 0)
		rsh_error_set(p->err, plan.code, "%s%s; %s", first, more,
			      plan.text);
	return rc;
}

static int candidates_plan(struct planning *p, bool allow_missing)
{
	const struct rsh_vfs_config *cfg = p->cfg;
	const char *note;
	int rc = convert(p, allow_missing);

	if (rc)
		return explain_plan(p, rc);
	rc = rsh_vfs_check_whole(p->v, cfg, p->choice, p->err);
	if (rc)
		return rc;
	if (cfg->leave_states && note_states(p->v, p->kinds))
		return rsh_error_nomem(p->err);
	note = rsh_kinds_doubt(p->kinds);
	if (note)
		rsh_log_warning("%s: %s", cfg->source, note);
	note = rsh_plan_lost(p->v->plan);
	if (note)
		rsh_log_warning("%s: slices are lost: %s", cfg->source, note);
	return log_notes(p) ? rsh_error_nomem(p->err) : 0;
}

/* Checks the parameters that some file copies from one source file.  It leaves
 * out files in which no record is resharded, since such files equal a source
 * file. */
static int check_copied(struct rsh_reshard *v, struct rsh_error *err)
{
	cleanup_free bool *copied =
		calloc((size_t)rsh_names_count(v->names) + 1, sizeof(*copied));
	const struct rsh_plan *plan = v->plan;

	if (!copied)
		return rsh_error_nomem(err);
	for (uint32_t f = 0; f < rsh_plan_n_files(plan); f++) {
		const uint32_t n = rsh_plan_n_records(plan, f);
		struct rsh_virtual_record r = { .resharded = false };

		if (f > 0 && rsh_plan_same_records(plan, f - 1, f))
			continue;
		for (uint32_t i = 0; i < n && !r.resharded; i++)
			rsh_plan_record(plan, f, i, &r);
		for (uint32_t i = 0; i < n && r.resharded; i++) {
			struct rsh_virtual_record one;

			rsh_plan_record(plan, f, i, &one);
			copied[one.name] |= !one.resharded;
		}
	}
	return rsh_contents_check_unlisted(v->source, v->src, v->names, copied,
					   err);
}

/* A candidate that cannot be read now may be whole, so no older one is taken
 * in its place; nor is a rank left out that nothing can replace. */
static int refuse_unread(struct planning *p, uint32_t i, int rc,
			 bool allow_missing)
{
	const struct rsh_reshard *v = p->v;
	const struct rsh_error *unread = rsh_source_unread(v->source);
	char which[256];

	if (!unread || (rc == 0 && (v->src || allow_missing)) ||
	    (rc && rsh_source_n_candidates(v->source) == 1))
		return rc;
	p->fatal = true;
	rsh_source_candidate_text(v->source, i, which, sizeof(which));
	return rsh_failures_unread(rsh_source_path(v->source), which, unread,
				   p->err);
}

static bool has_names_of(const struct rsh_ckpt_index *a,
			 const struct rsh_ckpt_index *b)
{
	bool same = a == b || a->n_records == b->n_records;

	for (uint32_t i = 0; same && a != b && i < a->n_records; i++)
		same = a->records[a->by_name[i]].name ==
		       b->records[b->by_name[i]].name;
	return same;
}

/* Without strategies the file of a rank is the rank's own file.  The contents
 * of others matter only if something is taken from them: a whole file, or what
 * a file lacks. */
static bool all_own_files(const struct planning *p)
{
	const struct rsh_plan_options *o = &p->cfg->plan;
	const struct rsh_reshard *v = p->v;
	const struct rsh_ckpt_index *before = NULL;
	struct rsh_source_view view;
	bool own = !v->src && !v->dst && o->n_shown_ranks > 0;

	rsh_source_view(v->source, v->names, &view);
	own &= o->n_shown_ranks <= view.n_ranks;
	for (uint32_t r = 0; own && o->replicas && r < view.n_ranks; r++) {
		const struct rsh_ckpt_index *ix = view.index[r];

		own = ix ? !before || has_names_of(ix, before) :
			   r >= o->n_shown_ranks;
		before = ix ? ix : before;
	}
	return own;
}

/* Opens, plans and checks a candidate.  Sets p->fatal. */
static int try_candidate(struct planning *p, uint32_t i, bool allow_missing)
{
	struct rsh_reshard *v = p->v;
	const struct rsh_format *f = rsh_source_format(v->source);
	const bool described = f->layout == RSH_LAYOUT_OWN;
	int rc = rsh_source_choose(v->source, i, p->err);
	const enum rsh_grid_rule rule = p->cfg->plan.compat ?
		RSH_GRID_CONVERTER : RSH_GRID_RUNTIME;

	if (rc == 0 && v->src && !described)
		rc = rsh_contents_check_ranks(v->source, v->src, v->dst,
					      p->err);
	rc = rc ?: rsh_source_index(v->source, v->names, p->err);
	/* It may contain its own layout. */
	if (described) {
		rsh_strategy_free(v->src);
		v->src = NULL;
		rc = rc ?: rsh_source_strategy(v->source, allow_missing,
					       v->names, &v->src, p->err);
	}
	/* If each candidate contains its own layout, or is a model, only these
	 * errors are certain to occur with the next candidate as well; EINVAL
	 * of a model is about the options. */
	p->fatal = (!described &&
		    (!f->step_dirs || rc == -EINVAL)) ||
		   rc == -ENOMEM || rc == -EXDEV;
	if (rc)
		return refuse_unread(p, i, rc, allow_missing);
	rc = p->cfg->contents_later ? 0 :
	     rsh_source_check_counters(v->source, v->names, p->err);
	p->fatal = rc == -ENOMEM;
	if (rc)
		return rc;
	rc = candidates_plan(p, allow_missing);
	p->fatal = rc == -ENOMEM;
	rc = refuse_unread(p, i, rc, allow_missing);
	if (rc)
		return rc;
	/* If the strategy does not fit the contents, it does not fit those of
	 * an older step either. */
	p->fatal = true;
	if (p->cfg->contents_later || !f->by_name || all_own_files(p) ||
	    (v->weights && !rsh_vfs_weights_are_sharded(v)))
		return 0;
	rc = rsh_contents_check(v->source, v->src, v->dst, rule, v->names,
				p->err);
	if (rc == 0 && v->src && !v->weights)
		rc = check_copied(v, p->err);
	return rc ?: rsh_contents_check_older(v->source, &p->cfg->files, v->src,
					      rule, v->names, p->err);
}

/* ---- candidates that cannot be used ---- */

static int try_several(struct planning *p, uint32_t n, struct rsh_failures *f)
{
	const struct rsh_reshard *v = p->v;
	const struct rsh_plan_options *o = &p->cfg->plan;
	uint32_t chosen, first, wanted;
	char taken[256], who[96];
	int rc = -ENOENT;

	for (uint32_t i = 0; i < n && rc; i++) {
		cleanup_free uint32_t *ranks = NULL;
		struct rsh_source_view view;
		size_t n_ranks, valid = 0;

		rc = try_candidate(p, i, false);
		if (rc && p->fatal)
			return rc;
		if (rc == 0)
			break;
		/* How many of the ranks that should have a file have a valid
		 * one? */
		rsh_source_view(v->source, v->names, &view);
		for (uint32_t rank = 0; rank < view.n_ranks; rank++)
			valid += view.index[rank] != NULL;
		rsh_conversion_source_ranks(v->src, v->dst, v->names,
					    o->replicas && !o->compat, &first,
					    &wanted);
		if (wanted == UINT32_MAX) {
			if (rsh_source_ranks(v->source, &ranks, &n_ranks))
				return rsh_error_nomem(p->err);
			wanted = (uint32_t)n_ranks;
		}
		snprintf(who, sizeof(who), "%zu of %u ranks %s a valid file of "
			 "it", valid, wanted, valid == 1 ? "has" : "have");
		rsh_source_candidate_text(v->source, i, taken, sizeof(taken));
		if (rsh_failures_add(f, taken, who, p->err))
			return rsh_error_nomem(p->err);
	}
	for (uint32_t i = 0; i < n && rc && !p->fatal && o->allow_missing; i++)
		rc = try_candidate(p, i, true);
	if (rc)
		return rsh_failures_none(f, rsh_source_n_candidates(v->source),
					 -rc, "no checkpoint that can be "
					 "mounted", p->err);
	chosen = rsh_source_chosen(v->source);
	rsh_source_candidate_text(v->source, chosen, taken, sizeof(taken));
	rsh_failures_log(f, chosen, taken);
	return 0;
}

static int try_all(struct planning *p)
{
	uint32_t n = rsh_source_n_candidates(p->v->source);
	struct rsh_failures f;
	int rc;

	if (n == 1)
		return try_candidate(p, 0, p->cfg->plan.allow_missing);
	if (n - 1 > p->cfg->fallbacks)
		n = p->cfg->fallbacks + 1;
	if (rsh_failures_init(&f, p->cfg->source, n))
		return rsh_error_nomem(p->err);
	rc = try_several(p, n, &f);
	rsh_failures_clear(&f);
	return rc;
}

int rsh_vfs_take_candidate(struct rsh_reshard *v,
			   const struct rsh_vfs_config *cfg,
			   struct rsh_error *err)
{
	struct planning p = { .v = v, .cfg = cfg, .err = err };
	int rc = 0;

	if (cfg->rename)
		rc = rsh_name_map_load(cfg->rename, &v->renames, err);
	p.renames = v->renames;
	if (rc == 0)
		rc = rsh_choice_new(&cfg->choice, &p.choice, err);
	if (rc)
		return rc;
	p.asked = rsh_names_new();
	rc = p.asked ? try_all(&p) : rsh_error_nomem(err);
	if (p.asked)
		rsh_vfs_tell_unused(cfg, p.renames, p.asked);
	rsh_names_free(p.asked);
	rsh_kinds_free(p.kinds);
	rsh_choice_free(p.choice);
	if (rc == 0)
		rsh_source_log_choice(v->source);
	return rc;
}
