#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a start of a job costs its storage, with eight nodes on this machine:

    RESHARDFS=PROGRAM cluster.py [--pair SOURCE:DESTINATION] [--scale N] [--rate MB]
                                 [--nodes N] [--servers N...] [--faults]
                                 [--repeats N] [--json FILE]

Each node mounts the same source for a rank of its own, by way of a server of objects
that gives RATE MB/s in all.  Printed are the bytes that the storage gave for each byte
that anybody needed, and the time against that of each byte given once.
"""
import argparse
import contextlib
import dataclasses
import json
import os
import shutil
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                os.pardir, "lib"))

from bench_tools import have_memory  # noqa: E402
from cluster import Cluster, Shape, under_way  # noqa: E402
from memcached import Memcached  # noqa: E402


# What befalls the first server while the job is loading; a second one is enough.
FAULTS = {
    "": lambda server: None,
    "killed": lambda server: server.kill(),
    "restarted": lambda server: (server.kill(), server.start()),
    "hangs for 2 s": lambda server: (server.stop(), time.sleep(2), server.go_on()),
}


def measure(cluster, servers, fault=""):
    name = f"{servers} servers" if servers else "each for itself"
    with contextlib.ExitStack() as stack:
        caches = [stack.enter_context(Memcached()) for _ in range(servers)]
        words = ["--cache-servers", ",".join(c.address for c in caches)] if caches else []

        def meanwhile(mounts):
            under_way(mounts)
            FAULTS[fault](caches[0])

        found = cluster.start_job(words, meanwhile if fault else None,
                                  first=lambda mounts: have_memory(
                                      sum(map(os.path.getsize, cluster.expected)) * 3))
    ideal = found.distinct / cluster.rate if cluster.rate else 0
    print(f"{name}{', one ' if fault else ''}{fault}: {found.reads_per_byte:.2f} bytes read "
          f"per distinct byte, {found.seconds:.2f} s, "
          f"{found.seconds / ideal if ideal else 0:.2f} times {found.distinct / 1e6:.0f} MB "
          f"at the rate; {found.requests} requests", flush=True)
    return {"name": name, "shared": servers > 0, "fault": fault, "ideal": ideal,
            **dataclasses.asdict(found)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pair", default="dp4mp2_opt:infer_mp2",
                        help="sets of tests/data/strategies")
    parser.add_argument("--scale", type=int, default=16, help="of every dimension")
    parser.add_argument("--rate", type=float, default=200, help="MB/s of the source")
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--servers", type=int, nargs="+", default=[0, 3],
                        help="of memcached; 0: each node for itself")
    parser.add_argument("--faults", action="store_true",
                        help="also with a server that fails amidst")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", help="where all of it goes")
    o = parser.parse_args()
    shape = Shape(*o.pair.split(":"), o.nodes, o.scale)
    directory = tempfile.mkdtemp(prefix="reshardfs-cluster-")
    found = []
    try:
        with Cluster(directory, shape, o.rate * 1e6) as cluster:
            for servers in o.servers:
                for fault in FAULTS if servers and o.faults else [""]:
                    found += [measure(cluster, servers, fault) for _ in range(o.repeats)]
    finally:
        shutil.rmtree(directory)
    if o.json:
        with open(o.json, "w", encoding="utf-8") as f:
            json.dump({"options": vars(o), "found": found}, f)
    return 0


if __name__ == "__main__":
    sys.exit(main())
