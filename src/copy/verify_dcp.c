/* SPDX-License-Identifier: Apache-2.0 */
/* copy/verify_dcp.c asks whether the chunks of a distributed checkpoint are its
 * tensors, each element once, and whether files that hold one chunk hold the
 * same. */
#include "config.h"

#include "verify_source_i.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/dialects/dcp.h"
#include "rsh/source/dcp.h"
#include "rsh/store/store.h"
#include "rsh/util/mem.h"

/* This is what the files say where the source says what they should. */
struct chunks {
	struct rsh_verify_job *job;
	const struct rsh_dcp *dcp;
	const struct rsh_ckpt_index **index; /* [file]; NULL: damaged */
	const char **path;
	struct rsh_source_view view;
};

/* A copy is as its leader if its elements lie in the same order. */
struct held_chunk {
	const struct rsh_dcp_chunk *chunk;
	struct rsh_dcp_held held;
};

static int add_problem(struct rsh_verify_job *j, const struct rsh_error *why)
{
	struct rsh_problem p = { 0 };

	return rsh_problem_set(&p, NULL,
			       rsh_store_root(rsh_source_store(j->source)),
			       "%s", why->text) ||
	       rsh_answer_add(j->out, &p) ? -ENOMEM : 0;
}

static int check_cover(struct rsh_verify_job *j, const struct rsh_dcp_tensor *t)
{
	struct rsh_error why = RSH_ERROR_INIT;
	uint64_t n = 0;
	int rc = rsh_dcp_uncovered(t, &n, &why);

	if (rc == 0 && n > 0)
		rc = rsh_error_set(&why, EBADMSG, "tensor %s: %" PRIu64
				   " elements are in no chunk", t->name, n);
	return rc == 0 || rc == -ENOMEM ? rc : add_problem(j, &why);
}

/* ---- what the files hold ---- */

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

static int compare_copies(struct chunks *c, const struct held_chunk *all,
			  uint32_t n, uint32_t n_dims)
{
	struct rsh_verify_leader leader = { NULL, NULL };
	const struct held_chunk *first = all;

	for (uint32_t i = 0; i < n; i++) {
		const struct held_chunk *h = &all[i];
		struct rsh_verify_file *f = &c->job->files[h->chunk->file];

		if (!same_box(first, h, n_dims)) {
			leader = (struct rsh_verify_leader){ NULL, NULL };
			first = h;
		}
		if ((leader.file == f) ||
		    (leader.file && memcmp(first->held.order, h->held.order,
					   n_dims)))
			continue;
		if (rsh_verify_compare(c->job, &leader, f,
				       &f->in.index->records[h->held.record],
				       "chunk"))
			return -ENOMEM;
	}
	return 0;
}

/* A chunk that is in no file, or in one that is damaged, is a problem of the
 * source or of the file. */
static int take_chunk(struct chunks *c, const struct rsh_dcp_tensor *t,
		      const struct rsh_dcp_chunk *chunk,
		      struct held_chunk *out, uint32_t *n)
{
	struct rsh_error why = RSH_ERROR_INIT;
	int rc;

	if (rsh_dcp_chunk_is_empty(t, chunk))
		return 0;
	if (chunk->file == RSH_DCP_NO_FILE) {
		rsh_error_set(&why, EBADMSG, "tensor %s: a chunk is in no file",
			      t->name);
		return add_problem(c->job, &why);
	}
	if (chunk->file >= c->view.n_ranks || !c->index[chunk->file])
		return 0;
	rc = rsh_dcp_find_held(c->dcp, t, chunk, &c->view, &out[*n].held, &why);
	out[*n].chunk = chunk;
	*n += rc == 0;
	if (rc == -ENOENT)
		rsh_error_set(&why, EBADMSG, "tensor %s: %s does not have its "
			      "chunk", t->name, c->dcp->files[chunk->file]);
	return rc == 0 || rc == -ENOMEM ? rc : add_problem(c->job, &why);
}

static int check_held(struct chunks *c, const struct rsh_dcp_tensor *t)
{
	cleanup_free struct held_chunk *held =
		calloc((size_t)t->n_chunks + 1, sizeof(*held));
	uint32_t n_dims = t->n_dims, n = 0;
	int rc = held ? 0 : -ENOMEM;

	if (t->dtype == RSH_DTYPE_UNKNOWN)
		return rc;
	for (uint32_t i = 0; i < t->n_chunks && rc == 0; i++)
		rc = take_chunk(c, t, &t->chunks[i], held, &n);
	if (rc || n < 2)
		return rc;
	qsort_r(held, n, sizeof(*held), by_box, &n_dims);
	return compare_copies(c, held, n, n_dims);
}

static int chunks_init(struct chunks *c)
{
	struct rsh_verify_job *j = c->job;

	c->index = calloc(j->n + 1, sizeof(*c->index));
	c->path = calloc(j->n + 1, sizeof(*c->path));
	if (!c->index || !c->path)
		return -ENOMEM;
	for (size_t i = 0; i < j->n; i++) {
		c->index[i] = j->files[i].in.index;
		c->path[i] = j->files[i].info.path;
	}
	c->view = (struct rsh_source_view){
		.n_ranks = (uint32_t)j->n, .index = c->index, .path = c->path,
		.names = j->names,
	};
	return 0;
}

int rsh_verify_chunks(struct rsh_verify_job *j)
{
	struct chunks c = { .job = j, .dcp = rsh_source_dcp(j->source) };
	int rc = c.dcp ? chunks_init(&c) : 0;

	for (uint32_t i = 0; c.dcp && i < c.dcp->n_tensors && rc == 0; i++) {
		rc = check_cover(j, &c.dcp->tensors[i]);
		if (rc == 0)
			rc = check_held(&c, &c.dcp->tensors[i]);
	}
	free(c.index);
	free(c.path);
	return rc;
}
