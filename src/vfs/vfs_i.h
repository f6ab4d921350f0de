/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/vfs_i.h - the internal structures of virtual trees, for the files of vfs/
 * only. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "rsh/formats/outputs.h"
#include "rsh/formats/tree.h"
#include "rsh/plan/kinds.h"
#include "rsh/source/format.h"
#include "rsh/vfs/choice.h"
#include "rsh/vfs/control.h"
#include "rsh/vfs/vfs.h"
#include "rsh/weights/adapters.h"
#include "rsh/wire/json_edit.h"

/* attribute.h describes these. */
enum rsh_attribute {
	RSH_ATTRIBUTE_SOURCES,
	RSH_ATTRIBUTE_REPLICAS,
	RSH_ATTRIBUTE_STEP,
	RSH_ATTRIBUTE_RECORD_COUNT,
	RSH_N_ATTRIBUTES
};

/* The properties of a file or a link. */
struct rsh_leaf {
	mode_t mode; /* permission bits */
	uint64_t size;
	struct timespec mtime;
};

/* The functions of a kind of tree for its leaves. */
struct rsh_vfs_ops {
	void (*free)(struct rsh_vfs *v);
	/* Fills the properties of a leaf.  Returns 0, or -ENOENT if the leaf no
	 * longer exists. */
	int (*show)(const struct rsh_vfs *v, uint32_t leaf,
		    struct rsh_leaf *out);
	/* Returns the target of a link; NULL: the tree has no links. */
	const char *(*link)(const struct rsh_vfs *v, uint32_t leaf);
	/* Makes the body of a file. */
	struct rsh_body (*body)(const struct rsh_vfs *v, uint32_t leaf);
	/* Does what rsh_vfs_backing() does, for a leaf. */
	int (*backing)(const struct rsh_vfs *v, uint32_t leaf, uint32_t *file);
	/* Writes the value of an attribute of a leaf or, with RSH_NO_LEAF, of
	 * the root.  If `to` is NULL it only checks whether there is one.
	 * Returns 0, -ENODATA or -ENOMEM.  NULL: there are none. */
	int (*attribute)(const struct rsh_vfs *v, uint32_t leaf,
			 enum rsh_attribute which, FILE *to);
};

/* This is the first member of every kind of tree. */
struct rsh_vfs {
	const struct rsh_vfs_ops *ops;
	struct rsh_source *source; /* the kind's; rsh_vfs_own() sets it */
	struct rsh_tree tree;
	uint64_t total_bytes; /* of all files */
	/* The control directory (control.h).  The tree is empty if there is
	 * none. */
	struct rsh_tree control;
	struct rsh_control_options tell;
};

/* Makes the root of a tree, with the mtime and the permission bits of the root
 * of the source, and the present time as ctime.  uid and gid own all nodes. */
void rsh_vfs_own(struct rsh_vfs *v, struct rsh_source *source, uid_t uid,
		 gid_t gid);
/* Frees the fields that all kinds of tree have in common. */
void rsh_vfs_clear(struct rsh_vfs *v);

/* Escapes a path and writes it, as attribute.h says. */
int rsh_attribute_path(FILE *to, const char *path);

/* ---- the tree of a conversion (open.c, reshard.c) ---- */

/* The properties of one file that are not in the plan. */
struct rsh_vfs_file {
	struct timespec mtime;
	/* 0: not known yet; 1: no source file equals this file; else 2 + the
	 * number of the source file that equals it. */
	atomic_uint_fast64_t backing;
	mode_t mode;
	atomic_bool reported; /* the log says that the file is lost */
};

/* rsh_vfs_open() sets all fields.  After that they do not change, except
 * `reported` and `backing` of a file. */
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

	/* The form that the tree shows, and the tree that it has made. */
	const struct rsh_output *output;
	struct rsh_output_tree shown;
	/* Values of the source that are not tensors. */
	struct rsh_values extra;

	uint32_t n_files; /* of the plan */
	struct rsh_vfs_file *files;
};

/* Warns of patterns of --only and --drop and of names of --rename that match
 * none of the names in `asked` (choice.c).  `renames` may be NULL. */
void rsh_vfs_tell_unused(const struct rsh_vfs_config *cfg,
			 const struct rsh_name_map *renames,
			 struct rsh_names *asked);

/* Looks at the plan for what it lacks (whole.c); `choice` is NULL if all is
 * wanted.  Logs warnings; returns 0, -ENOMEM, or -EBADMSG with a sentence if
 * most of the model is missing. */
int rsh_vfs_check_whole(const struct rsh_reshard *v,
			const struct rsh_vfs_config *cfg,
			const struct rsh_choice *choice, struct rsh_error *err);

/* Chooses the source's files and plans the conversion (candidates.c).  Returns
 * 0, or -errno with a sentence about all candidates that were tried. */
int rsh_vfs_take_candidate(struct rsh_reshard *v,
			   const struct rsh_vfs_config *cfg,
			   struct rsh_error *err);

/* Returns the options to plan the offers of a source's format. */
static inline struct rsh_plan_options
rsh_vfs_offer_options(const struct rsh_source *s,
		      const struct rsh_plan_options *opts)
{
	struct rsh_plan_options o = *opts;

	/* Such a format reports missing slices when it reads. */
	if (!rsh_source_format(s)->by_name) {
		o.report_lost = NULL;
		o.replicas = true;
	}
	return o;
}

/* Plans offers, whose catalogue is taken over, as the output does or else as
 * the general writer does (weights.c). */
int rsh_vfs_write_plan(struct rsh_reshard *v, const struct rsh_vfs_config *cfg,
		       const struct rsh_offers *offers,
		       const struct rsh_plan_options *opts,
		       struct rsh_error *err);

/* Returns the mesh of an output with RSH_TAKES_MESH. */
static inline struct rsh_output_mesh
rsh_vfs_output_mesh(const struct rsh_vfs_config *cfg)
{
	return (struct rsh_output_mesh){
		.axes = cfg->mesh, .layers = cfg->pipeline_layers,
		.step = cfg->tree.prefix,
	};
}

/* Returns the name of the file of SOURCE that says that weights are quantised;
 * NULL: none does (weights.c). */
const char *rsh_vfs_quantised_by(const struct rsh_reshard *v,
				 const struct rsh_vfs_config *cfg);

/* If weights are to be converted to the other form, loads the rule tables and
 * the model's config.json (weights.c).  The source must be open. */
int rsh_vfs_load_weights(struct rsh_reshard *v,
			 const struct rsh_vfs_config *cfg,
			 struct rsh_error *err);
/* Plans the chosen candidate with weights in the other form. */
int rsh_vfs_plan_weights(struct rsh_reshard *v,
			 const struct rsh_vfs_config *cfg,
			 const struct rsh_source_view *view,
			 const struct rsh_plan_options *opts,
			 struct rsh_error *err);
/* Returns the adapter_config.json of the adapter that was planned last; NULL:
 * SOURCE is none. */
const char *rsh_vfs_weights_adapter_config(const struct rsh_vfs_weights *w);
/* Returns whether the candidate that was planned last has weights in
 * MindSpore's form.  Only these can be sharded by a strategy. */
bool rsh_vfs_weights_are_sharded(const struct rsh_reshard *v);
/* Compares the sizes in a config.json that is shown with the sizes that the
 * rules used, and adds sizes that it lacks.  `ctx` is a struct
 * rsh_vfs_weights. */
int rsh_vfs_weights_hold(void *ctx, struct rsh_json_edit *e, const char *path,
			 struct rsh_error *err);
void rsh_vfs_weights_free(struct rsh_vfs_weights *w);

/* Returns whether the options change no tensor and no name. */
bool rsh_reshard_is_as_saved(const struct rsh_reshard *v,
			     const struct rsh_vfs_config *cfg);

/* Builds the names and attributes of the tree from the finished plan
 * (reshard.c). */
int rsh_reshard_build(struct rsh_reshard *v, const struct rsh_vfs_config *cfg,
		      struct rsh_error *err);

extern const struct rsh_vfs_ops rsh_reshard_ops;

static inline const struct rsh_reshard *rsh_reshard_of(const struct rsh_vfs *v)
{
	return (const struct rsh_reshard *)v;
}
