/* SPDX-License-Identifier: Apache-2.0 */
/* plan/mapping_build_i.h - a mapping while it is made, for mapping.c and
 * factored.c. */
#ifndef RSH_PLAN_MAPPING_BUILD_I_H
#define RSH_PLAN_MAPPING_BUILD_I_H

#include "plan_i.h"

struct rsh_mapping_build {
	struct rsh_plan *p;
	const struct rsh_shown *t;
	struct rsh_mapping *w;
	uint64_t local[RSH_MAX_DIMS]; /* of a cell; of the whole for boxes */
	bool joined[RSH_MAX_DIMS];    /* it belongs to the span of d - 1 */
	uint64_t inner[RSH_MAX_DIMS]; /* [dim]: units of one step along it
				       * through the dimensions joined to it */
	uint32_t span_of[RSH_MAX_DIMS];
	struct rsh_shown other;       /* t, if its recipe is said otherwise */
	const struct rsh_cut *part_cut; /* as in struct rsh_mapping */
};

#endif
