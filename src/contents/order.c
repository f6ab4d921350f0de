/* SPDX-License-Identifier: Apache-2.0 */
/* contents/order.c puts the tensors in the order of reading, since not all can
 * be read. */
#include "config.h"

#include "contents_i.h"

#include <stdlib.h>

#include "rsh/util/mem.h"

/* Matrices, vectors and optimizer states take turns, since wrong strategies
 * are wrong in one of them only. */
static unsigned order_sort_of(const struct rsh_subject *s)
{
	if (s->kind == RSH_TENSOR_STATE || s->kind == RSH_TENSOR_OWN)
		return 2;
	return s->record->n_dims < 2;
}

static int order_by_layout(const void *a, const void *b)
{
	const struct rsh_subject *x = a, *y = b;
	int d = rsh_compare_u64(x->layout, y->layout);

	d = d ? d : rsh_compare_u64(order_sort_of(x), order_sort_of(y));
	d = d ? d : rsh_compare_u64(y->kind > RSH_TENSOR_OTHER,
				    x->kind > RSH_TENSOR_OTHER);
	d = d ? d : rsh_compare_u64(y->record->content_bytes,
				    x->record->content_bytes);
	d = d ? d : rsh_compare_u64(x->family, y->family);
	/* The lot decides, so that it is not always the first layer of a
	 * family. */
	d = d ? d : rsh_compare_u64(x->lot, y->lot);
	return d ? d : rsh_compare_u64(x->first, y->first);
}

/* Sorts by the turn among those of one layout, which n_read holds until reading
 * begins. */
static int order_by_turn(const void *a, const void *b)
{
	const struct rsh_subject *x = a, *y = b;
	int d = rsh_compare_u64(x->n_read, y->n_read);

	return d ? d : order_by_layout(a, b);
}

/* Of subjects [begin, end), which are of one layout and sort, the first of each
 * family takes turn 0, 3, 6 ...; others of the family come after all of
 * them. */
static void order_take_turns(struct rsh_contents *c, uint32_t begin,
			     uint32_t end)
{
	unsigned turn = order_sort_of(&c->subjects[begin]);

	for (uint32_t i = begin; i < end; i++) {
		struct rsh_subject *s = &c->subjects[i];
		bool first = i == begin || s[-1].family != s->family;

		s->n_read = first ? turn : UINT32_MAX / 2 + turn;
		turn += first ? 3 : 1;
	}
}

void rsh_contents_sort(struct rsh_contents *c)
{
	uint32_t end;

	if (c->n_subjects == 0)
		return;
	qsort(c->subjects, c->n_subjects, sizeof(*c->subjects),
	      order_by_layout);
	for (uint32_t i = 0; i < c->n_subjects; i = end) {
		const struct rsh_subject *s = &c->subjects[i];

		end = i + 1;
		while (end < c->n_subjects &&
		       c->subjects[end].layout == s->layout &&
		       order_sort_of(&c->subjects[end]) == order_sort_of(s))
			end++;
		order_take_turns(c, i, end);
	}
	qsort(c->subjects, c->n_subjects, sizeof(*c->subjects), order_by_turn);
	for (uint32_t i = 0; i < c->n_subjects; i++)
		c->subjects[i].n_read = 0;
}
