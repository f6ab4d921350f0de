#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An option that states its default changes nothing.

    defaults.py [--seed S] [--cases N]

ls, plan, export and verify of every kind of source, genuine or drawn, each once as it is
and once with each default of --help-all written out: status, what is printed, what is
logged, and all bytes have to be the same.
"""

import json
import os
import random
import re
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

import behaviour_cases  # noqa: E402
import torch_zip  # noqa: E402
from behaviour import MANIFEST, Asked, differences, short  # noqa: E402
from rsh_mount import Tap, hash_tree, reshardfs_program  # noqa: E402
from run_seed import seed_and_cases, share  # noqa: E402

DATA = behaviour_cases.DATA
COMMANDS = "ls", "plan", "export", "verify"
# The value of an option that is the same for every source.
ALWAYS = {
    "breakpoint": None, "cache": "auto", "cache-compress": "auto", "cache-dir": None,
    "cache-size": None, "check": "sample", "color": "auto", "fallbacks": "5",
    "index-cache": None, "jobs": None, "keep-free": None, "log-format": "text",
    "log-level": None, "log-to": "stderr", "manifest": "out/reshardfs-manifest.jsonl", "optimizer": "auto",
    "prefix": "checkpoint_", "readahead": "16", "replicas": "auto", "select": "newest",
    "share": None, "source-index": None, "source-keys": "auto", "source-requests": "64",
    "source-style": "auto", "source-timeout": "60", "unlisted": "copy", "ca-file": None,
}
# What has no value that says the default: it is not given then.
UNSAID = {"cast", "dequantize", "from", "group-info", "lora", "lora-alpha", "rank-dir", "file",
          "untie", "unwrap", "pipeline-layers", "vocab-multiple", "exclude", "cache-servers",
          "source-map", "base", "picture"}
# Those whose default follows from the source: struct Kind has them.
FOLLOWS = {"src-strategy", "dst-strategy", "dst-ranks", "format", "part-size", "model-files",
           "config"}


LEVELS = {"ls": "error", "plan": "warning", "export": "warning", "verify": "warning"}


class Kind:
    """A source, the options without which it is not shown, and its defaults."""

    def __init__(self, what, source, words=(), **defaults):
        self.what, self.source, self.words = what, source, list(words)
        self.defaults = {name.replace("_", "-"): value for name, value in defaults.items()}


WHOLE = {"src_strategy": "none", "dst_strategy": "none"}


def genuine_kinds(directory):
    """Under `directory`, in which the program runs."""
    def copied(name, *where):
        return os.path.basename(shutil.copytree(os.path.join(DATA, *where),
                                                os.path.join(directory, name)))

    def model(name, *where):
        source = copied(name, *where)
        return Kind(name, source, **WHOLE, format="hf", model_files=source, config=source,
                    part_size="5GB")

    copied("demo", "demo")
    ranks = ["--src-strategy", "demo/strategy_8_cards.ckpt"]
    yield Kind("ranks for ranks", "demo/checkpoint",
               [*ranks, "--dst-strategy", "demo/strategy_4_cards.ckpt"], format="ckpt")
    yield Kind("ranks as one model", "demo/checkpoint", [*ranks, "--dst-strategy", "none"],
               format="ckpt", model_files="none")
    yield Kind("ranks as a Hugging Face model", "demo/checkpoint",
               [*ranks, "--dst-strategy", "none", "--format", "hf"], part_size="5GB",
               model_files="none")
    yield Kind("ranks as a distributed checkpoint", "demo/checkpoint", [*ranks, "--format", "dcp"],
               part_size="5GB", dst_strategy="none")
    copied(os.path.join("lone", "rank_0"), "demo", "checkpoint", "rank_0")
    yield Kind("files of ranks without a strategy", "lone",
               ["--src-strategy", "none", "--dst-strategy", "none"], format="ckpt", dst_ranks="1")
    yield Kind("Checkpoint 2.0", copied("checkpoint2", "checkpoint2", "pp2dp2mp2_opt_rr"),
               dst_strategy="none", format="ckpt")
    yield Kind("distributed", copied("dcp", "dcp", "torch-2.15", "again"), **WHOLE, format="hf",
               part_size="5GB")
    yield model("qwen3", "weights", "models", "qwen3")
    yield model("quantised", "quantised", "fp8-qwen3")
    yield Kind("qwen3 in MindSpore's form", "qwen3", ["--convert", "auto"], **WHOLE,
               format="ckpt", config="qwen3", model_files="none")
    shutil.copy(os.path.join(directory, "qwen3", "model-00001-of-00005.safetensors"),
                os.path.join(directory, "weights.safetensors"))
    yield Kind("one file of safetensors", "weights.safetensors", **WHOLE, format="hf",
               part_size="5GB")
    os.mkdir(os.path.join(directory, "torch"))
    torch_zip.torch_zip(os.path.join(directory, "torch", "model.pt"), {
        "model": {"w": torch_zip.Tensor([[1, 2], [3, 4]])}, "epoch": 3})
    yield Kind("a torch file", "torch/model.pt", **WHOLE, format="hf", part_size="5GB")


def random_kind(seed, directory):
    key, case = behaviour_cases.random_case(seed, directory)
    if case.options is None:
        return None
    what, words, both = f"{key} ({case.said})", case.options, behaviour_cases.both(None, None)
    # These need no strategy.
    if key.startswith(("distributed/", "models/")) and words[:4] == both:
        return Kind(what, case.source, words[4:], **WHOLE)
    if key.startswith("checkpoint2/") and words[:2] == both[2:]:
        return Kind(what, case.source, words[2:], dst_strategy="none")
    return Kind(what, case.source, words)


def stated(program, command):
    """{option: what --help-all says of its default} of the options of a command."""
    text = re.sub(r"\s+", " ", "\n".join(program.run(command, "--help-all")["out"]))
    text = text.replace("- ", "-")
    found = re.findall(r"--([a-z][a-z-]*)(?:[ =]\S+)? ((?:(?! -(?:-|[a-z],)).)*?)"
                       r"\(default: ([^)]*)\)", text)
    return {name: default for name, _, default in found}


def options_of(program, command):
    return set(re.findall(r"--([a-z][a-z-]*)",
                          " ".join(program.run(command, "--help-all")["out"])))


class Trial:
    def __init__(self, program, kind, takes):
        self.program, self.kind, self.takes = program, kind, takes
        self.given = {word.partition("=")[0][2:] for word in kind.words if word.startswith("--")}

    def says(self, command, *words):
        out = os.path.join(self.program.directory, "out")
        got = self.program.run(command, *(() if command == "export" else ("--json",)),
                               *self.kind.words, *words, self.kind.source,
                               *(("out",) if command == "export" else ()))
        if os.path.isdir(out):
            got["shown"] = hash_tree(out)
            got["shown"].pop(MANIFEST, None)
            shutil.rmtree(out)
        # These repeat what was typed.
        got.pop("words")
        if isinstance(got["out"], dict):
            got["out"].pop("next", None)
        return json.loads(json.dumps(got))

    def changes(self):
        """What a default that is written out changes."""
        for command in COMMANDS:
            every = {**ALWAYS, "log-level": LEVELS[command], **self.kind.defaults}
            if "--compat" in self.kind.words:
                every["select"] = "mindspore"
            if "--convert" in self.kind.words:
                every["unlisted"] = "error"
            words = [f"--{name}={value}" for name, value in every.items() if value is not None
                     and name in self.takes[command] and name not in self.given]
            plain = self.says(command)
            if self.says(command, *words) == plain:
                continue
            alone = [word for word in words if self.says(command, word) != plain]
            for more in [[word] for word in alone] or [words]:
                for place, old, new in list(differences(plain, self.says(command, *more)))[:2]:
                    yield f"{command} {' '.join(self.kind.words)} with {' '.join(more)}: " \
                          f"{place}: {short(old)} became {short(new)}"


def main():
    options = seed_and_cases(share(24))
    tap = Tap()
    with tempfile.TemporaryDirectory() as directory:
        directory = os.path.realpath(directory)
        program = Asked(reshardfs_program(), directory)
        takes = {command: options_of(program, command) for command in COMMANDS}
        said = set().union(*(stated(program, command) for command in COMMANDS))
        known = set(ALWAYS) | UNSAID | FOLLOWS
        tap.equal(sorted(said - known), [], "each default of --help-all is known here")
        for kind in genuine_kinds(directory):
            found = list(Trial(program, kind, takes).changes())
            tap.ok(not found, kind.what, "\n".join(found))
    numbers = random.Random(options.seed)
    for _ in range(options.cases):
        seed = numbers.getrandbits(24)
        with tempfile.TemporaryDirectory() as directory:
            directory = os.path.realpath(directory)
            kind = random_kind(seed, directory)
            if kind is None:
                continue
            found = list(Trial(Asked(reshardfs_program(), directory), kind, takes).changes())
            tap.ok(not found, f"seed {seed}: {kind.what}", "\n".join(found))
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
