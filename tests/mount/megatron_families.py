#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Families of models in distributed checkpoints of Megatron-Bridge, both ways.

Genuine models (data/model_names/bridge.*): layers of several kinds, norms that are one less,
layers of prediction.  A second reading of the tables makes the same.
"""

import json
import os
import shutil
import sys
import tempfile

HERE = os.environ.get("srcdir", ".")
sys.path.insert(0, os.path.join(HERE, "lib"))

import packed  # noqa: E402
import rule_tables  # noqa: E402
from demands import check, content, demand, write  # noqa: E402
from rsh_cli import GOOD, INPUT, run  # noqa: E402
from rsh_mount import Alone, Tap, require_mount  # noqa: E402
from safetensors_format import safetensors_bytes, values_in  # noqa: E402
from shown_model import hashes, model_hashes, same, without_copies  # noqa: E402

CASES = packed.expected("model_names", ("bridge.json",))
RANK = ["--dst-strategy", "none", "--format", "safetensors"]


def exported(directory, *words):
    to = tempfile.mkdtemp(dir=directory)
    got = run("export", *words, os.path.join(to, "to"))
    check(got.status == GOOD, repr(got))
    return os.path.join(to, "to")


def refuse(source, *parts, extra=()):
    got = run("plan", *extra, source)
    check(got.status == INPUT, repr(got))
    demand(got.err, *parts)


def flat(config):
    """The keys of text_config stand at the top too, as in `let`."""
    return {**config.get("text_config", {}), **config}


def one(tap, directory, name, case, left, right):
    made, table = case["to"], case["table"]
    with tap.test(f"{name}: to Megatron"):
        to = exported(directory, "--convert", table, "--from", "hf", *RANK, left)
        values = values_in(os.path.join(to, "rank_0"))
        same(hashes(values), made["right"], name)
        config = flat(json.loads(content(os.path.join(left, "config.json"))))
        read = rule_tables.load_table(table)
        same(hashes(read.convert(values_in(left), config, "hf")), made["right"], "second reading")
        same(without_copies(hashes(read.convert(values, config, "mindspore"))), made["left"],
             "second reading, back")
    with tap.test(f"{name}: to Hugging Face, and as a distributed checkpoint"):
        words = ["--convert", table, "--config", left]
        with Alone(right, extra=words) as mount:
            same(without_copies(model_hashes(mount.path)), made["left"], name)
        dcp = exported(directory, "--convert", table, "--from", "hf", "--format", "dcp", left)
        same(without_copies(model_hashes(exported(directory, *words, dcp))), made["left"], "dcp")


def changed(directory, source, change):
    """A copy of a model with other tensors."""
    root = tempfile.mkdtemp(dir=directory)
    shutil.copy(os.path.join(source, "config.json"), root)
    values = values_in(source)
    change(values)
    write(os.path.join(root, "model.safetensors"), safetensors_bytes(values))
    return root


def run_refused(tap, trees, directory):
    left = os.path.join(trees, "bridge-qwen3_5", "left")
    words = ["--convert", "megatron-bridge-qwen3_5", "--from", "hf", *RANK]
    norm = next(n for n in values_in(left) if n.endswith("linear_attn.norm.weight"))
    with tap.test("1 is added to no other type"):
        refuse(left, "self_attention.out_norm.weight", "1 is added to its elements",
               "be done beside a change of their type", extra=[*words, "--cast", "float32"])
        check(run("plan", *words, "--cast", "bfloat16", left).status == GOOD, "the same type")
    with tap.test("a state of a weight to which 1 is added"):
        root = changed(directory, left, lambda v: v.update(
            {"optimizer.state.exp_avg." + norm: v[norm]}))
        refuse(root, f"optimizer.state.exp_avg.{norm} is the state of a weight to which 1 is "
               "added, and is not converted: --drop leaves it out", extra=words)
        got = run("plan", *words, "--drop", "optimizer", root)
        check(got.status == GOOD, repr(got))
    with tap.test("a layer of no kind"):
        root = changed(directory, left, lambda v: [
            v.pop(n) for n in list(v) if norm.partition("linear_attn")[0] in n and
            "layernorm" not in n])
        refuse(root, "names tensor", "input_layernorm.weight", extra=words)
    with tap.test("a table of another family"):
        refuse(left, "no rule of", "megatron-bridge-qwen3_next.rules names tensor",
               extra=["--convert", "megatron-bridge-qwen3_next", "--from", "hf", *RANK])


def main():
    require_mount()
    tap = Tap()
    with tempfile.TemporaryDirectory() as directory:
        trees = packed.unpack("model_names", os.path.join(directory, "trees"), ("bridge.tar.xz",))
        for name, case in CASES.items():
            one(tap, directory, name, case,
                *(os.path.join(trees, case["sides"][side]) for side in ("left", "right")))
        run_refused(tap, trees, directory)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
