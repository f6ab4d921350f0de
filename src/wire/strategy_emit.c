/* SPDX-License-Identifier: Apache-2.0 */
/* wire/strategy_emit.c writes computed layouts as a strategy file, and joins
 * the files of a pipeline's stages into one. */
#include "rsh/wire/strategy_emit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "node_strategy.pb-c.h"
#include "rsh/util/arena.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"
#include "rsh/wire/json_load.h"

/* Packs a message into *out, which the caller frees.  Returns 0 or -ENOMEM. */
static int strategy_pack(const Rsh__Pb__ParallelStrategyMap *map, void **out,
			 size_t *len)
{
	*len = rsh__pb__parallel_strategy_map__get_packed_size(map);
	*out = malloc(*len ? *len : 1);
	if (!*out)
		return -ENOMEM;
	rsh__pb__parallel_strategy_map__pack(map, *out);
	return 0;
}

/* Writes both sections as JSON to *out, which the caller frees.  Takes
 * ownership of the sections.  Returns 0 or -ENOMEM. */
static int strategy_dump(json_t *ops, json_t *layouts, void **out, size_t *len)
{
	json_t *root = json_pack("{s:i,s:o,s:o}", "current_stage", 1,
				 "parallel_strategy_item", ops,
				 "parallel_layout_item", layouts);
	char *text = root ? json_dumps(root, JSON_ENSURE_ASCII) : NULL;
	char *s;

	json_decref(root);
	if (!text)
		return -ENOMEM;
	/* Python writes \u00e9 where jansson writes \u00E9. */
	s = text;
	for (; *s; s++) {
		if (*s != '\\')
			continue;
		if (*++s != 'u')
			continue;
		for (int i = 1; i <= 4; i++)
			if (s[i] >= 'A' && s[i] <= 'F')
				s[i] = (char)(s[i] - 'A' + 'a');
	}
	*out = text;
	*len = strlen(text);
	return 0;
}

/* Returns the parameter's name; for a file of several stages "<stage>-<name>",
 * as in a merged file. */
static char *staged_name(struct rsh_arena *a, const struct rsh_staged_item *s,
			 uint32_t n_stages)
{
	return n_stages == 1 ? rsh_arena_format(a, "%s", s->item.name) :
	       rsh_arena_format(a, "%u-%s", s->stage, s->item.name);
}

static char *op_name(struct rsh_arena *a, const struct rsh_staged_item *s)
{
	return rsh_arena_format(a, "Parameter_%s", s->item.name);
}

/* ---- protobuf ---- */

#define new_message(a, type, init)                                  \
	({                                                          \
		type *m_ = rsh_arena_array(a, type, 1);             \
		if (m_)                                             \
			*m_ = (type)init;                           \
		m_;                                                 \
	})

/* Adds a message to the map, which has room for it. */
static Rsh__Pb__TensorMap *add_map(struct rsh_arena *a,
				   Rsh__Pb__ParallelLayouts *l, size_t n_dim)
{
	Rsh__Pb__TensorMap *m = new_message(a, Rsh__Pb__TensorMap,
					    RSH__PB__TENSOR_MAP__INIT);

	if (!m)
		return NULL;
	m->dim = rsh_arena_array(a, int32_t, n_dim);
	m->n_dim = n_dim;
	l->tensor_map[l->n_tensor_map++] = m;
	return m->dim ? m : NULL;
}

/* In a flat map each number is a dimension; in a nested map each message is
 * one. */
static bool fill_map(struct rsh_arena *a, Rsh__Pb__ParallelLayouts *l,
		     const struct rsh_strategy_item *it)
{
	Rsh__Pb__TensorMap *m;

	l->tensor_map = rsh_arena_array(a, Rsh__Pb__TensorMap *,
					(size_t)it->n_map + 1);
	if (!l->tensor_map)
		return false;
	if (!it->nested) {
		m = add_map(a, l, it->n_map);
		for (uint32_t i = 0; m && i < it->n_map; i++)
			m->dim[i] = it->map[i].n ? it->map[i].axes[0] : -1;
		return m != NULL;
	}
	for (uint32_t i = 0; i < it->n_map; i++) {
		const struct rsh_map_entry *e = &it->map[i];

		m = add_map(a, l, e->n ? e->n : 1);
		if (!m)
			return false;
		m->dim[0] = -1;
		if (e->n)
			memcpy(m->dim, e->axes, e->n * sizeof(*m->dim));
	}
	/* A single message would be read as a flat map. */
	return it->n_map != 1 || add_map(a, l, 0);
}

/* The planner always writes one message of each kind; most are empty. */
static Rsh__Pb__ParallelLayouts *
new_layouts(struct rsh_arena *a, const struct rsh_strategy_item *it)
{
	Rsh__Pb__ParallelLayouts *l = new_message(
		a, Rsh__Pb__ParallelLayouts, RSH__PB__PARALLEL_LAYOUTS__INIT);
	Rsh__Pb__DevMatrix *mesh = new_message(a, Rsh__Pb__DevMatrix,
					       RSH__PB__DEV_MATRIX__INIT);
	Rsh__Pb__ParamSplitShape *split = new_message(
		a, Rsh__Pb__ParamSplitShape, RSH__PB__PARAM_SPLIT_SHAPE__INIT);
	Rsh__Pb__IndicesOffset *offset = new_message(
		a, Rsh__Pb__IndicesOffset, RSH__PB__INDICES_OFFSET__INIT);

	if (!l || !mesh || !split || !offset)
		return NULL;
	mesh->dim = rsh_arena_array(a, uint32_t, it->n_mesh);
	l->dev_matrix = rsh_arena_array(a, Rsh__Pb__DevMatrix *, 1);
	l->param_split_shape =
		rsh_arena_array(a, Rsh__Pb__ParamSplitShape *, 1);
	l->indices_offset = rsh_arena_array(a, Rsh__Pb__IndicesOffset *, 1);
	if (!mesh->dim || !l->dev_matrix || !l->param_split_shape ||
	    !l->indices_offset || !fill_map(a, l, it))
		return NULL;
	memcpy(mesh->dim, it->mesh, it->n_mesh * sizeof(*mesh->dim));
	mesh->n_dim = it->n_mesh;
	l->dev_matrix[0] = mesh;
	l->param_split_shape[0] = split;
	l->indices_offset[0] = offset;
	l->n_dev_matrix = l->n_param_split_shape = l->n_indices_offset = 1;
	l->has_field = 1;
	l->has_opt_weight_shard_step = 1;
	l->opt_weight_shard_step = it->opt_step;
	l->has_opt_weight_shard_size = 1;
	l->opt_weight_shard_size = it->opt_size;
	return l;
}

/* Makes an item for the operator of a parameter.  Its strategy has the number
 * of slices of each dimension. */
static Rsh__Pb__ParallelStrategyItem *
new_op(struct rsh_arena *a, const struct rsh_staged_item *item)
{
	const struct rsh_strategy_item *it = &item->item;
	Rsh__Pb__ParallelStrategyItem *op = new_message(
		a, Rsh__Pb__ParallelStrategyItem,
		RSH__PB__PARALLEL_STRATEGY_ITEM__INIT);
	Rsh__Pb__ParallelStrategys *s = new_message(
		a, Rsh__Pb__ParallelStrategys,
		RSH__PB__PARALLEL_STRATEGYS__INIT);
	Rsh__Pb__ParallelStrategy *split = new_message(
		a, Rsh__Pb__ParallelStrategy, RSH__PB__PARALLEL_STRATEGY__INIT);
	char *name = op_name(a, item);

	if (!op || !s || !split || !name)
		return NULL;
	s->parallel_strategy =
		rsh_arena_array(a, Rsh__Pb__ParallelStrategy *, 1);
	split->dim = rsh_arena_array(a, uint32_t, it->n_map);
	if (!s->parallel_strategy || !split->dim)
		return NULL;
	split->n_dim = it->n_map;
	for (uint32_t e = 0; e < it->n_map; e++)
		split->dim[e] = rsh_map_entry_split(it, &it->map[e]);
	s->has_stage = 1;
	s->stage = item->stage;
	s->parallel_strategy[0] = split;
	s->n_parallel_strategy = item->tuples;
	op->has_node_name = 1;
	op->node_name.data = (uint8_t *)name;
	op->node_name.len = strlen(name);
	op->parallel_strategys = s;
	return op;
}

static int emit_pb(struct rsh_arena *a, const struct rsh_staged_items *items,
		   void **out, size_t *len)
{
	const size_t n = items->n;
	Rsh__Pb__ParallelStrategyMap map = RSH__PB__PARALLEL_STRATEGY_MAP__INIT;

	map.parallel_strategy_item =
		rsh_arena_array(a, Rsh__Pb__ParallelStrategyItem *, n);
	map.parallel_layout_item =
		rsh_arena_array(a, Rsh__Pb__ParallelLayoutItem *, n);
	if (!map.parallel_strategy_item || !map.parallel_layout_item)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		const struct rsh_staged_item *s = &items->v[i];
		Rsh__Pb__ParallelLayoutItem *item = new_message(
			a, Rsh__Pb__ParallelLayoutItem,
			RSH__PB__PARALLEL_LAYOUT_ITEM__INIT);
		char *name = staged_name(a, s, items->n_stages);

		map.parallel_strategy_item[i] = new_op(a, s);
		map.parallel_layout_item[i] = item;
		if (!map.parallel_strategy_item[i] || !item || !name)
			return -ENOMEM;
		item->has_param_name = 1;
		item->param_name.data = (uint8_t *)name;
		item->param_name.len = strlen(name);
		item->parallel_layouts = new_layouts(a, &s->item);
		if (!item->parallel_layouts)
			return -ENOMEM;
	}
	map.has_current_stage = 1;
	map.current_stage = 1;
	map.n_parallel_strategy_item = n;
	map.n_parallel_layout_item = n;
	return strategy_pack(&map, out, len);
}

/* ---- JSON ---- */

/* Appends a number.  If out of memory, *list is freed and becomes NULL, which
 * makes json_pack() fail. */
static void json_put(json_t **list, json_int_t number)
{
	if (*list && json_array_append_new(*list, json_integer(number)) == 0)
		return;
	json_decref(*list);
	*list = NULL;
}

static json_t *json_layout(const struct rsh_strategy_item *it)
{
	json_t *mesh = json_array(), *map = json_array(), *l;

	for (uint32_t i = 0; i < it->n_mesh; i++)
		json_put(&mesh, it->mesh[i]);
	for (uint32_t i = 0; i < it->n_map; i++)
		json_put(&map, it->map[i].n ? it->map[i].axes[0] : -1);
	l = json_pack("{s:o,s:i,s:i,s:i,s:o}", "dev_matrix", mesh, "field", 0,
		      "opt_weight_shard_size", it->opt_size,
		      "opt_weight_shard_step", it->opt_step, "tensor_map", map);
	if (l && it->n_shape) {
		json_t *shape = json_array();

		for (uint32_t i = 0; i < it->n_shape; i++)
			json_put(&shape, it->shape[i]);
		if (json_object_set_new(l, "tensor_shape", shape)) {
			json_decref(l);
			return NULL;
		}
	}
	return l;
}

static json_t *json_op(const struct rsh_staged_item *s)
{
	json_t *all = json_array(), *split = json_array();

	for (uint32_t e = 0; e < s->item.n_map; e++)
		json_put(&split,
			 rsh_map_entry_split(&s->item, &s->item.map[e]));
	if (s->tuples && json_array_append(all, split)) {
		json_decref(all);
		all = NULL;
	}
	json_decref(split);
	return json_pack("{s:o,s:i}", "parallel_strategy", all, "stage",
			 (int)s->stage);
}

static int emit_json(struct rsh_arena *a, const struct rsh_staged_items *items,
		     void **out, size_t *len)
{
	json_t *ops = json_object(), *layouts = json_object();
	bool failed = !ops || !layouts;

	for (size_t i = 0; !failed && i < items->n; i++) {
		const struct rsh_staged_item *s = &items->v[i];
		const char *op = op_name(a, s);
		const char *name = staged_name(a, s, items->n_stages);

		failed = !op || !name ||
			 json_object_set_new(ops, op, json_op(s)) ||
			 json_object_set_new(layouts, name,
					     json_layout(&s->item));
	}
	if (failed) {
		json_decref(ops);
		json_decref(layouts);
		return -ENOMEM;
	}
	return strategy_dump(ops, layouts, out, len);
}

/* ---- both ---- */

int rsh_strategy_emit(const struct rsh_staged_items *items, bool json,
		      void **out, size_t *len, struct rsh_error *err)
{
	struct rsh_arena arena = { 0 };
	int rc;

	for (size_t i = 0; json && i < items->n; i++)
		if (items->v[i].item.nested)
			return rsh_error_set(err, EINVAL,
					     "parameter %s: a dimension split over several mesh axes cannot be written as JSON; write a *.ckpt file",
					     items->v[i].item.name);
	rc = json ? emit_json(&arena, items, out, len) :
		    emit_pb(&arena, items, out, len);
	rsh_arena_clear(&arena);
	return rc ? rsh_error_nomem(err) : 0;
}

/* ---- joining the files of stages ---- */

/* This is a file and its place in the list of files, for both formats. */
struct part {
	const struct rsh_strategy_bytes *file;
	uint32_t place; /* its place in the caller's list */
	int64_t stage;
	void *content; /* the parsed message or object */
};

static int no_strategy(const struct rsh_strategy_bytes *f, const char *what,
		       struct rsh_error *err)
{
	return rsh_error_set(err, EBADMSG, "%s: %s", f->path, what);
}

static int is_empty(const struct rsh_strategy_bytes *f, struct rsh_error *err)
{
	return no_strategy(f, "without strategy items or layout items it cannot be merged: its pipeline stage is not known",
			   err);
}

static int join_by_stage(const void *a, const void *b)
{
	const struct part *x = a, *y = b;

	if (x->stage != y->stage)
		return x->stage < y->stage ? -1 : 1;
	return x->place < y->place ? -1 : 1;
}

/* Returns whether an earlier file has the same stage.  Such a file adds
 * nothing. */
static bool is_repeated(const struct part *parts, size_t i)
{
	return i > 0 && parts[i].stage == parts[i - 1].stage;
}

/* ---- joining protobuf ---- */

static int unpack(struct part *p, struct rsh_error *err)
{
	Rsh__Pb__ParallelStrategyMap *map =
		rsh__pb__parallel_strategy_map__unpack(NULL, p->file->len,
						       p->file->data);
	const Rsh__Pb__ParallelStrategys *first;

	p->content = map;
	if (!map)
		return no_strategy(p->file, "not a strategy file in protobuf form, or damaged",
				   err);
	if (!map->n_parallel_strategy_item || !map->n_parallel_layout_item)
		return is_empty(p->file, err);
	first = map->parallel_strategy_item[0]->parallel_strategys;
	p->stage = first ? first->stage : 0;
	return 0;
}

/* This message uses items of the parsed messages, with other names during the
 * packing. */
struct joined {
	Rsh__Pb__ParallelStrategyMap map;
	Rsh__Pb__ParallelLayoutItem *items; /* copies with other names */
	char **names;
	size_t n_ops, n_items;
};

static int joined_add(struct joined *j, const struct part *p)
{
	const Rsh__Pb__ParallelStrategyMap *m = p->content;

	for (size_t i = 0; i < m->n_parallel_strategy_item; i++)
		j->map.parallel_strategy_item[j->n_ops++] =
			m->parallel_strategy_item[i];
	for (size_t i = 0; i < m->n_parallel_layout_item; i++) {
		Rsh__Pb__ParallelLayoutItem *item;
		ProtobufCBinaryData old;
		char *name;
		int n;

		j->items[j->n_items] = *m->parallel_layout_item[i];
		item = &j->items[j->n_items];
		old = item->param_name;
		n = asprintf(&name, "%lld-", (long long)p->stage);
		if (n < 0)
			return -ENOMEM;
		j->names[j->n_items] = realloc(name, (size_t)n + old.len);
		if (!j->names[j->n_items]) {
			free(name);
			return -ENOMEM;
		}
		name = j->names[j->n_items];
		if (old.len)
			memcpy(name + n, old.data, old.len);
		item->has_param_name = 1;
		item->param_name.data = (uint8_t *)name;
		item->param_name.len = (size_t)n + old.len;
		j->map.parallel_layout_item[j->n_items] = &j->items[j->n_items];
		j->n_items++;
	}
	return 0;
}

static int join_pb(const struct part *parts, size_t n, void **out, size_t *len,
		   struct rsh_error *err)
{
	struct joined j = { .map = RSH__PB__PARALLEL_STRATEGY_MAP__INIT };
	size_t ops = 0, items = 0;
	int rc;

	for (size_t i = 0; i < n; i++) {
		const Rsh__Pb__ParallelStrategyMap *m = parts[i].content;

		ops += m->n_parallel_strategy_item;
		items += m->n_parallel_layout_item;
	}
	j.map.parallel_strategy_item =
		rsh_alloc_array(ops, sizeof(*j.map.parallel_strategy_item));
	j.map.parallel_layout_item =
		rsh_alloc_array(items, sizeof(*j.map.parallel_layout_item));
	j.items = rsh_alloc_array(items, sizeof(*j.items));
	j.names = calloc(items, sizeof(*j.names));
	rc = j.map.parallel_strategy_item && j.map.parallel_layout_item &&
	     j.items && j.names ? 0 : -ENOMEM;
	for (size_t i = 0; !rc && i < n; i++)
		if (!is_repeated(parts, i))
			rc = joined_add(&j, &parts[i]);
	j.map.has_current_stage = 1;
	j.map.current_stage = 1;
	j.map.n_parallel_strategy_item = j.n_ops;
	j.map.n_parallel_layout_item = j.n_items;
	rc = rc ?: strategy_pack(&j.map, out, len);
	for (size_t i = 0; j.names && i < j.n_items; i++)
		free(j.names[i]);
	free(j.names);
	free(j.items);
	free(j.map.parallel_strategy_item);
	free(j.map.parallel_layout_item);
	return rc ? rsh_error_nomem(err) : 0;
}

/* ---- joining JSON ---- */

static int parse(struct part *p, struct rsh_error *err)
{
	json_t *root = NULL, *ops;
	const struct rsh_memory text = { p->file->data, p->file->len };
	int rc = rsh_json_load(&text, 0, p->file->path, "a strategy file", &root,
			       err);

	if (rc)
		return rc;
	p->content = root;
	ops = json_object_get(root, "parallel_strategy_item");
	if (!json_object_size(ops) ||
	    !json_object_size(json_object_get(root, "parallel_layout_item")))
		return is_empty(p->file, err);
	p->stage = json_integer_value(json_object_get(
		json_object_iter_value(json_object_iter(ops)), "stage"));
	return 0;
}

static int join_json(const struct part *parts, size_t n, void **out,
		     size_t *len, struct rsh_error *err)
{
	json_t *ops = json_object(), *layouts = json_object(), *layout;
	int rc = ops && layouts ? 0 : -ENOMEM;
	const char *name;

	for (size_t i = 0; !rc && i < n; i++) {
		json_t *root = parts[i].content;
		json_t *from = json_object_get(root, "parallel_layout_item");

		if (is_repeated(parts, i))
			continue;
		json_object_foreach(from, name, layout) {
			char *staged = rsh_text_format(
				"%lld-%s", (long long)parts[i].stage, name);

			rc = staged ? json_object_set(layouts, staged, layout) :
				      -ENOMEM;
			free(staged);
			if (rc)
				break;
		}
		rc = rc ?: json_object_update(ops, json_object_get(root,
					      "parallel_strategy_item"));
	}
	if (rc) {
		json_decref(ops);
		json_decref(layouts);
		return rsh_error_nomem(err);
	}
	if (strategy_dump(ops, layouts, out, len))
		return rsh_error_nomem(err);
	return 0;
}

/* ---- either format ---- */

int rsh_strategy_join(const struct rsh_strategy_bytes *files, size_t n,
		      bool json, void **out, size_t *len, struct rsh_error *err)
{
	cleanup_free struct part *parts = calloc(n, sizeof(*parts));
	int rc = parts ? 0 : rsh_error_nomem(err);

	for (size_t i = 0; !rc && i < n; i++) {
		parts[i].file = &files[i];
		parts[i].place = (uint32_t)i;
		rc = json ? parse(&parts[i], err) : unpack(&parts[i], err);
	}
	if (!rc) {
		qsort(parts, n, sizeof(*parts), join_by_stage);
		rc = json ? join_json(parts, n, out, len, err) :
			    join_pb(parts, n, out, len, err);
	}
	for (size_t i = 0; parts && i < n; i++) {
		if (json)
			json_decref(parts[i].content);
		else if (parts[i].content)
			rsh__pb__parallel_strategy_map__free_unpacked(
				parts[i].content, NULL);
	}
	return rc;
}
