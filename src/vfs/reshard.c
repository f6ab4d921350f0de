/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/reshard.c builds the tree of a conversion by means of the output, and
 * gives its files attributes and bodies.  The leaves are the files of the plan,
 * followed by the output's texts. */
#include "config.h"

#include "vfs_i.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/source/inspect.h"
#include "rsh/util/checked.h"
#include "rsh/util/clock.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"
#include "rsh/vfs/attribute.h"
#include "rsh/vfs/inspect.h"

/* ---- files that equal a source file ----
 *
 * For nearly all bytes this follows from the plan.  There are two exceptions:
 * headers, which the source may encode differently from the plan, and small
 * records that the converter takes from another rank although this rank has the
 * same.  These bytes are compared with the source, once for each file. */

/* These are the values that vfs_i.h gives rsh_vfs_file.backing. */
#define UNKNOWN 0
#define NONE 1
#define FIRST_FILE 2

/* The largest number of content bytes from other places that are compared. */
#define ELSEWHERE_MAX (64 * 1024)
/* A file with more sources does not count as a copy of one source file. */
#define SOURCES_MAX 8

#define COMPARE_BYTES 4096

/* A candidate is a source file that may equal the virtual file. */
struct backing_candidate {
	const struct rsh_reshard *v;
	struct rsh_body body; /* of the virtual file */
	uint32_t rank;     /* number of the source file */
	uint64_t elsewhere; /* content bytes that were compared */
};

/* Returns 1 if the source has the bytes of a piece, 0 if not, or -errno. */
static int backing_has_piece(struct backing_candidate *c,
			     const struct rsh_piece *p)
{
	uint8_t shown[COMPARE_BYTES], there[COMPARE_BYTES];

	if (!p->is_header && !p->is_tiled && p->codec == RSH_CODEC_NONE &&
	    p->src_rank == c->rank && p->src_offset == p->file_offset)
		return 1;
	if (!p->is_header)
		c->elsewhere += p->length;
	if (c->elsewhere > ELSEWHERE_MAX)
		return 0;
	for (uint64_t at = 0; at < p->length;) {
		const size_t n = (size_t)rsh_min_u64(p->length - at,
						     sizeof(shown));
		const uint64_t offset = p->file_offset + at;
		const uint8_t *bytes = p->is_header ? p->header + at : shown;
		ssize_t got = p->is_header ? (ssize_t)n :
			rsh_body_read(&c->body, shown, n, offset);
		int rc;

		if (got != (ssize_t)n)
			return got < 0 ? (int)got : -EIO;
		rc = rsh_source_read(c->v->source, c->rank, offset, there, n);
		if (rc)
			return rc;
		if (memcmp(there, bytes, n) != 0)
			return 0;
		at += n;
	}
	return 1;
}

/* Returns whether the candidate, which has the same size, equals the file, or
 * -errno. */
static int backing_check_all(struct backing_candidate *c, uint32_t rank,
			     uint64_t size)
{
	const struct rsh_reshard *v = c->v;
	struct rsh_piece_iter *it =
		rsh_piece_iter_new(v->plan, rank, 0, size, v->replicas ?
				   rsh_store_failed(rsh_source_store(v->source))
				   : NULL);
	struct rsh_piece p;
	int same = 1, rc;

	if (!it)
		return -ENOMEM;
	while (same == 1 && rsh_piece_iter_next(it, &p))
		same = backing_has_piece(c, &p);
	rc = rsh_piece_iter_status(it);
	rsh_piece_iter_free(it);
	return same == 1 && rc ? rc : same;
}

/* Finds a source file that equals a virtual file, and sets *file to it.
 * Returns 1 if there is one, 0 if not, or -errno. */
static int backing_find(const struct rsh_reshard *v, uint32_t rank,
			uint32_t *file)
{
	const uint64_t size = rsh_plan_size(v->plan, rank);
	const uint32_t *sources;
	uint32_t n;
	int same = 0;

	sources = rsh_plan_sources(v->plan, rank, &n);
	if (rsh_plan_is_lost(v->plan, rank) || n > SOURCES_MAX)
		return 0;
	for (uint32_t i = 0; i < n && same == 0; i++) {
		struct backing_candidate c = {
			.v = v, .rank = sources[i],
			.body = rsh_body_of_plan(v->reader, rank),
		};

		if (rsh_source_whole(v->source, c.rank, size, file))
			same = backing_check_all(&c, rank, size);
	}
	return same;
}

static int reshard_backing(const struct rsh_vfs *vfs, uint32_t leaf,
			   uint32_t *file)
{
	const struct rsh_reshard *v = rsh_reshard_of(vfs);
	struct rsh_store *store = rsh_source_store(v->source);
	atomic_uint_fast64_t *known;
	cleanup_fd int fd = -1;
	int rc;

	if (leaf >= v->n_files)
		return -ENODATA;
	known = &v->files[leaf].backing;
	if (atomic_load(known) == UNKNOWN) {
		rc = backing_find(v, leaf, file);
		if (rc < 0)
			return v->replicas || rc == -EIO ? -ENODATA : rc;
		atomic_store(known, rc ? FIRST_FILE + (uint64_t)*file : NONE);
	}
	if (atomic_load(known) == NONE)
		return -ENODATA;
	*file = (uint32_t)(atomic_load(known) - FIRST_FILE);
	/* With replicas, the file is given only if it exists and has not
	 * changed, since otherwise a replica is read instead. */
	return v->replicas && (rsh_store_file_failed(store, *file) ||
			       rsh_store_descriptor(store, *file, &fd)) ?
		       -ENODATA : 0;
}

/* ---- attributes ---- */

static const char *const names[RSH_N_ATTRIBUTES] = {
	[RSH_ATTRIBUTE_SOURCES] = "user.reshardfs.sources",
	[RSH_ATTRIBUTE_REPLICAS] = "user.reshardfs.replicas",
	[RSH_ATTRIBUTE_STEP] = RSH_ATTRIBUTE_NAME_STEP,
	[RSH_ATTRIBUTE_RECORD_COUNT] = "user.reshardfs.record_count",
};

/* Calls the tree's `attribute` for a node. */
static int write_attribute(const struct rsh_vfs *v, uint64_t number,
			   enum rsh_attribute which, FILE *to)
{
	struct rsh_node node;

	if (!v->ops->attribute || !rsh_tree_node(&v->tree, number, &node) ||
	    (node.kind == RSH_NODE_DIR && number != RSH_VFS_ROOT))
		return -ENODATA;
	return v->ops->attribute(v, node.leaf, which, to);
}

size_t rsh_vfs_attribute_names(const struct rsh_vfs *v, uint64_t node,
			       char list[RSH_ATTRIBUTE_NAMES_MAX])
{
	char *to = list;

	for (int i = 0; i < RSH_N_ATTRIBUTES; i++)
		if (write_attribute(v, node, (enum rsh_attribute)i, NULL) == 0)
			to = stpcpy(to, names[i]) + 1;
	return (size_t)(to - list);
}

static int attribute_print(const struct rsh_vfs *v, uint64_t node,
			   enum rsh_attribute which, char **value,
			   size_t *length)
{
	cleanup_free char *text = NULL;
	FILE *f = open_memstream(&text, length);
	int rc;

	if (!f)
		return -ENOMEM;
	rc = write_attribute(v, node, which, f);
	if (rc == 0 && ferror(f))
		rc = -ENOMEM;
	if (fclose(f) != 0 && rc == 0)
		rc = -ENOMEM;
	if (rc == 0)
		*value = steal_pointer(&text);
	return rc;
}

int rsh_vfs_step(const struct rsh_vfs *v, char **step)
{
	size_t length;

	return attribute_print(v, RSH_VFS_ROOT, RSH_ATTRIBUTE_STEP, step,
			       &length);
}

int rsh_vfs_attribute(const struct rsh_vfs *v, uint64_t node, const char *name,
		      char **value, size_t *length)
{
	cleanup_free char *exact = NULL;
	int rc = -ENODATA;

	for (int i = 0; i < RSH_N_ATTRIBUTES; i++) {
		if (strcmp(name, names[i]) != 0)
			continue;
		rc = attribute_print(v, node, (enum rsh_attribute)i, value,
				     length);
		if (rc || i != RSH_ATTRIBUTE_STEP)
			break;
		exact = *value;
		*value = rsh_text_escape(exact);
		if (!*value)
			return -ENOMEM;
		*length = strlen(*value);
	}
	return rc;
}

int rsh_attribute_path(FILE *to, const char *path)
{
	cleanup_free char *escaped = rsh_text_escape(path);

	return escaped && fputs(escaped, to) >= 0 ? 0 : -ENOMEM;
}

static int reshard_print_sources(const struct rsh_reshard *v, uint32_t rank,
				 FILE *to)
{
	struct rsh_source_file_info f;
	struct rsh_source_view view;
	uint32_t n;
	int rc = 0;
	const uint32_t *ranks = rsh_plan_sources(v->plan, rank, &n);

	rsh_source_view(v->source, v->names, &view);
	for (uint32_t i = 0; i < n && rc == 0; i++) {
		uint32_t first, n_files;
		bool any = false;

		/* A rank may have several files. */
		n_files = rsh_source_rank_files(v->source, ranks[i], &first);
		if (i > 0)
			fputc('\n', to);
		if (n_files == 0)
			rc = rsh_attribute_path(to, view.path[ranks[i]]);
		for (uint32_t k = 0; k < n_files && rc == 0; k++) {
			rsh_source_file_info(v->source, first + k, &f);
			if (!f.valid)
				continue;
			if (any)
				fputc('\n', to);
			any = true;
			rc = rsh_attribute_path(to, f.path);
		}
	}
	return rc;
}

int rsh_vfs_replicas(const struct rsh_strategy *src, uint32_t **first,
		     uint32_t *n)
{
	*first = NULL;
	*n = src ? src->n_stages * src->stage_ranks : 0;
	if (!src)
		return 0;
	*first = rsh_alloc_array(*n, sizeof(**first));
	if (*first && rsh_strategy_replicas(src, *first) == 0)
		return 0;
	free(*first);
	*first = NULL;
	return -ENOMEM;
}

static int reshard_print_replicas(const struct rsh_reshard *v, uint32_t rank,
				  FILE *to)
{
	cleanup_free uint32_t *first = NULL;
	uint32_t n, n_first;
	const uint32_t *ranks = rsh_plan_sources(v->plan, rank, &n);
	int rc = rsh_vfs_replicas(v->src, &first, &n_first);

	for (uint32_t i = 0; rc == 0 && i < n; i++) {
		/* getfattr shows a value in base64 if it has fewer than eight
		 * letters a line, hence the word. */
		fprintf(to, "%srank %" PRIu32 ":", i ? "\n" : "", ranks[i]);
		for (uint32_t r = 0; r < n_first; r++)
			if (r != ranks[i] && first[r] == first[ranks[i]])
				fprintf(to, " %" PRIu32, r);
	}
	return rc;
}

/* A leaf that belongs to no rank or part is the index of a model's parts. */
static int reshard_attribute(const struct rsh_vfs *vfs, uint32_t rank,
			     enum rsh_attribute which, FILE *to)
{
	const struct rsh_reshard *v = rsh_reshard_of(vfs);
	char step[256];

	if ((rank >= v->n_files && which != RSH_ATTRIBUTE_STEP) ||
	    (which == RSH_ATTRIBUTE_REPLICAS && !v->src))
		return -ENODATA;
	if (!to)
		return 0;
	switch (which) {
	case RSH_ATTRIBUTE_SOURCES:
		return reshard_print_sources(v, rank, to);
	case RSH_ATTRIBUTE_REPLICAS:
		return reshard_print_replicas(v, rank, to);
	case RSH_ATTRIBUTE_STEP:
		rsh_source_chosen_text(v->source, step, sizeof(step));
		fputs(step, to);
		break;
	case RSH_ATTRIBUTE_RECORD_COUNT:
		fprintf(to, "%" PRIu32, rsh_plan_n_records(v->plan, rank));
		break;
	case RSH_N_ATTRIBUTES:
		return -ENODATA;
	}
	return 0;
}

/* ---- building ---- */

/* A user may read the file if the user may read all of its source files. */
static void reshard_inherit(const struct rsh_reshard *v, uint32_t rank,
			    struct rsh_vfs_file *f)
{
	const struct rsh_tree *t = &v->vfs.tree;
	uint32_t n;
	const uint32_t *ranks = rsh_plan_sources(v->plan, rank, &n);
	bool any = false;

	*f = (struct rsh_vfs_file){ .mode = 0444, .mtime = t->dir_mtime };
	for (uint32_t i = 0; i < n; i++) {
		struct rsh_store_attr a;

		if (!rsh_source_attr(v->source, ranks[i], &a))
			continue;
		f->mode &= rsh_store_mode_as(&a, t->uid, t->gid);
		if (!any || rsh_clock_compare(&a.mtime, &f->mtime) > 0)
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

bool rsh_reshard_is_as_saved(const struct rsh_reshard *v,
			     const struct rsh_vfs_config *cfg)
{
	return !v->weights && !v->src && !v->renames &&
	       !rsh_choice_is_given(&cfg->choice) &&
	       cfg->plan.cast == RSH_DTYPE_UNKNOWN;
}

int rsh_reshard_build(struct rsh_reshard *v, const struct rsh_vfs_config *cfg,
		      struct rsh_error *err)
{
	const struct rsh_reader_options reading = {
		.replicas = v->replicas,
		.tell_lost = reshard_tell_lost, .ctx = v,
	};
	const struct rsh_output_mesh mesh = rsh_vfs_output_mesh(cfg);
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
		.prefix = cfg->tree.prefix, .mesh = &mesh,
		.beside = {
			cfg->model_files, cfg->shown_config, cfg->source,
			&cfg->files.store, v->source, cfg->is_beside,
			cfg->files.steps_dir,
		},
		.partial = rsh_choice_is_given(&cfg->choice),
		.as_saved = rsh_reshard_is_as_saved(v, cfg),
		.lora_alpha = cfg->weights.lora_alpha,
		.adapter_config = v->weights ?
			rsh_vfs_weights_adapter_config(v->weights) : NULL,
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
		if (rsh_clock_compare(&v->files[i].mtime, &out->mtime) > 0)
			out->mtime = v->files[i].mtime;
	}
	return 0;
}

const struct rsh_vfs_ops rsh_reshard_ops = {
	.free = reshard_free,
	.show = reshard_show,
	.body = reshard_body,
	.backing = reshard_backing,
	.attribute = reshard_attribute,
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
