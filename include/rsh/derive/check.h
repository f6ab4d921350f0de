/* SPDX-License-Identifier: Apache-2.0 */
/* derive/check.h - what would go wrong with a strategy later on, in MindSpore's
 * converter or when it is mounted.
 *
 * There is no I/O and no state; any thread may call it. */
#ifndef RSH_DERIVE_CHECK_H
#define RSH_DERIVE_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "rsh/derive/derive.h"
#include "rsh/util/names.h"
#include "rsh/wire/strategy_file.h"

/* Looks at the files of a strategy and tells `report` of each thing that is
 * wrong, in a sentence that names file and parameter: numbers of ranks that
 * differ, optimizer shards that do not fit, dimensions that do not divide (of
 * shapes in JSON files and in `shapes`, which may be NULL), tensor maps of
 * another number of dimensions, names that the converter cannot read, stages
 * that are missing or in two different files, parameters that stages hold in
 * different ways.
 *
 * It takes over the files and the array, as rsh_strategy_merge() does; n may be
 * 0.  Returns 0 whatever it found, or -ENOMEM. */
int rsh_strategy_check(struct rsh_strategy_file **files, uint32_t n,
		       bool directory, const char *path,
		       const struct rsh_derive_shapes *shapes,
		       struct rsh_names *names, rsh_strategy_report_fn *report,
		       void *ctx, struct rsh_error *err);

#endif
