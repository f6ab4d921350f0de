/* SPDX-License-Identifier: Apache-2.0 */
/* formats/safetensors/hf.c shows one whole model in the form of Hugging Face's
 * tools: parts in the root, a map from weights to parts, and the other files of
 * a model.
 *
 *   /model-<part>-of-<parts>.safetensors
 *   /model.safetensors.index.json
 *   /config.json and the like */
#include "config.h"

#include "hf_config_i.h"
#include "hf_headers_i.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/formats/outputs.h"
#include "rsh/source/tables.h"
#include "rsh/util/checked.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"
#include "rsh/wire/safetensors.h"
#include "rsh/weights/wrapped.h"

/* ---- config.json beside a model ---- */

#define GENERATION_NAME "generation_config.json"
/* Two tensors are compared at SAMPLES places of SAMPLE_BYTES. */
#define SAMPLE_BYTES 4096
#define SAMPLES 3

/* This is the place of a weight in the shown files. */
struct shown_at {
	uint32_t file;
	uint64_t offset, bytes;
};

struct shown_weights {
	const struct rsh_output_tree *t;
	struct rsh_hf_weight *weights;
	struct shown_at *at;
	uint32_t n;
};

static int shown_list(const struct rsh_output_tree *t, struct shown_weights *s,
		      struct rsh_error *err)
{
	const uint32_t n_files = rsh_plan_n_files(t->plan);
	size_t n = 0;

	for (uint32_t f = 0; f < n_files; f++)
		n += rsh_plan_n_records(t->plan, f);
	*s = (struct shown_weights){
		.t = t,
		.weights = rsh_alloc_array(n ? n : 1, sizeof(*s->weights)),
		.at = rsh_alloc_array(n ? n : 1, sizeof(*s->at)),
	};
	if (!s->weights || !s->at)
		return rsh_error_nomem(err);
	for (uint32_t f = 0; f < n_files; f++)
		for (uint32_t i = 0; i < rsh_plan_n_records(t->plan, f); i++) {
			struct rsh_virtual_record r;

			rsh_plan_record(t->plan, f, i, &r);
			s->weights[s->n] = (struct rsh_hf_weight){
				r.shape.name, r.shape.dtype, r.shape.n_dims,
				r.shape.dims,
			};
			s->at[s->n++] = (struct shown_at){
				f, r.offset, r.shape.content_bytes,
			};
		}
	return 0;
}

/* Reads some bytes of a weight.  Returns false if they cannot be read. */
static bool shown_read(const struct shown_weights *s, uint32_t i, uint64_t at,
		       uint8_t *to, size_t len)
{
	const struct rsh_body b = rsh_body_of_plan(s->t->reader, s->at[i].file);

	return !rsh_plan_is_lost(s->t->plan, s->at[i].file) &&
	       rsh_body_read(&b, to, len, s->at[i].offset + at) ==
	       (ssize_t)len;
}

static bool shown_differ(void *ctx, uint32_t a, uint32_t b)
{
	const struct shown_weights *s = ctx;
	const uint64_t bytes = s->at[a].bytes;
	const size_t len = (size_t)rsh_min_u64(bytes, SAMPLE_BYTES);

	for (unsigned i = 0; i < SAMPLES && s->at[b].bytes == bytes; i++) {
		const uint64_t at = (bytes - len) / (SAMPLES - 1) * i;
		uint8_t x[SAMPLE_BYTES], y[SAMPLE_BYTES];

		if (!shown_read(s, a, at, x, len) ||
		    !shown_read(s, b, at, y, len))
			return false;
		if (memcmp(x, y, len) != 0)
			return true;
	}
	return false;
}

static void shown_note(void *ctx, const char *sentence)
{
	(void)ctx;
	rsh_log_warning("%s", sentence);
}

/* ---- one file ---- */

/* A file that is not JSON is shown unchanged: Python cannot read it either. */
static int config_update_file(struct shown_weights *s, const char *dir,
			      struct rsh_model_file *f, bool complete,
			      struct rsh_error *err)
{
	const struct rsh_output_tree *t = s->t;
	const struct rsh_hf_weights w = {
		.v = s->weights, .n = s->n, .partial = t->partial,
		.as_saved = t->as_saved && rsh_model_files_own(&t->beside),
		.differ = shown_differ, .note = shown_note, .ctx = s,
	};
	struct rsh_error why = RSH_ERROR_INIT;
	struct rsh_json_edit *e = NULL;
	cleanup_free char *path = rsh_text_format("%s/%s", dir, f->name);
	char *text;
	size_t len;
	int rc;

	if (!path)
		return rsh_error_nomem(err);
	rc = rsh_json_edit_open(f->text, (size_t)f->bytes, path, &e, &why);
	if (rc == -ENOMEM)
		return rsh_error_nomem(err);
	if (rc) {
		rsh_log_warning("%s; it is shown as it is, and was not "
				"compared with the weights", why.text);
		return 0;
	}
	if (complete && t->hold_config)
		rc = t->hold_config(t->ctx, e, path, err);
	if (rc == 0)
		rc = rsh_hf_config_update(&w, e, path, complete, err);
	if (rc >= 0 && rsh_json_edit_changed(e)) {
		rc = rsh_json_edit_write(e, &text, &len) ?
			rsh_error_nomem(err) : 0;
		if (rc == 0) {
			free(f->text);
			f->text = text;
			f->bytes = len;
		}
	}
	rsh_json_edit_free(e);
	return rc > 0 ? 0 : rc;
}

/* Says if all names begin with the key that a training state has for the
 * model. */
static void note_state_key(const struct shown_weights *s)
{
	const char *key = NULL, *its;

	for (uint32_t i = 0; i < s->n; i++) {
		its = rsh_values_state_key(s->t->values, s->weights[i].name);
		if (!its && rsh_name_is_keyed(s->weights[i].name))
			its = "model";
		if (!its || (key && strcmp(its, key) != 0))
			return;
		key = its;
	}
	if (key)
		rsh_log_warning("all weights were saved under the key \"%s\": "
				"--unwrap removes it from their names", key);
}

/* Corrects the config.json and the generation_config.json beside a model to
 * match the weights that are shown (hf_config.c).  Returns 0 or -errno with a
 * sentence. */
static int model_configs_update(struct shown_weights *s,
				struct rsh_model_files *files,
				struct rsh_error *err)
{
	bool noted = false;
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < files->n; i++) {
		struct rsh_model_file *f = &files->v[i];
		const bool config = strcmp(f->name, RSH_MODEL_CONFIG_NAME) == 0;

		if (config || strcmp(f->name, GENERATION_NAME) == 0)
			rc = config_update_file(s, files->dir, f, config, err);
		noted |= config;
	}
	if (rc == 0 && !noted) {
		const struct rsh_hf_weights w = { .v = s->weights, .n = s->n,
						  .note = shown_note };

		if (!rsh_hf_names_check(&w, "there is no config.json"))
			note_state_key(s);
	}
	return rc;
}

/* ---- the tree ---- */

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
static int hf_add_parts(struct rsh_output_tree *t)
{
	struct rsh_arena *arena = &t->tree->arena;
	const struct rsh_output_text text = { .mode = 0444 };
	const uint32_t n = rsh_plan_n_files(t->plan);
	const struct rsh_row parts = {
		.n = n, .first = RSH_NODE_OF_FILE(0), .step = 2,
		.parent = t->tree->root, .kind = RSH_NODE_FILE,
		.before = "model-", .from = 1, .digits = 5,
		.after = rsh_arena_format(arena, "-of-%05" PRIu32 "%s", n,
					  t->output->suffix),
	};

	return !parts.after || rsh_tree_add(t->tree, &parts) ? -ENOMEM :
	       rsh_output_add_file(t, RSH_NODE_BESIDE(0), t->tree->root,
				   MAP_NAME, &text);
}

/* The numbers of these files come after that of the file of values. */
static int hf_add_beside(struct rsh_output_tree *t,
			 const struct rsh_model_files *beside,
			 struct rsh_error *err)
{
	cleanup_free struct rsh_path *paths =
		rsh_alloc_array(beside->n, sizeof(*paths));
	size_t n = 0;
	int rc = paths ? 0 : -ENOMEM;

	for (size_t i = 0; i < beside->n && rc == 0; i++) {
		const struct rsh_model_file *f = &beside->v[i];
		const struct rsh_output_text text = {
			.body = rsh_body_of_text(f->text, f->bytes),
			.attr = &f->attr,
		};

		/* Objects may have one name as a file and as a directory. */
		if (i > 0 && strcmp(f->name, beside->v[i - 1].name) == 0)
			continue;
		paths[n] = (struct rsh_path){ f->name, RSH_NODE_FILE, 0 };
		if (rsh_tree_find(t->tree, t->tree->root, f->name))
			return rsh_error_set(err, EEXIST, "%s is there twice: "
					     "beside the model, and as a file "
					     "of its own", f->name);
		rc = rsh_output_add_text(t, &text, &paths[n++].leaf);
	}
	rc = rc ?: rsh_tree_add_paths(
		t->tree, RSH_NODE_BESIDE(rsh_plan_n_files(t->plan)) + 1, paths,
		n);
	if (rc == -EEXIST)
		return rsh_error_set(err, EEXIST, "%s: a file has the name of "
				     "a directory", beside->dir);
	return rc ? rsh_error_nomem(err) : 0;
}

/* ---- the map ---- */

static int hf_make_map(const struct shown_weights *s, char **text,
		       size_t *bytes, struct rsh_error *err)
{
	const struct rsh_output_tree *t = s->t;
	struct rsh_weight_map map = {
		.n_files = rsh_plan_n_files(t->plan), .has_total_size = true,
		.n_weights = s->n,
	};
	cleanup_free struct rsh_weight *weights =
		rsh_alloc_array(s->n, sizeof(*weights));
	cleanup_free const char **files =
		rsh_alloc_array(map.n_files, sizeof(*files));
	cleanup_arena struct rsh_arena arena = { 0 };

	for (uint32_t f = 0; files && f < map.n_files; f++) {
		char name[NAME_MAX + 1];

		rsh_output_file_name(t->tree, f, name, sizeof(name));
		files[f] = rsh_arena_strndup(&arena, name, strlen(name));
	}
	for (uint32_t i = 0; weights && i < s->n; i++) {
		weights[i] = (struct rsh_weight){ s->weights[i].name,
						  s->at[i].file };
		map.total_size += s->at[i].bytes;
	}
	map.weights = weights;
	map.files = files;
	return weights && files && !arena.failed ?
	       rsh_weight_map_format(&map, text, bytes, err) :
	       rsh_error_nomem(err);
}

static int hf_build(struct rsh_output_tree *t, struct rsh_error *err)
{
	struct hf_model *m = t->state = calloc(1, sizeof(*m));
	struct shown_weights s = { 0 };
	size_t bytes;
	int rc;

	if (!m)
		return rsh_error_nomem(err);
	rc = t->beside.dir || t->beside.config ?
		rsh_model_files_load(&t->beside, &m->beside, err) : 0;
	if (rc)
		return rc;
	if (m->beside.left_out)
		rsh_log_warning("%s: not shown beside the model: %s",
				m->beside.dir, m->beside.left_out);
	if (hf_add_parts(t) || rsh_output_add_values(t))
		return rsh_error_nomem(err);
	rc = shown_list(t, &s, err) ?:
	     model_configs_update(&s, &m->beside, err) ?:
	     hf_add_beside(t, &m->beside, err) ?:
	     hf_make_map(&s, &m->map, &bytes, err);
	free(s.weights);
	free(s.at);
	if (rc == 0)
		t->texts[0].body = rsh_body_of_text(m->map, bytes);
	return rc;
}

const struct rsh_output rsh_output_hf = {
	.name = "hf",
	.suffix = ".safetensors",
	.framing = &rsh_hf_framing,
	.division = RSH_DIVIDE_PARTS,
	.takes = RSH_TAKES_HF_NAMES | RSH_TAKES_VALUES |
		 RSH_TAKES_MODEL_FILES | RSH_TAKES_OPTIMIZER,
	.options = "part-size|model-files|optimizer",
	.take_headers = rsh_hf_take_headers,
	.build = hf_build,
	.free = hf_free,
};
