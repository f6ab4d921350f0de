/* SPDX-License-Identifier: Apache-2.0 */
/* copy/verify.h - verifies bytes.  It checks source files by themselves, and
 * compares a tree of files with the plan, the plan with a manifest, and files
 * with a manifest.
 *
 * A difference is not an error of these functions.  It is reported in the
 * answer.
 *
 * Threads: one caller at a time.  The functions start threads of their own.
 */
#pragma once

#include "rsh/copy/copy.h"
#include "rsh/vfs/vfs.h"

/* A problem that was found. */
struct rsh_problem {
	char *path;   /* path of the file, or "rank N" if the rank has none */
	char *record; /* the record with the problem; NULL: not known */
	bool placed;  /* the offset is known */
	uint64_t offset; /* in the file: of the first byte that differs, or of
			  * the begin of the record */
	char *what;
	size_t order; /* of the file */
};

/* An answer that is all zero is an empty one. */
struct rsh_answer {
	uint32_t n_files; /* files that were checked */
	uint64_t bytes;   /* bytes of these files */
	uint32_t n_made_up;  /* ranks without a file whose slices others hold */
	bool another;     /* the manifest is of another conversion */
	/* n_of: number of files in the tree of the manifest; 0: there is no
	 * manifest.  If the manifest lists fewer files, n_unlisted other files
	 * were not checked. */
	uint32_t n_of, n_unlisted;

	/* The numbers of files that were compared with a manifest, with the
	 * plan, and with their CRC or the CRCs of their items.  Slices of
	 * n_ranks ranks were compared with those of another rank. */
	uint32_t n_by_manifest, n_by_plan, n_by_crc;
	uint32_t n_replicas, n_ranks;
	uint64_t uncompared; /* bytes of contents that were only read, but not
			      * compared with anything */
	uint64_t n_unsummed; /* items without a CRC, if other items have one */

	struct rsh_problem *problems; /* in the order of the files */
	size_t n_problems, cap_problems;
};
void rsh_answer_clear(struct rsh_answer *a);

/* All functions below return 0 once the answer is known, or -errno with a
 * sentence.  *out must be empty before the call.  The caller must clear it in
 * any case. */

struct rsh_verify_source {
	const struct rsh_source *source;
	const struct rsh_strategy *strategy; /* NULL: none */
	bool whole; /* ranks hold whole parameters */
	struct rsh_names *names;
};
/* Verifies the chosen files of a source: their structure, their CRC, and that
 * all content can be read.  With a strategy it also
 * finds ranks without a file whose slices no other rank has, and ranks that
 * hold the same slice with different bytes.  If ranks hold whole parameters,
 * those with the same name must be equal. */
int rsh_verify_source(const struct rsh_verify_source *s,
		      const struct rsh_copy_control *control,
		      struct rsh_answer *out, struct rsh_error *err);

/* The tree and the manifest with which a virtual tree is compared.  `tree` and
 * `manifest` may be NULL. */
struct rsh_verify_options {
	const char *tree;     /* directory of files */
	const char *manifest; /* of an earlier run */
	const char *write;    /* path of a manifest to be written; NULL: none */
	bool overwrite;       /* replace a manifest of another conversion */
	const bool *wanted;   /* [file of the plan]; NULL: all */
	struct rsh_copy_control control;
};
/* Verifies a virtual tree, which was made with `cfg`. */
int rsh_verify_plan(const struct rsh_vfs *vfs, const struct rsh_vfs_config *cfg,
		    const struct rsh_verify_options *o, struct rsh_answer *out,
		    struct rsh_error *err);

/* Compares the files of a directory, or at an address, with a manifest, without
 * a source.  The files must be the same, and there must be no others.  If
 * `manifest` is NULL it is the manifest in the directory. */
int rsh_verify_files(const char *manifest, const char *dir,
		     const struct rsh_store_options *how,
		     const struct rsh_copy_control *control,
		     struct rsh_answer *out, struct rsh_error *err);
