#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Conversions between genuine strategy sets, byte for byte.

For ordered pairs within a family of tests/data/strategies, and for sets with
`none` on the other side, MindSpore saves the source's rank files and
converts them with transform_checkpoints.  The mount of the same source must
show the same files with the same sha256: once under the strategy files that
the converter read, once with `--compat mindspore` and, where a side has
pipeline stages, once more under the directory of its stages' files.

Where both sides cut everything alike, as a set and itself do, the mount must
show the source files, and the converter's under `--compat mindspore` only.

Where the converter raises, which is at the expanded layouts of JSON files, the
mount is held against naive_reshard.py and that in turn against the whole
tensors, which are known here.

    genuine_pairs.py [--jobs N] [--family NAME] [--pair SRC:DST] [--seed N]
                     [--pairs N|all] [--subject mount|naive]

Of all pairs a part is drawn, by a seed that is printed: of each family in turn a
source with some of its destinations, since it takes long to save one.  RSH_GENUINE_PAIRS
takes the place of --pairs.
`--subject naive` leaves the mount out and holds naive_reshard.py against the
converter, and both against the whole tensors.
"""

import argparse
import collections
import concurrent.futures
import hashlib
import multiprocessing
import os
import random
import re
import shutil
import sys
import tempfile
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "lib")]
import genuine_sets  # noqa: E402
import rsh_mount  # noqa: E402
from run_seed import run_seed, share  # noqa: E402

PREFIX = "checkpoint_"
PAIRS = 36
# Of one source.
DESTINATIONS = 6

# What the converter says where it cannot serve, and why.  Any other exception
# fails the pair: a new one has to be understood first.
REFUSALS = (
    (r"tensor map dimensions must match", "expanded layouts of a JSON file"),
    # The same, seen by the rank list on its made-up shapes.
    (r"The op: is not a valid redistrbution op", "expanded layouts of a JSON file"),
)


class Different(AssertionError):
    """Two trees that should be equal are not."""


def hashes(files):
    """{name: bytes} as rsh_mount.hash_tree gives it for a directory."""
    return {name: (len(data), hashlib.sha256(data).hexdigest())
            for name, data in files.items()}


def demand_equal(expected, found, what, log=""):
    lines = rsh_mount.tree_difference(expected, found)
    if lines:
        raise Different("\n".join([what] + lines) + (f"\nlog:\n{log}" if log else ""))


def whole_names(tree):
    """A tree of the by-stage dispatch under the names of the usual one."""
    return {re.sub(r"_part[0-9]+\.ckpt$", ".ckpt", name): entry
            for name, entry in tree.items()}


class Workshop:
    """One source and the conversions of it, in a worker process."""

    def __init__(self, subject, seed):
        genuine_sets.oracle_environment()
        import mindspore
        import naive_reshard
        from ms_formats import read_checkpoint
        self.ms, self.naive, self.read = mindspore, naive_reshard, read_checkpoint
        self.subject = subject
        self.seed = seed

    def run(self, source, destinations):
        """[(source, destination, kind or None, why it failed)]"""
        self.work = tempfile.mkdtemp(prefix="reshardfs-genuine-")
        try:
            self._source(source)
            return [(source, name, *self._try(source, name)) for name in destinations]
        finally:
            shutil.rmtree(self.work, ignore_errors=True)

    def _source(self, name):
        self.src, self.tree = None, os.path.join(self.work, "source")
        if name is not None:
            self.src = genuine_sets.GenuineSet(name, self.work)
            self.whole = self.src.save_sharded(self.tree, self.seed)

    def _try(self, source, destination):
        target = os.path.join(self.work, "converted")
        try:
            self.dst = genuine_sets.GenuineSet(destination, self.work) if destination else None
            if self.src is None:
                # The unsharded job is the destination's own.
                shutil.rmtree(self.tree, ignore_errors=True)
                self.whole = self.dst.save_whole(self.tree, self.seed)
            return self._judge(target), None
        except Exception:
            return None, traceback.format_exc()
        finally:
            shutil.rmtree(target, ignore_errors=True)

    def _judge(self, target):
        reference = self.naive.Reshard(self.tree, self._file(self.src), self._file(self.dst),
                                       PREFIX)
        refusal = self._convert(target)
        converted = None
        if refusal is None:
            converted = rsh_mount.hash_tree(target)
            self._demand_values(whole_names({name: os.path.join(target, name)
                                             for name in converted}), "the converter")
            expected = whole_names(converted)
            kind = "identical" if expected == converted else "by stage"
            if self.subject == "naive":
                demand_equal(expected, self._proved(reference, target + "-reference"),
                             "the reference is not the converter")
        else:
            expected = self._proved(reference, target)
            kind = refusal
        if reference.cuts_alike():
            expected = self._own_files()
            demand_equal(expected, hashes(reference.files()),
                         "the reference does not give the source files")
            kind += ", cut alike"
        elif self.src and self.dst and self.src.name == self.dst.name:
            raise Different("the reference does not see that both cut alike")
        if self.subject == "mount":
            self._mounts(expected)
            if converted is not None:
                self._compare(converted, self._file(self.src), self._file(self.dst),
                              compat=True)
        return kind

    def _convert(self, target):
        """Why the converter refuses, None when it does not."""
        try:
            self.ms.transform_checkpoints(self.tree, target, PREFIX,
                                          self._file(self.src), self._file(self.dst))
        except Exception as error:
            for pattern, reason in REFUSALS:
                if re.search(pattern, str(error)):
                    shutil.rmtree(target, ignore_errors=True)
                    return reason
            raise
        return None

    def _own_files(self):
        """Hashes of the source files under the names of the mount."""
        return {re.sub(r"rank_([0-9]+)/.*", rf"rank_\1/{PREFIX}\1.ckpt", name): entry
                for name, entry in rsh_mount.hash_tree(self.tree).items()}

    def _proved(self, reference, target):
        """Hashes of what naive_reshard.py converts, proved on the way."""
        files = reference.converted()
        paths = {}
        for name, data in files.items():
            paths[name] = os.path.join(target, name)
            os.makedirs(os.path.dirname(paths[name]))
            with open(paths[name], "wb") as f:
                f.write(data)
        self._demand_values(paths, "the reference")
        shutil.rmtree(target)
        return hashes(files)

    def _demand_values(self, paths, what):
        """Every file holds the right parts of the whole tensors."""
        count = self.dst.device_count if self.dst else 1
        ranks = range(count * len(self.dst.stages) if self.dst else 1)
        names = {f"rank_{r}/{PREFIX}{r}.ckpt" for r in ranks}
        if set(paths) != names:
            raise Different(f"{what} has {sorted(paths)}, expected {sorted(names)}")
        for rank in ranks:
            path = paths[f"rank_{rank}/{PREFIX}{rank}.ckpt"]
            wrong = genuine_sets.value_differences(
                self.read(path), self.dst, rank // count, rank % count, self.src, self.whole)
            if wrong:
                raise Different(f"{what}, rank {rank}: " + "; ".join(wrong))

    @staticmethod
    def _file(side):
        return side.file() if side else None

    @staticmethod
    def _directory(side):
        return side.directory() if side else None

    def _mounts(self, expected):
        self._compare(expected, self._file(self.src), self._file(self.dst))
        if any(side and side.is_pipeline for side in (self.src, self.dst)):
            self._compare(expected, self._directory(self.src), self._directory(self.dst))

    def _compare(self, expected, src, dst, compat=False):
        with rsh_mount.Mounted(self.tree, src_strategy=src, dst_strategy=dst,
                               compat=compat) as mount:
            demand_equal(expected, rsh_mount.hash_tree(mount.path),
                         f"the mount differs: {' '.join(mount.command)}", mount.log())


_workshop = None


def start_worker(subject, seed):
    global _workshop
    _workshop = Workshop(subject, seed)


def run_source(task):
    return _workshop.run(*task)


def all_tasks(family, pair):
    """[(family, (source, destinations))]; None stands for `none`."""
    tasks = []
    for name, sets in genuine_sets.families().items():
        if family not in (None, name):
            continue
        sides = [None] + sets
        for source in sides:
            destinations = [d for d in sides if source or d]
            if pair:
                destinations = [d for d in destinations
                                if pair == f"{source or 'none'}:{d or 'none'}"]
            if destinations:
                tasks.append((name, (source, destinations)))
    return tasks


def drawn(tasks, count, numbers):
    """About so many pairs of all, of every family some."""
    families, left = {}, []
    for family, (source, destinations) in tasks:
        numbers.shuffle(destinations)
        for at in range(0, len(destinations), DESTINATIONS):
            families.setdefault(family, []).append(
                (family, (source, destinations[at:at + DESTINATIONS])))
    for parts in families.values():
        numbers.shuffle(parts)
        left += [(at / len(parts), part) for at, part in enumerate(parts)]
    found = []
    for _, part in sorted(left, key=lambda entry: entry[0]):
        if sum(len(destinations) for _, (_, destinations) in found) < count:
            found.append(part)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--family", choices=sorted(genuine_sets.families()))
    parser.add_argument("--pair", metavar="SRC:DST", help="names of sets, or none")
    parser.add_argument("--seed", type=int, default=run_seed())
    parser.add_argument("--pairs", default=os.environ.get("RSH_GENUINE_PAIRS", share(PAIRS)),
                        help="how many, or all")
    parser.add_argument("--subject", choices=("mount", "naive"), default="mount")
    options = parser.parse_args()
    rsh_mount.require_oracle()
    if options.subject == "mount":
        rsh_mount.require_mount()

    tasks = all_tasks(options.family, options.pair)
    if not tasks:
        parser.error(f"there is no such pair: {options.pair}")
    if options.pairs != "all" and not options.pair:
        tasks = drawn(tasks, int(options.pairs), random.Random(options.seed))
    tap = rsh_mount.Tap(sum(len(destinations) for _, (_, destinations) in tasks))
    tap.diag(f"--seed {options.seed} --pairs {options.pairs}")
    counts = {family: collections.Counter() for family, _ in tasks}
    started = time.monotonic()
    with concurrent.futures.ProcessPoolExecutor(
            options.jobs, multiprocessing.get_context("spawn"),
            start_worker, (options.subject, options.seed)) as pool:
        results = pool.map(run_source, [task for _, task in tasks])
        for (family, _), pairs in zip(tasks, results):
            for source, destination, kind, why in pairs:
                counts[family][kind or "failed"] += 1
                name = f"{family}: {source or 'none'} -> {destination or 'none'}"
                tap.ok(why is None, f"{name}: {describe(kind)}" if kind else name, why)
    for family, kinds in counts.items():
        tap.diag(f"{family}: {sum(kinds.values())} pairs")
        for kind, count in kinds.most_common():
            tap.diag(f"    {count} {describe(kind)}")
    tap.diag(f"{time.monotonic() - started:.0f} s")
    return tap.finish()


def describe(kind):
    if kind.endswith(", cut alike"):
        return f"the source files; under --compat {describe(kind[:-len(', cut alike')])}"
    if kind == "identical":
        return "the converter's bytes"
    if kind == "by stage":
        return "the converter's bytes, its '_part' names under --compat only"
    if kind == "failed":
        return kind
    return f"the reference's bytes, the converter raises: {kind}"


if __name__ == "__main__":
    sys.exit(main())
