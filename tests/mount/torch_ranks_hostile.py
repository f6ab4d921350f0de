#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Damaged and hostile files of ranks of torch: whatever changes in a pickle, an archive or
a metadata.pkl, the program ends in an error or shows what an independent reader finds, in
20 s and 64 MiB more than for what is whole.

    torch_ranks_hostile.py [--seed S] [--cases N]     repeats some
"""

import argparse
import collections
import os
import random
import shutil
import sys
import tempfile
import traceback

HERE = os.environ.get("srcdir", ".")
sys.path.insert(0, os.path.join(HERE, "lib"))

from demands import check, write  # noqa: E402
from rank_pickles import TorchFile, dumps, expected, unpack  # noqa: E402
from rank_reader import read_ranks  # noqa: E402
from rsh_mount import SUSPICIOUS, Tap, require_mount  # noqa: E402
from run_seed import half_if_sanitized  # noqa: E402
from shown_model import hashes, model_hashes  # noqa: E402
from torch_damage import MEMORY, ran, spoil  # noqa: E402

CASES = expected()
# Small ones of all kinds.
TREES = ("fsdp2-2.4", "fsdp2-2.8", "fsdp2-2.15", "hsdp-2.15", "tp-2.8", "tp-2.15", "hand-2.4",
         "hand-2.8", "hand-2.15", "order-2.15", "flat-2.15", "fsdp1-2.4", "fsdp1-2.15",
         "tc-bare", "tc-pt", "tc-safetensors")
A_TEST = 50


# ---- the program ----

def read_alone(root, name):
    """What the independent reader finds; None: it refuses or cannot."""
    if name in ("tc-pt", "tc-safetensors"):
        return None
    try:
        return hashes(read_ranks(root))
    except Exception:  # whatever is wrong with it
        return None


def one(seed, trees, directory, base):
    """What became of it, or an AssertionError."""
    numbers = random.Random(seed)
    name = numbers.choice(TREES)
    root, out = os.path.join(directory, "source"), os.path.join(directory, "out")
    shutil.copytree(os.path.join(trees, CASES[name]["path"]), root)
    what = spoil(numbers, root)
    if what is None:
        return "not made"
    words = ["--optimizer", "keep"] if numbers.random() < 0.3 else []
    status, said, seconds, memory = ran("export", "--check", "full", *words, root, out)
    what = f"seed {seed}: {name}, {what}: status {status}, {seconds:.1f} s, {memory} KiB\n{said}"
    check(isinstance(status, int) and 0 <= status < 5 and not SUSPICIOUS.search(said), what)
    check(memory < base + MEMORY, what)
    if status:
        check(": error: " in said or said.startswith("reshardfs: "), what)
        return "refused"
    found = {n: v for n, v in model_hashes(out).items() if not n.startswith("optimizer.")}
    if found == CASES[name]["tensors"]:
        return "shown as it was"
    alone = read_alone(root, name)
    different = sorted(n for n in set(found) | set(alone or {})
                       if found.get(n) != (alone or {}).get(n))
    check(alone is not None, f"{what}shown, and the reader refuses it")
    check(not different, f"{what}{different} differ")
    return "shown as it is now"


def hand_made(tap, trees, directory):
    """Files that no change at random would make."""
    def tries(what, make):
        with tap.test(f"refused: {what}"), tempfile.TemporaryDirectory(dir=directory) as own:
            root = os.path.join(own, "source")
            shutil.copytree(os.path.join(trees, "fsdp2-2.15"), root)
            path = os.path.join(root, "model_world_size_2_rank_1.pt")
            make(path)
            status, said, _, memory = ran("plan", root)
            check(isinstance(status, int) and 0 < status < 5 and memory < 2 * MEMORY, said)

    def with_pickle(data):
        return lambda path: TorchFile(path).write(path, data)

    deep = b"\x80\x02" + b"]" * 100000 + b"a" * 99999 + b"."
    shared = b"\x80\x02]q\x00" + b"".join(
        b"(h" + bytes([i]) + b"h" + bytes([i]) + b"lq" + bytes([i + 1]) for i in range(60)) + b"."
    nested = {"x": ()}
    for _ in range(60):
        nested = {"a": nested, "b": nested}
    for what, data in (("lists in lists", deep), ("LIST, which torch never writes", shared),
                       ("2^60 names", dumps(nested)), ("an empty pickle", b""),
                       ("a stack without values", b"\x80\x02R."),
                       ("a memo of 2^32", b"\x80\x02}r\xff\xff\xff\xff."),
                       ("a text of 2^32 bytes", b"\x80\x02X\xff\xff\xff\xffab."),
                       ("INST", b"\x80\x02(cos\nsystem\nios\nsystem\n."),
                       ("OBJ", b"\x80\x02(cos\nsystem\no."), ("EXT1", b"\x80\x02\x82\x01.")):
        tries(what, with_pickle(data))
    for what, make in (("an empty file", lambda p: write(p, b"")),
                       ("a directory", lambda p: (os.unlink(p), os.mkdir(p))),
                       ("a link to itself", lambda p: (os.unlink(p), os.symlink(p, p)))):
        tries(what, make)


def main():
    require_mount()
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, default=400)
    words = parser.parse_args()
    tap, kinds = Tap(), collections.Counter()
    with tempfile.TemporaryDirectory() as directory:
        trees = unpack(os.path.join(directory, "trees"))
        hand_made(tap, trees, directory)
        base = ran("export", os.path.join(trees, "fsdp2-2.15"), os.path.join(directory, "x"))[3]
        for begin in range(words.seed, words.seed + words.cases, A_TEST):
            seeds = range(begin, min(begin + A_TEST, words.seed + words.cases))
            wrong = []
            for seed in half_if_sanitized(seeds):
                with tempfile.TemporaryDirectory(dir=directory) as own:
                    try:
                        kinds[one(seed, trees, own, base)] += 1
                    except AssertionError as error:
                        wrong.append(str(error))
                    except Exception:  # of the test itself
                        wrong.append(f"seed {seed}: {traceback.format_exc()}")
            tap.ok(not wrong, f"changes {seeds[0]} to {seeds[-1]}", "\n".join(wrong))
        tap.diag(f"{dict(kinds)}")
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
