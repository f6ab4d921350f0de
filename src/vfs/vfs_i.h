/* vfs/vfs_i.h - the inside of the virtual tree, for this layer only. */
#ifndef RSH_VFS_VFS_I_H
#define RSH_VFS_VFS_I_H

#include <stdbool.h>

#include "rsh/vfs/vfs.h"

/* What differs from file to file and is not the conversion's to know. */
struct rsh_vfs_file {
	mode_t mode;
	struct timespec mtime;
	atomic_bool reported; /* that it is lost stands in the log */
};

/* Everything is set by rsh_vfs_open() and constant from then on, but for what
 * a file has reported. */
struct rsh_vfs {
	bool replicas;
	struct rsh_names *names;
	struct rsh_strategy *src, *dst; /* NULL: none */
	struct rsh_source *source;
	struct rsh_conversion *conversion;
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

enum rsh_node_kind rsh_node_decode(const struct rsh_vfs *v, uint64_t node,
				   uint32_t *rank);

#define RSH_MAP_NAME "model.safetensors.index.json"
/* Name of the file of a rank or part; as snprintf(). */
int rsh_file_name(const struct rsh_vfs *v, uint32_t rank, char *name,
		  size_t max);

/* Makes the map of a model's parts (map.c). */
int rsh_weight_map_build(struct rsh_vfs *v, struct rsh_error *err);

/* Which parameters are wanted (choice.c). */
struct rsh_choice;
/* Compiles the expressions; *out is NULL if there are none.  0 or -EINVAL with
 * a sentence that names the option and the fault. */
int rsh_choice_new(const char *only, const char *drop, struct rsh_choice **out,
		   struct rsh_error *err);
void rsh_choice_free(struct rsh_choice *c);
bool rsh_choice_wants(const struct rsh_choice *c, const char *name);

/* Gives the tree names and attributes once the conversion stands. */
int rsh_tree_build(struct rsh_vfs *v, const struct rsh_vfs_options *o,
		   struct rsh_error *err);

#endif
