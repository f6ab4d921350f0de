/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/printer.h prints what commands write to standard output: tables, or
 * JSON for programs. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "rsh/app/json.h"
#include "rsh/app/options.h"
#include "rsh/tensor/box.h"
#include "rsh/tensor/dtype.h"
#include "rsh/util/text.h"

struct rsh_printer {
	FILE *f;
	bool json;
	bool color;
	unsigned width; /* columns of the terminal; 0: not a terminal */
};

void rsh_printer_init(struct rsh_printer *out, const struct rsh_options *o);

/* Prints the value on one line and drops it.  Returns 0, or -ENOMEM if it is
 * NULL, because jansson returns NULL if a part could not be made. */
int rsh_printer_json(const struct rsh_printer *out, json_t *value);

/* Prints a part of a line, escaped (util/text.h). */
void rsh_printer_put(const struct rsh_printer *out, const char *text);
/* Prints a line, escaped. */
void rsh_printer_line(const struct rsh_printer *out, const char *text);

/* ---- sentences that are printed later ---- */

struct rsh_sentences {
	char **v; /* from malloc */
	size_t n, cap;
};
/* Returns 0 or -ENOMEM. */
int rsh_sentences_add(struct rsh_sentences *s, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void rsh_sentences_clear(struct rsh_sentences *s);

/* ---- text for terminals ---- */

/* Returns how many columns of a terminal UTF-8 text takes: a Chinese, Japanese
 * or Korean character takes two, a combining accent none. */
size_t rsh_text_width(const char *s);
/* Returns how many bytes at the beginning of `s` take at most `width`
 * columns. */
size_t rsh_text_fitting(const char *s, size_t width);
/* Cuts `s` in place to `width` columns, at least 4, and replaces its middle by
 * "...". */
void rsh_text_shorten(char *s, size_t width);

/* Formats bytes as "1.5 GiB"; returns text. */
const char *rsh_text_bytes(uint64_t bytes, char *text, size_t size);
/* Formats seconds as "250 ms", "12.5 s" or "3.1 h"; returns text. */
const char *rsh_text_seconds(double seconds, char *text, size_t size);

/* Writes a shape as "[2,3]"; returns text. */
#define RSH_LS_SHAPE_MAX (RSH_MAX_DIMS * 21 + 3)
const char *rsh_ls_shape(const int64_t *dims, uint32_t n,
			 char text[RSH_LS_SHAPE_MAX]);
json_t *rsh_ls_shape_json(const int64_t *dims, uint32_t n);

/* ---- tables ---- */

struct rsh_column {
	const char *title;
	bool right;   /* numbers */
	/* These decide how the column fits a terminal that is too narrow. */
	bool shorten; /* "..." may replace its middle */
	bool wrap;    /* last column, in ASCII: its text continues on the next
		       * line, broken after commas */
};

enum rsh_mark { RSH_MARK_NONE, RSH_MARK_GOOD, RSH_MARK_BAD };

struct rsh_table;

/* Makes a table; the columns must outlive it.  Returns NULL if memory is out;
 * the functions below accept NULL. */
struct rsh_table *rsh_table_new(const struct rsh_column *columns, unsigned n);
#define RSH_TABLE(columns) \
	rsh_table_new(columns, sizeof(columns) / sizeof((columns)[0]))
void rsh_table_free(struct rsh_table *t);
/* Adds the next cell of the row; texts are escaped (util/text.h). */
void rsh_table_cell(struct rsh_table *t, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* Adds to the text of the cell that was added last. */
void rsh_table_add(struct rsh_table *t, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* Adds cells for the type of a tensor and a shape of it. */
void rsh_table_type(struct rsh_table *t, enum rsh_dtype dtype,
		    const int64_t *dims, uint32_t n);
void rsh_table_mark(struct rsh_table *t, enum rsh_mark mark, const char *text);
/* Prints the table, and frees it in any case.  Returns 0 or -ENOMEM. */
int rsh_table_print(struct rsh_table *t, const struct rsh_printer *out);
