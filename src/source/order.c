/* SPDX-License-Identifier: Apache-2.0 */
/* source/order.c decides which of two checkpoints is newer, and sorts a listing
 * so that each candidate is a range of it. */
#include "config.h"

#include "step_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/clock.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

int rsh_step_cmp(const struct rsh_step *x, const struct rsh_step *y)
{
	int d = rsh_compare_u64(y->dir_epoch, x->dir_epoch) ?:
		rsh_compare_u64(y->dir_step, x->dir_step);

	for (unsigned i = 0; d == 0 && i < x->n && i < y->n; i++)
		d = rsh_compare_u64(y->numbers[i], x->numbers[i]);
	return d ? d : rsh_compare_u64(y->n, x->n);
}

/* Puts files with a step before files without one. */
static int order_stepped(const struct rsh_checkpoint *x,
			 const struct rsh_checkpoint *y)
{
	return rsh_compare_u64(y->step.n > 0, x->step.n > 0);
}

/* Orders two saves of one step: tft_... is from one version of MindSpore, and
 * ttp_... from a newer one, which counts as newer. */
static int order_dirs(const struct rsh_checkpoint *x,
		      const struct rsh_checkpoint *y)
{
	if (x->n_dir != y->n_dir)
		return rsh_compare_u64(y->n_dir, x->n_dir);
	return memcmp(y->name, x->name, x->n_dir);
}

static int order_series(const struct rsh_checkpoint *x,
			const struct rsh_checkpoint *y)
{
	return strcmp(x->series ? x->series : "", y->series ? y->series : "");
}

/* Compares candidates; returns 0 if both files belong to the same one. */
static int order_candidates(const struct rsh_checkpoint *x,
			    const struct rsh_checkpoint *y)
{
	int d = order_stepped(x, y);

	if (d == 0 && x->step.n > 0) {
		d = rsh_step_cmp(&x->step, &y->step) ?:
		    order_dirs(x, y) ?:
		    rsh_compare_u64(y->step.run, x->step.run) ?:
		    rsh_compare_u64(x->step.breakpoint, y->step.breakpoint);
	}
	return d ? d : order_series(x, y);
}

static int order_ranks(const struct rsh_checkpoint *x,
		       const struct rsh_checkpoint *y)
{
	return rsh_compare_u64(x->rank, y->rank) ?: strcmp(x->name, y->name);
}

static int order_by_rank(const void *a, const void *b)
{
	return order_ranks(a, b);
}

static void order_last_numbers(const char *name, uint64_t out[2])
{
	out[0] = out[1] = 0;
	while (*(name += strcspn(name, "0123456789"))) {
		size_t n = rsh_count_digits(name, strlen(name));

		out[0] = out[1];
		if (!rsh_number_read(name, n, &out[1]))
			out[1] = UINT64_MAX;
		name += n;
	}
}

static int order_by_rank_and_numbers(const void *a, const void *b)
{
	const struct rsh_checkpoint *x = a, *y = b;
	uint64_t m[2], n[2];

	order_last_numbers(x->name, m);
	order_last_numbers(y->name, n);
	return rsh_compare_u64(x->rank, y->rank) ?:
	       rsh_compare_u64(m[0], n[0]) ?:
	       rsh_compare_u64(m[1], n[1]) ?:
	       order_ranks(x, y);
}

static int order_by_step_and_rank(const void *a, const void *b)
{
	const struct rsh_checkpoint *x = a, *y = b;
	int d = order_stepped(x, y);

	d = d ? d : rsh_step_cmp(&x->step, &y->step);
	return d ? d : order_ranks(x, y);
}

static int order_by_candidate(const void *a, const void *b)
{
	return order_candidates(a, b) ?: order_ranks(a, b);
}

void rsh_listing_sort(struct rsh_listing *l, enum rsh_order order)
{
	static int (*const orders[])(const void *a, const void *b) = {
		[RSH_BY_RANK] = order_by_rank,
		[RSH_BY_RANK_AND_NUMBERS] = order_by_rank_and_numbers,
		[RSH_BY_STEP_AND_RANK] = order_by_step_and_rank,
		[RSH_BY_CANDIDATE] = order_by_candidate,
	};

	if (l->n > 0)
		qsort(l->files, l->n, sizeof(*l->files), orders[order]);
}

int rsh_candidates_cut(struct rsh_source *s)
{
	const struct rsh_listing *l = &s->listing;
	size_t n = l->n - s->n_always, end;

	for (size_t i = 0; i < n; i = end) {
		end = i + 1;
		while (end < n && order_candidates(&l->files[i],
						   &l->files[end]) == 0)
			end++;
		if (rsh_grow(&s->candidates, &s->cap_candidates,
			     (size_t)s->n_candidates + 1,
			     sizeof(*s->candidates)))
			return -ENOMEM;
		s->candidates[s->n_candidates++] =
			(struct rsh_candidate){ i, end };
	}
	return 0;
}

/* ---- by time ---- */

static const struct timespec *order_newest(const struct rsh_listing *l,
					   const struct rsh_candidate *c)
{
	const struct timespec *t = &l->files[c->first].mtime;

	for (size_t i = c->first + 1; i < c->end; i++)
		if (rsh_clock_compare(&l->files[i].mtime, t) > 0)
			t = &l->files[i].mtime;
	return t;
}

static int order_by_mtime(const void *a, const void *b, void *listing)
{
	const struct rsh_candidate *p = a, *q = b;

	return rsh_clock_compare(order_newest(listing, q),
				 order_newest(listing, p)) ?:
	       rsh_compare_u64(p->first, q->first);
}

void rsh_candidates_by_mtime(struct rsh_source *s)
{
	if (s->n_candidates > 0)
		qsort_r(s->candidates, s->n_candidates, sizeof(*s->candidates),
			order_by_mtime, &s->listing);
}
