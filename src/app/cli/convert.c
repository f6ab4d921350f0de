/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/convert.c runs `convert`: it lists and shows tables of rules, and
 * checks one, alone and with the tensors of a source. */
#include "config.h"

#include "commands.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/app/commands.h"
#include "rsh/read/tensor_load.h"
#include "rsh/source/format.h"
#include "rsh/source/source.h"
#include "rsh/source/tables.h"
#include "rsh/util/files.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"
#include "rsh/weights/quantised.h"
#include "rsh/weights/weights.h"
#include "rsh/weights/wrapped.h"

/* ---- list ---- */

/* A table that cannot be read is listed with the reason. */
static int list_tables(struct rsh_run *run)
{
	static const struct rsh_column columns[] = {
		{ "name", "TABLE" },
		{ "path", NULL },
		{ "title", NULL },
		{ "group", "GROUP" },
		{ NULL, "WHAT IT IS FOR" },
		{ "architectures", "SUITS", .wrap = ',' },
		{ "reason", NULL },
		{ NULL, NULL }
	};
	struct rsh_printer *out = &run->out;
	cleanup_table_list struct rsh_table_list l;
	int rc = rsh_tables_list(&l);

	if (rc == 0 && l.n == 0)
		return rsh_tables_none(&run->err);
	rsh_json(out, "{tables:");
	rsh_rows(out, columns);
	for (size_t i = 0; rc != -ENOMEM && i < l.n; i++) {
		struct rsh_error why = RSH_ERROR_INIT;
		struct rsh_rule_table *t = NULL;

		rc = rsh_rule_table_load(l.v[i].path, &t, &why);
		if (rc)
			run->status = RSH_EXIT_NO;
		rsh_row(out, l.v[i].name, l.v[i].path,
			RSH_V_IF(t, t->title), RSH_V_IF(t && t->group, t->group),
			t ? rsh_v_text(t->title) :
			    rsh_v_marked(RSH_MARK_BAD, rsh_v_text(why.text)),
			rsh_v_texts(t ? t->suits : NULL, t ? t->n_suits : 0),
			RSH_V_IF(!t, why.text));
		rsh_rule_table_free(t);
	}
	if (rc == -ENOMEM)
		return rsh_error_nomem(&run->err);
	rsh_rows_end(out);
	rsh_json(out, "}");
	return 0;
}

/* ---- check: the report ---- */

static const char *const sides[] = { "hf", "mindspore" };

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

	bool *used; /* [in]: a tensor is made of it; NULL: there is no source */
	struct rsh_printer *out;
	struct rsh_printer made, findings;
	struct rsh_printer passed; /* for people these are in `made` */
	uint32_t n_made, n_used, n_passed, n_wrong;
};

/* This is a tensor that is made, with tensors of the source. */
struct row {
	const struct checking *checking;
	const uint32_t *sources;
	uint32_t n;
};

static const struct rsh_column columns[] = {
	{ NULL, "LINE", .right = true },
	{ "name", "IS MADE", .shorten = true },
	{ "dtype", NULL },
	{ "shape", "SHAPE" },
	{ "of", "OF", .shorten = true },
	{ "line", NULL },
	{ NULL, NULL }
};

/* People see only the first ones, so that the row of a stack of experts stays
 * short. */
static void put_of(struct rsh_printer *out, const void *ctx)
{
	const struct row *row = ctx;

	rsh_json(out, "[");
	for (uint32_t i = 0; i < row->n; i++) {
		const struct rsh_offer *f =
			&row->checking->in.v[row->sources[i]];
		const char *name = rsh_names_text(row->checking->names,
						  f->name);
		const struct rsh_value shape = rsh_v_sizes(f->dims, f->n_dims);

		rsh_json(out, "{name:% dtype:% shape:%}", name,
			 rsh_dtype_name(f->dtype), shape);
		if (i < NAMED_MAX)
			rsh_say(out, "%% %", i ? " + " : "", name, shape);
	}
	rsh_json(out, "]");
	if (row->n > NAMED_MAX)
		rsh_say(out, " and % more", row->n - NAMED_MAX);
}

/* These are callbacks for rsh_weights_check() and rsh_weights_check_table(). */
static void report_made(void *ctx, const struct rsh_offer *offer,
			const struct rsh_rule *rule, const uint32_t *sources,
			uint32_t n)
{
	struct checking *c = ctx;
	const struct row row = { c, sources, n };
	const struct rsh_value line = RSH_V_IF(rule, rule->line);

	c->n_made++;
	for (uint32_t i = 0; i < n; i++) {
		c->n_used += !c->used[sources[i]];
		c->used[sources[i]] = true;
	}
	rsh_row(&c->made, line, rsh_names_text(c->names, offer->name),
		rsh_dtype_name(offer->dtype),
		rsh_v_sizes(offer->dims, offer->n_dims),
		rsh_v_call(put_of, &row), line);
}

static void report_passed(void *ctx, uint32_t source,
			  const struct rsh_rule *rule)
{
	struct checking *c = ctx;
	const struct rsh_offer *f = &c->in.v[source];
	const struct row row = { c, &source, 1 };
	const struct rsh_value line = RSH_V_IF(rule, rule->line);

	c->n_passed++;
	rsh_json(&c->passed, "{name:% dtype:% shape:% line:%}",
		 rsh_names_text(c->names, f->name), rsh_dtype_name(f->dtype),
		 rsh_v_sizes(f->dims, f->n_dims), line);
	if (!c->made.json)
		rsh_row(&c->made, line, "nothing", RSH_V_NULL, RSH_V_NULL,
			rsh_v_call(put_of, &row), RSH_V_NULL);
}

static void report_finding(void *ctx, bool wrong, const char *sentence)
{
	struct checking *c = ctx;

	c->n_wrong += wrong;
	rsh_json(&c->findings, "{wrong:% sentence:%}", wrong, sentence);
	rsh_say(&c->findings, "%%\n", wrong ? "" : "remark: ", sentence);
}

static void report_wrong(void *ctx, const char *sentence)
{
	report_finding(ctx, true, sentence);
}

static void print_checked(struct checking *c)
{
	struct rsh_printer *out = c->out;

	rsh_json(out, "{table:% from:% tensors:", c->table->path,
		 RSH_V_IF(c->used, sides[c->from]));
	rsh_rows_end(&c->made);
	rsh_printer_put_part(out->json || (c->used && !c->o->quiet) ? out :
			     NULL, &c->made);
	rsh_json(out, "passed:");
	rsh_json(&c->passed, "]");
	rsh_printer_put_part(out, &c->passed);
	rsh_json(out, "findings:");
	rsh_json(&c->findings, "]");
	rsh_printer_put_part(out, &c->findings);
	rsh_json(out, "}");
	if (c->o->quiet)
		return;
	rsh_say(out, "%: ", c->table->path);
	if (c->used)
		rsh_say(out, "% tensors of % are made of %; % are not "
			"converted: ", c->n_made, c->table->group ?
			c->from == RSH_SIDE_HF ? "the right side" :
			"the left side" : c->from == RSH_SIDE_HF ?
			"MindSpore's form" : "Hugging Face's form", c->n_used,
			c->n_passed);
	if (c->n_wrong)
		rsh_say(out, "% error{|s}\n", c->n_wrong);
	else
		rsh_say(out, "good\n");
}

/* ---- check: the source ---- */

/* Opens the source, takes the step that a mount would try first, and makes
 * quantised weights dense, as a mount does.  Before that it loads the table, or
 * those that suit the model. */
static int check_read_source(struct checking *c, const char *path,
			     struct rsh_error *err)
{
	const struct rsh_vfs_config *v = &c->o->vfs;
	struct rsh_source_options files = v->files;
	struct rsh_plan_options all = v->plan;
	struct rsh_source_view view;
	struct rsh_offers in;
	uint32_t n_wrapped;
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
	rc = rc ?: rsh_model_config_load(v->weights.config, v->source,
					 rsh_source_store(c->source),
					 &c->config, err) ?:
		   rsh_tables_load(path, c->config, &c->tables, err) ?:
		   rsh_source_choose(c->source, 0, err) ?:
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
	return rsh_weights_unwrap(&c->in, NULL, &c->arena, &n_wrapped, err) ?:
	       rsh_weights_dequantise(&(struct rsh_dequantise){
		.config = c->config, .type = v->weights.dequantise,
		.load = rsh_tensor_load, .ctx = c->source,
	}, &c->arena, &c->in, err);
}

static int check_same(void *ctx, const struct rsh_offer *a,
		      const struct rsh_offer *b, struct rsh_error *err)
{
	const struct checking *c = ctx;

	return rsh_tensors_same(c->source, c->in.cat, a, b, err);
}

static struct rsh_weights_options check_options(const struct checking *c,
						const struct rsh_rule_table *t)
{
	const struct rsh_weights_at *w = &c->o->vfs.weights;

	return (struct rsh_weights_options){
		.table = t, .config = c->config, .given = w->from,
		.unlisted = w->unlisted,
		.vocab_multiple = w->vocab_multiple, .untie = w->untie,
	};
}

/* Checks the table that a mount would use.  Returns 0 even if something is
 * wrong, because the report then has it. */
static int check_chosen(struct checking *c, const char *path,
			struct rsh_error *err)
{
	const struct rsh_weights_watch watch = {
		.made = report_made, .passed = report_passed,
		.wrong = report_wrong, .ctx = c,
	};
	struct rsh_weights_options o;
	int rc = c->o->vfs.source ?
		 check_read_source(c, path, err) :
		 rsh_tables_load(path, NULL, &c->tables, err);

	o = check_options(c, NULL);
	rc = rc ?: rsh_weights_choose(&o, c->tables.v, c->tables.n, &c->in,
				      &c->table, err);
	if (rc == 0 && rsh_weights_check_table(c->table, report_finding, c) ==
			       -ENOMEM)
		rc = rsh_error_nomem(err);
	if (rc || !c->o->vfs.source)
		return rc;
	o = check_options(c, c->table);
	o.same = check_same;
	o.ctx = c;
	rc = rsh_weights_find_side(&o, &c->in, &o.from, NULL, err);
	if (rc)
		return rc;
	o.is_whole = !rsh_source_format(c->source)->is_adapter;
	c->from = o.from;
	c->used = calloc((size_t)c->in.n + 1, sizeof(*c->used));
	if (!c->used)
		return rsh_error_nomem(err);
	rc = rsh_weights_check(&o, &c->in, &c->arena, &watch, err);
	return rc == -EINVAL ? 0 : rc;
}

/* ---- check: all tables ---- */

/* The programs that load the left side and the right side of a table.  A table
 * of no group is for MindSpore or, by its name, for Megatron. */
static const struct loaders {
	const char *group, *begins, *by[RSH_N_SIDES];
} loaders[] = {
	{ "hf5", "", { "transformers 4 and 5", "transformers 5" } },
	{ "titan", "", { "transformers", "torchtitan" } },
	{ "meta", "", { "transformers", "Meta's llama" } },
	{ NULL, "megatron-bridge", { "transformers", "Megatron-Bridge" } },
	{ NULL, "megatron", { "transformers", "Megatron-LM, MindSpeed-LLM" } },
	{ NULL, "", { "transformers", "MindSpore Transformers" } },
};

static const char *table_loader(const struct rsh_rule_table *t,
				enum rsh_side side)
{
	const char *name = rsh_path_name(t->path);

	for (size_t i = 0; i < sizeof(loaders) / sizeof(*loaders); i++) {
		const struct loaders *l = &loaders[i];

		if (t->group ? l->group && strcmp(t->group, l->group) == 0 :
			       !l->group && strncmp(name, l->begins,
						    strlen(l->begins)) == 0)
			return l->by[side];
	}
	return NULL;
}

/* Tries a table as a mount does.  Returns 0, -ENOMEM, or another -errno with a
 * sentence. */
static int fit_try(struct checking *c, const struct rsh_rule_table *t,
		   enum rsh_side *from, bool *told, struct rsh_error *err)
{
	struct rsh_weights_options o = check_options(c, t);
	cleanup_arena struct rsh_arena arena = { NULL, 0 };
	struct rsh_offers made;
	int rc = rsh_weights_find_side(&o, &c->in, from, told, err);

	o.from = *from;
	return rc ?: rsh_weights_convert(&o, &c->in, &arena, &made, err);
}

/* Prints which of the tables for the model convert SOURCE, from which side, and
 * which program loads the result. */
static int fit_tables(struct checking *c, uint32_t *n_fit,
		      struct rsh_error *err)
{
	static const struct rsh_column fit_columns[] = {
		{ "table", "TABLE" },
		{ "group", "GROUP" },
		{ "from", NULL },
		{ NULL, "SOURCE HAS" },
		{ "loads", "RESULT IS FOR" },
		{ "title", NULL },
		{ "reason", NULL },
		{ NULL, "OR NOT, BECAUSE", .wrap = ',' },
		{ NULL, NULL }
	};
	int rc = 0;

	rsh_json(c->out, "{tables:");
	rsh_rows(c->out, fit_columns);
	for (size_t i = 0; rc != -ENOMEM && i < c->tables.n; i++) {
		const struct rsh_rule_table *t = c->tables.v[i];
		struct rsh_error why = RSH_ERROR_INIT;
		cleanup_free char *name = strdup(rsh_path_name(t->path));
		enum rsh_side from = RSH_SIDE_HF;
		bool told = false, fits;

		if (!name)
			return rsh_error_nomem(err);
		name[strcspn(name, ".")] = '\0';
		rc = fit_try(c, t, &from, &told, &why);
		fits = rc == 0;
		*n_fit += fits;
		rsh_row(c->out, name, RSH_V_IF(t->group, t->group),
			RSH_V_IF(fits, sides[from]), !fits ? "-" : !told ?
			"either" : from == RSH_SIDE_HF ? "left" : "right",
			RSH_V_IF(fits, table_loader(t, !from)), t->title,
			RSH_V_IF(!fits, why.text),
			fits ? "-" : why.text);
	}
	rsh_rows_end(c->out);
	rsh_json(c->out, "}");
	return rc == -ENOMEM ? rsh_error_nomem(err) : 0;
}

static int check_table(const struct rsh_options *o, const char *path,
		       struct rsh_run *run)
{
	struct checking c = { .o = o, .out = &run->out };
	uint32_t n_fit = 0;
	int rc;

	rsh_printer_init_part(&c.made, c.out);
	rsh_printer_init_part(&c.passed, c.out);
	rsh_printer_init_part(&c.findings, c.out);
	rsh_rows(&c.made, columns);
	rsh_json(&c.passed, "[");
	rsh_json(&c.findings, "[");
	if (strcmp(path, RSH_TABLE_ANY) == 0) {
		rc = check_read_source(&c, path, &run->err) ?:
		     fit_tables(&c, &n_fit, &run->err);
	} else {
		rc = check_chosen(&c, path, &run->err);
		if (rc == 0)
			print_checked(&c);
		n_fit = !c.n_wrong;
	}
	run->status = n_fit ? RSH_EXIT_GOOD : RSH_EXIT_NO;
	rsh_printer_put_part(NULL, &c.made);
	rsh_printer_put_part(NULL, &c.passed);
	rsh_printer_put_part(NULL, &c.findings);
	free(c.used);
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

int rsh_convert_command(const struct rsh_options *o, struct rsh_run *run)
{
	const bool checks = o->command->id == RSH_COMMAND_TABLE_CHECK;
	const char *table = o->vfs.weights.table;
	cleanup_free char *path = NULL;
	cleanup_free uint8_t *data = NULL;
	size_t len;
	int rc = 0;

	if (o->command->id == RSH_COMMAND_TABLES)
		return list_tables(run);
	if (!checks || !rsh_is_any(table, RSH_TABLE_AUTO, RSH_TABLE_ANY))
		rc = rsh_table_find(table, &path, &run->err);
	if (rc)
		return rc;
	if (checks)
		return check_table(o, path ?: table, run);
	if (rsh_table_is_word(path))
		return rsh_error_set(&run->err, EINVAL, "%s is a group of "
				     "tables; name one of them (`reshardfs "
				     "convert list`)", path);
	rc = rsh_load_whole(path, &rsh_rule_table_file, &data, &len, &run->err);
	/* A write error is detected at the end of the program. */
	if (rc == 0)
		(void)!fwrite(data, 1, len, stdout);
	return rc;
}
