#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Damaged and hostile files of ranks of torch: whatever changes in a pickle, an archive or
a metadata.pkl, the program ends in an error or shows what an independent reader finds, in
20 s and 64 MiB more than for what is whole.

    torch_ranks_hostile.py [--seed S] [--cases N]     repeats some
"""

import os
import random
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

from demands import check, write  # noqa: E402
from rank_pickles import TorchFile, dumps, expected, unpack  # noqa: E402
from rank_reader import read_ranks  # noqa: E402
from rsh_mount import Tap, require_mount  # noqa: E402
from torch_damage import (MEMORY, as_read_alone, exported, ran, read_alone,  # noqa: E402
                          run_changes, spoil, words_of_changes)

CASES = expected()
# Small ones of all kinds.
TREES = ("fsdp2-2.4", "fsdp2-2.8", "fsdp2-2.15", "hsdp-2.15", "tp-2.8", "tp-2.15", "hand-2.4",
         "hand-2.8", "hand-2.15", "order-2.15", "flat-2.15", "fsdp1-2.4", "fsdp1-2.15",
         "tc-bare", "tc-pt", "tc-safetensors")


# ---- the program ----

def one(seed, trees, directory, base):
    """What became of it, or an AssertionError."""
    numbers = random.Random(seed)
    name = numbers.choice(TREES)
    root = os.path.join(directory, "source")
    shutil.copytree(os.path.join(trees, CASES[name]["path"]), root)
    what = spoil(numbers, root)
    if what is None:
        return "not made"
    found, what = exported(numbers, f"seed {seed}: {name}, {what}", root, directory, base)
    if found is None:
        return "refused"
    if found == CASES[name]["tensors"]:
        return "shown as it was"
    read = None if name in ("tc-pt", "tc-safetensors") else read_ranks
    as_read_alone(found, read_alone(read, root), what)
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
    words, tap = words_of_changes(), Tap()
    with tempfile.TemporaryDirectory() as directory:
        trees = unpack(os.path.join(directory, "trees"))
        hand_made(tap, trees, directory)
        base = ran("export", os.path.join(trees, "fsdp2-2.15"), os.path.join(directory, "x"))[3]
        run_changes(tap, words, directory, lambda seed, own: one(seed, trees, own, base))
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
