/* SPDX-License-Identifier: Apache-2.0 */
/* strategy/partition.h - which ranks hold the same slice of a tensor, and the
 * meshes that would make them.
 *
 * A partition is what contents can tell of a cut: group[r] is a number that
 * rank r shares with the ranks that hold the same, 0 <= r < n.  Pure arithmetic,
 * no I/O; any thread.
 */
#ifndef RSH_STRATEGY_PARTITION_H
#define RSH_STRATEGY_PARTITION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Axes of at least two ranks, and ranks have 32 bits. */
#define RSH_PARTITION_MAX_AXES 32

struct rsh_partition_axis {
	uint32_t size; /* > 1 */
	bool cuts;     /* false: the ranks along it hold the same */
};

/* The group of a rank that was not looked at, or is lost. */
#define RSH_PARTITION_UNKNOWN UINT32_MAX

/* The mesh of the fewest axes, most significant first as in a strategy, over
 * which `group` of n >= 1 ranks is cut; *n_axes is 0 for one rank.  Groups may
 * be any numbers below n, or unknown.  0; 1 if so many are unknown that other
 * meshes would do as well; -ENOENT if no mesh gives such groups; -ENOMEM. */
int rsh_partition_mesh(const uint32_t *group, uint32_t n,
		       struct rsh_partition_axis axes[RSH_PARTITION_MAX_AXES],
		       unsigned *n_axes);
/* The other way round: the groups of n ranks, n being the product of the
 * sizes. */
void rsh_partition_groups(const struct rsh_partition_axis *axes,
			  unsigned n_axes, uint32_t *group, uint32_t n);

/* Cuts axes in two where those of the mesh `by`, which is over as many ranks,
 * begin or end: the mesh of the fewest axes that has both as its own.  An axis
 * cuts if it does in either.  False, and nothing is changed, if there is none,
 * as of [2,3] and [3,2], or the ranks are not as many. */
bool
rsh_partition_refine(struct rsh_partition_axis axes[RSH_PARTITION_MAX_AXES],
		     unsigned *n_axes,
		     const struct rsh_partition_axis *by, unsigned n_by);

/* "mesh [2,4] cut over axis 1", "mesh [8] not cut", cut at size; returns
 * text. */
const char *
rsh_partition_mesh_text(const struct rsh_partition_axis *axes, unsigned n_axes,
			char *text, size_t size);

/* "0, 4, 8 and 12", "0 to 3", "0, 2, 4, 6, 8, 10 and 58 more", of ascending
 * numbers.  Cut at size; returns text. */
const char *rsh_partition_ranks_text(const uint32_t *ranks, uint32_t n,
				     char *text, size_t size);

/* "ranks 0, 4, 8 and 12 hold the same, ranks 0 to 3 do not", "ranks 0 to 7 all
 * hold the same", "ranks 0 to 7 all differ": group[i] is that of ranks[i],
 * which ascend; n > 1.  Cut at size; returns text. */
const char *rsh_partition_text(const uint32_t *ranks, const uint32_t *group,
			       uint32_t n, char *text, size_t size);

#endif
