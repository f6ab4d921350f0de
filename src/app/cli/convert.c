/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/convert.c runs `convert`: it lists and shows tables of rules, and
 * checks one, alone and with the tensors of a source. */
#include "config.h"

#include "commands.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "printer.h"
#include "rsh/app/commands.h"
#include "rsh/read/tensor_load.h"
#include "rsh/source/format.h"
#include "rsh/source/source.h"
#include "rsh/source/tables.h"
#include "rsh/util/mem.h"
#include "rsh/weights/quantised.h"
#include "rsh/weights/weights.h"
#include "rsh/weights/wrapped.h"

/* ---- list ---- */

static const struct rsh_column table_columns[] = {
	{ "TABLE" },
	{ "WHAT IT IS FOR" },
	{ "SUITS", .wrap = true },
};

static json_t *listed_json(const struct rsh_table_at *at,
			   const struct rsh_rule_table *t,
			   const struct rsh_error *why)
{
	json_t *suits = json_array();

	for (uint32_t i = 0; t && i < t->n_suits; i++)
		json_array_append_new(suits, rsh_json_text(t->suits[i]));
	return json_pack("{s:o,s:o,s:o,s:o,s:o}", "name",
			 rsh_json_text(at->name), "path",
			 rsh_json_text(at->path), "title",
			 rsh_json_optional(t ? t->title : NULL),
			 "architectures", suits, "reason",
			 rsh_json_optional(t ? NULL : why->text));
}

static void listed_row(struct rsh_table *rows, const struct rsh_table_at *at,
		       const struct rsh_rule_table *t,
		       const struct rsh_error *why)
{
	rsh_table_cell(rows, "%s", at->name);
	rsh_table_mark(rows, t ? RSH_MARK_NONE : RSH_MARK_BAD,
		       t ? t->title : why->text);
	rsh_table_cell(rows, "%s", t && t->n_suits ? "" : "-");
	for (uint32_t i = 0; t && i < t->n_suits; i++)
		rsh_table_add(rows, "%s%s", i ? ", " : "", t->suits[i]);
}

/* A table that cannot be read is listed with the reason. */
static int list_tables(const struct rsh_printer *out, bool *good,
		       struct rsh_error *err)
{
	struct rsh_table *rows = NULL;
	json_t *all = NULL;
	struct rsh_table_list l;
	int rc = rsh_tables_list(&l);

	if (rc == 0 && l.n == 0)
		return rsh_tables_none(err);
	if (out->json)
		all = json_array();
	else
		rows = RSH_TABLE(table_columns);
	for (size_t i = 0; rc != -ENOMEM && i < l.n; i++) {
		struct rsh_error why = RSH_ERROR_INIT;
		struct rsh_rule_table *t = NULL;

		rc = rsh_rule_table_load(l.v[i].path, &t, &why);
		*good &= rc == 0;
		if (all)
			json_array_append_new(all, listed_json(&l.v[i], t,
							       &why));
		else
			listed_row(rows, &l.v[i], t, &why);
		rsh_rule_table_free(t);
	}
	rsh_table_list_clear(&l);
	if (rc == -ENOMEM)
		rsh_table_free(rows);
	else
		rc = all ? rsh_printer_json(out, json_pack("{s:O}", "tables",
							   all)) :
			   rsh_table_print(rows, out);
	json_decref(all);
	return rc ? rsh_error_nomem(err) : 0;
}

/* ---- check: the report ---- */

#define NAMED_MAX 3 /* so many tensors are named, the others are counted */

struct checking {
	const struct rsh_options *o;
	struct rsh_table_set tables;
	const struct rsh_rule_table *table; /* the one that is checked */
	struct rsh_model_config *config; /* NULL: there is none */
	struct rsh_names *names;
	struct rsh_source *source;
	struct rsh_strategy *strategy; /* strategy of the source; NULL: the
				        * source is not sharded */
	struct rsh_arena arena;
	struct rsh_offers in; /* the tensors of the source */
	enum rsh_side from;

	struct rsh_printer out;
	bool *used; /* [in]: a tensor is made of it; NULL: there is no source */
	struct rsh_table *rows;
	json_t *tensors, *passed, *findings; /* NULL: not JSON */
	struct rsh_sentences sentences;
	uint32_t n_made, n_used, n_passed, n_wrong;
	bool nomem;
};

static const struct rsh_column columns[] = {
	{ "LINE", .right = true },
	{ "IS MADE", .shorten = true },
	{ "SHAPE" },
	{ "OF", .shorten = true },
};

static const char *offer_shape(const struct rsh_offer *f,
			       char text[RSH_LS_SHAPE_MAX])
{
	return rsh_ls_shape((const int64_t *)f->dims, f->n_dims, text);
}

static json_t *offer_json(const struct checking *c, const struct rsh_offer *f)
{
	return json_pack("{s:o,s:s,s:o}", "name",
			 rsh_json_text(rsh_names_text(c->names, f->name)),
			 "dtype", rsh_dtype_name(f->dtype), "shape",
			 rsh_ls_shape_json((const int64_t *)f->dims,
					   f->n_dims));
}

/* Adds a tensor with the line of its rule to a list of the JSON. */
static void add_offer_json(struct checking *c, json_t *to, json_t *one,
			   const struct rsh_rule *rule)
{
	json_object_set_new(one, "line", rule ? json_integer(rule->line) :
						json_null());
	if (json_array_append_new(to, one))
		c->nomem = true;
}

/* Adds a row: what is made, and of which tensors.  It names only the first of
 * these, so that the row of a stack of experts stays short. */
static void add_offer_row(struct checking *c, const struct rsh_rule *rule,
			  const struct rsh_offer *made, const uint32_t *sources,
			  uint32_t n)
{
	char shape[RSH_LS_SHAPE_MAX];

	if (rule)
		rsh_table_cell(c->rows, "%" PRIu32, rule->line);
	else
		rsh_table_cell(c->rows, "-");
	rsh_table_cell(c->rows, "%s", made ? rsh_names_text(c->names,
							    made->name) :
					     "nothing");
	rsh_table_cell(c->rows, "%s", made ? offer_shape(made, shape) : "-");
	rsh_table_cell(c->rows, "%s", "");
	for (uint32_t i = 0; i < n && i < NAMED_MAX; i++) {
		const struct rsh_offer *f = &c->in.v[sources[i]];

		rsh_table_add(c->rows, "%s%s %s", i ? " + " : "",
			      rsh_names_text(c->names, f->name),
			      offer_shape(f, shape));
	}
	if (n > NAMED_MAX)
		rsh_table_add(c->rows, " and %" PRIu32 " more", n - NAMED_MAX);
}

/* These are callbacks for rsh_weights_check() and rsh_weights_check_table(). */
static void report_made(void *ctx, const struct rsh_offer *offer,
			const struct rsh_rule *rule, const uint32_t *sources,
			uint32_t n)
{
	struct checking *c = ctx;
	json_t *of, *one;

	c->n_made++;
	for (uint32_t i = 0; i < n; i++) {
		c->n_used += !c->used[sources[i]];
		c->used[sources[i]] = true;
	}
	if (!c->tensors) {
		add_offer_row(c, rule, offer, sources, n);
		return;
	}
	of = json_array();
	for (uint32_t i = 0; i < n; i++)
		json_array_append_new(of, offer_json(c, &c->in.v[sources[i]]));
	one = offer_json(c, offer);
	json_object_set_new(one, "of", of);
	add_offer_json(c, c->tensors, one, rule);
}

static void report_passed(void *ctx, uint32_t source,
			  const struct rsh_rule *rule)
{
	struct checking *c = ctx;

	c->n_passed++;
	if (c->passed)
		add_offer_json(c, c->passed, offer_json(c, &c->in.v[source]),
			       rule);
	else
		add_offer_row(c, rule, NULL, &source, 1);
}

static void report_finding(void *ctx, bool wrong, const char *sentence)
{
	struct checking *c = ctx;

	c->n_wrong += wrong;
	if (c->findings ? json_array_append_new(c->findings, json_pack(
				"{s:b,s:o}", "wrong", wrong, "sentence",
				rsh_json_text(sentence))) :
			  rsh_sentences_add(&c->sentences, "%s%s", wrong ? "" :
					    "remark: ", sentence))
		c->nomem = true;
}

static void report_wrong(void *ctx, const char *sentence)
{
	report_finding(ctx, true, sentence);
}

/* Returns 0 or -ENOMEM. */
static int print_report(struct checking *c)
{
	static const char *const sides[] = { "hf", "mindspore" };

	if (c->nomem)
		return -ENOMEM;
	if (c->tensors)
		return rsh_printer_json(&c->out, json_pack(
			"{s:o,s:o,s:O,s:O,s:O}", "table",
			rsh_json_text(c->table->path), "from",
			c->used ? json_string(sides[c->from]) : json_null(),
			"tensors", c->tensors, "passed", c->passed, "findings",
			c->findings));
	if (c->used && !c->o->quiet &&
	    rsh_table_print(steal_pointer(&c->rows), &c->out))
		return -ENOMEM;
	for (size_t i = 0; i < c->sentences.n; i++)
		rsh_printer_line(&c->out, c->sentences.v[i]);
	if (c->o->quiet)
		return 0;
	rsh_printer_put(&c->out, c->table->path);
	fputs(": ", c->out.f);
	if (c->used)
		fprintf(c->out.f, "%" PRIu32 " tensors of %s are made of "
			"%" PRIu32 "; %" PRIu32 " are not converted: ",
			c->n_made, c->from == RSH_SIDE_HF ? "MindSpore's form" :
			"Hugging Face's form", c->n_used, c->n_passed);
	if (c->n_wrong)
		fprintf(c->out.f, "%" PRIu32 " error%s\n", c->n_wrong,
			c->n_wrong == 1 ? "" : "s");
	else
		fputs("good\n", c->out.f);
	return 0;
}

/* ---- check: the source ---- */

static int check_load(void *ctx, const struct rsh_catalogue *c,
		      const struct rsh_tensor *t, uint8_t *to, size_t bytes,
		      struct rsh_error *err)
{
	const struct checking *k = ctx;

	return rsh_tensor_load(k->source, c, t, to, bytes, err);
}

static int check_open_source(struct checking *c, struct rsh_error *err)
{
	const struct rsh_vfs_config *v = &c->o->vfs;
	struct rsh_source_options files = v->files;
	int rc = 0;

	c->names = rsh_names_new();
	if (!c->names)
		return rsh_error_nomem(err);
	files.unsharded = !v->src.path;
	if (v->src.path)
		rc = rsh_strategy_load(v->src.path, false, c->names,
				       &c->strategy, err);
	rc = rc ?: rsh_source_open(v->source, 0, UINT32_MAX, &files,
				   &c->source, err);
	if (rc == 0 && v->src.path &&
	    rsh_source_format(c->source)->layout != RSH_LAYOUT_GIVEN)
		rc = rsh_source_needs_none(c->source, err);
	return rc;
}

/* Takes the step that a mount would try first, and makes quantised weights
 * dense, as a mount does. */
static int check_read_source(struct checking *c, struct rsh_error *err)
{
	const struct rsh_vfs_config *v = &c->o->vfs;
	struct rsh_plan_options all = v->plan;
	struct rsh_source_view view;
	struct rsh_offers in;
	uint32_t n_wrapped;
	int rc = rsh_source_choose(c->source, 0, err) ?:
		 rsh_source_index(c->source, c->names, err);

	if (rc == 0 && !c->strategy)
		rc = rsh_source_strategy(c->source, false, c->names,
					 &c->strategy, err);
	if (rc)
		return rc;
	rsh_source_log_left_out(c->source);
	all.replicas = true;
	rsh_source_view(c->source, c->names, &view);
	rc = rsh_source_format(c->source)->read(&(struct rsh_read_job){
		.source = c->source, .view = &view, .src = c->strategy,
		.opts = &all, .arena = &c->arena,
	}, &in, err);
	if (rc)
		return rc;
	c->in = in;
	if (rsh_offers_expand(&c->in, &c->arena))
		return rsh_error_nomem(err);
	return rsh_weights_unwrap(&c->in, &c->arena, &n_wrapped, err) ?:
	       rsh_weights_dequantise(&(struct rsh_dequantise){
		.config = c->config, .type = v->weights.dequantise,
		.load = check_load, .ctx = c,
	}, &c->arena, &c->in, err);
}

/* Loads the table, or those that suit the model, and chooses the one that a
 * mount would use. */
static int check_choose(struct checking *c, const char *path,
			struct rsh_error *err)
{
	const struct rsh_vfs_config *v = &c->o->vfs;
	struct rsh_weights_options o = { 0 };
	int rc = v->source ? check_open_source(c, err) : 0;

	if (rc == 0 && v->source)
		rc = rsh_model_config_load(v->weights.config, v->source,
					   rsh_source_store(c->source),
					   &c->config, err);
	rc = rc ?: rsh_tables_load(path, c->config, &c->tables, err);
	if (rc == 0 && v->source)
		rc = check_read_source(c, err);
	if (rc)
		return rc;
	o.config = c->config;
	o.given = v->weights.from;
	o.vocab_multiple = v->weights.vocab_multiple;
	o.untie = v->weights.untie;
	return rsh_weights_choose(&o, c->tables.v, c->tables.n, &c->in,
				  &c->table, err);
}

static int check_same(void *ctx, const struct rsh_offer *a,
		      const struct rsh_offer *b, struct rsh_error *err)
{
	const struct checking *c = ctx;

	return rsh_tensors_same(c->source, c->in.cat, a, b, err);
}

/* Returns 0 even if something is wrong, because the report then has it. */
static int check_with_source(struct checking *c, struct rsh_error *err)
{
	const struct rsh_weights_at *w = &c->o->vfs.weights;
	const struct rsh_weights_watch watch = {
		.made = report_made, .passed = report_passed,
		.wrong = report_wrong, .ctx = c,
	};
	struct rsh_weights_options o = {
		.table = c->table, .config = c->config,
		.unlisted = w->unlisted,
		.vocab_multiple = w->vocab_multiple, .untie = w->untie,
		.same = check_same, .ctx = c,
	};
	int rc = 0;

	if (w->from)
		o.from = (enum rsh_side)(w->from - 1);
	else
		rc = rsh_weights_side(c->table, c->in.v, c->in.n, c->names,
				      &o.from, err);
	if (rc)
		return rc;
	c->from = o.from;
	c->used = calloc((size_t)c->in.n + 1, sizeof(*c->used));
	if (!c->used)
		return rsh_error_nomem(err);
	rc = rsh_weights_check(&o, &c->in, &c->arena, &watch, err);
	return rc == -EINVAL ? 0 : rc;
}

static int check_table(const struct rsh_options *o, const char *path,
		       bool *good, struct rsh_error *err)
{
	struct checking c = { .o = o, .rows = RSH_TABLE(columns) };
	int rc = check_choose(&c, path, err);

	rsh_printer_init(&c.out, o);
	if (o->json) {
		c.tensors = json_array();
		c.passed = json_array();
		c.findings = json_array();
	}
	if (rc == 0 && rsh_weights_check_table(c.table, report_finding, &c) ==
			       -ENOMEM)
		rc = rsh_error_nomem(err);
	if (rc == 0 && o->vfs.source)
		rc = check_with_source(&c, err);
	if (rc == 0 && print_report(&c))
		rc = rsh_error_nomem(err);
	*good = c.n_wrong == 0;
	rsh_sentences_clear(&c.sentences);
	free(c.used);
	json_decref(c.tensors);
	json_decref(c.passed);
	json_decref(c.findings);
	rsh_table_free(c.rows);
	rsh_catalogue_free(c.in.cat);
	rsh_arena_clear(&c.arena);
	rsh_strategy_free(c.strategy);
	rsh_source_free(c.source);
	rsh_names_free(c.names);
	rsh_model_config_free(c.config);
	rsh_table_set_clear(&c.tables);
	return rc;
}

/* ---- all ---- */

enum rsh_exit rsh_convert_command(const struct rsh_options *o)
{
	struct rsh_error err = RSH_ERROR_INIT;
	cleanup_free char *path = NULL;
	struct rsh_printer out;
	bool good = true;
	int rc = 0;
	cleanup_free uint8_t *data = NULL;
	size_t len;

	rsh_printer_init(&out, o);
	if (o->command->id == RSH_COMMAND_TABLES)
		rc = list_tables(&out, &good, &err);
	else if (o->command->id != RSH_COMMAND_TABLE_CHECK ||
		 strcmp(o->vfs.weights.table, RSH_TABLE_AUTO) != 0)
		rc = rsh_table_find(o->vfs.weights.table, &path, &err);
	if (rc == 0 && o->command->id == RSH_COMMAND_TABLE_CHECK)
		rc = check_table(o, path ? path : RSH_TABLE_AUTO, &good, &err);
	if (rc == 0 && o->command->id == RSH_COMMAND_TABLE_SHOW) {
		rc = rsh_load_whole(path, &rsh_rule_table_file, &data, &len,
				    &err);
		/* A write error is detected at the end of the program. */
		if (rc == 0)
			(void)!fwrite(data, 1, len, stdout);
	}
	if (rc)
		return rsh_exit_failed(o, rc, &err);
	return good ? RSH_EXIT_GOOD : RSH_EXIT_NO;
}
