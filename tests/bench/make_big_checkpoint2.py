#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write the Checkpoint 2.0 tree of a large job, of which nothing is real but the
headers and metadata.json.

    make_big_checkpoint2.py [--ranks 1024] [--parameters 2000] [--stages 1]
                            [--shard 4] [--hidden 4096] DIRECTORY

    DIRECTORY/latest_checkpointed_iteration.txt
    DIRECTORY/iteration_00000010/{model,opt}-R-N.safetensors, metadata.json, ...

A plain save: each rank writes all that it holds, with PARAMETERS in all (those of
make_big_tree.py) a stage, each cut over SHARD data parallel ranks besides.  The
defaults take 1 GB of disk, metadata.json 800 MB of it.  Standard library only.
"""

import argparse
import json
import math
import os
import struct

from make_big_tree import mesh_of, parameters

ITERATION = 10
DTYPE, BYTES = "float32", 4


def compact(value):
    return json.dumps(value, separators=(",", ":"))


class Layout:
    """How the ranks of a stage hold tensors of one tensor map."""

    def __init__(self, ranks, tensor_map, shard):
        data, model = mesh_of(len(ranks))
        self.ranks, self.mesh = ranks, [data // shard, shard, model]
        first = [0, 1] if tensor_map[0] == 0 else [1]
        self.map = [first, *tensor_map[1:]]
        self.splits = [math.prod(self.mesh[2 - a] for a in axes if a >= 0)
                       for axes in ([e] if isinstance(e, int) else e for e in self.map)]
        self.holders = {}
        for place, rank in enumerate(ranks):
            self.holders.setdefault(self.number(place), []).append(rank)

    def number(self, place):
        at = [place % self.mesh[2], place // self.mesh[2] % self.mesh[1]]
        result = 0
        for entry in self.map:
            for axis in [entry] if isinstance(entry, int) else entry:
                if axis >= 0:
                    result = result * self.mesh[2 - axis] + at[axis]
        return result

    def local(self, dims):
        return [d // s for d, s in zip(dims, self.splits)]

    def described(self, dims):
        local, seen, copies = self.local(dims), {}, []
        for place in range(len(self.ranks)):
            number = self.number(place)
            copies.append(seen.get(number, 0))
            seen[number] = copies[-1] + 1
        return compact({
            "properties": {"dtype": DTYPE, "replica_id": copies,
                           "allow_shape_mismatch": False, "allow_to_save": True},
            "global_shape": dims, "axis_fragmentations": self.splits,
            "layout": {"device_matrix": self.mesh, "tensor_map": self.map,
                       "interleaved_parallel": False, "alias_name": ["a", "b", "c"],
                       "rank_list": self.ranks},
            "chunk": [{"global_offset": [number], "local_shape": local}
                      for number in self.holders]})

    def stored(self, kind, world):
        """[(K, what storage_data says of it)]"""
        return [(number, compact([{"file_name": file_name(kind, rank, world),
                                   "storage_rank": rank, "rank_group": group}
                                  for rank in group]))
                for number, group in self.holders.items()]


def file_name(kind, rank, world):
    return f"{kind}-{rank:07}-{world:07}.safetensors"


class Job:
    def __init__(self, options):
        each = options.ranks // options.stages
        self.world, self.stages, self.layouts = options.ranks, [], {}
        for stage in range(options.stages):
            ranks = list(range(stage * each, (stage + 1) * each))
            self.stages.append((ranks, [
                (name, dims, self.layout(ranks, tensor_map, options.shard),
                 "opt" if moment else "model")
                for name, dims, tensor_map, moment
                in parameters(stage, options.parameters, options.hidden)]))

    def layout(self, ranks, tensor_map, shard):
        key = ranks[0], *tensor_map
        if key not in self.layouts:
            self.layouts[key] = Layout(ranks, tensor_map, shard)
        return self.layouts[key]

    def all_parameters(self):
        return (p for _, params in self.stages for p in params)

    def write_metadata(self, path):
        described, stored = {}, {}
        with open(path, "w", encoding="ascii", buffering=1 << 20) as f:
            between = '{"state_dict_metadata":{'
            for name, dims, layout, _ in self.all_parameters():
                key = layout, *dims
                if key not in described:
                    described[key] = layout.described(dims)
                f.write(f'{between}"{name}":{described[key]}')
                between = ","
            between = '},"storage_data":{'
            for name, _, layout, kind in self.all_parameters():
                key = layout, kind
                if key not in stored:
                    stored[key] = layout.stored(kind, self.world)
                for number, text in stored[key]:
                    f.write(f"{between}\"('{name}', ({number},))\":{text}")
                    between = ","
            f.write("}}")

    def write_files(self, folder):
        for ranks, params in self.stages:
            for kind in ("model", "opt"):
                data, size = header(params, kind)
                for rank in ranks:
                    write_sparse(os.path.join(folder, file_name(kind, rank, self.world)),
                                 data, size)


def header(params, kind):
    """The header of the ranks' file of a kind, and the size of the file."""
    entries, at = {"__metadata__": {"format": "ms"}}, 0
    for name, dims, layout, its_kind in sorted(params, key=lambda p: p[0]):
        if its_kind == kind:
            local = layout.local(dims)
            end = at + math.prod(local) * BYTES
            entries[name] = {"dtype": "F32", "shape": local, "data_offsets": [at, end]}
            at = end
    text = compact(entries).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text, 8 + len(text) + at


def write_sparse(path, data, size):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.pwrite(fd, data, 0)
        os.ftruncate(fd, size)
    finally:
        os.close(fd)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--parameters", type=int, default=2000)
    parser.add_argument("--stages", type=int, default=1)
    parser.add_argument("--shard", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=4096)
    parser.add_argument("directory")
    options = parser.parse_args()
    if options.ranks % options.stages or \
       mesh_of(options.ranks // options.stages)[0] % options.shard or \
       options.hidden % (8 * options.shard):
        parser.error("SHARD has to divide the data parallel ranks of a stage, and eight "
                     "times SHARD HIDDEN")

    folder = os.path.join(options.directory, f"iteration_{ITERATION:08}")
    os.makedirs(folder)
    job = Job(options)
    job.write_files(folder)
    with open(os.path.join(folder, "common.json"), "w", encoding="ascii") as f:
        json.dump({"epoch_num": None, "step_num": ITERATION, "global_step": ITERATION,
                   "loss_scale": None, "global_batch_size": None}, f, indent=4)
    job.write_metadata(os.path.join(folder, "metadata.json"))
    with open(os.path.join(options.directory, "latest_checkpointed_iteration.txt"), "w",
              encoding="ascii") as f:
        f.write(str(ITERATION))


if __name__ == "__main__":
    main()
