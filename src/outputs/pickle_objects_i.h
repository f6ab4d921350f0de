/* SPDX-License-Identifier: Apache-2.0 */
/* outputs/pickle_objects_i.h - a pickle of objects.  A class, a key or another
 * value that occurs often is written once, and recalled from the memo later.
 * The caller numbers these values.
 *
 * One thread writes a pickle. */
#ifndef RSH_OUTPUTS_PICKLE_OBJECTS_I_H
#define RSH_OUTPUTS_PICKLE_OBJECTS_I_H

#include "rsh/tensor/dtype.h"
#include "rsh/wire/pickle_emit.h"

#define RSH_PICKLE_MEMOS (24 + RSH_DTYPE_COUNT)

struct rsh_pickle_objects {
	struct rsh_pickle_out out;
	/* [value]: its place in the memo, plus 1; 0: it is not written yet */
	uint32_t memo[RSH_PICKLE_MEMOS];
};

/* Recalls a value.  Returns false if it is not written yet; after it is written
 * rsh_pickle_keep() stores it. */
bool rsh_pickle_known(struct rsh_pickle_objects *p, unsigned value);
void rsh_pickle_keep(struct rsh_pickle_objects *p, unsigned value);

void rsh_pickle_put_class(struct rsh_pickle_objects *p, unsigned value,
			  const char *module, const char *name);
void rsh_pickle_put_key(struct rsh_pickle_objects *p, unsigned value,
			const char *key);
/* Begins an object without arguments.  Its attributes follow as the entries of
 * a dictionary. */
void rsh_pickle_begin_object(struct rsh_pickle_objects *p, unsigned value,
			     const char *module, const char *name);
void rsh_pickle_end_object(struct rsh_pickle_objects *p);

#endif
