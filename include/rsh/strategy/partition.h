/* SPDX-License-Identifier: Apache-2.0 */
/* strategy/partition.h - which ranks hold the same slice of a tensor, and the
 * meshes that would make them.
 *
 * A partition is what contents can tell of a cut: group[r] is a number that
 * rank r shares with the ranks that hold the same, where 0 <= r < n.  This is
 * arithmetic without I/O or state, so any thread may call it.
 */
#ifndef RSH_STRATEGY_PARTITION_H
#define RSH_STRATEGY_PARTITION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An axis has at least two ranks, and ranks have 32 bits. */
#define RSH_PARTITION_MAX_AXES 32

struct rsh_partition_axis {
	uint32_t size; /* > 1 */
	bool cuts;     /* false: the ranks along it hold the same */
};

/* This is the group of a rank that was not looked at, or is lost. */
#define RSH_PARTITION_UNKNOWN UINT32_MAX

/* Finds the mesh of the fewest axes, most significant first as in a strategy,
 * over which `group` of n >= 1 ranks is cut; *n_axes is 0 for one rank.  Groups
 * may be any numbers below n, or unknown.  Returns 0; 1 if so many groups are
 * unknown that other meshes would do as well; -ENOENT if no mesh gives such
 * groups; -ENOMEM. */
int rsh_partition_mesh(const uint32_t *group, uint32_t n,
		       struct rsh_partition_axis axes[RSH_PARTITION_MAX_AXES],
		       unsigned *n_axes);
/* Fills `group` with the groups that a mesh makes of n ranks, where n is the
 * product of its sizes: the reverse of rsh_partition_mesh(). */
void rsh_partition_groups(const struct rsh_partition_axis *axes,
			  unsigned n_axes, uint32_t *group, uint32_t n);

/* Cuts axes in two where those of the mesh `by` begin or end, so that `axes`
 * becomes the mesh of the fewest axes of which both can be made.  Both meshes
 * are over as many ranks.  A new axis cuts if it does in either mesh.  Returns
 * false and changes nothing if there is no such mesh, as of [2,3] and [3,2], or
 * the numbers of ranks differ. */
bool
rsh_partition_refine(struct rsh_partition_axis axes[RSH_PARTITION_MAX_AXES],
		     unsigned *n_axes,
		     const struct rsh_partition_axis *by, unsigned n_by);

/* Writes a mesh as "mesh [2,4] cut over axis 1" or "mesh [8] not cut" to
 * text[size], cut if it does not fit; returns text. */
const char *
rsh_partition_mesh_text(const struct rsh_partition_axis *axes, unsigned n_axes,
			char *text, size_t size);

/* Writes n ascending ranks as "0, 4, 8 and 12", "0 to 3" or "0, 2, 4, 6, 8, 10
 * and 58 more" to text[size], cut if they do not fit; returns text. */
const char *rsh_partition_ranks_text(const uint32_t *ranks, uint32_t n,
				     char *text, size_t size);

/* Writes which ranks hold the same, as "ranks 0, 4, 8 and 12 hold the same,
 * ranks 0 to 3 do not", "ranks 0 to 7 all hold the same" or "ranks 0 to 7 all
 * differ", to text[size], cut if it does not fit.  group[i] is the group of
 * ranks[i], which ascend; n > 1.  Returns text, which is empty if memory is
 * out. */
const char *rsh_partition_text(const uint32_t *ranks, const uint32_t *group,
			       uint32_t n, char *text, size_t size);

#endif
