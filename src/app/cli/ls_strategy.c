/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/ls_strategy.c prints how each parameter is cut, and which ranks hold
 * the same slice, for `ls STRATEGY`. */
#include "config.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ls.h"
#include "rsh/strategy/grid.h"

/* This is the layout of one parameter in one stage. */
struct layout {
	const struct rsh_strategy_item *item;
	uint32_t stage;
	uint32_t first_rank; /* first rank of the stage */
	struct rsh_grid *grid; /* NULL: the layout is not valid */
};

static void layout_init(struct layout *l, const struct rsh_strategy *s,
			const struct rsh_param_stage *in)
{
	*l = (struct layout){
		.item = in->item,
		.stage = in->stage,
		.first_rank = in->stage * s->stage_ranks,
	};
	if (rsh_grid_new_unsized(in->item, &l->grid, NULL))
		l->grid = NULL;
}

/* Returns whether `rank` is the first rank that holds its slice.  All ranks of
 * the slice are printed with this one. */
static bool leads_group(const struct layout *l, uint32_t rank)
{
	return rsh_grid_replica(l->grid, rank) == 0;
}

static uint32_t group_member(const struct layout *l, uint32_t rank, uint32_t i)
{
	uint32_t cell[RSH_MAX_DIMS];

	rsh_grid_cell(l->grid, rank, cell);
	return l->first_rank + rsh_grid_member(l->grid, cell, i);
}

/* ---- JSON ---- */

static json_t *map_json(const struct rsh_strategy_item *it)
{
	json_t *map = json_array();

	for (uint32_t i = 0; i < it->n_map; i++) {
		json_t *axes = json_array();

		for (uint32_t k = 0; k < it->map[i].n; k++)
			json_array_append_new(
				axes, json_integer(it->map[i].axes[k]));
		json_array_append_new(map, axes);
	}
	return map;
}

static json_t *split_json(const struct layout *l)
{
	json_t *split = json_array();

	for (uint32_t d = 0; d < rsh_grid_n_dims(l->grid); d++)
		json_array_append_new(split,
				      json_integer(rsh_grid_split(l->grid, d)));
	return split;
}

static json_t *layout_replicas_json(const struct layout *l)
{
	json_t *groups = json_array();

	for (uint32_t r = 0; r < rsh_grid_n_ranks(l->grid); r++) {
		json_t *group;

		if (!leads_group(l, r))
			continue;
		group = json_array();
		for (uint32_t i = 0; i < rsh_grid_n_replicas(l->grid); i++)
			json_array_append_new(
				group, json_integer(group_member(l, r, i)));
		json_array_append_new(groups, group);
	}
	return groups;
}

/* JSON strategies have the shape, which is printed unchanged. */
static json_t *layout_json(const struct layout *l, const char *name)
{
	const struct rsh_strategy_item *it = l->item;

	return json_pack("{s:o,s:i,s:o,s:o,s:o,s:o,s:o,s:o}", "name",
			 rsh_json_text(name), "stage", (int)l->stage, "mesh",
			 rsh_json_u32s(it->mesh, it->n_mesh), "map",
			 map_json(it), "shape", it->n_shape ?
			 rsh_ls_shape_json(it->shape, it->n_shape) :
			 json_null(), "split",
			 l->grid ? split_json(l) : json_null(),
			 "optimizer_shard", it->opt_step && it->opt_size ?
			 json_pack("{s:i,s:i}", "step", it->opt_step, "size",
				   it->opt_size) : json_null(), "replicas",
			 l->grid ? layout_replicas_json(l) : json_null());
}

/* ---- for people ---- */

static const struct rsh_column columns[] = {
	{ "PARAMETER", .shorten = true },
	{ "STAGE", .right = true },
	{ "MESH" },
	{ "MAP" },
	{ "SHARD", .right = true },
	{ "SPLIT" },
	{ "SAME ON RANKS", .shorten = true },
};

/* Adds the cells of the split and of the ranks with the same slice. */
static void add_grid(struct rsh_table *t, const struct rsh_grid *g,
		     const struct layout *l)
{
	const uint32_t n_same = g ? rsh_grid_n_replicas(g) : 0;

	rsh_table_cell(t, "%s", g ? "" : "?");
	for (uint32_t d = 0; g && d < rsh_grid_n_dims(g); d++)
		rsh_table_add(t, "%s%" PRIu32, d ? "x" : "",
			      rsh_grid_split(g, d));
	rsh_table_cell(t, "%s", !g ? "?" : n_same == 1 ? "-" : "");
	for (uint32_t r = 0; n_same > 1 && r < rsh_grid_n_ranks(g); r++)
		for (uint32_t i = 0; leads_group(l, r) && i < n_same; i++)
			rsh_table_add(t, "%s%" PRIu32, i ? "," : r ? " " : "",
				      group_member(l, r, i));
}

static int print_layouts(const struct rsh_printer *out,
			 const struct rsh_strategy *s,
			 const struct rsh_names *names)
{
	struct rsh_table *t = RSH_TABLE(columns);
	char text[512];
	int rc;

	for (uint32_t i = 0; i < s->n_params; i++)
		for (uint32_t k = 0; k < s->params[i].n_stages; k++) {
			const struct rsh_strategy_item *it;
			struct layout l;

			layout_init(&l, s, &s->params[i].stages[k]);
			it = l.item;
			rsh_table_cell(t, "%s", rsh_names_text(
						names, s->params[i].name));
			rsh_table_cell(t, "%" PRIu32, l.stage);
			rsh_item_mesh_text(it, text, sizeof(text));
			rsh_table_cell(t, "%s", text);
			rsh_item_map_text(it, text, sizeof(text));
			rsh_table_cell(t, "%s", text);
			if (it->opt_step && it->opt_size)
				rsh_table_cell(t, "%" PRId32,
					       (int32_t)it->opt_size);
			else
				rsh_table_cell(t, "-");
			add_grid(t, l.grid, &l);
			rsh_grid_free(l.grid);
		}
	rc = rsh_table_print(t, out);
	fprintf(out->f, "%" PRIu32 " parameters, %" PRIu32 " ranks in %" PRIu32
		" stage%s\n", s->n_params, s->n_stages * s->stage_ranks,
		s->n_stages, s->n_stages == 1 ? "" : "s");
	return rc;
}

int rsh_ls_strategy(const struct rsh_printer *out, const struct rsh_strategy *s,
		    const struct rsh_names *names)
{
	json_t *all;

	if (!out->json)
		return print_layouts(out, s, names);
	all = json_array();
	for (uint32_t i = 0; i < s->n_params; i++)
		for (uint32_t k = 0; k < s->params[i].n_stages; k++) {
			struct layout l;

			layout_init(&l, s, &s->params[i].stages[k]);
			json_array_append_new(
				all, layout_json(&l, rsh_names_text(
						names, s->params[i].name)));
			rsh_grid_free(l.grid);
		}
	return rsh_printer_json(out, json_pack("{s:o,s:i,s:i,s:o}", "strategy",
					      rsh_json_text(s->path), "stages",
					      (int)s->n_stages, "stage_ranks",
					      (int)s->stage_ranks, "parameters",
					      all));
}
