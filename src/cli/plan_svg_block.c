/* SPDX-License-Identifier: Apache-2.0 */
/* cli/plan_svg_block.c draws one block of a side: who has it, how often, and
 * what a destination's is read from. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "plan_svg.h"
#include "rsh/util/mem.h"

#define LABEL_FONT 11
#define LABEL_LINE 13
/* The foot of a cell shows its copies. */
#define FOOT_HEIGHT 6
#define FOOT_COPIES_MAX 32
/* Of more pieces of a cell several are drawn as one. */
#define PIECES_MAX 1024
/* More than this are drawn without edges. */
#define PIECES_APART 64

/* This is a block while it is drawn. */
struct block {
	struct rsh_svg_box at;
	const struct rsh_seen *cells;
	size_t n_cells;
	uint32_t *files;  /* that have some of it, ascending */
	size_t n_files;
	uint32_t *absent; /* files that should and do not */
	size_t n_absent;
	bool lost;        /* a cell is in no file */
	bool mixed;       /* it is of several colours, or hatched */
};

/* ---- who has a block ---- */

static int block_add_cell(const struct rsh_pane *s, uint32_t cell,
			  struct block *b, size_t caps[2])
{
	const uint32_t n = rsh_cut_n_replicas(s->cut, cell);
	bool found = false;

	for (uint32_t k = 0; k < n; k++) {
		const uint32_t rank = rsh_cut_member(s->cut, cell, k);
		const size_t first = rsh_side_from(s, rank);
		size_t h = first;

		for (; h < s->n_held && s->held[h].rank == rank; h++) {
			if (rsh_grow(&b->files, &caps[0], b->n_files + 1,
				     sizeof(*b->files)))
				return -ENOMEM;
			b->files[b->n_files++] = s->held[h].file;
			found = true;
		}
		if (h > first)
			continue;
		if (rsh_grow(&b->absent, &caps[1], b->n_absent + 1,
			     sizeof(*b->absent)))
			return -ENOMEM;
		b->absent[b->n_absent++] = s->first_file + rank;
	}
	b->lost |= !found;
	return 0;
}

static int block_gather(const struct rsh_pane *s, const struct rsh_seen *cells,
			size_t n, struct block *b)
{
	size_t caps[2] = { 0 };
	int rc = 0;

	*b = (struct block){ .at = cells->at, .cells = cells, .n_cells = n };
	for (size_t i = 0; i < n && rc == 0; i++) {
		rsh_svg_box_join(&b->at, &cells[i].at);
		rc = block_add_cell(s, cells[i].cell, b, caps);
	}
	if (b->n_files > 0)
		qsort(b->files, b->n_files, sizeof(*b->files), rsh_by_u32);
	if (b->n_absent > 0)
		qsort(b->absent, b->n_absent, sizeof(*b->absent), rsh_by_u32);
	return rc;
}

static void block_clear(struct block *b)
{
	free(b->files);
	free(b->absent);
}

/* ---- labels ---- */

/* This is where a label goes, and what is behind it. */
struct place {
	struct rsh_plan_page *p;
	const struct rsh_svg_box *at;
	bool paper;
};

static void svg_put_line(const struct place *l, int line, int n_lines,
			 const char *text)
{
	const int width = rsh_svg_text_width(text, LABEL_FONT) + 4;
	const int x = l->at->x + l->at->w / 2;
	const int y = l->at->y + l->at->h / 2 + 4 -
		      (n_lines - 1) * LABEL_LINE / 2 + line * LABEL_LINE;
	const struct rsh_svg_box paper = {
		x - width / 2, y - LABEL_LINE + 3, width, LABEL_LINE,
	};

	if (l->paper)
		rsh_svg_rect(&l->p->svg, &paper, "paper", NULL);
	rsh_svg_text(&l->p->svg, x, y, "label", "%s", text);
}

static void put_upwards(const struct place *l, const char *text)
{
	const int length = rsh_svg_text_width(text, LABEL_FONT) + 4;
	const int x = l->at->x + l->at->w / 2 + 4;
	const int y = l->at->y + l->at->h / 2;
	const struct rsh_svg_box paper = {
		x - LABEL_LINE + 3, y - length / 2, LABEL_LINE, length,
	};

	if (l->paper)
		rsh_svg_rect(&l->p->svg, &paper, "paper", NULL);
	rsh_svg_text_up(&l->p->svg, x, y, "label", text);
}

/* Writes what fits into so many pixels of "before: numbers". */
static void label_text(const char *before, const uint32_t *v, size_t n,
		       int width, char *text, size_t size)
{
	char numbers[128];

	*text = '\0';
	if (*before)
		width -= rsh_svg_text_width(before, LABEL_FONT) +
			 (n > 0 ? rsh_svg_text_width(": ", LABEL_FONT) : 0);
	if (n == 0 && width >= 0)
		snprintf(text, size, "%s", before);
	if (n == 0)
		return;
	rsh_plan_numbers(v, n, width, LABEL_FONT, numbers, sizeof(numbers));
	if (*numbers)
		snprintf(text, size, "%s%s%s", before, *before ? ": " : "",
			 numbers);
}

/* Writes who has a block, across or up, in one line or two, if there is
 * room. */
static void put_label(const struct place *l, const char *before,
		      const uint32_t *v, size_t n)
{
	const int width = l->at->w - 2;
	char text[192];

	if (l->at->h < LABEL_LINE)
		return;
	label_text(before, v, n, width, text, sizeof(text));
	if (*text) {
		svg_put_line(l, 0, 1, text);
		return;
	}
	label_text("", v, n, width, text, sizeof(text));
	if (*text && l->at->h >= 2 * LABEL_LINE + FOOT_HEIGHT &&
	    rsh_svg_text_width(before, LABEL_FONT) <= width) {
		svg_put_line(l, 0, 2, before);
		svg_put_line(l, 1, 2, text);
		return;
	}
	label_text(before, v, n, l->at->h - 4 * FOOT_HEIGHT, text,
		   sizeof(text));
	if (*text && width >= LABEL_LINE)
		put_upwards(l, text);
	else if (rsh_svg_text_width(before, LABEL_FONT) <= width)
		svg_put_line(l, 0, 1, before);
}

static void label_block(struct rsh_plan_page *p, const struct block *b)
{
	const struct place l = { p, &b->at, b->mixed || b->lost };
	const size_t copies = (b->n_files + b->n_absent) / b->n_cells;
	char before[48] = "";

	if (b->lost && b->n_files == 0) {
		/* A box is in no file that could be named. */
		put_label(&l, "lost", b->absent, p->boxes ? 0 : b->n_absent);
		return;
	}
	if (copies > 1 && b->n_absent > 0 && b->n_cells == 1)
		snprintf(before, sizeof(before), "%zu of %zu", b->n_files,
			 copies);
	else if (copies > 1)
		snprintf(before, sizeof(before), "\u00d7%zu", copies);
	put_label(&l, before, b->files, b->n_files);
}

/* Shows a colour for each copy at the foot of the block, and what is missing
 * as hatched. */
static void draw_foot(struct rsh_plan_page *p, const struct block *b)
{
	const size_t n = b->n_files + b->n_absent;
	char color[RSH_SVG_COLOR_SIZE];

	if (n < 2 || b->n_cells > 1 || n > FOOT_COPIES_MAX ||
	    b->at.h < LABEL_LINE + 2 * FOOT_HEIGHT || b->n_files == 0)
		return;
	for (size_t i = 0; i < n; i++) {
		const int from = (int)i * b->at.w / (int)n;
		const struct rsh_svg_box part = {
			b->at.x + from, b->at.y + b->at.h - FOOT_HEIGHT,
			((int)i + 1) * b->at.w / (int)n - from, FOOT_HEIGHT,
		};

		if (i < b->n_files)
			rsh_svg_rect(&p->svg, &part, "copy",
				     rsh_plan_page_color(p, b->files[i],
							 color));
		else
			rsh_svg_rect(&p->svg, &part, "lost", NULL);
	}
}

/* ---- what a destination's cell is read from ---- */

struct piece {
	struct rsh_svg_box at;
	uint32_t file; /* RSH_NO_FILE: lost */
};

struct pieces {
	const struct rsh_pane *side;
	struct piece *v;
	size_t n, cap;
	bool failed;
};

static void add_piece(void *ctx, const struct rsh_box *box,
		      const struct rsh_holder *holder)
{
	struct pieces *p = ctx;

	for (uint32_t d = 0; d < p->side->n_dims; d++)
		if (d != p->side->row && d != p->side->column &&
		    box->from[d] > 0)
			return;
	if (rsh_grow(&p->v, &p->cap, p->n + 1, sizeof(*p->v))) {
		p->failed = true;
		return;
	}
	p->v[p->n++] = (struct piece){ rsh_plan_place(p->side, box),
				       holder ? holder->file : RSH_NO_FILE };
}

static void draw_pieces(struct rsh_plan_page *page, const struct pieces *p,
			const struct block *b)
{
	const size_t step = (p->n + PIECES_MAX - 1) / PIECES_MAX;
	char color[RSH_SVG_COLOR_SIZE];

	for (size_t i = 0; i < p->n; i += step) {
		struct rsh_svg_box at = p->v[i].at;
		bool lost = false;

		for (size_t k = i; k < p->n && k < i + step; k++) {
			rsh_svg_box_join(&at, &p->v[k].at);
			lost |= p->v[k].file == RSH_NO_FILE;
		}
		if (b->n_cells > 1)
			at = b->at;
		if (lost)
			rsh_svg_rect(&page->svg, &at, "lost", NULL);
		else
			rsh_svg_rect(&page->svg, &at,
				     p->n > PIECES_APART ? "flat" : "piece",
				     rsh_plan_page_color(page, p->v[i].file,
							 color));
		if (b->n_cells > 1)
			return;
	}
}

/* Fills a block of the destination with the colours of what its first member
 * reads. */
static int fill_from_source(struct rsh_plan_page *page,
			    const struct rsh_pane *s, uint32_t tensor,
			    struct block *b)
{
	struct pieces p = { .side = s };
	const uint32_t cell = b->cells->cell;
	const uint32_t n = rsh_cut_n_replicas(s->cut, cell);
	uint32_t k = 0;

	/* Files that keep redundancy out lack the tensor. */
	while (k + 1 < n) {
		const uint32_t rank = rsh_cut_member(s->cut, cell, k);
		const size_t h = rsh_side_from(s, rank);

		if (h < s->n_held && s->held[h].rank == rank)
			break;
		k++;
	}
	rsh_plan_origins(page->report->view->plan, tensor,
			 rsh_cut_member(s->cut, cell, k), add_piece, &p);
	b->mixed = p.n > 1 && b->n_cells == 1;
	if (!p.failed)
		draw_pieces(page, &p, b);
	free(p.v);
	return p.failed ? -ENOMEM : 0;
}

/* ---- all of it ---- */

static int fill_block(struct rsh_plan_page *p, const struct rsh_pane *s,
		      uint32_t tensor, struct block *b)
{
	char color[RSH_SVG_COLOR_SIZE];

	if (!s->source && p->by_source && b->n_files > 0)
		return fill_from_source(p, s, tensor, b);
	if (b->lost)
		rsh_svg_rect(&p->svg, &b->at, "lost", NULL);
	else if (s->source && !p->by_source)
		rsh_svg_rect(&p->svg, &b->at, "piece", "#eeeeee");
	else if (b->n_files > 0)
		rsh_svg_rect(&p->svg, &b->at, "piece",
			     rsh_plan_page_color(p, b->files[0], color));
	if (s->source || !p->by_source)
		draw_foot(p, b);
	return 0;
}

int rsh_plan_draw_block(struct rsh_plan_page *p, const struct rsh_pane *s,
			uint32_t tensor, const struct rsh_seen *cells,
			size_t n)
{
	struct block b;
	int rc = block_gather(s, cells, n, &b);

	if (rc == 0)
		rc = fill_block(p, s, tensor, &b);
	if (rc == 0) {
		rsh_svg_rect(&p->svg, &b.at, s->shard > 1 ? "shard" : "slice",
			     NULL);
		label_block(p, &b);
	}
	block_clear(&b);
	return rc;
}
