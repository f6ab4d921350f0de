# SPDX-License-Identifier: Apache-2.0
"""Genuine trees that are kept as archives in data/NAME, and what is expected of them.

    expected("deepspeed")              what expected.json says
    unpack("deepspeed", directory)     the trees, in a directory
"""

import json
import os
import tarfile

_DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data")


def expected(name, files=("expected.json",)):
    """{tree: facts}; the facts of a later file are added to those of the earlier ones."""
    cases = {}
    for file in files:
        with open(os.path.join(_DATA, name, file), encoding="utf-8") as f:
            for tree, facts in json.load(f).items():
                cases[tree] = {**cases[tree], **facts} if tree in cases else facts
    return cases


def unpack(name, directory, archives=("trees.tar.xz",)):
    for archive in archives:
        with tarfile.open(os.path.join(_DATA, name, archive)) as tar:
            tar.extractall(directory)
    return directory
