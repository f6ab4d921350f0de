#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The naive reading of rule tables against mindformers: of every model of
tests/data/weights it has to make what its programs made, and the way back the model."""

import functools
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import genuine  # noqa: E402
from ms_formats import read_strategy_file  # noqa: E402
from rsh_mount import Tap  # noqa: E402
from rule_tables import dequantised, load_table, read_model, read_ranks, slice_of  # noqa: E402
from shown_model import hashes  # noqa: E402


def differences(found, expected):
    return sorted(name for name in {*found, *expected}
                  if found.get(name) != expected.get(name))[:5]


@functools.cache
def model(name):
    return read_model(genuine.weights("models", name))


@functools.cache
def forward(name, table):
    return load_table(table).convert(*model(name), "hf")


@functools.cache
def back(name, table):
    """The same tensors, whatever they were cut by on the way."""
    return hashes(load_table(table).convert(forward(name, table), model(name)[1], "mindspore"))


def test_case(tap, name, case):
    which = case["model"], case["table"]
    if case["from"] == "mindspore":
        tap.equal(differences(back(*which), case["expect"]), [], name)
    elif "strategy" in case:
        layouts = read_strategy_file(genuine.weights("strategies", case["strategy"])).layouts
        wrong = [(rank, line) for rank, expected in enumerate(case["expect ranks"])
                 for line in differences(hashes({
                     name: slice_of(tensor, layouts.get(name), rank)
                     for name, tensor in forward(*which).items()}), expected)]
        tap.equal(wrong, [], name)
    else:
        tap.equal(differences(hashes(forward(*which)), case["expect"]), [], name)


def test_genuine(tap, name, table):
    """Files of mindformers hold these very tensors, and give the model back."""
    path = genuine.weights("mindspore", name)
    ranks = read_ranks(path)
    found = ranks[0] if ranks else read_model(path)[0]
    base = name.removesuffix("-legacy")
    tensors, config = model(base)
    # Norms become wider in the legacy form, and a head of its own is written
    # where there is no layer to predict with.
    made = {name: tensor for name, tensor in found.items()
            if name != "mtp.output_layer.weight"}
    same = {name for name, tensor in forward(base, table).items() if made.get(name) == tensor}
    wider = {name for name in made if name not in same and made[name][0] == "F32"}
    tap.equal((set(made) - same - wider, wider if "legacy" not in name else set()),
              (set(), set()), f"{name}: the files of mindformers hold the same")
    given = load_table(table).convert(made, config, "mindspore")
    wrong = [name for name, tensor in dequantised(tensors, config).items()
             if given[name] != tensor and given[name][0] == tensor[0]]
    tap.equal((wrong, set(given) - set(tensors)), ([], set()), f"{name}: and give the model back")


def main():
    tap = Tap()
    with open(genuine.weights("cases.json"), encoding="utf-8") as f:
        cases = json.load(f)
    for name, case in cases.items():
        test_case(tap, name, case)
    for name in sorted(os.listdir(genuine.weights("mindspore"))):
        test_genuine(tap, name, "qwen3" if name == "qwen3-tied" else name.removesuffix("-fp8"))
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
