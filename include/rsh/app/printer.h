/* SPDX-License-Identifier: Apache-2.0 */
/* app/printer.h prints what commands write to standard output, and the files of
 * a mount's control directory: JSON for programs, or tables and sentences for
 * people.  A command says all of it, one after the other, and the printer
 * leaves out what the user did not ask for:
 *
 *	rsh_json(&out, "{file:% records:", path);        only in JSON
 *	rsh_rows(&out, columns);                         "[", or a table
 *	for (...)
 *		rsh_row(&out, name, rsh_v_bytes(size));  an object, or a row
 *	rsh_rows_end(&out);                              "]"
 *	rsh_json(&out, "}");
 *	rsh_say(&out, "% record{|s}\n", n);              only for people
 *	rc = rsh_printer_end(&out, rc, err);
 *
 * The arguments are values of any type that RSH_V() knows. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <jansson.h>

#include "rsh/app/options.h"
#include "rsh/tensor/box.h"

struct rsh_printer {
	FILE *f;
	bool json;
	bool color;
	unsigned width; /* columns of the terminal; 0: not a terminal */
	/* The following members are the printer's own. */
	char *text; /* JSON is printed when it is complete */
	size_t length;
	unsigned digits, indent; /* of JSON: those of reals, and blanks */
	unsigned depth;
	bool more;   /* a comma comes before the next value */
	bool keyed;  /* the key of the next value was printed */
	bool failed; /* memory was out */
	const struct rsh_column *columns; /* of the table */
	FILE *cells;
	char *cell_text;
	size_t cell_length;
};

void rsh_printer_init(struct rsh_printer *out, const struct rsh_options *o);
/* Begins JSON whose text rsh_printer_take() returns, from malloc, or NULL if
 * memory was out.  It has lines if `indent` is not 0. */
void rsh_printer_init_text(struct rsh_printer *out, unsigned digits,
			   unsigned indent);
char *rsh_printer_take(struct rsh_printer *out);
/* Begins a part of the output that is printed later: as a value of JSON, or as
 * lines.  rsh_printer_put_part() ends the part; `out` NULL drops it. */
void rsh_printer_init_part(struct rsh_printer *part,
			   const struct rsh_printer *out);
void rsh_printer_put_part(struct rsh_printer *out, struct rsh_printer *part);
/* Ends the output, and prints JSON unless `rc`, the result of the command, is
 * not 0.  A second call does nothing.  Returns rc, or -ENOMEM with a sentence
 * if memory was out. */
int rsh_printer_end(struct rsh_printer *out, int rc, struct rsh_error *err);

/* ---- values ---- */

enum rsh_mark { RSH_MARK_NONE, RSH_MARK_GOOD, RSH_MARK_BAD };

/* Prints a value that has parts, by rsh_json() or rsh_say(). */
typedef void rsh_value_fn(struct rsh_printer *out, const void *ctx);

struct rsh_value {
	enum {
		RSH_IS_END, RSH_IS_NULL, RSH_IS_BOOL, RSH_IS_TEXT, RSH_IS_JSON,
		RSH_IS_SIGNED, RSH_IS_UNSIGNED, RSH_IS_BYTES, RSH_IS_REAL,
		RSH_IS_SECONDS, RSH_IS_DIMS, RSH_IS_U32S, RSH_IS_TEXTS,
		RSH_IS_CALL,
	} kind;
	enum rsh_mark mark; /* its color in a table */
	size_t n;           /* of the array */
	union {
		int64_t number;
		uint64_t count;
		double real;
		const void *at;
	};
	rsh_value_fn *call;
};

/*			     JSON             for people */
#define RSH_V(x) _Generic((x), \
	bool: rsh_v_bool, /* true             */ \
	char *: rsh_v_text, /* "text", null   text, escaped; - if NULL */ \
	const char *: rsh_v_text, \
	double: rsh_v_real, \
	unsigned int: rsh_v_count, \
	unsigned long: rsh_v_count, \
	unsigned long long: rsh_v_count, \
	struct rsh_value: rsh_v_same, \
	default: rsh_v_number)(x)

static inline struct rsh_value rsh_v_same(struct rsh_value v)
{
	return v;
}

#define RSH_VALUE_OF(name, type, is, member) \
	static inline struct rsh_value rsh_v_##name(type x) \
	{ \
		return (struct rsh_value){ .kind = is, .member = x }; \
	}
RSH_VALUE_OF(bool, bool, RSH_IS_BOOL, number)
RSH_VALUE_OF(text, const char *, RSH_IS_TEXT, at)
RSH_VALUE_OF(json, const char *, RSH_IS_JSON, at) /* complete JSON */
RSH_VALUE_OF(number, int64_t, RSH_IS_SIGNED, number)
RSH_VALUE_OF(count, uint64_t, RSH_IS_UNSIGNED, count)
RSH_VALUE_OF(real, double, RSH_IS_REAL, real)
RSH_VALUE_OF(bytes, uint64_t, RSH_IS_BYTES, count) /* 1536      1.5 KiB */
RSH_VALUE_OF(seconds, double, RSH_IS_SECONDS, real) /* 0.25     250 ms */

#define RSH_VALUE_OF_ARRAY(name, type, is) \
	static inline struct rsh_value rsh_v_##name(const type *x, size_t n) \
	{ \
		return (struct rsh_value){ .kind = is, .n = n, .at = x }; \
	}
RSH_VALUE_OF_ARRAY(dims, int64_t, RSH_IS_DIMS)   /* [2,3]       [2,3] */
RSH_VALUE_OF_ARRAY(sizes, uint64_t, RSH_IS_DIMS)
RSH_VALUE_OF_ARRAY(u32s, uint32_t, RSH_IS_U32S)  /* [2,3]       2 3, or - */
/* ["a","b"]   a, b, or - */
static inline struct rsh_value rsh_v_texts(const char *const *x, size_t n)
{
	return (struct rsh_value){ .kind = RSH_IS_TEXTS, .n = n, .at = x };
}

static inline struct rsh_value rsh_v_call(rsh_value_fn *call, const void *ctx)
{
	return (struct rsh_value){ .kind = RSH_IS_CALL, .at = ctx,
				   .call = call };
}

static inline struct rsh_value rsh_v_marked(enum rsh_mark mark,
					    struct rsh_value v)
{
	v.mark = mark;
	return v;
}

/* null, or - */
#define RSH_V_NULL ((struct rsh_value){ .kind = RSH_IS_NULL })
#define RSH_V_IF(condition, x) ((condition) ? RSH_V(x) : RSH_V_NULL)

/* RSH_VALUES(a, b) is RSH_V(a), RSH_V(b). */
#define RSH_VALUES(...) \
	RSH_VALUES_N(__VA_ARGS__, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, \
		     4, 3, 2, 1)(__VA_ARGS__)
#define RSH_VALUES_N(a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, n, ...) \
	RSH_VALUES_##n
#define RSH_VALUES_1(x) RSH_V(x)
#define RSH_VALUES_2(x, ...) RSH_V(x), RSH_VALUES_1(__VA_ARGS__)
#define RSH_VALUES_3(x, ...) RSH_V(x), RSH_VALUES_2(__VA_ARGS__)
#define RSH_VALUES_4(x, ...) RSH_V(x), RSH_VALUES_3(__VA_ARGS__)
#define RSH_VALUES_5(x, ...) RSH_V(x), RSH_VALUES_4(__VA_ARGS__)
#define RSH_VALUES_6(x, ...) RSH_V(x), RSH_VALUES_5(__VA_ARGS__)
#define RSH_VALUES_7(x, ...) RSH_V(x), RSH_VALUES_6(__VA_ARGS__)
#define RSH_VALUES_8(x, ...) RSH_V(x), RSH_VALUES_7(__VA_ARGS__)
#define RSH_VALUES_9(x, ...) RSH_V(x), RSH_VALUES_8(__VA_ARGS__)
#define RSH_VALUES_10(x, ...) RSH_V(x), RSH_VALUES_9(__VA_ARGS__)
#define RSH_VALUES_11(x, ...) RSH_V(x), RSH_VALUES_10(__VA_ARGS__)
#define RSH_VALUES_12(x, ...) RSH_V(x), RSH_VALUES_11(__VA_ARGS__)
#define RSH_VALUES_13(x, ...) RSH_V(x), RSH_VALUES_12(__VA_ARGS__)
#define RSH_VALUES_14(x, ...) RSH_V(x), RSH_VALUES_13(__VA_ARGS__)
#define RSH_VALUES_15(x, ...) RSH_V(x), RSH_VALUES_14(__VA_ARGS__)
#define RSH_VALUES_16(x, ...) RSH_V(x), RSH_VALUES_15(__VA_ARGS__)
#define RSH_VALUE_LIST(...) ((const struct rsh_value[]){ \
	RSH_VALUES(__VA_ARGS__), { .kind = RSH_IS_END } })

/* ---- printing ---- */

/* Prints JSON: each % is the next value; a word is a key; blanks count
 * nothing, and commas are added, also between calls.  %: is a key.  The first
 * argument is the format. */
#define rsh_json(out, ...) rsh_json_put(out, RSH_VALUE_LIST(__VA_ARGS__))
void rsh_json_put(struct rsh_printer *out, const struct rsh_value *v);

/* Prints text for people: each % is the next value, and {file|files} is one of
 * these words, by the last number.  The first argument is the format. */
#define rsh_say(out, ...) rsh_say_put(out, RSH_VALUE_LIST(__VA_ARGS__))
void rsh_say_put(struct rsh_printer *out, const struct rsh_value *v);

struct rsh_column {
	const char *key;     /* in JSON; NULL: it is for people only */
	const char *heading; /* NULL: it is in JSON only */
	bool right; /* numbers */
	/* These decide how the column fits a terminal that is too narrow. */
	bool shorten; /* "..." may replace its middle */
	char wrap;    /* last column: its text continues on the next line,
		       * broken after this character, ',' or ' ' */
};

/* Begins a table, or an array of objects.  The columns, in constant memory,
 * end with one without key and heading. */
void rsh_rows(struct rsh_printer *out, const struct rsh_column *columns);
/* Adds a row with a value for each column. */
#define rsh_row(out, ...) rsh_row_put(out, RSH_VALUE_LIST(__VA_ARGS__))
void rsh_row_put(struct rsh_printer *out, const struct rsh_value *v);
void rsh_rows_end(struct rsh_printer *out);

/* Prints the table of the cells (table.c). */
void rsh_table_print(struct rsh_printer *out);
/* Returns what begins the color of a mark, or NULL without color. */
const char *rsh_mark_color(const struct rsh_printer *out, enum rsh_mark mark);

/* ---- sentences that are printed later ---- */

struct rsh_sentences {
	char **v; /* from malloc */
	size_t n, cap;
	bool failed; /* memory was out; printing them fails, too */
};
void rsh_sentences_add(struct rsh_sentences *s, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void rsh_sentences_clear(struct rsh_sentences *s);
/* Prints sentences `from` to `end` - 1, as an array or as lines that begin with
 * `before`. */
void rsh_sentences_print(const struct rsh_sentences *s, size_t from, size_t end,
			 const char *before, struct rsh_printer *out);

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

#define RSH_SHAPE_TEXT_MAX (RSH_MAX_DIMS * 21 + 3)
/* Formats bytes as "1.5 GiB"; returns text. */
const char *rsh_text_bytes(uint64_t bytes, char *text, size_t size);
/* Formats seconds as "250 ms", "12.5 s" or "3.1 h"; returns text. */
const char *rsh_text_seconds(double seconds, char *text, size_t size);

/* ---- JSON of texts that need not be UTF-8 ---- */

/* Drops the value, and returns its text, escaped by rsh_text_json() (from
 * malloc).  Returns NULL if memory is out or `value` is NULL. */
char *rsh_json_dump(json_t *value, size_t flags);
/* Makes a string; text that is not UTF-8 is escaped as rsh_text_escape() does.
 * The caller owns it; NULL means out of memory. */
json_t *rsh_json_text(const char *s);
