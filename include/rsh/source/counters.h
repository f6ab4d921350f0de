/* SPDX-License-Identifier: Apache-2.0 */
/* source/counters.h finds files of ranks that are of two saves, by the numbers
 * of steps that MindSpore saves in them.
 *
 * A name without a step does not say of which save a file is.  But a job that
 * saves "step_num" in its files saves the same one on all ranks.  So do its
 * optimizers with "global_step".  Which number it is does not matter: a job
 * that goes on may begin at 0 again.
 *
 * Threads: any thread may call these functions.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "rsh/util/names.h"
#include "rsh/wire/ckpt.h"

#define RSH_COUNTERS 3

/* These are the numbers that a file has. */
struct rsh_counters {
	unsigned known; /* bit i: the file has values[i] */
	uint64_t values[RSH_COUNTERS];
};

/* Reads the numbers of a file with this index; all that it has are a few bytes
 * each.  A number that cannot be read is not known.  Returns how many numbers
 * the index has, whether they could be read or not. */
unsigned rsh_counters_read(const struct rsh_byte_source *file,
			   const struct rsh_ckpt_index *ix,
			   struct rsh_names *names, struct rsh_counters *out);
/* Compares the numbers of n files, of which paths[i] is the path.  Different
 * ones are a warning, which is logged, if names have a step (`stepped`), since
 * that says of which save a file is, or if they are an optimizer's.  Returns 0;
 * 1: this warning; or -EBADMSG with a sentence that names two files and their
 * numbers. */
int rsh_counters_compare(const struct rsh_counters *files,
			 const char *const *paths, uint32_t n, bool stepped,
			 struct rsh_error *err);
