#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Damaged and hostile checkpoints of DeepSpeed: whatever changes in a pickle or an archive,
the program ends in an error or shows what an independent reader finds, in 20 s and 64 MiB
more than for what is whole.

    deepspeed_hostile.py [--seed S] [--cases N]     repeats some
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

from deepspeed_reader import read_checkpoint  # noqa: E402
from deepspeed_trees import expected, unpack  # noqa: E402
from demands import check  # noqa: E402
from rsh_mount import SUSPICIOUS, Tap, require_mount  # noqa: E402
from run_seed import half_if_sanitized  # noqa: E402
from shown_model import hashes, model_hashes  # noqa: E402
from torch_damage import MEMORY, ran, spoil  # noqa: E402

CASES = expected()
TREES = ("z1-bf16", "z1-bf16opt", "z1-elastic", "z1-bf16-w1", "z2-fp16", "z2-fp32", "z2-fp16-w1",
         "z3-fp16", "z3-fp32", "z3-bf16", "universal-z1", "universal-z3", "universal-z2", "moe-z2")
# The reader does not know these.
ALONE = ("universal-z1", "universal-z2", "universal-z3", "moe-z2")
A_TEST = 50


def read_alone(root, name):
    """What the independent reader finds; None: it refuses or cannot."""
    if name in ALONE:
        return None
    try:
        return hashes(read_checkpoint(root))
    except Exception:  # whatever is wrong with it
        return None


def one(seed, trees, directory, base):
    """What became of it, or an AssertionError."""
    numbers = random.Random(seed)
    name = numbers.choice(TREES)
    root, out = os.path.join(directory, "source"), os.path.join(directory, "out")
    shutil.copytree(os.path.join(trees, CASES[name]["path"]), root)
    # A step that is refused would be replaced by an older one.
    shutil.rmtree(os.path.join(root, "global_step1"), ignore_errors=True)
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
    if found == CASES[name]["model"]:
        return "shown as it was"
    if name in ALONE:
        # Names of other values may change; a tensor that is left must be one of the model.
        wrong = [n for n in found if n in CASES[name]["model"] and
                 found[n][1] == CASES[name]["model"][n][1] and found[n] != CASES[name]["model"][n]]
        check(len(wrong) <= 2 or "and others" in what, f"{what}{wrong} differ")
        return "shown in another way"
    alone = read_alone(root, name)
    different = sorted(n for n in set(found) | set(alone or {})
                       if found.get(n) != (alone or {}).get(n))
    check(alone is not None, f"{what}shown, and the reader refuses it")
    check(not different, f"{what}{different} differ")
    return "shown as it is now"


def main():
    require_mount()
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, default=400)
    words = parser.parse_args()
    tap, kinds = Tap(), collections.Counter()
    with tempfile.TemporaryDirectory() as directory:
        trees = unpack(os.path.join(directory, "trees"))
        for name in TREES:
            if name not in ALONE:
                alone = hashes(read_checkpoint(os.path.join(trees, CASES[name]["path"])))
                tap.ok(alone == CASES[name]["model"], f"the reader knows {name}", "")
        base = ran("export", os.path.join(trees, "z3-fp16"), os.path.join(directory, "x"))[3]
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
