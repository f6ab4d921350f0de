/* SPDX-License-Identifier: Apache-2.0 */
/* strategy/item.c has simple functions for the layout of one parameter as its
 * strategy file has it. */
#include <string.h>

#include "rsh/strategy/strategy.h"
#include "rsh/util/text.h"

uint32_t rsh_item_ranks(const struct rsh_strategy_item *it)
{
	uint32_t n = 1;

	for (uint32_t i = 0; i < it->n_mesh; i++)
		n *= it->mesh[i];
	return n;
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
	for (uint32_t i = 0; i < a->n_map; i++) {
		const struct rsh_map_entry *x = &a->map[i], *y = &b->map[i];

		if (x->n != y->n ||
		    (x->n && memcmp(x->axes, y->axes, x->n * sizeof(*x->axes))))
			return false;
	}
	/* The shape is compared as well, because it may decide how the map is
	 * folded. */
	return a->n_shape == 0 ||
	       memcmp(a->shape, b->shape, a->n_shape * sizeof(*a->shape)) == 0;
}

const char *rsh_item_mesh_text(const struct rsh_strategy_item *it, char *text,
			       size_t size)
{
	size_t at = 0;

	rsh_text_add(text, size, &at, "[");
	for (uint32_t i = 0; i < it->n_mesh; i++)
		rsh_text_add(text, size, &at, "%s%u", i ? "," : "",
			     it->mesh[i]);
	rsh_text_add(text, size, &at, "]");
	return text;
}

const char *rsh_item_map_text(const struct rsh_strategy_item *it, char *text,
			      size_t size)
{
	size_t at = 0;

	rsh_text_add(text, size, &at, "[");
	for (uint32_t i = 0; i < it->n_map; i++) {
		const struct rsh_map_entry *e = &it->map[i];
		const bool nested = it->nested && e->n;

		rsh_text_add(text, size, &at, "%s%s", i ? "," : "",
			     nested ? "[" : "");
		for (uint32_t k = 0; k < e->n; k++)
			rsh_text_add(text, size, &at, "%s%d", k ? "," : "",
				     e->axes[k]);
		rsh_text_add(text, size, &at, "%s%s", e->n ? "" : "-1",
			     nested ? "]" : "");
	}
	rsh_text_add(text, size, &at, "]");
	return text;
}

const char *rsh_item_text(const struct rsh_strategy_item *it, char *text,
			  size_t size)
{
	size_t at = 0;

	if (!it) {
		rsh_text_add(text, size, &at, "unsharded");
		return text;
	}
	rsh_text_add(text, size, &at, "mesh ");
	if (at < size)
		rsh_item_mesh_text(it, text + at, size - at);
	at = strlen(text);
	rsh_text_add(text, size, &at, " map ");
	if (at < size)
		rsh_item_map_text(it, text + at, size - at);
	at = strlen(text);
	if (it->opt_step && it->opt_size)
		rsh_text_add(text, size, &at, " optimizer shard %d",
			     it->opt_size);
	return text;
}
