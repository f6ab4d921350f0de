# SPDX-License-Identifier: Apache-2.0
"""Random tiny models in Hugging Face's form, as `save_pretrained` leaves them, and
strategies for tensors of given shapes."""

import json
import math
import os
import random
import struct
from types import SimpleNamespace

import model_families
import random_jobs
from demands import write
from model_families import FAMILIES
from ms_formats import Layout
from rule_tables import BYTES
from safetensors_format import safetensors_bytes

# A table, and the architectures whose models are made for it.
KINDS = {"qwen3": ("Qwen3ForCausalLM",), "qwen3-plain": ("Qwen3ForCausalLM",),
         "qwen3_moe": ("Qwen3MoeForCausalLM",),
         "deepseek_v3": ("DeepseekV3ForCausalLM",),
         "deepseek_v3-legacy": ("DeepseekV3ForCausalLM",),
         "deepseek_v4": ("DeepseekV4ForCausalLM",),
         "llama": ("LlamaForCausalLM", "Qwen2ForCausalLM"),
         "llama-concat": ("LlamaForCausalLM", "Qwen2ForCausalLM"),
         "megatron": ("LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"),
         "megatron-layers": ("LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"),
         "glm": ("GlmForCausalLM",), "chatglm": ("ChatGLMForConditionalGeneration",),
         "chatglm-rope": ("ChatGLMForConditionalGeneration",),
         **{table: (family[0],) for table, family in FAMILIES.items()}}
# Tables for a model that another table converts, too.
MADE_AS = {"megatron-dense": "llama", "megatron-dense-te": "llama",
           "megatron-moe": "qwen3_moe", "megatron-moe-local": "qwen3_moe",
           "megatron-moe-te": "qwen3_moe", "megatron-deepseek3": "deepseek_v3",
           "megatron-deepseek3-mtp": "deepseek_v3", "megatron-deepseek3-split": "deepseek_v3",
           "megatron-phi3": "phi3", "megatron-gemma2": "gemma2"}
KINDS.update((table, KINDS[of]) for table, of in MADE_AS.items())
KINDS.update((table, KINDS["megatron-layers"]) for table in ("megatron-dense",
                                                             "megatron-dense-te"))


class Model:
    """A model: `table`, `architecture`, `config`, and `tensors` as {name: (type, shape,
    bytes)}; `features` says what is special of it."""

    def __init__(self, seed, table=None):
        self.numbers = random.Random(seed)
        pick = self.numbers.choice
        # In turn, and those more often of which there are more sorts.
        tables = [*KINDS, "qwen3_moe", "deepseek_v3", "qwen3_moe"]
        self.table = table or tables[seed % len(tables)]
        self.kind = MADE_AS.get(self.table, self.table)
        self.architecture = pick(KINDS[self.table])
        self.tensors, self.features = {}, []
        self.dtype = pick(("F32", "BF16", "BF16", "F16"))
        self.hidden, self.inner = pick((4, 6, 8, 16, 24)), pick((2, 3, 4, 8, 12))
        self.layers, self.words = pick((1, 2, 2, 3)), pick((8, 12, 20, 31))
        if self.kind == "qwen3_moe":
            self.layers = max(2, self.layers)
        if self.numbers.random() < 0.12:
            self.layers = 11
            self._feature("eleven layers")
        self.config = {
            "architectures": [self.architecture], "hidden_size": self.hidden,
            "intermediate_size": self.inner, "num_hidden_layers": self.layers,
            "vocab_size": self.words}
        makers = {"deepseek_v3": self._deepseek3, "deepseek_v3-legacy": self._deepseek3,
                  "deepseek_v4": self._deepseek4, "chatglm": self._chatglm,
                  "chatglm-rope": self._chatglm}
        makers.get(self.kind, self._family if self.kind in FAMILIES else self._plain)()

    def __str__(self):
        return ", ".join([self.table, self.dtype, *self.features])

    def _feature(self, text):
        self.features.append(text)

    def _add(self, name, *shape, dtype=None):
        dtype = dtype or self.dtype
        self.tensors[name] = (dtype, shape, self.numbers.randbytes(
            BYTES[dtype] * math.prod(shape)))

    def _chance(self, feature, likely=0.5):
        """Has the model this feature?"""
        if self.numbers.random() < likely:
            self._feature(feature)
            return True
        return False

    # ---- attention ----

    def _heads(self):
        pick = self.numbers.choice
        groups, repeats, size = pick((1, 2, 2, 3, 4)), pick((1, 2, 3, 4)), pick((2, 3, 4, 6))
        if self.kind == "llama-concat":
            # The script of this form knows heads of hidden / heads alone.
            self.hidden = self.config["hidden_size"] = groups * repeats * size
        if repeats > 1:
            self._feature("grouped queries")
        self.config["num_attention_heads"] = groups * repeats
        if groups != groups * repeats or pick((True, False)):
            self.config["num_key_value_heads"] = groups
        self.config["head_dim"] = size
        if groups * repeats * size != self.hidden:
            self._feature("heads apart")
        self.rows = {"q": groups * repeats * size, "k": groups * size, "v": groups * size}

    def _attention(self, at):
        for part, rows in self.rows.items():
            self._add(f"{at}self_attn.{part}_proj.weight", rows, self.hidden)
            if self.biases:
                self._add(f"{at}self_attn.{part}_proj.bias", rows)
        self._add(f"{at}self_attn.o_proj.weight", self.hidden, self.rows["q"])
        if self.architecture.startswith("Qwen3"):
            for part in ("q", "k"):
                self._add(f"{at}self_attn.{part}_norm.weight", self.config["head_dim"])

    def _latent_attention(self, at):
        c, h, q = self.config, self.hidden, self.latent_q
        n, a, r, v, k = (c["num_attention_heads"], c["qk_nope_head_dim"],
                         c["qk_rope_head_dim"], c["v_head_dim"], c["kv_lora_rank"])
        if q:
            self._add(f"{at}self_attn.q_a_proj.weight", q, h)
            self._add(f"{at}self_attn.q_a_layernorm.weight", q)
            self._add(f"{at}self_attn.q_b_proj.weight", n * (a + r), q)
        else:
            self._add(f"{at}self_attn.q_proj.weight", n * (a + r), h)
        self._add(f"{at}self_attn.kv_a_proj_with_mqa.weight", k + r, h)
        self._add(f"{at}self_attn.kv_a_layernorm.weight", k)
        self._add(f"{at}self_attn.kv_b_proj.weight", n * (a + v), k)
        self._add(f"{at}self_attn.o_proj.weight", h, n * v)

    # ---- the rest of a layer ----

    def _norms(self, at):
        for name in ("input_layernorm", "post_attention_layernorm"):
            self._add(f"{at}{name}.weight", self.hidden)

    def _dense(self, at, inner):
        for part in ("gate", "up"):
            self._add(f"{at}{part}_proj.weight", inner, self.hidden)
        self._add(f"{at}down_proj.weight", self.hidden, inner)

    def _experts(self):
        pick = self.numbers.choice
        self.experts, self.small = pick((2, 3, 4, 8, 12)), pick((2, 3, 4, 8))
        key = "n_routed_experts" if self.architecture.startswith("Deepseek") else \
            pick(("num_experts", "num_local_experts"))
        self.config[key] = self.experts
        self.config["moe_intermediate_size"] = self.small

    def _mixture(self, at):
        self._add(f"{at}gate.weight", self.experts, self.hidden)
        for expert in range(self.experts):
            self._dense(f"{at}experts.{expert}.", self.small)

    def _ends(self):
        self._add("model.embed_tokens.weight", self.words, self.hidden)
        self._add("model.norm.weight", self.hidden)
        tied = self._chance("tied", 0.3)
        self.config["tie_word_embeddings"] = tied
        if not tied:
            self._add("lm_head.weight", self.words, self.hidden)

    # ---- whole models ----

    def _plain(self):
        self._heads()
        self.biases = self.architecture.startswith(("Qwen2", "Glm"))
        if self.kind == "qwen3_moe":
            self._experts()
        dense = self.kind == "qwen3_moe" and self._chance("dense layers", 0.9)
        self.config["mlp_only_layers"] = [self.layers // 2] if dense else []
        self._ends()
        for layer in range(self.layers):
            at = f"model.layers.{layer}."
            self._norms(at)
            self._attention(at)
            if self.kind == "qwen3_moe" and layer not in self.config["mlp_only_layers"]:
                self._mixture(f"{at}mlp.")
            elif self.architecture.startswith("Glm"):
                self._add(f"{at}mlp.gate_up_proj.weight", 2 * self.inner, self.hidden)
                self._add(f"{at}mlp.down_proj.weight", self.hidden, self.inner)
            else:
                self._dense(f"{at}mlp.", self.inner)
            if self.architecture == "LlamaForCausalLM" and self.layers == 1:
                self._add(f"{at}self_attn.rotary_emb.inv_freq", 2, dtype="F32")

    def _family(self):
        """A model of model_families."""
        pick = self.numbers.choice
        groups = pick((1, 2, 3))
        sizes = {"V": self.words, "h": self.hidden, "f": self.inner, "g": groups,
                 "n": groups * pick((1, 2, 4)), "d": pick((2, 4, 6)), "e": pick((2, 3, 12)),
                 "s": pick((2, 3)), "S": pick((2, 4)), "q": pick((4, 6)), "k": pick((4, 6)),
                 "a": pick((2, 4)), "R": pick((2, 4)), "v": pick((2, 3)), "D": pick((0, 1))}
        _, keys, lines = FAMILIES[self.kind]
        if self.kind == "phi3":
            # The size of a head is that of the hidden state divided by the heads.
            self.hidden = self.config["hidden_size"] = sizes["h"] = sizes["n"] * sizes["d"]
        self.config.update((key, sizes[letter]) for key, letter in keys.items())
        tied = "\nown " not in lines or self._chance("tied", 0.3)
        self.config["tie_word_embeddings"] = tied
        following = pick((1, 2)) if "\nnext " in lines and self._chance("prediction layers") else 0
        if "\nnext " in lines:
            self.config["num_nextn_predict_layers"] = following
        words = {"maybe"} if pick((True, False)) else set()
        for name, shape, dtype, of in model_families.tensors(
                self.kind, sizes, self.layers, sizes["D"], following,
                words | (set() if tied else {"own"})):
            if of is None:
                self._add(name, *shape, dtype=dtype)
            elif of in self.tensors:
                self.tensors[name] = self.tensors[of]

    def _chatglm(self):
        pick = self.numbers.choice
        groups, repeats, size = pick((1, 2, 3)), pick((1, 2, 4)), pick((2, 4, 6))
        self.config.update(num_attention_heads=groups * repeats, kv_channels=size,
                           multi_query_group_num=groups, ffn_hidden_size=self.inner)
        rows, h = (groups * repeats + 2 * groups) * size, self.hidden
        self._add("transformer.embedding.word_embeddings.weight", self.words, h)
        self._add("transformer.encoder.final_layernorm.weight", h)
        self._add("transformer.output_layer.weight", self.words, h)
        for layer in range(self.layers):
            at = f"transformer.encoder.layers.{layer}."
            for name, shape in (("input_layernorm.weight", (h,)),
                                ("self_attention.query_key_value.weight", (rows, h)),
                                ("self_attention.query_key_value.bias", (rows,)),
                                ("self_attention.dense.weight", (h, groups * repeats * size)),
                                ("post_attention_layernorm.weight", (h,)),
                                ("mlp.dense_h_to_4h.weight", (2 * self.inner, h)),
                                ("mlp.dense_4h_to_h.weight", (h, self.inner))):
                self._add(at + name, *shape)

    def _deepseek3(self):
        pick = self.numbers.choice
        legacy = self.kind.endswith("legacy")
        plain = not legacy and self.table == self.kind
        self.latent_q = 0 if plain and self._chance("no q_lora", 0.3) else pick((4, 6))
        self.config.update(
            num_attention_heads=pick((1, 2, 4, 5)), qk_nope_head_dim=pick((2, 4, 6)),
            qk_rope_head_dim=pick((2, 4)), v_head_dim=pick((2, 3, 4)),
            kv_lora_rank=pick((4, 6, 8)), q_lora_rank=self.latent_q or None,
            # transformers writes it, whether it saves such a layer or not.
            num_nextn_predict_layers=1,
            first_k_dense_replace=pick((0, 1)))
        self._experts()
        self.shared = pick((2, 4))
        self._ends()
        for layer in range(self.layers):
            self._deepseek3_layer(f"model.layers.{layer}.",
                                  layer < self.config["first_k_dense_replace"])
        if self.table.endswith("-mtp") or (self.table == self.kind and
                                           self._chance("prediction layers")):
            self._prediction_layers(pick((1, 1, 2)))
        if self._chance("fp8"):
            self._quantise()

    def _deepseek3_layer(self, at, dense):
        self._norms(at)
        self._latent_attention(at)
        if dense:
            return self._dense(f"{at}mlp.", self.inner)
        self._mixture(f"{at}mlp.")
        self._add(f"{at}mlp.gate.e_score_correction_bias", self.experts, dtype="F32")
        return self._dense(f"{at}mlp.shared_experts.", self.shared)

    def _prediction_layers(self, count):
        copies = {"embed_tokens": "model.embed_tokens", "shared_head.head": "lm_head"}
        self.config["num_nextn_predict_layers"] = count
        for layer in range(self.layers, self.layers + count):
            at = f"model.layers.{layer}."
            self._deepseek3_layer(at, False)
            for name in ("enorm", "hnorm", "shared_head.norm"):
                self._add(f"{at}{name}.weight", self.hidden)
            self._add(f"{at}eh_proj.weight", self.hidden, 2 * self.hidden)
            for name, of in copies.items():
                if f"{of}.weight" in self.tensors:
                    self.tensors[f"{at}{name}.weight"] = self.tensors[f"{of}.weight"]

    def _quantise(self):
        """Block-scaled fp8, of blocks that tensors are no multiples of."""
        self.dtype = "BF16"
        for name, (dtype, shape, content) in self.tensors.items():
            if dtype != "F32" or not name.endswith("bias"):
                self.tensors[name] = ("BF16", shape, content[:2 * math.prod(shape)])
        rows, columns = block = [self.numbers.choice((2, 4, 5, 128)) for _ in range(2)]
        self.config["quantization_config"] = {
            "quant_method": "fp8", "fmt": "e4m3", "weight_block_size": block}
        for name in [n for n in self.tensors if "eh_proj" not in n and
                     n.endswith(("_proj.weight", "_proj_with_mqa.weight"))]:
            m, n = self.tensors[name][1]
            # No NaN, whose bits no two programs make alike.
            content = bytes(b for b in self.numbers.randbytes(2 * m * n + 64)
                            if b & 0x7f != 0x7f)[:m * n]
            self.tensors[name] = ("F8_E4M3", (m, n), content)
            grid = -(-m // rows), -(-n // columns)
            self.tensors[name + "_scale_inv"] = ("F32", grid, struct.pack(
                f"<{math.prod(grid)}f", *(self.numbers.uniform(1e-4, 3e-2)
                                          for _ in range(math.prod(grid)))))

    def _deepseek4(self):
        pick = self.numbers.choice
        self.config.update(num_attention_heads=pick((2, 4)))
        self._experts()
        self.shared = pick((2, 3))
        for name, shape in (("embed.weight", (self.words, self.hidden)),
                            ("norm.weight", (self.hidden,)),
                            ("head.weight", (self.words, self.hidden)),
                            ("hc_head_base", (4,)), ("hc_head_fn", (4, 4 * self.hidden)),
                            ("hc_head_scale", (1,))):
            self._add(name, *shape)
        for layer in range(self.layers):
            self._deepseek4_layer(f"layers.{layer}.")
            self._compressor(f"layers.{layer}.attn.", layer % 2 == 0)
        if self._chance("prediction layers"):
            self._deepseek4_layer("mtp.0.")
            for name in ("enorm", "hnorm", "norm"):
                self._add(f"mtp.0.{name}.weight", self.hidden)
            for name in ("e_proj", "h_proj"):
                self._add(f"mtp.0.{name}.weight", self.hidden, self.hidden)

    def _deepseek4_layer(self, at):
        h = self.hidden
        for name, shape in (("attn.wq_a", (6, h)), ("attn.q_norm", (6,)), ("attn.wq_b", (8, 6)),
                            ("attn.wkv", (4, h)), ("attn.kv_norm", (4,)), ("attn.wo_a", (4, 8)),
                            ("attn.wo_b", (h, 4)), ("attn_norm", (h,)), ("ffn_norm", (h,)),
                            ("ffn.gate", (self.experts, h))):
            self._add(f"{at}{name}.weight", *shape)
        self._add(f"{at}attn.attn_sink", 4, dtype="F32")
        self._add(f"{at}ffn.gate.bias", self.experts, dtype="F32")
        for part in ("attn", "ffn"):
            self._add(f"{at}hc_{part}_base", 24, dtype="F32")
            self._add(f"{at}hc_{part}_fn", 24, 4 * h, dtype="F32")
            self._add(f"{at}hc_{part}_scale", 3, dtype="F32")
        places = [(f"{at}ffn.experts.{e}", self.small) for e in range(self.experts)]
        for place, inner in places + [(f"{at}ffn.shared_experts", self.shared)]:
            for name, shape in (("w1", (inner, h)), ("w2", (h, inner)), ("w3", (inner, h))):
                self._add(f"{place}.{name}.weight", *shape)

    def _compressor(self, at, indexed):
        places = [f"{at}compressor."]
        if indexed:
            places.append(f"{at}indexer.compressor.")
            self._add(f"{at}indexer.wq_b.weight", 4, 6)
            self._add(f"{at}indexer.weights_proj.weight", 4, self.hidden)
        for place in places:
            self._add(f"{place}ape", 4, 8, dtype="F32")
            for name in ("wkv", "wgate"):
                self._add(f"{place}{name}.weight", 8, self.hidden)
            self._add(f"{place}norm.weight", 4)

    # ---- files ----

    def save(self, root):
        """In one file, or in parts with a map, and tensors in any order."""
        write(os.path.join(root, "config.json"), json.dumps(self.config).encode())
        names = list(self.tensors)
        if self.numbers.random() < 0.5:
            self.numbers.shuffle(names)
        count = self.numbers.choice((1, 1, 2, 3, 5))
        if count == 1:
            write(os.path.join(root, "model.safetensors"), safetensors_bytes(
                {name: self.tensors[name] for name in names}, {"format": "pt"}))
            return root
        where = {}
        for number in range(count):
            file = f"model-{number + 1:05}-of-{count:05}.safetensors"
            mine = {name: self.tensors[name] for name in names[number::count]}
            where.update(dict.fromkeys(mine, file))
            write(os.path.join(root, file), safetensors_bytes(mine, {"format": "pt"}))
        size = sum(len(content) for _, _, content in self.tensors.values())
        write(os.path.join(root, "model.safetensors.index.json"), json.dumps(
            {"metadata": {"total_size": size}, "weight_map": where}).encode())
        return root


# ---- strategies ----

def random_stages(numbers, shapes, spare=False):
    """{stage: {name: Layout}} of tensors of these shapes: any dimension over any axes
    that divide it; with `spare` every rank has a replica of all that it holds."""
    axes = numbers.choice(((2,), (4,), (2, 2), (2, 4), (3,), (2, 3), (1, 2), (2, 2, 2)))
    if spare:
        axes = (2, *axes)
    names = list(shapes)
    count = 2 if len(names) > 8 and numbers.random() < 0.15 else 1
    stages = {stage: {} for stage in range(count)}
    shard = 0 if spare else numbers.choice((0, 0, 0, -1, 2))
    for number, name in enumerate(names):
        layout = _random_layout(numbers, axes, shapes[name], len(axes) - spare)
        if shard and layout.tensor_map:
            random_jobs.shard(SimpleNamespace(shape=shapes[name]), layout, shard)
        stages[number * count // len(names)][name] = layout
    return stages


def _random_layout(numbers, axes, shape, usable):
    left = list(range(usable))
    numbers.shuffle(left)
    entries = [[-1] for _ in shape]
    for dim in numbers.sample(range(len(shape)), len(shape)):
        size = shape[dim]
        while left and numbers.random() < 0.6:
            split = axes[len(axes) - 1 - left[-1]]
            if size % split:
                break
            size //= split
            entries[dim] = [a for a in entries[dim] if a != -1] + [left.pop()]
    nested = any(len(entry) > 1 for entry in entries)
    return Layout(list(axes), entries if nested else [entry[0] for entry in entries],
                  shape=list(shape))


def random_strategy(numbers, path, stages):
    """One in any form that can say it."""
    nested = any(isinstance(entry, list) for held in stages.values()
                 for layout in held.values() for entry in layout.tensor_map)
    forms = ("protobuf", "protobuf", "merged") if nested else ("protobuf", "merged", "json")
    return random_jobs.write_strategy(path, stages, numbers.choice(forms))
