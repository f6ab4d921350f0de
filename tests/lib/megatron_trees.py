# SPDX-License-Identifier: Apache-2.0
"""The genuine trees of Megatron-LM and MindSpeed-LLM in data/megatron."""

import json
import os
import tarfile

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "megatron")
FILE = "model_optim_rng.pt"
TRACKER = "latest_checkpointed_iteration.txt"


def expected():
    with open(os.path.join(DATA, "expected.json"), encoding="utf-8") as f:
        cases = json.load(f)
    with open(os.path.join(DATA, "states.json"), encoding="utf-8") as f:
        for name, more in json.load(f).items():
            cases.setdefault(name, {}).update(more)
    return cases


def unpack(directory):
    """The genuine trees, in a directory."""
    for name in "trees.tar.xz", "states.tar.xz":
        with tarfile.open(os.path.join(DATA, name)) as tar:
            tar.extractall(directory)
    return directory


def step_of(root):
    """The directory of its step that is to be shown."""
    with open(os.path.join(root, TRACKER), encoding="ascii") as f:
        number = f.read().strip()
    return os.path.join(root, number if number == "release" else f"iter_{int(number):07}")


def files_of(root):
    """The files of all ranks of that step, ascending."""
    step = step_of(root)
    return [os.path.join(step, name, FILE) for name in sorted(os.listdir(step))]
