/* SPDX-License-Identifier: Apache-2.0 */
/* wire/strategy_emit_i.h - the functions with which all writers of strategy
 * files end; only this directory includes it. */
#ifndef RSH_WIRE_STRATEGY_EMIT_I_H
#define RSH_WIRE_STRATEGY_EMIT_I_H

#include <stddef.h>

#include <jansson.h>

#include "node_strategy.pb-c.h"

/* Packs a message into *out, which the caller frees.  Returns 0 or -ENOMEM. */
int rsh_strategy_pack(const Rsh__Pb__ParallelStrategyMap *map, void **out,
		      size_t *len);
/* Writes both sections as JSON to *out, which the caller frees.  Takes
 * ownership of the sections.  Returns 0 or -ENOMEM. */
int rsh_strategy_dump(json_t *ops, json_t *layouts, void **out, size_t *len);

#endif
