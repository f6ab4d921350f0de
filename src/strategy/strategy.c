/* SPDX-License-Identifier: Apache-2.0 */
/* strategy/strategy.c merges strategy files, one for each stage or one for all,
 * into the strategy of a job, and finds parameters in it by name. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/strategy/strategy.h"
#include "rsh/util/arena.h"
#include "rsh/util/checked.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

/* A file with a higher stage than this is damaged. */
#define MAX_STAGES 65536u

/* This is the public struct with the memory to which it points. */
struct strategy_impl {
	struct rsh_strategy pub; /* must be first: pointers to it are converted
				  * back */
	struct rsh_arena arena;
	struct rsh_strategy_file **files;
	uint32_t n_files;
};

/* This is one layout item with its stage and the parameter's name without the
 * stage. */
struct entry {
	uint32_t name;
	uint32_t stage;
	uint32_t param; /* index into params, set while grouping */
	const struct rsh_strategy_item *item;
};

struct entries {
	struct entry *v;
	uint32_t n;
};

/* ---- names ---- */

/* Splits "<stage>-<param>"; returns false if the name does not have this
 * form. */
static bool split_merged(const char *s, uint32_t *stage, const char **param)
{
	const size_t digits = rsh_count_digits(s, strlen(s));
	uint64_t n;

	if (!rsh_digits_read(s, digits, MAX_STAGES - 1, &n) ||
	    s[digits] != '-' || s[digits + 1] == '\0')
		return false;
	*stage = (uint32_t)n;
	*param = s + digits + 1;
	return true;
}

static bool is_merged(const struct rsh_strategy_file *f)
{
	const char *param;
	uint32_t stage;

	for (uint32_t i = 0; i < f->n_items; i++)
		if (!split_merged(f->items[i].name, &stage, &param))
			return false;
	return true;
}

static int add_items(struct entries *out, const struct rsh_strategy_file *f,
		     bool merged, uint32_t stage, struct rsh_names *names,
		     struct rsh_error *err)
{
	for (uint32_t i = 0; i < f->n_items; i++) {
		struct entry *e = &out->v[out->n++];
		const char *param = f->items[i].name;

		e->stage = stage;
		if (merged)
			split_merged(f->items[i].name, &e->stage, &param);
		e->item = &f->items[i];
		e->name = rsh_names_add(names, param, strlen(param));
		if (e->name == RSH_NAME_NONE)
			return rsh_error_nomem(err);
	}
	return 0;
}

/* ---- choosing files ---- */

RSH_ORDER(strategy_by_stage, struct rsh_strategy_file *const,
	  rsh_compare_u64((*x)->first_stage, (*y)->first_stage) ?:
	  strcmp((*x)->path, (*y)->path))

RSH_ORDER(items_by_name, struct rsh_strategy_item *const,
	  strcmp(x[0]->name, y[0]->name))

/* Returns the items of a file in the order of their names; NULL: memory is
 * out. */
static const struct rsh_strategy_item **
items_sort(const struct rsh_strategy_file *f)
{
	const struct rsh_strategy_item **v =
		rsh_alloc_array((size_t)f->n_items + 1, sizeof(*v));

	for (uint32_t i = 0; v && i < f->n_items; i++)
		v[i] = &f->items[i];
	if (v)
		rsh_sort(v, f->n_items, items_by_name);
	return v;
}

/* Compares two files of a stage, as one for each rank, which say the same in
 * one job.  Returns 0 or -errno with a sentence. */
static int check_same(const struct rsh_strategy_file *a,
		      const struct rsh_strategy_file *b, struct rsh_error *err)
{
	cleanup_free const struct rsh_strategy_item **x = items_sort(a);
	cleanup_free const struct rsh_strategy_item **y = items_sort(b);
	uint32_t i = 0;
	int order;

	if (!x || !y)
		return rsh_error_nomem(err);
	while (i < a->n_items && i < b->n_items &&
	       strcmp(x[i]->name, y[i]->name) == 0 &&
	       rsh_item_same_layout(x[i], y[i]))
		i++;
	if (i == a->n_items && i == b->n_items)
		return 0;
	order = i == a->n_items ? 1 : i == b->n_items ? -1 :
		strcmp(x[i]->name, y[i]->name);
	return rsh_error_set(err, EINVAL, "%s: it is of stage %u like %s, but "
			     "%s parameter %s%s: they are of two jobs", b->path,
			     b->first_stage, a->path,
			     order ? "only one of them has" : "splits",
			     (order > 0 ? y[i] : x[i])->name,
			     order ? "" : " in another way");
}

/* Sorts the files by stage, unless the given order is kept, and drops files of
 * a stage that is already there.  (If there is one file for each rank, many
 * files have the same stage.) */
static int keep_one_a_stage(struct strategy_impl *s, bool as_listed,
			    struct rsh_error *err)
{
	uint32_t kept = 0;
	int rc = 0;

	for (uint32_t i = 0; i < s->n_files; i++) {
		const struct rsh_strategy_file *f = s->files[i];

		if (f->json != s->files[0]->json)
			return rsh_error_set(err, EINVAL,
					     "%s: protobuf and JSON strategies "
					     "in one directory (%s, %s)",
					     s->pub.path, s->files[0]->path,
					     f->path);
		if (!f->has_stage)
			return rsh_error_set(err, EINVAL,
					     "%s: it has no strategy items, so "
					     "its pipeline stage is not known",
					     f->path);
	}
	if (!as_listed)
		qsort(s->files, s->n_files, sizeof(*s->files),
		      strategy_by_stage);
	for (uint32_t i = 0; i < s->n_files; i++) {
		const uint32_t k = rsh_index(
			f, kept, s->files[f]->first_stage ==
				 s->files[i]->first_stage);

		if (k == kept) {
			struct rsh_strategy_file *first = s->files[i];

			s->files[i] = s->files[kept];
			s->files[kept++] = first;
			continue;
		}
		/* MindSpore's converter takes the first one. */
		rc = as_listed || s->files[k]->content_hash ==
				  s->files[i]->content_hash ? 0 :
		     check_same(s->files[k], s->files[i], err);
		if (rc)
			return rc;
	}
	while (s->n_files > kept)
		rsh_strategy_file_free(s->files[--s->n_files]);
	return rc;
}

static int strategy_collect(struct strategy_impl *s, bool directory,
			    struct rsh_names *names, struct entries *out,
			    struct rsh_error *err)
{
	size_t n = 0;

	for (uint32_t i = 0; i < s->n_files; i++)
		n += s->files[i]->n_items;
	out->v = n < UINT32_MAX ? rsh_alloc_array(n, sizeof(*out->v)) : NULL;
	if (!out->v)
		return rsh_error_nomem(err);
	if (!directory)
		return add_items(out, s->files[0], is_merged(s->files[0]), 0,
				 names, err);
	for (uint32_t i = 0; i < s->n_files; i++) {
		int rc = add_items(out, s->files[i], false,
				   s->files[i]->first_stage, names, err);

		if (rc)
			return rc;
	}
	return 0;
}

/* ---- grouping by parameter ---- */

static int check_stages(struct strategy_impl *s, const struct entries *e,
			struct rsh_error *err)
{
	uint32_t top = 0;
	cleanup_free bool *seen = NULL;

	for (uint32_t i = 0; i < e->n; i++) {
		if (e->v[i].stage >= MAX_STAGES)
			return rsh_error_set(err, EINVAL,
					     "%s: pipeline stage %u of "
					     "parameter %s is out of range",
					     s->pub.path, e->v[i].stage,
					     e->v[i].item->name);
		if (e->v[i].stage > top)
			top = e->v[i].stage;
	}
	seen = calloc(top + 1, sizeof(*seen));
	if (!seen)
		return rsh_error_nomem(err);
	for (uint32_t i = 0; i < e->n; i++)
		seen[e->v[i].stage] = true;
	for (uint32_t i = 0; i <= top; i++)
		if (!seen[i])
			return rsh_error_set(err, EINVAL,
					     "%s: pipeline stage %u is missing "
					     "(there are stages up to %u)",
					     s->pub.path, i, top);
	s->pub.n_stages = top + 1;
	return 0;
}

RSH_ORDER(by_name_then_order, struct entry *const,
	  rsh_compare_u64((*x)->name, (*y)->name) ?: (*x > *y) - (*x < *y))

/* Numbers the parameters by their first appearance, in e->v[i].param. */
static int number_params(struct entries *e, uint32_t *n_params)
{
	cleanup_free struct entry **sorted =
		rsh_alloc_array(e->n, sizeof(*sorted));

	if (!sorted)
		return -ENOMEM;
	for (uint32_t i = 0; i < e->n; i++)
		sorted[i] = &e->v[i];
	qsort(sorted, e->n, sizeof(*sorted), by_name_then_order);
	/* First each entry gets the index of the first entry with its name. */
	for (uint32_t i = 0; i < e->n; i++) {
		bool first = i == 0 || sorted[i]->name != sorted[i - 1]->name;

		sorted[i]->param = first ? (uint32_t)(sorted[i] - e->v) :
					   sorted[i - 1]->param;
	}
	/* Then these indexes are replaced by consecutive numbers. */
	*n_params = 0;
	for (uint32_t i = 0; i < e->n; i++)
		e->v[i].param = e->v[i].param == i ? (*n_params)++ :
						     e->v[e->v[i].param].param;
	return 0;
}

static int strategy_by_name_id(const void *a, const void *b, void *params)
{
	const struct rsh_strategy_param *p = params;

	return rsh_compare_u64(p[*(const uint32_t *)a].name,
			       p[*(const uint32_t *)b].name);
}

/* Groups the entries by parameter, in the order of their first appearance. */
static int group(struct strategy_impl *s, struct entries *e,
		 struct rsh_error *err)
{
	struct rsh_strategy_param *params;
	struct rsh_param_stage *stages;
	uint32_t n_params, at = 0, *by_name;

	if (number_params(e, &n_params))
		return rsh_error_nomem(err);
	params = rsh_arena_array(&s->arena, struct rsh_strategy_param,
				 n_params);
	stages = rsh_arena_array(&s->arena, struct rsh_param_stage, e->n);
	by_name = rsh_arena_array(&s->arena, uint32_t, n_params);
	if (!params || !stages || !by_name)
		return rsh_error_nomem(err);
	for (uint32_t i = 0; i < e->n; i++)
		params[e->v[i].param].n_stages++;
	for (uint32_t p = 0; p < n_params; p++) {
		params[p].stages = stages + at;
		at += params[p].n_stages;
		params[p].n_stages = 0;
		by_name[p] = p;
	}
	for (uint32_t i = 0; i < e->n; i++) {
		struct rsh_strategy_param *p = &params[e->v[i].param];

		p->name = e->v[i].name;
		stages[p->stages - stages + p->n_stages++] =
			(struct rsh_param_stage){ e->v[i].stage, e->v[i].item };
	}
	qsort_r(by_name, n_params, sizeof(*by_name), strategy_by_name_id,
		params);
	s->pub.n_params = n_params;
	s->pub.params = params;
	s->pub.by_name = by_name;
	return 0;
}

/* All layouts must have the same number of ranks, because global ranks are
 * computed from one number of ranks per stage.  The highest rank is in the last
 * stage of the job, or in the later stage to which a single file belongs. */
static int check_ranks(struct strategy_impl *s, const struct entries *e,
		       bool directory, struct rsh_error *err)
{
	const struct rsh_strategy_file *f = s->files[0];
	uint64_t top;

	for (uint32_t i = 1; i < e->n; i++)
		if (rsh_item_ranks(e->v[i].item) !=
		    rsh_item_ranks(e->v[0].item))
			return rsh_error_set(err, EINVAL,
					     "%s: parameter %s has a mesh of "
					     "%u devices, but %s of %u", s->pub.path,
					     e->v[i].item->name,
					     rsh_item_ranks(e->v[i].item),
					     e->v[0].item->name,
					     rsh_item_ranks(e->v[0].item));
	s->pub.stage_ranks = rsh_item_ranks(e->v[0].item);
	if (!directory && f->has_stage && !is_merged(f))
		s->pub.lone_stage = f->first_stage;
	top = rsh_max_u64(s->pub.n_stages - 1, s->pub.lone_stage);
	if ((top + 1) * s->pub.stage_ranks > RSH_MAX_RANKS)
		return rsh_error_set(err, EINVAL,
				     "%s: pipeline stage %llu of %u devices a "
				     "stage makes more than %u ranks", s->pub.path,
				     (unsigned long long)top,
				     s->pub.stage_ranks, RSH_MAX_RANKS);
	return 0;
}

/* ---- public functions ---- */

int rsh_strategy_merge(const struct rsh_strategy_set *set,
		       struct rsh_names *names, struct rsh_strategy **out,
		       struct rsh_error *err)
{
	bool directory = set->form != RSH_STRATEGY_FILE;
	struct strategy_impl *s = calloc(1, sizeof(*s));
	struct entries e = { NULL, 0 };
	int rc;

	if (!s) {
		for (uint32_t i = 0; i < set->n; i++)
			rsh_strategy_file_free(set->files[i]);
		free(set->files);
		return rsh_error_nomem(err);
	}
	s->files = set->files;
	s->n_files = set->n;
	s->pub.path = rsh_arena_strndup(&s->arena, set->path,
					strlen(set->path));
	rc = s->pub.path ? 0 : rsh_error_nomem(err);
	if (rc == 0 && directory)
		rc = keep_one_a_stage(s, set->form ==
				      RSH_STRATEGY_DIR_AS_LISTED, err);
	rc = rc ?: strategy_collect(s, directory, names, &e, err) ?:
		   check_stages(s, &e, err) ?:
		   check_ranks(s, &e, directory, err) ?: group(s, &e, err);
	s->pub.n_files = s->n_files;
	s->pub.files = (const struct rsh_strategy_file *const *)s->files;
	if (rc == 0)
		*out = &s->pub;
	else
		rsh_strategy_free(&s->pub);
	free(e.v);
	return rc;
}

void rsh_strategy_free(struct rsh_strategy *pub)
{
	struct strategy_impl *s = (struct strategy_impl *)pub;

	if (!s)
		return;
	for (uint32_t i = 0; i < s->n_files; i++)
		rsh_strategy_file_free(s->files[i]);
	free(s->files);
	rsh_arena_clear(&s->arena);
	free(s);
}

const struct rsh_strategy_param *rsh_strategy_find(const struct rsh_strategy *s,
						   uint32_t name)
{
	const uint32_t n = s ? s->n_params : 0;
	const uint32_t at = rsh_first(
		i, n, s->params[s->by_name[i]].name < name);
	const struct rsh_strategy_param *p = at == n ? NULL :
		&s->params[s->by_name[at]];

	return p && p->name == name ? p : NULL;
}

const struct rsh_param_stage *
rsh_param_source_stage(const struct rsh_strategy_param *p)
{
	const struct rsh_param_stage *best = &p->stages[0];

	for (uint32_t i = 1; i < p->n_stages; i++)
		if (p->stages[i].stage < best->stage)
			best = &p->stages[i];
	return best;
}

const struct rsh_strategy_item *
rsh_param_item(const struct rsh_strategy_param *p, uint32_t stage)
{
	for (uint32_t i = 0; i < p->n_stages; i++)
		if (p->stages[i].stage == stage)
			return p->stages[i].item;
	return NULL;
}

bool rsh_param_in_stage(const struct rsh_strategy_param *p, uint32_t stage)
{
	return rsh_param_item(p, stage) != NULL;
}

const struct rsh_param_stage *
rsh_param_dest_stage(const struct rsh_strategy *s,
		     const struct rsh_strategy_param *p, uint32_t rank,
		     bool converter)
{
	const struct rsh_param_stage *best = &p->stages[0];

	if (!converter)
		for (uint32_t i = 0; i < p->n_stages; i++)
			if (p->stages[i].stage == rank / s->stage_ranks)
				return &p->stages[i];
	/* In the converter a later item replaces the previous one if the rank
	 * and the item are both in stage 0, or both in later stages.  The
	 * item's own number of ranks decides in which of these the rank is. */
	for (uint32_t i = 1; i < p->n_stages; i++) {
		bool later = rank / rsh_item_ranks(p->stages[i].item) > 0;

		if (later == (p->stages[i].stage > 0))
			best = &p->stages[i];
	}
	return best;
}
