/* SPDX-License-Identifier: Apache-2.0 */
/* formats/steps.h - functions for formats whose steps are directories. */
#pragma once

#include "rsh/source/resume_format.h"

/* This is a directory whose files are one checkpoint of a unit.  Its name is
 * the label. */
struct rsh_step_dir {
	struct rsh_step_name name;
	uint32_t unit;
};

/* Adds the found file to the struct rsh_step_dir at `ctx`. */
int rsh_step_dir_add(struct rsh_finder *f, void *ctx, const char *name,
		     const struct rsh_stat *st, struct rsh_error *err);

/* Returns the index of a name among n names in ascending order; n if it is not
 * among them. */
size_t rsh_step_place(const char *const *names, size_t n, const char *name);

/* Checks that a safetensors file is complete.  If `full`, reads all of it.
 * Returns 0 or -errno with a sentence. */
int rsh_step_check_tensors(const struct rsh_byte_source *file, bool full,
			   struct rsh_error *err);

/* Logs that the content of a file is not verified, because torch wrote 0 for
 * each CRC.  Logs only once in a process, because all files of a job are
 * alike. */
void rsh_step_say_unsummed(const char *path);

/* Shows each unit's directory and a link "latest" to the step.  If `tracked`,
 * also shows the file that Megatron and its successors read to find that step;
 * it ends without a newline.  Returns 0 or -ENOMEM. */
int rsh_step_dirs_show(struct rsh_resume *r, const struct rsh_saved *saved,
		       size_t n, bool tracked);
