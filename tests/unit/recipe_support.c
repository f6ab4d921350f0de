/* SPDX-License-Identifier: Apache-2.0 */
#include "recipe_support.h"

#include <time.h>

#include "rsh/util/checked.h"

#define MOST_DIMS 4

uint64_t scene_tiled;

void scene_cases(uint64_t (*each)(void))
{
	const char *seed = getenv("RSH_SEED"), *cases = getenv("RSH_CASES");
	uint64_t first = seed ? strtoull(seed, NULL, 10) : (uint64_t)time(NULL);
	uint64_t n = cases ? strtoull(cases, NULL, 10) : (uint64_t)rounds(3000),
		 checked = 0;

	print_message("# RSH_SEED=%llu RSH_CASES=%llu\n",
		      (unsigned long long)first, (unsigned long long)n);
	for (uint64_t i = 0; i < n; i++) {
		numbers_begin(first + i);
		checked += each();
	}
	print_message("# %llu bytes, and %llu of tiles\n",
		      (unsigned long long)checked,
		      (unsigned long long)scene_tiled);
	assert_true(checked > n);
}

/* ---- sources ---- */

bool scene_step(uint64_t *at, const uint64_t *size, uint32_t n)
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
	struct rsh_grid g;
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
static struct rsh_cut *uneven_cut(const uint64_t *dims, uint32_t n, bool gaps)
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
	for (uint32_t i = n_boxes; gaps && n_boxes > 1 && i-- > 0;)
		if (below(8) == 0)
			boxes[i] = boxes[--n_boxes];
	for (uint32_t i = n_boxes; i-- > 0;)
		if (below(3) == 0)
			boxes[n_boxes++] = boxes[i];
	assert_good(rsh_cut_of_boxes(dims, n, boxes, n_boxes, &cut, &err), err);
	return cut;
}

struct rsh_cut *scene_cut(const uint64_t *dims, uint32_t n)
{
	return below(2) ? even_cut(dims, n) : uneven_cut(dims, n, false);
}

/* Large records of a .ckpt are in several extents; cuts the only record of a
 * file. */
static void draw_extents(struct rsh_ckpt_index *ix)
{
	struct rsh_record *r = ix->records;
	struct rsh_extent *e = realloc(ix->extents, 4 * sizeof(*e));

	assert_non_null(e);
	ix->extents = e;
	while (r->n_extents < 4 && below(3) == 0) {
		struct rsh_extent *last = &e[r->n_extents - 1];
		uint64_t n = last->length / 2, keep;

		if (n < 2)
			break;
		keep = 2 * (1 + below((uint32_t)n - 1));
		e[r->n_extents++] = (struct rsh_extent){
			last->offset + keep + 6, last->length - keep
		};
		last->length = keep;
		ix->file_bytes += 6;
	}
	ix->n_extents = r->n_extents;
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
	const struct rsh_extent *e;
	struct rsh_ckpt_index *ix;
	uint64_t n = 0;
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
	if (s->gaps && below(12) == 0)
		return;
	s->holders[which][s->n_holders[which]++] = (struct rsh_holder){
		rank, s->n_files, s->by_name[which] ? RSH_BY_NAME : 0
	};
	ix = s->index[s->n_files] = make_index(s->names, rec);
	draw_extents(ix);
	e = ix->extents;
	s->files[s->n_files] = (struct image){ calloc(1, ix->file_bytes + 1),
					       ix->file_bytes };
	p = s->files[s->n_files++].bytes;
	do {
		uint64_t number;
		uint16_t v;

		for (uint32_t d = 0; d < t->n_dims; d++)
			there[d] = box.from[d] + at[d];
		number = number_of(there, t->dims, t->n_dims);
		v = (uint16_t)(t->first + number);
		s->have[which][number] |= UINT64_C(1) << (s->n_files - 1);
		if (n == e->length) {
			e++;
			n = 0;
		}
		memcpy(p + e->offset + n, &v, sizeof(v));
		n += sizeof(v);
	} while (scene_step(at, box.size, t->n_dims));
}

/* Some dimensions have many divisors. */
static void draw_dims(struct source *t)
{
	static const uint8_t composite[] = { 8, 9, 12, 16, 24 };
	uint64_t n = 1;

	t->n_dims = 1 + below(MOST_DIMS);
	for (uint32_t d = 0; d < t->n_dims; d++) {
		t->dims[d] = 1 + below(7);
		if (below(3) == 0)
			t->dims[d] = composite[below(sizeof(composite))];
		if (n * t->dims[d] > MAX_ELEMENTS)
			t->dims[d] = 1;
		n *= t->dims[d];
	}
}

void scene_source(struct scene *s, uint32_t which)
{
	struct source *t = &s->tensors[which];

	if (which > 0 && below(2))
		*t = s->tensors[which - 1];
	else
		draw_dims(t);
	t->first = (uint16_t)(which * 20000);
	s->cuts[which] = s->gaps && below(2) ?
		uneven_cut(t->dims, t->n_dims, true) :
		scene_cut(t->dims, t->n_dims);
	s->have[which] = calloc(MAX_ELEMENTS, sizeof(**s->have));
	s->by_name[which] = below(2);
	for (uint32_t r = 0; r < rsh_cut_n_ranks(s->cuts[which]); r++)
		write_file(s, t, which, r);
}

/* ---- recipes ---- */

/* A part whose box has the sizes of a random box of a random tensor, its
 * dimensions in any order. */
static void draw_part(struct scene *s, uint32_t n_tensors, struct box_part *p,
		      uint32_t *n_dims)
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

/* ---- factored ones ---- */

/* A digit of the source's places, and what is shown of it. */
struct digit {
	uint32_t dim;
	uint64_t size, step;
	bool fixed; /* each part stays at a place of its own */
};

/* The parts of a target have the same digits in the same order, and differ in
 * what they have of one of them: their alternatives.  The last digit is one
 * that no source has. */
struct factoring {
	uint32_t n, order[MAX_DIGITS], alternative;
	struct digit digits[MAX_DIGITS];
	const struct source *like; /* the sources have its dimensions */
	uint32_t which[MAX_PARTS];
	uint64_t from[MAX_PARTS][MAX_DIGITS], size[MAX_PARTS][MAX_DIGITS];
	uint8_t dim[MAX_DIGITS]; /* of the target: [place in the order] */
};

/* Divides each dimension of a source into digits. */
static void draw_digits(const struct source *src, struct factoring *f)
{
	for (uint32_t d = 0; d < src->n_dims; d++) {
		uint64_t left = src->dims[d], step = 1;

		while (f->n < MAX_DIGITS - 4) {
			uint64_t size = left;

			if (below(2))
				for (size = 2; size < left && left % size; )
					size++;
			if (size > left || size == 0)
				size = left;
			f->digits[f->n++] = (struct digit){
				d, size, step, below(6) == 0
			};
			step *= size;
			left /= size;
			if (left <= 1)
				break;
		}
		if (left > 1) /* no room: only a part is shown */
			f->digits[f->n - 1].fixed = true;
	}
	f->digits[f->n++] = (struct digit){ 0, 1, 0, false };
}

static void draw_order(struct target *t, struct factoring *f)
{
	uint32_t n_shown = 0;

	for (uint32_t i = 0; i < f->n; i++)
		if (!f->digits[f->n - 1 - i].fixed)
			f->order[n_shown++] = f->n - 1 - i;
	/* Sources have their last digit first. */
	for (uint32_t i = n_shown; below(3) && i > 1; i--) {
		uint32_t k = below(i), swap = f->order[k];

		f->order[k] = f->order[i - 1];
		f->order[i - 1] = swap;
	}
	f->alternative = f->order[below(n_shown)];
	t->n_dims = 1;
	for (uint32_t i = 0; i < n_shown; i++) {
		if (i > 0 && t->n_dims < MOST_DIMS && below(3) == 0)
			t->n_dims++;
		f->dim[i] = (uint8_t)(t->n_dims - 1);
	}
	for (uint32_t i = n_shown; i < f->n; i++)
		f->order[i] = RSH_MAX_DIMS;
}

/* Draws which source a part is of, and which of its digits it has. */
static void draw_alternative(const struct scene *s, uint32_t n_tensors,
			     struct factoring *f, uint32_t part)
{
	const struct source *src;

	do {
		f->which[part] = below(n_tensors);
		src = &s->tensors[f->which[part]];
	} while (src->n_dims != f->like->n_dims ||
		 memcmp(src->dims, f->like->dims, sizeof(src->dims)));
	for (uint32_t i = 0; i < f->n; i++) {
		const struct digit *d = &f->digits[i];

		f->from[part][i] = 0;
		f->size[part][i] = d->size;
		if (d->fixed) {
			f->from[part][i] = below((uint32_t)d->size);
			f->size[part][i] = 1;
		} else if (i == f->alternative && below(2)) {
			f->size[part][i] = 1 + below((uint32_t)d->size);
			f->from[part][i] = below(
				(uint32_t)(d->size - f->size[part][i] + 1));
		}
	}
}

/* Says a part as the plan wants it; `steps` are those of the digits as they are
 * shown, in their order. */
static void say_part(struct target *t, const struct factoring *f, uint32_t part,
		     const uint64_t *steps, uint64_t before)
{
	struct rsh_recipe_part *p = &t->parts[part];

	*p = (struct rsh_recipe_part){
		.tensor = f->which[part], .factors = t->factors[part],
		.shown_from = t->shown_from[part], .from = t->from[part],
	};
	for (uint32_t i = 0; i < f->n; i++)
		t->from[part][f->digits[i].dim] +=
			f->from[part][i] * f->digits[i].step;
	for (uint32_t k = 0; k < f->n && f->order[k] != RSH_MAX_DIMS; k++) {
		const uint32_t i = f->order[k];
		const struct digit *d = &f->digits[i];

		if (i == f->alternative)
			t->shown_from[part][f->dim[k]] = before * steps[k];
		if (!d->step || (f->size[part][i] == 1 && below(2)))
			continue;
		t->factors[part][p->n_factors++] = (struct rsh_factor){
			f->size[part][i], steps[k], d->step, f->dim[k],
			(uint8_t)d->dim
		};
	}
}

/* Goes through the elements of a part in any order. */
static void place_part(const struct scene *s, struct target *t, uint32_t part)
{
	const struct rsh_recipe_part *p = &t->parts[part];
	const struct source *src = &s->tensors[p->tensor];
	uint64_t size[MAX_DIGITS], k[MAX_DIGITS] = { 0 };

	for (uint32_t i = 0; i < p->n_factors; i++)
		size[i] = p->factors[i].size;
	do {
		uint64_t shown[RSH_MAX_DIMS], in[RSH_MAX_DIMS], e;

		memcpy(shown, p->shown_from, sizeof(shown));
		memcpy(in, p->from, sizeof(in));
		for (uint32_t i = 0; i < p->n_factors; i++) {
			const struct rsh_factor *f = &p->factors[i];

			shown[f->shown_dim] += k[i] * f->shown_step;
			in[f->dim] += k[i] * f->step;
		}
		e = number_of(shown, t->dims, t->n_dims);
		assert_true(e < MAX_PARTS * MAX_ELEMENTS);
		t->places[e] = (struct scene_place){
			p->tensor,
			(uint32_t)number_of(in, src->dims, src->n_dims)
		};
	} while (scene_step(k, size, p->n_factors));
}

/* Adds a part without elements: one of the others, with a factor of size 0. */
static void draw_empty(struct target *t)
{
	const uint32_t n = t->n_parts, like = below(n);

	if (n == MAX_PARTS || !t->parts[like].n_factors || below(3))
		return;
	t->parts[n] = t->parts[like];
	memcpy(t->factors[n], t->factors[like], sizeof(t->factors[n]));
	t->parts[n].factors = t->factors[n];
	t->factors[n][below(t->parts[n].n_factors)].size = 0;
	t->n_parts++;
}

static void draw_factored(struct scene *s, uint32_t n_tensors, struct target *t)
{
	struct factoring f = { .like = &s->tensors[below(n_tensors)] };
	uint64_t steps[MAX_DIGITS] = { 0 }, sum = 0, before = 0;

	draw_digits(f.like, &f);
	draw_order(t, &f);
	t->n_parts = 1 + below(MAX_PARTS);
	for (uint32_t i = 0; i < t->n_parts; i++) {
		draw_alternative(s, n_tensors, &f, i);
		sum += f.size[i][f.alternative];
	}
	for (uint32_t d = 0; d < t->n_dims; d++)
		t->dims[d] = 1;
	for (uint32_t k = f.n; k-- > 0;) {
		const uint32_t i = f.order[k];

		if (i == RSH_MAX_DIMS)
			continue;
		steps[k] = t->dims[f.dim[k]];
		t->dims[f.dim[k]] *= i == f.alternative ? sum :
							  f.digits[i].size;
	}
	for (uint32_t i = 0; i < t->n_parts; i++) {
		say_part(t, &f, i, steps, before);
		before += f.size[i][f.alternative];
		place_part(s, t, i);
	}
	draw_empty(t);
}

/* Says a box as the plan wants it: its factors are in the order of the
 * dimensions that are shown. */
static void say_box(const struct scene *s, struct target *t, uint32_t part)
{
	const struct box_part *b = &t->boxes[part];
	struct rsh_recipe_part *p = &t->parts[part];
	const uint32_t n_in = s->tensors[b->tensor].n_dims;

	*p = (struct rsh_recipe_part){
		b->tensor, b->box.n_dims, t->factors[part], b->box.from,
		b->base
	};
	for (uint32_t i = 0; i < n_in; i++)
		if (b->axis[i] != RSH_FIXED)
			t->factors[part][b->axis[i]] = (struct rsh_factor){
				b->box.size[b->axis[i]], 1, 1, b->axis[i],
				(uint8_t)i
			};
}

/* One part, or several that follow each other along dimension 0, or factored
 * ones. */
void scene_target(struct scene *s, uint32_t n_tensors, struct target *t)
{
	uint64_t rows = 0;

	memset(t, 0, sizeof(*t));
	t->wide = below(3) == 0;
	if (below(2)) {
		draw_factored(s, n_tensors, t);
		return;
	}
	draw_part(s, n_tensors, &t->boxes[0], &t->n_dims);
	memcpy(t->dims, t->boxes[0].box.size, sizeof(t->dims));
	t->n_boxes = 1;
	rows = t->dims[0];
	while (t->n_dims > 0 && t->n_boxes < MAX_PARTS && below(2)) {
		struct box_part *p = &t->boxes[t->n_boxes];

		/* The same tensor gives the same sizes. */
		*p = t->boxes[0];
		p->box.from[0] = rows;
		p->box.size[0] = 1 + below((uint32_t)p->box.size[0]);
		rows += p->box.size[0];
		t->n_boxes++;
	}
	if (t->n_dims > 0)
		t->dims[0] = rows;
	for (; t->n_parts < t->n_boxes; t->n_parts++)
		say_box(s, t, t->n_parts);
}

const struct source *scene_place(const struct scene *s, const struct target *t,
				 const uint64_t *at, uint64_t *number)
{
	const struct box_part *p = t->boxes;
	uint64_t in[RSH_MAX_DIMS];
	const struct source *src;

	if (!t->n_boxes) {
		const struct scene_place *e =
			&t->places[number_of(at, t->dims, t->n_dims)];

		*number = e->number;
		return &s->tensors[e->which];
	}
	while (t->n_dims && at[0] >= p->box.from[0] + p->box.size[0])
		p++;
	src = &s->tensors[p->tensor];
	for (uint32_t i = 0; i < src->n_dims; i++)
		in[i] = p->base[i] + (p->axis[i] == RSH_FIXED ? 0 :
			at[p->axis[i]] - p->box.from[p->axis[i]]);
	*number = number_of(in, src->dims, src->n_dims);
	return src;
}

/* ---- the plan, and its bytes ---- */

uint32_t tensor_add(struct rsh_catalogue *c, const char *name,
		    struct rsh_tensor t, struct rsh_cut *cut,
		    const struct rsh_holder *holders, uint32_t n)
{
	uint32_t number;

	t.name = rsh_names_add(c->names, name, strlen(name));
	t.cut = rsh_catalogue_keep_cut(c, cut);
	t.copies = rsh_catalogue_keep_copies(c, t.cut, holders, n, true);
	assert_non_null(t.copies);
	assert_int_equal(rsh_catalogue_add(c, &t, &number), 0);
	return number;
}

void scene_catalogue(struct scene *s, uint32_t n_tensors)
{
	const char *path[MAX_FILES] = { 0 };
	const struct rsh_source_view view = {
		.n_ranks = s->n_files,
		.index = (const struct rsh_ckpt_index *const *)s->index,
		.path = path, .names = s->names,
	};

	s->cat = rsh_catalogue_new(&view);
	assert_non_null(s->cat);
	for (uint32_t i = 0; i < n_tensors; i++) {
		struct source *t = &s->tensors[i];
		const struct rsh_tensor tensor = {
			.dtype = RSH_DTYPE_BFLOAT16,
			.n_dims = (uint8_t)t->n_dims, .dims = t->dims,
		};
		char name[16];

		snprintf(name, sizeof(name), "t%u", i);
		t->number = tensor_add(s->cat, name, tensor, s->cuts[i],
				       s->holders[i], s->n_holders[i]);
	}
}

void scene_clear(struct scene *s)
{
	rsh_plan_free(s->plan);
	for (uint32_t i = 0; i < s->n_files; i++) {
		rsh_ckpt_index_free(s->index[i]);
		free(s->files[i].bytes);
	}
	for (uint32_t i = 0; i < MAX_TENSORS; i++)
		free(s->have[i]);
	rsh_names_free(s->names);
}

/* Turns a tile element by element, and takes the bytes of a piece. */
static void fetch_tiled(const struct scene *s, const struct rsh_piece *p,
			uint8_t *out)
{
	const struct rsh_tile *t = &p->tile;
	const struct image *f = &s->files[t->src_rank];
	static uint8_t shown[1 << 15];
	uint8_t *to = shown;

	assert_true(t->n_columns <= t->stride && t->n_rows > 0);
	assert_true(t->n_rows * t->n_columns * t->unit_out <= sizeof(shown));
	assert_true(t->src_offset + ((t->n_rows - 1) * t->stride +
				     t->n_columns) * t->unit_in <= f->n);
	for (uint64_t j = 0; j < t->n_columns; j++)
		for (uint64_t i = 0; i < t->n_rows; i++) {
			const uint64_t e = i * t->stride + j;

			to += rsh_codec_decode(p->codec, f->bytes +
					       t->src_offset + e * t->unit_in,
					       t->unit_in, to);
		}
	assert_true(p->tile_offset + p->length <= (uint64_t)(to - shown));
	memcpy(out, shown + p->tile_offset, p->length);
}

/* Puts the bytes of a piece where they belong. */
static void fetch(const struct scene *s, const struct rsh_piece *p,
		  uint64_t further, uint8_t *out)
{
	static uint8_t wide[MAX_ELEMENTS * 4];
	const struct image *f;
	size_t n;

	if (p->is_header) {
		memcpy(out, p->header, p->length);
		return;
	}
	if (p->is_tiled) {
		fetch_tiled(s, p, out);
		scene_tiled += p->length;
		return;
	}
	f = &s->files[p->src_rank];
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

void scene_read(const struct scene *s, uint32_t file, uint64_t from,
		uint64_t len, uint8_t *out)
{
	scene_take(s, rsh_piece_iter_new(s->plan, file, from, len, NULL), from,
		   len, out);
}

void scene_take(const struct scene *s, struct rsh_piece_iter *it, uint64_t from,
		uint64_t len, uint8_t *out)
{
	static struct rsh_piece row[1 << 15];
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
		assert_true(n_row < 1 << 15);
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

uint64_t scene_files(const struct scene *s, const struct target *t,
		     const uint64_t *at)
{
	uint64_t number;
	const struct source *src = scene_place(s, t, at, &number);

	return s->have[src - s->tensors][number];
}

uint64_t scene_slice(const struct scene *s, const struct target *t,
		     const struct rsh_box *box, bool *all, uint8_t *out)
{
	uint64_t at[RSH_MAX_DIMS] = { 0 }, there[RSH_MAX_DIMS], n = 0;

	do {
		const struct source *src;
		uint64_t number;
		uint32_t wide;
		uint16_t v;

		for (uint32_t d = 0; d < t->n_dims; d++)
			there[d] = box->from[d] + at[d];
		src = scene_place(s, t, there, &number);
		v = (uint16_t)(src->first + number);
		if (all)
			*all &= s->have[src - s->tensors][number] != 0;
		wide = (uint32_t)v << 16;
		if (t->wide)
			memcpy(out + n, &wide, sizeof(wide));
		else
			memcpy(out + n, &v, sizeof(v));
		n += t->wide ? 4 : 2;
	} while (scene_step(at, box->size, t->n_dims));
	return n;
}
