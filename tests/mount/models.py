#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whole models in parts, as what is shown and as the source, and trees of
safetensors files.

The yardstick is the tree that make_tree.py cuts from whole tensors.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile

LIB = os.path.join(os.environ.get("srcdir", "."), "lib")
sys.path.insert(0, LIB)

from demands import change, check, content, demand, write  # noqa: E402
from ms_formats import read_checkpoint  # noqa: E402
from rsh_cli import GOOD, NO  # noqa: E402
from rsh_cli import run as run_program  # noqa: E402
from rsh_mount import Mounted, Tap, expect_failure, hash_tree, require_mount  # noqa: E402
from safetensors_format import (SUFFIX, Tensors, read_model, safetensors_bytes,  # noqa: E402
                                values_of)
from shown_model import same  # noqa: E402

HF_MAP = "model.safetensors.index.json"
MS_MAP = "param_name_map.json"
PART_BYTES = 3 * 1000 ** 2


class Models:
    """The made-up tree, and models in parts with the same content."""

    def __init__(self, directory):
        subprocess.run([sys.executable, os.path.join(LIB, "make_tree.py"), directory],
                       check=True)
        self.directory = directory
        self.source = os.path.join(directory, "source")
        self.src = os.path.join(directory, "source.ckpt")
        self.dst = os.path.join(directory, "wanted.ckpt")
        self.records = read_checkpoint(
            os.path.join(directory, "whole", "rank_0", "checkpoint_0.ckpt"))
        self.whole = {n: v for n, v in values_of(self.records).items()}

    def cut(self, count):
        """The whole's values, dealt out to `count` parts."""
        names = list(self.whole)
        return [{n: self.whole[n] for n in names[i::count]} for i in range(count)]

    def hf_model(self, name, count=3):
        root = os.path.join(self.directory, name)
        weights = {}
        for i, values in enumerate(self.cut(count)):
            file = f"model-{i + 1:05}-of-{count:05}.safetensors"
            write(os.path.join(root, file), safetensors_bytes(values, {"format": "pt"}))
            weights.update(dict.fromkeys(values, file))
        write(os.path.join(root, HF_MAP), json.dumps(
            {"metadata": {"total_size": 1}, "weight_map": weights}).encode())
        return root

    def single_model(self, name):
        root = os.path.join(self.directory, name)
        write(os.path.join(root, "model.safetensors"), safetensors_bytes(self.whole))
        return root

    def ms_model(self, name, flat):
        """What unified_safetensors leaves, with a file that the map lacks."""
        root = os.path.join(self.directory, name)
        *parts, hyper = self.cut(4)
        weights = {}
        for i, values in enumerate(parts):
            write(os.path.join(root, f"part{i}.safetensors"),
                  safetensors_bytes(values, {"format": "ms"}))
            weights.update(dict.fromkeys(values, f"part{i}.safetensors"))
        write(os.path.join(root, "hyper_param.safetensors"), safetensors_bytes(hyper))
        write(os.path.join(root, MS_MAP), json.dumps(
            weights if flat else {"metadata": {"total_size": 1}, "weight_map": weights},
            indent=4).encode())
        return root

    def safetensors_tree(self):
        root = os.path.join(self.directory, "safetensors")
        for rank in range(8):
            values = values_of(read_checkpoint(os.path.join(
                self.source, f"rank_{rank}", f"net_rank_{rank}-3_40.ckpt")))
            write(os.path.join(root, f"rank_{rank}", f"net_rank_{rank}-3_40.safetensors"),
                  safetensors_bytes(values, {"format": "ms"}))
        return root


def shown(mount):
    """{rank: values} of a mount of rank files."""
    found = {}
    for rank in range(len(os.listdir(mount.path))):
        folder = os.path.join(mount.path, f"rank_{rank}")
        (name,) = os.listdir(folder)
        path = os.path.join(folder, name)
        if name.endswith(SUFFIX):
            found[rank] = Tensors(content(path)).values()
        else:
            found[rank] = values_of(read_checkpoint(path))
    return found


def expect_parts(models, mount, limit):
    """Tensors in order, a part closed when the next would make it too large."""
    index, parts = read_model(mount.path)
    expected, room = [], -1
    for name, value in models.whole.items():
        if len(value[2]) > room or not expected:
            expected.append({})
            room = limit
        expected[-1][name] = value
        room -= len(value[2])
    count = len(expected)
    files = [f"model-{i + 1:05}-of-{count:05}.safetensors" for i in range(count)]
    check(sorted(os.listdir(mount.path)) == sorted(files + [HF_MAP]),
          f"{os.listdir(mount.path)} is not {files}")
    for file, values in zip(files, expected):
        same(parts[file].values(), values, file)
        check(parts[file].metadata == {"format": "pt"}, f"{file}: {parts[file].metadata}")
        for name in values:
            check(index["weight_map"][name] == file, f"{name} is not said to be in {file}")
    check(len(index["weight_map"]) == len(models.whole), "the map names too much")
    total = sum(len(v[2]) for v in models.whole.values())
    check(index["metadata"] == {"total_size": total}, f"{index['metadata']}")


def break_model(root, what):
    """One fault, and words of the sentence that it must give."""
    part = os.path.join(root, "model-00002-of-00003.safetensors")
    if what == "a part is missing":
        os.unlink(part)
        return "model-00002"
    if what == "a part is cut short":
        os.truncate(part, os.path.getsize(part) - 1)
        return "model-00002"
    if what == "a parameter is in two parts":
        shutil.copy(part, os.path.join(root, "model-00003-of-00003.safetensors"))
        return "in two of its files"
    if what == "the map is damaged":
        os.truncate(os.path.join(root, HF_MAP), 20)
        return HF_MAP
    raise ValueError(what)


def beside(tree, rank, change):
    """The path of another name that a rank's file gets."""
    name = f"net_rank_{rank}-3_40.safetensors"
    path = os.path.join(tree, f"rank_{rank}", change(name))
    os.link(os.path.join(tree, f"rank_{rank}", name), path)
    return path


def run_found(tap, models, tree, sides, wanted):
    """A safetensors tree that is not as it should be."""
    with tap.test("a safetensors file that is cut: the older step"):
        newer = [beside(tree, rank, lambda name: name.replace("3_40", "3_50"))
                 for rank in range(8)]
        os.unlink(newer[5])
        write(newer[5], b"\x10")
        with Mounted(tree, **sides) as mount:
            same(shown(mount), wanted, "the tree")
            said = mount.log()
        check("epoch 3 step 50 cannot be used" in said, said)
        check("net_rank_5-3_50.safetensors" in said, said)
        for path in newer:
            os.unlink(path)
    both = beside(tree, 3, lambda name: name.replace(".safetensors", ".ckpt"))
    with tap.test("refused: a rank with both formats at one step"):
        _, said = expect_failure(tree, **sides)
        check("rank 3" in said and os.path.basename(both) in said, said)
    with tap.test("both formats at one step, and which is meant"):
        with Mounted(tree, **sides, extra=["--select", "name=*.safetensors"]) as mount:
            same(shown(mount), wanted, "the tree")
    with tap.test("refused: ranks of different formats"):
        os.unlink(both[:-len(".ckpt")] + SUFFIX)
        _, said = expect_failure(tree, **sides)
        check("all files must be .ckpt or all .safetensors" in said, said)
    os.rename(both, both[:-len(".ckpt")] + SUFFIX)


def main():
    require_mount()
    tap = Tap()
    directory = tempfile.mkdtemp(prefix="reshardfs-models-")
    try:
        models = Models(directory)
        run(tap, models)
    finally:
        shutil.rmtree(directory)
    return tap.finish()


def run_beside(tap, models):
    """Files of a model that are no weights."""
    beside = os.path.join(models.directory, "beside")
    texts = {"config.json": b"{}\n", "tokenizer.model": os.urandom(300000), "empty.txt": b"",
             "1_Pooling/config.json": b"[]", "2_Dense/model.safetensors": b"as it is",
             "2_Dense/more/a/b.txt": b"deep", "2_Dense.json": b"{}"}
    others = {"model.safetensors": b"", "model.safetensors.index.json": b"{}",
              "pytorch_model.bin": b"", ".gitattributes": b"", "1_Pooling/.hidden": b""}
    for name, text in {**texts, **others}.items():
        write(os.path.join(beside, name), text)
    words = ["--src-strategy", models.src, "--dst-strategy", "none", "--format", "hf",
             "--model-files", beside]
    with tap.test("files beside the parts"):
        with Mounted(models.source, src_strategy=models.src, extra=words[4:]) as mount:
            names, _ = read_model(mount.path)
            found = set(hash_tree(mount.path))
            check(set(texts) | {HF_MAP} == {n for n in found if not n.startswith("model-")},
                  str(found))
            for name, text in texts.items():
                path = os.path.join(mount.path, name)
                check(content(path) == text, f"{name} is another")
                check(os.stat(path).st_mtime == os.stat(os.path.join(beside, name)).st_mtime,
                      f"{name} has another time")
            check(names, "there is no weight")
    with tap.test("files beside the parts are exported, verified and held against"):
        to = os.path.join(models.directory, "beside-out")
        manifest = os.path.join(to, "reshardfs-manifest.jsonl")
        for command in (["export", *words, models.source, to], ["verify", to],
                        ["verify", *words, models.source, to],
                        ["verify", *words, models.source, manifest]):
            got = run_program(*command)
            check(got.status == GOOD, repr(got))
        write(os.path.join(beside, "config.json"), b"[]\n")
        got = run_program("verify", *words, models.source, to)
        check(got.status == NO and "config.json" in got.out + got.err, repr(got))
        got = run_program("export", *words, models.source, to)
        check(got.status != GOOD and "not of this conversion" in got.err, repr(got))
    with tap.test("what cannot be shown beside the parts is left out, and said once"):
        left_out_beside(models, beside, words)
    with tap.test("what is large beside the parts leaves room for what is small"):
        for number in range(9):
            write(os.path.join(beside, f"figure{number}.png"), b"")
            os.truncate(os.path.join(beside, f"figure{number}.png"), 30 << 20)
        with Mounted(models.source, src_strategy=models.src, extra=words[4:]) as mount:
            found = os.listdir(mount.path)
            check(set(texts) <= set(hash_tree(mount.path)), str(found))
            check("figure7.png" in found and "figure8.png" not in found, str(found))
            demand(mount.log(), "figure8.png (more than 256 MiB with the smaller ones)")


def left_out_beside(models, beside, words):
    big = write(os.path.join(beside, "big/c.txt"), b"")
    os.truncate(big, (64 << 20) + 1)
    write(os.path.join(beside, "big/a.txt"), b"small")
    for number in range(1001):
        write(os.path.join(beside, f"many/{number}"), b"")
    write(os.path.join(beside, "/".join("123456789"), "deep"), b"")
    os.makedirs(os.path.join(beside, "links"))
    for name, to in (("gone.md", "nothing"), ("out.json", "/etc/hostname"),
                     ("links/round", "round"), ("socket", "pipe")):
        os.symlink(to, os.path.join(beside, name))
    os.mkfifo(os.path.join(beside, "pipe"))
    with Mounted(models.source, src_strategy=models.src, extra=words[4:]) as mount:
        found = set(hash_tree(mount.path))
        check(not [n for n in found if n.startswith(("big", "many", "1/", "links", "gone", "out",
                                                     "pipe", "socket"))], str(found))
        check("config.json" in found and "2_Dense/more/a/b.txt" in found, str(found))
        said = [line for line in mount.log().splitlines() if "not shown beside" in line]
        check(len(said) == 1, mount.log())
        demand(said[0], "links/ (links/round: ", "1/ (more than 8 directories deep)",
               "gone.md (a link to nothing)", "out.json (a link that leads out of the directory)",
               " and 1 more")
    for name in ("links", "1", "many"):
        shutil.rmtree(os.path.join(beside, name))
    with Mounted(models.source, src_strategy=models.src, extra=words[4:]) as mount:
        demand(mount.log(), "big/ (a file is larger than 64 MiB)")
    shutil.rmtree(os.path.join(beside, "big"))
    for name in ("gone.md", "out.json", "socket", "pipe"):
        os.remove(os.path.join(beside, name))


def defaults_change_nothing(models):
    """An option that states the default changes nothing."""
    root = models.hf_model("defaults")
    write(os.path.join(root, "config.json"), b"{}\n")
    write(os.path.join(root, "tokenizer.json"), b"{}\n")
    write(os.path.join(root, "1_Pooling/config.json"), b"{}\n")
    with Mounted(root, described=True) as mount:
        wanted = hash_tree(mount.path)
    defaults = [["--src-strategy", "none"], ["--dst-strategy", "none"], ["--format", "hf"],
                ["--model-files", root], ["--part-size", "5GB"], ["--unlisted", "copy"]]
    for mask in range(1 << len(defaults)):
        words = [w for i, o in enumerate(defaults) if mask >> i & 1 for w in o]
        to = os.path.join(models.directory, "defaults-out")
        got = run_program("export", *words, root, to)
        check(got.status == GOOD, f"{words}: {got!r}")
        os.remove(os.path.join(to, "reshardfs-manifest.jsonl"))
        same(hash_tree(to), wanted, str(words))
        shutil.rmtree(to)


def run_twice(tap, models):
    """Directories that hold a model whole, in parts, and as torch saves it."""
    extra = ["--format", "hf", "--log-level", "info"]

    def values_shown(root, *said):
        with Mounted(root, extra=extra) as mount:
            _, parts = read_model(mount.path)
            log = mount.log()
        for words in said:
            check(words in log, f"no {words!r} in {log}")
        return {n: v for part in parts.values() for n, v in part.values().items()}

    def other(values):
        """The same shapes with other bytes, so that it is seen which are taken."""
        return {n: (t, s, bytes(255 - b for b in data)) for n, (t, s, data) in values.items()}

    root = models.hf_model("twice")
    single = os.path.join(root, "model.safetensors")
    taken = "model.safetensors is taken, as transformers does"
    with tap.test("a model twice: the one file is taken, and the log says so"):
        same(values_shown(root), models.whole, "the parts alone")
        write(single, safetensors_bytes(models.whole))
        same(values_shown(root, taken, "both have the same tensors, as samples"), models.whole,
             "the one file")
    name = next(n for n, v in models.whole.items() if len(v[1]) == 2)
    dtype, shape, data = models.whole[name]
    with tap.test("refused: a model twice, of two steps; each is shown if it is SOURCE itself"):
        write(single, safetensors_bytes(other(models.whole)))
        demand(expect_failure(root, extra=extra)[1], "there are two models", "-of-00003.safeten",
               "other values in model.safetensors than in", HF_MAP, "as SOURCE")
        same(values_shown(single), other(models.whole), "the one file")
        same(values_shown(os.path.join(root, HF_MAP)), models.whole, "the parts")
    with tap.test("refused: a model twice, of which one tensor differs"):
        write(single, safetensors_bytes({**models.whole, name: other(models.whole)[name]}))
        demand(expect_failure(root, extra=extra)[1], name, "other values in model.safetensors")
    for what, value in (("shape", (dtype, (shape[1] * 2, shape[0]), data * 2)),
                        ("type", ("U8", (*shape, len(data) // (shape[0] * shape[1])), data))):
        with tap.test(f"refused: a model twice, where a tensor has another {what}"):
            write(single, safetensors_bytes({**models.whole, name: value}))
            for command in ("export", "plan"):
                got = run_program(command, "--src-strategy", "none", "--dst-strategy", "none",
                                  root, *([os.path.join(models.directory, "twice-out")]
                                          if command == "export" else []))
                check(got.status not in (GOOD, NO), repr(got))
                for words in (root, name, "in model.safetensors and", "-of-00003.safetensors",
                              HF_MAP, str(list(shape)).replace(" ", "")):
                    check(words in got.err, f"no {words!r} in {got.err}")
            expect_failure(root, extra=extra)
    with tap.test("a model twice, of which one has more: a warning"):
        less = {n: v for n, v in models.whole.items() if n != name}
        write(single, safetensors_bytes(less))
        same(values_shown(root, "warning", taken, "0 of its tensors", "it lacks 1 of theirs"),
             less, "the one file")
        write(single, safetensors_bytes({**models.whole, "one more": ("U8", (1,), b"1")}))
        values_shown(root, "warning", taken, "1 of its tensors", "it lacks 0 of theirs")
    with tap.test("a model twice, of whose parts some cannot be read, or the map"):
        write(single, safetensors_bytes(models.whole))
        part = os.path.join(root, "model-00002-of-00003.safetensors")
        os.truncate(part, 100)
        same(values_shown(root, taken, "it is not compared with model.safetensors"),
             models.whole, "a part is cut")
        for left in os.listdir(root):
            if left.startswith("model-"):
                os.unlink(os.path.join(root, left))
        same(values_shown(root, taken, "none of the parts"), models.whole, "no parts")
        write(os.path.join(root, HF_MAP), b"{")
        same(values_shown(root, HF_MAP, "warning"), models.whole, "no map")
        write(os.path.join(root, HF_MAP), json.dumps(
            {"metadata": {}, "weight_map": dict.fromkeys(models.whole, "model.safetensors")})
            .encode())
        same(values_shown(root), models.whole, "a map of the one file")
    for torch, of in (("pytorch_model.bin", single), ("pytorch_model.bin.index.json", None)):
        with tap.test(f"a model twice: {torch} is not looked at, and the log says so"):
            root = os.path.dirname(of) if of else models.hf_model("twice-parts")
            write(os.path.join(root, torch), b"no zip archive")
            same(values_shown(root, f"{torch} was not looked at"), models.whole, torch)


def run(tap, models):
    sides = {"src_strategy": models.src, "dst_strategy": models.dst}
    with Mounted(models.source, **sides) as mount:
        wanted = shown(mount)
    with tap.test("a .ckpt tree shown as safetensors"):
        with Mounted(models.source, **sides, extra=["--format", "safetensors"]) as mount:
            same(shown(mount), wanted, "the tree")
    tree = models.safetensors_tree()
    for form in ("ckpt", "safetensors"):
        with tap.test(f"a safetensors tree shown as {form}"):
            with Mounted(tree, **sides, extra=["--format", form]) as mount:
                same(shown(mount), wanted, "the tree")

    run_found(tap, models, tree, sides, wanted)

    for limit in (PART_BYTES, 1, 10 ** 12):
        with tap.test(f"a whole model in parts of {limit} bytes"):
            with Mounted(models.source, src_strategy=models.src,
                         extra=["--format", "hf", "--optimizer", "keep", "--part-size",
                                str(limit)]) as mount:
                expect_parts(models, mount, limit)

    with Mounted(os.path.join(models.directory, "whole"), dst_strategy=models.dst) as mount:
        wanted = shown(mount)
    roots = {"Hugging Face's form": models.hf_model("hf"),
             "Hugging Face's form of small models": models.single_model("single"),
             "MindSpore's form": models.ms_model("ms", flat=False),
             "MindSpore's form of release 2.5": models.ms_model("ms25", flat=True)}
    for form, root in roots.items():
        with tap.test(f"a source in {form}"):
            with Mounted(root, dst_strategy=models.dst) as mount:
                same(shown(mount), wanted, form)
    with tap.test("a source that is another mount's parts"):
        with Mounted(models.source, src_strategy=models.src,
                     extra=["--format", "hf", "--optimizer", "keep", "--part-size",
                            "2MB"]) as first, \
                Mounted(first.path, dst_strategy=models.dst) as mount:
            same(shown(mount), wanted, "the tree")
    with tap.test("from parts to parts"):
        with Mounted(roots["Hugging Face's form"],
                     extra=["--format", "hf", "--part-size", "1MiB"]) as mount:
            _, parts = read_model(mount.path)
            found = {n: v for part in parts.values() for n, v in part.values().items()}
            same(found, models.whole, "the model")
            newest = max(os.stat(os.path.join(roots["Hugging Face's form"], f)).st_mtime
                         for f in os.listdir(roots["Hugging Face's form"]) if f != HF_MAP)
            check(os.stat(os.path.join(mount.path, HF_MAP)).st_mtime == newest,
                  "the map is not as new as the newest part")

    run_beside(tap, models)
    with tap.test("defaults that are written out change nothing"):
        defaults_change_nothing(models)
    run_twice(tap, models)

    with tap.test("a parameter in two parts, of which MindSpore's map names one"):
        root = models.ms_model("ms-twice", flat=True)
        first, second = (os.path.join(root, f"part{i}.safetensors") for i in range(2))
        name, (dtype, shape, data) = next(iter(Tensors(content(first)).values().items()))
        values = Tensors(content(second)).values()
        write(second, safetensors_bytes(
            {name: (dtype, shape, bytes(len(data))), **values}, {"format": "ms"}))
        with Mounted(root, dst_strategy=models.dst) as mount:
            same(shown(mount), wanted, "the tree")

    for what in ("a part is missing", "a part is cut short", "a parameter is in two parts",
                 "the map is damaged"):
        with tap.test(f"refused: {what}"):
            root = models.hf_model("broken")
            words = break_model(root, what)
            _, said = expect_failure(root, dst_strategy=models.dst)
            check(words in said, f"no {words!r} in {said}")
            shutil.rmtree(root)
    for words, extra in (("leave out --dst-strategy", ["--format", "hf"]),
                         ("needs --format hf", ["--part-size", "1GB"]),
                         ("needs --format hf", ["--model-files", models.source]),
                         ("is not a size", ["--format", "hf", "--part-size", "0"])):
        with tap.test(f"refused: {' '.join(extra)}"):
            _, said = expect_failure(models.source, **sides, extra=extra)
            check(words in said, f"no {words!r} in {said}")


if __name__ == "__main__":
    sys.exit(main())
