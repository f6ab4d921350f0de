#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Weights of one model in Hugging Face's form and in MindSpore's, each shown of the
other, whole and for the ranks of strategies, and what is refused.

The yardstick is tests/data/weights: genuine models in both forms, made by MindSpore
Transformers' own programs, and hashes of what each case has to become.
"""

import json
import os
import random
import shutil
import struct
import sys
import tempfile

LIB = os.path.join(os.environ.get("srcdir", "."), "lib")
TOP = os.environ.get("top_srcdir", os.path.join(os.environ.get("srcdir", "."), ".."))
sys.path[:0] = [LIB, os.path.join(TOP, "python")]

from dcp_trees import Tensor, Tree  # noqa: E402
from demands import check, content, demand, write  # noqa: E402
from ms_formats import read_checkpoint  # noqa: E402
from rsh_cli import GOOD, INPUT, NO, PLAIN, USAGE, good, refused, run, run_json  # noqa: E402
from rsh_mount import (Mounted, Skipped, Tap, Tests, expect_failure, require_mount,  # noqa: E402
                       reshardfs_program)
from safetensors_format import (SUFFIX, Tensors, read_model, safetensors_bytes,  # noqa: E402
                                values_of)
from shown_model import hashes, same  # noqa: E402

DATA = os.path.abspath(os.path.join(LIB, "..", "data", "weights"))
HF_MAP = "model.safetensors.index.json"
test = Tests("convert")


with open(os.path.join(DATA, "cases.json"), encoding="utf-8") as cases_file:
    CASES = json.load(cases_file)
PAIRS = sorted({(c["model"], c["table"]) for c in CASES.values()})


def model_of(name):
    return os.path.join(DATA, "models", name)


def config_of(name):
    return os.path.join(model_of(name), "config.json")


def genuine_of(name):
    return os.path.join(DATA, "mindspore", name)


def strategy_of(case):
    return os.path.join(DATA, "strategies", case["strategy"])


def back_of(pair):
    return CASES["/".join((*pair, "back"))]["expect"]


# ---- what a mount shows ----

def values_in(root):
    """{name: (type, shape, bytes)} of a whole model, in one file or in parts."""
    single = os.path.join(root, "model" + SUFFIX)
    rank = rank_file(root, 0).removesuffix(".ckpt")
    if os.path.exists(os.path.join(root, HF_MAP)):
        _, parts = read_model(root)
        return {n: v for part in parts.values() for n, v in part.values().items()}
    if os.path.exists(single):
        return Tensors(content(single)).values()
    if os.path.exists(rank + SUFFIX):
        return Tensors(content(rank + SUFFIX)).values()
    return values_of(read_checkpoint(rank + ".ckpt"))


def rank_file(root, rank):
    return os.path.join(root, f"rank_{rank}", f"checkpoint_{rank}.ckpt")


def ranks_in(root):
    found = []
    while os.path.isdir(os.path.join(root, f"rank_{len(found)}")):
        found.append(hashes(values_of(read_checkpoint(rank_file(root, len(found))))))
    return found


def forward(model, table="auto", strategy=None, extra=()):
    return Mounted(model, dst_strategy=strategy,
                   extra=["--convert", table, "--from", "hf", *extra])


def back(source, model, table="auto", strategy=None, extra=()):
    return Mounted(source, src_strategy=strategy,
                   extra=["--convert", table, "--from", "mindspore", "--config",
                          config_of(model), *extra])


def made_of(model, directory, change=lambda values, config: None):
    """A model in one file of its own, changed."""
    values = values_in(model_of(model))
    config = json.loads(content(config_of(model)))
    change(values, config)
    root = tempfile.mkdtemp(dir=directory)
    write(os.path.join(root, "model" + SUFFIX), safetensors_bytes(values, {"format": "pt"}))
    write(os.path.join(root, "config.json"), json.dumps(config).encode())
    return root


# ---- every case ----

def run_pair(tap, pair):
    """Forth, and back from a mount on the mount."""
    name, table = pair
    for key, case in CASES.items():
        if (case["model"], case["table"]) != pair or case["from"] != "hf":
            continue
        strategy = strategy_of(case) if "strategy" in case else None
        with tap.test(f"{key}, and back"):
            with forward(model_of(name), table, strategy) as mount:
                if strategy:
                    found = ranks_in(mount.path)
                    check(len(found) == len(case["expect ranks"]), f"{len(found)} ranks")
                    for rank, expected in enumerate(case["expect ranks"]):
                        same(found[rank], expected, f"{key}, rank {rank}")
                else:
                    same(hashes(values_in(mount.path)), case["expect"], key)
                with back(mount.path, name, table, strategy) as stacked:
                    same(hashes(values_in(stacked.path)), back_of(pair), f"{key}, back")
                    same_beside(stacked.path, name)


def same_beside(root, model):
    """What is shown is not quantised any more."""
    config = json.loads(content(config_of(model)))
    quantised = config.pop("quantization_config", None)
    shown = content(os.path.join(root, "config.json"))
    check(shown == content(config_of(model)) if not quantised else
          list(json.loads(shown).items()) == list(config.items()), "another config.json")
    check(os.path.exists(os.path.join(root, HF_MAP)), "no map")


@test
def genuine(directory):
    """what MindSpore Transformers itself has made becomes the original"""
    for model, table in (("qwen3", "qwen3"), ("qwen3-tied", "qwen3"), ("llama", "llama"),
                         ("qwen3_moe", "qwen3_moe"), ("deepseek_v3", "deepseek_v3"),
                         ("deepseek_v3-fp8", "deepseek_v3")):
        # Its toolkit writes the head twice where there are no prediction layers.
        extra = ["--unlisted", "drop"] if table == "deepseek_v3" else []
        with back(genuine_of(model), model, extra=extra) as mount:
            same(hashes(values_in(mount.path)), back_of((model, table)), model)


# ---- which table, which side ----

@test
def chosen(directory):
    """auto takes a table by architecture, and of several the one that fits"""
    for name in ("qwen3", "qwen3_moe", "deepseek_v3", "llama"):
        table = {"llama": "llama"}.get(name, name)
        with forward(model_of(name), "auto") as mount:
            same(hashes(values_in(mount.path)),
                 CASES[f"{name}/{table}/forward"]["expect"], name)
    for table in ("llama", "llama-concat"):
        with forward(model_of("llama"), table) as mount, \
                back(mount.path, "llama", "auto") as stacked:
            same(hashes(values_in(stacked.path)), back_of(("llama", table)), table)
            demand(stacked.log(), f"using {table}.rules")


@test
def sides(directory):
    """names tell which side is which"""
    pair = ("qwen3", "qwen3")
    for source, expected, extra in (
            (model_of("qwen3"), CASES["qwen3/qwen3/forward"]["expect"], []),
            (genuine_of("qwen3"), back_of(pair), ["--config", config_of("qwen3")])):
        with Mounted(source, extra=["--convert", "qwen3", *extra]) as mount:
            same(hashes(values_in(mount.path)), expected, source)
    _, said = expect_failure(genuine_of("qwen3"), dst_strategy=os.path.join(
        DATA, "strategies", "qwen3.qwen3.mp2.ckpt"), extra=[
            "--convert", "qwen3", "--config", config_of("qwen3")])
    check(": error: " in said, said)


@test
def table_of_a_file(directory):
    """a table may be any file, and what it says counts"""
    text = content(os.path.join(TOP, "tables", "qwen3.rules"))
    path = write(os.path.join(directory, "my", "own.rules"), text)
    with forward(model_of("qwen3"), path) as mount:
        same(hashes(values_in(mount.path)), CASES["qwen3/qwen3/forward"]["expect"], path)
    out = os.path.join(directory, "own-out")
    words = ["--convert", path, "--from", "hf", "--dst-strategy", "none", model_of("qwen3")]
    check(run("export", *words, out).status == GOOD, "not exported")
    write(path, text + b"# another\n")
    got = run("export", *words, out)
    check(got.status != GOOD and "not of this conversion" in got.err, repr(got))


# ---- what is refused ----

def refused_as(source, words, *said, table="qwen3", strategy=None):
    _, log = expect_failure(source, dst_strategy=strategy,
                            extra=["--convert", table, "--from", "hf", *words])
    demand(log, *said)


@test
def wrong(directory):
    """a wrong table, a wrong config, and tensors too few and too many"""
    refused_as(model_of("qwen3"), [], table="deepseek_v3-legacy")
    refused_as(model_of("qwen3"), ["--config", config_of("deepseek_v3")],
               table="llama-concat")

    for heads, said in ((3, "config.json"), (1, "k_proj")):
        def changed(values, config, heads=heads):
            config["num_key_value_heads"] = heads
        refused_as(made_of("qwen3", directory, changed), [], said)

    def lacking(values, config):
        del values["model.layers.1.self_attn.k_proj.weight"]
    refused_as(made_of("qwen3", directory, lacking), [],
               "model.layers.1.self_attn.k_proj.weight")

    for gone, *said in (
            ("model.embed_tokens.", "model.embed_tokens.weight is missing, which every model with"),
            ("model.norm.", "model.norm.weight is missing, which every model with"),
            ("lm_head.", "lm_head.weight is missing, and \"tie_word_embeddings\" is false in"),
            ("model.layers.1.", "all tensors of layer 1 are missing, and \"num_hidden_layers\" in"),
            ("model.layers.0.", "all tensors of layer 0 are missing, and")):
        def without(values, config, gone=gone):
            config["tie_word_embeddings"] = False
            for name in [n for n in values if n.startswith(gone)]:
                del values[name]
        root = made_of("qwen3", directory, without)
        refused_as(root, [], *said, "qwen3.rules:")
        got = run("convert", "check", "qwen3", root)
        check(got.status == NO and said[0] in got.out + got.err, got)
        with Mounted(root, dst_strategy="none", extra=[
                "--convert", "qwen3", "--from", "hf", "--only", "final_layernorm|word_embeddings"
                if "layers" in gone else "layers"]):
            pass

    def misshapen(values, config):
        name = "model.layers.0.mlp.up_proj.weight"
        dtype, shape, data = values[name]
        values[name] = (dtype, (shape[0] // 2, shape[1] * 2), data)
    refused_as(made_of("qwen3", directory, misshapen), [], "mlp.up_proj.weight")

    root = made_of("qwen3", directory)
    os.unlink(os.path.join(root, "config.json"))
    refused_as(root, [], "config.json", table="auto")
    write(os.path.join(root, "config.json"), b"{ no JSON")
    refused_as(root, [], "config.json")
    refused_as(model_of("qwen3"), [], "t.rules",
               table=write(os.path.join(directory, "bad", "t.rules"), b"= = =\n"))
    refused_as(model_of("qwen3"), [], "nowhere.rules", table="./nowhere.rules")
    strategy = os.path.join(DATA, "strategies", "qwen3.qwen3.mp2.ckpt")
    refused(run("plan", "--convert", "qwen3", "--src-strategy", strategy, "--dst-strategy",
                "none", model_of("qwen3")), INPUT, "whole model", "--src-strategy none")
    root = os.path.join(directory, "no-map")
    shutil.copytree(model_of("qwen3"), root)
    os.unlink(os.path.join(root, HF_MAP))
    refused_as(root, [], "may be a part of a model", HF_MAP)
    parts = json.loads(content(os.path.join(model_of("qwen3"), HF_MAP)))
    parts["weight_map"]["model.ghost"] = sorted(parts["weight_map"].values())[0]
    write(os.path.join(root, HF_MAP), json.dumps(parts).encode())
    with forward(root, "qwen3") as mount:
        demand(mount.log(), "the map of its parts names 1 parameter that", "model.ghost")
    refused(run("plan", "--convert", "qwen4", "--from", "hf", "--dst-strategy", "none",
                model_of("qwen3")), USAGE, "there is no table \"qwen4\" (did you mean qwen")


@test
def no_elements(directory):
    """a tensor without elements is one as well"""
    table = write(os.path.join(directory, "empty.rules"), b"let x = none\n"
                  b"a[x, y] + b[z, y] = c[y, (x | z)]\nd[x, h] = e[h, x]\n")
    root = os.path.join(directory, "empty")
    forth = {"a": ("F32", (0, 2), b""), "b": ("F32", (1, 2), bytes(range(8))),
             "d": ("F32", (0, 3), b"")}
    write(os.path.join(root, "model" + SUFFIX), safetensors_bytes(forth))
    write(os.path.join(root, "config.json"), b'{"none": 0}')
    with forward(root, table) as mount:
        same(values_in(mount.path), {"c": ("F32", (2, 1), bytes(range(8))),
                                     "e": ("F32", (3, 0), b"")}, "forth")
        with Mounted(mount.path, extra=["--convert", table, "--from", "mindspore", "--config",
                                        os.path.join(root, "config.json")]) as stacked:
            same(values_in(stacked.path), forth, "back")


@test
def left_over(directory):
    """what no rule names is refused, copied or left out"""
    def more(values, config):
        values["model.extra"] = ("F32", (2,), struct.pack("<2f", 1, 2))
    root = made_of("qwen3", directory, more)
    expected = CASES["qwen3/qwen3/forward"]["expect"]
    refused_as(root, [], "model.extra")
    refused_as(root, ["--unlisted", "error"], "model.extra")
    with forward(root, "qwen3", extra=["--unlisted", "drop"]) as mount:
        same(hashes(values_in(mount.path)), expected, "without it")
    with forward(root, "qwen3", extra=["--unlisted", "copy"]) as mount:
        found = values_in(mount.path)
        check(found.pop("model.extra") == ("F32", (2,), struct.pack("<2f", 1, 2)), "it differs")
        same(hashes(found), expected, "with it")


@test
def left_over_in_place(directory):
    """what has the place of a weight is not left out, as codes of an unknown scheme have"""
    for ends, by in (("proj.weight", "codes"), ("down_proj.weight", "w_packed"),
                     ("layernorm.weight", "scaled")):
        def other(values, config, ends=ends, by=by):
            for name in [n for n in values if n.endswith(ends)]:
                values[name[:-len("weight")] + by] = values.pop(name)
        root = made_of("qwen3", directory, other)
        refused_as(root, [], by)
        refused_as(root, ["--unlisted", "drop"], f"{ends} is missing, which ",
                   f"{by} has its place: --unlisted drop would leave the weight out")


# ---- options that ask names ----

@test
def names(directory):
    """--only, --rename and --cast speak of what is made"""
    expected = CASES["qwen3/qwen3/forward"]["expect"]
    wanted = {n: v for n, v in expected.items() if "linear_qkv" in n}
    renames = write(os.path.join(directory, "names.json"), json.dumps(
        {"embedding.word_embeddings.weight": "e"}).encode())
    with forward(model_of("qwen3"), extra=["--only", "linear_qkv"]) as mount:
        same(hashes(values_in(mount.path)), wanted, "--only")
    with forward(model_of("qwen3"), extra=["--drop", "linear_qkv"]) as mount:
        same(hashes(values_in(mount.path)),
             {n: v for n, v in expected.items() if n not in wanted}, "--drop")
    with forward(model_of("qwen3"), extra=["--rename", renames]) as mount:
        found = hashes(values_in(mount.path))
        check(found["e"] == expected["embedding.word_embeddings.weight"], "--rename")
    # A strategy of the new names would leave e whole on each rank.
    words = ["--convert", "auto", "--from", "hf", "--rename", renames, model_of("qwen3")]
    made, strategy = (os.path.join(directory, name) for name in ("renamed", "new_names.ckpt"))
    got = run("export", "--dst-strategy", "none", "--format", "safetensors", *words, made)
    check(got.status == 0, got)
    got = run("strategy", "derive", "none", "--checkpoint", made, "--mesh", "dp=1,mp=2",
              "--split", "^e$=0:mp", "--split", "linear_qkv=0:mp", "-o", strategy)
    check(got.status == 0, got)
    refused(run("plan", "--dst-strategy", strategy, *words), INPUT,
            "a strategy has e, a new name of --rename")
    with forward(model_of("qwen3")) as plain, \
            forward(model_of("qwen3"), extra=["--cast", "float32"]) as mount:
        for name, (dtype, shape, data) in values_in(plain.path).items():
            wide = b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2))
            check(dtype == "BF16" and values_in(mount.path)[name] == ("F32", shape, wide),
                  f"{name} is not as it was, widened")


# ---- what is lost ----

def trained(directory, model, table, mesh):
    """(tree, strategy) of ranks on disk."""
    strategy = os.path.join(DATA, "strategies", f"{model}.{table}.{mesh}.ckpt")
    root = os.path.join(directory, f"{model}-{table}-{mesh}")
    if not os.path.exists(root):
        good("export", "--convert", table, "--from", "hf", "--dst-strategy", strategy,
             model_of(model), root)
    return root, strategy


@test
def tied(directory):
    """a tied head is made from the embedding, and left out again unless it differs"""
    embedding, head = "embedding.word_embeddings.weight", "output_layer.weight"
    values = {name: t for name, t in values_in(model_of("qwen3")).items()
              if name != "lm_head.weight"}
    model = os.path.join(directory, "model")
    config = json.loads(content(config_of("qwen3")))
    write(os.path.join(model, "model.safetensors"), safetensors_bytes(values))
    where = write(os.path.join(model, "config.json"), json.dumps(
        {**config, "tie_word_embeddings": True}).encode())
    with forward(model, extra=("--format", "safetensors")) as mount:
        check(head not in values_in(mount.path), "a head that nobody asked for")
    strategy = os.path.join(DATA, "strategies", "qwen3.qwen3.dp2mp2.ckpt")
    words = ["--convert", "qwen3", "--from", "hf", "--dst-strategy", strategy, model]
    demand(run("plan", *words).err, f"warning: {model}: 1 parameter that {strategy} lists is not "
           f"in the source ({head})")
    check("lists" not in run("plan", "--untie", *words).err, "a head that is there")
    with forward(model, extra=("--format", "safetensors", "--untie")) as mount:
        shown = values_in(mount.path)
        check(shown[head] == shown[embedding], "the head is not the embedding")
    other = os.path.join(directory, "other")
    write(os.path.join(other, "model.safetensors"), safetensors_bytes(shown))
    words = ["--convert", "qwen3", "--from", "mindspore", "--config", where]
    with Mounted(other, src_strategy="none", extra=words) as mount:
        same(hashes(values_in(mount.path)), hashes(values), "without the head")
        check("is tied to the embedding by config.json, has the same elements and is left out"
              in mount.log(), mount.log())
    dtype, shape, data = shown[head]
    shown[head] = dtype, shape, data[:-3] + bytes([data[-3] ^ 1]) + data[-2:]
    write(os.path.join(other, "model.safetensors"), safetensors_bytes(shown))
    got = run("plan", "--src-strategy", "none", *words, other)
    check(got.status != GOOD and "the weights say false: lm_head.weight is not "
          "model.embed_tokens.weight" in got.err, repr(got))
    write(where, json.dumps({**config, "tie_word_embeddings": False}).encode())
    got = run("plan", "--convert", "qwen3", "--from", "hf", "--dst-strategy", "none", "--untie",
              model)
    check(got.status != GOOD and f'{where}: "tie_word_embeddings" is false, so --untie cannot '
          "make lm_head.weight, which is missing, from the embedding" in got.err, repr(got))
    with Mounted(other, src_strategy="none", extra=words) as mount:
        check(values_in(mount.path)["lm_head.weight"] == shown[head], "the head is lost")
    del shown[head]
    write(os.path.join(other, "model.safetensors"), safetensors_bytes(shown))
    with Mounted(other, src_strategy="none", extra=[*words, "--untie"]) as mount:
        made = values_in(mount.path)
        check(made["lm_head.weight"] == made["model.embed_tokens.weight"], "not untied")


@test
def padding(directory):
    """ranks of a padded vocabulary, of which some have only padding"""
    values = values_in(model_of("llama"))
    embedding, head = "model.embed_tokens.weight", "lm_head.weight"
    rows = values[embedding][1][0]
    words = ["--convert", "megatron-layers", "--vocab-multiple", str(4 * rows)]
    row = len(values[embedding][2]) // rows
    with Mounted(model_of("llama"), extra=[*words, "--from", "hf", "--dst-strategy", "none",
                                           "--format", "safetensors"]) as mount:
        shown = values_in(mount.path)
        for ours, theirs in ((embedding, "embedding.word_embeddings.weight"),
                             (head, "output_layer.weight")):
            dtype, shape, data = values[ours]
            check(shown[theirs] == (dtype, (4 * rows, shape[1]), data + bytes(3 * rows * row)),
                  theirs)
        with Mounted(mount.path, src_strategy="none", extra=[
                *words, "--from", "mindspore", "--config", config_of("llama")]) as again:
            same(hashes(values_in(again.path)), hashes(values), "cut off")
        got = run("plan", "--src-strategy", "none", "--convert", "megatron-layers",
                  "--vocab-multiple", str(8 * rows), "--from", "mindspore", "--config",
                  config_of("llama"), mount.path)
        check(got.status != GOOD and f"rows are padded to {8 * rows}" in got.err, repr(got))
    for name, other in (("--vocab-multiple", ("7",)), ("--untie", ())):
        got = run("plan", name, *other, "--src-strategy", "none", "--dst-strategy", "none",
                  model_of("llama"))
        check(got.status == USAGE and f"{name} needs --convert" in got.err, repr(got))


@test
def states(directory):
    """an optimizer's states are converted as their weights are"""
    values = values_in(model_of("qwen3"))
    made = {}
    for prefix in "", "adam_m.", "adam_v.":
        made.update((prefix + name, (t[0], t[1], t[2] if not prefix else
                                     bytes(b ^ len(prefix) for b in t[2])))
                    for name, t in values.items())
    model = os.path.join(directory, "model")
    write(os.path.join(model, "model.safetensors"), safetensors_bytes(made))
    write(os.path.join(model, "config.json"), content(config_of("qwen3")))
    with forward(model, extra=("--format", "safetensors")) as other:
        shown = values_in(other.path)
        check(sum(name.startswith("adam_") for name in shown) == 2 * len(shown) // 3, shown)
        with back(other.path, "qwen3") as mount:
            same(hashes(values_in(mount.path)), hashes(values), "without states")
            check("of an optimizer's state are left out: --optimizer keep shows them"
                  in mount.log(), mount.log())
        for extra in (("--optimizer", "keep"), ("--only", "."), ("--format", "safetensors")):
            with back(other.path, "qwen3", extra=extra) as mount:
                same(hashes(values_in(mount.path)), hashes(made), " ".join(extra))


@test
def lost(directory):
    """replicas make up for a lost rank; else its tensors are missed"""
    tree, strategy = trained(directory, "qwen3", "qwen3", "dp2mp2")
    root = os.path.join(directory, "one-lost")
    shutil.copytree(tree, root)
    shutil.rmtree(os.path.join(root, "rank_3"))
    with back(root, "qwen3", "qwen3", strategy) as mount:
        same(hashes(values_in(mount.path)), back_of(("qwen3", "qwen3")), "a replica")
    shutil.rmtree(os.path.join(root, "rank_1"))
    # The directory that has the file will do.
    words = ["--convert", "qwen3", "--config", model_of("qwen3"), "--part-size", "1KB"]
    _, said = expect_failure(root, src_strategy=strategy, extra=words)
    demand(said, "rank 1", "16 slices of 16 parameters are lost")
    with Mounted(root, src_strategy=strategy, extra=[*words, "--allow-missing"]) as mount:
        demand(mount.log(), "lost")
        index = json.loads(content(os.path.join(mount.path, HF_MAP)))["weight_map"]
        expected, good, bad = back_of(("qwen3", "qwen3")), 0, 0
        for name, part in index.items():
            try:
                values = Tensors(content(os.path.join(mount.path, part))).values()
            except OSError:
                bad += 1
                continue
            good += 1
            same(hashes({name: values[name]}), {name: expected[name]}, part)
        check(good and bad, f"{good} tensors can be read, {bad} cannot")


@test
def of_no_table(directory):
    """models that no table supports"""
    for architectures, said in ((["FooForCausalLM"], "FooForCausalLM"),
                                ([], "a model without architectures")):
        root = made_of("qwen3", directory, lambda _, config, a=architectures: config.update(
            architectures=a))
        got = run("plan", "--convert", "auto", "--dst-strategy", "none", root)
        check(got.status != GOOD and f"config.json: no table supports {said}: choose one with "
              "--convert (`reshardfs convert list`)" in got.err, repr(got))


# ---- other forms, other commands ----

@test
def checkpoint2(directory):
    """as Checkpoint 2.0 for ranks, and back"""
    strategy = os.path.join(DATA, "strategies", "qwen3_moe.qwen3_moe.mp2.ckpt")
    with forward(model_of("qwen3_moe"), "auto", strategy,
                 ["--format", "checkpoint2"]) as mount:
        with Mounted(mount.path, described=True, extra=[
                "--convert", "auto", "--config", config_of("qwen3_moe")]) as stacked:
            same(hashes(values_in(stacked.path)), back_of(("qwen3_moe", "qwen3_moe")), "back")
            same_beside(stacked.path, "qwen3_moe")


def halves(shape):
    """Two chunks of a tensor, or one where it cannot be cut."""
    if shape[0] < 2:
        return [((0,) * len(shape), shape)]
    upper = shape[0] // 2
    return [((0,) * len(shape), (upper, *shape[1:])),
            ((upper, *(0,) * (len(shape) - 1)), (shape[0] - upper, *shape[1:]))]


@test
def distributed(directory):
    """a distributed checkpoint with stacked layers, as Megatron-Core saves it, with states of
    the optimizer"""
    root = os.path.join(directory, "iter")
    states = [f"optimizer.state.{s}." for s in ("param", "fp32_param", "exp_avg", "exp_avg_sq")]
    with forward(model_of("llama"), "megatron") as mount:
        tree = Tree("torch", {state + name: Tensor(dtype, shape, data, halves(shape), {}) for
                              name, (dtype, shape, data) in values_in(mount.path).items()
                              for state in ["", *states]},
                    {"step": 17}, random.Random(1))
    tree.write(root)
    whole = hashes(values_in(model_of("llama")))
    words = ["--convert", "megatron", "--config", config_of("llama")]
    with Mounted(root, described=True, extra=[*words, "--from", "mindspore"]) as mount:
        same(hashes(values_in(mount.path)), whole, "of Megatron-Core's form")
        same_beside(mount.path, "llama")
    with Mounted(root, described=True, extra=[*words, "--from", "mindspore", "--optimizer",
                                              "keep"]) as mount:
        same(hashes(values_in(mount.path)), {state + n: v for n, v in whole.items()
                                             for state in ["", *states]}, "with states")
    part = sorted(n for n in os.listdir(root) if n.endswith(".distcp"))[0]
    os.unlink(os.path.join(root, part))
    _, said = expect_failure(root, described=True, extra=[*words, "--from", "mindspore"])
    demand(said, part)


@test
def distributed_and_lost(directory):
    """chunks that no file has lose the ranks that need them, whatever --replicas says"""
    root = os.path.join(directory, "step")
    values = {name: Tensor(dtype, shape, data, halves(shape), {})
              for name, (dtype, shape, data) in values_in(model_of("qwen3")).items()}
    tree = Tree("torch", values, {}, random.Random(1))
    tree.files = None
    tree.write(root)
    name = "model.layers.0.self_attn.q_proj.weight"
    os.unlink(os.path.join(root, [f for f, held in tree.held.items() if (name, 1) in held][0]))
    strategy = os.path.join(DATA, "strategies", "qwen3.qwen3.mp2.ckpt")
    shutil.copy(config_of("qwen3"), root)
    expected = CASES["qwen3/qwen3/mp2"]["expect ranks"]
    for word in ("auto", "off"):
        with Mounted(root, described=True, dst_strategy=strategy, extra=[
                "--convert", "qwen3", "--from", "hf", "--allow-missing", "--replicas",
                word]) as mount:
            demand(mount.log(), name)
            same(hashes(values_of(read_checkpoint(rank_file(mount.path, 0)))), expected[0], word)
            try:
                content(rank_file(mount.path, 1))
            except OSError:
                continue
            raise AssertionError(f"--replicas {word}: rank 1 can be read")


@test
def commands(directory):
    """export, verify, ls and plan take it as well"""
    tree, strategy = trained(directory, "qwen3_moe", "qwen3_moe", "mp4")
    to = os.path.join(directory, "model")
    words = ["--convert", "auto", "--config", config_of("qwen3_moe"), "--src-strategy",
             strategy, tree]
    good("export", *words, to)
    same(hashes(values_in(to)), back_of(("qwen3_moe", "qwen3_moe")), "exported")
    same_beside(to, "qwen3_moe")
    manifest = os.path.join(to, "reshardfs-manifest.jsonl")
    for more in ([*words, to], [*words, manifest], [to]):
        good("verify", *more)
    good("export", *words, to)
    other = os.path.join(directory, "other")
    check(run("export", "--model-files", to, *words, other).status == GOOD, "not from there")
    good("verify", "--model-files", to, *words, other)
    refused(run("export", "--model-files", other + "-", *words, other), INPUT,
            "--model-files")
    part = [n for n in os.listdir(to) if n.endswith(SUFFIX)][0]
    data = bytearray(content(os.path.join(to, part)))
    data[-1] ^= 1
    write(os.path.join(to, part), data)
    got = run("verify", *words, to)
    check(got.status == NO and part in got.out + got.err, repr(got))
    said = run_json("plan", *words)
    check(len(said["files"]) == 1, said)
    check(run("plan", *words).status == GOOD, "plan says nothing to people")
    check(run_json("plan", "--slices", *words)["tensors"], "no tensors")
    check(run("ls", *words).status == GOOD, "ls does not")


@test
def library(directory):
    """Python reads what a mount shows"""
    if "sanitize" in os.environ.get("SANITIZER_FLAGS", ""):
        raise Skipped("Python does not load what a sanitizer is built into")
    os.environ["XDG_CACHE_HOME"] = PLAIN["XDG_CACHE_HOME"]
    os.environ["LIBRESHARD"] = os.path.join(os.path.dirname(reshardfs_program()), ".libs",
                                            "libreshard.so.0")
    import reshardfs  # pylint: disable=import-outside-toplevel
    strategy = os.path.join(DATA, "strategies", "qwen3_moe.qwen3_moe.dp2mp2.ckpt")
    options = {"convert": "auto", "from_": "hf", "dst_strategy": strategy}
    with reshardfs.Source(model_of("qwen3_moe"), **options) as source, \
            forward(model_of("qwen3_moe"), "auto", strategy) as mount:
        for rank in range(4):
            data = content(rank_file(mount.path, rank))
            check(bytes(source.read(rank)) == data, f"rank {rank} differs")
            check(bytes(source.read(rank, offset=len(data) // 2, length=777)) ==
                  data[len(data) // 2:][:777], f"the middle of rank {rank} differs")


@test
def any_part(directory):
    """whatever stretch is read is the one of the whole"""
    strategy = os.path.join(DATA, "strategies", "qwen3_moe.qwen3_moe.mp2.ckpt")
    with forward(model_of("qwen3_moe"), "auto", strategy) as mount:
        path = rank_file(mount.path, 1)
        data = content(path)
        for length in (1, 7, 64, 1000, 4097):
            fd = os.open(path, os.O_RDONLY)
            try:
                for at in range(0, len(data), max(length * 7, len(data) // 200)):
                    check(os.pread(fd, length, at) == data[at:at + length],
                          f"{length} bytes at {at} differ")
            finally:
                os.close(fd)


def main():
    require_mount()
    tap = Tap()
    for pair in PAIRS:
        run_pair(tap, pair)
    test.each(tap, name=lambda f: f.__doc__)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
