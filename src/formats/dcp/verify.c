/* SPDX-License-Identifier: Apache-2.0 */
/* formats/dcp/verify.c checks that the chunks of a distributed checkpoint cover
 * its tensors, each element once, and that files with the same chunk have the
 * same content. */
#include "config.h"

#include "dcp_i.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/storage/store.h"
#include "rsh/util/mem.h"

/* Copies are compared if their elements are stored in the same order. */
struct held_chunk {
	const struct rsh_dcp_chunk *chunk;
	struct rsh_dcp_held held;
};

/* ---- the content of the files ---- */

static int by_box(const void *a, const void *b, void *n_dims)
{
	const struct held_chunk *x = a, *y = b;
	const uint32_t n = *(const uint32_t *)n_dims;

	for (uint32_t d = 0; d < n; d++) {
		const struct rsh_dcp_chunk *p = x->chunk, *q = y->chunk;

		if (p->from[d] != q->from[d])
			return p->from[d] < q->from[d] ? -1 : 1;
		if (p->size[d] != q->size[d])
			return p->size[d] < q->size[d] ? -1 : 1;
	}
	return rsh_by_u32(&x->chunk->file, &y->chunk->file);
}

static bool same_box(const struct held_chunk *a, const struct held_chunk *b,
		     uint32_t n)
{
	return !n || (!memcmp(a->chunk->from, b->chunk->from,
			      n * sizeof(uint64_t)) &&
		      !memcmp(a->chunk->size, b->chunk->size,
			      n * sizeof(uint64_t)));
}

/* A chunk that is in no file is a problem of the source; one in a damaged file
 * is a problem of the file. */
static int take_chunk(const struct rsh_verifier *v,
		      const struct rsh_dcp_tensor *t,
		      const struct rsh_dcp_chunk *chunk,
		      struct held_chunk *out, uint32_t *n)
{
	const struct rsh_dcp *d = rsh_source_dcp(v->source);
	struct rsh_error why = RSH_ERROR_INIT;
	int rc;

	if (rsh_dcp_chunk_is_empty(t, chunk))
		return 0;
	if (chunk->file == RSH_DCP_NO_FILE) {
		rsh_error_set(&why, EBADMSG, "tensor %s: a chunk is in no file",
			      t->name);
		return v->problem(v->ctx, &why);
	}
	if (chunk->file >= v->view->n_ranks || !v->view->index[chunk->file])
		return 0;
	rc = rsh_dcp_find_held(d, t, chunk, v->view, &out[*n].held, &why);
	out[*n].chunk = chunk;
	*n += rc == 0;
	if (rc == -ENOENT)
		rsh_error_set(&why, EBADMSG, "tensor %s: %s does not have its "
			      "chunk", t->name, d->files[chunk->file]);
	return rc == 0 || rc == -ENOMEM ? rc : v->problem(v->ctx, &why);
}

static int check_held(const struct rsh_verifier *v,
		      const struct rsh_dcp_tensor *t)
{
	cleanup_free struct held_chunk *held =
		calloc((size_t)t->n_chunks + 1, sizeof(*held));
	uint32_t n_dims = t->n_dims, n = 0;
	int rc = held ? 0 : -ENOMEM;
	const struct held_chunk *first;

	if (t->dtype == RSH_DTYPE_UNKNOWN)
		return rc;
	for (uint32_t i = 0; i < t->n_chunks && rc == 0; i++)
		rc = take_chunk(v, t, &t->chunks[i], held, &n);
	if (rc || n < 2)
		return rc;
	qsort_r(held, n, sizeof(*held), by_box, &n_dims);
	first = held;
	rc = 0;
	for (uint32_t i = 1; i < n && rc == 0; i++) {
		const struct held_chunk *h = &held[i];

		if (!same_box(first, h, n_dims))
			first = h;
		else if (first->chunk->file != h->chunk->file &&
			 memcmp(first->held.order, h->held.order, n_dims) == 0)
			rc = v->compare(v->ctx, first->chunk->file,
					first->held.record, h->chunk->file,
					h->held.record, "chunk");
	}
	return rc;
}

int rsh_dcp_verify(const struct rsh_verifier *v)
{
	const struct rsh_dcp *d = rsh_source_dcp(v->source);
	int rc = 0;

	for (uint32_t i = 0; i < d->n_tensors && rc == 0; i++) {
		const struct rsh_dcp_tensor *t = &d->tensors[i];
		struct rsh_error why = RSH_ERROR_INIT;
		uint64_t n = 0;

		rc = rsh_dcp_uncovered(t, &n, &why);
		if (rc == 0 && n > 0)
			rc = rsh_error_set(&why, EBADMSG, "tensor %s: %" PRIu64
					   " elements are in no chunk",
					   t->name, n);
		if (rc && rc != -ENOMEM)
			rc = v->problem(v->ctx, &why);
		if (rc == 0)
			rc = check_held(v, t);
	}
	return rc;
}
