/* SPDX-License-Identifier: Apache-2.0 */
/* source/kinds.c provides for the cache the tensor of each block of a file, and
 * the length of the tensor's elements. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>

#include "rsh/util/mem.h"
#include "source_i.h"

/* From `offset` on the file has bytes of a record. */
struct place {
	uint64_t offset;
	uint32_t record;
	uint32_t unit; /* bytes of an element */
};

/* These are the places of an index, ascending. */
struct places {
	const struct rsh_ckpt_index *index;
	uint32_t n;
	struct place *v;
};

struct rsh_source_kinds {
	uint32_t n;
	struct places v[]; /* ascending by the address of the index */
};

static int place_order(const void *a, const void *b)
{
	const struct place *p = a, *q = b;

	return (p->offset > q->offset) - (p->offset < q->offset);
}

static int places_take(struct places *p, const struct rsh_ckpt_index *ix)
{
	p->index = ix;
	p->v = rsh_alloc_array(ix->n_extents, sizeof(*p->v));
	if (!p->v)
		return -ENOMEM;
	for (uint32_t i = 0; i < ix->n_records; i++) {
		const struct rsh_record *r = &ix->records[i];
		const uint32_t unit = r->wide_bf16 ? 4 :
			rsh_dtype_size((enum rsh_dtype)r->dtype);

		for (uint32_t k = 0; k < r->n_extents && p->n < ix->n_extents;
		     k++)
			p->v[p->n++] = (struct place){
				ix->extents[r->first_extent + k].offset, i,
				unit,
			};
	}
	qsort(p->v, p->n, sizeof(*p->v), place_order);
	return 0;
}

static int places_order(const void *a, const void *b)
{
	const struct rsh_ckpt_index *p = ((const struct places *)a)->index;
	const struct rsh_ckpt_index *q = ((const struct places *)b)->index;

	return ((uintptr_t)p > (uintptr_t)q) - ((uintptr_t)p < (uintptr_t)q);
}

/* Bytes between two records belong to the record before them. */
static void kind_find(const void *source, uint32_t file, uint64_t offset,
		      uint32_t len, struct rsh_cache_kind *out)
{
	const struct rsh_source *s = source;
	const struct places wanted = { .index = s->files[file].index };
	const struct places *p = bsearch(&wanted, s->kinds->v, s->kinds->n,
					 sizeof(wanted), places_order);
	const uint64_t middle = offset + len / 2;
	const uint32_t after = rsh_first(i, p ? p->n : 0,
					 p->v[i].offset <= middle);

	*out = (struct rsh_cache_kind){ 0 };
	if (after)
		*out = (struct rsh_cache_kind){
			.tensor = p->v[after - 1].record + UINT64_C(1),
			.unit = p->v[after - 1].unit,
		};
}

void rsh_source_kinds_free(struct rsh_source_kinds *k)
{
	for (uint32_t i = 0; k && i < k->n; i++)
		free(k->v[i].v);
	free(k);
}

int rsh_source_kinds_tell(struct rsh_source *s)
{
	struct rsh_source_kinds *k;
	int rc = 0;

	if (!rsh_store_compresses(s->store))
		return 0;
	k = calloc(1, sizeof(*k) + s->n_indexes * sizeof(*k->v));
	if (!k)
		return -ENOMEM;
	while (rc == 0 && k->n < s->n_indexes) {
		rc = places_take(&k->v[k->n], s->indexes[k->n]);
		k->n++;
	}
	if (rc) {
		rsh_source_kinds_free(k);
		return rc;
	}
	qsort(k->v, k->n, sizeof(*k->v), places_order);
	s->kinds = k;
	rsh_store_tell_kinds(s->store, kind_find, s);
	return 0;
}
