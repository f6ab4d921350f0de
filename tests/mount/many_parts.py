#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The time to open a source grows with its files and tensors, not with their square.

Compared is the processor time for a source with that for another which is four times as
large: a square would make it 16 times as much.
"""

import json
import os
import resource
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

from demands import check, write  # noqa: E402
from rsh_cli import good  # noqa: E402
from rsh_mount import Mounted, Tap, require_mount  # noqa: E402
from safetensors_format import safetensors_bytes  # noqa: E402

TIMES = 4
LIMIT = 8
# Less than this is what a process costs in any case.
FLOOR = 0.05


def tensor(number):
    return ("F32", (4,), number.to_bytes(16, "little"))


def model(root, n, n_parts):
    """A whole model of n tensors in parts."""
    parts = [{} for _ in range(n_parts)]
    names = [f"model-{p + 1:05d}-of-{n_parts:05d}.safetensors" for p in range(n_parts)]
    weights = {}
    for i in range(n):
        name = f"model.layers.{i}.weight"
        parts[i % n_parts][name] = tensor(i)
        weights[name] = names[i % n_parts]
    for name, part in zip(names, parts):
        write(os.path.join(root, name), safetensors_bytes(part))
    write(os.path.join(root, "model.safetensors.index.json"), json.dumps(
        {"metadata": {"total_size": 16 * n}, "weight_map": weights}).encode())


def stages(root, n):
    """Ranks of which each has a tensor of its own."""
    for rank in range(n):
        write(os.path.join(root, f"rank_{rank}", "net-1_1.safetensors"),
              safetensors_bytes({f"layers.{rank}.weight": tensor(rank)}))


def processor_time(directory, *words):
    """What a program computes that writes an index cache."""
    index = tempfile.mkdtemp(prefix="index-", dir=directory)
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    good(*words, f"--index-cache={index}")
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def parts(root, n):
    model(root, n, n)


def tensors(root, n):
    model(root, n, 4)


KINDS = {
    "parts": (6000, parts, ["--format=hf"]),
    "parts into parts": (6000, parts, ["--format=hf", "--part-size=64"]),
    "tensors": (20000, tensors, ["--format=hf"]),
    "stages": (2000, stages, []),
}


def grows(directory, kind):
    n, make, words = KINDS[kind]
    roots = [os.path.join(directory, f"{make.__name__}-{times}") for times in (1, TIMES)]
    for root, times in zip(roots, (1, TIMES)):
        if not os.path.isdir(root):
            make(root, n * times)
    taken = [float("inf")] * 2
    # The least of some runs, if one is not enough to tell.
    for _ in range(3):
        taken = [min(least, processor_time(
            directory, "plan", "-q", "--src-strategy=none", "--dst-strategy=none", *words, root))
            for least, root in zip(taken, roots)]
        if taken[1] < LIMIT * max(taken[0], FLOOR):
            break
    print(f"# {kind}: {n} in {taken[0]:.2f} s, {TIMES} times as many in {taken[1]:.2f} s of "
          "processor time", flush=True)
    check(taken[1] < LIMIT * max(taken[0], FLOOR),
          f"{taken[1] / max(taken[0], FLOOR):.1f} times as long")


def more_parts_than_descriptors(directory):
    """Files that nobody reads are closed."""
    root = os.path.join(directory, "model")
    model(root, 3000, 3000)
    # It is the last case, since nobody raises the limit again.
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    with Mounted(root, src_strategy="none", dst_strategy="none", extra=["--format=hf"]) as m:
        name = next(n for n in os.listdir(m.path) if n.endswith(".safetensors"))
        with open(os.path.join(m.path, name), "rb") as f:
            content = f.read()
    check(all(tensor(i)[2] in content for i in range(3000)), "other bytes")


def main():
    require_mount()
    tap = Tap(len(KINDS) + 1)
    with tempfile.TemporaryDirectory(prefix="reshardfs-many-") as directory:
        for kind in KINDS:
            with tap.test(f"four times as many {kind}"):
                grows(directory, kind)
    with tempfile.TemporaryDirectory(prefix="reshardfs-many-") as directory, \
            tap.test("more parts than descriptors"):
        more_parts_than_descriptors(directory)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
