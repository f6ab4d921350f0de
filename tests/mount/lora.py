#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Models with PEFT adapters merged: --lora.

    lora.py [--seed S] [--cases N]

lib/adapters.py computes merged models in plain Python.  A model with --lora, in any form,
whole or cut, has to equal the merged model in this form.
"""

import array
import errno
import glob
import json
import os
import random
import shutil
import struct
import sys
import tempfile

LIB = os.path.join(os.environ.get("srcdir", "."), "lib")
sys.path.insert(0, LIB)

from adapters import (  # noqa: E402
    Adapter, Drawer, PREFIX, added, merged, product, transposed)
from dcp_trees import Tensor, Tree, _Drawer, torch_bytes  # noqa: E402
from demands import check, content, flip, write  # noqa: E402
from make_tree import Param, strategy  # noqa: E402
from quantised import published  # noqa: E402
from rsh_cli import GOOD, INPUT, USAGE, good, refused, run, run_json  # noqa: E402
from rsh_mount import Mounted, Tap, Tests, require_mount  # noqa: E402
from run_seed import seed_and_cases  # noqa: E402
from safetensors_format import safetensors_bytes, values_in  # noqa: E402
from shown_model import same_values  # noqa: E402

DTYPES = {"BF16": "BFloat16", "F16": "Float16", "F32": "Float32"}
test = Tests("lora")


def written(directory, tensors, config=None):
    write(os.path.join(directory, "model.safetensors"), safetensors_bytes(tensors))
    write(os.path.join(directory, "config.json"), json.dumps(config or {}).encode())
    return directory


def tree(directory):
    """{path: bytes} of all files of an export."""
    return {os.path.relpath(os.path.join(at, name), directory): content(os.path.join(at, name))
            for at, _, names in os.walk(directory) for name in names
            if not name.startswith("reshardfs-manifest")}


# ---- one small model ----

W = "model.w.weight"


def small(directory, shape=(6, 5), kind="BF16"):
    """A model of one matrix, and an adapter for it."""
    rng = random.Random(7)
    drawer = Drawer(rng)
    model = {W: drawer.matrix(kind, *shape), "norm.weight": drawer.matrix(kind, 5)}
    adapter = Adapter()
    adapter.add("model.w", drawer.matrix("F32", 4, shape[1]), drawer.matrix("F32", shape[0], 4), 2)
    return written(os.path.join(directory, "model"), model), model, adapter


def exported(directory, source, *options):
    out = os.path.join(directory, "out")
    good("export", source, out, "--format", "hf", *options)
    return values_in(out)


@test
def fan_in_fan_out(directory):
    """weights that are stored transposed"""
    source, model, _ = small(directory)
    drawer, adapter = Drawer(random.Random(8)), Adapter(fan_in_fan_out=True)
    adapter.add("model.w", drawer.matrix("BF16", 4, 6), drawer.matrix("F16", 5, 4), 2)
    same_values(exported(directory, source, "--lora", adapter.write(directory + "/a")),
                merged(model, [(adapter, 1)]))


@test
def plan_names_adapters(directory):
    """plan lists the adapters from which whole tensors are read"""
    drawer, model, words = Drawer(random.Random(9)), {}, []
    for i in range(8):
        model[f"model.w{i}.weight"] = drawer.matrix("BF16", 6, 5)
        adapter = Adapter(modules_to_save=[f"w{i}"] if i % 2 else None)
        adapter.add(f"model.w{i}", drawer.matrix("BF16", 4, 5), drawer.matrix("BF16", 6, 4), 2)
        if i % 2:
            adapter.replace(f"model.w{i}.weight", drawer.matrix("BF16", 6, 5))
        words += ["--lora", adapter.write(f"{directory}/a{i}")]
    said = run_json("plan", written(directory + "/model", model), *words)
    read = {s["path"]: s["bytes"] for s in said["sources"]}
    check(sum(read.values()) == said["total"]["read_bytes"], said)
    check({path for path in read if "adapter" in path} == {
        f"{directory}/a{i}/adapter_model.safetensors" for i in range(1, 8, 2)}, said)


@test
def shapes_tell(directory):
    """the shape of a weight tells whether it is transposed; a square one does not"""
    source, model, _ = small(directory)
    drawer, adapter = Drawer(random.Random(8)), Adapter(fan_in_fan_out=True)
    adapter.add("model.w", drawer.matrix("BF16", 4, 6), drawer.matrix("F16", 5, 4), 2)
    wanted = merged(model, [(adapter, 1)])
    adapter.config["fan_in_fan_out"] = False
    at = adapter.write(directory + "/a")
    same_values(exported(directory, source, "--lora", at), wanted)
    square = {**model, "model.v.weight": drawer.matrix("BF16", 4, 4)}
    adapter.add("model.v", drawer.matrix("F32", 4, 4), drawer.matrix("F32", 4, 4), 2)
    refused(run("plan", written(directory + "/square", square), "--lora",
                adapter.write(directory + "/b")), INPUT,
            'model.v.weight is square, and "fan_in_fan_out" is not true of other weights: it is '
            "not known whether this one is transposed")


@test
def exact_numbers(directory):
    """whole numbers are added exactly"""
    def of(kind, shape, values):
        return kind, shape, struct.pack(f"<{len(values)}f", *values)
    model = {W: of("F32", (2, 3), [1, 2, 3, 4, 5, 6])}
    adapter = Adapter(r=2, lora_alpha=4)
    adapter.add("model.w", of("F32", (2, 3), [1, 0, 2, 3, 1, 0]), of("F32", (2, 2), [1, 2, 0, 5]),
                2)
    got = exported(directory, written(directory + "/model", model), "--lora",
                   adapter.write(directory + "/a") + ":0.5")
    check(struct.unpack("<6f", got[W][2]) == (8, 4, 5, 19, 10, 6), got)


@test
def links_and_colons(directory):
    """a directory with a colon in its name, whose files are links, as a daemon reads it"""
    source, model, adapter = small(directory)
    adapter.write(directory + "/blobs")
    os.mkdir(directory + "/a:b")
    for name in os.listdir(directory + "/blobs"):
        os.symlink(f"../blobs/{name}", f"{directory}/a:b/{name}")
    for words, scale in (("", 1), (":2", 2)):
        refused(run("plan", source, "--lora", directory + "/a:b" + words), USAGE,
                "leads out of --lora, to " + os.path.realpath(directory) + "/blobs/",
                "--follow-outside allows it")
        with Mounted(source, described=True, extra=[
                "--format", "hf", "--follow-outside", "--lora",
                directory + "/a:b" + words]) as mount:
            same_values(values_in(mount.path), merged(model, [(adapter, scale)]))
            check("1 tensors are merged, 0 are replaced" in mount.log(), mount.log())
    timed = adapter.write(directory + "/run-12:30")
    for words, scale in ("", 1), (":2", 2):
        same_values(exported(directory, source, "--overwrite", "--lora", timed + words),
                    merged(model, [(adapter, scale)]))
    other = adapter.write(directory + "/run-12")
    refused(run("plan", source, "--lora", timed), USAGE,
            f'"{timed}" and "{other}" are both there', f"give {timed}:1 or {other}/:30")
    for words, scale in ((timed + ":1", 1), (other + "/:30", 30)):
        same_values(exported(directory, source, "--overwrite", "--lora", words),
                    merged(model, [(adapter, scale)]))
    # In the cache of Hugging Face the links lead to blobs of the same adapter.
    cache = directory + "/models--me--lora"
    os.makedirs(cache + "/snapshots/1234")
    os.rename(directory + "/blobs", cache + "/blobs")
    for name in os.listdir(cache + "/blobs"):
        os.symlink(f"../../blobs/{name}", f"{cache}/snapshots/1234/{name}")
    with Mounted(source, described=True, extra=[
            "--format", "hf", "--lora", cache + "/snapshots/1234"]) as mount:
        same_values(values_in(mount.path), merged(model, [(adapter, 1)]))


@test
def links_within(directory):
    """links in the directory, and a link to it, need no option; one link out is enough"""
    source, model, adapter = small(directory)
    at = adapter.write(directory + "/a")
    os.mkdir(at + "/files")
    for name in "adapter_config.json", "adapter_model.safetensors":
        os.rename(f"{at}/{name}", f"{at}/files/{name}")
        os.symlink(f"files/{name}", f"{at}/{name}")
    os.symlink("a", directory + "/link")
    for place in at, directory + "/link":
        shutil.rmtree(directory + "/out", ignore_errors=True)
        same_values(exported(directory, source, "--lora", place), merged(model, [(adapter, 1)]))
    for name in "adapter_config.json", "adapter_model.safetensors":
        shutil.copy(f"{at}/files/{name}", f"{directory}/{name}")
        os.remove(f"{at}/{name}")
        os.symlink(f"../{name}", f"{at}/{name}")
        refused(run("plan", source, "--lora", at), USAGE, f"{name} leads out of --lora")
        os.remove(f"{at}/{name}")
        os.symlink(f"files/{name}", f"{at}/{name}")


@test
def large_ranks(directory):
    """a rank that cannot be merged is refused at the start, one adapter's or of several"""
    def of_rank(place, rank):
        adapter = Adapter(r=rank)
        adapter.add("model.w", ("BF16", (rank, 5), bytes(10 * rank)),
                    ("BF16", (6, rank), bytes(12 * rank)), 2)
        return adapter.write(directory + place)
    model = {W: ("BF16", (6, 5), b"\x80\x3f" * 30)}
    source = written(directory + "/model", model)
    for ranks in (1000000,), (200001,), (150000, 60000):
        words = []
        for rank in ranks:
            words += ["--lora", of_rank(f"/{rank}", rank)]
        refused(run("plan", source, *words), INPUT, f"of rank {sum(ranks)} in all, and 200000 "
                "is the largest that can be merged")
    same_values(exported(directory, source, "--lora", of_rank("/most", 200000)), model)


@test
def one_cache(directory):
    """mounts with adapters and without share a cache on disk"""
    source, model, adapter = small(directory, (200, 300))
    at = adapter.write(directory + "/a")
    for _ in range(2):
        for words, wanted in (([], model), (["--lora", at], merged(model, [(adapter, 1)])),
                              (["--lora", at + ":3"], merged(model, [(adapter, 3)]))):
            with Mounted(source, described=True, extra=[
                    "--format", "hf", "--cache", "on", "--cache-dir", directory + "/cache",
                    *words]) as mount:
                same_values(values_in(mount.path), wanted)


@test
def adapter_changes(directory):
    """an adapter that changes is an error of the read"""
    source, _, adapter = small(directory, (200, 300))
    at = adapter.write(directory + "/a")
    with Mounted(source, described=True, extra=["--format", "hf", "--lora", at]) as mount:
        flip(at + "/adapter_model.safetensors", -1)
        try:
            values_in(mount.path)
            check(False, "bytes of a changed adapter are shown")
        except OSError as error:
            check(error.errno in (errno.ESTALE, errno.EIO), error)
        check("adapter_model.safetensors" in mount.log(), mount.log())


@test
def digests_differ(directory):
    """an export with another adapter or scale is another conversion"""
    source, _, adapter = small(directory)
    at, out = adapter.write(directory + "/a"), directory + "/out"
    check(run("export", source, out, "--lora", at).status == GOOD, "export")
    check(run("verify", source, out, "--lora", at).status == GOOD, "verify")
    for words in (["--lora", at + ":2"], [], ["--lora", at, "--lora", at]):
        got = run("export", source, out, *words)
        check(got.status != GOOD, got)


@test
def files_of_torch(directory):
    """adapter_model.bin, which torch.save() writes, unless safetensors are beside it"""
    source, model, adapter = small(directory)
    at = adapter.write(directory + "/a")
    write(at + "/adapter_model.bin", b"not read")
    wanted = merged(model, [(adapter, 1)])
    same_values(exported(directory, source, "--lora", at), wanted)
    os.remove(at + "/adapter_model.safetensors")
    write(at + "/adapter_model.bin", torch_bytes(adapter.tensors))
    shutil.rmtree(directory + "/out")
    same_values(exported(directory, source, "--lora", at), wanted)
    with Mounted(source, described=True, extra=["--format", "hf", "--lora", at]) as mount:
        same_values(values_in(mount.path), wanted)


# ---- stacks of experts ----

def stacked(pairs):
    """A and B of a stack, of F32: row p * r + k of A, and column k * n + p of B."""
    (_, (r, inner), _), (_, (outer, _), _) = pairs[0]
    a = "F32", (len(pairs) * r, inner), b"".join(x[2] for x, _ in pairs)
    columns = [[y[2][4 * (r * i + k):4 * (r * i + k) + 4] for i in range(outer)]
               for k in range(r) for _, y in pairs]
    return a, ("F32", (outer, len(columns)), b"".join(x for row in zip(*columns) for x in row))


def exchanged(tensor):
    """A matrix of F32 with rows and columns exchanged."""
    kind, (rows, columns), data = tensor
    return kind, (columns, rows), b"".join(
        data[4 * (i * columns + j):4 * (i * columns + j) + 4]
        for j in range(columns) for i in range(rows))


def of_experts(drawer, n, rank, outer, inner, most=1.0):
    """[(A, B)], and a stack of weights, each [outer, inner]."""
    pairs = [(drawer.matrix("F32", rank, inner, most=most),
              drawer.matrix("F32", outer, rank, most=most)) for _ in range(n)]
    return pairs, [drawer.matrix("F32", outer, inner) for _ in range(n)]


@test
def stacks_of_experts(directory):
    """stacks are merged as their matrices are, each with its own part of the adapter"""
    drawer = Drawer(random.Random(12))
    for turned in (False, True):
        at = os.path.join(directory, str(turned))
        adapter, single = Adapter(target_parameters=["experts.up", "experts.down"]), Adapter()
        model, apart, wanted = {}, {}, {}
        # The matrices of "down" are square: those of "up" tell how they are stored.
        for name, middle, outer in (("up", "", 9), ("down", ".base_layer", 6)):
            pairs, weights = of_experts(drawer, 3, 4, outer, 6)
            adapter.add("l.experts" + middle, *stacked(pairs), 2)
            for i, (pair, weight) in enumerate(zip(pairs, weights)):
                apart[f"{name}{i}.weight"] = weight
                single.add(f"{name}{i}", *pair, 2)
            as_shown = exchanged if turned else lambda x: x
            shown = [as_shown(x) for x in weights]
            model["l.experts." + name] = "F32", (3, *shown[0][1]), b"".join(x[2] for x in shown)
            made = merged(apart, [(single, 1)])
            wanted["l.experts." + name] = *model["l.experts." + name][:2], b"".join(
                as_shown(made[f"{name}{i}.weight"])[2] for i in range(3))
        source = written(at + "/model", model)
        same_values(exported(at, source, "--lora", adapter.write(at + "/a")), wanted)


@test
def stacks_in_blocks(directory):
    """stacks whose factors are several chunks, read in any order"""
    rng = random.Random(13)
    rank, outer, inner, n = 180, 800, 780, 2

    def noise(rows, columns):
        return "F32", (rows, columns), array.array(
            "f", (rng.random() for _ in range(rows * columns))).tobytes()
    pairs = [(noise(rank, inner), noise(outer, rank)) for _ in range(n)]
    weights = [noise(outer, inner) for _ in range(n)]
    stack, single = Adapter(r=rank, target_parameters=["experts.w"]), Adapter(r=rank)
    stack.add("experts", *stacked(pairs), 1)
    for i, pair in enumerate(pairs):
        single.add(f"w{i}", *pair, 1)
    apart = written(directory + "/apart", {f"w{i}.weight": w for i, w in enumerate(weights)})
    source = written(directory + "/model", {"experts.w": (
        "F32", (n, outer, inner), b"".join(w[2] for w in weights))})
    made = exported(directory, apart, "--lora", single.write(directory + "/single"))
    wanted = b"".join(made[f"w{i}.weight"][2] for i in range(n))
    with Mounted(source, described=True, extra=[
            "--format", "hf", "--lora", stack.write(directory + "/stack")]) as mount:
        path = glob.glob(mount.path + "/*.safetensors")[0]
        start = os.path.getsize(path) - len(wanted)
        with open(path, "rb", buffering=0) as f:
            for _ in range(40):
                at, count = rng.randrange(len(wanted)), rng.choice((1, 7, 4000, 100000))
                check(os.pread(f.fileno(), count, start + at) == wanted[at:at + count],
                      f"{count} bytes at {at} differ")
        check(content(path)[start:] == wanted, "the stack differs")


@test
def stacks_apart(directory):
    """an adapter of stacks, and a model whose experts are apart"""
    drawer = Drawer(random.Random(15))
    for kind, gate, up, down in (("BF16", "gate_proj", "up_proj", "down_proj"),
                                 ("F32", "w1", "w3", "w2")):
        at = os.path.join(directory, kind)
        adapter = Adapter(target_parameters=["l.experts.gate_up_proj", "experts.down_proj"],
                          rank_pattern={"experts.gate_up_proj": 3})
        whole, apart = {}, {}
        for name, parts, rank, outer, inner in (("gate_up_proj", (gate, up), 3, 5, 6),
                                                ("down_proj", (down,), 4, 6, 5)):
            pairs = of_experts(drawer, 3, rank, outer * len(parts), inner)[0]
            middle = "" if name == "down_proj" else ".base_layer"
            adapter.add("l.experts" + middle, *stacked(pairs), 2)
            data = b""
            for i in range(3):
                for part in parts:
                    weight = drawer.matrix(kind, outer, inner)
                    apart[f"l.experts.{i}.{part}.weight"] = weight
                    data += weight[2]
            whole["l.experts." + name] = kind, (3, outer * len(parts), inner), data
        lora = adapter.write(at + "/a")
        merged_whole = exported(at, written(at + "/whole", whole), "--lora", lora)
        shutil.rmtree(at + "/out")
        source = written(at + "/apart", apart)
        got = exported(at, source, "--lora", lora)
        for name, parts in (("gate_up_proj", (gate, up)), ("down_proj", (down,))):
            check(merged_whole["l.experts." + name][2] == b"".join(
                got[f"l.experts.{i}.{part}.weight"][2] for i in range(3) for part in parts),
                  f"{name} differs")
        check({n: t[1] for n, t in got.items()} == {n: t[1] for n, t in apart.items()}, got)
        more = {**apart, f"l.experts.3.{gate}.weight": apart[f"l.experts.0.{gate}.weight"]}
        refused(run("plan", written(at + "/more", more), "--lora", lora), INPUT,
                "is for 3 experts, but l.experts.gate_up_proj has more")
        del apart[f"l.experts.1.{up}.weight"]
        refused(run("plan", written(at + "/fewer", apart), "--lora", lora), INPUT,
                "changes l.experts.gate_up_proj, but expert 1 is missing or has another shape")


# ---- tied embeddings ----

E, HEAD = "model.embed_tokens.weight", "lm_head.weight"
# What PEFT 0.21.2 and transformers 5.24.0 make of a tied model: {title: (config, tensors of
# the adapter, what the embedding is, what the head is; None: it is tied)}.  "e" and "h" are
# tensors that replace embedding and head, "E" is the base's, "M" and "L" are the adapters of
# embedding and head.
TIED = {
    "embedding saved": ({"modules_to_save": ["embed_tokens"]}, "e", "e", "E"),
    "head saved": ({"modules_to_save": ["lm_head"]}, "h", "E", "h"),
    "both saved": ({"modules_to_save": ["embed_tokens", "lm_head"]}, "eh", "e", "h"),
    "embedding saved, adapter of the head": (
        {"modules_to_save": ["embed_tokens"]}, "eL", "e", "EL"),
    "head saved, adapter of the embedding": ({"modules_to_save": ["lm_head"]}, "hM", "EM", "h"),
    "saved, but tied": (
        {"modules_to_save": ["embed_tokens"], "ensure_weight_tying": True}, "e", "e", None),
    "adapter of the head": ({}, "L", "EL", None),
    "adapter of the embedding": ({}, "M", "EM", None),
    "adapters of both": ({}, "ML", "EML", None),
    "weights of both": ({}, "eh", "h", None),
    "weight of the head": ({}, "h", "h", None),
    "weight of the embedding": ({}, "e", "e", None),
    "weight and adapter": ({}, "eL", "eL", None),
}


def tied_model(directory, names, tie, stored):
    drawer = Drawer(random.Random(11))
    tensors = {names[E]: drawer.matrix("BF16", 12, 8), "norm.weight": drawer.matrix("BF16", 5)}
    if stored:
        tensors[names[HEAD]] = tensors[names[E]]
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 12,
              "hidden_size": 8}
    if tie is not None:
        config["tie_word_embeddings"] = tie
    return written(directory, tensors, config), tensors, drawer


def tied_adapter(directory, config, parts, drawer):
    adapter = Adapter(r=4, **config)
    own = {}
    for part, name in ("e", E), ("h", HEAD):
        if part in parts:
            own[part] = drawer.matrix("BF16", 12, 8)
            adapter.replace(name, own[part])
    if "M" in parts:
        own["M"] = drawer.matrix("F32", 4, 12), drawer.matrix("F32", 8, 4)
        adapter.add(E[:-len(".weight")], *own["M"], 2, end="", kind="lora_embedding")
    if "L" in parts:
        own["L"] = drawer.matrix("F32", 4, 8), drawer.matrix("F32", 12, 4)
        adapter.add(HEAD[:-len(".weight")], *own["L"], 2)
    adapter.write(directory)
    return own


def of_recipe(recipe, base, own):
    made = base if recipe[0] == "E" else own[recipe[0]]
    for part in recipe[1:]:
        a, b = own[part]
        rows = product(b, a)
        made = added(made, transposed(rows) if part == "M" else rows, 2.0, part == "M")
    return made


def tied_case(directory, title, names=None, tie=True, stored=False):
    names = names or {E: E, HEAD: HEAD}
    config, parts, embedding, head = TIED[title]
    source, tensors, drawer = tied_model(os.path.join(directory, "model"), names, tie, stored)
    own = tied_adapter(os.path.join(directory, "adapter"), config, parts, drawer)
    wanted = {**tensors, names[E]: of_recipe(embedding, tensors[names[E]], own)}
    wanted.pop(names[HEAD], None)
    if head:
        wanted[names[HEAD]] = of_recipe(head, tensors[names[E]], own)
    with Mounted(source, described=True, extra=[
            "--format", "hf", "--model-files", source, "--lora",
            os.path.join(directory, "adapter")]) as m:
        same_values(values_in(m.path), wanted)
        says = json.loads(content(os.path.join(m.path, "config.json")))
        check(says.get("tie_word_embeddings", not head) == (not head), f"{title}: {says}")


@test
def tied_embeddings(directory):
    """adapters of tied embeddings and heads are merged as PEFT merges them"""
    for title in TIED:
        for stored in False, True:
            tied_case(os.path.join(directory, f"{title}-{stored}"), title, stored=stored)
    tied_case(os.path.join(directory, "unsaid"), "adapters of both", tie=None)


@test
def names_of_other_releases(directory):
    """adapters have the names in memory, files those of another release of transformers"""
    for i, begin in enumerate(("language_model.model.", "model.language_model.")):
        names = {E: begin + "embed_tokens.weight", HEAD: "lm_head.weight" if i else
                 "language_model.lm_head.weight"}
        for title in "head saved", "both saved", "adapter of the head", "weights of both":
            tied_case(os.path.join(directory, f"{i}{title}"), title, names)
    drawer = Drawer(random.Random(3))
    for memory, files in (
            ("model.language_model.layers.0.q", "model.layers.0.q"),
            ("model.language_model.layers.0.q", "language_model.model.layers.0.q"),
            ("language_model.model.layers.0.q", "model.language_model.layers.0.q"),
            ("model.layers.0.q", "model.language_model.layers.0.q"),
            ("model.visual.blocks.0.q", "visual.blocks.0.q"),
            ("visual.blocks.0.q", "model.visual.blocks.0.q")):
        place = os.path.join(directory, f"{memory}-{files}")
        model = {files + ".weight": drawer.matrix("BF16", 6, 5)}
        source = written(os.path.join(place, "model"), model)
        adapter = Adapter()
        adapter.add(memory, drawer.matrix("F32", 4, 5), drawer.matrix("F32", 6, 4), 2)
        adapter.write(os.path.join(place, "adapter"))
        scale, a, b, _ = adapter.scales[memory]
        wanted = {files + ".weight": added(
            model[files + ".weight"], product(b, a), float(scale), False)}
        same_values(exported(place, source, "--lora", os.path.join(place, "adapter")), wanted)


@test
def empty_stacks(directory):
    """stacks of no matrix, and of matrices without rows or columns"""
    for n, outer, inner in ((0, 4, 6), (2, 0, 6), (2, 4, 0)):
        at = f"{directory}/{n}-{outer}-{inner}"
        model = {"experts.w": ("F32", (n, outer, inner), b""), W: ("F32", (1,), bytes(4))}
        adapter = Adapter(r=3, target_parameters=["experts.w"])
        adapter.add("experts", ("F32", (3 * n, inner), bytes(12 * n * inner)),
                    ("F32", (outer, 3 * n), bytes(12 * n * outer)), 1)
        source, lora = written(at + "/model", model), adapter.write(at + "/a")
        if n:
            same_values(exported(at, source, "--lora", lora), model)
        else:
            refused(run("plan", source, "--lora", lora), INPUT,
                    "changes experts.w, which has no matrix")


@test
def stacks_that_are_not_known(directory):
    """stacks of which shapes tell too little, each with a sentence"""
    drawer = Drawer(random.Random(14))
    pairs, weights = of_experts(drawer, 2, 4, 6, 6)
    square = "F32", (2, 6, 6), b"".join(x[2] for x in weights)
    model = written(directory + "/model", {"experts.w": square, "experts.v": square})
    adapter = Adapter(target_parameters=["experts.w"])
    adapter.add("experts", *stacked(pairs), 2)
    refused(run("plan", model, "--lora", adapter.write(directory + "/a")), INPUT,
            "changes experts.w, whose matrices are square: it is not known whether they are "
            "transposed")
    adapter.config["target_parameters"].append("experts.v")
    refused(run("plan", model, "--lora", adapter.write(directory + "/a")), INPUT,
            'fits several of "target_parameters": it is not known which one it changes')
    adapter.config["target_parameters"] = ["experts.u"]
    refused(run("plan", model, "--lora", adapter.write(directory + "/a")), INPUT,
            "changes experts.weight, which is not in the source")
    wide = written(directory + "/wide", {"experts.w": ("F32", (2, 6, 7), bytes(336))})
    adapter = Adapter(target_parameters=["w"], r=3)
    adapter.add("experts", *stacked(of_experts(drawer, 2, 4, 6, 7)[0]), 2)
    refused(run("plan", wide, "--lora", adapter.write(directory + "/b")), INPUT,
            "has rank 8, its other matrix 8, and adapter_config.json says 6")


# ---- what is wrong ----

def bad_config(directory, words, **config):
    source, _, adapter = small(directory)
    adapter.config.update(config)
    refused(run("plan", source, "--lora", adapter.write(directory + "/a")), INPUT,
            "adapter_config.json: ", words)


@test
def wrong_configs(directory):
    """configurations that cannot be merged, each with a sentence"""
    for i, (words, config) in enumerate((
            ('"peft_type" is "IA3", and only "LORA" can be merged', {"peft_type": "IA3"}),
            ('"peft_type" is missing', {"peft_type": None}),
            ('"bias" is not "none"', {"bias": "all"}),
            ('"use_dora" is set: such an adapter cannot be merged here', {"use_dora": True}),
            ('"use_qalora" is set', {"use_qalora": True}),
            ('"lora_bias" is set', {"lora_bias": True}),
            ('"target_parameters" is not a list of texts', {"target_parameters": [1]}),
            ('"target_parameters" is not a list of texts', {"target_parameters": "experts.w"}),
            ('"layer_replication" is set', {"layer_replication": [[0, 1]]}),
            ('"init_lora_weights" is "pissa", which changes the weights of the base as well',
             {"init_lora_weights": "pissa"}),
            ('"r" is not a whole number above 0', {"r": 0}),
            ('"lora_alpha" is not a number', {"lora_alpha": "8"}),
            ('the pattern "(?=w)" is a regular expression that is not supported',
             {"rank_pattern": {"(?=w)": 4}}),
            ('the pattern "w{9}" is a regular expression that is not supported',
             {"alpha_pattern": {"w{9}": 4}}),
            ('is a regular expression that is not supported', {"rank_pattern": {"w" * 1001: 4}}),
            ('the pattern "w++++++++++++++++++++++++++++++++++++++++" is a regular expression that '
             "is not supported", {"rank_pattern": {"w" + 40 * "+": 4}}),
            ('is a regular expression that is not supported',
             {"rank_pattern": {40 * "(" + "w" + 40 * "+)": 4}}),
            ('is a regular expression that is not supported',
             {"rank_pattern": {40 * "(" + "w" + 40 * ")*": 4}}),
            ('the pattern "w*?*" is a regular expression that is not supported',
             {"rank_pattern": {"w*?*": 4}}),
            ('the pattern ".*(w' + 60 * "*" + '|b).*" is a regular expression that is not '
             "supported", {"rank_pattern": {".*(w" + 60 * "*" + "|b).*": 4}}),
            ('the value of "w" in a pattern is not a whole number above 0',
             {"rank_pattern": {"w": 4.5}}),
            ('the value of "w" in a pattern is not a number above 0',
             {"alpha_pattern": {"w": "x"}}))):
        bad_config(os.path.join(directory, str(i)), words, **config)


def bad_tensors(directory, words, change, **says):
    source, _, adapter = small(directory, **says)
    change(adapter.tensors)
    refused(run("plan", source, "--lora", adapter.write(directory + "/a")), INPUT,
            "adapter_model.safetensors: ", words)


def renamed(old, new):
    def change(tensors):
        for name in list(tensors):
            tensors[name.replace(old, new)] = tensors.pop(name)
    return change


@test
def wrong_tensors(directory):
    """adapters that do not fit, each with a sentence"""
    a, b = f"{PREFIX}model.w.lora_A.weight", f"{PREFIX}model.w.lora_B.weight"
    matrix = Drawer(random.Random(9)).matrix
    for i, (words, change) in enumerate((
            (f"{a} is there, but {b} is missing", lambda t: t.pop(b)),
            (f"{b} is there, but {a} is missing", lambda t: t.pop(a)),
            (f"{PREFIX}model.v.lora_A.weight changes model.v.weight, which is not in the source",
             renamed("model.w", "model.v")),
            ('model.w.lora_A.weight does not begin with "base_model.model."',
             renamed(PREFIX, "")),
            (f"{a} has rank 3, its other matrix 4, and adapter_config.json says 4",
             lambda t: t.update({a: matrix("F32", 3, 5)})),
            (f"{a} has rank 3, its other matrix 3, and adapter_config.json says 4",
             lambda t: t.update({a: matrix("F32", 3, 5), b: matrix("F32", 6, 3)})),
            (f"{a} and its other matrix give a product of [6,7], but {W} has another shape",
             lambda t: t.update({a: matrix("F32", 4, 7)})),
            (f"{a} is not a matrix", lambda t: t.update({a: matrix("F32", 4, 5, 1)})),
            (f"{b} is Int8, and not BFloat16, Float16 or Float32",
             lambda t: t.update({b: ("I8", (6, 4), bytes(24))})),
            (f"{PREFIX}model.w.lora_magnitude_vector is a part of an adapter that is not known",
             lambda t: t.update({f"{PREFIX}model.w.lora_magnitude_vector": matrix("F32", 6)})),
            (f"{PREFIX}head.weight replaces head.weight, which is not in the source",
             lambda t: t.update({f"{PREFIX}head.weight": matrix("F32", 6)})),
            (f"{PREFIX}norm.weight replaces norm.weight, which has another shape",
             lambda t: t.update({f"{PREFIX}norm.weight": matrix("BF16", 6)})),
            (f"{PREFIX}norm.weight is Float32 and replaces norm.weight, which is BFloat16",
             lambda t: t.update({f"{PREFIX}norm.weight": matrix("F32", 5)})),
            (f"changes {W}, as another tensor of the adapter does", lambda t: t.update(
                {name.replace(".weight", ".default.weight"): t[name] for name in (a, b)})),
            ("changes norm.weight, as another tensor of the adapter does",
             lambda t: t.update({f"{PREFIX}norm{middle}.weight": matrix("BF16", 5)
                                 for middle in ("", ".modules_to_save.default")})),
            ("a tensor has too long a name", renamed("model.w", "w" * 5000)),
            ("the adapter has no tensor", dict.clear))):
        bad_tensors(os.path.join(directory, str(i)), words, change)


@test
def what_the_file_lacks(directory):
    """matrices and weights that the config wants and the file lacks, as PEFT says it"""
    drawer, layers = Drawer(random.Random(10)), range(3)
    modules = [f"model.layers.{i}.{end}" for i in layers for end in ("q_proj", "v_proj")]
    others = ["lm_head", "model.mtp.12.lm_head", "model.vision.0.v_proj"]
    source = written(directory + "/model", {
        f"{name}.weight": drawer.matrix("BF16", 6, 5) for name in modules + others})

    def said(i, lacking, replaced=("lm_head",), **config):
        adapter = Adapter(**{"target_modules": ["q_proj", "v_proj"],
                             "modules_to_save": ["lm_head"], **config})
        for name in modules:
            if name not in lacking:
                adapter.add(name, drawer.matrix("F32", 4, 5), drawer.matrix("F32", 6, 4), 2)
        for name in replaced:
            adapter.replace(f"{name}.weight", drawer.matrix("BF16", 6, 5))
        return run("plan", source, "--lora", adapter.write(f"{directory}/{i}"))

    refused(said("head", [], []), INPUT, "adapter_model.safetensors: it has no weight for "
            'lm_head, which "modules_to_save" of its config has')
    second = [name for name in modules if ".1." in name]
    values = [name for name in modules if "v_proj" in name]
    for i, (lacking, first, config) in enumerate((
            (second[:1], f"{second[0]}, and it has none\n", {}),
            (second, f"{second[0]} and others, and it has none\n", {}),
            (values, f"{values[0]} and others, and it has none\n", {}),
            # Modules that the config does not want, or not all of that name.
            ([], None, {}),
            (values, None, {"target_modules": ["q_proj"]}),
            (values, None, {"target_modules": r".*\.q_proj"}),
            (second, None, {"layers_to_transform": [0, 2]}),
            (second, None, {"exclude_modules": ["layers.1.q_proj", "layers.1.v_proj"]}),
            ([], None, {"modules_to_save": ["lm_head", "classifier"]}))):
        got = said(str(i), lacking, **config)
        check(got.status == GOOD, got)
        warned = f"/{i}: its config wants matrices for "
        check(warned + first in got.err if first else warned not in got.err, got)


@test
def wrong_bases(directory):
    """weights to which no adapter can be added"""
    _, model, adapter = small(directory)
    at = adapter.write(directory + "/a")
    other = written(directory + "/other", {**model, W: ("F64", (6, 5), bytes(240))})
    refused(run("plan", other, "--lora", at), INPUT, f"cannot be merged: {W} is not stored as "
            "BFloat16, Float16 or Float32")
    padded = written(directory + "/padded", {
        "model.w.weight_packed": ("I32", (6, 1), bytes(24)),
        "model.w.weight_scale": ("F32", (6, 1), bytes(24)),
        "model.w.weight_shape": ("I32", (2,), struct.pack("<2i", 6, 5))},
                     {"quantization_config": {"quant_method": "compressed-tensors",
                      "config_groups": {"group_0": {"weights": {"num_bits": 4}}}}})
    refused(run("plan", padded, "--lora", at), INPUT, f"cannot be merged: {W} is in the source "
            "in several parts, or with other elements")


# ---- quantised models ----

QUANTISED = os.path.abspath(os.path.join(LIB, "..", "data", "quantised"))


def halves(rng, *shape):
    """Numbers below 2, quickly."""
    data = bytearray(rng.randbytes(2 * shape[0] * shape[1]))
    data[1::2] = data[1::2].translate(bytes(b & 0xbf for b in range(256)))
    return "F16", shape, bytes(data)


def as_two_mounts(directory, source, rank, word, *options):
    """The weights are those of a mount with --lora of a mount with --dequantize."""
    rng, adapter = random.Random(rank), Adapter(r=rank, lora_alpha=rank)
    bare = ["--format", "hf", "--model-files", "none"]
    with Mounted(source, described=True, extra=[*bare, "--dequantize", word]) as dense:
        for name, (_, shape, _) in values_in(dense.path).items():
            if len(shape) == 2 and name.endswith(".weight"):
                adapter.add(name[:-len(".weight")], halves(rng, rank, shape[1]),
                            halves(rng, shape[0], rank), 1)
        check(adapter.scales, f"{source} has no matrix")
        at = adapter.write(directory + "/adapter")
        with Mounted(dense.path, described=True, extra=[*bare, "--lora", at]) as mount:
            wanted = values_in(mount.path)
    with Mounted(source, described=True, extra=[
            "--format", "hf", "--model-files", source, "--lora", at, *options]) as mount:
        same_values(values_in(mount.path), wanted)
        said = json.loads(content(os.path.join(mount.path, "config.json")))
        check("quantization_config" not in said, said)


@test
def quantised_bases(directory):
    """quantised models are dequantised and merged as by two mounts"""
    for name in ("gptq", "gptq_v2-desc_act", "awq", "ct-nvfp4", "mxfp8", "fp8-qwen3"):
        source = os.path.join(directory, name, "model")
        published(os.path.join(QUANTISED, name), source)
        for word in ("bfloat16", "float16", "float32"):
            as_two_mounts(os.path.join(directory, name, word), source, 8, word,
                          "--dequantize", word)
    as_two_mounts(directory, source, 5, "bfloat16")


def gptq(rng, name, outer, inner):
    """The tensors of a weight [outer, inner] of GPTQ, which are stored transposed."""
    return {name + ".qweight": ("I32", (inner // 8, outer), rng.randbytes(inner * outer // 2)),
            name + ".qzeros": ("I32", (2, outer // 8), rng.randbytes(outer)),
            name + ".scales": halves(rng, 2, outer),
            name + ".g_idx": ("I32", (inner,), struct.pack(
                f"<{inner}i", *(rng.randrange(2) for _ in range(inner))))}


@test
def quantised_experts(directory):
    """an adapter of stacks, and experts that are apart, quantised and transposed"""
    for n in (1, 3):
        rng, at = random.Random(n), os.path.join(directory, str(n))
        model, adapter = {}, Adapter(target_parameters=["experts.gate_up_proj"])
        for i in range(n):
            for part in ("gate_proj", "up_proj"):
                model.update(gptq(rng, f"l.experts.{i}.{part}", 16, 24))
        pairs = of_experts(Drawer(rng), n, 4, 32, 24)[0]
        adapter.add("l.experts", *stacked(pairs), 2)
        source = written(at + "/model", model, {"quantization_config": {
            "quant_method": "gptq", "bits": 4, "group_size": 12, "desc_act": True}})
        lora, dense = adapter.write(at + "/a"), ("--dequantize", "float32")
        with Mounted(source, described=True, extra=["--format", "hf", *dense]) as first:
            with Mounted(first.path, described=True,
                         extra=["--format", "hf", "--lora", lora]) as second:
                wanted = values_in(second.path)
            check(values_in(first.path) != wanted, "nothing is merged")
        with Mounted(source, described=True,
                     extra=["--format", "hf", *dense, "--lora", lora]) as mount:
            same_values(values_in(mount.path), wanted)


@test
def stacks_of_gpt_oss(directory):
    """an adapter of MXFP4 stacks, whose matrices are stored transposed"""
    source, drawer = os.path.join(QUANTISED, "gpt_oss"), Drawer(random.Random(14))
    parameters = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
    for word in ("bfloat16", "float16", "float32"):
        at, dense = os.path.join(directory, word), ("--format", "hf", "--dequantize", word)
        adapter = Adapter(target_parameters=parameters)
        with Mounted(source, described=True, extra=[*dense]) as first:
            before = values_in(first.path)
            names = sorted(n for n in before if n.endswith(tuple(parameters)))
            check(len(names) == 4, names)
            # PEFT calls the module of the second parameter the base layer of the first.
            for name, middle in zip(names, 2 * ("", ".base_layer")):
                n, inner, outer = before[name][1]
                pairs = of_experts(drawer, n, 4, outer, inner)[0]
                adapter.add(name.rpartition(".")[0] + middle, *stacked(pairs), 2)
            lora = adapter.write(at + "/a")
            with Mounted(first.path, described=True,
                         extra=["--format", "hf", "--lora", lora]) as second:
                wanted = values_in(second.path)
        check(all(wanted[n] != before[n] for n in names), "nothing is merged")
        with Mounted(source, described=True, extra=[
                *dense, "--model-files", source, "--lora", lora]) as mount:
            same_values(values_in(mount.path), wanted)


@test
def large_quantised_base(directory):
    """scales and matrices of several chunks"""
    rng, m, n = random.Random(11), 2100, 2048
    source = written(directory + "/model", {
        "w.weight_packed": ("U8", (m, n // 2), rng.randbytes(m * n // 2)),
        "w.weight_scale": ("F8_E4M3", (m, n // 16), rng.randbytes(m * n // 16)),
        "w.weight_global_scale": ("F32", (1,), struct.pack("<f", 9))},
                     {"quantization_config": {"quant_method": "compressed-tensors",
                      "config_groups": {"group_0": {"weights": {"num_bits": 4}}}}})
    as_two_mounts(directory, source, 200, "bfloat16")


@test
def wrong_options(directory):
    """what is refused on the command line"""
    source, _, adapter = small(directory)
    at = adapter.write(directory + "/a")
    refused(run("plan", source, "--lora", directory + "/none"), USAGE,
            "lora: ", "No such file or directory")
    for words in ("", ":2"):
        refused(run("plan", source, "--lora", words), USAGE, "lora: the value is empty")
    refused(run("plan", source, "--lora", at + ":inf"), USAGE, "is not a finite number")
    refused(run("plan", source, *["--lora", at] * 9), USAGE, "more than 8 adapters")
    refused(run("plan", source, "--lora", at, "--dst-ranks", "2"), USAGE,
            "--dst-ranks and --lora cannot be used together")
    os.rename(at + "/adapter_model.safetensors", at + "/adapter_model.bin")
    refused(run("plan", source, "--lora", at), INPUT, "adapter_model.bin: ")
    os.remove(at + "/adapter_model.bin")
    refused(run("plan", source, "--lora", at), USAGE, "there is no adapter_model.safetensors and "
            "no adapter_model.bin")
    write(at + "/adapter_model.safetensors", b"no safetensors")
    refused(run("plan", source, "--lora", at), INPUT, "adapter_model.safetensors")


# ---- random models ----

class Case:
    def __init__(self, directory, seed):
        self.rng = random.Random(seed)
        self.drawer = Drawer(self.rng)
        self.model = self.drawer.model()
        self.options, chosen = [], []
        for i in range(self.rng.choice((1, 1, 2))):
            adapter = self.drawer.adapter()
            at = adapter.write(os.path.join(directory, f"adapter{i}"))
            scale = self.rng.choice((1, 1, 0.5, -2, 0.3))
            self.options += ["--lora", at if scale == 1 else f"{at}:{scale}"]
            chosen.append((adapter, scale))
        self.wanted = merged(self.model, chosen)
        self.directory = directory
        self.source = written(os.path.join(directory, "model"), self.model,
                              self.drawer.config())
        self.target = written(os.path.join(directory, "merged"), self.wanted,
                              self.drawer.config())

    def compare(self, *options, source=None):
        """The same options give the same tree of both models."""
        out = [os.path.join(self.directory, name) for name in ("out", "wanted")]
        for path, at, more in ((source or self.source, out[0], self.options),
                               (self.target, out[1], [])):
            got = good("export", path, at, *options, *more)
        got, wanted = map(tree, out)
        check(sorted(got) == sorted(wanted), f"{sorted(got)} instead of {sorted(wanted)}")
        for name in sorted(wanted):
            check(got[name] == wanted[name], f"{name} differs")


def as_model(case):
    out = os.path.join(case.directory, "out")
    good("export", case.source, out, "--format", "hf", *case.options)
    same_values(values_in(out), case.wanted)
    check(run("verify", case.source, out, "--format", "hf", *case.options).status == GOOD,
          "verify")


def as_cast(case):
    case.compare("--cast", case.rng.choice(("bfloat16", "float16", "float32")))


def as_form(case):
    case.compare("--format", case.rng.choice(("ckpt", "dcp")), "--dst-strategy", "none")


def as_chunks(case):
    """Every tensor of the source is cut into boxes."""
    drawer = _Drawer(case.rng.getrandbits(32), "torch")
    dcp = Tree("torch", {name: Tensor(*tensor, drawer.chunks(tensor[1]), {})
                         for name, tensor in case.model.items()}, {}, case.rng)
    dcp.release = "2.15"
    source = os.path.join(case.directory, "dcp")
    dcp.write(source)
    out = os.path.join(case.directory, "out")
    good("export", source, out, "--format", "hf", *case.options)
    same_values(values_in(out), case.wanted)


def as_ranks(case, *options, shapes=None):
    """Ranks have slices of rows and columns."""
    mesh = case.rng.choice(([2, 2], [4, 2], [1, 4], [1, 8]))
    split = {0: mesh[1], 1: mesh[0], -1: 1}
    params = []
    for name, shape in (shapes or {n: s for n, (_, s, _) in case.wanted.items()}).items():
        axes = case.rng.sample((0, 1, -1, -1), len(shape))
        axes = [a if n % split[a] == 0 else -1 for a, n in zip(axes, shape)]
        params.append(Param(name, list(shape), DTYPES[case.drawer.kind], None, axes))
    wanted = os.path.join(case.directory, "wanted.ckpt")
    write(wanted, strategy(params, "wanted", mesh))
    case.compare("--dst-strategy", wanted, "--format",
                 case.rng.choice(("ckpt", "safetensors")), *options)


def as_mindspore(case):
    """Merged before rules join queries, keys and values, and alternate rows."""
    options = ["--convert", "qwen3"]
    if case.rng.random() < 0.3:
        options += ["--cast", case.rng.choice(("bfloat16", "float16", "float32"))]
    as_ranks(case, *options, shapes=case.drawer.mindspore_shapes())


def as_mount(case):
    """Any part of a file is the same as in the whole file."""
    with Mounted(case.source, described=True,
                 extra=["--format", "hf", *case.options]) as mount:
        for name in os.listdir(mount.path):
            if not name.endswith(".safetensors"):
                continue
            with open(os.path.join(mount.path, name), "rb", buffering=0) as f:
                size = os.fstat(f.fileno()).st_size
                parts = [(at, os.pread(f.fileno(), n, at)) for at, n in
                         ((case.rng.randrange(size), case.rng.randint(1, 3000))
                          for _ in range(60))]
                data = content(os.path.join(mount.path, name))
                for at, part in parts:
                    check(data[at:at + len(part)] == part, f"{name} at {at}")
        same_values(values_in(mount.path), case.wanted)


WAYS = (as_model, as_model, as_cast, as_form, as_chunks, as_ranks, as_mindspore, as_mount)


def random_case(seed):
    way = WAYS[seed % len(WAYS)]
    with tempfile.TemporaryDirectory(prefix="reshardfs-lora-") as directory:
        try:
            way(Case(directory, seed))
        except Exception as error:
            raise type(error)(f"--cases 1 --seed {seed} ({way.__name__}): {error}") from error


@test
def another_of_the_same_name(directory):
    """a mount with the adapter of the same name in another directory is another one"""
    model, _, adapter = small(directory)
    other = Adapter()
    drawer = Drawer(random.Random(8))
    other.add("model.w", drawer.matrix("F32", 4, 5), drawer.matrix("F32", 6, 4), 2)
    mnt = os.path.join(directory, "mnt")
    os.mkdir(mnt)
    for place, made in ("a", adapter), ("b", other):
        made.write(os.path.join(directory, place, "lora"))
    for value in "lora:0.5", "lora":
        said = []
        for place, times in ("a", 2), ("b", 1):
            for _ in range(times):
                got = good("mount", "--format", "hf", "--lora", value, model, mnt,
                           cwd=os.path.join(directory, place))
                said.append("same options" in got.out + got.err)
        check(said == [False, True, False], (value, said))
        for _ in range(2):
            check(run("umount", mnt).status == GOOD, "umount")


def main():
    chosen = seed_and_cases(48)
    require_mount()
    tap = Tap()
    test.each(tap, name=lambda f: f.__doc__)
    with tap.test(f"{chosen.cases} random models from --seed {chosen.seed} on"):
        for seed in range(chosen.seed, chosen.seed + chosen.cases):
            random_case(seed)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
