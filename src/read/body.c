/* SPDX-License-Identifier: Apache-2.0 */
/* read/body.c says how each kind of body is read, and makes bodies of a plan
 * and a source together. */
#include "config.h"

#include "rsh/read/body.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "gather_i.h"
#include "rsh/util/checked.h"
#include "rsh/util/place.h"

/* Files that fail and answer and fail again must not keep a reader for ever. */
#define MOST_ATTEMPTS 1024

struct rsh_reader {
	const struct rsh_plan *plan;
	struct rsh_source *source;
	struct rsh_reader_options options;
	struct rsh_tiles *tiles;
	struct rsh_gathers *gathers;
};

ssize_t rsh_body_read(const struct rsh_body *b, void *buf, size_t len,
		      uint64_t offset)
{
	struct rsh_target to = { .data = buf };
	int rc;

	if (offset >= b->size)
		return 0;
	len = (size_t)rsh_min_u64(rsh_min_u64(len, b->size - offset),
				  SSIZE_MAX);
	rc = b->read(b, &to, len, offset);
	return rc ? rc : (ssize_t)len;
}

/* ---- files of a plan ---- */

static int plan_walk(const struct rsh_reader *r, uint32_t file,
		     struct rsh_target *to, size_t len, uint64_t offset,
		     const atomic_bool *avoid)
{
	struct rsh_piece_iter *it =
		rsh_piece_iter_new(r->plan, file, offset, len, avoid);
	int rc;

	if (!it)
		return -ENOMEM;
	/* A reader that has another file to turn to does not wait for this
	 * one. */
	rc = rsh_gather(r->gathers, it, to, len, !avoid);
	rsh_piece_iter_free(it);
	return rc;
}

/* A file that fails in the middle of a request is left to its replicas: the
 * whole request is read anew without it.  When there are none left the file
 * itself has to say what is wrong with it, or has come back. */
static int plan_read(const struct rsh_body *b, struct rsh_target *to,
		     size_t len, uint64_t offset)
{
	const struct rsh_reader *r = b->of;
	const struct rsh_store *store = rsh_source_store(r->source);

	if (rsh_plan_is_lost(r->plan, b->file)) {
		if (r->options.tell_lost)
			r->options.tell_lost(r->options.ctx, b->file);
		return -EIO;
	}
	for (int i = 0; r->options.replicas && i < MOST_ATTEMPTS; i++) {
		const unsigned marks = rsh_store_n_marks(store);
		const int rc = plan_walk(r, b->file, to, len, offset,
					 rsh_store_failed(store));

		if (rc == 0 || rc == -ENOMEM)
			return rc;
		if (marks == rsh_store_n_marks(store))
			break;
	}
	return plan_walk(r, b->file, to, len, offset, NULL);
}

struct rsh_body rsh_body_of_plan(const struct rsh_reader *r, uint32_t file)
{
	return (struct rsh_body){
		.size = rsh_plan_size(r->plan, file),
		.read = plan_read, .of = r, .file = file,
	};
}

int rsh_reader_new(const struct rsh_plan *p, struct rsh_source *s,
		   const struct rsh_reader_options *o, struct rsh_reader **out)
{
	struct rsh_reader *r = malloc(sizeof(*r));

	if (!r)
		return -ENOMEM;
	*r = (struct rsh_reader){ .plan = p, .source = s, .options = *o };
	if (rsh_tiles_new(s, rsh_store_tile_room(rsh_source_store(s)),
			  &r->tiles) ||
	    rsh_gathers_new(s, r->tiles, &r->gathers)) {
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
