/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/convert_check.c runs `convert check`: it checks a table of rules,
 * alone and with the tensors of a source. */
#include "config.h"

#include "convert.h"

#include <errno.h>
#include <string.h>

#include "rsh/read/tensor_load.h"
#include "rsh/source/format.h"
#include "rsh/source/source.h"
#include "rsh/source/tables.h"
#include "rsh/util/mem.h"
#include "rsh/weights/quantised.h"

struct checking {
	const struct rsh_options *o;
	struct rsh_convert_report *report;
	struct rsh_table_set tables;
	const struct rsh_rule_table *table; /* the one that is checked */
	struct rsh_model_config *config; /* NULL: there is none */
	struct rsh_names *names;
	struct rsh_source *source;
	struct rsh_strategy *strategy; /* strategy of the source; NULL: the
				        * source is not sharded */
	struct rsh_arena arena;
	struct rsh_catalogue *cat;
	struct rsh_offer *in;
	uint32_t n_in;
};

static void checking_clear(struct checking *c)
{
	rsh_convert_report_free(c->report);
	rsh_catalogue_free(c->cat);
	rsh_arena_clear(&c->arena);
	rsh_strategy_free(c->strategy);
	rsh_source_free(c->source);
	rsh_names_free(c->names);
	rsh_model_config_free(c->config);
	rsh_table_set_clear(&c->tables);
}

/* ---- the source ---- */

static int check_load_config(struct checking *c, struct rsh_error *err)
{
	const char *given = c->o->vfs.weights.config;
	cleanup_free char *beside = NULL;

	if (given)
		return rsh_model_config_load(given, &c->config, err);
	if (rsh_model_config_in(c->o->vfs.source, &beside))
		return rsh_error_nomem(err);
	return beside ? rsh_model_config_load(beside, &c->config, err) : 0;
}

/* Takes the step that a mount would try first. */
static int check_open_source(struct checking *c, struct rsh_error *err)
{
	const struct rsh_vfs_config *v = &c->o->vfs;
	struct rsh_source_options files = v->files;
	int rc = 0;

	files.unsharded = !v->src.path;
	if (v->src.path)
		rc = rsh_strategy_load(v->src.path, false, c->names,
				       &c->strategy, err);
	if (rc == 0)
		rc = rsh_source_open(v->source, 0, UINT32_MAX, &files,
				     &c->source, err);
	if (rc == 0 && v->src.path &&
	    rsh_source_format(c->source)->layout != RSH_LAYOUT_GIVEN)
		rc = rsh_source_needs_none(c->source, err);
	if (rc == 0)
		rc = rsh_source_choose(c->source, 0, err);
	if (rc == 0)
		rc = rsh_source_index(c->source, c->names, err);
	if (rc == 0 && !c->strategy)
		rc = rsh_source_strategy(c->source, false, c->names,
					 &c->strategy, err);
	if (rc == 0)
		rsh_source_log_left_out(c->source);
	return rc;
}

static int check_read_source(struct checking *c, struct rsh_error *err)
{
	struct rsh_plan_options all = c->o->vfs.plan;
	struct rsh_source_view view;
	const struct rsh_read_job job = {
		.source = c->source, .view = &view, .src = c->strategy,
		.opts = &all, .arena = &c->arena,
	};
	struct rsh_offers in;
	int rc;

	all.replicas = true;
	rsh_source_view(c->source, c->names, &view);
	rc = rsh_source_format(c->source)->read(&job, &in, err);
	if (rc)
		return rc;
	c->cat = in.cat;
	c->in = in.v;
	c->n_in = in.n;
	return 0;
}

static int check_load(void *ctx, const struct rsh_catalogue *c,
		      const struct rsh_tensor *t, uint8_t *to, size_t bytes,
		      struct rsh_error *err)
{
	const struct checking *k = ctx;

	return rsh_tensor_load(k->source, c, t, to, bytes, err);
}

/* Makes quantised weights dense, as a mount does. */
static int check_dequantise(struct checking *c, struct rsh_error *err)
{
	const struct rsh_dequantise o = {
		.config = c->config, .type = c->o->vfs.weights.dequantise,
		.load = check_load, .ctx = c,
	};
	struct rsh_offers all = { c->cat, c->in, c->n_in };
	int rc = rsh_weights_dequantise(&o, &c->arena, &all, err);

	c->n_in = all.n;
	return rc;
}

/* ---- the check ---- */

static int check_same(void *ctx, const struct rsh_offer *a,
		      const struct rsh_offer *b, struct rsh_error *err)
{
	const struct checking *c = ctx;

	return rsh_tensors_same(c->source, c->cat, a, b, err);
}

/* Returns 0 even if something is wrong, because the report then has it. */
static int check_convert(struct checking *c, struct rsh_error *err)
{
	const struct rsh_vfs_config *v = &c->o->vfs;
	const struct rsh_weights_watch watch = {
		.made = rsh_convert_report_made,
		.passed = rsh_convert_report_passed,
		.wrong = rsh_convert_report_wrong,
		.ctx = c->report,
	};
	struct rsh_weights_options o = {
		.table = c->table, .config = c->config,
		.unlisted = v->weights.unlisted,
		.vocab_multiple = v->weights.vocab_multiple,
		.untie = v->weights.untie,
		.same = check_same, .ctx = c,
	};
	int rc = 0;

	if (v->weights.from)
		o.from = (enum rsh_side)(v->weights.from - 1);
	else
		rc = rsh_weights_side(c->table, c->in, c->n_in, c->names,
				      &o.from, err);
	if (rc)
		return rc;
	if (rsh_convert_report_source(c->report, c->in, c->n_in, c->names,
				      o.from))
		return rsh_error_nomem(err);
	rc = rsh_weights_check(&o, &(struct rsh_offers){
		c->cat, c->in, c->n_in,
	}, &c->arena, &watch, err);
	return rc == -EINVAL ? 0 : rc;
}

static int check_read(struct checking *c, struct rsh_error *err)
{
	int rc;

	c->names = rsh_names_new();
	if (!c->names)
		return rsh_error_nomem(err);
	rc = check_open_source(c, err);
	if (rc == 0)
		rc = check_read_source(c, err);
	return rc ? rc : check_dequantise(c, err);
}

/* Loads the table, or those that suit the model, and chooses the one that a
 * mount would use. */
static int check_choose(struct checking *c, const char *path,
			struct rsh_error *err)
{
	const struct rsh_vfs_config *v = &c->o->vfs;
	struct rsh_weights_options o = { 0 };
	int rc = v->source ? check_load_config(c, err) : 0;

	if (rc == 0)
		rc = rsh_tables_load(path, c->config, &c->tables, err);
	if (rc == 0 && v->source)
		rc = check_read(c, err);
	if (rc)
		return rc;
	o.config = c->config;
	o.vocab_multiple = v->weights.vocab_multiple;
	o.untie = v->weights.untie;
	return rsh_weights_choose(&o, v->weights.from, c->tables.v, c->tables.n,
				  &(struct rsh_offers){ c->cat, c->in,
							c->n_in },
				  NULL, &c->table, err);
}

static int checking_run(struct checking *c, const char *path, bool *good,
			struct rsh_error *err)
{
	struct rsh_printer out;
	int rc = check_choose(c, path, err);

	if (rc)
		return rc;
	rsh_printer_init(&out, c->o);
	c->report = rsh_convert_report_new(&out, rsh_rule_table_path(c->table),
					   c->o->quiet);
	if (!c->report || rsh_weights_check_table(c->table,
						  rsh_convert_report_say,
						  c->report) == -ENOMEM)
		return rsh_error_nomem(err);
	if (c->o->vfs.source)
		rc = check_convert(c, err);
	if (rc == 0 && rsh_convert_report_end(c->report, good))
		rc = rsh_error_nomem(err);
	return rc;
}

enum rsh_exit rsh_convert_check(const struct rsh_options *o, const char *path)
{
	struct checking c = { .o = o };
	struct rsh_error err = RSH_ERROR_INIT;
	bool good = true;
	int rc = checking_run(&c, path, &good, &err);

	checking_clear(&c);
	if (rc)
		return rsh_exit_failed(o, rc, &err);
	return good ? RSH_EXIT_GOOD : RSH_EXIT_NO;
}
