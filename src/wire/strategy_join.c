/* SPDX-License-Identifier: Apache-2.0 */
/* wire/strategy_join.c joins the files of a pipeline's stages into one. */
#include "rsh/util/text.h"
#include "rsh/wire/strategy_emit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "node_strategy.pb-c.h"
#include "rsh/util/mem.h"
#include "rsh/wire/json_load.h"
#include "strategy_emit_i.h"

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

/* ---- protobuf ---- */

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
		j->map.parallel_layout_item[j->n_items] =
			&j->items[j->n_items];
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
	rc = rc ?: rsh_strategy_pack(&j.map, out, len);
	for (size_t i = 0; j.names && i < j.n_items; i++)
		free(j.names[i]);
	free(j.names);
	free(j.items);
	free(j.map.parallel_strategy_item);
	free(j.map.parallel_layout_item);
	return rc ? rsh_error_nomem(err) : 0;
}

/* ---- JSON ---- */

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
			char *staged;

			staged = rsh_text_format("%lld-%s",
						 (long long)parts[i].stage,
						 name);
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
	if (rsh_strategy_dump(ops, layouts, out, len))
		return rsh_error_nomem(err);
	return 0;
}

/* ---- both ---- */

int rsh_strategy_join(const struct rsh_strategy_bytes *files, size_t n,
		      bool json, void **out, size_t *len,
		      struct rsh_error *err)
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
