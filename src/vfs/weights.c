/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/weights.c plans the weights of a model in its other form, or dense.  It
 * loads the rule table, or all tables that suit the model, and the model's
 * config.json.  The reader of the source's format reads the tensors, quantised
 * ones become dense, the rules convert them, and the general writer plans the
 * result. */
#include "config.h"

#include "vfs_i.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/plan/blueprint.h"
#include "rsh/plan/param_kind.h"
#include "rsh/read/tensor_load.h"
#include "rsh/source/format.h"
#include "rsh/source/tables.h"
#include "rsh/util/files.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"
#include "rsh/weights/own_adapters.h"
#include "rsh/weights/peft.h"
#include "rsh/weights/quantised.h"
#include "rsh/weights/weights.h"
#include "rsh/weights/wrapped.h"

/* The size of a `let` of the table in the conversion. */
struct let_size {
	enum { LET_UNUSED, LET_ONE, LET_SEVERAL } sizes;
	const char *key;
	uint64_t size;
};

struct rsh_vfs_weights {
	struct rsh_model_config *config; /* NULL: there is none */
	struct rsh_table_set tables;     /* that suit the model */
	/* The reader and the rules allocate here.  The plan uses this
	 * memory. */
	struct rsh_arena arena;
	enum rsh_side from;
	enum rsh_dtype dense; /* RSH_DTYPE_UNKNOWN: no weight was quantised */
	bool untied; /* an adapter made two weights of embedding and head */
	struct rsh_adapter adapters[RSH_LORAS_MAX]; /* that are merged */
	uint32_t n_adapters;
	/* Of SOURCE, if it is an adapter: its adapter_config.json as it is, and
	 * as it is shown. */
	struct rsh_adapter_config *own;
	uint8_t *own_text;
	size_t own_len;
	char *shown_text;
	char *note; /* a note for the plan; NULL: none */
	const struct rsh_rule_table *table; /* the table that is used */
	struct let_size *lets; /* [let of the table] */
	uint32_t n_lets;
};

void rsh_vfs_weights_free(struct rsh_vfs_weights *w)
{
	if (!w)
		return;
	rsh_table_set_clear(&w->tables);
	rsh_model_config_free(w->config);
	free(w->lets);
	rsh_arena_clear(&w->arena);
	while (w->n_adapters > 0)
		rsh_adapter_config_free(w->adapters[--w->n_adapters].config);
	rsh_adapter_config_free(w->own);
	free(w->own_text);
	free(w->shown_text);
	free(w->note);
	free(w);
}

/* ---- loading ---- */

/* Loads the configuration of an adapter, which the store has joined. */
static int weights_load_adapter(struct rsh_vfs_weights *w,
				const struct rsh_store *store,
				const char *directory, double scale,
				struct rsh_error *err)
{
	struct rsh_adapter *a = &w->adapters[w->n_adapters];
	cleanup_free uint8_t *data = NULL;
	cleanup_free char *path =
		rsh_text_format("%s/" RSH_ADAPTER_CONFIG_NAME, directory);
	size_t len;
	int rc = !path ? rsh_error_nomem(err) :
		 rsh_store_load(store, path, &rsh_adapter_config_file, &data,
				&len, err) ?:
		 rsh_adapter_config_parse(data, len, path, &a->config, err);

	a->scale = scale;
	w->n_adapters += rc == 0;
	return rc;
}

/* Other programs say in a file of their own that weights are quantised.
 * Returns 1 and its name, 0 if there is none, or -errno with a sentence. */
static int vfs_find_quantisation(const struct rsh_reshard *v, const char **name,
				 struct rsh_error *err)
{
	static const char *const files[] = {
		"hf_quant_config.json", "quant_model_description.json",
	};
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < sizeof(files) / sizeof(*files); i++) {
		*name = files[i];
		rc = rsh_store_has(rsh_source_store(v->source), *name, err);
	}
	return rc;
}

/* Checks that no other file says it if config.json does not. */
static int vfs_check_quantisation(const struct rsh_reshard *v,
				  const struct rsh_vfs_config *cfg,
				  struct rsh_error *err)
{
	const struct rsh_model_config *c = v->weights->config;
	const char *name;
	int rc;

	if (c && rsh_model_config_quantisation(c))
		return 0;
	rc = vfs_find_quantisation(v, &name, err);
	return rc <= 0 ? rc :
	       rsh_error_set(err, ENOTSUP, "%s/%s says that weights are "
			     "quantised in a way that --dequantize does not "
			     "support", cfg->source, name);
}

const char *rsh_vfs_quantised_by(const struct rsh_reshard *v,
				 const struct rsh_vfs_config *cfg)
{
	const struct rsh_quantisation *q;
	struct rsh_model_config *c = NULL;
	/* Who needs the files says what is wrong with them. */
	struct rsh_error unused = RSH_ERROR_INIT;
	const char *name = NULL;

	if (rsh_model_config_load(NULL, cfg->source,
				  rsh_source_store(v->source), &c,
				  &unused) == 0 && c) {
		q = rsh_model_config_quantisation(c);
		name = q && q->method ? "config.json" : NULL;
	}
	rsh_model_config_free(c);
	return name ||
	       vfs_find_quantisation(v, &name, &unused) > 0 ? name : NULL;
}

int rsh_vfs_load_weights(struct rsh_reshard *v,
			 const struct rsh_vfs_config *cfg,
			 struct rsh_error *err)
{
	const struct rsh_weights_at *at = &cfg->weights;
	const struct rsh_store *store = rsh_source_store(v->source);
	struct rsh_vfs_weights *w;
	int rc;

	if (!rsh_weights_change(at))
		return 0;
	v->weights = calloc(1, sizeof(*v->weights));
	if (!v->weights)
		return rsh_error_nomem(err);
	rc = rsh_model_config_load(at->config, cfg->source, store,
				   &v->weights->config, err);
	for (unsigned i = 0; rc == 0 && i < at->n_loras; i++)
		rc = weights_load_adapter(v->weights, store,
					  at->loras[i].directory,
					  at->loras[i].scale, err);
	w = v->weights;
	if (rc == 0 && rsh_source_format(v->source)->is_adapter)
		rc = rsh_store_load(store, RSH_ADAPTER_CONFIG_NAME,
				    &rsh_adapter_config_file, &w->own_text,
				    &w->own_len, err) ?:
		     rsh_adapter_config_parse(w->own_text, w->own_len,
					      RSH_ADAPTER_CONFIG_NAME, &w->own,
					      err);
	rc = rc ?: vfs_check_quantisation(v, cfg, err);
	if (rc || !at->table)
		return rc;
	return rsh_tables_load(at->table, v->weights->config,
			       &v->weights->tables, err);
}

/* ---- one candidate ---- */

struct weights_job {
	struct rsh_reshard *v;
	const struct rsh_vfs_config *cfg;
	const struct rsh_plan_options *opts;
	struct rsh_offers now; /* what the tensors of the source have become */
	/* The adapters of SOURCE, if they are shown alone, and the weights of
	 * which tables make their names. */
	struct rsh_own_adapters own;
	struct rsh_offers stand_ins;
	struct rsh_peft_adapter peft; /* SOURCE, if it is an adapter */
};

static bool weights_wanted(void *ctx, const char *name)
{
	const struct weights_job *k = ctx;

	return k->opts->wanted(k->opts->ctx, name);
}

/* If memory is out the note is left out. */
static void weights_keep_note(void *ctx, const char *sentence)
{
	const struct weights_job *k = ctx;
	struct rsh_vfs_weights *w = k->v->weights;
	char *all;

	if (asprintf(&all, "%s%s%s", w->note ? w->note : "",
		     w->note ? "; " : "", sentence) < 0)
		return;
	free(w->note);
	w->note = all;
}

static void weights_take_size(void *ctx, uint32_t let, const char *key,
			      uint64_t size)
{
	const struct weights_job *k = ctx;
	struct let_size *l = &k->v->weights->lets[let];

	if (l->sizes && l->size != size)
		l->sizes = LET_SEVERAL;
	else if (!l->sizes)
		*l = (struct let_size){ LET_ONE, key, size };
}

/* Returns the key under which a training state has all weights; NULL: it is not
 * known, or there is none. */
static const char *weights_state_key(const struct weights_job *k)
{
	const char *key = NULL;

	for (uint32_t i = 0; i < k->now.n; i++) {
		const char *name = rsh_names_text(k->now.cat->names,
						  k->now.v[i].name);
		const char *its = rsh_values_state_key(&k->v->extra, name);

		if (rsh_is_flattened_state(name) ||
		    rsh_is_job_state(name, false))
			continue;
		if (!its || (key && strcmp(its, key) != 0))
			return NULL;
		key = its;
	}
	return key;
}

/* Refuses a value that would have the name of a tensor. */
static int weights_check_value(const struct weights_job *k, const char *name,
			       struct rsh_error *err)
{
	const uint32_t id = rsh_names_find(k->now.cat->names, name,
					   strlen(name));

	for (uint32_t i = 0; id != RSH_NAME_NONE && i < k->now.n; i++)
		if (k->now.v[i].name == id)
			return rsh_error_set(err, EINVAL, "%s would be a "
					     "tensor and a value without the "
					     "words of wrappers", name);
	return 0;
}

static int weights_read(struct weights_job *k,
			const struct rsh_source_view *view,
			struct rsh_error *err)
{
	struct rsh_plan_options all = *k->opts;
	const struct rsh_read_job job = {
		.source = k->v->source, .view = view, .src = k->v->src,
		.dst = k->v->dst, .opts = &all,
		.arena = &k->v->weights->arena,
		.by_bytes = k->cfg->weights.table,
	};
	struct rsh_offers in;
	char text[96];
	uint32_t n = 0;
	int rc;

	/* --only and --drop apply to the converted names, so all are read. */
	all.wanted = NULL;
	rc = rsh_source_format(k->v->source)->read(&job, &in, err);
	if (rc)
		return rc;
	k->now = in;
	if (rsh_offers_expand(&k->now, job.arena) ||
	    rsh_catalogue_find_kinds(in.cat))
		return rsh_error_nomem(err);
	/* Tables have the names of the model itself. */
	if (k->cfg->weights.table || k->cfg->weights.unwrap)
		rc = rsh_weights_unwrap(&k->now, weights_state_key(k),
					job.arena, &n, err);
	for (uint32_t i = 0; rc == 0 && n > 0 && i < k->v->extra.n; i++)
		rc = weights_check_value(k, k->v->extra.names[i], err);
	if (rc == 0 && n > 0) {
		snprintf(text, sizeof(text), "%u names are used without the "
			 "words of wrappers, such as \"module.\"", n);
		weights_keep_note(k, text);
	} else if (rc == 0 && k->cfg->weights.unwrap) {
		rsh_log_notice("%s: --unwrap changes no name: the weights do "
			       "not all have a key or a word of wrappers",
			       k->cfg->source);
	}
	return rc;
}

static int weights_same(void *ctx, const struct rsh_offer *a,
			const struct rsh_offer *b, struct rsh_error *err)
{
	const struct weights_job *k = ctx;

	return rsh_tensors_same(k->v->source, k->now.cat, a, b, err);
}

/* Merges the adapters that were loaded. */
static int weights_adapt(struct weights_job *k,
			 const struct rsh_source_view *view,
			 struct rsh_error *err)
{
	struct rsh_vfs_weights *w = k->v->weights;
	const struct rsh_adapters how = {
		.v = w->adapters, .n = w->n_adapters, .config = w->config,
		.same = weights_same, .ctx = k, .untied = &w->untied,
	};
	struct rsh_adapted done[RSH_LORAS_MAX];
	char text[RSH_ERROR_TEXT_MAX];
	int rc;

	w->untied = false;
	if (how.n == 0)
		return 0;
	if (rsh_catalogue_add_beside(k->now.cat, view))
		return rsh_error_nomem(err);
	for (uint32_t i = 0; i < how.n; i++)
		w->adapters[i].file = view->n_ranks + i;
	rc = rsh_weights_adapt(&how, &w->arena, &k->now, done, err);
	for (uint32_t i = 0; rc == 0 && i < how.n; i++) {
		snprintf(text, sizeof(text), "%s: %u tensors are merged, %u are "
			 "replaced", k->cfg->weights.loras[i].directory,
			 done[i].n_merged, done[i].n_replaced);
		weights_keep_note(k, text);
		if (done[i].n_lacking > 0)
			rsh_log_warning("%s: its config wants matrices for "
					"%.400s%s, and it has none",
					k->cfg->weights.loras[i].directory,
					done[i].lacking, done[i].n_lacking > 1 ?
					" and others" : "");
	}
	return rc;
}

static bool weights_alone(const struct weights_job *k)
{
	return k->cfg->output->takes & RSH_TAKES_ADAPTER;
}

/* Merges the adapters that SOURCE has beside its weights, or keeps them
 * alone. */
static int weights_take_own(struct weights_job *k, struct rsh_error *err)
{
	struct rsh_vfs_weights *w = k->v->weights;
	char text[96];
	int rc;

	if (w->own)
		return rsh_weights_take_peft(&k->now, w->own, &w->arena,
					     &k->peft, err);
	if (!k->cfg->weights.lora_alpha)
		return 0;
	rc = rsh_weights_take_own(&k->now, &w->arena, &k->own, err);
	if (rc == 0 && weights_alone(k)) {
		rc = rsh_weights_stand_ins(&k->own, k->now.cat, &w->arena,
					   &k->stand_ins, err);
		k->now.v = k->stand_ins.v;
		k->now.n = k->stand_ins.n;
	} else if (rc == 0) {
		rc = rsh_weights_merge_own(&k->own, k->cfg->weights.lora_alpha,
					   &w->arena, &k->now, err);
		snprintf(text, sizeof(text), "%u adapters are merged",
			 k->own.n);
		weights_keep_note(k, text);
	}
	return rc;
}

static void weights_refused(void *ctx, const struct rsh_rule_table *t,
			    const char *why)
{
	const struct weights_job *k = ctx;

	rsh_log_info("%s: not by %s: %s", k->cfg->source,
		     rsh_path_name(t->path), why);
}

/* Names and shapes may match several tables, so a note lists the others. */
static void weights_note_choice(struct weights_job *k)
{
	const struct rsh_vfs_weights *w = k->v->weights;
	char others[256] = "", text[512];
	size_t at = 0;

	for (size_t i = 0; i < w->tables.n; i++)
		if (w->tables.v[i] != w->table)
			rsh_text_add(others, sizeof(others), &at, "%s%s",
				     at ? ", " : "",
				     rsh_path_name(w->tables.v[i]->path));
	if (at == 0)
		return;
	snprintf(text, sizeof(text), "using %s; these support the model as "
		 "well: %s", rsh_path_name(w->table->path), others);
	weights_keep_note(k, text);
}

/* Converts the weights by the table that is used. */
static int weights_by_table(struct weights_job *k, struct rsh_error *err)
{
	const struct rsh_weights_at *at = &k->cfg->weights;
	struct rsh_vfs_weights *w = k->v->weights;
	struct rsh_weights_options o = {
		.config = w->config, .unlisted = at->unlisted,
		.vocab_multiple = at->vocab_multiple, .untie = at->untie,
		.same = weights_same,
		/* --only and --drop apply to PEFT's names. */
		.wanted = k->opts->wanted && !weights_alone(k) ?
			weights_wanted : NULL,
		.sized = weights_take_size,
		.note = weights_keep_note,
		.refused = weights_refused,
		.given = at->from,
		.ctx = k,
	};
	const struct rsh_offers in = k->now;
	unsigned takes;
	int rc = rsh_weights_choose(&o, w->tables.v, w->tables.n, &in,
				    &w->table, err);

	if (rc)
		return rc;
	weights_note_choice(k);
	free(w->lets);
	w->n_lets = w->table->n_lets;
	w->lets = calloc(w->n_lets + 1, sizeof(*w->lets));
	if (!w->lets)
		return rsh_error_nomem(err);
	o.table = w->table;
	rc = rsh_weights_find_side(&o, &in, &o.from, NULL, err);
	if (rc)
		return rc;
	w->from = o.from;
	o.is_whole = !weights_alone(k);
	/* A Hugging Face model has no optimizer states unless they are asked
	 * for. */
	takes = k->cfg->output->takes | (at->follows ? at->follows->takes : 0);
	o.leave_states = o.from == RSH_SIDE_MINDSPORE &&
			 (takes & RSH_TAKES_WEIGHTS_ALONE ||
			  (takes & RSH_TAKES_OPTIMIZER &&
			   !k->cfg->keep_states &&
			   !rsh_choice_is_given(&k->cfg->choice)));
	rc = rsh_weights_convert(&o, &in, &w->arena, &k->now, err);
	if (rc)
		return rc;
	/* The strategies must fit the side of SOURCE, which may not have been
	 * known before. */
	if (w->from == RSH_SIDE_MINDSPORE && k->v->dst)
		return rsh_error_set(err, EINVAL,
			"%s has MindSpore's names, which become Hugging "
			"Face's: a strategy cannot list them (use "
			"--dst-strategy none)", k->cfg->source);
	if (w->from == RSH_SIDE_HF && k->cfg->src.from == RSH_FROM_FILE)
		return rsh_error_set(err, EINVAL,
			"%s has Hugging Face's names, but a strategy lists "
			"MindSpore's: use --src-strategy none", k->cfg->source);
	return 0;
}

int rsh_vfs_write_plan(struct rsh_reshard *v, const struct rsh_vfs_config *cfg,
		       const struct rsh_offers *offers,
		       const struct rsh_plan_options *opts,
		       struct rsh_error *err)
{
	const struct rsh_output_mesh mesh = rsh_vfs_output_mesh(cfg);

	if (!v->output->plan)
		return rsh_write_plan(offers, v->dst, opts, &v->plan, err);
	return v->output->plan(&(struct rsh_output_job){
		.offers = offers, .opts = opts, .mesh = &mesh,
		.source = v->source, .config = cfg->weights.config,
	}, &v->plan, err);
}

/* Gives the converted adapter of SOURCE PEFT's names and configuration. */
static int weights_show_peft(struct weights_job *k, struct rsh_error *err)
{
	struct rsh_vfs_weights *w = k->v->weights;
	struct rsh_adapter_module *modules;
	uint32_t n;
	size_t len;
	int rc = rsh_weights_show_peft(&k->peft, &w->arena, &k->now, &modules,
				       &n, err);

	free(w->shown_text);
	w->shown_text = NULL;
	return rc ?: rsh_adapter_config_edit((const char *)w->own_text,
			w->own_len, RSH_ADAPTER_CONFIG_NAME, modules, n,
			&w->shown_text, &len, err);
}

static int weights_plan(struct weights_job *k,
			const struct rsh_source_view *view,
			struct rsh_error *err)
{
	const struct rsh_weights_at *at = &k->cfg->weights;
	struct rsh_vfs_weights *w = k->v->weights;
	struct rsh_plan_options form = *k->opts;
	struct rsh_offers out;
	const struct rsh_dequantise o = {
		.config = w->config, .type = at->dequantise,
		.load = rsh_tensor_load, .ctx = k->v->source,
	};
	uint32_t n;
	int rc = weights_read(k, view, err);

	if (rc)
		return rc;
	/* Quantised weights become dense. */
	n = k->now.n;
	rc = rsh_weights_dequantise(&o, &w->arena, &k->now, err);
	w->dense = rc || (k->now.n == n && !o.type) ? RSH_DTYPE_UNKNOWN :
		   k->opts->cast ? k->opts->cast :
		   o.type ? o.type : RSH_DTYPE_BFLOAT16;
	rc = rc ?: weights_adapt(k, view, err) ?: weights_take_own(k, err);
	if (rc == 0 && at->table)
		rc = weights_by_table(k, err);
	else if (rc == 0)
		w->from = k->v->src ? RSH_SIDE_MINDSPORE : RSH_SIDE_HF;
	if (rc == 0 && w->own)
		rc = weights_show_peft(k, err);
	else if (rc == 0 && weights_alone(k))
		/* The adapters get PEFT's names. */
		rc = w->from == RSH_SIDE_HF ?
		     rsh_error_set(err, EINVAL, "the weights of SOURCE have "
				   "Hugging Face's names: the adapter of "
				   "MindSpore's weights is shown") :
		     rsh_weights_show_own(&k->own, &k->stand_ins, &w->arena,
					  &k->now, err);
	if (rc)
		return rc;
	k->v->output = k->cfg->output;
	if (at->follows && w->from == RSH_SIDE_MINDSPORE) {
		k->v->output = at->follows;
		rsh_output_set(at->follows, at->part_bytes, &form);
	}
	form = rsh_vfs_offer_options(k->v->source, &form);
	out = k->now;
	k->now.cat = NULL;
	rc = rsh_vfs_write_plan(k->v, k->cfg, &out, &form, err);
	if (rc == 0 && w->note &&
	    rsh_blueprint_note(k->v->plan, steal_pointer(&w->note)))
		rc = rsh_error_nomem(err);
	return rc;
}

int rsh_vfs_plan_weights(struct rsh_reshard *v,
			 const struct rsh_vfs_config *cfg,
			 const struct rsh_source_view *view,
			 const struct rsh_plan_options *opts,
			 struct rsh_error *err)
{
	struct weights_job k = { .v = v, .cfg = cfg, .opts = opts };
	int rc;

	/* Free the memory of a candidate that was tried before. */
	rsh_arena_clear(&v->weights->arena);
	free(v->weights->note);
	v->weights->note = NULL;
	rc = weights_plan(&k, view, err);
	rsh_catalogue_free(k.now.cat);
	return rc;
}

/* ---- the config.json that is shown ---- */

static const struct rsh_json_member *weights_find_key(
	const struct rsh_json_edit *e, const char *key)
{
	const char *dot = strchr(key, '.');
	cleanup_free char *in = dot ? strndup(key, (size_t)(dot - key)) : NULL;
	const struct rsh_json_member *m =
		dot ? in ? rsh_json_edit_find(e, in, dot + 1) : NULL :
		rsh_json_edit_find(e, NULL, key);

	if (!dot && (!m || m->kind == RSH_JSON_NULL))
		m = rsh_json_edit_find(e, "text_config", key);
	return m && m->kind == RSH_JSON_NUMBER ? m : NULL;
}

static int weights_hold_let(const struct rsh_vfs_weights *w, uint32_t i,
			    struct rsh_json_edit *e, const char *path,
			    struct rsh_error *err)
{
	const struct rsh_rule_let *l = &w->table->lets[i];
	const struct let_size *is = &w->lets[i];
	const struct rsh_json_member *m;

	/* The config.json may have this size under any of the keys that the
	 * table gives. */
	for (uint32_t k = 0; k < l->n_terms; k++) {
		const char *key = rsh_rule_let_key(w->table, l, k);

		m = key ? weights_find_key(e, key) : NULL;
		if (m && m->number == is->size)
			return 0;
	}
	m = weights_find_key(e, is->key);
	if (!m) {
		char text[24];

		if (strchr(is->key, '.') ||
		    rsh_json_edit_find(e, NULL, is->key) ||
		    rsh_json_edit_find(e, NULL, "text_config") ||
		    !rsh_json_edit_find(e, NULL, "architectures"))
			return 0;
		snprintf(text, sizeof(text), "%llu",
			 (unsigned long long)is->size);
		rsh_log_info("%s: \"%s\" is added as %s", path, is->key, text);
		return rsh_json_edit_set(e, NULL, is->key, text) ?
		       rsh_error_nomem(err) : 0;
	}
	return rsh_error_set(err, EINVAL, "%s: \"%s\" is %llu, and the weights "
					  "are converted with %llu (%s in line "
					  "%u of %s)", path,
			     is->key, (unsigned long long)m->number,
			     (unsigned long long)is->size, l->name, l->line,
			     w->table->path);
}

/* Dense weights are not quantised any more, and have the type that was asked
 * for. */
static int weights_hold_dense(const struct rsh_vfs_weights *w,
			      struct rsh_json_edit *e, struct rsh_error *err)
{
	static const char *const in[] = { NULL, "text_config" };
	static const char *const gone[] = { "quantization_config",
					    "expert_dtype" };
	static const char *const types[] = { "dtype", "torch_dtype" };
	const char *type = w->dense == RSH_DTYPE_FLOAT32 ? "\"float32\"" :
			   w->dense == RSH_DTYPE_FLOAT16 ? "\"float16\"" :
							   "\"bfloat16\"";

	for (size_t i = 0; i < 2; i++)
		for (size_t k = 0; k < 2; k++) {
			rsh_json_edit_drop(e, in[i], gone[k]);
			if (rsh_json_edit_find(e, in[i], types[k]) &&
			    rsh_json_edit_set(e, in[i], types[k], type))
				return rsh_error_nomem(err);
		}
	return 0;
}

int rsh_vfs_weights_hold(void *ctx, struct rsh_json_edit *e, const char *path,
			 struct rsh_error *err)
{
	const struct rsh_vfs_weights *w = ctx;
	const struct rsh_rule_table *t =
		w->table && w->table->group && w->from != RSH_SIDE_HF ?
		w->table : NULL;
	static const char tie[] = "tie_word_embeddings", in[] = "text_config";
	int rc = 0;

	if (w->untied && (rsh_json_edit_set(e, NULL, tie, "false") ||
			  (rsh_json_edit_find(e, in, tie) &&
			   rsh_json_edit_set(e, in, tie, "false"))))
		return rsh_error_nomem(err);
	/* Programs that load the left side may have other words for a
	 * number. */
	for (uint32_t i = 0; t && i < t->n_pairs[RSH_RULE_CONFIG]; i++) {
		const char *const *keys = t->pairs[RSH_RULE_CONFIG][i].side;
		const struct rsh_json_member *m =
			rsh_json_edit_find(e, NULL, keys[1]);
		char text[24];

		if (!m || m->kind != RSH_JSON_NUMBER ||
		    rsh_json_edit_find(e, NULL, keys[0]))
			continue;
		snprintf(text, sizeof(text), "%llu",
			 (unsigned long long)m->number);
		if (rsh_json_edit_set(e, NULL, keys[0], text))
			return rsh_error_nomem(err);
	}
	if (w->dense)
		rc = weights_hold_dense(w, e, err);
	for (uint32_t i = 0; rc == 0 && i < w->n_lets; i++)
		if (w->lets[i].sizes == LET_ONE)
			rc = weights_hold_let(w, i, e, path, err);
	return rc;
}

const char *rsh_vfs_weights_adapter_config(const struct rsh_vfs_weights *w)
{
	return w->shown_text;
}

bool rsh_vfs_weights_are_sharded(const struct rsh_reshard *v)
{
	const struct rsh_vfs_weights *w = v->weights;

	return w->from == RSH_SIDE_MINDSPORE && !(w->table && w->table->group);
}
