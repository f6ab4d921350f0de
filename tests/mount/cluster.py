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

from cluster import Cluster, Shape  # noqa: E402
from cluster_model import plans, simulate  # noqa: E402
from demands import check  # noqa: E402
from rsh_cli import run  # noqa: E402
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


CASES = [each_for_itself]


def main():
    require_mount()
    if "built without" in run("ls", "s3://bucket/x").err:
        skip_all("built without object storage")
    tap = Tap(len(CASES))
    with tempfile.TemporaryDirectory(prefix="reshardfs-cluster-") as directory, \
            Cluster(directory, Shape(*PAIR, nodes=NODES, scale=4)) as cluster:
        for case in CASES:
            with tap.test(case.__name__.replace("_", " ")):
                case(cluster)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
