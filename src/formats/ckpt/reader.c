/* SPDX-License-Identifier: Apache-2.0 */
/* formats/ckpt/reader.c makes a catalogue of rank files and offers each of
 * their tensors whole.
 *
 * A tensor in the strategy is split as the strategy says; slices of all stages
 * with the same layout are used. All other tensors are whole in each file. */
#include "config.h"

#include "rsh/formats/ranks.h"

#include <errno.h>
#include <stdlib.h>

#include "rsh/plan/slices.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"

struct ranks_reader {
	const struct rsh_ranks_options *opts;
	struct rsh_arena *arena;
	struct rsh_job_files files; /* as in the strategy */
	struct rsh_job_files all;   /* the same files as one stage */
	bool *seen;                 /* [name] */
	struct rsh_offer *offers;
	uint32_t n;
	uint32_t n_strings, n_lost;
	uint32_t string;            /* name of the first string */
	struct rsh_error lost;      /* the first sentence */
};

/* ---- one tensor ---- */

static int ranks_add_slices(struct ranks_reader *r, struct rsh_slices *s,
			    struct rsh_error *err)
{
	/* Elements are transposed and multiplied one by one. */
	const uint32_t unit = s->rec->wide_bf16 ? 4 :
						  rsh_dtype_size(s->rec->dtype);
	const struct rsh_catalogue *c = s->files->cat;
	char dims[160], layout[160];
	const struct rsh_tensor *t;
	uint32_t tensor;
	int rc = rsh_slices_find(s, unit, err);

	if (rc)
		return rc;
	rc = rsh_slices_add(s, NULL, r->opts->rule, r->opts->replicas, &tensor,
			    err);
	if (rc && rc != -ENOMEM)
		rsh_error_prefix(err, "%s: parameter %s of shape %s is not "
				 "a slice of %s (%s)",
				 rsh_catalogue_path(c, s->rank),
				 rsh_names_text(c->names, s->name),
				 rsh_record_dims_text(s->ix, s->rec, dims,
						      sizeof(dims)),
				 rsh_item_text(s->item, layout, sizeof(layout)),
				 s->files->src->path);
	if (rc)
		return rc;
	t = c->tensors[tensor];
	/* The catalogue's tensors are valid as long as the plan. */
	r->offers[r->n++] = (struct rsh_offer){
		.name = t->name, .dtype = t->dtype, .n_dims = t->n_dims,
		.dims = t->dims, .same = tensor + 1,
	};
	return 0;
}

/* Selects the layout of the lowest stage, or another one if no file has slices
 * of that layout. */
static bool ranks_begin_listed(struct rsh_slices *s,
			       const struct rsh_strategy_param *p)
{
	const struct rsh_param_stage *stage = rsh_param_source_stage(p);
	uint32_t i = 0;

	for (;;) {
		s->item = stage->item;
		s->first_file = rsh_job_rank(s->files, stage->stage, 0);
		if (rsh_slices_begin(s))
			return true;
		if (i == p->n_stages)
			return false;
		stage = &p->stages[i++];
	}
}

/* Adds a tensor that has a record in the file of `rank`. */
static int ranks_add(struct ranks_reader *r, uint32_t rank,
		     const struct rsh_record *rec, struct rsh_error *err)
{
	const struct rsh_strategy_param *p = r->files.src ?
		rsh_strategy_find(r->files.src, rec->name) : NULL;
	struct rsh_slices s = {
		.files = p ? &r->files : &r->all, .name = rec->name,
		.all_alike = !p, .first_file = rank,
	};
	int rc;

	if (rec->dtype == RSH_DTYPE_STR) {
		r->string = r->n_strings++ ? r->string : rec->name;
		return 0;
	}
	s.n_stages = s.files->n_stages;
	if (p ? !ranks_begin_listed(&s, p) : !rsh_slices_begin(&s))
		return 0;
	rc = ranks_add_slices(r, &s, err);
	rsh_slices_clear(&s);
	return rc;
}

/* ---- parameters that no file has ---- */

/* A parameter that no file has was not saved, unless one of its stages has no
 * files. */
static int ranks_check_absent(struct ranks_reader *r,
			      const struct rsh_strategy_param *p,
			      struct rsh_error *err)
{
	for (uint32_t i = 0; i < p->n_stages; i++) {
		struct rsh_error lost = RSH_ERROR_INIT;

		if (rsh_job_files_check(&r->files, p->stages[i].stage, p->name,
					&lost) == 0)
			continue;
		if (!r->opts->allow_missing) {
			*err = lost;
			return -ENOENT;
		}
		if (r->n_lost++ == 0)
			r->lost = lost;
		return 0;
	}
	return 0;
}

/* ---- all tensors ---- */

static int ranks_fill(struct ranks_reader *r, struct rsh_error *err)
{
	const struct rsh_catalogue *c = r->files.cat;
	const struct rsh_strategy *src = r->files.src;
	const struct rsh_ckpt_index *last = NULL;
	uint32_t from, to;
	int rc = 0;

	rsh_job_files_of(&r->all, 0, &from, &to);
	for (uint32_t i = from; i < to; i++) {
		const uint32_t rank = c->present[i];
		const struct rsh_ckpt_index *ix = c->index[rank];

		for (uint32_t k = 0; ix != last && k < ix->n_records; k++) {
			const struct rsh_record *rec = &ix->records[k];

			if (r->seen[rec->name])
				continue;
			r->seen[rec->name] = true;
			rc = ranks_add(r, rank, rec, err);
			if (rc)
				return rc;
		}
		last = ix;
	}
	for (uint32_t i = 0; src && i < src->n_params && rc == 0; i++)
		if (!r->seen[src->params[i].name])
			rc = ranks_check_absent(r, &src->params[i], err);
	if (rc == 0 && r->n == 0)
		rc = r->n_lost ? rsh_error_set(err, ENOENT, "%s", r->lost.text)
			       : rsh_error_set(err, ENOENT, "no file holds a "
					       "tensor");
	return rc;
}

static int ranks_begin(struct ranks_reader *r, const struct rsh_strategy *src,
		       const struct rsh_source_view *view)
{
	struct rsh_catalogue *c = rsh_catalogue_new(view);

	if (!c)
		return -ENOMEM;
	r->files = (struct rsh_job_files){
		.cat = c, .src = src,
		.stage_ranks = src ? src->stage_ranks : view->n_ranks,
		.n_stages = src ? src->n_stages : 1,
	};
	r->all = r->files;
	r->all.stage_ranks *= r->files.n_stages;
	r->all.n_stages = 1;
	r->seen = calloc((size_t)c->n_names + 1, sizeof(*r->seen));
	r->offers = rsh_arena_array(r->arena, struct rsh_offer,
				    (size_t)c->n_names + 1);
	return !r->seen || !r->offers || rsh_job_files_list(&r->files) ?
		       -ENOMEM : 0;
}

int rsh_ranks_read(const struct rsh_source_view *view,
		   const struct rsh_strategy *src,
		   const struct rsh_ranks_options *opts,
		   struct rsh_arena *arena, struct rsh_offers *out,
		   struct rsh_error *err)
{
	struct ranks_reader r = { .opts = opts, .arena = arena };
	int rc = ranks_begin(&r, src, view) ? rsh_error_nomem(err) :
					      ranks_fill(&r, err);

	if (rc == 0) {
		if (r.n_strings)
			rsh_log_info("strings left out: %u (%s%s)", r.n_strings,
				     rsh_names_text(r.files.cat->names,
						    r.string),
				     r.n_strings > 1 ? " and others" : "");
		if (r.n_lost)
			rsh_log_warning("parameters left out, for no file "
					"holds them: %u; %s", r.n_lost,
					r.lost.text);
		*out = (struct rsh_offers){
			steal_pointer(&r.files.cat), r.offers, r.n,
		};
	}
	rsh_catalogue_free(r.files.cat);
	free(r.files.held);
	free(r.seen);
	return rc;
}
