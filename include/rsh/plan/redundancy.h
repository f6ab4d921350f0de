/* SPDX-License-Identifier: Apache-2.0 */
/* plan/redundancy.h - computes which rank keeps a parameter when redundancy is
 * removed.
 *
 * MindSpore's ModelCheckpoint with remove_redundancy lets one rank of each
 * group of replicas keep a parameter.  The parameters of a group, sorted by
 * name, are assigned to the group's ranks round-robin.
 */
#ifndef RSH_PLAN_REDUNDANCY_H
#define RSH_PLAN_REDUNDANCY_H

#include "rsh/strategy/strategy.h"
#include "rsh/tensor/grid.h"

struct rsh_redundancy;

/* Begins the assignment for local rank `local`.  NULL: out of memory. */
struct rsh_redundancy *rsh_redundancy_new(uint32_t local);
void rsh_redundancy_free(struct rsh_redundancy *d);
/* Assigns the next parameter, which has this grid.  Sets *keeps to whether it
 * is assigned to this rank.  0 or -ENOMEM with a message. */
int rsh_redundancy_next(struct rsh_redundancy *d, const struct rsh_grid *g,
			bool *keeps, struct rsh_error *err);
/* Does the same for a parameter that the strategy lists but that was not saved:
 * only its layout is known.  MindSpore counts it too.  May also return
 * -EINVAL. */
int rsh_redundancy_unsaved(struct rsh_redundancy *d,
			   const struct rsh_strategy_item *item, bool *keeps,
			   struct rsh_error *err);
/* Sorts names into the order in which they are assigned. */
void rsh_redundancy_sort(uint32_t *list, uint32_t n, struct rsh_names *names);

#endif
