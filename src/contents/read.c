/* SPDX-License-Identifier: Apache-2.0 */
/* contents/read.c reads blocks of several ranks in parallel.
 *
 * Threads: only the thread that reads a holder writes to it.
 */
#include "config.h"

#include "contents_i.h"

#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "rsh/util/checked.h"
#include "rsh/util/mem.h"
#include "rsh/util/thread.h"

#define BLOCK_THREADS 32
#define WHOLE_BYTES (1u << 20)
/* So many elements are compared to find out whether they differ. */
#define LOOKED_AT 512

struct read_task {
	const struct rsh_subject *subject;
	struct rsh_sampled *holder;
	uint64_t offset; /* in bytes of the content */
	uint64_t length;
};

struct read_tasks {
	const struct rsh_contents *contents;
	struct read_task *tasks;
	uint32_t n;
	size_t room; /* size of a read's buffer in bytes */
};

/* ---- one read ---- */

/* Reads a part of a record's content, which may be in several extents.  Returns
 * false if it cannot be read. */
static bool sample_content(const struct rsh_contents *c, uint32_t rank,
			   uint32_t name, uint64_t offset, uint8_t *buf,
			   size_t len)
{
	const struct rsh_ckpt_index *ix = c->view.index[rank];
	struct rsh_content content =
		rsh_record_content(ix, rsh_ckpt_find(ix, name));
	uint64_t where;

	while (len > 0) {
		const size_t n = (size_t)rsh_min_u64(
			len, rsh_content_move(&content, offset, &where));

		if (n == 0 || !rsh_source_sample(c->source, rank, where, buf,
						 n))
			return false;
		buf += n;
		len -= n;
		offset += n;
	}
	return true;
}

/* ---- evaluating a read ---- */

static int read_compare_bytes(const void *a, const void *b, void *size)
{
	return memcmp(a, b, *(const size_t *)size);
}

/* Counts the different elements among the first LOOKED_AT ones. */
static uint32_t read_count_distinct(uint8_t *buf, size_t len, size_t size)
{
	size_t n = len / size;
	uint8_t copy[LOOKED_AT * 16];
	uint32_t distinct = 1;

	if (n > LOOKED_AT)
		n = LOOKED_AT;
	if (n == 0 || size > 16)
		return n > 0;
	memcpy(copy, buf, n * size);
	qsort_r(copy, n, size, read_compare_bytes, &size);
	for (size_t i = 1; i < n; i++)
		distinct += memcmp(copy + i * size, copy + (i - 1) * size,
				   size) != 0;
	return distinct;
}

static size_t read_element_size(const struct rsh_record *r)
{
	size_t size = rsh_dtype_size(r->dtype) << r->wide_bf16;

	return size ? size : 1;
}

/* ---- all reads ---- */

/* Always returns 0: a holder that cannot be read is marked, and does not stop
 * the others. */
static int read_one(void *reading, size_t i, struct rsh_error *err)
{
	struct read_tasks *r = reading;
	const struct read_task *t = &r->tasks[i];
	const size_t size = read_element_size(t->subject->record);
	cleanup_free uint8_t *buf = malloc(r->room);
	struct rsh_sampled *h = t->holder;
	XXH3_state_t state;

	(void)err;
	h->failed |= !buf;
	XXH3_INITSTATE(&state);
	XXH3_64bits_reset_withSeed(&state, h->hash);
	for (uint64_t done = 0; done < t->length && buf; done += r->room) {
		size_t len = (size_t)rsh_min_u64(t->length - done, r->room);
		uint32_t distinct;

		if (!sample_content(r->contents, h->rank, t->subject->name,
				    t->offset + done, buf, len)) {
			h->failed = true;
			return 0;
		}
		XXH3_64bits_update(&state, buf, len);
		distinct = read_count_distinct(buf, len, size);
		if (distinct > h->distinct)
			h->distinct = distinct;
	}
	h->hash = XXH3_64bits_digest(&state);
	return 0;
}

void rsh_contents_read(struct rsh_contents *c, struct rsh_subject **subjects,
		       uint32_t n, bool whole)
{
	struct read_tasks r = {
		.contents = c,
		.room = whole ? WHOLE_BYTES : RSH_CONTENTS_BLOCK,
	};
	size_t n_tasks = 0;

	for (uint32_t i = 0; i < n; i++)
		n_tasks += subjects[i]->n_holders;
	r.tasks = rsh_alloc_array(n_tasks, sizeof(*r.tasks));
	/* Without memory nothing is read, and nothing is concluded. */
	if (!r.tasks) {
		c->failed = true;
		return;
	}
	for (uint32_t i = 0; i < n; i++) {
		struct rsh_subject *s = subjects[i];
		uint64_t length = s->record->content_bytes, offset = 0, hash;
		const uint64_t unit = read_element_size(s->record);

		/* The position of a block is computed from the tensor's name,
		 * so it is the same on all ranks.  The first block is not used,
		 * because it more often has padding or unused tokens of a
		 * vocabulary. */
		if (!whole && length > RSH_CONTENTS_BLOCK) {
			hash = XXH3_64bits_withSeed(&s->family,
						    sizeof(s->family),
						    s->n_read);
			offset = hash % (length - RSH_CONTENTS_BLOCK + 1) /
				 unit * unit;
			length = RSH_CONTENTS_BLOCK;
		}
		for (uint32_t k = 0; k < s->n_holders; k++)
			r.tasks[r.n++] = (struct read_task){
				s, &s->holders[k], offset, length,
			};
		s->n_read++;
		c->n_reads += s->n_holders;
	}
	/* Reads of blocks wait for the storage, so they get more threads;
	 * reading whole contents keeps the processors busy. */
	rsh_parallel_for(whole ? 0 : BLOCK_THREADS, r.n, read_one, &r, NULL);
	for (uint32_t i = 0; i < r.n; i++)
		c->failed |= r.tasks[i].holder->failed;
	free(r.tasks);
}

bool rsh_subject_repeats(struct rsh_contents *c, const struct rsh_subject *s)
{
	const int64_t *dims = rsh_record_dims(s->index, s->record);
	uint8_t a[RSH_CONTENTS_BLOCK], b[RSH_CONTENTS_BLOCK];
	uint64_t row;
	size_t len;

	if (s->record->n_dims < 2 || s->n_holders == 0)
		return false;
	if (dims[0] < 2)
		return true; /* the slice has one row, so copies cannot be
			      * excluded */
	row = s->record->content_bytes / (uint64_t)dims[0];
	len = row < sizeof(a) ? (size_t)row : sizeof(a);
	c->n_reads += 2;
	return sample_content(c, s->holders[0].rank, s->name, 0, a, len) &&
	       sample_content(c, s->holders[0].rank, s->name, row, b, len) &&
	       memcmp(a, b, len) == 0;
}
