/* SPDX-License-Identifier: Apache-2.0 */
/* wire/checkpoint2_i.h - what the readers of metadata.json share.  Only this
 * room includes it. */
#ifndef RSH_WIRE_CHECKPOINT2_I_H
#define RSH_WIRE_CHECKPOINT2_I_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "json_scan_i.h"
#include "rsh/util/arena.h"
#include "rsh/wire/checkpoint2.h"

/* A rank beyond is a damaged file. */
#define CKPT2_MAX_RANKS (INT64_C(1) << 20)

/* This is the public struct with what it points into. */
struct ckpt2_owned {
	struct rsh_ckpt2 pub; /* first: the public pointer is this one */
	struct rsh_arena arena;
	struct rsh_strategy_file *layouts; /* its items, each once */
};

/* ---- ranks (checkpoint2_layout.c) ---- */

/* Numbers as they were read. */
struct ckpt2_numbers {
	uint32_t *v;
	uint32_t n;
	size_t cap;
};

struct ckpt2_place {
	uint32_t rank, place;
};

/* This is a list of ranks that is kept once. */
struct ckpt2_list {
	struct rsh_ckpt2_ranks pub;
	/* By rank; NULL: the ranks are first, first + 1, ... */
	const struct ckpt2_place *places;
};

/* This is a layout that is kept once. */
struct ckpt2_layout {
	const struct ckpt2_list *list;
	uint32_t item;          /* its number among those of the builder */
	uint32_t n_slices;
	const uint32_t *slices; /* of each place */
	uint32_t n_map;
	const uint32_t *splits; /* of each dimension */
};

struct strategy_builder;

struct ckpt2_layouts {
	struct rsh_arena *arena;
	struct rsh_names *texts; /* which tell lists and layouts apart */
	const void **kept;       /* by the number of its text */
	size_t cap;
	struct strategy_builder *items;
	uint32_t n_items;
	struct ckpt2_numbers ranks; /* room to read a list */
	char *text;
	size_t cap_text;
	uint32_t n_ranks;        /* 1 + the greatest rank so far */
};

int rsh_ckpt2_layouts_init(struct ckpt2_layouts *l, struct rsh_arena *arena,
			   const char *path);
void rsh_ckpt2_layouts_clear(struct ckpt2_layouts *l);

/* Reads a LAYOUT of the parameter s->name; NULL is a failure. */
const struct ckpt2_layout *rsh_ckpt2_layout_read(struct json_scan *s,
						 struct ckpt2_layouts *l);
/* Appends a list of ranks. */
bool rsh_ckpt2_ranks_read(struct json_scan *s, struct ckpt2_numbers *out);
/* Keeps the list, whose ranks differ; NULL means out of memory. */
const struct ckpt2_list *rsh_ckpt2_list_keep(struct ckpt2_layouts *l,
					     const struct ckpt2_numbers *ranks);
/* Returns which slice the layout gives a rank.  One of another stage holds that
 * of its place counted around. */
uint32_t rsh_ckpt2_slice_of(const struct ckpt2_layout *l, uint32_t rank);

/* ---- names (checkpoint2_name.c) ---- */

/* Reads "('NAME', (K,))" as Python writes it; the name is unescaped in
 * place. */
bool rsh_ckpt2_key_parse(const struct json_string *key,
			 struct json_string *name, uint32_t *slice);

#endif
