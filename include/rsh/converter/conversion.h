/* SPDX-License-Identifier: Apache-2.0 */
/* converter/conversion.h - MindSpore rank files as they are wanted in another
 * strategy: the dialect of ModelCheckpoint's trees.
 *
 * Its reader makes a catalogue of the ranks' files and the source's strategy;
 * its writer makes the plan that MindSpore's converter would have followed:
 * which records a rank's file has, in which order, and which rank's file a
 * copied one comes from.
 *
 * Where both strategies put every slice on the same ranks, and nothing is asked
 * for that would change it, a rank's file is its source file, byte for byte, or
 * that of a rank that holds the same slice of everything.  One thread makes a
 * plan; what may be done with it then stands in plan/plan.h.
 */
#ifndef RSH_CONVERTER_CONVERSION_H
#define RSH_CONVERTER_CONVERSION_H

#include "rsh/plan/files.h"
#include "rsh/plan/framing.h"
#include "rsh/plan/options.h"
#include "rsh/strategy/strategy.h"

/* Gives the source ranks that the strategies speak of, whose files are worth
 * indexing: first .. first + n - 1.  Without a source strategy that is any rank
 * (*n is UINT32_MAX), as all hold the same, or with a destination's and no
 * replicas rank 0. */
void rsh_conversion_source_ranks(const struct rsh_strategy *src,
				 const struct rsh_strategy *dst,
				 const struct rsh_names *names, bool replicas,
				 uint32_t *first, uint32_t *n);

/* Plans the file of every destination rank.  A NULL strategy is the whole model
 * on one device.  The plan is the caller's; it keeps pointers into both
 * strategies and the view's indexes and names, which must outlive it; the view
 * itself and its arrays need not.  0, or -errno with a sentence: -EINVAL when
 * the strategies and files contradict each other, -ENOENT when a needed file is
 * missing, -EFBIG when a virtual file would be larger than files can be,
 * -ENOTSUP when its format cannot hold a parameter. */
int rsh_convert(const struct rsh_strategy *src, const struct rsh_strategy *dst,
		const struct rsh_source_view *view,
		const struct rsh_plan_options *opts,
		struct rsh_plan **out, struct rsh_error *err);

#endif
