/* SPDX-License-Identifier: Apache-2.0 */
/* Both forms of a cut: which cell has which element, and who holds it. */
#include "strategy_support.h"

#include "support.h"

#include "rsh/tensor/cut.h"

#define BOX2(a, b, c, d) { 2, { a, b }, { c, d } }

static struct rsh_cut *boxes(const uint64_t *dims, const struct rsh_box *b,
			     uint32_t n)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_cut *c;

	assert_good(rsh_cut_of_boxes(dims, 2, b, n, &c, &err), err);
	return c;
}

TEST(ranks_with_one_box_are_replicas)
{
	const uint64_t dims[] = { 6, 4 };
	const struct rsh_box b[] = {
		BOX2(2, 1, 4, 3), BOX2(0, 0, 2, 4), BOX2(2, 0, 4, 1),
		BOX2(2, 1, 4, 3),
	};
	struct rsh_cut *c = boxes(dims, b, 4);
	struct rsh_box box;
	uint32_t cell = rsh_cut_cell(c, 0);

	assert_int_equal(rsh_cut_n_cells(c), 3);
	assert_int_equal(rsh_cut_cell(c, 3), cell);
	assert_int_equal(rsh_cut_n_replicas(c, cell), 2);
	assert_int_equal(rsh_cut_member(c, cell, 0), 0);
	assert_int_equal(rsh_cut_member(c, cell, 1), 3);
	assert_int_equal(rsh_cut_n_replicas(c, rsh_cut_cell(c, 1)), 1);
	rsh_cut_box(c, dims, cell, &box);
	assert_int_equal(box.from[1], 1);
	assert_int_equal(box.size[1], 3);
	assert_false(rsh_cut_is_whole(c, dims, 0));
	rsh_cut_free(c);
}

static void refuse(const struct rsh_box *b, uint32_t n, const char *sentence)
{
	const uint64_t dims[] = { 6, 4 };
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_cut *c;

	assert_int_equal(rsh_cut_of_boxes(dims, 2, b, n, &c, &err), -EINVAL);
	assert_string_equal(err.text, sentence);
}

TEST(boxes_that_contradict_are_refused)
{
	const struct rsh_box beyond[] = { BOX2(0, 0, 6, 4), BOX2(3, 0, 4, 4) };
	const struct rsh_box huge[] = { BOX2(1, 0, UINT64_MAX, 4) };
	const struct rsh_box across[] = { BOX2(0, 0, 6, 3), BOX2(4, 2, 1, 2) };
	const struct rsh_box within[] = { BOX2(0, 0, 6, 4), BOX2(2, 2, 1, 1) };
	const struct rsh_box other[] = { { 1, { 0 }, { 6 } } };

	refuse(beyond, 2, "the box of rank 1 exceeds dimension 0 of size 6");
	refuse(huge, 1, "the box of rank 0 exceeds dimension 0 of size 6");
	refuse(across, 2, "the boxes of ranks 0 and 1 overlap, but are "
	       "not equal");
	refuse(within, 2, "the boxes of ranks 0 and 1 overlap, but are "
	       "not equal");
	refuse(other, 1, "the box of rank 0 has 1 dimensions, the tensor has "
	       "2");
}

/* Elements may be in no box. */
TEST(holes_are_told)
{
	const uint64_t dims[] = { 6, 4 }, hole[] = { 3, 0 }, at[] = { 5, 3 };
	const struct rsh_box b[] = { BOX2(0, 0, 3, 4), BOX2(4, 0, 2, 4) };
	const struct rsh_box all = BOX2(0, 0, 6, 4), gap = BOX2(3, 1, 1, 2);
	struct rsh_cut *c = boxes(dims, b, 2);
	struct rsh_box box;
	uint32_t cell;
	char text[64];

	assert_false(rsh_cut_find(c, dims, hole, &cell, &box));
	assert_true(rsh_cut_find(c, dims, at, &cell, &box));
	assert_int_equal(box.from[0], 4);
	assert_int_equal(rsh_cut_overlap(c, dims, &all, NULL, NULL), 2);
	assert_int_equal(rsh_cut_overlap(c, dims, &gap, NULL, NULL), 0);
	assert_true(rsh_cut_gap(c, &all, &box));
	assert_string_equal(rsh_box_text(&box, text, sizeof(text)),
			    "[3:4,0:4]");
	assert_string_equal(rsh_dims_text(box.size, 2, text, sizeof(text)),
			    "[1,4]");
	assert_string_equal(rsh_dims_text(box.size, 0, text, sizeof(text)),
			    "[]");
	assert_string_equal(rsh_dims_text(box.size, 2, text, 4), "[1,");
	assert_int_equal(rsh_box_elements(&box), 4);
	assert_false(rsh_cut_gap(c, &b[1], &box));
	rsh_cut_free(c);
}

/* Whoever keeps equal cuts once must not forget a gap. */
TEST(equal_boxes_have_gaps_in_a_larger_tensor)
{
	const uint64_t small[] = { 4, 4 }, large[] = { 6, 4 };
	const struct rsh_box b = BOX2(0, 0, 4, 4), all = BOX2(0, 0, 6, 4);
	struct rsh_cut *c = boxes(small, &b, 1), *d = boxes(large, &b, 1);
	struct rsh_cut *e = boxes(large, &b, 1);
	struct rsh_box gap;

	assert_false(rsh_cut_gap(c, &b, &gap));
	assert_true(rsh_cut_gap(d, &all, &gap));
	assert_int_not_equal(rsh_cut_compare(c, d), 0);
	assert_int_not_equal(rsh_cut_compare(d, c), 0);
	assert_int_equal(rsh_cut_compare(d, e), 0);
	rsh_cut_free(c);
	rsh_cut_free(d);
	rsh_cut_free(e);
}

/* A thousand columns of one row each: the axis that tells them apart is the
 * second. */
TEST(many_boxes_are_found)
{
	const uint64_t dims[] = { 1, 4000 };
	struct rsh_box *b = calloc(1000, sizeof(*b)), box;
	struct rsh_cut *c;

	assert_non_null(b);
	for (uint32_t i = 0; i < 1000; i++)
		b[i] = (struct rsh_box)BOX2(0, (uint64_t)(999 - i) * 4, 1, 4);
	c = boxes(dims, b, 1000);
	for (uint64_t i = 0; i < 4000; i++) {
		const uint64_t at[] = { 0, i };
		uint32_t cell;

		assert_true(rsh_cut_find(c, dims, at, &cell, &box));
		assert_int_equal(rsh_cut_member(c, cell, 0), 999 - i / 4);
	}
	rsh_cut_free(c);
	free(b);
}

/* ---- any list, compared with a loop over its boxes ---- */

#define MOST_BOXES 300

struct list {
	struct numbers r;
	uint64_t dims[3];
	struct rsh_box b[MOST_BOXES];
	uint32_t n;
};

/* Boxes that are cut in two again and again, of which some are left out. */
static void draw_list(struct list *l)
{
	uint32_t want = 1 + (uint32_t)numbers_below(&l->r, MOST_BOXES);

	l->n = 1;
	l->b[0] = (struct rsh_box){ .n_dims = 3 };
	for (uint32_t d = 0; d < 3; d++)
		l->b[0].size[d] = l->dims[d] = 1 + numbers_below(&l->r, 40);
	for (uint32_t tries = 0; l->n < want && tries < 1000; tries++) {
		struct rsh_box *b = &l->b[numbers_below(&l->r, l->n)];
		uint32_t d = (uint32_t)numbers_below(&l->r, 3);
		uint64_t size = b->size[d];

		if (size < 2)
			continue;
		b->size[d] = 1 + numbers_below(&l->r, size - 1);
		l->b[l->n] = *b;
		l->b[l->n].from[d] += b->size[d];
		l->b[l->n++].size[d] = size - b->size[d];
	}
	for (uint32_t i = (uint32_t)numbers_below(&l->r, 4); i > 0 && l->n > 1;
	     i--) {
		uint64_t k = numbers_below(&l->r, l->n);

		l->b[k] = l->b[--l->n];
	}
}

static struct rsh_box draw_box(struct list *l)
{
	struct rsh_box b = { .n_dims = 3 };

	for (uint32_t d = 0; d < 3; d++) {
		b.from[d] = numbers_below(&l->r, l->dims[d]);
		b.size[d] = 1 + numbers_below(&l->r, l->dims[d] - b.from[d]);
	}
	return b;
}

/* Counts the boxes that have some of a box, and the elements that they have. */
static uint32_t count_met(const struct list *l, const struct rsh_box *box,
			  uint64_t *elements)
{
	struct rsh_box common;
	uint32_t n = 0;

	*elements = 0;
	for (uint32_t i = 0; i < l->n; i++) {
		if (!rsh_box_meet(&l->b[i], box, &common))
			continue;
		*elements += common.size[0] * common.size[1] * common.size[2];
		n++;
	}
	return n;
}

static void check_box(struct list *l, const struct rsh_cut *c)
{
	struct rsh_box box = draw_box(l), gap, cell_box;
	uint64_t have, none, all = box.size[0] * box.size[1] * box.size[2];
	uint32_t n = count_met(l, &box, &have), cell;
	bool found = rsh_cut_find(c, l->dims, box.from, &cell, &cell_box);

	assert_int_equal(rsh_cut_overlap(c, l->dims, &box, NULL, NULL), n);
	assert_int_equal(rsh_cut_gap(c, &box, &gap), have < all);
	if (have < all) {
		assert_int_equal(count_met(l, &gap, &none), 0);
		for (uint32_t d = 0; d < 3; d++)
			assert_true(gap.size[d] > 0 &&
				    gap.from[d] >= box.from[d] &&
				    gap.from[d] + gap.size[d] <=
					    box.from[d] + box.size[d]);
	}
	for (uint32_t d = 0; d < 3; d++)
		box.size[d] = 1;
	assert_int_equal(count_met(l, &box, &none), found);
	for (uint32_t d = 0; d < 3 && found; d++)
		assert_true(box.from[d] >= cell_box.from[d] &&
			    box.from[d] - cell_box.from[d] < cell_box.size[d]);
}

TEST(any_list_is_searched)
{
	struct list l = { .r = { numbers_seed() } };
	struct rsh_error err = RSH_ERROR_INIT;

	for (int i = 0; i < 200; i++) {
		struct rsh_cut *c;

		draw_list(&l);
		if (rsh_cut_of_boxes(l.dims, 3, l.b, l.n, &c, &err))
			fail_msg("%s", err.text);
		assert_int_equal(rsh_cut_n_cells(c), l.n);
		for (int k = 0; k < 100; k++)
			check_box(&l, c);
		rsh_cut_free(c);
	}
}

/* A grid and the list of the boxes that it makes say the same. */
TEST(both_forms_agree)
{
	const uint64_t dims[] = { 8, 6 };
	struct rsh_grid g;
	struct rsh_box b[16], box, other;
	struct rsh_cut *grid, *list;

	memset(&g, 0, sizeof(g));
	g.n_ranks = 16;
	g.n_dims = 2;
	g.split[0] = 4;
	g.split[1] = 2;
	g.shard = 1;
	g.axes[0] = (struct rsh_grid_axis){ 4, 2 };
	g.axes[1] = (struct rsh_grid_axis){ 2, 8 };
	g.first[1] = 1;
	g.first[2] = 2;
	g.n_free = 1;
	g.free[0] = (struct rsh_grid_axis){ 2, 1 };
	grid = rsh_cut_of_grid(rsh_grid_make(&g));
	for (uint32_t r = 0; r < 16; r++)
		rsh_cut_box(grid, dims, rsh_cut_cell(grid, r), &b[r]);
	list = boxes(dims, b, 16);
	assert_int_equal(rsh_cut_n_cells(grid), rsh_cut_n_cells(list));
	for (uint64_t i = 0; i < 48; i++) {
		const uint64_t at[] = { i / 6, i % 6 };
		uint32_t x, y;

		assert_true(rsh_cut_find(grid, dims, at, &x, &box));
		assert_true(rsh_cut_find(list, dims, at, &y, &other));
		assert_memory_equal(box.from, other.from, 16);
		assert_memory_equal(box.size, other.size, 16);
		for (uint32_t k = 0; k < 2; k++)
			assert_int_equal(rsh_cut_cell(grid,
						      rsh_cut_member(list, y,
								     k)), x);
	}
	rsh_cut_free(grid);
	rsh_cut_free(list);
}
