/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/plan.h has the parts of the command `plan`. */
#pragma once

#include "rsh/app/printer.h"
#include "rsh/vfs/inspect.h"

/* ---- where bytes come from (plan_tensors.c) ---- */

/* Prints, in JSON, an array of the records of a file: each has its offset, its
 * bytes, and a text about its origin.  "1:1361+1728 3:4096+512*72/2048" means
 * 1728 bytes at offset 1361 of source rank 1, and 72 runs of 512 bytes of
 * source rank 3, the first at offset 4096, each next one 2048 bytes later. */
void rsh_plan_print_slices(struct rsh_printer *out, const struct rsh_plan *p,
			   uint32_t file);

/* Prints, in JSON, an array of the tensors that are shown; tensors that are cut
 * and held in the same way share an entry.  man/reshardfs-plan.1 says what an
 * entry has. */
void rsh_plan_print_tensors(struct rsh_printer *out,
			    const struct rsh_vfs_view *view);

/* ---- printing (plan_print.c) ---- */

/* Prints what the wanted files of the plan read.  With `slices` JSON also has
 * the origin of the bytes of all records, with `tensors` also how both sides
 * cut each tensor.  Returns 0 or -ENOMEM. */
int rsh_plan_print(struct rsh_printer *out, const char *source,
		   const struct rsh_vfs_view *view, const bool *wanted,
		   bool slices, bool tensors);

/* Makes the text of `plan --json --slices` for the files of one rank, without
 * the tensors, on several lines.  Returns 0 or -ENOMEM. */
int rsh_plan_rank_text(const struct rsh_options *o,
		       const struct rsh_vfs_view *view, uint32_t rank,
		       char **text);
