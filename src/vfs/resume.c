/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/resume.c makes the tree of a job's newest checkpoints. */
#include "config.h"

#include "vfs_i.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/plan/blueprint.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"

struct resumed_tree {
	struct rsh_vfs vfs;
	struct rsh_resume *resume;
	struct rsh_plan *plan; /* a file for each entry */
	struct rsh_reader *reader;
	const struct rsh_resume_entry *entries; /* of `resume`; their numbers
						 * are the leaves */
};

static const struct resumed_tree *resumed_tree(const struct rsh_vfs *v)
{
	return (const struct resumed_tree *)v;
}

static void resumed_free(struct rsh_vfs *v)
{
	struct resumed_tree *t = (struct resumed_tree *)v;

	rsh_vfs_clear(&t->vfs);
	rsh_reader_free(t->reader);
	rsh_plan_free(t->plan);
	rsh_resume_free(t->resume);
	free(t);
}

static uint64_t resumed_size(const struct rsh_resume_entry *e)
{
	return e->kind == RSH_RESUME_FILE ? e->size : strlen(e->text);
}

static int resumed_show(const struct rsh_vfs *v, uint32_t leaf,
			struct rsh_leaf *out)
{
	const struct resumed_tree *t = resumed_tree(v);
	const struct rsh_resume_entry *e = &t->entries[leaf];
	struct rsh_store_attr a;

	if (!rsh_source_attr(rsh_resume_source(t->resume), e->file, &a))
		return -ENOENT;
	*out = (struct rsh_leaf){
		.mode = e->kind == RSH_RESUME_LINK ? 0777 :
			rsh_store_mode_as(&a, v->tree.uid, v->tree.gid) & 0444,
		.size = resumed_size(e), .mtime = a.mtime,
	};
	return 0;
}

static const char *resumed_link(const struct rsh_vfs *v, uint32_t leaf)
{
	return resumed_tree(v)->entries[leaf].text;
}

static struct rsh_body resumed_body(const struct rsh_vfs *v, uint32_t leaf)
{
	const struct resumed_tree *t = resumed_tree(v);
	const struct rsh_resume_entry *e = &t->entries[leaf];

	return e->kind == RSH_RESUME_TEXT ?
	       rsh_body_of_text(e->text, resumed_size(e)) :
	       rsh_body_of_plan(t->reader, leaf);
}

static int resumed_backing(const struct rsh_vfs *v, uint32_t leaf,
			   uint32_t *file)
{
	const struct resumed_tree *t = resumed_tree(v);
	const struct rsh_resume_entry *e = &t->entries[leaf];

	return e->kind == RSH_RESUME_FILE &&
	       rsh_source_whole(rsh_resume_source(t->resume), e->file,
				e->size, file) ? 0 : -ENODATA;
}

static struct rsh_source *resumed_source(const struct rsh_vfs *v)
{
	return rsh_resume_source(resumed_tree(v)->resume);
}

static int resumed_attribute(const struct rsh_vfs *v, uint32_t leaf,
			     enum rsh_attribute which, FILE *to)
{
	const struct resumed_tree *t = resumed_tree(v);
	const struct rsh_resume_entry *e =
		leaf == RSH_NO_LEAF ? NULL : &t->entries[leaf];
	struct rsh_source_view view;

	if (which == RSH_ATTRIBUTE_STEP && (!e || e->kind != RSH_RESUME_LINK)) {
		if (to)
			fputs(rsh_resume_step(t->resume), to);
		return 0;
	}
	if (which != RSH_ATTRIBUTE_SOURCES || !e || e->kind != RSH_RESUME_FILE)
		return -ENODATA;
	if (!to)
		return 0;
	rsh_source_view(rsh_resume_source(t->resume), NULL, &view);
	return rsh_attribute_path(to, view.path[e->file]);
}

static const struct rsh_vfs_ops resume_ops = {
	.free = resumed_free,
	.show = resumed_show,
	.link = resumed_link,
	.body = resumed_body,
	.backing = resumed_backing,
	.source = resumed_source,
	.attribute = resumed_attribute,
};

static int resumed_build(struct resumed_tree *t, struct rsh_error *err)
{
	cleanup_free struct rsh_path *paths = NULL;
	size_t n;
	int rc;

	t->entries = rsh_resume_entries(t->resume, &n);
	paths = rsh_alloc_array(n ? n : 1, sizeof(*paths));
	if (!paths)
		return rsh_error_nomem(err);
	for (size_t i = 0; i < n; i++) {
		const struct rsh_resume_entry *e = &t->entries[i];
		const bool link = e->kind == RSH_RESUME_LINK;

		paths[i] = (struct rsh_path){
			e->name, link ? RSH_NODE_LINK : RSH_NODE_FILE,
			(uint32_t)i,
		};
		t->vfs.total_bytes += link ? 0 : resumed_size(e);
	}
	rc = rsh_tree_add_paths(&t->vfs.tree, paths, n);
	if (rc == -EEXIST)
		return rsh_error_set(err, EEXIST,
			"two files would have the same name in the mount");
	return rc ? rsh_error_nomem(err) : 0;
}

/* Makes a plan of whole files.  File i is the file of entry i; if the entry is
 * not a file, file i has 0 bytes. */
static int resumed_plan(const struct rsh_resume *r, struct rsh_plan **out,
			struct rsh_error *err)
{
	const struct rsh_plan_ops writer = { .ctx = NULL };
	struct rsh_source_view view;
	struct rsh_catalogue *c;
	size_t n;
	const struct rsh_resume_entry *e = rsh_resume_entries(r, &n);
	const struct rsh_blueprint b = { .n_ranks = (uint32_t)n };
	struct rsh_plan *p;
	int rc = 0;

	rsh_source_view(rsh_resume_source(r), NULL, &view);
	c = rsh_catalogue_new(&view);
	p = c ? rsh_blueprint_new(c, &writer, &b) : NULL;
	if (!p)
		return rsh_error_nomem(err);
	for (size_t i = 0; i < n && rc == 0; i++) {
		const struct rsh_shown_file f = { .rank = (uint32_t)i };

		rc = rsh_blueprint_add_whole(p, &f, e[i].file,
					     e[i].kind == RSH_RESUME_FILE ?
					     e[i].size : 0, err);
	}
	if (rc == 0)
		rc = rsh_blueprint_finish(p, NULL, NULL, err);
	if (rc) {
		rsh_plan_free(p);
		return rc;
	}
	*out = p;
	return 0;
}

int rsh_vfs_open_resume(const struct rsh_vfs_resume_config *cfg,
			struct rsh_vfs **out, struct rsh_error *err)
{
	const struct rsh_reader_options options = { .replicas = false };
	struct resumed_tree *t = calloc(1, sizeof(*t));
	int rc;

	if (!t)
		return rsh_error_nomem(err);
	t->vfs.ops = &resume_ops;
	rc = rsh_resume_open(cfg->source, &cfg->files, cfg->fallbacks,
			     cfg->files.formats, &t->resume, err);
	if (rc == 0) {
		rsh_vfs_own(&t->vfs, rsh_resume_source(t->resume), cfg->uid,
			    cfg->gid);
		rc = resumed_plan(t->resume, &t->plan, err);
	}
	if (rc == 0 && rsh_reader_new(t->plan, rsh_resume_source(t->resume),
				      &options, &t->reader))
		rc = rsh_error_nomem(err);
	if (rc == 0)
		rc = resumed_build(t, err);
	if (rc) {
		resumed_free(&t->vfs);
		return rc;
	}
	rsh_log_info("%s: %llu nodes, %llu bytes", cfg->source,
		     (unsigned long long)rsh_tree_n_nodes(&t->vfs.tree),
		     (unsigned long long)t->vfs.total_bytes);
	*out = &t->vfs;
	return 0;
}
