/* SPDX-License-Identifier: Apache-2.0 */
/* formats/megatron/names.c has the table that says how slices of a tensor are
 * joined.  Nothing in a file does. */
#include "config.h"

#include "megatron_i.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "rsh/util/text.h"

struct pattern {
	const char *name; /* as of fnmatch() */
	enum rsh_megatron_kind kind;
	bool of_expert;
};

/* Names after the prefix of a layer.  The first that fits decides. */
static const struct pattern of_layers[] = {
	{ "*.layer_norm_weight", RSH_MEGATRON_SAME },
	{ "*.layer_norm_bias", RSH_MEGATRON_SAME },
	{ "*layernorm.weight", RSH_MEGATRON_SAME },
	{ "*layernorm.bias", RSH_MEGATRON_SAME },
	{ "post_attn_norm.weight", RSH_MEGATRON_SAME },
	{ "self_attention.linear_qkv.weight", RSH_MEGATRON_QKV },
	{ "self_attention.linear_qkv.bias", RSH_MEGATRON_QKV },
	{ "self_attention.linear_proj.weight", RSH_MEGATRON_COLUMNS },
	{ "self_attention.linear_proj.bias", RSH_MEGATRON_SAME },
	{ "self_attention.linear_q_proj.weight", RSH_MEGATRON_ROWS },
	{ "self_attention.linear_q_proj.bias", RSH_MEGATRON_ROWS },
	{ "self_attention.linear_q_up_proj.weight", RSH_MEGATRON_ROWS },
	{ "self_attention.linear_kv_up_proj.weight", RSH_MEGATRON_ROWS },
	{ "self_attention.linear_q_down_proj.weight", RSH_MEGATRON_Q_DOWN },
	{ "self_attention.linear_kv_down_proj.weight", RSH_MEGATRON_KV_DOWN },
	/* of MindSpeed-LLM */
	{ "self_attention.linear_qk_nope.weight", RSH_MEGATRON_ROWS },
	{ "self_attention.linear_qk_rope.weight", RSH_MEGATRON_ROWS },
	{ "self_attention.linear_kv_nope.weight", RSH_MEGATRON_ROWS },
	{ "self_attention.linear_v.weight", RSH_MEGATRON_ROWS },
	{ "self_attention.core_attention.softmax_offset", RSH_MEGATRON_ROWS },
	{ "self_attention.dsa_indexer.*", RSH_MEGATRON_SAME },
	{ "mlp.linear_fc1.weight", RSH_MEGATRON_GATE },
	{ "mlp.linear_fc1.bias", RSH_MEGATRON_GATE },
	{ "mlp.linear_fc2.weight", RSH_MEGATRON_COLUMNS },
	{ "mlp.linear_fc2.bias", RSH_MEGATRON_SAME },
	{ "mlp.shared_experts.linear_fc1.weight", RSH_MEGATRON_GATE },
	{ "mlp.shared_experts.linear_fc1.bias", RSH_MEGATRON_GATE },
	{ "mlp.shared_experts.linear_fc2.weight", RSH_MEGATRON_COLUMNS },
	{ "mlp.shared_experts.linear_fc2.bias", RSH_MEGATRON_SAME },
	{ "mlp.shared_experts.gate_weight", RSH_MEGATRON_SAME },
	{ "mlp.router.weight", RSH_MEGATRON_SAME },
	{ "mlp.router.bias", RSH_MEGATRON_SAME },
	{ "mlp.router.expert_bias", RSH_MEGATRON_SAME },
	{ "mlp.experts.local_experts.*.linear_fc1.weight", RSH_MEGATRON_GATE,
	  true },
	{ "mlp.experts.local_experts.*.linear_fc1.bias", RSH_MEGATRON_GATE,
	  true },
	{ "mlp.experts.local_experts.*.linear_fc2.weight",
	  RSH_MEGATRON_COLUMNS, true },
	{ "mlp.experts.local_experts.*.linear_fc2.bias", RSH_MEGATRON_SAME,
	  true },
	{ "mlp.experts.linear_fc1.weight[0-9]*", RSH_MEGATRON_GATE, true },
	{ "mlp.experts.linear_fc1.bias[0-9]*", RSH_MEGATRON_GATE, true },
	{ "mlp.experts.linear_fc2.weight[0-9]*", RSH_MEGATRON_COLUMNS, true },
	{ "mlp.experts.linear_fc2.bias[0-9]*", RSH_MEGATRON_SAME, true },
	/* Grouped: the kind is not used. */
	{ "mlp.experts.weight1", RSH_MEGATRON_GATE, true },
	{ "mlp.experts.weight2", RSH_MEGATRON_ROWS, true },
	{ NULL, RSH_MEGATRON_UNKNOWN },
};

static const struct pattern of_model[] = {
	{ "embedding.word_embeddings.weight", RSH_MEGATRON_VOCABULARY },
	{ "embedding.position_embeddings.weight", RSH_MEGATRON_SAME },
	{ "embedding.tokentype_embeddings.weight", RSH_MEGATRON_SAME },
	{ "output_layer.weight", RSH_MEGATRON_VOCABULARY },
	{ "output_layer.bias", RSH_MEGATRON_VOCABULARY },
	{ "decoder.final_layernorm.weight", RSH_MEGATRON_SAME },
	{ "decoder.final_layernorm.bias", RSH_MEGATRON_SAME },
	{ "mtp.layers.*.enorm.weight", RSH_MEGATRON_SAME },
	{ "mtp.layers.*.enorm.bias", RSH_MEGATRON_SAME },
	{ "mtp.layers.*.hnorm.weight", RSH_MEGATRON_SAME },
	{ "mtp.layers.*.hnorm.bias", RSH_MEGATRON_SAME },
	{ "mtp.layers.*.eh_proj.weight", RSH_MEGATRON_ROWS },
	{ "mtp.layers.*.final_layernorm.weight", RSH_MEGATRON_SAME },
	{ "mtp.layers.*.final_layernorm.bias", RSH_MEGATRON_SAME },
	/* of MindSpeed-LLM */
	{ "final_layernorm.weight", RSH_MEGATRON_SAME },
	{ "final_layernorm.bias", RSH_MEGATRON_SAME },
	{ "mtp.final_layernorms.*.weight", RSH_MEGATRON_SAME },
	{ NULL, RSH_MEGATRON_UNKNOWN },
};

/* Returns what follows a prefix and a number, which is set; NULL: the name does
 * not begin so. */
static const char *after_number(const char *name, const char *prefix,
				uint64_t *number)
{
	const size_t n = strlen(prefix);
	size_t digits;

	if (strncmp(name, prefix, n) != 0)
		return NULL;
	name += n;
	digits = rsh_count_digits(name, strlen(name));
	return rsh_digits_read(name, digits, UINT32_MAX, number) ?
	       name + digits : NULL;
}

void rsh_megatron_name_read(const char *name, struct rsh_megatron_name *out)
{
	/* the number of an expert */
	static const char *const before[] = {
		"mlp.experts.local_experts.",
		"mlp.experts.linear_fc1.weight",
		"mlp.experts.linear_fc1.bias",
		"mlp.experts.linear_fc2.weight",
		"mlp.experts.linear_fc2.bias",
	};
	const struct pattern *p = of_model;
	const char *rest = after_number(name, "decoder.layers.", &out->layer);
	uint64_t number;

	*out = (struct rsh_megatron_name){ .layer = out->layer };
	if (rest && *rest == '.') {
		out->after_layer = rest++;
		p = of_layers;
	} else {
		rest = after_number(name, "mtp.layers.", &number);
		if (rest && rsh_begins_any(rest, ".transformer_layer.",
					   ".mtp_model_layer.")) {
			p = of_layers;
			rest = strchr(rest + 1, '.') + 1;
		} else {
			rest = name;
		}
	}
	while (p->name && fnmatch(p->name, rest, 0) != 0)
		p++;
	out->kind = p->kind;
	out->of_expert = p->of_expert;
	if (!p->of_expert)
		return;
	out->grouped = strcmp(rest, "mlp.experts.weight1") == 0 ? 1 :
		       strcmp(rest, "mlp.experts.weight2") == 0 ? 2 : 0;
	for (size_t i = 0; i < sizeof(before) / sizeof(before[0]); i++) {
		const char *end = after_number(rest, before[i], &out->expert);

		if (!end || *end != (i == 0 ? '.' : '\0'))
			continue;
		out->at = (size_t)(rest - name) + strlen(before[i]);
		out->n = (size_t)(end - name) - out->at;
	}
	if (!out->grouped && out->n == 0)
		out->kind = RSH_MEGATRON_UNKNOWN;
}

bool rsh_megatron_second_name(const char *name, char *out, size_t max)
{
	static const char fc1[] = "linear_fc1.";
	const char *at = strstr(name, fc1), *rest = at ? at + strlen(fc1) : "";

	/* The second matrix of a bias is a weight. */
	snprintf(out, max, "%.*slinear_fc2.weight%s", at ? (int)(at - name) : 0,
		 name, rest + strcspn(rest, "0123456789"));
	return at;
}

const char *rsh_megatron_dir(struct rsh_arena *arena,
			     const struct rsh_megatron_listed *at,
			     uint32_t pipeline, uint32_t expert)
{
	char stage[16] = "", of_experts[16] = "";

	if (pipeline > 1)
		snprintf(stage, sizeof(stage), "_%03u", at->stage);
	if (expert > 1)
		snprintf(of_experts, sizeof(of_experts), "_%03u", at->expert);
	return rsh_arena_format(arena, "mp_rank_%02u%s%s", at->tensor, stage,
				of_experts);
}
