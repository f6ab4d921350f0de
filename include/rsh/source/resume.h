/* SPDX-License-Identifier: Apache-2.0 */
/* source/resume.h finds the newest checkpoint of a job that is complete on all
 * ranks, for any format that --resume supports.
 *
 * The ranks of a job save a checkpoint each, step after step; the last one may
 * be incomplete or lack ranks.  The files become candidates as in a conversion,
 * in the same order.  The candidates are tried from the newest to older ones,
 * until every file of every rank is complete (wire/ckpt.h, wire/intact.h).  All
 * ranks have the same step: two steps are never mixed.
 *
 * A step is not opened as a source of its format, whose judge() others ask:
 * what is shown as it is need not be understood.  So a complete save is shown
 * that is encrypted or in a form that nothing converts, and of a distributed
 * checkpoint only the metadata and the sizes of files are read.
 *
 * The files are a source (source/source.h) in which the number of a file is its
 * rank, so that they are read and checked for changes as all source files are.
 * Threads: one thread opens; the result does not change afterwards.
 */
#pragma once

#include "rsh/source/source.h"
#include "rsh/source/step.h"
#include "rsh/util/arena.h"
#include "rsh/util/error.h"

/* This is what one unit, a rank or Megatron's mp_rank, saved at one step. */
struct rsh_saved {
	const char *unit; /* directory that shows it; "": the root */
	const char *dir;  /* directory of the checkpoint below SOURCE; "":
			   * SOURCE itself */
	const char *label; /* "net-5_10.ckpt", "ckpt-5", "iter_0000123" */
	const struct rsh_step *step;
	const char *const *names; /* names of its files, ascending */
	size_t n;
	uint32_t first_file; /* number of its first file in the source */
};

/* If all bytes are zero, it is closed. */
struct rsh_resume {
	struct rsh_source *source;
	struct rsh_saved *saved; /* ascending by unit */
	size_t n;
	struct rsh_arena arena; /* has all of it but the source */
};

/* Opens the newest complete checkpoint.  Of the options, `select`, `epoch`,
 * `step`, `glob`, `breakpoints`, `check` and `formats` are used; `check`
 * decides about checksums of all kinds.  The step of RSH_SELECT_STEP is the
 * first two numbers of a name.  RSH_SELECT_MINDSPORE is not allowed.  At most
 * `fallbacks` older steps are tried.  The caller closes *out, also after a
 * failure.
 *
 * Fails with -EINVAL if it is unknown which of two checkpoints is meant, with
 * -ENOENT if there is none, and with -EBADMSG and the list of tried steps and
 * reasons if none is complete.
 */
int rsh_resume_open(const char *path, const struct rsh_source_options *opts,
		    uint32_t fallbacks, struct rsh_resume *out,
		    struct rsh_error *err);
void rsh_resume_close(struct rsh_resume *r);
