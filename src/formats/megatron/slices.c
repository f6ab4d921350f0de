/* SPDX-License-Identifier: Apache-2.0 */
/* formats/megatron/slices.c compares the slices of a tensor, and makes their
 * chunks. */
#include "config.h"

#include "megatron_i.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/formats/files.h"
#include "rsh/util/mem.h"

/* ---- problems ---- */

int rsh_megatron_blame(struct rsh_megatron_work *w, const char *name, int code,
		       const char *fmt, ...)
{
	va_list ap;
	int rc;

	va_start(ap, fmt);
	rc = rsh_tensor_problems_add(&w->st->all.problems, &w->d->arena_, name,
				     code, fmt, ap);
	va_end(ap);
	return rc;
}

int rsh_megatron_blame_unknown(struct rsh_megatron_work *w,
			       const struct rsh_megatron_ref *r)
{
	return rsh_megatron_blame(w, r->name, ENOTSUP, "nothing says how "
				  "its slices are joined (--drop leaves it "
				  "out)");
}

static const char *path_of(const struct rsh_megatron_work *w,
			   const struct rsh_megatron_ref *r)
{
	return w->st->listed[r->file].name;
}

/* ---- copies ---- */

int rsh_megatron_pair_check(const struct rsh_source_megatron *st,
			    const struct rsh_megatron_pair *pair,
			    struct rsh_error *err)
{
	cleanup_format_file struct rsh_format_file a, b;
	const char *names[] = {
		st->listed[pair->file[0]].name, st->listed[pair->file[1]].name,
	};
	bool same;
	int rc = rsh_format_file_open(st->all.source, names[0], &a, err);

	rc = rsh_format_file_open(st->all.source, names[1], &b,
				  rc ? NULL : err) ?: rc;
	rc = rc ?: rsh_format_same_bytes(&a.bytes, pair->offset[0], &b.bytes,
					 pair->offset[1], pair->bytes, &same,
					 err);
	return rc || same ? rc :
	       rsh_error_set(err, EBADMSG, "it should be the same in %s and "
			     "%s, and differs (--drop leaves it out)",
			     names[0], names[1]);
}

/* Returns whether only the bytes say that these are copies. */
static bool must_compare(const struct rsh_megatron_work *w,
			 const struct rsh_megatron_ref *a,
			 const struct rsh_megatron_ref *b)
{
	return a->is.kind == RSH_MEGATRON_UNKNOWN ||
	       (!w->st->args[RSH_MEGATRON_UNTIED] &&
		strcmp(a->e->name, b->e->name) != 0);
}

/* Compares a copy of a slice with the first one.  Without checksums this takes
 * reads, which `verify` makes, and the copy is not used. */
static int check_same(struct rsh_megatron_work *w,
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
		return 0;
	if (!a->e->row_major || !b->e->row_major)
		return rsh_megatron_blame(w, a->name, ENOTSUP, "its copies are "
					  "not stored in row-major order");
	if (a->e->state || (!summed && !must_compare(w, a, b))) {
		b->spare = true;
		if (rsh_grow(&st->pairs, &st->cap_pairs, st->n_pairs + 1,
			     sizeof(*st->pairs)))
			return -ENOMEM;
		st->pairs[st->n_pairs++] = pair;
		return 0;
	}
	rc = rsh_megatron_pair_check(st, &pair, &why);
	return rc == -ENOMEM || rc == 0 ? rc :
	       rsh_megatron_blame(w, a->name, -rc, "%s", why.text);
}

/* ---- all slices of a tensor ---- */

int rsh_megatron_ref_by_name(const void *a, const void *b)
{
	const struct rsh_megatron_ref *x = a, *y = b;

	return strcmp(x->name, y->name) ?: rsh_by_u32(&x->piece, &y->piece) ?:
	       (int)x->lost - (int)y->lost ?: rsh_by_u32(&x->file, &y->file) ?:
	       strcmp(x->e->key, y->e->key);
}

static int ref_by_chunk(const void *a, const void *b)
{
	const struct rsh_megatron_ref *x = a, *y = b;

	return rsh_by_u32(&x->order, &y->order) ?:
	       rsh_by_u32(&x->file, &y->file);
}

/* Checks what slices have in common. */
static int check_alike(struct rsh_megatron_work *w,
		       const struct rsh_megatron_ref *r, size_t n,
		       const struct rsh_megatron_cut *c)
{
	for (size_t i = 0; i < n; i++) {
		const struct rsh_megatron_entry *a = r->e, *b = r[i].e;
		bool fits = a->dtype == b->dtype && a->n_dims == b->n_dims;

		if (b->make)
			return rsh_megatron_blame(
				w, r->name, ENOTSUP, "in %s it is %s, which is "
				"not supported (--drop leaves it out)",
				path_of(w, &r[i]), b->make);
		for (uint32_t d = 0; fits && d < a->n_dims; d++)
			fits = a->dims[d] == b->dims[d] ||
			       (c->uneven && c->n > 1 && d == c->axis &&
				r[i].piece != r->piece);
		if (!fits)
			return rsh_megatron_blame(
				w, r->name, EBADMSG, "its slices in %s and %s "
				"have different types or shapes",
				path_of(w, r), path_of(w, &r[i]));
		/* An unknown name may be one of each stage. */
		if (r->is.kind == RSH_MEGATRON_UNKNOWN &&
		    r[i].order != r->order)
			return rsh_megatron_blame_unknown(w, r);
	}
	return 0;
}

/* All files of a stage have the same dense tensors, and those of a block of
 * experts the same experts. */
static int check_everywhere(struct rsh_megatron_work *w,
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
			return rsh_megatron_blame(w, r->name, EBADMSG, "%s "
						  "does not have it, and %s "
						  "has", st->listed[i].name,
						  path_of(w, r));
	}
	return 0;
}

int rsh_megatron_slices_check(struct rsh_megatron_work *w,
			      struct rsh_megatron_ref *r, size_t n,
			      const struct rsh_megatron_cut *c)
{
	uint32_t next = 0;
	size_t first = 0;
	int rc = 0;

	qsort(r, n, sizeof(*r), ref_by_chunk);
	/* One expert rank has the states of dense weights. */
	for (size_t i = r->e->state ? n : 0, end; i < n && rc == 0; i = end) {
		for (end = i + 1; end < n && r[end].order == r[i].order;)
			end++;
		rc = check_everywhere(w, &r[i], end - i);
	}
	qsort(r, n, sizeof(*r), rsh_megatron_ref_by_name);
	rc = rc ?: check_alike(w, r, n, c);
	for (size_t i = 0; i < n && rc == 0; i++) {
		if (r[i].piece != r[first].piece)
			first = i;
		if (first < i)
			rc = check_same(w, &r[first], &r[i]);
		else if (r[i].piece != next++)
			rc = rsh_megatron_blame(w, r->name, ENOENT, "no file "
						"has slice %u of %u", next - 1,
						c->n);
	}
	return rc || next == c->n ? rc :
	       rsh_megatron_blame(w, r->name, ENOENT, "no file has slice %u of "
				  "%u", next, c->n);
}

/* ---- chunks ---- */

uint64_t *rsh_megatron_chunk_add(struct rsh_megatron_work *w,
				 struct rsh_dcp_tensor *t,
				 const struct rsh_megatron_ref *r,
				 const char *half)
{
	struct rsh_arena *arena = &w->d->arena_;
	uint64_t *box = rsh_arena_array(arena, uint64_t,
					2 * (size_t)t->n_dims);
	const char *key = rsh_arena_format(arena, "%s%s", r->e->key, half);

	if (!box || !key)
		return NULL;
	for (uint32_t d = 0; d < t->n_dims; d++)
		box[t->n_dims + d] = r->e->dims[d];
	t->chunks[t->n_chunks++] = (struct rsh_dcp_chunk){
		.from = box, .size = box + t->n_dims, .file = r->file,
		.length = RSH_DCP_BY_NAME, .key = key,
	};
	return box;
}

