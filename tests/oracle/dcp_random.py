#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random distributed checkpoints through a mount, against the whole tensors.

lib/dcp_trees.py writes them: torch's, Hugging Face's sharded form, HyperParallel's.
Each is shown as a model in parts or as one file, read in full and at places drawn at
random, and some again with a file lost.

RSH_HF_PYTHON may name a Python that has torch: then torch's own dcp.load reads the same
directories, so that they are what torch takes for a checkpoint.

    dcp_random.py [--seed N] [--pairs N] [--jobs N]
    dcp_random.py torch SEED N      what the other Python does for it
"""

import os
import random
import shutil
import subprocess
import sys
import tempfile
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "lib")]
import dcp_trees  # noqa: E402
import random_cases  # noqa: E402
import rsh_mount  # noqa: E402
from demands import check, content, demand  # noqa: E402
from random_cases import Outcome  # noqa: E402
from run_seed import run_seed  # noqa: E402
from safetensors_format import SUFFIX, Tensors, read_model  # noqa: E402


# ---- under RSH_HF_PYTHON ----

def load_by_torch(seed, directory):
    """What torch reads has to be what the writer meant."""
    import torch
    import torch.distributed.checkpoint as dcp
    tree = dcp_trees.random_tree(seed)
    if tree.kind != "torch":
        return 0
    tree.write(directory)
    found = {name: torch.empty(t.shape, dtype=getattr(torch, dcp_trees.TYPES[t.dtype][1]))
             for name, t in tree.tensors.items()}
    dcp.load(found, checkpoint_id=directory, no_dist=True)
    for name, tensor in found.items():
        data = tensor.contiguous().flatten().view(torch.uint8) if tensor.numel() else []
        assert bytes(data.tolist() if len(data) else []) == tree.tensors[name].content, \
            f"seed {seed}: {name} is another tensor to torch"
    return 1


def run_torch(seed, number):
    import logging
    import warnings
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    loaded = 0
    for one in range(seed, seed + number):
        with tempfile.TemporaryDirectory() as directory:
            loaded += load_by_torch(one, directory)
    print(f"torch loaded {loaded}")


# ---- the mounts ----

def same(found, expected):
    names = sorted(n for n in set(found) | set(expected) if found.get(n) != expected.get(n))
    check(not names, f"{names[:5]} differ")


def shown(root, form):
    """The tensors that a mount shows, and the files that hold them."""
    if form == "hf":
        _, parts = read_model(root)
        return ({n: v for part in parts.values() for n, v in part.values().items()},
                [os.path.join(root, name) for name in parts])
    file = os.path.join(root, "rank_0", "checkpoint_0" + SUFFIX)
    return Tensors(content(file)).values(), [file]


def read_places(rng, files):
    """Short reads here and there give what the file read in full has there."""
    for path in files:
        data = content(path)
        with open(path, "rb", buffering=0) as f:
            for _ in range(8):
                at, length = rng.randrange(len(data)), rng.choice((1, 7, 64, 5000))
                check(os.pread(f.fileno(), length, at) == data[at:at + length],
                      f"{path}: another content at {at}")


def mounted(tree, source, rng):
    form = rng.choice(("hf", "hf", "file"))
    extra = ["--format", "safetensors"] if form == "file" else ["--optimizer", "keep"]
    with rsh_mount.Mounted(source, extra=extra) as mount:
        found, files = shown(mount.path, form)
        same(found, tree.expected())
        read_places(rng, files)
    return form


def lose_file(tree, source, rng):
    """Without one file all tensors are shown of which it had nothing that no other
    file has."""
    if not tree.held:
        return "no elements to lose"
    lost = rng.choice(sorted(tree.held))
    os.unlink(os.path.join(source, lost))
    expected = tree.without(lost)
    if all(name[0].isdigit() for name in os.listdir(source)):
        return "nothing of HyperParallel but R.metadata"
    if not expected:
        _, said = rsh_mount.expect_failure(source, extra=["--allow-missing", "--optimizer", "keep"])
        demand(said, "no other tensor is left")
        return "all is lost"
    if len(expected) < len(tree.tensors):
        _, said = rsh_mount.expect_failure(source, extra=["--optimizer", "keep"])
        demand(said, "lacks its box", lost)
    with rsh_mount.Mounted(source, extra=["--allow-missing", "--optimizer", "keep"]) as mount:
        found, _ = shown(mount.path, "hf")
    same(found, expected)
    return "some is lost" if len(found) < len(tree.tensors) else "copies make up for a file"


def run_tree(seed):
    tree = dcp_trees.random_tree(seed)
    rng = random.Random(seed + 1)
    root = tempfile.mkdtemp(prefix="reshardfs-dcp-")
    source = os.path.join(root, "source")
    try:
        tree.write(source)
        kinds = [f"{tree.kind} as {mounted(tree, source, rng)}"]
        # The sharded form does not say how large a tensor is that lost its end.
        if rng.random() < {"torch": 0.25, "hyper": 1, "hf": 0}[tree.kind]:
            kinds.append(lose_file(tree, source, rng))
        return Outcome(True, ", ".join(kinds), tree.describe(), counted=tuple(kinds))
    except Exception:
        return Outcome(False, "failed", tree.describe(), traceback.format_exc())
    finally:
        shutil.rmtree(root, ignore_errors=True)


def start_worker():
    pass


def judge_mixture(tap, counts):
    for kind in ("torch", "hf", "hyper"):
        number = sum(n for said, n in counts.items() if said.startswith(kind))
        tap.ok(number > 0, f"there are trees of the kind {kind}", f"{counts}")
    python = os.environ.get("RSH_HF_PYTHON")
    if not python:
        tap.skip("torch loads the same trees",
                 "RSH_HF_PYTHON does not name a Python that has torch")
        return
    done = subprocess.run([python, os.path.abspath(__file__), "torch", str(judge_mixture.seed),
                           str(judge_mixture.number)], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    tap.ok(done.returncode == 0 and "torch loaded" in done.stdout,
           f"torch loads the same trees: {done.stdout.strip().splitlines()[-1:]}",
           done.stdout[-4000:])


def main():
    if sys.argv[1:2] == ["torch"]:
        return run_torch(int(sys.argv[2]), int(sys.argv[3]))
    options = random_cases.parser(__doc__, 200).parse_args()
    if options.seed is None:
        options.seed = run_seed()
    rsh_mount.require_mount()
    judge_mixture.seed, judge_mixture.number = options.seed, options.pairs
    return random_cases.run(options, start_worker, run_tree, judge=judge_mixture)


if __name__ == "__main__":
    sys.exit(main())
