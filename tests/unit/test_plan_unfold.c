/* SPDX-License-Identifier: Apache-2.0 */
/* Offers whose dimensions are divided and joined: each element stays where it
 * is. */
#include "plan_support.h"
#include "support.h"

#include "rsh/plan/writer.h"

#define CASES 3000
#define MAX_PARTS 8
#define MAX_ELEMENTS 4096
#define APART 3

struct scene {
	struct rsh_catalogue cat;
	struct rsh_tensor tensors[MAX_PARTS], *all[MAX_PARTS];
	uint64_t dims[MAX_PARTS][4];
	struct rsh_recipe_part parts[MAX_PARTS];
	struct rsh_box boxes[MAX_PARTS];
	struct rsh_factor factors[MAX_PARTS][3];
	uint64_t from[MAX_PARTS][3];
	uint64_t shown[3];
	struct rsh_offer o;
	uint64_t n; /* elements */
};

/* A place in the source: a tensor, and an element of it. */
struct place {
	uint32_t tensor;
	uint64_t at;
};

/* Gives a part its own tensor, of which it is a box, with its dimensions in any
 * order. */
static void draw_tensor(struct scene *s, uint32_t i)
{
	struct rsh_recipe_part *p = &s->parts[i];
	const uint32_t n = s->o.n_dims, turn = below(n);

	*p = (struct rsh_recipe_part){ i, n, s->factors[i], s->boxes[i].from,
				       s->from[i] };
	for (uint32_t k = 0; k < n; k++) {
		const uint8_t d = (uint8_t)((k + turn) % n);

		s->factors[i][k] = (struct rsh_factor){ s->boxes[i].size[d], 1,
							1, d, (uint8_t)k };
		s->from[i][k] = below(APART);
		s->dims[i][k] = s->from[i][k] + s->boxes[i].size[d] +
				below(APART);
	}
	s->tensors[i] = (struct rsh_tensor){
		.n_dims = n, .dims = s->dims[i],
	};
	s->all[i] = &s->tensors[i];
}

/* Cuts the tensor that is shown into boxes. */
static void draw(struct scene *s)
{
	*s = (struct scene){ .cat.tensors = s->all, .n = 1 };
	s->o.n_dims = 1 + below(3);
	s->o.dims = s->shown;
	s->o.parts = s->parts;
	s->o.n_parts = 1;
	for (uint32_t d = 0; d < s->o.n_dims; d++) {
		s->shown[d] = 1 + below(12);
		s->n *= s->shown[d];
	}
	s->boxes[0] = rsh_box_whole(s->shown, s->o.n_dims);
	while (s->o.n_parts < MAX_PARTS && below(3)) {
		struct rsh_box *a = &s->boxes[below(s->o.n_parts)];
		struct rsh_box *b = &s->boxes[s->o.n_parts];
		const uint32_t d = below(s->o.n_dims);
		const uint64_t n = a->size[d];

		if (n < 2)
			continue;
		*b = *a;
		a->size[d] = 1 + below((uint32_t)n - 1);
		b->from[d] += a->size[d];
		b->size[d] = n - a->size[d];
		s->o.n_parts++;
	}
	for (uint32_t i = 0; i < s->o.n_parts; i++)
		draw_tensor(s, i);
}

static uint64_t flat(const uint64_t *at, const uint64_t *dims, uint32_t n)
{
	uint64_t all = 0;

	for (uint32_t d = 0; d < n; d++) {
		assert_true(at[d] < dims[d]);
		all = all * dims[d] + at[d];
	}
	return all;
}

/* Adds the elements of a part. */
static void add_part(const struct scene *s, const struct rsh_recipe_part *r,
		     struct place *out)
{
	const struct rsh_tensor *t = s->cat.tensors[r->tensor];
	uint64_t all = 1;

	for (uint32_t i = 0; i < r->n_factors; i++)
		all *= r->factors[i].size;
	for (uint64_t number = 0; number < all; number++) {
		uint64_t shown[RSH_MAX_DIMS], at[RSH_MAX_DIMS], left = number;
		struct place *p;

		memcpy(shown, r->shown_from, s->o.n_dims * sizeof(*shown));
		memcpy(at, r->from, t->n_dims * sizeof(*at));
		for (uint32_t i = 0; i < r->n_factors; i++) {
			const struct rsh_factor *f = &r->factors[i];
			const uint64_t digit = left % f->size;

			left /= f->size;
			shown[f->shown_dim] += digit * f->shown_step;
			at[f->dim] += digit * f->step;
		}
		p = &out[flat(shown, s->o.dims, s->o.n_dims)];
		assert_int_equal(p->tensor, UINT32_MAX);
		*p = (struct place){ r->tensor, flat(at, t->dims, t->n_dims) };
	}
}

static void find_places(const struct scene *s, struct place *out)
{
	memset(out, 0xff, s->n * sizeof(*out));
	for (uint32_t i = 0; i < s->o.n_parts; i++)
		add_part(s, &s->o.parts[i], out);
	for (uint64_t i = 0; i < s->n; i++)
		assert_int_not_equal(out[i].tensor, UINT32_MAX);
}

/* Divides or joins dimensions. */
static void change(struct scene *s, struct rsh_arena *arena)
{
	const uint32_t d = below(s->o.n_dims);
	uint64_t inner = 1 + below((uint32_t)s->o.dims[d]);

	if (s->o.n_dims > 1 && d + 1 < s->o.n_dims && below(2)) {
		assert_int_equal(rsh_offer_join(&s->cat, arena, &s->o, d), 0);
		return;
	}
	while (s->o.dims[d] % inner)
		inner--;
	if (s->o.n_dims < 6)
		assert_int_equal(rsh_offer_divide(&s->cat, arena, &s->o, d,
						  inner), 0);
}

TEST(elements_stay_in_their_places)
{
	static struct place before[MAX_ELEMENTS], after[MAX_ELEMENTS];
	FREED_BY(rsh_arena_clear) struct rsh_arena arena = { 0 };
	const uint64_t seed = numbers_seed();
	struct scene s;

	for (int i = 0; i < rounds(CASES); i++) {
		numbers_begin(seed + (uint64_t)i);
		draw(&s);
		assert_true(s.n <= MAX_ELEMENTS);
		find_places(&s, before);
		for (unsigned k = 0; k < 5; k++) {
			change(&s, &arena);
			find_places(&s, after);
			assert_memory_equal(before, after,
					    s.n * sizeof(*before));
		}
	}
}

/* A tensor that has padding after its last column is not shown with it. */
TEST(a_part_is_what_is_shown)
{
	const uint64_t dims[] = { 8, 4 }, shown[] = { 4, 5 };
	struct rsh_tensor t = { .n_dims = 2, .dims = dims }, *all[] = { &t };
	struct rsh_catalogue cat = { .tensors = all };
	struct rsh_offer o = { .n_dims = 2, .dims = shown, .same = 1 };
	FREED_BY(rsh_arena_clear) struct rsh_arena arena = { 0 };

	assert_int_equal(rsh_offer_whole(&cat, &arena, 0,
					 (const uint8_t[]){ 1, 0 }, &o), 0);
	assert_int_equal(o.same, 0);
	assert_true(o.boxes);
	assert_int_equal(o.n_parts, 1);
	for (uint8_t d = 0; d < 2; d++) {
		assert_int_equal(o.parts->factors[d].size, shown[d]);
		assert_int_equal(o.parts->factors[d].shown_dim, d);
		assert_int_equal(o.parts->factors[d].dim, 1 - d);
		assert_int_equal(o.parts->from[d] + o.parts->shown_from[d], 0);
	}
}

/* An offer [4,5,6] of a tensor that has these dimensions, and its parts. */
struct one_part {
	const char *name;
	uint64_t dims[3];
	uint64_t from[3]; /* in the tensor */
	uint8_t order[3];
	bool no_boxes;
	int8_t add;
	enum { NOTHING, ROWS, ALL } is;
};

static const struct one_part one_parts[] = {
	{ "a_whole_tensor", { 4, 5, 6 }, .order = { 0, 1, 2 }, .is = ALL },
	{ "first_rows", { 5, 5, 6 }, .order = { 0, 1, 2 }, .is = ROWS },
	{ "later_rows", { 5, 5, 6 }, { 1, 0, 0 }, { 0, 1, 2 } },
	{ "a_part_of_dimension_1", { 4, 7, 6 }, .order = { 0, 1, 2 } },
	{ "a_part_of_dimension_2", { 4, 5, 7 }, .order = { 0, 1, 2 } },
	{ "a_later_part", { 4, 5, 6 }, { 0, 1, 0 }, { 0, 1, 2 } },
	{ "turned", { 5, 4, 6 }, .order = { 1, 0, 2 } },
	{ "of_factors", { 4, 5, 6 }, .order = { 0, 1, 2 }, .no_boxes = true },
	{ "one_more", { 4, 5, 6 }, .order = { 0, 1, 2 }, .add = 1 },
};

TEST_ROWS(one_parts)
{
	static const uint64_t shown[] = { 4, 5, 6 };
	const struct one_part *x = *state;
	struct rsh_tensor t = { .n_dims = 3, .dims = x->dims }, *all[] = { &t };
	struct rsh_catalogue cat = { .tensors = all };
	struct rsh_factor f[3];
	struct rsh_recipe_part p = rsh_recipe_whole(&cat, 0, x->order, f);
	const struct rsh_offer o = {
		.n_dims = 3, .dims = shown, .n_parts = 1, .parts = &p,
		.boxes = !x->no_boxes, .add = x->add,
	};

	for (uint32_t d = 0; d < 3; d++)
		f[d].size = shown[d];
	p.from = x->from;
	assert_ptr_equal(rsh_offer_rows_of(&cat, &o), x->is >= ROWS ? &t : NULL);
	assert_ptr_equal(rsh_offer_tensor(&cat, &o), x->is == ALL ? &t : NULL);
}

/* A matrix of one part stays one, so that large ones take no memory. */
TEST(halves_of_one_part_are_one_part)
{
	const uint64_t dims[] = { 1 << 20, 4096 };
	struct rsh_tensor t = { .n_dims = 2, .dims = dims }, *all[] = { &t };
	struct rsh_catalogue cat = { .tensors = all };
	struct rsh_offer o = { .n_dims = 2, .dims = dims };
	FREED_BY(rsh_arena_clear) struct rsh_arena arena = { 0 };

	assert_int_equal(rsh_offer_whole(&cat, &arena, 0, NULL, &o), 0);
	assert_int_equal(rsh_offer_divide(&cat, &arena, &o, 0, 1 << 19), 0);
	assert_int_equal(o.n_parts, 1);
	assert_int_equal(o.parts->n_factors, 3);
	assert_int_equal(rsh_offer_join(&cat, &arena, &o, 0), 0);
	assert_int_equal(o.n_parts, 1);
	assert_int_equal(o.parts->n_factors, 2);
	assert_int_equal(o.dims[0], 1 << 20);
	for (unsigned i = 2; i < RSH_MAX_DIMS; i++)
		assert_int_equal(rsh_offer_divide(&cat, &arena, &o, i - 1, 1),
				 0);
	assert_int_equal(rsh_offer_divide(&cat, &arena, &o, 0, 1), -ENOTSUP);
}
