/* SPDX-License-Identifier: Apache-2.0 */
/* formats/torch_ranks/metadata.c reads the metadata.pkl of torch_checkpointing
 * (0.1): which file a rank has of each item, and how the tensors of an item are
 * distributed.  It is a pickle of plain dictionaries:
 *
 *   {"version": "2.0", "world_size": 4, "metadata": {ITEM: {
 *       "rank_to_layout_info": {RANK: None or {"file_path": PATH, ...}},
 *       "nested_path_to_metadata": {'["layers", 0, "w"]': [
 *           {"ranks": (0, ..), "sharding_metadata": {"type", "data"}}]}}}}
 *
 * A file ITEM_RANK.pt says the same itself; the tensors of a safetensors file
 * have names alone. */
#include "config.h"

#include "torch_ranks_i.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/formats/files.h"
#include "rsh/util/files.h"
#include "rsh/util/mem.h"
#include "rsh/wire/torch_dtype.h"

#define PATH_KEYS_MAX 64

static int tc_bad(const char *path, const char *what, struct rsh_error *err)
{
	return rsh_error_set(err, EBADMSG, "%s: damaged: %s", path, what);
}

/* ---- files ---- */

static int files_take(struct rsh_tc *tc, const char *path,
		      struct rsh_error *err)
{
	const struct rsh_pickle_list *items = tc->items->list;
	size_t cap = 0;

	for (uint32_t i = 0; i + 1 < items->n; i += 2) {
		const struct rsh_pickle_value *item = &items->values[i];
		const struct rsh_pickle_value *of =
			rsh_pickle_find(&item[1], "rank_to_layout_info");

		if (item->kind != RSH_PV_TEXT ||
		    strlen(item->text) != item->n || !of ||
		    of->kind != RSH_PV_DICT)
			return tc_bad(path, "an item without files", err);
		cap += of->list->n / 2;
	}
	tc->files = rsh_arena_array(&tc->arena, struct rsh_tc_file, cap);
	if (!tc->files)
		return rsh_error_nomem(err);
	for (uint32_t i = 0; i + 1 < items->n; i += 2) {
		const struct rsh_pickle_value *item = &items->values[i];
		const struct rsh_pickle_list *of =
			rsh_pickle_find(&item[1], "rank_to_layout_info")->list;

		for (uint32_t k = 0; k + 1 < of->n; k += 2) {
			const struct rsh_pickle_value *info =
				&of->values[k + 1];
			const struct rsh_pickle_value *name =
				rsh_pickle_find(info, "file_path");
			struct rsh_tc_file *f = &tc->files[tc->n_files++];
			uint64_t rank;
			const char *at;

			if (!rsh_pickle_number(&of->values[k],
					       RSH_MESH_RANKS_MAX, &rank) ||
			    (info->kind != RSH_PV_NONE &&
			     (!name || name->kind != RSH_PV_TEXT ||
			      strlen(name->text) != name->n)))
				return tc_bad(path, "a file of a rank without "
					      "a name", err);
			f->item = item;
			f->rank = (uint32_t)rank;
			f->name = at = name ?
				rsh_arena_strdup(&tc->arena, name->text) :
				rsh_arena_format(&tc->arena, "%s_%u.pt",
						 item->text, f->rank);
			if (!f->name)
				return rsh_error_nomem(err);
			/* No part of its path is "..". */
			while (at && !(strncmp(at, "..", 2) == 0 &&
				       (at[2] == '/' || !at[2]))) {
				at = strchr(at, '/');
				at = at ? at + 1 : NULL;
			}
			if (at || *f->name == '/' || !*f->name)
				return rsh_error_set(
					err, EXDEV, "%s: the file %s is "
					"outside of the directory", path,
					f->name);
			f->has_names = rsh_has_suffix(f->name, ".safetensors");
			if (!f->has_names && !rsh_has_suffix(f->name, ".pt"))
				return rsh_error_set(
					err, ENOTSUP, "%s: the file %s is "
					"neither one of torch.save() nor of "
					"safetensors", path, f->name);
		}
	}
	return 0;
}

/* ---- reading ---- */

void rsh_tc_free(struct rsh_tc *tc)
{
	if (!tc)
		return;
	rsh_arena_clear(&tc->arena);
	free(tc);
}

int rsh_tc_load(const struct rsh_source *s, struct rsh_tc **out,
		struct rsh_error *err)
{
	static const struct rsh_pickle_rules rules = { .ctx = NULL };
	cleanup_format_file struct rsh_format_file f;
	cleanup_free struct rsh_pickle *p = NULL;
	const struct rsh_pickle_value *version;
	struct rsh_tc *tc = NULL;
	struct rsh_pickle_value *root;
	int rc = rsh_format_file_open(s, RSH_TC_METADATA, &f, err);

	*out = NULL;
	if (rc)
		return rc;
	tc = calloc(1, sizeof(*tc));
	p = calloc(1, sizeof(*p));
	root = tc ? rsh_arena_array(&tc->arena, struct rsh_pickle_value, 1) :
		    NULL;
	if (!p || !root) {
		rsh_tc_free(tc);
		return rsh_error_nomem(err);
	}
	p->src = &f.bytes;
	p->err = err;
	rc = rsh_pickle_values(p, &rules, &tc->arena, root);
	version = rc ? NULL : rsh_pickle_find(root, "version");
	tc->items = rc ? NULL : rsh_pickle_find(root, "metadata");
	if (rc == 0 && (!version || !tc->items ||
			tc->items->kind != RSH_PV_DICT ||
			!rsh_pickle_find(root, "world_size")))
		rc = tc_bad(f.path, "it is not of torch_checkpointing", err);
	if (rc == 0 && !rsh_pickle_is_text(version, "2.0"))
		rc = rsh_error_set(err, ENOTSUP, "%s: its version is not 2.0, "
				   "the only one that is known", f.path);
	rc = rc ?: files_take(tc, f.path, err);
	if (rc)
		rsh_tc_free(tc);
	else
		*out = tc;
	return rc;
}

const char *rsh_tc_find_file(const struct rsh_tc *tc, const char *like,
			     uint32_t rank)
{
	const struct rsh_pickle_value *item = NULL;

	for (size_t i = 0; i < tc->n_files && !item; i++)
		if (strcmp(tc->files[i].name, like) == 0)
			item = tc->files[i].item;
	for (size_t i = 0; i < tc->n_files; i++)
		if (tc->files[i].item == item && tc->files[i].rank == rank)
			return tc->files[i].name;
	return NULL;
}

/* ---- tensors ---- */

/* Joins the keys of a path, a JSON list of texts and numbers. */
static const char *path_join(struct rsh_arena *arena, const char *json,
			     const struct rsh_path_key **keys, uint32_t *n_keys)
{
	json_t *all = json_loads(json, 0, NULL);
	const size_t n = json_array_size(all);
	struct rsh_path_key *v =
		n > 0 && n <= PATH_KEYS_MAX ?
		rsh_arena_array(arena, struct rsh_path_key, n) : NULL;
	const char *name = "";

	for (size_t i = 0; v && name && i < n; i++) {
		const json_t *k = json_array_get(all, i);
		const char *text = json_string_value(k);

		v[i].index = (uint64_t)json_integer_value(k);
		if (text) {
			v[i].text = rsh_arena_strdup(arena, text);
			name = !v[i].text ? NULL :
			       rsh_arena_format(arena, "%s%s%s", name,
						i ? "." : "", text);
		} else {
			name = !json_is_integer(k) ? NULL :
			       rsh_arena_format(arena, "%s%s%" PRIu64, name,
						i ? "." : "", v[i].index);
		}
	}
	json_decref(all);
	*keys = v;
	*n_keys = n > 1 ? (uint32_t)n : 0;
	return v ? name : NULL;
}

/* Reads what is said about a tensor for the ranks of one entry. */
static int spec_fill(const struct rsh_ranks_reading *r,
		     const struct rsh_pickle_value *data,
		     struct rsh_ranks_spec *out)
{
	struct rsh_ranks_mesh m = { .n = 0 };
	struct rsh_ranks_how how = { .mesh = NULL };
	const struct rsh_pickle_value *of = rsh_pickle_find(data, "mesh_spec");
	const struct rsh_pickle_value *shape =
		rsh_pickle_find(data, "global_shape");
	const struct rsh_pickle_value *dtype = rsh_pickle_find(data, "dtype");
	uint32_t n = 0, n_ranks = 0;
	const struct rsh_pickle_value *placements =
		rsh_pickle_items(rsh_pickle_find(data, "placements"), &n);
	cleanup_free uint32_t *ranks = NULL;
	int rc;

	if (!rsh_pickle_items(shape, &out->n_dims) || !dtype || !placements ||
	    !rsh_ranks_mesh_sizes(rsh_pickle_find(of, "mesh_shape"), &m) ||
	    !rsh_ranks_list_read(rsh_pickle_find(of, "mesh_data"), &ranks,
				 &n_ranks) ||
	    n_ranks != m.n || n != m.n_dims)
		return rsh_ranks_bad(r, "damaged: it does not say how the "
					"tensor is distributed");
	if (!ranks)
		return rsh_error_nomem(r->err);
	m.ranks = ranks;
	out->dtype = rsh_torch_dtype(dtype);
	rc = rsh_ranks_shape_read(r, shape, out);
	for (uint32_t d = 0; d < m.n_dims && rc == 0; d++) {
		const struct rsh_pickle_value *type =
			rsh_pickle_find(&placements[d], "type");

		how.order[d] = (uint8_t)d;
		rc = rsh_ranks_placement_read(
			r, type && type->kind == RSH_PV_TEXT ? type->text : "",
			&placements[d], out->n_dims, &how.placements[d]);
	}
	rc = rc ?: rsh_ranks_mesh_finish(r, &m, rsh_pickle_find(
						 of, "mesh_dim_names"),
					 &how.mesh);
	if (rc)
		return rc;
	out->place = UINT32_MAX;
	for (uint32_t i = 0; i < m.n; i++)
		if (ranks[i] == out->rank)
			out->place = i;
	out->how = rsh_ranks_how_keep(r->specs->ways, &how);
	return out->how ? 0 : rsh_error_nomem(r->err);
}

/* Finds what is said about a tensor for a rank. */
static const struct rsh_pickle_value *
entry_of(const struct rsh_pickle_value *list, uint32_t rank)
{
	uint32_t n, n_ranks;
	const struct rsh_pickle_value *entries = rsh_pickle_items(list, &n);

	for (uint32_t i = 0; entries && i < n; i++) {
		const struct rsh_pickle_value *ranks = rsh_pickle_items(
			rsh_pickle_find(&entries[i], "ranks"), &n_ranks);
		uint64_t one;

		for (uint32_t k = 0; ranks && k < n_ranks; k++)
			if (rsh_pickle_number(&ranks[k], UINT32_MAX, &one) &&
			    one == rank)
				return rsh_pickle_find(&entries[i],
						       "sharding_metadata");
	}
	return NULL;
}

int rsh_tc_specs(const struct rsh_tc_file *file, const char *path,
		 struct rsh_ranks_specs *specs, struct rsh_error *err)
{
	const struct rsh_pickle_value *all =
		rsh_pickle_find(file->item + 1, "nested_path_to_metadata");
	struct rsh_ranks_reading r = { specs, path, NULL, err };
	int rc = 0;

	if (!all || all->kind != RSH_PV_DICT)
		return tc_bad(path, "an item without tensors", err);
	for (uint32_t i = 0; i + 1 < all->list->n && rc == 0; i += 2) {
		const struct rsh_pickle_value *key = &all->list->values[i];
		const struct rsh_pickle_value *of =
			entry_of(&all->list->values[i + 1], file->rank);
		const struct rsh_pickle_value *type =
			rsh_pickle_find(of, "type");
		struct rsh_ranks_spec spec = { .rank = file->rank };

		if (!of)
			continue;
		spec.name = key->kind == RSH_PV_TEXT ?
			    path_join(specs->arena, key->text, &spec.keys,
				      &spec.n_keys) : NULL;
		if (!spec.name)
			return tc_bad(path, "a name of a tensor that is not one",
				      err);
		r.name = spec.name;
		if (!type ||
		    !rsh_pickle_is_text(type, "DTensorShardingMetadata"))
			return rsh_error_set(err, ENOTSUP, "%s: tensor %s: the "
					     "way in which it is distributed is "
					     "not known", path, spec.name);
		rc = spec_fill(&r, rsh_pickle_find(of, "data"), &spec) ?:
		     rsh_ranks_spec_add(&r, &spec);
	}
	return rc;
}
