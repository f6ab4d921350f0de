/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/plan_tensors.c describes for each tensor of a plan how both sides cut
 * it, which ranks have which slice, and which source file each slice is read
 * from. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "plan.h"
#include "rsh/plan/query.h"
#include "rsh/strategy/grid.h"
#include "rsh/strategy/strategy.h"
#include "rsh/util/mem.h"

/* This is a file, and the member of a cut whose cell the file has. */
struct holding {
	uint32_t member, file;
};

/* This is one side of a tensor. */
struct side {
	const struct rsh_cut *cut;
	const uint64_t *dims;
	uint32_t n_dims;
	uint32_t first_file;  /* file that should have member 0's cell */
	struct holding *held; /* by member, then by file */
	size_t n_held, cap;
};

/* This is a tensor that is shown, with the first tensor that is cut and held in
 * the same way. */
struct shown_tensor {
	struct rsh_plan_tensor of;
	struct side source, destination;
	bool is_shown;
	uint32_t
		first_alike; /* its number; the tensor's own if it is the
			      * first */
};

/* ---- which rank holds which slice ---- */

static int by_member(const void *a, const void *b)
{
	const struct holding *x = a, *y = b;

	return rsh_compare_u64(x->member, y->member) ?:
	       rsh_compare_u64(x->file, y->file);
}

static int side_add(struct side *s, uint32_t member, uint32_t file)
{
	if (rsh_grow(&s->held, &s->cap, s->n_held + 1, sizeof(*s->held)))
		return -ENOMEM;
	s->held[s->n_held++] = (struct holding){ member, file };
	return 0;
}

/* ---- which tensors share an entry ---- */

static bool sides_are_equal(const struct side *a, const struct side *b)
{
	return a->cut == b->cut && a->n_dims == b->n_dims &&
	       a->first_file == b->first_file && a->n_held == b->n_held &&
	       memcmp(a->dims, b->dims, a->n_dims * sizeof(*a->dims)) == 0 &&
	       (a->n_held == 0 ||
		memcmp(a->held, b->held, a->n_held * sizeof(*a->held)) == 0);
}

static bool tensors_are_alike(const struct shown_tensor *a,
			      const struct shown_tensor *b)
{
	return a->of.dtype == b->of.dtype && a->of.lost == b->of.lost &&
	       a->of.n_parts == b->of.n_parts &&
	       a->of.from->dtype == b->of.from->dtype &&
	       sides_are_equal(&a->source, &b->source) &&
	       sides_are_equal(&a->destination, &b->destination) &&
	       memcmp(a->of.axis, b->of.axis, sizeof(a->of.axis)) == 0;
}

/* ---- JSON ---- */

static json_t *sizes_json(const uint64_t *v, uint32_t n)
{
	return rsh_ls_shape_json((const int64_t *)v, n);
}

static json_t *box_json(const struct rsh_box *b)
{
	return json_pack("{s:o,s:o}", "offset",
			 sizes_json(b->from, b->n_dims), "shape",
			 sizes_json(b->size, b->n_dims));
}

static void add_origin_json(void *ctx, const struct rsh_box *box,
			    const struct rsh_holder *holder)
{
	json_t *one = box_json(box);

	json_object_set_new(one, "rank", holder ? json_integer(holder->file) :
						  json_null());
	json_array_append_new(ctx, one);
}

/* Adds the files that have a cell and those that should have it.  *member is
 * set to a member whose file has the cell, if there is one. */
static void add_cell_ranks(json_t *slice, const struct side *s, uint32_t cell,
			   bool is_source, uint32_t *member)
{
	const uint32_t n = rsh_cut_n_replicas(s->cut, cell);
	json_t *ranks = json_array(), *missing = json_array();

	*member = rsh_cut_member(s->cut, cell, 0);
	for (uint32_t k = 0; k < n; k++) {
		const struct holding wanted = {
			rsh_cut_member(s->cut, cell, k), 0
		};
		size_t low = 0, high = s->n_held;

		while (low < high) {
			const size_t middle = low + (high - low) / 2;

			if (by_member(&s->held[middle], &wanted) < 0)
				low = middle + 1;
			else
				high = middle;
		}
		if (low == s->n_held || s->held[low].member != wanted.member)
			json_array_append_new(missing, json_integer(
				s->first_file + wanted.member));
		for (; low < s->n_held && s->held[low].member == wanted.member;
		     low++) {
			*member = wanted.member;
			json_array_append_new(
				ranks, json_integer(s->held[low].file));
		}
	}
	json_object_set_new(slice, "ranks", ranks);
	if (is_source)
		json_object_set_new(slice, "missing", missing);
	else
		json_decref(missing);
}

/* Makes the slices of a side.  `plan` is given for the destination, whose
 * slices also list the files that they are read from. */
static json_t *cells_json(const struct side *s, const struct rsh_plan *plan,
			  uint32_t tensor)
{
	json_t *all = json_array();

	for (uint32_t cell = 0; cell < rsh_cut_n_cells(s->cut); cell++) {
		struct rsh_box box;
		json_t *one, *from;
		uint32_t member;

		rsh_cut_box(s->cut, s->dims, cell, &box);
		one = box_json(&box);
		add_cell_ranks(one, s, cell, !plan, &member);
		if (plan && json_array_size(json_object_get(one, "ranks"))) {
			from = json_array();
			rsh_plan_origins(plan, tensor, member, add_origin_json,
					 from);
			json_object_set_new(one, "from", from);
		}
		json_array_append_new(all, one);
	}
	return all;
}

static const struct rsh_strategy_item *
side_item(const struct rsh_strategy *s, uint32_t name, const struct side *side)
{
	const struct rsh_strategy_param *p = s ? rsh_strategy_find(s, name) :
						 NULL;
	const struct rsh_strategy_item *item;

	if (!p || side->n_held == 0)
		return NULL;
	item = rsh_param_item(p, side->held[0].file / s->stage_ranks);
	return item ? item : rsh_param_source_stage(p)->item;
}

/* Returns the number of slices into which the optimizer shard cuts a slice of
 * the mesh axes. */
static uint32_t optimizer_shards(const struct side *s,
				 const struct rsh_strategy_item *item)
{
	uint64_t by_axes = 1;

	if (!rsh_cut_grid(s->cut) || !item || item->opt_step == 0)
		return 1;
	for (uint32_t i = 0; i < item->n_map; i++)
		by_axes *= rsh_map_entry_split(item, &item->map[i]);
	return (uint32_t)(rsh_cut_n_cells(s->cut) / by_axes);
}

static json_t *side_json(const struct side *s, enum rsh_dtype dtype,
			 const struct rsh_strategy *strategy, uint32_t name,
			 const struct rsh_plan *plan, uint32_t tensor)
{
	const struct rsh_strategy_item *item = side_item(strategy, name, s);
	char layout[256];

	if (item)
		rsh_item_text(item, layout, sizeof(layout));
	return json_pack("{s:s,s:o,s:o,s:i,s:o}", "type", rsh_dtype_name(dtype),
			 "shape", sizes_json(s->dims, s->n_dims), "layout",
			 item ? rsh_json_text(layout) : json_null(),
			 "optimizer_shards", (int)optimizer_shards(s, item),
			 "slices", cells_json(s, plan, tensor));
}

static json_t *shown_tensor_json(const struct rsh_vfs_view *view,
			   const struct shown_tensor *v, uint32_t n, uint32_t i)
{
	const struct shown_tensor *t = &v[i];
	json_t *names = json_array();

	for (uint32_t k = i; k < n; k++)
		if (v[k].is_shown && v[k].first_alike == i)
			json_array_append_new(names,
					      rsh_json_text(v[k].of.name));
	return json_pack(
		"{s:o,s:i,s:b,s:o,s:o}", "names", names, "made_of",
		(int)t->of.n_parts, "lost", (int)t->of.lost, "source",
		side_json(&t->source, t->of.from->dtype, view->src,
			  t->of.from->name, NULL, i),
		"destination",
		side_json(&t->destination, t->of.dtype, view->dst,
			  t->of.number, view->plan, i));
}

/* Takes the tensors, and records which files of the source and of the plan
 * have them. */
static int shown_tensors_take(const struct rsh_plan *plan,
			      struct shown_tensor *v, uint32_t n)
{
	cleanup_free bool *marks = calloc((size_t)n + 1, sizeof(*marks));
	int rc = marks ? 0 : -ENOMEM;

	for (uint32_t i = 0; i < n && rc == 0; i++) {
		struct shown_tensor *t = &v[i];
		const struct rsh_tensor *from;

		rsh_plan_tensor(plan, i, &t->of);
		t->destination = (struct side){
			.cut = t->of.cut, .dims = t->of.dims,
			.n_dims = t->of.n_dims,
		};
		from = t->of.from;
		if (!from)
			continue;
		t->source = (struct side){
			.cut = from->cut, .dims = from->dims,
			.n_dims = from->n_dims, .first_file = from->first_file,
		};
		for (size_t k = 0; k < rsh_copies_n_holders(from->copies) &&
				   rc == 0; k++) {
			const struct rsh_holder *h =
				&rsh_copies_holders(from->copies)[k];

			rc = side_add(&t->source, h->rank, h->file);
		}
	}
	for (uint32_t f = 0; f < rsh_plan_n_files(plan) && rc == 0; f++) {
		memset(marks, 0, n);
		rsh_plan_mark_tensors(plan, f, marks);
		for (uint32_t i = 0; i < n && rc == 0; i++) {
			if (!marks[i])
				continue;
			/* Records that are copied unchanged have no cut. */
			v[i].is_shown = v[i].of.from != NULL;
			rc = side_add(&v[i].destination,
				      rsh_plan_member(plan, f),
				      f / rsh_plan_files_of_rank(plan));
		}
	}
	for (uint32_t i = 0; i < n && rc == 0; i++) {
		struct side *const sides[] = { &v[i].source,
					       &v[i].destination };

		for (int k = 0; k < 2; k++)
			if (sides[k]->n_held > 0)
				qsort(sides[k]->held, sides[k]->n_held,
				      sizeof(*sides[k]->held), by_member);
	}
	return rc;
}

int rsh_plan_tensors_json(const struct rsh_vfs_view *view, json_t **out)
{
	const uint32_t n = rsh_plan_n_tensors(view->plan);
	struct shown_tensor *v = calloc((size_t)n + 1, sizeof(*v));
	json_t *all = json_array();
	int rc = v && all ? shown_tensors_take(view->plan, v, n) : -ENOMEM;

	for (uint32_t i = 0; i < n && rc == 0; i++) {
		v[i].first_alike = i;
		for (uint32_t k = 0; k < i && v[i].is_shown; k++)
			if (v[k].is_shown && v[k].first_alike == k &&
			    tensors_are_alike(&v[k], &v[i])) {
				v[i].first_alike = k;
				break;
			}
	}
	for (uint32_t i = 0; i < n && rc == 0; i++)
		if (v[i].is_shown && v[i].first_alike == i &&
		    json_array_append_new(all,
					  shown_tensor_json(view, v, n, i)))
			rc = -ENOMEM;
	for (uint32_t i = 0; v && i < n; i++) {
		free(v[i].source.held);
		free(v[i].destination.held);
	}
	free(v);
	if (rc) {
		json_decref(all);
		all = NULL;
	}
	*out = all;
	return rc;
}
