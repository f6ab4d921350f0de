# SPDX-License-Identifier: Apache-2.0
"""A model and a PEFT adapter for it, for the benchmarks."""

import json
import math
import os

from bench_quantised_tree import INNER, SMALL
from safetensors_format import safetensors_head

RANK = 16
TARGET = "w"


class AdapterTree:
    """source: a directory of about `size` bytes of BFloat16 matrices; adapter: another."""

    def __init__(self, directory, _kind, size, blocks):
        self.directory = directory
        self.source, self.adapter = (os.path.join(directory, n) for n in ("model", "adapter"))
        rows = 1024 if size < 128 << 20 else 8192
        layers = max(1, size // (2 * rows * INNER))
        self.bytes = 2 * layers * rows * INNER
        stems = [f"model.layers.{layer}.mlp.{TARGET}" for layer in range(layers)]
        self.write(os.path.join(self.source, "model.safetensors"), blocks,
                   {stem + ".weight": (rows, INNER) for stem in stems})
        self.write(os.path.join(self.adapter, "adapter_model.safetensors"), blocks,
                   {f"base_model.model.{stem}.lora_{end}.weight": shape for stem in stems
                    for end, shape in (("A", (RANK, INNER)), ("B", (rows, RANK)))})
        self.config(self.source, "config.json", {"torch_dtype": "bfloat16"})
        self.config(self.adapter, "adapter_config.json", {
            "peft_type": "LORA", "r": RANK, "lora_alpha": 2 * RANK, "bias": "none",
            "target_modules": [TARGET]})
        os.sync()

    @staticmethod
    def write(path, blocks, shapes):
        os.makedirs(os.path.dirname(path))
        with open(path, "wb") as f:
            f.write(safetensors_head({name: ("BF16", shape, 2 * math.prod(shape))
                                      for name, shape in shapes.items()}))
            for number, shape in enumerate(shapes.values()):
                for piece in blocks.pieces(number, 2 * math.prod(shape)):
                    f.write(bytes(piece).translate(SMALL))

    @staticmethod
    def config(directory, name, value):
        with open(os.path.join(directory, name), "w", encoding="utf-8") as f:
            json.dump(value, f)
