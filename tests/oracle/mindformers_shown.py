#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""mindformers' own loader on mounts with --format checkpoint2.

    mindformers_shown.py [SEED]

Random rank trees are shown for a random job, whole, or without redundancy, and loaded
as some ranks of another one.
"""

import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import checkpoint2_trees as trees  # noqa: E402
import mindformers_loader  # noqa: E402
import rsh_mount  # noqa: E402
from checkpoint2_shown import Case, kind_of, wanted_job  # noqa: E402
from demands import check  # noqa: E402
from layouts import device_count  # noqa: E402
from run_seed import run_seed  # noqa: E402

CASES = 16
# Of one job, that are loaded.
RANKS = 3


def parameters_of(case):
    """(ranks, {name: Parameter}) of a job that the loader can be told of."""
    while True:
        stages = wanted_job(case.numbers, case.network)
        found = {}
        for stage, held in stages.items():
            for name, layout in held.items():
                shape, dtype = case.tree.shapes[name]
                found.setdefault(name, trees.parameter_of(
                    layout, shape, dtype.lower(), stage * device_count(layout),
                    case.tree.whole[name]))
        if None not in found.values():
            return len(stages) * device_count(next(iter(stages[0].values()))), found


def run_case(tap, seed):
    with tempfile.TemporaryDirectory() as directory:
        case = Case(seed, directory)
        if case.unfit():
            return False
        with tap.test(f"seed {seed}: {case}"), rsh_mount.Mounted(
                case.source, src_strategy=case.src, dst_strategy=case.dst,
                extra=case.words()) as mount:
            ranks, parameters = parameters_of(case)
            for rank in case.numbers.sample(range(ranks), min(ranks, RANKS)):
                mine = {name: p for name, p in parameters.items() if rank in p.ranks}
                found, step = mindformers_loader.load(
                    mount.path, rank, ranks, parameters, lambda name: kind_of(name) == "opt")
                check(set(found) == set(mine), f"rank {rank}: {set(found) ^ set(mine)}")
                check(step in (None, 10), f"rank {rank}: global_step {step}")
                wrong = [name for name, p in mine.items()
                         if found[name] != p.slice(p.numbers()[p.ranks.index(rank)])]
                check(not wrong, f"rank {rank} of {ranks}: {wrong}")
    return True


def main():
    mindformers_loader.require()
    tap = rsh_mount.Tap()
    if sys.argv[1:]:
        run_case(tap, int(sys.argv[1]))
        return tap.finish()
    seed, left = run_seed(), CASES
    while left:
        left -= run_case(tap, seed)
        seed += 1
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
