/* SPDX-License-Identifier: Apache-2.0 */
/* converter/slots.c has the converter's say on a record of a virtual file. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "planner_i.h"
#include "rsh/util/checked.h"
#include "rsh/util/mem.h"

static void note_record(struct planner *p, uint32_t name, enum rsh_dtype dtype,
			uint64_t content_bytes)
{
	struct rsh_converter *c = p->c;

	if (dtype == RSH_DTYPE_BFLOAT16 && c->src_format == RSH_FILE_CKPT)
		rsh_note_add(c, RSH_NOTE_BF16, name);
	else if (dtype == RSH_DTYPE_INT4)
		rsh_note_add(c, RSH_NOTE_INT4, name);
	else if (dtype == RSH_DTYPE_STR)
		rsh_note_add(c, RSH_NOTE_STR, name);
	if (content_bytes == 0 && rsh_drops_empty(c))
		rsh_note_add(c, RSH_NOTE_EMPTY, name);
	if ((rsh_listed(c->src, name) || rsh_listed(c->dst, name)) &&
	    strchr(rsh_planner_name(p, name), '-'))
		rsh_note_add(c, RSH_NOTE_DASH, name);
}

/* Finds the source of a copied record. */
static int find_copy(struct planner *p, const struct rsh_shown_file *f,
		     uint32_t name, uint32_t *rank, struct rsh_error *err)
{
	struct rsh_converter *c = p->c;
	bool elsewhere;

	if (!rsh_copy_source(c, &c->orders[f->rank], name, NULL, rank,
			     &elsewhere))
		return rsh_planner_missing_copy(p, f->rank, name, err);
	if (elsewhere)
		rsh_note_add(c, RSH_NOTE_MISSING_COPY, name);
	return 0;
}

int rsh_planner_learn_copy_grid(struct planner *p, uint32_t name,
				struct rsh_error *err)
{
	struct rsh_converter *c = p->c;

	if (!c->replicas || !rsh_listed(c->src, name) || c->copy_grids[name] ||
	    p->shown_of[name] != RSH_NO_SHOWN)
		return 0;
	for (uint32_t i = 0; i < c->cat->n_present; i++) {
		uint32_t rank = c->cat->present[i];
		const struct rsh_record *r = rsh_catalogue_record(c->cat, rank, name);

		if (r)
			return rsh_copy_grid_make(c, name,
						  rsh_catalogue_index(c->cat, rank), r,
						  err);
	}
	return 0;
}

/* Describes a copied record. */
static int describe(struct planner *p, const struct rsh_shown_file *f,
		    uint32_t name, struct rsh_record_shape *shape,
		    struct rsh_error *err)
{
	struct rsh_converter *c = p->c;
	const struct rsh_ckpt_index *ix;
	const struct rsh_record *r;
	enum rsh_codec codec;
	uint32_t rank;
	int rc = rsh_planner_learn_copy_grid(p, name, err);

	if (rc == 0)
		rc = find_copy(p, f, name, &rank, err);
	if (rc)
		return rc;
	ix = rsh_catalogue_index(c->cat, rank);
	r = rsh_ckpt_find(ix, name);
	rc = rsh_record_check_chunks(c->cat, rank, r, rsh_record_unit(c, r),
				     err);
	if (rc)
		return rc;
	rsh_copy_shape(c, ix, r, shape, &codec);
	if (c->unlisted == RSH_UNLISTED_ERROR && c->dst &&
	    !rsh_listed(c->dst, name))
		return rsh_error_set(err, EINVAL, "parameter %s is not listed "
				     "by %s", shape->name, c->dst->path);
	return 0;
}

int rsh_block_record(void *ctx, struct rsh_shown_file *f, uint32_t name,
		     struct rsh_record_shape *shape, bool *taken,
		     struct rsh_error *err)
{
	struct planner *p = ctx;
	int rc = p->shown_of[name] == RSH_NO_SHOWN ?
		describe(p, f, name, shape, err) : 0;

	if (rc == -ENOENT && p->c->replicas) {
		*taken = false;
		f->lost = true;
		return rsh_blueprint_lose(p->c->plan, name, err);
	}
	if (rc)
		return rc;
	note_record(p, name, shape->dtype, shape->content_bytes);
	*taken = shape->content_bytes > 0 || !p->c->compat ||
		 !rsh_drops_empty(p->c);
	return 0;
}
