#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""mindformers' own loader of Checkpoint 2.0 (tests/lib/mindformers_loader.py).

It loads the genuine trees and random ones of the tests' writer, which shows that both
that writer and the loader, in its process of stand-ins, are what they are taken for.
Then it loads mounts of the same genuine trees with --format checkpoint2, among them
one that it cannot load as it was saved.

    mindformers_load.py [SEED]
"""

import glob
import hashlib
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import checkpoint2_trees as trees  # noqa: E402
import genuine  # noqa: E402
import layouts  # noqa: E402
import mindformers_loader  # noqa: E402
import random_checkpoint2  # noqa: E402
import rsh_mount  # noqa: E402
from ms_formats import read_strategy_file  # noqa: E402
from run_seed import run_seed  # noqa: E402

# Of what mindformers can load into a network.
TYPES = ("Float32", "Float16", "BFloat16")
RANDOM_TREES = 12
# Of one tree, as so many ranks of a job it is loaded.
RANKS = 3


def is_state(name):
    return trees.kind_of(name) == "opt"


def parameters_of(destination, whole):
    """{name: Parameter} of a genuine destination, of what a tree has."""
    path = genuine.checkpoint2_strategy(destination)
    if not os.path.isdir(path):
        found = trees.read_parameters(path)
    else:
        found = {}
        for file in sorted(glob.glob(os.path.join(path, "*"))):
            stage = read_strategy_file(file)
            for name, layout in stage.layouts.items():
                if name in whole:
                    dtype, shape, _ = whole[name]
                    found[name] = trees.parameter_of(
                        layout, shape, dtype.lower(),
                        stage.stage * layouts.device_count(layout))
    return {name: p for name, p in found.items() if name in whole}


def check_genuine(tree, path, destination):
    """A genuine tree, or a mount of it, as the ranks of a job."""
    expected = genuine.checkpoint2_expected(tree)
    job = expected["ranks"][destination]
    parameters = parameters_of(destination, expected["whole"])
    for rank, hashes in job["hashes"].items():
        found, step = mindformers_loader.load(path, int(rank), job["n_ranks"], parameters,
                                              is_state)
        assert set(found) == set(hashes), f"rank {rank}: {sorted(set(found) ^ set(hashes))}"
        wrong = [name for name, (_, _, digest) in hashes.items()
                 if hashlib.sha256(found[name]).hexdigest()[:32] != digest]
        assert not wrong, f"rank {rank}: {wrong}"
        assert step in (None, expected["iteration"]), f"rank {rank}: global_step {step}"


def check_random(path, parameters, ranks, numbers):
    """A tree as some ranks of a job whose Parameters have their contents."""
    for rank in sorted(numbers.sample(range(ranks), min(RANKS, ranks))):
        found, _ = mindformers_loader.load(path, rank, ranks, parameters, is_state)
        mine = {name: p for name, p in parameters.items() if rank in p.ranks}
        assert set(found) == set(mine), f"rank {rank}: {sorted(set(found) ^ set(mine))}"
        wrong = [name for name, p in mine.items()
                 if found[name] != p.slice(p.numbers()[p.ranks.index(rank)])]
        assert not wrong, f"rank {rank}: {wrong}"


def wanted_of(numbers, network, whole):
    """(way, layouts, Parameters with their contents) of a random job."""
    way, stages = random_checkpoint2.other_job(numbers, network)
    return way, stages, random_checkpoint2.parameters_of(network, way, stages, whole)


def test_genuine(tap):
    for tree in genuine.checkpoint2_names():
        for destination, job in genuine.checkpoint2_expected(tree).get("ranks", {}).items():
            if job["by"] == "oracle":
                with tap.test(f"{tree} as {destination}"):
                    check_genuine(tree, genuine.checkpoint2(tree), destination)


def test_shown(tap):
    """Each tree for one job, and loaded as another."""
    for number, tree in enumerate(genuine.checkpoint2_names()):
        destinations = sorted(genuine.checkpoint2_expected(tree).get("ranks", {}))
        for at, destination in enumerate(destinations):
            others = [None, *(d for d in destinations if d != destination)]
            shown = others[(at + number) % len(others)]
            words = ["--format", "checkpoint2"]
            words += ["--remove-redundancy"] if shown and number % 2 else []
            with tap.test(f"{tree} shown for {' '.join([shown or 'none', *words[2:]])}, "
                          f"loaded as {destination}"), \
                    rsh_mount.Mounted(
                        genuine.checkpoint2(tree), described=True, extra=words,
                        dst_strategy=shown and genuine.checkpoint2_strategy(shown)) as mount:
                check_genuine(tree, mount.path, destination)


def test_random(tap, seed):
    with tempfile.TemporaryDirectory(prefix="reshardfs-") as root:
        numbers, network, _, saved = random_checkpoint2.make(
            seed, root, damaged=False, types=TYPES, loadable=True)
        whole = {name: saved.found.get(name) for name in
                 (p.name for p in network.parameters)}
        way, _, parameters = wanted_of(numbers, network, whole)
        parameters = {name: p for name, p in parameters.items() if name in saved.found}
        with tap.test(f"seed {seed}: {', '.join(saved.features)} as {way}"):
            check_random(os.path.join(root, saved.step.directory), parameters,
                         way.cards * way.pp, numbers)


def main():
    mindformers_loader.require()
    tap = rsh_mount.Tap()
    test_genuine(tap)
    test_shown(tap)
    seed = int(sys.argv[1]) if sys.argv[1:] else run_seed()
    for number in range(RANDOM_TREES if len(sys.argv) < 2 else 1):
        test_random(tap, seed + number)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
