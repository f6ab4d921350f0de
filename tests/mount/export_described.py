#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files that describe a checkpoint are a part of a conversion as its files of tensors are:
an export is not continued when one of them was written again.

The yardstick is the number of the conversion in the manifest.
"""

import json
import os
import re
import shutil
import sys
import tempfile
import typing

HERE = os.environ.get("srcdir", ".")
sys.path.insert(0, os.path.join(HERE, "lib"))

import packed  # noqa: E402
from demands import check, content, settle, write  # noqa: E402
from rsh_cli import GOOD, INPUT, good, refused, run, run_json  # noqa: E402
from rsh_mount import Tap  # noqa: E402

DATA = os.path.join(HERE, "data")
MANIFEST = "reshardfs-manifest.jsonl"
NONE = ["--dst-strategy=none"]
DCP = ["--format=dcp"]


class Kind(typing.NamedTuple):
    name: str
    tree: str      # in the data, where the archive of its first directory may have it
    words: list    # "{}" is the directory of the tree
    decides: list  # files, from the directory of the tree on
    others: list
    below: str = ""  # SOURCE, from there on
    stored: bool = True  # the index cache has what describes its files


KINDS = [
    Kind("distributed", "dcp/torch-2.15/again", [], [".metadata", "__0_0.distcp"], []),
    Kind("Megatron-Core", "dcp/megatron-core-0.16/mcore-torch_dist", [], [".metadata"],
         ["common.pt", "metadata.json"]),
    Kind("HyperParallel", "hyperparallel/mesh", [], [".metadata", "_rank0_.bytes"], []),
    Kind("Checkpoint 2.0", "checkpoint2/dp4mp2_opt", NONE,
         ["iteration_00000008/metadata.json"],
         ["iteration_00000008/common.json", "latest_checkpointed_iteration.txt"]),
    Kind("values of Checkpoint 2.0", "checkpoint2/dp4mp2_opt", NONE + DCP,
         ["iteration_00000008/metadata.json", "iteration_00000008/common.json"],
         ["latest_checkpointed_iteration.txt"]),
    Kind("model in parts", "weights/models/qwen3", [], ["model.safetensors.index.json"], []),
    Kind("torch model in parts", "torch/hf-bin-parts", [], ["pytorch_model.bin.index.json"], [],
         stored=False),
    Kind("DeepSpeed", "deepspeed/universal-z1", [],
         ["global_step2_universal/zero/optimizer_state.pt",
          "global_step2_universal/mp_rank_00_model_states.pt"],
         ["latest_universal"], stored=False),
    Kind("verl", "torch_ranks/fsdp2-2.15", [],
         ["fsdp_config.json", "extra_state_world_size_2_rank_0.pt"],
         ["extra_state_world_size_2_rank_1.pt"], stored=False),
    Kind("torch_checkpointing", "torch_ranks/tc-pt", [], ["metadata.pkl"], [], stored=False),
    Kind("Megatron-LM", "megatron/mg-gpt2-tied", [],
         ["iter_0000020/mp_rank_00_000/model_optim_rng.pt"],
         ["latest_checkpointed_iteration.txt"], stored=False),
    Kind("versions", "versions", ["--base={}/base"],
         ["xor/weight_v000005/model.safetensors.index.json",
          "xor/weight_v000001/model.safetensors.index.json", "base/model.safetensors.index.json"],
         ["rotated/weight_v000006/model.safetensors.index.json"], below="xor"),
    Kind("an old version", "versions", ["--base={}/base", "--select=step=1"],
         ["xor/weight_v000001/model.safetensors.index.json", "base/model.safetensors.index.json"],
         ["xor/weight_v000002/model.safetensors.index.json",
          "xor/weight_v000002/model-00000-of-00002.safetensors"], below="xor"),
]


def renew(path):
    """The same bytes, written again."""
    shutil.copyfile(path, path + ".new")
    os.replace(path + ".new", path)


def write_over(path, old, new):
    with open(path, "r+b") as f:
        data = f.read()
        check(data.count(old), f"{path} has no {old}")
        f.seek(0)
        f.write(data.replace(old, new))
        f.truncate()


def copy_tree(name, to):
    """A tree of the data, or of an archive in it."""
    shutil.copytree(os.path.join(DATA, name), to, copy_function=shutil.copyfile)
    return to


class Source:
    def __init__(self, kind, directory, trees):
        first, _, rest = kind.tree.partition("/")
        self.kind, self.directory = kind, directory
        self.root = os.path.join(directory, "tree")
        if os.path.exists(os.path.join(DATA, first, "trees.tar.xz")):
            if first not in trees:
                trees[first] = packed.unpack(first, os.path.join(directory, "all"))
            shutil.copytree(os.path.join(trees[first], rest), self.root,
                            copy_function=shutil.copyfile)
        else:
            copy_tree(kind.tree, self.root)
        self.words = [word.format(self.root) for word in kind.words]
        self.cache = ["--index-cache", os.path.join(directory, "cache")]

    def path(self, name):
        return os.path.join(self.root, name)

    def command(self, out, *words):
        return ["export", self.path(self.kind.below), out, *self.words, *words]

    def conversion(self, *words, read=None):
        """The number of the conversion; `read` files have to be read for it."""
        with tempfile.TemporaryDirectory(dir=self.directory) as directory:
            out = os.path.join(directory, "out")
            got = good(*self.command(out, "--log-level=info", *words))
            said = re.search(r"(\d+) files indexed, (\d+) of them read", got.err)
            check(read is None or said and int(said[2]) == read, (read, got.err))
            with open(os.path.join(out, MANIFEST), encoding="utf-8") as f:
                return json.loads(f.readline())["conversion"]


def an_unchanged_source(s):
    first = s.conversion()
    for words in ([], ["--jobs=1"], ["--jobs=8"], s.cache):
        check(s.conversion(*words) == first, f"another conversion with {words}")
    for words in (s.cache, [*s.cache, "--jobs=1"]):
        check(s.conversion(*words, read=0 if s.kind.stored else None) == first,
              f"another conversion with a warm index cache and {words}")
    return first


def files_that_were_written_again(s, last):
    for names, decides in ((s.kind.decides, True), (s.kind.others, False)):
        for name in names:
            renew(s.path(name))
            now = s.conversion(*s.cache)
            check((now != last) == decides, f"{name}: {'' if decides else 'no '}change expected")
            check(s.conversion() == now, f"{name}: the index cache makes a difference")
            last = now


def an_export_is_not_continued(s):
    out = os.path.join(s.directory, "out")
    written = run_json(*s.command(out))["files"]["written"]
    check(run_json(*s.command(out))["files"] == {"written": 0, "kept": written, "lost": 0},
          "not continued")
    for name in s.kind.others:
        renew(s.path(name))
    check(run_json(*s.command(out))["files"]["kept"] == written, "other files decide")
    renew(s.path(s.kind.decides[0]))
    got = run(*s.command(out))
    check(got.status == INPUT and f"{MANIFEST} exists and is not of this conversion" in got.err,
          got)
    check(run_json(*s.command(out, "--overwrite"))["files"]["written"] == written, "--overwrite")


def names_are_exchanged(directory):
    """Both files stay as they are, and the tensors are others."""
    source = copy_tree("dcp/torch-2.15/again", os.path.join(directory, "source"))
    out, fresh = (os.path.join(directory, name) for name in ("out", "fresh"))
    check(run("export", source, out).status == GOOD, "export")
    metadata = os.path.join(source, ".metadata")
    for old, new in ((b"x0", b"x\0"), (b"x1", b"x0"), (b"x\0", b"x1")):
        write_over(metadata, old, new)
    refused(run("export", source, out), INPUT, MANIFEST, "is not of this conversion")
    check(run("export", source, fresh).status == GOOD, "fresh")
    names = [n for n in os.listdir(out) if n.endswith(".safetensors")]
    check(names and any(open(os.path.join(out, n), "rb").read() !=
                        open(os.path.join(fresh, n), "rb").read() for n in names),
          "the tensors are the same")


def another_epoch(directory):
    """A value beside the tensors is shown."""
    source = copy_tree("checkpoint2/dp4mp2_opt", os.path.join(directory, "source"))
    out = os.path.join(directory, "out")
    words = ["export", source, out, *NONE, *DCP]
    check(run(*words).status == GOOD, "export")
    path = os.path.join(source, "iteration_00000008", "common.json")
    common = json.loads(content(path))
    common["epoch_num"] += 1
    write(path, json.dumps(common).encode())
    refused(run(*words), INPUT, MANIFEST, "is not of this conversion")


def a_step_that_was_left(directory):
    """What describes a newer step, which is not complete, does not count."""
    kind = Kind("", "checkpoint2/dp4mp2_opt", NONE + ["--select=newest"], [], [])
    s = Source(kind, directory, {})
    newer = s.path("iteration_00000009")
    shutil.copytree(s.path("iteration_00000008"), newer, copy_function=shutil.copyfile)
    os.unlink(s.path("latest_checkpointed_iteration.txt"))
    for name in os.listdir(newer):
        if name.startswith("model-"):
            os.unlink(os.path.join(newer, name))
    got = run(*s.command(os.path.join(directory, "out")))
    check(got.status == GOOD and "iteration_00000009" in got.err, got)
    before = s.conversion()
    renew(os.path.join(newer, "metadata.json"))
    check(s.conversion() == before, "the newer step decides")
    renew(os.path.join(s.path("iteration_00000008"), "metadata.json"))
    check(s.conversion() != before, "the step does not decide")


CASES = [names_are_exchanged, another_epoch, a_step_that_was_left]


def main():
    tap = Tap(3 * len(KINDS) + len(CASES))
    with tempfile.TemporaryDirectory(prefix="reshardfs-described-") as directory:
        trees = {}
        sources = [Source(kind, tempfile.mkdtemp(dir=directory), trees) for kind in KINDS]
        settle(directory)
        for s in sources:
            last = [None]
            with tap.test(f"{s.kind.name}: an unchanged source"):
                last[0] = an_unchanged_source(s)
            with tap.test(f"{s.kind.name}: files that were written again"):
                files_that_were_written_again(s, last[0])
            with tap.test(f"{s.kind.name}: an export is not continued"):
                an_export_is_not_continued(s)
        for case in CASES:
            with tap.test(case.__name__.replace("_", " ")):
                case(tempfile.mkdtemp(dir=directory))
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
