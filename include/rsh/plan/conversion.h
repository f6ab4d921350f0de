/* SPDX-License-Identifier: Apache-2.0 */
/* plan/conversion.h - plans the conversion of MindSpore rank files to
 * another strategy, as MindSpore's converter would do it.
 *
 * This is a policy of the writer (plan/policy.h).  It makes a catalogue of the
 * ranks' files by the source's strategy, and decides which records the file of
 * a rank has, in which order, and from which file a record is copied.
 *
 * If both strategies put every slice on the same ranks, and no option changes
 * the content, the file of a rank equals its source file byte for byte.  If
 * that file is missing, it equals the file of a rank that holds the same
 * slices.  One thread makes a plan.
 */
#pragma once

#include "rsh/plan/files.h"
#include "rsh/plan/framing.h"
#include "rsh/plan/options.h"
#include "rsh/strategy/strategy.h"

/* Gives the source ranks whose files are needed: first .. first + n - 1.
 * Without a source strategy all ranks hold the same, and *n is UINT32_MAX (any
 * rank), or 1 with a destination strategy and without replicas. */
void rsh_conversion_source_ranks(const struct rsh_strategy *src,
				 const struct rsh_strategy *dst,
				 const struct rsh_names *names, bool replicas,
				 uint32_t *first, uint32_t *n);

/* Plans the file of every destination rank.  A NULL strategy means the whole
 * model on one device.  The caller owns the plan.  Both strategies and the
 * view's indexes and names must outlive the plan; the view and its arrays need
 * not.  0, or -errno with a message: -EINVAL if strategies and files contradict
 * each other, -ENOENT if a needed file is missing, -EFBIG if a virtual file
 * would be larger than the largest possible file, -ENOTSUP if its format cannot
 * hold a parameter. */
int rsh_convert(const struct rsh_strategy *src, const struct rsh_strategy *dst,
		const struct rsh_source_view *view,
		const struct rsh_plan_options *opts,
		struct rsh_plan **out, struct rsh_error *err);
