/* SPDX-License-Identifier: Apache-2.0 */
/* strategy_emit_i.h - the last step of all that write strategy files. */
#ifndef RSH_WIRE_STRATEGY_EMIT_I_H
#define RSH_WIRE_STRATEGY_EMIT_I_H

#include <stddef.h>

#include <jansson.h>

#include "node_strategy.pb-c.h"

/* 0 or -ENOMEM. */
int rsh_strategy_pack(const Rsh__Pb__ParallelStrategyMap *map, void **out,
		      size_t *len);
/* Takes over both sections. */
int rsh_strategy_dump(json_t *ops, json_t *layouts, void **out, size_t *len);

#endif
