/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/reshard.c gives a conversion's files their names, node numbers,
 * attributes and bodies.  Leaves are ranks or parts, and the map of parts comes
 * after them. */
#include "config.h"

#include "vfs_i.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/source/inspect.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"

int rsh_file_name(const struct rsh_reshard *v, uint32_t file, char *name,
		  size_t max)
{
	struct rsh_node node;

	rsh_tree_node(&v->vfs.tree, RSH_NODE_FIRST_FILE + 2 * (uint64_t)file,
		      &node);
	return rsh_node_name(&node, name, max);
}

/* ---- building ---- */

static bool is_newer(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec != b->tv_sec ? a->tv_sec > b->tv_sec :
					a->tv_nsec > b->tv_nsec;
}

/* A file is readable for those who may read all of its sources. */
static void reshard_inherit(const struct rsh_reshard *v, uint32_t rank,
			    struct rsh_vfs_file *f)
{
	const struct rsh_tree *t = &v->vfs.tree;
	uint32_t n;
	const uint32_t *ranks =
		rsh_plan_sources(v->plan, rank, &n);
	bool any = false;

	*f = (struct rsh_vfs_file){ .mode = 0444, .mtime = t->dir_mtime };
	for (uint32_t i = 0; i < n; i++) {
		struct rsh_store_attr a;

		if (!rsh_source_attr(v->source, ranks[i], &a))
			continue;
		f->mode &= rsh_store_mode_as(&a, t->uid, t->gid);
		if (!any || is_newer(&a.mtime, &f->mtime))
			f->mtime = a.mtime;
		any = true;
	}
}

static int reshard_add_parts(struct rsh_reshard *v)
{
	const struct rsh_row parts = {
		.n = v->n_files, .first = RSH_NODE_FIRST_FILE, .step = 2,
		.parent = RSH_VFS_ROOT, .kind = RSH_NODE_FILE,
		.before = "model-", .from = 1, .digits = 5, .after = v->after,
	};
	const struct rsh_row map = {
		.n = 1, .first = RSH_NODE_FIRST_DIR, .step = 1,
		.parent = RSH_VFS_ROOT, .items = &v->map_item,
	};
	int rc;

	v->map_item = (struct rsh_item){ RSH_MAP_NAME, RSH_NODE_FILE,
					 RSH_MAP_LEAF(v) };
	rc = rsh_tree_add(&v->vfs.tree, &parts);
	return rc ? rc : rsh_tree_add(&v->vfs.tree, &map);
}

static int reshard_add_ranks(struct rsh_reshard *v)
{
	const struct rsh_row dirs = {
		.n = v->n_files, .first = RSH_NODE_FIRST_DIR, .step = 2,
		.parent = RSH_VFS_ROOT, .kind = RSH_NODE_DIR,
		.before = "rank_", .after = "",
	};
	const struct rsh_row files = {
		.n = v->n_files, .first = RSH_NODE_FIRST_FILE, .step = 2,
		.parent = RSH_NODE_FIRST_DIR, .apart = 2, .kind = RSH_NODE_FILE,
		.before = v->before, .after = v->after,
	};
	int rc = rsh_tree_add(&v->vfs.tree, &dirs);

	return rc ? rc : rsh_tree_add(&v->vfs.tree, &files);
}

/* Its number is behind those of all directories. */
static int reshard_add_extra(struct rsh_reshard *v)
{
	const struct rsh_row extra = {
		.n = 1, .first = RSH_NODE_FIRST_DIR + 2 * (uint64_t)v->n_files,
		.step = 1, .parent = RSH_VFS_ROOT, .items = &v->extra_item,
	};
	struct rsh_source_file_info f;
	struct rsh_store_attr a;

	if (!v->extra.text)
		return 0;
	v->extra_item = (struct rsh_item){ RSH_EXTRA_NAME, RSH_NODE_FILE,
					   RSH_EXTRA_LEAF };
	/* What keeps people from the tensors keeps them from the values. */
	v->extra_mode = rsh_store_mode_as(&v->extra.attr, v->vfs.tree.uid,
					  v->vfs.tree.gid);
	for (uint32_t i = 0; i < rsh_source_n_files(v->source); i++) {
		rsh_source_file_info(v->source, i, &f);
		if (f.valid && rsh_source_attr(v->source, f.rank, &a))
			v->extra_mode &= rsh_store_mode_as(&a, v->vfs.tree.uid,
							   v->vfs.tree.gid);
	}
	v->vfs.total_bytes += v->extra.len;
	return rsh_tree_add(&v->vfs.tree, &extra);
}

/* Their numbers are behind that of the values. */
static int reshard_add_beside(struct rsh_reshard *v, struct rsh_error *err)
{
	struct rsh_tree *t = &v->vfs.tree;
	const uint32_t n = (uint32_t)v->beside.n;
	struct rsh_row row = {
		.n = n, .step = 1, .parent = RSH_VFS_ROOT,
		.first = RSH_NODE_FIRST_DIR + 2 * (uint64_t)v->n_files + 1,
	};

	if (n == 0)
		return 0;
	row.items = v->beside_items = rsh_alloc_array(n, sizeof(*row.items));
	if (!row.items)
		return rsh_error_nomem(err);
	for (uint32_t i = 0; i < n; i++) {
		const struct rsh_model_file *f = &v->beside.v[i];

		if (rsh_tree_find(t, RSH_VFS_ROOT, f->name))
			return rsh_error_set(err, EEXIST, "%s is there twice: "
					     "beside the model, and as a file "
					     "of its own", f->name);
		v->beside_items[i] = (struct rsh_item){
			f->name, RSH_NODE_FILE, RSH_BESIDE_LEAF(v) + i,
		};
		v->vfs.total_bytes += f->bytes;
	}
	return rsh_tree_add(t, &row) ? rsh_error_nomem(err) : 0;
}

static int reshard_add_names(struct rsh_reshard *v, const char *prefix,
			     struct rsh_error *err)
{
	const char *suffix =
		rsh_file_type_suffix(rsh_plan_format(v->plan));
	char name[NAME_MAX + 1];
	int rc;

	v->before = strdup(prefix);
	if (v->in_parts ?
	    asprintf(&v->after, "-of-%05" PRIu32 "%s", v->n_files, suffix) < 0 :
	    asprintf(&v->after, "%s%s",
		     rsh_plan_name_suffix(v->plan), suffix) < 0)
		v->after = NULL;
	if (!v->before || !v->after ||
	    (v->in_parts ? reshard_add_parts(v) : reshard_add_ranks(v)) ||
	    reshard_add_extra(v))
		return rsh_error_nomem(err);
	if (v->n_files > 0 && rsh_file_name(v, v->n_files - 1, name,
					    sizeof(name)) > NAME_MAX)
		return rsh_error_set(err, ENAMETOOLONG, "the prefix \"%s\" "
				     "makes file names too long", prefix);
	rc = rsh_vfs_settle_configs(v, err);
	return rc ? rc : reshard_add_beside(v, err);
}

static void reshard_tell_lost(void *ctx, uint32_t file)
{
	const struct rsh_reshard *v = ctx;
	char name[NAME_MAX + 1];

	if (atomic_exchange(&v->files[file].reported, true))
		return;
	rsh_file_name(v, file, name, sizeof(name));
	rsh_log_error("%s needs slices that are lost", name);
}

int rsh_reshard_build(struct rsh_reshard *v, const struct rsh_vfs_options *o,
		      bool checkpoint2, struct rsh_error *err)
{
	const struct rsh_reader_options reading = {
		.replicas = v->replicas,
		.tell_lost = reshard_tell_lost, .ctx = v,
	};

	rsh_vfs_own(&v->vfs, v->source, o->uid, o->gid);
	v->n_files = rsh_plan_n_files(v->plan);
	v->files = rsh_alloc_array(v->n_files ? v->n_files : 1,
				   sizeof(*v->files));
	if (!v->files ||
	    rsh_reader_new(v->plan, v->source, &reading, &v->reader))
		return rsh_error_nomem(err);
	for (uint32_t r = 0; r < v->n_files; r++) {
		reshard_inherit(v, r, &v->files[r]);
		v->vfs.total_bytes += rsh_plan_size(v->plan, r);
	}
	return checkpoint2 ? rsh_checkpoint2_build(v, err) :
			     reshard_add_names(v, o->prefix, err);
}

/* ---- leaves ---- */

static const struct rsh_model_file *reshard_beside(const struct rsh_reshard *v,
						   uint32_t leaf)
{
	const uint32_t first = RSH_BESIDE_LEAF(v);

	return v->in_parts && leaf >= first && leaf - first < v->beside.n ?
		&v->beside.v[leaf - first] : NULL;
}

static struct rsh_body reshard_body(const struct rsh_vfs *vfs, uint32_t leaf)
{
	const struct rsh_reshard *v = rsh_reshard_of(vfs);
	const struct rsh_model_file *beside = reshard_beside(v, leaf);

	if (leaf == RSH_EXTRA_LEAF)
		return rsh_body_of_text(v->extra.text, v->extra.len);
	if (beside)
		return rsh_body_of_text(beside->text, beside->bytes);
	if (leaf < v->n_files)
		return rsh_body_of_plan(v->reader, leaf);
	return v->checkpoint2 ? rsh_checkpoint2_body(v, leaf) :
				rsh_body_of_text(v->map, v->map_bytes);
}

/* What is said about the files is as readable and as new as all of them. */
static void reshard_show_text(const struct rsh_reshard *v, uint32_t leaf,
			      struct rsh_leaf *out)
{
	*out = (struct rsh_leaf){
		.mode = leaf == RSH_EXTRA_LEAF ? v->extra_mode : 0444,
		.size = reshard_body(&v->vfs, leaf).size,
		.mtime = v->files[0].mtime,
	};
	for (uint32_t i = 0; i < v->n_files; i++) {
		out->mode &= v->files[i].mode;
		if (is_newer(&v->files[i].mtime, &out->mtime))
			out->mtime = v->files[i].mtime;
	}
}

static int reshard_show(const struct rsh_vfs *vfs, uint32_t leaf,
			struct rsh_leaf *out)
{
	const struct rsh_reshard *v = rsh_reshard_of(vfs);
	const struct rsh_model_file *beside = reshard_beside(v, leaf);
	const struct rsh_tree *t = &vfs->tree;

	if (beside)
		*out = (struct rsh_leaf){
			.mode = rsh_store_mode_as(&beside->attr, t->uid,
						  t->gid),
			.size = beside->bytes,
			.mtime = beside->attr.mtime,
		};
	else if (leaf >= v->n_files)
		reshard_show_text(v, leaf, out);
	else
		*out = (struct rsh_leaf){
			.mode = v->files[leaf].mode,
			.size = rsh_plan_size(v->plan, leaf),
			.mtime = v->files[leaf].mtime,
		};
	return 0;
}

static struct rsh_source *reshard_source(const struct rsh_vfs *vfs)
{
	return rsh_reshard_of(vfs)->source;
}

const struct rsh_vfs_ops rsh_reshard_ops = {
	.free = rsh_reshard_free,
	.show = reshard_show,
	.body = reshard_body,
	.backing = rsh_reshard_backing,
	.source = reshard_source,
	.attribute = rsh_reshard_attribute,
};
