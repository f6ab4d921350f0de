/* SPDX-License-Identifier: Apache-2.0 */
/* formats/megatron/args.c makes the arguments that a tree has.
 *
 * Megatron-LM compares the number of layers and of heads, the hidden size and
 * the mesh with those of the run, if a file has args at all; the converter of
 * MindSpeed-LLM reads others too.  The mesh is known, sizes are those of the
 * weights, and the rest is in config.json or in the args of SOURCE. */
#include "config.h"

#include "output_i.h"

#include <string.h>

#include "rsh/formats/formats.h"

/* An argument: a number, one that is None if it is 0, a flag, or one that the
 * model does not have. */
enum kind { NUMBER, OR_NONE, FLAG, OMITTED };

struct said {
	const struct rsh_megatron_model *m;
	const uint64_t *args; /* of SOURCE; NULL: it has none */
};

/* Returns a number of config.json, or that of an argument of SOURCE; 0: neither
 * has it. */
static uint64_t known(const struct said *s, const char *key,
		      enum rsh_megatron_arg arg)
{
	uint64_t n;

	if (s->m->config && rsh_model_config_number(s->m->config, key, &n))
		return n;
	return s->args && arg < RSH_MEGATRON_ARGS ? s->args[arg] : 0;
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

const uint64_t *rsh_megatron_source_args(const struct rsh_source *source)
{
	const struct rsh_source_megatron *st = rsh_source_state(source);

	return rsh_source_format(source) == &rsh_megatron_format ? st->args :
								   NULL;
}

void rsh_megatron_heads_find(struct rsh_megatron_model *m,
			     const struct rsh_source *source)
{
	const struct said s = { m, rsh_megatron_source_args(source) };

	m->heads = known(&s, "num_attention_heads", RSH_MEGATRON_HEADS);
	m->groups = known(&s, "num_key_value_heads", RSH_MEGATRON_GROUPS);
}

/* Returns the rotary dimensions: those of the down projection beside its
 * rank. */
static uint64_t rope_of(const struct said *s, uint64_t rank)
{
	const uint64_t down = size_of(s->m, ".linear_kv_down_proj.weight", 0);

	return down > rank ? down - rank :
	       known(s, "qk_rope_head_dim", RSH_MEGATRON_ROPE_DIM);
}

void rsh_megatron_args_make(const struct rsh_megatron_model *m,
			    const struct rsh_source *source,
			    struct rsh_megatron_form *out)
{
	const struct said s = { m, rsh_megatron_source_args(source) };
	const struct rsh_megatron_wanted *w = m->wanted;
	const enum kind latent = m->latent ? NUMBER : OMITTED;
	const enum kind latent_or = m->latent ? OR_NONE : OMITTED;
	const uint64_t hidden = size_of(m, "embedding.word_embeddings.", 1);
	const uint64_t groups = m->groups ? m->groups : m->heads;
	const uint64_t kv = size_of(m, ".linear_kv_up_proj.weight", 1) ?:
			    size_of(m, ".linear_kv_nope.weight", 1);
	const uint64_t layers = w->n_chunks > 1 && !w->layers ?
		m->n_layers / (w->pipeline * w->n_chunks) : 0;
	const uint64_t channels =
		known(&s, "head_dim", RSH_MEGATRON_CHANNELS) ?:
		(m->latent || m->heads == 0 ? 0 : hidden / m->heads);
	const uint64_t shared =
		known(&s, "n_shared_experts", RSH_MEGATRON_ARGS) ?:
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
		  known(&s, "q_lora_rank", RSH_MEGATRON_Q_RANK) },
		{ "kv_lora_rank", latent, kv },
		{ "qk_pos_emb_head_dim", latent, rope_of(&s, kv) },
		{ "qk_head_dim", latent_or,
		  known(&s, "qk_nope_head_dim", RSH_MEGATRON_ARGS) },
		{ "v_head_dim", latent_or,
		  known(&s, "v_head_dim", RSH_MEGATRON_ARGS) },
		/* Runs have it True, also with rotary embeddings, unless they
		 * say --no-position-embedding. */
		{ "add_position_embedding", FLAG, true },
		{ "max_position_embeddings", OR_NONE,
		  known(&s, "max_position_embeddings", RSH_MEGATRON_ARGS) },
		{ "padded_vocab_size", NUMBER,
		  size_of(m, "embedding.word_embeddings.", 0) },
		{ "untie_embeddings_and_output_weights", FLAG, m->untied },
		{ "num_experts", OR_NONE, m->n_experts },
		{ "first_k_dense_replace", NUMBER,
		  known(&s, "first_k_dense_replace", RSH_MEGATRON_ARGS) },
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
