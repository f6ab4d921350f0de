#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reshardfs warm --share I/N`: what all runs together read is everything that the
mount shows, each place of the source once; by the mount's own log of reads."""

import os
import re
import sys

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

from demands import check, write  # noqa: E402
from ms_formats import (Layout, Record, StageFile, checkpoint_bytes,  # noqa: E402
                        strategy_bytes)
from rsh_cli import GOOD, USAGE, refused, run, run_json  # noqa: E402
from rsh_mount import Mounted, Tests, require_mount  # noqa: E402

GAP = 4096  # what lies between two parts of a share is read as well
READ = re.compile(r"read node (\d+) offset (\d+) size \d+: (\d+)")
ROWS = {"a": 40, "b": 8, "c": 400, "d": 8, "e": 120}
COLUMNS = 64


class Job:
    """Rows of four ranks, each of which also has all of `norm`, for two ranks that
    there are twice."""

    def __init__(self, directory):
        self.source = os.path.join(directory, "source")
        for rank in range(4):
            records = {name: Record((n, COLUMNS), "Float32", os.urandom(n * COLUMNS * 4))
                       for name, n in ROWS.items()}
            records["norm"] = Record((COLUMNS,), "Float32", bytes(COLUMNS * 4))
            write(f"{self.source}/rank_{rank}/net-1_1.ckpt", checkpoint_bytes(records))
        self.src, self.dst = (write(f"{directory}/{name}.ckpt", strategy_bytes(
            StageFile(0, {**{p: Layout(mesh, [0, -1]) for p in ROWS},
                          "norm": Layout(mesh, [-1])})))
            for name, mesh in (("src", [4]), ("dst", [2, 2])))

    def plan(self, *ranks):
        return run_json("plan", "--slices", "--src-strategy", self.src, "--dst-strategy",
                        self.dst, self.source, *ranks)["files"]

    def mounted(self, *extra):
        return Mounted(self.source, src_strategy=self.src, dst_strategy=self.dst,
                       extra=["--log-level=debug", *extra])


def read_ranges(m):
    """{path: [(begin, end)]} of all reads so far."""
    nodes = {}
    for node, offset, n in READ.findall(m.log()):
        nodes.setdefault(int(node), []).append((int(offset), int(offset) + int(n)))
    paths = [os.path.join(top, name) for top, _, names in os.walk(m.path) for name in names]
    return {os.path.basename(p): sorted(nodes.get(os.stat(p).st_ino, [])) for p in paths}


def has_all(ranges, begin, end):
    for first, last in ranges:
        if first <= begin < last:
            begin = last
    return begin >= end


def shares(job, n, *ranks, jobs=1):
    """What each of n runs says, and the ranges that it read; each has a mount of its
    own."""
    for i in range(n):
        with job.mounted() as m:
            said = run_json("warm", "--share", f"{i}/{n}", f"-j{jobs}", m.path, *ranks)
            yield said, read_ranges(m)


def read_once(job, n, *ranks):
    files = job.plan(*ranks)
    slices = {s[2]: s[1] for f in files for s in f["slices"]}
    got = list(shares(job, n, *ranks))
    distinct = sum(slices.values())
    check({said["distinct_bytes"] for said, _ in got} == {distinct}, (distinct, got))
    check(sum(said["bytes"] for said, _ in got) == distinct, got)
    sizes = [said["bytes"] for said, _ in got]
    check(max(sizes) - min(sizes) <= 1 and all(said["contents"] for said, _ in got), sizes)
    together = {}
    for _, ranges in got:
        for name, found in ranges.items():
            together[name] = sorted(together.get(name, []) + found)
    for reads in slices:
        check(any(has_all(together[f["name"]], s[0], s[0] + s[1])
                  for f in files for s in f["slices"] if s[2] == reads), reads)
    read = sum(e - b for found in together.values() for b, e in found)
    check(read <= distinct + GAP * len(slices), (read, distinct))


def each_place_of_the_source_once(job):
    both = sum(s[1] for f in job.plan() for s in f["slices"])
    distinct = sum({s[2]: s[1] for f in job.plan() for s in f["slices"]}.values())
    # Of `norm` each rank has a copy of its own, which stands for it.
    check(distinct < 0.51 * both, (distinct, both))
    for n in (1, 3):
        read_once(job, n)


def of_some_ranks(job):
    read_once(job, 2, "0", "2")
    one = run_json("plan", "--slices", "--src-strategy", job.src, "--dst-strategy", job.dst,
                   job.source, "1")
    got = [said for said, _ in shares(job, 1, "1", jobs=4)]
    check(got[0]["distinct_bytes"] == sum(s[1] for s in one["files"][0]["slices"]), got)


def of_parts_of_a_model(job):
    """These have no ranks' directories, and beside them is what no plan tells of."""
    with Mounted(job.source, src_strategy=job.src, extra=["--format=hf"]) as m:
        sizes = [os.stat(os.path.join(m.path, name)).st_size for name in os.listdir(m.path)]
        said = [run_json("warm", "--share", f"{i}/2", m.path) for i in range(2)]
        check(sum(s["bytes"] for s in said) <= sum(sizes) and
              sum(s["bytes"] for s in said) > 0.99 * sum(sizes) - GAP, (said, sizes))


def of_a_resumed_job(job):
    """No plan tells of it: files are all different."""
    with Mounted(job.source, resume=True) as m:
        said = [run_json("warm", "--share", f"{i}/2", m.path) for i in range(2)]
        check(sum(s["bytes"] for s in said) == said[0]["distinct_bytes"] ==
              sum(os.stat(f"{job.source}/rank_{r}/net-1_1.ckpt").st_size
                  for r in range(4)), said)


def what_it_says(job):
    with job.mounted() as m:
        got = run("warm", "--share=1/2", m.path)
        check(got.status == GOOD and " that differ read in " in got.out, got)
        for wrong in ("2/2", "x", "1", "-1/2", "0/0"):
            refused(run("warm", "--share", wrong, m.path), USAGE, "is not a share")


CASES = [each_place_of_the_source_once, of_some_ranks, of_parts_of_a_model,
         of_a_resumed_job, what_it_says]


if __name__ == "__main__":
    require_mount()
    sys.exit(Tests("share", CASES).run(Job))
