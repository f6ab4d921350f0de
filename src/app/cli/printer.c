/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/printer.c measures and cuts UTF-8 text by columns, formats sizes and
 * durations, and finds out whether the output is a terminal, its width, and
 * whether to use color. */
#include "config.h"

#include "printer.h"

#include <errno.h>
#include <limits.h>
#include <locale.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#include "rsh/tensor/box.h"
#include "rsh/util/mem.h"

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

const char *rsh_text_bytes(uint64_t bytes, char *text, size_t size)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB",
					     "PiB", "EiB" };
	double n = (double)bytes;
	unsigned unit = 0;

	while (n >= 1023.95 && unit < 6) {
		n /= 1024;
		unit++;
	}
	snprintf(text, size, unit ? "%.1f %s" : "%.0f %s", n, units[unit]);
	return text;
}

const char *rsh_text_seconds(double seconds, char *text, size_t size)
{
	if (seconds < 0.9995)
		snprintf(text, size, "%.3g ms", seconds * 1000);
	else if (seconds < 119.95)
		snprintf(text, size, "%.1f s", seconds);
	else if (seconds < 7197)
		snprintf(text, size, "%.1f min", seconds / 60);
	else
		snprintf(text, size, "%.1f h", seconds / 3600);
	return text;
}

/* ---- the output ---- */

#define DEFAULT_WIDTH 80

static unsigned output_width(void)
{
	const char *columns = getenv("COLUMNS");
	unsigned long n = columns ? strtoul(columns, NULL, 10) : 0;
	struct winsize size;

	if (n > 0 && n < 10000)
		return (unsigned)n;
	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
		return size.ws_col;
	return DEFAULT_WIDTH;
}

void rsh_printer_init(struct rsh_printer *out, const struct rsh_options *o)
{
	/* NO_COLOR is the variable of https://no-color.org. */
	const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
	const bool terminal = isatty(STDOUT_FILENO);

	*out = (struct rsh_printer){
		.f = stdout,
		.json = o->json,
		.color = o->color == RSH_COLOR_ALWAYS ||
			 (o->color == RSH_COLOR_AUTO && terminal &&
			  !(no && *no) && !(term && strcmp(term, "dumb") == 0)),
		.width = terminal ? output_width() : 0,
	};
}

void rsh_printer_put(const struct rsh_printer *out, const char *text)
{
	cleanup_free char *escaped = rsh_text_escape(text);

	fputs(escaped ? escaped : "?", out->f);
}

void rsh_printer_line(const struct rsh_printer *out, const char *text)
{
	rsh_printer_put(out, text);
	fputc('\n', out->f);
}

int rsh_printer_json(const struct rsh_printer *out, json_t *value)
{
	cleanup_free char *text = rsh_json_dump(value, JSON_COMPACT |
						JSON_REAL_PRECISION(6));

	if (!text)
		return -ENOMEM;
	fprintf(out->f, "%s\n", text);
	return 0;
}

int rsh_sentences_add(struct rsh_sentences *s, const char *fmt, ...)
{
	va_list args;
	int n;

	if (rsh_grow(&s->v, &s->cap, s->n + 1, sizeof(*s->v)))
		return -ENOMEM;
	va_start(args, fmt);
	n = vasprintf(&s->v[s->n], fmt, args);
	va_end(args);
	s->n += n >= 0;
	return n < 0 ? -ENOMEM : 0;
}

void rsh_sentences_clear(struct rsh_sentences *s)
{
	for (size_t i = 0; i < s->n; i++)
		free(s->v[i]);
	free(s->v);
}

json_t *rsh_ls_shape_json(const int64_t *dims, uint32_t n)
{
	json_t *shape = json_array();

	for (uint32_t d = 0; d < n; d++)
		json_array_append_new(shape, json_integer(dims[d]));
	return shape;
}

const char *rsh_ls_shape(const int64_t *dims, uint32_t n,
			 char text[RSH_LS_SHAPE_MAX])
{
	return rsh_dims_text((const uint64_t *)dims, n, text, RSH_LS_SHAPE_MAX);
}
