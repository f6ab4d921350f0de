/* SPDX-License-Identifier: Apache-2.0 */
/* formats/megatron/slices.c compares the slices of a tensor. */
#include "config.h"

#include "megatron_i.h"

#include <errno.h>
#include <string.h>

#include "rsh/util/mem.h"

bool rsh_megatron_blame_unknown(struct rsh_megatron_work *w,
				const struct rsh_megatron_ref *r)
{
	return rsh_joined_blame(w->j, r->name, ENOTSUP, "nothing says how "
				  "its slices are joined (--drop leaves it "
				  "out)");
}

/* ---- copies ---- */

int rsh_megatron_pair_check(const struct rsh_source_megatron *st,
			    const struct rsh_megatron_pair *pair,
			    struct rsh_error *err)
{
	bool same;
	int rc = rsh_joined_same_bytes(&st->all, pair->file, pair->offset,
				       pair->bytes, &same, err);

	return rc || same ? rc :
	       rsh_error_set(err, EBADMSG, "it should be the same in %s and "
			     "%s, and differs (--drop leaves it out)",
			     st->all.names[pair->file[0]],
			     st->all.names[pair->file[1]]);
}

/* Compares a copy of a slice with the first one.  Without checksums this takes
 * reads, which `verify` makes, and the copy is not used. */
static bool check_same(struct rsh_megatron_work *w,
		       const struct rsh_megatron_ref *a,
		       struct rsh_megatron_ref *b)
{
	struct rsh_source_megatron *st = w->st;
	const struct rsh_megatron_pair pair = {
		a->name, { a->file, b->file },
		{ a->e->offset, b->e->offset }, a->e->bytes,
	};
	const bool summed = a->e->has_crc && b->e->has_crc;
	struct rsh_error why = RSH_ERROR_INIT;
	int rc;

	b->spare = b->lost;
	if (b->lost || (a->e->row_major && b->e->row_major && summed &&
			a->e->crc == b->e->crc))
		return false;
	if (!a->e->row_major || !b->e->row_major)
		return rsh_joined_blame(w->j, a->name, ENOTSUP, "its copies "
					"are not stored in row-major order");
	/* Only the bytes say that a name or a head is the same. */
	b->spare = a->e->state ||
		   (!summed && a->is.kind != RSH_MEGATRON_UNKNOWN &&
		    (st->args[RSH_MEGATRON_UNTIED] ||
		     strcmp(a->e->name, b->e->name) == 0));
	rc = b->spare ? rsh_push(st->pairs, st->n_pairs, st->cap_pairs, pair) :
			rsh_megatron_pair_check(st, &pair, &why);
	w->arena->failed |= rc == -ENOMEM;
	return rc && rsh_joined_blame(w->j, a->name, -rc, "%s", why.text);
}

/* ---- all slices of a tensor ---- */

int rsh_megatron_ref_by_name(const void *a, const void *b)
{
	const struct rsh_megatron_ref *x = a, *y = b;

	return strcmp(x->name, y->name) ?: rsh_by_u32(&x->piece, &y->piece) ?:
	       (int)x->lost - (int)y->lost ?: rsh_by_u32(&x->file, &y->file) ?:
	       strcmp(x->e->key, y->e->key);
}

RSH_ORDER(ref_by_chunk, struct rsh_megatron_ref,
	  rsh_by_u32(&x->order, &y->order) ?:
	  rsh_by_u32(&x->file, &y->file))

/* Checks what slices have in common. */
static bool check_alike(struct rsh_megatron_work *w,
			const struct rsh_megatron_ref *r, size_t n,
		       const struct rsh_megatron_cut *c)
{
	for (size_t i = 0; i < n; i++) {
		const struct rsh_megatron_entry *a = r->e, *b = r[i].e;
		bool fits = a->dtype == b->dtype && a->n_dims == b->n_dims;

		if (b->make)
			return rsh_joined_blame(
				w->j, r->name, ENOTSUP, "in %s it is %s, which is "
				"not supported (--drop leaves it out)",
				w->j->names[r[i].file], b->make);
		for (uint32_t d = 0; fits && d < a->n_dims; d++)
			fits = a->dims[d] == b->dims[d] ||
			       (c->uneven && c->n > 1 && d == c->axis &&
				r[i].piece != r->piece);
		if (!fits)
			return rsh_joined_blame(
				w->j, r->name, EBADMSG, "its slices in %s and %s "
				"have different types or shapes",
				w->j->names[r->file], w->j->names[r[i].file]);
		/* An unknown name may be one of each stage. */
		if (r->is.kind == RSH_MEGATRON_UNKNOWN &&
		    r[i].order != r->order)
			return rsh_megatron_blame_unknown(w, r);
	}
	return false;
}

/* All files of a stage have the same dense tensors, and those of a block of
 * experts the same experts. */
static bool check_everywhere(struct rsh_megatron_work *w,
			     const struct rsh_megatron_ref *r, size_t n)
{
	const struct rsh_source_megatron *st = w->st;
	const uint32_t stage = st->listed[r->file].stage;
	const uint32_t block = rsh_megatron_block(st, r->file);
	size_t at = 0;

	/* Refs of a stage are in the order of the files. */
	for (uint32_t i = 0; i < st->n; i++) {
		if (!st->all.files[i] || st->listed[i].stage != stage ||
		    (r->is.n > 0 && rsh_megatron_block(st, i) != block))
			continue;
		while (at < n && r[at].file < i)
			at++;
		if (at == n || r[at].file != i)
			return rsh_joined_blame(w->j, r->name, EBADMSG, "%s "
						  "does not have it, and %s "
						  "has", st->all.names[i],
						  w->j->names[r->file]);
	}
	return false;
}

bool rsh_megatron_slices_check(struct rsh_megatron_work *w,
			       struct rsh_megatron_ref *r, size_t n,
			       const struct rsh_megatron_cut *c)
{
	uint32_t next = 0;
	size_t first = 0;

	rsh_sort(r, n, ref_by_chunk);
	/* One expert rank has the states of dense weights. */
	for (size_t i = r->e->state ? n : 0, end; i < n; i = end) {
		for (end = i + 1; end < n && r[end].order == r[i].order;)
			end++;
		if (check_everywhere(w, &r[i], end - i))
			return true;
	}
	rsh_sort(r, n, rsh_megatron_ref_by_name);
	if (check_alike(w, r, n, c))
		return true;
	for (size_t i = 0; i < n; i++) {
		if (r[i].piece != r[first].piece)
			first = i;
		if (first < i && check_same(w, &r[first], &r[i]))
			return true;
		if (first == i && r[i].piece != next)
			break;
		next += first == i;
	}
	return next < c->n &&
	       rsh_joined_blame(w->j, r->name, ENOENT, "no file has slice %u "
				"of %u", next, c->n);
}
