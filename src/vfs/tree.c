/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/tree.c - names, node numbers and attributes of a conversion's files.
 *
 * Each tree is regular, so nothing of it is stored but what a file inherits
 * from its sources: names and numbers are computed from the rank. */
#include "config.h"

#include "vfs_i.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/mem.h"

static uint64_t dir_node(uint32_t rank)
{
	return 2 + 2 * (uint64_t)rank;
}

static uint64_t file_node(uint32_t rank)
{
	return 3 + 2 * (uint64_t)rank;
}

enum rsh_node_kind rsh_node_decode(const struct rsh_reshard *v, uint64_t node,
				   uint32_t *rank)
{
	if (node == RSH_VFS_ROOT)
		return RSH_NODE_ROOT;
	if (node < dir_node(0) || (node - 2) / 2 >= v->n_files)
		return RSH_NODE_NONE;
	*rank = (uint32_t)((node - 2) / 2);
	if (node % 2)
		return RSH_NODE_FILE;
	if (!v->in_parts)
		return RSH_NODE_DIR;
	return *rank == 0 ? RSH_NODE_MAP : RSH_NODE_NONE;
}

static int dir_name(uint32_t rank, char *name, size_t max)
{
	return snprintf(name, max, "rank_%" PRIu32, rank);
}

int rsh_file_name(const struct rsh_reshard *v, uint32_t rank, char *name,
		  size_t max)
{
	if (v->in_parts)
		return snprintf(name, max,
				"model-%05" PRIu32 "-of-%05" PRIu32 "%s",
				rank + 1, v->n_files,
				rsh_format_suffix(v->format));
	return snprintf(name, max, "%s%" PRIu32 "%s%s", v->prefix, rank,
			v->suffix, rsh_format_suffix(v->format));
}

/* ---- building ---- */

static bool newer(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec != b->tv_sec ? a->tv_sec > b->tv_sec :
					a->tv_nsec > b->tv_nsec;
}

/* A file is readable by whom all of its sources are. */
static void inherit(const struct rsh_reshard *v, uint32_t rank,
		    struct rsh_vfs_file *f)
{
	uint32_t n;
	const uint32_t *ranks =
		rsh_plan_sources(v->conversion, rank, &n);
	bool any = false;

	*f = (struct rsh_vfs_file){ .mode = 0444, .mtime = v->dir_mtime };
	for (uint32_t i = 0; i < n; i++) {
		struct rsh_store_attr a;

		if (!rsh_source_attr(v->source, ranks[i], &a))
			continue;
		f->mode &= rsh_store_mode_as(&a, v->uid, v->gid);
		if (!any || newer(&a.mtime, &f->mtime))
			f->mtime = a.mtime;
		any = true;
	}
}

static int check_names(const struct rsh_reshard *v, struct rsh_error *err)
{
	char name[NAME_MAX + 1];

	if (v->n_files > 0 && rsh_file_name(v, v->n_files - 1, name,
					    sizeof(name)) > NAME_MAX)
		return rsh_error_set(err, ENAMETOOLONG, "the prefix \"%s\" "
				     "makes file names too long", v->prefix);
	return 0;
}

int rsh_tree_build(struct rsh_reshard *v, const struct rsh_vfs_options *o,
		   struct rsh_error *err)
{
	struct rsh_store_attr root;

	rsh_store_root_attr(rsh_source_store(v->source), &root);
	v->uid = o->uid;
	v->gid = o->gid;
	v->dir_mode = rsh_store_mode_as(&root, v->uid, v->gid) & 0555;
	v->dir_mtime = root.mtime;
	v->prefix = strdup(o->prefix);
	v->suffix = rsh_plan_name_suffix(v->conversion);
	v->format = rsh_plan_format(v->conversion);
	v->n_files = rsh_plan_n_files(v->conversion);
	v->files = rsh_alloc_array(v->n_files ? v->n_files : 1,
				   sizeof(*v->files));
	if (!v->prefix || !v->files)
		return rsh_error_nomem(err);
	for (uint32_t r = 0; r < v->n_files; r++) {
		inherit(v, r, &v->files[r]);
		v->total_bytes += rsh_plan_size(v->conversion, r);
	}
	return check_names(v, err);
}

/* ---- names ---- */

/* True if `name` is "rank_<digits>" of a rank that exists, written the way we
 * write it. */
static bool rank_of_dir(const struct rsh_reshard *v, const char *name,
			uint32_t *rank)
{
	char canonical[32];
	unsigned long long r;
	char *end;

	if (strncmp(name, "rank_", 5) != 0)
		return false;
	r = strtoull(name + 5, &end, 10);
	if (*end || r >= v->n_files)
		return false;
	*rank = (uint32_t)r;
	dir_name(*rank, canonical, sizeof(canonical));
	return strcmp(name, canonical) == 0;
}

/* In a directory without ranks; 0 when there is none of that name. */
static uint64_t part_of_name(const struct rsh_reshard *v, const char *name)
{
	char canonical[NAME_MAX + 1];
	unsigned long part;

	if (strcmp(name, RSH_MAP_NAME) == 0)
		return dir_node(0);
	if (sscanf(name, "model-%lu-", &part) != 1 || part < 1 ||
	    part > v->n_files)
		return 0;
	rsh_file_name(v, (uint32_t)part - 1, canonical, sizeof(canonical));
	return strcmp(name, canonical) == 0 ? file_node((uint32_t)part - 1) : 0;
}

static uint64_t lookup(const struct rsh_vfs *vfs, uint64_t parent,
		       const char *name)
{
	const struct rsh_reshard *v = rsh_reshard_of(vfs);
	char canonical[NAME_MAX + 1];
	uint32_t rank;

	switch (rsh_node_decode(v, parent, &rank)) {
	case RSH_NODE_ROOT:
		if (v->in_parts)
			return part_of_name(v, name);
		return rank_of_dir(v, name, &rank) ? dir_node(rank) : 0;
	case RSH_NODE_DIR:
		rsh_file_name(v, rank, canonical, sizeof(canonical));
		return strcmp(name, canonical) == 0 ? file_node(rank) : 0;
	case RSH_NODE_FILE:
	case RSH_NODE_MAP:
	case RSH_NODE_NONE:
		break;
	}
	return (uint64_t)-1;
}

static void copy_name(char *to, size_t max, const char *name)
{
	snprintf(to, max, "%s", name);
}

/* Child i of a root without ranks: the parts, then their map. */
static void part_entry(const struct rsh_reshard *v, uint64_t i, uint64_t *child,
		       char *name, size_t name_max)
{
	if (i < v->n_files) {
		*child = file_node((uint32_t)i);
		rsh_file_name(v, (uint32_t)i, name, name_max);
	} else {
		*child = dir_node(0);
		copy_name(name, name_max, RSH_MAP_NAME);
	}
}

static int entry(const struct rsh_vfs *vfs, uint64_t dir, uint64_t i,
		 uint64_t *child, char *name, size_t name_max)
{
	const struct rsh_reshard *v = rsh_reshard_of(vfs);
	uint32_t rank = 0;
	enum rsh_node_kind kind = rsh_node_decode(v, dir, &rank);
	uint64_t n = 1;

	if (kind == RSH_NODE_FILE || kind == RSH_NODE_MAP ||
	    kind == RSH_NODE_NONE)
		return -ENOTDIR;
	if (kind == RSH_NODE_ROOT)
		n = (uint64_t)v->n_files + v->in_parts;
	if (i >= n + 2)
		return -ENOENT;
	if (i < 2) {
		*child = i == 0 ? dir : RSH_VFS_ROOT;
		copy_name(name, name_max, i == 0 ? "." : "..");
	} else if (kind == RSH_NODE_ROOT && v->in_parts) {
		part_entry(v, i - 2, child, name, name_max);
	} else if (kind == RSH_NODE_ROOT) {
		*child = dir_node((uint32_t)(i - 2));
		dir_name((uint32_t)(i - 2), name, name_max);
	} else {
		*child = file_node(rank);
		rsh_file_name(v, rank, name, name_max);
	}
	return 0;
}

/* ---- attributes ---- */

static void stat_file(const struct rsh_reshard *v, uint32_t rank,
		      struct stat *st, uint64_t node)
{
	rsh_stat_fill(st, node, S_IFREG | v->files[rank].mode,
		      rsh_plan_size(v->conversion, rank),
		      &v->files[rank].mtime);
}

/* The map is as readable and as new as the parts together. */
static void stat_map(const struct rsh_reshard *v, struct stat *st,
		     uint64_t node)
{
	struct timespec mtime = v->files[0].mtime;
	mode_t mode = 0444;

	for (uint32_t i = 0; i < v->n_files; i++) {
		mode &= v->files[i].mode;
		if (newer(&v->files[i].mtime, &mtime))
			mtime = v->files[i].mtime;
	}
	rsh_stat_fill(st, node, S_IFREG | mode, v->map_bytes, &mtime);
}

static void stat_dir(const struct rsh_reshard *v, struct stat *st,
		     uint64_t node)
{
	rsh_stat_fill(st, node, S_IFDIR | v->dir_mode, 0, &v->dir_mtime);
	st->st_nlink = 2;
	if (node == RSH_VFS_ROOT && !v->in_parts)
		st->st_nlink += v->n_files;
}

static int stat_node(const struct rsh_vfs *vfs, uint64_t node,
		     struct stat *st)
{
	const struct rsh_reshard *v = rsh_reshard_of(vfs);
	uint32_t rank = 0;
	enum rsh_node_kind kind = rsh_node_decode(v, node, &rank);

	if (kind == RSH_NODE_NONE)
		return -ENOENT;
	if (kind == RSH_NODE_FILE)
		stat_file(v, rank, st, node);
	else if (kind == RSH_NODE_MAP)
		stat_map(v, st, node);
	else
		stat_dir(v, st, node);
	st->st_uid = v->uid;
	st->st_gid = v->gid;
	return 0;
}

static void totals(const struct rsh_vfs *vfs, uint64_t *bytes, uint64_t *nodes)
{
	const struct rsh_reshard *v = rsh_reshard_of(vfs);

	*bytes = v->total_bytes;
	*nodes = v->in_parts ? 2 + (uint64_t)v->n_files :
			       1 + 2 * (uint64_t)v->n_files;
}

static struct rsh_source *source(const struct rsh_vfs *vfs)
{
	return rsh_reshard_of(vfs)->source;
}

const struct rsh_vfs_ops rsh_reshard_ops = {
	.free = rsh_reshard_free,
	.lookup = lookup,
	.stat = stat_node,
	.entry = entry,
	.read = rsh_reshard_read,
	.origin = rsh_reshard_origin,
	.backing = rsh_reshard_backing,
	.source = source,
	.totals = totals,
	.attribute = rsh_reshard_attribute,
};
