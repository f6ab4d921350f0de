#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a release says of itself: its version is the same everywhere, each page is listed,
and reshardfs-troubleshooting(7) has messages that the program prints."""

import glob
import os
import re
import subprocess
import sys
import tempfile

TOP = os.environ.get("top_srcdir", os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.insert(0, os.path.join(TOP, "tests", "lib"))

from documents import read  # noqa: E402
from messages import literals, sources  # noqa: E402
from rsh_mount import Tap  # noqa: E402


def parts(text):
    """What stands between names, numbers and `...`."""
    return [part for part in (p.strip(" .") for p in
                              re.split(r"\.\.\.|%(?:\.\*)?[\w]*|\"", text)) if part]


def said(quoted, texts):
    """Each part is in a message; several may be printed as one."""
    return all(any(part in text for text in texts) for part in parts(quoted))


def main():
    tap = Tap()
    done = subprocess.run([sys.executable, os.path.join(TOP, "packaging", "set_version.py"),
                           "--check"], stdout=subprocess.PIPE, text=True, check=False)
    tap.ok(done.returncode == 0, "all places have the version of configure.ac", done.stdout)
    with tempfile.TemporaryDirectory() as home:
        kept = os.path.join(home, "kept")
        with open(kept, "w", encoding="utf-8"):
            pass
        done = subprocess.run([os.path.join(TOP, "packaging", "release.sh"), home],
                              stderr=subprocess.PIPE, text=True, check=False,
                              stdout=subprocess.DEVNULL)
        tap.ok(done.returncode == 1 and f"{home} has other files" in done.stderr and
               os.path.exists(kept), "make release removes no files of others", done.stderr)
    for directory in ("doc", "doc/zh"):
        listed = set(re.findall(r"\]\(([\w./-]+)\)", read(TOP, f"{directory}/README.md")))
        pages = {os.path.relpath(p, os.path.join(TOP, directory))
                 for where in (directory, "") for p in glob.glob(os.path.join(TOP, where, "*.md"))}
        tap.equal(sorted(pages - listed - {"README.md"}), [],
                  f"{directory}/README.md lists every page")
    every = [" ".join(text.split()) for path in sources(TOP)
             for _, text in literals(os.path.join(TOP, path))]
    quoted = re.findall(r"^\.It Qq (.*)$", read(TOP, "man/reshardfs-troubleshooting.7"), re.M)
    tap.ok(len(quoted) > 30, "the manual explains messages", len(quoted))
    tap.equal([q for q in quoted if not said(q, every)], [], "the program prints each of them")
    tap.ok(not said("the mount is tired of ...", every), "and not what it does not print")
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
