/* SPDX-License-Identifier: Apache-2.0 */
/* source/strategies.h joins strategy files, checks them, and reads the shapes
 * in a checkpoint from which new strategies are derived.  Nothing is kept
 * between calls. */
#pragma once

#include "rsh/source/source.h"
#include "rsh/strategy/derive.h"

/* Makes the bytes of the file (from malloc) that merge_pipeline_strategys makes
 * of these files and of those in these directories; *json is true if it is
 * JSON.  Returns 0 or -errno with a sentence. */
int rsh_strategies_join(char *const *paths, size_t n, bool *json, void **out,
			size_t *len, struct rsh_error *err);

/* Calls `report` for everything that would fail later in this strategy, a file
 * or a directory; `shapes` are those of whole tensors, NULL if they are
 * unknown.  A file that cannot be read is reported as well.  Returns 0 or
 * -ENOMEM. */
int rsh_strategies_check(const char *path,
			 const struct rsh_derive_shapes *shapes,
			 struct rsh_names *names,
			 rsh_strategy_report_fn *report, void *ctx,
			 struct rsh_error *err);

/* Adds the shapes in the checkpoint tree at `path`, which was saved under `src`
 * (NULL: whole tensors); one file of each stage is read.  Returns 0 or -errno
 * with a sentence; a stage without any file adds nothing. */
int rsh_source_shapes(const char *path, const struct rsh_source_options *opts,
		      const struct rsh_strategy *src, struct rsh_names *names,
		      struct rsh_derive_shapes *out, struct rsh_error *err);
