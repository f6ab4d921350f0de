/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_formats_hf_config.c - what a config.json says about weights: what is
 * corrected, added, noted and refused. */
#include "config.h"

#include "formats/safetensors/hf_config_i.h"
#include "wire_support.h"

#define MAX_WEIGHTS 40

/* Weights of lines "NAME TYPE 2,3;": names, types of safetensors, shapes. */
struct weights {
	char names[MAX_WEIGHTS][64];
	int64_t dims[MAX_WEIGHTS][4];
	struct rsh_hf_weight v[MAX_WEIGHTS];
	struct rsh_hf_weights w;
	bool differ;
	char notes[2048];
};

static void note(void *ctx, const char *sentence)
{
	struct weights *w = ctx;

	strcat(strcat(w->notes, sentence), "\n");
}

static bool differ(void *ctx, uint32_t a, uint32_t b)
{
	struct weights *w = ctx;

	assert_true(a < w->w.n && b < w->w.n && a != b);
	return w->differ;
}

static void weights_read(struct weights *w, const char *text)
{
	char type[32], shape[64];
	int n;

	for (; sscanf(text, " %63s %31s %63[^;];%n", w->names[w->w.n], type,
		      shape, &n) == 3; text += n) {
		struct rsh_hf_weight *v = &w->v[w->w.n];
		const char *at = shape;

		assert_true(w->w.n < MAX_WEIGHTS - 1);
		*v = (struct rsh_hf_weight){
			.name = w->names[w->w.n], .dims = w->dims[w->w.n],
			.dtype = rsh_dtype_parse(type, strlen(type)),
		};
		assert_int_not_equal(v->dtype, RSH_DTYPE_UNKNOWN);
		while (at && *at != '-') {
			w->dims[w->w.n][v->n_dims++] = atoi(at);
			at = strchr(at, ',');
			at = at ? at + 1 : NULL;
		}
		w->w.n++;
	}
	assert_int_equal(strspn(text, " "), strlen(text));
	w->w.v = w->v;
	w->w.note = note;
	w->w.ctx = w;
}

struct config {
	const char *name, *weights, *config;
	enum { COMPLETE = 1, PARTIAL = 2, AS_SAVED = 4, DIFFER = 8 } how;
	const char *want; /* NULL: it stays */
	const char *notes; /* NULL: none */
	const char *refusal;
};

static void check(const struct config *c)
{
	struct weights w = { .differ = c->how & DIFFER };
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_json_edit *e;
	char *text;
	size_t n;
	int rc;

	weights_read(&w, c->weights);
	w.w.partial = c->how & PARTIAL;
	w.w.as_saved = c->how & AS_SAVED;
	w.w.differ = differ;
	assert_good(rsh_json_edit_open(c->config, strlen(c->config), "C", &e,
				       &err), err);
	rc = rsh_hf_config_update(&w.w, e, "C", c->how & COMPLETE, &err);
	assert_string_equal(rc ? err.text : "", c->refusal ? c->refusal : "");
	assert_int_equal(rc, c->refusal ? -EINVAL : 0);
	assert_string_equal(w.notes, c->notes ? c->notes : "");
	if (rc == 0) {
		assert_int_equal(rsh_json_edit_write(e, &text, &n), 0);
		assert_string_equal(text, c->want ? c->want : c->config);
		free(text);
	}
	rsh_json_edit_free(e);
}

#define L "model.layers."
#define CAUSAL "\"architectures\": [\"AForCausalLM\"]"
#define LLAMA "\"architectures\": [\"LlamaForCausalLM\"]"
/* Two layers of hidden size 8, 4 heads of 2, 2 of keys, MLP 12, 10 words. */
#define MODEL                                                         \
	"model.embed_tokens.weight BFloat16 10,8; lm_head.weight BFloat16 10,8;" \
	"model.norm.weight BFloat16 8;" LAYER("0") LAYER("1")
#define LAYER(n)                                                      \
	L n ".self_attn.q_proj.weight BFloat16 8,8;"                  \
	L n ".self_attn.k_proj.weight BFloat16 4,8;"                  \
	L n ".self_attn.v_proj.weight BFloat16 4,8;"                  \
	L n ".self_attn.o_proj.weight BFloat16 8,8;"                  \
	L n ".mlp.gate_proj.weight BFloat16 12,8;"                    \
	L n ".mlp.down_proj.weight BFloat16 8,12;"                    \
	L n ".input_layernorm.weight BFloat16 8;"
/* Expert n of a layer. */
#define E(layer, n) L layer ".mlp.experts." n ".up_proj.weight BFloat16 5,8;"
#define FUSED                                                         \
	"model.embed_tokens.weight BFloat16 10,8;"                    \
	L "0.self_attn.qkv_proj.weight BFloat16 16,8;"                \
	L "0.self_attn.o_proj.weight BFloat16 8,8;"                   \
	L "1.self_attn.qkv_proj.weight BFloat16 16,8;"
/* 4 heads of 6, 2 of keys, and values of 4. */
#define NARROW_VALUES                                                 \
	"model.embed_tokens.weight BFloat16 10,8; model.norm.weight BFloat16 8;" \
	L "0.self_attn.q_proj.weight BFloat16 24,8;"                  \
	L "0.self_attn.k_proj.weight BFloat16 12,8;"                  \
	L "0.self_attn.v_proj.weight BFloat16 8,8;"                   \
	L "0.self_attn.o_proj.weight BFloat16 8,16;"
#define SIZES(layers, words, hidden, mlp, heads, kv)                  \
	"\"num_hidden_layers\": " layers ", \"vocab_size\": " words   \
	", \"hidden_size\": " hidden ", \"intermediate_size\": " mlp  \
	", \"num_attention_heads\": " heads ", \"num_key_value_heads\": " kv
#define GOOD SIZES("2", "10", "8", "12", "4", "2")
#define GOOD_1 "\"num_hidden_layers\": 1, \"vocab_size\": 10, \"hidden_size\": 8"
#define DTYPE(t) "\"dtype\": \"" t "\""

static const struct config sizes[] = {
	{ .name = "right", .weights = MODEL,
	  .config = "{" GOOD ", " DTYPE("bfloat16") "}" },
	{ .name = "another_number_of_layers", .weights = MODEL,
	  .config = "{" SIZES("3", "10", "8", "12", "4", "2") "}",
	  .refusal = "C: \"num_hidden_layers\" is 3, and the weights say 2 "
	    "(layers are numbered 0 to 1)" },
	{ .name = "fewer_layers_than_weights", .weights = MODEL,
	  .config = "{" SIZES("1", "10", "8", "12", "4", "2") "}",
	  .refusal = "C: \"num_hidden_layers\" is 1, and the weights say 2 "
	    "(layers are numbered 0 to 1)" },
	{ .name = "layers_that_are_left", .weights = MODEL, .how = PARTIAL,
	  .config = "{" SIZES("3", "10", "8", "12", "4", "2") "}",
	  .notes = "C: \"num_hidden_layers\" is 3, and the weights that are "
	    "left say 2 (layers are numbered 0 to 1)\n" },
	/* More than the config has is no result of leaving out. */
	{ .name = "layers_that_cannot_be_left", .weights = MODEL,
	  .how = PARTIAL,
	  .config = "{" SIZES("1", "10", "8", "12", "4", "2") "}",
	  .refusal = "C: \"num_hidden_layers\" is 1, and the weights say 2 "
	    "(layers are numbered 0 to 1)" },
	{ .name = "layers_as_saved", .weights = MODEL, .how = AS_SAVED,
	  .config = "{" SIZES("3", "10", "8", "12", "4", "2") "}",
	  .notes = "C: \"num_hidden_layers\" is 3, and the weights say 2 "
	    "(layers are numbered 0 to 1); the model is shown as it is saved\n"
	},
	{ .name = "layers_under_another_name", .weights = MODEL,
	  .config = "{\"n_layer\": 3}",
	  .refusal = "C: \"n_layer\" is 3, and the weights say 2 (layers are "
	    "numbered 0 to 1)" },
	/* One of the names is right. */
	{ .name = "two_names", .weights = MODEL,
	  .config = "{\"num_layers\": 7, \"n_layers\": 2}" },
	{ .name = "attention_and_mlp_count_alone", .weights = MODEL,
	  .config = "{\"num_hidden_layers\": 4, \"layer_types\": [\"mlp\"]}" },
	{ .name = "attention_and_mlp_count_as_two", .weights = MODEL,
	  .config = "{\"num_hidden_layers\": 2, \"layer_types\": [\"mlp\"]}",
	  .refusal = "C: \"num_hidden_layers\" is 2, and the weights say 4 "
	    "(layers are numbered 0 to 1)" },
	{ .name = "one_layer", .weights = LAYER("0"),
	  .config = "{\"num_hidden_layers\": 2}",
	  .refusal = "C: \"num_hidden_layers\" is 2, and the weights say 1 "
	    "(layers are numbered 0 to 0)" },
	{ .name = "names_of_no_layer", .weights = MODEL
	  L ".w BFloat16 1;" L "x.w BFloat16 1;" L "7 BFloat16 1;"
	  L "7x.w BFloat16 1;", .config = "{" GOOD "}" },
	{ .name = "larger_numbers_than_layers_have", .weights = MODEL
	  L "65536.w BFloat16 1;" L "655350.w BFloat16 1;",
	  .config = "{" GOOD "}" },
	{ .name = "the_last_layer_that_may_be", .weights =
	  L "65535.input_layernorm.weight BFloat16 8;",
	  .config = "{\"num_hidden_layers\": 2}",
	  .refusal = "C: \"num_hidden_layers\" is 2, and the weights say 65536 "
	    "(layers are numbered 0 to 65535)" },
	{ .name = "layers_for_prediction", .weights = MODEL
	  L "2.eh_proj.weight BFloat16 8,16;",
	  .config = "{\"num_hidden_layers\": 2}" },
	{ .name = "layers_that_may_be_for_prediction", .weights = MODEL
	  L "2.input_layernorm.weight BFloat16 8;",
	  .config = "{\"num_hidden_layers\": 2, \"num_nextn_predict_layers\": "
	    "1}" },
	{ .name = "too_many_for_prediction", .weights = MODEL
	  L "2.input_layernorm.weight BFloat16 8;",
	  .config = "{\"num_hidden_layers\": 2, \"num_nextn_predict_layers\": "
	    "2}",
	  .refusal = "C: \"num_hidden_layers\" is 2, and the weights say 3 "
	    "(layers are numbered 0 to 2)" },
	{ .name = "another_vocabulary", .weights = MODEL,
	  .config = "{" SIZES("2", "11", "8", "12", "4", "2") "}",
	  .refusal = "C: \"vocab_size\" is 11, and the weights say 10 "
	    "(model.embed_tokens.weight has shape [10,8])" },
	/* The head may have fewer words than the embedding. */
	{ .name = "a_smaller_head", .weights =
	  "model.embed_tokens.weight BFloat16 12,8; lm_head.weight BFloat16 "
	  "10,8;" LAYER("0"), .config = "{\"vocab_size\": 10}" },
	{ .name = "another_hidden_size", .weights = MODEL,
	  .config = "{" SIZES("2", "10", "9", "12", "4", "2") "}",
	  .refusal = "C: \"hidden_size\" is 9, and the weights say 8 "
	    "(model.embed_tokens.weight has shape [10,8])" },
	{ .name = "another_mlp", .weights = MODEL,
	  .config = "{" SIZES("2", "10", "8", "13", "4", "2") "}",
	  .refusal = "C: \"intermediate_size\" is 13, and the weights say 12 "
	    "(model.layers.0.mlp.gate_proj.weight has shape [12,8])" },
	{ .name = "heads_of_another_size", .weights = MODEL,
	  .config = "{" GOOD ", \"head_dim\": 3}",
	  .refusal = "C: \"num_attention_heads\" is 4, and the weights say 8 "
	    "where with \"head_dim\" 3 it would be 12 (model.layers.0.self_attn"
	    ".o_proj.weight has shape [8,8])" },
	{ .name = "another_number_of_keys", .weights = MODEL,
	  .config = "{" SIZES("2", "10", "8", "12", "4", "1") "}",
	  .refusal = "C: \"num_key_value_heads\" is 1, and the weights say 4 "
	    "rows of keys for 8 of queries, whose \"num_attention_heads\" is 4"
	},
	{ .name = "values_of_another_size_than_keys", .weights = NARROW_VALUES,
	  .config = "{\"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
	    "\"head_dim\": 6, \"v_head_dim\": 4, " GOOD_1 "}" },
	{ .name = "values_of_a_wrong_size", .weights = NARROW_VALUES,
	  .config = "{\"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
	    "\"head_dim\": 6, \"v_head_dim\": 6, " GOOD_1 "}",
	  .refusal = "C: \"num_attention_heads\" is 4, and the weights say 16 "
	    "where with \"v_head_dim\" 6 it would be 24 (" L
	    "0.self_attn.o_proj.weight has shape [8,16])" },
	/* Linear attention has queries, keys and values of all heads. */
	{ .name = "layers_of_two_kinds_of_attention", .weights = MODEL
	  L "2.self_attn.qkv_proj.weight BFloat16 24,8;"
	  L "2.input_layernorm.weight BFloat16 8;",
	  .config = "{" SIZES("3", "10", "8", "12", "4", "2") "}" },
	{ .name = "heads_in_one_matrix", .weights = FUSED,
	  .config = "{" GOOD "}" },
	{ .name = "another_number_of_keys_in_one_matrix", .weights = FUSED,
	  .config = "{" SIZES("2", "10", "8", "12", "4", "1") "}",
	  .refusal = "C: \"num_key_value_heads\" is 1, and the weights say 4 "
	    "rows of keys for 8 of queries, whose \"num_attention_heads\" is 4"
	},
	{ .name = "a_layer_in_the_middle", .weights = MODEL
	  L "3.input_layernorm.weight BFloat16 8;",
	  .config = "{\"num_hidden_layers\": 4}",
	  .refusal = "C: \"num_hidden_layers\" is 4, and the weights have "
	    "nothing of layer 2" },
	{ .name = "a_layer_in_the_middle_is_left_out", .how = PARTIAL,
	  .weights = MODEL L "3.input_layernorm.weight BFloat16 8;",
	  .config = "{\"num_hidden_layers\": 4}",
	  .notes = "C: \"num_hidden_layers\" is 4, and the weights that are "
	    "left have nothing of layer 2\n" },
	{ .name = "a_layer_that_does_nothing", .weights = MODEL
	  L "3.input_layernorm.weight BFloat16 8;",
	  .config = "{\"num_hidden_layers\": 4, \"block_configs\": []}" },
	{ .name = "no_embedding", .weights = "lm_head.weight BFloat16 10,8;"
	  "model.norm.weight BFloat16 8;" LAYER("0"),
	  .config = "{" CAUSAL ", " GOOD_1 "}",
	  .refusal = "C: \"vocab_size\" is 10, and the weights have no "
	    "embedding" },
	{ .name = "no_embedding_as_saved", .how = AS_SAVED,
	  .weights = "model.norm.weight BFloat16 8;" LAYER("0"),
	  .config = "{" CAUSAL ", " GOOD_1 "}",
	  .notes = "C: \"vocab_size\" is 10, and the weights have no "
	    "embedding; the model is shown as it is saved\n" },
	{ .name = "no_embedding_of_a_part", .weights = LAYER("0"),
	  .config = "{" GOOD_1 "}" },
	{ .name = "no_last_norm", .weights =
	  "model.embed_tokens.weight BFloat16 10,8;" LAYER("0"),
	  .config = "{" CAUSAL ", " GOOD_1 "}",
	  .refusal = "C: \"num_hidden_layers\" is 1, and the weights have no "
	    "norm after the layers" },
	{ .name = "norms_without_weights", .weights =
	  "model.embed_tokens.weight BFloat16 10,8;"
	  L "0.mlp.down_proj.weight BFloat16 8,12;",
	  .config = "{" CAUSAL ", " GOOD_1 "}" },
	/* Layers that differ prove nothing. */
	{ .name = "layers_of_two_sizes", .weights = LAYER("0")
	  L "1.mlp.gate_proj.weight BFloat16 20,8;"
	  L "1.mlp.down_proj.weight BFloat16 8,20;",
	  .config = "{\"intermediate_size\": 7}" },
	{ .name = "experts", .weights = LAYER("0")
	  L "0.mlp.experts.0.gate_proj.weight BFloat16 5,8;"
	  L "0.mlp.experts.3.gate_proj.weight BFloat16 5,8;",
	  .config = "{\"num_experts\": 3}",
	  .refusal = "C: \"num_experts\" is 3, and the weights say 4 (experts "
	    "are numbered 0 to 3)" },
	{ .name = "experts_in_one_matrix", .weights = LAYER("0")
	  L "0.mlp.experts.gate_up_proj_bias BFloat16 3,10;",
	  .config = "{\"num_local_experts\": 4}",
	  .refusal = "C: \"num_local_experts\" is 4, and the weights say 3 ("
	    L "0.mlp.experts.gate_up_proj_bias has shape [3,10])" },
	{ .name = "experts_of_another_size_in_one_matrix",
	  .weights = L "0.mlp.experts.gate_up_proj_bias BFloat16 3,10;",
	  .config = "{\"num_local_experts\": 3, \"intermediate_size\": 10}",
	  .refusal = "C: \"intermediate_size\" is 10, and the weights say 10 "
	    "where with \"intermediate_size\" 10 it would be 20 (" L
	    "0.mlp.experts.gate_up_proj_bias has shape [3,10])" },
	{ .name = "one_expert", .weights = LAYER("0")
	  L "0.mlp.experts.0.gate_proj.weight BFloat16 5,8;",
	  .config = "{\"num_experts\": 3}",
	  .refusal = "C: \"num_experts\" is 3, and the weights say 1 (experts "
	    "are numbered 0 to 0)" },
	{ .name = "no_experts", .weights = MODEL,
	  .config = "{\"num_experts\": 3}" },
	{ .name = "an_expert_in_the_middle", .weights = MODEL
	  E("0", "0") E("0", "1") E("0", "2") E("1", "0") E("1", "2"),
	  .config = "{\"num_experts\": 3}",
	  .refusal = "C: \"num_experts\" is 3, and the weights have nothing of "
	    "expert 1 of layer 1" },
	{ .name = "the_last_expert_of_a_layer", .how = AS_SAVED, .weights = MODEL
	  E("0", "0") E("0", "1") E("1", "0"),
	  .config = "{\"num_experts\": 2}",
	  .notes = "C: \"num_experts\" is 2, and the weights have nothing of "
	    "expert 1 of layer 1; the model is shown as it is saved\n" },
	{ .name = "layers_without_experts", .weights = MODEL
	  E("1", "0") E("1", "1"),
	  .config = "{\"num_experts\": 2}" },
	{ .name = "a_stack_of_experts", .weights = MODEL
	  L "0.mlp.experts.gate_up_proj BFloat16 3,10,8;"
	  L "0.mlp.experts.down_proj BFloat16 3,8,5;",
	  .config = "{\"num_local_experts\": 3}" },
	{ .name = "a_stack_of_some_experts", .weights = MODEL
	  L "0.mlp.experts.gate_up_proj BFloat16 2,10,8;",
	  .config = "{\"num_local_experts\": 3}",
	  .refusal = "C: \"num_local_experts\" is 3, and the weights say 2 (" L
	    "0.mlp.experts.gate_up_proj has shape [2,10,8])" },
	{ .name = "a_stack_of_experts_without_a_key", .how = COMPLETE,
	  .weights = MODEL L "0.mlp.experts.down_proj BFloat16 3,8,5;",
	  .config = "{" CAUSAL ", " GOOD ", " DTYPE("bfloat16") ", "
	    "\"tie_word_embeddings\": false}" },
	{ .name = "experts_of_another_size", .weights = LAYER("0")
	  L "0.mlp.experts.0.gate_proj.weight BFloat16 5,8;",
	  .config = "{\"moe_intermediate_size\": 6, \"num_experts\": 1}",
	  .refusal = "C: \"moe_intermediate_size\" is 6, and the weights say 5 "
	    "(model.layers.0.mlp.experts.0.gate_proj.weight has shape [5,8])" },
	/* Latent attention: heads of two parts. */
	{ .name = "ranks_of_queries", .weights =
	  L "0.self_attn.kv_a_layernorm.weight BFloat16 6;"
	  L "0.self_attn.q_b_proj.weight BFloat16 20,7;",
	  .config = "{\"num_attention_heads\": 4, \"qk_nope_head_dim\": 3, "
	    "\"qk_rope_head_dim\": 2, \"q_lora_rank\": 7, \"kv_lora_rank\": 6}" },
	{ .name = "ranks_of_queries_that_differ", .weights =
	  L "0.self_attn.kv_a_layernorm.weight BFloat16 6;"
	  L "0.self_attn.q_b_proj.weight BFloat16 21,7;",
	  .config = "{\"num_attention_heads\": 4, \"qk_nope_head_dim\": 3, "
	    "\"qk_rope_head_dim\": 2, \"q_lora_rank\": 7, \"kv_lora_rank\": 6}",
	  .refusal = "C: \"num_attention_heads\" is 4, and the weights say 21 "
	    "where with \"qk_nope_head_dim\" 3, \"qk_rope_head_dim\" 2 it "
	    "would be 20 (model.layers.0.self_attn.q_b_proj.weight has shape "
	    "[21,7])" },
	/* A part of a model: the decoder's keys are in text_config. */
	{ .name = "in_a_part", .weights =
	  "model.language_model.layers.0.input_layernorm.weight BFloat16 8;",
	  .config = "{\"hidden_size\": 3, \"text_config\": {\"hidden_size\": "
	    "8}}" },
	{ .name = "wrong_in_a_part", .weights =
	  "model.language_model.layers.0.input_layernorm.weight BFloat16 8;",
	  .config = "{\"text_config\": {\"hidden_size\": 7}}",
	  .refusal = "C: \"hidden_size\" is 7, and the weights say 8 (model."
	    "language_model.layers.0.input_layernorm.weight has shape [8])" },
	{ .name = "nobody_knows_where", .weights =
	  "model.language_model.layers.0.input_layernorm.weight BFloat16 8;",
	  .config = "{\"hidden_size\": 7}" },
	{ .name = "two_decoders", .weights = LAYER("0")
	  "layers.0.input_layernorm.weight BFloat16 8;",
	  .config = "{\"hidden_size\": 7}" },
	{ .name = "codes_have_other_shapes", .weights =
	  L "0.mlp.gate_proj.weight Int32 3,8;",
	  .config = "{\"intermediate_size\": 12}" },
};

TEST_ROWS(sizes)
{
	check(*state);
}

#define EMBED "model.embed_tokens.weight BFloat16 10,8;" \
	"model.norm.weight BFloat16 8;" \
	L "0.input_layernorm.weight BFloat16 8;"
#define HEAD "lm_head.weight BFloat16 10,8;"

static const struct config added[] = {
	/* Nothing says how large a head is, but that it may be usual. */
	{ .name = "all_sizes", .weights = MODEL, .how = COMPLETE | DIFFER,
	  .config = "{" CAUSAL ", \"num_attention_heads\": 4}",
	  .want = "{" CAUSAL ", \"num_attention_heads\": 4, "
	    "\"num_hidden_layers\": 2, \"vocab_size\": 10, \"hidden_size\": 8, "
	    "\"intermediate_size\": 12, "
	    "\"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\"}" },
	{ .name = "not_without_a_class", .weights = MODEL, .how = COMPLETE,
	  .config = "{\"a\": 1}" },
	/* A key that is there under any of its names is not added. */
	{ .name = "not_what_is_there", .weights = EMBED HEAD,
	  .how = COMPLETE | DIFFER,
	  .config = "{" CAUSAL ", \"n_layer\": null, \"padded_vocab_size\": "
	    "\"a\", \"d_model\": [8], " DTYPE("bfloat16") "}",
	  .want = "{" CAUSAL ", \"n_layer\": null, \"padded_vocab_size\": "
	    "\"a\", \"d_model\": [8], " DTYPE("bfloat16")
	    ", \"tie_word_embeddings\": false}" },
	{ .name = "not_if_not_asked_for", .weights = MODEL, .how = DIFFER,
	  .config = "{" CAUSAL "}" },
	{ .name = "a_head_size_that_is_not_usual", .weights =
	  L "0.self_attn.o_proj.weight BFloat16 8,12;"
	  L "0.self_attn.k_proj.weight BFloat16 6,8;",
	  .how = COMPLETE, .config = "{" CAUSAL ", \"num_attention_heads\": 4, "
	    "\"hidden_size\": 8, \"num_hidden_layers\": 1, \"dtype\": "
	    "\"bfloat16\"}",
	  .want = "{" CAUSAL ", \"num_attention_heads\": 4, \"hidden_size\": 8, "
	    "\"num_hidden_layers\": 1, \"dtype\": \"bfloat16\", \"head_dim\": "
	    "3, \"num_key_value_heads\": 2}" },
	{ .name = "the_type_of_new_releases", .weights =
	  "a.weight BFloat16 2;", .how = COMPLETE,
	  .config = "{" CAUSAL ", \"transformers_version\": \"4.56.0\"}",
	  .want = "{" CAUSAL ", \"transformers_version\": \"4.56.0\", "
	    "\"dtype\": \"bfloat16\"}" },
	{ .name = "the_type_of_old_releases", .weights =
	  "a.weight BFloat16 2;", .how = COMPLETE,
	  .config = "{" CAUSAL ", \"transformers_version\": \"4.55.9\"}",
	  .want = "{" CAUSAL ", \"transformers_version\": \"4.55.9\", "
	    "\"torch_dtype\": \"bfloat16\"}" },
	{ .name = "the_type_of_later_releases", .weights =
	  "a.weight BFloat16 2;", .how = COMPLETE,
	  .config = "{" CAUSAL ", \"transformers_version\": \"5.0.0\"}",
	  .want = "{" CAUSAL ", \"transformers_version\": \"5.0.0\", "
	    "\"dtype\": \"bfloat16\"}" },
};

TEST_ROWS(added)
{
	check(*state);
}

/* A model that describes pictures, with a tower of three blocks. */
#define VL(n) "model.language_model.layers." n ".input_layernorm.weight " \
	"BFloat16 8;"
#define V(n) "model.visual.blocks." n ".norm1.weight BFloat16 4;"
#define VLM VL("0") VL("1") "model.language_model.norm.weight BFloat16 8;" \
	"model.language_model.embed_tokens.weight BFloat16 10,8;"
#define OF_VLM(tied) "{\"architectures\": [\"AForConditionalGeneration\"], " \
	"\"text_config\": {\"num_hidden_layers\": 2, \"vocab_size\": 10, " \
	"\"tie_word_embeddings\": " tied "}, \"vision_config\": {\"depth\": 3}, " \
	"\"tie_word_embeddings\": false}"

static const struct config seeing[] = {
	{ .name = "a_model_that_sees", .weights = VLM V("0") V("1") V("2"),
	  .config = OF_VLM("true") },
	{ .name = "no_tower", .weights = VLM, .config = OF_VLM("true"),
	  .refusal = "C: \"vision_config\" is there, and the weights have no "
	    "part for pictures" },
	{ .name = "no_tower_as_saved", .weights = VLM, .how = AS_SAVED,
	  .config = OF_VLM("true"),
	  .notes = "C: \"vision_config\" is there, and the weights have no part "
	    "for pictures; the model is shown as it is saved\n" },
	{ .name = "no_block_in_the_middle", .weights = VLM V("0") V("2"),
	  .config = OF_VLM("true"),
	  .refusal = "C: \"depth\" is 3, and the weights have nothing of block 1 "
	    "of the part for pictures" },
	{ .name = "no_embedding_of_one_that_sees", .weights = VL("0") VL("1")
	  V("0") V("1") V("2"), .config = OF_VLM("true"),
	  .refusal = "C: \"vocab_size\" is 10, and the weights have no "
	    "embedding" },
	{ .name = "no_head_of_one_that_sees", .weights = VLM V("0"),
	  .config = OF_VLM("false"),
	  .refusal = "C: \"tie_word_embeddings\" is false, and the weights have "
	    "no lm_head.weight" },
	{ .name = "a_model_that_sees_and_does_not_say_whether_it_is_tied",
	  .weights = VLM V("0"), .config = OF_VLM("null") },
	{ .name = "a_head_of_one_that_sees", .weights = VLM V("0")
	  "lm_head.weight BFloat16 10,8;", .config = OF_VLM("false") },
};

TEST_ROWS(seeing)
{
	check(*state);
}

static const struct config heads[] = {
	{ .name = "no_head_is_tied", .weights = EMBED, .how = COMPLETE,
	  .config = "{" CAUSAL ", " GOOD_1 ", " DTYPE("bfloat16") "}",
	  .want = "{" CAUSAL ", " GOOD_1 ", " DTYPE("bfloat16")
	    ", \"tie_word_embeddings\": true}" },
	{ .name = "no_head_is_not_untied", .weights = EMBED,
	  .config = "{" CAUSAL ", \"tie_word_embeddings\": false}",
	  .refusal = "C: \"tie_word_embeddings\" is false, and the weights have "
	    "no lm_head.weight" },
	{ .name = "a_head_that_is_left_out", .weights = EMBED, .how = PARTIAL,
	  .config = "{" CAUSAL ", \"tie_word_embeddings\": false}",
	  .notes = "C: \"tie_word_embeddings\" is false, and the weights that "
	    "are left have no lm_head.weight\n" },
	{ .name = "a_head_that_differs", .weights = EMBED HEAD, .how = DIFFER,
	  .config = "{" CAUSAL ", \"tie_word_embeddings\": true}",
	  .refusal = "C: \"tie_word_embeddings\" is true, and the weights say "
	    "false: lm_head.weight is not model.embed_tokens.weight" },
	{ .name = "a_head_that_is_the_same", .weights = EMBED HEAD,
	  .config = "{" CAUSAL ", \"tie_word_embeddings\": true}" },
	{ .name = "a_head_of_another_shape", .weights = EMBED
	  "lm_head.weight BFloat16 11,8;", .how = DIFFER,
	  .config = "{" CAUSAL ", \"tie_word_embeddings\": true}" },
	{ .name = "another_class", .weights = EMBED,
	  .config = "{\"architectures\": [\"AModel\"], "
	    "\"tie_word_embeddings\": false}" },
	{ .name = "another_tensor_may_be_the_head", .weights = EMBED
	  "output.weight BFloat16 10,8;",
	  .config = "{" CAUSAL ", \"tie_word_embeddings\": false}" },
	{ .name = "a_draft_has_no_head", .weights = EMBED
	  "fc.weight BFloat16 8,16;",
	  .config = "{" CAUSAL ", \"tie_word_embeddings\": false}" },
};

TEST_ROWS(heads)
{
	check(*state);
}

#define QUANTISED "\"quantization_config\": {\"quant_method\": \"fp8\"}"

static const struct config types[] = {
	{ .name = "the_type_is_corrected", .weights = "a.weight BFloat16 2;",
	  .config = "{\"dtype\": \"float32\", \"torch_dtype\": "
	    "\"torch.float16\"}",
	  .want = "{\"dtype\": \"bfloat16\", \"torch_dtype\": \"bfloat16\"}" },
	{ .name = "a_missing_type", .weights = "a.weight Float16 2;",
	  .config = "{\"dtype\": null}", .want = "{\"dtype\": \"float16\"}" },
	{ .name = "a_type_with_torch_before_it", .weights =
	  "a.weight Float16 2;", .config = "{\"dtype\": \"torch.float16\"}" },
	{ .name = "a_type_that_is_not_known", .weights = "a.weight Float16 2;",
	  .config = "{\"dtype\": \"float8\"}" },
	/* A wider one holds all values, if any weight has it. */
	{ .name = "a_wider_type_of_some", .weights =
	  "a.weight BFloat16 20; b.weight Float32 1;",
	  .config = "{\"dtype\": \"float32\"}" },
	{ .name = "a_wider_type_of_none", .weights =
	  "a.weight BFloat16 20; b.weight Float16 1;",
	  .config = "{\"dtype\": \"float32\"}",
	  .want = "{\"dtype\": \"bfloat16\"}" },
	{ .name = "a_narrower_type_of_some", .weights =
	  "a.weight Float32 20; b.weight BFloat16 1;",
	  .config = "{\"dtype\": \"bfloat16\"}",
	  .want = "{\"dtype\": \"float32\"}" },
	/* The first of the types, in the order of the table of all. */
	{ .name = "as_many_of_two_types", .weights =
	  "a.weight BFloat16 2; b.weight Float32 2;",
	  .config = "{\"dtype\": \"bfloat16\"}",
	  .want = "{\"dtype\": \"float32\"}" },
	{ .name = "types_of_parts", .weights = "a.weight BFloat16 2;",
	  .config = "{\"vision_config\": {\"dtype\": \"float32\"}, "
	    "\"x\": {\"dtype\": \"float32\"}}",
	  .want = "{\"vision_config\": {\"dtype\": \"bfloat16\"}, "
	    "\"x\": {\"dtype\": \"float32\"}}" },
	{ .name = "types_of_parts_are_not_known", .weights =
	  "a.weight BFloat16 2; b.weight Float32 1;",
	  .config = "{\"vision_config\": {\"dtype\": \"float16\"}}" },
	{ .name = "integers_say_nothing", .weights =
	  "a.weight BFloat16 2; b.qweight Int32 2,2;",
	  .config = "{\"dtype\": \"float16\"}" },
	{ .name = "indexes_are_no_codes", .weights =
	  "a.weight BFloat16 2; b.ids Int64 2,2; c.n Int32 2; d.b Bool 2;",
	  .config = "{\"dtype\": \"float16\"}",
	  .want = "{\"dtype\": \"bfloat16\"}" },

	/* ---- quantised weights ---- */
	{ .name = "no_weight_is_quantised", .weights = "a.weight BFloat16 2;",
	  .config = "{\"n\": 1, " QUANTISED "}", .want = "{\"n\": 1}" },
	{ .name = "weights_of_8_bits", .weights =
	  "a.weight Float8E4M3FN 2,2; a.weight_scale_inv Float32 1,1;",
	  .config = "{\"n\": 1, " QUANTISED "}" },
	{ .name = "scales_alone", .weights =
	  "a.weight BFloat16 2; a.weight_scale BFloat16 1;",
	  .config = "{\"n\": 1, " QUANTISED "}" },
	{ .name = "integers_of_another_method", .weights =
	  "a.weight BFloat16 2; a.codes Int32 2,2;",
	  .config = "{\"n\": 1, \"quantization_config\": {\"quant_method\": "
	    "\"gptq\"}}" },
	{ .name = "integers_are_no_fp8", .weights =
	  "a.weight BFloat16 2; a.codes Int32 2,2;",
	  .config = "{\"n\": 1, " QUANTISED "}", .want = "{\"n\": 1}" },
	{ .name = "quantised_and_not_said", .weights =
	  "a.weight Float8E4M3FN 2,2; a.weight_scale_inv Float32 1,1;",
	  .how = COMPLETE, .config = "{\"model_type\": \"a\"}",
	  .refusal = "C: \"quantization_config\" is not there, and the weights "
	    "are quantised: a.weight is Float8E4M3FN, with scales in "
	    "a.weight_scale_inv" },
};

TEST_ROWS(types)
{
	check(*state);
}

/* Words of wrappers are told, and names of another class. */
TEST(names_are_told)
{
	struct weights w = { .differ = false };

	weights_read(&w, "a.weight BFloat16 2;");
	assert_false(rsh_hf_names_check(&w.w, "C"));
	assert_string_equal(w.notes, "");
	weights_read(&w, "module.a.weight BFloat16 2;"
		     "_orig_mod.model.b.weight BFloat16 2;");
	assert_true(rsh_hf_names_check(&w.w, "C"));
	assert_non_null(strstr(w.notes, "weights, such as "));
	assert_non_null(strstr(w.notes, "they have words of wrappers, which "
			       "--unwrap removes"));
	w.notes[0] = '\0';
	weights_read(&w, "a.q.base_layer.weight BFloat16 2;");
	assert_true(rsh_hf_names_check(&w.w, "C"));
	assert_non_null(strstr(w.notes, "1 weights, such as a.q.base_layer."
			       "weight: an adapter (PEFT) is beside them, and "
			       "is not merged"));
}
