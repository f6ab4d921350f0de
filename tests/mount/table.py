#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""README's table: every kind of SOURCE in every form, one test a cell.

A small checkpoint of each kind is exported in each form, and what was written is read
again as a SOURCE: the tensors are those of the checkpoint, bit for bit.  As a step of a
job it is shown in each form by mount --steps all, and the step is read as a SOURCE.  The
same checkpoints in a bucket are exported and shown as well.
"""

import contextlib
import json
import os
import random
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

import adapters  # noqa: E402
import dcp_trees  # noqa: E402
import forms  # noqa: E402
import quantised  # noqa: E402
import shown_model  # noqa: E402
import torch_files  # noqa: E402
from demands import check, content, write  # noqa: E402
from forms import Form, Held  # noqa: E402
from rsh_cli import run  # noqa: E402
from rsh_mount import Mounted, Tap, require_mount  # noqa: E402
from run_seed import half_if_sanitized  # noqa: E402
from s3_trial import KEY, SECRET, Server  # noqa: E402
from safetensors_format import safetensors_bytes  # noqa: E402

DATA = os.path.abspath(os.path.join(os.environ.get("srcdir", "."), "data"))
OF_BUCKETS = ("ckpt of ranks", "hf", "dcp", "hyperparallel", "checkpoint2")
STEPS = ("--steps", "all", "--steps-interval", "3600")
# What frameworks write last.
MARKERS = (".metadata", ".index.json", "metadata.json", "trainer_state.json")
# Nothing says when all ranks have saved these, so they are no step of a job.
NO_STEP = ("DCP, safetensors in shards",)
# --lora needs a SOURCE on disk.
LOCAL = ("a model with an adapter",)


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
    return forms.some_checkpoint2(8, directory)


def distributed(kind, seed=11):
    def make(directory):
        tree = dcp_trees.random_tree(seed, kind)
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


def model(directory, tensors, config):
    root = os.path.join(directory, "model")
    write(os.path.join(root, "config.json"), json.dumps(config).encode())
    write(os.path.join(root, "model.safetensors"), safetensors_bytes(tensors, {"format": "pt"}))
    return root


def quantised_model(scheme, seed, dense):
    """As it is, or what lib/quantised.py makes of it."""
    def make(directory):
        drawer = quantised.Drawer(random.Random(seed))
        drawer.scheme = scheme
        drawer.draw()
        root = model(directory, drawer.tensors, drawer.config)
        if not dense:
            return Held(scheme, root), drawer.tensors, ()
        return (Held(scheme, root, ["--dequantize", "bfloat16"]),
                quantised.dense(drawer.tensors, drawer.config, "BF16"), ())
    return make


def with_adapter(directory):
    drawer = adapters.Drawer(random.Random(3))
    tensors, adapter = drawer.model(), drawer.adapter()
    at = adapter.write(os.path.join(directory, "adapter"))
    return (Held("a model", model(directory, tensors, drawer.config()), ["--lora", at]),
            adapters.merged(tensors, [(adapter, 1)]), ())


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
    "HyperParallel": distributed("hyper", 23),    # with .metadata: a step that is known to be whole
    "HyperParallel's zips": torch("hyperparallel-torch"),
    "Megatron-Core": megatron,
    "torch.save()": torch("flat-2.15"),
    "torch.save() before 1.6": torch("legacy-flat-2.4"),
    "pytorch_model.bin in parts": torch("hf-bin-parts"),
    "consolidated.00.pth": torch("consolidated-2.15"),
    "Lightning": torch("lightning-2.15"),
    "an fp8 model": quantised_model("fp8", 11, False),
    "an fp8 model, dense": quantised_model("fp8", 5, True),
    "an mxfp4 model, dense": quantised_model("mxfp4", 6, True),
    "an int4 model, dense": quantised_model("int4", 7, True),
    "a GPTQ model, dense": quantised_model("gptq", 9, True),
    "a model with an adapter": with_adapter,
}


# ---- the cells ----

class Exported:
    """A checkpoint that `export` writes in a form."""

    def __init__(self, held):
        self.what, self.held = held.what, held

    @contextlib.contextmanager
    def of(self, form):
        with tempfile.TemporaryDirectory() as to:
            yield form.of(self.held, os.path.join(to, "out"))


class Stepped(Exported):
    """The same as the only step of a job."""

    def __init__(self, held, jobs):
        super().__init__(held)
        self.what += ", a step"
        self.jobs = jobs

    @contextlib.contextmanager
    def of(self, form):
        with Mounted(self.jobs, described=True, env=self.held.env,
                     extra=[*STEPS, *self.held.words, *form.wanted]) as mount:
            latest = os.path.join(mount.path, "latest")
            check(os.path.isdir(latest), content(
                os.path.join(mount.path, ".reshardfs", "steps")).decode())
            yield Held(self.what, latest)


def copied(held, place):
    if os.path.isdir(held.root):
        shutil.copytree(held.root, place)
        for at, _, names in os.walk(place):
            for name in names:
                if name.endswith(MARKERS):
                    os.utime(os.path.join(at, name))
        return place
    os.makedirs(os.path.dirname(place))
    return shutil.copyfile(held.root, place + os.path.splitext(held.root)[1])


def cells_of(what, held, directory, bucket):
    """(whence, the forms)"""
    held.what = what
    yield Exported(held), None
    if what not in NO_STEP:
        copied(held, os.path.join(directory, "jobs", "step-1"))
        yield Stepped(held, os.path.join(directory, "jobs")), None
    if bucket and what not in LOCAL:
        root, env = bucket
        place = copied(held, os.path.join(root, "bucket", str(list(KINDS).index(what)), "step-1"))
        url = "s3://" + os.path.relpath(place, root)
        remote = Held(f"{what} of a bucket", url, held.words, env)
        yield Exported(remote), OF_BUCKETS
        if what not in NO_STEP:
            yield Stepped(remote, os.path.dirname(url)), OF_BUCKETS


def run_kind(tap, what, directory, bucket):
    with tap.test(f"{what}: made"):
        held, values, beside = KINDS[what](os.path.join(directory, "made"))
    strategy, _ = forms.strategy_of(random.Random(2), values, os.path.join(directory, "dst"))
    for number, (whence, of) in enumerate(cells_of(what, held, directory, bucket)):
        fitting = [form for form in forms.forms_of(strategy, 1 << 14)
                   if not of or form.what in of]
        for form in half_if_sanitized(fitting, number):
            with tap.test(f"{whence.what} -> {form.what}"), whence.of(form) as again:
                again.words = form.source
                forms.same(again, random.Random(1), values, beside)


def main():
    words = sys.argv[1:]
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
                if words and not any(w in what for w in words):
                    continue
                run_kind(tap, what, os.path.join(directory, what),
                         None if without else (root, env))
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
