/* SPDX-License-Identifier: Apache-2.0 */
/* copy/origin.c describes the origin of a tree for its manifest. */
#include "config.h"

#include "copy_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/source/inspect.h"
#include "rsh/util/mem.h"

static void hash_text(XXH3_state_t *hash, const char *s)
{
	size_t len = s ? strlen(s) + 1 : 0;
	uint64_t n = len;

	/* The length comes first, so that different lists of texts give
	 * different bytes. */
	XXH3_64bits_update(hash, &n, sizeof(n));
	XXH3_64bits_update(hash, s ? s : "", len);
}

static void hash_number(XXH3_state_t *hash, uint64_t n)
{
	XXH3_64bits_update(hash, &n, sizeof(n));
}

/* ---- identity of the conversion ---- */

static void hash_item(XXH3_state_t *hash, const struct rsh_strategy_item *it)
{
	hash_number(hash, it != NULL);
	if (!it)
		return;
	hash_number(hash, it->n_mesh);
	XXH3_64bits_update(hash, it->mesh, it->n_mesh * sizeof(*it->mesh));
	hash_number(hash, it->n_map);
	for (uint32_t i = 0; i < it->n_map; i++) {
		const struct rsh_map_entry *e = &it->map[i];

		hash_number(hash, e->n);
		XXH3_64bits_update(hash, e->axes, e->n * sizeof(*e->axes));
	}
	hash_number(hash, it->nested);
	hash_number(hash, it->n_shape);
	XXH3_64bits_update(hash, it->shape, it->n_shape * sizeof(*it->shape));
	hash_number(hash, it->n_rows);
	XXH3_64bits_update(hash, it->rows, it->n_rows * sizeof(*it->rows));
	hash_number(hash, it->n_offsets);
	hash_number(hash, it->rows_follow);
	hash_number(hash, (uint64_t)it->opt_step);
	hash_number(hash, (uint64_t)it->opt_size);
}

int rsh_origin_hash_strategy(const struct rsh_strategy *s,
			     const struct rsh_names *names, uint64_t *xxh3)
{
	XXH3_state_t *hash = XXH3_createState();

	if (!hash)
		return -ENOMEM;
	XXH3_64bits_reset(hash);
	/* The parsed strategy is hashed, since a derived strategy has no
	 * file. */
	hash_number(hash, s->stage_ranks);
	hash_number(hash, s->n_stages);
	hash_number(hash, s->lone_stage);
	for (uint32_t i = 0; i < s->n_params; i++) {
		const struct rsh_strategy_param *p = &s->params[i];

		hash_text(hash, rsh_names_text(names, p->name));
		hash_number(hash, p->n_stages);
		for (uint32_t k = 0; k < p->n_stages; k++) {
			hash_number(hash, p->stages[k].stage);
			hash_item(hash, p->stages[k].item);
		}
	}
	*xxh3 = XXH3_64bits_digest(hash);
	XXH3_freeState(hash);
	return 0;
}

/* Hashes the files that say how the sources are read: metadata, maps of parts,
 * values.  A checkpoint without such files has the hash of its sources. */
static int hash_opened(XXH3_state_t *hash, const struct rsh_store *store)
{
	cleanup_free struct rsh_opened *opened = NULL;
	size_t n;
	int rc = rsh_store_opened(store, &opened, &n);

	for (size_t i = 0; rc == 0 && i < n; i++) {
		const struct rsh_store_identity *id = &opened[i].id;

		hash_text(hash, opened[i].name);
		hash_number(hash, id->size);
		hash_number(hash, id->which[1]);
		hash_number(hash, (uint64_t)id->mtime.tv_sec);
		hash_number(hash, (uint64_t)id->mtime.tv_nsec);
		hash_number(hash, (uint64_t)id->ctime.tv_sec);
		hash_number(hash, (uint64_t)id->ctime.tv_nsec);
	}
	return rc;
}

static int identify(struct rsh_origin *o, const struct rsh_vfs_config *cfg,
		    const struct rsh_store *store, struct rsh_error *err)
{
	XXH3_state_t *hash = XXH3_createState();
	uint64_t options = 0;
	int rc;

	if (!hash)
		return rsh_error_nomem(err);
	XXH3_64bits_reset(hash);
	/* The options read small files of SOURCE, too, and hash their bytes. */
	rc = hash_opened(hash, store) ? rsh_error_nomem(err) :
	     cfg->digest(cfg, store, &options, err);
	hash_text(hash, PACKAGE_VERSION);
	hash_number(hash, options);
	hash_number(hash, o->head.src.path != NULL);
	hash_number(hash, o->head.src.xxh3);
	hash_number(hash, o->head.dst.path != NULL);
	hash_number(hash, o->head.dst.xxh3);
	for (uint32_t i = 0; i < o->n_sources; i++) {
		const struct rsh_manifest_source *s = &o->sources[i];

		hash_number(hash, s->rank);
		hash_text(hash, s->path);
		hash_number(hash, s->size);
		hash_number(hash, s->inode);
		hash_number(hash, (uint64_t)s->mtime_s);
		hash_number(hash, s->mtime_ns);
	}
	hash_number(hash, o->ctimes);
	o->head.conversion = XXH3_64bits_digest(hash);
	XXH3_freeState(hash);
	return rc;
}

/* ---- putting it together ---- */

/* Describes a strategy by the hash of its file, or of its content if it was
 * made and has no file. */
static int take_strategy(const char *path, bool is_made,
			 const struct rsh_strategy *made,
			 const struct rsh_vfs_view *view,
			 struct rsh_manifest_strategy *out,
			 struct rsh_error *err)
{
	if (!is_made) {
		out->path = path;
		return path ? rsh_strategy_digest(path, &out->xxh3, err) : 0;
	}
	if (!made)
		return 0;
	out->path = made->path;
	return rsh_origin_hash_strategy(made, view->names, &out->xxh3) ?
		rsh_error_nomem(err) : 0;
}

int rsh_origin_make(const struct rsh_vfs *vfs, const struct rsh_vfs_config *cfg,
		    const struct rsh_copy_list *list, struct rsh_origin *out,
		    struct rsh_error *err)
{
	struct rsh_vfs_view view;
	uint64_t ctime[2];
	uint32_t n;

	*out = (struct rsh_origin){ 0 };
	if (!rsh_vfs_view(vfs, &view))
		return rsh_error_set(err, EINVAL, "nothing is converted");
	out->source_path =
		rsh_store_is_address(cfg->source) ?
			strdup(rsh_store_root(rsh_source_store(view.source))) :
			realpath(cfg->source, NULL);
	if (!out->source_path)
		return rsh_error_file(err, errno, cfg->source);
	rsh_source_chosen_text(view.source, out->step, sizeof(out->step));
	out->head.program = PACKAGE_VERSION;
	out->head.source = out->source_path;
	out->head.step = out->step;
	for (size_t i = 0; i < list->n; i++)
		out->head.bytes += list->files[i].size;
	out->head.n_files = list->n;
	n = rsh_source_n_files(view.source);
	out->sources = rsh_alloc_array(n, sizeof(*out->sources));
	if (!out->sources)
		return rsh_error_nomem(err);
	for (uint32_t i = 0; i < n; i++) {
		struct rsh_source_file_info f;

		rsh_source_file_info(view.source, i, &f);
		if (!f.valid)
			continue;
		out->sources[out->n_sources++] = (struct rsh_manifest_source){
			.rank = f.rank, .path = f.name, .size = f.bytes,
			.inode = f.inode, .mtime_s = f.mtime.tv_sec,
			.mtime_ns = (uint32_t)f.mtime.tv_nsec,
		};
		ctime[0] = (uint64_t)f.ctime.tv_sec;
		ctime[1] = (uint64_t)f.ctime.tv_nsec;
		out->ctimes = XXH3_64bits_withSeed(ctime, sizeof(ctime),
						   out->ctimes);
	}
	return take_strategy(cfg->src.path, cfg->src.from == RSH_FROM_SOURCE,
			     view.src, &view, &out->head.src, err) ?:
	       take_strategy(cfg->dst.path, cfg->dst.from == RSH_FROM_DERIVED,
			     view.dst, &view, &out->head.dst, err) ?:
	       identify(out, cfg, rsh_source_store(view.source), err);
}

void rsh_origin_clear(struct rsh_origin *o)
{
	free(o->source_path);
	free(o->sources);
	*o = (struct rsh_origin){ 0 };
}

int rsh_conversion_hash(const struct rsh_vfs *vfs,
			const struct rsh_vfs_config *cfg, uint64_t *out,
			struct rsh_error *err)
{
	const struct rsh_copy_list none = { .n = 0 };
	struct rsh_vfs_view view;
	struct rsh_origin o;
	int rc;

	*out = 0;
	if (!rsh_vfs_view(vfs, &view))
		return 0;
	rc = rsh_origin_make(vfs, cfg, &none, &o, err);
	*out = o.head.conversion;
	rsh_origin_clear(&o);
	return rc;
}
