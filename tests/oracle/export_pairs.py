#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exported trees are those that transform_checkpoints writes, and `verify` says
so of the converter's own trees and of manifests; a byte that is not the
converter's is found.

A few pairs are enough: how bytes are computed is what random_pairs.py compares
through mounts, and an export reads what a mount reads.
"""

import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from demands import check, write  # noqa: E402
from layouts import cell, splits  # noqa: E402
from ms_formats import Layout, StageFile, strategy_bytes  # noqa: E402
from rsh_mount import (Tap, hash_tree, require_oracle, reshardfs_program,  # noqa: E402
                       tree_difference)

SHAPES = {"up.weight": (16, 24), "down.weight": (8, 32), "norm.gamma": (24,),
          "moments.up.weight": (16, 24)}
LAYOUTS = {
    "dp2mp4": ([2, 4], {"up.weight": [0, -1], "down.weight": [-1, 0], "norm.gamma": [-1],
                        "moments.up.weight": [0, -1]}),
    "mp4": ([4], {"up.weight": [-1, 0], "down.weight": [0, -1], "norm.gamma": [-1],
                  "moments.up.weight": [0, -1]}),
    "mp2dp2": ([2, 2], {"up.weight": [1, -1], "down.weight": [-1, 1], "norm.gamma": [-1],
                        "moments.up.weight": [0, 1]}),
}
PAIRS = [("dp2mp4", "mp4", "ckpt"), ("mp4", "dp2mp4", "ckpt"), ("dp2mp4", None, "ckpt"),
         (None, "mp2dp2", "ckpt"), ("dp2mp4", "mp2dp2", "safetensors"),
         ("mp4", None, "safetensors")]


def program(*words):
    got = subprocess.run([reshardfs_program(), *words, "--json"], capture_output=True,
                         check=False, stdin=subprocess.DEVNULL)
    check(got.returncode in (0, 1), (words, got.stdout, got.stderr))
    return got.returncode, json.loads(got.stdout)


class Oracle:
    def __init__(self):
        os.environ["GLOG_v"] = "4"
        import mindspore
        import numpy
        self.ms, self.np = mindspore, numpy

    def save(self, root, layouts, form):
        """A tree of random slices, each rank's by the layouts; None: whole."""
        mesh = LAYOUTS[layouts][0] if layouts else [1]
        rng = self.np.random.default_rng(7)
        slices = {}
        for rank in range(int(self.np.prod(mesh))):
            params = []
            for name, dims in SHAPES.items():
                layout = Layout(mesh, LAYOUTS[layouts][1][name] if layouts else [-1] * len(dims))
                shape = tuple(d // c for d, c in zip(dims, splits(layout)))
                data = slices.setdefault((name, cell(layout, rank)), rng.standard_normal(shape))
                tensor = self.ms.Tensor(data.astype(self.np.float32))
                params.append({"name": name, "data": self.ms.Parameter(tensor, name=name)})
            path = os.path.join(root, f"rank_{rank}", "net-1_1")
            os.makedirs(os.path.dirname(path))
            self.ms.save_checkpoint(params, path + "." + form, append_dict={"step_num": rank},
                                    format=form)

    def convert(self, source, target, src, dst, form):
        os.makedirs(target)
        self.ms.transform_checkpoints(source, target, "checkpoint_", src, dst,
                                      output_format=form)


def strategy(directory, name):
    if not name:
        return None
    mesh, maps = LAYOUTS[name]
    path = os.path.join(directory, name + ".ckpt")
    return write(path, strategy_bytes(StageFile(0, {n: Layout(mesh, m) for n, m in maps.items()})))


def flip(path):
    with open(path, "r+b") as f:
        f.seek(-9, os.SEEK_END)
        byte = f.read(1)
        f.seek(-1, os.SEEK_CUR)
        f.write(bytes([byte[0] ^ 0x40]))
        return f.tell() - 1


def compare(oracle, directory, pair):
    src, dst = (strategy(directory, name) for name in pair[:2])
    source, converted, exported = (os.path.join(directory, n) for n in ("s", "c", "e"))
    oracle.save(source, pair[0], pair[2])
    oracle.convert(source, converted, src, dst, pair[2])
    words = ["--src-strategy", src or "none", "--dst-strategy", dst or "none",
             "--format", pair[2]]
    check(program("export", source, exported, *words)[0] == 0, "export")
    found, expected = hash_tree(exported), hash_tree(converted)
    manifest = "reshardfs-manifest.jsonl"
    check(found.pop(manifest), "no manifest")
    lines = tree_difference(expected, found)
    check(not lines and found, lines)
    manifest = os.path.join(exported, manifest)
    for operands in ([source, converted, *words], [manifest, converted]):
        check(program("verify", *operands)[1]["good"], operands)
    bad = os.path.join(converted, sorted(expected)[-1])
    place = flip(bad)
    status, said = program("verify", source, converted, *words)
    check(status == 1 and [(p["path"], p["offset"]) for p in said["problems"]] == [(bad, place)],
          said)
    status, said = program("verify", manifest, converted)
    check(status == 1 and [p["path"] for p in said["problems"]] == [bad], said)


def main():
    require_oracle()
    oracle = Oracle()
    tap = Tap(len(PAIRS))
    for pair in PAIRS:
        with tempfile.TemporaryDirectory(prefix="reshardfs-export-") as directory, \
                tap.test(f"{pair[0]} to {pair[1]}, {pair[2]}"):
            compare(oracle, directory, pair)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
