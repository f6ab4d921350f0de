# SPDX-License-Identifier: Apache-2.0
"""The genuine trees of Megatron-LM and MindSpeed-LLM in data/megatron."""

import functools
import os

import packed
from dcp_trees import archive, made, pickled, rebuilt

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "megatron")
FILE = "model_optim_rng.pt"
TRACKER = "latest_checkpointed_iteration.txt"


expected = functools.partial(packed.expected, "megatron", files=("expected.json", "more.json"))
unpack = functools.partial(packed.unpack, "megatron", archives=("trees.tar.xz", "states.tar.xz"))


def step_of(root):
    """The directory of its step that is to be shown."""
    with open(os.path.join(root, TRACKER), encoding="ascii") as f:
        number = f.read().strip()
    return os.path.join(root, number if number == "release" else f"iter_{int(number):07}")


def files_of(root):
    """The files of all ranks of that step, ascending."""
    step = step_of(root)
    return [os.path.join(step, name, FILE) for name in sorted(os.listdir(step))]


def model_bytes(args, chunks, **more):
    """A file of a rank: arguments, and {"model": {name: (dtype, size, data)}} or model0, ..."""
    tree, stored = {"args": made("argparse", "Namespace", **args), "checkpoint_version": 3.0,
                    "iteration": 1, **more}, []
    for chunk, tensors in chunks.items():
        tree[chunk] = {}
        for name, tensor in tensors.items():
            tree[chunk][name] = rebuilt(*tensor, key=str(len(stored)))
            stored.append(tensor[2])
    return archive([("data.pkl", pickled(tree, 2)), ("byteorder", b"little"),
                    *((f"data/{i}", data) for i, data in enumerate(stored)),
                    ("version", b"3\n")])
