/* SPDX-License-Identifier: Apache-2.0 */
/* converter/redistribution.h - which source ranks MindSpore's converter loads.
 *
 * The converter derives the ranks it loads from an operator inference over
 * made-up shapes, which may name more ranks than hold needed bytes.  The order
 * in which it writes records follows from that list, so it is computed here.
 * What is made here is immutable, and any thread may ask it.  The closed form
 * was compared with rank_list_for_transform of MindSpore 2.10.0 over tens of
 * thousands of random layout pairs.
 */
#ifndef RSH_CONVERTER_REDISTRIBUTION_H
#define RSH_CONVERTER_REDISTRIBUTION_H

#include <stdbool.h>
#include <stdint.h>

#include "rsh/strategy/grid.h"
#include "rsh/strategy/strategy.h"

/* Is told the key of a source file: its rank within its stage. */
typedef void rsh_key_fn(void *ctx, uint32_t key);

/* This is what one pair of layouts gathers over.  It does not depend on the
 * rank, so it is made once and asked for every rank. */
struct rsh_redistribution;

/* Works out what is loaded from `src` for `dst` (NULL: unsharded, one device;
 * `src` is never NULL).  `whole` are the n_dims dimensions of the whole tensor;
 * it may be NULL when they are not known and the maps are not expanded.  `rule`
 * says whether an optimizer shard that the converter misplaces is taken to lie
 * where it really does or where the converter takes it to be.  0 and *out;
 * -EDOM where the converter raises (device counts in no multiple relation,
 * shards that its arithmetic cannot express, maps of different ranks);
 * -ENOMEM. */
int rsh_redistribution_new(const struct rsh_strategy_item *src,
			   const struct rsh_strategy_item *dst,
			   const int64_t *whole, uint32_t n_dims,
			   enum rsh_grid_rule rule,
			   struct rsh_redistribution **out);
void rsh_redistribution_free(struct rsh_redistribution *r);

/* Marks in keys[0..n) the local source ranks that the converter loads for
 * local destination rank `rank`; ranks already marked stay so. */
void rsh_redistribution_keys(const struct rsh_redistribution *r, uint32_t rank,
			     bool *keys, uint32_t n);
/* Tells `each` the local source ranks that the converter loads for local
 * destination rank `rank`, in no order; one may come twice. */
void rsh_redistribution_each(const struct rsh_redistribution *r, uint32_t rank,
			     rsh_key_fn *each, void *ctx);
/* Says how many ranks rsh_redistribution_each() tells, which are as many for
 * any rank. */
uint64_t rsh_redistribution_count(const struct rsh_redistribution *r);
/* Gives the class of a rank.  Ranks of one class are told the same source
 * ranks. */
uint32_t rsh_redistribution_class(const struct rsh_redistribution *r,
				  uint32_t rank);

#endif
