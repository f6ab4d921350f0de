#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""HACKING.md is short, and the files that it names exist."""

import glob
import os
import re
import sys

TOP = os.environ.get("top_srcdir", os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.insert(0, os.path.join(TOP, "tests", "lib"))

from rsh_mount import Tap  # noqa: E402

LINES = 400
STEPS = 12
WORDS = 15
# Where a path may begin, if it does not begin at the top.
ROOTS = ("", "src", "include/rsh", "tests", "tests/lib", "src/app", "python/reshardfs", "man")
# These have no path of a file, or one that a newcomer makes.
PATTERN = re.compile(r"`([\w./*-]+/?[\w*.-]*\.(?:c|h|py|sh|mk|md|am|ac|rules|spec|svg|1|5|map))`")
BESIDE = re.compile(r"[A-Z]{4,}_X|NAME|LAYER|/X\.")


def section(text, title):
    return re.search(rf"^## \d+\. {title}\n(.*?)(?=^## |\Z)", text, re.S | re.M).group(1)


def exists(path):
    # A file's name alone may follow the path of another file of its directory.
    where = (os.path.join(TOP, root, path) for root in ROOTS)
    return any(glob.glob(p) for p in where) or ("/" not in path and any(
        glob.glob(os.path.join(TOP, top, "**", path), recursive=True)
        for top in ("src", "include", "tests", "debian")))


def main():
    tap = Tap()
    with open(os.path.join(TOP, "HACKING.md"), encoding="utf-8") as file:
        text = file.read()
    lines = text.count("\n")
    tap.ok(lines <= LINES, f"it has at most {LINES} lines", lines)

    how = dict(re.findall(r"^### (An? .*?)\n+(.*?)(?=^###? |\Z)",
                          section(text, "How to add something"), re.S | re.M))
    tap.ok(len(how) >= 6, "it says how to add things", list(how))
    long = {name: len(body.strip().split("\n")) for name, body in how.items()}
    tap.ok(max(long.values()) <= STEPS, f"each in at most {STEPS} lines", long)

    words = re.findall(r"\*\*[A-Z]\w+\*\*", section(text, "Words"))
    tap.ok(10 <= len(words) <= WORDS, f"the glossary has at most {WORDS} words", words)

    named = {p for p in PATTERN.findall(text) if not BESIDE.search(p)}
    tap.ok(len(named) > 60, "files are found in it", len(named))
    lost = sorted(p for p in named if not exists(p))
    tap.ok(not lost, "the files that it names exist", lost)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
