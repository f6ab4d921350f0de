/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/vfs_i.h has the inside of the virtual trees, for this room only. */
#ifndef RSH_VFS_VFS_I_H
#define RSH_VFS_VFS_I_H

#include <stdbool.h>
#include <stdio.h>

#include "rsh/outputs/outputs.h"
#include "rsh/outputs/tree.h"
#include "rsh/source/format.h"
#include "rsh/vfs/choice.h"
#include "rsh/vfs/control.h"
#include "rsh/vfs/vfs.h"
#include "rsh/wire/json_edit.h"

/* attribute.h says what each of these means. */
enum rsh_attribute {
	RSH_ATTRIBUTE_SOURCES,
	RSH_ATTRIBUTE_REPLICAS,
	RSH_ATTRIBUTE_STEP,
	RSH_ATTRIBUTE_RECORD_COUNT,
	RSH_N_ATTRIBUTES
};

/* Says what a file or a link is. */
struct rsh_leaf {
	mode_t mode; /* permission bits */
	uint64_t size;
	struct timespec mtime;
};

/* Says of a kind of tree what is known of its leaves. */
struct rsh_vfs_ops {
	void (*free)(struct rsh_vfs *v);
	/* Returns 0, or -ENOENT if the leaf is no longer there. */
	int (*show)(const struct rsh_vfs *v, uint32_t leaf,
		    struct rsh_leaf *out);
	/* Returns the target of a link; NULL: the tree has no links. */
	const char *(*link)(const struct rsh_vfs *v, uint32_t leaf);
	/* Makes the body of a file. */
	struct rsh_body (*body)(const struct rsh_vfs *v, uint32_t leaf);
	/* Does for a file what rsh_vfs_backing() says. */
	int (*backing)(const struct rsh_vfs *v, uint32_t leaf, uint32_t *file);
	struct rsh_source *(*source)(const struct rsh_vfs *v);
	/* Writes the value of an attribute of a leaf or, with RSH_NO_LEAF, of
	 * the root; with `to` NULL it is only asked whether there is one.
	 * Returns 0, -ENODATA or -ENOMEM. */
	int (*attribute)(const struct rsh_vfs *v, uint32_t leaf,
			 enum rsh_attribute which, FILE *to);
};

/* This is the first member of every kind of tree. */
struct rsh_vfs {
	const struct rsh_vfs_ops *ops;
	struct rsh_tree tree;
	uint64_t total_bytes; /* of all files */
	/* Has what the mount tells about itself; it is an empty tree if that is
	 * nothing. */
	struct rsh_tree control;
	struct rsh_control_options tell;
};

/* Makes the root of a tree, which takes time and permission bits from the root
 * of the source; all nodes belong to uid and gid. */
void rsh_vfs_own(struct rsh_vfs *v, const struct rsh_source *source, uid_t uid,
		 gid_t gid);
/* Says what a file of the control directory is. */
int rsh_control_show(const struct rsh_vfs *v, struct rsh_leaf *out);
/* Frees what all kinds of tree have in common. */
void rsh_vfs_clear(struct rsh_vfs *v);

/* Writes a path escaped, as attribute.h says. */
int rsh_attribute_path(FILE *to, const char *path);

/* ---- the tree of a conversion (open.c, reshard.c) ---- */

/* Has what differs from file to file and the plan does not know. */
struct rsh_vfs_file {
	struct timespec mtime;
	/* 0: not known yet, 1: no source file is like it, else the number of
	 * the one that is, plus 2 (backing.c). */
	atomic_uint_fast64_t backing;
	mode_t mode;
	atomic_bool reported; /* that it is lost stands in the log */
};

/* rsh_vfs_open() sets everything, and it is constant from then on, but for what
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
	struct rsh_vfs_weights *weights; /* NULL: weights stay in their form */

	/* The form in which all is shown, and what it has made of that. */
	const struct rsh_output *output;
	struct rsh_output_tree shown;
	/* Values of the source that are no tensors, as a text. */
	struct rsh_values extra;

	uint32_t n_files; /* of the plan */
	struct rsh_vfs_file *files;
};

/* Warns of names and patterns of --only, --drop and --rename that fit none of
 * the names that were asked for (unused.c); `renames` may be NULL. */
void rsh_vfs_tell_unused(const struct rsh_vfs_config *cfg,
			 const struct rsh_name_map *renames,
			 struct rsh_names *asked);

/* Chooses the source's files and plans the conversion (candidates.c).  Returns
 * 0 or -errno with a sentence on everything that was tried. */
int rsh_vfs_take_candidate(struct rsh_reshard *v,
			   const struct rsh_vfs_config *cfg,
			   struct rsh_error *err);

/* Returns the options to plan the offers of a source's format. */
static inline struct rsh_plan_options
rsh_vfs_offer_options(const struct rsh_source *s,
		      const struct rsh_plan_options *opts)
{
	struct rsh_plan_options o = *opts;

	/* A format with any_copy reports missing slices when it reads. */
	if (rsh_source_format(s)->any_copy) {
		o.report_lost = NULL;
		o.replicas = true;
	}
	return o;
}

/* Loads what says how weights become those of the other form, if that is
 * wanted, once the source is open (weights.c). */
int rsh_vfs_load_weights(struct rsh_reshard *v,
			 const struct rsh_vfs_config *cfg,
			 struct rsh_error *err);
/* Plans the chosen candidate in the other form. */
int rsh_vfs_plan_weights(struct rsh_reshard *v,
			 const struct rsh_vfs_config *cfg,
			 const struct rsh_source_view *view,
			 const struct rsh_plan_options *opts,
			 struct rsh_error *err);
/* Are those of the candidate that was planned last MindSpore's, of which a
 * strategy may speak? */
bool rsh_vfs_weights_are_sharded(const struct rsh_reshard *v);
/* Holds a config.json that is shown against the sizes that the rules of `ctx`,
 * a struct rsh_vfs_weights, went by, and adds those that it lacks. */
int rsh_vfs_weights_hold(void *ctx, struct rsh_json_edit *e, const char *path,
			 struct rsh_error *err);
void rsh_vfs_weights_free(struct rsh_vfs_weights *w);

/* Is it an optimizer's, and no weight of the model?  (states.c) */
bool rsh_vfs_is_state(const char *name);
/* Adds a note to the plan on what of the source is an optimizer's, as being
 * left out.  Returns 0 or -ENOMEM. */
int rsh_vfs_note_states(struct rsh_reshard *v);
/* Gives the tree names and attributes once the plan stands (reshard.c). */
int rsh_reshard_build(struct rsh_reshard *v, const struct rsh_vfs_config *cfg,
		      struct rsh_error *err);

extern const struct rsh_vfs_ops rsh_reshard_ops;

int rsh_reshard_backing(const struct rsh_vfs *vfs, uint32_t leaf,
			uint32_t *file);

int rsh_reshard_attribute(const struct rsh_vfs *vfs, uint32_t leaf,
			  enum rsh_attribute which, FILE *to);

static inline const struct rsh_reshard *rsh_reshard_of(const struct rsh_vfs *v)
{
	return (const struct rsh_reshard *)v;
}

#endif
