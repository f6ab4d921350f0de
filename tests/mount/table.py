#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""README's table: every kind of SOURCE in every form, one test a cell.

A small checkpoint of each kind is exported in each form, and what was written is read
again as a SOURCE: the tensors are those of the checkpoint, bit for bit.  The same
checkpoints in a bucket are exported as well.
"""

import json
import os
import random
import shutil
import sys
import tempfile

LIB = os.path.join(os.environ.get("srcdir", "."), "lib")
sys.path.insert(0, LIB)

import dcp_trees  # noqa: E402
import forms  # noqa: E402
import shown_model  # noqa: E402
import torch_files  # noqa: E402
from demands import content, write  # noqa: E402
from forms import Form, Held  # noqa: E402
from rsh_cli import run  # noqa: E402
from rsh_mount import Tap, require_mount  # noqa: E402
from s3_trial import KEY, SECRET, Server  # noqa: E402

DATA = os.path.abspath(os.path.join(os.environ.get("srcdir", "."), "data"))
OF_BUCKETS = ("ckpt of ranks", "hf", "dcp", "checkpoint2")


# ---- a checkpoint of each kind: (Held, {name: (type, shape, bytes)}, and names of what may
# be beside these) ----

def odd(directory):
    held, values, _ = forms.some_odd(2, directory)
    return held, values


def written_as(what, words, source):
    """A kind that the program writes itself: forms.py compares these as well."""
    def make(directory):
        held, values = odd(os.path.join(directory, "of"))
        strategy, _ = forms.strategy_of(random.Random(1), values, os.path.join(directory, "cut"))
        words_of = [strategy if word == "CUT" else word for word in words]
        source_of = [strategy if word == "CUT" else word for word in source]
        kind = Form(what, words_of, source_of).of(held, os.path.join(directory, "kind"))
        kind.words = source_of
        return kind, values, ()
    return make


def checkpoint2(directory):
    return forms.some_checkpoint2(3, directory)


def distributed(kind):
    def make(directory):
        tree = dcp_trees.random_tree(11, kind)
        tree.write(os.path.join(directory, "source"))
        return Held(kind, os.path.join(directory, "source")), tree.expected(), ()
    return make


def by_hash(held, expected, directory):
    """What forms.py reads of a genuine checkpoint, if its hashes are the expected ones."""
    values = forms.whole_of(held, random.Random(1))
    shown_model.same(shown_model.hashes(values), expected, held.what)
    copy = os.path.join(directory, "genuine", os.path.basename(held.root))
    if os.path.isdir(held.root):
        shutil.copytree(held.root, copy, copy_function=shutil.copyfile)
    else:
        os.makedirs(os.path.dirname(copy))
        shutil.copyfile(held.root, copy)
    return Held(held.what, copy, held.words), values, ()


def megatron(directory):
    root = os.path.join(DATA, "dcp", "megatron-core-0.16", "mcore-torch_dist")
    with open(root + ".json", encoding="utf-8") as f:
        return by_hash(Held("Megatron-Core", root), json.load(f)["tensors"], directory)


def torch(name):
    def make(directory):
        case = torch_files.expected()[name]
        root = os.path.join(torch_files.DATA, case["path"])
        return by_hash(Held(name, root), torch_files.wanted_of(case), directory)
    return make


KINDS = {
    "rank files .ckpt": written_as("ckpt", ["--dst-strategy", "CUT", "--format", "ckpt"],
                                   ["--src-strategy", "CUT"]),
    "rank files .safetensors": written_as("safetensors", ["--dst-strategy", "CUT", "--format",
                                                          "safetensors"],
                                          ["--src-strategy", "CUT"]),
    "a Hugging Face model": written_as("hf", ["--format", "hf", "--optimizer", "keep"], []),
    "Checkpoint 2.0": checkpoint2,
    "DCP": distributed("torch"),
    "DCP, safetensors in shards": distributed("hf"),
    "HyperParallel": distributed("hyper"),
    "HyperParallel's zips": torch("hyperparallel-torch"),
    "Megatron-Core": megatron,
    "torch.save()": torch("flat-2.15"),
    "torch.save() before 1.6": torch("legacy-flat-2.4"),
    "pytorch_model.bin in parts": torch("hf-bin-parts"),
    "consolidated.00.pth": torch("consolidated-2.15"),
    "Lightning": torch("lightning-2.15"),
}


# ---- the cells ----

def run_cell(held, form, values, beside):
    with tempfile.TemporaryDirectory() as to:
        again = form.of(held, os.path.join(to, "out"))
        again.words = form.source
        forms.same(again, random.Random(1), values, beside)


def run_kind(tap, what, directory, bucket):
    with tap.test(f"{what}: made"):
        held, values, beside = KINDS[what](os.path.join(directory, "made"))
    strategy, _ = forms.strategy_of(random.Random(2), values, os.path.join(directory, "dst"))
    remote = None
    if bucket:
        root, env = bucket
        name = os.path.join(str(list(KINDS).index(what)), os.path.basename(held.root))
        place = os.path.join(root, "bucket", name)
        if os.path.isdir(held.root):
            shutil.copytree(held.root, place)
        else:
            write(place, content(held.root))
        remote = Held(f"{what} of a bucket", f"s3://bucket/{name}", held.words, env)
    for form in forms.forms_of(strategy, 1 << 14):
        with tap.test(f"{what} -> {form.what}"):
            run_cell(held, form, values, beside)
        if remote and form.what in OF_BUCKETS:
            with tap.test(f"{what} of a bucket -> {form.what}"):
                run_cell(remote, form, values, beside)


def main():
    require_mount()
    tap = Tap()
    with tempfile.TemporaryDirectory() as directory:
        root = os.path.join(directory, "s3")
        os.makedirs(os.path.join(root, "bucket"))
        with Server(root) as server:
            env = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.port}",
                   "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET,
                   "AWS_REGION": "here", "no_proxy": "127.0.0.1"}
            without = "built without" in run("ls", "s3://bucket/none", env=env).err
            if without:
                tap.diag("this program was built without object storage")
            for what in KINDS:
                run_kind(tap, what, os.path.join(directory, what),
                         None if without else (root, env))
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
