#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The writer of Checkpoint 2.0 trees against mindformers: of every genuine tree it is
given the layouts and the whole tensors, and has to make the same files."""

import hashlib
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import genuine  # noqa: E402
from checkpoint2_trees import read_step  # noqa: E402
from demands import content  # noqa: E402
from rsh_mount import Tap  # noqa: E402


def same_files(path, made):
    """The names of files that are not the same on both sides."""
    names = set(os.listdir(path)) | set(os.listdir(made))
    return sorted(n for n in names
                  if not os.path.exists(os.path.join(path, n))
                  or not os.path.exists(os.path.join(made, n))
                  or content(os.path.join(path, n)) != content(os.path.join(made, n)))


def test_tree(tap, name, work):
    path = genuine.checkpoint2_step(name)
    expected = genuine.checkpoint2_expected(name)
    step, whole = read_step(path, expected["iteration"]), expected["whole"]
    wrong = [n for n, (_, _, digest) in whole.items() if
             hashlib.sha256(step.parameters[n].content).hexdigest() != digest]
    tap.equal((wrong, sorted(set(step.parameters) - set(whole))), ([], sorted(step.absent)),
              f"{name}: slices lie where their numbers say")
    made = step.save(os.path.join(work, name))
    tap.equal(same_files(path, made), [], f"{name}: made once more, the files are the same")


def main():
    tap = Tap()
    with tempfile.TemporaryDirectory(prefix="reshardfs-") as work:
        for name in genuine.checkpoint2_names():
            if name != "single":
                test_tree(tap, name, work)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
