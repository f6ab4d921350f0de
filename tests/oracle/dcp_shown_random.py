#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random sources of every kind, shown by --format dcp, against their whole tensors.

Rank files of a strategy, Checkpoint 2.0, distributed checkpoints, models in parts and
weights in another form are shown as a distributed checkpoint.  An independent reader
(lib/dcp_reader.py) has to find every tensor bit for bit, and reshardfs itself as well.

RSH_HF_PYTHON may name a Python that has torch: then torch.distributed.checkpoint.load
reads the same mounts, whole and in parts.

    dcp_shown_random.py [--seed N] [--pairs N] [--jobs N]
    dcp_shown_random.py torch       what the other Python does for it
"""

import hashlib
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "lib"), HERE]


# ---- under RSH_HF_PYTHON ----

def digest(tensor):
    import torch
    flat = tensor.contiguous().reshape(-1)
    data = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
    return hashlib.sha256(data).hexdigest()


def load_by_torch(root):
    """{name: [type, shape, hash]}: of all tensors at once, and of each alone; of values
    that are not tensors {name: repr()}."""
    import inspect
    import torch
    import torch.distributed.checkpoint as dcp
    # Older releases find out by themselves that there is one process.
    alone = {"no_dist": True} if "no_dist" in inspect.signature(dcp.load).parameters else {}
    # These can name such types and not load them.
    lacks = ("torch.uint16", "torch.uint32", "torch.uint64") if not alone else ()
    described = dcp.FileSystemReader(root).read_metadata().state_dict_metadata
    others = {name: "not loaded" for name, t in described.items() if not hasattr(t, "size")}
    found = {name: torch.empty(t.size, dtype=t.properties.dtype)
             for name, t in described.items()
             if name not in others and str(t.properties.dtype) not in lacks}
    found.update(others)
    dcp.load(found, checkpoint_id=root, **alone)
    others = {name: repr(found.pop(name)) for name in others}
    for name, tensor in found.items():
        one = {name: torch.empty_like(tensor)}
        dcp.load(one, checkpoint_id=root, **alone)
        assert digest(one[name]) == digest(tensor), f"{name} alone is another tensor"
    return {name: [str(t.dtype), list(t.shape), digest(t)]
            for name, t in found.items()} | others


def serve_torch():
    """Answers a line of standard input, which is a path, by a line."""
    import logging
    import warnings
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    for line in sys.stdin:
        try:
            print(json.dumps(load_by_torch(line.rstrip("\n"))), flush=True)
        except Exception:
            print(json.dumps(traceback.format_exc()), flush=True)


if sys.argv[1:2] == ["torch"]:
    serve_torch()
    sys.exit(0)

import behaviour_cases  # noqa: E402
import dcp_trees  # noqa: E402
import make_tree  # noqa: E402
import random_cases  # noqa: E402
import random_checkpoint2  # noqa: E402
import rsh_mount  # noqa: E402
import weights_random  # noqa: E402
from dcp_reader import Checkpoint  # noqa: E402
from demands import check, content  # noqa: E402
from ms_formats import read_checkpoint  # noqa: E402
from random_cases import Outcome  # noqa: E402
from rsh_cli import good  # noqa: E402
from safetensors_format import Tensors, values_of  # noqa: E402


# ---- sources: (what, directory, options, {name: (type, shape, bytes)}, and {name: value} of
# what is not a tensor) ----

def a_mesh(numbers, directory):
    make_tree.write_tree(directory, *make_tree.random_tree(numbers, 6, 1 << 16), numbers)
    whole = read_checkpoint(os.path.join(directory, "whole", "rank_0", "checkpoint_0.ckpt"))
    return ("ranks of a mesh", os.path.join(directory, "source"),
            ["--src-strategy", os.path.join(directory, "source.ckpt")], values_of(whole), {})


def a_job(numbers, directory):
    """Pipeline stages, experts, optimizer shards, with optimizer states."""
    make = numbers.choice((behaviour_cases.ranks, behaviour_cases.ranks_safetensors))
    case = make(numbers, directory)
    strategy = case.options[case.options.index("--src-strategy") + 1]
    words = ["--src-strategy", strategy, "--dst-strategy", "none"]
    out = os.path.join(directory, "whole")
    good("export", *words, "--format", "safetensors", case.source, out)
    values = Tensors(content(os.path.join(out, "rank_0", "checkpoint_0.safetensors"))).values()
    return f"job: {case.said}", case.source, words[:2], values, {}


def a_checkpoint2(numbers, directory):
    _, _, _, saved = random_checkpoint2.make(numbers.getrandbits(31),
                                             os.path.join(directory, "source"))
    described = saved.step.parameters
    values = {name: (described[name].file_type, tuple(described[name].shape), data)
              for name, data in saved.found.items()}
    common = json.loads(saved.step.common_bytes())
    others = {name: common[name] for name in ("epoch_num", "global_step", "loss_scale",
                                              "global_batch_size")
              if common.get(name)}
    return "Checkpoint 2.0", saved.root, [], values, others


def a_distributed(numbers, directory):
    tree = dcp_trees.random_tree(numbers.getrandbits(31))
    root = os.path.join(directory, "source")
    tree.write(root)
    return f"distributed: {tree.kind}", root, [], tree.expected(), dict(tree.values)


def a_model(numbers, directory):
    case = weights_random.Case(numbers.getrandbits(31), directory)
    way = numbers.choice(("as it is", "as MindSpore's", "back"))
    if way == "as it is":
        return "model", case.root, [], case.model.tensors, {}
    if way == "as MindSpore's":
        return f"weights: {case}", case.root, case.words("hf"), case.mindspore, {}
    tree, strategy = case.tree("saved", None, False)
    root = os.path.join(directory, "tree")
    tree.save(root, without={}, suffix=".ckpt")
    words = case.words("mindspore", "--config", os.path.join(case.root, "config.json"))
    words = ["--src-strategy", strategy, *words]
    return f"weights back: {case}", root, words, case.original, {}


KINDS = (a_mesh, a_job, a_checkpoint2, a_distributed, a_model)


# ---- what is shown ----

def differences(found, expected, beside=()):
    """Names of which `found` has something else, as {name: value} both."""
    return sorted(n for n in set(found) | set(expected)
                  if found.get(n) != expected.get(n) and n not in beside)


def same(found, expected, what, beside=()):
    wrong = differences(found, expected, beside)
    check(not wrong, f"{what}: {len(wrong)} differ, such as " + "; ".join(
        f"{n}: {found.get(n, (None,))[:2]}, not {expected.get(n, (None,))[:2]}"
        for n in wrong[:3]))


def aligned(checkpoint):
    """Elements begin where a mapped file can be used as it is."""
    for name, (_, _, chunks) in checkpoint.tensors.items():
        for (_, _, item), (_, _, _, offset, _) in zip(checkpoint.items(name), chunks):
            check((offset + item.at) % 64 == 0, f"{name}: elements begin at {offset + item.at}")
            check((item.crc, item.method, item.byteorder, item.version) ==
                  (0, 0, b"little", b"3\n"), f"{name}: {vars(item)}")


def read_again(root, numbers):
    """reshardfs reads what it shows."""
    with tempfile.TemporaryDirectory() as out:
        good("export", "--format", "safetensors", "--dst-strategy", "none",
             "--src-strategy", "none", root, out)
        return Tensors(content(os.path.join(out, "rank_0", "checkpoint_0.safetensors"))).values()


def read_places(root, numbers):
    for name in os.listdir(root):
        path = os.path.join(root, name)
        data = content(path)
        with open(path, "rb", buffering=0) as f:
            for _ in range(8):
                at, length = numbers.randrange(len(data) + 1), numbers.choice((1, 7, 64, 5000))
                check(os.pread(f.fileno(), length, at) == data[at:at + length],
                      f"{path}: other bytes at {at}")


TORCH = None


def of_torch(root):
    if not TORCH:
        return None
    TORCH.stdin.write(root + "\n")
    TORCH.stdin.flush()
    answer = json.loads(TORCH.stdout.readline())
    check(isinstance(answer, dict), answer)
    return answer


def held_by_torch(root, values, others):
    found = of_torch(root)
    if found is None:
        return
    expected = {name: [f"torch.{dcp_trees.TYPES[dtype][1]}", list(shape),
                       hashlib.sha256(data).hexdigest()]
                for name, (dtype, shape, data) in values.items()}
    expected.update((name, repr(value)) for name, value in others.items())
    # Releases that cannot load types of numbers without a sign leave these out.
    same(found, expected, "torch", {n for n, (dtype, _, _) in values.items()
                                    if dtype in ("U16", "U32", "U64") and n not in found})


def run_source(seed):
    numbers = random.Random(seed)
    make = KINDS[seed % len(KINDS)]
    what = make.__name__
    with tempfile.TemporaryDirectory(prefix="reshardfs-shown-") as directory:
        try:
            what, source, words, values, others = make(numbers, directory)
            words = [*words, "--format", "dcp"]
            if numbers.random() < 0.5:
                words += ["--part-size", str(numbers.choice((300, 5000, 1 << 20)))]
            with rsh_mount.Mounted(source, described=True, dst_strategy=None,
                                   extra=words) as mount:
                checkpoint = Checkpoint(mount.path)
                found = checkpoint.values()
                # Values that rank 0 keeps beside its tensors are shown as well.
                beside = set(found) - set(values)
                same(found, values, "independent reader", beside)
                check(all(not math.prod(found[n][1]) > 1 for n in beside), f"{beside}")
                # A tensor comes before a value of its name.
                others = {name: value for name, value in others.items() if name not in found}
                check(checkpoint.beside() == others,
                      f"values {checkpoint.beside()}, not {others}")
                aligned(checkpoint)
                same(read_again(mount.path, numbers), found, "reshardfs")
                read_places(mount.path, numbers)
                held_by_torch(mount.path, found, others)
            return Outcome(True, make.__name__, what)
        except Exception:
            return Outcome(False, "failed", what, traceback.format_exc())


def start_worker():
    global TORCH
    python = os.environ.get("RSH_HF_PYTHON")
    if python:
        TORCH = subprocess.Popen([python, os.path.abspath(__file__), "torch"],
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def judge(tap, counts):
    for make in KINDS:
        tap.ok(counts[make.__name__] > 0, f"there are sources by {make.__name__}", f"{counts}")


def main():
    options = random_cases.parser(__doc__, 60).parse_args()
    rsh_mount.require_mount()
    skipped = None if os.environ.get("RSH_HF_PYTHON") else {
        "torch loads the same mounts": "RSH_HF_PYTHON does not name a Python that has torch"}
    return random_cases.run(options, start_worker, run_source, judge=judge, skipped=skipped)


if __name__ == "__main__":
    sys.exit(main())
