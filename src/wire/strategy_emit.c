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
#include "rsh/util/log.h"
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
	return n_stages == 1 ? rsh_arena_strdup(a, s->item.name) :
	       rsh_arena_format(a, "%u-%s", s->stage, s->item.name);
}

static char *op_name(struct rsh_arena *a, const struct rsh_staged_item *s)
{
	return rsh_arena_format(a, "Parameter_%s", s->item.name);
}

/* ---- protobuf ---- */

/* These are the messages of a parameter: its layout and its operator.  The
 * planner always writes one message of each kind; most are empty. */
struct messages {
	Rsh__Pb__ParallelLayoutItem item;
	Rsh__Pb__ParallelLayouts layouts;
	Rsh__Pb__DevMatrix mesh, *mesh_at;
	Rsh__Pb__ParamSplitShape shape, *shape_at;
	Rsh__Pb__IndicesOffset offset, *offset_at;
	Rsh__Pb__ParallelStrategyItem op;
	Rsh__Pb__ParallelStrategys strategys;
	Rsh__Pb__ParallelStrategy split, *split_at;
};

/* Adds a message to the map, which has room for it.  Returns its numbers; NULL:
 * out of memory. */
static int32_t *add_map(struct rsh_arena *a, Rsh__Pb__ParallelLayouts *l,
			size_t n_dim)
{
	Rsh__Pb__TensorMap *m = rsh_arena_array(a, Rsh__Pb__TensorMap, 1);

	if (!m)
		return NULL;
	*m = (Rsh__Pb__TensorMap)RSH__PB__TENSOR_MAP__INIT;
	m->dim = rsh_arena_array(a, int32_t, n_dim);
	m->n_dim = n_dim;
	l->tensor_map[l->n_tensor_map++] = m;
	return m->dim;
}

/* In a flat map each number is a dimension; in a nested map each message is
 * one. */
static void fill_map(struct rsh_arena *a, Rsh__Pb__ParallelLayouts *l,
		     const struct rsh_strategy_item *it)
{
	int32_t *dim;

	l->tensor_map = rsh_arena_array(a, Rsh__Pb__TensorMap *,
					(size_t)it->n_map + 1);
	if (!l->tensor_map)
		return;
	dim = it->nested ? NULL : add_map(a, l, it->n_map);
	for (uint32_t i = 0; i < it->n_map && !a->failed; i++) {
		const struct rsh_map_entry *e = &it->map[i];

		if (!it->nested) {
			dim[i] = e->n ? e->axes[0] : -1;
			continue;
		}
		dim = add_map(a, l, e->n ? e->n : 1);
		if (dim && e->n)
			memcpy(dim, e->axes, e->n * sizeof(*dim));
		else if (dim)
			dim[0] = -1;
	}
	/* A single message would be read as a flat map. */
	if (it->nested && it->n_map == 1)
		add_map(a, l, 0);
}

static void fill_messages(struct rsh_arena *a, const struct rsh_staged_item *s,
			  uint32_t n_stages, struct messages *m)
{
	const struct rsh_strategy_item *it = &s->item;
	char *name = staged_name(a, s, n_stages), *op = op_name(a, s);

	*m = (struct messages){
		.item = RSH__PB__PARALLEL_LAYOUT_ITEM__INIT,
		.layouts = RSH__PB__PARALLEL_LAYOUTS__INIT,
		.mesh = RSH__PB__DEV_MATRIX__INIT, .mesh_at = &m->mesh,
		.shape = RSH__PB__PARAM_SPLIT_SHAPE__INIT,
		.shape_at = &m->shape,
		.offset = RSH__PB__INDICES_OFFSET__INIT,
		.offset_at = &m->offset,
		.op = RSH__PB__PARALLEL_STRATEGY_ITEM__INIT,
		.strategys = RSH__PB__PARALLEL_STRATEGYS__INIT,
		.split = RSH__PB__PARALLEL_STRATEGY__INIT,
		.split_at = &m->split,
	};
	m->mesh.dim = rsh_arena_array(a, uint32_t, it->n_mesh);
	m->split.dim = rsh_arena_array(a, uint32_t, it->n_map);
	fill_map(a, &m->layouts, it);
	if (a->failed)
		return;
	m->item.has_param_name = 1;
	m->item.param_name.data = (uint8_t *)name;
	m->item.param_name.len = strlen(name);
	m->item.parallel_layouts = &m->layouts;
	memcpy(m->mesh.dim, it->mesh, it->n_mesh * sizeof(*m->mesh.dim));
	m->mesh.n_dim = it->n_mesh;
	m->layouts.dev_matrix = &m->mesh_at;
	m->layouts.param_split_shape = &m->shape_at;
	m->layouts.indices_offset = &m->offset_at;
	m->layouts.n_dev_matrix = m->layouts.n_param_split_shape =
		m->layouts.n_indices_offset = 1;
	m->layouts.has_field = 1;
	m->layouts.has_opt_weight_shard_step = 1;
	m->layouts.opt_weight_shard_step = it->opt_step;
	m->layouts.has_opt_weight_shard_size = 1;
	m->layouts.opt_weight_shard_size = it->opt_size;
	/* The operator has the number of slices of each dimension. */
	m->op.has_node_name = 1;
	m->op.node_name.data = (uint8_t *)op;
	m->op.node_name.len = strlen(op);
	m->op.parallel_strategys = &m->strategys;
	m->strategys.has_stage = 1;
	m->strategys.stage = s->stage;
	m->strategys.parallel_strategy = &m->split_at;
	m->strategys.n_parallel_strategy = s->tuples;
	m->split.n_dim = it->n_map;
	for (uint32_t e = 0; e < it->n_map; e++)
		m->split.dim[e] = rsh_map_entry_split(it, &it->map[e]);
}

static int emit_pb(struct rsh_arena *a, const struct rsh_staged_items *items,
		   void **out, size_t *len)
{
	const size_t n = items->n;
	Rsh__Pb__ParallelStrategyMap map = RSH__PB__PARALLEL_STRATEGY_MAP__INIT;
	struct messages *m = rsh_arena_array(a, struct messages, n);

	map.parallel_strategy_item =
		rsh_arena_array(a, Rsh__Pb__ParallelStrategyItem *, n);
	map.parallel_layout_item =
		rsh_arena_array(a, Rsh__Pb__ParallelLayoutItem *, n);
	for (size_t i = 0; i < n && !a->failed; i++) {
		fill_messages(a, &items->v[i], items->n_stages, &m[i]);
		map.parallel_strategy_item[i] = &m[i].op;
		map.parallel_layout_item[i] = &m[i].item;
	}
	map.has_current_stage = 1;
	map.current_stage = 1;
	map.n_parallel_strategy_item = n;
	map.n_parallel_layout_item = n;
	return a->failed ? -ENOMEM : strategy_pack(&map, out, len);
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
	cleanup_json json_t *split = json_array();
	json_t *all = json_array();

	for (uint32_t e = 0; e < s->item.n_map; e++)
		json_put(&split,
			 rsh_map_entry_split(&s->item, &s->item.map[e]));
	if (s->tuples && json_array_append(all, split)) {
		json_decref(all);
		all = NULL;
	}
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
	cleanup_arena struct rsh_arena arena = { 0 };
	int rc;

	for (size_t i = 0; json && i < items->n; i++)
		if (items->v[i].item.nested)
			return rsh_error_set(err, EINVAL,
					     "parameter %s: a dimension split over several mesh axes cannot be written as JSON; write a *.ckpt file",
					     items->v[i].item.name);
	rc = json ? emit_json(&arena, items, out, len) :
		    emit_pb(&arena, items, out, len);
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

static int is_empty(const struct rsh_strategy_bytes *f, struct rsh_error *err)
{
	return rsh_error_set(err, EBADMSG,
			     "%s: without strategy items or layout items it "
			     "cannot be merged: its pipeline stage is not "
			     "known",
			     f->path);
}

RSH_ORDER(join_by_stage, struct part,
	  (x->stage > y->stage) - (x->stage < y->stage) ?:
	  rsh_compare_u64(x->place, y->place))

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
		return rsh_error_set(err, EBADMSG,
				     "%s: not a strategy file in protobuf "
				     "form, or damaged",
				     p->file->path);
	if (!map->n_parallel_strategy_item || !map->n_parallel_layout_item)
		return is_empty(p->file, err);
	first = map->parallel_strategy_item[0]->parallel_strategys;
	p->stage = first ? first->stage : 0;
	return 0;
}

/* Adds the items of a file to the map, which has room for them; those of
 * layouts are copies with other names. */
static void join_add(struct rsh_arena *a, Rsh__Pb__ParallelStrategyMap *map,
		     Rsh__Pb__ParallelLayoutItem *items, const struct part *p)
{
	const Rsh__Pb__ParallelStrategyMap *m = p->content;
	char stage[24];
	const size_t n = (size_t)snprintf(stage, sizeof(stage), "%lld-",
					  (long long)p->stage);

	for (size_t i = 0; i < m->n_parallel_strategy_item; i++)
		map->parallel_strategy_item[map->n_parallel_strategy_item++] =
			m->parallel_strategy_item[i];
	for (size_t i = 0; i < m->n_parallel_layout_item; i++) {
		Rsh__Pb__ParallelLayoutItem *item =
			&items[map->n_parallel_layout_item];
		const ProtobufCBinaryData *old =
			&m->parallel_layout_item[i]->param_name;
		uint8_t *name = rsh_arena_alloc(a, n + old->len, 1);

		if (!name)
			return;
		memcpy(name, stage, n);
		if (old->len)
			memcpy(name + n, old->data, old->len);
		*item = *m->parallel_layout_item[i];
		item->has_param_name = 1;
		item->param_name.data = name;
		item->param_name.len = n + old->len;
		map->parallel_layout_item[map->n_parallel_layout_item++] = item;
	}
}

static int join_pb(const struct part *parts, size_t n, void **out, size_t *len,
		   struct rsh_error *err)
{
	Rsh__Pb__ParallelStrategyMap map = RSH__PB__PARALLEL_STRATEGY_MAP__INIT;
	Rsh__Pb__ParallelLayoutItem *copies;
	cleanup_arena struct rsh_arena a = { 0 };
	size_t ops = 0, items = 0;
	int rc;

	for (size_t i = 0; i < n; i++) {
		const Rsh__Pb__ParallelStrategyMap *m = parts[i].content;

		ops += m->n_parallel_strategy_item;
		items += m->n_parallel_layout_item;
	}
	map.parallel_strategy_item =
		rsh_arena_array(&a, Rsh__Pb__ParallelStrategyItem *, ops);
	map.parallel_layout_item =
		rsh_arena_array(&a, Rsh__Pb__ParallelLayoutItem *, items);
	copies = rsh_arena_array(&a, Rsh__Pb__ParallelLayoutItem, items);
	map.has_current_stage = 1;
	map.current_stage = 1;
	for (size_t i = 0; !a.failed && i < n; i++)
		if (!is_repeated(parts, i))
			join_add(&a, &map, copies, &parts[i]);
	rc = a.failed ? -ENOMEM : strategy_pack(&map, out, len);
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

/* merge_pipeline_strategys leaves out files of a stage that it has, whatever
 * they say. */
static void join_tell_repeated(const struct part *parts, size_t n)
{
	const struct rsh_strategy_bytes *first = NULL, *f;

	for (size_t i = 0; i < n; i++) {
		f = parts[i].file;
		if (!is_repeated(parts, i))
			first = f;
		else if (f->len != first->len ||
			 memcmp(f->data, first->data, f->len) != 0)
			rsh_log_warning("%s: it is of stage %lld like %s, but "
					"has other content, and is left out",
					f->path, (long long)parts[i].stage,
					first->path);
	}
}

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
		rsh_sort(parts, n, join_by_stage);
		join_tell_repeated(parts, n);
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
