/* SPDX-License-Identifier: Apache-2.0 */
/* source/index_table.c finds indexes by a hash. */
#include "config.h"

#define XXH_INLINE_ALL
#include "index_table_i.h"

#include <errno.h>
#include <search.h>
#include <stdlib.h>

struct kept {
	XXH128_hash_t hash;
	const struct rsh_ckpt_index *index;
};

static int kept_compare(const void *a, const void *b)
{
	return XXH128_cmp(a, b); /* the hash stands first */
}

const struct rsh_ckpt_index *
rsh_index_table_find(const struct rsh_index_table *t, XXH128_hash_t hash)
{
	const struct kept key = { hash, NULL };
	struct kept **found = tfind(&key, &t->root_, kept_compare);

	return found ? (*found)->index : NULL;
}

int rsh_index_table_keep(struct rsh_index_table *t, XXH128_hash_t hash,
			 const struct rsh_ckpt_index *index)
{
	struct kept *k = malloc(sizeof(*k));
	struct kept **found;

	if (!k)
		return -ENOMEM;
	*k = (struct kept){ hash, index };
	found = tsearch(k, &t->root_, kept_compare);
	if (!found || *found != k)
		free(k);
	return found ? 0 : -ENOMEM;
}

void rsh_index_table_clear(struct rsh_index_table *t)
{
	tdestroy(t->root_, free);
	t->root_ = NULL;
}
