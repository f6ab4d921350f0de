/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/resume.c makes the tree of a job's newest checkpoints: the files under
 * their own names, symbolic links with stable names, and small texts. */
#include "config.h"

#include "vfs_i.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/plan/blueprint.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/wire/checkpoint2.h"

#define LATEST "latest"

/* Its number is that of its leaf, and of a file of the plan. */
struct resumed_entry {
	const char *name; /* path, such as "rank_3/net-5_10.ckpt" */
	enum rsh_node_kind kind;
	const char *text; /* target of a link, or content of a text; NULL: it
			   * is a file of SOURCE */
	uint32_t file;    /* number in the source; others have its times */
	uint64_t size;
};

struct resumed_tree {
	struct rsh_vfs vfs;
	struct rsh_resume resume; /* its arena has the texts */
	struct rsh_plan *plan;
	struct rsh_reader *reader;
	struct resumed_entry *entries;
	size_t n, cap;
};

static const struct resumed_tree *resumed_tree(const struct rsh_vfs *v)
{
	return (const struct resumed_tree *)v;
}

/* ---- what is shown ---- */

/* Adds an entry below `dir` of the mount. */
static void show_entry(struct resumed_tree *t, const char *dir,
		       const char *name, enum rsh_node_kind kind, uint32_t file,
		       const char *text)
{
	struct rsh_resume *r = &t->resume;
	const struct resumed_entry e = {
		.kind = kind, .text = text, .file = file,
		.name = rsh_arena_format(&r->arena, "%s%s%s", dir,
					 *dir ? "/" : "", name),
		.size = text ? strlen(text) :
			rsh_store_identity(rsh_source_store(r->source),
					   file)->size,
	};

	if (rsh_push(t->entries, t->n, t->cap, e))
		r->arena.failed = true;
}

/* Shows the file "checkpoint" of TensorFlow, a protobuf as text. */
static void show_checkpoint(struct resumed_tree *t, const struct rsh_saved *s)
{
	char quoted[2 * NAME_MAX + 1], *to = quoted;

	for (const char *c = s->label; *c; c++) {
		if (*c == '"' || *c == '\\')
			*to++ = '\\';
		*to++ = *c;
	}
	*to = '\0';
	show_entry(t, s->unit, "checkpoint", RSH_NODE_FILE, s->first_file,
		   rsh_arena_format(&t->resume.arena,
				    "model_checkpoint_path: \"%s\"\n"
				    "all_model_checkpoint_paths: \"%s\"\n",
				    quoted, quoted));
}

/* Shows the files of a unit and, unless a directory is the step, a link beside
 * each file.  A file of the job may have that name itself. */
static void show_unit(struct resumed_tree *t, const struct rsh_format *f,
		      const struct rsh_saved *s)
{
	for (size_t i = 0; i < s->n; i++)
		show_entry(t, f->step_dirs ? s->dir : s->unit, s->names[i],
			   RSH_NODE_FILE, s->first_file + (uint32_t)i, NULL);
	for (size_t i = 0; i < s->n && !f->step_dirs; i++) {
		struct rsh_step_name says = { .step = { .n = 0 } };
		char name[NAME_MAX + sizeof(LATEST)];

		f->part(s->names[i], &says);
		snprintf(name, sizeof(name), LATEST "%s",
			 s->names[i] + says.n_stem);
		if (strcmp(name, s->names[i]) != 0)
			show_entry(t, s->unit, name, RSH_NODE_LINK,
				   s->first_file, s->names[i]);
	}
	if (!f->step_dirs && f->tracked)
		show_checkpoint(t, s);
}

/* Beside the directory of a step there is a link to it, or a file with its
 * name, and the file that Megatron and its successors read to find it; that one
 * ends without a newline. */
static void show_all(struct resumed_tree *t)
{
	struct rsh_resume *r = &t->resume;
	const struct rsh_format *f = rsh_source_format(r->source);
	const struct rsh_saved *first = r->saved;

	for (size_t i = 0; i < r->n; i++)
		show_unit(t, f, &r->saved[i]);
	if (!f->step_dirs)
		return;
	show_entry(t, "", LATEST,
		   f->latest_is_text ? RSH_NODE_FILE : RSH_NODE_LINK,
		   first->first_file, first->label);
	if (!f->latest_is_text &&
	    strncmp(first->label, f->tracked, strlen(f->tracked)) == 0)
		show_entry(t, "", RSH_CKPT2_TRACKER, RSH_NODE_FILE,
			   first->first_file,
			   rsh_arena_format(&r->arena, "%" PRIu64,
					    first->step->numbers[0]));
}

/* ---- the tree ---- */

static void resumed_free(struct rsh_vfs *v)
{
	struct resumed_tree *t = (struct resumed_tree *)v;

	rsh_vfs_clear(&t->vfs);
	rsh_reader_free(t->reader);
	rsh_plan_free(t->plan);
	rsh_resume_close(&t->resume);
	free(t->entries);
	free(t);
}

static int resumed_show(const struct rsh_vfs *v, uint32_t leaf,
			struct rsh_leaf *out)
{
	const struct resumed_entry *e = &resumed_tree(v)->entries[leaf];
	struct rsh_store_attr a;

	if (!rsh_source_attr(resumed_tree(v)->resume.source, e->file, &a))
		return -ENOENT;
	*out = (struct rsh_leaf){
		.mode = e->kind == RSH_NODE_LINK ? 0777 :
			rsh_store_mode_as(&a, v->tree.uid, v->tree.gid) & 0444,
		.size = e->size, .mtime = a.mtime,
	};
	return 0;
}

static const char *resumed_link(const struct rsh_vfs *v, uint32_t leaf)
{
	return resumed_tree(v)->entries[leaf].text;
}

static struct rsh_body resumed_body(const struct rsh_vfs *v, uint32_t leaf)
{
	const struct resumed_entry *e = &resumed_tree(v)->entries[leaf];

	return e->text ? rsh_body_of_text(e->text, e->size) :
			 rsh_body_of_plan(resumed_tree(v)->reader, leaf);
}

static int resumed_backing(const struct rsh_vfs *v, uint32_t leaf,
			   uint32_t *file)
{
	const struct resumed_entry *e = &resumed_tree(v)->entries[leaf];

	return !e->text && rsh_source_whole(resumed_tree(v)->resume.source,
					    e->file, e->size, file) ?
	       0 : -ENODATA;
}

static int resumed_attribute(const struct rsh_vfs *v, uint32_t leaf,
			     enum rsh_attribute which, FILE *to)
{
	const struct resumed_tree *t = resumed_tree(v);
	const struct resumed_entry *e =
		leaf == RSH_NO_LEAF ? NULL : &t->entries[leaf];
	struct rsh_source_view view;

	if (which == RSH_ATTRIBUTE_STEP && (!e || e->kind != RSH_NODE_LINK)) {
		if (to)
			fputs(t->resume.saved->label, to);
		return 0;
	}
	if (which != RSH_ATTRIBUTE_SOURCES || !e || e->text)
		return -ENODATA;
	if (!to)
		return 0;
	rsh_source_view(t->resume.source, NULL, &view);
	return rsh_attribute_path(to, view.path[e->file]);
}

static const struct rsh_vfs_ops resume_ops = {
	.free = resumed_free,
	.show = resumed_show,
	.link = resumed_link,
	.body = resumed_body,
	.backing = resumed_backing,
	.attribute = resumed_attribute,
};

/* Makes the nodes, and a plan of whole files; that of an entry that is no file
 * of SOURCE has 0 bytes. */
static int resumed_build(struct resumed_tree *t, struct rsh_error *err)
{
	const struct rsh_reader_options reading = { .replicas = false };
	const struct rsh_plan_ops writer = { .ctx = NULL };
	const struct rsh_blueprint b = { .n_ranks = (uint32_t)t->n };
	cleanup_free struct rsh_path *paths =
		rsh_alloc_array(t->n, sizeof(*paths));
	struct rsh_source_view view;
	struct rsh_catalogue *c;
	int rc = 0;

	rsh_source_view(t->resume.source, NULL, &view);
	c = rsh_catalogue_new(&view);
	t->plan = c ? rsh_blueprint_new(c, &writer, &b) : NULL;
	if (!paths || !t->plan)
		return rsh_error_nomem(err);
	for (size_t i = 0; i < t->n && rc == 0; i++) {
		const struct resumed_entry *e = &t->entries[i];
		const struct rsh_shown_file f = { .rank = (uint32_t)i };

		paths[i] = (struct rsh_path){ e->name, e->kind, (uint32_t)i };
		if (e->kind != RSH_NODE_LINK)
			t->vfs.total_bytes += e->size;
		rc = rsh_blueprint_add_whole(t->plan, &f, e->file,
					     e->text ? 0 : e->size, err);
	}
	if (rc == 0)
		rc = rsh_blueprint_finish(t->plan, NULL, NULL, err);
	if (rc)
		return rc;
	rc = rsh_reader_new(t->plan, t->resume.source, &reading, &t->reader) ?:
	     rsh_tree_add_paths(&t->vfs.tree, RSH_VFS_ROOT + 1, paths, t->n);
	if (rc == -EEXIST)
		return rsh_error_set(err, EEXIST,
			"two files would have the same name in the mount");
	return rc ? rsh_error_nomem(err) : 0;
}

int rsh_vfs_open_resume(const struct rsh_vfs_config *cfg, struct rsh_vfs **out,
			struct rsh_error *err)
{
	struct resumed_tree *t = calloc(1, sizeof(*t));
	int rc;

	if (!t)
		return rsh_error_nomem(err);
	t->vfs.ops = &resume_ops;
	rc = rsh_resume_open(cfg->source, &cfg->files, cfg->fallbacks,
			     &t->resume, err);
	if (rc == 0) {
		show_all(t);
		rc = t->resume.arena.failed ? rsh_error_nomem(err) : 0;
	}
	if (rc == 0) {
		rsh_vfs_own(&t->vfs, t->resume.source, cfg->tree.uid,
			    cfg->tree.gid);
		rc = resumed_build(t, err);
	}
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
