/* SPDX-License-Identifier: Apache-2.0 */
/* contents/holders.c chooses the ranks whose copies of a tensor are read.
 *
 * Two meshes over N ranks differ in which ranks share a slice with rank 0.
 * These ranks are a box whose edges are multiples of strides, and strides
 * divide N.  So the ranks whose distance from rank 0 is a divisor of N
 * distinguish any two meshes; for 1,024 ranks there are ten of them.
 */
#include "config.h"

#include "contents_i.h"

#include <errno.h>
#include <stdlib.h>

#include "rsh/util/mem.h"

/* If the first rank has no neighbour, so many ranks are tried. */
#define LOOKED_FOR 64

/* Returns whether the rank has a slice of the size and type with which all
 * others are compared. */
static bool holders_has_rank(const struct rsh_contents *c,
			     const struct rsh_subject *s, uint32_t rank)
{
	const struct rsh_ckpt_index *ix = rsh_contents_index(c, rank);
	const struct rsh_record *r = ix ? rsh_ckpt_find(ix, s->name) : NULL;

	return r && r->dtype == s->record->dtype &&
	       r->content_bytes == s->record->content_bytes;
}

static bool holders_has_local(const struct rsh_contents *c,
			      const struct rsh_subject *s, uint32_t local)
{
	return holders_has_rank(c, s, s->first + local);
}

static bool holders_add(const struct rsh_contents *c,
			const struct rsh_subject *s, uint32_t local,
			uint32_t *locals, uint32_t *n, uint32_t max)
{
	if (*n >= max || !holders_has_local(c, s, local))
		return false;
	for (uint32_t i = 0; i < *n; i++)
		if (locals[i] == local)
			return false;
	locals[(*n)++] = local;
	return true;
}

/* Finds the prime factors of n < 2^32; there are at most nine. */
static unsigned holders_primes(uint32_t n, uint32_t primes[9])
{
	unsigned k = 0;

	for (uint32_t p = 2; n > 1; p++) {
		if ((uint64_t)p * p > n)
			p = n;
		if (n % p)
			continue;
		primes[k++] = p;
		while (n % p == 0)
			n /= p;
	}
	return k;
}

/* Returns the next rank after `at` on an axis of prime size p and stride d. */
static uint32_t holders_neighbour(uint32_t at, uint32_t p, uint32_t d)
{
	uint32_t k = at / d % p;

	return at - k * d + (k + 1) % p * d;
}

/* Adds `base` and, for each way to divide the ranks, its neighbour, which
 * differs from it only on that axis. */
static uint32_t holders_around(const struct rsh_contents *c,
			       const struct rsh_subject *s, uint32_t base,
			       uint32_t *locals)
{
	const uint32_t n = s->n_local;
	uint32_t primes[9], k = 0;
	unsigned n_primes;

	if (!holders_add(c, s, base, locals, &k, RSH_CONTENTS_HOLDERS))
		return 0;
	n_primes = holders_primes(n, primes);
	for (uint32_t d = 1; d < n; d++) {
		for (unsigned i = 0; n % d == 0 && i < n_primes; i++) {
			uint32_t p = primes[i];

			if (n / d % p == 0)
				holders_add(c, s, holders_neighbour(base, p, d),
					    locals, &k, RSH_CONTENTS_HOLDERS);
		}
	}
	return k;
}

/* Adds the first two neighbours on an axis that hold the tensor, starting with
 * `base`.  The search is limited, because in a tree without redundancy many
 * ranks may hold nothing. */
static void holders_add_pair(const struct rsh_contents *c,
			     const struct rsh_subject *s, uint32_t base,
			     const uint32_t axis[2], uint32_t *locals,
			     uint32_t *k)
{
	const uint32_t p = axis[0], d = axis[1];

	for (uint32_t i = 0; i < s->n_local && i < LOOKED_FOR; i++) {
		uint32_t b = (base + i) % s->n_local;

		if (!holders_has_local(c, s, b) ||
		    !holders_has_local(c, s, holders_neighbour(b, p, d)))
			continue;
		holders_add(c, s, b, locals, k, RSH_CONTENTS_HOLDERS);
		holders_add(c, s, holders_neighbour(b, p, d), locals, k,
			    RSH_CONTENTS_HOLDERS);
		return;
	}
}

/* If files are missing around `base`, each axis on which it has no neighbour is
 * covered by two other ranks. */
static void holders_complete(const struct rsh_contents *c,
			     const struct rsh_subject *s, uint32_t base,
			     uint32_t *locals, uint32_t *k)
{
	const uint32_t n = s->n_local;
	uint32_t primes[9];
	unsigned n_primes = holders_primes(n, primes);

	for (uint32_t d = 1; d < n; d++)
		for (unsigned i = 0; n % d == 0 && i < n_primes; i++)
			if (n / d % primes[i] == 0 &&
			    !holders_has_local(c, s, holders_neighbour(
					base, primes[i], d)))
				holders_add_pair(c, s, base,
						 (uint32_t[]){ primes[i], d },
						 locals, k);
}

/* Chooses the ranks around the best of several bases, because files may be
 * missing.  Each tensor starts with another base.  Any base works for one
 * tensor, but different ones also find a rank whose file belongs to another
 * rank. */
static uint32_t holders_choose(const struct rsh_contents *c,
			       const struct rsh_subject *s, uint32_t *locals)
{
	const uint32_t begin = s->item ? (uint32_t)(s->lot % s->n_local) :
					 s->from;
	const uint32_t some = s->item ? s->n_local : s->to - s->from + 1;
	uint32_t best = begin, most = 0, tried = 0;

	for (uint32_t i = 0; i < some && tried < 8; i++) {
		uint32_t b = (begin + i) % s->n_local;
		uint32_t n = holders_around(c, s, b, locals);

		tried += n > 0;
		if (n > most) {
			most = n;
			best = b;
		}
	}
	most = holders_around(c, s, best, locals);
	if (s->item)
		holders_complete(c, s, best, locals, &most);
	/* Without a strategy the numbers of ranks may have gaps. */
	for (uint32_t i = s->from; i <= s->to && (!s->item || most < 2); i++)
		if (!holders_add(c, s, i, locals, &most, 12) && most >= 12)
			break;
	return most;
}

/* Adds up to `max` ranks of another stage that hold what the locals hold. */
static uint32_t holders_of_stage(const struct rsh_contents *c,
				 const struct rsh_subject *s, uint32_t stage,
				 const uint32_t *locals, uint32_t n_locals,
				 uint32_t *ranks, uint32_t max)
{
	const uint32_t first = c->first_rank + stage * c->src->stage_ranks;
	uint32_t n = 0;

	for (uint32_t i = 0; i < n_locals && n < max; i++)
		if (holders_has_rank(c, s, first + locals[i]))
			ranks[n++] = first + locals[i];
	return n;
}

/* Finds ranks of other stages that must hold what their counterparts in the
 * stage hold: up to `max` of the next stage that shares the tensor, and two of
 * a stage that by the strategy does not have it, or the strategy is wrong about
 * stages.  If stages cut the tensor differently, the counterparts are unknown,
 * and none is returned. */
static uint32_t holders_elsewhere(const struct rsh_contents *c,
				  const struct rsh_subject *s,
				  const uint32_t *locals, uint32_t n_locals,
				  uint32_t *ranks, uint32_t max)
{
	const struct rsh_strategy *st = c->src;
	const struct rsh_strategy_param *p =
		st ? rsh_strategy_find(st, s->name) : NULL;
	const uint32_t own = st ? (s->first - c->first_rank) / st->stage_ranks :
				  0;
	uint32_t n = 0, n_strays = 0;

	for (uint32_t i = 0; p && i < p->n_stages; i++)
		if (!rsh_item_same_layout(p->stages[i].item, s->item))
			return 0;
	for (uint32_t i = own + 1; p && i < st->n_stages && n == 0; i++)
		if (rsh_param_in_stage(p, i))
			n = holders_of_stage(c, s, i, locals, n_locals, ranks,
					     max);
	for (uint32_t i = 0; p && i < st->n_stages && n_strays == 0; i++)
		if (!rsh_param_in_stage(p, i))
			n_strays = holders_of_stage(c, s, i, locals, n_locals,
						    ranks + n, 2);
	return n + n_strays;
}

int rsh_subject_find_holders(const struct rsh_contents *c,
			     struct rsh_subject *s, bool all)
{
	cleanup_free uint32_t *locals = rsh_alloc_array(
		s->n_local + RSH_CONTENTS_HOLDERS, sizeof(*locals));
	cleanup_free uint32_t *others = rsh_alloc_array(s->n_local + 4,
							sizeof(*others));
	uint32_t n = 0, n_others;

	if (!locals || !others)
		return -ENOMEM;
	if (!c->src && s->from == s->to)
		return -ENODATA;
	for (uint32_t i = s->from; all && i <= s->to; i++)
		if (holders_has_local(c, s, i))
			locals[n++] = i;
	if (!all)
		n = holders_choose(c, s, locals);
	n_others = holders_elsewhere(c, s, locals, n, others,
				     all ? s->n_local : 2);
	if (n + n_others < 2)
		return -ENODATA;
	s->holders = calloc(n + n_others, sizeof(*s->holders));
	if (!s->holders)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++)
		s->holders[i].rank = s->first + locals[i];
	for (uint32_t i = 0; i < n_others; i++)
		s->holders[n + i].rank = others[i];
	s->n_holders = n + n_others;
	s->n_read = 0;
	s->expanded = all;
	return rsh_subject_set_cells(c, s) ? -ENOMEM : 0;
}
