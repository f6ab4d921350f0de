/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/vfs.h - the virtual tree: names and nodes, and reading a virtual file.
 *
 * There are two kinds of tree.  That of a conversion:
 *
 *   /                     directory
 *   /rank_N               directory, one a destination rank
 *   /rank_N/<prefix>N.ckpt   or .safetensors
 *
 * or, of a whole model in parts,
 *
 *   /model.safetensors.index.json
 *   /model-<part>-of-<parts>.safetensors
 *
 * and that of the newest checkpoints of a job (source/resume.h): files of
 * SOURCE under their own names, and beside them links with stable names.
 *
 * Built once, immutable afterwards: no locks, any thread.  Node numbers are
 * stable over mounts of the same files: 1 is the root.
 */
#ifndef RSH_VFS_VFS_H
#define RSH_VFS_VFS_H

#include <stdint.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>

#include "rsh/derive/derive.h"
#include "rsh/converter/conversion.h"
#include "rsh/read/stream.h"
#include "rsh/source/resume.h"
#include "rsh/source/source.h"
#include "rsh/util/error.h"
#include "rsh/util/place.h"

struct rsh_vfs;

#define RSH_VFS_ROOT 1 /* equals FUSE_ROOT_ID */

struct rsh_vfs_options {
	const char *prefix; /* of file names; no '/', may be empty */
	uid_t uid;          /* owner of everything */
	gid_t gid;
};

/* Where a strategy is from. */
struct rsh_strategy_at {
	const char *path; /* of a FILE, else NULL */
	enum rsh_strategy_from {
		RSH_FROM_UNSAID, /* which is taken for NONE */
		RSH_FROM_NONE,   /* whole tensors */
		RSH_FROM_FILE,
		RSH_FROM_DERIVED, /* from the source's, by `derive` */
	} from;
};

/* Everything a mount needs to start: strategies, source, plan, tree. */
struct rsh_vfs_config {
	const char *source;
	struct rsh_strategy_at src, dst;
	/* How a derived one is made, whose notes are logged; NULL: there is
	 * none. */
	struct rsh_derive_options *derive;
	/* What is planned.  Its functions and their `ctx` are not looked at:
	 * `wanted` and `rename` are made of what follows here. */
	struct rsh_conversion_options plan;
	/* Extended regular expressions on names; NULL: none. */
	const char *only;
	const char *drop;
	const char *rename; /* path of a name map; NULL: none */
	/* Which files of SOURCE, and how many candidates after the best one are
	 * tried when that one is not whole. */
	struct rsh_source_options files;
	/* The caller will compare the contents of replicas: let it. */
	bool contents_later;
	uint32_t fallbacks;
	const char *group_info; /* NULL: what lies beside the files */
	struct rsh_vfs_options tree;
};

/* Loads the source's strategy, and loads or derives the destination's; one that
 * is "none" stays as it was.  What was loaded is the caller's, also after a
 * failure.  0 or -errno with a sentence. */
int rsh_vfs_load_strategies(const struct rsh_vfs_config *cfg,
			    struct rsh_names *names, struct rsh_strategy **src,
			    struct rsh_strategy **dst, struct rsh_error *err);

/* Loads both strategies, opens the source, indexes the first candidate from
 * which every file can be planned, and builds the tree; logs what was chosen and
 * where the bytes differ from the converter's.  0 or -errno with a sentence. */
int rsh_vfs_open(const struct rsh_vfs_config *cfg, struct rsh_vfs **out,
		 struct rsh_error *err);

struct rsh_vfs_resume_config {
	const char *source;
	struct rsh_source_options files; /* see source/resume.h */
	uint32_t fallbacks;
	uid_t uid; /* owner of everything */
	gid_t gid;
};

/* Finds the newest checkpoints that are whole and builds their tree; logs
 * which.  0 or -errno with a sentence. */
int rsh_vfs_open_resume(const struct rsh_vfs_resume_config *cfg,
			struct rsh_vfs **out, struct rsh_error *err);

void rsh_vfs_free(struct rsh_vfs *v);

/* Node of `name` in directory `parent`; 0 when there is none, -1 (as
 * uint64_t) when parent is no directory. */
uint64_t rsh_vfs_lookup(const struct rsh_vfs *v, uint64_t parent,
			const char *name);
/* 0 or -ENOENT. */
int rsh_vfs_stat(const struct rsh_vfs *v, uint64_t node, struct stat *st);

/* Entry number i (0 "." , 1 "..", then the children in order) of a
 * directory: 0 and the child's node and name (name_max bytes at `name`),
 * -ENOENT past the last, -ENOTDIR. */
int rsh_vfs_entry(const struct rsh_vfs *v, uint64_t dir, uint64_t i,
		  uint64_t *child, char *name, size_t name_max);

/* The target of a symbolic link, NULL for anything else; lives as long as the
 * tree. */
const char *rsh_vfs_link(const struct rsh_vfs *v, uint64_t node);

/* The body of a file, which lives as long as the tree: 0, -EISDIR, -EINVAL for a
 * link, -ENOENT. */
int rsh_vfs_body(const struct rsh_vfs *v, uint64_t node, struct rsh_body *out);
/* Opens a stream on it: 0, -ENOMEM or as above. */
int rsh_vfs_open_stream(const struct rsh_vfs *v, uint64_t node,
			struct rsh_streams *s, struct rsh_stream **out);
/* As rsh_body_read() of it, or as above. */
ssize_t rsh_vfs_read(const struct rsh_vfs *v, uint64_t node, void *buf,
		     size_t len, uint64_t offset);

/* ---- files that are a source file byte for byte ----
 *
 * What they hold may be read from that file without the tree.  Source files have
 * numbers. */

/* The source file whose bytes the virtual file's are: 0, or -ENODATA if there
 * is none or it is better not read past the tree, as when a replica stands in
 * for it; -ESTALE when it changed; -ENOMEM.  Its headers are read when a file is
 * asked about first, which takes milliseconds; the answer is kept. */
int rsh_vfs_backing(const struct rsh_vfs *v, uint64_t node, uint32_t *file);
/* A descriptor of it, which is the caller's.  0, -ESTALE if the file is no
 * longer the one that was indexed, -EIO, -ENOMEM, -EMFILE. */
int rsh_vfs_backing_open(const struct rsh_vfs *v, uint32_t file, int *fd);
/* 0 if the file behind that descriptor has stayed as it was, or -ESTALE. */
int rsh_vfs_backing_check(const struct rsh_vfs *v, uint32_t file, int fd);
/* As rsh_source_is_remote(). */
bool rsh_vfs_backing_is_remote(const struct rsh_vfs *v);
/* True if source files lie on a file system that hands reads on to another. */
bool rsh_vfs_backing_is_stacked(const struct rsh_vfs *v);

/* Bytes of the largest file. */
uint64_t rsh_vfs_largest(const struct rsh_vfs *v);

/* Figures for df: total is the sum of the virtual files, nothing is free. */
void rsh_vfs_statfs(const struct rsh_vfs *v, struct statvfs *out);

#endif
