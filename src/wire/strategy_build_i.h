/* SPDX-License-Identifier: Apache-2.0 */
/* wire/strategy_build_i.h - the builder of strategy files.  Both readers pass
 * it what they read.  It checks every number once and packs a file into one
 * arena.  Only this directory includes it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rsh/util/arena.h"
#include "rsh/util/error.h"
#include "rsh/wire/strategy_file.h"

/* These are the numbers of the file. `n` counts all of them, also those that do
 * not fit into the array; an item with such numbers is an error. */
struct raw_list {
	uint32_t n;
	int64_t v[RSH_STRATEGY_MAX_DIMS];
};

/* This is a layout item before its check. */
struct raw_item {
	const char *name; /* not NUL-terminated */
	size_t name_len;
	struct raw_list mesh;
	bool nested;
	bool has_map;
	uint32_t n_map; /* counts all entries, as n of raw_list does */
	struct raw_list map[RSH_STRATEGY_MAX_DIMS];
	struct raw_list shape;
	/* There may be as many as ranks; the builder's arena owns them.  The
	 * size of a file limits their number. */
	const int64_t *rows;
	size_t n_rows;
	const int64_t *offsets;
	size_t n_offsets;
	int64_t opt_step;
	int64_t opt_size;
};

void rsh_raw_list_push(struct raw_list *l, int64_t v);
/* Adds an empty entry to the item's map and returns it.  It is valid until the
 * next call. */
struct raw_list *rsh_raw_item_push_map(struct raw_item *raw);
/* Empties the item. */
void rsh_raw_item_reset(struct raw_item *raw);

struct strategy_builder {
	const char *path;
	/* owns everything that the finished file points to */
	struct rsh_arena arena;
	struct rsh_names *seen; /* ids are indexes of items */
	struct rsh_strategy_item *items;
	size_t cap_items;
	uint32_t n_items;
	bool json;
	bool has_stage;
	uint32_t first_stage;
	struct rsh_strategy_op *ops;
	size_t cap_ops;
	uint32_t n_ops;
	/* Gets the message about a bad item, which is left out; NULL: a bad
	 * item is an error. */
	rsh_strategy_report_fn *report;
	void *report_ctx;
	uint32_t n_reported;
};

/* Makes a builder.  Returns NULL if out of memory. `path` must outlive the
 * builder. */
struct strategy_builder *rsh_strategy_builder_new(const char *path, bool json);
void rsh_strategy_builder_free(struct strategy_builder *b);
/* Sets the stage of the file's first strategy item.  Call this at most once. */
int rsh_strategy_builder_stage(struct strategy_builder *b, int64_t stage,
			       struct rsh_error *err);
int rsh_strategy_builder_item(struct strategy_builder *b,
			      const struct raw_item *raw,
			      struct rsh_error *err);
/* Adds an operator; the `len` bytes at `name` are copied. */
int rsh_strategy_builder_op(struct strategy_builder *b, const char *name,
			    size_t len, bool tuples, struct rsh_error *err);
/* Takes the file out of the builder, which can then only be freed. */
int rsh_strategy_builder_finish(struct strategy_builder *b,
				struct rsh_strategy_file **out,
				struct rsh_error *err);
