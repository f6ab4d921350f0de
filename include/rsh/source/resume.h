/* SPDX-License-Identifier: Apache-2.0 */
/* source/resume.h - the newest checkpoint of a job that is whole on all ranks,
 * of any format that --resume knows.
 *
 * A job's ranks save a checkpoint each, step after step; the last one may be
 * half-written or lack ranks.  What there is becomes candidates as it does for
 * a conversion, in the same order, and they are tried from the newest to older
 * ones until every file of every rank is whole (wire/ckpt.h, wire/intact.h).
 * One step of all ranks or nothing: two steps are never mixed.
 *
 * What is to be seen of it is a list of entries: the files under the names that
 * they have, symbolic links with stable names, and small texts.  The files are
 * a source (source/source.h) in which a file's number stands for the rank, so
 * that they are read and watched for changes as all source files are.  One
 * thread opens; the entries do not change from then on.
 */
#ifndef RSH_SOURCE_RESUME_H
#define RSH_SOURCE_RESUME_H

#include <stddef.h>
#include <stdint.h>

#include "rsh/source/resume_format.h"
#include "rsh/source/source.h"
#include "rsh/util/error.h"

struct rsh_resume;

enum rsh_resume_kind { RSH_RESUME_FILE, RSH_RESUME_LINK, RSH_RESUME_TEXT };

struct rsh_resume_entry {
	enum rsh_resume_kind kind;
	const char *name; /* its path, as "rank_3/net-5_10.ckpt" */
	const char *text; /* target of a link, content of a text */
	uint32_t file;    /* number in the source; a text has the time of this
			   * file */
	uint64_t size;    /* size of a file */
};

/* Opens the newest checkpoint that is whole.  Of the options, `select`,
 * `epoch`, `step`, `glob`, `breakpoints` and `check` count, the last for the
 * checksums of all kinds; the step of RSH_SELECT_STEP is the first two numbers
 * of a name.  RSH_SELECT_MINDSPORE is no choice here.  At most `fallbacks`
 * older steps are tried.  The tree must be of one of `formats`, a list that
 * ends with NULL and outlives the result.
 *
 * Fails with -EINVAL if two checkpoints could be meant, with -ENOENT if there
 * is none, with -EBADMSG and the list of what was tried and the reasons if none
 * is whole. */
int rsh_resume_open(const char *path, const struct rsh_source_options *opts,
		    uint32_t fallbacks,
		    const struct rsh_format *const *formats,
		    struct rsh_resume **out, struct rsh_error *err);
void rsh_resume_free(struct rsh_resume *r);

const struct rsh_resume_entry *rsh_resume_entries(const struct rsh_resume *r,
						  size_t *n);
/* Gives what is shown, as the first rank's files call it: "net-5_10.ckpt",
 * "ckpt-5", "iter_0000123". */
const char *rsh_resume_step(const struct rsh_resume *r);
/* Gives the source, which r owns. */
struct rsh_source *rsh_resume_source(const struct rsh_resume *r);

#endif
