/* SPDX-License-Identifier: Apache-2.0 */
/* app/daemon/step_mounts_i.h opens the tree of all steps of a job, and lists them for
 * the control directory. */
#ifndef RSH_APP_DAEMON_STEP_MOUNTS_I_H
#define RSH_APP_DAEMON_STEP_MOUNTS_I_H

#include <jansson.h>

#include "rsh/app/options.h"
#include "rsh/vfs/steps.h"

/* It must outlive the tree. */
struct rsh_mount_steps {
	const struct rsh_options *options;
	struct rsh_source_options files; /* how files of steps are read */
};

/* Returns 0 or -errno with a sentence; *out must be freed after a failure too,
 * if it is set. */
int rsh_mount_steps_open(struct rsh_mount_steps *m, struct rsh_vfs **out,
			 struct rsh_error *err);
/* Makes the content of .reshardfs/steps; NULL: memory is out.  Any thread may
 * call it. */
json_t *rsh_mount_steps_json(const struct rsh_vfs *v);

#endif
