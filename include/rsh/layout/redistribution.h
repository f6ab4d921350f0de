/* layout/redistribution.h - which source ranks MindSpore's converter loads.
 *
 * The converter derives the ranks it loads from an operator inference over
 * fake shapes, which may name more ranks than hold needed bytes.  The order in
 * which it writes records follows from that list, so it is computed here.
 */
#ifndef RSH_LAYOUT_REDISTRIBUTION_H
#define RSH_LAYOUT_REDISTRIBUTION_H

#include <stdbool.h>
#include <stdint.h>

#include "rsh/layout/strategy.h"

/* Marks in needed[0..n) (n: ranks of the source layout's mesh) the local
 * source ranks that the converter loads for one parameter and local
 * destination rank `rank`; a NULL item is the unsharded single device.
 * Returns false, marking nothing, where the converter would raise instead
 * (device counts in no multiple relation, dimensions that do not fit, shards
 * that do not divide).  Ranks already marked stay so. */
bool rsh_converter_needs(const struct rsh_strategy_item *src,
			 const struct rsh_strategy_item *dst, uint32_t rank,
			 bool *needed, uint32_t n);

#endif
