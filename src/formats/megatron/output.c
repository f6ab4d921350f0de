/* SPDX-License-Identifier: Apache-2.0 */
/* formats/megatron/output.c shows a model as a step that Megatron-LM and
 * MindSpeed-LLM load, for any mesh:
 *
 *   /latest_checkpointed_iteration.txt                    "release", or "100"
 *   /release/mp_rank_TT[_PPP][_EEE]/model_optim_rng.pt    or iter_0000100
 *
 * With release Megatron-LM looks for no state of the optimizer. */
#include "config.h"

#include "output_i.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/formats/formats.h"
#include "rsh/formats/outputs.h"
#include "rsh/source/tables.h"
#include "rsh/util/text.h"

/* ---- the arguments that the files have ----
 *
 * Megatron-LM compares the number of layers and of heads, the hidden size and
 * the mesh with those of the run, if a file has args at all; the converter of
 * MindSpeed-LLM reads others too.  The mesh is known, sizes are those of the
 * weights, and the rest is in config.json or in the args of SOURCE. */

/* An argument: a number, one that is None if it is 0, a flag, or one that the
 * model does not have. */
enum kind { NUMBER, OR_NONE, FLAG, OMITTED };

/* Returns a number of config.json, or that of an argument of SOURCE; 0: neither
 * has it. */
static uint64_t known(const struct rsh_megatron_model *m, const char *key,
		      enum rsh_megatron_arg arg)
{
	uint64_t n;

	if (m->config && rsh_model_config_number(m->config, key, &n))
		return n;
	return m->args && arg < RSH_MEGATRON_ARGS ? m->args[arg] : 0;
}

/* Returns the size of a dimension of the first tensor with that end of the
 * name; 0: there is none. */
static uint64_t size_of(const struct rsh_megatron_model *m, const char *end,
			uint32_t d)
{
	for (size_t i = 0; i < m->n; i++)
		if (strstr(m->v[i].name, end) && m->v[i].n_raw > d)
			return m->v[i].raw[d];
	return 0;
}

/* Makes the args of a model: none if the number of heads is not known. */
static void args_make(const struct rsh_megatron_model *m,
		      struct rsh_megatron_form *out)
{
	const struct rsh_megatron_wanted *w = m->wanted;
	const enum kind latent = m->latent ? NUMBER : OMITTED;
	const enum kind latent_or = m->latent ? OR_NONE : OMITTED;
	const uint64_t hidden = size_of(m, "embedding.word_embeddings.", 1);
	const uint64_t groups = m->groups ? m->groups : m->heads;
	const uint64_t kv = size_of(m, ".linear_kv_up_proj.weight", 1) ?:
			    size_of(m, ".linear_kv_nope.weight", 1);
	const uint64_t down = size_of(m, ".linear_kv_down_proj.weight", 0);
	/* Those of the down projection beside its rank. */
	const uint64_t rope = down > kv ? down - kv :
		known(m, "qk_rope_head_dim", RSH_MEGATRON_ROPE_DIM);
	const uint64_t layers = w->n_chunks > 1 && !w->layers ?
		m->n_layers / (w->pipeline * w->n_chunks) : 0;
	const uint64_t channels =
		known(m, "head_dim", RSH_MEGATRON_CHANNELS) ?:
		(m->latent || m->heads == 0 ? 0 : hidden / m->heads);
	const uint64_t shared =
		known(m, "n_shared_experts", RSH_MEGATRON_ARGS) ?:
		size_of(m, ".shared_experts.", 0) > 0;
	const struct {
		const char *name;
		enum kind kind;
		uint64_t value;
	} all[] = {
		{ "tensor_model_parallel_size", NUMBER, w->tensor },
		{ "pipeline_model_parallel_size", NUMBER, w->pipeline },
		{ "expert_model_parallel_size", NUMBER, w->expert },
		{ "expert_tensor_parallel_size", NUMBER, w->expert_tensor },
		{ "num_layers_per_virtual_pipeline_stage", OR_NONE, layers },
		{ "num_layers", NUMBER, m->n_layers },
		{ "hidden_size", NUMBER, hidden },
		{ "num_attention_heads", NUMBER, m->heads },
		{ "num_query_groups", NUMBER, groups },
		{ "num_key_value_heads", NUMBER, groups },
		{ "group_query_attention", FLAG, groups != m->heads },
		{ "kv_channels", OR_NONE, channels },
		{ "multi_latent_attention", FLAG, m->latent },
		{ "q_lora_rank", latent_or,
		  known(m, "q_lora_rank", RSH_MEGATRON_Q_RANK) },
		{ "kv_lora_rank", latent, kv },
		{ "qk_pos_emb_head_dim", latent, rope },
		{ "qk_head_dim", latent_or,
		  known(m, "qk_nope_head_dim", RSH_MEGATRON_ARGS) },
		{ "v_head_dim", latent_or,
		  known(m, "v_head_dim", RSH_MEGATRON_ARGS) },
		/* Runs have it True, also with rotary embeddings, unless they
		 * say --no-position-embedding. */
		{ "add_position_embedding", FLAG, true },
		{ "max_position_embeddings", OR_NONE,
		  known(m, "max_position_embeddings", RSH_MEGATRON_ARGS) },
		{ "padded_vocab_size", NUMBER,
		  size_of(m, "embedding.word_embeddings.", 0) },
		{ "untie_embeddings_and_output_weights", FLAG, m->untied },
		{ "num_experts", OR_NONE, m->n_experts },
		{ "first_k_dense_replace", NUMBER,
		  known(m, "first_k_dense_replace", RSH_MEGATRON_ARGS) },
		{ "n_shared_experts", OR_NONE, shared },
	};

	out->n_args = 0;
	if (hidden == 0 || m->heads == 0 || m->n_layers == 0)
		return;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (all[i].kind != OMITTED)
			out->args[out->n_args++] = (struct rsh_megatron_said){
				all[i].name, all[i].kind == FLAG ?
				RSH_MEGATRON_FLAG :
				all[i].kind == NUMBER || all[i].value ?
				RSH_MEGATRON_NUMBER : RSH_MEGATRON_NONE,
				all[i].value,
			};
}

/* ---- the plan ---- */

static int model_write(struct rsh_megatron_model *m,
		       const struct rsh_output_job *job, struct rsh_plan **out,
		       struct rsh_error *err)
{
	const struct rsh_megatron_wanted *w = m->wanted;
	struct rsh_megatron_form form = {
		.iteration = w->iteration, .n_chunks = w->n_chunks,
	};
	struct rsh_plan_options opts = *job->opts;
	struct rsh_offer *offers = rsh_arena_array(&m->arena, struct rsh_offer,
						   m->n);
	struct rsh_placed *places = rsh_arena_array(&m->arena, struct rsh_placed,
						   m->n);
	bool noops, dual;
	int rc;

	if (!offers || !places) {
		rsh_catalogue_free(m->cat);
		return rsh_error_nomem(err);
	}
	for (size_t i = 0; i < m->n; i++) {
		offers[i] = m->v[i].o;
		places[i] = m->v[i].place;
	}
	args_make(m, &form);
	opts.form = &form;
	rc = rsh_write_placed(&(struct rsh_offers){
		m->cat, offers, (uint32_t)m->n }, &(struct rsh_placement){
		.n_stages = w->pipeline, .stage_ranks = w->n_ranks,
		.block_ranks = w->expert_tensor, .n_blocks = w->expert,
		.places = places }, &opts, out, err);
	if (rc)
		return rc;
	/* What the tree that is SOURCE has. */
	noops = m->args && m->args[RSH_MEGATRON_NOOPS];
	dual = m->args && m->args[RSH_MEGATRON_DUAL];
	if (noops || dual)
		rc = rsh_blueprint_note(*out, rsh_text_format(
			"SOURCE has %s%s%s, and the tree that is shown has "
			"not: its run must not ask for it",
			noops ? "noop_layers" : "", noops && dual ? " and " :
			"", dual ? "dualpipev" : ""));
	if (form.n_args == 0)
		rc = rc ?: rsh_blueprint_note(*out, rsh_text_format(
			"the files have no args, since nothing says the number "
			"of heads (--config)"));
	return rc ? rsh_error_nomem(err) : 0;
}

static int megatron_plan(const struct rsh_output_job *job,
			 struct rsh_plan **out, struct rsh_error *err)
{
	struct rsh_megatron_wanted wanted;
	struct rsh_megatron_model m = {
		.wanted = &wanted, .cat = job->offers->cat,
	};
	struct rsh_model_config *config = NULL;
	int rc = rsh_megatron_wanted_read(job->mesh, &wanted, err) ?:
		 rsh_model_config_load(job->config,
				       rsh_source_path(job->source),
				       rsh_source_store(job->source), &config,
				       err);

	m.config = config;
	if (rsh_source_format(job->source) == &rsh_megatron_format)
		m.args = ((const struct rsh_source_megatron *)
			  rsh_source_state(job->source))->args;
	m.heads = known(&m, "num_attention_heads", RSH_MEGATRON_HEADS);
	m.groups = known(&m, "num_key_value_heads", RSH_MEGATRON_GROUPS);
	rc = rc ?: rsh_megatron_place(&m, job->offers, job->opts, err);
	if (rc)
		rsh_catalogue_free(m.cat);
	else
		rc = model_write(&m, job, out, err);
	rsh_model_config_free(config);
	rsh_arena_clear(&m.arena);
	free(m.v);
	return rc;
}

static int megatron_check_mesh(const struct rsh_output_mesh *mesh,
			       struct rsh_error *err)
{
	struct rsh_megatron_wanted ignored;

	return rsh_megatron_wanted_read(mesh, &ignored, err);
}

/* ---- the tree ---- */

/* Adds the directories of ranks to that of the step, and a file to each. */
static int add_ranks(struct rsh_output_tree *t,
		     const struct rsh_megatron_wanted *w)
{
	struct rsh_arena *arena = &t->tree->arena;
	const uint32_t n = rsh_plan_n_files(t->plan);
	struct rsh_item *dirs = rsh_arena_array(arena, struct rsh_item, n);
	struct rsh_item *files = rsh_arena_array(arena, struct rsh_item, n);
	const struct rsh_row rows[] = {
		{ .n = n, .first = RSH_NODE_BESIDE(0), .step = 2,
		  .parent = RSH_NODE_BESIDE(n), .items = dirs },
		{ .n = n, .first = RSH_NODE_OF_FILE(0), .step = 2,
		  .parent = RSH_NODE_BESIDE(0), .apart = 2, .items = files },
	};

	if (!dirs || !files)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++) {
		const uint32_t r = i % w->n_ranks;
		const struct rsh_megatron_listed at = {
			.tensor = r % w->tensor, .stage = i / w->n_ranks,
			.expert = r / w->expert_tensor % w->expert,
		};

		dirs[i] = (struct rsh_item){
			rsh_megatron_dir(arena, &at, w->pipeline, w->expert),
			RSH_NODE_DIR, 0 };
		files[i] = (struct rsh_item){ RSH_MEGATRON_FILE, RSH_NODE_FILE,
					      i };
		if (!dirs[i].name)
			return -ENOMEM;
	}
	return rsh_tree_add(t->tree, &rows[0]) ?:
	       rsh_tree_add(t->tree, &rows[1]);
}

static int megatron_build(struct rsh_output_tree *t, struct rsh_error *err)
{
	struct rsh_item *root = rsh_arena_array(&t->tree->arena,
						struct rsh_item, 2);
	const struct rsh_row row = {
		.n = 2, .first = RSH_NODE_BESIDE(rsh_plan_n_files(t->plan)),
		.step = 2, .parent = t->tree->root, .items = root,
	};
	struct rsh_output_text text = { .mode = 0444 };
	struct rsh_megatron_wanted w;
	const char *tracker;
	int rc = root ? rsh_megatron_wanted_read(t->mesh, &w, err) :
			rsh_error_nomem(err);

	if (rc)
		return rc;
	tracker = strcmp(w.step, RSH_MEGATRON_RELEASE) == 0 ? w.step :
		  rsh_arena_format(&t->tree->arena, "%" PRIu64, w.iteration);
	if (!tracker)
		return rsh_error_nomem(err);
	text.body = rsh_body_of_text(tracker, strlen(tracker));
	root[0] = (struct rsh_item){ w.step, RSH_NODE_DIR, 0 };
	root[1] = (struct rsh_item){ RSH_MEGATRON_TRACKER, RSH_NODE_FILE, 0 };
	if (rsh_output_add_text(t, &text, &root[1].leaf) ||
	    rsh_tree_add(t->tree, &row) || add_ranks(t, &w))
		return rsh_error_nomem(err);
	return 0;
}

const struct rsh_output rsh_output_megatron = {
	.name = "megatron",
	.digest = 4,
	.suffix = ".pt",
	.framing = &rsh_megatron_framing,
	.division = RSH_DIVIDE_RANKS,
	.takes = RSH_TAKES_MESH | RSH_TAKES_WEIGHTS_ALONE,
	.options = "pipeline-layers",
	.last = RSH_MEGATRON_TRACKER,
	.step = RSH_MEGATRON_RELEASE,
	.check_mesh = megatron_check_mesh,
	.plan = megatron_plan,
	.build = megatron_build,
};
