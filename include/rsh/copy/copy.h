/* SPDX-License-Identifier: Apache-2.0 */
/* copy/copy.h - types that export and verify share: how to stop the work, how
 * to report its progress, and how to divide the files. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

/* The most files that are processed at the same time. */
#define RSH_COPY_JOBS_MAX 1000

/* Removes the temporary files that this process is writing.  A signal handler
 * may call this if it ends the process after that. */
void rsh_temp_remove_all(void);

struct rsh_error;
struct rsh_vfs;
struct rsh_vfs_config;

/* Sets *out to a hash of all that decides which bytes a tree shows, as a
 * manifest has it: the options, the files that they name, and the identities
 * of all files that are read.  Trees with the same hash show the same bytes;
 * 0: the files of SOURCE are shown as they are.  Returns 0 or -errno with a
 * sentence. */
int rsh_conversion_hash(const struct rsh_vfs *vfs,
			const struct rsh_vfs_config *cfg, uint64_t *out,
			struct rsh_error *err);

struct rsh_copy_control {
	/* Once this flag is set, all work ends soon with -EINTR.  NULL: the
	 * work cannot be stopped. */
	const atomic_bool *stop;
	/* `begin` is called with the number of bytes that will be processed.
	 * Then `progress` is called for bytes that were processed, from any
	 * thread.  Both may be NULL. */
	void (*begin)(void *ctx, uint64_t total);
	void (*progress)(void *ctx, uint64_t bytes);
	void *ctx;
	unsigned n_jobs; /* files that are processed at the same time; 0: the
			  * number of processors */
	unsigned readahead; /* as rsh_streams_options.max_loads */
};

/* A share: one part of the files, if several exports divide the files. */
struct rsh_copy_share {
	unsigned number; /* from 0 on */
	unsigned of;     /* number of shares; 0: the files are not divided */
};
