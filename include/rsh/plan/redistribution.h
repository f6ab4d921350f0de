/* SPDX-License-Identifier: Apache-2.0 */
/* plan/redistribution.h - computes which source ranks MindSpore's
 * converter loads.
 *
 * The converter infers redistribution operators for made-up shapes, and derives
 * from them the ranks that it loads.  It may load ranks without needed bytes.
 * The order in which it writes records follows from this list, so the list is
 * computed here, in closed form.  The result was compared with
 * rank_list_for_transform of MindSpore 2.10.0 for tens of thousands of random
 * pairs of layouts.  Objects are immutable; any thread may use them.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "rsh/strategy/grid.h"
#include "rsh/strategy/strategy.h"

/* Gets the key of a source file, which is its rank within its stage. */
typedef void rsh_key_fn(void *ctx, uint32_t key);

/* The mesh axes over which one pair of layouts gathers slices.  They do not
 * depend on the rank, so the object is made once for all ranks. */
struct rsh_redistribution;

/* Computes which ranks of `src`, which is not NULL, are loaded for `dst` (NULL:
 * unsharded, one device).  `whole` has the n_dims dimensions of the whole
 * tensor; NULL: they are not known, and the maps are not expanded.  Some
 * optimizer shards are misplaced by the converter; `rule` selects their real
 * place or the converter's.  0 and *out; -EDOM if the converter raises an
 * exception (neither device count is a multiple of the other, shards that its
 * arithmetic cannot express, maps of different ranks); -ENOMEM. */
int rsh_redistribution_new(const struct rsh_strategy_item *src,
			   const struct rsh_strategy_item *dst,
			   const int64_t *whole, uint32_t n_dims,
			   enum rsh_grid_rule rule,
			   struct rsh_redistribution **out);
void rsh_redistribution_free(struct rsh_redistribution *r);

/* Sets keys[k], for k < n, to true for the local source ranks that the
 * converter loads for local destination rank `rank`; others are not changed. */
void rsh_redistribution_keys(const struct rsh_redistribution *r, uint32_t rank,
			     bool *keys, uint32_t n);
/* Calls `each` for the local source ranks that the converter loads for local
 * destination rank `rank`, in no particular order.  It may call it twice for
 * one rank. */
void rsh_redistribution_each(const struct rsh_redistribution *r, uint32_t rank,
			     rsh_key_fn *each, void *ctx);
/* Returns the number of calls that rsh_redistribution_each() makes, which is
 * the same for every rank. */
uint64_t rsh_redistribution_count(const struct rsh_redistribution *r);
/* Returns the class of a rank.  Ranks of one class load the same source
 * ranks. */
uint32_t rsh_redistribution_class(const struct rsh_redistribution *r,
				  uint32_t rank);
