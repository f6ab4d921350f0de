# SPDX-License-Identifier: Apache-2.0
"""Random models with experts apart, and adapters of PEFT for them in both forms."""

import json
import os
import random

from adapters import PREFIX
from demands import write
from quantised import encoded
from safetensors_format import safetensors_bytes


class Tuned:
    """A model with experts apart, an adapter for it, and the adapter as PEFT fuses it."""

    def __init__(self, seed):
        numbers = self.numbers = random.Random(seed)
        self.at, self.parts = numbers.choice((
            ("block_sparse_moe", ("w1", "w3", "w2")),
            ("mlp", ("gate_proj", "up_proj", "down_proj"))))
        self.experts, self.rank = numbers.choice((1, 2, 3, 12)), numbers.choice((1, 2, 5))
        # Square matrices might be transposed, so no adapter is merged into them.
        self.hidden, self.ffn = numbers.choice([(h, f) for h in range(1, 6)
                                                for f in range(1, 6) if h not in (f, 2 * f)])
        self.kind = numbers.choice(("F32", "F16", "BF16"))
        self.adapted = numbers.choice(((0, 1, 2), (0, 1), (2,)))
        self.layers = numbers.choice((1, 2, 11))
        self.model, self.apart, self.fused = {}, {}, {}
        for layer in range(self.layers):
            self.layer(f"model.layers.{layer}.")
        self.config = {"architectures": ["MixtralForCausalLM" if self.at != "mlp" else
                                         "Qwen3MoeForCausalLM"], "num_local_experts": self.experts}

    def matrix(self, rows, columns):
        """Whole numbers, of which sums are exact."""
        return [[self.numbers.randint(-2, 2) for _ in range(columns)] for _ in range(rows)]

    def tensor(self, rows):
        return self.kind, (len(rows), len(rows[0])), b"".join(
            encoded(float(x), self.kind) for row in rows for x in row)

    def both(self, to, module, a, b):
        to[f"{PREFIX}{module}.lora_A.weight"] = self.tensor(a)
        to[f"{PREFIX}{module}.lora_B.weight"] = self.tensor(b)

    def layer(self, layer):
        drawn = {}
        for expert in range(self.experts):
            for i, part in enumerate(self.parts):
                rows, columns = ((self.hidden, self.ffn) if i == 2 else (self.ffn, self.hidden))
                name = f"{layer}{self.at}.experts.{expert}.{part}"
                self.model[name + ".weight"] = self.tensor(self.matrix(rows, columns))
                if i in self.adapted:
                    drawn[expert, i] = (self.matrix(self.rank, columns),
                                        self.matrix(rows, self.rank))
                    self.both(self.apart, name, *drawn[expert, i])
        q = layer + "self_attn.q_proj"
        self.model[q + ".weight"] = self.tensor(self.matrix(3, self.hidden))
        a, b = self.matrix(self.rank, self.hidden), self.matrix(3, self.rank)
        self.both(self.apart, q, a, b)
        self.both(self.fused, q, a, b)
        module = layer + "mlp.experts"
        for parts in ((0, 1), (2,)):
            if parts[0] in self.adapted:
                inner = ".base_layer" if len(parts) == 2 and 2 in self.adapted else ""
                self.both(self.fused, module + inner, *self.fuse(drawn, parts))

    def fuse(self, drawn, parts):
        """A: experts slowest; B: ranks slowest, zeros where another part has its ranks."""
        a = [row for e in range(self.experts) for i in parts for row in drawn[e, i][0]]
        b = []
        for i in parts:
            for row in range(len(drawn[0, i][1])):
                b.append([drawn[e, k][1][row][r] if k == i else 0 for k in parts
                          for r in range(self.rank) for e in range(self.experts)])
        return a, b

    def save(self, directory, name, tensors, **config):
        at = os.path.join(directory, name)
        write(os.path.join(at, "adapter_model.safetensors"), safetensors_bytes(tensors))
        write(os.path.join(at, "adapter_config.json"), json.dumps(
            {"peft_type": "LORA", "r": self.rank, "lora_alpha": 4 * self.rank, **config}).encode())
        return at

    def save_model(self, directory, tensors=None):
        write(os.path.join(directory, "config.json"), json.dumps(self.config).encode())
        write(os.path.join(directory, "model.safetensors"),
              safetensors_bytes(self.model if tensors is None else tensors))
        return directory
