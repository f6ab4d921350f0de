/* SPDX-License-Identifier: Apache-2.0 */
/* cli/svg.c writes the elements of a picture, and text that is safe in one. */
#include "config.h"

#include "svg.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/mem.h"
#include "text.h"

void rsh_svg_begin(struct rsh_svg *s)
{
	*s = (struct rsh_svg){ 0 };
	s->f = open_memstream(&s->body, &s->len);
}

void rsh_svg_clear(struct rsh_svg *s)
{
	if (s->f)
		fclose(s->f);
	free(s->body);
	*s = (struct rsh_svg){ 0 };
}

/* ---- text ---- */

/* XML has no way to write these two characters, U+FFFE and U+FFFF. */
static bool is_no_xml(const char *p)
{
	return (unsigned char)p[0] == 0xef && (unsigned char)p[1] == 0xbf &&
	       (unsigned char)p[2] >= 0xbe;
}

static void svg_put_escaped(FILE *f, const char *text)
{
	for (const char *p = text; *p; p++) {
		if (*p == '&')
			fputs("&amp;", f);
		else if (*p == '<')
			fputs("&lt;", f);
		else if (*p == '>')
			fputs("&gt;", f);
		else if (*p == '"')
			fputs("&quot;", f);
		else if (is_no_xml(p))
			fputs("\xef\xbf\xbd", f), p += 2;
		else
			fputc(*p, f);
	}
}

static void svg_put(FILE *f, const char *text)
{
	cleanup_free char *safe = rsh_text_escape(text);

	svg_put_escaped(f, safe ? safe : "?");
}

void rsh_svg_text(struct rsh_svg *s, int x, int y, const char *class,
		  const char *fmt, ...)
{
	cleanup_free char *text = NULL;
	va_list ap;
	int n;

	if (!s->f)
		return;
	va_start(ap, fmt);
	n = vasprintf(&text, fmt, ap);
	va_end(ap);
	if (n < 0) {
		text = NULL;
		return;
	}
	fprintf(s->f, "<text class=\"%s\" x=\"%d\" y=\"%d\">", class, x, y);
	svg_put(s->f, text);
	fputs("</text>\n", s->f);
}

void rsh_svg_text_up(struct rsh_svg *s, int x, int y, const char *class,
		     const char *text)
{
	if (!s->f)
		return;
	fprintf(s->f, "<text class=\"%s\" transform=\"translate(%d %d) "
		"rotate(-90)\">", class, x, y);
	svg_put(s->f, text);
	fputs("</text>\n", s->f);
}

/* Digits and most letters are narrower, of any font. */
int rsh_svg_text_width(const char *text, int size)
{
	return (int)(rsh_text_length(text) * (size_t)size * 6 + 9) / 10;
}

/* ---- shapes ---- */

void rsh_svg_rect(struct rsh_svg *s, const struct rsh_svg_box *b,
		  const char *class, const char *fill)
{
	if (!s->f)
		return;
	fprintf(s->f,
		"<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%d\" "
		"height=\"%d\"", class, b->x, b->y, b->w, b->h);
	if (fill)
		fprintf(s->f, " style=\"fill:%s\"", fill);
	fputs("/>\n", s->f);
}

void rsh_svg_line(struct rsh_svg *s, int x1, int y1, int x2, int y2,
		  const char *class)
{
	if (s->f)
		fprintf(s->f,
			"<line class=\"%s\" x1=\"%d\" y1=\"%d\" x2=\"%d\" "
			"y2=\"%d\"/>\n", class, x1, y1, x2, y2);
}

/* ---- colours ---- */

static const char *const few[] = {
	"#a6cee3", "#fdbf6f", "#b2df8a", "#fb9a99", "#cab2d6", "#f2e27d",
	"#8dd3c7", "#e5c494", "#8fb5e0", "#f7a8cf", "#c7d36f", "#c4c4c4",
};

#define N_FEW (sizeof(few) / sizeof(few[0]))

/* The rainbow has 1,536 hues.  A step of the golden section leads far from the
 * hues of all neighbours, and through every one in the end. */
#define HUES (6 * 256)
#define HUE_STEP 949

static void svg_hue(uint32_t i, char text[RSH_SVG_COLOR_SIZE])
{
	const unsigned at = (unsigned)((uint64_t)i * HUE_STEP % HUES);
	const unsigned high = 240, low = 150;
	const unsigned f = at % 256 * (high - low) / 256;
	const unsigned up = low + f, down = high - f;
	const unsigned sides[6][3] = {
		{ high, up, low },   { down, high, low }, { low, high, up },
		{ low, down, high }, { up, low, high },   { high, low, down },
	};
	const unsigned *c = sides[at / 256];

	snprintf(text, RSH_SVG_COLOR_SIZE, "#%02x%02x%02x", c[0] & 0xff,
		 c[1] & 0xff, c[2] & 0xff);
}

const char *rsh_svg_color(uint32_t i, uint32_t n, char text[RSH_SVG_COLOR_SIZE])
{
	if (n <= N_FEW)
		memcpy(text, few[i % N_FEW], RSH_SVG_COLOR_SIZE);
	else
		svg_hue(i, text);
	return text;
}

/* ---- the document ---- */

int rsh_svg_finish(struct rsh_svg *s, int width, int height, const char *title,
		   const char *head, char **text, size_t *len)
{
	const bool failed = !s->f || fclose(s->f);
	FILE *f;

	s->f = NULL;
	*text = NULL;
	f = failed ? NULL : open_memstream(text, len);
	if (!f)
		return -ENOMEM;
	fprintf(f,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
		"height=\"%d\" viewBox=\"0 0 %d %d\">\n<title>", width, height,
		width, height);
	svg_put(f, title);
	fprintf(f, "</title>\n%s%s</svg>\n", head, s->body);
	if (fclose(f) == 0)
		return 0;
	free(*text);
	*text = NULL;
	return -ENOMEM;
}
