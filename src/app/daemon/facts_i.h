/* SPDX-License-Identifier: Apache-2.0 */
/* app/daemon/facts_i.h makes the files of the control directory .reshardfs of a
 * mount. */
#ifndef RSH_APP_FACTS_I_H
#define RSH_APP_FACTS_I_H

#include <jansson.h>

#include "rsh/app/mount.h"
#include "rsh/fuse/server.h"
#include "rsh/vfs/control.h"

/* The facts do not change once the mount serves. */
struct rsh_facts {
	const struct rsh_options *options;
	rsh_mount_planner *plan;
	const struct rsh_vfs *tree; /* the virtual tree beside that directory */
	struct rsh_store_io *io;
	const struct rsh_server *server;
	/* Both paths are absolute, or as they were given if they could not be
	 * resolved. */
	char *source, *mountpoint;
	uint64_t cache_bytes; /* upper limit of the cache */
	json_t *identity; /* result of rsh_identity() */
	uint64_t begun; /* time of the start, from rsh_clock_ns() */
};

/* This must be called before the mount, because it collects what cannot be
 * found later.  Returns 0 or -ENOMEM. */
int rsh_facts_init(struct rsh_facts *f, const struct rsh_options *o,
		   rsh_mount_planner *plan);
void rsh_facts_clear(struct rsh_facts *f);
/* Returns the number of plans: one for each virtual file of a conversion. */
uint32_t rsh_facts_n_plans(const struct rsh_facts *f);
/* This is the `make` of rsh_control_options; its context is a struct
 * rsh_facts. */
int rsh_facts_make(void *facts, enum rsh_control_file which, uint32_t rank,
		   char **text);

#endif
