#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What mounts give of what the file systems of lib/engines.py give: for each a line of
a contiguous reshard and one of rows of 1 KiB.

    bench_engines.py READER SIZE [NAME...]      READER is bench_read; SIZE in MiB

All files of the mount are read one after the other, in turns with those of the source,
of which nothing is remembered; $BENCH_MOUNT_OPTIONS are for all mounts.  It prints the
rate of the source, the ratio, and the bytes that were fetched for each that was shown.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                os.pardir, "lib"))

from coming_and_going import fetched  # noqa: E402
from engines import ENGINES, Radosgw  # noqa: E402
from rsh_mount import Mounted, hash_tree  # noqa: E402

from bench_tools import rate_text  # noqa: E402
from bench_trees import Blocks, Tree  # noqa: E402

TURNS = 3
OPTIONS = os.environ.get("BENCH_MOUNT_OPTIONS", "").split()


def seconds(reader, files):
    done = subprocess.run([reader, "-j", "1", "-b", str(1 << 20), *files], check=True,
                          text=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout)["seconds"]


def measure(reader, engine, tree):
    """(rate of the source, ratio, bytes fetched per byte)"""
    top = os.path.relpath(tree.source, engine.store)
    source = os.path.join(engine.path, top)
    below = [os.path.join(source, os.path.relpath(path, tree.source))
             for path in tree.source_files()]
    direct, ratios, fetches = [], [], []
    for _ in range(TURNS):
        engine.renew(below)
        direct.append(seconds(reader, below))
        engine.renew(below)
        with Mounted(source, src_strategy=tree.src_strategy,
                     dst_strategy=tree.dst_strategy, extra=OPTIONS) as m:
            files = [os.path.join(m.path, name) for name in sorted(tree.wanted)]
            shown = sum(os.path.getsize(path) for path in files)
            before = fetched(m)["bytes"]
            ratios.append(direct[-1] / seconds(reader, files))
            fetches.append((fetched(m)["bytes"] - before) / shown)
            found = {name: digest for name, (_, digest) in hash_tree(m.path).items()}
            if found != tree.wanted:
                raise AssertionError("wrong bytes")
    return tree.content / statistics.median(direct), \
        statistics.median(ratios), statistics.median(fetches)


def trees_of(engine, size, blocks):
    return [Tree(os.path.join(engine.store, kind), kind, size, blocks)
            for kind in ("contiguous", "inner")]


def main():
    reader, size = sys.argv[1], int(sys.argv[2]) << 20
    blocks = Blocks()
    print(f"{'':10} {'':10} {'direct':>10} {'ratio':>6} {'fetched per byte':>17}")
    for name in sys.argv[3:] or [n for n in ENGINES if n != Radosgw.name()]:
        lacks = ENGINES[name].lacks()
        if lacks:
            print(f"{name:10} {lacks}")
            continue
        with tempfile.TemporaryDirectory(prefix="reshardfs-engine-") as directory:
            engine = ENGINES[name](directory)
            try:
                trees = []
                # What is there before need not be looked for.
                if engine.store != engine.path:
                    trees = trees_of(engine, size, blocks)
                engine.begin()
                for tree in trees or trees_of(engine, size, blocks):
                    rate, ratio, per_byte = measure(reader, engine, tree)
                    print(f"{name:10} {tree.kind:10} {rate_text(rate):>10} {ratio:6.2f} "
                          f"{per_byte:17.3f}", flush=True)
            finally:
                engine.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
