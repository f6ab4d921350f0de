#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The writer of distributed checkpoints against torch and HyperParallel: of every genuine
tree it is given what the tree says and has to make the same items, byte for byte, and a
.metadata of the same objects by the same instructions."""

import collections
import io
import os
import pickle
import pickletools
import sys
import zipfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import dcp_trees  # noqa: E402
import genuine  # noqa: E402
from rsh_mount import Tap  # noqa: E402

TYPE_OF = {name: dtype for dtype, (_, name, _) in dcp_trees.TYPES.items()}


class Thing:
    """An object of any class: what it was made with, and its state."""

    args, state = (), None  # NEWOBJ does without __init__

    def __init__(self, *args):
        self.args = args

    def __setstate__(self, state):
        self.state = state


class Reader(pickle.Unpickler):
    def find_class(self, module, name):
        return type(name, (Thing,), {"__module__": module})

    def persistent_load(self, pid):
        return pid


def load(data):
    return Reader(io.BytesIO(data)).load()


def plain(value):
    """The same for objects that were made alike."""
    if isinstance(value, type):
        return value.__module__, value.__name__
    if isinstance(value, Thing):
        return plain(type(value)), plain(value.args), plain(value.state)
    if isinstance(value, dict):
        return [(plain(k), plain(v)) for k, v in value.items()]
    if isinstance(value, (list, tuple)):
        return type(value)(plain(v) for v in value)
    return value


def numbers(size):
    return size.args[0] if isinstance(size, Thing) else size


def read(directory, name=".metadata"):
    with open(os.path.join(directory, name), "rb") as f:
        return f.read()


def instructions(data):
    return {op.name for op, _, _ in pickletools.genops(data)}


def described_by(state):
    """What torch_metadata() wants to know, out of a Metadata's state."""
    described = {}
    for name, said in state["state_dict_metadata"].items():
        described[name] = None
        if said.state:
            properties = said.state["properties"].state
            described[name] = (
                TYPE_OF[properties[0].__name__], numbers(said.state["size"]),
                [tuple(numbers(c.state[k]) for k in ("offsets", "sizes"))
                 for c in said.state["chunks"]],
                properties[5] if len(properties) > 5 else None)
    stored = []
    for key, info in state["storage_data"].items():
        start = key.state.get("offset")
        stored.append((key.state["fqn"], start and numbers(start), key.state["index"],
                       info.state["relative_path"], info.state["offset"],
                       info.state["length"]))
    return described, stored


def check_metadata(data, state, release):
    described, stored = described_by(state)
    made = dcp_trees.torch_metadata(release, described, stored, state["planner_data"],
                                    state["storage_meta"].state["checkpoint_id"].args)
    expected = load(data).state
    expected["storage_meta"].state["save_id"] = "00000000-0000-0000-0000-000000000000"
    assert plain(load(made).state) == plain(expected)
    unknown = instructions(made) - instructions(data)
    assert unknown <= {"LONG_BINGET", "TUPLE", "TUPLE3", "APPEND", "BININT", "BININT2",
                       "NEWTRUE"}, unknown


def check_item(item, release, is_value):
    archive = zipfile.ZipFile(io.BytesIO(item))
    ident = archive.read("archive/.data/serialization_id")
    value = load(archive.read("archive/data.pkl"))
    if is_value:
        if isinstance(value, (Thing, dict, list)) and "Thing" in repr(value):
            return False
        made = dcp_trees.value_item(release, pickle.loads(archive.read("archive/data.pkl")),
                                    ident)
    else:
        storage, _, size, strides = value.args[:4]
        dtype = value.args[6].__name__ if len(value.args) > 6 else next(
            n for _, n, s in dcp_trees.TYPES.values() if s == storage[1].__name__)
        made = dcp_trees.tensor_item(release, TYPE_OF[dtype], size,
                                     archive.read("archive/data/0"), strides, ident)
    assert made == item, f"{value}"
    return True


def check_torch(name, counts):
    directory = genuine.dcp(name)
    release = "2.4" if name.startswith("torch-2.4") else "2.15"
    data = read(directory)
    state = load(data).state
    if "all_local_plans" not in state:
        check_metadata(data, state, release)
    for key, info in state["storage_data"].items():
        s = info.state
        item = read(directory, s["relative_path"])[s["offset"]:s["offset"] + s["length"]]
        said = state["state_dict_metadata"][key.state["fqn"]]
        counts[check_item(item, release, not said.state)] += 1


def check_hyper(name, file):
    data = read(genuine.checkpoint2(name), file)
    state = load(data).state
    described = {n: said.state and (
        said.state["properties"].state["dtype"], said.state["size"],
        [(c.state["offsets"], c.state["sizes"]) for c in said.state["chunks"]])
        for n, said in state["state_dict_metadata"].items()}
    stored = [(k.state["fqn"], k.state["offset"], k.state["index"],
               v.state["relative_path"], v.state["offset"], v.state["length"])
              for k, v in state["storage_data"].items()]
    made = dcp_trees.hyper_metadata(described, stored)
    assert plain(load(made)) == plain(load(data))
    assert instructions(made) <= instructions(data) | {"LONG_BINGET"}, \
        instructions(made) - instructions(data)


def check_boxes():
    """The random trees' chunks hold each element once."""
    for seed in range(300):
        for tensor in dcp_trees.random_tree(seed).tensors.values():
            width = dcp_trees.TYPES[tensor.dtype][0]
            whole = bytearray(len(tensor.content))
            seen = 0
            for start, size in tensor.chunks:
                data = dcp_trees.box_bytes(tensor.content, width, tensor.shape, start, size)
                seen += len(data)
                length = width * (size[-1] if size else 1)
                for i, at in enumerate(dcp_trees.rows_of(tensor.shape, start, size)
                                       if data else ()):
                    whole[width * at:width * at + length] = \
                        data[length * i:length * (i + 1)]
            assert seen == len(whole) and bytes(whole) == tensor.content, (seed, tensor)


def main():
    tap = Tap()
    counts = collections.Counter()
    for name in genuine.dcp_names():
        # What is made has CRCs.
        if os.path.exists(os.path.join(genuine.dcp(name), ".metadata")) and "nocrc" not in name:
            with tap.test(name):
                check_torch(name, counts)
    tap.ok(counts[True] > 800 and counts[False] < 20, "most items can be made",
           f"{counts}")
    for name in genuine.hyper_parallel_names():
        for file in sorted(os.listdir(genuine.checkpoint2(name))):
            if "metadata" in file:
                with tap.test(f"{name}/{file}"):
                    check_hyper(name, file)
    with tap.test("random chunks hold each element once"):
        check_boxes()
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
