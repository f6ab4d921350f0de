#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write the checkpoint tree of a large job, of which nothing is real but the
headers: sparse files, and the strategies of both sides.

    make_big_tree.py [--ranks 1024] [--parameters 2000] [--stages 1]
                     [--hidden 4096] [--crc] DIRECTORY

    DIRECTORY/source/rank_N/net-1_10.ckpt    RANKS cards in STAGES stages
    DIRECTORY/source_strategys/              their strategy, a file a stage
    DIRECTORY/wanted_strategys/              the same for half as many cards

Every rank has PARAMETERS records: layers of four matrices and a vector, and
the moments of each, which are an optimizer shard.  The defaults take 8 GB of
disk, a block a header.  Standard library only.
"""

import argparse
import math
import os
import sys
from itertools import count, islice

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "..", "lib"))

from ms_formats import (CHUNK_BYTES, ELEMENT_BYTES, Layout, StageFile,  # noqa: E402
                        record_head, strategy_bytes)

DTYPE = "Float32"
# What a layer consists of: name, dims in units of `hidden`, tensor map on a
# mesh of data parallel by model parallel.
LAYER = [
    ("attention.qkv.weight", (3, 1), [0, -1]),
    ("attention.output.weight", (1, 1), [-1, 0]),
    ("feed_forward.up.weight", (4, 1), [0, -1]),
    ("feed_forward.down.weight", (1, 4), [-1, 0]),
    ("norm.gamma", (1,), [-1]),
]
MOMENTS = ("", "adam_m.", "adam_v.")
HOLE = 4096  # headers that lie no further apart are written together


def parameters(stage, number, hidden):
    """(name, whole dims, tensor map, moment or not) of a stage, in order."""
    def all_of_them():
        for layer in count():
            for prefix in MOMENTS:
                for name, units, tensor_map in LAYER:
                    yield (f"{prefix}backbone.stage_{stage}.layers.{layer}.{name}",
                           [u * hidden for u in units], tensor_map, prefix != "")
    return list(islice(all_of_them(), number))


def mesh_of(ranks):
    """[data parallel, model parallel], at most eight of the latter."""
    model = math.gcd(ranks, 8)
    return [ranks // model, model]


def layout(mesh, tensor_map, is_moment, dims):
    """The moments' first dimension is cut over some data parallel ranks too."""
    split = mesh[1] if tensor_map[0] == 0 else 1
    shard = math.gcd(mesh[0], dims[0] // split, 16)
    if is_moment and len(dims) > 1 and shard > 1:
        return Layout(mesh, tensor_map, mesh[1], shard)
    return Layout(mesh, tensor_map)


def slice_dims(lay, dims):
    result = [d // lay.dev_matrix[1] if axis == 0 else d
              for d, axis in zip(dims, lay.tensor_map)]
    if lay.opt_size:
        result[0] //= lay.opt_size
    return result


class Template:
    """What is to be written of a file: headers by offset, and its size."""

    def __init__(self):
        self.runs = []  # [offset, bytearray]
        self.size = 0

    def put(self, data):
        if self.runs:
            at, run = self.runs[-1]
            gap = self.size - at - len(run)
            if gap < HOLE:
                run += bytes(gap) + data
                self.size += len(data)
                return
        self.runs.append((self.size, bytearray(data)))
        self.size += len(data)

    def add(self, name, dims):
        left = math.prod(dims) * ELEMENT_BYTES[DTYPE]
        while True:
            chunk = min(left, CHUNK_BYTES)
            self.put(record_head(name, DTYPE, dims, chunk))
            self.size += chunk
            left -= chunk
            if not left:
                return

    def write(self, path):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            for at, run in self.runs:
                os.pwrite(fd, run, at)
            # The trailer, if there is one, is the end of the last run.
            os.ftruncate(fd, self.size)
        finally:
            os.close(fd)


def stage_template(params, mesh, crc):
    template = Template()
    for name, dims, tensor_map, is_moment in params:
        template.add(name, slice_dims(layout(mesh, tensor_map, is_moment, dims), dims))
    if crc:
        template.put(b"crc_num" + bytes(10))  # nobody could afford the right one
    return template


def write_strategies(folder, stages, mesh):
    os.makedirs(folder)
    for stage, params in enumerate(stages):
        layouts = {name: layout(mesh, tensor_map, is_moment, dims)
                   for name, dims, tensor_map, is_moment in params}
        with open(os.path.join(folder, f"strategy_stage_{stage}.ckpt"), "wb") as f:
            f.write(strategy_bytes(StageFile(stage, layouts)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--parameters", type=int, default=2000)
    parser.add_argument("--stages", type=int, default=1)
    parser.add_argument("--hidden", type=int, default=4096)
    parser.add_argument("--crc", action="store_true",
                        help="end the files in a CRC trailer (a wrong one)")
    parser.add_argument("directory")
    options = parser.parse_args()
    if options.ranks % (2 * options.stages) or options.hidden % 8:
        parser.error("STAGES times two has to divide RANKS, eight HIDDEN")

    each = options.ranks // options.stages
    stages = [parameters(stage, options.parameters, options.hidden)
              for stage in range(options.stages)]
    for stage, params in enumerate(stages):
        template = stage_template(params, mesh_of(each), options.crc)
        for rank in range(stage * each, (stage + 1) * each):
            folder = os.path.join(options.directory, "source", f"rank_{rank}")
            os.makedirs(folder)
            template.write(os.path.join(folder, "net-1_10.ckpt"))
    for which, ranks in (("source", each), ("wanted", each // 2)):
        write_strategies(os.path.join(options.directory, f"{which}_strategys"),
                         stages, mesh_of(ranks))


if __name__ == "__main__":
    main()
