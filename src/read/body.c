/* SPDX-License-Identifier: Apache-2.0 */
/* read/body.c says how each kind of body is read, and makes bodies of a plan
 * and a source together. */
#include "config.h"

#include "rsh/read/body.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "reader_i.h"
#include "rsh/util/checked.h"
#include "rsh/util/clock.h"
#include "rsh/util/place.h"

/* Files that fail and answer and fail again must not keep a reader for ever. */
#define MOST_ATTEMPTS 1024

ssize_t rsh_body_read(const struct rsh_body *b, void *buf, size_t len,
		      uint64_t offset)
{
	struct rsh_target to = { .data = buf, .wait = RSH_WAIT };
	int rc;

	if (offset >= b->size)
		return 0;
	len = (size_t)rsh_min_u64(rsh_min_u64(len, b->size - offset),
				  SSIZE_MAX);
	rc = b->read(b, &to, len, offset);
	return rc ?: (ssize_t)len;
}

/* ---- files of a plan ---- */

struct rsh_gather *rsh_reader_gather(const struct rsh_reader *r,
				     const struct rsh_reader_attempts *a,
				     const struct rsh_wait *wait)
{
	/* A reader that has another file to turn to does not wait for this
	 * one. */
	return rsh_gather_begin(r->gathers, a->avoid ? NULL : wait);
}

bool rsh_reader_is_lost(const struct rsh_reader *r, uint32_t file)
{
	if (!rsh_plan_is_lost(r->plan, file))
		return false;
	if (r->options.tell_lost)
		r->options.tell_lost(r->options.ctx, file);
	return true;
}

/* A file that fails in the middle is left to its replicas: all is read anew
 * without it.  When there are none left the file itself has to say what is
 * wrong with it, or has come back. */
bool rsh_reader_attempt(const struct rsh_reader *r,
			struct rsh_reader_attempts *a)
{
	const struct rsh_store *store = rsh_source_store(r->source);
	const unsigned marks = rsh_store_n_marks(store);

	if (a->n > 0 && (a->rc == 0 || a->rc == -ENOMEM || !a->avoid))
		return false;
	a->avoid = rsh_store_failed(store);
	if (!r->options.replicas || a->n == MOST_ATTEMPTS ||
	    (a->n > 0 && marks == a->marks))
		a->avoid = NULL;
	a->marks = marks;
	a->n++;
	return true;
}

static int plan_read(const struct rsh_body *b, struct rsh_target *to,
		     size_t len, uint64_t offset)
{
	const struct rsh_reader *r = b->of;
	struct rsh_reader_attempts a = { 0 };

	if (rsh_reader_is_lost(r, b->file))
		return -EIO;
	while (rsh_reader_attempt(r, &a)) {
		struct rsh_gather *g = rsh_reader_gather(r, &a, to->wait);
		struct rsh_piece_iter *it;

		a.rc = -ENOMEM;
		if (!g)
			continue;
		it = rsh_piece_iter_new(r->plan, b->file, offset, len, a.avoid);
		if (it)
			a.rc = rsh_gather_add(g, it, to, len);
		rsh_piece_iter_free(it);
		a.rc = rsh_gather_end(r->gathers, g, a.rc);
	}
	return a.rc;
}

struct rsh_body rsh_body_of_plan(const struct rsh_reader *r, uint32_t file)
{
	return (struct rsh_body){
		.size = rsh_plan_size(r->plan, file),
		.read = plan_read, .of = r, .file = file,
	};
}

/* So many loads of records are under way at most. */
#define RECORD_LOADS 16

static int loading_new(bool far, bool shared, struct rsh_loading **out)
{
	struct rsh_loading *l = calloc(1, sizeof(*l));

	if (l && pthread_mutex_init(&l->lock, NULL) == 0) {
		if (rsh_load_limit_init(&l->loads, &l->lock, RECORD_LOADS,
					rsh_clock_ns) == 0) {
			*out = l;
			if (!far)
				return 0;
			/* From far away all loads are begun with: to find out
			 * how many pay takes long there. */
			l->blocked = RSH_BLOCKED_ONE;
			rsh_depth_far(&l->loads.depth, RECORD_LOADS,
				      shared ? 0 : RSH_LOAD_LONGEST_NS);
			return 0;
		}
		pthread_mutex_destroy(&l->lock);
	}
	free(l);
	return -ENOMEM;
}

int rsh_reader_new(const struct rsh_plan *p, struct rsh_source *s,
		   const struct rsh_reader_options *o, struct rsh_reader **out)
{
	struct rsh_reader *r = malloc(sizeof(*r));
	const struct rsh_store *store = rsh_source_store(s);
	const bool far = rsh_store_is_address(rsh_store_root(store));
	const bool shared = rsh_store_is_shared(store);

	if (!r)
		return -ENOMEM;
	*r = (struct rsh_reader){ .plan = p, .source = s, .options = *o };
	if (rsh_tiles_new(s, rsh_store_tile_room(store), &r->tiles) ||
	    rsh_gathers_new(s, r->tiles, far && !shared, &r->gathers) ||
	    loading_new(far, shared, &r->loading)) {
		rsh_reader_free(r);
		return -ENOMEM;
	}
	*out = r;
	return 0;
}

void rsh_reader_free(struct rsh_reader *r)
{
	if (!r)
		return;
	if (r->loading) {
		rsh_load_limit_destroy(&r->loading->loads);
		pthread_mutex_destroy(&r->loading->lock);
		free(r->loading);
	}
	rsh_gathers_free(r->gathers);
	rsh_tiles_free(r->tiles);
	free(r);
}

/* ---- texts ---- */

static int text_read(const struct rsh_body *b, struct rsh_target *to,
		     size_t len, uint64_t offset)
{
	if (to->area)
		to->data = to->area + rsh_place(0);
	memcpy(to->data, (const char *)b->of + offset, len);
	return 0;
}

struct rsh_body rsh_body_of_text(const char *text, uint64_t size)
{
	return (struct rsh_body){ .size = size, .read = text_read, .of = text };
}
