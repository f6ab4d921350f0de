/* SPDX-License-Identifier: Apache-2.0 */
/* weights/adapters_i.h - what adapters do to an offer; for adapters.c and
 * own_adapters.c only. */
#ifndef RSH_WEIGHTS_ADAPTERS_I_H
#define RSH_WEIGHTS_ADAPTERS_I_H

#include "rsh/plan/writer.h"
#include "rsh/util/arena.h"

struct adapters_change {
	uint32_t n;
	struct rsh_low_rank *by;     /* [n] */
	struct rsh_factors *factors; /* [n] */
	const struct rsh_tensor *instead; /* NULL: it is not replaced */
	/* 1 + the number of the adapter that was added last, or has replaced
	 * it; 0: none */
	uint32_t added_by, replaced_by;
};

/* Adds the changed tensor to the catalogue, and makes it the offer's.  The
 * offer is a whole tensor of the catalogue, or one that is transposed.  Returns
 * 0 or -ENOMEM with a sentence. */
int adapters_change_offer(struct rsh_catalogue *cat, struct rsh_arena *arena,
			  const struct adapters_change *c, struct rsh_offer *o,
			  struct rsh_error *err);

#endif
