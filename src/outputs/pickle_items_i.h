/* SPDX-License-Identifier: Apache-2.0 */
/* outputs/pickle_items_i.h - the values of a source that are not tensors, each
 * as a pickle or as a file of torch.save(), one after the other.
 *
 * They do not change after they are made; then any thread may read them. */
#ifndef RSH_OUTPUTS_PICKLE_ITEMS_I_H
#define RSH_OUTPUTS_PICKLE_ITEMS_I_H

#include "rsh/outputs/output.h"

struct rsh_pickle_item {
	const char *name; /* the source owns it */
	uint64_t offset, length; /* in bytes[] */
};

struct rsh_pickle_items {
	struct rsh_pickle_item *v;
	uint32_t n;
	uint8_t *bytes;
	size_t n_bytes;
};

/* Makes an item of each value that is plain data, except if a tensor of the
 * plan has its name: a pickle, or with `archives` a file of torch.save().  The
 * caller must call rsh_pickle_items_clear(), also after a failure.  Returns 0
 * or -ENOMEM. */
int rsh_pickle_items_make(const struct rsh_output_tree *t, bool archives,
			  struct rsh_pickle_items *out);
void rsh_pickle_items_clear(struct rsh_pickle_items *items);

#endif
