/* SPDX-License-Identifier: Apache-2.0 */
/* cli/plan_svg_tensor.c draws one tensor twice: as the source's files have it,
 * and as the destination's will. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "plan_svg.h"
#include "rsh/strategy/fold.h"
#include "rsh/strategy/strategy.h"
#include "rsh/util/mem.h"
#include "text.h"

#define SIDE_WIDTH 340
#define SIDE_MIN_WIDTH 200
#define SIDE_MIN_HEIGHT 110
#define SIDE_HEIGHT 240
#define STRIP_HEIGHT 44
#define HEAD_HEIGHT 58 /* of name and captions */
#define TENSOR_GAP 34

/* ---- a side ---- */

static int seen_by_slice(const void *a, const void *b)
{
	const struct rsh_seen *x = a, *y = b;

	return (x->slice > y->slice) - (x->slice < y->slice);
}

/* Draws the edges of what the axes of the mesh alone cut. */
static void draw_slices(struct rsh_plan_page *p, struct rsh_seen *seen,
			size_t n)
{
	qsort(seen, n, sizeof(*seen), seen_by_slice);
	for (size_t i = 0, end; i < n; i = end) {
		struct rsh_svg_box at = seen[i].at;

		for (end = i; end < n && seen[end].slice == seen[i].slice;
		     end++)
			rsh_svg_box_join(&at, &seen[end].at);
		rsh_svg_rect(&p->svg, &at, "slice", NULL);
	}
}

static int draw_side(struct rsh_plan_page *p, const struct rsh_pane *s,
		     uint32_t tensor)
{
	struct rsh_seen *seen;
	size_t n, end;
	bool together = false;
	int rc = rsh_plan_seen(s, &seen, &n);

	/* Where no box is it stays so. */
	if (s->lost)
		rsh_svg_rect(&p->svg, &s->at, "lost", NULL);
	for (size_t i = 0; i < n && rc == 0; i = end) {
		for (end = i; end < n && seen[end].block == seen[i].block;)
			end++;
		together |= end - i > 1;
		rc = rsh_plan_draw_block(p, s, tensor, seen + i, end - i);
	}
	if (rc == 0 && s->shard > 1 && !together)
		draw_slices(p, seen, n);
	rsh_svg_rect(&p->svg, &s->at, "slice", NULL);
	free(seen);
	return rc;
}

/* ---- which dimensions, and how large ---- */

/* Picks the two dimensions that are drawn: the first that are cut, on this side
 * or on the other. */
static void pick_dims(struct rsh_pane *s, const struct rsh_pane *other)
{
	uint32_t picked[2] = { RSH_NO_DIM, RSH_NO_DIM }, n = 0;

	for (uint32_t d = 0; d < s->n_dims && n < 2; d++)
		if (!rsh_cut_is_whole(s->cut, s->dims, d) ||
		    !rsh_cut_is_whole(other->cut, other->dims, d))
			picked[n++] = d;
	for (uint32_t d = s->n_dims; d-- > 0 && n < 2;)
		if (d != picked[0])
			picked[n++] = d;
	s->row = s->n_dims > 1 ? picked[0] : RSH_NO_DIM;
	s->column = s->n_dims > 1 ? picked[1] : picked[0];
	if (s->n_dims > 1 && s->row > s->column) {
		s->row = picked[1];
		s->column = picked[0];
	}
}

/* Gives a side its size, in proportions that can be looked at. */
static void pick_size(struct rsh_pane *s, int x, int y)
{
	double ratio;

	s->at = (struct rsh_svg_box){ x, y, SIDE_WIDTH, STRIP_HEIGHT };
	if (s->row == RSH_NO_DIM)
		return;
	ratio = ((double)s->dims[s->row] + 1) /
		((double)s->dims[s->column] + 1);
	if (ratio * SIDE_WIDTH <= SIDE_MIN_HEIGHT)
		s->at.h = SIDE_MIN_HEIGHT;
	else if (ratio * SIDE_WIDTH <= SIDE_HEIGHT)
		s->at.h = (int)(ratio * SIDE_WIDTH);
	else
		s->at.h = SIDE_HEIGHT;
	if (ratio * SIDE_MIN_WIDTH >= SIDE_HEIGHT)
		s->at.w = SIDE_MIN_WIDTH;
	else if (ratio * SIDE_WIDTH > SIDE_HEIGHT)
		s->at.w = (int)(SIDE_HEIGHT / ratio);
}

/* ---- what is said of a side ---- */

static const struct rsh_strategy_item *
svg_item_of(const struct rsh_strategy *s, uint32_t name,
	    const struct rsh_pane *side)
{
	const struct rsh_strategy_param *p = s ? rsh_strategy_find(s, name) :
						 NULL;
	const struct rsh_strategy_item *item;

	if (!p || side->n_held == 0)
		return NULL;
	item = rsh_param_item(p, side->held[0].file / s->stage_ranks);
	return item ? item : rsh_param_source_stage(p)->item;
}

/* Returns into how many the optimizer cuts what the axes leave. */
static uint32_t shard_of(const struct rsh_pane *s,
			 const struct rsh_strategy_item *item)
{
	uint64_t by_axes = 1;

	if (!rsh_cut_grid(s->cut) || !item || item->opt_step == 0)
		return 1;
	for (uint32_t i = 0; i < item->n_map; i++)
		by_axes *= rsh_map_entry_split(item, &item->map[i]);
	return (uint32_t)(rsh_cut_n_cells(s->cut) / by_axes);
}

static void put_dims(FILE *f, const uint64_t *dims, uint32_t n)
{
	putc('[', f);
	for (uint32_t d = 0; d < n; d++)
		fprintf(f, "%s%" PRIu64, d ? "," : "", dims[d]);
	putc(']', f);
}

static void put_cut(FILE *f, const struct rsh_pane *s, const char *who,
		    const struct rsh_strategy *strategy)
{
	const uint32_t n = rsh_cut_n_cells(s->cut);
	struct rsh_box box;

	fputs(who, f);
	if (strategy && strategy->n_stages > 1 && s->n_held > 0)
		fprintf(f, ", stage %" PRIu32,
			s->held[0].file / strategy->stage_ranks);
	if (n == 1) {
		fputs(": whole", f);
	} else if (rsh_cut_grid(s->cut)) {
		rsh_cut_box(s->cut, s->dims, 0, &box);
		fprintf(f, ": %" PRIu32 " slices of ", n);
		put_dims(f, box.size, s->n_dims);
	} else {
		fprintf(f, ": %" PRIu32 " boxes", n);
	}
	if (rsh_cut_grid(s->cut) && rsh_cut_n_replicas(s->cut, 0) > 1)
		fprintf(f, ", \u00d7%" PRIu32, rsh_cut_n_replicas(s->cut, 0));
}

/* Names the dimensions that are drawn, where there are others, and says that of
 * those the beginning is seen if they are cut. */
static void put_axes(struct rsh_plan_page *p, const struct rsh_pane *s)
{
	bool hidden = false;
	char text[64];

	if (s->n_dims < 3)
		return;
	for (uint32_t d = 0; d < s->n_dims; d++)
		hidden |= d != s->row && d != s->column &&
			  !rsh_cut_is_whole(s->cut, s->dims, d);
	snprintf(text, sizeof(text), "dimension %" PRIu32, s->row);
	rsh_svg_text_up(&p->svg, s->at.x - 6, s->at.y + s->at.h / 2, "axis",
			text);
	rsh_svg_text(&p->svg, s->at.x + s->at.w / 2, s->at.y + s->at.h + 13,
		     "axis", "dimension %" PRIu32 "%s", s->column,
		     hidden ? ", where the others begin" : "");
}

static void put_captions(struct rsh_plan_page *p, const struct rsh_pane *s,
			 const struct rsh_strategy *strategy,
			 const struct rsh_strategy_item *item, const char *who)
{
	char layout[256];
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	put_axes(p, s);
	if (f) {
		put_cut(f, s, who, strategy);
		fclose(f);
	}
	if (text)
		rsh_svg_text(&p->svg, s->at.x, s->at.y - 22, "caption", "%s",
			     text);
	free(text);
	if (!item)
		return;
	rsh_item_text(item, layout, sizeof(layout));
	rsh_text_shorten(layout, 56);
	rsh_svg_text(&p->svg, s->at.x, s->at.y - 7, "small", "%s", layout);
}

static void put_head(struct rsh_plan_page *p, const struct rsh_plan_tensor *t,
		     uint32_t alike)
{
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);
	char name[512];

	snprintf(name, sizeof(name), "%s", t->name);
	rsh_text_shorten(name, 56);
	rsh_svg_text(&p->svg, PAGE_MARGIN, p->y + 16, "name", "%s", name);
	if (f) {
		fputs(rsh_dtype_name(t->from ? t->from->dtype : t->dtype), f);
		if (t->from && t->from->dtype != t->dtype)
			fprintf(f, " as %s", rsh_dtype_name(t->dtype));
		putc(' ', f);
		put_dims(f, t->dims, t->n_dims);
		if (t->n_parts > 1)
			fprintf(f, ", of %" PRIu32 " tensors, one drawn",
				t->n_parts);
		if (alike)
			fprintf(f, "; %" PRIu32 " more %s so", alike,
				alike == 1 ? "is cut" : "are cut");
		fclose(f);
	}
	if (text)
		rsh_svg_text(&p->svg, PAGE_WIDTH - PAGE_MARGIN, p->y + 16,
			     "right", "%s", text);
	free(text);
}

static void draw_arrow(struct rsh_plan_page *p, int x1, int x2, int y)
{
	rsh_svg_line(&p->svg, x1, y, x2, y, "arrow");
	rsh_svg_line(&p->svg, x2 - 7, y - 5, x2, y, "arrow");
	rsh_svg_line(&p->svg, x2 - 7, y + 5, x2, y, "arrow");
}

/* ---- both sides ---- */

static int held_by_rank(const void *a, const void *b)
{
	const struct rsh_side_file *x = a, *y = b;

	if (x->rank != y->rank)
		return x->rank < y->rank ? -1 : 1;
	return (x->file > y->file) - (x->file < y->file);
}

/* Gives who has which cell of the source, from malloc. */
static int list_source(const struct rsh_tensor *t, struct rsh_pane *s)
{
	const struct rsh_holder *h = rsh_copies_holders(t->copies);

	*s = (struct rsh_pane){
		.cut = t->cut, .dims = t->dims, .n_dims = t->n_dims,
		.shard = 1, .n_held = rsh_copies_n_holders(t->copies),
		.source = true, .first_file = t->first_file,
	};
	s->held = rsh_alloc_array(s->n_held, sizeof(*s->held));
	if (!s->held)
		return -ENOMEM;
	for (size_t i = 0; i < s->n_held; i++)
		s->held[i] = (struct rsh_side_file){ h[i].rank, h[i].file };
	if (s->n_held > 0)
		qsort(s->held, s->n_held, sizeof(*s->held), held_by_rank);
	return 0;
}

static int draw_sides(struct rsh_plan_page *p, const struct rsh_plan_tensor *t,
		      uint32_t number, struct rsh_pane *src,
		      struct rsh_pane *dst)
{
	const struct rsh_vfs_view *view = p->report->view;
	const struct rsh_strategy_item *from, *to;
	int rc, height;

	from = svg_item_of(view->src, t->from->name, src);
	to = svg_item_of(view->dst, t->number, dst);
	src->shard = shard_of(src, from);
	dst->shard = shard_of(dst, to);
	put_captions(p, src, view->src, from, "source");
	put_captions(p, dst, view->dst, to, "destination");
	height = src->at.h > dst->at.h ? src->at.h : dst->at.h;
	draw_arrow(p, src->at.x + src->at.w + 22, dst->at.x - 22,
		   src->at.y + height / 2);
	rc = draw_side(p, src, number);
	if (rc == 0)
		rc = draw_side(p, dst, number);
	p->y = src->at.y + height + TENSOR_GAP;
	return rc;
}

int rsh_plan_draw_tensor(struct rsh_plan_page *p, uint32_t i,
			 struct rsh_side_file *held, size_t n_held,
			 uint32_t alike)
{
	struct rsh_plan_tensor t;
	struct rsh_pane src, dst;
	bool alike_dims;
	int rc;

	rsh_plan_tensor(p->report->view->plan, i, &t);
	if (list_source(t.from, &src))
		return -ENOMEM;
	dst = (struct rsh_pane){
		.cut = t.cut, .dims = t.dims, .n_dims = t.n_dims, .shard = 1,
		.held = held, .n_held = n_held, .lost = t.lost,
	};
	src.lost = t.lost;
	qsort(held, n_held, sizeof(*held), held_by_rank);
	alike_dims = src.n_dims == dst.n_dims && t.n_parts == 1;
	pick_dims(&src, alike_dims ? &dst : &src);
	pick_dims(&dst, alike_dims ? &src : &dst);
	pick_size(&src, PAGE_MARGIN, p->y + HEAD_HEIGHT);
	pick_size(&dst, PAGE_WIDTH - PAGE_MARGIN - SIDE_WIDTH,
		  p->y + HEAD_HEIGHT);
	put_head(p, &t, alike);
	rc = draw_sides(p, &t, i, &src, &dst);
	free(src.held);
	return rc;
}
