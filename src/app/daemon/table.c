/* SPDX-License-Identifier: Apache-2.0 */
/* app/daemon/table.c measures and cuts UTF-8 text by columns, and prints tables
 * that fit a terminal. */
#include "config.h"

#include "rsh/app/printer.h"

#include <locale.h>
#include <pthread.h>
#include <string.h>
#include <wchar.h>

/* The C library knows the width of characters only in a UTF-8 locale, and the
 * locale of the program may be another one.  If there is no UTF-8 locale, each
 * character counts as one column. */
static locale_t utf8;
static pthread_once_t utf8_once = PTHREAD_ONCE_INIT;

static void text_find_locale(void)
{
	utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
}

static locale_t text_begin(void)
{
	pthread_once(&utf8_once, text_find_locale);
	return uselocale(utf8);
}

/* Returns how many bytes the character at `s` has, and sets its columns.  A
 * byte that is not a character has one column. */
static size_t text_character(const char *s, size_t *columns)
{
	mbstate_t state = { 0 };
	wchar_t c;
	size_t n = utf8 ? mbrtowc(&c, s, MB_LEN_MAX, &state) : 0;
	int width;

	*columns = 1;
	if (n == 0 || n > MB_LEN_MAX) {
		for (n = 1; !utf8 && (((unsigned char)s[n] & 0xc0) == 0x80);
		     n++)
			;
		return n;
	}
	width = wcwidth(c);
	*columns = width < 0 ? 1 : (size_t)width;
	return n;
}

size_t rsh_text_width(const char *s)
{
	const locale_t before = text_begin();
	size_t width = 0, columns;

	for (; *s; width += columns)
		s += text_character(s, &columns);
	uselocale(before);
	return width;
}

size_t rsh_text_fitting(const char *s, size_t width)
{
	const locale_t before = text_begin();
	size_t at = 0, n, columns;

	for (; s[at]; at += n, width -= columns) {
		n = text_character(s + at, &columns);
		if (columns > width)
			break;
	}
	uselocale(before);
	return at;
}

void rsh_text_shorten(char *s, size_t width)
{
	static const char dots[] = "...";
	const size_t n_dots = sizeof(dots) - 1;
	size_t have = rsh_text_width(s), left;
	char *to, *from;

	if (have <= width || width <= n_dots)
		return;
	to = s + rsh_text_fitting(s, (width - n_dots) / 2);
	left = width - n_dots - (width - n_dots) / 2;
	/* The text left out must have more columns than the dots, but a
	 * character may have fewer bytes than columns. */
	from = s + rsh_text_fitting(s, have - left);
	if (rsh_text_width(from) > left)
		from += rsh_text_fitting(from, 2);
	memmove(to + n_dots, from, strlen(from) + 1);
	memcpy(to, dots, n_dots);
}

#define GAP 2       /* blanks between columns */
#define NARROWEST 8 /* columns that shortening leaves at least */
#define WRAPPED 14  /* columns that wrapping leaves at least */
#define COLUMNS_MAX 16

/* These are the columns that are shown. */
struct shown {
	const struct rsh_column *columns[COLUMNS_MAX];
	size_t widths[COLUMNS_MAX];
	unsigned n;
};

/* Wrapping loses no text, so it is tried before shortening: of the columns that
 * can be made narrower, the widest one is. */
static void fit(struct shown *t, size_t room)
{
	size_t total = GAP * (t->n - 1);

	for (unsigned c = 0; c < t->n; c++)
		total += t->widths[c];
	for (bool wrap = true; total > room;) {
		size_t *at = NULL;

		for (unsigned c = 0; c < t->n; c++)
			if ((wrap ? t->columns[c]->wrap :
				    t->columns[c]->shorten) &&
			    t->widths[c] > (wrap ? WRAPPED : NARROWEST) &&
			    (!at || t->widths[c] > *at))
				at = &t->widths[c];
		if (!at && !wrap)
			return;
		if (!at) {
			wrap = false;
			continue;
		}
		--*at;
		total--;
	}
}

/* Returns how many bytes of the text are printed on a line.  The line is too
 * long if the first item does not fit, because items are not cut. */
static size_t line_length(const char *text, size_t width, char end)
{
	const char ends[] = { end, '\0' };
	size_t n = rsh_text_fitting(text, width);

	/* A comma ends its line, and a blank is not printed. */
	if (!text[n] || (end == ' ' && text[n] == ' '))
		return n;
	for (size_t i = n; i > 1; i--)
		if (text[i - 1] == end)
			return end == ' ' ? i - 1 : i;
	n = strcspn(text, ends);
	return text[n] && end != ' ' ? n + 1 : n;
}

static void print_wrapped(const struct rsh_printer *out, const char *text,
			  const char *color, size_t indent, size_t width,
			  char end)
{
	for (;;) {
		size_t n = line_length(text, width, end);

		fprintf(out->f, "%s%.*s%s\n", color ? color : "", (int)n, text,
			color ? "\033[0m" : "");
		text += n;
		text += strspn(text, " ");
		if (!*text)
			return;
		fprintf(out->f, "%*s", (int)indent, "");
	}
}

static void print_cell(const struct shown *t, const struct rsh_printer *out,
		       unsigned c, char *text, const char *color)
{
	const struct rsh_column *column = t->columns[c];
	const size_t width = t->widths[c];
	size_t n, blanks, indent = c * GAP;

	if (column->shorten && out->width)
		rsh_text_shorten(text, width);
	n = rsh_text_width(text);
	blanks = n < width ? width - n : 0;
	if (c > 0)
		fprintf(out->f, "%*s", GAP, "");
	if (column->wrap && out->width) {
		while (c-- > 0)
			indent += t->widths[c];
		print_wrapped(out, text, color, indent, width, column->wrap);
		return;
	}
	if (column->right)
		fprintf(out->f, "%*s", (int)blanks, "");
	fprintf(out->f, "%s%s%s", color ? color : "", text,
		color ? "\033[0m" : "");
	if (c + 1 == t->n)
		fputc('\n', out->f);
	else if (!column->right)
		fprintf(out->f, "%*s", (int)blanks, "");
}

const char *rsh_mark_color(const struct rsh_printer *out, enum rsh_mark mark)
{
	return !out->color || mark == RSH_MARK_NONE ? NULL :
	       mark == RSH_MARK_GOOD ? "\033[32m" : "\033[31m";
}

void rsh_table_print(struct rsh_printer *out)
{
	char *const end = out->cell_text + out->cell_length, *next;
	struct shown t = { .n = 0 };
	char heading[64];
	unsigned c = 0;

	for (const struct rsh_column *k = out->columns; k->key || k->heading;
	     k++)
		if (k->heading) {
			t.columns[t.n] = k;
			t.widths[t.n++] = rsh_text_width(k->heading);
		}
	for (char *at = out->cell_text; at < end; at += strlen(at) + 1, c++) {
		const size_t n = rsh_text_width(at + 1);

		if (n > t.widths[c % t.n])
			t.widths[c % t.n] = n;
	}
	if (out->width)
		fit(&t, out->width);
	for (c = 0; c < t.n; c++) {
		snprintf(heading, sizeof(heading), "%s", t.columns[c]->heading);
		print_cell(&t, out, c, heading, out->color ? "\033[1m" : NULL);
	}
	for (char *at = out->cell_text; at < end; at = next, c++) {
		next = at + strlen(at) + 1;
		print_cell(&t, out, c % t.n, at + 1,
			   rsh_mark_color(out, (enum rsh_mark)(*at - '0')));
	}
}
