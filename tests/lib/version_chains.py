# SPDX-License-Identifier: Apache-2.0
"""Directories of weight versions in plain Python, as slime, miles and vime write them for
inference engines: full ones, and deltas by xor or overwrite; and the genuine ones of
data/versions.

A second implementation that shares nothing with the program under test.  Standard library
only: frames of zstd have stored and repeated blocks, and checksums are Adler-32.
"""

import functools
import json
import math
import os
import random
import struct
import zlib

import packed
from run_seed import random_bytes
from safetensors_format import safetensors_bytes

INDEX = "model.safetensors.index.json"
BLOCK = 128 << 10
WIDTH = {"BF16": 2, "F32": 4, "F8_E4M3": 1, "I64": 8}


expected = functools.partial(packed.expected, "versions")
unpack = functools.partial(packed.unpack, "versions")


def version_name(number):
    return f"weight_v{number:06d}"


# ---- frames ----

def frame(data, window=9):
    """A frame of zstd with the size of its content; a window of 2**(10 + window) bytes."""
    out = [b"\x28\xb5\x2f\xfd", bytes((0xC0, window << 3)), struct.pack("<Q", len(data))]
    for at in range(0, max(len(data), 1), BLOCK):
        part = data[at:at + BLOCK]
        last = at + BLOCK >= len(data)
        repeated = len(part) > 3 and part == part[:1] * len(part)
        head = last | repeated << 1 | len(part) << 3
        out += [head.to_bytes(3, "little"), part[:1] if repeated else part]
    return b"".join(out)


def xor_delta(old, new):
    size = len(new)
    return (int.from_bytes(old, "big") ^ int.from_bytes(new, "big")).to_bytes(size, "big")


def overwrite_delta(old, new):
    places = [i for i, (a, b) in enumerate(zip(old, new)) if a != b]
    return struct.pack(f"<I{len(places)}I", len(places), *places) + bytes(
        new[i] for i in places)


FORMS = {"xor": xor_delta, "overwrite": overwrite_delta}


def adler32(data):
    return f"{zlib.adler32(data):08x}"


# ---- versions ----

def write_index(directory, metadata, weight_map):
    with open(os.path.join(directory, INDEX), "w", encoding="utf-8") as f:
        json.dump({"metadata": metadata, "weight_map": weight_map}, f)


def write_files(directory, files, metadata, sums=None):
    """files: {name: {tensor: (type, shape, bytes)}}"""
    os.makedirs(directory, exist_ok=True)
    for name, tensors in files.items():
        with open(os.path.join(directory, name), "wb") as f:
            f.write(safetensors_bytes(tensors, {t: sums[t] for t in tensors if t in sums}
                                      if sums is not None else {"format": "pt"}))
    write_index(directory, metadata, {t: n for n, ts in files.items() for t in ts})


def spread(tensors, n, first):
    """Files of n parts, of which none is empty."""
    parts = [dict(list(tensors.items())[i::n]) for i in range(n)]
    parts = [p for p in parts if p]
    return {f"model-{i + first:05d}-of-{len(parts):05d}.safetensors": p
            for i, p in enumerate(parts)}


def write_full(directory, tensors, parts=2, note="base"):
    if parts == 0:
        os.makedirs(directory, exist_ok=True)
        with open(os.path.join(directory, "model.safetensors"), "wb") as f:
            f.write(safetensors_bytes(tensors, {"format": "pt"}))
    else:
        write_files(directory, spread(tensors, parts, 1), {"total_size": 1})
    with open(os.path.join(directory, "config.json"), "w", encoding="utf-8") as f:
        json.dump({"model_type": "test", "note": note}, f)


def write_delta(root, number, old, new, form="xor", ranks=2, **damage):
    """damage: {tensor: function of its frame}, `sums`: {tensor: checksum or None},
    `metadata`: keys of the index"""
    changed = {name: v for name, v in new.items() if v[2] != old[name][2]}
    frames = {name: damage.get("frames", {}).get(name, frame)(FORMS[form](old[name][2], v[2]))
              for name, v in changed.items()}
    sums = {name: adler32(v[2]) for name, v in changed.items()}
    for name, sum_ in damage.get("sums", {}).items():
        sums.update({name: sum_})
    metadata = {"version": f"{number:06d}", "base_version": f"{number - 1:06d}",
                "delta_encoding": form, "compression_format": "zstd",
                "checksum_format": "adler32", **damage.get("metadata", {})}
    directory = os.path.join(root, version_name(number))
    write_files(directory,
                spread({n: ("U8", (len(f),), f) for n, f in frames.items()}, ranks, 0),
                metadata, {n: s for n, s in sums.items() if s})
    return directory


# ---- random ones ----

def random_model(draw, largest=3000):
    tensors = {}
    for i in range(draw.randint(2, 9)):
        dtype = draw.choice(sorted(WIDTH))
        rows = draw.choice((0, 1, 1, 7, 64, draw.randint(1, largest)))
        shape = draw.choice(((rows,), (rows, 3), (2, rows), ()))
        tensors[f"model.layers.{i}.weight"] = (
            dtype, shape, random_bytes(draw, math.prod(shape) * WIDTH[dtype]))
    return tensors


def random_change(draw, tensors):
    new = dict(tensors)
    for name, (dtype, shape, data) in tensors.items():
        if not data or draw.random() < 0.3:
            continue
        some = bytearray(data)
        for _ in range(draw.choice((1, 1, 5, 1 + len(data) // 20))):
            some[draw.randrange(len(some))] = draw.randrange(256)
        new[name] = (dtype, shape, bytes(some))
    return new


class RandomChain:
    """A base, and versions on it, of which some are full."""

    def __init__(self, seed, largest=3000):
        draw = random.Random(seed)
        self.base = random_model(draw, largest)
        self.base_parts = draw.choice((0, 1, 2, 3))
        self.versions = []  # (what it is, ranks or parts, tensors)
        now = self.base
        for _ in range(draw.randint(1, 7)):
            kind = draw.choice(("xor", "xor", "overwrite", "overwrite", "full"))
            now = random_change(draw, now)
            self.versions.append((kind, draw.choice((1, 2, 4)), now))

    def write(self, root):
        """(directory of the versions, directory of the base)"""
        base, run = os.path.join(root, "base"), os.path.join(root, "run")
        write_full(base, self.base, self.base_parts)
        os.makedirs(run)
        old = self.base
        for number, (kind, parts, new) in enumerate(self.versions, 1):
            if kind == "full":
                write_full(os.path.join(run, version_name(number)), new, parts % 4,
                           f"v{number}")
            else:
                write_delta(run, number, old, new, kind, parts)
            old = new
        return run, base

    def model(self, number):
        return self.versions[number - 1][2]

    def describe(self):
        return " ".join(kind for kind, _, _ in self.versions)
