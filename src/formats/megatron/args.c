/* SPDX-License-Identifier: Apache-2.0 */
/* formats/megatron/args.c makes the arguments that a tree has.
 *
 * Megatron-LM compares the number of layers and of heads, the hidden size and
 * the mesh with those of the run, if a file has args at all; the converter of
 * MindSpeed-LLM reads others too.  The mesh is known, sizes are those of the
 * weights, and the rest is in config.json or in the args of SOURCE. */
#include "config.h"

#include "output_i.h"

#include <stdio.h>
#include <string.h>

#include "rsh/formats/formats.h"

struct said {
	const struct rsh_megatron_model *m;
	const uint64_t *args; /* of SOURCE; NULL: it has none */
	struct rsh_megatron_form *out;
};

static void say(struct said *s, const char *name, uint64_t value)
{
	s->out->args[s->out->n_args++] = (struct rsh_megatron_said){
		name, RSH_MEGATRON_NUMBER, value,
	};
}

/* 0 becomes None. */
static void say_or_none(struct said *s, const char *name, uint64_t value)
{
	s->out->args[s->out->n_args++] = (struct rsh_megatron_said){
		name, value ? RSH_MEGATRON_NUMBER : RSH_MEGATRON_NONE, value,
	};
}

static void say_flag(struct said *s, const char *name, bool value)
{
	s->out->args[s->out->n_args++] = (struct rsh_megatron_said){
		name, RSH_MEGATRON_FLAG, value,
	};
}

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
static uint64_t size_of(const struct said *s, const char *end, uint32_t d)
{
	const struct rsh_megatron_model *m = s->m;

	for (size_t i = 0; i < m->n; i++)
		if (strstr(m->v[i].name, end) && m->v[i].n_raw > d)
			return m->v[i].raw[d];
	return 0;
}

static void say_attention(struct said *s, uint64_t hidden)
{
	const uint64_t heads = s->m->heads;
	const uint64_t groups = s->m->groups ? s->m->groups : heads;
	uint64_t channels = known(s, "head_dim", RSH_MEGATRON_CHANNELS);

	if (channels == 0 && !s->m->latent)
		channels = hidden / heads;
	say(s, "num_query_groups", groups);
	say(s, "num_key_value_heads", groups);
	say_flag(s, "group_query_attention", groups != heads);
	say_or_none(s, "kv_channels", channels);
}

static void say_latent(struct said *s)
{
	uint64_t kv = size_of(s, ".linear_kv_up_proj.weight", 1);
	const uint64_t down = size_of(s, ".linear_kv_down_proj.weight", 0);
	uint64_t rope = known(s, "qk_rope_head_dim", RSH_MEGATRON_ROPE_DIM);

	if (kv == 0)
		kv = size_of(s, ".linear_kv_nope.weight", 1);
	if (down > kv)
		rope = down - kv;
	say_flag(s, "multi_latent_attention", s->m->latent);
	if (!s->m->latent)
		return;
	say_or_none(s, "q_lora_rank",
		    known(s, "q_lora_rank", RSH_MEGATRON_Q_RANK));
	say(s, "kv_lora_rank", kv);
	say(s, "qk_pos_emb_head_dim", rope);
	say_or_none(s, "qk_head_dim",
		    known(s, "qk_nope_head_dim", RSH_MEGATRON_ARGS));
	say_or_none(s, "v_head_dim",
		    known(s, "v_head_dim", RSH_MEGATRON_ARGS));
}

static void say_mesh(struct said *s)
{
	const struct rsh_megatron_wanted *w = s->m->wanted;

	say(s, "tensor_model_parallel_size", w->tensor);
	say(s, "pipeline_model_parallel_size", w->pipeline);
	say(s, "expert_model_parallel_size", w->expert);
	say(s, "expert_tensor_parallel_size", w->expert_tensor);
	say_or_none(s, "num_layers_per_virtual_pipeline_stage",
		    w->n_chunks > 1 && !w->layers ? s->m->n_layers /
		    (w->pipeline * w->n_chunks) : 0);
}

const uint64_t *rsh_megatron_source_args(const struct rsh_source *source)
{
	return rsh_source_format(source) == &rsh_megatron_format ?
	       ((struct rsh_source_megatron *)rsh_source_state(source))->args : NULL;
}

static struct said said_begin(const struct rsh_megatron_model *m,
			      const struct rsh_source *source)
{
	return (struct said){
		.m = m,
		.args = rsh_megatron_source_args(source),
	};
}

void rsh_megatron_heads_find(struct rsh_megatron_model *m,
			     const struct rsh_source *source)
{
	const struct said s = said_begin(m, source);

	m->heads = known(&s, "num_attention_heads", RSH_MEGATRON_HEADS);
	m->groups = known(&s, "num_key_value_heads", RSH_MEGATRON_GROUPS);
}

void rsh_megatron_args_make(const struct rsh_megatron_model *m,
			    const struct rsh_source *source,
			    struct rsh_megatron_form *out)
{
	struct said s = said_begin(m, source);
	const uint64_t hidden = size_of(&s, "embedding.word_embeddings.", 1);
	uint64_t shared;

	s.out = out;
	out->n_args = 0;
	if (hidden == 0 || m->heads == 0 || m->n_layers == 0)
		return;
	say_mesh(&s);
	say(&s, "num_layers", m->n_layers);
	say(&s, "hidden_size", hidden);
	say(&s, "num_attention_heads", m->heads);
	say_attention(&s, hidden);
	say_latent(&s);
	/* Runs have it True, also with rotary embeddings, unless they say
	 * --no-position-embedding. */
	say_flag(&s, "add_position_embedding", true);
	say_or_none(&s, "max_position_embeddings",
		    known(&s, "max_position_embeddings", RSH_MEGATRON_ARGS));
	say(&s, "padded_vocab_size",
	    size_of(&s, "embedding.word_embeddings.", 0));
	say_flag(&s, "untie_embeddings_and_output_weights", m->untied);
	say_or_none(&s, "num_experts", m->n_experts);
	say(&s, "first_k_dense_replace",
	    known(&s, "first_k_dense_replace", RSH_MEGATRON_ARGS));
	shared = known(&s, "n_shared_experts", RSH_MEGATRON_ARGS);
	if (shared == 0 && size_of(&s, ".shared_experts.", 0) > 0)
		shared = 1;
	say_or_none(&s, "n_shared_experts", shared);
}
