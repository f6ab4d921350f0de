# SPDX-License-Identifier: Apache-2.0
"""Quantised models for the benchmarks: matrices of one scheme."""

import json
import math
import os

from safetensors_format import safetensors_head

# Bytes that are no NaN of E4M3, scales of E8M0 around 2^-10, and of others around 0.01.
FINITE = bytes(v & 0xbf for v in range(256))
E8M0 = bytes(113 + v % 8 for v in range(256))
SMALL = bytes(v & 1 | 0x3c for v in range(256))
HALF = bytes(v & 1 | 0x20 for v in range(256))
INNER = 4096
SCHEMES = ("fp8", "fp4", "mxfp4", "int4", "gptq", "awq")


class QuantisedTree:
    """source: a model's directory whose tensors have about `size` bytes in BFloat16."""

    def __init__(self, directory, kind, size, blocks):
        self.directory, self.scheme = directory, kind.removeprefix("quantised_")
        self.source = os.path.join(directory, "model")
        self.path = os.path.join(self.source, "model.safetensors")
        self.rows = 1024 if size < 128 << 20 else 8192
        self.layers = max(1, size // (2 * self.rows * INNER))
        self.bytes = 2 * self.layers * self.rows * INNER
        os.makedirs(self.source)
        made = getattr(self, self.scheme)
        tensors = {}
        for layer in range(self.layers):
            tensors.update({f"model.layers.{layer}.mlp.{name}": tensor
                            for name, tensor in made(self.rows, INNER).items()})
        with open(os.path.join(self.source, "config.json"), "w", encoding="utf-8") as f:
            json.dump({"torch_dtype": "bfloat16", "quantization_config": self.says()}, f)
        with open(self.path, "wb") as f:
            f.write(safetensors_head({name: (kind, shape, n)
                                      for name, (kind, shape, n, _) in tensors.items()}))
            for number, (_, _, n, words) in enumerate(tensors.values()):
                if words and len(words) == n:
                    f.write(words)
                    continue
                for piece in blocks.pieces(number, n):
                    f.write(bytes(piece).translate(words) if words else piece)
        os.sync()

    def says(self):
        group = {"weights": {"num_bits": 4, "type": "int", "strategy": "group",
                             "group_size": 32, "symmetric": True}}
        return {"fp8": {"quant_method": "fp8", "weight_block_size": [128, 128]},
                "fp4": {"quant_method": "fp8", "weight_block_size": [128, 128]},
                "mxfp4": {"quant_method": "mxfp4"},
                "int4": {"quant_method": "compressed-tensors", "format": "pack-quantized",
                         "config_groups": {"group_0": group}},
                "gptq": {"quant_method": "gptq", "bits": 4, "group_size": 128,
                         "checkpoint_format": "gptq_v2"},
                "awq": {"quant_method": "awq", "bits": 4, "group_size": 128,
                        "version": "gemm"}}[self.scheme]

    @staticmethod
    def tensor(kind, words, *shape):
        width = {"I32": 4, "F16": 2, "BF16": 2}.get(kind, 1)
        return kind, shape, width * math.prod(shape), words

    def fp8(self, m, n):
        return {"w.weight": self.tensor("F8_E4M3", FINITE, m, n),
                "w.scale": self.tensor("F8_E8M0", E8M0, m // 128, n // 128)}

    def fp4(self, m, n):
        return {"w.weight": self.tensor("I8", None, m, n // 2),
                "w.scale": self.tensor("F8_E8M0", E8M0, m, n // 32)}

    def mxfp4(self, m, n):
        return {"w_blocks": self.tensor("U8", None, 2, m // 2, n // 32, 16),
                "w_scales": self.tensor("U8", E8M0, 2, m // 2, n // 32)}

    def int4(self, m, n):
        shape = m.to_bytes(4, "little") + n.to_bytes(4, "little")
        return {"w.weight_packed": self.tensor("I32", None, m, n // 8),
                "w.weight_scale": self.tensor("BF16", SMALL, m, n // 32),
                "w.weight_shape": ("I32", (2,), 8, shape)}

    def gptq(self, m, n):
        order = b"".join((i // 128).to_bytes(4, "little") for i in range(n))
        return {"w.qweight": self.tensor("I32", None, n // 8, m),
                "w.qzeros": self.tensor("I32", None, n // 128, m // 8),
                "w.scales": self.tensor("F16", HALF, n // 128, m),
                "w.g_idx": ("I32", (n,), 4 * n, order)}

    def awq(self, m, n):
        return {"w.qweight": self.tensor("I32", None, n, m // 8),
                "w.qzeros": self.tensor("I32", None, n // 128, m // 8),
                "w.scales": self.tensor("F16", HALF, n // 128, m)}
