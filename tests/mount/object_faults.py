#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A server of objects that fails: what passes gives right bytes, and what lasts gives
an error with its reason, in time."""

import concurrent.futures
import contextlib
import os
import re
import sys
import time

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

from cluster import Cluster, Shape, file_of, load_and_compare  # noqa: E402
from demands import content, error_of  # noqa: E402
from rsh_mount import TIMEOUT_SCALE  # noqa: E402
from s3_trial import run_trials  # noqa: E402

PASSING = "500 503 reset0 reset trunc lie long delay"
# What files meet for ever.
CHANGED = "etag 416 404"
FAILING = "lie long 403 503 stall"


def test_passing(tap, trial):
    with trial.server.failing(("*", PASSING), every=2), trial.mounted() as mount:
        with tap.test("right bytes from a server of which half of the answers fail"):
            mount.demand_tree(trial.expected)
    ranges = [line for line in trial.server.requests() if "bytes=" in line]
    tap.ok(len(ranges) > 2 * len(PASSING.split()), "all of the failures were met",
           "\n".join(ranges))


def lasting(trial, faults, *words):
    """What readers of the ranks' files are told, one fault for each, and the log."""
    with trial.mounted("--replicas", "off", "--check", "structure", *words) as mount:
        def read(rank):
            return error_of(lambda: content(mount.rank_file(rank)))
        with trial.server.failing(*((f"*rank_{rank}/*", fault)
                                    for rank, fault in enumerate(faults))), \
                concurrent.futures.ThreadPoolExecutor() as readers:
            found = dict(zip(faults, readers.map(read, range(len(faults)))))
        return found, mount.log()


def test_changed(tap, trial):
    for fault in CHANGED.split():
        found, log = lasting(trial, [fault])
        tap.ok(found == {fault: "ESTALE"} and re.search(r"the server http\S+ has ", log),
               f"{fault}: it is another object", f"{found}\n{log}")


def test_failing(tap, trial):
    began = time.monotonic()
    found, log = lasting(trial, FAILING.split(), "--source-timeout", "2")
    took = time.monotonic() - began
    for fault, error in found.items():
        tap.ok(error == "EIO", f"{fault}: an error", f"{error}\n{log}")
    tap.ok("cannot be reached" in log and "(HTTP " in log, "with its reason", log)
    tap.ok(took < 60 * TIMEOUT_SCALE, "and in time", str(took))


def test_slow_line(tap, trial):
    """What is read ahead at first takes longer than a read may stand still."""
    shape = Shape("dp4mp2_opt", "infer_mp2", nodes=1, scale=8)
    with Cluster(os.path.join(trial.directory, "slow"), shape, rate=4e6) as cluster, \
            contextlib.ExitStack() as stack:
        mount, = cluster.mounts(stack, ["--check", "structure", "--source-timeout", "2"])
        wrong = load_and_compare(f"{mount.path}/{file_of(cluster.ranks[0])}",
                                 cluster.expected[0])
        tap.ok(not wrong and "no answer in time" not in mount.log(),
               "a file comes by a slow line", f"{wrong} MiB are wrong\n{mount.log()}")


if __name__ == "__main__":
    sys.exit(run_trials(test_passing, test_changed, test_failing, test_slow_line))
