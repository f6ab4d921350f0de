/* SPDX-License-Identifier: Apache-2.0 */
/* copy/verify.h - checks bytes: source files by themselves, a tree of files
 * against the plan, the plan against a manifest, and files against a manifest.
 *
 * Differences are not errors of these functions; they are in the answer.
 *
 * Threads: one caller at a time; the functions start threads of their own.
 */
#ifndef RSH_COPY_VERIFY_H
#define RSH_COPY_VERIFY_H

#include "rsh/copy/copy.h"
#include "rsh/vfs/vfs.h"

/* A problem is one thing that is wrong. */
struct rsh_problem {
	char *path;   /* path of the file, or "rank N" that has none */
	char *record; /* the record in which it is; NULL: not known */
	bool placed;  /* the offset is known */
	uint64_t offset; /* in the file: that of the first byte that differs, or
			  * of the record's begin */
	char *what;
};

/* An answer that is all zero is an empty one. */
struct rsh_answer {
	uint32_t n_files; /* files that were looked at */
	uint64_t bytes;   /* bytes of these files */
	uint32_t n_made_up;  /* ranks without a file whose slices others hold */
	bool another;     /* the manifest is of another conversion */
	/* The tree of the manifest has so many files, 0 where there is no
	 * manifest; if it tells of fewer, others were not looked at. */
	uint32_t n_of, n_unlisted;

	/* These say what was compared: files with a manifest, with the plan,
	 * with their CRC or those of their items, and slices of n_ranks ranks
	 * with that of another rank. */
	uint32_t n_by_manifest, n_by_plan, n_by_crc;
	uint32_t n_replicas, n_ranks;
	uint64_t uncompared; /* bytes of contents with which nothing was
			      * compared: they could be read, no more */
	uint64_t n_unsummed; /* items without a CRC, where items have CRCs */

	struct rsh_problem *problems; /* in the order of the files */
	size_t n_problems, cap_problems;
};
void rsh_answer_clear(struct rsh_answer *a);

/* All functions below return 0 once the answer is known, or -errno with a
 * sentence; *out, which has to be empty before, is to be cleared in any
 * case. */

/* Verifies the chosen files of a source: structure, CRC, and that all content
 * can be read.  With the strategy, which may be NULL, it also finds ranks
 * without a file whose slices no other rank has, and ranks which hold one slice
 * but not the same bytes; where ranks hold whole parameters, those of one name
 * have to be equal. */
int rsh_verify_source(const struct rsh_source *source,
		      const struct rsh_strategy *strategy, bool whole,
		      struct rsh_names *names,
		      const struct rsh_copy_control *control,
		      struct rsh_answer *out, struct rsh_error *err);

/* Says what a virtual tree is compared with; `tree` and `manifest` may be
 * NULL. */
struct rsh_verify_options {
	const char *tree;     /* directory of files */
	const char *manifest; /* of an earlier run */
	const char *write;    /* path of a manifest to be written; NULL: none */
	bool overwrite;       /* replace a manifest of another conversion */
	const bool *wanted;   /* [file of the plan]; NULL: all */
	struct rsh_copy_control control;
};
/* Verifies a tree, which was made with `cfg`. */
int rsh_verify_plan(const struct rsh_vfs *vfs, const struct rsh_vfs_config *cfg,
		    const struct rsh_verify_options *o, struct rsh_answer *out,
		    struct rsh_error *err);

/* Verifies the files of a directory, or at an address, by a manifest and
 * without a source: they are the same, and there are no others.  With NULL the
 * manifest is that in the directory. */
int rsh_verify_files(const char *manifest, const char *dir,
		     const struct rsh_store_options *how,
		     const struct rsh_copy_control *control,
		     struct rsh_answer *out, struct rsh_error *err);

#endif
