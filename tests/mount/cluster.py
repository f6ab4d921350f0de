#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Four nodes load a job from one server: what that gave is what cluster_model.py
makes of the plan, and all bytes are right.  `bench/cluster.py` is the large form."""

import argparse
import os
import sys
import tempfile

HERE = os.environ.get("srcdir", ".")
sys.path[:0] = [os.path.join(HERE, "lib"), os.path.join(HERE, "bench")]

from cluster import Cluster, Shape, under_way  # noqa: E402
from cluster_model import BLOCK, plans, simulate  # noqa: E402
from demands import check  # noqa: E402
import memcached  # noqa: E402
from memcached import Memcached  # noqa: E402
from rsh_cli import GOOD, end_if_built_without, run  # noqa: E402
from rsh_mount import Tap, require_mount, skip_all  # noqa: E402

PAIR = "dp4mp2_opt", "infer_mp2"
NODES = 4


def predicted(shared):
    o = argparse.Namespace(cards_per_node=1, larger=1, one_host=False, host_rate=1000,
                           rate=200, latency=1)
    return simulate(plans(PAIR, 4), o, NODES, shared)


def each_for_itself(cluster):
    found = cluster.start_job()
    model = predicted(False)
    check(0.8 < model["read"] / found.served < 1.2 and
          0.8 < model["distinct"] / found.distinct < 1.2, (found, model))
    check(found.reads_per_byte > 1.9, found)  # two nodes want each slice


def late_bytes(found):
    """What was read once more since the node that had claimed it came too late, or a
    server did not answer in time, of which requests for up to 16 blocks failed."""
    times = {"shared_late": 1, "shared_dropped": 1, "shared_errors": 16}
    return BLOCK * sum(n * s["cache"][name] for s in found.stats for name, n in times.items())


def with_one_cache(cluster):
    with Memcached() as a, Memcached() as b:
        found = cluster.start_job(["--cache-servers", f"{a.address},{b.address}"])
    model = predicted(True)
    check(found.served <= 1.1 * found.distinct + late_bytes(found), found)
    check(model["read"] == model["distinct"] and
          0.8 < model["read"] / found.distinct < 1.2, (found, model))


def a_server_is_killed(cluster):
    with Memcached() as a, Memcached() as b:
        def kill(mounts):
            under_way(mounts)
            a.kill()

        cluster.start_job(["--cache-servers", f"{a.address},{b.address}"], kill)


def warmed_in_shares(cluster):
    """Each node reads its share of what all need, and the job nothing any more."""
    def warm(mounts):
        for i, m in enumerate(mounts):
            check(run("warm", "--share", f"{i}/{NODES}", m.path).status == GOOD, m.log())

    with Memcached() as a:
        found = cluster.start_job(["--cache-servers", a.address], first=warm)
    check(found.served <= late_bytes(found), found)


CASES = [each_for_itself, with_one_cache, a_server_is_killed, warmed_in_shares]


def main():
    require_mount()
    end_if_built_without("object storage", "ls", "s3://bucket/x")
    if not memcached.PROGRAM:
        skip_all("there is no memcached")
    tap = Tap(len(CASES))
    with tempfile.TemporaryDirectory(prefix="reshardfs-cluster-") as directory, \
            Cluster(directory, Shape(*PAIR, nodes=NODES, scale=4)) as cluster:
        for case in CASES:
            with tap.test(case.__name__.replace("_", " ")):
                case(cluster)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
