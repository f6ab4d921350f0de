#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records what MindSpore's rank_list_for_transform says to random layouts.

usage: make_rank_lists.py [FILE]        (default: rank_lists.json beside it)

Every line of FILE is one pair: two layouts as a JSON strategy holds them (maps
of several mesh axes as lists) and, for each rank of the destination, the
source ranks that the converter loads; `null` where it raises instead.  The
dst of null is no strategy.  Made with MindSpore 2.10.0.
"""
import json
import math
import os
import random
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "..", "..", "lib"))

from mindspore import rank_list_for_transform  # noqa: E402
from ms_formats import Layout, StageFile, strategy_bytes  # noqa: E402

PAIRS = 320
SEED = 20
DEVICES = (1, 2, 4, 6, 8, 8, 8, 12, 16, 16)


def random_mesh(rng, devices):
    mesh = []
    while devices > 1:
        size = rng.choice([n for n in range(2, devices + 1) if devices % n == 0])
        mesh.append(size)
        devices //= size
    rng.shuffle(mesh)
    if not mesh or rng.random() < 0.2:
        mesh.insert(rng.randrange(len(mesh) + 1), 1)
    return mesh


def random_layout(rng, devices, rank):
    """A layout of a tensor of `rank` dimensions over so many devices."""
    mesh = random_mesh(rng, devices)
    nested = rng.random() < 0.35
    entries = [[] for _ in range(rank)]
    for axis in rng.sample(range(len(mesh)), len(mesh)):
        entry = rng.choice(entries)
        if rng.random() < 0.6 and (nested or not entry):
            entry.append(axis)
    if nested:
        tensor_map = [entry or [-1] for entry in entries]
    else:
        tensor_map = [entry[0] if entry else -1 for entry in entries]
    layout = Layout(mesh, tensor_map)
    add_shard(rng, layout, {len(mesh) - 1 - a for e in entries for a in e})
    return layout


def add_shard(rng, layout, used):
    """An optimizer shard over the ranks that the map leaves equal, or none."""
    mesh = layout.dev_matrix
    free = [i for i, size in enumerate(mesh) if i not in used and size > 1]
    group = math.prod(mesh[i] for i in free)
    if group == 1 or rng.random() < 0.4:
        return
    last = sum((mesh[i] - 1) * math.prod(mesh[i + 1:]) for i in free)
    sizes = [n for n in range(2, group + 1) if group % n == 0]
    layout.opt_step = last // (group - 1)
    layout.opt_size = rng.choice(sizes + [-1] * len(sizes))


def ask(directory, source, destination):
    """The converter's lists, rank by rank; None where it raises."""
    paths = []
    for name, layout in (("src", source), ("dst", destination)):
        paths.append(os.path.join(directory, name + ".ckpt"))
        if layout:
            with open(paths[-1], "wb") as f:
                f.write(strategy_bytes(StageFile(0, {"w": layout})))
    ranks = math.prod(destination.dev_matrix) if destination else 1
    try:
        return [[int(r) for r in rank_list_for_transform(
                    rank, paths[0], paths[1] if destination else None)]
                for rank in range(ranks)]
    except ValueError:
        return None


def as_json(layout):
    return layout and {"dev_matrix": layout.dev_matrix,
                       "tensor_map": layout.tensor_map,
                       "opt_weight_shard_step": layout.opt_step,
                       "opt_weight_shard_size": layout.opt_size}


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(
        os.path.dirname(os.path.abspath(__file__)), "rank_lists.json")
    rng = random.Random(SEED)
    lines = []
    with tempfile.TemporaryDirectory() as directory:
        for _ in range(PAIRS):
            rank = rng.randint(1, 3)
            source = random_layout(rng, rng.choice(DEVICES), rank)
            destination = None if rng.random() < 0.08 else random_layout(
                rng, rng.choice(DEVICES), rank)
            lists = ask(directory, source, destination)
            lines.append(json.dumps({"src": as_json(source),
                                     "dst": as_json(destination),
                                     "ranks": lists}, separators=(",", ":")))
    with open(out, "w", encoding="ascii") as f:
        f.write("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    main()
