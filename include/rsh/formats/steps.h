/* SPDX-License-Identifier: Apache-2.0 */
/* formats/steps.h - what formats have in common whose steps are
 * directories. */
#ifndef RSH_FORMATS_STEPS_H
#define RSH_FORMATS_STEPS_H

#include "rsh/source/resume_format.h"

/* This is a directory whose files are one checkpoint of a unit; its name is the
 * label. */
struct rsh_step_dir {
	struct rsh_step_name name;
	uint32_t unit;
};

/* Adds a file that was found in the struct rsh_step_dir at `ctx`. */
int rsh_step_dir_add(struct rsh_finder *f, void *ctx, const char *name,
		     const struct rsh_stat *st, struct rsh_error *err);

/* Gives the place of a name among n ascending ones; n: it is not among
 * them. */
size_t rsh_step_place(const char *const *names, size_t n, const char *name);

/* Looks whether a safetensors file is whole; with `full` all of it is read.  0
 * or -errno with a sentence. */
int rsh_step_check_tensors(const struct rsh_byte_source *file, bool full,
			   struct rsh_error *err);

/* Says that the contents of a file are compared with nothing, since torch wrote
 * 0 for each CRC; once a process, for all files of a job are alike. */
void rsh_step_say_unsummed(const char *path);

/* Shows each unit's directory and a link "latest" to the step; with `tracked`
 * also the file by which Megatron and its successors find that step, which ends
 * without a newline.  0 or -ENOMEM. */
int rsh_step_dirs_show(struct rsh_resume *r, const struct rsh_saved *saved,
		       size_t n, bool tracked);

#endif
