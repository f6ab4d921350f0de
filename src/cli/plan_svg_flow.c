/* SPDX-License-Identifier: Apache-2.0 */
/* cli/plan_svg_flow.c draws who reads how many bytes of whom: a row for each
 * source file, a column for each destination file.  Where there are many,
 * neighbours are taken together. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "plan_svg.h"
#include "rsh/util/mem.h"
#include "text.h"

#define ROWS_MAX 24
#define COLUMNS_MAX 12
#define ROW_HEIGHT 22
#define COLUMN_WIDTH 150 /* at most */
#define STAGE_SIZE 20   /* of what names the stages */
#define LABEL_WIDTH 124
#define SUM_WIDTH 74
#define HEAD_HEIGHT 48
#define FONT 10
#define BAR_MIN 4 /* so that it is seen */

/* This is the table: rows and columns are groups of files. */
struct flow {
	struct rsh_plan_page *p;
	uint32_t n_sources;
	uint32_t down, across;     /* files of a group */
	uint32_t per_rank;         /* files that each destination rank has */
	uint32_t n_rows, n_columns;
	uint64_t *bytes;           /* [row][column] */
	uint64_t most;             /* of all */
	struct rsh_svg_box at;     /* the cells */
	int width;                 /* of a column */
};

/* Returns how many files are taken together: as few as will do, and whole
 * stages or equal shares of one if that can be. */
static uint32_t flow_together(uint32_t n, uint32_t most, uint32_t stage)
{
	const uint32_t least = n > 0 ? (n + most - 1) / most : 1;

	for (uint32_t k = least; k <= 2 * least; k++)
		if (k <= stage ? stage % k == 0 : k % stage == 0)
			return k;
	return least;
}

static uint32_t stage_ranks(const struct rsh_strategy *s, uint32_t n)
{
	return s ? s->stage_ranks : n > 0 ? n : 1;
}

/* Are the rows, or else the columns, told by stages?  Some of the ranks are
 * none. */
static bool flow_has_stages(const struct flow *f, bool down)
{
	const struct rsh_vfs_view *view = f->p->report->view;
	const struct rsh_strategy *s = down ? view->src : view->dst;

	return s && s->n_stages > 1 &&
	       (down ? f->n_sources : f->p->report->n / f->per_rank) ==
		       s->n_stages * s->stage_ranks;
}

/* ---- adding up ---- */

static int flow_add_up(struct flow *f)
{
	const struct rsh_plan_report *r = f->p->report;

	f->bytes = calloc((size_t)f->n_rows * f->n_columns + 1,
			  sizeof(*f->bytes));
	if (!f->bytes)
		return -ENOMEM;
	for (size_t i = 0; i < r->n; i++)
		for (size_t k = 0; k < r->files[i].n_sources; k++) {
			const struct rsh_plan_source *s =
				&r->files[i].sources[k];
			uint64_t *sum = &f->bytes[(size_t)(s->rank / f->down) *
							  f->n_columns +
						  i / f->across];

			*sum += s->bytes;
			f->most = *sum > f->most ? *sum : f->most;
		}
	return 0;
}

static int flow_make(struct flow *f)
{
	const struct rsh_plan_report *r = f->p->report;
	const struct rsh_vfs_view *view = r->view;

	f->n_sources = f->p->n_sources;
	f->down = flow_together(f->n_sources, ROWS_MAX,
				stage_ranks(view->src, f->n_sources));
	f->per_rank = rsh_plan_files_of_rank(view->plan);
	f->across = flow_together((uint32_t)r->n / f->per_rank, COLUMNS_MAX,
				  stage_ranks(view->dst, (uint32_t)r->n /
							 f->per_rank)) *
		    f->per_rank;
	f->n_rows = (f->n_sources + f->down - 1) / f->down;
	f->n_columns = ((uint32_t)r->n + f->across - 1) / f->across;
	f->width = (PAGE_INNER - STAGE_SIZE - LABEL_WIDTH - SUM_WIDTH) /
		   (f->n_columns > 0 ? (int)f->n_columns : 1);
	f->width = f->width > COLUMN_WIDTH ? COLUMN_WIDTH : f->width;
	f->at = (struct rsh_svg_box){
		PAGE_MARGIN + STAGE_SIZE + LABEL_WIDTH,
		f->p->y + HEAD_HEIGHT +
			(flow_has_stages(f, false) ? STAGE_SIZE : 0),
		f->width * (int)f->n_columns, ROW_HEIGHT * (int)f->n_rows,
	};
	return flow_add_up(f);
}

/* ---- cells ---- */

static struct rsh_svg_box cell_at(const struct flow *f, uint32_t row,
				  uint32_t column)
{
	return (struct rsh_svg_box){
		f->at.x + (int)column * f->width,
		f->at.y + (int)row * ROW_HEIGHT, f->width, ROW_HEIGHT,
	};
}

/* Returns how long the bar of so many bytes is, which the longest one fills its
 * cell with. */
static int flow_bar(const struct flow *f, uint64_t bytes)
{
	uint64_t most = f->most;

	while (most > UINT32_MAX) {
		most >>= 1;
		bytes >>= 1;
	}
	return (int)(bytes * (uint64_t)f->width / most);
}

/* Draws the bytes of a cell as a bar and in figures. */
static void draw_cell(const struct flow *f, uint32_t row, uint32_t column)
{
	const uint64_t bytes = f->bytes[(size_t)row * f->n_columns + column];
	struct rsh_svg_box at = cell_at(f, row, column);
	struct rsh_svg *svg = &f->p->svg;
	char color[RSH_SVG_COLOR_SIZE], text[32];

	if (bytes == 0)
		return;
	at.w = flow_bar(f, bytes);
	at.w = at.w < BAR_MIN ? BAR_MIN : at.w;
	at.y += 2;
	at.h -= 4;
	rsh_svg_rect(svg, &at, "bar",
		     rsh_plan_page_color(f->p, f->p->by_source ?
						       row * f->down :
						       column * f->across /
							       f->per_rank,
					 color));
	rsh_text_bytes(bytes, text, sizeof(text));
	rsh_svg_text(svg, at.x + f->width / 2, at.y + 13, "number", "%s", text);
}

/* ---- rows ---- */

static bool is_missing(const struct flow *f, uint32_t file)
{
	return !rsh_catalogue_index(f->p->source, file);
}

static void draw_row_label(const struct flow *f, uint32_t row)
{
	const uint32_t first = row * f->down;
	const uint32_t end = first + f->down < f->n_sources ?
		first + f->down : f->n_sources;
	const int y = f->at.y + (int)row * ROW_HEIGHT;
	const struct rsh_svg_box chip = { f->at.x - 20, y + 5, 12, 12 };
	char color[RSH_SVG_COLOR_SIZE], numbers[32];
	uint32_t missing = 0;

	for (uint32_t r = first; r < end; r++)
		missing += is_missing(f, r);
	if (end - first > 1)
		snprintf(numbers, sizeof(numbers), "%" PRIu32 "-%" PRIu32,
			 first, end - 1);
	else
		snprintf(numbers, sizeof(numbers), "%" PRIu32, first);
	rsh_svg_text(&f->p->svg, f->at.x - 26, y + 15, "rowlabel", "%s",
		     numbers);
	if (missing)
		rsh_svg_rect(&f->p->svg, &chip, "lost", NULL);
	else
		rsh_svg_rect(&f->p->svg, &chip, "cell", f->p->by_source ?
			     rsh_plan_page_color(f->p, first, color) :
			     "#eeeeee");
}

static void draw_row_sum(const struct flow *f, uint32_t row)
{
	const int y = f->at.y + (int)row * ROW_HEIGHT + 15;
	const int x = f->at.x + f->at.w + 8;
	uint64_t sum = 0;
	char text[32];

	for (uint32_t c = 0; c < f->n_columns; c++)
		sum += f->bytes[(size_t)row * f->n_columns + c];
	if (sum > 0)
		rsh_svg_text(&f->p->svg, x, y, "sum", "%s",
			     rsh_text_bytes(sum, text, sizeof(text)));
	else if (f->down == 1 && is_missing(f, row))
		rsh_svg_text(&f->p->svg, x, y, "faint", "no file");
	else
		rsh_svg_text(&f->p->svg, x, y, "faint", "not read");
}

/* ---- columns ---- */

static void draw_column_label(const struct flow *f, uint32_t column)
{
	const struct rsh_plan_report *r = f->p->report;
	const size_t first = (size_t)column * f->across;
	const size_t end = first + f->across < r->n ? first + f->across : r->n;
	const int x = f->at.x + (int)column * f->width + f->width / 2;
	cleanup_free uint32_t *files = rsh_alloc_array(end - first,
						       sizeof(*files));
	char numbers[64] = "";
	size_t n = 0;

	for (size_t i = first; files && i < end; i += f->per_rank)
		files[n++] = r->files[i].rank;
	if (files)
		rsh_plan_numbers(files, n, f->width, FONT + 1, numbers,
				 sizeof(numbers));
	rsh_svg_text(&f->p->svg, x, f->at.y - 6, "label", "%s", numbers);
}

static void draw_column_sum(const struct flow *f, uint32_t column)
{
	const struct rsh_plan_report *r = f->p->report;
	const size_t first = (size_t)column * f->across;
	struct rsh_svg_box all = cell_at(f, 0, column);
	const int x = all.x + f->width / 2, y = f->at.y + f->at.h + 16;
	uint64_t sum = 0;
	char text[32];
	bool lost = false;

	for (size_t i = first; i < first + f->across && i < r->n; i++) {
		sum += r->files[i].read_bytes;
		lost |= r->files[i].lost;
	}
	all.h = f->at.h;
	if (lost)
		rsh_svg_rect(&f->p->svg, &all, "lost", NULL);
	if (lost && f->across == f->per_rank)
		rsh_svg_text(&f->p->svg, x, y, "number", "lost");
	else
		rsh_svg_text(&f->p->svg, x, y, "number", "%s",
			     rsh_text_bytes(sum, text, sizeof(text)));
}

/* ---- stages ---- */

/* Draws a bracket along `length` pixels, with the stage's number. */
static void draw_stage(const struct flow *f, bool down, int at, int length,
		       const char *text)
{
	struct rsh_svg *svg = &f->p->svg;
	const int x = PAGE_MARGIN + STAGE_SIZE + 30, y = f->at.y - 24;

	if (down) {
		rsh_svg_line(svg, x, at + 2, x, at + length - 2, "bracket");
		rsh_svg_text(svg, x - 5, at + length / 2 + 4, "rowlabel", "%s",
			     text);
	} else {
		rsh_svg_line(svg, at + 2, y, at + length - 2, y, "bracket");
		rsh_svg_text(svg, at + length / 2, y - 5, "label", "%s", text);
	}
}

/* Names the stages of one side, some together where a group of files is several
 * stages. */
static void draw_stages(const struct flow *f, const struct rsh_strategy *s,
			bool down)
{
	const uint32_t group = down ? f->down : f->across / f->per_rank;
	const uint32_t n = down ? f->n_rows : f->n_columns;
	const int step = down ? ROW_HEIGHT : f->width;
	uint32_t groups, stages;
	char text[48];

	if (!flow_has_stages(f, down))
		return;
	stages = group > s->stage_ranks ? group / s->stage_ranks : 1;
	groups = group > s->stage_ranks ? 1 : s->stage_ranks / group;
	for (uint32_t i = 0; i * groups < n; i++) {
		if (stages > 1)
			snprintf(text, sizeof(text), "%s%" PRIu32 "-%" PRIu32,
				 down ? "" : "stages ", i * stages,
				 (i + 1) * stages - 1);
		else
			snprintf(text, sizeof(text), "%s%" PRIu32,
				 groups * (uint32_t)step > 50 || down ?
					 "stage " : "", i);
		draw_stage(f, down, (down ? f->at.y : f->at.x) +
				    (int)(i * groups) * step,
			   (int)groups * step, text);
	}
}

/* ---- all of it ---- */

static void draw_head(const struct flow *f)
{
	struct rsh_plan_page *p = f->p;
	const bool parts = p->report->options->in_parts;

	rsh_svg_text(&p->svg, PAGE_MARGIN, p->y + 16, "name", "Bytes that "
		     "each destination %s (across) reads of each source %s "
		     "(down)", parts ? "part" : "rank",
		     p->boxes ? "file" : "rank");
}

static void draw_grid(const struct flow *f)
{
	for (uint32_t r = 1; r < f->n_rows; r++)
		rsh_svg_line(&f->p->svg, f->at.x,
			     f->at.y + (int)r * ROW_HEIGHT, f->at.x + f->at.w,
			     f->at.y + (int)r * ROW_HEIGHT, "grid");
	for (uint32_t c = 1; c < f->n_columns; c++)
		rsh_svg_line(&f->p->svg, f->at.x + (int)c * f->width, f->at.y,
			     f->at.x + (int)c * f->width, f->at.y + f->at.h,
			     "bracket");
	rsh_svg_rect(&f->p->svg, &f->at, "slice", NULL);
}

static void draw_flow(const struct flow *f)
{
	const struct rsh_vfs_view *view = f->p->report->view;

	draw_head(f);
	rsh_svg_rect(&f->p->svg, &f->at, "empty", NULL);
	for (uint32_t c = 0; c < f->n_columns; c++) {
		draw_column_label(f, c);
		draw_column_sum(f, c);
	}
	for (uint32_t r = 0; r < f->n_rows; r++) {
		draw_row_label(f, r);
		for (uint32_t c = 0; c < f->n_columns; c++)
			draw_cell(f, r, c);
		draw_row_sum(f, r);
	}
	draw_grid(f);
	draw_stages(f, view->src, true);
	draw_stages(f, view->dst, false);
}

int rsh_plan_draw_flow(struct rsh_plan_page *p)
{
	struct flow f = { .p = p };
	int rc = flow_make(&f);

	if (rc == 0) {
		draw_flow(&f);
		p->y = f.at.y + f.at.h + 40;
	}
	free(f.bytes);
	return rc;
}
