/* SPDX-License-Identifier: Apache-2.0 */
/* Random tensors, cut in random ways, shown by random recipes: every element is
 * where a plain loop says, and of the file that has it.  `RSH_SEED` repeats a
 * run, `RSH_CASES` says how many tensors there are. */
#include "recipe_support.h"

#include "rsh/plan/framing.h"

#define MAX_BYTES (1 << 16)

/* What was written in another order than row-major, in bytes. */
static uint64_t reordered;

/* Puts the elements of a slice, which are in row-major order, into the order of
 * the shape. */
static void put_in_order(const struct rsh_record_shape *s, uint8_t *content)
{
	static uint8_t from[MAX_BYTES];
	const uint64_t width = rsh_dtype_size(s->dtype);
	uint64_t stride[RSH_MAX_DIMS], step = width;

	if (!s->order)
		return;
	for (uint32_t d = s->n_dims; d-- > 0; step *= (uint64_t)s->dims[d])
		stride[d] = step;
	memcpy(from, content, s->content_bytes);
	for (uint64_t e = 0; e < s->content_bytes / width; e++) {
		uint64_t at = 0, left = e;

		for (uint32_t i = s->n_dims; i-- > 0;) {
			const uint64_t size = (uint64_t)s->dims[s->order[i]];

			at += left % size * stride[s->order[i]];
			left /= size;
		}
		memcpy(content + e * width, from + at, width);
	}
	reordered += s->content_bytes;
}

/* Contents without their file are in row-major order in any framing. */
static void check_content(const struct scene *s, uint32_t file, uint64_t n,
			  const uint8_t *want)
{
	struct rsh_piece_iter *it = rsh_piece_iter_content(s->plan, file, 0, 0,
							   n, NULL);
	static uint8_t have[MAX_BYTES];

	assert_non_null(it);
	scene_take(s, it, 0, n, have);
	assert_memory_equal(have, want, n);
}

/* The source files have all of a slice, and each has something of it. */
static void check_sources(const struct scene *s, const struct target *t,
			  const struct rsh_box *slice, uint32_t file)
{
	uint64_t at[RSH_MAX_DIMS] = { 0 }, there[RSH_MAX_DIMS];
	uint64_t listed = 0, wanted = 0;
	uint32_t n;
	const uint32_t *files = rsh_plan_sources(s->plan, file, &n);

	for (uint32_t i = 0; i < n; i++)
		listed |= UINT64_C(1) << files[i];
	do {
		uint64_t have;

		for (uint32_t d = 0; d < t->n_dims; d++)
			there[d] = slice->from[d] + at[d];
		have = scene_files(s, t, there);
		assert_true(have & listed);
		wanted |= have;
	} while (scene_step(at, slice->size, t->n_dims));
	assert_int_equal(listed & ~wanted, 0);
}

struct origins {
	const struct scene *s;
	const struct target *t;
	const struct rsh_box *slice;
	bool found[MAX_PARTS * MAX_ELEMENTS];
};

/* All elements of a box that is part of a target are of the same file. */
static void check_origin(void *ctx, const struct rsh_box *box,
			 const struct rsh_holder *h)
{
	struct origins *o = ctx;
	uint64_t at[RSH_MAX_DIMS] = { 0 }, there[RSH_MAX_DIMS];
	bool any = false;

	assert_non_null(h);
	do {
		uint64_t number = 0;
		bool has;

		for (uint32_t d = 0; d < o->t->n_dims; d++) {
			there[d] = box->from[d] + at[d];
			assert_in_range(there[d], o->slice->from[d],
					o->slice->from[d] + o->slice->size[d] -
					1);
			number = number * o->t->dims[d] + there[d];
		}
		has = scene_files(o->s, o->t, there) >> h->file & 1;
		assert_true(has || !o->t->n_boxes);
		o->found[number] |= has;
		any |= has;
	} while (scene_step(at, box->size, o->t->n_dims));
	assert_true(any);
}

static void check_origins(const struct scene *s, const struct target *t,
			  const struct rsh_box *slice, uint32_t shown,
			  uint32_t member)
{
	static struct origins o;
	uint64_t at[RSH_MAX_DIMS] = { 0 };

	memset(&o, 0, sizeof(o));
	o.s = s;
	o.t = t;
	o.slice = slice;
	rsh_plan_origins(s->plan, shown, member, check_origin, &o);
	do {
		uint64_t number = 0;

		for (uint32_t d = 0; d < t->n_dims; d++)
			number = number * t->dims[d] + slice->from[d] + at[d];
		assert_true(o.found[number]);
	} while (scene_step(at, slice->size, t->n_dims));
}

static void check_member(struct scene *s, const struct target *t,
			 const struct rsh_framing *framing,
			 const struct rsh_cut *cut, uint32_t shown,
			 uint32_t member)
{
	static uint8_t want[MAX_BYTES], have[MAX_BYTES];
	struct rsh_slot slot = { .name = 0, .shown = shown };
	struct rsh_record_shape shape;
	struct rsh_shown_file f = { .member = member, .n = 1, .slots = &slot,
				    .shapes = &shape };
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_virtual_record r;
	uint32_t number = rsh_plan_n_files(s->plan);
	struct rsh_chunks k;
	struct rsh_box box;
	uint64_t n, start;

	rsh_cut_box(cut, t->dims, rsh_cut_cell(cut, member), &box);
	n = scene_slice(s, t, &box, NULL, want);
	rsh_blueprint_shape(s->plan, shown, member, &shape);
	slot.content_bytes = shape.content_bytes;
	assert_int_equal(shape.content_bytes, n);
	for (uint32_t d = 0; d < t->n_dims; d++)
		assert_int_equal(shape.dims[d], box.size[d]);
	assert_good(rsh_blueprint_add_file(s->plan, &f, &err), err);
	check_sources(s, t, &box, number);
	check_origins(s, t, &box, shown, member);
	rsh_plan_record(s->plan, number, 0, &r);
	framing->chunks(&shape, &k);
	assert_int_equal(k.n, 1);
	start = r.offset + k.last_header;
	check_content(s, number, n, want);
	put_in_order(&shape, want);
	scene_read(s, number, start, n, have);
	assert_memory_equal(have, want, n);
	for (int i = 0; i < 4; i++) {
		uint64_t from = below((uint32_t)n), len;

		len = 1 + below((uint32_t)(n - from));
		scene_read(s, number, start + from, len, have);
		assert_memory_equal(have, want + from, len);
	}
	s->checked += n;
}

/* Shows a target, and checks the slices of all ranks. */
static void check_target(struct scene *s, const struct target *t,
			 const struct rsh_framing *framing,
			 const struct rsh_cut *cut)
{
	const struct rsh_shown show = {
		.dtype = t->wide ? RSH_DTYPE_FLOAT32 : RSH_DTYPE_BFLOAT16,
		.n_dims = (uint8_t)t->n_dims, .dims = t->dims, .cut = cut,
		.recipe = { t->n_parts, t->parts,
			    t->wide ? RSH_CODEC_BF16_TO_F32 : RSH_CODEC_NONE },
	};
	struct rsh_error err = RSH_ERROR_INIT;
	uint32_t shown;

	assert_good(rsh_blueprint_show(s->plan, &show, &shown, &err), err);
	for (uint32_t r = 0; r < rsh_cut_n_ranks(cut); r++)
		check_member(s, t, framing, cut, shown, r);
}

/* Some tensors are cut as their source is. */
static struct rsh_cut *draw_cut(const struct scene *s, const struct target *t,
				bool whole)
{
	const struct source *src = &s->tensors[t->parts[0].tensor];
	const struct rsh_cut *cut = s->cat->tensors[src->number]->cut;

	if (whole)
		return rsh_cut_of_grid(rsh_grid_make_whole(t->n_dims));
	if (below(2) && rsh_cut_grid(cut) && t->n_dims == src->n_dims &&
	    memcmp(t->dims, src->dims, t->n_dims * sizeof(*t->dims)) == 0)
		return rsh_cut_of_grid(rsh_grid_make(rsh_cut_grid(cut)));
	return scene_cut(t->dims, t->n_dims);
}

static uint64_t check_scene(void)
{
	const struct rsh_plan_ops writer = { 0 };
	/* This framing keeps the order of the source, if no cut divides the
	 * tensor. */
	const bool ordered = below(2);
	const struct rsh_blueprint b = {
		.framing = ordered ? &rsh_dcp_framing : &rsh_ckpt_framing,
		.replicas = true,
	};
	uint32_t n_tensors = 1 + below(MAX_TENSORS);
	struct scene s = { .names = rsh_names_new() };

	for (uint32_t i = 0; i < n_tensors; i++)
		scene_source(&s, i);
	scene_catalogue(&s, n_tensors);
	s.plan = rsh_blueprint_new(s.cat, &writer, &b);
	assert_non_null(s.plan);
	for (int i = 0; i < 4; i++) {
		const struct rsh_cut *cut;
		static struct target t;

		scene_target(&s, n_tensors, &t);
		cut = rsh_catalogue_keep_cut(s.cat, draw_cut(&s, &t, ordered));
		check_target(&s, &t, b.framing, cut);
	}
	scene_clear(&s);
	return s.checked;
}

TEST(every_element_is_in_its_place)
{
	reordered = 0;
	scene_cases(check_scene);
	assert_true(reordered > 0);
}

/* A dimension of a random tensor that has at least n elements. */
static uint32_t scene_long_source(struct scene *s, uint64_t n)
{
	for (;;) {
		*s = (struct scene){ .names = rsh_names_new() };
		scene_source(s, 0);
		scene_catalogue(s, 1);
		for (uint32_t d = 0; d < s->tensors[0].n_dims; d++)
			if (s->tensors[0].dims[d] >= n)
				return d;
		scene_clear(s);
	}
}

/* Part 0 has every other element up to the end; the others, which end long
 * before, lie between its elements. */
TEST(parts_inside_another_one_are_found)
{
	static const struct { uint64_t first, n; } at[MAX_PARTS] = {
		{ 0, 6 }, { 1, 2 }, { 5, 2 }, { 9, 1 },
	};
	const struct rsh_plan_ops writer = { 0 };
	const struct rsh_blueprint b = { .framing = &rsh_ckpt_framing,
					 .replicas = true };
	static struct target t = { .n_dims = 1, .dims = { 11 },
				   .n_parts = MAX_PARTS };
	FREED_BY(scene_clear) struct scene s;
	uint64_t step = 1;
	uint32_t d;

	numbers_begin(1);
	d = scene_long_source(&s, at[0].n);
	for (uint32_t i = d + 1; i < s.tensors[0].n_dims; i++)
		step *= s.tensors[0].dims[i];
	for (uint32_t i = 0; i < MAX_PARTS; i++) {
		t.factors[i][0] = (struct rsh_factor){ at[i].n, 2, 1, 0,
						       (uint8_t)d };
		t.shown_from[i][0] = at[i].first;
		t.parts[i] = (struct rsh_recipe_part){
			0, 1, t.factors[i], t.shown_from[i], t.from[i],
		};
		for (uint32_t k = 0; k < at[i].n; k++)
			t.places[at[i].first + 2 * k] = (struct scene_place){
				0, (uint32_t)(k * step),
			};
	}
	s.plan = rsh_blueprint_new(s.cat, &writer, &b);
	check_target(&s, &t, b.framing, rsh_catalogue_keep_cut(
		s.cat, rsh_cut_of_grid(rsh_grid_make_whole(1))));
	assert_int_equal(s.checked, 22);
}
