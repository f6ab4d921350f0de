/* SPDX-License-Identifier: Apache-2.0 */
/* plan/pieces.c finds the places in source files from which the bytes of a
 * range of a virtual file come. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "plan_i.h"
#include "rsh/plan/framing.h"
#include "rsh/util/checked.h"
#include "rsh/util/mem.h"

struct rsh_piece_iter {
	const struct rsh_plan *p;
	const struct rsh_virtual_file *f;
	const atomic_bool *avoid;
	uint64_t pos; /* in the virtual file, or in the content of the slot */
	uint64_t end;
	uint32_t slot;
	bool content; /* the iterator covers only the content of the slot */
	bool no_memory; /* memory was out when a header was needed */

	/* The current slot. */
	bool entered;
	struct rsh_record_shape shape;
	enum rsh_codec codec;
	uint32_t in_unit;     /* bytes of a unit in the source file */
	uint32_t out_unit;    /* bytes of an element in the virtual file */
	uint32_t per;         /* elements of a row that a unit has, and rows
			       * that it has: more than 1 only if they are
			       * quantised */
	uint32_t down;
	uint32_t file;        /* the source file of the slot's content */
	struct rsh_chunks chunks;
	uint8_t *header;      /* room for the header of any chunk */
	size_t header_cap;

	/* The source of the slot's content.  A copied slot has one record.  A
	 * shown slot has a record in each source file; files that share an
	 * index share the record. */
	const struct rsh_mapping *w; /* NULL: copied */
	struct rsh_cursor cursor;
	const struct rsh_ckpt_index *ix;
	const struct rsh_tensor *tensor; /* the tensor that `rec` is of */
	const struct rsh_record *rec;

	/* The current row.  rows.n is the number of equal rows that follow, as
	 * far as its pieces show.  It is 0 unless the iterator returned the row
	 * from its first byte on. */
	struct rsh_rows rows;
	uint64_t row_pos; /* where the next piece of the row has to be */
	uint64_t row_end;
};
/* A read makes an iterator.  The memory of each thread in glibc, which needs no
 * lock, is for sizes up to this.  malloc() takes from it; calloc() does not. */
static_assert(sizeof(struct rsh_piece_iter) <= 1032, "");

static const struct rsh_slot *slot_of(const struct rsh_piece_iter *it)
{
	return &it->f->list->slots[it->slot];
}

/* Returns the index of the slot that contains `offset`, which must be within
 * the file. */
static uint32_t pieces_find_slot(const struct rsh_slot_list *l, uint64_t offset)
{
	const uint32_t after = rsh_first(i, l->n, l->slots[i].offset <= offset);

	return after ? after - 1 : 0;
}

static uint64_t slot_end(const struct rsh_piece_iter *it)
{
	const struct rsh_slot_list *l = it->f->list;

	return it->slot + 1 < l->n ? l->slots[it->slot + 1].offset :
				     l->bytes - l->trailer_bytes;
}

/* Makes an iterator over bytes [offset, offset+length) of `bytes`. */
static struct rsh_piece_iter *pieces_new(const struct rsh_plan *p,
					 uint32_t rank, uint64_t offset,
					 uint64_t length, uint64_t bytes)
{
	struct rsh_piece_iter *it = malloc(sizeof(*it));

	if (!it)
		return NULL;
	*it = (struct rsh_piece_iter){
		.p = p, .f = &p->files[rank], .pos = offset,
	};
	if (!rsh_add_u64(offset, length, &it->end) || it->end > bytes)
		it->end = bytes;
	return it;
}

struct rsh_piece_iter *rsh_piece_iter_new(const struct rsh_plan *p,
					  uint32_t rank, uint64_t offset,
					  uint64_t length,
					  const atomic_bool *avoid)
{
	const struct rsh_slot_list *l;
	struct rsh_piece_iter *it;

	if (rank >= p->n_files)
		return NULL;
	l = p->files[rank].list;
	it = pieces_new(p, rank, offset, length, l->bytes);
	if (!it)
		return NULL;
	it->avoid = avoid;
	if (it->pos < it->end)
		it->slot = pieces_find_slot(l, it->pos);
	return it;
}

struct rsh_piece_iter *rsh_piece_iter_content(const struct rsh_plan *p,
					      uint32_t rank, uint32_t record,
					      uint64_t offset, uint64_t length,
					      const atomic_bool *avoid)
{
	struct rsh_virtual_record r = { 0 };
	struct rsh_piece_iter *it;

	if (rank >= p->n_files || record >= p->files[rank].list->n)
		return NULL;
	rsh_plan_record(p, rank, record, &r);
	it = pieces_new(p, rank, offset, length, r.shape.content_bytes);
	if (!it)
		return NULL;
	it->avoid = avoid;
	it->slot = record;
	it->content = true;
	return it;
}

int rsh_piece_iter_status(const struct rsh_piece_iter *it)
{
	if (it->no_memory)
		return -ENOMEM;
	return it->pos < it->end ? -EIO : 0;
}

void rsh_piece_iter_free(struct rsh_piece_iter *it)
{
	if (!it)
		return;
	free(it->header);
	free(it);
}

static bool room_for_header(struct rsh_piece_iter *it)
{
	const struct rsh_chunks *k = &it->chunks;
	uint64_t need = rsh_max_u64(
		rsh_max_u64(k->full_header, k->last_header),
		rsh_max_u64(k->full_trailer, k->last_trailer));
	uint8_t *p;

	if (need <= it->header_cap)
		return true;
	p = realloc(it->header, need);
	if (!p) {
		it->no_memory = true;
		return false;
	}
	it->header = p;
	it->header_cap = need;
	return true;
}

/* Prepares the current slot.  The plan has checked that its sources exist. */
static bool enter_slot(struct rsh_piece_iter *it)
{
	const struct rsh_slot *s = slot_of(it);
	const struct rsh_plan *p = it->p;
	const struct rsh_mapping *w;

	it->ix = NULL;
	it->tensor = NULL;
	it->w = NULL;
	it->per = it->down = 1;
	it->rows.n = 0;
	if (s->shown != RSH_COPIED) {
		w = p->mappings[s->shown];
		rsh_blueprint_shape(p, s->shown, it->f->member, &it->shape);
		/* Contents that are not in a file are in row-major order. */
		it->w = w->ordered && !it->content ? w->ordered : w;
		it->codec = it->w->codec;
		it->in_unit = it->w->unit_in;
		it->out_unit = it->w->unit_out;
		rsh_cursor_enter(it->w, it->f->member, &it->cursor);
	} else {
		if (!p->ops.pick(p->ops.ctx, it->f->rank, s->name,
				    it->avoid, &it->file))
			return false;
		it->ix = rsh_catalogue_index(p->cat, it->file);
		it->rec = rsh_ckpt_find(it->ix, s->name);
		p->ops.copy_shape(p->ops.ctx, it->ix, it->rec, &it->shape,
				  &it->codec);
		rsh_codec_units(it->codec, &it->in_unit, &it->out_unit);
	}
	it->shape.number = it->slot;
	p->b.framing->chunks(&it->shape, &it->chunks);
	it->entered = room_for_header(it);
	return it->entered;
}

/* Finds the file that the cell of the cursor is read from, and its record
 * there. */
static bool find_source(struct rsh_piece_iter *it)
{
	const struct rsh_tensor *t = it->cursor.tensor;
	const struct rsh_ckpt_index *ix;
	struct rsh_holder holder;

	if (!rsh_copies_pick(t->copies, it->cursor.cell, it->cursor.replica,
			     it->avoid, &holder))
		return false;
	it->file = holder.file;
	ix = rsh_catalogue_index(it->p->cat, holder.file);
	if (t->quantised) {
		rsh_packing_unit(t->quantised->packing, &it->per, &it->in_unit);
		it->down = rsh_packing_rows(t->quantised->packing);
	}
	if (holder.record != RSH_BY_NAME) {
		it->ix = ix;
		it->tensor = NULL;
		it->rec = &ix->records[holder.record];
	} else if (ix != it->ix || t != it->tensor) {
		it->ix = ix;
		it->tensor = t;
		it->rec = rsh_ckpt_find(ix, t->name);
	}
	return it->rec != NULL;
}

/* Gives the place in the file of byte `at` of the record's stored content, and
 * how many bytes follow it there.  Returns how many bytes of the extent precede
 * it. */
static uint64_t find_extent(const struct rsh_piece_iter *it, uint64_t at,
			    uint64_t *offset, uint64_t *left)
{
	const struct rsh_extent *e = it->ix->extents + it->rec->first_extent;

	while (at >= e->length) {
		at -= e->length;
		e++;
	}
	*offset = e->offset + at;
	*left = e->length - at;
	return at;
}

/* ---- rows that repeat ---- */

/* Returns the units of a row: those along the innermost span, or one if
 * neighbours are not neighbours in the source. */
static uint64_t row_units(const struct rsh_piece_iter *it)
{
	return it->w->apart ? 1 : it->cursor.len[it->w->n_spans - 1];
}

/* Updates `rows` after a piece.  From the start of the piece on, `room` bytes
 * are contiguous in the source file, and `limit` bytes of content in the
 * virtual file. */
static void follow_row(struct rsh_piece_iter *it, uint64_t unit,
		       uint64_t length, uint64_t room, uint64_t limit)
{
	const struct rsh_mapping *w = it->w;
	uint64_t stride;

	if (!w || w->n_spans == 0 || it->codec != RSH_CODEC_NONE)
		return;
	stride = it->cursor.stride * it->in_unit;
	if (it->cursor.rows > 0 && unit % row_units(it) == 0) {
		it->rows.n = it->cursor.rows;
		it->rows.bytes = row_units(it) * it->out_unit;
		it->rows.src_stride = stride;
		it->row_pos = it->pos;
		it->row_end = it->pos + it->rows.bytes;
	}
	if (it->rows.n == 0)
		return;
	if (it->pos != it->row_pos || it->row_end - it->pos > limit ||
	    it->cursor.rows == 0 || stride != it->rows.src_stride) {
		it->rows.n = 0;
		return;
	}
	it->row_pos += length;
	it->rows.n = rsh_min_u64(rsh_min_u64(it->rows.n, it->cursor.rows),
				 rsh_min_u64((room - length) / stride,
					     (it->pos + limit - it->row_end) /
						     it->rows.bytes));
}

bool rsh_piece_iter_rows(const struct rsh_piece_iter *it, struct rsh_rows *out)
{
	*out = it->rows;
	return it->rows.n > 0 && it->pos == it->row_end &&
	       it->row_pos == it->row_end;
}

void rsh_piece_iter_skip(struct rsh_piece_iter *it, const struct rsh_rows *rows)
{
	it->pos += rows->n * rows->bytes;
	it->rows.n = 0;
}

/* ---- scales and tiles ---- */

/* Describes the cell of the cursor; `first` is an element of it.  A stack of
 * matrices has three dimensions, or four if its rows are divided into
 * blocks. */
static void find_scales(const struct rsh_piece_iter *it, uint64_t first,
			struct rsh_scales *out)
{
	const struct rsh_tensor *t = it->cursor.tensor;
	const bool stack = t->n_dims > 2, divided = t->n_dims > 3;
	const uint32_t last = t->n_dims - 1;
	struct rsh_box box;

	rsh_cut_box(t->cut, t->dims, it->cursor.cell, &box);
	*out = (struct rsh_scales){
		.cat = it->p->cat, .tensor = t, .first = first,
		.from = { stack ? box.from[0] : 0, box.from[stack],
			  box.from[last] },
		.rows = box.size[stack], .columns = box.size[last],
		.parts = divided ? box.size[2] : 0,
		.first_part = divided ? box.from[2] : 0,
	};
}

/* Returns the number of elements of a row of the cursor's cell. */
static uint64_t cell_columns(const struct rsh_piece_iter *it)
{
	const struct rsh_tensor *t = it->cursor.tensor;
	struct rsh_box box;

	rsh_cut_box(t->cut, t->dims, it->cursor.cell, &box);
	return box.size[t->n_dims - 1];
}

/* Returns the byte of the record with the unit of an element of the cell.  Sets
 * which of the unit's rows has the element. */
static uint64_t unit_at(const struct rsh_piece_iter *it, uint64_t element,
			uint64_t *row)
{
	uint64_t columns;

	*row = 0;
	if (it->down > 1) {
		columns = cell_columns(it);
		*row = element / columns % it->down;
		element -= (element / columns -
			    element / columns / it->down) * columns;
	}
	return element / it->per * it->in_unit;
}

/* Sets the tile around an element: the rows of the cursor's tile that are in
 * the same extent.  False: the row of the element is in several extents, the
 * tile has rows that do not follow each other in units that need this, or
 * neighbouring rows have elements of one unit. */
static bool find_tile(const struct rsh_piece_iter *it, struct rsh_piece *out,
		      uint64_t *row, uint64_t *lead)
{
	const struct rsh_cursor_tile *t = &it->cursor.tile;
	const uint64_t first = it->cursor.src - t->column;
	const uint64_t stride = t->stride / it->per * it->in_unit;
	uint64_t within, at = unit_at(it, first, &within);
	uint64_t n_columns, bytes, before, after, n_rows, offset, left;

	*lead = first % it->per;
	n_columns = (*lead + t->n_columns + it->per - 1) / it->per * it->per;
	bytes = n_columns / it->per * it->in_unit;
	if (t->stride % it->per || n_columns > t->stride ||
	    (it->down > 1 && t->stride != cell_columns(it)))
		return false;
	at = find_extent(it, at, &offset, &left);
	if (bytes > left)
		return false;
	/* In rows of units. */
	before = rsh_min_u64((t->row + it->down - 1 - within) / it->down,
			     at / stride);
	after = rsh_min_u64((within + t->n_rows - t->row - 1) / it->down,
			    (left - bytes) / stride);
	n_rows = (before + 1 + after) * it->down;
	if (n_columns > RSH_TILE_BYTES / it->out_unit / n_rows)
		return false;
	*row = before * it->down + within;
	out->tile = (struct rsh_tile){
		.src_rank = it->file,
		.src_offset = offset - before * stride,
		.n_rows = n_rows, .n_columns = n_columns,
		.stride = t->stride, .per = it->per, .down = it->down,
		.unit_in = it->in_unit, .unit_out = it->out_unit,
	};
	return true;
}

/* Gives the piece of a tile from byte `at` of the content on: the rest of a
 * column, and the columns after it if these are contiguous.  The tile may have
 * more columns and rows at both ends, which complete units. */
static bool tiled_piece(struct rsh_piece_iter *it, uint64_t at, uint64_t limit,
			struct rsh_piece *out)
{
	const struct rsh_cursor_tile *t = &it->cursor.tile;
	const uint64_t skip = at % it->out_unit;
	uint64_t row, n, lead;

	if (t->n_rows == 0 || !find_tile(it, out, &row, &lead))
		return false;
	if (rsh_codec_is_scaled(it->codec))
		find_scales(it, it->cursor.src - t->column - lead -
				row * t->stride, &out->scales);
	n = rsh_min_u64(out->tile.n_rows - row, t->n_rows - t->row);
	if (row == t->row && t->n_rows == out->tile.n_rows &&
	    t->n_rows == t->column_step)
		n += (t->n_columns - t->column - 1) * out->tile.n_rows;
	out->is_tiled = true;
	out->tile_offset = ((lead + t->column) * out->tile.n_rows + row) *
			   it->out_unit + skip;
	out->length = rsh_min_u64(n * it->out_unit - skip, limit);
	out->is_header = false;
	out->header = NULL;
	out->src_rank = it->file;
	out->src_offset = out->src_length = 0;
	out->skip = 0;
	out->codec = it->codec;
	it->rows.n = 0;
	return true;
}

/* Padding is in no source file.  In some cases MindSpore's converter writes
 * such zeros too. */
static bool zero_piece(struct rsh_piece_iter *it, uint64_t limit,
		       struct rsh_piece *out)
{
	static const uint8_t zeros[16384];

	it->rows.n = 0;
	out->is_header = true;
	out->header = zeros;
	out->length = rsh_min_u64(limit, sizeof(zeros));
	return true;
}

/* Gives the piece at byte `at` of the slot's content, of at most `limit`
 * bytes. */
static bool content_piece(struct rsh_piece_iter *it, uint64_t at,
			  uint64_t limit, struct rsh_piece *out)
{
	uint64_t unit = at / it->out_unit, src = unit, run, left, n;
	uint64_t lead, made, row;

	if (!it->w && it->rec->content_bytes == 0)
		return zero_piece(it, limit, out);
	if (it->w) {
		if (!rsh_cursor_find(it->w, unit, &it->cursor))
			return false;
		run = it->cursor.run;
		if (!it->cursor.tensor->copies)
			return zero_piece(it, rsh_min_u64(limit,
					  run * it->out_unit -
					  at % it->out_unit), out);
		if (!find_source(it))
			return false;
		if (it->w->apart && tiled_piece(it, at, limit, out))
			return true;
		src = it->cursor.src;
	} else {
		run = it->shape.content_bytes / it->out_unit - unit;
	}
	lead = src % it->per;
	out->skip = (uint32_t)(lead * it->out_unit + at % it->out_unit);
	find_extent(it, unit_at(it, src, &row), &out->src_offset, &left);
	if (it->down > 1) {
		const uint64_t columns = cell_columns(it);

		run = rsh_min_u64(run, columns - src % columns);
	}
	run = rsh_min_u64(run, left / it->in_unit * it->per - lead);
	n = rsh_min_u64(run * it->out_unit - at % it->out_unit, limit);
	out->length = n;
	if (it->codec == RSH_CODEC_NONE) {
		out->src_offset += out->skip;
		out->src_length = n;
		out->skip = 0;
	} else {
		made = it->per * it->out_unit;
		out->src_length = (out->skip + n + made - 1) / made *
				  it->in_unit;
		if (rsh_codec_is_scaled(it->codec))
			find_scales(it, src - lead, &out->scales);
	}
	out->src_rank = it->file;
	out->codec = it->codec;
	out->is_header = false;
	out->header = NULL;
	follow_row(it, unit, n, left, limit);
	return true;
}

/* Gives the bytes that the framing has written to it->header.  It wrote `n`
 * bytes; the piece begins at byte `within`. */
static void framing_piece(struct rsh_piece_iter *it, uint64_t within,
			  uint64_t n, struct rsh_piece *out)
{
	out->is_header = true;
	out->header = it->header + within;
	out->length = rsh_min_u64(n - within, it->end - it->pos);
}

/* Gives the piece at it->pos, which is in the current slot. */
static bool slot_piece(struct rsh_piece_iter *it, struct rsh_piece *out)
{
	const struct rsh_framing *framing = it->p->b.framing;
	const struct rsh_chunks *k = &it->chunks;
	uint64_t rel = it->pos - slot_of(it)->offset;
	uint64_t full = k->full_header + k->content_bytes + k->full_trailer;
	uint64_t chunk = rsh_min_u64(rel / full, k->n - 1);
	uint64_t within = rel - chunk * full;
	uint64_t at = chunk * k->content_bytes;
	uint64_t content = rsh_min_u64(it->shape.content_bytes - at,
				       k->content_bytes);
	bool last = chunk + 1 == k->n;
	uint64_t header = last ? k->last_header : k->full_header;

	if (within < header) {
		framing->write_header(&it->shape, at, content, 0, it->header);
		framing_piece(it, within, header, out);
		return true;
	}
	within -= header;
	if (within < content)
		return content_piece(it, at + within,
				     rsh_min_u64(content - within,
						 it->end - it->pos), out);
	framing->write_trailer(&it->shape, at, content, 0, it->header);
	framing_piece(it, within - content,
		      last ? k->last_trailer : k->full_trailer, out);
	return true;
}

/* ---- files that equal a source file ---- */

/* Finds a file with the same records at the same places, of a rank that holds
 * the same slice of every parameter.  The search begins at the origin, and
 * continues with the first file after the last. */
static bool find_twin(const struct rsh_piece_iter *it, uint32_t *file)
{
	const struct rsh_plan_ops *w = &it->p->ops;
	const struct rsh_catalogue *c = it->p->cat;
	const uint32_t origin = it->f->origin;
	uint32_t from = rsh_catalogue_present_from(c, origin);

	for (uint32_t i = 0; w->same_slices && i < c->n_present; i++) {
		*file = c->present[(from + i) % c->n_present];
		if (c->index_id[*file] == c->index_id[origin] &&
		    !rsh_is_avoided(it->avoid, *file) &&
		    w->same_slices(w->ctx, origin, *file))
			return true;
	}
	return false;
}

/* Gives a piece of one record from another holder of the record, if the origin
 * cannot be read and no file equals it.  This works for records with headers as
 * MindSpore writes them; metadata and a checksum are in no other file. */
static bool patched_piece(struct rsh_piece_iter *it, struct rsh_piece *out)
{
	const struct rsh_ckpt_index *ix =
		rsh_catalogue_index(it->p->cat, it->f->origin);
	const struct rsh_chunks *k = &it->chunks;
	const struct rsh_slot *s;
	uint64_t end;

	if (it->f->list->n == 0)
		return false;
	it->slot = pieces_find_slot(it->f->list, it->pos);
	s = slot_of(it);
	end = rsh_record_end(ix, rsh_ckpt_find(ix, s->name));
	if (it->pos < s->offset || it->pos >= end || !enter_slot(it) ||
	    it->codec != RSH_CODEC_NONE ||
	    end - s->offset != it->shape.content_bytes +
			       (k->n - 1) * k->full_header + k->last_header)
		return false;
	return slot_piece(it, out);
}

/* As long as an equal file can be read, all bytes come from one file. */
static bool whole_piece(struct rsh_piece_iter *it, struct rsh_piece *out)
{
	uint32_t rank = it->f->origin;

	if (rsh_is_avoided(it->avoid, rank) && !find_twin(it, &rank))
		return patched_piece(it, out);
	*out = (struct rsh_piece){
		.file_offset = it->pos, .length = it->end - it->pos,
		.src_rank = rank, .src_offset = it->pos,
		.src_length = it->end - it->pos,
	};
	return true;
}

/* Gives a piece of the slot's content in a file that equals a source file: from
 * that file or an equal one, or else from another holder of the record. */
static bool whole_content_piece(struct rsh_piece_iter *it,
				struct rsh_piece *out)
{
	uint32_t rank = it->f->origin;
	uint64_t offset, left;

	if (rsh_is_avoided(it->avoid, rank) && !find_twin(it, &rank))
		return enter_slot(it) && it->codec == RSH_CODEC_NONE &&
		       content_piece(it, it->pos, it->end - it->pos, out);
	it->ix = rsh_catalogue_index(it->p->cat, it->f->origin);
	it->rec = rsh_ckpt_find(it->ix, slot_of(it)->name);
	find_extent(it, it->pos, &offset, &left);
	left = rsh_min_u64(left, it->end - it->pos);
	*out = (struct rsh_piece){
		.file_offset = it->pos, .length = left,
		.src_rank = rank, .src_offset = offset, .src_length = left,
	};
	return true;
}

bool rsh_piece_iter_next(struct rsh_piece_iter *it, struct rsh_piece *out)
{
	const struct rsh_slot_list *l = it->f->list;
	const bool is_whole = it->f->origin != RSH_NO_FILE;
	bool found = true;

	if (it->pos >= it->end)
		return false;
	out->file_offset = it->pos;
	out->is_tiled = false;
	if (is_whole) {
		found = it->content ? whole_content_piece(it, out) :
				      whole_piece(it, out);
	} else if (it->content) {
		found = (it->entered || enter_slot(it)) &&
			content_piece(it, it->pos, it->end - it->pos, out);
	} else if (it->pos < l->header_bytes) {
		out->is_header = true;
		out->header = l->header + it->pos;
		out->length = rsh_min_u64(l->header_bytes, it->end) - it->pos;
	} else if (it->pos >= l->bytes - l->trailer_bytes) {
		out->is_header = true;
		out->header = l->trailer + (it->pos - l->bytes) +
			      l->trailer_bytes;
		out->length = it->end - it->pos;
	} else {
		while (it->pos >= slot_end(it)) {
			it->slot++;
			it->entered = false;
		}
		found = (it->entered || enter_slot(it)) && slot_piece(it, out);
	}
	if (found)
		it->pos += out->length;
	return found;
}
