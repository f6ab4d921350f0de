/* SPDX-License-Identifier: Apache-2.0 */
/* copy/export.h - writes a virtual tree as real files.
 *
 * A file is written under a temporary name in its directory and gets its final
 * name only when it is complete and synced.  Finished files are recorded beside
 * the manifest, so that an interrupted export resumes.
 *
 * Several exports may share the files of one tree, on any machines that share
 * the directory.  Shares have about the same number of bytes and are the same
 * on all machines.  The manifest lists what all of them have finished; an
 * export with another number of shares can resume it.
 *
 * Threads: one export is run by one caller, and starts threads of its own.
 * Several exports may run at once, but only different shares into one manifest.
 */
#ifndef RSH_COPY_EXPORT_H
#define RSH_COPY_EXPORT_H

#include "rsh/copy/copy.h"
#include "rsh/vfs/vfs.h"

struct rsh_export_options {
	const char *dir;      /* made if it is not there; its parent must be */
	const char *manifest; /* NULL: RSH_MANIFEST_NAME in dir */
	const bool *wanted;   /* [file of the plan]; NULL: all */
	struct rsh_copy_share share; /* of those that are wanted */
	bool verify;    /* read what was written, or found, and compare */
	bool overwrite; /* replace files that are not of this export */
	struct rsh_copy_control control;
};

struct rsh_export_result {
	uint32_t n_written, n_kept; /* kept are those that were there already */
	uint32_t n_lost; /* left out: their slices cannot be had */
	uint32_t n_left; /* not begun, after a failure */
	uint64_t bytes_written, bytes_kept;
	char *manifest;  /* its path, from malloc */
};

/* Exports the tree, which is that of a conversion, made with `cfg`.  Returns 0,
 * or -errno with a sentence; *out is filled as far as it went, and to be
 * cleared in any case.  Besides what reading and writing give it returns:
 *   -EINVAL  the directory is SOURCE or below it
 *   -EEXIST  a file is there that this export did not write
 *   -EBUSY   another export writes there now
 *   -ENOSPC  not enough room, found out before anything is written where
 *            the file system says so
 *   -EINTR   it was told to stop. */
int rsh_export(const struct rsh_vfs *vfs, const struct rsh_vfs_config *cfg,
	       const struct rsh_export_options *o,
	       struct rsh_export_result *out, struct rsh_error *err);
void rsh_export_result_clear(struct rsh_export_result *r);

#endif
