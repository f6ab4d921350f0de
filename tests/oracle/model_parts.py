#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whole models in parts, against the tools that read and write them.

The genuine 8-card checkpoint of tests/data/demo is shown as a model for the
Hugging Face tools, whose library then opens every tensor through the index; and
MindSpore's unified_safetensors makes its own form of it, from which the rank
files are shown again.
"""

import os
import shutil
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "lib")]
import rsh_mount  # noqa: E402
from ms_formats import read_checkpoint  # noqa: E402
from safetensors_format import Tensors, read_model, values_of  # noqa: E402

DEMO = os.path.join(HERE, "..", "data", "demo")
SRC = os.path.join(DEMO, "strategy_8_cards.ckpt")
DST = os.path.join(DEMO, "strategy_4_cards.ckpt")
SOURCE = os.path.join(DEMO, "checkpoint")


def whole_model():
    with rsh_mount.Mounted(SOURCE, src_strategy=SRC) as mount:
        return values_of(read_checkpoint(mount.rank_file(0)))


def check_hf(whole):
    """Every tensor, by the library, through the index."""
    from safetensors import safe_open
    with rsh_mount.Mounted(SOURCE, src_strategy=SRC,
                           extra=["--format", "hf", "--part-size", "20KB",
                                  "--optimizer", "keep"]) as mount:
        index, _ = read_model(mount.path)
        files = set(index["weight_map"].values())
        assert len(files) > 1, f"one part only: {files}"
        found = {}
        for name, file in index["weight_map"].items():
            with safe_open(os.path.join(mount.path, file), framework="np") as f:
                assert f.metadata() == {"format": "pt"}, f.metadata()
                found[name] = f.get_tensor(name)
        assert set(found) == set(whole), sorted(set(found) ^ set(whole))
        for name, array in found.items():
            assert array.shape == whole[name][1], name
            assert array.tobytes() == whole[name][2], name


def save_tree(ms, root):
    """The tree once more, as MindSpore saves safetensors."""
    for rank in sorted(os.listdir(SOURCE)):
        (name,) = os.listdir(os.path.join(SOURCE, rank))
        records = ms.load_checkpoint(os.path.join(SOURCE, rank, name))
        os.makedirs(os.path.join(root, rank))
        ms.save_checkpoint(
            [{"name": n, "data": p} for n, p in records.items()],
            os.path.join(root, rank, name.replace(".ckpt", ".safetensors")),
            format="safetensors")


def values_shown(mount):
    found = {}
    for rank in os.listdir(mount.path):
        (name,) = os.listdir(os.path.join(mount.path, rank))
        with open(os.path.join(mount.path, rank, name), "rb") as f:
            found[rank] = Tensors(f.read()).values()
    return found


def check_unified(ms, root, whole):
    """From unified_safetensors' parts: what the job's own files give."""
    tree, unified = os.path.join(root, "tree"), os.path.join(root, "unified")
    save_tree(ms, tree)
    ms.unified_safetensors(tree, SRC, unified)
    index, parts = read_model(unified, "param_name_map.json")
    assert index["weight_map"] and parts
    form = ["--format", "safetensors"]
    with rsh_mount.Mounted(unified, dst_strategy=DST, extra=form) as mount:
        found = values_shown(mount)
    with rsh_mount.Mounted(tree, src_strategy=SRC, dst_strategy=DST, extra=form) as mount:
        expected = values_shown(mount)
    assert set(found) == set(expected)
    for rank, values in found.items():
        for name in index["weight_map"]:
            assert values[name] == expected[rank][name], f"{rank}: {name}"
    with rsh_mount.Mounted(unified, extra=form) as mount:
        (model,) = values_shown(mount).values()
        missing = {n for n in whole if n not in model and not n.startswith("accu_grads")}
        assert not missing, f"lost: {sorted(missing)}"
        for name, value in model.items():
            assert value == whole[name], name


def main():
    rsh_mount.require_oracle()
    rsh_mount.require_mount()
    os.environ["GLOG_v"] = "4"
    import mindspore
    tap = rsh_mount.Tap(2)
    root = tempfile.mkdtemp(prefix="reshardfs-parts-")
    try:
        whole = whole_model()
        with tap.test("the library opens a model through its index"):
            check_hf(whole)
        with tap.test("rank files of what unified_safetensors wrote"):
            check_unified(mindspore, root, whole)
    finally:
        shutil.rmtree(root)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
