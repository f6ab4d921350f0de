/* SPDX-License-Identifier: Apache-2.0 */
/* copy/verify.h - are bytes what they should be?  Four questions: source files
 * by themselves, a tree of files by the plan, the plan by a manifest, and files
 * by a manifest.
 *
 * What is wrong is no failure of the question: it is told in the answer. */
#ifndef RSH_COPY_VERIFY_H
#define RSH_COPY_VERIFY_H

#include "rsh/copy/copy.h"
#include "rsh/vfs/vfs.h"

/* One thing that is wrong. */
struct rsh_problem {
	char *path;   /* of the file, or "rank N" that has none */
	char *record; /* in which record; NULL: not known */
	bool placed;  /* the offset is known */
	uint64_t offset; /* in the file: the first byte that differs, or where
			  * the record begins */
	char *what;
};

/* All zero is an empty answer. */
struct rsh_answer {
	uint32_t n_files; /* looked at */
	uint64_t bytes;   /* of these */
	uint32_t n_replicas; /* slices compared with that of another rank */
	uint32_t n_made_up;  /* ranks without a file that others stand in for */
	bool another;     /* the manifest is of another conversion */
	struct rsh_problem *problems; /* in the order of the files */
	size_t n_problems, cap_problems;
};
void rsh_answer_clear(struct rsh_answer *a);

/* All return 0 once the answer is known, or -errno with a sentence; *out, which
 * has to be empty before, is to be cleared in any case. */

/* The chosen files of a source: structure, CRC, and that all content can be
 * read.  With the strategy, which may be NULL, also that no rank's file is
 * missing whose slices no other has, and that ranks which hold one slice hold
 * the same bytes. */
int rsh_verify_source(const struct rsh_source *source,
		      const struct rsh_strategy *strategy,
		      struct rsh_names *names,
		      const struct rsh_copy_control *control,
		      struct rsh_answer *out, struct rsh_error *err);

/* What a virtual tree is compared with; both may be NULL. */
struct rsh_verify_options {
	const char *tree;     /* directory of files */
	const char *manifest; /* of an earlier run */
	const char *write;    /* a manifest to be written; NULL: none */
	bool overwrite;       /* one of another conversion */
	const bool *wanted;   /* [file of the conversion]; NULL: all */
	struct rsh_copy_control control;
};
/* The tree was made with `cfg`. */
int rsh_verify_plan(const struct rsh_vfs *vfs, const struct rsh_vfs_config *cfg,
		    const struct rsh_verify_options *o, struct rsh_answer *out,
		    struct rsh_error *err);

/* The files of a directory. */
int rsh_verify_files(const char *manifest, const char *dir,
		     const struct rsh_copy_control *control,
		     struct rsh_answer *out, struct rsh_error *err);

#endif
