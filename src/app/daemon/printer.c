/* SPDX-License-Identifier: Apache-2.0 */
/* app/daemon/printer.c prints values as JSON and in sentences, and finds out
 * whether the output is a terminal, its width, and whether to use color. */
#include "config.h"

#include "rsh/app/printer.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "rsh/util/mem.h"
#include "rsh/util/text.h"

/* ---- numbers for people ---- */

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

/* ---- JSON ---- */

char *rsh_json_dump(json_t *value, size_t flags)
{
	cleanup_free char *text = value ? json_dumps(value, flags) : NULL;

	json_decref(value);
	return text ? rsh_text_json(text) : NULL;
}

json_t *rsh_json_text(const char *s)
{
	json_t *text = json_string(s);
	cleanup_free char *escaped = NULL;

	if (text)
		return text;
	escaped = rsh_text_escape(s);
	return escaped ? json_string(escaped) : NULL;
}

static void json_new_line(struct rsh_printer *out)
{
	if (out->indent)
		fprintf(out->f, "\n%*s", (int)(out->depth * out->indent), "");
}

/* Begins a value or a key: prints what separates it from what is before. */
static void json_begin(struct rsh_printer *out)
{
	if (!out->keyed && out->more)
		fputc(',', out->f);
	if (!out->keyed && out->depth)
		json_new_line(out);
	out->keyed = false;
	out->more = true;
}

static void json_scalar(struct rsh_printer *out, json_t *value)
{
	cleanup_free char *text =
		rsh_json_dump(value, JSON_ENCODE_ANY |
				     JSON_REAL_PRECISION(out->digits));

	out->failed |= !text;
	fputs(text ? text : "", out->f);
}

static void json_structure(struct rsh_printer *out, char c)
{
	if (c == '{' || c == '[') {
		json_begin(out);
		out->depth++;
		out->more = false;
	} else {
		out->depth--;
		if (out->more)
			json_new_line(out);
		out->more = true;
	}
	fputc(c, out->f);
}

static void json_value(struct rsh_printer *out, const struct rsh_value *v)
{
	if (v->kind == RSH_IS_CALL) {
		v->call(out, v->at);
		return;
	}
	if (v->kind == RSH_IS_DIMS || v->kind == RSH_IS_U32S ||
	    v->kind == RSH_IS_TEXTS) {
		json_structure(out, '[');
		for (size_t i = 0; i < v->n; i++)
			json_value(out, &(struct rsh_value[]){
				v->kind == RSH_IS_DIMS ?
				rsh_v_number(((const int64_t *)v->at)[i]) :
				v->kind == RSH_IS_U32S ?
				rsh_v_count(((const uint32_t *)v->at)[i]) :
				rsh_v_text(((char *const *)v->at)[i]) }[0]);
		json_structure(out, ']');
		return;
	}
	json_begin(out);
	if (v->kind == RSH_IS_NULL || (v->kind == RSH_IS_TEXT && !v->at))
		fputs("null", out->f);
	else if (v->kind == RSH_IS_BOOL)
		fputs(v->number ? "true" : "false", out->f);
	else if (v->kind == RSH_IS_TEXT)
		json_scalar(out, rsh_json_text(v->at));
	else if (v->kind == RSH_IS_JSON)
		fputs(v->at, out->f);
	else if (v->kind == RSH_IS_REAL || v->kind == RSH_IS_SECONDS)
		json_scalar(out, json_real(v->real));
	else
		fprintf(out->f, "%" PRId64, v->number);
}

static void json_key(struct rsh_printer *out, const char *key, size_t n)
{
	json_begin(out);
	fprintf(out->f, "\"%.*s\":%s", (int)n, key, out->indent ? " " : "");
	out->keyed = true;
}

/* Returns the value after v.  If there is none, the caller has given too few,
 * and the command fails. */
static const struct rsh_value *next_value(struct rsh_printer *out,
					  const struct rsh_value *v)
{
	if (v->kind != RSH_IS_END)
		v++;
	out->failed |= v->kind == RSH_IS_END;
	return v;
}

void rsh_json_put(struct rsh_printer *out, const struct rsh_value *v)
{
	const char *c = v->at;
	size_t n;

	for (; out->json && !out->failed && *c; c += n) {
		n = strspn(c, "abcdefghijklmnopqrstuvwxyz_");
		if (n > 0) {
			json_key(out, c, n++);
			continue;
		}
		n = 1;
		if (*c == '%')
			v = next_value(out, v);
		if (out->failed)
			return;
		if (*c == '%' && c[1] == ':') {
			json_key(out, v->at, strlen(v->at));
			n = 2;
		} else if (*c == '%') {
			json_value(out, v);
		} else if (*c != ' ') {
			json_structure(out, *c);
		}
	}
}

/* ---- for people ---- */

static void say_value(struct rsh_printer *out, const struct rsh_value *v)
{
	cleanup_free char *escaped = NULL;
	char text[RSH_SHAPE_TEXT_MAX];

	switch (v->kind) {
	case RSH_IS_TEXT:
		escaped = v->at ? rsh_text_escape(v->at) : NULL;
		out->failed |= v->at && !escaped;
		fputs(escaped ? escaped : "-", out->f);
		break;
	case RSH_IS_SIGNED:
		fprintf(out->f, "%" PRId64, v->number);
		break;
	case RSH_IS_UNSIGNED:
		fprintf(out->f, "%" PRIu64, v->count);
		break;
	case RSH_IS_BYTES:
		fputs(rsh_text_bytes(v->count, text, sizeof(text)), out->f);
		break;
	case RSH_IS_SECONDS:
		fputs(rsh_text_seconds(v->real, text, sizeof(text)), out->f);
		break;
	case RSH_IS_DIMS:
		fputs(rsh_dims_text(v->at, (uint32_t)v->n, text, sizeof(text)),
		      out->f);
		break;
	case RSH_IS_U32S:
		for (size_t i = 0; i < v->n; i++)
			fprintf(out->f, "%s%" PRIu32, i ? " " : "",
				((const uint32_t *)v->at)[i]);
		fputs(v->n ? "" : "-", out->f);
		break;
	case RSH_IS_TEXTS:
		for (size_t i = 0; i < v->n; i++)
			rsh_say(out, "%%", i ? ", " : "",
				((char *const *)v->at)[i]);
		fputs(v->n ? "" : "-", out->f);
		break;
	case RSH_IS_CALL:
		v->call(out, v->at);
		break;
	default:
		fputc('-', out->f);
	}
}

void rsh_say_put(struct rsh_printer *out, const struct rsh_value *v)
{
	const char *c = v->at, *color;
	bool one = false;
	size_t n;

	for (; !out->json && out->f && *c; c += n) {
		n = strcspn(c, "%{");
		if (n > 0) {
			fwrite(c, 1, n, out->f);
		} else if (*c == '{') {
			const char *many = strchr(c, '|') + 1;

			n = strcspn(c, "}") + 1;
			c++;
			if (one)
				fwrite(c, 1, (size_t)(many - c) - 1, out->f);
			else
				fwrite(many, 1, strcspn(many, "}"), out->f);
			n--;
		} else {
			n = 1;
			v = next_value(out, v);
			if (v->kind == RSH_IS_SIGNED ||
			    v->kind == RSH_IS_UNSIGNED)
				one = v->number == 1;
			color = rsh_mark_color(out, v->mark);
			fputs(color ? color : "", out->f);
			say_value(out, v);
			fputs(color ? "\033[0m" : "", out->f);
		}
	}
}

/* ---- rows ---- */

void rsh_rows(struct rsh_printer *out, const struct rsh_column *columns)
{
	if (out->failed)
		return;
	out->columns = columns;
	if (out->json)
		json_structure(out, '[');
	else
		out->cells = open_memstream(&out->cell_text, &out->cell_length);
	out->failed = !out->json && !out->cells;
}

/* A cell begins with its mark and ends with a NUL. */
void rsh_row_put(struct rsh_printer *out, const struct rsh_value *v)
{
	struct rsh_printer cell = *out;

	if (out->failed)
		return;
	if (out->json)
		json_structure(out, '{');
	cell.f = out->cells;
	for (const struct rsh_column *c = out->columns; c->key || c->heading;
	     c++, v++) {
		out->failed |= v->kind == RSH_IS_END;
		if (out->failed)
			return;
		if (out->json && c->key) {
			json_key(out, c->key, strlen(c->key));
			json_value(out, v);
		} else if (!out->json && c->heading) {
			fputc('0' + (int)v->mark, cell.f);
			say_value(&cell, v);
			fputc('\0', cell.f);
		}
	}
	/* There is a value for each column. */
	out->failed |= cell.failed || v->kind != RSH_IS_END;
	if (out->json)
		json_structure(out, '}');
}

void rsh_rows_end(struct rsh_printer *out)
{
	if (out->failed)
		return;
	if (out->json) {
		json_structure(out, ']');
		return;
	}
	out->failed = fclose(out->cells) != 0;
	if (!out->failed)
		rsh_table_print(out);
	free(out->cell_text);
	out->cells = NULL;
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

	if (o->json) {
		rsh_printer_init_text(out, 6, 0);
		return;
	}
	*out = (struct rsh_printer){
		.f = stdout,
		.color = o->color == RSH_COLOR_ALWAYS ||
			 (o->color == RSH_COLOR_AUTO && terminal &&
			  !(no && *no) && !(term && strcmp(term, "dumb") == 0)),
		.width = terminal ? output_width() : 0,
	};
}

void rsh_printer_init_part(struct rsh_printer *part,
			   const struct rsh_printer *out)
{
	*part = (struct rsh_printer){
		.json = out->json, .color = out->color, .width = out->width,
		.digits = out->digits, .indent = out->indent,
		.depth = out->depth, .keyed = true,
	};
	part->f = open_memstream(&part->text, &part->length);
	part->failed = !part->f;
}

void rsh_printer_init_text(struct rsh_printer *out, unsigned digits,
			   unsigned indent)
{
	rsh_printer_init_part(out, &(struct rsh_printer){
		.json = true, .digits = digits, .indent = indent,
	});
}

static void printer_drop_cells(struct rsh_printer *out)
{
	if (!out->cells)
		return;
	fclose(out->cells);
	free(out->cell_text);
	out->cells = NULL;
}

char *rsh_printer_take(struct rsh_printer *out)
{
	printer_drop_cells(out);
	if (out->f && out->indent && !out->depth)
		fputc('\n', out->f);
	out->failed |= out->f && fclose(out->f) != 0;
	out->f = NULL;
	if (!out->failed)
		return steal_pointer(&out->text);
	free(steal_pointer(&out->text));
	return NULL;
}

void rsh_printer_put_part(struct rsh_printer *out, struct rsh_printer *part)
{
	cleanup_free char *text = rsh_printer_take(part);

	if (!out)
		return;
	out->failed |= !text;
	rsh_json(out, "%", rsh_v_json(text));
	if (text && !out->json)
		fputs(text, out->f);
}

int rsh_printer_end(struct rsh_printer *out, int rc, struct rsh_error *err)
{
	cleanup_free char *text = out->json ? rsh_printer_take(out) : NULL;

	printer_drop_cells(out);
	if (rc == 0 && out->failed)
		rc = rsh_error_nomem(err);
	if (rc == 0 && text && *text)
		printf("%s\n", text);
	*out = (struct rsh_printer){ .f = stdout };
	return rc;
}

/* ---- sentences ---- */

void rsh_sentences_add(struct rsh_sentences *s, const char *fmt, ...)
{
	va_list args;

	s->failed |= rsh_room(s->v, s->cap, s->n + 1) != 0;
	if (s->failed)
		return;
	va_start(args, fmt);
	s->failed = vasprintf(&s->v[s->n], fmt, args) < 0;
	s->n += !s->failed;
	va_end(args);
}

void rsh_sentences_clear(struct rsh_sentences *s)
{
	for (size_t i = 0; i < s->n; i++)
		free(s->v[i]);
	free(s->v);
}

void rsh_sentences_print(const struct rsh_sentences *s, size_t from, size_t end,
			 const char *before, struct rsh_printer *out)
{
	out->failed |= s->failed;
	rsh_json(out, "%", rsh_v_texts((const char *const *)s->v + from,
				 end - from));
	for (size_t i = from; i < end; i++)
		rsh_say(out, "%%\n", before, s->v[i]);
}
