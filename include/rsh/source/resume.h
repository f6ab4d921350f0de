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
 * The result is a list of entries: the files under their own names, symbolic
 * links with stable names, and small texts.  The files are a source
 * (source/source.h) in which the number of a file is its rank, so that they are
 * read and checked for changes as all source files are.  Threads: one thread
 * opens; the entries do not change afterwards.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "rsh/source/source.h"
#include "rsh/util/error.h"

struct rsh_resume;

enum rsh_resume_kind { RSH_RESUME_FILE, RSH_RESUME_LINK, RSH_RESUME_TEXT };

struct rsh_resume_entry {
	enum rsh_resume_kind kind;
	const char *name; /* path, such as "rank_3/net-5_10.ckpt" */
	const char *text; /* target of a link, or content of a text */
	uint32_t file;    /* number in the source; a text has the times of this
			   * file */
	uint64_t size;    /* size of a file */
};

/* Opens the newest complete checkpoint.  Of the options, `select`, `epoch`,
 * `step`, `glob`, `breakpoints` and `check` are used; `check` decides about
 * checksums of all kinds.  The step of RSH_SELECT_STEP is the first two numbers
 * of a name.  RSH_SELECT_MINDSPORE is not allowed.  At most `fallbacks` older
 * steps are tried.  The tree must have one of `formats`, a list that ends with
 * NULL and must outlive the result.
 *
 * Fails with -EINVAL if it is unknown which of two checkpoints is meant, with
 * -ENOENT if there is none, and with -EBADMSG and the list of tried steps and
 * reasons if none is complete.
 */
int rsh_resume_open(const char *path, const struct rsh_source_options *opts,
		    uint32_t fallbacks, const struct rsh_format *const *formats,
		    struct rsh_resume **out, struct rsh_error *err);
void rsh_resume_free(struct rsh_resume *r);

const struct rsh_resume_entry *rsh_resume_entries(const struct rsh_resume *r,
						  size_t *n);
/* Returns the name of the checkpoint, as the first rank's files have it:
 * "net-5_10.ckpt", "ckpt-5", "iter_0000123". */
const char *rsh_resume_step(const struct rsh_resume *r);
/* Returns the source, which r owns. */
struct rsh_source *rsh_resume_source(const struct rsh_resume *r);
