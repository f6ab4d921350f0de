/* SPDX-License-Identifier: Apache-2.0 */
/* cli/plan_svg_cells.c finds out where the cells of a cut are on the page, and
 * which are drawn as one block since they would be too small alone. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>

#include "plan_svg.h"
#include "rsh/util/mem.h"

/* More rows than ROWS_MAX are drawn as no more than so many, and more columns
 * than COLUMNS_MAX as no more than COLUMN_BLOCKS, whose labels are longer. */
#define ROWS_MAX 16
#define COLUMNS_MAX 16
#define COLUMN_BLOCKS 6
/* Boxes of a list are drawn as no more blocks than this. */
#define BOXES_MAX 64

/* Returns `at` of `all` in pixels of `length`. */
static int page_scale(uint64_t at, uint64_t all, int length)
{
	while (all > UINT32_MAX) {
		all >>= 1;
		at >>= 1;
	}
	return all ? (int)(at * (uint64_t)length / all) : 0;
}

/* Sets where a box begins along one dimension, and how long it is there. */
static void page_stretch(const struct rsh_pane *s, const struct rsh_box *box,
			 uint32_t d, int length, int *at, int *size)
{
	if (d == RSH_NO_DIM || s->dims[d] == 0) {
		*size = length;
		return;
	}
	*size = page_scale(box->from[d] + box->size[d], s->dims[d], length);
	length = page_scale(box->from[d], s->dims[d], length);
	*size -= length;
	*at += length;
}

struct rsh_svg_box rsh_plan_place(const struct rsh_pane *s,
				  const struct rsh_box *box)
{
	struct rsh_svg_box b = s->at;

	page_stretch(s, box, s->column, s->at.w, &b.x, &b.w);
	page_stretch(s, box, s->row, s->at.h, &b.y, &b.h);
	return b;
}

void rsh_svg_box_join(struct rsh_svg_box *a, const struct rsh_svg_box *b)
{
	const int right = a->x + a->w > b->x + b->w ? a->x + a->w : b->x + b->w;
	const int foot = a->y + a->h > b->y + b->h ? a->y + a->h : b->y + b->h;

	a->x = a->x < b->x ? a->x : b->x;
	a->y = a->y < b->y ? a->y : b->y;
	a->w = right - a->x;
	a->h = foot - a->y;
}

size_t rsh_side_from(const struct rsh_pane *s, uint32_t rank)
{
	size_t lo = 0, hi = s->n_held;

	while (lo < hi) {
		const size_t mid = lo + (hi - lo) / 2;

		if (s->held[mid].rank < rank)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* Of the dimensions that are not drawn only the first elements are seen. */
static bool is_seen(const struct rsh_pane *s, const struct rsh_box *box)
{
	for (uint32_t d = 0; d < s->n_dims; d++)
		if (d != s->row && d != s->column && box->from[d] > 0)
			return false;
	return true;
}

/* ---- blocks ---- */

/* Cells of a grid are taken together in both dimensions, those of a list in
 * their order. */
struct blocks {
	const struct rsh_grid *grid; /* NULL: a list */
	uint32_t down, across; /* cells of a block; of a list, `across` */
	uint32_t n_across;     /* blocks of a row */
};

/* Returns how many of n are taken together so that no more than `most` are
 * left: a number that divides n if there is one nearby. */
static uint32_t take_together(uint32_t n, uint32_t most)
{
	const uint32_t least = n > 0 ? (n + most - 1) / most : 1;

	for (uint32_t k = least; k <= 2 * least; k++)
		if (n % k == 0)
			return k;
	return least;
}

static uint32_t svg_split_of(const struct rsh_grid *g, uint32_t d)
{
	return d == RSH_NO_DIM ? 1 : rsh_grid_split(g, d);
}

static struct blocks make_blocks(const struct rsh_pane *s)
{
	struct blocks b = { .grid = rsh_cut_grid(s->cut), .down = 1,
			    .across = 1, .n_across = 1 };
	uint32_t rows, columns;

	if (!b.grid) {
		b.across = take_together(rsh_cut_n_cells(s->cut), BOXES_MAX);
		return b;
	}
	rows = svg_split_of(b.grid, s->row);
	columns = svg_split_of(b.grid, s->column);
	b.down = take_together(rows, ROWS_MAX);
	if (columns > COLUMNS_MAX)
		b.across = take_together(columns, COLUMN_BLOCKS);
	b.n_across = (columns + b.across - 1) / b.across;
	return b;
}

/* Returns the number of a box along a dimension that is cut evenly. */
static uint32_t svg_place_of(const struct rsh_box *box, uint32_t d)
{
	return d == RSH_NO_DIM || box->size[d] == 0 ?
		0 : (uint32_t)(box->from[d] / box->size[d]);
}

static void seen_sort_out(const struct rsh_pane *s, const struct blocks *b,
			  const struct rsh_box *box, struct rsh_seen *cell)
{
	const uint32_t row = svg_place_of(box, s->row);
	const uint32_t column = svg_place_of(box, s->column);
	const uint32_t first = s->row == 0 ? row : column;

	if (!b->grid) {
		cell->block = cell->cell / b->across;
		cell->slice = cell->cell;
		return;
	}
	cell->block = row / b->down * b->n_across + column / b->across;
	cell->slice = cell->block;
	/* The shard cuts dimension 0, within what the axes make of it. */
	if (s->shard > 1 && (s->row == 0 || s->column == 0))
		cell->slice = first / s->shard +
			      (s->row == 0 ? column : row) *
				      (svg_split_of(b->grid, 0) / s->shard + 1);
}

static int seen_by_block(const void *a, const void *b)
{
	const struct rsh_seen *x = a, *y = b;

	if (x->block != y->block)
		return x->block < y->block ? -1 : 1;
	return x->cell < y->cell ? -1 : x->cell > y->cell;
}

int rsh_plan_seen(const struct rsh_pane *s, struct rsh_seen **out, size_t *n)
{
	const uint32_t n_cells = rsh_cut_n_cells(s->cut);
	const struct blocks b = make_blocks(s);
	struct rsh_box box;

	*n = 0;
	*out = rsh_alloc_array(n_cells, sizeof(**out));
	if (!*out)
		return -ENOMEM;
	for (uint32_t c = 0; c < n_cells; c++) {
		struct rsh_seen *cell = &(*out)[*n];

		rsh_cut_box(s->cut, s->dims, c, &box);
		if (!is_seen(s, &box))
			continue;
		*cell = (struct rsh_seen){ .cell = c };
		cell->at = rsh_plan_place(s, &box);
		seen_sort_out(s, &b, &box, cell);
		++*n;
	}
	qsort(*out, *n, sizeof(**out), seen_by_block);
	return 0;
}
