# SPDX-License-Identifier: Apache-2.0
"""A model of Hugging Face's for the benchmarks: a Qwen3-MoE of BFloat16 in parts, and
the strategy of the ranks of a job, which has MindSpore's names for it."""

import json
import os

from bench_trees import Blocks
from ms_formats import Layout, StageFile, strategy_bytes
from safetensors_format import safetensors_head

ELEMENT = 2
EXPERTS = 8


# MindSpore's converter takes BFloat16 through float32, which changes what is NaN.
FINITE = bytes(byte & 0xbf for byte in range(256))


class Finite(Blocks):
    """Random bytes of which no two are a number of BFloat16 that is infinite or none."""

    def __init__(self):
        super().__init__()
        self._bytes = memoryview(bytes(self._bytes).translate(FINITE))


class ModelTree:
    """source is the model's directory, dst_strategy the strategy of its ranks.

    content  bytes of all tensors
    """
    table = "qwen3_moe"
    ranks = 8

    def __init__(self, directory, kind, size, _):
        self.directory = directory
        self.source = os.path.join(directory, "model")
        self.config = os.path.join(self.source, "config.json")
        self.dst_strategy = os.path.join(directory, "ranks.ckpt")
        self._blocks = Finite()
        # Rows of experts have 4 KiB, as those of large models.
        self.hidden, self.inner = (2048, 768) if size >= 256 << 20 else (256, 96)
        self.groups, self.heads, self.head = 8, 16, self.hidden // 16
        self.words = 8 * self.hidden
        each = self._length(self._layer(0))
        self.layers = max(1, (size - self._length(self._ends())) // each)
        os.makedirs(self.source)
        self._write()
        os.sync()  # or the disk is still busy with it when measuring begins

    def source_files(self):
        return [os.path.join(self.source, name) for name in sorted(os.listdir(self.source))
                if name.endswith(".safetensors")]

    @staticmethod
    def _length(tensors):
        return sum(ELEMENT * shape[0] * (shape[1] if shape[1:] else 1)
                   for shape in tensors.values())

    def _ends(self):
        return {"model.embed_tokens.weight": (self.words, self.hidden),
                "model.norm.weight": (self.hidden,),
                "lm_head.weight": (self.words, self.hidden)}

    def _layer(self, layer):
        at, h, f = f"model.layers.{layer}.", self.hidden, self.inner
        q, kv = self.heads * self.head, self.groups * self.head
        result = {"input_layernorm": (h,), "post_attention_layernorm": (h,),
                  "self_attn.q_proj": (q, h), "self_attn.k_proj": (kv, h),
                  "self_attn.v_proj": (kv, h), "self_attn.o_proj": (h, q),
                  "self_attn.q_norm": (self.head,), "self_attn.k_norm": (self.head,),
                  "mlp.gate": (EXPERTS, h)}
        for expert in range(EXPERTS):
            for name, shape in (("gate", (f, h)), ("up", (f, h)), ("down", (h, f))):
                result[f"mlp.experts.{expert}.{name}_proj"] = shape
        return {f"{at}{name}.weight": shape for name, shape in result.items()}

    def _write(self):
        with open(self.config, "w", encoding="utf-8") as f:
            json.dump({"architectures": ["Qwen3MoeForCausalLM"], "head_dim": self.head,
                       "hidden_size": self.hidden, "num_hidden_layers": self.layers,
                       "num_attention_heads": self.heads, "num_experts": EXPERTS,
                       "num_key_value_heads": self.groups, "vocab_size": self.words,
                       "moe_intermediate_size": self.inner}, f)
        parts, number, where = [self._ends()], 0, {}
        parts += [self._layer(layer) for layer in range(self.layers)]
        for part, tensors in enumerate(parts, 1):
            name = f"model-{part:05}-of-{len(parts):05}.safetensors"
            where.update(dict.fromkeys(tensors, name))
            with open(os.path.join(self.source, name), "wb") as f:
                f.write(safetensors_head({n: ("BF16", shape, self._length({n: shape}))
                                          for n, shape in tensors.items()}, {"format": "pt"}))
                for n, shape in tensors.items():
                    number += 1
                    f.writelines(self._blocks.pieces(number, self._length({n: shape})))
        self.content = sum(map(self._length, parts))
        with open(os.path.join(self.source, "model.safetensors.index.json"), "w",
                  encoding="utf-8") as f:
            json.dump({"metadata": {"total_size": self.content}, "weight_map": where}, f)
        with open(self.dst_strategy, "wb") as f:
            f.write(strategy_bytes(StageFile(0, self._layouts())))

    def _layouts(self):
        """Heads, experts and words are dealt out to all ranks."""
        rows, columns, whole, vector = [0, -1], [-1, 0], [-1, -1], [-1]
        maps = {"embedding.word_embeddings.weight": rows, "output_layer.weight": rows,
                "decoder.final_layernorm.weight": vector}
        for layer in range(self.layers):
            maps.update((f"decoder.layers.{layer}.{name}", axes) for name, axes in (
                ("input_layernorm.weight", vector), ("pre_mlp_layernorm.weight", vector),
                ("self_attention.linear_qkv.weight", rows),
                ("self_attention.linear_proj.weight", columns),
                ("self_attention.q_layernorm.weight", vector),
                ("self_attention.k_layernorm.weight", vector),
                ("mlp.router.weight", whole), ("mlp.experts.weight1", rows),
                ("mlp.experts.weight2", rows)))
        return {name: Layout([self.ranks], axes) for name, axes in maps.items()}
