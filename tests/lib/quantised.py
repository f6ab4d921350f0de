# SPDX-License-Identifier: Apache-2.0
"""Quantised models: a reader that gives the dense tensors, and random models.

The reader shares nothing with the program under test, and computes one element after
the other in plain Python.  It reads tensors {name: (type, shape, bytes)} and the
dictionary of config.json, and gives the same form.  Standard library only.
"""

import functools
import json
import math
import os
import shutil
import struct

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)
WIDTHS = {"BF16": 2, "F16": 2, "F32": 4, "F8_E4M3": 1, "F8_E8M0": 1, "U8": 1, "I8": 1,
          "F4": 1, "I32": 4, "I64": 8}
TYPES = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}


# ---- committed models ----

def without_sizes(config):
    """The sizes in config.json of data/quantised are not those of the tensors."""
    return {k: v if k == "quantization_config" or not isinstance(v, dict) else without_sizes(v)
            for k, v in config.items() if not isinstance(v, int) or isinstance(v, bool)}


def published(model, to):
    """A copy of one as it would be published, and what is expected of it."""
    shutil.copytree(model, to)
    os.remove(os.path.join(to, "expected.json"))
    with open(os.path.join(model, "config.json"), encoding="utf-8") as f:
        config = without_sizes(json.load(f))
    with open(os.path.join(to, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f)
    with open(os.path.join(model, "expected.json"), encoding="utf-8") as f:
        expected = json.load(f)
    return {**expected, "config": without_sizes(expected["config"])}


# ---- numbers ----

def bits_of(x):
    """A double as the bits of the nearest Float32."""
    try:
        return struct.unpack("<I", struct.pack("<f", x))[0]
    except OverflowError:
        return 0xff800000 if x < 0 else 0x7f800000


def f32(x):
    return struct.unpack("<f", struct.pack("<I", bits_of(x)))[0]


def encoded(x, kind):
    """The bytes of a Float32 as another type, rounded to nearest even."""
    if math.isnan(x):
        return {"BF16": b"\xc0\x7f", "F16": b"\0\x7e", "F32": b"\0\0\xc0\x7f"}[kind]
    if kind == "F32":
        return struct.pack("<I", bits_of(x))
    if kind == "F16":
        try:
            return struct.pack("<e", x)
        except OverflowError:
            return b"\0\xfc" if x < 0 else b"\0\x7c"
    bits = bits_of(x)
    low, high = bits & 0xffff, bits >> 16
    return struct.pack("<H", high + (low > 0x8000 or (low == 0x8000 and high & 1)))


def decoded(data, kind):
    if kind == "BF16":
        return struct.unpack("<f", b"\0\0" + data)[0]
    return struct.unpack({"F16": "<e", "F32": "<f"}[kind], data)[0]


def rounded(x, kind):
    return decoded(encoded(x, kind), kind) if kind else x


def e4m3(v):
    sign, exponent, fraction = -1 if v & 0x80 else 1, v >> 3 & 15, v & 7
    if v & 0x7f == 0x7f:
        return math.nan
    if exponent:
        return sign * math.ldexp(8 + fraction, exponent - 10)
    return sign * math.ldexp(fraction, -9)


def e8m0(v):
    return math.nan if v == 255 else math.ldexp(1, v - 127)


def scale_of(tensor, i):
    kind, _, data = tensor
    if kind in ("F8_E8M0", "U8"):
        return e8m0(data[i])
    if kind == "F8_E4M3":
        return e4m3(data[i])
    width = WIDTHS[kind]
    return decoded(data[width * i:width * (i + 1)], kind)


def made(number, scale, steps, kind):
    """The bytes of number * scale, rounded to each of the steps and then to the type."""
    # 0 and -0 are equal, and so are keys of the cache with them.
    return _made(number, math.copysign(1, number), scale, math.copysign(1, scale), steps, kind)


@functools.lru_cache(1 << 16)
def _made(number, _, scale, __, steps, kind):
    x = f32(number * scale)
    for step in steps:
        x = rounded(x, step)
    return encoded(x, kind)


def nibble(data, i):
    return data[i // 2] >> 4 * (i % 2) & 15


def signed_fp4(code):
    return math.copysign(E2M1[code & 7], -1 if code & 8 else 1)


# ---- the reader ----

class Reader:
    def __init__(self, tensors, config, kind):
        self.tensors, self.kind = tensors, kind
        self.says = config.get("quantization_config") or \
            config.get("text_config", {}).get("quantization_config")
        self.left = dict(tensors)

    def take(self, name):
        return self.left.pop(name, None)

    def matrix(self, rows, columns, element):
        return b"".join(element(i, j) for i in range(rows) for j in range(columns))

    def block_of(self, shape, scales):
        """The rows and columns that share a scale."""
        m, n = shape
        sizes = [self.says.get("weight_block_size")] + [
            g["weights"].get("block_structure")
            for g in self.says.get("config_groups", {}).values()]
        for b, c in filter(None, sizes):
            if tuple(scales[1]) == (-(-m // b), -(-n // c)):
                return b, c
        if scales[0] in ("F8_E8M0", "U8") and tuple(scales[1]) == (m, n // 32):
            return 1, 32
        return (m, n) if math.prod(scales[1]) == 1 else (1, n)

    def fp8(self, name, scales, steps=()):
        _, shape, data = self.take(name)
        m, n = shape
        b, c = self.block_of(shape, scales)
        across = -(-n // c)
        return (m, n), self.matrix(m, n, lambda i, j: made(
            e4m3(data[i * n + j]), scale_of(scales, i // b * across + j // c), steps,
            self.kind))

    def fp4(self, data, rows, columns, width, scale, steps=()):
        return self.matrix(rows, columns, lambda i, j: made(
            signed_fp4(nibble(data, i * columns + j)), scale(i * (columns // width) + j // width),
            steps, self.kind))

    def quant_fp8(self):
        for name, (kind, shape, data) in self.tensors.items():
            stem = name.removesuffix(".weight")
            scales = next((n for n in (name + "_scale_inv", name + "_scale", stem + ".scale")
                           if n in self.left), None)
            if kind == "F8_E4M3" and scales:
                yield name, *self.fp8(name, self.take(scales))
            elif kind in ("I8", "U8", "F4") and scales:
                s = self.take(scales)
                self.take(name)
                columns = shape[1] * (1 if kind == "F4" else 2)
                yield name, (shape[0], columns), self.fp4(
                    data, shape[0], columns, 32, lambda i, s=s: scale_of(s, i))

    def quant_mxfp4(self):
        for name, (_, shape, data) in self.tensors.items():
            if not name.endswith("_blocks"):
                continue
            stem = name.removesuffix("_blocks")
            e, r, g, _ = shape
            self.take(name)
            s = self.take(stem + "_scales")

            def element(plane, c, k, s=s, data=data, r=r, g=g):
                row = plane * r + k
                return made(signed_fp4(nibble(data, row * g * 32 + c)),
                            scale_of(s, row * g + c // 32), (), self.kind)
            yield stem, (e, 32 * g, r), b"".join(
                element(p, c, k) for p in range(e) for c in range(32 * g) for k in range(r))

    def integers(self, name, shape, data, bits):
        stem = name.removesuffix("_packed")
        s, z = self.take(stem + "_scale"), self.take(stem + "_zero_point")
        m, n = struct.unpack("<2i" if self.tensors[stem + "_shape"][0] == "I32" else "<2q",
                             self.take(stem + "_shape")[2])
        self.take(name)
        per, words, groups = 32 // bits, shape[1], s[1][1]

        def stored(words_data, at, k):
            word = struct.unpack_from("<I", words_data, 4 * at)[0]
            return word >> bits * k & (1 << bits) - 1

        def element(i, j):
            g = j // (n // groups)
            zero = stored(z[2], i // per * groups + g, i % per) if z else 1 << bits - 1
            return made(stored(data, i * words + j // per, j % per) - zero,
                        scale_of(s, i * groups + g), (s[0],), self.kind)
        return stem, (m, n), self.matrix(m, n, element)

    def quant_ct(self):
        bits = {g["weights"]["num_bits"] for g in self.says["config_groups"].values()}
        for name, (kind, shape, data) in self.tensors.items():
            if kind == "F8_E4M3" and name.endswith(".weight"):
                scales = self.take(name + "_scale")
                yield name, *self.fp8(name, scales, (scales[0],))
            elif name.endswith("_packed") and kind == "I32":
                yield self.integers(name, shape, data, *bits)
            elif name.endswith("_packed"):
                stem = name.removesuffix("_packed")
                s, g = self.take(stem + "_scale"), self.take(stem + "_global_scale")
                self.take(name)
                by = decoded(g[2], "F32") if g else 1.0
                yield stem, (shape[0], 2 * shape[1]), self.fp4(
                    data, shape[0], 2 * shape[1], 16 if g else 32,
                    lambda i, s=s, by=by: f32(scale_of(s, i) / by), ("BF16",))

    def words(self, gptq):
        for name, (_, shape, data) in self.tensors.items():
            if not name.endswith(".qweight"):
                continue
            stem = name.removesuffix(".qweight")
            for end in (".qweight", ".qzeros", ".scales", ".g_idx"):
                self.take(stem + end)
            zeros, s = self.tensors[stem + ".qzeros"], self.tensors[stem + ".scales"]
            rows, columns = (8 * shape[0], shape[1]) if gptq else (shape[0], 8 * shape[1])
            if gptq:
                groups = struct.unpack(f"<{rows}i", self.tensors[stem + ".g_idx"][2])
            else:
                size = self.says["group_size"]
                groups = [i // size if size > 0 else 0 for i in range(rows)]
            plus = gptq and self.says.get("checkpoint_format", "gptq") == "gptq"

            def word(words_data, at, k):
                return struct.unpack_from("<I", words_data, 4 * at)[0] >> 4 * k & 15

            def element(o, i, data=data, zeros=zeros, s=s, groups=groups, columns=columns):
                g = groups[i]
                k = o % 8 if gptq else AWQ_ORDER[o % 8]
                q = word(data, i // 8 * columns + o, i % 8) if gptq else \
                    word(data, i * columns // 8 + o // 8, k)
                z = word(zeros[2], g * columns // 8 + o // 8, k)
                return made(q - ((z + plus) % 16), scale_of(s, g * columns + o),
                            () if gptq else (s[0],), self.kind)
            yield stem + ".weight", (columns, rows), self.matrix(columns, rows, element)

    def read(self):
        """The dense tensors, and those that stay as they are."""
        method = self.says["quant_method"]
        found = {"fp8": self.quant_fp8, "mxfp8": self.quant_fp8, "mxfp4": self.quant_mxfp4,
                 "compressed-tensors": self.quant_ct, "gptq": lambda: self.words(True),
                 "awq": lambda: self.words(False)}[method]()
        dense = {name: (self.kind, tuple(shape), data) for name, shape, data in found}
        return {**dense, **{n: (k, tuple(s), d) for n, (k, s, d) in self.left.items()}}


# ---- random models ----

SCHEMES = ("fp8", "fp4", "mxfp8", "mxfp4", "ct", "int4", "int8", "ct fp4", "gptq", "awq")


class Drawer:
    """A model of a few tensors; columns are a multiple of 32, and blocks divide nothing."""

    def __init__(self, rng):
        self.rng = rng
        self.tensors = {"model.norm.weight": ("BF16", (6,), rng.randbytes(12))}
        self.config = {"model_type": "made_up", "quantization_config": {}}
        self.says = self.config["quantization_config"]
        self.scheme = rng.choice(("fp8", "mxfp4", *SCHEMES))

    def add(self, name, kind, *shape):
        data = self.rng.randbytes(WIDTHS[kind] * math.prod(shape))
        if self.rng.random() < 0.1:
            data = bytes(len(data))
        self.put(name, kind, shape, data)

    def put(self, name, kind, shape, data):
        if kind == "F4":
            shape = (*shape[:-1], 2 * shape[-1])
        self.tensors[name] = kind, tuple(shape), data

    def scales(self, name, kind, *shape):
        """Numbers of usual size, and some of all others."""
        rng, n = self.rng, math.prod(shape)
        wild = rng.random() < 0.3
        if kind in ("F8_E8M0", "U8"):
            data = bytes(rng.choice((255, rng.randrange(256), rng.randrange(256)))
                         if wild else rng.randrange(110, 140) for _ in range(n))
        elif wild or kind == "F8_E4M3":
            data = rng.randbytes(WIDTHS[kind] * n)
        else:
            data = b"".join(encoded(f32(rng.uniform(-2, 2) * 2.0 ** -rng.randrange(12)), kind)
                            for _ in range(n))
        self.put(name, kind, shape, data)

    def group(self, **weights):
        self.says["quant_method"] = "compressed-tensors"
        self.says["config_groups"] = {"group_0": {"weights": weights}}

    def draw(self):
        {"fp8": self.fp8, "fp4": self.fp4, "mxfp8": self.mxfp8, "mxfp4": self.mxfp4,
         "ct": self.ct, "int4": lambda: self.integers(4), "int8": lambda: self.integers(8),
         "ct fp4": self.ct_fp4, "gptq": self.gptq, "awq": self.awq}[self.scheme]()
        return self

    def shape(self):
        rng = self.rng
        return 4 * rng.randint(1, 6), 32 * rng.randint(1, 3)

    def two_of(self, step):
        """Sizes of two tensors, which are mostly equal."""
        first, other = (step * self.rng.randint(1, 6) for _ in range(2))
        return first, self.rng.choice((first, first, other))

    def fp8(self):
        rng = self.rng
        b, c = rng.choice(((7, 9), (128, 128), (5, 24), (16, 16)))
        self.says.update(quant_method="fp8", weight_block_size=[b, c])
        for i in range(rng.randint(1, 3)):
            m, n = self.shape()
            self.add(f"w{i}.weight", "F8_E4M3", m, n)
            shape = () if rng.random() < 0.2 else (-(-m // b), -(-n // c))
            self.scales(f"w{i}.weight_scale_inv",
                        rng.choice(("F32", "BF16", "F16", "F8_E8M0")), *shape)

    def fp4(self):
        self.says.update(quant_method="fp8", weight_block_size=[128, 128])
        for i in range(2):
            m, n = self.shape()
            self.add(f"w{i}.weight", self.rng.choice(("I8", "F4")), m, n // 2)
            self.scales(f"w{i}.scale", "F8_E8M0", m, n // 32)

    def mxfp8(self):
        self.says.update(quant_method="mxfp8", weight_block_size=[1, 32])
        m, n = self.shape()
        self.add("w.weight", "F8_E4M3", m, n)
        self.scales("w.weight_scale_inv", self.rng.choice(("U8", "F8_E8M0")), m, n // 32)

    def mxfp4(self):
        self.says.update(quant_method="mxfp4")
        e, r, g = self.rng.randint(1, 3), 4 * self.rng.randint(1, 4), self.rng.randint(1, 3)
        self.add("experts.up_blocks", "U8", e, r, g, 16)
        self.scales("experts.up_scales", "U8", e, r, g)

    def ct(self):
        m, n = self.shape()
        b, c = 7, 9
        self.group(num_bits=8, block_structure=[b, c])
        self.add("w.weight", "F8_E4M3", m, n)
        shape = self.rng.choice(((m, 1), (1,), (-(-m // b), -(-n // c))))
        self.scales("w.weight_scale", self.rng.choice(("F32", "BF16", "F16")), *shape)

    def integers(self, bits):
        rng, per = self.rng, 32 // bits
        self.group(num_bits=bits, block_structure=None)
        for i in range(2):
            m, n = self.shape()
            groups = rng.choice((1, n // 32))
            if groups == 1:
                n -= rng.choice((0, 0, 3, 5))
            kind = rng.choice(("BF16", "F16", "F32"))
            self.add(f"w{i}.weight_packed", "I32", m, -(-n // per))
            self.scales(f"w{i}.weight_scale", kind, m, groups)
            form = rng.choice(("I32", "I64"))
            self.put(f"w{i}.weight_shape", form, (2,),
                     struct.pack("<2i" if form == "I32" else "<2q", m, n))
            if rng.random() < 0.5:
                self.add(f"w{i}.weight_zero_point", "I32", -(-m // per), groups)

    def ct_fp4(self):
        self.group(num_bits=4, block_structure=None)
        m, n = self.shape()
        nv = self.rng.random() < 0.5
        self.add("w.weight_packed", "U8", m, n // 2)
        self.scales("w.weight_scale", "F8_E4M3" if nv else "U8", m, n // (16 if nv else 32))
        if nv:
            self.put("w.weight_global_scale", "F32", (1,), struct.pack("<f", 777.7))

    def gptq(self):
        rng = self.rng
        self.says.update(quant_method="gptq", bits=4, group_size=32)
        if rng.random() < 0.5:
            self.says["checkpoint_format"] = "gptq_v2"
        rows, groups = 8 * rng.randint(1, 6), rng.randint(1, 4)
        for i, columns in enumerate(self.two_of(8)):
            self.add(f"w{i}.qweight", "I32", rows // 8, columns)
            self.add(f"w{i}.qzeros", "I32", groups, columns // 8)
            self.scales(f"w{i}.scales", rng.choice(("F16", "BF16")), groups, columns)
            self.put(f"w{i}.g_idx", "I32", (rows,), struct.pack(
                f"<{rows}i", *(rng.randrange(groups) for _ in range(rows))))

    def awq(self):
        rng = self.rng
        rows = 4 * rng.randint(1, 12)
        size = rng.choice((-1, 16, 32))
        groups = 1 if size < 0 else -(-rows // size)
        self.says.update(quant_method="awq", bits=4, group_size=size, version="gemm")
        for i, columns in enumerate(self.two_of(8)):
            self.add(f"w{i}.qweight", "I32", rows, columns // 8)
            self.add(f"w{i}.qzeros", "I32", groups, columns // 8)
            self.scales(f"w{i}.scales", "F16", groups, columns)


def dense(tensors, config, kind):
    return Reader(tensors, config, kind).read()
