/* SPDX-License-Identifier: Apache-2.0 */
/* wire/strategy_build.c checks each number of a strategy file once and packs
 * the valid items into one arena. */
#include "strategy_build_i.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/mem.h"
#include "rsh/util/names.h"

/* ---- raw items ---- */

void rsh_raw_list_push(struct raw_list *l, int64_t v)
{
	if (l->n < RSH_STRATEGY_MAX_DIMS)
		l->v[l->n] = v;
	l->n++;
}

struct raw_list *rsh_raw_item_push_map(struct raw_item *raw)
{
	uint32_t i = raw->n_map++;
	struct raw_list *entry;

	if (i >= RSH_STRATEGY_MAX_DIMS)
		i = RSH_STRATEGY_MAX_DIMS - 1; /* it is counted, but not kept */
	entry = &raw->map[i];
	entry->n = 0;
	return entry;
}

void rsh_raw_item_reset(struct raw_item *raw)
{
	raw->name = NULL;
	raw->name_len = 0;
	raw->nested = raw->has_map = false;
	raw->mesh.n = raw->n_map = raw->shape.n = 0;
	raw->rows = raw->offsets = NULL;
	raw->n_rows = raw->n_offsets = 0;
	raw->opt_step = raw->opt_size = 0;
}

/* ---- checks ---- */

/* This is an item during its check, with what the sentences need. */
struct check {
	const struct strategy_builder *b;
	const struct raw_item *raw;
	struct rsh_error *err;
};

static int bad_item(const struct check *c, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static int bad_item(const struct check *c, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	rsh_error_vset(c->err, EBADMSG, fmt, ap);
	va_end(ap);
	rsh_error_prefix(c->err, "%s: layout of parameter \"%.*s\"",
			 c->b->path, (int)c->raw->name_len, c->raw->name);
	return -EBADMSG;
}

static int check_mesh(const struct check *c)
{
	const struct raw_list *mesh = &c->raw->mesh;
	int64_t product = 1;

	if (!mesh->n)
		return bad_item(c, "no device matrix: a strategy of pipeline parallelism alone does not describe slices");
	if (mesh->n > RSH_STRATEGY_MAX_DIMS)
		return bad_item(c, "a device matrix of %" PRIu32 " dimensions",
				mesh->n);
	for (uint32_t i = 0; i < mesh->n; i++) {
		if (mesh->v[i] < 1 || mesh->v[i] > INT32_MAX)
			return bad_item(c, "size %" PRId64
					" in the device matrix", mesh->v[i]);
		product *= mesh->v[i];
		if (product > INT32_MAX)
			return bad_item(c, "a device matrix of more than 2^31 devices");
	}
	return 0;
}

static int map_check_entry(const struct check *c, const struct raw_list *entry,
			   uint64_t *used)
{
	if (entry->n > RSH_STRATEGY_MAX_DIMS)
		return bad_item(c, "%" PRIu32 " mesh axes on one dimension",
				entry->n);
	if (entry->n == 1 && entry->v[0] == -1)
		return 0;
	for (uint32_t i = 0; i < entry->n; i++) {
		int64_t axis = entry->v[i];

		if (axis < 0 || axis >= c->raw->mesh.n)
			return bad_item(c, "the tensor map names mesh axis %" PRId64
					", the device matrix has %" PRIu32,
					axis, c->raw->mesh.n);
		if (*used & UINT64_C(1) << axis)
			return bad_item(c, "the tensor map uses mesh axis %" PRId64
					" twice", axis);
		*used |= UINT64_C(1) << axis;
	}
	return 0;
}

static int build_check_item(const struct check *c)
{
	const struct raw_item *raw = c->raw;
	const struct raw_list *shape = &raw->shape;
	uint64_t used = 0;
	int rc;

	if (!raw->name_len)
		return rsh_error_set(c->err, EBADMSG,
				     "%s: layout item %" PRIu32
				     " has no parameter name",
				     c->b->path, c->b->n_items + 1);
	if (raw->name_len > INT32_MAX ||
	    memchr(raw->name, '\0', raw->name_len))
		return rsh_error_set(c->err, EBADMSG,
				     "%s: the parameter name of layout item %" PRIu32
				     " is damaged",
				     c->b->path, c->b->n_items + 1);
	rc = check_mesh(c);
	if (rc)
		return rc;
	if (!raw->has_map)
		return bad_item(c, "no tensor map");
	if (raw->n_map > RSH_STRATEGY_MAX_DIMS)
		return bad_item(c, "a tensor map of %" PRIu32 " dimensions",
				raw->n_map);
	for (uint32_t i = 0; i < raw->n_map; i++) {
		rc = map_check_entry(c, &raw->map[i], &used);
		if (rc)
			return rc;
	}
	if (shape->n > RSH_STRATEGY_MAX_DIMS)
		return bad_item(c, "a shape of %" PRIu32 " dimensions",
				shape->n);
	for (uint32_t i = 0; i < shape->n; i++)
		if (shape->v[i] < 0)
			return bad_item(c, "dimension %" PRId64 " in the shape",
					shape->v[i]);
	if (raw->opt_step < 0 || raw->opt_step > INT32_MAX)
		return bad_item(c, "opt_weight_shard_step is %" PRId64,
				raw->opt_step);
	if (raw->opt_size < -1 || raw->opt_size > INT32_MAX)
		return bad_item(c, "opt_weight_shard_size is %" PRId64,
				raw->opt_size);
	return 0;
}

/* ---- packing; all numbers are in range now ---- */

/* Returns whether each offset is the sum of the rows before it. */
static bool rows_follow(const struct raw_item *raw)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < raw->n_rows; i++) {
		if (raw->n_offsets != raw->n_rows ||
		    (uint64_t)raw->offsets[i] != sum)
			return false;
		sum += (uint64_t)raw->rows[i];
	}
	return raw->n_rows > 0;
}

static bool pack_item(struct rsh_arena *a, const struct raw_item *raw,
		      struct rsh_strategy_item *item)
{
	char *name = rsh_arena_strndup(a, raw->name, raw->name_len);
	uint32_t *mesh = rsh_arena_array(a, uint32_t, raw->mesh.n);
	int64_t *shape = rsh_arena_array(a, int64_t, raw->shape.n);
	struct rsh_map_entry *map =
		rsh_arena_array(a, struct rsh_map_entry, raw->n_map);
	uint32_t n = 0;

	if (!name || !mesh || !shape || !map)
		return false;
	for (uint32_t i = 0; i < raw->mesh.n; i++)
		mesh[i] = (uint32_t)raw->mesh.v[i];
	memcpy(shape, raw->shape.v, raw->shape.n * sizeof(*shape));
	for (uint32_t i = 0; i < raw->n_map; i++) {
		const struct raw_list *entry = &raw->map[i];
		int32_t *axes;

		/* MindSpore appends an empty message to the map of a tensor
		 * with one dimension, so that the map has more than one
		 * message. */
		if (!entry->n)
			continue;
		map[n++] = (struct rsh_map_entry){ 0, NULL };
		if (entry->n == 1 && entry->v[0] == -1)
			continue;
		axes = rsh_arena_array(a, int32_t, entry->n);
		if (!axes)
			return false;
		for (uint32_t k = 0; k < entry->n; k++)
			axes[k] = (int32_t)entry->v[k];
		map[n - 1] = (struct rsh_map_entry){ entry->n, axes };
	}
	*item = (struct rsh_strategy_item){
		.name = name, .n_mesh = raw->mesh.n, .mesh = mesh,
		.n_map = n, .map = map, .nested = raw->nested,
		.n_shape = raw->shape.n, .shape = shape,
		.n_rows = (uint32_t)raw->n_rows, .rows = raw->rows,
		.n_offsets = (uint32_t)raw->n_offsets,
		.rows_follow = rows_follow(raw),
		.opt_step = (int32_t)raw->opt_step,
		.opt_size = (int32_t)raw->opt_size,
	};
	return true;
}

/* ---- the builder ---- */

struct strategy_builder *rsh_strategy_builder_new(const char *path, bool json)
{
	struct strategy_builder *b = calloc(1, sizeof(*b));

	if (!b)
		return NULL;
	b->path = path;
	b->json = json;
	b->seen = rsh_names_new();
	if (!b->seen) {
		free(b);
		return NULL;
	}
	return b;
}

void rsh_strategy_builder_free(struct strategy_builder *b)
{
	if (!b)
		return;
	rsh_arena_clear(&b->arena);
	rsh_names_free(b->seen);
	free(b->items);
	free(b->ops);
	free(b);
}

int rsh_strategy_builder_stage(struct strategy_builder *b, int64_t stage,
			       struct rsh_error *err)
{
	if (stage < 0 || stage > INT32_MAX)
		return rsh_error_set(err, EBADMSG,
				     "%s: the first strategy item is of stage %" PRId64,
				     b->path, stage);
	b->has_stage = true;
	b->first_stage = (uint32_t)stage;
	return 0;
}

int rsh_strategy_builder_op(struct strategy_builder *b, const char *name,
			    size_t len, bool tuples, struct rsh_error *err)
{
	char *copy = rsh_arena_strndup(&b->arena, len ? name : "", len);

	if (!copy || b->n_ops == UINT32_MAX ||
	    rsh_push(b->ops, b->n_ops, b->cap_ops,
		     (struct rsh_strategy_op){ copy, tuples }))
		return rsh_error_nomem(err);
	return 0;
}

int rsh_strategy_builder_item(struct strategy_builder *b,
			      const struct raw_item *raw, struct rsh_error *err)
{
	struct rsh_error bad = RSH_ERROR_INIT;
	const struct check check = { b, raw, b->report ? &bad : err };
	struct rsh_strategy_item item;
	uint32_t i;
	int rc = build_check_item(&check);

	if (rc && b->report) {
		b->report(b->report_ctx, bad.text);
		b->n_reported++;
		return 0;
	}
	if (rc)
		return rc;
	i = rsh_names_add(b->seen, raw->name, raw->name_len);
	if (i == RSH_NAME_NONE || !pack_item(&b->arena, raw, &item) ||
	    rsh_room(b->items, b->cap_items, (size_t)i + 1))
		return rsh_error_nomem(err);
	b->items[i] = item;
	b->n_items = rsh_names_count(b->seen);
	return 0;
}

int rsh_strategy_builder_finish(struct strategy_builder *b,
				struct rsh_strategy_file **out,
				struct rsh_error *err)
{
	struct rsh_strategy_item *items = rsh_arena_array(
		&b->arena, struct rsh_strategy_item, b->n_items);
	struct rsh_strategy_op *ops = rsh_arena_array(
		&b->arena, struct rsh_strategy_op, b->n_ops);
	char *path = rsh_arena_strdup(&b->arena, b->path);
	struct rsh_arena *arena = malloc(sizeof(*arena));
	struct rsh_strategy_file *f = calloc(1, sizeof(*f));

	if (!items || !ops || !path || !arena || !f) {
		free(arena);
		free(f);
		return rsh_error_nomem(err);
	}
	if (b->n_items)
		memcpy(items, b->items, b->n_items * sizeof(*items));
	if (b->n_ops)
		memcpy(ops, b->ops, b->n_ops * sizeof(*ops));
	*arena = b->arena;
	b->arena = (struct rsh_arena){ 0 };
	*f = (struct rsh_strategy_file){
		.path = path,
		.json = b->json,
		.has_stage = b->has_stage,
		.first_stage = b->first_stage,
		.n_ops = b->n_ops,
		.ops = ops,
		.n_items = b->n_items,
		.items = items,
		.arena_ = arena,
	};
	*out = f;
	return 0;
}

void rsh_strategy_file_free(struct rsh_strategy_file *f)
{
	if (!f)
		return;
	rsh_arena_clear(f->arena_);
	free(f->arena_);
	free(f);
}
