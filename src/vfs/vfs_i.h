/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/vfs_i.h - the inside of the virtual trees, for this layer only. */
#ifndef RSH_VFS_VFS_I_H
#define RSH_VFS_VFS_I_H

#include <stdbool.h>
#include <stdio.h>

#include "rsh/vfs/choice.h"
#include "rsh/vfs/vfs.h"

/* See attribute.h. */
enum rsh_attribute {
	RSH_ATTRIBUTE_SOURCES,
	RSH_ATTRIBUTE_REPLICAS,
	RSH_ATTRIBUTE_STEP,
	RSH_ATTRIBUTE_RECORD_COUNT,
	RSH_N_ATTRIBUTES
};

/* A kind of tree: what each function of vfs.h is for it. */
struct rsh_vfs_ops {
	void (*free)(struct rsh_vfs *v);
	uint64_t (*lookup)(const struct rsh_vfs *v, uint64_t parent,
			   const char *name);
	int (*stat)(const struct rsh_vfs *v, uint64_t node, struct stat *st);
	int (*entry)(const struct rsh_vfs *v, uint64_t dir, uint64_t i,
		     uint64_t *child, char *name, size_t name_max);
	/* NULL: the tree has no symbolic links. */
	const char *(*link)(const struct rsh_vfs *v, uint64_t node);
	/* As rsh_vfs_body(). */
	int (*body)(const struct rsh_vfs *v, uint64_t node,
		    struct rsh_body *out);
	/* As rsh_vfs_backing(). */
	int (*backing)(const struct rsh_vfs *v, uint64_t node, uint32_t *file);
	struct rsh_source *(*source)(const struct rsh_vfs *v);
	/* Of all files: their bytes, and how many nodes there are. */
	void (*totals)(const struct rsh_vfs *v, uint64_t *bytes,
		       uint64_t *nodes);
	/* Writes the value; with `to` NULL it is only asked whether there is
	 * one.  0, -ENODATA or -ENOMEM.  NULL: the tree has none. */
	int (*attribute)(const struct rsh_vfs *v, uint64_t node,
			 enum rsh_attribute which, FILE *to);
};

/* The first member of every tree. */
struct rsh_vfs {
	const struct rsh_vfs_ops *ops;
};

/* Fills what all nodes of all trees have in common; a file's size is set. */
void rsh_stat_fill(struct stat *st, uint64_t node, mode_t mode, uint64_t size,
		   const struct timespec *mtime);

/* Writes a path as attribute.h says. */
int rsh_attribute_path(FILE *to, const char *path);

/* ---- the tree of a conversion (open.c, tree.c) ---- */

/* What differs from file to file and is not the conversion's to know. */
struct rsh_vfs_file {
	mode_t mode;
	struct timespec mtime;
	atomic_bool reported; /* that it is lost stands in the log */
	/* 0: not known yet, 1: no source file is like it, else the number of
	 * the one that is, plus 2 (backing.c). */
	atomic_uint_fast64_t backing;
};

/* Everything is set by rsh_vfs_open() and constant from then on, but for what
 * a file has reported and what backs it. */
struct rsh_reshard {
	struct rsh_vfs vfs;
	bool replicas;
	struct rsh_names *names;
	struct rsh_strategy *src, *dst; /* NULL: none */
	struct rsh_source *source;
	struct rsh_conversion *conversion;
	struct rsh_reader *reader;
	struct rsh_name_map *renames; /* NULL: none */

	char *prefix;
	const char *suffix; /* between rank and the format's suffix */
	enum rsh_format format;
	uid_t uid;
	gid_t gid;
	mode_t dir_mode;
	struct timespec dir_mtime;

	/* A whole model in parts: no directories but the root, which holds the
	 * parts and this map of them. */
	bool in_parts;
	char *map;
	size_t map_bytes;

	uint32_t n_files; /* one a rank, or the parts */
	struct rsh_vfs_file *files;
	uint64_t total_bytes;
};

/* Node numbers: root 1, then directory and file of each rank in turn; without
 * ranks the map has the number of the first directory. */
enum rsh_node_kind {
	RSH_NODE_NONE,
	RSH_NODE_ROOT,
	RSH_NODE_DIR,
	RSH_NODE_FILE,
	RSH_NODE_MAP,
};

enum rsh_node_kind rsh_node_decode(const struct rsh_reshard *v, uint64_t node,
				   uint32_t *rank);

#define RSH_MAP_NAME "model.safetensors.index.json"
/* Name of the file of a rank or part; as snprintf(). */
int rsh_file_name(const struct rsh_reshard *v, uint32_t rank, char *name,
		  size_t max);

/* Makes the map of a model's parts (map.c). */
int rsh_weight_map_build(struct rsh_reshard *v, struct rsh_error *err);

/* Chooses the source's files and makes the conversion (candidates.c).  0 or
 * -errno with a sentence on everything that was tried. */
int rsh_vfs_take_candidate(struct rsh_reshard *v, const struct rsh_vfs_config *cfg,
			   struct rsh_error *err);

/* Candidates that were tried in vain, from the first on (failures.c). */
struct rsh_failures {
	char text[RSH_ERROR_TEXT_MAX]; /* of all, for one message */
	size_t length;
	size_t share; /* characters of each that fit it */
	uint32_t n;
	char **why;   /* [n], in full */
};

/* Room for n; 0 or -ENOMEM. */
int rsh_failures_init(struct rsh_failures *f, uint32_t n);
void rsh_failures_clear(struct rsh_failures *f);
/* The candidate that is chosen cannot be taken.  0 or -ENOMEM. */
int rsh_failures_add(struct rsh_failures *f, const struct rsh_reshard *v,
		     const struct rsh_vfs_config *cfg, uint32_t candidate,
		     const struct rsh_error *err);
/* Another one was taken: logs a line for each that was better. */
void rsh_failures_log(const struct rsh_failures *f,
		      const struct rsh_reshard *v,
		      const struct rsh_vfs_config *cfg);

/* Gives the tree names and attributes once the conversion stands. */
int rsh_tree_build(struct rsh_reshard *v, const struct rsh_vfs_options *o,
		   struct rsh_error *err);

extern const struct rsh_vfs_ops rsh_reshard_ops;
void rsh_reshard_free(struct rsh_vfs *vfs);

int rsh_reshard_backing(const struct rsh_vfs *vfs, uint64_t node,
			uint32_t *file);

int rsh_reshard_attribute(const struct rsh_vfs *vfs, uint64_t node,
			  enum rsh_attribute which, FILE *to);

static inline const struct rsh_reshard *rsh_reshard_of(const struct rsh_vfs *v)
{
	return (const struct rsh_reshard *)v;
}

#endif
