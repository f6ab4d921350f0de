/* SPDX-License-Identifier: Apache-2.0 */
/* source/index_table_i.h - indexes by a hash, for index.c and header.c.  Whoever
 * shares a table between threads guards it. */
#ifndef RSH_SOURCE_INDEX_TABLE_I_H
#define RSH_SOURCE_INDEX_TABLE_I_H

#include <xxhash.h>

#include "rsh/wire/ckpt.h"

/* One that is all zero is empty. */
struct rsh_index_table {
	void *root_;
};
/* Returns the index that was kept first under the hash; NULL: there is none. */
const struct rsh_ckpt_index *
rsh_index_table_find(const struct rsh_index_table *t, XXH128_hash_t hash);
/* Keeps the index, which stays the caller's, if none is kept under the hash.
 * 0 or -ENOMEM. */
int rsh_index_table_keep(struct rsh_index_table *t, XXH128_hash_t hash,
			 const struct rsh_ckpt_index *index);
void rsh_index_table_clear(struct rsh_index_table *t);

#endif
