#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reshardfs plan --rank-list` against MindSpore's rank_list_for_transform.

For each ordered pair within a family of tests/data/strategies, with `none` as
well, and half of the destination ranks, drawn by --seed, the two lists must be the
same, in the same order; where the function raises, the program must have no list
either and say so with exit status 1.  `plan` alone must need no rank that holds nothing: for
rows over 8 devices to rows over 4, two ranks and not eight.

Then the strategies of random_pairs.py, from --seed on: whatever list MindSpore
gives is the program's, under --compat=mindspore where stages differ about a
parameter.  There it also raises for reasons of its own - shapes
that it makes up, JSON that it cannot unfold - where the program has a list.

    rank_lists.py [--family NAME] [--pair SRC:DST] [--seed N] [--pairs N]
"""

import argparse
import os
import random
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "lib")]
import genuine_sets  # noqa: E402
import random_pairs  # noqa: E402
import rsh_mount  # noqa: E402
from ms_formats import (Layout, Record, StageFile, checkpoint_bytes,  # noqa: E402
                        strategy_bytes)
from rsh_cli import NO, run, run_json  # noqa: E402
from run_seed import run_seed, share  # noqa: E402


class Different(AssertionError):
    """The two do not agree."""


def theirs(ms, rank, src, dst):
    """MindSpore's list, or the exception that it raises."""
    try:
        return [int(r) for r in ms.rank_list_for_transform(rank, src, dst)]
    except Exception as error:  # it has a dozen kinds for one thing
        return error


def ours(src, dst, *more):
    """{rank: list or None}, by lines and by JSON."""
    words = ["plan", "SOURCE", "--rank-list", "--src-strategy", src or "none",
             "--dst-strategy", dst or "none", *more]
    plain = run(*words)
    lines = {int(rank): [int(r) for r in rest.split()]
             for rank, rest in (line.split(":") for line in plain.out.splitlines())}
    lists = {r["rank"]: r["sources"]
             for r in run_json(*words, status=plain.status)["rank_lists"]}
    if {r: s for r, s in lists.items() if s is not None} != lines:
        raise Different(f"lines {lines}, JSON {lists}")
    if (plain.status == NO) != (None in lists.values()) or plain.status > NO:
        raise Different(f"status {plain.status}\n{plain.err}")
    return lists


def compare_random(workshop, seed, work):
    """Of a random pair: (lists that are the same, lists of ours alone)."""
    pair = random_pairs.Pair(seed)
    src_file, src = workshop.write_strategy(pair, "src", work)
    dst_file, dst = workshop.write_strategy(pair, "dst", work)
    same = alone = 0
    # Of a parameter with a layout of its own in each stage MindSpore takes that of the
    # last stage in the file, which merging leaves to chance; so does the list.
    lists = ours(src, dst_file, "--compat=mindspore") if pair.own_stage_layouts else \
        ours(src, dst)
    for rank, found in lists.items():
        expected = theirs(workshop.ms, rank, src_file, dst_file)
        if isinstance(expected, Exception):
            alone += found is not None
        elif found != expected:
            raise Different(f"seed {seed}, rank {rank}: expected {expected}, found {found}")
        else:
            same += 1
    return same, alone


def compare_random_pairs(tap, seed, pairs):
    workshop = random_pairs.Workshop(None)
    same = alone = 0
    for one in range(seed, seed + pairs):
        with tempfile.TemporaryDirectory(prefix="reshardfs-lists-") as work:
            found = compare_random(workshop, one, work)
        same, alone = same + found[0], alone + found[1]
    tap.diag(f"{same} lists are equal, for {alone} MindSpore raises")
    if same < pairs:
        raise Different("too few lists to be compared")


def compare(ms, src, dst, n_ranks, numbers=None):
    """How many lists are the same; raises if any is not.  Of half of the ranks where
    `numbers` draw them: MindSpore takes most of the time."""
    found = ours(src, dst)
    if sorted(found) != list(range(n_ranks)):
        raise Different(f"ranks {sorted(found)}, expected {n_ranks}")
    same = 0
    ranks = numbers.sample(range(n_ranks), (n_ranks + 1) // 2) if numbers else range(n_ranks)
    for rank in ranks:
        expected = theirs(ms, rank, src, dst)
        if isinstance(expected, Exception):
            if found[rank] is not None:
                raise Different(f"rank {rank}: MindSpore raises {expected!r}, "
                                f"found {found[rank]}")
        elif found[rank] != expected:
            raise Different(f"rank {rank}: expected {expected}, found {found[rank]}")
        else:
            same += 1
    return same


def needs_less(ms, work):
    """Rows over 8 to rows over 4: the list has 8 ranks, two are needed."""
    source = os.path.join(work, "rows")
    for rank in range(8):
        os.makedirs(os.path.join(source, f"rank_{rank}"))
        with open(os.path.join(source, f"rank_{rank}", "net-1_1.ckpt"), "wb") as f:
            f.write(checkpoint_bytes({"w": Record((2, 3), "Float32", bytes(24))}))
    paths = []
    for devices in (8, 4):
        paths.append(os.path.join(work, f"mp{devices}.ckpt"))
        with open(paths[-1], "wb") as f:
            f.write(strategy_bytes(StageFile(0, {"w": Layout([devices], [0, -1])})))
    compare(ms, *paths, 4)
    if theirs(ms, 1, *paths) != [7, 6, 5, 4, 3, 2, 1, 0]:
        raise Different("MindSpore needs fewer now")
    plan = run_json("plan", source, "--src-strategy", paths[0], "--dst-strategy", paths[1])
    needed = [[s["rank"] for s in f["sources"]] for f in plan["files"]]
    if needed != [[0, 1], [2, 3], [4, 5], [6, 7]]:
        raise Different(f"needed: {needed}")


def pairs_of(names):
    """[(source, destination)], None for `none`."""
    for src in names + [None]:
        for dst in names + [None]:
            if src or dst:
                yield src, dst


def n_ranks_of(one):
    return one.device_count * len(one.stages) if one else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--family", help="this one only")
    parser.add_argument("--pair", help="SRC:DST, sets or none")
    parser.add_argument("--seed", type=int, default=run_seed())
    parser.add_argument("--pairs", type=int, default=share(40))
    arguments = parser.parse_args()
    rsh_mount.require_oracle()
    genuine_sets.oracle_environment()
    import mindspore as ms
    tap = rsh_mount.Tap()
    tap.diag(f"--seed {arguments.seed}")
    with tempfile.TemporaryDirectory(prefix="reshardfs-lists-") as work:
        total = 0
        for family, names in genuine_sets.families().items():
            if arguments.family not in (None, family):
                continue
            sets = {name: genuine_sets.GenuineSet(name, work) for name in names}
            for src, dst in pairs_of(names) if arguments.pair else share(pairs_of(names)):
                name = f"{src or 'none'}:{dst or 'none'}"
                if arguments.pair not in (None, name):
                    continue
                with tap.test(f"{family}: {name}"):
                    total += compare(ms, sets[src].file() if src else None,
                                     sets[dst].file() if dst else None,
                                     n_ranks_of(sets.get(dst)),
                                     random.Random(f"{name} {arguments.seed}"))
        tap.diag(f"{total} lists are equal")
        if not arguments.pair:
            with tap.test("rows over 8 to rows over 4"):
                needs_less(ms, work)
            with tap.test(f"{arguments.pairs} random pairs, --seed {arguments.seed}"):
                compare_random_pairs(tap, arguments.seed, arguments.pairs)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
