/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/resume.c - the tree of a job's newest checkpoints. */
#include "config.h"

#include "vfs_i.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nodes.h"
#include "rsh/util/checked.h"
#include "rsh/util/log.h"

struct resume_tree {
	struct rsh_vfs vfs;
	struct rsh_resume *resume;
	const struct rsh_resume_entry *entries; /* its */
	struct rsh_nodes nodes; /* leaves are entries */
	uid_t uid;
	gid_t gid;
	uint64_t total_bytes;
};

static const struct resume_tree *tree_of(const struct rsh_vfs *v)
{
	return (const struct resume_tree *)v;
}

static void free_tree(struct rsh_vfs *v)
{
	struct resume_tree *t = (struct resume_tree *)v;

	rsh_nodes_clear(&t->nodes);
	rsh_resume_free(t->resume);
	free(t);
}

/* ---- names ---- */

static uint64_t lookup(const struct rsh_vfs *v, uint64_t parent,
		       const char *name)
{
	const struct rsh_nodes *nodes = &tree_of(v)->nodes;
	const struct rsh_node *dir = rsh_nodes_get(nodes, parent);

	if (!dir || dir->leaf != RSH_NO_LEAF)
		return (uint64_t)-1;
	return rsh_nodes_child(nodes, dir, name);
}

static int entry(const struct rsh_vfs *v, uint64_t dir, uint64_t i,
		 uint64_t *child, char *name, size_t name_max)
{
	const struct rsh_nodes *nodes = &tree_of(v)->nodes;
	const struct rsh_node *node = rsh_nodes_get(nodes, dir);

	if (!node || node->leaf != RSH_NO_LEAF)
		return -ENOTDIR;
	if (i < 2) {
		*child = i == 0 ? dir : rsh_nodes_number(node->parent);
		snprintf(name, name_max, "%s", i == 0 ? "." : "..");
		return 0;
	}
	if (i - 2 >= node->n_children)
		return -ENOENT;
	*child = rsh_nodes_number(node->first_child + (size_t)(i - 2));
	node = rsh_nodes_get(nodes, *child);
	snprintf(name, name_max, "%s", node->path + node->name);
	return 0;
}

/* ---- attributes ---- */

static uint64_t size_of(const struct rsh_resume_entry *e)
{
	return e->kind == RSH_RESUME_FILE ? e->size : strlen(e->text);
}

static int stat_dir(const struct resume_tree *t, uint64_t number,
		    const struct rsh_node *dir, struct stat *st)
{
	struct rsh_store_attr a;

	rsh_store_root_attr(rsh_source_store(rsh_resume_source(t->resume)), &a);
	rsh_stat_fill(st, number, S_IFDIR |
		      (rsh_store_mode_as(&a, t->uid, t->gid) & 0555), 0,
		      &a.mtime);
	st->st_nlink = 2 + (nlink_t)dir->n_dirs;
	return 0;
}

static int stat_leaf(const struct resume_tree *t, uint64_t number,
		     const struct rsh_resume_entry *e, struct stat *st)
{
	mode_t mode = e->kind == RSH_RESUME_LINK ? S_IFLNK | 0777 : S_IFREG;
	struct rsh_store_attr a;

	if (!rsh_source_attr(rsh_resume_source(t->resume), e->file, &a))
		return -ENOENT;
	if (e->kind != RSH_RESUME_LINK)
		mode |= rsh_store_mode_as(&a, t->uid, t->gid) & 0444;
	rsh_stat_fill(st, number, mode, size_of(e), &a.mtime);
	return 0;
}

static int stat_node(const struct rsh_vfs *v, uint64_t number,
		     struct stat *st)
{
	const struct resume_tree *t = tree_of(v);
	const struct rsh_node *node = rsh_nodes_get(&t->nodes, number);
	int rc;

	if (!node)
		return -ENOENT;
	rc = node->leaf == RSH_NO_LEAF ?
	     stat_dir(t, number, node, st) :
	     stat_leaf(t, number, &t->entries[node->leaf], st);
	st->st_uid = t->uid;
	st->st_gid = t->gid;
	return rc;
}

static void totals(const struct rsh_vfs *v, uint64_t *bytes, uint64_t *nodes)
{
	*bytes = tree_of(v)->total_bytes;
	*nodes = tree_of(v)->nodes.n;
}

/* ---- content ---- */

static const char *link_target(const struct rsh_vfs *v, uint64_t number)
{
	const struct resume_tree *t = tree_of(v);
	const struct rsh_node *node = rsh_nodes_get(&t->nodes, number);

	if (!node || node->leaf == RSH_NO_LEAF ||
	    t->entries[node->leaf].kind != RSH_RESUME_LINK)
		return NULL;
	return t->entries[node->leaf].text;
}

static ssize_t read_leaf(const struct resume_tree *t,
			 const struct rsh_resume_entry *e, void *buf,
			 size_t len, uint64_t offset)
{
	const uint64_t size = size_of(e);
	int rc;

	if (e->kind == RSH_RESUME_LINK)
		return -EINVAL;
	if (offset >= size)
		return 0;
	len = (size_t)rsh_min_u64(rsh_min_u64(len, size - offset), SSIZE_MAX);
	if (e->kind == RSH_RESUME_TEXT) {
		memcpy(buf, e->text + offset, len);
		return (ssize_t)len;
	}
	rc = rsh_source_read(rsh_resume_source(t->resume), e->file, offset,
			     buf, len);
	return rc ? rc : (ssize_t)len;
}

static ssize_t read_node(const struct rsh_vfs *v, uint64_t number, void *buf,
			 size_t len, uint64_t offset)
{
	const struct resume_tree *t = tree_of(v);
	const struct rsh_node *node = rsh_nodes_get(&t->nodes, number);

	if (!node)
		return -ENOENT;
	if (node->leaf == RSH_NO_LEAF)
		return -EISDIR;
	return read_leaf(t, &t->entries[node->leaf], buf, len, offset);
}

/* Files are shown as they are. */
static uint64_t origin(const struct rsh_vfs *v, uint64_t number,
		       uint64_t offset, size_t len)
{
	(void)v, (void)number, (void)len;
	return offset;
}

static int backing(const struct rsh_vfs *v, uint64_t number, uint32_t *file)
{
	const struct resume_tree *t = tree_of(v);
	const struct rsh_node *node = rsh_nodes_get(&t->nodes, number);
	const struct rsh_resume_entry *e;

	if (!node || node->leaf == RSH_NO_LEAF)
		return -ENODATA;
	e = &t->entries[node->leaf];
	return e->kind == RSH_RESUME_FILE &&
	       rsh_source_whole(rsh_resume_source(t->resume), e->file,
				e->size, file) ? 0 : -ENODATA;
}

static struct rsh_source *source(const struct rsh_vfs *v)
{
	return rsh_resume_source(tree_of(v)->resume);
}

static int attribute(const struct rsh_vfs *v, uint64_t number,
		     enum rsh_attribute which, FILE *to)
{
	const struct resume_tree *t = tree_of(v);
	const struct rsh_node *node = rsh_nodes_get(&t->nodes, number);
	const struct rsh_resume_entry *e = node && node->leaf != RSH_NO_LEAF ?
					   &t->entries[node->leaf] : NULL;
	struct rsh_source_view view;

	if (number == RSH_VFS_ROOT && which == RSH_ATTRIBUTE_STEP) {
		if (to)
			fputs(rsh_resume_step(t->resume), to);
		return 0;
	}
	if (!e || e->kind == RSH_RESUME_LINK ||
	    (which != RSH_ATTRIBUTE_STEP &&
	     (which != RSH_ATTRIBUTE_SOURCES || e->kind != RSH_RESUME_FILE)))
		return -ENODATA;
	rsh_source_view(rsh_resume_source(t->resume), NULL, &view);
	if (to && which == RSH_ATTRIBUTE_STEP)
		fputs(rsh_resume_step(t->resume), to);
	else if (to)
		return rsh_attribute_path(to, view.path[e->file]);
	return 0;
}

static const struct rsh_vfs_ops resume_ops = {
	.free = free_tree,
	.lookup = lookup,
	.stat = stat_node,
	.entry = entry,
	.link = link_target,
	.read = read_node,
	.origin = origin,
	.backing = backing,
	.source = source,
	.totals = totals,
	.attribute = attribute,
};

/* ---- building ---- */

static int build(struct resume_tree *t, struct rsh_error *err)
{
	size_t n;
	int rc = 0;

	t->entries = rsh_resume_entries(t->resume, &n);
	for (size_t i = 0; i < n && rc == 0; i++) {
		rc = rsh_nodes_add(&t->nodes, t->entries[i].name, i);
		if (t->entries[i].kind != RSH_RESUME_LINK)
			t->total_bytes += size_of(&t->entries[i]);
	}
	if (rc == 0)
		rc = rsh_nodes_finish(&t->nodes);
	if (rc == -EEXIST)
		return rsh_error_set(err, EEXIST, "two files would have one "
				     "name in the mount");
	return rc ? rsh_error_nomem(err) : 0;
}

int rsh_vfs_open_resume(const struct rsh_vfs_resume_config *cfg,
			struct rsh_vfs **out, struct rsh_error *err)
{
	struct resume_tree *t = calloc(1, sizeof(*t));
	int rc;

	if (!t)
		return rsh_error_nomem(err);
	t->vfs.ops = &resume_ops;
	t->uid = cfg->uid;
	t->gid = cfg->gid;
	rc = rsh_resume_open(cfg->source, &cfg->files, cfg->fallbacks,
			     &t->resume, err);
	if (rc == 0)
		rc = build(t, err);
	if (rc) {
		free_tree(&t->vfs);
		return rc;
	}
	rsh_log_info("%s: %zu nodes, %llu bytes", cfg->source, t->nodes.n,
		     (unsigned long long)t->total_bytes);
	*out = &t->vfs;
	return 0;
}
