#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The writer of Checkpoint 2.0 trees against mindformers: of every genuine tree it is
given the layouts and the whole tensors, and has to make the same files."""

import hashlib
import json
import math
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import genuine  # noqa: E402
from checkpoint2_trees import BITS, Parameter, Step  # noqa: E402
from demands import content  # noqa: E402
from rsh_mount import Tap  # noqa: E402
from safetensors_format import Tensors  # noqa: E402


def box_rows(shape, starts, sizes):
    """Where the rows of a box begin in the whole tensor, in elements."""
    if len(shape) <= 1:
        return [starts[0] if shape else 0]
    row = math.prod(shape[1:])
    return [row * i + rest for i in range(starts[0], starts[0] + sizes[0])
            for rest in box_rows(shape[1:], starts[1:], sizes[1:])]


def put(whole, parameter, number, data):
    """Slice K to its place in a whole tensor."""
    at = []
    for count in reversed(parameter.splits()):
        at.insert(0, number % count)
        number //= count
    sizes, width = parameter.local_shape(), BITS[parameter.file_type] // 8
    length = width * (sizes[-1] if sizes else 1)
    starts = [i * size for i, size in zip(at, sizes)]
    for row, start in enumerate(box_rows(list(parameter.shape), starts, sizes)):
        whole[width * start:width * start + length] = data[length * row:length * (row + 1)]


def read_parameters(metadata):
    """The Parameters that a genuine metadata.json describes."""
    result = {}
    for name, said in metadata["state_dict_metadata"].items():
        layout = said["layout"]
        if layout is None:
            stored = metadata["storage_data"][repr((name, (0,)))]
            result[name] = Parameter(tuple(said["global_shape"]), said["properties"]["dtype"],
                                     None, None, stored[0]["rank_group"])
        else:
            result[name] = Parameter(
                tuple(said["global_shape"]), said["properties"]["dtype"],
                layout["device_matrix"], layout["tensor_map"], layout["rank_list"],
                alias=layout["alias_name"])
    return result


def read_step(name, path):
    """A genuine step, with the whole tensors put together from its files."""
    expected = genuine.checkpoint2_expected(name)
    text = content(os.path.join(path, "metadata.json")).decode()
    metadata = json.loads(text)
    files = {f: Tensors(content(os.path.join(path, f))).values()
             for f in os.listdir(path) if f.endswith(".safetensors")}
    stored = metadata["storage_data"]
    parameters, absent = read_parameters(metadata), set()
    for name, parameter in parameters.items():
        whole = bytearray(math.prod(parameter.shape) * BITS[parameter.file_type] // 8)
        for number in parameter.holders():
            held = files[stored[repr((name, (number,)))][0]["file_name"]]
            if name not in held:
                absent.add(name)
                break
            put(whole, parameter, number, held[name][2])
        parameter.content = bytes(whole)
    scalars = {n: v for held in files.values() for n, v in held.items()
               if n not in parameters}
    some = min(files)
    return Step(
        parameters, expected["saved_under"]["ranks"], expected["iteration"],
        prefix=some[:some.rindex("model-")].removesuffix("-"),
        redundancy_removed=not scalars and all(len(s) == 1 for s in stored.values()),
        rank_groups="rank_group" in next(iter(stored.values()))[0],
        indent=text.startswith("{\n"),
        opt_first=next(iter(parameters)).startswith("adam_"),
        scalars=scalars, absent=absent,
        common=json.loads(content(os.path.join(path, "common.json"))))


def same_files(path, made):
    """The names of files that are not the same on both sides."""
    names = set(os.listdir(path)) | set(os.listdir(made))
    return sorted(n for n in names
                  if not os.path.exists(os.path.join(path, n))
                  or not os.path.exists(os.path.join(made, n))
                  or content(os.path.join(path, n)) != content(os.path.join(made, n)))


def test_tree(tap, name, work):
    path = genuine.checkpoint2_step(name)
    step = read_step(name, path)
    whole = genuine.checkpoint2_expected(name)["whole"]
    wrong = [n for n, (_, _, digest) in whole.items() if
             hashlib.sha256(step.parameters[n].content).hexdigest() != digest]
    tap.equal((wrong, sorted(set(step.parameters) - set(whole))), ([], sorted(step.absent)),
              f"{name}: slices lie where their numbers say")
    made = step.save(os.path.join(work, name))
    tap.equal(same_files(path, made), [], f"{name}: made once more, the files are the same")


def main():
    tap = Tap()
    with tempfile.TemporaryDirectory(prefix="reshardfs-") as work:
        for name in genuine.checkpoint2_names():
            if name != "single":
                test_tree(tap, name, work)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
