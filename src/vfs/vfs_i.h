/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/vfs_i.h - the inside of the virtual trees, for this layer only. */
#ifndef RSH_VFS_VFS_I_H
#define RSH_VFS_VFS_I_H

#include <stdbool.h>
#include <stdio.h>

#include "rsh/vfs/choice.h"
#include "rsh/vfs/control.h"
#include "rsh/vfs/vfs.h"
#include "tree_i.h"

/* See attribute.h. */
enum rsh_attribute {
	RSH_ATTRIBUTE_SOURCES,
	RSH_ATTRIBUTE_REPLICAS,
	RSH_ATTRIBUTE_STEP,
	RSH_ATTRIBUTE_RECORD_COUNT,
	RSH_N_ATTRIBUTES
};

/* What a file or a link is. */
struct rsh_leaf {
	mode_t mode; /* permission bits */
	uint64_t size;
	struct timespec mtime;
};

/* A kind of tree: what is known of its leaves. */
struct rsh_vfs_ops {
	void (*free)(struct rsh_vfs *v);
	/* 0, or -ENOENT if there is none any more. */
	int (*show)(const struct rsh_vfs *v, uint32_t leaf,
		    struct rsh_leaf *out);
	/* Of a link; NULL: the tree has none. */
	const char *(*link)(const struct rsh_vfs *v, uint32_t leaf);
	/* Of a file. */
	struct rsh_body (*body)(const struct rsh_vfs *v, uint32_t leaf);
	/* As rsh_vfs_backing(), of a file. */
	int (*backing)(const struct rsh_vfs *v, uint32_t leaf, uint32_t *file);
	struct rsh_source *(*source)(const struct rsh_vfs *v);
	/* Writes the value, of a leaf or, with RSH_NO_LEAF, of the root; with
	 * `to` NULL it is only asked whether there is one.  0, -ENODATA or
	 * -ENOMEM. */
	int (*attribute)(const struct rsh_vfs *v, uint32_t leaf,
			 enum rsh_attribute which, FILE *to);
};

/* The first member of every kind of tree. */
struct rsh_vfs {
	const struct rsh_vfs_ops *ops;
	struct rsh_tree tree;
	uint64_t total_bytes; /* of all files */
	/* What the mount tells about itself; an empty tree, if nothing. */
	struct rsh_tree control;
	struct rsh_control_options tell;
};

/* Makes the root of a tree, which is that of the source. */
void rsh_vfs_own(struct rsh_vfs *v, const struct rsh_source *source, uid_t uid,
		 gid_t gid);
/* What a file of the control directory is. */
int rsh_control_show(const struct rsh_vfs *v, struct rsh_leaf *out);
/* Frees what the kind does not. */
void rsh_vfs_clear(struct rsh_vfs *v);

/* Writes a path as attribute.h says. */
int rsh_attribute_path(FILE *to, const char *path);

/* ---- the tree of a conversion (open.c, reshard.c) ---- */

/* What differs from file to file and is not the conversion's to know. */
struct rsh_vfs_file {
	struct timespec mtime;
	/* 0: not known yet, 1: no source file is like it, else the number of
	 * the one that is, plus 2 (backing.c). */
	atomic_uint_fast64_t backing;
	mode_t mode;
	atomic_bool reported; /* that it is lost stands in the log */
};

/* Everything is set by rsh_vfs_open() and constant from then on, but for what
 * a file has reported and what backs it. */
struct rsh_reshard {
	struct rsh_vfs vfs;
	bool replicas;
	struct rsh_names *names;
	struct rsh_strategy *src, *dst; /* NULL: none */
	struct rsh_source *source;
	struct rsh_plan *plan;
	struct rsh_reader *reader;
	struct rsh_name_map *renames; /* NULL: none */

	/* A whole model in parts: no directories but the root, which holds the
	 * parts and this map of them. */
	bool in_parts;
	struct rsh_item map_item;
	char *map;
	size_t map_bytes;

	/* Of the files' names, around the rank or the part. */
	char *before, *after;
	uint32_t n_files; /* one a rank, or the parts */
	struct rsh_vfs_file *files;
};

#define RSH_MAP_NAME "model.safetensors.index.json"
/* Name of the file of a rank or part; as snprintf(). */
int rsh_file_name(const struct rsh_reshard *v, uint32_t file, char *name,
		  size_t max);

/* Makes the map of a model's parts (map.c). */
int rsh_weight_map_build(struct rsh_reshard *v, struct rsh_error *err);

/* Chooses the source's files and makes the conversion (candidates.c).  0 or
 * -errno with a sentence on everything that was tried. */
int rsh_vfs_take_candidate(struct rsh_reshard *v, const struct rsh_vfs_config *cfg,
			   struct rsh_error *err);

/* Gives the tree names and attributes once the conversion stands. */
int rsh_reshard_build(struct rsh_reshard *v, const struct rsh_vfs_options *o,
		      struct rsh_error *err);

extern const struct rsh_vfs_ops rsh_reshard_ops;
void rsh_reshard_free(struct rsh_vfs *vfs);

int rsh_reshard_backing(const struct rsh_vfs *vfs, uint32_t leaf,
			uint32_t *file);

int rsh_reshard_attribute(const struct rsh_vfs *vfs, uint32_t leaf,
			  enum rsh_attribute which, FILE *to);

static inline const struct rsh_reshard *rsh_reshard_of(const struct rsh_vfs *v)
{
	return (const struct rsh_reshard *)v;
}

#endif
