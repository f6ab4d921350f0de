/* SPDX-License-Identifier: Apache-2.0 */
/* source/strategies.h joins strategy files, checks them, and reads a
 * checkpoint's shapes to derive new ones from.  Nothing is kept between
 * calls. */
#ifndef RSH_SOURCE_STRATEGIES_H
#define RSH_SOURCE_STRATEGIES_H

#include "rsh/source/source.h"
#include "rsh/strategy/derive.h"

/* Makes the bytes of the file (from malloc) that merge_pipeline_strategys makes
 * of these files and of those in these directories; *json tells its form.  0 or
 * -errno with a sentence. */
int rsh_strategies_join(char *const *paths, size_t n, bool *json, void **out,
			size_t *len, struct rsh_error *err);

/* Tells `report` of everything that would fail later in this strategy, a file
 * or a directory; `shapes` are those of whole tensors, NULL if they are not
 * known.  A file that cannot be read is such a thing.  0 or -ENOMEM. */
int rsh_strategies_check(const char *path,
			 const struct rsh_derive_shapes *shapes,
			 struct rsh_names *names,
			 rsh_strategy_report_fn *report, void *ctx,
			 struct rsh_error *err);

/* Adds the shapes in the checkpoint tree at `path`, which was saved under
 * `src` (NULL: whole tensors): one file of each stage is read for them.  0 or
 * -errno with a sentence; a stage without any file adds nothing. */
int rsh_source_shapes(const char *path, const struct rsh_source_options *opts,
		      const struct rsh_strategy *src, struct rsh_names *names,
		      struct rsh_derive_shapes *out, struct rsh_error *err);

#endif
