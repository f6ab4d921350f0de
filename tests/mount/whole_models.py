#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sources that say what they are need no strategy, a whole model is shown as that
model, without what an optimizer kept, and a mount that goes well says little.

The yardstick are the genuine trees of data/."""

import json
import os
import shutil
import sys
import tempfile

LIB = os.path.join(os.environ.get("srcdir", "."), "lib")
TOP = os.environ.get("top_srcdir", os.path.join(os.environ.get("srcdir", "."), ".."))
sys.path[:0] = [LIB, os.path.join(TOP, "python")]

import genuine  # noqa: E402
import packed  # noqa: E402
from demands import check, content, demand, settle, write  # noqa: E402
from rsh_cli import (GOOD, INPUT, PLAIN, USAGE, demo_tree, good, refused, run,  # noqa: E402
                     run_json)
from rsh_mount import Skipped, Tests, require_mount, reshardfs_program  # noqa: E402
from safetensors_format import Tensors, read_model, safetensors_bytes, values_in, values_of  # noqa: E402
from ms_formats import Record, checkpoint_bytes, read_checkpoint  # noqa: E402

os.environ["XDG_CACHE_HOME"] = PLAIN["XDG_CACHE_HOME"]
os.environ["LIBRESHARD"] = os.path.join(os.path.dirname(reshardfs_program()), ".libs",
                                        "libreshard.so.0")
import reshardfs  # noqa: E402

MODELS = os.path.join(genuine.WEIGHTS, "models")
MINDSPORE = os.path.join(genuine.WEIGHTS, "mindspore")
QWEN3 = os.path.join(MODELS, "qwen3")
STRATEGY = os.path.join(genuine.WEIGHTS, "strategies", "qwen3.qwen3.mp2.ckpt")
MAP = "model.safetensors.index.json"
LINES = 2
test = Tests("whole")


class Shown:
    """A mount as people make it, by a daemon: `said` is all that it prints."""

    def __init__(self, *words):
        self.words = words

    def __enter__(self):
        self.path = tempfile.mkdtemp(prefix="reshardfs-shown-")
        got = good("mount", *self.words, self.path)
        self.said = got.out + got.err
        return self

    def __exit__(self, *_):
        got = run("umount", self.path)
        os.rmdir(self.path)
        check(got.status == GOOD, repr(got))

    def files(self):
        return sorted(os.path.relpath(os.path.join(root, name), self.path)
                      for root, _, names in os.walk(self.path) for name in names)


def values_of_model(root):
    if not os.path.exists(os.path.join(root, MAP)):
        return values_of_file(os.path.join(root, "model.safetensors"))
    _, parts = read_model(root)
    return {n: v for part in parts.values() for n, v in part.values().items()}


def values_of_file(path):
    if path.endswith(".safetensors"):
        return Tensors(content(path)).values()
    return values_of(read_checkpoint(path))


def single(directory):
    """A model in one file, without a map."""
    root = os.path.join(directory, "single")
    os.makedirs(root)
    with open(os.path.join(root, "model.safetensors"), "wb") as f:
        f.write(safetensors_bytes(values_of_model(QWEN3), {"format": "pt"}))
    shutil.copy(os.path.join(QWEN3, "config.json"), root)
    return root


def mindspore_parts(directory):
    """What unified_safetensors leaves: the same values, by MindSpore's names."""
    root = os.path.join(directory, "parts")
    values = values_of_file(os.path.join(MINDSPORE, "qwen3", "model.safetensors"))
    os.makedirs(root)
    write(os.path.join(root, "part0.safetensors"), safetensors_bytes(values, {"format": "ms"}))
    with open(os.path.join(root, "param_name_map.json"), "w", encoding="utf-8") as f:
        f.write("{" + ",".join(f'"{name}": "part0.safetensors"' for name in values) + "}")
    return root


# ---- a source that says what it is ----

@test
def a_model_is_shown_as_that_model(directory):
    for root in (QWEN3, single(directory)):
        with Shown(root) as m:
            check(m.files() == ["config.json", "model-00001-of-00001.safetensors", MAP],
                  m.files())
            check(values_of_model(m.path) == values_of_model(root), root)
            check(content(os.path.join(m.path, "config.json")) ==
                  content(os.path.join(root, "config.json")), "config.json")


@test
def one_option_says_the_rest(directory):
    whole = values_of_model(QWEN3)
    for words in (["--src-strategy", "none"], ["--format", "hf"], ["--part-size", "20KB"],
                  ["--dst-strategy", "none"], ["--src-strategy", "none", "--format", "hf"],
                  ["--src-strategy", "none", "--dst-strategy", "none"]):
        with Shown(*words, QWEN3) as m:
            check(MAP in m.files() and "config.json" in m.files(), f"{words}: {m.files()}")
            check(values_of_model(m.path) == whole, words)
    for words in (["--format", "safetensors"], ["--format", "ckpt"], ["--compat", "mindspore"],
                  ["--dst-strategy", "none", "--format", "ckpt"]):
        with Shown(*words, QWEN3) as m:
            name, = m.files()
            check(name.startswith("rank_0/checkpoint_0."), f"{words}: {name}")
            check(values_of_file(os.path.join(m.path, name)) == whole, words)
    with Shown("--dst-ranks", "2", QWEN3) as m:
        check(m.files() == ["rank_0/checkpoint_0.ckpt", "rank_1/checkpoint_1.ckpt"], m.files())
    with Shown("--model-files", "none", QWEN3) as m:
        check("config.json" not in m.files(), m.files())


@test
def a_model_becomes_one_of_the_other_form(directory):
    theirs = values_of_file(os.path.join(MINDSPORE, "qwen3", "model.safetensors"))
    for words in (["--dst-strategy", "none"], []):
        with Shown("--convert", "qwen3", *words, QWEN3) as m:
            check(m.files() == ["rank_0/checkpoint_0.ckpt"], m.files())
            found = values_of_file(os.path.join(m.path, *m.files()))
            check({n: v[2] for n, v in found.items()} == {n: v[2] for n, v in theirs.items()},
                  "MindSpore's form")
    with Shown("--convert", "qwen3", "--dst-strategy", STRATEGY, QWEN3) as m:
        check(m.files() == ["rank_0/checkpoint_0.ckpt", "rank_1/checkpoint_1.ckpt"], m.files())


@test
def a_model_of_mindspores_becomes_hugging_faces(directory):
    config = os.path.join(QWEN3, "config.json")
    whole = values_of_model(QWEN3)
    # The names tell, not the map.
    for root in (os.path.join(MINDSPORE, "qwen3"), mindspore_parts(directory)):
        for words in ([], ["--dst-strategy", "none"], ["--from", "mindspore"]):
            with Shown("--convert", "qwen3", "--config", config, *words, root) as m:
                check(m.files() == ["config.json", "model-00001-of-00001.safetensors", MAP],
                      f"{words} {root}: {m.files()}")
                check(values_of_model(m.path) == whole, root)
        words = ["--src-strategy", "none", "--dst-strategy", "none"]
        with Shown("--convert", "qwen3", "--config", config, *words, root) as m:
            check(m.files() == ["rank_0/checkpoint_0.ckpt"], m.files())
    with Shown(mindspore_parts(os.path.join(directory, "again"))) as m:
        check(m.files() == ["rank_0/checkpoint_0.ckpt"], m.files())


@test
def other_commands_take_it_as_well(directory):
    out = os.path.join(directory, "out")
    check(run_json("plan", "--slices", QWEN3)["files"][0]["name"] == "model-00001-of-00001.safetensors",
          "plan")
    check(run("export", QWEN3, out).status == GOOD, "export")
    check(values_of_model(out) == values_of_model(QWEN3), "export")
    check(run_json("verify", QWEN3, out)["good"], "a tree")
    manifest = os.path.join(out, "reshardfs-manifest.jsonl")
    # Both are whole models: which one the manifest is of is not said.
    check(run_json("verify", out, manifest)["good"], "files by a manifest")
    config = os.path.join(QWEN3, "config.json")
    words = ["--convert", "qwen3", "--config", config, os.path.join(MINDSPORE, "qwen3")]
    check(run("export", *words, os.path.join(directory, "back")).status == GOOD, "export")
    check(run_json("verify", *words, os.path.join(directory, "back"))["good"], "back")
    check(run_json("verify", *words, os.path.join(directory, "back", os.path.basename(
        manifest)))["good"], "back, by a manifest")


def need_library():
    if "sanitize" in os.environ.get("SANITIZER_FLAGS", ""):
        raise Skipped("Python does not load what a sanitizer is built into")


@test
def and_so_does_the_library(directory):
    need_library()
    whole = values_of_model(QWEN3)
    with reshardfs.Source(QWEN3) as source:
        check({r.name: bytes(source.read(0, r.offset, r.bytes)) for r in source.records(0)} ==
              {n: v[2] for n, v in whole.items()}, "Source")
    check(set(reshardfs.tensors(QWEN3)) == set(whole), "tensors")
    check(list(reshardfs.tensors(QWEN3, convert="qwen3"))[0].startswith("decoder."), "convert")
    check([f.name for f in reshardfs.files(QWEN3, dst_strategy="none", format="ckpt")] ==
          ["rank_0/checkpoint_0.ckpt"], "files")
    with reshardfs.mounted(QWEN3) as m:
        check(values_of_model(m.path) == whole, "mounted")


@test
def what_does_not_say_it_is_asked_for(directory):
    source, strategy, _ = demo_tree(directory)
    refused(run("plan", source), USAGE, '--src-strategy is missing ("none" if SOURCE is not')
    refused(run("plan", "--src-strategy", strategy, source), USAGE, "--dst-strategy is missing")
    shutil.copy(os.path.join(single(os.path.join(directory, "x")), "model.safetensors"), source)
    refused(run("plan", source), USAGE, "--src-strategy is missing", "it is a whole model",
            "--src-strategy none")
    for words in (["--select", "3_40"], ["--breakpoint", "only"]):
        refused(run("plan", *words, QWEN3), USAGE, "SOURCE is a single whole model")
    refused(run("plan", "--dst-mesh", "dp=2", QWEN3), USAGE, "a whole model has none")

# ---- models of other names ----

A, B = {"model.a": ("F32", (2,), bytes(range(8)))}, {"model.b": ("F32", (2,), bytes(range(8, 16)))}


def file_of(path, values):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    write(path, safetensors_bytes(values) if path.endswith(".safetensors") else
          checkpoint_bytes({name: Record(dims, "Float32", data)
                            for name, (_, dims, data) in values.items()}))
    return path


def map_of(path, files):
    write(path, json.dumps({"metadata": {}, "weight_map": files}).encode())
    return path


def is_shown(source, values, files=None):
    """Exported with no option, the model has these values, and these files beside it."""
    with tempfile.TemporaryDirectory(prefix="reshardfs-names-") as directory:
        to = os.path.join(directory, "out")
        got = good("export", source, to)
        check(values_of_model(to) == values, source)
        check(files is None or sorted(os.listdir(to)) == sorted(
            [*files, "model-00001-of-00001.safetensors", MAP, "reshardfs-manifest.jsonl"]),
            f"{source}: {os.listdir(to)}")
        return got.err


@test
def one_file_of_any_name_is_a_model(directory):
    for name in ("llama2_7b.ckpt", "mindspore_model.ckpt", "transformer.safetensors",
                 "diffusion_pytorch_model.fp16.safetensors", "w-00001-of-00001.safetensors"):
        root = os.path.join(directory, name.replace(".", "_"))
        path = file_of(os.path.join(root, name), {**A, **B})
        is_shown(path, {**A, **B}, [])
        write(os.path.join(root, "config.json"), b'{"model_type": "mine"}')
        for source in (root, path):
            is_shown(source, {**A, **B}, ["config.json"])
        check(run("ls", path).out.count("model.") == 2, "the records of the file")
    with Shown(path) as m:
        check(values_of_model(m.path) == {**A, **B}, "mounted")


@test
def a_map_of_any_name_is_a_model(directory):
    for number, (name, first, second) in enumerate((
            ("w8a8.safetensors.index.json", "w8a8-1.safetensors", "w8a8-2.safetensors"),
            ("mindspore_model.ckpt.index.json", "m-00001-of-00002.ckpt", "m-00002-of-00002.ckpt"),
            ("d.safetensors.index.fp16.json", "./d-1.safetensors", ".//sub/./d-2.safetensors"),
            (MAP, "parts/1/w.safetensors", "./parts//2/w.safetensors"))):
        root = os.path.join(directory, str(number))
        file_of(os.path.normpath(os.path.join(root, first)), A)
        file_of(os.path.normpath(os.path.join(root, second)), B)
        path = map_of(os.path.join(root, name), {"model.a": first, "model.b": second})
        for source in (root, path):
            is_shown(source, {**A, **B}, [])
    for wrong in ("../0/w8a8-1.safetensors", "/tmp/w.safetensors", "parts/", "", "a/../b.ckpt"):
        map_of(path, {"model.a": wrong})
        refused(run("plan", root), INPUT, "is not a file below the directory of the map")
    map_of(path, {"model.a": "parts/1/w.gguf"})
    refused(run("plan", root), INPUT, "neither a .safetensors nor a .ckpt file")


@test
def the_map_says_in_which_part_a_tensor_is(directory):
    other = {"model.b": ("F32", (2,), bytes(range(16, 24)))}
    longer = {"model.b": ("F32", (3,), bytes(range(12)))}
    for number, (first, second, chosen) in enumerate((
            ({**A, **B}, other, 1), ({**A, **B}, other, 2), ({**A, **B}, longer, 2))):
        root = os.path.join(directory, str(number))
        parts = ["x.safetensors", "y.safetensors"]
        for part, values in zip(parts, (first, second)):
            file_of(os.path.join(root, part), values)
        files = {"model.a": parts[0], "model.b": parts[chosen - 1]}
        if chosen == 1:
            file_of(os.path.join(root, parts[1]), {**second, "model.c": A["model.a"]})
            files["model.c"] = parts[1]
        map_of(os.path.join(root, MAP), files)
        wanted = {**A, "model.b": (first if chosen == 1 else second)["model.b"]}
        if chosen == 1:
            wanted["model.c"] = A["model.a"]
        said = is_shown(root, wanted)
        demand(said, "1 copies of tensors are in other parts than the map says")
        # A map that is wrong about one tensor decides about none.
        map_of(os.path.join(root, MAP), {**files, "model.x": parts[1]})
        refused(run("plan", root), INPUT, "model.b is in two of its files, "
                "x.safetensors and y.safetensors; the map of its parts does not decide, since it "
                "is not of these files: model.x is not in y.safetensors, as it says")


@test
def an_export_says_which_weights_it_leaves_out(directory):
    one = os.path.join(directory, "one")
    file_of(os.path.join(one, "model.safetensors"), A)
    file_of(os.path.join(one, "value_head.safetensors"), B)
    demand(is_shown(one, A), ": warning: ", "not shown beside the model: value_head.safetensors")


@test
def parts_that_the_map_does_not_name_are_told_of(directory):
    for number, (name, parts, words) in enumerate((
            (MAP, [f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)],
             ["--format", "dcp"]),
            ("param_name_map.json", [f"part{i}.safetensors" for i in range(3)], []))):
        root = os.path.join(directory, str(number))
        for i, part in enumerate(parts):
            file_of(os.path.join(root, part), {f"w{i}": A["model.a"]})
        for lacks in 0, 1, 2, None:
            map_of(os.path.join(root, name),
                   {f"w{i}": part for i, part in enumerate(parts) if i != lacks})
            got = run("plan", *words, root)
            check(got.status == GOOD, repr(got))
            said = "" if lacks is None else f"warning: {root}/{name} does not name " \
                f"{parts[lacks]}, which is there: no tensor of it is shown"
            check(said in got.err and (said or "does not name" not in got.err), repr(got))


@test
def a_second_name_in_the_header_is_told_of(directory):
    """As safetensors' save_model() notes the names of a tensor that two modules share."""
    said = f"warning: {directory}: by its header a.weight is also b.weight, and is shown under " \
        "the first name alone"
    write(os.path.join(directory, "model.safetensors"), safetensors_bytes(
        {"a.weight": A["model.a"]}, {"format": "pt", "b.weight": "a.weight", "c": "d"}))
    for words in (["--format", "dcp"], ["--dst-strategy", "none", "--format", "safetensors"]):
        demand(run("plan", *words, directory).err, said)
    # This output keeps the header.
    check("by its header" not in run("plan", directory).err, "a warning")


@test
def placeholders_of_zero_3_are_no_model(directory):
    empty = ("F32", (0,), b"")
    names = [f"l.{i}.weight" for i in range(32)]
    for n, words in ((8, []), (32, []), (8, ["--format", "dcp"]),
                     (8, ["--dst-strategy", "none", "--format", "safetensors"])):
        root = os.path.join(directory, f"{n}{len(words)}")
        file_of(os.path.join(root, "model.safetensors"),
                {name: empty if i < n else A["model.a"] for i, name in enumerate(names)})
        refused(run("plan", *words, root), INPUT, f"{root}: {n} of 32 weights have no elements, "
                "such as l.0.weight: DeepSpeed's ZeRO 3 leaves such placeholders in the model of "
                "a process, and the weights in its checkpoint")
    file_of(os.path.join(root, "model.safetensors"),
            {name: empty if i < 7 else A["model.a"] for i, name in enumerate(names)})
    check(run("plan", root).status == GOOD, "a few")


# ---- quantised weights and their scales ----

def quantised(*beside, name="x.weight", dtype="F8_E4M3"):
    return {name: (dtype, (4, 4), bytes(16)),
            **{f: ("F32", (1, 1), bytes(4)) for f in beside}}


@test
def weights_without_their_scales_are_named(directory):
    names = os.path.join(directory, "names.json")

    def said(values, *words, rename=None):
        root = tempfile.mkdtemp(dir=directory)
        file_of(os.path.join(root, "model.safetensors"), {**values, **A})
        if rename:
            write(names, json.dumps(rename).encode())
            words += ("--rename", names)
        got = good("export", *words, root, tempfile.mkdtemp(dir=directory))
        check(got.err.count("warning") <= 1, got.err)
        return got.err

    block = quantised("x.weight_scale_inv")
    gone = ("x.weight is quantised, and x.weight_scale_inv, by which its values are computed, "
            "is left out")
    demand(said(block, "--only", "weight$"), ": warning: ", gone)
    demand(said(block, "--drop", "scale"), gone)
    demand(said(block, rename={"x.weight": "y.weight"}), ": warning: ", "x.weight is quantised, "
           "and is shown as y.weight, but x.weight_scale_inv, by which its values are computed, "
           "as x.weight_scale_inv")
    two = {**block, **quantised("y.weight_scale_inv", name="y.weight")}
    demand(said(two, "--drop", "scale"), gone + "; so are others")
    for name, dtype, beside, drop in (
            ("x.qweight", "I32", ["x.scales", "x.qzeros", "x.g_idx"], "x.g_idx"),
            ("x.weight_packed", "I32", ["x.weight_scale", "x.weight_shape"], "x.weight_shape"),
            ("x_blocks", "U8", ["x_scales"], "x_scales"),
            ("x.weight", "I8", ["x.SCB"], "x.SCB"),
            ("x.weight:_data", "I8", ["x.weight:_scale"], "x.weight:_scale")):
        values = quantised(*beside, name=name, dtype="U8" if dtype == "I32" else dtype)
        demand(said(values, "--drop", f"^{drop}$"), f"{name} is quantised, and {drop}, ")
    for words, rename, values in (
            ((), {"x.weight": "y.weight", "x.weight_scale_inv": "y.weight_scale_inv"}, block),
            ((), {"x.weight": "y.qweight", "x.weight_scale_inv": "y.scales"}, block),
            (("--drop", "^x"), None, block), (("--drop", "model.a"), None, block),
            (("--only", "scale"), None, block),
            (("--drop", "scale"), None, {"x.weight": ("F32", (1,), bytes(4)),
                                         "x.weight_scale": ("F32", (1,), bytes(4))})):
        err = said(values, *words, rename=rename)
        check("quantised" not in err, err)


# ---- what the headers say ----

SAID = {"format": "pt", "tensor_names": '["model.a"]', "model.a": '{"_type": "T\\u00e9"}'}


def said_parts(root, *metadata):
    """A model with a part for each of these."""
    parts = [A, B, {"model.c": A["model.a"]}][:len(metadata)]
    files = {}
    for number, (values, said) in enumerate(zip(parts, metadata)):
        name = f"p{number}.safetensors"
        write(os.path.join(root, name), safetensors_bytes(values, said))
        files.update(dict.fromkeys(values, name))
    map_of(os.path.join(root, MAP), files)
    return root


def metadata_of(root):
    """That of the parts, which must be alike."""
    found = [p.metadata for p in read_model(root)[1].values()]
    check(all(m == found[0] for m in found), found)
    return found[0]


def exported(directory, source, *words):
    """(the metadata, what was said)"""
    to = tempfile.mkdtemp(dir=directory)
    got = good("export", *words, source, to)
    return metadata_of(to), got.err


@test
def metadata_of_the_headers_are_kept(directory):
    one = os.path.join(directory, "one")
    write(os.path.join(one, "model.safetensors"), safetensors_bytes({**A, **B}, SAID))
    for words in ((), ("--part-size", "8")):
        said, err = exported(directory, one, *words)
        check(said == SAID and "warning" not in err, f"{said}\n{err}")
    with Shown(one) as m:
        check(metadata_of(m.path) == SAID, "mounted")
    for name, parts, wanted in (
            ("mlx", [{"format": "mlx"}] * 2, {"format": "mlx"}),
            ("both", [{"format": "pt", "x": "1"}, {"format": "pt", "y": "2"}],
             {"format": "pt", "x": "1", "y": "2"}),
            ("no-format", [{"x": "1"}, None], {"format": "pt", "x": "1"}),
            ("none", [None, None], {"format": "pt"}),
            ("mindspore", [{"format": "ms", "x": "1"}] * 2, {"format": "pt"})):
        said, err = exported(directory, said_parts(os.path.join(directory, name), *parts))
        check(said == wanted and "warning" not in err, f"{name}: {said}\n{err}")


@test
def metadata_that_are_left_out_are_named(directory):
    one = os.path.join(directory, "one")
    write(os.path.join(one, "model.safetensors"), safetensors_bytes({**A, **B}, SAID))
    names = write(os.path.join(directory, "names.json"), b'{"model.a": "a"}')
    for words in (("--only", "model.a"), ("--drop", "model.b"), ("--rename", names),
                  ("--cast", "float16")):
        said, err = exported(directory, one, *words)
        check(said == {"format": "pt"}, said)
        demand(err, ': warning: ', 'its files have metadata that are left out, "model.a", '
               '"tensor_names": they may not fit other names or tensors')
    for name, parts, wanted, words in (
            ("differ", [{"x": "1", "y": "3"}, {"x": "2", "y": "3"}], {"y": "3"},
             '"x": its files differ'),
            ("formats", [{"format": "mlx"}, None], {}, '"format": its files differ'),
            ("refused", [{"format": "np", "y": "3"}] * 2, {"y": "3"},
             '"format": Hugging Face\'s loaders refuse'),
            ("long", [{"x": "1" * (1 << 20), "y": "3"}, None], {}, '"x", "y": they are too long'),
            ("long-together", [{c: "1" * 800000} for c in "xy"], {}, '"x", "y": they are too'),
            ("many", [{c: "1" * (1 + i) for c in "vwxyz"} for i in range(2)], {},
             '"v", "w", "x" and 2 more: its files differ')):
        said, err = exported(directory, said_parts(os.path.join(directory, name), *parts))
        check(said == {"format": "pt", **wanted}, f"{name}: {str(said)[:200]}")
        demand(err, words)
        check(err.count("warning") == 1, err)


@test
def metadata_come_from_the_index_cache_too(directory):
    root = said_parts(os.path.join(directory, "model"), SAID, SAID)
    settle(root)
    cache = os.path.join(directory, "cache")
    for read in (2, 0):
        said, err = exported(directory, root, "--index-cache", cache, "--log-level", "info")
        demand(err, f"2 files indexed, {read} of them read")
        check(said == SAID, said)


@test
def json_is_read_as_python_writes_it(directory):
    values = values_of_file(os.path.join(MINDSPORE, "qwen3", "model.safetensors"))
    for number, odd in enumerate((float("nan"), float("-inf"), 10 ** 40, -(1 << 63) - 1)):
        root = os.path.join(directory, str(number))
        shutil.copytree(QWEN3, root, copy_function=shutil.copyfile)
        os.chmod(root, 0o755)
        for name, key in (("config.json", "rope"), (MAP, "metadata")):
            path = os.path.join(root, name)
            said = json.loads(content(path))
            with open(path, "w", encoding="utf-8") as f:
                json.dump({"odd": odd, **said, key: {"total_size": [odd]}}
                          if name == "config.json" else {**said, key: {"total_size": odd}}, f)
        to = os.path.join(directory, "out")
        got = run("export", "--convert", "auto", "--dst-strategy", "none", root, to)
        check(got.status == GOOD, f"{odd}: {got!r}")
        found = values_of_file(os.path.join(to, "rank_0", "checkpoint_0.ckpt"))
        check({n: v[2] for n, v in found.items()} == {n: v[2] for n, v in values.items()}, odd)
        shutil.rmtree(to)


@test
def what_may_be_a_part_is_not_a_model(directory):
    def place(*names):
        return file_of(os.path.join(directory, *names), A)
    for source, words in (
            (place("part", "m-00002-of-00003.safetensors"), "is a part of a model"),
            (place("rank_1", "net-1_10.ckpt"), "is a file of one rank"),
            (place("rank_2", "checkpoint", "net.safetensors"), "is a file of one rank"),
            (place("flat", "llama_rank_3-1_10.ckpt"), "is a file of one rank"),
            (place("lora", "adapter_model.safetensors"), "it is an adapter: --lora DIR")):
        refused(run("plan", source), INPUT, "this file is not a checkpoint", words)
        got = run("plan", os.path.dirname(source))
        check(got.status in (INPUT, USAGE), f"{source}: {got!r}")
    place("several", "a.safetensors")
    place("several", "b.ckpt")
    refused(run("plan", os.path.join(directory, "several")), INPUT,
            "it has 2 files that may be a whole model, such as a.safetensors")
    is_shown(os.path.join(directory, "several", "b.ckpt"), A)
    write(os.path.join(directory, "damaged", "net.ckpt"), b"hello")
    refused(run("plan", os.path.join(directory, "damaged")), INPUT, "net.ckpt: this is a text")


# ---- names of wrapped modules ----

def wrapped_as(name, how):
    """The name that a wrapped Qwen3 saves."""
    layer = ".".join(name.split(".")[:3])
    return {"ddp": "module." + name,
            "compiled": "_orig_mod." + name,
            "both": "module._orig_mod." + name, "compiled ddp": "_orig_mod.module." + name,
            "fsdp": "_fsdp_wrapped_module." + name.replace(
                layer, layer + "._fsdp_wrapped_module", 1) if ".layers." in name else name,
            "layers": name.replace(layer, layer + "._orig_mod._checkpoint_wrapped_module", 1)
            if ".layers." in name else name}[how]


@test
def names_of_wrapped_modules(directory):
    wanted = values_of_file(os.path.join(MINDSPORE, "qwen3", "model.safetensors"))
    values = values_of_model(QWEN3)
    for how in ("ddp", "compiled", "both", "compiled ddp", "fsdp", "layers"):
        root = os.path.join(directory, how.replace(" ", "_"))
        file_of(os.path.join(root, "model.safetensors"),
                {wrapped_as(n, how): v for n, v in values.items()})
        shutil.copy(os.path.join(QWEN3, "config.json"), root)
        to = os.path.join(directory, "out")
        got = run("export", "--log-level", "info", "--convert", "auto", "--dst-strategy", "none",
                  root, to)
        check(got.status == GOOD, f"{how}: {got!r}")
        demand(got.err, "names are used without the words of wrappers")
        found = values_of_file(os.path.join(to, "rank_0", "checkpoint_0.ckpt"))
        check({n: v[2] for n, v in found.items()} == {n: v[2] for n, v in wanted.items()}, how)
        shutil.rmtree(to)
        check(run("convert", "check", "auto", root).status == GOOD, f"convert check: {how}")
        # Without it the names stay, and the log says that no model has them.
        demand(is_shown(root, {wrapped_as(n, how): v for n, v in values.items()}),
               "no model has the names of ", "they have words of wrappers, which --unwrap removes")
    # "module." of some weights alone is a module of the model.
    file_of(os.path.join(root, "model.safetensors"),
            {n if "layers" in n else "module." + n: v for n, v in values.items()})
    refused(run("plan", "--convert", "auto", root), INPUT, "module.")


@test
def the_model_in_a_training_state(directory):
    wanted = values_of_file(os.path.join(MINDSPORE, "qwen3", "model.safetensors"))
    values = values_of_model(QWEN3)
    for number, before in enumerate(("state_dict.", "state_dict.module.", "model.",
                                     "model_state_dict._orig_mod.", "model.module._orig_mod.",
                                     "state_dict._orig_mod.module.")):
        states = {"optimizer.state.0.exp_avg": A["model.a"]} if number % 2 else {}
        root = os.path.join(directory, str(number))
        file_of(os.path.join(root, "model.safetensors"),
                {**{before + n: v for n, v in values.items()}, **states})
        shutil.copy(os.path.join(QWEN3, "config.json"), root)
        to = os.path.join(directory, "out")
        words = ["export", "--convert", "auto", "--dst-strategy", "none"]
        if states:
            refused(run(*words, root, to), INPUT, "names tensor optimizer.state.0.exp_avg")
        got = run(*words, "--unlisted", "drop", root, to)
        check(got.status == GOOD, f"{before}: {got!r}")
        found = values_of_file(os.path.join(to, "rank_0", "checkpoint_0.ckpt"))
        check({n: v[2] for n, v in found.items()} == {n: v[2] for n, v in wanted.items()}, before)
        shutil.rmtree(to)
        if before == "model.":
            demand(is_shown(root, {before + n: v for n, v in values.items()} | states),
                   f"such as {before}lm_head.weight: transformers would initialize all weights; "
                   "--unwrap, --rename and --convert change names")
            os.remove(os.path.join(root, "config.json"))
            demand(is_shown(root, {before + n: v for n, v in values.items()} | states),
                   'all weights were saved under the key "model": --unwrap removes it')
            check(run("export", "--unwrap", root, to).status == GOOD, "--unwrap")
            check(values_of_model(to) == values, "--unwrap")
            shutil.rmtree(to)
    # A key of some weights alone may be a module.
    file_of(os.path.join(root, "model.safetensors"),
            {n if "layers" in n else "state_dict." + n: v for n, v in values.items()})
    refused(run("plan", "--convert", "auto", root), INPUT, "state_dict.")


# ---- the cache of Hugging Face ----

def cached(directory, name, source):
    """What huggingface_hub leaves of a download; the snapshot."""
    root = os.path.join(directory, "hub", f"models--{name}")
    snapshot = os.path.join(root, "snapshots", "0123abcd")
    os.makedirs(os.path.join(root, "refs"))
    os.makedirs(os.path.join(root, "blobs"))
    write(os.path.join(root, "refs", "main"), b"0123abcd")
    for at, _, files in os.walk(source):
        for file in files:
            path = os.path.join(snapshot, os.path.relpath(os.path.join(at, file), source))
            blob = os.path.join(root, "blobs", f"{len(os.listdir(os.path.join(root, 'blobs')))}e")
            os.makedirs(os.path.dirname(path), exist_ok=True)
            shutil.copyfile(os.path.join(at, file), blob)
            os.symlink(os.path.relpath(blob, os.path.dirname(path)), path)
    return snapshot


@test
def a_snapshot_of_hugging_faces_cache(directory):
    snapshot = cached(directory, "me--qwen3", QWEN3)
    wanted = values_of_model(QWEN3)
    link = os.path.join(directory, "link")
    os.symlink(snapshot, link)
    for source in (snapshot, link, os.path.join(snapshot, MAP), snapshot + "/."):
        with Shown(source) as m:
            check(values_of_model(m.path) == wanted, source)
            check("config.json" in m.files(), f"{source}: {m.files()}")
    check(run("verify", snapshot).status == GOOD, "verify")
    # A directory of a snapshot, as diffusers has them.
    other = os.path.join(directory, "pipe")
    shutil.copytree(QWEN3, os.path.join(other, "unet"), copy_function=shutil.copyfile)
    is_shown(os.path.join(cached(directory, "me--pipe", other), "unet"), wanted)


@test
def links_of_a_snapshot_lead_to_its_own_blobs_alone(directory):
    snapshot = cached(directory, "me--qwen3", QWEN3)
    other = cached(directory, "me--other", single(directory))
    config = os.path.join(snapshot, "config.json")
    path = os.path.join(snapshot, "model-00003-of-00005.safetensors")
    blob = os.path.realpath(path)
    hub = os.path.join(directory, "hub")
    os.mkdir(os.path.join(os.path.dirname(blob), "deep"))
    for place in (os.path.join(hub, "models--me--other", "blobs", "x"),
                  os.path.join(hub, "models--me--qwen3", "x"),
                  os.path.join(hub, "models--me--qwen3", "blobs", "deep", "x"),
                  os.path.join(hub, "models--me--qwen3", "blobsx"),
                  os.path.join(directory, "x")):
        os.unlink(path)
        os.rename(blob, place)
        os.symlink(place, path)
        refused(run("plan", snapshot), INPUT, path, "leads out of SOURCE, to " + place)
        check(run("plan", "--follow-outside", snapshot).status == GOOD, place)
        blob = place
    # A directory that only has the name of one.
    plain = os.path.join(directory, "snapshots", "0123abcd")
    os.makedirs(plain)
    os.symlink(os.path.realpath(config), os.path.join(plain, "config.json"))
    os.symlink(os.path.realpath(os.path.join(other, "model.safetensors")),
               os.path.join(plain, "model.safetensors"))
    refused(run("plan", plain), INPUT, "leads out of SOURCE")


# ---- what is an optimizer's ----

def is_state(name):
    return name.startswith(("optimizer.", "adam_m.", "adam_v.")) or \
        name in ("global_step", "learning_rate", "weight_decay")


def models_with_states():
    """Checkpoints with an optimizer's states: the options, and all their values."""
    for source in (genuine.dcp("torch-2.15/fsdp2"), genuine.checkpoint2("bf16_dp2mp2_opt")):
        words = ["--format", "hf", source]
        with Shown("--optimizer", "keep", *words) as m:
            everything = values_of_model(m.path)
            check("optimizer" not in m.said.replace(source, ""), m.said)
        states = {n for n in everything if is_state(n)}
        check(states and len(states) < len(everything), states)
        yield words, everything, states


@test
def an_optimizers_states_are_left_out(directory):
    for words, everything, states in models_with_states():
        weights = {n: v for n, v in everything.items() if n not in states}
        with Shown(*words) as m:
            check(values_of_model(m.path) == weights, sorted(values_of_model(m.path)))
            line, = [line for line in m.said.splitlines() if "--optimizer keep" in line]
            demand(line, f"{len(states)} tensors of an optimizer", " in the source, are left out")
        with Shown("--only", ".", *words) as m:
            check(values_of_model(m.path) == everything, "--only")
        with Shown("--drop", "^nothing", *words) as m:
            check(values_of_model(m.path) == everything, "--drop")
    source = genuine.dcp("torch-2.15/fsdp2")
    with Shown(source) as m:
        check(not [n for n in values_of_model(m.path) if is_state(n)], "without a word of hf")


@test
def the_library_leaves_them_out(directory):
    need_library()
    source = genuine.dcp("torch-2.15/fsdp2")
    found = reshardfs.tensors(source)
    check(found and not [n for n in found if is_state(n)], "tensors")
    check([n for n in reshardfs.tensors(source, optimizer="keep") if is_state(n)], "keep")


@test
def other_forms_have_them(directory):
    source = genuine.dcp("torch-2.15/fsdp2")
    with Shown("--dst-strategy", "none", "--format", "safetensors", source) as m:
        found = values_of_file(os.path.join(m.path, *[n for n in m.files() if "rank_0" in n]))
        check([n for n in found if is_state(n)], found)
    refused(run("plan", "--optimizer", "keep", "--format", "safetensors", "--dst-strategy",
                "none", source), USAGE, "--optimizer needs --format hf")
    refused(run("plan", "--optimizer", "none", source), USAGE, "auto or keep")


@test
def a_model_keeps_what_it_has(directory):
    """Names that are MindSpore's for states may be Hugging Face's for weights."""
    root = os.path.join(directory, "odd")
    values = {"momentum.weight": ("F32", (2,), b"12345678"), "w": ("F32", (1,), b"abcd")}
    os.makedirs(root)
    write(os.path.join(root, "model.safetensors"), safetensors_bytes(values))
    with Shown(root) as m:
        check(values_of_model(m.path) == values and not m.said, m.said)


# ---- what is said ----

def good_mounts():
    for name in genuine.checkpoint2_names() + genuine.hyper_parallel_names():
        yield [genuine.checkpoint2(name)]
        yield ["--format", "hf", genuine.checkpoint2(name)]
    for name in genuine.dcp_names():
        root = genuine.dcp(name)
        inner = os.path.join(root, "sharded")
        yield [inner if os.path.isdir(inner) else root]
    for name in sorted(os.listdir(MODELS)):
        yield [os.path.join(MODELS, name)]
        yield ["--convert", "auto", os.path.join(MODELS, name)]


@test
def a_good_mount_says_two_lines_at_most(directory):
    for words in good_mounts():
        with Shown(*words) as m:
            check(len(m.said.splitlines()) <= LINES and "MindSpore's converter" not in m.said,
                  f"{words}: {m.said}")
    source, src, dst = demo_tree(directory)
    demo = os.path.join(genuine.DATA, "demo")
    for words in (["--src-strategy", src, "--dst-strategy", dst, source],
                  ["--src-strategy", src, "--dst-strategy", "none", "--format", "hf", source],
                  ["--src-strategy", os.path.join(demo, "strategy_8_cards.ckpt"), "--dst-mesh",
                   "dp=2,mp=2,pp=2", os.path.join(demo, "checkpoint")]):
        with Shown(*words) as m:
            check(len(m.said.splitlines()) <= LINES and "MindSpore's converter" not in m.said,
                  f"{words}: {m.said}")


@test
def what_the_converter_would_have_done_is_information(directory):
    source, src, dst = demo_tree(directory)
    words = ["--src-strategy", src, "--dst-strategy", dst, source]
    aside = "BFloat16 NaNs are kept as they are; MindSpore's converter makes each of them"
    for more, is_said in (([], False), (["--log-level", "info"], True)):
        with Shown(*more, *words) as m:
            check((aside in m.said) == is_said, m.said)
    check(aside in run("plan", *words).out, "plan")
    # What --compat does not undo is said with it.
    words = ["--src-strategy", "none", "--dst-strategy", "none", QWEN3]
    with Shown("--compat", "mindspore", *words) as m:
        demand(m.said, "neither side has a strategy", "MindSpore's converter refuses this")
    with Shown(*words) as m:
        check(not m.said, m.said)


@test
def what_is_lost_is_said(directory):
    source, src, dst = demo_tree(directory)
    words = ["--src-strategy", src, "--dst-strategy", dst, "--only", "^embedding", source]
    name = next(n for n in os.listdir(os.path.join(source, "rank_3")) if n.endswith(".ckpt"))
    os.unlink(os.path.join(source, "rank_3", name))
    with Shown(*words) as m:
        demand(m.said, "slices of ranks without a valid file are read from replicas")
        check("MindSpore's converter" not in m.said, m.said)
    with Shown("--log-level", "info", *words) as m:
        demand(m.said, "MindSpore's converter refuses a source of which ranks have no valid file")


@test
def two_kinds_of_checkpoint_in_a_directory(directory):
    """One is shown, and each command says which one is not."""
    root = os.path.join(directory, "both")
    distributed = genuine.dcp("torch-2.15/fsdp2")
    shutil.copytree(distributed, root, copy_function=shutil.copyfile)
    os.chmod(root, 0o755)
    write(os.path.join(root, "model.safetensors"), safetensors_bytes(values_in(QWEN3)))
    said = "it has two kinds of checkpoint: taking the distributed checkpoint, not the whole model"
    with Shown(root) as m:
        demand(m.said, said)
        both = values_of_model(m.path)
    with Shown(distributed) as m:
        check("two kinds" not in m.said and values_of_model(m.path) == both, m.said)
    got = run("ls", root)
    demand(got.out, "two kinds of checkpoint: a mount takes the distributed checkpoint, not the")
    for words in (["plan", root], ["verify", root],
                  ["export", root, os.path.join(directory, "out")]):
        got = run(*words)
        check(got.status == GOOD and got.err.count(said) == 1, repr((words, got)))
    adapter = os.path.join(directory, "model and adapter")
    shutil.copytree(QWEN3, adapter, copy_function=shutil.copyfile)
    os.chmod(adapter, 0o755)
    write(os.path.join(adapter, "adapter_config.json"), b'{"peft_type": "LORA", "r": 2}')
    write(os.path.join(adapter, "adapter_model.safetensors"), safetensors_bytes({}))
    with Shown(adapter) as m:
        demand(m.said, "taking the whole model, not the adapter of PEFT")
        check(values_of_model(m.path) == values_in(QWEN3), m.said)


@test
def a_model_beside_steps_or_ranks(directory):
    """Each command names what it does not take, whichever of both it takes."""
    model, none = "whole model", ["--src-strategy", "none", "--dst-strategy", "none"]
    ranks = "checkpoint with a file of PyTorch for each rank"
    saved, _, _ = demo_tree(os.path.join(directory, "demo"))
    steps = os.path.join(directory, "steps")
    shutil.copytree(os.path.join(packed.unpack("torch_ranks", os.path.join(directory, "r")),
                                 "fsdp2-2.15"), os.path.join(steps, "global_step_10"))
    trees = packed.unpack("deepspeed", os.path.join(directory, "d"))
    trainer = os.path.join(trees, "trainer-z2", "checkpoint-2")
    for root, taken, left, words in (
            (os.path.join(trees, "z2-fp32"), model, "checkpoint of DeepSpeed", []),
            (steps, ranks, model, []), (saved, model, "tree of rank files", none)):
        write(os.path.join(root, "model.safetensors"), safetensors_bytes(values_in(QWEN3)))
        said = f"{root}: it has two kinds of checkpoint: taking the {taken}, not the {left}"
        with Shown(*words, root) as m:
            check(m.said.count(said) == 1, m.said)
        demand(run("ls", root).out, f"a mount takes the {taken}, not the {left}")
        for number, command in enumerate(("plan", "verify", "export")):
            out = [root + "-out"] if command == "export" else []
            got = run(command, *(words if number != 1 else []), root, *out)
            check(got.status == GOOD and got.err.count(said) == 1, repr((command, got)))
    # The Trainer saves the weights with the masters.
    for words in (["plan"], ["ls"]):
        got = run(*words, trainer)
        check(got.status == GOOD and "two kinds" not in got.out + got.err, got)


def downloaded(hub, name, revision="2abc"):
    """Puts the model of Qwen3 into a cache of Hugging Face; its snapshot."""
    model = os.path.join(hub, "models--" + name.replace("/", "--"))
    snapshot = os.path.join(model, "snapshots", revision)
    os.makedirs(snapshot)
    for number, part in enumerate(sorted(os.listdir(QWEN3))):
        write(os.path.join(model, "blobs", str(number)), content(os.path.join(QWEN3, part)))
        os.symlink(f"../../blobs/{number}", os.path.join(snapshot, part))
    write(os.path.join(model, "refs", "main"), revision.encode())
    return snapshot


@test
def a_model_by_its_name_on_the_hub(directory):
    """In each place where huggingface_hub puts its cache."""
    home = os.path.join(directory, "home")
    places = [({"HF_HUB_CACHE": "A"}, "A"), ({"HF_HOME": "B"}, "B/hub"),
              ({"HF_HUB_CACHE": "", "HF_HOME": "~/C"}, "home/C/hub"),
              ({"XDG_CACHE_HOME": "D"}, "D/huggingface/hub"),
              ({"XDG_CACHE_HOME": ""}, "home/.cache/huggingface/hub")]
    for number, (names, hub) in enumerate(places):
        env = {"HOME": home, **{name: os.path.join(directory, value) if value[:1] not in "~" else
                                value for name, value in names.items()}}
        snapshot = downloaded(os.path.join(directory, hub), f"me/Model-{number}.5_x")
        got = run("ls", f"me/Model-{number}.5_x", env=env, cwd=directory)
        check(got.status == GOOD and f"mount {snapshot} mnt" in got.out, repr((names, got)))
        got = run("ls", f"me/Other-{number}", env=env, cwd=directory)
        check(got.status == INPUT and f"there is no {os.path.join(directory, hub)}/models--me--"
              f"Other-{number}): hf download me/Other-{number} gets it" in got.err, repr(got))
    downloaded(os.path.join(directory, "A"), "alone")
    env = {"HF_HUB_CACHE": os.path.join(directory, "A")}
    for words in (["ls", "alone"], ["plan", "alone"], ["verify", "alone"],
                  ["convert", "check", "qwen3", "alone"],
                  ["ls", "A/models--alone"], ["ls", "A/models--alone/"]):
        good(*words, env=env, cwd=directory)
    got = run("export", "alone", "out", env=env, cwd=directory)
    check(got.status == GOOD and values_in(os.path.join(directory, "out")) ==
          values_in(QWEN3), repr(got))


@test
def names_that_only_look_like_those_of_ranks(directory):
    """People call directories ckpt_1000 and files rank_0.log: a model in them is a model."""
    data = checkpoint_bytes({"w": Record((4,), "Float32", bytes(range(16)))})
    out = os.path.join(directory, "out")
    stated = ["--src-strategy", "none", "--dst-strategy", "none"]

    def exported(*words):
        got = run("export", *words, out, cwd=directory)
        if got.status == GOOD:
            names = [os.path.join(at, n) for at, _, files in os.walk(out) for n in files]
            found = {k: v for n in names if n.endswith((".ckpt", ".safetensors"))
                     for k, v in values_of_file(n).items()}
            shutil.rmtree(out)
            return found
        check(got.status == INPUT and not os.path.exists(out), repr((words, got)))
        return got.err

    for place, plain, told in (
            ("ckpt_2024_old", True, True), ("ckpt_2024_old/llama", True, True),
            ("ckpt_1000/llama", True, True), ("rank_0_logs/llama", True, True),
            ("rank_/llama", True, True), ("xrank_0", True, True),
            # The directory of a rank, unless the user says that it is whole.
            ("ckpt_1000", False, True),
            ("rank_0", False, False), ("rank_0/llama", False, False),
            ("rank3", False, True), ("Rank-3/llama", False, True),
            ("device_3", False, True), ("card3", False, True), ("NPU_3", False, True),
            ("ranks3", True, True), ("rank3b", True, True), ("cards/card", True, True)):
        at = os.path.join(place, "net.ckpt")
        write(os.path.join(directory, at), data)
        for source in place, at:
            for words, works in ([], plain), (stated, told):
                said = exported(*words, source)
                if works:
                    check(said == {"w": ("F32", (4,), bytes(range(16)))}, repr((source, said)))
                else:
                    check("one rank" in said and "no rank_N directory in it, nor" not in said,
                          repr((source, said)))
                    check(("--src-strategy none" in said) == told, repr((source, said)))
    # A sweep over the rank of LoRA: config.json says that it is a model.
    weights = safetensors_bytes(values_in(QWEN3))
    for place in "sweep/rank_16", "sweep/rank_8/merged", "sweep/rank3":
        at = os.path.join(place, "model.safetensors")
        write(os.path.join(directory, at), weights)
        check("one rank" in exported(at), place)
        shutil.copy(os.path.join(QWEN3, "config.json"), os.path.join(directory, place))
        for source in place, at:
            check(exported(source) == values_in(QWEN3), source)
    for number in range(3):
        write(os.path.join(directory, "flat", f"checkpoint_{number}.ckpt"), data)
    check("--rank-dir . --file 'checkpoint_{rank}.ckpt'" in exported("flat"), "files of ranks")
    for name, works in (("net_lora_rank16", True), ("lora-rank-8", True), ("low_rank4", True),
                        ("net_rank_0", False), ("flora_rank1", False)):
        at = os.path.join("named " + name, name + ".ckpt")
        write(os.path.join(directory, at), data)
        check((exported(at) == {"w": ("F32", (4,), bytes(range(16)))}) == works, name)
        check(exported(*stated, at) == {"w": ("F32", (4,), bytes(range(16)))}, name)
    for name in ("rank_0.json", "rank_0.log", "ckpt_1.txt", "rank_0", "ckpt_7", "rank_0/log.txt",
                 "rank_3/rng.pt"):
        model = os.path.join(directory, "beside " + name.replace("/", " "))
        shutil.copytree(QWEN3, model)
        write(os.path.join(model, name), b"{}")
        check(exported(model) == values_of_model(QWEN3), name)


@test
def and_by_the_library(directory):
    need_library()
    downloaded(directory, "alone")
    os.environ["HF_HUB_CACHE"] = directory
    try:
        check("config.json" in [os.path.basename(f.name) for f in reshardfs.files("alone")],
              "the library does not show the model")
    finally:
        del os.environ["HF_HUB_CACHE"]


@test
def a_name_that_the_cache_cannot_give(directory):
    hub = os.path.join(directory, "hub")
    model = os.path.join(hub, "models--me--one")
    downloaded(hub, "me/one")
    env = {"HF_HUB_CACHE": hub}
    # What lies in the working directory is meant, also if it cannot be mounted.
    write(os.path.join(directory, "me", "one", "note.txt"), b"")
    refused(run("ls", "me/one", env=env, cwd=directory), INPUT, "me/one: ")
    shutil.rmtree(os.path.join(directory, "me"))
    for ref, words in ((b"gone", "snapshots/gone: No such file or directory: "),
                       (b"../x", "refs/main: it names no revision: name a directory below "),
                       (b"", "refs/main: it names no revision")):
        write(os.path.join(model, "refs", "main"), ref)
        refused(run("plan", "me/one", env=env, cwd=directory), INPUT, words)
        refused(run("ls", model, env=env, cwd=directory), INPUT, "snapshots/2abc in it is a")
    os.unlink(os.path.join(model, "refs", "main"))
    refused(run("plan", "me/one", env=env, cwd=directory), INPUT,
            "refs/main: No such file or directory: name a directory below")


if __name__ == "__main__":
    require_mount()
    sys.exit(test.run())
