/* SPDX-License-Identifier: Apache-2.0 */
/* wire/checkpoint2_i.h - the declarations shared by the readers of
 * metadata.json.  Only this directory includes it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "json_scan_i.h"
#include "rsh/util/arena.h"
#include "rsh/wire/checkpoint2.h"

/* A greater rank means that the file is damaged. */
#define CKPT2_MAX_RANKS (INT64_C(1) << 20)

/* This is the public struct and the memory that it points to. */
struct ckpt2_owned {
	struct rsh_ckpt2 pub; /* first: the public pointer points to this */
	struct rsh_arena arena;
	struct rsh_strategy_file *layouts; /* each layout once */
};

/* ---- ranks (checkpoint2_layout.c) ---- */

/* These are the numbers as read. */
struct ckpt2_numbers {
	uint32_t *v;
	uint32_t n;
	size_t cap;
};

struct ckpt2_place {
	uint32_t rank, place;
};

/* This is a list of ranks.  Equal lists are kept once. */
struct ckpt2_list {
	struct rsh_ckpt2_ranks pub;
	/* sorted by rank; NULL: the ranks are first, first + 1, ... */
	const struct ckpt2_place *places;
};

/* This is a layout.  Equal layouts are kept once. */
struct ckpt2_layout {
	const struct ckpt2_list *list;
	uint32_t item;          /* its number among the builder's items */
	uint32_t n_slices;
	const uint32_t *slices; /* slice of each place of the mesh */
	uint32_t n_map;
	const uint32_t *splits; /* number of parts of each dimension */
};

struct strategy_builder;

struct ckpt2_layouts {
	struct rsh_arena *arena;
	/* the texts by which lists and layouts are found */
	struct rsh_names *texts;
	const void **kept;       /* indexed by the number of the text */
	size_t cap;
	struct strategy_builder *items;
	uint32_t n_items;
	struct ckpt2_numbers ranks; /* a buffer to read a list */
	char *text;
	size_t cap_text;
	uint32_t n_ranks;        /* 1 + the greatest rank so far */
};

int rsh_ckpt2_layouts_init(struct ckpt2_layouts *l, struct rsh_arena *arena,
			   const char *path);
void rsh_ckpt2_layouts_clear(struct ckpt2_layouts *l);

/* Reads a LAYOUT of the parameter s->name.  Returns NULL after a failure. */
const struct ckpt2_layout *rsh_ckpt2_layout_read(struct json_scan *s,
						 struct ckpt2_layouts *l);
/* Appends a list of ranks. */
bool rsh_ckpt2_ranks_read(struct json_scan *s, struct ckpt2_numbers *out);
/* Keeps the list.  Lists with the same ranks are kept once.  Returns NULL if
 * out of memory. */
const struct ckpt2_list *rsh_ckpt2_list_keep(struct ckpt2_layouts *l,
					     const struct ckpt2_numbers *ranks);
/* Returns the slice that the layout gives a rank.  A rank of another stage is
 * not in the list of n ranks; it has the slice of place rank % n. */
uint32_t rsh_ckpt2_slice_of(const struct ckpt2_layout *l, uint32_t rank);

/* ---- the reader (checkpoint2.c) ---- */

#define CKPT2_METADATA "state_dict_metadata"
#define CKPT2_STORAGE "storage_data"

/* This is a parameter with the data needed while the file is read. */
struct ckpt2_param {
	struct rsh_ckpt2_param pub; /* its layout is set at the end */
	const struct ckpt2_layout *layout;
	uint8_t *stored;            /* one bit for each slice */
	bool has_layout, has_shape; /* the file has them, possibly as null */
	/* the greatest number of a chunk; -1: there is none */
	int64_t top_chunk;
};

struct ckpt2_reader {
	struct json_scan scan;
	bool kept; /* the text was written by rsh_ckpt2_keep() */
	struct rsh_arena arena;
	struct ckpt2_layouts layouts;
	struct rsh_names *names; /* ids are indexes into params */
	struct ckpt2_param *params;
	size_t cap_params;
	struct rsh_names *file_names;
	struct rsh_ckpt2_file *files; /* indexed by the id of the name */
	size_t cap_files;
	struct ckpt2_numbers holders; /* of the current parameter */
	char *group;                  /* text of the previous rank_group */
	size_t n_group, cap_group;
};

/* ---- names (checkpoint2_name.c) ---- */

/* Reads "('NAME', (K,))" as Python writes it; the name is unescaped in
 * place. */
bool rsh_ckpt2_key_parse(const struct json_string *key,
			 struct json_string *name, uint32_t *slice);
