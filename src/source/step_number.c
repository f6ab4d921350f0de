/* SPDX-License-Identifier: Apache-2.0 */
/* source/step_number.c finds the step in names that ModelCheckpoint did not
 * write: e9.ckpt and e10.ckpt, LeNet5_9_step.ckpt and LeNet5_10_step.ckpt.
 *
 * Of the names of one rank that differ in nothing but numbers, one number must
 * differ, the same one for all ranks: it is the step.  A number that differs
 * between ranks alone is the rank's: rank_3/checkpoint_3.ckpt. */
#include "config.h"

#include "step_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/source/step.h"
#include "rsh/util/mem.h"

struct numbered {
	struct rsh_checkpoint *file;
	struct rsh_step_name says;
};

static int numbered_order(const void *a, const void *b)
{
	const struct numbered *x = a, *y = b;

	return strcmp(x->says.series, y->says.series) ?:
	       rsh_compare_u64(x->file->rank, y->file->rank);
}

/* Adds the numbers that differ between two names to the set of bits. */
static void numbered_compare(const struct rsh_step *x, const struct rsh_step *y,
			     unsigned *differ)
{
	for (unsigned i = 0; i < x->n; i++)
		if (x->numbers[i] != y->numbers[i])
			*differ |= 1u << i;
}

/* Finds the only series of which ranks have several names, and the set of the
 * numbers in which these differ. */
static bool numbered_find(const struct numbered *v, size_t n, size_t *first,
			  size_t *end, unsigned *differ)
{
	const char *series = NULL;

	*differ = 0;
	for (size_t i = 1; i < n; i++) {
		if (numbered_order(&v[i - 1], &v[i]) != 0)
			continue;
		if (series && strcmp(series, v[i].says.series) != 0)
			return false;
		series = v[i].says.series;
		numbered_compare(&v[i - 1].says.step, &v[i].says.step, differ);
	}
	for (*first = 0; series && strcmp(v[*first].says.series, series) != 0;)
		++*first;
	for (*end = *first; series && *end < n &&
			    strcmp(v[*end].says.series, series) == 0;)
		++*end;
	return series && *differ && (*differ & (*differ - 1)) == 0;
}

int rsh_step_numbers_take(struct rsh_listing *l)
{
	cleanup_free struct numbered *v = calloc(l->n + 1, sizeof(*v));
	size_t first, end;
	unsigned differ, at = 0;

	if (!v)
		return -ENOMEM;
	for (size_t i = 0; i < l->n; i++) {
		/* Names with a step leave no doubt. */
		if (l->files[i].step.n > 0)
			return 0;
		v[i].file = &l->files[i];
		rsh_step_name_read(l->files[i].base, strlen(l->files[i].base),
				   &v[i].says);
	}
	if (l->n > 1)
		qsort(v, l->n, sizeof(*v), numbered_order);
	if (!numbered_find(v, l->n, &first, &end, &differ))
		return 0;
	while (!(differ >> at & 1))
		at++;
	for (size_t i = first; i < end; i++) {
		v[i].file->step.n = 1;
		v[i].file->step.numbers[1] = 0;
		v[i].file->step.numbers[0] = v[i].says.step.numbers[at];
	}
	return 0;
}
