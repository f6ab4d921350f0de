# SPDX-License-Identifier: Apache-2.0
"""Where the genuine trees of tests/data/checkpoint2, tests/data/dcp and
tests/data/weights lie, and what is known of them.  Their READMEs say what each of
them is."""

import glob
import json
import os

DATA = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "data")
CHECKPOINT2 = os.path.join(DATA, "checkpoint2")
DCP = os.path.join(DATA, "dcp")
WEIGHTS = os.path.join(DATA, "weights")


def checkpoint2_names():
    """Of all save directories of Checkpoint 2.0."""
    return [name for name in _expected_names() if not name.startswith("dcp_")]


def hyper_parallel_names():
    return [name for name in _expected_names() if name.startswith("dcp_")]


def _expected_names():
    return sorted(name.removesuffix(".expected.json") for name in os.listdir(CHECKPOINT2)
                  if name.endswith(".expected.json"))


def checkpoint2(name):
    """A save directory, or one of HyperParallel's checkpoints."""
    return os.path.join(CHECKPOINT2, name)


def checkpoint2_expected(name):
    return _content(checkpoint2(name) + ".expected.json")


def checkpoint2_step(name):
    """The directory of the newest whole step."""
    return os.path.join(checkpoint2(name),
                        f"iteration_{checkpoint2_expected(name)['iteration']:08d}")


def checkpoint2_strategy(name):
    """The directory with a destination's strategy files, or another tree's
    metadata.json where it is named after that."""
    path = os.path.join(CHECKPOINT2, "strategies", name)
    return path if os.path.isdir(path) else \
        os.path.join(checkpoint2_step(name), "metadata.json")


def dcp_names():
    """RELEASE/NAME of all distributed checkpoints."""
    return sorted(os.path.relpath(path, DCP).removesuffix(".json")
                  for path in glob.glob(os.path.join(DCP, "*", "*.json")))


def dcp(name):
    return os.path.join(DCP, name)


def dcp_strategy(name):
    """The strategy file that comes with it, or None."""
    path = dcp(name) + ".strategy.ckpt"
    return path if os.path.exists(path) else None


def weights(*names):
    return os.path.join(WEIGHTS, *names)


def _content(path):
    with open(path, encoding="utf-8") as f:
        return json.load(f)
