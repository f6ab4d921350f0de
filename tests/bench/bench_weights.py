# SPDX-License-Identifier: Apache-2.0
"""Hugging Face weights for the benchmarks, and what a mount makes of them.

Contents are cut from numbered blocks of random bytes; what must be shown is put
together here, element by element, and not by the program under test.
"""

import array
import json
import math
import os

from ms_formats import Layout, StageFile, strategy_bytes
from safetensors_format import safetensors_head

ELEMENT = 2
RANKS = 8


class Weights:
    """source, strategy (None: whole tensors), options: as a mount takes them.

    kind is "qkv" (attention, cut for 8 ranks), "gate" (gate and up in turn),
    "experts" (stacked and transposed) or "stacked" (names of transformers 5, each expert
    one run of bytes).
    """

    def __init__(self, directory, kind, size, blocks):
        kind = kind.removeprefix("weights_")
        self.directory, self.kind, self._blocks = directory, kind, blocks
        self.source = os.path.join(directory, "model")
        self.path = os.path.join(self.source, "model.safetensors")
        small = size < 128 << 20
        mixture = kind in ("experts", "stacked")
        self.h = 256 if small else 2048 if mixture else 4096
        self.f = {"qkv": 16, "gate": 3 * self.h}.get(kind, self.h * 3 // 8)
        self.e = (4 if small else 64) if mixture else 0
        self.heads, self.groups, self.d = (8, 8, 8) if kind != "qkv" else \
            (self.h // 32, 8, 32)
        self.layers = 1
        layer = sum(map(self.bytes_of, self._tensors().values()))
        self.layers = max(1, -(-size // layer))
        self.names = list(self._tensors())
        self.options = ["--convert", "qwen3_moe" if self.e else "qwen3", "--from", "hf",
                        "--format", "safetensors"]
        if kind == "stacked":
            self.options = ["--convert", "hf5", "--format", "safetensors"]
        self.options += {"qkv": [], "stacked": ["--only", "mlp.experts"], "gate": ["--only", "linear_fc1"],
                         "experts": ["--only", "experts.weight"]}[kind]
        os.makedirs(self.source)
        self._write_model()
        self.strategy = os.path.join(directory, "wanted.ckpt") if kind == "qkv" else None
        if self.strategy:
            with open(self.strategy, "wb") as f:
                f.write(strategy_bytes(StageFile(0, {
                    f"decoder.layers.{layer}.self_attention.{name}.weight":
                        Layout([RANKS], [0, -1])
                    for layer in range(self.layers)
                    for name in ("linear_qkv", "linear_proj")})))
        os.sync()

    @staticmethod
    def bytes_of(dims):
        return ELEMENT * math.prod(dims)

    def _tensors(self):
        h, f, d = self.h, self.f, self.d
        found = {"model.embed_tokens.weight": [64, h], "model.norm.weight": [h],
                 "lm_head.weight": [64, h]}
        for layer in range(self.layers):
            one = {"input_layernorm": [h], "post_attention_layernorm": [h],
                   "self_attn.q_proj": [self.heads * d, h],
                   "self_attn.k_proj": [self.groups * d, h],
                   "self_attn.v_proj": [self.groups * d, h],
                   "self_attn.o_proj": [h, self.heads * d],
                   "self_attn.q_norm": [d], "self_attn.k_norm": [d]}
            if self.e:
                one["mlp.gate"] = [self.e, h]
            for expert in [f"experts.{i}." for i in range(self.e)] or [""]:
                one.update({f"mlp.{expert}gate_proj": [f, h], f"mlp.{expert}up_proj": [f, h],
                            f"mlp.{expert}down_proj": [h, f]})
            found.update({f"model.layers.{layer}.{name}.weight": dims
                          for name, dims in one.items()})
        return found

    def _content(self, name):
        n = self.bytes_of(self._tensors()[name])
        return b"".join(self._blocks.pieces(self.names.index(name), n))

    def _write_model(self):
        config = {"architectures": ["Qwen3MoeForCausalLM" if self.e else "Qwen3ForCausalLM"],
                  "hidden_size": self.h, "num_attention_heads": self.heads,
                  "num_key_value_heads": self.groups, "head_dim": self.d,
                  "num_hidden_layers": self.layers, "vocab_size": 64,
                  "intermediate_size": self.f, "moe_intermediate_size": self.f,
                  "num_experts": self.e}
        with open(os.path.join(self.source, "config.json"), "w", encoding="utf-8") as f:
            json.dump(config, f)
        tensors = self._tensors()
        with open(self.path, "wb") as f:
            f.write(safetensors_head({name: ("BF16", dims, self.bytes_of(dims))
                                      for name, dims in tensors.items()}))
            for name in tensors:
                f.write(self._content(name))

    # ---- what must be shown ----

    def _rows(self, name, rows):
        """A tensor's content in blocks of so many rows."""
        content, dims = self._content(name), self._tensors()[name]
        step = rows * dims[1] * ELEMENT
        return [content[at:at + step] for at in range(0, len(content), step)]

    def _columns(self, name):
        width = self._tensors()[name][1]
        elements = array.array("H", self._content(name))
        return [elements[i::width].tobytes() for i in range(width)]

    def expected(self):
        """{name: content} of the first rank, of tensors that are more than renamed."""
        found = {}
        for layer in range(self.layers):
            old, new = f"model.layers.{layer}.", f"decoder.layers.{layer}."
            if self.kind == "qkv":
                per_group = self.heads // self.groups * self.d
                parts = zip(self._rows(old + "self_attn.q_proj.weight", per_group),
                            self._rows(old + "self_attn.k_proj.weight", self.d),
                            self._rows(old + "self_attn.v_proj.weight", self.d))
                whole = b"".join(b"".join(part) for part in parts)
                found[new + "self_attention.linear_qkv.weight"] = whole[:len(whole) // RANKS]
            elif self.kind == "gate":
                found[new + "mlp.linear_fc1.weight"] = b"".join(
                    a + b for a, b in zip(self._rows(old + "mlp.gate_proj.weight", 1),
                                          self._rows(old + "mlp.up_proj.weight", 1)))
            elif self.kind == "stacked":
                experts = [f"{old}mlp.experts.{i}." for i in range(self.e)]
                found[old + "mlp.experts.gate_up_proj"] = b"".join(
                    self._content(f"{expert}{part}_proj.weight")
                    for expert in experts for part in ("gate", "up"))
                found[old + "mlp.experts.down_proj"] = b"".join(
                    self._content(expert + "down_proj.weight") for expert in experts)
            else:
                experts = [f"{old}mlp.experts.{i}." for i in range(self.e)]
                found[new + "mlp.experts.weight1"] = b"".join(
                    a + b for expert in experts
                    for a, b in zip(self._columns(expert + "gate_proj.weight"),
                                    self._columns(expert + "up_proj.weight")))
                found[new + "mlp.experts.weight2"] = b"".join(
                    column for expert in experts
                    for column in self._columns(expert + "down_proj.weight"))
        return found
