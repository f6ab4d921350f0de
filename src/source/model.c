/* SPDX-License-Identifier: Apache-2.0 */
/* source/model.c reads a whole model in the parts that a map names.
 * The plan sees one unsharded rank, whose files are its parts (join.c). */
#include "config.h"

#include "source_i.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/wire/safetensors.h"

/* The largest models known have a few megabytes. */
#define MAP_BYTES_MAX (UINT64_C(256) * 1024 * 1024)

/* This has parameters that no strategy lists; it lies beside MindSpore's map
 * and is not in it. */
#define MS_HYPER "hyper_param.safetensors"

static bool model_has(const struct rsh_source *s, const char *name)
{
	struct rsh_stat st;

	return rsh_store_look(s->store, name, &st) == 0;
}

/* Gives the map that is gone by; NULL: one file has all. */
static const char *model_map_name(const struct rsh_source *s)
{
	const bool hf = model_has(s, RSH_MODEL_HF_MAP);

	if (hf && model_has(s, RSH_MODEL_HF_SINGLE))
		return NULL;
	if (hf)
		return RSH_MODEL_HF_MAP;
	return model_has(s, RSH_MODEL_MS_MAP) ? RSH_MODEL_MS_MAP : NULL;
}

enum rsh_source_kind rsh_model_look(const struct rsh_source *s)
{
	const char *map = model_map_name(s);

	if (map)
		return strcmp(map, RSH_MODEL_MS_MAP) == 0 ?
		       RSH_SOURCE_MINDSPORE : RSH_SOURCE_HF;
	return model_has(s, RSH_MODEL_HF_SINGLE) ? RSH_SOURCE_HF :
						   RSH_SOURCE_RANKS;
}

static int model_add_part(struct rsh_source *s, const char *name)
{
	const struct rsh_checkpoint c = { .name = strdup(name) };

	return rsh_listing_add(&s->listing, &c);
}

static int model_add_parts(struct rsh_source *s,
			   const struct rsh_weight_map *map, bool hyper)
{
	for (uint32_t i = 0; i < map->n_files; i++)
		if (model_add_part(s, map->files[i]))
			return -ENOMEM;
	if (hyper && model_add_part(s, MS_HYPER))
		return -ENOMEM;
	s->n_always = s->listing.n;
	s->in_parts = true;
	return 0;
}

static bool model_names_part(const struct rsh_weight_map *map, const char *name)
{
	for (uint32_t i = 0; i < map->n_files; i++)
		if (strcmp(map->files[i], name) == 0)
			return true;
	return false;
}

static int model_check_formats(const struct rsh_weight_map *map,
			       const char *path, struct rsh_error *err)
{
	for (uint32_t i = 0; i < map->n_files; i++)
		if (rsh_file_type_of(map->files[i]) != RSH_FILE_SAFETENSORS)
			return rsh_error_set(err, EINVAL, "%s: %s is no "
					     "safetensors file", path,
					     map->files[i]);
	return 0;
}

static int model_load_map(const struct rsh_source *s, const char *name,
			  const char *path, struct rsh_weight_map *map,
			  struct rsh_error *err)
{
	cleanup_free uint8_t *data = NULL;
	size_t len;
	int rc = rsh_store_load(s->store, name, MAP_BYTES_MAX,
				"map of a model's parts", &data, &len, err);

	return rc ? rc : rsh_weight_map_parse(data, len, path, map, err);
}

/* transformers takes the one file, whatever a map says. */
static int model_list_single(struct rsh_source *s, const char *map_path,
			     struct rsh_error *err)
{
	static const char *const file = RSH_MODEL_HF_SINGLE;
	const struct rsh_weight_map one = { .n_files = 1, .files = &file };
	struct rsh_error why = RSH_ERROR_INIT;
	struct rsh_weight_map map;
	int rc = 0;

	if (!model_has(s, RSH_MODEL_HF_MAP))
		;
	else if (model_load_map(s, RSH_MODEL_HF_MAP, map_path, &map, &why)) {
		rsh_log_warning("%s; " RSH_MODEL_HF_SINGLE " is taken",
				why.text);
	} else {
		rc = rsh_model_check_twice(s, &map, err);
		rsh_weight_map_clear(&map);
	}
	if (rc == 0 && model_add_parts(s, &one, false))
		rc = rsh_error_nomem(err);
	return rc;
}

static int model_list_parts(struct rsh_source *s, const char *name,
			    const char *path, struct rsh_error *err)
{
	struct rsh_weight_map map;
	bool hyper;
	int rc = model_load_map(s, name, path, &map, err);

	if (rc)
		return rc;
	rc = model_check_formats(&map, path, err);
	hyper = strcmp(name, RSH_MODEL_MS_MAP) == 0 && model_has(s, MS_HYPER) &&
		!model_names_part(&map, MS_HYPER);
	if (rc == 0 && model_add_parts(s, &map, hyper))
		rc = rsh_error_nomem(err);
	if (rc == 0)
		rsh_log_info("%s: a model of %zu parts", path, s->listing.n);
	s->map_decides = strcmp(name, RSH_MODEL_MS_MAP) == 0;
	s->parts = map;
	return rc;
}

int rsh_model_list(struct rsh_source *s, struct rsh_error *err)
{
	const char *name = model_map_name(s);
	cleanup_free char *path = NULL;
	int rc;

	if (asprintf(&path, "%s/%s", s->path, name ? name : RSH_MODEL_HF_MAP) <
	    0) {
		path = NULL;
		return rsh_error_nomem(err);
	}
	rc = name ? model_list_parts(s, name, path, err) :
		    model_list_single(s, path, err);
	if (rc == 0)
		rsh_model_tell_torch(s);
	return rc;
}
