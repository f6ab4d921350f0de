#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""reshard_load() of sources of every kind: what a mount's files hold, in whole and in
random parts, and right bytes or an error whichever of the reads fails.

    loads.py [--seed S] [--share N]
"""

import argparse
import os
import random
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

from all_sources import all_sources, words  # noqa: E402
from demands import check  # noqa: E402
from library_use import check_parts, check_records, compare, run  # noqa: E402
from rsh_mount import Tap, require_mount  # noqa: E402
from run_seed import run_seed  # noqa: E402


def check_contents(kind, work):
    options = dict(kind.options)
    sides = [options.pop(side) for side in ("src_strategy", "dst_strategy")]
    files, copies = compare(work, kind.source, *sides, *words(options))
    files = [f for f in files if f[3]]
    check(files, "there is no file with records")
    parts = "format" in options or any(f[1].endswith(".safetensors") for f in files)
    (check_parts if parts else check_records)(files, copies)


def main():
    require_mount()
    tap = Tap()
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=run_seed())
    parser.add_argument("--share", default="4", help="a large one: each read of all")
    options = parser.parse_args()
    tap.diag(f"--seed {options.seed}")
    numbers = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="reshardfs-loads-") as work:
        for kind in all_sources(work, options.seed):
            given = [kind.source, *words(kind.options)]
            with tap.test(f"{kind.name}: what a mount shows"):
                check_contents(kind, work)
            for more in ([], ["cache=on", "cache_size=2M"]):
                with tap.test(f"{kind.name}: random loads {' '.join(more)}"):
                    run("load", str(numbers.getrandbits(31)), *given, *more)
            # Of a rank's files there are replicas.
            for more in ([], ["replicas=off"])[:1 + kind.name.startswith("ranks")]:
                with tap.test(f"{kind.name}: each read fails {' '.join(more)}"):
                    said = run("each", options.share, *given, *more,
                               f"log_to=file:{os.devnull}")
                    check(not said.startswith("0 "), "no fault was met")
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
