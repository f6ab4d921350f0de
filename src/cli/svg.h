/* SPDX-License-Identifier: Apache-2.0 */
/* cli/svg.h writes pictures as SVG: boxes, lines and text, in whole pixels so
 * that equal pictures are equal bytes on any machine.  A picture is for one
 * thread.  Want of memory shows when the picture is finished. */
#ifndef RSH_CLI_SVG_H
#define RSH_CLI_SVG_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct rsh_svg {
	FILE *f; /* NULL: out of memory */
	char *body;
	size_t len;
};

struct rsh_svg_box {
	int x, y, w, h;
};

void rsh_svg_begin(struct rsh_svg *s);
/* Frees what was begun; it may be finished or not. */
void rsh_svg_clear(struct rsh_svg *s);
/* Makes the document: `head` are elements that stand first, as styles, and is
 * taken as it is.  Returns 0 and *text, which the caller frees, or -ENOMEM. */
int rsh_svg_finish(struct rsh_svg *s, int width, int height, const char *title,
		   const char *head, char **text, size_t *len);

/* `class` is one of the styles; `fill` is a colour, or NULL for the one of the
 * class. */
void rsh_svg_rect(struct rsh_svg *s, const struct rsh_svg_box *b,
		  const char *class, const char *fill);
void rsh_svg_line(struct rsh_svg *s, int x1, int y1, int x2, int y2,
		  const char *class);
/* Writes text at a base line.  It is escaped, for people (util/text.h) and for
 * XML. */
void rsh_svg_text(struct rsh_svg *s, int x, int y, const char *class,
		  const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* Writes text that goes up from there. */
void rsh_svg_text_up(struct rsh_svg *s, int x, int y, const char *class,
		     const char *text);

/* Returns about how many pixels wide text of that size is, rather too many. */
int rsh_svg_text_width(const char *text, int size);

#define RSH_SVG_COLOR_SIZE 8
/* Returns the i-th of n light colours, as "#a6cee3", in `text`.  Few are
 * chosen by hand; of many, neighbours differ plainly. */
const char *rsh_svg_color(uint32_t i, uint32_t n,
			  char text[RSH_SVG_COLOR_SIZE]);

#endif
