#!/usr/bin/env python3
"""Lost ranks, through real mounts of trees that MindSpore saved.

    recovery_pairs.py [--seed N] [--pairs N] [--jobs N]

Draws the sources and strategies of random_pairs.py, takes the files of a random
subset of ranks away, and mounts what is left.  Either everything that the
destination lists comes out as it does of the undamaged tree - by the
whole-tensor reference that random_pairs.py holds against the converter - or the
mount is refused and names exactly the parameters of which a slice is left on no
rank.  Which these are is found from the layouts, region by region.
"""

import os
import re
import shutil
import sys
import tempfile
import traceback

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)),
                os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib")]
import random_cases  # noqa: E402
import random_pairs  # noqa: E402
from ms_formats import read_checkpoint  # noqa: E402
from random_cases import Outcome  # noqa: E402
from rsh_mount import (Mounted, expect_failure, require_mount,  # noqa: E402
                       require_oracle)

LOST = re.compile(r"lost: parameter (\S+),")
EXTRA = ["--unlisted", "drop"]

_workshop = None


def start_worker():
    global _workshop
    _workshop = random_pairs.Workshop("mount")


def listed_names(conversion, stage):
    src, dst = conversion._layouts(stage)
    return [name for name in (dst if dst is not None else src)
            if src is None or name in src]


def overlap(a, b):
    return all(x.start < y.stop and y.start < x.stop for x, y in zip(a, b))


def holders(naive, conversion, name, healthy):
    """{region: whether a healthy rank has it} of a parameter's source slices,
    its layouts on both sides known from the undamaged tree."""
    found = {}
    if conversion.src is None:
        return {None: 0 in healthy}
    own = conversion.src.layout_of(name)
    for rank in range(conversion.n_src * conversion.src.stage_count):
        stage, local = divmod(rank, conversion.n_src)
        stages = conversion.src.stages()[name]
        if stage in stages and conversion.src.layout_of(name, stage) != own:
            continue
        if name in conversion._file(rank):
            found.setdefault(local, set()).add(rank)
    return {local: bool(ranks & healthy) for local, ranks in found.items()}


def stage_is_gone(conversion, stage, healthy):
    return not any(rank // conversion.n_src == stage for rank in healthy)


def lost_parameters(naive, conversion, healthy):
    lost = set()
    for rank in conversion.ranks():
        stage, local = divmod(rank, conversion.n_dst)
        src, dst = conversion._layouts(stage)
        for name in listed_names(conversion, stage):
            held = holders(naive, conversion, name, healthy)
            if not held:
                # Never saved, which nobody knows of a stage without files.
                if any(stage_is_gone(conversion, s, healthy)
                       for s in conversion.src.stages()[name]):
                    lost.add(name)
                continue
            if None in held:
                if not held[None]:
                    lost.add(name)
                continue
            shape = conversion._some_shape(name)
            if shape is None:
                continue
            mine, theirs = conversion._pair(src, dst, name, shape)
            full = naive.whole_shape(mine, shape)
            wanted = naive.region(theirs, full, local % naive.device_count(theirs))
            alive = {}
            for key in range(naive.device_count(mine)):
                region = naive.region(mine, full, key)
                if overlap(region, wanted):
                    place = tuple((s.start, s.stop) for s in region)
                    alive[place] = alive.get(place, False) or held.get(key, False)
            if not all(alive.values()):
                lost.add(name)
    return lost


def run_pair(seed):
    try:
        with tempfile.TemporaryDirectory(prefix="reshardfs-recovery-") as root:
            return Outcome(True, *judge(seed, root))
    except Exception:
        return Outcome(False, "failed", f"seed {seed}", traceback.format_exc())


def judge(seed, root):
    pair = random_pairs.Pair(seed)
    pair.own_replicas = pair.older_step = False
    pair.on_some_ranks = None
    naive = _workshop.naive
    source = os.path.join(root, "source")
    _workshop.save_source(pair, source)
    _, src = _workshop.write_strategy(pair, "src", root)
    _, dst = _workshop.write_strategy(pair, "dst", root)
    conversion = naive.Reshard(source, src, dst, pair.prefix)
    describe = pair.describe()
    if pair.part or conversion.by_stage():
        return "by stage: left to random_pairs.py", describe
    try:
        expected = {rank: conversion.records(rank) for rank in conversion.ranks()}
    except naive.ReshardError as error:
        return f"refused: {str(error).split(':')[-1].strip()}", describe
    ranks = [rank for rank, _, _ in pair.source_ranks()]
    odds = pair.rng.choice((1 / len(ranks), 1 / len(ranks), 2 / len(ranks), 0.3, 0.6))
    healthy = {rank for rank in ranks if pair.rng.random() >= odds}
    if not healthy:
        return "no rank left", describe
    lost = lost_parameters(naive, conversion, healthy)
    for rank in set(ranks) - healthy:
        shutil.rmtree(os.path.join(source, f"rank_{rank}"))
    if lost:
        status, said = expect_failure(source, src_strategy=src, dst_strategy=dst,
                                      extra=EXTRA)
        named = set(LOST.findall(said))
        if status != 1 or named != lost:
            raise AssertionError(f"status {status}, lost {sorted(lost)}, "
                                 f"named {sorted(named)}\n{said}")
        return "refused, lost parameters named", describe
    with Mounted(source, src_strategy=src, dst_strategy=dst, prefix=pair.prefix,
                 extra=EXTRA) as mount:
        for rank, records in expected.items():
            found = read_checkpoint(os.path.join(mount.path, f"rank_{rank}",
                                                 f"{pair.prefix}{rank}.ckpt"))
            names = set(listed_names(conversion, rank // conversion.n_dst))
            wanted = {n: r for n, r in records.items() if n in names}
            if {n: r for n, r in found.items() if n in names} != wanted:
                raise AssertionError(f"rank {rank} differs\n{mount.log()}")
    return ("whole without them" if len(healthy) < len(ranks) else "nothing taken away",
            describe)


def main():
    options = random_cases.parser(__doc__, 200).parse_args()
    require_oracle()
    require_mount()
    return random_cases.run(options, start_worker, run_pair)


if __name__ == "__main__":
    sys.exit(main())
