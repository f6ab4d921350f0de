/* SPDX-License-Identifier: Apache-2.0 */
/* outputs/hf.c shows one whole model in the form of Hugging Face's tools: parts
 * in the root, a map from weights to parts, and the other files of a model.
 *
 *   /model-<part>-of-<parts>.safetensors
 *   /model.safetensors.index.json
 *   /config.json and the like */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hf_config_i.h"
#include "rsh/outputs/outputs.h"
#include "rsh/util/mem.h"
#include "rsh/wire/safetensors.h"

#define MAP_NAME "model.safetensors.index.json"

struct hf_model {
	struct rsh_model_files beside;
	char *map;
};

static void hf_free(void *state)
{
	struct hf_model *m = state;

	if (!m)
		return;
	rsh_model_files_clear(&m->beside);
	free(m->map);
	free(m);
}

/* ---- names ---- */

/* The text of the map is made last, because it lists all that is shown. */
static int hf_add_parts(struct rsh_output_tree *t, uint32_t *map_leaf)
{
	struct rsh_arena *arena = &t->tree->arena;
	struct rsh_item *map = rsh_arena_array(arena, struct rsh_item, 1);
	const struct rsh_output_text text = { .mode = 0444 };
	const uint32_t n = rsh_plan_n_files(t->plan);
	char after[64];
	const int length = snprintf(after, sizeof(after), "-of-%05" PRIu32 "%s",
				    n, t->output->suffix);
	const struct rsh_row parts = {
		.n = n, .first = RSH_NODE_OF_FILE(0), .step = 2,
		.parent = t->tree->root, .kind = RSH_NODE_FILE,
		.before = "model-", .from = 1, .digits = 5,
		.after = rsh_arena_strndup(arena, after, (size_t)length),
	};
	const struct rsh_row of_map = {
		.n = 1, .first = RSH_NODE_BESIDE(0), .step = 1,
		.parent = t->tree->root, .items = map,
	};

	if (!map || !parts.after || rsh_output_add_text(t, &text, map_leaf))
		return -ENOMEM;
	*map = (struct rsh_item){ MAP_NAME, RSH_NODE_FILE, *map_leaf };
	if (rsh_tree_add(t->tree, &parts))
		return -ENOMEM;
	return rsh_tree_add(t->tree, &of_map);
}

/* Their numbers come after that of the file of values. */
static int hf_add_beside(struct rsh_output_tree *t,
			 const struct rsh_model_files *beside,
			 struct rsh_error *err)
{
	const uint32_t n = (uint32_t)beside->n;
	struct rsh_item *items = rsh_arena_array(&t->tree->arena,
						 struct rsh_item, n);
	const struct rsh_row row = {
		.n = n, .step = 1, .parent = t->tree->root, .items = items,
		.first = RSH_NODE_BESIDE(rsh_plan_n_files(t->plan)) + 1,
	};

	if (n == 0)
		return 0;
	if (!items)
		return rsh_error_nomem(err);
	for (uint32_t i = 0; i < n; i++) {
		const struct rsh_model_file *f = &beside->v[i];
		const struct rsh_output_text text = {
			.body = rsh_body_of_text(f->text, f->bytes),
			.attr = &f->attr,
		};

		if (rsh_tree_find(t->tree, t->tree->root, f->name))
			return rsh_error_set(err, EEXIST, "%s is there twice: "
					     "beside the model, and as a file "
					     "of its own", f->name);
		items[i] = (struct rsh_item){ f->name, RSH_NODE_FILE, 0 };
		if (rsh_output_add_text(t, &text, &items[i].leaf))
			return rsh_error_nomem(err);
	}
	return rsh_tree_add(t->tree, &row) ? rsh_error_nomem(err) : 0;
}

/* ---- the map ---- */

static int hf_make_map(const struct rsh_output_tree *t, char **text,
		       size_t *bytes, struct rsh_error *err)
{
	struct rsh_weight_map map = {
		.n_files = rsh_plan_n_files(t->plan), .has_total_size = true,
	};
	cleanup_free struct rsh_weight *weights = NULL;
	cleanup_free const char **files =
		rsh_alloc_array(map.n_files, sizeof(*files));
	struct rsh_arena arena = { 0 };
	size_t n = 0;
	int rc = 0;

	for (uint32_t f = 0; f < map.n_files; f++)
		n += rsh_plan_n_records(t->plan, f);
	weights = rsh_alloc_array(n, sizeof(*weights));
	if (!weights || !files)
		rc = rsh_error_nomem(err);
	for (uint32_t f = 0; rc == 0 && f < map.n_files; f++) {
		char name[NAME_MAX + 1];

		rsh_output_file_name(t->tree, f, name, sizeof(name));
		files[f] = rsh_arena_strndup(&arena, name, strlen(name));
		if (!files[f])
			rc = rsh_error_nomem(err);
		for (uint32_t i = 0; i < rsh_plan_n_records(t->plan, f); i++) {
			struct rsh_virtual_record r;

			rsh_plan_record(t->plan, f, i, &r);
			weights[map.n_weights++] = (struct rsh_weight){
				r.shape.name, f
			};
			map.total_size += r.shape.content_bytes;
		}
	}
	map.weights = weights;
	map.files = files;
	if (rc == 0)
		rc = rsh_weight_map_format(&map, text, bytes, err);
	rsh_arena_clear(&arena);
	return rc;
}

static int hf_build(struct rsh_output_tree *t, struct rsh_error *err)
{
	struct hf_model *m = t->state = calloc(1, sizeof(*m));
	uint32_t map;
	size_t bytes;
	int rc;

	if (!m)
		return rsh_error_nomem(err);
	rc = t->model_files ?
		rsh_model_files_load(t->model_files, t->source_path, t->store,
				     &m->beside, err) : 0;
	if (rc)
		return rc;
	if (hf_add_parts(t, &map) || rsh_output_add_values(t))
		return rsh_error_nomem(err);
	rc = rsh_model_configs_update(t, &m->beside, err);
	if (rc == 0)
		rc = hf_add_beside(t, &m->beside, err);
	if (rc == 0)
		rc = hf_make_map(t, &m->map, &bytes, err);
	if (rc == 0)
		t->texts[map - rsh_plan_n_files(t->plan)].body =
			rsh_body_of_text(m->map, bytes);
	return rc;
}

const struct rsh_output rsh_output_hf = {
	.name = "hf",
	.suffix = ".safetensors",
	.framing = &rsh_hf_framing,
	.division = RSH_DIVIDE_PARTS,
	.takes = RSH_TAKES_HF_NAMES | RSH_TAKES_VALUES | RSH_TAKES_PART_SIZE |
		 RSH_TAKES_MODEL_FILES | RSH_TAKES_OPTIMIZER,
	.build = hf_build,
	.free = hf_free,
};
