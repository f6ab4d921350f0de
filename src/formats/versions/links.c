/* SPDX-License-Identifier: Apache-2.0 */
/* formats/versions/links.c finds the versions on which a version is built:
 * deltas down to a full version, or to the base, which is version 0. */
#include "config.h"

#include "versions_i.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/files.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"
#include "rsh/wire/safetensors.h"

/* A job does not build on so many. */
#define LINKS_MAX 100000

static const struct rsh_small_file index_file = { "map of a model's parts",
						  UINT64_C(256) << 20 };

/* ---- names ---- */

RSH_ORDER(by_version, struct rsh_version_name,
	  rsh_compare_u64(x->version, y->version) ?:
	  strcmp(x->name, y->name))

int rsh_version_names_read(struct rsh_version_names *l,
			   const struct rsh_store *store)
{
	cleanup_dir struct rsh_dir *dir = NULL;
	int rc = rsh_dir_open(store, "", &dir), is;
	const char *name;

	while (rc >= 0 && (rc = rsh_dir_next(dir, &name)) > 0) {
		struct rsh_version_name v;
		struct rsh_stat st;

		if (!rsh_version_read(name, &v.version))
			continue;
		/* One that cannot be reached may be the newest version: its
		 * index reports the error. */
		is = rsh_dir_look(dir, name, &st);
		if (is ? !rsh_errno_is_unread(-is) : st.kind != RSH_IS_DIR)
			continue;
		v.name = strdup(name);
		if (!v.name || rsh_push(l->v, l->n, l->cap, v)) {
			free(v.name);
			rc = -ENOMEM;
		}
	}
	rsh_sort(l->v, l->n, by_version);
	return rc;
}

void rsh_version_names_clear(struct rsh_version_names *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->v[i].name);
	free(l->v);
	*l = (struct rsh_version_names){ .n = 0 };
}

/* ---- a full version ---- */

static int take_map(struct rsh_version_links *l, const uint8_t *data,
		    size_t len, const char *path, struct rsh_error *err)
{
	struct rsh_weight_map map;
	int rc = rsh_weight_map_parse(data, len, path, &map, err);

	if (rc)
		return rc;
	l->files = rsh_arena_array(&l->arena, const char *, map.n_files);
	for (uint32_t i = 0; l->files && rc == 0 && i < map.n_files; i++) {
		if (rsh_file_type_of(map.files[i]) != RSH_FILE_SAFETENSORS)
			rc = rsh_error_set(err, ENOTSUP, "%s: %s is not a "
					   ".safetensors file", path,
					   map.files[i]);
		l->files[l->n_files++] = rsh_arena_strdup(&l->arena,
							  map.files[i]);
	}
	rsh_weight_map_clear(&map);
	return rc || !l->arena.failed ? rc : rsh_error_nomem(err);
}

/* Takes the one file, if it is there; `alone`: and no other.  Returns 1 if so,
 * 0, or -errno. */
static int take_single(struct rsh_version_links *l, bool alone,
		       struct rsh_error *err)
{
	static const char *const single = RSH_VERSION_SINGLE;
	cleanup_free char *path = rsh_text_format("%s/" RSH_VERSION_SINGLE,
						  l->full);
	cleanup_dir struct rsh_dir *d = NULL;
	struct rsh_stat st;
	unsigned n = 0;
	const char *name;
	int rc;

	if (!path)
		return rsh_error_nomem(err);
	rc = rsh_store_look(l->store, path, &st);
	if (rc == 0 && alone)
		rc = rsh_dir_open(l->store, l->full, &d);
	while (d && rc >= 0 && (rc = rsh_dir_next(d, &name)) > 0)
		n += rsh_has_suffix(name, ".safetensors");
	if (rc == -ENOENT || (rc == 0 && alone && n != 1))
		return 0;
	if (rc)
		return rsh_store_open_error(l->store, path, rc, err);
	l->files = rsh_arena_copy(&l->arena, &single, 1);
	l->n_files = 1;
	return l->files ? 1 : rsh_error_nomem(err);
}

/* Reads the index of a directory; *data is NULL if it has none. */
static int load_index(const struct rsh_version_links *l, const char *dir,
		      uint8_t **data, size_t *len, char **path,
		      struct rsh_error *err)
{
	int rc;

	*data = NULL;
	*path = rsh_text_format("%s/" RSH_VERSION_INDEX, dir);
	if (!*path)
		return rsh_error_nomem(err);
	rc = rsh_store_load(l->store, *path, &index_file, data, len, err);
	return rsh_errno_is_absent(-rc) ? 0 : rc;
}

/* transformers loads the one file, even if there is an index. */
static int take_full(struct rsh_version_links *l, const uint8_t *data,
		     size_t len, const char *path, struct rsh_error *err)
{
	int rc = take_single(l, !data && !l->is_base, err);

	if (rc)
		return rc < 0 ? rc : 0;
	if (data)
		return take_map(l, data, len, path, err);
	return rsh_error_set(err, EAGAIN, l->is_base ?
			     "%s: neither " RSH_VERSION_SINGLE " nor "
			     RSH_VERSION_INDEX " is there: --base is a model "
			     "of Hugging Face in safetensors" :
			     "%s is still being written: it has no "
			     RSH_VERSION_INDEX, l->full);
}

/* ---- all links ---- */

const char *rsh_version_label(const struct rsh_version_links *l, uint32_t i)
{
	return i < l->n ? l->v[i].name : l->is_base ? "the base" : l->full;
}

/* Adds one link.  Returns 1 if it is a full version, 0, or -errno. */
static int take_link(struct rsh_version_links *l, const char *name,
		     uint64_t version, struct rsh_error *err)
{
	cleanup_free uint8_t *data = NULL;
	cleanup_free char *path = NULL;
	struct rsh_version_link *link;
	size_t len = 0;
	int rc = load_index(l, name, &data, &len, &path, err);

	if (rc)
		return rc;
	if (rsh_room(l->v, l->cap, (size_t)l->n + 1))
		return rsh_error_nomem(err);
	link = &l->v[l->n];
	*link = (struct rsh_version_link){ .name = name };
	rc = data ? rsh_version_index_parse(data, len, path, name,
					    &link->index, err) : 0;
	if (rc == 0 && !link->index.is_delta) {
		l->full = name;
		rc = take_full(l, data, len, path, err) ?: 1;
	}
	if (rc) {
		rsh_version_index_clear(&link->index);
		return rc;
	}
	l->n++;
	if (link->index.version == version && link->index.base == version - 1)
		return 0;
	return rsh_error_set(err, EBADMSG, "%s: its index says version %" PRIu64
			     " of base %" PRIu64, link->name,
			     link->index.version, link->index.base);
}

static int find_links(const struct rsh_versions_place *at, uint64_t version,
		      struct rsh_version_links *l, struct rsh_error *err)
{
	cleanup_free uint8_t *data = NULL;
	cleanup_free char *path = NULL;
	size_t len = 0;
	int rc = rsh_version_names_read(&l->names, l->store);

	if (rc < 0)
		return rsh_store_open_error(l->store, "", rc, err);
	for (uint64_t n = version; n > 0; n--) {
		const size_t i = rsh_first(k, l->names.n,
					   l->names.v[k].version < n);
		const char *name = i < l->names.n &&
				   l->names.v[i].version == n ?
				   l->names.v[i].name : NULL;

		if (!name && l->n == 0)
			return rsh_error_set(err, ENOENT, "%s: version %"
					     PRIu64 " is not there", at->dir,
					     n);
		if (!name)
			return rsh_error_set(err, EAGAIN, "%s/%s builds on "
					     "version %" PRIu64 ", which is "
					     "not there: neither it nor later "
					     "versions can be shown, up to the "
					     "next full one", at->dir,
					     l->v[l->n - 1].name, n);
		if (l->n >= LINKS_MAX)
			return rsh_error_set(err, ENOTSUP, "%s: version %" PRIu64
					     " builds on more than %d deltas",
					     at->dir, version, LINKS_MAX);
		rc = take_link(l, name, n, err);
		if (rc)
			return rc < 0 ? rc : 0;
	}
	if (!at->base)
		return rsh_error_set(err, EINVAL, "%s/%s is a delta of the "
				     "model that the run began with: give it "
				     "with --base DIR", at->dir,
				     l->v[l->n - 1].name);
	l->is_base = true;
	l->full = rsh_arena_strdup(&l->arena, at->base);
	if (!l->full)
		return rsh_error_nomem(err);
	rc = rsh_store_join(l->store, l->full, err) ?:
	     load_index(l, l->full, &data, &len, &path, err);
	return rc ?: take_full(l, data, len, path, err);
}

int rsh_version_links_find(const struct rsh_versions_place *at,
			   uint64_t version, struct rsh_version_links *l,
			   struct rsh_error *err)
{
	struct rsh_store_options how = *at->store;
	int rc;

	*l = (struct rsh_version_links){ .n = 0 };
	how.single = false;
	/* It would look for the root of another store. */
	how.opener = NULL;
	rc = rsh_store_open(at->dir, &how, &l->store, err) ?:
	     find_links(at, version, l, err);
	/* What another version lacks may still be written. */
	if (l->n > 0 && (rc == -ENOENT || rc == -EBADMSG)) {
		err->code = EAGAIN;
		rc = -EAGAIN;
	}
	return rc;
}

void rsh_version_links_clear(struct rsh_version_links *l)
{
	for (uint32_t i = 0; i < l->n; i++)
		rsh_version_index_clear(&l->v[i].index);
	free(l->v);
	rsh_version_names_clear(&l->names);
	rsh_store_free(l->store);
	rsh_arena_clear(&l->arena);
	*l = (struct rsh_version_links){ .n = 0 };
}
