/* SPDX-License-Identifier: Apache-2.0 */
/* formats/versions/make.c makes the bytes of a version: those of the full
 * version, and for a changed tensor all its deltas.
 *
 * The checksums of a delta are those of whole tensors.  So the first read of a
 * tensor makes all of it, compares the checksum of each delta on the way, and
 * only then returns bytes.  A tensor that fits into half of the memory is kept.
 * Of a larger one the first read keeps what was asked for, and later reads make
 * it a second time, from its first byte to where they read: the last
 * KEPT_BYTES are kept, since readers are ahead of each other.
 *
 * If the cache has the tensor of an earlier version, that is changed instead:
 * its bytes were compared before they got there, and only the deltas after it
 * are read.
 *
 * Threads: a maker has one user at a time.  Its user reads files and waits for
 * nobody, so others may wait for a maker and for memory. */
#include "config.h"

#include "versions_i.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "rsh/util/checked.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/thread.h"

#define WINDOW_BYTES ((size_t)128 << 10)
/* A multiple of the window. */
#define KEPT_BYTES ((size_t)8 << 20)
#define BASE_BYTES ((size_t)1 << 20)

/* Where the making of a tensor begins. */
struct start {
	uint32_t n;     /* deltas that these bytes have; 0: the full version */
	uint32_t cache; /* of rsh_store_find_made() */
};

/* A tensor that is made from its first byte to its last. */
struct pass {
	const struct rsh_version_chain *c;
	const struct rsh_made_tensor *t;
	struct start start;
	/* Deltas first .. n-1 are compared; those that the start does not have
	 * are applied. */
	uint32_t first, n;
	struct rsh_change **changes;  /* [n]; NULL: it is not open */
	struct rsh_summing *sums;     /* [n]; NULL: they are not compared */
};

struct maker {
	TAILQ_ENTRY(maker) all; /* the least recently used is first */
	struct rsh_version_chain *chain;
	struct rsh_made_tensor *tensor;
	bool busy;
	uint64_t memory;
	/* Byte i of the tensor is byte i % cap; those of from .. made - 1 are
	 * there. */
	uint8_t *bytes;
	uint64_t cap, from, made;
	unsigned start; /* the first one to be tried, as of start_at() */
	struct pass pass;
};

static struct {
	/* guards the list, and `busy` and `memory` of its members */
	pthread_mutex_t lock;
	pthread_cond_t idle; /* a maker is no longer busy, or was removed */
	TAILQ_HEAD(, maker) list;
	uint64_t memory;
} makers = {
	PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER,
	TAILQ_HEAD_INITIALIZER(makers.list), 0,
};

/* ---- where it begins ---- */

/* Returns beginning number i: the version before this one, those before that,
 * and at last the full one. */
static struct start start_at(const struct rsh_version_chain *c,
			     const struct rsh_made_tensor *t, unsigned i)
{
	struct start s = { .n = 0 };

	if (i >= c->n_earlier)
		return s;
	s.n = (uint32_t)rsh_first(k, t->n_patches, t->patches[k].delta > i);
	s.cache = c->earlier[i * c->links.n_files + t->file];
	return s;
}

/* Returns the first delta of n whose checksum is compared: the last one is
 * compared even if the start has it. */
static uint32_t first_compared(const struct start *s, uint32_t n)
{
	return s->n < n ? s->n : n - 1;
}

/* Returns whether to begin elsewhere after `rc`, at number *i.  The cache may
 * have none of it, or a part. */
static bool start_again(const struct rsh_version_chain *c,
			const struct start *s, int rc, unsigned *i)
{
	if (s->n == 0 || (rc != -ENODATA && rc != -EKEYREJECTED))
		return false;
	*i = rc == -ENODATA ? *i + 1 : c->n_earlier;
	return true;
}

static int read_start(const struct rsh_version_chain *c,
		      const struct rsh_made_tensor *t, const struct start *s,
		      uint64_t at, uint8_t *buf, size_t n,
		      struct rsh_error *err)
{
	int rc = 0;

	if (s->n > 0)
		return rsh_store_peek_made(c->inputs, s->cache, t->offset + at,
					   buf, n) ? 0 : -ENODATA;
	for (size_t part; rc == 0 && n > 0; n -= part) {
		part = rsh_min_u64(n, BASE_BYTES);
		rc = rsh_store_read_input(c->inputs, t->file, t->offset + at,
					  buf, part);
		buf += part;
		at += part;
	}
	return rc ? rsh_error_file(err, -rc, rsh_store_path(c->inputs,
							    t->file)) : 0;
}

/* ---- deltas ---- */

static int place_read(void *ctx, uint32_t file, uint64_t offset, void *buf,
		      size_t len)
{
	return rsh_store_read_input(ctx, file, offset, buf, len);
}

struct rsh_frame_place rsh_patch_place(const struct rsh_version_chain *c,
				       const struct rsh_patch *p)
{
	return (struct rsh_frame_place){
		place_read, c->inputs, p->file, p->offset, p->length, c->chunk,
	};
}

static const struct rsh_version_link *link_of(const struct rsh_version_chain *c,
					      const struct rsh_patch *p)
{
	return &c->links.v[p->delta];
}

/* A tensor without a checksum cannot be verified. */
static int check_sums(const struct rsh_version_chain *c,
		      const struct rsh_made_tensor *t, uint32_t n,
		      struct rsh_error *err)
{
	for (uint32_t i = 0; i < n; i++)
		if (!t->patches[i].sum)
			return rsh_error_set(err, EBADMSG, "%s/%s: %s has no "
					     "checksum", rsh_store_root(c->inputs),
					     link_of(c, &t->patches[i])->name,
					     t->name);
	return 0;
}

/* ---- a tensor that is made window by window ---- */

static void pass_close(struct pass *p)
{
	const uint32_t n = p->n - p->first;
	char text[RSH_SUM_TEXT];

	for (uint32_t i = 0; p->changes && i < n; i++)
		rsh_change_close(p->changes[i]);
	for (uint32_t i = 0; p->sums && i < n; i++)
		rsh_summing_end(&p->sums[i], text);
	free(p->changes);
	free(p->sums);
	p->changes = NULL;
	p->sums = NULL;
}

/* Opens the deltas after the start.  Returns 0 or -ENOMEM. */
static int pass_open(struct pass *p, bool compare)
{
	const size_t n = (size_t)(p->n - p->first) + 1;
	int rc = 0;

	p->changes = calloc(n, sizeof(*p->changes));
	p->sums = compare ? calloc(n, sizeof(*p->sums)) : NULL;
	if (!p->changes || (compare && !p->sums))
		rc = -ENOMEM;
	for (uint32_t i = p->first; rc == 0 && i < p->n; i++) {
		const struct rsh_patch *patch = &p->t->patches[i];
		const struct rsh_version_link *link = link_of(p->c, patch);
		const struct rsh_frame_place at = rsh_patch_place(p->c, patch);

		if (i >= p->start.n)
			rc = rsh_change_open(&at, link->index.form, p->t->bytes,
					     &p->changes[i - p->first]);
		if (rc == 0 && compare)
			rc = rsh_summing_begin(&p->sums[i - p->first],
					       link->index.sum);
	}
	if (rc)
		pass_close(p);
	return rc;
}

/* Changes the next bytes. */
static int pass_apply(struct pass *p, uint8_t *buf, size_t len,
		      struct rsh_error *err)
{
	for (uint32_t i = p->first; i < p->n; i++) {
		const char *name = link_of(p->c, &p->t->patches[i])->name;
		int rc = i < p->start.n ? 0 :
			 rsh_change_apply(p->changes[i - p->first], buf, len);

		if (rc == -EBADMSG)
			return rsh_error_set(err, EBADMSG, "%s/%s: the delta "
					     "of %s is damaged",
					     rsh_store_root(p->c->inputs), name,
					     p->t->name);
		if (rc)
			return rsh_error_set(err, -rc, "%s/%s: %s: %s",
					     rsh_store_root(p->c->inputs), name,
					     p->t->name, strerror(-rc));
		if (p->sums)
			rsh_summing_add(&p->sums[i - p->first], buf, len);
	}
	return 0;
}

/* A part of a tensor that a reader wants. */
struct wanted {
	uint64_t at;
	uint8_t *buf;
	size_t len;
};

static void give(const struct wanted *w, uint64_t at, const uint8_t *window,
		 size_t n)
{
	const uint64_t from = rsh_max_u64(at, w->at);
	const uint64_t end = rsh_min_u64(at + n, w->at + w->len);

	if (from < end)
		memcpy(w->buf + (from - w->at), window + (from - at),
		       end - from);
}

/* Makes a tensor once, compares its checksums, and keeps what is wanted.  With
 * `whole`, which has the bytes of the start, all of it is made there. */
static int make_pass(struct pass *p, bool compare, uint8_t *whole,
		     const struct wanted *w, struct rsh_error *err)
{
	cleanup_free uint8_t *window = whole ? NULL : malloc(WINDOW_BYTES);
	int rc = whole || window ? pass_open(p, compare) : -ENOMEM;

	if (rc)
		return rsh_error_nomem(err);
	for (uint64_t at = 0; rc == 0 && at < p->t->bytes; at += WINDOW_BYTES) {
		const size_t len = rsh_min_u64(WINDOW_BYTES, p->t->bytes - at);
		uint8_t *buf = whole ? whole + at : window;

		rc = (whole ? 0 : read_start(p->c, p->t, &p->start, at, buf,
					     len, err)) ?:
		     pass_apply(p, buf, len, err);
		if (rc == 0 && w)
			give(w, at, buf, len);
	}
	for (uint32_t i = p->first; rc == 0 && compare && i < p->n; i++) {
		const struct rsh_patch *patch = &p->t->patches[i];
		const struct rsh_version_link *link = link_of(p->c, patch);
		char text[RSH_SUM_TEXT];

		rsh_summing_end(&p->sums[i - p->first], text);
		if (strcmp(patch->sum, text) != 0)
			rc = rsh_error_set(err, EKEYREJECTED, "%s/%s: %s has "
					   "the checksum %s (%s), and the "
					   "trainer wrote %s",
					   rsh_store_root(p->c->inputs),
					   link->name, p->t->name, text,
					   rsh_sum_forms[link->index.sum],
					   patch->sum);
	}
	pass_close(p);
	return rc;
}

int rsh_version_verify(struct rsh_version_chain *c, struct rsh_made_tensor *t,
		       uint32_t n, struct rsh_error *err)
{
	return check_sums(c, t, n, err) ?:
	       make_pass(&(struct pass){ .c = c, .t = t, .n = n }, true, NULL,
			 NULL, err);
}

/* ---- makers ---- */

static void maker_free(struct maker *m)
{
	if (!m)
		return;
	pass_close(&m->pass);
	free(m->bytes);
	free(m);
}

/* The lock is held. */
static void maker_remove(struct maker *m)
{
	TAILQ_REMOVE(&makers.list, m, all);
	makers.memory -= m->memory;
}

static bool is_kept_whole(const struct rsh_version_chain *c,
			  const struct rsh_made_tensor *t)
{
	return t->bytes <= c->room / 2;
}

/* Removes the least recently used makers until there is room for another one.
 * Returns false if it must wait for one that is busy.  The lock is held. */
static bool makers_make_room(const struct rsh_version_chain *c, uint64_t need)
{
	struct maker *m = TAILQ_FIRST(&makers.list), *next;
	bool any_busy = false;

	for (; m && makers.memory + need > c->room; m = next) {
		next = TAILQ_NEXT(m, all);
		any_busy |= m->busy;
		if (m->busy)
			continue;
		maker_remove(m);
		maker_free(m);
	}
	return makers.memory + need <= c->room || !any_busy;
}

static struct maker *maker_new(struct rsh_version_chain *c,
			       struct rsh_made_tensor *t, uint64_t memory)
{
	struct maker *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->chain = c;
	m->tensor = t;
	m->memory = memory;
	m->cap = is_kept_whole(c, t) ? rsh_max_u64(t->bytes, 1) : KEPT_BYTES;
	m->bytes = rsh_alloc_array(m->cap, 1);
	if (m->bytes)
		return m;
	free(m);
	return NULL;
}

/* Takes the maker of a tensor, which the caller must give back; NULL: memory is
 * out. */
static struct maker *maker_take(struct rsh_version_chain *c,
				struct rsh_made_tensor *t)
{
	const struct rsh_frame_place at = rsh_patch_place(c, t->patches);
	const uint64_t one = 2 * rsh_frame_memory(&at);
	const uint64_t need = is_kept_whole(c, t) ?
				      t->bytes + one :
				      KEPT_BYTES + t->n_patches * one;
	struct maker *m = NULL;

	rsh_hold_lock(&makers.lock);
	for (;;) {
		TAILQ_FOREACH(m, &makers.list, all)
			if (m->tensor == t)
				break;
		if (m ? !m->busy : makers_make_room(c, need))
			break;
		pthread_cond_wait(&makers.idle, &makers.lock);
	}
	if (m) {
		TAILQ_REMOVE(&makers.list, m, all);
	} else {
		m = maker_new(c, t, need);
		makers.memory += m ? need : 0;
	}
	if (m) {
		m->busy = true;
		TAILQ_INSERT_TAIL(&makers.list, m, all);
	}
	return m;
}

/* A maker that has failed is not used again. */
static void maker_give_back(struct maker *m, bool failed)
{
	pthread_mutex_lock(&makers.lock);
	m->busy = false;
	if (failed)
		maker_remove(m);
	pthread_cond_broadcast(&makers.idle);
	pthread_mutex_unlock(&makers.lock);
	if (failed)
		maker_free(m);
}

void rsh_version_forget(const struct rsh_version_chain *c)
{
	struct maker *m, *next;

	rsh_hold_lock(&makers.lock);
	for (m = TAILQ_FIRST(&makers.list); m; m = next) {
		next = TAILQ_NEXT(m, all);
		if (m->chain != c)
			continue;
		maker_remove(m);
		maker_free(m);
	}
	pthread_cond_broadcast(&makers.idle);
}

/* Makes the tensor from its beginning again if a byte before what is kept is
 * wanted. */
static int maker_begin(struct maker *m, uint64_t at, struct rsh_error *err)
{
	if (m->pass.changes && at >= m->from)
		return 0;
	pass_close(&m->pass);
	m->from = m->made = 0;
	m->pass = (struct pass){
		.c = m->chain, .t = m->tensor, .n = m->tensor->n_patches,
		.start = start_at(m->chain, m->tensor, m->start),
	};
	m->pass.first = first_compared(&m->pass.start, m->pass.n);
	return pass_open(&m->pass, false) ? rsh_error_nomem(err) : 0;
}

static int maker_go_to(struct maker *m, uint64_t end, struct rsh_error *err)
{
	int rc = 0;

	while (rc == 0 && m->made < end) {
		const size_t n = rsh_min_u64(WINDOW_BYTES,
					     m->tensor->bytes - m->made);

		rc = read_start(m->chain, m->tensor, &m->pass.start, m->made,
				m->bytes + m->made % m->cap, n, err) ?:
		     pass_apply(&m->pass, m->bytes + m->made % m->cap, n, err);
		m->made += n;
		if (m->made > m->cap && m->made - m->cap > m->from)
			m->from = m->made - m->cap;
	}
	return rc;
}

static int maker_read(struct maker *m, const struct wanted *w,
		      struct rsh_error *err)
{
	for (size_t done = 0, part; done < w->len; done += part) {
		const uint64_t at = w->at + done;
		const uint64_t within = WINDOW_BYTES - at % WINDOW_BYTES;
		int rc;

		part = rsh_min_u64(w->len - done, within);
		rc = maker_begin(m, at, err) ?: maker_go_to(m, at + part, err);
		if (start_again(m->chain, &m->pass.start, rc, &m->start)) {
			pass_close(&m->pass);
			part = 0;
			continue;
		}
		if (rc)
			return rc;
		memcpy(w->buf + done, m->bytes + at % m->cap, part);
	}
	return 0;
}

static int maker_serve(struct maker *m, const struct wanted *w,
		       struct rsh_error *err)
{
	const struct rsh_version_chain *c = m->chain;
	struct rsh_made_tensor *t = m->tensor;
	const bool compare = !atomic_load(&t->verified);
	struct pass p = { .c = c, .t = t };
	unsigned i = 0;
	int rc = compare ? check_sums(c, t, t->n_patches, err) : 0;

	if (rc)
		return rc;
	if (!is_kept_whole(c, t)) {
		if (!compare)
			return maker_read(m, w, err);
		p.n = t->n_patches;
		do {
			p.start = start_at(c, t, m->start);
			p.first = first_compared(&p.start, p.n);
			rc = make_pass(&p, true, NULL, w, err);
		} while (start_again(c, &p.start, rc, &m->start));
	} else if (m->made < t->bytes) {
		/* One delta after the other, so that one frame is open. */
		do {
			p.start = start_at(c, t, i);
			p.first = first_compared(&p.start, t->n_patches);
			rc = read_start(c, t, &p.start, 0, m->bytes, t->bytes,
					err);
			for (; rc == 0 && p.first < t->n_patches; p.first++) {
				p.n = p.first + 1;
				rc = make_pass(&p, compare, m->bytes, NULL,
					       err);
			}
		} while (start_again(c, &p.start, rc, &i));
		m->made = rc ? 0 : t->bytes;
	}
	if (rc)
		return rc;
	atomic_store(&t->verified, true);
	if (is_kept_whole(c, t))
		memcpy(w->buf, m->bytes + w->at, w->len);
	return 0;
}

/* The log has the reason once for a tensor. */
static int read_changed(struct rsh_version_chain *c, struct rsh_made_tensor *t,
			const struct wanted *w)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct maker *m;
	int rc;

	rsh_store_take_tile_room(c->inputs);
	m = maker_take(c, t);
	if (!m)
		return -ENOMEM;
	rc = maker_serve(m, w, &err);
	maker_give_back(m, rc != 0);
	if (rc == -EKEYREJECTED)
		rc = -EBADMSG;
	if (rc == -EBADMSG && !atomic_flag_test_and_set(&t->reported))
		rsh_log_error("%s", err.text);
	return rc;
}

/* ---- files ---- */

ssize_t rsh_version_read_file(void *chain, uint32_t file, void *buf, size_t len,
			      uint64_t offset)
{
	struct rsh_version_chain *c = chain;
	const uint64_t size = rsh_store_identity(c->inputs, file)->size;
	const uint32_t end = c->first[file + 1];
	uint32_t i = c->first[file];
	uint8_t *to = buf;
	int rc = 0;

	len = offset < size ? rsh_min_u64(len, size - offset) : 0;
	i += rsh_first(k, end - i, c->tensors[i + k].offset +
				   c->tensors[i + k].bytes <= offset);
	for (size_t done = 0, part; rc == 0 && done < len; done += part) {
		struct rsh_made_tensor *t = i < end ? &c->tensors[i] : NULL;
		const uint64_t at = offset + done;

		part = len - done;
		if (t && at >= t->offset) {
			part = rsh_min_u64(part, t->offset + t->bytes - at);
			if (part > 0)
				rc = read_changed(c, t, &(struct wanted){
						at - t->offset, to + done,
						part });
			i++;
			continue;
		}
		if (t)
			part = rsh_min_u64(part, t->offset - at);
		rc = rsh_store_read_input(c->inputs, file, at, to + done, part);
	}
	return rc ? rc : (ssize_t)len;
}
