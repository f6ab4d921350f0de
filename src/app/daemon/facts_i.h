/* SPDX-License-Identifier: Apache-2.0 */
/* app/daemon/facts_i.h has what a mount tells about itself in its directory
 * .reshardfs. */
#ifndef RSH_APP_FACTS_I_H
#define RSH_APP_FACTS_I_H

#include <jansson.h>

#include "rsh/app/mount.h"
#include "rsh/fuse/server.h"
#include "rsh/vfs/control.h"

/* The facts are constant once the mount serves. */
struct rsh_facts {
	const struct rsh_options *options;
	rsh_mount_planner *plan;
	const struct rsh_vfs *tree; /* what is shown beside that directory */
	struct rsh_store_io *io;
	const struct rsh_server *server;
	/* Both paths are absolute, or as they were given where that cannot be
	 * found out. */
	char *source, *mountpoint;
	uint64_t cache_bytes; /* the most that the cache may have */
	json_t *identity; /* what rsh_identity() gave */
	uint64_t begun; /* by rsh_clock_ns() */
};

/* Is called before the mount, and finds out what cannot be found later.
 * Returns 0 or -ENOMEM. */
int rsh_facts_init(struct rsh_facts *f, const struct rsh_options *o,
		   rsh_mount_planner *plan);
void rsh_facts_clear(struct rsh_facts *f);
/* Returns how many plans there are: one a virtual file of a conversion. */
uint32_t rsh_facts_n_plans(const struct rsh_facts *f);
/* Is the `make` of rsh_control_options, with a struct rsh_facts as context. */
int rsh_facts_make(void *facts, enum rsh_control_file which, uint32_t rank,
		   char **text);

#endif
