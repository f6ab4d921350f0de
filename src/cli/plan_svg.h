/* SPDX-License-Identifier: Apache-2.0 */
/* cli/plan_svg.h has what the parts of the picture of `plan --svg` share:
 *   plan_svg.c         the page, and which tensors are on it
 *   plan_svg_tensor.c  one tensor as source and destination cut it
 *   plan_svg_block.c   a cell of it, or several that are drawn as one
 *   plan_svg_cells.c   where the cells of a cut are on the page
 *   plan_svg_flow.c    which source file feeds which destination file
 * Functions that return int return 0 or -ENOMEM. */
#ifndef RSH_CLI_PLAN_SVG_H
#define RSH_CLI_PLAN_SVG_H

#include "plan.h"
#include "rsh/plan/look.h"
#include "svg.h"

/* These are sizes of the page, in pixels. */
#define PAGE_WIDTH 880
#define PAGE_MARGIN 30
#define PAGE_INNER (PAGE_WIDTH - 2 * PAGE_MARGIN)

struct rsh_plan_page {
	struct rsh_svg svg;
	const struct rsh_plan_report *report;
	const struct rsh_catalogue *source;
	uint32_t n_sources; /* files that there are or should be */
	bool boxes;     /* the source's files hold lists of boxes: they are no
			 * ranks */
	bool by_source; /* source files have the colours; else, of one source
			 * file, the destination's */
	int y;          /* where the next part begins */
};

/* Returns the colour of a source or destination file, in `text`. */
const char *rsh_plan_page_color(const struct rsh_plan_page *p, uint32_t file,
				char text[RSH_SVG_COLOR_SIZE]);
/* Writes n ascending numbers to text[size] as "0-7", "0,2..14" or, of more than
 * fit, "0,5..20 +9", so that they are no wider than so many pixels at a size of
 * the font; "" if that cannot be. */
const char *rsh_plan_numbers(const uint32_t *v, size_t n, int width,
			     int font, char *text, size_t size);

/* ---- cells ---- */

/* A file that has the cell of a rank of a cut. */
struct rsh_side_file {
	uint32_t rank, file;
};

#define RSH_NO_DIM UINT32_MAX

/* This is one side of a tensor: how it is cut, and who has what. */
struct rsh_pane {
	const struct rsh_cut *cut;
	const uint64_t *dims;
	uint32_t n_dims;
	uint32_t row, column;   /* dimensions that go down and across, or
				 * RSH_NO_DIM */
	uint32_t shard;         /* of the optimizer; 1: none */
	bool source;            /* else it is the destination */
	bool lost;              /* slices, or places in no box, are missing */
	uint32_t first_file;    /* the file that should have rank 0's cell */
	struct rsh_side_file *held;  /* by rank, then by file */
	size_t n_held;
	struct rsh_svg_box at;
};

/* This is a cell that is seen.  Those of a block are drawn as one. */
struct rsh_seen {
	uint32_t block;
	uint32_t cell;
	uint32_t slice; /* shared by cells that the optimizer alone cuts */
	struct rsh_svg_box at;
};

/* Gives the cells that are seen (from malloc), block by block. */
int rsh_plan_seen(const struct rsh_pane *s, struct rsh_seen **out, size_t *n);
/* Returns where a box of the tensor is. */
struct rsh_svg_box rsh_plan_place(const struct rsh_pane *s,
				  const struct rsh_box *box);
/* Makes `a` large enough to hold b too. */
void rsh_svg_box_join(struct rsh_svg_box *a, const struct rsh_svg_box *b);
/* Returns the first entry of `held` of a rank or a later one. */
size_t rsh_side_from(const struct rsh_pane *s, uint32_t rank);

/* ---- the parts of the page ---- */

/* Draws n cells of one block of tensor number `tensor`. */
int rsh_plan_draw_block(struct rsh_plan_page *p, const struct rsh_pane *s,
			uint32_t tensor, const struct rsh_seen *cells,
			size_t n);
/* Draws tensor i; `held` are the files that show it, and `alike` other tensors
 * are cut in the same way. */
int rsh_plan_draw_tensor(struct rsh_plan_page *p, uint32_t i,
			 struct rsh_side_file *held, size_t n_held,
			 uint32_t alike);
int rsh_plan_draw_flow(struct rsh_plan_page *p);

/* Draws the plan and writes it to a file.  Returns 0 or -errno with a
 * sentence. */
int rsh_plan_svg(const struct rsh_plan_report *report, const char *path,
		 struct rsh_error *err);

#endif
