/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/vfs.c has the functions of vfs.h.  It finds nodes in the two trees of a
 * mount, and calls the functions of the tree's kind for leaves. */
#include "config.h"

#include "vfs_i.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "rsh/util/mem.h"
#include "rsh/util/text.h"

/* stdio and other libraries use this as the size of their buffers. */
#define PREFERRED_IO_BYTES (128 * 1024)
#define STAT_BLOCK_BYTES 512
#define STATFS_BLOCK_BYTES 4096

void rsh_vfs_own(struct rsh_vfs *v, struct rsh_source *source, uid_t uid,
		 gid_t gid)
{
	struct rsh_store_attr a;

	rsh_store_root_attr(rsh_source_store(source), &a);
	v->source = source;
	v->tree.root = v->tree.above = RSH_VFS_ROOT;
	v->tree.uid = uid;
	v->tree.gid = gid;
	/* Their owner can remove what `cp -r` makes of them. */
	v->tree.dir_mode = (rsh_store_mode_as(&a, uid, gid) & 0555) | S_IWUSR;
	v->tree.dir_mtime = a.mtime;
	clock_gettime(CLOCK_REALTIME, &v->tree.ctime);
}

void rsh_vfs_clear(struct rsh_vfs *v)
{
	rsh_tree_clear(&v->tree);
	rsh_tree_clear(&v->control);
}

void rsh_vfs_free(struct rsh_vfs *v)
{
	if (v)
		v->ops->free(v);
}

/* ---- nodes ---- */

static const struct rsh_tree *vfs_tree_with(const struct rsh_vfs *v,
					    uint64_t node)
{
	return rsh_control_owns(node) ? &v->control : &v->tree;
}

static bool vfs_find_node(const struct rsh_vfs *v, uint64_t number,
			  struct rsh_node *out)
{
	return rsh_tree_node(vfs_tree_with(v, number), number, out);
}

uint64_t rsh_vfs_lookup(const struct rsh_vfs *v, uint64_t parent,
			const char *name)
{
	struct rsh_node dir;
	const bool found = vfs_find_node(v, parent, &dir);

	if (found && strcmp(name, ".") == 0)
		return parent;
	if (!found || dir.kind != RSH_NODE_DIR)
		return (uint64_t)-1;
	if (strcmp(name, "..") == 0)
		return dir.parent;
	if (parent == RSH_VFS_ROOT && v->control.root &&
	    strcmp(name, RSH_CONTROL_NAME) == 0)
		return v->control.root;
	return rsh_tree_find(vfs_tree_with(v, parent), parent, name);
}

int rsh_vfs_stat(const struct rsh_vfs *v, uint64_t node, struct stat *st)
{
	const struct rsh_tree *t = vfs_tree_with(v, node);
	struct rsh_leaf leaf = { .mode = t->dir_mode, .mtime = t->dir_mtime };
	struct rsh_node found;
	int rc = 0;

	if (!rsh_tree_node(t, node, &found))
		return -ENOENT;
	if (found.kind != RSH_NODE_DIR && t == &v->tree)
		rc = v->ops->show(v, found.leaf, &leaf);
	else if (found.kind != RSH_NODE_DIR)
		leaf.mode = 0400; /* a file of the control directory */
	*st = (struct stat){
		.st_ino = node,
		.st_mode = leaf.mode |
			   (found.kind == RSH_NODE_DIR ? S_IFDIR :
			    found.kind == RSH_NODE_LINK ? S_IFLNK : S_IFREG),
		.st_nlink = found.kind == RSH_NODE_DIR ?
			    2 + rsh_tree_n_dirs(t, node) : 1,
		.st_uid = t->uid,
		.st_gid = t->gid,
		.st_size = (off_t)leaf.size,
		.st_blksize = PREFERRED_IO_BYTES,
		.st_blocks = (blkcnt_t)((leaf.size + STAT_BLOCK_BYTES - 1) /
					STAT_BLOCK_BYTES),
		.st_mtim = leaf.mtime,
		.st_ctim = t->ctime,
		.st_atim = leaf.mtime,
	};
	return rc;
}

int rsh_vfs_entry(const struct rsh_vfs *v, uint64_t dir, uint64_t i,
		  uint64_t *child, char *name, size_t name_max)
{
	struct rsh_node node;

	if (!vfs_find_node(v, dir, &node) || node.kind != RSH_NODE_DIR)
		return -ENOTDIR;
	if (i < 2) {
		*child = i == 0 ? dir : node.parent;
		snprintf(name, name_max, "%s", i == 0 ? "." : "..");
		return 0;
	}
	if (!rsh_tree_child(vfs_tree_with(v, dir), dir, i - 2, &node))
		return -ENOENT;
	*child = node.number;
	rsh_node_name(&node, name, name_max);
	return 0;
}

const char *rsh_vfs_link(const struct rsh_vfs *v, uint64_t node)
{
	struct rsh_node found;

	return rsh_tree_node(&v->tree, node, &found) &&
	       found.kind == RSH_NODE_LINK ? v->ops->link(v, found.leaf) : NULL;
}

/* ---- bodies ---- */

int rsh_vfs_body(const struct rsh_vfs *v, uint64_t node, struct rsh_body *out)
{
	struct rsh_node found;

	if (!vfs_find_node(v, node, &found))
		return -ENOENT;
	if (found.kind == RSH_NODE_DIR)
		return -EISDIR;
	/* Texts of the mount are made when they are opened (control.h). */
	if (found.kind == RSH_NODE_LINK || rsh_control_owns(node))
		return -EINVAL;
	*out = v->ops->body(v, found.leaf);
	return 0;
}

int rsh_vfs_open_stream(const struct rsh_vfs *v, uint64_t node,
			struct rsh_streams *s, struct rsh_stream **out)
{
	struct rsh_body body;

	return rsh_vfs_body(v, node, &body) ?: rsh_stream_open(s, &body, out);
}

ssize_t rsh_vfs_read(const struct rsh_vfs *v, uint64_t node, void *buf,
		     size_t len, uint64_t offset)
{
	struct rsh_body body;

	return rsh_vfs_body(v, node, &body) ?:
	       rsh_body_read(&body, buf, len, offset);
}

int rsh_vfs_backing(const struct rsh_vfs *v, uint64_t node, uint32_t *file)
{
	struct rsh_node found;

	return rsh_tree_node(&v->tree, node, &found) &&
	       found.kind == RSH_NODE_FILE ?
	       v->ops->backing(v, found.leaf, file) : -ENODATA;
}

struct rsh_store *rsh_vfs_store(const struct rsh_vfs *v)
{
	return rsh_source_store(v->source);
}

/* Without a path, files are given without one. */
static int vfs_walk(const struct rsh_vfs *v, uint64_t dir, const char *path,
		    rsh_vfs_file_fn *fn, void *ctx)
{
	char name[NAME_MAX + 1];
	uint64_t child;
	int rc = 0;

	/* The first two entries are the directory and its parent. */
	for (uint64_t i = 2; rc == 0 && rsh_vfs_entry(v, dir, i, &child, name,
						      sizeof(name)) == 0; i++) {
		cleanup_free char *at = !path ? NULL : rsh_text_format(
			"%s%s%s", path, *path ? "/" : "", name);
		struct stat st;

		if (path && !at)
			return -ENOMEM;
		/* What cannot be seen now is not walked. */
		if (rsh_vfs_stat(v, child, &st) == 0)
			rc = S_ISDIR(st.st_mode) ?
				vfs_walk(v, child, at, fn, ctx) :
				fn(ctx, child, at, &st);
	}
	return rc;
}

int rsh_vfs_each_file(const struct rsh_vfs *v, rsh_vfs_file_fn *fn, void *ctx)
{
	return vfs_walk(v, RSH_VFS_ROOT, "", fn, ctx);
}

static int vfs_take_size(void *ctx, uint64_t node, const char *path,
			 const struct stat *st)
{
	uint64_t *largest = ctx;

	(void)node, (void)path;
	if (S_ISREG(st->st_mode) && (uint64_t)st->st_size > *largest)
		*largest = (uint64_t)st->st_size;
	return 0;
}

uint64_t rsh_vfs_largest(const struct rsh_vfs *v)
{
	uint64_t largest = 0;

	vfs_walk(v, RSH_VFS_ROOT, NULL, vfs_take_size, &largest);
	return largest;
}

/* The figures for df do not include the control directory. */
void rsh_vfs_statfs(const struct rsh_vfs *v, struct statvfs *out)
{
	const fsblkcnt_t blocks = (v->total_bytes + STATFS_BLOCK_BYTES - 1) /
				  STATFS_BLOCK_BYTES;
	const fsfilcnt_t files = rsh_tree_n_nodes(&v->tree);

	/* A file system without free blocks is an alarm for who watches disks,
	 * and this one can never be full. */
	*out = (struct statvfs){
		.f_bsize = PREFERRED_IO_BYTES,
		.f_frsize = STATFS_BLOCK_BYTES,
		.f_blocks = blocks,
		.f_bfree = blocks,
		.f_bavail = blocks,
		.f_files = files,
		.f_ffree = files,
		.f_favail = files,
		.f_namemax = NAME_MAX,
		.f_flag = ST_RDONLY,
	};
}
