#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random damage of checkpoints that describe themselves, which must be noticed.

    damage.py [--seed S] [--cases N]

Of trees whose tensors are known one file is damaged outside of its elements: what says
how they are cut, where they lie, or a whole file.  What is written of such a tree then
is right, is refused with one sentence, or has less than before and the log says so.
An element that has changed is seen by nothing but --check full, and that of distributed
checkpoints alone, whose archives hold sums: so a .distcp file is damaged anywhere.
Nobody can notice a name that changed in the one place that has it, nor that the shard
is missing which ends a tensor in Hugging Face's form, where no file tells its shape.
"""

import os
import random
import resource
import shutil
import struct
import subprocess
import sys
import tempfile

LIB = os.path.join(os.environ.get("srcdir", "."), "lib")
sys.path.insert(0, LIB)

import dcp_trees  # noqa: E402
import genuine  # noqa: E402
import random_checkpoint2  # noqa: E402
from demands import check, content, demand, error_line, write  # noqa: E402
from rsh_cli import GOOD, INPUT, IO, NO, USAGE, run  # noqa: E402
from rsh_mount import TIMEOUT_SCALE, Mounted, Tap, require_mount  # noqa: E402
from run_seed import seed_and_cases  # noqa: E402
from safetensors_format import SUFFIX, Tensors  # noqa: E402

WHOLE = ("--dst-strategy", "none", "--format", "safetensors")
DAMAGES = 12            # of each tree
MOST_MEMORY = 200 << 20


def checkpoint2(seed, root):
    *_, saved = random_checkpoint2.make(seed, root, damaged=False)
    described = saved.step.parameters
    return {name: (described[name].file_type, tuple(described[name].shape), data)
            for name, data in saved.found.items()}, set(saved.step.scalars)


def distributed(seed, root):
    tree = dcp_trees.random_tree(seed)
    tree.write(root)
    return tree.expected(), set()


# ---- damage ----

def files_of(root):
    """The files, those that describe others more often."""
    found = [os.path.join(at, name) for at, _, names in os.walk(root) for name in names]
    found.sort()
    said = [f for f in found if not f.endswith((SUFFIX, ".distcp", "common.json"))]
    return found + said * (1 + len(found) // max(len(said), 1))


def reach(path, data):
    """Up to where a file may be damaged."""
    if path.endswith(SUFFIX) and len(data) >= 8:
        return 8 + struct.unpack_from("<Q", data)[0]
    return len(data)


def damage(numbers, path):
    """What was done to a file."""
    data = bytearray(content(path))
    way = numbers.choice(("flip",) * 6 + ("cut", "cut", "remove", "digit", "digit", "zeros",
                                          "insert", "delete"))
    end = reach(path, data)
    at = numbers.randrange(end) if end else 0
    if way == "remove" and os.path.basename(path).startswith("shard-"):
        way = "cut"
    if way == "remove" or not end:
        os.unlink(path)
        return "removed"
    if way == "digit":
        digits = [i for i in range(end) if 48 <= data[i] < 58]
        if not digits:
            way = "flip"
        else:
            at = numbers.choice(digits)
            data[at] = numbers.randrange(48, 58)
    if way == "flip":
        data[at] ^= 1 << numbers.randrange(8)
    elif way == "cut":
        at = numbers.randrange(len(data))
        del data[at:]
    elif way == "zeros":
        n = min(numbers.randrange(1, 64), end - at)
        data[at:at + n] = bytes(n)
    elif way == "insert":
        data.insert(at, numbers.randrange(256))
    elif way == "delete":
        del data[at]
    write(path, bytes(data))
    return f"{way} at {at}"


# ---- what comes of it ----

def judge(root, out, expected, scalars):
    """What becomes of a damaged tree in a word, or a MountError."""
    got = run("export", *WHOLE, "--log-level", "notice", root, out)
    check(got.status in (GOOD, NO, USAGE, INPUT, IO), f"status {got.status}: {got!r}")
    if got.status != GOOD:
        said = [line for line in got.err.splitlines() if line.startswith("reshardfs: ")
                and "warning" not in line and "notice" not in line]
        check(len(said) == 1 and len(said[0]) < 1500, f"{len(said)} sentences: {got!r}")
        return "refused"
    (name,) = os.listdir(os.path.join(out, "rank_0"))
    found = Tensors(content(os.path.join(out, "rank_0", name))).values()
    wrong = [n for n in found if n not in scalars and found[n] != expected.get(n)]
    lacking = [n for n in expected if n not in found]
    if not wrong and not lacking:
        return "right"
    if ".distcp" in "".join(os.listdir(root)) and wrong:
        if run("verify", "--check", "full", root).status == NO:
            return "seen by its sum"
    if len(wrong) == len(lacking) == 1 and found[wrong[0]] == expected[lacking[0]]:
        return "renamed"
    if "warning" in got.err or "are not described" in got.err:
        return "told"
    check(False, f"{wrong} are wrong and {lacking} lacking unnoticed: {got!r}")


def run_case(tap, seed, counts):
    make = checkpoint2 if seed % 2 else distributed
    numbers = random.Random(seed)
    with tempfile.TemporaryDirectory() as directory, tap.test(f"seed {seed}"):
        root = os.path.join(directory, "source")
        expected, scalars = make(seed, root)
        for i in range(DAMAGES):
            path = numbers.choice(files_of(root))
            kept = content(path)
            done = damage(numbers, path)
            what = f"seed {seed}, {i}: {os.path.relpath(path, root)}, {done}"
            try:
                came = judge(root, os.path.join(directory, str(i)), expected, scalars)
            except BaseException:
                tap.diag(what)
                raise
            if os.environ.get("RSH_VERBOSE"):
                tap.diag(f"{what}: {came}")
            counts[came] = counts.get(came, 0) + 1
            write(path, kept)


def run_mounted(tap):
    """A file is shortened under a mount: reads of it fail, and no others."""
    with tempfile.TemporaryDirectory() as directory, tap.test("while it is mounted"):
        root = os.path.join(directory, "source")
        shutil.copytree(genuine.dcp("torch-2.15/fsdp2"), root, copy_function=shutil.copyfile)
        os.chmod(root, 0o755)
        with Mounted(root) as mount:
            path = os.path.join(mount.path, "model-00001-of-00001.safetensors")
            reference = write(os.path.join(directory, "reference"), content(path))
        with Mounted(root) as mount:
            path = os.path.join(mount.path, "model-00001-of-00001.safetensors")
            os.truncate(os.path.join(root, "__0_0.distcp"), 4096)
            subprocess.run([sys.executable, os.path.join(LIB, "reader.py"), "spoilt", path,
                            reference, "ESTALE"], check=True, stdout=subprocess.DEVNULL)
            demand(error_line(mount.log()), "__0_0.distcp", "changed since it was mounted")


def main():
    options = seed_and_cases(16, seed=1)
    require_mount()
    tap, counts = Tap(), {}
    for seed in range(options.seed, options.seed + options.cases):
        run_case(tap, seed, counts)
    tap.diag(str(counts))
    run_mounted(tap)
    with tap.test("memory"):
        most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10
        check(most < MOST_MEMORY * TIMEOUT_SCALE, f"{most} bytes of memory")
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
