#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A kind of checkpoint that the program has never heard of, by a driver in this directory
alone (made_up_format.c): every command takes it, and the program's own kinds stay."""

import os
import random
import shutil
import sys
import tempfile

HERE = os.environ.get("srcdir", ".")
sys.path.insert(0, os.path.join(HERE, "lib"))

# Tests run where they were built.
os.environ["RESHARDFS"] = os.path.abspath(os.path.join("mount", "made_up_format"))

from demands import change, check, content, demand, write  # noqa: E402
from ms_formats import Layout, StageFile, read_checkpoint, strategy_bytes  # noqa: E402
from rsh_cli import GOOD, INPUT, NO, USAGE, good, refused, run, run_json  # noqa: E402
from rsh_mount import Mounted, Tap, hash_tree, require_mount  # noqa: E402
from shown_model import values_of_model  # noqa: E402

DEMO = os.path.abspath(os.path.join(HERE, "data", "demo"))
# name: type in the list, type in safetensors, shape, bytes before it in its file
MATRICES = {"a": ("Float32", "F32", (8, 6), 4), "b": ("BFloat16", "BF16", (4, 4), 0),
            "c": ("Int8", "I8", (2, 1000), 17)}
BYTES = {"Float32": 4, "BFloat16": 2, "Int8": 1}


def make_toy(directory, numbers):
    """The tensors, {name: (type, shape, bytes)}."""
    expected, lines = {}, []
    for name, (dtype, short, shape, before) in MATRICES.items():
        data = numbers.randbytes(shape[0] * shape[1] * BYTES[dtype])
        write(os.path.join(directory, name + ".raw"), b"x" * before + data + b"behind")
        lines.append(f"{name} {dtype} {shape[0]} {shape[1]} {name}.raw {before}\n")
        expected[name] = (short, shape, data)
    change(os.path.join(directory, "toy.txt"), "".join(lines).encode())
    return expected


def same_model(root, expected):
    found = values_of_model(root)
    check(found == expected, f"{sorted(found)} are not {sorted(expected)} or differ")


def test_shown(tap, toy, expected, work):
    with tap.test("mount shows it as a model of Hugging Face's"), \
            Mounted(toy, described=True) as mount:
        same_model(mount.path, expected)
    with tap.test("mount needs no word of strategies, and leaves out what it is told"), \
            Mounted(toy, described=True, extra=["--drop", "c"]) as mount:
        same_model(mount.path, {n: v for n, v in expected.items() if n != "c"})
    with tap.test("export writes it"):
        to = os.path.join(work, "exported")
        good("export", toy, to)
        same_model(to, expected)
    strategy = write(os.path.join(work, "two.ckpt"), strategy_bytes(StageFile(0, {
        "a": Layout([2], [0, -1]), "b": Layout([2], [-1, 0]), "c": Layout([2], [-1, -1])})))
    with tap.test("a strategy of two ranks cuts it"), \
            Mounted(toy, described=True, dst_strategy=strategy) as mount:
        ranks = []
        for rank in range(2):
            directory = os.path.join(mount.path, f"rank_{rank}")
            (name,) = os.listdir(directory)
            ranks.append(read_checkpoint(os.path.join(directory, name)))
        a, b, c = (expected[n][2] for n in "abc")
        for rank, found in enumerate(ranks):
            half = {"a": a[96 * rank:96 * (rank + 1)], "c": c, "b": b"".join(
                b[row * 8 + 4 * rank:row * 8 + 4 * (rank + 1)] for row in range(4))}
            check({n: bytes(r.content) for n, r in found.items()} == half, f"rank {rank}")


def test_said(tap, toy):
    with tap.test("ls lists it"):
        got = good("ls", toy)
        demand(got.out, "a       Float32   [8,6]", "3 tensors", "in 3 files")
    with tap.test("ls --json names the kind and says where all of it lies"):
        said = run_json("ls", toy)
        check((said["format"], said["whole"]) == ("toy", True), said)
        check({t["name"]: (t["dtype"], tuple(t["shape"]), t["chunks"][0]["offset"])
               for t in said["tensors"]} ==
              {n: (m[0], m[2], m[3]) for n, m in MATRICES.items()}, said)
    with tap.test("plan says what would be read"):
        said = run_json("plan", toy)
        check("a.raw" in str(said), said)
    with tap.test("verify finds it good"):
        check(run_json("verify", "--check", "full", toy)["good"], "not good")


def test_mistakes(tap, toy, work):
    bad = os.path.join(work, "bad")

    def copy():
        shutil.rmtree(bad, ignore_errors=True)
        return shutil.copytree(toy, bad)

    def listed(*lines):
        change(os.path.join(copy(), "toy.txt"), "".join(lines).encode())

    with tap.test("a list that is none is one sentence"):
        listed("a Float32 8 6 a.raw 4\n", "b Float33 4 4 b.raw 0\n")
        for command in ("ls", "plan", "verify"):
            refused(run(command, bad), INPUT, "bad/toy.txt: line 2 is no matrix")
    with tap.test("a file that was cut short is one sentence"):
        os.truncate(os.path.join(copy(), "b.raw"), 31)
        got = run("verify", bad)
        check(got.status == NO, repr(got))
        demand(got.out + got.err, "b.raw", "it ends within b")
        refused(run("plan", bad), INPUT, "b is lacking")
    with tap.test("verify hears the driver's own judgement"):
        listed("b BFloat16 4 4 b.raw 0\n", "a Float32 8 6 a.raw 4\n")
        got = run("verify", bad)
        check(got.status == NO, repr(got))
        demand(got.out + got.err, "a is out of order")
    with tap.test("what is selected among steps is refused in its words"):
        refused(run("plan", "--select", "mtime", toy), USAGE, "SOURCE is a single toy")
    with tap.test("no strategy is inferred of what has no ranks"):
        refused(run("strategy", "infer", toy), INPUT, "a toy has no rank files")
    with tap.test("the hint is the driver's"):
        os.unlink(os.path.join(copy(), "toy.txt"))
        got = run("plan", bad)
        check(got.status in (USAGE, INPUT), repr(got))
        demand(got.err, "a.raw has no toy.txt")


def test_kept_index(tap, toy, work):
    """An index of a file that was kept for one list is not taken for another."""
    with tap.test("another list of the same files has indexes of its own"):
        changed = shutil.copytree(toy, os.path.join(work, "changed"))
        cache = {"XDG_CACHE_HOME": os.path.join(work, "cache")}
        for name in MATRICES:
            os.utime(os.path.join(changed, name + ".raw"), (1, 1))
        to = os.path.join(work, "once")
        check(run("export", changed, to, env=cache).status == GOOD, "not exported")
        change(os.path.join(changed, "toy.txt"), b"a Int8 5 5 a.raw 3\n")
        to = os.path.join(work, "again")
        check(run("export", changed, to, env=cache).status == GOOD, "not exported")
        data = content(os.path.join(changed, "a.raw"))[3:28]
        same_model(to, {"a": ("I8", (5, 5), data)})


def test_others(tap):
    with tap.test("the demo's rank files are shown as ever"):
        with open(os.path.join(DEMO, "SHA256SUMS"), encoding="utf-8") as f:
            sums = dict(reversed(line.split()) for line in f)
        with Mounted(os.path.join(DEMO, "checkpoint"),
                     src_strategy=os.path.join(DEMO, "strategy_8_cards.ckpt"),
                     dst_strategy=os.path.join(DEMO, "strategy_4_cards.ckpt")) as mount:
            found = hash_tree(mount.path)
        check(len(sums) == 4 and all(sums[name] in str(found) for name in sums), found)


def main():
    require_mount()
    numbers = random.Random(1)
    tap = Tap()
    with tempfile.TemporaryDirectory(prefix="reshardfs-toy-") as work:
        toy = os.path.join(work, "toy")
        expected = make_toy(toy, numbers)
        test_shown(tap, toy, expected, work)
        test_said(tap, toy)
        test_mistakes(tap, toy, work)
        test_kept_index(tap, toy, work)
        test_others(tap)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
