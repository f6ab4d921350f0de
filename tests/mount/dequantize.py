#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Quantised models, shown dense: --dequantize.

    dequantize.py [--seed S] [--cases N]

The yardsticks are tests/data/quantised, models with hashes of what the official programs
make of them, and lib/quantised.py, which computes random models in plain Python: whole,
cut for ranks, cut in the source (as a distributed checkpoint, and as rank files), and with
adapters that lib/adapters.py merges.
"""

import errno
import hashlib
import json
import math
import os
import random
import shutil
import struct
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

LIB = os.path.join(os.environ.get("srcdir", "."), "lib")
sys.path.insert(0, LIB)

import adapters  # noqa: E402
import dcp_trees  # noqa: E402
from dcp_trees import Tensor, Tree, _Drawer  # noqa: E402
from daemon_use import Peak, is_sanitized  # noqa: E402
from demands import check, content, demand, write  # noqa: E402
from make_tree import Param, box, cut, strategy  # noqa: E402
from quantised import (SCHEMES, TYPES, WIDTHS, Drawer, dense, published,  # noqa: E402
                       without_sizes)
from rsh_cli import GOOD, INPUT, USAGE, good, refused, run, run_json  # noqa: E402
from rule_tables import Table  # noqa: E402
from rsh_mount import Mounted, Tap, Tests, expect_failure, require_mount  # noqa: E402
from run_seed import half_if_sanitized, seed_and_cases  # noqa: E402
from safetensors_format import (  # noqa: E402
    Tensors, read_model, safetensors_bytes, values_in)
from shown_model import same_values  # noqa: E402

DATA = os.path.abspath(os.path.join(LIB, "..", "data", "quantised"))
DTYPES = {"BF16": "BFloat16", "F16": "Float16", "F32": "Float32"}
# Other tests draw types that every form has.
dcp_trees.TYPES.update({"F8_E8M0": (1, "float8_e8m0fnu", None),
                        "F4": (1, "float4_e2m1fn_x2", None)})
test = Tests("quantised")


def as_hf(source, *words):
    """The weights alone, unless the words say otherwise."""
    return Mounted(source, described=True, extra=["--format", "hf", "--model-files", "none",
                                                  *words])


def model_of(directory, name):
    path = os.path.join(directory, name)
    return path, published(os.path.join(DATA, name), path)


def written(directory, tensors, config):
    write(os.path.join(directory, "model.safetensors"), safetensors_bytes(tensors))
    write(os.path.join(directory, "config.json"), json.dumps(config).encode())
    return directory


# ---- models with hashes of the official programs ----

def check_fixture(directory, name):
    source, expected = model_of(directory, name)
    for word, kind in TYPES.items():
        with as_hf(source, "--model-files", source, "--dequantize", word) as mount:
            got = values_in(mount.path)
            said = json.loads(content(os.path.join(mount.path, "config.json")))
            listed = {n for part in read_model(mount.path)[1].values() for n in part.values()} \
                if os.path.exists(os.path.join(mount.path, "model.safetensors.index.json")) \
                else set(got)
        check(set(got) == {*expected["tensors"], *expected["others"]} == listed,
              f"{sorted(got)} are shown")
        for tensor, is_ in expected["tensors"].items():
            check(got[tensor][:2] == (kind, tuple(is_["shape"])) and
                  hashlib.sha256(got[tensor][2]).hexdigest() == is_[kind],
                  f"{tensor} as {word} is not what {expected['made by']} gives")
        for tensor, is_ in expected["others"].items():
            check(got[tensor][:2] == (is_["type"], tuple(is_["shape"])) and
                  hashlib.sha256(got[tensor][2]).hexdigest() == is_["sha256"],
                  f"{tensor} changed")
        if word == "bfloat16":
            # Sizes are added from the weights.
            check(without_sizes(said) == {**without_sizes(said), **expected["config"]},
                  f"config.json is {said}")
        check("quantization_config" not in json.dumps(said), said)


def check_reader(name):
    """The reader of the tests gives these hashes as well."""
    config = json.loads(content(os.path.join(DATA, name, "config.json")))
    expected = json.loads(content(os.path.join(DATA, name, "expected.json")))
    got = dense(values_in(os.path.join(DATA, name)), config, "BF16")
    for tensor, is_ in expected["tensors"].items():
        check(hashlib.sha256(got[tensor][2]).hexdigest() == is_["BF16"], f"{tensor} differs")


# ---- random models ----

def compare_export(directory, source, wanted, *options):
    out = os.path.join(directory, "out")
    got = run("export", source, out, "--format", "hf", *options)
    check(got.status == GOOD, f"{got!r}\n{run('ls', source, *options)!r}")
    same_values(values_in(out), wanted)


def as_model(directory, model, wanted, *options):
    source = written(os.path.join(directory, "model"), model.tensors, model.config)
    compare_export(directory, source, wanted, *options)


def as_chunks(directory, model, wanted, *options):
    """Every tensor is cut into boxes, which may divide blocks."""
    rng, config = model.rng, os.path.join(directory, "config")
    write(os.path.join(config, "config.json"), json.dumps(model.config).encode())
    drawer = _Drawer(rng.getrandbits(32), "torch")
    tensors = {}
    for name, (kind, shape, data) in model.tensors.items():
        stored = (*shape[:-1], shape[-1] // 2) if kind == "F4" else shape
        chunks = drawer.chunks(stored)
        if len(stored) == 4 and rng.random() < 0.6:
            ends = [0, *sorted(rng.sample(range(1, 16), rng.randint(1, 3))), 16]
            chunks = [((*at, a), (*size, b - a)) for at, size in drawer.chunks(stored[:3])
                      for a, b in zip(ends, ends[1:])]
        tensors[name] = Tensor(kind, stored, data, chunks, {})
    source = os.path.join(directory, "dcp")
    tree = Tree("torch", tensors, {}, rng)
    tree.release = "2.15"
    tree.write(source)
    compare_export(directory, source, wanted, "--config", config, *options)
    return {"parts of blocks" for t in tensors.values()
            for _, size in t.chunks if len(size) == 4 and size[3] < 16}


def files_of_ranks(directory, tensors, config, params, mesh):
    """Writes them as rank files; gives these and the options to read them."""
    source = os.path.join(directory, "ranks")
    strategy_file = os.path.join(directory, "source.ckpt")
    write(strategy_file, strategy(params, "source", mesh))
    write(os.path.join(directory, "config", "config.json"), json.dumps(config).encode())
    for rank in range(mesh[0] * mesh[1]):
        slices = {}
        for p in params:
            starts, sizes = box(p.dims, mesh, p.source_map, (0, 0), rank)
            kind, _, data = tensors[p.name]
            if sizes != p.dims:
                data = cut(data, p.dims, WIDTHS[kind], starts, sizes)
            slices[p.name] = kind, tuple(sizes), data
        write(os.path.join(source, f"rank_{rank}", f"net_rank_{rank}-1_1.safetensors"),
              safetensors_bytes(slices))
    return source, ["--src-strategy", strategy_file, "--config",
                    os.path.join(directory, "config")]


def as_files_of_ranks(directory, model, wanted, *options):
    """Every tensor is cut by the axes of a mesh, also the bytes of a block."""
    rng = model.rng
    mesh = rng.choice(([2, 2], [1, 4], [4, 2], [2, 16]))
    split = {0: mesh[1], 1: mesh[0], -1: 1}
    params = []
    for name, (kind, shape, _) in model.tensors.items():
        axes = rng.sample((0, 1, -1, -1), len(shape))
        if len(shape) == 4 and rng.random() < 0.6:
            axes.sort(key=lambda a: a == 0)
        axes = [a if n % split[a] == 0 and kind != "F4" else -1
                for a, n in zip(axes, shape)]
        params.append(Param(name, list(shape), kind, axes))
    source, words = files_of_ranks(directory, model.tensors, model.config, params, mesh)
    compare_export(directory, source, wanted, *words, *options)
    return {"parts of blocks" for p in params
            if len(p.dims) == 4 and split[p.source_map[3]] > 1}


def as_ranks(directory, model, wanted, *options):
    """Ranks have slices that divide blocks and packed bytes."""
    rng = model.rng
    mesh = rng.choice(([2, 2], [1, 32], [4, 2], [1, 4]))
    split = {0: mesh[1], 1: mesh[0], -1: 1}
    params = []
    for name, (kind, shape, _) in wanted.items():
        axes = rng.sample((0, 1, -1, -1, -1), len(shape))
        axes = [a if n % split[a] == 0 else -1 for a, n in zip(axes, shape)]
        params.append(Param(name, list(shape), kind, None, axes))
    source = written(os.path.join(directory, "model"), model.tensors, model.config)
    wanted_file = os.path.join(directory, "wanted.ckpt")
    write(wanted_file, strategy(params, "wanted", mesh))
    out = os.path.join(directory, "out")
    good("export", source, out, "--dst-strategy", wanted_file, "--format", "safetensors", *options)
    for rank in range(mesh[0] * mesh[1]):
        slices = {}
        for p in params:
            starts, sizes = box(p.dims, mesh, p.wanted_map, (0, 0), rank)
            kind, _, data = wanted[p.name]
            slices[p.name] = kind, tuple(sizes), cut(data, p.dims, WIDTHS[kind], starts, sizes)
        same_values(values_in(os.path.join(out, f"rank_{rank}")), slices)


def rule_of(rng, name, shape):
    """Another order of a matrix's elements, or of a stack's."""
    if len(shape) == 3:
        return rng.choice((
            f"{name} = t.{name}", f"{name}[e, h, f] = t.{name}[e, f, h]",
            f"{name}[e, n b, f] = t.{name}[e, b n, f]",
            f"{name}[e, h, f (1 | 1)] = t.{name}[e, (f | f), h]",
            f"{name}[e, h (1 | 1), n b] = t.{name}[b n, (h | h), e]"))
    rules = [f"{name}[a, h] = t.{name}[h, a]"]
    if shape[0] % 4 == 0:
        rules.append(f"{name}[n b, h] = t.{name}[b n, h]")
    if shape[1] % 4 == 0:
        rules += [f"{name}[a, n b] = t.{name}[a, b n]", f"{name}[a, n b] = t.{name}[b a, n]"]
    return rng.choice(rules)


def some_rules(rng, tensors):
    """A table that fuses two tensors, or transposes and permutes all."""
    lines, matrices = ["let b = made_b"], []
    for name, (_, shape, _) in tensors.items():
        if len(shape) == 2:
            matrices.append((name, shape))
        elif len(shape) == 3:
            lines.append(rule_of(rng, name, shape))
        else:
            lines.append(f"{name} = t.{name}")
    if len(matrices) > 1 and matrices[0][1][1] == matrices[1][1][1] and rng.random() < 0.8:
        (first, one), (second, other) = matrices[:2]
        rows, made = rng.choice((("a", "(a | c)"), ("f", "f (1 | 1)"))
                                if one == other else (("a", "(a | c)"),))
        more = "c" if rows == "a" else "f"
        made = rng.choice((f"{made}, h", f"h, {made}"))
        lines.append(f"{first}[{rows}, h] + {second}[{more}, h] = fused[{made}]")
        matrices = matrices[2:]
    lines += [rule_of(rng, name, shape) for name, shape in matrices]
    return "\n".join(lines) + "\n"


def some_adapter(rng, shapes):
    """An adapter of some of the weights.  The numbers of a large rank have several chunks."""
    drawer, rank = adapters.Drawer(rng), rng.choice((1, 3, 3, 20, 20, 2100, 8000))
    adapter = adapters.Adapter(r=rank, lora_alpha=rank / 2)
    for name, shape in shapes.items():
        if not adapter.tensors or rng.random() < 0.5:
            adapter.add(name[:-len(".weight")], *drawer.factors(shape, rank), 0.5)
    return adapter


def adaptable(model, wanted):
    """{name: shape} of dense weights without padding after their last columns."""
    unit = {"int4": 8, "int8": 4}.get(model.scheme, 1)
    return {name: shape for name, (_, shape, _) in wanted.items()
            if name.endswith(".weight") and len(shape) == 2 and shape[1] % unit == 0}


def drawn(model, way, rules, adapter, more):
    """What a random model has that all of them together must have."""
    has = {model.scheme, way.__name__, *(["own table"] if rules else []), *(more or ())}
    if adapter:
        has.add("adapter of " + model.scheme)
    for name, (kind, _, data) in model.tensors.items():
        if kind == "F8_E4M3" and (b"\x7f" in data or b"\xff" in data):
            has.add("NaN of E4M3")
        if kind in ("F8_E8M0", "U8") and "scale" in name and b"\xff" in data:
            has.add(f"0xff of {kind}")
        if data and not any(data):
            has.add("zeros")
    return has


WAYS = as_model, as_chunks, as_ranks
ALL_DRAWN = {*SCHEMES, *(way.__name__ for way in WAYS), "as_files_of_ranks", "own table",
             "NaN of E4M3", "0xff of F8_E8M0", "0xff of U8", "zeros", "parts of blocks",
             *("adapter of " + scheme for scheme in SCHEMES if scheme != "mxfp4")}


def random_case(seed):
    """Tests a model, and returns what it has."""
    rng = random.Random(seed)
    model = Drawer(rng).draw()
    word = rng.choice(tuple(TYPES))
    way = rng.choice((*WAYS, *WAYS, as_files_of_ranks) if model.scheme != "mxfp4" else
                     (*WAYS, as_chunks, as_files_of_ranks, as_files_of_ranks))
    wanted = dense(model.tensors, model.config, TYPES[word])
    options = ["--dequantize", word]
    with tempfile.TemporaryDirectory(prefix="reshardfs-quantised-") as directory:
        rules, adapter, shapes = None, None, adaptable(model, wanted)
        # Rank files would have MindSpore's names.
        is_published = way is not as_files_of_ranks
        if shapes and is_published and rng.random() < 0.6:
            adapter = some_adapter(rng, shapes)
            wanted = adapters.merged(wanted, [(adapter, 1)])
            options += ["--lora", adapter.write(os.path.join(directory, "adapter"))]
        if is_published and rng.random() < 0.4:
            rules = some_rules(rng, wanted)
            model.config["made_b"] = 4
            wanted = Table(rules).convert(wanted, model.config, "hf")
            options += ["--convert",
                        write(os.path.join(directory, "own.rules"), rules.encode())]
        try:
            more = way(directory, model, wanted, *options)
        except Exception as error:
            raise type(error)(f"--cases 1 --seed {seed} ({model.scheme}, {way.__name__}, "
                              f"{options}, {rules}): {error}") from error
    return drawn(model, way, rules, adapter, more)


@test
def config_is_compared(directory):
    """a config.json that contradicts the dense weights is refused, alone and with --cast"""
    source, _ = model_of(directory, "gptq")
    # It has no norm after the layers, which models that predict words have.
    config = {**json.loads(content(os.path.join(source, "config.json"))), "architectures": ["A"]}
    for cast in ((), ("--cast", "float32")):
        words = ["--format", "hf", "--dequantize", "bfloat16", *cast]
        for key, wrong, right in (("num_hidden_layers", 2, 1), ("vocab_size", 14, 13),
                                  ("intermediate_size", 25, 24)):
            write(os.path.join(source, "config.json"), json.dumps({**config, key: wrong}).encode())
            _, log = expect_failure(source, described=True, extra=words)
            demand(log, f'"{key}" is {wrong}', f"the weights say {right}")
            write(os.path.join(source, "config.json"), json.dumps({**config, key: right}).encode())
            with Mounted(source, described=True, extra=words) as mount:
                said = json.loads(content(os.path.join(mount.path, "config.json")))
                check(said[key] == right and "quantization_config" not in said, said)


# ---- options ----

def small(directory, method="fp8", **says):
    """A model of one quantised tensor."""
    tensors = {"w.weight": ("F8_E4M3", (4, 4), bytes(range(16))),
               "w.weight_scale_inv": ("F32", (1, 1), struct.pack("<f", 0.5))}
    return written(os.path.join(directory, "small"), tensors, {"quantization_config": {
        "quant_method": method, "weight_block_size": [4, 4], **says}})


@test
def shown_as_stored(directory):
    """without --dequantize new element types are shown as they are stored"""
    source, _ = model_of(directory, "deepseek_v4-f4")
    with as_hf(source) as mount:
        same_values(values_in(mount.path), values_in(source))
    listing = run_json("ls", source)["model"]["types"]
    check({"Float8E8M0FNU", "Float4E2M1FNx2"} <= {t["dtype"] for t in listing}, listing)
    refused(run("export", source, directory + "/out", "--format", "ckpt"), INPUT,
            "which MindSpore does not have; --drop leaves it out")


@test
def cast_afterwards(directory):
    """--cast converts what --dequantize made"""
    source = small(directory)
    compare_export(directory, source,
                   dense(values_in(source), json.loads(content(source + "/config.json")), "F16"),
                   "--dequantize", "bfloat16", "--cast", "float16")


@test
def digests_differ(directory):
    """an export of another type is another conversion"""
    source, out = small(directory), os.path.join(directory, "out")
    check(run("export", source, out, "--dequantize", "bfloat16").status == GOOD, "export")
    got = run("export", source, out, "--dequantize", "float32")
    check(got.status != GOOD, got)
    check(run("verify", source, out, "--dequantize", "bfloat16").status == GOOD, "verify")


@test
def wrong_options(directory):
    """what is refused"""
    source = small(directory)
    refused(run("ls", source, "--dequantize", "int8"), USAGE, "int8")
    another = shutil.copytree(source, os.path.join(directory, "another"))
    refused(run("plan", source, "--config", another), USAGE,
            "--config needs --convert or --dequantize")
    refused(run("ls", source, "--dequantize", "bfloat16", "--dst-ranks", "2"), USAGE,
            "--dst-ranks and --dequantize cannot be used together")
    refused(run("convert", "check", "qwen3", "--dequantize", "float16"), USAGE,
            "--dequantize needs SOURCE")
    refused(run("export", small(directory, "quark"), directory + "/out", "--dequantize",
                "bfloat16"), INPUT, '"quant_method" "quark" is not supported by --dequantize')


KEYS = [
    ("gptq", {"rotation": "random"}, '"rotation"'),
    ("gptq", {"activation": {"mode": "w4afp8"}}, '"activation"'),
    ("gptq", {"meta": {"preprocessors": [{"code": "smoother"}]}}, '"meta.preprocessors"'),
    ("gptq", {"adapter": {"name": "lora"}}, '"adapter"'),
    ("awq", {"rotate": True}, '"rotate"'),
    ("fp8", {"hadamard_group_size": 128}, '"hadamard_group_size"'),
    ("mxfp4", {"online_rotation": "r4"}, '"online_rotation"'),
    ("compressed-tensors", {"sparsity_config": {"format": "sparse-24-bitmask"}},
     '"sparsity_config.format"'),
    ("compressed-tensors", {"config_groups": {"g": {"weights": {"num_bits": 4, "lut": [1]}}}},
     '"config_groups.g.weights.lut"'),
    ("compressed-tensors", {"config_groups": {"g": {"transform": {"R": 1}}}},
     '"config_groups.g.transform"'),
]
# What says nothing about the weights: the same dense model.
HARMLESS = [
    ("fp8", {"activation_scheme": "dynamic", "fmt": "e4m3", "rotation": None, "extra": {},
             "more": [], "less": "", "other": False, "modules_to_not_convert": ["lm_head"]}),
    ("fp8", {"ignored_layers": ["lm_head"], "scale_fmt": "ue8m0"}),
]


@test
def keys_that_are_not_known(directory):
    """a key of the config that is set and not known is refused by its name"""
    rules = write(os.path.join(directory, "own.rules"), b"w = w.weight\n")
    for method, says, name in KEYS:
        bits = {"bits": 4} if method in ("gptq", "awq") else {}
        source = small(directory, method, **{"weight_block_size": None, **bits, **says})
        for words in (["--dequantize", "float16"], ["--convert", rules, "--from", "hf"]):
            refused(run("plan", source, "--dst-strategy", "none", *words), INPUT,
                    name + ' of "quantization_config" is set')
    for method, says in HARMLESS:
        with as_hf(small(directory, method, **says), "--dequantize", "float32") as mount:
            check(list(values_in(mount.path)) == ["w.weight"], "other tensors")


def odd(directory, config, tensors, **files):
    source = written(os.path.join(directory, "odd"),
                     {"n.weight": ("BF16", (4,), bytes(8)), **tensors}, config)
    for name, text in files.items():
        write(os.path.join(source, name + ".json"), text)
    return source


@test
def codes_are_no_weights(directory):
    """--convert shows no codes of a form that is not known, nor drops them"""
    rules = write(os.path.join(directory, "own.rules"), b"n.weight = n.weight\nw = w.weight\n")
    say = {"quantization_config": {"quant_method": "vptq"}}
    scale = {"w.scales": ("F32", (4,), bytes(16))}
    cases = [
        (say, {"w.weight": ("BF16", (4,), bytes(8))}, {}, '"vptq" is not supported'),
        ({}, {"w.weight": ("I16", (4, 4), bytes(32)), **scale}, {}, "looks quantised"),
        ({}, {"w.weight": ("U32", (4, 4), bytes(64)), **scale}, {}, "looks quantised"),
        ({}, {"w.W_q": ("U8", (4, 4), bytes(16))}, {}, "looks quantised"),
        ({}, {"w.weight": ("F8_E5M2", (4, 4), bytes(16)), **scale}, {}, "looks quantised"),
        ({}, {"w.weight": ("BF16", (4,), bytes(8))}, {"hf_quant_config": b"{}"},
         "hf_quant_config.json says that weights are quantised"),
        ({}, {"w.weight": ("BF16", (4,), bytes(8))}, {"quant_model_description": b"{}"},
         "quant_model_description.json says that weights are quantised"),
    ]
    for config, tensors, files, what in cases:
        shutil.rmtree(os.path.join(directory, "odd"), ignore_errors=True)
        source = odd(directory, config, tensors, **files)
        for unlisted in "error", "drop":
            refused(run("plan", source, "--convert", rules, "--from", "hf", "--dst-strategy",
                        "none", "--unlisted", unlisted), INPUT, what)


@test
def tensors_that_nobody_reads(directory):
    """a tensor beside a quantised weight has to be one of its scheme"""
    source = small(directory)
    shutil.rmtree(source)
    w = {"w.weight": ("F8_E4M3", (4, 4), bytes(range(16))),
         "w.weight_scale_inv": ("F32", (1, 1), struct.pack("<f", 0.5)),
         "w.bias": ("BF16", (4,), bytes(8)), "w.input_scale": ("F32", (1,), bytes(4))}
    config = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [4, 4]}}
    for more in "w.rotation", "w.weight_smooth", "w.pre_quant_scale":
        shutil.rmtree(os.path.join(directory, "small"), ignore_errors=True)
        source = written(os.path.join(directory, "small"),
                         {**w, more: ("F32", (4,), bytes(16))}, config)
        refused(run("plan", source, "--dequantize", "float16"), INPUT,
                f"{more} is beside a quantised weight")
    shutil.rmtree(os.path.join(directory, "small"))
    with as_hf(written(os.path.join(directory, "small"), w, config), "--dequantize",
               "float16") as mount:
        check(sorted(values_in(mount.path)) == ["w.bias", "w.weight"], "other tensors")


@test
def sizes_of_codes(directory):
    """sizes in config.json are not compared with weights that are stored as integers"""
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8,
              "intermediate_size": 16, "num_hidden_layers": 1, "vocab_size": 4,
              "tie_word_embeddings": False, "quantization_config": {"quant_method": "other"}}
    same_size = {"model.embed_tokens.weight": ("BF16", (4, 8), bytes(64)),
                 "lm_head.weight": ("BF16", (4, 8), bytes(64))}
    at = "model.layers.0.mlp.gate_proj.weight"
    for i, (kind, shape) in enumerate((("U8", (16, 4)), ("U8", (64, 1)), ("U32", (16, 1)),
                                       ("I8", (8, 16)), ("I16", (1, 8)))):
        size = {"U8": 1, "I8": 1, "I16": 2, "U32": 4}[kind] * math.prod(shape)
        source = written(os.path.join(directory, str(i)),
                         {**same_size, at: (kind, shape, bytes(size))}, config)
        with as_hf(source) as mount:
            same_values(values_in(mount.path), values_in(source))
    source = written(os.path.join(directory, "f8"),
                     {**same_size, at: ("F8_E4M3", (16, 4), bytes(64))}, config)
    beside = os.path.join(directory, "beside")
    write(os.path.join(beside, "config.json"), json.dumps(config).encode())
    words = '"hidden_size" is 8, and the weights say 4'
    refused(run("export", source, os.path.join(directory, "out"), "--format", "hf",
                "--model-files", beside), INPUT, words)
    # The model's own file stops nothing that leaves the weights as they are.
    got = run("export", source, os.path.join(directory, "out"))
    check(got.status == GOOD and words in got.err, repr(got))


@test
def cast_of_codes(directory):
    """--cast of a quantised model is refused, in all its forms"""
    forms = [
        {"w.weight": ("F8_E4M3", (4, 4), bytes(16)),
         "w.weight_scale_inv": ("F32", (1, 1), bytes(4))},
        {"w.weight": ("I8", (4, 4), bytes(16)), "w.SCB": ("F32", (4,), bytes(16))},
        {"w.weight": ("U8", (8, 1), bytes(8)), "w.weight.absmax": ("F32", (1,), bytes(4))},
        {"w_blocks": ("U8", (1, 4, 1, 16), bytes(64)), "w_scales": ("U8", (1, 4, 1), bytes(4))},
        {"w.W_q": ("U8", (4, 4), bytes(16)), "w.scale": ("F16", (4,), bytes(8))},
    ]
    for i, tensors in enumerate(forms):
        source = written(os.path.join(directory, f"form{i}"), tensors, {})
        for kind in "bfloat16", "float32":
            got = run("export", source, os.path.join(directory, "out"), "--format", "hf",
                      "--cast", kind)
            refused(got, INPUT, "is quantised: --cast would round")
            check("--dequantize" in got.err, got)


@test
def cast_of_other_schemes(directory):
    """--cast of a model that says that it is quantised, in a way that is not known"""
    codes, said = ("I8", (4, 4), bytes(16)), "says that weights are quantised, and a.codes is "
    tensors = {"a.codes": codes, "a.codebooks": ("F32", (1, 4), bytes(16))}

    def cast(name, tensors, method=None, other=None):
        config = {"quantization_config": {"quant_method": method}} if method else {}
        source = written(os.path.join(directory, name), tensors, config)
        if other:
            write(os.path.join(source, other), b"{}")
        return run("plan", source, "--format", "hf", "--cast", "float16")

    for method in "aqlm", "vptq", "exl2", "sinq":
        refused(cast(method, tensors, method), INPUT, f"config.json {said}Int8: --cast would round")
    for other in "quant_model_description.json", "hf_quant_config.json":
        refused(cast(other, tensors, None, other), INPUT, f"{other} {said}Int8")
    for name, kinds in ("positions", {"a.codes": ("I64", (2, 2), bytes(32))}), \
            ("mask", {"a.codes": ("BOOL", (2, 2), bytes(4))}), \
            ("vector", {"a.codes": ("I32", (4,), bytes(16))}), ("dense", {}):
        got = cast(name, {"w": ("F32", (2, 2), bytes(16)), **kinds}, "aqlm")
        check(got.status == GOOD, got)
    check(cast("unsaid", tensors).status == GOOD, "nothing says it")


@test
def blocks_that_rules_divide(directory):
    """if the source cuts blocks, a rule may divide a matrix only between them"""
    config = {"model_type": "made_up", "quantization_config": {"quant_method": "mxfp4"}}
    numbers = random.Random(3)
    tensors = {"e_blocks": ("U8", (1, 4, 3, 16), numbers.randbytes(192)),
               "e_scales": ("U8", (1, 4, 3), numbers.randbytes(12))}
    params = [Param("e_blocks", [1, 4, 3, 16], "U8", [-1, -1, -1, 0]),
              Param("e_scales", [1, 4, 3], "U8", [-1, -1, -1])]
    made = dense(tensors, config, "BF16")["e"][2]
    for b, fits in ((32, True), (8, True), (96, True), (24, False)):
        place = os.path.join(directory, str(b))
        source, words = files_of_ranks(place, tensors, {**config, "made_b": b}, params, [1, 2])
        rules = write(os.path.join(place, "own.rules"),
                      b"let b = made_b\nt.e[e, b n, f] = e[e, n b, f]\n")
        words += ["--convert", rules, "--dequantize", "bfloat16"]
        if fits:
            rows = [made[8 * i:8 * i + 8] for i in range(96)]
            turned = b"".join(rows[n * b + i] for i in range(b) for n in range(96 // b))
            compare_export(place, source, {"t.e": ("BF16", (1, 96, 4), turned)}, *words)
        else:
            refused(run("plan", source, *words), INPUT,
                    "e has blocks that the rule divides")


@test
def units_that_rules_divide(directory):
    """neighbouring rows of a part have elements of one byte"""
    config = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    numbers = random.Random(4)
    tensors = {"w.weight": ("I8", (8, 48), numbers.randbytes(384)),
               "w.scale": ("F8_E8M0", (8, 3), bytes(range(110, 134)))}
    for f, p in ((2, 1), (6, 3), (9, 3)):
        model = {**config, "made_f": f, "made_p": p}
        rules = ("let f = made_f\nlet p = made_p\nlet q = made_p\n"
                 "w.weight[a, (p | n f | q)] = x.weight[a, p] + y.weight[a, f n] + z.weight[a, q]\n")
        place = os.path.join(directory, str(f))
        compare_export(place, written(place + "/model", tensors, model),
                       Table(rules).convert(dense(tensors, model, "F32"), model, "hf"),
                       "--convert", write(place + "/own.rules", rules.encode()),
                       "--dequantize", "float32")


@test
def lazily_wrong(directory):
    """what only the contents tell is an error of the read"""
    source, _ = model_of(directory, "gptq")
    for name in os.listdir(source):
        if not name.endswith(".safetensors"):
            continue
        path = os.path.join(source, name)
        tensors = Tensors(content(path)).values()
        groups = next((n for n in tensors if n.endswith("g_idx")), None)
        if groups:
            kind, shape, data = tensors[groups]
            tensors[groups] = kind, shape, data[:-4] + struct.pack("<i", 9999)
            os.remove(path)
            write(path, safetensors_bytes(tensors))
    with as_hf(source, "--dequantize", "bfloat16") as mount:
        try:
            values_in(mount.path)
            check(False, "groups that point outside are shown")
        except OSError as error:
            check(error.errno == errno.EIO, error)
        check(".g_idx: group 9999 of row " in mount.log() and
              "is not one of the 3 rows of its scales" in mount.log(), mount.log())


@test
def spellings(directory):
    """the keys and words of AWQ and GPTQ as their tools write them"""
    def again(name, keys):
        return {keys.get(key, key): value for key, value in name.items()}
    for number, (scheme, keys, words) in enumerate((
            ("awq", {}, {"version": "GEMM"}), ("awq", {}, {"quant_method": "AWQ"}),
            ("awq", {"bits": "w_bit", "group_size": "q_group_size"}, {"version": "GEMM"}),
            ("awq", {"bits": "w_bit"}, {"zero_point": True}), ("awq", {"quant_method": "method"}, {}),
            ("gptq", {}, {"quant_method": "GPTQ"}), ("gptq", {"checkpoint_format": "format"}, {}),
            ("gptq", {"checkpoint_format": "format", "quant_method": "method"}, {}),
            ("gptq", {"checkpoint_format": "format"}, {"format": None}),
            ("gptq", {}, {"format": "gptq"}), ("fp8", {}, {"quant_method": "FP8"}))):
        for seed in range(3):
            model = Drawer(random.Random(100 * number + seed))
            model.says.clear()
            getattr(model, scheme)()
            if scheme == "gptq" and seed == 1:
                model.says["checkpoint_format"] = "gptq_v2"
            elif scheme == "gptq":
                model.says.pop("checkpoint_format", None)
            wanted = dense(model.tensors, model.config, "BF16")
            said = {**again(model.says, keys), **words}
            if words.get("format", "") == "gptq" and seed == 1:
                said["format"] = "gptq_v2"
            if words.get("format", "") is None and seed == 1:
                said["format"] = "GPTQ_v2"
            place = os.path.join(directory, f"{number}-{seed}")
            os.mkdir(place)
            source = written(place + "/model", model.tensors,
                             {**model.config, "quantization_config": said})
            compare_export(place, source, wanted, "--dequantize", "bfloat16")
    source = written(os.path.join(directory, "gemv"), model.tensors, {"quantization_config": {
        "quant_method": "AWQ", "w_bit": 4, "version": "GEMV"}})
    refused(run("plan", "--dequantize", "bfloat16", source), INPUT,
            'version "gemv" of awq is not supported')


@test
def shapes_of_many(directory):
    """if there are many tensors, weight_shape is compared when they are read"""
    tensors = {f"n{i}.weight": ("BF16", (1,), b"\0\0") for i in range(4097)}
    tensors.update({
        "w.weight_packed": ("I32", (2, 32), bytes(range(256))),
        "w.weight_scale": ("BF16", (2, 8), b"\x80\x3f" * 16),
        "w.weight_shape": ("I64", (2,), struct.pack("<2q", 2, 256))})
    says = {"quantization_config": {
        "quant_method": "compressed-tensors", "format": "pack-quantized",
        "config_groups": {"group_0": {"weights": {"num_bits": 4}}}}}
    source = written(os.path.join(directory, "many"), tensors, says)
    wanted = dense(tensors, says, "BF16")
    compare_export(directory, source, wanted, "--dequantize", "bfloat16")
    tensors["w.weight_shape"] = "I64", (2,), struct.pack("<2q", 2, 248)
    source = written(os.path.join(directory, "wrong"), tensors, says)
    got = run("export", source, directory + "/other", "--dequantize", "bfloat16")
    check(got.status != GOOD and "w.weight_shape is [2,248], but its weight_packed has 2 "
          "rows of 256" in got.err, got)


def large_model(directory, scheme):
    """Five matrices of 2048 x 4096."""
    m, n = 2048, 4096
    some = random.Random(7).randbytes(1 << 16)
    few = some.translate(bytes(v & 1 | 0x3c for v in range(256)))

    def tensor(kind, *shape, of=some):
        size = WIDTHS[kind] * math.prod(shape)
        return kind, shape, (of * (size // len(of) + 1))[:size]
    order = struct.pack(f"<{n}i", *(i // 128 for i in range(n)))
    fp8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    integers = {"quant_method": "compressed-tensors", "config_groups": {"group_0": {
        "weights": {"num_bits": 4}}}}
    tensors, says = {
        "fp8": ({"weight": tensor("F8_E4M3", m, n),
                 "weight_scale_inv": tensor("F32", m // 128, n // 128, of=few)}, fp8),
        "fp4": ({"weight": tensor("I8", m, n // 2),
                 "scale": tensor("F8_E8M0", m, n // 32, of=few)}, fp8),
        "mxfp4": ({"weight_blocks": tensor("U8", 2, m // 2, n // 32, 16),
                   "weight_scales": tensor("U8", 2, m // 2, n // 32, of=few)},
                  {"quant_method": "mxfp4"}),
        "int4": ({"weight_packed": tensor("I32", m, n // 8),
                  "weight_scale": tensor("BF16", m, n // 32, of=few),
                  "weight_shape": ("I32", (2,), struct.pack("<2i", m, n))}, integers),
        "nvfp4": ({"weight_packed": tensor("U8", m, n // 2),
                   "weight_scale": tensor("F8_E4M3", m, n // 16, of=few),
                   "weight_global_scale": ("F32", (1,), struct.pack("<f", 7))}, integers),
        "gptq": ({"qweight": tensor("I32", n // 8, m), "qzeros": tensor("I32", n // 128, m // 8),
                  "scales": tensor("F16", n // 128, m, of=few), "g_idx": ("I32", (n,), order)},
                 {"quant_method": "gptq", "bits": 4}),
        "awq": ({"qweight": tensor("I32", n, m // 8), "qzeros": tensor("I32", n // 128, m // 8),
                 "scales": tensor("F16", n // 128, m, of=few)},
                {"quant_method": "awq", "bits": 4, "group_size": 128}),
    }[scheme]
    return written(os.path.join(directory, scheme), {
        f"w{i}.{name}": one for i in range(5) for name, one in tensors.items()},
        {"quantization_config": says})


def read_by_eight(path):
    """Eight threads read an eighth each, by 1 MiB."""
    size = os.path.getsize(path)

    def part(i):
        with open(path, "rb", buffering=0) as f:
            f.seek(size * i // 8)
            while f.tell() < size * (i + 1) // 8:
                check(f.read(1 << 20), path)
    with ThreadPoolExecutor(8) as all_of:
        list(all_of.map(part, range(8)))


@test
def memory_is_bounded(directory):
    """each scheme, eight readers: at most 64 MiB beside the cache and its tiles"""
    for scheme in ("fp8", "fp4", "mxfp4", "int4", "nvfp4", "gptq", "awq"):
        source = large_model(directory, scheme)
        with as_hf(source, "--dequantize", "bfloat16") as mount:
            with Peak(mount.process.pid) as peak:
                for name in os.listdir(mount.path):
                    if name.endswith(".safetensors"):
                        read_by_eight(os.path.join(mount.path, name))
            tiles = mount.stats()["tiles"]["memory_peak_bytes"] / (1 << 20)
            check(is_sanitized(mount.process.pid) or peak.mib - tiles <= 64,
                  f"{scheme}: {peak.mib:.0f} MiB, of which tiles have {tiles:.0f}")
        shutil.rmtree(source)


def main():
    chosen = seed_and_cases(200)
    require_mount()
    tap = Tap()
    for name in sorted(os.listdir(DATA)):
        if os.path.isdir(os.path.join(DATA, name)):
            with tap.test(f"{name}: as the official program"), \
                    tempfile.TemporaryDirectory(prefix="reshardfs-quantised-") as directory:
                check_fixture(directory, name)
                check_reader(name)
    test.each(tap, name=lambda f: f.__doc__)
    with tap.test(f"{chosen.cases} random models from --seed {chosen.seed} on"):
        had = set()
        seeds = half_if_sanitized(range(chosen.seed, chosen.seed + chosen.cases))
        for seed in seeds:
            had |= random_case(seed)
        check(len(seeds) < 200 or had >= ALL_DRAWN, f"no {sorted(ALL_DRAWN - had)}")
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
