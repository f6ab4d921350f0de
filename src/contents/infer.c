/* SPDX-License-Identifier: Apache-2.0 */
/* contents/infer.c finds, without a strategy, which ranks hold the same content
 * of each tensor. */
#include "config.h"

#include "contents_i.h"

#include <errno.h>
#include <stdlib.h>

#include "rsh/contents/infer.h"
#include "rsh/util/mem.h"

/* If more ranks than this hold a tensor, only ranks that distinguish meshes are
 * compared. */
#define ALL_COMPARED 64
/* A batch has so many tensors and ranks that all readers have work. */
#define BATCH_TENSORS 512
#define BATCH_HOLDERS 4096
#define BATCH_RANKS (1u << 20)
/* If a tensor is constant where it was read, at most so many blocks of it are
 * read. */
#define MOST_BLOCKS 4

/* This is a tensor of a batch. */
struct infer_tensor {
	struct rsh_subject *subject;
	uint32_t *ranks; /* all ranks that hold the tensor, ascending */
	uint32_t n_ranks;
	uint32_t odd_rank;
	struct rsh_groups groups;
	uint32_t n_groups;
	bool simple; /* some ranks are equal, but have too few different
		      * values */
};

struct infer_batch {
	struct infer_tensor tensors[BATCH_TENSORS];
	uint32_t n;
	uint32_t n_holders; /* number of holders to be compared */
	uint64_t n_ranks;   /* number of ranks that are listed */
};

static void infer_batch_clear(struct infer_batch *b)
{
	for (uint32_t i = 0; i < b->n; i++) {
		struct infer_tensor *t = &b->tensors[i];

		free(t->ranks);
		rsh_groups_clear(&t->groups);
		free(t->subject->holders);
		t->subject->holders = NULL;
		t->subject->n_holders = 0;
	}
	b->n = b->n_holders = 0;
	b->n_ranks = 0;
}

/* ---- ranks that hold a tensor ---- */

/* The ranks of a stage are consecutive, so the ranks to be compared are chosen
 * between the first holder and the last. */
static int infer_batch_add(struct rsh_contents *c, struct infer_batch *b,
			   struct rsh_subject *s)
{
	struct infer_tensor *t = &b->tensors[b->n++];
	const struct rsh_source_view *v = &c->view;
	int rc;

	*t = (struct infer_tensor){ .subject = s, .odd_rank = UINT32_MAX };
	t->ranks = rsh_alloc_array(v->n_ranks, sizeof(*t->ranks));
	if (!t->ranks)
		return -ENOMEM;
	for (uint32_t i = 0; i < v->n_ranks; i++) {
		const struct rsh_ckpt_index *ix = v->index[i];
		const struct rsh_record *r =
			ix ? rsh_ckpt_find(ix, s->name) : NULL;

		if (!r)
			continue;
		t->ranks[t->n_ranks++] = i;
		if (t->odd_rank == UINT32_MAX &&
		    !rsh_record_is_alike(s->index, s->record, ix, r))
			t->odd_rank = i;
	}
	s->first = t->ranks[0];
	s->n_local = t->ranks[t->n_ranks - 1] - s->first + 1;
	s->from = 0;
	s->to = s->n_local - 1;
	rc = rsh_subject_find_holders(c, s, t->n_ranks <= ALL_COMPARED);
	b->n_holders += s->n_holders;
	b->n_ranks += v->n_ranks;
	return rc == -ENODATA ? 0 : rc;
}

/* ---- comparing ---- */

/* Groups the ranks.  Two equal ranks are evidence only if the bytes have
 * several values. */
static int infer_group(struct infer_tensor *t)
{
	struct rsh_groups *g = &t->groups;
	const uint32_t enough = rsh_subject_enough(t->subject);

	rsh_groups_clear(g);
	if (rsh_subject_group(t->subject, g))
		return -ENOMEM;
	t->simple = false;
	t->n_groups = 0;
	for (uint32_t i = 0; i < g->n; i++) {
		const struct rsh_sampled *h = t->subject->holders;
		uint32_t first = 0;

		while (g->group[first] != g->group[i])
			first++;
		while (h->rank != g->ranks[i])
			h++;
		t->n_groups += first == i;
		t->simple |= first != i && h->distinct < enough;
	}
	return 0;
}

static int infer_batch_read(struct rsh_contents *c, struct infer_batch *b)
{
	struct rsh_subject *wanted[BATCH_TENSORS];

	for (unsigned round = 0; round < MOST_BLOCKS; round++) {
		uint32_t n = 0;

		for (uint32_t i = 0; i < b->n; i++) {
			const struct infer_tensor *t = &b->tensors[i];
			struct rsh_subject *s = t->subject;

			if (round == 0 ||
			    (t->simple && s->n_read < MOST_BLOCKS &&
			     s->record->content_bytes > RSH_CONTENTS_BLOCK))
				wanted[n++] = s;
		}
		if (n == 0)
			return 0;
		rsh_contents_read(c, wanted, n, false);
		for (uint32_t i = 0; i < b->n; i++)
			if (infer_group(&b->tensors[i]))
				return -ENOMEM;
	}
	return 0;
}

/* ---- results ---- */

static int infer_tell(const struct rsh_contents *c,
		      const struct infer_tensor *t,
		      int (*fn)(void *ctx, const struct rsh_inferred *t),
		      void *ctx)
{
	const struct rsh_subject *s = t->subject;
	const struct rsh_inferred out = {
		.name = s->name,
		.state_of = s->kind == RSH_TENSOR_STATE ||
				    s->kind == RSH_TENSOR_OWN ?
			rsh_contents_state_of(c, s->name) : RSH_NAME_NONE,
		.index = s->index,
		.record = s->record,
		.holders = t->ranks,
		.n_holders = t->n_ranks,
		.odd_rank = t->odd_rank,
		.n = t->groups.n,
		.ranks = t->groups.ranks,
		.group = t->groups.group,
		.n_groups = t->n_groups,
		.n_failed = s->n_holders - t->groups.n,
		.simple = t->simple,
		.may_be_private = s->kind <= RSH_TENSOR_OTHER,
	};

	return fn(ctx, &out);
}

int rsh_contents_infer(struct rsh_source *s, struct rsh_names *names,
		       rsh_infer_wanted_fn *wanted, rsh_infer_fn *fn, void *ctx)
{
	struct rsh_contents c = { .src = NULL };
	cleanup_free struct infer_batch *b = calloc(1, sizeof(*b));
	int rc = b ? 0 : -ENOMEM;

	rsh_contents_init(&c, s, names);
	rc = rc ?: rsh_contents_list(&c);
	for (uint32_t i = 0; i < c.n_subjects && rc == 0; i++) {
		struct rsh_subject *one = &c.subjects[i];

		if (!wanted || wanted(ctx, rsh_names_text(names, one->name)))
			rc = infer_batch_add(&c, b, one);
		if (rc || (b->n < BATCH_TENSORS &&
			   b->n_holders < BATCH_HOLDERS &&
			   b->n_ranks < BATCH_RANKS && i + 1 < c.n_subjects))
			continue;
		rc = infer_batch_read(&c, b);
		for (uint32_t k = 0; k < b->n && rc == 0; k++)
			rc = infer_tell(&c, &b->tensors[k], fn, ctx);
		infer_batch_clear(b);
	}
	if (b)
		infer_batch_clear(b);
	rsh_contents_clear(&c);
	return rc;
}
