/* SPDX-License-Identifier: Apache-2.0 */
/* derive/check.h - what would go wrong with a strategy later on, in MindSpore's
 * converter or when it is mounted. */
#ifndef RSH_DERIVE_CHECK_H
#define RSH_DERIVE_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "rsh/derive/derive.h"
#include "rsh/util/names.h"
#include "rsh/wire/strategy_file.h"

/* Tells `report` of each thing in a sentence that names file and parameter:
 * device counts that differ, optimizer shards that do not fit, dimensions that
 * do not divide (of shapes in JSON files and in `shapes`, which may be NULL),
 * tensor maps of other ranks, names that the converter cannot read, stages that
 * are missing or there twice, parameters that stages hold in different ways.
 * Takes over the files and the array, as rsh_strategy_merge() does; n may be 0.
 * 0, or -ENOMEM. */
int rsh_strategy_check(struct rsh_strategy_file **files, uint32_t n,
		       bool directory, const char *path,
		       const struct rsh_derive_shapes *shapes,
		       struct rsh_names *names, rsh_strategy_report_fn *report,
		       void *ctx, struct rsh_error *err);

#endif
