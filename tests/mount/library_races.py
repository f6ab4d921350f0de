#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Threads of one program that use libreshard at once; meant for builds with
--enable-sanitizer, too."""

import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

from library_use import run  # noqa: E402
from rsh_cli import demo_tree  # noqa: E402
from rsh_mount import Tap  # noqa: E402

WAYS = (("", []), (" through the cache", ["cache=on", "cache_size=8M"]))
SLOW = ["cache=off", "fault=delay=2ms"]


def main():
    tap = Tap()
    with tempfile.TemporaryDirectory(prefix="reshardfs-races-") as work:
        source, src, dst = demo_tree(work)
        both = [f"src_strategy={src}", f"dst_strategy={dst}"]
        for name, more in WAYS:
            with tap.test("threads race" + name):
                run("race", source, *both, *more)
            with tap.test("threads load different ranks" + name):
                run("crowd", source, *both, *more)
        with tap.test("and of a slow source"):
            run("crowd", source, *both, *SLOW)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
