/* SPDX-License-Identifier: Apache-2.0 */
/* formats/deepspeed/head.c reads what the pickle of a file says about all
 * tensors: of a model its parameters by group, of an optimizer the stage and
 * the number of ranks. */
#include "config.h"

#include "deepspeed_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/checked.h"
#include "rsh/util/mem.h"

/* No size of a parameter is larger, so that products of two fit. */
#define NUMBER_MAX (INT64_C(1) << 62)

struct reading {
	struct rsh_arena *arena;
	const char *path;
	struct rsh_error *err;
};

static int read_bad(const struct reading *r, const char *what)
{
	return rsh_error_set(r->err, EBADMSG, "%s: damaged: %s", r->path, what);
}

/* ---- plain values ---- */

static bool is_absent(const struct rsh_pickle_value *v)
{
	return !v || v->kind == RSH_PV_NONE;
}

/* Names are parts of names of records, which have characters below a space in
 * them. */
static const char *name_of(const struct reading *r,
			   const struct rsh_pickle_value *v)
{
	if (v->kind != RSH_PV_TEXT || v->n == 0 || v->n > 4096)
		return NULL;
	for (uint32_t i = 0; i < v->n; i++)
		if ((unsigned char)v->text[i] < ' ')
			return NULL;
	return rsh_arena_strndup(r->arena, v->text, v->n);
}

/* ---- parameters ---- */

/* Reads torch.Size((n, ...)), which is an object, or a tuple. */
static int read_shape(const struct reading *r, const struct rsh_pickle_value *v,
		      struct rsh_ds_param *out)
{
	const struct rsh_pickle_value *items;
	uint64_t *dims, all = 1;

	if (v->kind == RSH_PV_OBJECT && v->object->class &&
	    strcmp(v->object->class->name, "Size") == 0 &&
	    v->object->args.kind == RSH_PV_TUPLE && v->object->args.n == 1)
		v = v->object->args.items;
	items = rsh_pickle_items(v, &out->n_dims);
	if ((!items && out->n_dims > 0) || out->n_dims > RSH_MAX_DIMS ||
	    (v->kind != RSH_PV_LIST && v->kind != RSH_PV_TUPLE))
		return read_bad(r, "the shape of a parameter");
	dims = rsh_arena_array(r->arena, uint64_t, out->n_dims);
	out->elements = 1;
	for (uint32_t d = 0; d < out->n_dims && dims; d++) {
		if (!rsh_pickle_number(&items[d], NUMBER_MAX, &dims[d]) ||
		    !rsh_mul_u64(all, rsh_max_u64(dims[d], 1), &all) ||
		    all > NUMBER_MAX)
			return read_bad(r, "a parameter has more elements than "
					   "can be");
		out->elements *= dims[d];
	}
	out->dims = dims;
	return 0;
}

static int read_params(const struct reading *r,
		       const struct rsh_pickle_value *v,
		       struct rsh_ds_params *out)
{
	int rc = 0;

	if (v->kind != RSH_PV_DICT)
		return read_bad(r, "shapes of parameters are not a dictionary");
	out->v = rsh_arena_array(r->arena, struct rsh_ds_param, v->list->n / 2);
	for (uint32_t i = 0; i + 1 < v->list->n && rc == 0 && out->v; i += 2) {
		struct rsh_ds_param *p = &out->v[out->n++];

		p->name = name_of(r, &v->list->values[i]);
		rc = p->name ? read_shape(r, &v->list->values[i + 1], p) :
			       read_bad(r, "the name of a parameter");
	}
	return rc;
}

/* An index finds a parameter that is not frozen first. */
RSH_ORDER(param_by_name, struct rsh_ds_param *const,
	  strcmp((*x)->name, (*y)->name) ?:
	  (int)(*x)->frozen - (int)(*y)->frozen)

int rsh_ds_head_index(struct rsh_ds_head *h)
{
	size_t n = h->frozen.n;

	for (uint32_t g = 0; g < h->n_groups; g++)
		n += h->groups[g].n;
	h->by_name = rsh_alloc_array(n, sizeof(*h->by_name));
	if (!h->by_name)
		return -ENOMEM;
	h->n_names = 0;
	for (uint32_t g = 0; g <= h->n_groups; g++) {
		struct rsh_ds_params *p = g < h->n_groups ? &h->groups[g] :
							    &h->frozen;

		for (uint32_t i = 0; i < p->n; i++) {
			p->v[i].frozen = g == h->n_groups;
			h->by_name[h->n_names++] = &p->v[i];
		}
	}
	rsh_sort(h->by_name, n, param_by_name);
	return 0;
}

struct rsh_ds_param *rsh_ds_param_find(const struct rsh_ds_head *h,
				       const char *name, bool frozen)
{
	const struct rsh_ds_param like = { .name = name, .frozen = frozen };
	const struct rsh_ds_param *key = &like;
	struct rsh_ds_param **found =
		h ? rsh_find(&key, h->by_name, h->n_names, param_by_name) :
		    NULL;

	return found ? *found : NULL;
}

/* No name is twice in all groups, but an empty frozen parameter may be in one,
 * too.  Only the chosen file keeps its index: each rank's has all names. */
static int check_names(const struct reading *r, struct rsh_ds_head *h)
{
	int rc = rsh_ds_head_index(h) ? rsh_error_nomem(r->err) : 0;
	const char *last = NULL;

	for (size_t i = 0; rc == 0 && i < h->n_names; i++) {
		const struct rsh_ds_param *p = h->by_name[i];

		if (p->frozen && p->elements == 0)
			continue;
		if (last && strcmp(last, p->name) == 0)
			rc = rsh_error_set(r->err, EBADMSG, "%s: damaged: it "
					   "has parameter %s twice", r->path,
					   p->name);
		last = p->name;
	}
	free(steal_pointer(&h->by_name));
	h->n_names = 0;
	return rc;
}

static int read_groups(const struct reading *r,
		       const struct rsh_pickle_value *v,
		       struct rsh_ds_head *out)
{
	const struct rsh_pickle_value *items;
	int rc = 0;

	if (is_absent(v))
		return 0;
	items = rsh_pickle_items(v, &out->n_groups);
	if (v->kind != RSH_PV_LIST)
		return read_bad(r, "param_shapes is not a list");
	out->has_shapes = true;
	out->groups = rsh_arena_array(r->arena, struct rsh_ds_params,
				      out->n_groups);
	if (!out->groups)
		out->n_groups = 0;
	for (uint32_t g = 0; g < out->n_groups && rc == 0; g++)
		rc = read_params(r, &items[g], &out->groups[g]);
	return rc;
}

/* ---- other names ---- */

static int read_buffers(const struct reading *r,
			const struct rsh_pickle_value *v,
			struct rsh_ds_head *out)
{
	uint32_t n;
	const struct rsh_pickle_value *items = rsh_pickle_items(v, &n);

	out->buffers = rsh_arena_array(r->arena, const char *, n);
	for (; out->n_buffers < n && out->buffers; out->n_buffers++) {
		const char *name = name_of(r, &items[out->n_buffers]);

		if (!name)
			return read_bad(r, "the name of a buffer");
		out->buffers[out->n_buffers] = name;
	}
	rsh_sort(out->buffers, out->n_buffers, rsh_by_text);
	return 0;
}

bool rsh_ds_is_buffer(const struct rsh_ds_head *h, const char *name)
{
	return rsh_find(&name, h->buffers, h->n_buffers, rsh_by_text);
}

bool rsh_ds_is_alias(const struct rsh_ds_head *h, const char *name)
{
	return rsh_any(i, h->n_aliases, strcmp(h->aliases[i].name, name) == 0);
}

static int read_aliases(const struct reading *r,
			const struct rsh_pickle_value *v,
			struct rsh_ds_head *out)
{
	if (is_absent(v))
		return 0;
	if (v->kind != RSH_PV_DICT)
		return read_bad(r, "shared_params is not a dictionary");
	out->aliases = rsh_arena_array(r->arena, struct rsh_ds_alias,
				       v->list->n / 2);
	for (uint32_t i = 0; i + 1 < v->list->n && out->aliases; i += 2) {
		struct rsh_ds_alias *a = &out->aliases[out->n_aliases++];

		a->name = name_of(r, &v->list->values[i]);
		a->of = name_of(r, &v->list->values[i + 1]);
		if (!a->name || !a->of)
			return read_bad(r, "the name of a shared parameter");
	}
	return 0;
}

/* ---- what cannot be shown ---- */

/* Returns the number at a key; 1 if there is none. */
static uint64_t size_of(const struct rsh_pickle_value *of, const char *key)
{
	uint64_t n;

	return rsh_pickle_number(rsh_pickle_find(of, key), NUMBER_MAX, &n) ? n : 1;
}

static const char *find_wrong(const struct rsh_pickle_value *root)
{
	const struct rsh_pickle_value *dims =
		rsh_pickle_find(root, "checkpoint_parallel_dimensions");
	const struct rsh_pickle_value *module =
		rsh_pickle_find(root, "module");

	if (size_of(root, "mp_world_size") > 1 ||
	    size_of(dims, "pp_degree") > 1 || size_of(dims, "tp_degree") > 1)
		return "it is tensor or pipeline parallel: convert it with "
		       "ds_to_universal.py, and mount the result";
	if (!is_absent(rsh_pickle_find(root, "ds_autoep_layers")))
		return "its experts were divided by AutoEP, which is not "
		       "supported";
	return !module || module->kind != RSH_PV_DICT ?
	       "it has no dictionary of a module" : NULL;
}

static int read_experts(const struct reading *r,
			const struct rsh_pickle_value *v,
			struct rsh_ds_head *out)
{
	uint32_t n;
	const struct rsh_pickle_value *items = rsh_pickle_items(v, &n);

	out->experts = rsh_arena_array(r->arena, uint64_t, (size_t)n + 1);
	if (out->experts &&
	    rsh_pickle_number(v, RSH_DS_RANKS_MAX, &out->experts[0]))
		out->n_layers = out->experts[0] > 0;
	for (uint32_t i = 0; i < n && out->experts; i++) {
		if (!rsh_pickle_number(&items[i], RSH_DS_RANKS_MAX,
			       &out->experts[i]))
			return read_bad(r, "the number of experts");
		out->n_layers++;
	}
	return 0;
}

int rsh_ds_head_read(const struct rsh_pickle_value *root, const char *path,
		     struct rsh_arena *arena, struct rsh_ds_head *out,
		     struct rsh_error *err)
{
	const struct reading r = { arena, path, err };
	const struct rsh_pickle_value *version =
		rsh_pickle_find(root, "ds_version");
	const struct rsh_pickle_value *frozen =
		rsh_pickle_find(root, "frozen_param_shapes");
	const struct rsh_pickle_value *robin = rsh_pickle_find(
		rsh_pickle_find(rsh_pickle_find(root, "ds_config"),
				"zero_optimization"), "round_robin_gradients");
	int rc;

	*out = (struct rsh_ds_head){ .wrong = find_wrong(root) };
	out->version = version && version->kind == RSH_PV_TEXT &&
		       version->n < 64 ? name_of(&r, version) : NULL;
	out->version = out->version ? out->version : "";
	rsh_pickle_number(rsh_pickle_find(root, "dp_world_size"), RSH_DS_RANKS_MAX,
		  &out->world);
	rsh_pickle_number(rsh_pickle_find(root, "global_steps"), INT64_MAX,
			  &out->step);
	rsh_pickle_number(rsh_pickle_find(root, "skipped_steps"), INT32_MAX,
			  &out->skipped);
	out->round_robin = robin && robin->kind == RSH_PV_BOOL &&
			   robin->number;
	out->has_optimizer = !is_absent(rsh_pickle_find(root, "optimizer"));
	rc = read_groups(&r, rsh_pickle_find(root, "param_shapes"), out);
	if (rc == 0 && !is_absent(frozen))
		rc = read_params(&r, frozen, &out->frozen);
	return rc ?: check_names(&r, out) ?:
	       read_buffers(&r, rsh_pickle_find(root, "buffer_names"), out) ?:
	       read_aliases(&r, rsh_pickle_find(root, "shared_params"), out) ?:
	       read_experts(&r, rsh_pickle_find(root, "num_experts"), out);
}

static bool params_alike(const struct rsh_ds_params *a,
			 const struct rsh_ds_params *b)
{
	if (a->n != b->n)
		return false;
	for (uint32_t i = 0; i < a->n; i++) {
		const struct rsh_ds_param *p = &a->v[i], *q = &b->v[i];

		if (strcmp(p->name, q->name) != 0 ||
		    !rsh_dims_equal(p->dims, p->n_dims, q->dims, q->n_dims))
			return false;
	}
	return true;
}

bool rsh_ds_heads_alike(const struct rsh_ds_head *a,
			const struct rsh_ds_head *b)
{
	bool alike = a->n_groups == b->n_groups && a->world == b->world &&
		     params_alike(&a->frozen, &b->frozen);

	for (uint32_t g = 0; alike && g < a->n_groups; g++)
		alike = params_alike(&a->groups[g], &b->groups[g]);
	return alike;
}

/* ---- the optimizer ---- */

/* Reads a number, or a list with one for each group, of which the greatest
 * counts: experts are on fewer ranks. */
static bool read_world(const struct rsh_pickle_value *v, uint32_t *out)
{
	uint32_t n;
	const struct rsh_pickle_value *items = rsh_pickle_items(v, &n);
	uint64_t count = 0;

	*out = 0;
	for (uint32_t i = 0; i < (items ? n : 1); i++) {
		if (!rsh_pickle_number(items ? &items[i] : v, RSH_DS_RANKS_MAX,
				       &count))
			return false;
		*out = (uint32_t)rsh_max_u64(*out, count);
	}
	return *out > 0;
}

static int read_paddings(const struct reading *r,
			 const struct rsh_pickle_value *v,
			 struct rsh_ds_zero *out)
{
	uint32_t n;
	const struct rsh_pickle_value *groups = rsh_pickle_items(v, &n);

	if (is_absent(v))
		return 0;
	if (n != out->n_groups)
		return read_bad(r, "param_alignment_paddings has another "
				   "number of groups");
	out->n_paddings = rsh_arena_array(r->arena, uint32_t, n);
	out->paddings = rsh_arena_array(r->arena, uint64_t *, n);
	for (uint32_t g = 0; g < n && !r->arena->failed; g++) {
		const struct rsh_pickle_value *items =
			rsh_pickle_items(&groups[g], &out->n_paddings[g]);
		uint64_t *to = rsh_arena_array(r->arena, uint64_t,
					       out->n_paddings[g]);

		out->paddings[g] = to;
		for (uint32_t i = 0; i < out->n_paddings[g] && to; i++)
			if (!rsh_pickle_number(&items[i], NUMBER_MAX, &to[i]))
				return read_bad(r, "param_alignment_paddings "
						   "has a value that is not a padding");
	}
	return 0;
}

/* Reads what the file has of which parameter.  A form that is not known is
 * passed over. */
static int read_slices(const struct reading *r,
		       const struct rsh_pickle_value *v,
		       struct rsh_ds_zero *out)
{
	uint32_t n_groups;
	const struct rsh_pickle_value *groups = rsh_pickle_items(v, &n_groups);
	size_t n = 0;

	for (uint32_t g = 0; g < n_groups; g++)
		n += groups[g].kind == RSH_PV_DICT ? groups[g].list->n / 2 : 0;
	out->slices = rsh_arena_array(r->arena, struct rsh_ds_slice, n);
	for (uint32_t g = 0; g < n_groups && n > 0 && out->slices; g++) {
		const struct rsh_pickle_list *l =
			groups[g].kind == RSH_PV_DICT ? groups[g].list : NULL;

		for (uint32_t i = 0; l && i + 1 < l->n; i += 2) {
			struct rsh_ds_slice *s = &out->slices[out->n_slices++];
			const struct rsh_pickle_value *at = &l->values[i + 1];

			/* A fragment_address has the state {numel, start}. */
			s->group = g;
			s->name = name_of(r, &l->values[i]);
			if (!s->name || at->kind != RSH_PV_OBJECT ||
			    !rsh_pickle_number(rsh_pickle_find(
				    &at->object->state, "numel"), NUMBER_MAX,
				    &s->n) ||
			    !rsh_pickle_number(rsh_pickle_find(
				    &at->object->state, "start"), NUMBER_MAX,
				    &s->at)) {
				out->n_slices = 0;
				return 0;
			}
		}
	}
	return 0;
}

/* Takes the step of a group, if it is a number and no earlier group has one. */
static void take_step(const struct rsh_pickle_value *of, uint64_t group,
		      struct rsh_ds_zero *out)
{
	uint64_t step;

	if (group > UINT32_MAX || (out->has_step && out->step_group <= group) ||
	    !rsh_pickle_number(rsh_pickle_find(of, "step"), NUMBER_MAX, &step))
		return;
	out->has_step = true;
	out->step_group = (uint32_t)group;
	out->step = step;
}

/* Reads how many steps the optimizer made, if this is no tensor: from the
 * states of its groups, or from the groups themselves. */
static void read_step(const struct rsh_pickle_value *optimizer,
		      struct rsh_ds_zero *out)
{
	uint32_t n;
	const struct rsh_pickle_value *states =
		rsh_pickle_find(optimizer, "state");
	/* With elastic_checkpoint it is a list of states. */
	const struct rsh_pickle_value *items = rsh_pickle_items(optimizer, &n);

	for (uint32_t i = 0; i < n && items; i++)
		take_step(&items[i], i, out);
	for (uint32_t i = 0; states && states->kind == RSH_PV_DICT &&
			     i + 1 < states->list->n; i += 2) {
		uint64_t group;

		if (rsh_pickle_number(&states->list->values[i], UINT32_MAX,
				      &group))
			take_step(&states->list->values[i + 1], group, out);
	}
	items = rsh_pickle_items(rsh_pickle_find(optimizer, "param_groups"),
				 &n);
	for (uint32_t i = 0; i < n && items && !out->has_step; i++)
		take_step(&items[i], i, out);
}

int rsh_ds_zero_read(const struct rsh_pickle_value *root, const char *path,
		     struct rsh_arena *arena, struct rsh_ds_zero *out,
		     struct rsh_error *err)
{
	const struct reading r = { arena, path, err };
	const struct rsh_pickle_value *of =
		rsh_pickle_find(root, "optimizer_state_dict");
	const struct rsh_pickle_value *stage = rsh_pickle_find(of,
							       "zero_stage");
	const struct rsh_pickle_value *flat = rsh_pickle_find(
		of, "single_partition_of_fp32_groups");
	const bool is_3 = !flat;
	uint64_t number = 1;

	*out = (struct rsh_ds_zero){ .stage = 0 };
	if (is_3)
		flat = rsh_pickle_find(of, "fp32_flat_groups");
	if (!flat) {
		out->wrong = "it has no flat groups of parameters";
		return 0;
	}
	/* The stage is a number, or an enum: a call of a class with it. */
	if (stage && stage->kind == RSH_PV_OBJECT &&
	    stage->object->args.kind == RSH_PV_TUPLE &&
	    stage->object->args.n == 1)
		stage = stage->object->args.items;
	/* BF16_Optimizer does not say its stage, which is 1. */
	if (stage ? !rsh_pickle_number(stage, 3, &number) ||
		    (number == 3) != is_3 : is_3)
		return read_bad(&r, "zero_stage is not that of its groups");
	out->stage = (uint32_t)number;
	if (flat->kind != RSH_PV_LIST || out->stage == 0)
		return read_bad(&r, "flat groups are not a list");
	out->n_groups = flat->list->n;
	read_step(rsh_pickle_find(of, is_3 ? "optimizer_state_dict" :
					     "base_optimizer_state"), out);
	if (!read_world(rsh_pickle_find(of, "partition_count"), &out->world))
		return read_bad(&r, "partition_count does not say the number "
				    "of ranks");
	return is_3 ? 0 :
	       read_paddings(&r, rsh_pickle_find(of,
						 "param_alignment_paddings"),
			     out) ?:
	       read_slices(&r, rsh_pickle_find(of, "param_slice_mappings"),
			   out);
}
