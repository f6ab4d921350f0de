/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/vfs.h - the virtual tree, for mount, export and other commands: its names
 * and nodes, and functions that read a virtual file.
 *
 * There are two kinds of tree.  In the tree of a conversion the output defines
 * names and directories (formats/output.h).  The tree of the newest checkpoints
 * of a job (source/resume.h) has files of SOURCE under their own names, and
 * also links with stable names.
 *
 * Threads: a tree is built once and never changes afterwards.  So there are no
 * locks, and any thread may use it.  Mounts of the same files have the same
 * node numbers; 1 is the root.  Errors are -errno, with a sentence where the
 * function takes a struct rsh_error.
 */
#pragma once

#include <stdint.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>

#include "rsh/formats/outputs.h"
#include "rsh/plan/options.h"
#include "rsh/read/stream.h"
#include "rsh/source/resume.h"
#include "rsh/source/source.h"
#include "rsh/source/tables.h"
#include "rsh/strategy/derive.h"
#include "rsh/util/arena.h"
#include "rsh/util/error.h"
#include "rsh/util/option.h"
#include "rsh/util/place.h"
#include "rsh/vfs/choice.h"

struct rsh_vfs;

#define RSH_VFS_ROOT 1 /* equals FUSE_ROOT_ID */

struct rsh_vfs_options {
	const char *prefix; /* of file names; no '/', may be empty */
	uid_t uid;          /* owner of everything */
	gid_t gid;
};

/* The origin of a strategy. */
struct rsh_strategy_at {
	const char *path; /* path of RSH_FROM_FILE, else NULL */
	enum rsh_strategy_from {
		RSH_FROM_UNSAID, /* not given; counts as NONE */
		RSH_FROM_NONE,   /* whole tensors */
		RSH_FROM_FILE,
		RSH_FROM_DERIVED, /* from the source's strategy, by `derive` */
		RSH_FROM_SOURCE, /* each candidate of SOURCE contains its own */
	} from;
};

/* An adapter that is merged (weights/adapters.h). */
#define RSH_LORAS_MAX 8
struct rsh_lora_at {
	const char *directory; /* absolute */
	double scale;
};

/* How weights are converted to the other form (weights/weights.h). */
struct rsh_weights_at {
	const char *table;  /* path of a rule table, RSH_TABLE_AUTO or the
			     * word of a group; NULL: weights are not
			     * converted */
	bool of_models;     /* both sides of the table are whole models */
	unsigned from;      /* 1 + enum rsh_side of SOURCE; 0: it follows from
			     * the names */
	/* The output that shows weights which are converted to Hugging Face's
	 * form.  NULL: the output of the configuration. */
	const struct rsh_output *follows;
	uint64_t part_bytes; /* limit of a part of that output */
	/* The type of which quantised weights are made; RSH_DTYPE_UNKNOWN:
	 * BFloat16 with a table, and else they stay as they are. */
	enum rsh_dtype dequantise;
	const char *config; /* the model's config.json; NULL: the one in SOURCE,
			     * if there is one */
	enum rsh_unlisted unlisted; /* for parameters that no rule names */
	unsigned vocab_multiple;    /* struct rsh_weights_options */
	bool untie;
	bool unwrap;  /* names have no words of wrappers */
	/* lora_alpha of the adapters that SOURCE has beside its weights; 0:
	 * they are tensors as the others.  They are merged, or an output that
	 * takes an adapter shows them alone. */
	unsigned lora_alpha;
	/* Adapters, which are merged in this order, and the paths of their
	 * files. */
	unsigned n_loras;
	struct rsh_lora_at loras[RSH_LORAS_MAX];
	const char *lora_files[RSH_LORAS_MAX];
};

/* The options of struct rsh_weights_at. */
extern const struct rsh_option rsh_weights_rows[];

/* Returns whether weights are converted, made dense or merged. */
static inline bool rsh_weights_change(const struct rsh_weights_at *w)
{
	return w->table || w->dequantise || w->n_loras || w->lora_alpha ||
	       w->unwrap;
}

/* Everything that a mount needs to start: strategies, source, plan, tree. */
struct rsh_vfs_config {
	const char *source;
	struct rsh_strategy_at src, dst;
	/* The options for a derived strategy, whose notes are logged.  NULL: no
	 * strategy is derived. */
	struct rsh_derive_options *derive;
	/* The form that the tree shows (formats/outputs.h). */
	const struct rsh_output *output;
	/* The options of the plan.  Its framing, division, functions and their
	 * `ctx` are not used: they follow from the output and from the fields
	 * below. */
	struct rsh_plan_options plan;
	struct rsh_choice_at choice;
	const char *rename; /* path of a name map; NULL: none */
	/* Leave out optimizer parameters, and log that they are left out.  Once
	 * all options are known, this follows from `keep_states` and the
	 * others. */
	bool leave_states;
	bool keep_states;
	struct rsh_weights_at weights;
	/* A directory with files that an output may show in the directory of a
	 * model.  NULL: there is none. */
	const char *model_files;
	/* Which entries of it belong to the model; NULL: all. */
	bool (*is_beside)(const char *name, bool is_dir);
	/* The file that is shown as its config.json.  NULL: that of
	 * model_files, if there is one. */
	const char *shown_config;
	/* The options that choose the files of SOURCE.  If the best candidate
	 * is not complete, up to `fallbacks` further candidates are tried. */
	struct rsh_source_options files;
	/* True: the caller compares the contents of replicas later. */
	bool contents_later;
	uint32_t fallbacks;
	const char *group_info; /* NULL: the one in the files' directories */
	/* Hashes the parts of this configuration that decide the bytes of
	 * virtual files.  It leaves out the strategies and the choice of files
	 * of SOURCE: manifests identify these by their contents.  `store` is
	 * the store of SOURCE.  Returns 0, or -errno with a sentence about a
	 * file that cannot be read.  Only manifests need this function. */
	int (*digest)(const struct rsh_vfs_config *cfg,
		      const struct rsh_store *store, uint64_t *digest,
		      struct rsh_error *err);
	struct rsh_vfs_options tree;
	/* For an output with RSH_TAKES_MESH; its step is tree.prefix. */
	const char *mesh, *pipeline_layers;
};

/* The options of this struct that are not those of a struct in it: of
 * strategies, of older steps, and of what is written. */
extern const struct rsh_option rsh_vfs_strategy_rows[], rsh_vfs_fallback_rows[],
	rsh_vfs_output_rows[];

/* Sets what it is if no option is given.  The caller adds the formats, the
 * options of objects, and the function for digests. */
void rsh_vfs_config_init(struct rsh_vfs_config *cfg);

/* Finds the files of the adapters of --lora on disk, and sets the files beside
 * those of SOURCE.  `memory` lives as long as the configuration.  Returns 0, or
 * -errno with a sentence. */
int rsh_vfs_find_adapters(struct rsh_vfs_config *cfg, struct rsh_arena *memory,
			  struct rsh_error *err);

/* Loads the source's strategy, and loads or derives the destination's.  If a
 * strategy is "none" its pointer is not changed.  The caller owns the loaded
 * strategies, also after a failure.  Returns 0 or -errno with a sentence. */
int rsh_vfs_load_strategies(const struct rsh_vfs_config *cfg,
			    struct rsh_names *names, struct rsh_strategy **src,
			    struct rsh_strategy **dst, struct rsh_error *err);

/* Loads both strategies, opens the source, indexes the first candidate from
 * which every file can be planned, and builds the tree.  Logs the choice, and
 * the differences from the bytes that MindSpore's converter would write.
 * Returns 0 or -errno with a sentence. */
int rsh_vfs_open(const struct rsh_vfs_config *cfg, struct rsh_vfs **out,
		 struct rsh_error *err);

/* Finds the newest complete checkpoints (source/resume.h), builds their tree,
 * and logs which they are.  Of the configuration it uses the source, its files
 * and fallbacks, and the owner.  Returns 0 or -errno with a sentence. */
int rsh_vfs_open_resume(const struct rsh_vfs_config *cfg, struct rsh_vfs **out,
			struct rsh_error *err);

void rsh_vfs_free(struct rsh_vfs *v);

/* Returns the node of `name` in directory `parent`; 0 if there is none; -1 (as
 * uint64_t) if parent is not a directory.  "." is any node itself, ".." the
 * directory above a directory: a kernel that exports the mount asks for these
 * when it has forgotten them. */
uint64_t rsh_vfs_lookup(const struct rsh_vfs *v, uint64_t parent,
			const char *name);
/* Fills *st.  Returns 0 or -ENOENT. */
int rsh_vfs_stat(const struct rsh_vfs *v, uint64_t node, struct stat *st);

/* Gives the node and the name of entry i of a directory.  Entry 0 is ".", 1 is
 * "..", and the children follow in order.  `name` has name_max bytes.  Returns
 * 0, -ENOENT past the last entry, or -ENOTDIR. */
int rsh_vfs_entry(const struct rsh_vfs *v, uint64_t dir, uint64_t i,
		  uint64_t *child, char *name, size_t name_max);

/* Returns the target of a symbolic link, which is valid as long as the tree.
 * NULL: the node is not a symbolic link. */
const char *rsh_vfs_link(const struct rsh_vfs *v, uint64_t node);

/* Gives the body of a file, which is valid as long as the tree.  Returns 0,
 * -EISDIR, -EINVAL for a link or a file of the control directory, or
 * -ENOENT. */
int rsh_vfs_body(const struct rsh_vfs *v, uint64_t node, struct rsh_body *out);
/* Opens a stream on the body of a file.  Returns 0, -ENOMEM or an error of
 * rsh_vfs_body(). */
int rsh_vfs_open_stream(const struct rsh_vfs *v, uint64_t node,
			struct rsh_streams *s, struct rsh_stream **out);
/* Reads the body of a file.  Returns what rsh_body_read() does, or an error of
 * rsh_vfs_body(). */
ssize_t rsh_vfs_read(const struct rsh_vfs *v, uint64_t node, void *buf,
		     size_t len, uint64_t offset);

/* ---- files that equal a source file byte for byte ----
 *
 * Such a file may be read directly from the source file, without the tree.
 * Source files have numbers. */

/* Gives the source file that equals the virtual file.  Returns 0; -ENODATA if
 * there is none, or if it must not be read directly, for example because a
 * replica is read instead; -ESTALE if the source file has changed; -ENOMEM.
 * The first call for a file reads the headers of the source file, which takes
 * milliseconds.  The result is kept. */
int rsh_vfs_backing(const struct rsh_vfs *v, uint64_t node, uint32_t *file);
/* Returns the store that has the source files by these numbers
 * (rsh_store_descriptor(), rsh_store_check()).  The tree owns it. */
struct rsh_store *rsh_vfs_store(const struct rsh_vfs *v);

/* Calls fn for all files in the order of the tree, with the path below the
 * root, as long as it returns 0.  Returns what it has returned last, or
 * -errno. */
typedef int rsh_vfs_file_fn(void *ctx, uint64_t node, const char *path,
			    const struct stat *st);
int rsh_vfs_each_file(const struct rsh_vfs *v, rsh_vfs_file_fn *fn, void *ctx);

/* Returns the size of the largest file in bytes. */
uint64_t rsh_vfs_largest(const struct rsh_vfs *v);

/* Gives the figures for df.  The total is the sum of the virtual files' sizes,
 * and nothing is free. */
void rsh_vfs_statfs(const struct rsh_vfs *v, struct statvfs *out);
