/* SPDX-License-Identifier: Apache-2.0 */
/* plan/converter/whole.c finds virtual files that equal a source file, byte for
 * byte.
 *
 * If both strategies put every slice on the same ranks, and no option changes
 * the content, the file of a rank equals the file that the rank saved: with the
 * same order of records, headers, chunks, metadata and checksum.  If that file
 * is missing, the file of a rank that holds the same slices is used.  A file
 * that lacks parameters of its rank, as with remove_redundancy, is not used in
 * this way but planned record by record. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "converter_i.h"
#include "rsh/util/checked.h"
#include "rsh/util/mem.h"

/* ---- comparing the cuts of both sides ---- */

/* Two layouts that are written differently but put the same slices on the same
 * ranks. */
struct equal_pair {
	const struct rsh_strategy_item *a, *b;
};

struct equal_pairs {
	struct equal_pair *v;
	size_t n, cap;
};

static void equal_pairs_clear(struct equal_pairs *l)
{
	free(l->v);
}

/* Compares the grids of `a` and `b`.  The grid of `b` is made for the whole
 * dimensions that follow from `a`: they may decide how an expanded map is
 * folded when the slice alone does not.  Returns 1, 0 or -ENOMEM. */
static int same_slices(const struct rsh_strategy_item *a,
		       const struct rsh_strategy_item *b,
		       const int64_t *dims, uint32_t n_dims)
{
	cleanup_grid struct rsh_grid *x = NULL, *y = NULL;
	int64_t whole[RSH_MAX_DIMS];
	int rc = rsh_grid_new(a, &(struct rsh_grid_sizes){ dims, n_dims, true },
			      RSH_GRID_RUNTIME, &x, NULL);

	for (uint32_t d = 0; rc == 0 && d < n_dims; d++)
		whole[d] = dims[d] * rsh_grid_split(x, d);
	rc = rc ?: rsh_grid_new(b, &(struct rsh_grid_sizes){ whole, n_dims,
				false }, RSH_GRID_RUNTIME, &y, NULL) ?:
	     rsh_grid_same_slices(x, y);
	return rc == -ENOMEM ? rc : rc > 0;
}

/* Returns 1 if both layouts make the same slices of a tensor whose slice has
 * these dimensions, 0 if not, or -ENOMEM. */
static int layouts_match(struct equal_pairs *l,
			 const struct rsh_strategy_item *a,
			 const struct rsh_strategy_item *b, const int64_t *dims,
			 uint32_t n_dims)
{
	int rc;

	if (rsh_item_same_layout(a, b))
		return 1;
	for (size_t i = 0; i < l->n; i++)
		if (rsh_item_same_layout(l->v[i].a, a) &&
		    rsh_item_same_layout(l->v[i].b, b))
			return 1;
	rc = same_slices(a, b, dims, n_dims) ?: same_slices(b, a, dims, n_dims);
	if (rc <= 0)
		return rc;
	if (rsh_push(l->v, l->n, l->cap, (struct equal_pair){ a, b }))
		return -ENOMEM;
	return 1;
}

/* Returns 1 if both sides cut a record of a file of this stage in the same way,
 * 0 if not, or -ENOMEM.  A record that no side lists for this stage is copied.
 * If only one side lists a record, the cut of the other side is not known. */
static int record_matches(const struct rsh_converter *c,
			  const struct rsh_ckpt_index *ix,
			  const struct rsh_record *r, uint32_t stage,
			  struct equal_pairs *l)
{
	const struct rsh_strategy_param *s = rsh_strategy_find(c->src, r->name);
	const struct rsh_strategy_param *d = rsh_strategy_find(c->dst, r->name);

	if (!s || !d)
		return !s && !d;
	if (s->n_stages != d->n_stages)
		return 0;
	for (uint32_t i = 0; i < s->n_stages; i++)
		if (!rsh_param_in_stage(d, s->stages[i].stage))
			return 0;
	if (!rsh_param_in_stage(s, stage))
		return 1;
	return layouts_match(l, rsh_param_item(s, stage),
			     rsh_param_item(d, stage), rsh_record_dims(ix, r),
			     r->n_dims);
}

static int files_match(const struct rsh_converter *c)
{
	/* [index id]: 1 + the stage of the last file with this index. */
	cleanup_free uint32_t *seen =
		calloc(c->cat->n_indexes + 1, sizeof(*seen));
	__attribute__((
		cleanup(equal_pairs_clear))) struct equal_pairs l = { 0 };
	int rc = seen ? 1 : -ENOMEM;

	for (uint32_t i = 0; i < c->cat->n_present && rc > 0; i++) {
		uint32_t rank = c->cat->present[i];
		uint32_t stage = rank / c->files.stage_ranks;
		const struct rsh_ckpt_index *ix = c->cat->index[rank];
		uint32_t *met = &seen[c->cat->index_id[rank]];

		if (*met == stage + 1)
			continue;
		*met = stage + 1;
		for (uint32_t r = 0; r < ix->n_records && rc > 0; r++)
			rc = record_matches(c, ix, &ix->records[r], stage, &l);
	}
	return rc;
}

int rsh_whole_prepare(struct rsh_converter *c)
{
	int rc;

	if (c->o.compat || c->by_stage || c->joined ||
	    (c->dst && c->o.remove_redundancy) ||
	    c->o.division != RSH_DIVIDE_RANKS ||
	    c->o.framing->type != c->src_format)
		return 0;
	/* A single rank holds all tensors whole, whatever its strategy says. */
	if ((c->src ? c->src->stage_ranks : 1) !=
		    (c->dst ? c->dst->stage_ranks : 1) ||
	    (c->src ? c->src->n_stages : 1) != (c->dst ? c->dst->n_stages : 1))
		return 0;
	rc = c->src && c->dst ? files_match(c) : 1;
	if (rc <= 0)
		return rc;
	c->same = true;
	if (!c->src || !c->o.replicas)
		return 0;
	c->same_as = rsh_arena_array(&c->arena, uint32_t,
				     rsh_job_rank(&c->files, c->files.n_stages,
						  0));
	return c->same_as ? rsh_strategy_replicas(c->src, c->same_as) : -ENOMEM;
}

/* ---- files that are not changed ---- */

/* This says whether files with an index can be shown unchanged. */
enum rsh_whole {
	WHOLE_UNKNOWN,
	WHOLE_YES,
	WHOLE_NO,
};

/* Returns whether all records of the file are shown unchanged, and it has all
 * parameters of its rank that other files have. */
static bool is_kept(struct stage_state *p, uint32_t rank)
{
	const struct rsh_converter *c = p->c;
	const struct rsh_ckpt_index *ix = rsh_catalogue_index(c->cat, rank);
	/* If no strategy lists any of its records, the strategies are of
	 * another model. */
	bool listed = !c->src && !c->dst;

	for (uint32_t i = 0; i < ix->n_records; i++) {
		const struct rsh_record *r = &ix->records[i];
		const bool on_dst = rsh_strategy_find(c->dst, r->name);
		enum rsh_dtype dtype;

		if (c->chosen.unwanted[r->name] ||
		    (c->o.cast != RSH_DTYPE_UNKNOWN &&
		     rsh_record_codec(c, r, &dtype) != RSH_CODEC_NONE) ||
		    strcmp(rsh_written_name(c, r->name),
			   rsh_names_text(c->cat->names, r->name)) != 0 ||
		    (c->o.unlisted != RSH_UNLISTED_COPY && c->dst && !on_dst))
			return false;
		listed |= on_dst || rsh_strategy_find(c->src, r->name);
	}
	for (uint32_t name = 0; name < c->cat->n_names; name++)
		if (p->shown_of[name] != RSH_COPIED &&
		    !rsh_ckpt_find(ix, name))
			return false;
	return listed && (c->src || !c->o.replicas ||
			  !rsh_stage_is_part(p, rank));
}

/* ---- the records of such a file ---- */

/* A record and its offset, to sort records into the order of the file.  An
 * index has that order, except for records that were written twice. */
struct placed {
	uint64_t offset; /* of its content, or of the content before */
	uint32_t record;
};

RSH_ORDER(by_offset, struct placed,
	  rsh_compare_u64(x->offset, y->offset) ?:
	  rsh_compare_u64(x->record, y->record))

/* Where content begins in a file whose records have no headers. */
static uint64_t content_begin(const struct rsh_ckpt_index *ix)
{
	uint64_t begin = ix->file_bytes;

	for (uint32_t i = 0; i < ix->n_extents; i++)
		begin = rsh_min_u64(begin, ix->extents[i].offset);
	return begin;
}

/* Lists the records of a file in the order of the file. */
static int list_slots(struct stage_state *p, struct rsh_shown_file *f,
		      uint32_t rank, struct rsh_error *err)
{
	const struct rsh_ckpt_index *ix = p->c->cat->index[rank];
	const uint32_t id = p->c->cat->index_id[rank];
	cleanup_free struct placed *order = NULL;
	const bool headers = p->c->o.framing->type == RSH_FILE_CKPT;
	uint64_t at = 0, end;
	int rc = 0;

	f->n = ix->n_records;
	f->slots = p->slots;
	if (p->slots_of == id + 1)
		return 0;
	order = rsh_alloc_array(ix->n_records, sizeof(*order));
	if (!order || rsh_room(p->slots, p->slots_cap, ix->n_records))
		return rsh_error_nomem(err);
	if (!headers)
		at = content_begin(ix);
	end = at;
	for (uint32_t i = 0; i < ix->n_records; i++) {
		const struct rsh_record *r = &ix->records[i];

		if (r->n_extents)
			at = ix->extents[r->first_extent].offset;
		order[i] = (struct placed){ at, i };
	}
	qsort(order, ix->n_records, sizeof(*order), by_offset);
	f->slots = p->slots;
	p->slots_of = id + 1;
	/* A record begins at the end of the previous content or, in a format
	 * without headers, at its own content.  A record without content does
	 * not move the end. */
	for (uint32_t i = 0; i < ix->n_records && rc == 0; i++) {
		const struct rsh_record *r = &ix->records[order[i].record];

		p->slots[i] = (struct rsh_slot){
			.offset = headers || !r->n_extents ? end :
							     order[i].offset,
			.content_bytes = r->content_bytes,
			.name = r->name,
			.shown = p->shown_of[r->name],
		};
		if (r->n_extents)
			end = rsh_record_end(ix, r);
		rc = rsh_stage_learn_copy_grid(p, r->name, err);
	}
	return rc;
}

/* Does what is_kept() does, once for all files that share an index. */
static bool can_be_shown(struct stage_state *p, uint32_t rank)
{
	uint8_t *known = &p->whole[p->c->cat->index_id[rank]];

	if (*known == WHOLE_UNKNOWN)
		*known = is_kept(p, rank) ? WHOLE_YES : WHOLE_NO;
	return *known == WHOLE_YES;
}

/* ---- choosing the file ---- */

bool rsh_converter_same_slices(const void *converter, uint32_t a, uint32_t b)
{
	const struct rsh_converter *c = converter;
	const uint32_t n = rsh_job_rank(&c->files, c->files.n_stages, 0);

	if (a == b || !c->src)
		return true;
	return c->same_as && a < n && b < n && c->same_as[a] == c->same_as[b];
}

/* Finds a rank whose file can be shown instead of the file of `own`.  It is the
 * next such rank (after the last rank, the search continues with the first);
 * without a strategy it is the lowest one.  RSH_NO_FILE: there is none. */
static uint32_t find_equal_file(struct stage_state *p, uint32_t own)
{
	const struct rsh_converter *c = p->c;
	const struct rsh_catalogue *cat = c->cat;
	uint32_t from = c->src ? rsh_catalogue_present_from(cat, own) : 0;
	uint32_t n = c->src ? cat->n_present : cat->n_present > 0;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t rank = cat->present[(from + i) % cat->n_present];

		if (rsh_converter_same_slices(c, own, rank) &&
		    can_be_shown(p, rank)) {
			rsh_note_add(p->c, RSH_NOTE_REPLICA, RSH_NAME_NONE);
			return rank;
		}
	}
	return RSH_NO_FILE;
}

int rsh_stage_take_whole(struct stage_state *p, struct rsh_shown_file *f,
			 bool *taken, struct rsh_error *err)
{
	struct rsh_converter *c = p->c;
	const struct rsh_ckpt_index *ix = rsh_catalogue_index(c->cat, f->rank);
	uint32_t origin = RSH_NO_FILE;
	struct rsh_shown_file whole = *f;
	int rc;

	if (ix && can_be_shown(p, f->rank))
		origin = f->rank;
	else if (!ix && c->o.replicas)
		origin = find_equal_file(p, f->rank);
	if (origin == RSH_NO_FILE)
		return 0;
	whole.lost = false;
	rc = list_slots(p, &whole, origin, err) ?:
	     rsh_blueprint_add_whole(c->plan, &whole, origin,
				     c->cat->index[origin]->file_bytes, err);
	if (rc)
		return rc;
	*taken = true;
	c->n_whole++;
	if (c->src || c->dst)
		rsh_note_add(c, RSH_NOTE_WHOLE, RSH_NAME_NONE);
	return 0;
}
