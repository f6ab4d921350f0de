/* SPDX-License-Identifier: Apache-2.0 */
/* converter/deal.h - parameters dealt out among the ranks that hold the same
 * slices.
 *
 * MindSpore's ModelCheckpoint with remove_redundancy lets one rank of each
 * group of replicas keep a parameter: those of one group, in the order of their
 * names, go round the group's ranks in turn.
 */
#ifndef RSH_CONVERTER_DEAL_H
#define RSH_CONVERTER_DEAL_H

#include "rsh/strategy/strategy.h"
#include "rsh/tensor/grid.h"

struct rsh_deal;

/* Begins to deal for local rank `local`.  NULL: out of memory. */
struct rsh_deal *rsh_deal_new(uint32_t local);
void rsh_deal_free(struct rsh_deal *d);
/* Deals out the next parameter, which is cut like this, and tells whether the
 * rank keeps it.  0 or -ENOMEM with a sentence. */
int rsh_deal_next(struct rsh_deal *d, const struct rsh_grid *g, bool *keeps,
		  struct rsh_error *err);
/* Does so with one of which only the layout is known, since it is listed but
 * was never saved; it takes its turn all the same.  Also -EINVAL. */
int rsh_deal_unsaved(struct rsh_deal *d, const struct rsh_strategy_item *item,
		     bool *keeps, struct rsh_error *err);
/* Sorts names as parameters are dealt out. */
void rsh_deal_sort(uint32_t *list, uint32_t n, struct rsh_names *names);

#endif
