/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/ls_strategy.c prints how each parameter is cut, and which ranks hold
 * the same slice, for `ls STRATEGY`. */
#include "config.h"

#include "commands.h"
#include "rsh/strategy/grid.h"

/* This is the layout of one parameter in one stage. */
struct layout {
	const struct rsh_strategy_item *item;
	uint32_t first_rank; /* first rank of the stage */
	struct rsh_grid *grid; /* NULL: the layout is not valid */
};

static void put_mesh(struct rsh_printer *out, const void *ctx)
{
	const struct rsh_strategy_item *it = ctx;
	char text[512];

	rsh_json(out, "%", rsh_v_u32s(it->mesh, it->n_mesh));
	rsh_item_mesh_text(it, text, sizeof(text));
	rsh_say(out, "%", text);
}

static void put_map(struct rsh_printer *out, const void *ctx)
{
	const struct rsh_strategy_item *it = ctx;
	char text[512];

	rsh_json(out, "[");
	for (uint32_t i = 0; i < it->n_map; i++)
		rsh_json(out, "%", rsh_v_u32s(
				 (const uint32_t *)it->map[i].axes,
				 it->map[i].n));
	rsh_json(out, "]");
	rsh_item_map_text(it, text, sizeof(text));
	rsh_say(out, "%", text);
}

static void put_split(struct rsh_printer *out, const void *ctx)
{
	const struct rsh_grid *g = ctx;

	rsh_json(out, "[");
	for (uint32_t d = 0; d < rsh_grid_n_dims(g); d++) {
		rsh_json(out, "%", rsh_grid_split(g, d));
		rsh_say(out, "%%", d ? "x" : "", rsh_grid_split(g, d));
	}
	rsh_json(out, "]");
}

static void put_shard(struct rsh_printer *out, const void *ctx)
{
	const struct rsh_strategy_item *it = ctx;

	rsh_json(out, "{step:% size:%}", it->opt_step, it->opt_size);
	rsh_say(out, "%", (int32_t)it->opt_size);
}

/* The ranks that hold a slice are printed where its first rank is. */
static void put_replicas(struct rsh_printer *out, const void *ctx)
{
	const struct layout *l = ctx;
	const uint32_t n = rsh_grid_n_replicas(l->grid);

	rsh_json(out, "[");
	for (uint32_t r = 0; r < rsh_grid_n_ranks(l->grid); r++) {
		uint32_t cell[RSH_MAX_DIMS];

		if (rsh_grid_replica(l->grid, r) != 0)
			continue;
		rsh_grid_cell(l->grid, r, cell);
		rsh_json(out, "[");
		for (uint32_t i = 0; i < n; i++) {
			const uint32_t rank = l->first_rank +
					      rsh_grid_member(l->grid, cell, i);

			rsh_json(out, "%", rank);
			if (n > 1)
				rsh_say(out, "%%", i ? "," : r ? " " : "",
					rank);
		}
		rsh_json(out, "]");
	}
	rsh_json(out, "]");
	rsh_say(out, n > 1 ? "" : "-");
}

void rsh_ls_strategy(struct rsh_printer *out, const struct rsh_strategy *s,
		     const struct rsh_names *names)
{
	/* JSON strategies have the shape, which is printed unchanged. */
	static const struct rsh_column columns[] = {
		{ "name", "PARAMETER", .shorten = true },
		{ "stage", "STAGE", .right = true },
		{ "mesh", "MESH" },
		{ "map", "MAP" },
		{ "shape", NULL },
		{ NULL, "SHARD", .right = true },
		{ "split", "SPLIT" },
		{ "optimizer_shard", NULL },
		{ "replicas", "SAME ON RANKS", .shorten = true },
		{ NULL, NULL }
	};

	rsh_json(out, "{strategy:% stages:% stage_ranks:% parameters:",
		 s->path, s->n_stages, s->stage_ranks);
	rsh_rows(out, columns);
	for (uint32_t i = 0; i < s->n_params; i++)
		for (uint32_t k = 0; k < s->params[i].n_stages; k++) {
			const struct rsh_param_stage *in =
				&s->params[i].stages[k];
			const struct rsh_strategy_item *it = in->item;
			struct layout l = { it, in->stage * s->stage_ranks,
					    NULL };
			const struct rsh_value shard =
				RSH_V_IF(it->opt_step && it->opt_size,
					 rsh_v_call(put_shard, it));
			const struct rsh_value unknown =
				out->json ? RSH_V_NULL : RSH_V("?");

			if (rsh_grid_new_unsized(it, &l.grid, NULL))
				l.grid = NULL;
			rsh_row(out, rsh_names_text(names, s->params[i].name),
				in->stage, rsh_v_call(put_mesh, it),
				rsh_v_call(put_map, it),
				RSH_V_IF(it->n_shape, rsh_v_dims(it->shape,
								 it->n_shape)),
				shard, l.grid ? rsh_v_call(put_split, l.grid) :
						unknown, shard,
				l.grid ? rsh_v_call(put_replicas, &l) :
					 unknown);
			rsh_grid_free(l.grid);
		}
	rsh_rows_end(out);
	rsh_json(out, "}");
	rsh_say(out, "% parameters, % ranks in % stage{|s}\n", s->n_params,
		s->n_stages * s->stage_ranks, s->n_stages);
}
