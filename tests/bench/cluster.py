#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a start of a job costs its storage, with eight nodes on this machine:

    RESHARDFS=PROGRAM cluster.py [--pair SOURCE:DESTINATION] [--scale N] [--rate MB]
                                 [--nodes N] [--repeats N] [--json FILE]

Each node mounts the same source for a rank of its own, by way of a server of objects
that gives RATE MB/s in all.  Printed are the bytes that the storage gave for each byte
that anybody needed, and the time against that of each byte given once.
"""
import argparse
import dataclasses
import json
import os
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                os.pardir, "lib"))

from cluster import Cluster, Shape  # noqa: E402


def measure(cluster, name, **how):
    found = cluster.start_job(**how)
    ideal = found.distinct / cluster.rate if cluster.rate else 0
    print(f"{name}: {found.reads_per_byte:.2f} bytes read per distinct byte, "
          f"{found.seconds:.2f} s, {found.seconds / ideal if ideal else 0:.2f} times "
          f"{found.distinct / 1e6:.0f} MB at the rate; {found.requests} requests",
          flush=True)
    return {"name": name, "shared": False, "ideal": ideal,
            **dataclasses.asdict(found)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pair", default="dp4mp2_opt:infer_mp2",
                        help="sets of tests/data/strategies")
    parser.add_argument("--scale", type=int, default=16, help="of every dimension")
    parser.add_argument("--rate", type=float, default=200, help="MB/s of the source")
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", help="where all of it goes")
    o = parser.parse_args()
    shape = Shape(*o.pair.split(":"), o.nodes, o.scale)
    directory = tempfile.mkdtemp(prefix="reshardfs-cluster-")
    found = []
    try:
        with Cluster(directory, shape, o.rate * 1e6) as cluster:
            for _ in range(o.repeats):
                found.append(measure(cluster, "each for itself"))
    finally:
        shutil.rmtree(directory)
    if o.json:
        with open(o.json, "w", encoding="utf-8") as f:
            json.dump({"options": vars(o), "found": found}, f)
    return 0


if __name__ == "__main__":
    sys.exit(main())
