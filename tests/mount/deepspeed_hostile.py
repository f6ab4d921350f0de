#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Damaged and hostile checkpoints of DeepSpeed: whatever changes in a pickle or an archive,
the program ends in an error or shows what an independent reader finds, in 20 s and 64 MiB
more than for what is whole.

    deepspeed_hostile.py [--seed S] [--cases N]     repeats some
"""

import os
import random
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

from deepspeed_reader import read_checkpoint  # noqa: E402
from deepspeed_trees import expected, unpack  # noqa: E402
from demands import check  # noqa: E402
from rsh_mount import Tap, require_mount  # noqa: E402
from shown_model import hashes  # noqa: E402
from torch_damage import (as_read_alone, exported, ran, read_alone,  # noqa: E402
                          run_changes, spoil, words_of_changes)

CASES = expected()
TREES = ("z1-bf16", "z1-bf16opt", "z1-elastic", "z1-bf16-w1", "z2-fp16", "z2-fp32", "z2-fp16-w1",
         "z3-fp16", "z3-fp32", "z3-bf16", "universal-z1", "universal-z3", "universal-z2", "moe-z2")
# The reader does not know these.
ALONE = ("universal-z1", "universal-z2", "universal-z3", "moe-z2")


def one(seed, trees, directory, base):
    """What became of it, or an AssertionError."""
    numbers = random.Random(seed)
    name = numbers.choice(TREES)
    root = os.path.join(directory, "source")
    shutil.copytree(os.path.join(trees, CASES[name]["path"]), root)
    # A step that is refused would be replaced by an older one.
    shutil.rmtree(os.path.join(root, "global_step1"), ignore_errors=True)
    what = spoil(numbers, root)
    if what is None:
        return "not made"
    found, what = exported(numbers, f"seed {seed}: {name}, {what}", root, directory, base)
    if found is None:
        return "refused"
    if found == CASES[name]["model"]:
        return "shown as it was"
    if name in ALONE:
        # Names of other values may change; a tensor that is left must be one of the model.
        wrong = [n for n in found if n in CASES[name]["model"] and
                 found[n][1] == CASES[name]["model"][n][1] and found[n] != CASES[name]["model"][n]]
        check(len(wrong) <= 2 or "and others" in what, f"{what}{wrong} differ")
        return "shown in another way"
    as_read_alone(found, read_alone(read_checkpoint, root), what)
    return "shown as it is now"


def main():
    require_mount()
    words, tap = words_of_changes(), Tap()
    with tempfile.TemporaryDirectory() as directory:
        trees = unpack(os.path.join(directory, "trees"))
        for name in TREES:
            if name not in ALONE:
                alone = hashes(read_checkpoint(os.path.join(trees, CASES[name]["path"])))
                tap.ok(alone == CASES[name]["model"], f"the reader knows {name}", "")
        base = ran("export", os.path.join(trees, "z3-fp16"), os.path.join(directory, "x"))[3]
        run_changes(tap, words, directory, lambda seed, own: one(seed, trees, own, base))
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
