/* SPDX-License-Identifier: Apache-2.0 */
/* Random tensors, cut in random ways, shown by random recipes: every element is
 * where a plain loop says.  `RSH_SEED` repeats a run, `RSH_CASES` says how many
 * tensors there are. */
#include "plan_support.h"

#include <time.h>

#include "rsh/plan/blueprint.h"
#include "rsh/util/checked.h"

#define MAX_TENSORS 3
#define MAX_CELLS 24
#define MOST_DIMS 4

static uint64_t state;

static uint32_t below(uint32_t n)
{
	state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
	return (uint32_t)(state >> 33) % n;
}

/* ---- sources: one file a rank and tensor ---- */

struct image {
	uint8_t *bytes;
	uint64_t n;
};

struct source {
	uint32_t n_dims;
	uint64_t dims[RSH_MAX_DIMS];
	uint16_t first; /* element i has the value first + i */
	uint32_t number;
};

struct scene {
	struct rsh_names *names;
	struct rsh_ckpt_index *index[MAX_FILES];
	struct image files[MAX_FILES];
	uint32_t n_files;
	struct source tensors[MAX_TENSORS];
	struct rsh_cut *cuts[MAX_TENSORS];
	struct rsh_holder holders[MAX_TENSORS][MAX_CELLS];
	bool by_name[MAX_TENSORS];
	struct rsh_plan *plan;
	struct rsh_catalogue *cat;
	uint64_t checked;
};

/* Goes to the next element of a box of these sizes, row-major. */
static bool step(uint64_t *at, const uint64_t *size, uint32_t n)
{
	while (n-- > 0) {
		if (++at[n] < size[n])
			return true;
		at[n] = 0;
	}
	return false;
}

static uint64_t number_of(const uint64_t *at, const uint64_t *dims, uint32_t n)
{
	uint64_t i = 0;

	for (uint32_t d = 0; d < n; d++)
		i = i * dims[d] + at[d];
	return i;
}

static struct rsh_cut *even_cut(const uint64_t *dims, uint32_t n)
{
	struct rsh_grid_spec g;
	uint32_t stride = 1, n_axes = 0, replicas = 1 + below(2);

	memset(&g, 0, sizeof(g));
	g.n_dims = n;
	g.shard = 1;
	for (uint32_t d = 0; d < n; d++) {
		g.split[d] = 1 + below(3);
		if (dims[d] % g.split[d] || stride * g.split[d] > 8)
			g.split[d] = 1;
		g.first[d] = (uint8_t)n_axes;
		if (g.split[d] > 1)
			g.axes[n_axes++] = (struct rsh_grid_axis){ g.split[d],
								   stride };
		stride *= g.split[d];
	}
	g.first[n] = (uint8_t)n_axes;
	g.n_ranks = stride * replicas;
	if (replicas > 1)
		g.free[g.n_free++] = (struct rsh_grid_axis){ replicas, stride };
	return rsh_cut_of_grid(rsh_grid_make(&g));
}

/* Boxes that are cut in two again and again; some have two ranks. */
static struct rsh_cut *uneven_cut(const uint64_t *dims, uint32_t n)
{
	struct rsh_box boxes[MAX_CELLS] = { { .n_dims = n } };
	struct rsh_error err = RSH_ERROR_INIT;
	uint32_t n_boxes = 1, want = 1 + below(6);
	struct rsh_cut *cut;

	memcpy(boxes[0].size, dims, n * sizeof(*dims));
	for (uint32_t tries = 0; n > 0 && n_boxes < want && tries < 20;
	     tries++) {
		struct rsh_box *b = &boxes[below(n_boxes)];
		uint32_t d = below(n);
		uint64_t size = b->size[d];

		if (size < 2)
			continue;
		boxes[n_boxes] = *b;
		b->size[d] = 1 + below((uint32_t)size - 1);
		boxes[n_boxes].from[d] += b->size[d];
		boxes[n_boxes++].size[d] = size - b->size[d];
	}
	for (uint32_t i = n_boxes; i-- > 0;)
		if (below(3) == 0)
			boxes[n_boxes++] = boxes[i];
	if (rsh_cut_of_boxes(dims, n, boxes, n_boxes, &cut, &err))
		fail_msg("%s", err.text);
	return cut;
}

static struct rsh_cut *any_cut(const uint64_t *dims, uint32_t n)
{
	return below(2) ? even_cut(dims, n) : uneven_cut(dims, n);
}

/* The file that a rank of a cut has written. */
static void write_file(struct scene *s, struct source *t, uint32_t which,
		       uint32_t rank)
{
	struct rsh_box box;
	int64_t dims[RSH_MAX_DIMS];
	char name[32];
	uint64_t at[RSH_MAX_DIMS] = { 0 }, there[RSH_MAX_DIMS];
	struct tensor rec[] = {
		{ .name = name, .dtype = RSH_DTYPE_BFLOAT16, .dims = dims,
		  .n_dims = t->n_dims },
		{ .name = NULL },
	};
	struct rsh_ckpt_index *ix;
	uint8_t *p;

	if (s->by_name[which])
		snprintf(name, sizeof(name), "t%u", which);
	else
		snprintf(name, sizeof(name), "t%u of rank %u", which, rank);
	rsh_cut_box(s->cuts[which], t->dims, rsh_cut_cell(s->cuts[which], rank),
		    &box);
	for (uint32_t d = 0; d < t->n_dims; d++)
		dims[d] = (int64_t)box.size[d];
	assert_true(s->n_files < MAX_FILES);
	s->holders[which][rank] = (struct rsh_holder){
		rank, s->n_files, s->by_name[which] ? RSH_BY_NAME : 0
	};
	ix = s->index[s->n_files] = make_index(s->names, rec);
	s->files[s->n_files] = (struct image){ calloc(1, ix->file_bytes + 1),
					       ix->file_bytes };
	p = s->files[s->n_files++].bytes + GAP;
	do {
		uint16_t v;

		for (uint32_t d = 0; d < t->n_dims; d++)
			there[d] = box.from[d] + at[d];
		v = (uint16_t)(t->first + number_of(there, t->dims, t->n_dims));
		memcpy(p, &v, sizeof(v));
		p += sizeof(v);
	} while (step(at, box.size, t->n_dims));
}

static void make_source(struct scene *s, uint32_t which)
{
	struct source *t = &s->tensors[which];

	t->n_dims = 1 + below(MOST_DIMS);
	for (uint32_t d = 0; d < t->n_dims; d++)
		t->dims[d] = 1 + below(7);
	t->first = (uint16_t)(which * 20000);
	s->cuts[which] = any_cut(t->dims, t->n_dims);
	s->by_name[which] = below(2);
	for (uint32_t r = 0; r < rsh_cut_n_ranks(s->cuts[which]); r++)
		write_file(s, t, which, r);
}

/* ---- recipes ---- */

struct target {
	uint32_t n_dims;
	uint64_t dims[RSH_MAX_DIMS];
	uint32_t n_parts;
	struct rsh_recipe_part parts[4];
	bool wide; /* shown as Float32 */
};

/* A part whose box has the sizes of a random box of a random tensor, its
 * dimensions in any order. */
static void draw_part(struct scene *s, uint32_t n_tensors,
		      struct rsh_recipe_part *p, uint32_t *n_dims)
{
	uint32_t which = below(n_tensors), order[RSH_MAX_DIMS], n = 0;
	const struct source *t = &s->tensors[which];

	memset(p, 0, sizeof(*p));
	p->tensor = which;
	for (uint32_t i = 0; i < t->n_dims; i++) {
		p->axis[i] = RSH_FIXED;
		p->base[i] = below((uint32_t)t->dims[i]);
		if (below(4))
			order[n++] = i;
	}
	for (uint32_t i = n; below(2) && i > 1; i--) {
		uint32_t k = below(i), swap = order[k];

		order[k] = order[i - 1];
		order[i - 1] = swap;
	}
	for (uint32_t d = 0; d < n; d++) {
		uint32_t i = order[d];

		p->axis[i] = (uint8_t)d;
		p->base[i] = below(3) ? 0 : p->base[i];
		p->box.size[d] = t->dims[i] - p->base[i];
	}
	p->box.n_dims = *n_dims = n;
}

/* One part, or several that follow each other along dimension 0. */
static void draw_target(struct scene *s, uint32_t n_tensors, struct target *t)
{
	uint64_t rows = 0;

	memset(t, 0, sizeof(*t));
	t->wide = below(3) == 0;
	draw_part(s, n_tensors, &t->parts[0], &t->n_dims);
	memcpy(t->dims, t->parts[0].box.size, sizeof(t->dims));
	t->n_parts = 1;
	if (t->n_dims == 0)
		return;
	rows = t->dims[0];
	while (t->n_parts < 4 && below(2)) {
		struct rsh_recipe_part *p = &t->parts[t->n_parts];

		/* The same tensor gives the same sizes. */
		*p = t->parts[0];
		p->box.from[0] = rows;
		p->box.size[0] = 1 + below((uint32_t)p->box.size[0]);
		rows += p->box.size[0];
		t->n_parts++;
	}
	t->dims[0] = rows;
}

static uint16_t element(const struct scene *s, const struct target *t,
			const uint64_t *at)
{
	const struct rsh_recipe_part *p = t->parts;
	uint64_t in[RSH_MAX_DIMS];
	const struct source *src;

	while (t->n_dims && at[0] >= p->box.from[0] + p->box.size[0])
		p++;
	src = &s->tensors[p->tensor];
	for (uint32_t i = 0; i < src->n_dims; i++)
		in[i] = p->base[i] + (p->axis[i] == RSH_FIXED ? 0 :
			at[p->axis[i]] - p->box.from[p->axis[i]]);
	return (uint16_t)(src->first + number_of(in, src->dims, src->n_dims));
}

/* ---- the plan, and its bytes ---- */

static void begin(struct scene *s, uint32_t n_tensors)
{
	const char *path[MAX_FILES] = { 0 };
	const struct rsh_source_view view = {
		.n_ranks = s->n_files,
		.index = (const struct rsh_ckpt_index *const *)s->index,
		.path = path, .names = s->names,
	};
	const struct rsh_writer writer = { 0 };
	const struct rsh_blueprint b = { .replicas = true };

	s->cat = rsh_catalogue_new(&view);
	assert_non_null(s->cat);
	for (uint32_t i = 0; i < n_tensors; i++) {
		struct source *t = &s->tensors[i];
		struct rsh_cut *made = s->cuts[i];
		uint32_t n = rsh_cut_n_ranks(made);
		char name[8];
		struct rsh_tensor tensor = {
			.dtype = RSH_DTYPE_BFLOAT16,
			.n_dims = (uint8_t)t->n_dims, .dims = t->dims,
		};

		snprintf(name, sizeof(name), "t%u", i);
		tensor.name = rsh_names_add(s->names, name, strlen(name));
		tensor.cut = rsh_catalogue_keep_cut(s->cat, made);
		tensor.copies = rsh_catalogue_keep_copies(
			s->cat, tensor.cut, s->holders[i], n, true);
		assert_non_null(tensor.copies);
		assert_int_equal(rsh_catalogue_add(s->cat, &tensor,
						   &t->number), 0);
	}
	s->plan = rsh_blueprint_new(s->cat, &writer, &b);
	assert_non_null(s->plan);
}

/* Puts the bytes of a piece where they belong. */
static void fetch(const struct scene *s, const struct rsh_piece *p,
		  uint64_t further, uint8_t *out)
{
	const struct image *f = &s->files[p->src_rank];
	static uint8_t wide[1 << 14]; /* 7 x 7 x 7 x 7 of four bytes */
	size_t n;

	if (p->is_header) {
		memcpy(out, p->header, p->length);
		return;
	}
	assert_true(p->src_offset + further + p->src_length <= f->n);
	if (p->codec == RSH_CODEC_NONE) {
		memcpy(out, f->bytes + p->src_offset + further, p->length);
		return;
	}
	assert_true(p->src_length * 2 <= sizeof(wide));
	n = rsh_codec_decode(p->codec, f->bytes + p->src_offset, p->src_length,
			     wide);
	assert_true(p->skip + p->length <= n);
	memcpy(out, wide + p->skip, p->length);
}

/* Reads a range, taking rows together or one by one. */
static void read_range(const struct scene *s, uint32_t file, uint64_t from,
		       uint64_t len, uint8_t *out)
{
	struct rsh_piece_iter *it = rsh_piece_iter_new(s->plan, file, from,
						       len, NULL);
	static struct rsh_piece row[1 << 14];
	struct rsh_piece p;
	unsigned n_row = 0;
	struct rsh_rows rows;
	uint64_t at = 0;
	bool together = below(2);

	assert_non_null(it);
	while (rsh_piece_iter_next(it, &p)) {
		assert_int_equal(p.file_offset, from + at);
		fetch(s, &p, 0, out + at);
		at += p.length;
		assert_true(n_row < 1 << 14);
		row[n_row++] = p;
		if (!together || !rsh_piece_iter_rows(it, &rows))
			continue;
		for (uint64_t i = 1; i <= rows.n; i++) {
			uint64_t have = 0;
			unsigned k = n_row;

			while (have < rows.bytes)
				have += row[--k].length;
			assert_int_equal(have, rows.bytes);
			for (; k < n_row; k++) {
				fetch(s, &row[k], i * rows.src_stride,
				      out + at);
				at += row[k].length;
			}
		}
		rsh_piece_iter_skip(it, &rows);
		n_row = 0;
	}
	rsh_piece_iter_free(it);
	assert_int_equal(at, len);
}

/* What the slice of a member is to be. */
static uint64_t expect_slice(const struct scene *s, const struct target *t,
			     const struct rsh_cut *cut, uint32_t member,
			     uint8_t *out)
{
	uint64_t at[RSH_MAX_DIMS] = { 0 }, there[RSH_MAX_DIMS];
	struct rsh_box box;
	uint64_t n = 0;

	rsh_cut_box(cut, t->dims, rsh_cut_cell(cut, member), &box);
	do {
		uint16_t v;
		uint32_t wide;

		for (uint32_t d = 0; d < t->n_dims; d++)
			there[d] = box.from[d] + at[d];
		v = element(s, t, there);
		wide = (uint32_t)v << 16;
		if (t->wide)
			memcpy(out + n, &wide, sizeof(wide));
		else
			memcpy(out + n, &v, sizeof(v));
		n += t->wide ? 4 : 2;
	} while (step(at, box.size, t->n_dims));
	return n;
}

static void check_member(struct scene *s, const struct target *t,
			 const struct rsh_cut *cut, uint32_t shown,
			 uint32_t member)
{
	static uint8_t want[1 << 16], have[1 << 16];
	struct rsh_slot slot = { .name = 0, .shown = shown };
	struct rsh_record_shape shape;
	struct rsh_shown_file f = { .member = member, .n = 1, .slots = &slot,
				    .shapes = &shape };
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_virtual_record r;
	uint32_t number = rsh_plan_n_files(s->plan);
	uint64_t n = expect_slice(s, t, cut, member, want), start;

	rsh_blueprint_shape(s->plan, shown, member, &shape);
	slot.content_bytes = shape.content_bytes;
	assert_int_equal(shape.content_bytes, n);
	if (rsh_blueprint_add_file(s->plan, &f, &err))
		fail_msg("%s", err.text);
	rsh_plan_record(s->plan, number, 0, &r);
	start = r.offset + r.total_bytes - n;
	read_range(s, number, start, n, have);
	assert_memory_equal(have, want, n);
	for (int i = 0; i < 4; i++) {
		uint64_t from = below((uint32_t)n), len;

		len = 1 + below((uint32_t)(n - from));
		read_range(s, number, start + from, len, have);
		assert_memory_equal(have, want + from, len);
	}
	s->checked += n;
}

static uint64_t check_scene(void)
{
	struct rsh_error err = RSH_ERROR_INIT;
	uint32_t n_tensors = 1 + below(MAX_TENSORS);
	struct scene s = { .names = rsh_names_new() };

	for (uint32_t i = 0; i < n_tensors; i++)
		make_source(&s, i);
	begin(&s, n_tensors);
	for (int i = 0; i < 4; i++) {
		const struct rsh_cut *cut;
		struct target t;
		struct rsh_shown show;
		uint32_t shown;

		draw_target(&s, n_tensors, &t);
		cut = rsh_catalogue_keep_cut(s.cat, any_cut(t.dims, t.n_dims));
		show = (struct rsh_shown){
			.dtype = t.wide ? RSH_DTYPE_FLOAT32 :
					  RSH_DTYPE_BFLOAT16,
			.n_dims = (uint8_t)t.n_dims, .dims = t.dims,
			.cut = cut,
			.recipe = { t.n_parts, t.parts,
				    t.wide ? RSH_CODEC_BF16_TO_F32 :
					     RSH_CODEC_NONE },
		};
		for (uint32_t k = 0; k < t.n_parts; k++)
			t.parts[k].tensor = s.tensors[t.parts[k].tensor].number;
		if (rsh_blueprint_show(s.plan, &show, &shown, &err))
			fail_msg("%s", err.text);
		for (uint32_t r = 0; r < rsh_cut_n_ranks(cut); r++)
			check_member(&s, &t, cut, shown, r);
	}
	rsh_plan_free(s.plan);
	for (uint32_t i = 0; i < s.n_files; i++) {
		rsh_ckpt_index_free(s.index[i]);
		free(s.files[i].bytes);
	}
	rsh_names_free(s.names);
	return s.checked;
}

static void every_element_is_in_its_place(void **unused)
{
	const char *seed = getenv("RSH_SEED"), *cases = getenv("RSH_CASES");
	uint64_t first = seed ? strtoull(seed, NULL, 10) : (uint64_t)time(NULL);
	uint64_t n = cases ? strtoull(cases, NULL, 10) : 3000, checked = 0;

	(void)unused;
	print_message("# RSH_SEED=%llu RSH_CASES=%llu\n",
		      (unsigned long long)first, (unsigned long long)n);
	for (uint64_t i = 0; i < n; i++) {
		state = first + i;
		below(2);
		checked += check_scene();
	}
	print_message("# %llu bytes\n", (unsigned long long)checked);
	assert_true(checked > n);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_element_is_in_its_place),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
