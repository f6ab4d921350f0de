# SPDX-License-Identifier: Apache-2.0
"""Whole tensors of a directory of per-rank files, read in plain Python: what each pickle
says of mesh, placements and sizes is believed, and a contradiction is a ValueError.

It shares nothing with the program under test.  Nothing that a pickle names is called.
"""

import itertools
import math
import os
import re

from dcp_trees import TYPES, Called
from rank_pickles import Object, TorchFile
from rank_trees import Placement, held

OF_STORAGE = {storage: short for short, (_, _, storage) in TYPES.items() if storage}
OF_NAME = {name: short for short, (_, name, _) in TYPES.items()}


def demand(passed, said):
    if not passed:
        raise ValueError(said)


class _File:
    """The tensors of one rank: {name: (type, whole shape, axes, row-major bytes)}"""

    def __init__(self, path):
        self.file = TorchFile(path)
        self.stored = dict(self.file.entries)

    def tensor(self, called):
        """(type, sizes, row-major bytes)"""
        demand(isinstance(called, Called), "no tensor")
        function, args = called.call
        demand((function.module, function.name) == ("torch._utils", "_rebuild_tensor_v2"),
               "another function")
        storage, offset, sizes, strides = args[:4]
        dtype = OF_STORAGE[storage.words[1].name]
        width, data = TYPES[dtype][0], self.stored["data/" + storage.words[2]]
        demand(len(data) == width * storage.words[4] and len(sizes) == len(strides) and
               all(0 <= n < 1 << 40 for n in (offset, *sizes, *strides)), "numbers")
        demand(math.prod(sizes) < 1 << 24, "too large for here")
        found = [data[width * at:width * (at + 1)] for at in (
            offset + sum(i * step for i, step in zip(index, strides))
            for index in itertools.product(*map(range, sizes if 0 not in sizes else (0,))))]
        demand(all(len(one) == width for one in found), "beyond its storage")
        return dtype, tuple(sizes), b"".join(found)

    def mesh(self, obj):
        """(shape, coordinate)"""
        state = obj.state
        at = state["_coordinate_on_dim"]
        if "_layout" in state:
            layout = state["_layout"].state
            if "axes" in layout:
                shape = [math.prod(axis.state["shape"]) for axis in layout["axes"]]
            else:
                whole = layout["shape"]
                shape = [n if isinstance(n, int) else math.prod(n) for n in
                         (whole if isinstance(whole, tuple) else (whole,))]
        else:
            shape = self.tensor(state["mesh"])[1]
        demand(at is not None and len(at) == len(shape) and all(
            0 <= i < n for i, n in zip(at, shape)), "coordinate")
        return tuple(shape), tuple(at)

    def placed(self, called):
        function, cls, (_, _, shape, *_), state = called.call[1]
        if cls.name == "ShardedTensor":
            return self.sharded(state)
        demand(cls.name == "DTensor", "another class")
        state = state[1] if isinstance(state, tuple) else state
        spec = state["_spec"].state
        dtype, sizes, data = self.tensor(state["_local_tensor"])
        meta = spec["tensor_meta"].args
        whole = meta[0].call[1][0]
        demand(tuple(whole) == tuple(shape) and OF_NAME[meta[2].name] == dtype, "whole")
        mesh, at = self.mesh(spec["mesh"])
        placements = []
        for p in spec["placements"]:
            inner = p.state or {}
            demand(p.cls.name in ("Shard", "_StridedShard", "Replicate"), "placement")
            dim = inner.get("dim", 0) if p.cls.name != "Replicate" else 0
            demand(p.cls.name == "Replicate" or -len(whole) <= dim < len(whole), "dim")
            factor = inner["split_factor"] if p.cls.name == "_StridedShard" else 1
            demand(0 < factor <= 65536, "factor")
            placements.append(Placement(p.cls.name, dim % max(len(whole), 1), factor))
        demand(len(placements) == len(mesh), "placements")
        order = spec.get("shard_order")
        order = order and not spec.get("use_strided_shard_as_shard_order") and \
            [tuple(entry.args) for entry in order] or None
        axes = held(whole, mesh, at, placements, order)
        lengths = tuple(map(len, axes))
        demand(lengths == sizes or not (math.prod(lengths) or math.prod(sizes)), "local size")
        return dtype, tuple(whole), axes, data

    def sharded(self, state):
        local, metadata = state[:2]
        shape = metadata.state["size"].call[1][0]
        dtype, axes, data = None, [range(0)] * len(shape), b""
        demand(len(local) < 2, "several parts")
        for part in local:
            box = part.state[1]["metadata"].state[1]
            dtype, sizes, data = self.tensor(part.state[1]["tensor"])
            demand(tuple(box["shard_sizes"]) == sizes, "sizes")
            axes = [range(o, o + n) for o, n in zip(box["shard_offsets"], sizes)]
            demand(all(a.start >= 0 and a.stop <= n for a, n in zip(axes, shape)), "box")
        return dtype, tuple(shape), axes, data

    def tensors(self, value=None, name=""):
        value = self.file.value if value is None else value
        if isinstance(value, dict):
            for key, inner in value.items():
                yield from self.tensors(inner, f"{name}.{key}" if name else str(key))
        elif isinstance(value, Called) and len(value.call[1]) == 4:
            yield name, self.placed(value)
        elif isinstance(value, Called) and getattr(value.call[0], "name", "") == "encode":
            return  # bytes
        elif isinstance(value, Called):
            dtype, sizes, data = self.tensor(value)
            yield name, (dtype, sizes, None, data)
        else:
            demand(isinstance(value, (int, float, str, list, tuple, type(None))) and
                   not isinstance(value, Object), "an object")


def read_ranks(root, pattern=r"^model_.*\.pt$"):
    """{name: (type, shape, bytes)} of the files like the pattern"""
    parts, ranks = {}, 0
    for name in sorted(os.listdir(root)):
        if re.match(pattern, name):
            ranks += 1
            for tensor, part in _File(os.path.join(root, name)).tensors():
                parts.setdefault(tensor, []).append(part)
    found = {}
    for name, held_by in parts.items():
        known = [p for p in held_by if p[0]]
        demand(known and len({(p[1], p[2] is None) for p in held_by}) == 1 and
               len({p[0] for p in known}) == 1, f"{name}: contradiction")
        dtype, shape, axes, data = known[0]
        if axes is None:
            demand(len(held_by) == ranks and all(p[3] == data for p in held_by),
                   f"{name}: plain")
            found[name] = dtype, shape, data
            continue
        width, elements = TYPES[dtype][0], {}
        demand(math.prod(shape) < 1 << 24, "too large for here")
        for _, _, axes, data in known:
            for i, index in enumerate(itertools.product(*axes)):
                one = data[width * i:width * (i + 1)]
                demand(elements.setdefault(index, one) == one, f"{name}: copies differ")
        whole = [elements.get(index) for index in itertools.product(*map(range, shape))]
        demand(None not in whole, f"{name}: elements are missing")
        found[name] = dtype, shape, b"".join(whole)
    return found
