/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/reshard.c builds the tree of a conversion by means of the output, and
 * gives its files attributes and bodies.  The leaves are the files of the plan,
 * followed by the output's texts. */
#include "config.h"

#include "vfs_i.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/vfs/inspect.h"

/* ---- building ---- */

static bool file_is_newer(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec != b->tv_sec ? a->tv_sec > b->tv_sec :
					a->tv_nsec > b->tv_nsec;
}

/* A user may read the file if the user may read all of its source files. */
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
		if (!any || file_is_newer(&a.mtime, &f->mtime))
			f->mtime = a.mtime;
		any = true;
	}
}

static void reshard_tell_lost(void *ctx, uint32_t file)
{
	const struct rsh_reshard *v = ctx;
	char name[NAME_MAX + 1];

	if (atomic_exchange(&v->files[file].reported, true))
		return;
	rsh_output_file_name(&v->vfs.tree, file, name, sizeof(name));
	rsh_log_error("%s needs slices that are lost", name);
}

int rsh_reshard_build(struct rsh_reshard *v, const struct rsh_vfs_config *cfg,
		      struct rsh_error *err)
{
	const struct rsh_reader_options reading = {
		.replicas = v->replicas,
		.tell_lost = reshard_tell_lost, .ctx = v,
	};
	int rc;

	rsh_vfs_own(&v->vfs, v->source, cfg->tree.uid, cfg->tree.gid);
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
	v->shown = (struct rsh_output_tree){
		.output = v->output, .tree = &v->vfs.tree,
		.plan = v->plan, .source = v->source, .reader = v->reader,
		.src = v->src, .dst = v->dst, .names = v->names,
		.prefix = cfg->tree.prefix,
		.model_files = cfg->model_files, .source_path = cfg->source,
		.store = &cfg->files.store,
		.partial = cfg->only || cfg->drop,
		.lora_alpha = cfg->weights.lora_alpha,
		.hold_config = v->weights ? rsh_vfs_weights_hold : NULL,
		.ctx = v->weights,
		.values = &v->extra,
	};
	rc = v->output->build(&v->shown, err);
	for (size_t i = 0; i < v->shown.n_texts; i++)
		v->vfs.total_bytes += v->shown.texts[i].body.size;
	return rc;
}

static void reshard_free(struct rsh_vfs *vfs)
{
	struct rsh_reshard *v = (struct rsh_reshard *)vfs;

	rsh_vfs_clear(vfs);
	free(v->files);
	rsh_output_tree_clear(&v->shown);
	rsh_values_clear(&v->extra);
	rsh_reader_free(v->reader);
	rsh_plan_free(v->plan);
	rsh_name_map_free(v->renames);
	rsh_vfs_weights_free(v->weights);
	rsh_source_free(v->source);
	rsh_strategy_free(v->dst);
	rsh_strategy_free(v->src);
	rsh_names_free(v->names);
	free(v);
}

/* ---- leaves ---- */

static struct rsh_body reshard_body(const struct rsh_vfs *vfs, uint32_t leaf)
{
	const struct rsh_reshard *v = rsh_reshard_of(vfs);

	return leaf < v->n_files ? rsh_body_of_plan(v->reader, leaf) :
				   v->shown.texts[leaf - v->n_files].body;
}

static int reshard_show(const struct rsh_vfs *vfs, uint32_t leaf,
			struct rsh_leaf *out)
{
	const struct rsh_reshard *v = rsh_reshard_of(vfs);
	const struct rsh_tree *t = &vfs->tree;
	const struct rsh_output_text *text;

	if (leaf < v->n_files) {
		*out = (struct rsh_leaf){
			.mode = v->files[leaf].mode,
			.size = rsh_plan_size(v->plan, leaf),
			.mtime = v->files[leaf].mtime,
		};
		return 0;
	}
	text = &v->shown.texts[leaf - v->n_files];
	*out = (struct rsh_leaf){
		.mode = text->attr ?
			rsh_store_mode_as(text->attr, t->uid, t->gid) :
			text->mode,
		.size = text->body.size,
		.mtime = text->attr ? text->attr->mtime : v->files[0].mtime,
	};
	for (uint32_t i = 0; !text->attr && i < v->n_files; i++) {
		out->mode &= v->files[i].mode;
		if (file_is_newer(&v->files[i].mtime, &out->mtime))
			out->mtime = v->files[i].mtime;
	}
	return 0;
}

static struct rsh_source *reshard_source(const struct rsh_vfs *vfs)
{
	return rsh_reshard_of(vfs)->source;
}

const struct rsh_vfs_ops rsh_reshard_ops = {
	.free = reshard_free,
	.show = reshard_show,
	.body = reshard_body,
	.backing = rsh_reshard_backing,
	.source = reshard_source,
	.attribute = rsh_reshard_attribute,
};

bool rsh_vfs_view(const struct rsh_vfs *vfs, struct rsh_vfs_view *out)
{
	const struct rsh_reshard *v = rsh_reshard_of(vfs);

	if (vfs->ops != &rsh_reshard_ops)
		return false;
	*out = (struct rsh_vfs_view){
		.vfs = vfs,
		.plan = v->plan,
		.source = v->source,
		.reader = v->reader,
		.src = v->src,
		.dst = v->dst,
		.names = v->names,
		.output = v->output,
	};
	return true;
}

bool rsh_vfs_rank(const struct rsh_vfs *vfs, uint64_t node, uint32_t *rank)
{
	struct rsh_node found;

	if (vfs->ops != &rsh_reshard_ops ||
	    !rsh_tree_node(&vfs->tree, node, &found) ||
	    found.kind != RSH_NODE_FILE ||
	    found.leaf >= rsh_reshard_of(vfs)->n_files)
		return false;
	*rank = found.leaf;
	return true;
}

void rsh_vfs_file_name(const struct rsh_vfs *v, uint32_t file, char *name,
		       size_t max)
{
	rsh_output_file_name(&v->tree, file, name, max);
}
