/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/vfs.h - the virtual tree, for mount, export and other commands: names and
 * nodes, and reading a virtual file.
 *
 * There are two kinds of tree.  That of a conversion is laid out by its output
 * (outputs/output.h).  That of the newest checkpoints of a job
 * (source/resume.h) has files of SOURCE under their own names, and beside them
 * links with stable names.
 *
 * Threads: a tree is built once and never changes afterwards, so that there are
 * no locks and any thread may use it.  Node numbers are stable over mounts of
 * the same files: 1 is the root.  Errors are -errno, with a sentence where one
 * can be given.
 */
#ifndef RSH_VFS_VFS_H
#define RSH_VFS_VFS_H

#include <stdint.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>

#include "rsh/outputs/outputs.h"
#include "rsh/plan/options.h"
#include "rsh/read/stream.h"
#include "rsh/source/resume.h"
#include "rsh/source/source.h"
#include "rsh/source/tables.h"
#include "rsh/strategy/derive.h"
#include "rsh/util/error.h"
#include "rsh/util/place.h"

struct rsh_vfs;

#define RSH_VFS_ROOT 1 /* equals FUSE_ROOT_ID */

struct rsh_vfs_options {
	const char *prefix; /* of file names; no '/', may be empty */
	uid_t uid;          /* owner of everything */
	gid_t gid;
};

/* Where a strategy comes from. */
struct rsh_strategy_at {
	const char *path; /* path of RSH_FROM_FILE, else NULL */
	enum rsh_strategy_from {
		RSH_FROM_UNSAID, /* which is taken for NONE */
		RSH_FROM_NONE,   /* whole tensors */
		RSH_FROM_FILE,
		RSH_FROM_DERIVED, /* from the source's, by `derive` */
		RSH_FROM_SOURCE, /* each candidate of SOURCE contains its own */
	} from;
};

/* How weights are converted to the other form (weights/weights.h). */
struct rsh_weights_at {
	const char *table;  /* path of a rule table, or RSH_TABLE_AUTO; NULL:
			     * they stay as they are */
	unsigned from;      /* 1 + enum rsh_side of SOURCE; 0: names tell */
	/* What becomes Hugging Face's is shown in this one, whatever the
	 * configuration's output is; NULL: in that. */
	const struct rsh_output *follows;
	uint64_t part_bytes; /* of the parts of this one */
	const char *config; /* the model's config.json; NULL: the one that lies
			     * in SOURCE, if any does */
	enum rsh_unlisted unlisted; /* what no rule names */
};

/* Everything that a mount needs to start: strategies, source, plan, tree. */
struct rsh_vfs_config {
	const char *source;
	struct rsh_strategy_at src, dst;
	/* Says how a derived strategy is made, whose notes are logged; NULL:
	 * none is derived. */
	struct rsh_derive_options *derive;
	/* The form in which it is shown (outputs/outputs.h). */
	const struct rsh_output *output;
	/* Says what is planned.  Its framing, division, functions and their
	 * `ctx` are not looked at: they follow from the output, and from what
	 * stands below. */
	struct rsh_plan_options plan;
	/* These are extended regular expressions on names; NULL: none. */
	const char *only;
	const char *drop;
	const char *rename; /* path of a name map; NULL: none */
	/* What is an optimizer's is left out, and the log says so.  This
	 * follows from `keep_states` and the rest once the options are settled.
	 */
	bool leave_states;
	bool keep_states;
	struct rsh_weights_at weights;
	/* Directory whose files an output shows beside a model, if it does
	 * that; NULL: there is none. */
	const char *model_files;
	/* Says which files of SOURCE are taken; `fallbacks` is how many
	 * candidates after the best one are tried when that one is not
	 * whole. */
	struct rsh_source_options files;
	/* True: the caller will compare the contents of replicas himself. */
	bool contents_later;
	uint32_t fallbacks;
	const char *group_info; /* NULL: what lies beside the files */
	/* Hashes all of this that decides about the bytes, but for the
	 * strategies and for which files of SOURCE are taken: those are told by
	 * what they hold.  `store` is SOURCE's.  0, or -errno with a sentence
	 * about a file that cannot be read.  Manifests need it. */
	int (*digest)(const struct rsh_vfs_config *cfg,
		      const struct rsh_store *store, uint64_t *digest,
		      struct rsh_error *err);
	struct rsh_vfs_options tree;
};

/* Loads the source's strategy, and loads or derives the destination's; one that
 * is "none" stays as it was.  What was loaded is the caller's, also after a
 * failure.  Returns 0 or -errno with a sentence. */
int rsh_vfs_load_strategies(const struct rsh_vfs_config *cfg,
			    struct rsh_names *names, struct rsh_strategy **src,
			    struct rsh_strategy **dst, struct rsh_error *err);

/* Loads both strategies, opens the source, indexes the first candidate from
 * which every file can be planned, and builds the tree; logs what was chosen
 * and where the bytes differ from the converter's.  Returns 0 or -errno with a
 * sentence. */
int rsh_vfs_open(const struct rsh_vfs_config *cfg, struct rsh_vfs **out,
		 struct rsh_error *err);

struct rsh_vfs_resume_config {
	const char *source;
	struct rsh_source_options files; /* see source/resume.h */
	uint32_t fallbacks;
	uid_t uid; /* owner of everything */
	gid_t gid;
};

/* Finds the newest checkpoints that are whole, builds their tree, and logs
 * which they are.  Returns 0 or -errno with a sentence. */
int rsh_vfs_open_resume(const struct rsh_vfs_resume_config *cfg,
			struct rsh_vfs **out, struct rsh_error *err);

void rsh_vfs_free(struct rsh_vfs *v);

/* Returns the node of `name` in directory `parent`; 0 when there is none, -1
 * (as uint64_t) when parent is no directory. */
uint64_t rsh_vfs_lookup(const struct rsh_vfs *v, uint64_t parent,
			const char *name);
/* Returns 0 or -ENOENT. */
int rsh_vfs_stat(const struct rsh_vfs *v, uint64_t node, struct stat *st);

/* Gives entry number i of a directory (0 is ".", 1 is "..", then come the
 * children in order): the child's node and its name (`name` has name_max
 * bytes).  Returns 0, -ENOENT past the last entry, or -ENOTDIR. */
int rsh_vfs_entry(const struct rsh_vfs *v, uint64_t dir, uint64_t i,
		  uint64_t *child, char *name, size_t name_max);

/* Returns the target of a symbolic link, which lives as long as the tree, or
 * NULL for anything else. */
const char *rsh_vfs_link(const struct rsh_vfs *v, uint64_t node);

/* Gives the body of a file, which lives as long as the tree.  Returns 0,
 * -EISDIR, -EINVAL for a link or a file of the control directory, or
 * -ENOENT. */
int rsh_vfs_body(const struct rsh_vfs *v, uint64_t node, struct rsh_body *out);
/* Opens a stream on the body of a file.  Returns 0, -ENOMEM or what
 * rsh_vfs_body() fails with. */
int rsh_vfs_open_stream(const struct rsh_vfs *v, uint64_t node,
			struct rsh_streams *s, struct rsh_stream **out);
/* Reads the body of a file, as rsh_body_read() does, or fails as
 * rsh_vfs_body(). */
ssize_t rsh_vfs_read(const struct rsh_vfs *v, uint64_t node, void *buf,
		     size_t len, uint64_t offset);

/* ---- files that are a source file byte for byte ----
 *
 * What they hold may be read from that file without the tree.  Source files
 * have numbers. */

/* Gives the source file whose bytes are the virtual file's.  Returns 0, or
 * -ENODATA if there is none or it is better not read past the tree, as when a
 * replica stands in for it; -ESTALE when it changed; -ENOMEM.  Its headers are
 * read when a file is asked about first, which takes milliseconds; the answer
 * is kept. */
int rsh_vfs_backing(const struct rsh_vfs *v, uint64_t node, uint32_t *file);
/* Opens a descriptor of the source file, which is the caller's.  Returns 0,
 * -ESTALE if the file is no longer the one that was indexed, -EIO, -ENOMEM or
 * -EMFILE. */
int rsh_vfs_backing_open(const struct rsh_vfs *v, uint32_t file, int *fd);
/* Returns 0 if the file behind that descriptor has stayed as it was, or
 * -ESTALE. */
int rsh_vfs_backing_check(const struct rsh_vfs *v, uint32_t file, int fd);
/* Returns what rsh_source_is_remote() does. */
bool rsh_vfs_backing_is_remote(const struct rsh_vfs *v);
/* True if source files lie on a file system that hands reads on to another. */
bool rsh_vfs_backing_is_stacked(const struct rsh_vfs *v);

/* Returns the bytes of the largest file. */
uint64_t rsh_vfs_largest(const struct rsh_vfs *v);

/* Gives the figures for df: total is the sum of the virtual files, nothing is
 * free. */
void rsh_vfs_statfs(const struct rsh_vfs *v, struct statvfs *out);

#endif
