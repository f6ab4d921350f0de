/* SPDX-License-Identifier: Apache-2.0 */
/* strategy/partition.h handles partitions: which ranks hold the same slice of a
 * tensor, and which meshes explain it.
 *
 * A partition is what contents show about a cut: group[r] is a number of rank r
 * with 0 <= group[r] < n, and ranks that hold the same have the same number.
 * This is arithmetic without I/O or state, so any thread may call it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An axis has at least two ranks, and a rank has 32 bits. */
#define RSH_PARTITION_MAX_AXES 32

struct rsh_partition_axis {
	uint32_t size; /* > 1 */
	bool cuts;     /* false: the ranks on the axis hold the same slice */
};

/* This is the group of a rank that was not compared, or that is lost. */
#define RSH_PARTITION_UNKNOWN UINT32_MAX

/* Finds the mesh with the fewest axes, most significant first as in a strategy,
 * over which `group` of n >= 1 ranks is cut; *n_axes is 0 for one rank.  Groups
 * may be any numbers below n, or unknown.  Returns 0; 1 if other meshes would
 * fit as well because many groups are unknown; -ENOENT if no mesh has such
 * groups; or -ENOMEM. */
int rsh_partition_mesh(const uint32_t *group, uint32_t n,
		       struct rsh_partition_axis axes[RSH_PARTITION_MAX_AXES],
		       unsigned *n_axes);
/* Fills `group` with the groups that a mesh makes of n ranks, where n is the
 * product of its sizes.  This is the inverse of rsh_partition_mesh(). */
void rsh_partition_groups(const struct rsh_partition_axis *axes,
			  unsigned n_axes, uint32_t *group, uint32_t n);

/* Divides axes where those of the mesh `by` begin or end, so that `axes`
 * becomes the mesh with the fewest axes from which both meshes can be made.
 * Both meshes must have the same number of ranks.  A new axis cuts if it cuts
 * in either mesh.  If there is no such mesh, as for [2,3] and [3,2], or the
 * numbers of ranks differ, it returns false and changes nothing. */
bool
rsh_partition_refine(struct rsh_partition_axis axes[RSH_PARTITION_MAX_AXES],
		     unsigned *n_axes,
		     const struct rsh_partition_axis *by, unsigned n_by);

/* Writes a mesh as "mesh [2,4] cut over axis 1" or "mesh [8] not cut" to
 * text[size], truncated if it does not fit; returns text. */
const char *
rsh_partition_mesh_text(const struct rsh_partition_axis *axes, unsigned n_axes,
			char *text, size_t size);

/* Writes n ascending ranks as "0, 4, 8 and 12", "0 to 3" or "0, 2, 4, 6, 8, 10
 * and 58 more" to text[size], truncated if they do not fit; returns text. */
const char *rsh_partition_ranks_text(const uint32_t *ranks, uint32_t n,
				     char *text, size_t size);

/* Writes which ranks hold the same, as "ranks 0, 4, 8 and 12 hold the same,
 * ranks 0 to 3 do not", "ranks 0 to 7 all hold the same" or "ranks 0 to 7 all
 * differ", to text[size], truncated if it does not fit.  group[i] is the group
 * of ranks[i]; the ranks ascend, and n > 1.  Returns text, which is empty if
 * memory is out. */
const char *rsh_partition_text(const uint32_t *ranks, const uint32_t *group,
			       uint32_t n, char *text, size_t size);
