# SPDX-License-Identifier: Apache-2.0
"""What the models of tables have: a line for each kind of tensor in Hugging Face's form,
with its shape, and the keys of config.json.

Shapes are products of these letters: V words, h hidden size, f size of the MLP, n heads of
queries, g of keys and of values, d size of a head, e experts, s size of an expert, S that of
shared experts; q k ranks of queries, keys and values, a R v parts of a head of latent
attention.  {l} is a layer, {e} an expert.  A word before the name says which layers have
the tensor: `dense` and `experts` share the layers, `next` are prediction layers, which
have what `experts` have too; `own` is a head that is not tied, `maybe` what only some
models have.
"""

import re

GROUPED = {"num_attention_heads": "n", "num_key_value_heads": "g", "head_dim": "d"}
LATENT = {"num_attention_heads": "n", "num_key_value_heads": "n", "qk_nope_head_dim": "a",
          "qk_rope_head_dim": "R", "v_head_dim": "v", "kv_lora_rank": "k", "q_lora_rank": "q",
          "first_k_dense_replace": "D", "moe_intermediate_size": "s"}

_ENDS = """
model.embed_tokens.weight V,h
model.norm.weight h
own lm_head.weight V,h
"""
_NORMS = """
model.layers.{l}.input_layernorm.weight h
model.layers.{l}.post_attention_layernorm.weight h
"""
_ATTENTION = """
model.layers.{l}.self_attn.q_proj.weight n*d,h
model.layers.{l}.self_attn.k_proj.weight g*d,h
model.layers.{l}.self_attn.v_proj.weight g*d,h
model.layers.{l}.self_attn.o_proj.weight h,n*d
"""
_BIASES = """
model.layers.{l}.self_attn.q_proj.bias n*d
model.layers.{l}.self_attn.k_proj.bias g*d
model.layers.{l}.self_attn.v_proj.bias g*d
"""
_HEAD_NORMS = """
model.layers.{l}.self_attn.q_norm.weight d
model.layers.{l}.self_attn.k_norm.weight d
"""
_LATENT = """
model.layers.{l}.self_attn.q_a_proj.weight q,h
model.layers.{l}.self_attn.q_a_layernorm.weight q
model.layers.{l}.self_attn.q_b_proj.weight n*(a+R),q
model.layers.{l}.self_attn.kv_a_proj_with_mqa.weight k+R,h
model.layers.{l}.self_attn.kv_a_layernorm.weight k
model.layers.{l}.self_attn.kv_b_proj.weight n*(a+v),k
model.layers.{l}.self_attn.o_proj.weight h,n*v
"""
_GATED = """
model.layers.{l}.mlp.gate_proj.weight f,h
model.layers.{l}.mlp.up_proj.weight f,h
model.layers.{l}.mlp.down_proj.weight h,f
"""
_EXPERTS = """
experts model.layers.{l}.mlp.gate.weight e,h
experts model.layers.{l}.mlp.experts.{e}.gate_proj.weight s,h
experts model.layers.{l}.mlp.experts.{e}.up_proj.weight s,h
experts model.layers.{l}.mlp.experts.{e}.down_proj.weight h,s
"""
_SHARED = """
experts model.layers.{l}.mlp.shared_experts.gate_proj.weight S,h
experts model.layers.{l}.mlp.shared_experts.up_proj.weight S,h
experts model.layers.{l}.mlp.shared_experts.down_proj.weight h,S
"""
_BIAS_OF_EXPERTS = """
experts model.layers.{l}.mlp.gate.e_score_correction_bias e F32
"""
_NEXT = """
next model.layers.{l}.enorm.weight h
next model.layers.{l}.hnorm.weight h
next model.layers.{l}.eh_proj.weight h,2*h
next model.layers.{l}.shared_head.norm.weight h
next model.layers.{l}.embed_tokens.weight = model.embed_tokens.weight
next model.layers.{l}.shared_head.head.weight = lm_head.weight
"""
_FOUR_NORMS = _NORMS + """
model.layers.{l}.pre_feedforward_layernorm.weight h
model.layers.{l}.post_feedforward_layernorm.weight h
"""


def _dense(text):
    return re.sub("^model", "dense model", text, flags=re.M)


# A table: the architecture, the keys of config.json beside those that all have, and the
# tensors.
FAMILIES = {
    "qwen2": ("Qwen2ForCausalLM", GROUPED, _ENDS + _NORMS + _ATTENTION + _BIASES + _GATED),
    "qwen2_moe": (
        "Qwen2MoeForCausalLM",
        {**GROUPED, "num_experts": "e", "moe_intermediate_size": "s",
         "shared_expert_intermediate_size": "S"},
        _ENDS + _NORMS + _ATTENTION + _BIASES + _dense(_GATED) + _EXPERTS +
        _SHARED.replace("shared_experts", "shared_expert") + """
experts model.layers.{l}.mlp.shared_expert_gate.weight 1,h
"""),
    "mixtral": (
        "MixtralForCausalLM", {**GROUPED, "num_local_experts": "e"},
        _ENDS + _NORMS + _ATTENTION + """
model.layers.{l}.block_sparse_moe.gate.weight e,h
model.layers.{l}.block_sparse_moe.experts.{e}.w1.weight f,h
model.layers.{l}.block_sparse_moe.experts.{e}.w2.weight h,f
model.layers.{l}.block_sparse_moe.experts.{e}.w3.weight f,h
"""),
    "telechat2": (
        "Telechat2ForCausalLM", {"n_head": "n", "num_experts": "e"}, """
transformer.word_embeddings.weight V,h
transformer.ln_f.weight h
own lm_head.weight V,h
transformer.h.{l}.input_layernorm.weight h
transformer.h.{l}.post_attention_layernorm.weight h
transformer.h.{l}.self_attention.query.weight n*d,h
transformer.h.{l}.self_attention.key_value.weight 2*g*d,h
transformer.h.{l}.self_attention.dense.weight h,n*d
transformer.h.{l}.self_attention.dense.bias h
dense transformer.h.{l}.mlp.gate_proj.weight f,h
dense transformer.h.{l}.mlp.up_proj.weight f,h
dense transformer.h.{l}.mlp.down_proj.weight h,f
dense transformer.h.{l}.mlp.down_proj.bias h
experts transformer.h.{l}.mlp.router.weight e,h
experts transformer.h.{l}.mlp.local_experts.{e}.gate_proj.weight s,h
experts transformer.h.{l}.mlp.local_experts.{e}.up_proj.weight s,h
experts transformer.h.{l}.mlp.local_experts.{e}.down_proj.weight h,s
experts transformer.h.{l}.mlp.local_experts.{e}.down_proj.bias h
"""),
    "glm4": ("Glm4ForCausalLM", GROUPED, _ENDS + _NORMS + _ATTENTION + _BIASES + """
model.layers.{l}.post_self_attn_layernorm.weight h
model.layers.{l}.post_mlp_layernorm.weight h
model.layers.{l}.mlp.gate_up_proj.weight 2*f,h
model.layers.{l}.mlp.down_proj.weight h,f
"""),
    "glm4_moe": (
        "Glm4MoeForCausalLM",
        {**GROUPED, "n_routed_experts": "e", "moe_intermediate_size": "s",
         "first_k_dense_replace": "D"},
        _ENDS + _NORMS + _ATTENTION + _BIASES + _HEAD_NORMS.replace("model", "maybe model") +
        _dense(_GATED) + _EXPERTS + _BIAS_OF_EXPERTS + _SHARED + _NEXT),
    "deepseek_v2": ("DeepseekV2ForCausalLM", {**LATENT, "n_routed_experts": "e"},
                    _ENDS + _NORMS + _LATENT + _dense(_GATED) + _EXPERTS + _SHARED),
    "telechat3_moe": (
        "TeleChat3MoeForCausalLM", {**LATENT, "n_routed_experts": "e"},
        _ENDS + _NORMS + _LATENT + _dense(_GATED) + _EXPERTS + _BIAS_OF_EXPERTS + _SHARED +
        _NEXT),
    "phi3": ("Phi3ForCausalLM", {"num_attention_heads": "n", "num_key_value_heads": "g"},
             _ENDS + _NORMS + """
model.layers.{l}.self_attn.qkv_proj.weight (n+2*g)*d,h
model.layers.{l}.self_attn.o_proj.weight h,n*d
model.layers.{l}.mlp.gate_up_proj.weight 2*f,h
model.layers.{l}.mlp.down_proj.weight h,f
"""),
    "gemma2": ("Gemma2ForCausalLM", GROUPED,
               _ENDS.replace("own", "never") + _FOUR_NORMS + _ATTENTION + _GATED),
    "gemma3": ("Gemma3ForCausalLM", GROUPED,
               _ENDS.replace("own", "never") + _FOUR_NORMS + _ATTENTION + _HEAD_NORMS + _GATED),
    "nemotron": ("NemotronForCausalLM", GROUPED, _ENDS + _NORMS + _ATTENTION + """
model.norm.bias h
model.layers.{l}.input_layernorm.bias h
model.layers.{l}.post_attention_layernorm.bias h
model.layers.{l}.mlp.up_proj.weight f,h
model.layers.{l}.mlp.down_proj.weight h,f
"""),
    "gpt_oss": (
        "GptOssForCausalLM", {**GROUPED, "num_local_experts": "e"},
        _ENDS + _NORMS + _ATTENTION + _BIASES + """
model.layers.{l}.self_attn.o_proj.bias h
model.layers.{l}.self_attn.sinks n
model.layers.{l}.mlp.router.weight e,h
model.layers.{l}.mlp.router.bias e
model.layers.{l}.mlp.experts.gate_up_proj e,h,2*f
model.layers.{l}.mlp.experts.gate_up_proj_bias e,2*f
model.layers.{l}.mlp.experts.down_proj e,f,h
model.layers.{l}.mlp.experts.down_proj_bias e,h
"""),
    "minimax_m2": (
        "MiniMaxM2ForCausalLM", {**GROUPED, "num_local_experts": "e"},
        _ENDS + _NORMS + _ATTENTION + """
model.layers.{l}.self_attn.q_norm.weight n*d
model.layers.{l}.self_attn.k_norm.weight g*d
model.layers.{l}.block_sparse_moe.gate.weight e,h
model.layers.{l}.block_sparse_moe.e_score_correction_bias e F32
model.layers.{l}.block_sparse_moe.experts.{e}.w1.weight f,h
model.layers.{l}.block_sparse_moe.experts.{e}.w2.weight h,f
model.layers.{l}.block_sparse_moe.experts.{e}.w3.weight f,h
"""),
}


def tensors(table, sizes, layers, first, following, words):
    """(name, shape, type or None, name of the original or None) of each tensor of a
    model: `layers` of them, of which those before `first` are dense, and then so many
    prediction layers; `words` are those of the lines that this model has."""
    for line in FAMILIES[table][2].split("\n"):
        if not line:
            continue
        word, _, rest = line.partition(" ") if re.match("[a-z]+ ", line) else ("", "", line)
        name, shape, *more = rest.split()
        if word in ("own", "maybe", "never") and word not in words:
            continue
        for place in _places(word, name, layers, first, following):
            for filled in _stack(name.replace("{l}", str(place)), sizes):
                if shape == "=":
                    yield filled, None, None, more[0]
                else:
                    yield (filled, tuple(eval(dim, {}, sizes) for dim in shape.split(",")),
                           more[0] if more else None, None)


def _places(word, name, layers, first, following):
    """The layers that have the tensor."""
    if "{l}" not in name:
        return [""]
    return {"dense": range(first), "experts": range(first, layers + following),
            "next": range(layers, layers + following)}.get(word, range(layers + following))


def _stack(name, sizes):
    return [name.replace("{e}", str(e)) for e in range(sizes["e"] if "{e}" in name else 1)]
