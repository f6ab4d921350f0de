/* SPDX-License-Identifier: Apache-2.0 */
/* strategy/item.c answers simple questions about one parameter's layout as its
 * strategy file gives it. */
#include <stdio.h>
#include <string.h>

#include "rsh/strategy/strategy.h"

uint32_t rsh_item_ranks(const struct rsh_strategy_item *it)
{
	uint32_t n = 1;

	for (uint32_t i = 0; i < it->n_mesh; i++)
		n *= it->mesh[i];
	return n;
}

static bool entry_equal(const struct rsh_map_entry *a,
			const struct rsh_map_entry *b)
{
	return a->n == b->n &&
	       (a->n == 0 ||
		memcmp(a->axes, b->axes, a->n * sizeof(*a->axes)) == 0);
}

bool rsh_item_same_layout(const struct rsh_strategy_item *a,
			  const struct rsh_strategy_item *b)
{
	if (a == b)
		return true;
	if (!a || !b || a->n_mesh != b->n_mesh || a->n_map != b->n_map ||
	    a->nested != b->nested || a->opt_step != b->opt_step ||
	    a->opt_size != b->opt_size || a->n_shape != b->n_shape ||
	    memcmp(a->mesh, b->mesh, a->n_mesh * sizeof(*a->mesh)))
		return false;
	for (uint32_t i = 0; i < a->n_map; i++)
		if (!entry_equal(&a->map[i], &b->map[i]))
			return false;
	/* A shape counts since it may guide the folding of the map. */
	return a->n_shape == 0 ||
	       memcmp(a->shape, b->shape, a->n_shape * sizeof(*a->shape)) == 0;
}

/* Appends to a bounded text and cuts what does not fit. */
static void item_append(char *text, size_t size, size_t *at, const char *s)
{
	while (*s && *at + 1 < size)
		text[(*at)++] = *s++;
	text[*at] = '\0';
}

static void append_i64(char *text, size_t size, size_t *at, int64_t v)
{
	char buf[24];

	snprintf(buf, sizeof(buf), "%lld", (long long)v);
	item_append(text, size, at, buf);
}

static void append_mesh(char *text, size_t size, size_t *at,
			const struct rsh_strategy_item *it)
{
	item_append(text, size, at, "[");
	for (uint32_t i = 0; i < it->n_mesh; i++) {
		item_append(text, size, at, i ? "," : "");
		append_i64(text, size, at, it->mesh[i]);
	}
	item_append(text, size, at, "]");
}

static void append_map(char *text, size_t size, size_t *at,
		       const struct rsh_strategy_item *it)
{
	item_append(text, size, at, "[");
	for (uint32_t i = 0; i < it->n_map; i++) {
		const struct rsh_map_entry *e = &it->map[i];

		item_append(text, size, at, i ? "," : "");
		item_append(text, size, at, it->nested && e->n ? "[" : "");
		for (uint32_t k = 0; k < e->n; k++) {
			item_append(text, size, at, k ? "," : "");
			append_i64(text, size, at, e->axes[k]);
		}
		item_append(text, size, at, e->n == 0 ? "-1" : "");
		item_append(text, size, at, it->nested && e->n ? "]" : "");
	}
	item_append(text, size, at, "]");
}

const char *rsh_item_mesh_text(const struct rsh_strategy_item *it, char *text,
			       size_t size)
{
	size_t at = 0;

	append_mesh(text, size, &at, it);
	return text;
}

const char *rsh_item_map_text(const struct rsh_strategy_item *it, char *text,
			      size_t size)
{
	size_t at = 0;

	append_map(text, size, &at, it);
	return text;
}

const char *rsh_item_text(const struct rsh_strategy_item *it, char *text,
			  size_t size)
{
	size_t at = 0;

	if (!it) {
		item_append(text, size, &at, "unsharded");
		return text;
	}
	item_append(text, size, &at, "mesh ");
	append_mesh(text, size, &at, it);
	item_append(text, size, &at, " map ");
	append_map(text, size, &at, it);
	if (it->opt_step && it->opt_size) {
		item_append(text, size, &at, " optimizer shard ");
		append_i64(text, size, &at, it->opt_size);
	}
	return text;
}
