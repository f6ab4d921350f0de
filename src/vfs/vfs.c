/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/vfs.c - the functions of vfs.h, each handed to the tree's kind. */
#include "config.h"

#include "vfs_i.h"

#include <limits.h>

/* What stdio and the like use as their buffer's size. */
#define PREFERRED_IO_BYTES (128 * 1024)
#define STAT_BLOCK_BYTES 512
#define STATFS_BLOCK_BYTES 4096

void rsh_vfs_free(struct rsh_vfs *v)
{
	if (v)
		v->ops->free(v);
}

uint64_t rsh_vfs_lookup(const struct rsh_vfs *v, uint64_t parent,
			const char *name)
{
	return v->ops->lookup(v, parent, name);
}

int rsh_vfs_stat(const struct rsh_vfs *v, uint64_t node, struct stat *st)
{
	return v->ops->stat(v, node, st);
}

int rsh_vfs_entry(const struct rsh_vfs *v, uint64_t dir, uint64_t i,
		  uint64_t *child, char *name, size_t name_max)
{
	return v->ops->entry(v, dir, i, child, name, name_max);
}

const char *rsh_vfs_link(const struct rsh_vfs *v, uint64_t node)
{
	return v->ops->link ? v->ops->link(v, node) : NULL;
}

ssize_t rsh_vfs_read(const struct rsh_vfs *v, uint64_t node, void *buf,
		     size_t len, uint64_t offset)
{
	return v->ops->read(v, node, buf, len, offset);
}

size_t rsh_vfs_place(const struct rsh_vfs *v, uint64_t node, uint64_t offset,
		     size_t len)
{
	/* Not worth looking. */
	if (len < RSH_PLACE_MAX)
		return rsh_place(0);
	return rsh_place(v->ops->origin(v, node, offset, len));
}

int rsh_vfs_backing(const struct rsh_vfs *v, uint64_t node, uint32_t *file)
{
	return v->ops->backing(v, node, file);
}

static struct rsh_store *store_of(const struct rsh_vfs *v)
{
	return rsh_source_store(v->ops->source(v));
}

int rsh_vfs_backing_open(const struct rsh_vfs *v, uint32_t file, int *fd)
{
	return rsh_store_descriptor(store_of(v), file, fd);
}

int rsh_vfs_backing_check(const struct rsh_vfs *v, uint32_t file, int fd)
{
	return rsh_store_check(store_of(v), file, fd);
}

bool rsh_vfs_backing_is_remote(const struct rsh_vfs *v)
{
	return rsh_store_is_remote(store_of(v));
}

bool rsh_vfs_backing_is_stacked(const struct rsh_vfs *v)
{
	return rsh_store_is_stacked(store_of(v));
}

static uint64_t largest_in(const struct rsh_vfs *v, uint64_t dir)
{
	char name[NAME_MAX + 1];
	uint64_t child, largest = 0;

	/* The first two entries are the directory and its parent. */
	for (uint64_t i = 2; rsh_vfs_entry(v, dir, i, &child, name,
					   sizeof(name)) == 0; i++) {
		struct stat st;
		uint64_t bytes = 0;

		if (rsh_vfs_stat(v, child, &st))
			continue;
		if (S_ISDIR(st.st_mode))
			bytes = largest_in(v, child);
		else if (S_ISREG(st.st_mode))
			bytes = (uint64_t)st.st_size;
		if (bytes > largest)
			largest = bytes;
	}
	return largest;
}

uint64_t rsh_vfs_largest(const struct rsh_vfs *v)
{
	return largest_in(v, RSH_VFS_ROOT);
}

void rsh_vfs_statfs(const struct rsh_vfs *v, struct statvfs *out)
{
	uint64_t bytes, nodes;

	v->ops->totals(v, &bytes, &nodes);
	*out = (struct statvfs){
		.f_bsize = PREFERRED_IO_BYTES,
		.f_frsize = STATFS_BLOCK_BYTES,
		.f_blocks = (bytes + STATFS_BLOCK_BYTES - 1) /
			    STATFS_BLOCK_BYTES,
		.f_files = nodes,
		.f_namemax = NAME_MAX,
		.f_flag = ST_RDONLY,
	};
}

void rsh_stat_fill(struct stat *st, uint64_t node, mode_t mode, uint64_t size,
		   const struct timespec *mtime)
{
	*st = (struct stat){
		.st_ino = node,
		.st_mode = mode,
		.st_nlink = 1,
		.st_size = (off_t)size,
		.st_blksize = PREFERRED_IO_BYTES,
		.st_blocks = (blkcnt_t)((size + STAT_BLOCK_BYTES - 1) /
					STAT_BLOCK_BYTES),
		.st_mtim = *mtime,
		.st_ctim = *mtime,
		.st_atim = *mtime,
	};
}
