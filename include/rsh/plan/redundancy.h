/* SPDX-License-Identifier: Apache-2.0 */
/* plan/redundancy.h - parameters dealt out among the ranks that hold the
 * same slices.
 *
 * MindSpore's ModelCheckpoint with remove_redundancy lets one rank of each
 * group of replicas keep a parameter: those of one group, in the order of their
 * names, go round the group's ranks in turn.
 */
#ifndef RSH_PLAN_REDUNDANCY_H
#define RSH_PLAN_REDUNDANCY_H

#include "rsh/strategy/strategy.h"
#include "rsh/tensor/grid.h"

struct rsh_redundancy;

/* Begins to deal for local rank `local`.  NULL: out of memory. */
struct rsh_redundancy *rsh_redundancy_new(uint32_t local);
void rsh_redundancy_free(struct rsh_redundancy *d);
/* Deals out the next parameter, which is cut like this, and tells whether the
 * rank keeps it.  0 or -ENOMEM with a sentence. */
int rsh_redundancy_next(struct rsh_redundancy *d, const struct rsh_grid *g,
			bool *keeps, struct rsh_error *err);
/* Does so with one of which only the layout is known, since it is listed but
 * was never saved; it takes its turn all the same.  Also -EINVAL. */
int rsh_redundancy_unsaved(struct rsh_redundancy *d,
			   const struct rsh_strategy_item *item, bool *keeps,
			   struct rsh_error *err);
/* Sorts names as parameters are dealt out. */
void rsh_redundancy_sort(uint32_t *list, uint32_t n, struct rsh_names *names);

#endif
