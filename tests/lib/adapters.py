# SPDX-License-Identifier: Apache-2.0
"""Models with PEFT adapters: random ones, and what is left when adapters are merged, in
plain Python.

A merged element is w + s * sum, where the sum has its products in the order of the rank,
each added with one rounding (a fused multiply-add of Float32).  s * sum is rounded to
Float32, the result to the type of the weight; for an embedding also s * sum before.
"""

import json
import math
import os
import struct

from demands import write
from quantised import WIDTHS, decoded, encoded, f32, rounded
from safetensors_format import safetensors_bytes

TYPES = ("BF16", "F16", "F32")
PREFIX = "base_model.model."
# Infinite, and NaN that are not the usual one.
ODD = {"BF16": (b"\x80\x7f", b"\xc1\x7f", b"\xff\xff"),
       "F16": (b"\0\xfc", b"\x01\x7e", b"\xff\xff"),
       "F32": (b"\0\0\x80\x7f", b"\x01\0\xc0\x7f", b"\xff\xff\xff\xff")}
UNIT = 149  # the smallest Float32 is 2 to the power of -149


# ---- the reader ----

def whole(x):
    """A Float32 as a multiple of the smallest one."""
    above, below = x.as_integer_ratio()
    return above * ((1 << UNIT) // below)


def fused(a, b, c):
    """a * b + c, rounded once to Float32: integers until then."""
    exact = whole(a) * whole(b) + (whole(c) << UNIT)  # in units of 2 ** -298
    if exact == 0:
        return f32(a * b + c)
    n = abs(exact)
    shift = max(n.bit_length() - 24, UNIT)
    quotient, rest = divmod(n, 1 << shift)
    half = 1 << (shift - 1)
    quotient += rest > half or (rest == half and quotient % 2)
    return math.copysign(math.ldexp(quotient, shift - 2 * UNIT), exact)


def numbers(tensor):
    kind, _, data = tensor
    width = WIDTHS[kind]
    return [decoded(data[i:i + width], kind) for i in range(0, len(data), width)]


def product(b, a):
    """The rows of B [m, r] times A [r, n]; zeros add nothing."""
    (m, r), n = b[1], a[1][1]
    left, right = numbers(b), numbers(a)
    rows = []
    for i in range(m):
        row = [0.0] * n
        for k in range(r):
            x = left[i * r + k]
            if x == 0:
                continue
            for j in range(n):
                y = right[k * n + j]
                if y:
                    row[j] = fused(x, y, row[j])
        rows.append(row)
    return rows


def added(weight, rows, scale, rounds):
    kind, shape, _ = weight
    made = bytearray()
    for w, x in zip(numbers(weight), (x for row in rows for x in row)):
        more = f32(x * scale)
        if rounds:
            more = rounded(more, kind)
        made += encoded(rounded(f32(w + more), kind), kind)
    return kind, shape, bytes(made)


def transposed(rows):
    return [list(column) for column in zip(*rows)]


class Adapter:
    """An adapter: its tensors under PEFT's names, and its configuration."""

    def __init__(self, **config):
        self.config = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "bias": "none",
                       "target_modules": ["q_proj"], **config}
        self.tensors = {}
        self.scales = {}  # {module: by what its product is multiplied}
        self.replaced = {}

    def add(self, module, a, b, scale, end=".weight", kind="lora"):
        self.tensors[f"{PREFIX}{module}.{kind}_A{end}"] = a
        self.tensors[f"{PREFIX}{module}.{kind}_B{end}"] = b
        self.scales[module] = scale, a, b, kind != "lora"

    def replace(self, name, tensor, middle=""):
        module, _, last = name.rpartition(".")
        self.tensors[f"{PREFIX}{module}{middle}.{last}"] = tensor
        self.replaced[name] = tensor

    def write(self, directory):
        write(os.path.join(directory, "adapter_config.json"), json.dumps(self.config).encode())
        write(os.path.join(directory, "adapter_model.safetensors"),
              safetensors_bytes(self.tensors))
        return directory


def merged(model, adapters):
    """{name: tensor}: a model with adapters [(adapter, scale)]."""
    made = dict(model)
    for adapter, _ in adapters:
        for name, (kind, shape, data) in adapter.replaced.items():
            to = made[name][0]
            if kind != to:
                data = b"".join(encoded(rounded(x, to), to)
                                for x in numbers((kind, shape, data)))
            made[name] = to, shape, data
    for adapter, more in adapters:
        for module, (scale, a, b, embeds) in adapter.scales.items():
            rows = product(b, a)
            if embeds or adapter.config.get("fan_in_fan_out"):
                rows = transposed(rows)
            made[module + ".weight"] = added(made[module + ".weight"], rows,
                                             f32(scale * more), embeds)
    return made


# ---- random models ----

class Drawer:
    """A model of Qwen3's architecture, and adapters for it."""

    def __init__(self, rng):
        self.rng = rng
        self.kind = rng.choice(TYPES)
        self.hidden, self.ffn, self.vocab = 8 * rng.randint(1, 4), 8 * rng.randint(1, 5), 24
        self.groups, self.repeat, self.head = rng.choice((1, 2)), rng.choice((1, 2)), 4
        self.layers = rng.choice((1, 2))

    def matrix(self, kind, *shape, most=1.0):
        rng = self.rng
        values = (rng.choice((0.0, -0.0, rng.uniform(-most, most),
                              rng.uniform(-most, most), rng.uniform(-1, 1) * 2.0 ** -12))
                  for _ in range(math.prod(shape)))
        return kind, shape, b"".join(encoded(rounded(f32(x), kind), kind) for x in values)

    def shapes(self):
        h, d, g, r = self.hidden, self.head, self.groups, self.repeat
        shapes = {"model.embed_tokens.weight": (self.vocab, h),
                  "model.norm.weight": (h,), "lm_head.weight": (self.vocab, h)}
        for i in range(self.layers):
            layer = f"model.layers.{i}."
            shapes.update({
                layer + "input_layernorm.weight": (h,),
                layer + "post_attention_layernorm.weight": (h,),
                layer + "self_attn.q_proj.weight": (g * r * d, h),
                layer + "self_attn.k_proj.weight": (g * d, h),
                layer + "self_attn.v_proj.weight": (g * d, h),
                layer + "self_attn.o_proj.weight": (h, g * r * d),
                layer + "self_attn.q_norm.weight": (d,),
                layer + "self_attn.k_norm.weight": (d,),
                layer + "mlp.gate_proj.weight": (self.ffn, h),
                layer + "mlp.up_proj.weight": (self.ffn, h),
                layer + "mlp.down_proj.weight": (h, self.ffn)})
        return shapes

    def model(self):
        """Some elements are infinite, or NaN with bits that must be kept."""
        rng, made = self.rng, {}
        for name, shape in self.shapes().items():
            kind, _, data = self.matrix(self.kind, *shape)
            width, data = WIDTHS[kind], bytearray(data)
            if rng.random() < 0.2:
                at = rng.randrange(len(data) // width) * width
                data[at:at + width] = rng.choice(ODD[kind])
            made[name] = kind, shape, bytes(data)
        return made

    def mindspore_shapes(self):
        """The shapes of the model under MindSpore's names (tables/qwen3.rules)."""
        h, d, g, r = self.hidden, self.head, self.groups, self.repeat
        shapes = {"embedding.word_embeddings.weight": (self.vocab, h),
                  "decoder.final_layernorm.weight": (h,), "output_layer.weight": (self.vocab, h)}
        for i in range(self.layers):
            layer = f"decoder.layers.{i}."
            shapes.update({
                layer + "input_layernorm.weight": (h,), layer + "pre_mlp_layernorm.weight": (h,),
                layer + "self_attention.linear_qkv.weight": (g * (r + 2) * d, h),
                layer + "self_attention.q_layernorm.weight": (d,),
                layer + "self_attention.k_layernorm.weight": (d,),
                layer + "self_attention.linear_proj.weight": (h, g * r * d),
                layer + "mlp.linear_fc1.weight": (2 * self.ffn, h),
                layer + "mlp.linear_fc2.weight": (h, self.ffn)})
        return shapes

    def config(self):
        return {"architectures": ["Qwen3ForCausalLM"], "hidden_size": self.hidden,
                "num_attention_heads": self.groups * self.repeat, "head_dim": self.head,
                "num_key_value_heads": self.groups, "num_hidden_layers": self.layers,
                "intermediate_size": self.ffn, "vocab_size": self.vocab}

    def factors(self, shape, rank):
        """A and B; large ranks have few numbers that are not 0."""
        out, columns = shape
        kind = self.rng.choice(TYPES)
        if rank < 100:
            return self.matrix(kind, rank, columns), self.matrix(kind, out, rank)
        width, few = WIDTHS[kind], []
        for rows, n in ((rank, columns), (out, rank)):
            data = bytearray(rows * n * width)
            for _ in range(40):
                at = self.rng.randrange(rows * n) * width
                data[at:at + width] = self.matrix(kind, 1)[2]
            few.append((kind, (rows, n), bytes(data)))
        return few

    def scaling(self, config, module):
        """As PEFT's update_layer() computes it."""
        def find(patterns, default):
            return next((n for key, n in patterns.items()
                         if module == key or module.endswith("." + key)), default)
        rank = find(config.get("rank_pattern", {}), config["r"])
        alpha = find(config.get("alpha_pattern", {}), config["lora_alpha"])
        return rank, alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)

    def adapter(self):
        rng, shapes = self.rng, self.shapes()
        matrices = [n for n, s in shapes.items() if len(s) == 2]
        targets = [n for n in matrices if rng.random() < 0.5] or matrices[-1:]
        adapter = Adapter(r=rng.choice((1, 2, 3, 8, 2100)), lora_alpha=rng.choice((1, 7, 16, 0.5)),
                          use_rslora=rng.random() < 0.3)
        if rng.random() < 0.3:
            adapter.config["rank_pattern"] = {"down_proj": 5, "layers.0.self_attn.q_proj": 2}
            adapter.config["alpha_pattern"] = {r"layers\.\d\.mlp.up_proj": 3, "v_proj": 9}
        end = rng.choice((".weight", ".default.weight"))
        for name in targets:
            module = name[:-len(".weight")]
            rank, scale = self.scaling(adapter.config, module)
            if "up_proj" in name and "alpha_pattern" in adapter.config:
                scale = 3 / (math.sqrt(rank) if adapter.config["use_rslora"] else rank)
            if name == "model.embed_tokens.weight":
                a, b = self.factors(shapes[name][::-1], rank)
                adapter.add(module, a, b, scale, end[:-len(".weight")], "lora_embedding")
            else:
                adapter.add(module, *self.factors(shapes[name], rank), scale, end)
        if rng.random() < 0.4:
            kind = rng.choice(TYPES)
            middle = ".base_layer" if "lm_head.weight" in targets else \
                rng.choice(("", ".modules_to_save", ".modules_to_save.default"))
            adapter.replace("lm_head.weight", self.matrix(kind, *shapes["lm_head.weight"]), middle)
        return adapter
