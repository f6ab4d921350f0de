/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/convert_print.c prints the result of a check of a table of rules: a
 * row for each tensor that is made or left out, and a line for each error. */
#include "config.h"

#include "convert.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ls.h"
#include "rsh/util/mem.h"

#define NAMED_MAX 3 /* so many tensors are named, the others are counted */

struct rsh_convert_report {
	const struct rsh_printer *out;
	const char *path; /* of the table */
	bool quiet;
	const struct rsh_offer *in; /* NULL: there is no source */
	const struct rsh_names *names;
	bool *used; /* [in]: a tensor is made of it */
	enum rsh_side from;
	struct rsh_table *rows;
	json_t *tensors, *passed, *findings; /* NULL: not JSON */
	char **sentences;
	size_t n_sentences, sentences_cap;
	uint32_t n_made, n_used, n_passed, n_wrong;
	bool nomem;
};

static const struct rsh_column columns[] = {
	{ "LINE", .right = true },
	{ "IS MADE", .shorten = true },
	{ "SHAPE" },
	{ "OF", .shorten = true },
};

struct rsh_convert_report *
rsh_convert_report_new(const struct rsh_printer *out, const char *table,
		       bool quiet)
{
	struct rsh_convert_report *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->out = out;
	r->path = table;
	r->quiet = quiet;
	r->rows = rsh_table_new(columns, sizeof(columns) / sizeof(columns[0]));
	if (out->json) {
		r->tensors = json_array();
		r->passed = json_array();
		r->findings = json_array();
	}
	return r;
}

void rsh_convert_report_free(struct rsh_convert_report *r)
{
	if (!r)
		return;
	for (size_t i = 0; i < r->n_sentences; i++)
		free(r->sentences[i]);
	free(r->sentences);
	free(r->used);
	json_decref(r->tensors);
	json_decref(r->passed);
	json_decref(r->findings);
	rsh_table_free(r->rows);
	free(r);
}

int rsh_convert_report_source(struct rsh_convert_report *r,
			      const struct rsh_offer *in, uint32_t n,
			      const struct rsh_names *names,
			      enum rsh_side from)
{
	r->used = calloc((size_t)n + 1, sizeof(*r->used));
	r->in = in;
	r->names = names;
	r->from = from;
	return r->used ? 0 : -ENOMEM;
}

/* ---- tensors ---- */

static const char *offer_shape(const struct rsh_offer *f,
			       char text[RSH_LS_SHAPE_MAX])
{
	return rsh_ls_shape((const int64_t *)f->dims, f->n_dims, text);
}

static json_t *offer_json(const struct rsh_convert_report *r,
			  const struct rsh_offer *f)
{
	return json_pack("{s:o,s:s,s:o}", "name",
			 rsh_json_text(rsh_names_text(r->names, f->name)),
			 "dtype", rsh_dtype_name(f->dtype), "shape",
			 rsh_ls_shape_json((const int64_t *)f->dims,
					   f->n_dims));
}

static json_t *rule_line_json(const struct rsh_rule *rule)
{
	return rule ? json_integer(rule->line) : json_null();
}

static void report_made_json(struct rsh_convert_report *r,
			     const struct rsh_offer *offer,
			     const struct rsh_rule *rule,
			     const uint32_t *sources, uint32_t n)
{
	json_t *of = json_array(), *one = offer_json(r, offer);

	for (uint32_t i = 0; i < n; i++)
		json_array_append_new(of, offer_json(r, &r->in[sources[i]]));
	json_object_set_new(one, "line", rule_line_json(rule));
	json_object_set_new(one, "of", of);
	if (json_array_append_new(r->tensors, one))
		r->nomem = true;
}

static void report_line_cell(struct rsh_convert_report *r,
			     const struct rsh_rule *rule)
{
	if (rule)
		rsh_table_cell(r->rows, "%" PRIu32, rule->line);
	else
		rsh_table_cell(r->rows, "-");
}

/* Names only the first tensors, so that the row of a stack of experts stays
 * short. */
static void report_of_cell(struct rsh_convert_report *r,
			   const uint32_t *sources, uint32_t n)
{
	char text[NAMED_MAX * (1024 + RSH_LS_SHAPE_MAX) + 64] = "";
	char shape[RSH_LS_SHAPE_MAX];
	size_t at = 0;

	for (uint32_t i = 0; i < n && i < NAMED_MAX; i++) {
		const struct rsh_offer *f = &r->in[sources[i]];

		at += (size_t)snprintf(text + at, sizeof(text) - at,
				       "%s%.1000s %s", i ? " + " : "",
				       rsh_names_text(r->names, f->name),
				       offer_shape(f, shape));
	}
	if (n > NAMED_MAX)
		snprintf(text + at, sizeof(text) - at, " and %" PRIu32 " more",
			 n - NAMED_MAX);
	rsh_table_cell(r->rows, "%s", text);
}

void rsh_convert_report_made(void *report, const struct rsh_offer *offer,
			     const struct rsh_rule *rule,
			     const uint32_t *sources, uint32_t n)
{
	struct rsh_convert_report *r = report;
	char shape[RSH_LS_SHAPE_MAX];

	r->n_made++;
	for (uint32_t i = 0; i < n; i++) {
		r->n_used += !r->used[sources[i]];
		r->used[sources[i]] = true;
	}
	if (r->tensors) {
		report_made_json(r, offer, rule, sources, n);
		return;
	}
	report_line_cell(r, rule);
	rsh_table_cell(r->rows, "%s", rsh_names_text(r->names, offer->name));
	rsh_table_cell(r->rows, "%s", offer_shape(offer, shape));
	report_of_cell(r, sources, n);
}

void rsh_convert_report_passed(void *report, uint32_t source,
			       const struct rsh_rule *rule)
{
	struct rsh_convert_report *r = report;

	r->n_passed++;
	if (r->passed) {
		json_t *one = offer_json(r, &r->in[source]);

		json_object_set_new(one, "line", rule_line_json(rule));
		if (json_array_append_new(r->passed, one))
			r->nomem = true;
		return;
	}
	report_line_cell(r, rule);
	rsh_table_cell(r->rows, "nothing");
	rsh_table_cell(r->rows, "-");
	report_of_cell(r, &source, 1);
}

/* ---- faults ---- */

void rsh_convert_report_say(void *report, bool wrong, const char *sentence)
{
	struct rsh_convert_report *r = report;
	char *line;

	r->n_wrong += wrong;
	if (r->findings) {
		if (json_array_append_new(
			    r->findings,
			    json_pack("{s:b,s:o}", "wrong", wrong, "sentence",
				      rsh_json_text(sentence))))
			r->nomem = true;
		return;
	}
	if (asprintf(&line, "%s%s", wrong ? "" : "remark: ", sentence) < 0) {
		r->nomem = true;
		return;
	}
	if (rsh_grow(&r->sentences, &r->sentences_cap, r->n_sentences + 1,
		     sizeof(*r->sentences))) {
		free(line);
		r->nomem = true;
		return;
	}
	r->sentences[r->n_sentences++] = line;
}

void rsh_convert_report_wrong(void *report, const char *sentence)
{
	rsh_convert_report_say(report, true, sentence);
}

/* ---- the end ---- */

static int report_print_json(struct rsh_convert_report *r)
{
	static const char *const sides[] = { "hf", "mindspore" };
	json_t *from = r->in ? json_string(sides[r->from]) : json_null();

	return rsh_printer_json(
		r->out, json_pack("{s:o,s:o,s:O,s:O,s:O}", "table",
				  rsh_json_text(r->path), "from", from,
				  "tensors", r->tensors, "passed", r->passed,
				  "findings", r->findings));
}

static void report_print_end(const struct rsh_convert_report *r)
{
	rsh_printer_put(r->out, r->path);
	fputs(": ", r->out->f);
	if (r->in)
		fprintf(r->out->f, "%" PRIu32 " tensors of %s are made of "
			"%" PRIu32 "; %" PRIu32 " are not converted: ",
			r->n_made, r->from == RSH_SIDE_HF ? "MindSpore's form" :
			"Hugging Face's form", r->n_used, r->n_passed);
	if (r->n_wrong)
		fprintf(r->out->f, "%" PRIu32 " error%s\n", r->n_wrong,
			r->n_wrong == 1 ? "" : "s");
	else
		fputs("good\n", r->out->f);
}

int rsh_convert_report_end(struct rsh_convert_report *r, bool *good)
{
	*good = r->n_wrong == 0;
	if (r->nomem)
		return -ENOMEM;
	if (r->tensors)
		return report_print_json(r);
	if (r->in && !r->quiet && rsh_table_print(r->rows, r->out))
		return -ENOMEM;
	for (size_t i = 0; i < r->n_sentences; i++) {
		rsh_printer_put(r->out, r->sentences[i]);
		fputc('\n', r->out->f);
	}
	if (!r->quiet)
		report_print_end(r);
	return 0;
}
