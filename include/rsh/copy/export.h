/* SPDX-License-Identifier: Apache-2.0 */
/* copy/export.h - writes a virtual tree as real files.
 *
 * A file is written under a temporary name in its directory.  It gets its final
 * name only when it is complete and synced.  Finished files are recorded in a
 * file in the manifest's directory, so that an interrupted export resumes.
 *
 * Several exports may divide the files of one tree, on any machines that have
 * access to the directory.  Shares have about the same number of bytes and are
 * the same on all machines.  The manifest lists the files that all of them have
 * finished.  An export with another number of shares can resume it.
 *
 * Threads: one thread runs an export, which starts threads of its own.  Several
 * exports may run at once, but exports into one manifest must have different
 * shares.
 */
#pragma once

#include "rsh/copy/copy.h"
#include "rsh/vfs/vfs.h"

struct rsh_export_options {
	const char *dir;      /* made if it does not exist; its parent must
			       * exist */
	const char *manifest; /* NULL: RSH_MANIFEST_NAME in dir */
	const bool *wanted;   /* [file of the plan]; NULL: all */
	struct rsh_copy_share share; /* of the wanted files */
	bool verify;    /* read and compare files that were written, and files
			 * that were there already */
	bool overwrite; /* replace files that are not of this export */
	struct rsh_copy_control control;
};

struct rsh_export_result {
	uint32_t n_written, n_kept; /* kept: finished before this run */
	uint32_t n_lost; /* left out: their slices are lost */
	uint32_t n_left; /* not begun, after a failure */
	uint64_t bytes_written, bytes_kept;
	char *manifest;  /* its path, from malloc */
};

/* Exports the tree of a conversion, which was made with `cfg`.  Returns 0, or
 * -errno with a sentence.  *out describes the files up to a failure; the caller
 * must clear it in any case.  Besides errors of reads and writes it returns:
 *   -EINVAL  the directory is SOURCE or below it
 *   -EEXIST  a file exists that this export did not write
 *   -EBUSY   another export is writing there
 *   -ENOSPC  there is not enough room; if the file system reports its free
 *            space, this is found before anything is written
 *   -EINTR   the export was stopped */
int rsh_export(const struct rsh_vfs *vfs, const struct rsh_vfs_config *cfg,
	       const struct rsh_export_options *o,
	       struct rsh_export_result *out, struct rsh_error *err);
void rsh_export_result_clear(struct rsh_export_result *r);
