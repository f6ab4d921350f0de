/* SPDX-License-Identifier: Apache-2.0 */
/* source/model.c reads a whole model in the parts that a map names.
 *
 * The plan sees one unsharded rank with one index.  Its parts are laid end to
 * end: an offset of the index names part and place in it, and the two are told
 * apart only here and where bytes are read. */
#include "config.h"

#include "source_i.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rsh/util/checked.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/wire/safetensors.h"

/* The largest models known have a few megabytes. */
#define MAP_BYTES_MAX (UINT64_C(256) * 1024 * 1024)

#define HF_MAP "model.safetensors.index.json"
#define MS_MAP "param_name_map.json"
/* A model of one part needs no map. */
#define HF_SINGLE "model.safetensors"
/* This has parameters that no strategy lists; it lies beside MindSpore's map
 * and is not in it. */
#define MS_HYPER "hyper_param.safetensors"

static bool model_has(const struct rsh_source *s, const char *name)
{
	return faccessat(rsh_store_dirfd(s->store), name, F_OK, 0) == 0;
}

static const char *model_map_name(const struct rsh_source *s)
{
	if (model_has(s, HF_MAP))
		return HF_MAP;
	return model_has(s, MS_MAP) ? MS_MAP : NULL;
}

bool rsh_model_present(const struct rsh_source *s)
{
	return model_map_name(s) || model_has(s, HF_SINGLE);
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
		if (rsh_format_of(map->files[i]) != RSH_FORMAT_SAFETENSORS)
			return rsh_error_set(err, EINVAL, "%s: %s is no "
					     "safetensors file", path,
					     map->files[i]);
	return 0;
}

static int model_list_single(struct rsh_source *s, struct rsh_error *err)
{
	static const char *const file = HF_SINGLE;
	const struct rsh_weight_map map = { .n_files = 1, .files = &file };

	return model_add_parts(s, &map, false) ? rsh_error_nomem(err) : 0;
}

int rsh_model_list(struct rsh_source *s, struct rsh_error *err)
{
	const char *name = model_map_name(s);
	struct rsh_weight_map map;
	cleanup_free uint8_t *data = NULL;
	cleanup_free char *path = NULL;
	bool hyper;
	size_t len;
	int rc;

	if (!name)
		return model_list_single(s, err);
	if (asprintf(&path, "%s/%s", s->path, name) < 0) {
		path = NULL;
		return rsh_error_nomem(err);
	}
	rc = rsh_store_load(s->store, name, MAP_BYTES_MAX,
			    "map of a model's parts", &data, &len, err);
	if (rc == 0)
		rc = rsh_weight_map_parse(data, len, path, &map, err);
	if (rc)
		return rc;
	rc = model_check_formats(&map, path, err);
	hyper = strcmp(name, MS_MAP) == 0 && model_has(s, MS_HYPER) &&
		!model_names_part(&map, MS_HYPER);
	if (rc == 0 && model_add_parts(s, &map, hyper))
		rc = rsh_error_nomem(err);
	if (rc == 0)
		rsh_log_info("%s: a model of %zu parts", path, s->listing.n);
	rsh_weight_map_clear(&map);
	return rc;
}

/* The model can be read by whom all parts can, and is as new as the newest. */
static void model_join_attributes(struct rsh_source *s)
{
	struct rsh_store_attr *all = &s->whole;

	*all = *rsh_store_attr(s->store, 0);
	for (uint32_t i = 1; i < s->n_files; i++) {
		const struct rsh_store_attr *a =
			rsh_store_attr(s->store, i);

		all->mode &= rsh_store_mode_as(a, all->uid, all->gid);
		if (a->mtime.tv_sec > all->mtime.tv_sec ||
		    (a->mtime.tv_sec == all->mtime.tv_sec &&
		     a->mtime.tv_nsec > all->mtime.tv_nsec))
			all->mtime = a->mtime;
	}
}

int rsh_model_join(struct rsh_source *s, const struct rsh_names *names,
		   struct rsh_error *err)
{
	cleanup_free const struct rsh_ckpt_index **parts =
		rsh_alloc_array(s->n_files, sizeof(*parts));
	cleanup_free uint64_t *base = rsh_alloc_array(s->n_files,
						      sizeof(*base));
	struct rsh_ckpt_index *whole;
	uint32_t twice;
	uint64_t at = 0, size;
	int rc;

	if (!parts || !base ||
	    rsh_grow(&s->indexes, &s->cap_indexes, (size_t)s->n_indexes + 1,
		     sizeof(*s->indexes)))
		return rsh_error_nomem(err);
	for (uint32_t i = 0; i < s->n_files; i++) {
		parts[i] = s->files[i].index;
		base[i] = s->files[i].base = at;
		size = (uint64_t)rsh_store_identity(s->store, i)->size;
		if (!rsh_add_u64(at, size, &at))
			return rsh_error_set(err, EFBIG, "%s: the model is too "
					     "large", s->path);
	}
	rc = rsh_ckpt_index_join(parts, base, s->n_files, &whole, &twice);
	if (rc == -EEXIST)
		return rsh_error_set(err, EINVAL, "%s: parameter %s is in two "
				     "of its parts", s->path,
				     rsh_names_text(names, twice));
	if (rc)
		return rsh_error_nomem(err);
	s->indexes[s->n_indexes++] = whole;
	s->view_index[0] = whole;
	model_join_attributes(s);
	return 0;
}

uint32_t rsh_model_part(const struct rsh_source *s, uint64_t *offset)
{
	uint32_t lo = 0, hi = s->n_files;

	while (hi - lo > 1) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (s->files[mid].base <= *offset)
			lo = mid;
		else
			hi = mid;
	}
	*offset -= s->files[lo].base;
	return lo;
}
