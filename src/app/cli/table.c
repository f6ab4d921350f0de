/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/table.c prints tables that fit a terminal. */
#include "config.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "printer.h"
#include "rsh/util/mem.h"

#define GAP 2       /* blanks between columns */
#define NARROWEST 8 /* columns that shortening leaves at least */
#define WRAPPED 14  /* columns that wrapping leaves at least */

struct cell {
	char *text;
	size_t length, cap; /* bytes of the text, and room for them */
	enum rsh_mark mark;
};

struct rsh_table {
	const struct rsh_column *columns;
	unsigned n_columns;
	struct cell *cells;
	size_t n, cap;
	bool failed; /* memory was out */
};

struct rsh_table *rsh_table_new(const struct rsh_column *columns, unsigned n)
{
	struct rsh_table *t = calloc(1, sizeof(*t));

	if (t) {
		t->columns = columns;
		t->n_columns = n;
	}
	return t;
}

void rsh_table_free(struct rsh_table *t)
{
	if (!t)
		return;
	for (size_t i = 0; i < t->n; i++)
		free(t->cells[i].text);
	free(t->cells);
	free(t);
}

static void table_begin_cell(struct rsh_table *t, enum rsh_mark mark)
{
	if (!t || t->failed)
		return;
	t->failed = rsh_grow(&t->cells, &t->cap, t->n + 1,
			     sizeof(*t->cells)) != 0;
	if (!t->failed)
		t->cells[t->n++] = (struct cell){ .mark = mark };
}

__attribute__((format(printf, 2, 0)))
static void table_vadd(struct rsh_table *t, const char *fmt, va_list ap)
{
	cleanup_free char *text = NULL, *escaped = NULL;
	struct cell *c;
	size_t n;

	if (!t || t->failed)
		return;
	c = &t->cells[t->n - 1];
	if (vasprintf(&text, fmt, ap) < 0)
		text = NULL;
	escaped = text ? rsh_text_escape(text) : NULL;
	n = escaped ? strlen(escaped) : 0;
	t->failed = !escaped ||
		    rsh_grow(&c->text, &c->cap, c->length + n + 1, 1) != 0;
	if (t->failed)
		return;
	memcpy(c->text + c->length, escaped, n + 1);
	c->length += n;
}

void rsh_table_cell(struct rsh_table *t, const char *fmt, ...)
{
	va_list ap;

	table_begin_cell(t, RSH_MARK_NONE);
	va_start(ap, fmt);
	table_vadd(t, fmt, ap);
	va_end(ap);
}

void rsh_table_add(struct rsh_table *t, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	table_vadd(t, fmt, ap);
	va_end(ap);
}

void rsh_table_mark(struct rsh_table *t, enum rsh_mark mark, const char *text)
{
	table_begin_cell(t, mark);
	rsh_table_add(t, "%s", text);
}

void rsh_table_type(struct rsh_table *t, enum rsh_dtype dtype,
		    const int64_t *dims, uint32_t n)
{
	char text[RSH_LS_SHAPE_MAX];

	rsh_table_cell(t, "%s", rsh_dtype_name(dtype));
	rsh_table_cell(t, "%s", rsh_ls_shape(dims, n, text));
}

/* ---- printing ---- */

/* Returns the widest column that can be made narrower, or n_columns if there is
 * none. */
static unsigned widest(const struct rsh_table *t, const size_t *widths,
		       bool wrap)
{
	unsigned at = t->n_columns;

	for (unsigned c = 0; c < t->n_columns; c++) {
		const struct rsh_column *column = &t->columns[c];

		if ((wrap ? column->wrap : column->shorten) &&
		    widths[c] > (wrap ? WRAPPED : NARROWEST) &&
		    (at == t->n_columns || widths[c] > widths[at]))
			at = c;
	}
	return at;
}

/* Wrapping loses no text, so it is tried before shortening. */
static void fit(const struct rsh_table *t, size_t *widths, size_t room)
{
	size_t total = GAP * (t->n_columns - 1);

	for (unsigned c = 0; c < t->n_columns; c++)
		total += widths[c];
	while (total > room) {
		unsigned c = widest(t, widths, true);

		if (c == t->n_columns)
			c = widest(t, widths, false);
		if (c == t->n_columns)
			return;
		widths[c]--;
		total--;
	}
}

/* Returns how many bytes of the text are printed on a line.  The line is too
 * long if the first item does not fit, because items are not cut. */
static size_t line_length(const char *text, size_t width)
{
	size_t n = rsh_text_fitting(text, width);

	if (!text[n])
		return n;
	for (size_t i = n; i > 0; i--)
		if (text[i - 1] == ',')
			return i;
	n = strcspn(text, ",");
	return text[n] ? n + 1 : n;
}

static void print_wrapped(const struct rsh_printer *out, const char *text,
			  const char *color, size_t indent, size_t width)
{
	for (;;) {
		size_t n = line_length(text, width);

		fprintf(out->f, "%s%.*s%s\n", color ? color : "", (int)n, text,
			color ? "\033[0m" : "");
		text += n;
		text += strspn(text, " ");
		if (!*text)
			return;
		fprintf(out->f, "%*s", (int)indent, "");
	}
}

static void print_cell(const struct rsh_table *t, const struct rsh_printer *out,
		       unsigned c, char *text, const char *color,
		       const size_t *widths)
{
	const struct rsh_column *column = &t->columns[c];
	const size_t width = widths[c];
	size_t n, blanks, indent = c * GAP;

	if (column->shorten && out->width)
		rsh_text_shorten(text, width);
	n = rsh_text_width(text);
	blanks = n < width ? width - n : 0;
	if (c > 0)
		fprintf(out->f, "%*s", GAP, "");
	if (column->wrap && out->width) {
		while (c-- > 0)
			indent += widths[c];
		print_wrapped(out, text, color, indent, width);
		return;
	}
	if (column->right)
		fprintf(out->f, "%*s", (int)blanks, "");
	fprintf(out->f, "%s%s%s", color ? color : "", text,
		color ? "\033[0m" : "");
	if (c + 1 == t->n_columns)
		fputc('\n', out->f);
	else if (!column->right)
		fprintf(out->f, "%*s", (int)blanks, "");
}

int rsh_table_print(struct rsh_table *t, const struct rsh_printer *out)
{
	cleanup_free size_t *widths =
		!t || t->failed ? NULL :
		rsh_alloc_array(t->n_columns, sizeof(*widths));
	char title[64];

	if (!widths) {
		rsh_table_free(t);
		return -ENOMEM;
	}
	for (unsigned c = 0; c < t->n_columns; c++)
		widths[c] = rsh_text_width(t->columns[c].title);
	for (size_t i = 0; i < t->n; i++) {
		size_t n = rsh_text_width(t->cells[i].text);

		if (n > widths[i % t->n_columns])
			widths[i % t->n_columns] = n;
	}
	if (out->width)
		fit(t, widths, out->width);
	for (unsigned c = 0; c < t->n_columns; c++) {
		snprintf(title, sizeof(title), "%s", t->columns[c].title);
		print_cell(t, out, c, title, out->color ? "\033[1m" : NULL,
			   widths);
	}
	for (size_t i = 0; i < t->n; i++) {
		const enum rsh_mark mark = t->cells[i].mark;

		print_cell(t, out, i % t->n_columns, t->cells[i].text,
			   !out->color || mark == RSH_MARK_NONE ? NULL :
			   mark == RSH_MARK_GOOD ? "\033[32m" : "\033[31m",
			   widths);
	}
	rsh_table_free(t);
	return 0;
}
