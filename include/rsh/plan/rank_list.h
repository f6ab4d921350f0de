/* SPDX-License-Identifier: Apache-2.0 */
/* plan/rank_list.h - MindSpore's rank_list_for_transform.  It lists the
 * source ranks whose files a conversion needs, and uses only the strategies.
 * The list is the union of the ranks of all pairs of layouts
 * (plan/redistribution.h). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "rsh/strategy/strategy.h"

struct rsh_rank_list;

/* Makes the list for the destination ranks of one stage (0 without a
 * destination strategy).  A NULL strategy means the whole model on one device.
 * The strategies must outlive the list; any thread may read it.  0 and *out;
 * -EDOM with a message if MindSpore's function raises an exception; -ENOMEM. */
int rsh_rank_list_new(const struct rsh_strategy *src,
		      const struct rsh_strategy *dst, uint32_t stage,
		      const struct rsh_names *names, struct rsh_rank_list **out,
		      struct rsh_error *err);
void rsh_rank_list_free(struct rsh_rank_list *l);

/* Sets ranks[i], for i < n, to whether global destination rank `rank` needs the
 * file of global source rank i. */
void rsh_rank_list_mark(const struct rsh_rank_list *l, uint32_t rank,
			bool *ranks, uint32_t n);
