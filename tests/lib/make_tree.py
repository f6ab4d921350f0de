#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write a checkpoint tree for mounted tests, and what a mount of it must show.

    make_tree.py DIRECTORY

    DIRECTORY/source/rank_N/net_rank_N-3_40.ckpt   8 cards, dp2 x mp4
    DIRECTORY/source.ckpt                          their strategy
    DIRECTORY/wanted.ckpt                          4 cards, dp2 x mp2
    DIRECTORY/expected/rank_N/checkpoint_N.ckpt    the tree for these
    DIRECTORY/whole/rank_0/checkpoint_0.ckpt       the one for `none`

The expected files are cut from whole tensors, so nothing of the arithmetic
under test goes into them.  Standard library only.
"""

import math
import os
import random
import sys
from dataclasses import dataclass

from ms_formats import (ELEMENT_BYTES, Layout, Record, StageFile,
                        checkpoint_bytes, strategy_bytes)
from run_seed import random_bytes

SOURCE_MESH = [2, 4]
WANTED_MESH = [2, 2]
STEP = "3_40"


@dataclass
class Param:
    """A parameter: its whole tensor and how either side cuts it.

    A map holds an axis number for each dimension: 0 model parallel, 1 data
    parallel, -1 not split.  A shard is the (step, size) of the optimizer
    shard, which cuts dimension 0 once more over the data parallel ranks.
    None as a map: no strategy lists the parameter.
    """
    name: str
    dims: list
    dtype: str
    source_map: list = None
    wanted_map: list = None
    source_shard: tuple = (0, 0)
    wanted_shard: tuple = (0, 0)


# Scalars stand first: the converter moves what no strategy lists to the end.
PARAMS = [
    Param("epoch_num", [], "Int64"),
    Param("embedding.table", [96, 40], "Float32", [0, -1], [0, -1]),
    Param("block.up.weight", [64, 48], "Float16", [-1, 0], [-1, 0]),
    Param("block.down.weight", [48, 64], "BFloat16", [0, -1], [-1, 0]),
    Param("block.norm.gamma", [48], "Float32", [-1], [-1]),
    Param("block.sharded", [64, 24], "Float32", [0, -1], [0, -1], (4, 2)),
    Param("block.both_ways", [16, 64, 6], "Int8", [1, 0, -1], [0, 1, -1]),
    Param("adam_m.block.sharded", [64, 24], "Float32", [0, -1], [-1, 0],
          (4, 2), (2, 2)),
    Param("large.columns", [1024, 1536], "Float32", [-1, 0], [-1, 0]),
    Param("large.rows", [1536, 1024], "Float32", [0, -1], [0, -1]),
    Param("large.turned", [1000, 1024], "Float16", [-1, 0], [0, -1]),
    Param("learning_rate", [], "Float32"),
    Param("loss_scale", [1], "Float32"),
    Param("flags", [5], "Bool"),
]


def cut(content, dims, width, starts, sizes):
    """The box `starts`, `sizes` of a C-order tensor of `width`-byte elements."""
    if not dims:
        return content
    row = width
    for dim in dims[1:]:
        row *= dim
    first = starts[0]
    if sizes[1:] == dims[1:]:
        return content[row * first:row * (first + sizes[0])]
    places = range(row * first, row * (first + sizes[0]), row)
    if len(dims) == 2:
        begin, end = width * starts[1], width * (starts[1] + sizes[1])
        return b"".join([content[at + begin:at + end] for at in places])
    return b"".join(cut(content[at:at + row], dims[1:], width, starts[1:], sizes[1:])
                    for at in places)


def box(dims, mesh, tensor_map, shard, rank):
    """(starts, sizes) of the slice that `rank` of a 2-D mesh holds."""
    coordinate = {0: rank % mesh[1], 1: rank // mesh[1]}
    split = {0: mesh[1], 1: mesh[0]}
    starts, sizes = [], []
    for dim, axis in zip(dims, tensor_map):
        size = dim if axis < 0 else dim // split[axis]
        sizes.append(size)
        starts.append(0 if axis < 0 else size * coordinate[axis])
    if shard[1]:
        sizes[0] //= shard[1]
        starts[0] += sizes[0] * coordinate[1]
    return starts, sizes


def records(params, tensors, mesh, which, rank):
    """{name: Record} of a rank's file; `which` is "source" or "wanted"."""
    result = {}
    for p in params:
        tensor_map = getattr(p, which + "_map")
        dims, content = p.dims, tensors[p.name]
        if tensor_map is not None:
            starts, dims = box(dims, mesh, tensor_map,
                               getattr(p, which + "_shard"), rank)
            content = cut(content, p.dims, ELEMENT_BYTES[p.dtype], starts, dims)
        result[p.name] = Record(tuple(dims), p.dtype, content)
    return result


def strategy(params, which, mesh):
    stage = StageFile(0)
    for p in params:
        tensor_map = getattr(p, which + "_map")
        if tensor_map is not None:
            step, size = getattr(p, which + "_shard")
            stage.layouts[p.name] = Layout(mesh, tensor_map, step, size)
    return strategy_bytes(stage)


def write(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(data)
    os.chmod(path, 0o400)  # as MindSpore leaves its files


def random_tree(numbers, n_params, largest):
    """(params, source mesh, wanted mesh) with tensors of up to `largest` bytes
    cut in any way that a Param can say."""
    meshes = [numbers.choice(([1, 2], [2, 2], [2, 4], [4, 2])) for _ in "sw"]
    params = [Param("step_num", [], "Int64")]
    for i in range(n_params):
        dtype = numbers.choice(("Float32", "Float16", "BFloat16", "Int8"))
        p = Param(f"layer.{i}.weight", [], dtype)
        # Every dimension can be cut by both axes of either mesh.
        elements = int(2 ** numbers.uniform(13, largest.bit_length() - 1))
        n_dims = numbers.choice((1, 2, 2, 3))
        for left in range(n_dims, 0, -1):
            p.dims.append(max(round(elements ** (1 / left) / 32), 1) * 32)
            elements //= p.dims[-1]
        for which, mesh in zip(("source", "wanted"), meshes):
            axes = numbers.sample([0, 1] + [-1] * n_dims, n_dims)
            setattr(p, which + "_map", axes)
            if 0 in axes and 1 not in axes and mesh[0] > 1 and \
                    numbers.random() < 0.4:
                setattr(p, which + "_shard", (mesh[1], mesh[0]))
        params.append(p)
    params.append(Param("loss_scale", [1], "Float32"))
    return params, *meshes


def write_tree(directory, params, source_mesh, wanted_mesh, numbers):
    tensors = {}
    for p in params:
        n = ELEMENT_BYTES[p.dtype] * math.prod(p.dims)
        tensors[p.name] = random_bytes(numbers, n) if p.dtype != "Bool" else \
            bytes(numbers.randrange(2) for _ in range(n))

    listed_first = sorted(params, key=lambda p: p.source_map is None)
    for rank in range(source_mesh[0] * source_mesh[1]):
        write(f"{directory}/source/rank_{rank}/net_rank_{rank}-{STEP}.ckpt",
              checkpoint_bytes(records(params, tensors, source_mesh, "source",
                                       rank)))
    for rank in range(wanted_mesh[0] * wanted_mesh[1]):
        write(f"{directory}/expected/rank_{rank}/checkpoint_{rank}.ckpt",
              checkpoint_bytes(records(listed_first, tensors, wanted_mesh,
                                       "wanted", rank)))
    write(f"{directory}/whole/rank_0/checkpoint_0.ckpt", checkpoint_bytes(
        {p.name: Record(tuple(p.dims), p.dtype, tensors[p.name])
         for p in listed_first}))
    write(f"{directory}/source.ckpt", strategy(params, "source", source_mesh))
    write(f"{directory}/wanted.ckpt", strategy(params, "wanted", wanted_mesh))


def main(directory):
    write_tree(directory, PARAMS, SOURCE_MESH, WANTED_MESH, random.Random(20))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
