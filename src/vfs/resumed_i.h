/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/resumed_i.h offers the writer of --resume to the virtual tree: it
 * makes a plan of whole files, each shown as it is.  The catalogue of that plan
 * has the files and, since nobody looks into them, no tensors. */
#ifndef RSH_VFS_RESUMED_I_H
#define RSH_VFS_RESUMED_I_H

#include "rsh/plan/plan.h"
#include "rsh/source/resume.h"

/* Makes the plan of what is shown: its file i is the file of the i-th entry; an
 * entry that is no file is there as well, as a file of no bytes.  Returns 0 and
 * *out, which is the caller's, or -errno with a sentence. */
int rsh_resume_plan(const struct rsh_resume *r, struct rsh_plan **out,
		    struct rsh_error *err);

#endif
