#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lost ranks, through real mounts of trees that MindSpore saved.

    recovery_pairs.py [--seed N] [--pairs N] [--jobs N]

Draws the sources and strategies of random_pairs.py, takes the files of random
ranks away, several times from each source, and mounts what is left.  Either
everything that the destination lists comes out as it does of the undamaged tree
- by the whole-tensor reference that random_pairs.py holds against the converter
- or the mount is refused and names exactly the parameters of which a slice is
left on no rank.  Which these are is found from the layouts, region by region;
ranks of stages from which the destination takes nothing are no help.  With
--allow-missing exactly the files that need such a slice cannot be read.

Where both sides cut alike, what the strategies do not list is shown as well: the
file of a rank is then its own, byte for byte, or that of one that is left and
holds the same slice of everything.
"""

import contextlib
import errno
import functools
import os
import re
import sys

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)),
                os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib")]
import random_cases  # noqa: E402
import random_pairs  # noqa: E402
from demands import content  # noqa: E402
from layouts import cell  # noqa: E402
from ms_formats import read_checkpoint  # noqa: E402
from rsh_mount import Mounted, expect_failure  # noqa: E402

LOST = re.compile(r"lost: parameter (\S+),")
EXTRA = ["--unlisted", "drop"]
PAIRS = 120
# Sets of lost ranks of one source, at most, and of all.
SUBSETS = 8
CASES = 300

WHOLE = "whole without them"
REFUSED = "refused, lost parameters named"
REFUSED_AND_MOUNTED = "refused, and the rest with --allow-missing"
THEMSELVES = "cut alike: files are themselves"
OTHERS = "cut alike: files are themselves, or another rank's"
# The seed of a pair with OTHERS, of which so few may draw none.
WITH_OTHERS = (71005017,)

def listed_names(conversion, stage):
    src, dst = conversion._layouts(stage)
    return [name for name in (dst if dst is not None else src)
            if src is None or name in src]


def overlap(a, b):
    return all(x.start < y.stop and y.start < x.stop for x, y in zip(a, b))


def holders(conversion, name, stages):
    """{local rank: ranks of the stages that have its slice} of a parameter."""
    if conversion.src is None:
        return {None: {0}}
    found = {}
    own = conversion.src.layout_of(name)
    for rank in range(conversion.n_src * conversion.src.stage_count):
        stage, local = divmod(rank, conversion.n_src)
        if stage not in stages:
            continue
        if stage in conversion.src.stages()[name] and \
                conversion.src.layout_of(name, stage) != own:
            continue
        if name in conversion._file(rank):
            found.setdefault(local, set()).add(rank)
    return found


def needs_of(naive, conversion, name, sides, local):
    """Sets of source ranks, of each of which one must be left for a destination
    rank to have its slice."""
    src, dst = sides
    stages = set().union(*(conversion.src.stages()[n] for n in src)) if src else set()
    held = holders(conversion, name, stages)
    if not held:
        # Never saved, which nobody knows of a stage without files.
        return [range(s * conversion.n_src, (s + 1) * conversion.n_src)
                for s in conversion.src.stages()[name]]
    if None in held:
        return [held[None]]
    shape = conversion._some_shape(name)
    if shape is None:
        return []
    mine, theirs = conversion._pair(src, dst, name, shape)
    full = naive.whole_shape(mine, shape)
    wanted = naive.region(theirs, full, local % naive.device_count(theirs))
    places = {}
    for key in range(naive.device_count(mine)):
        region = naive.region(mine, full, key)
        if overlap(region, wanted):
            place = tuple((s.start, s.stop) for s in region)
            places.setdefault(place, set()).update(held.get(key, ()))
    return list(places.values())


def all_needs(naive, conversion):
    """{set of source ranks: the (destination rank, parameter) that need one of
    them}"""
    needs = {}
    for rank in conversion.ranks():
        stage, local = divmod(rank, conversion.n_dst)
        sides = conversion._layouts(stage)
        for name in listed_names(conversion, stage):
            for ranks in needs_of(naive, conversion, name, sides, local):
                needs.setdefault(frozenset(ranks), set()).add((rank, name))
    return needs


def draw_subsets(rng, ranks, needs):
    """Sets of ranks to take away: at random, which mostly loses something, and
    one after the other for as long as nothing is lost."""
    found = []
    for number in range(SUBSETS):
        order = rng.sample(ranks, len(ranks))
        if number % 2:
            gone = set()
            for rank in order[:rng.randint(1, len(ranks))]:
                if not any(need <= gone | {rank} for need in needs):
                    gone.add(rank)
        else:
            gone = set(order[:max(1, int(len(ranks) * rng.choice((0, 0, 0.2, 0.3, 0.6))))])
        if gone and len(gone) < len(ranks) and gone not in found:
            found.append(gone)
    return found


def own_file(source, rank):
    folder = os.path.join(source, f"rank_{rank}")
    return os.path.join(folder, max(os.listdir(folder)))


class Tree:
    """A source of which ranks are taken away, and what it gives as a whole."""

    def __init__(self, shop, pair, root):
        self.naive, self.pair, self.root = shop.naive, pair, root
        self.source = os.path.join(root, "source")
        shop.save_source(pair, self.source)
        _, self.src = shop.write_strategy(pair, "src", root)
        _, self.dst = shop.write_strategy(pair, "dst", root)
        self.conversion = self.naive.Reshard(self.source, self.src, self.dst, pair.prefix)
        self.ranks = [rank for rank, _, _ in pair.source_ranks()]

    @functools.cached_property
    def needs(self):
        return all_needs(self.naive, self.conversion)

    def lost(self, gone):
        """{destination rank: its parameters that cannot be had}"""
        found = {}
        for need, wants in self.needs.items():
            for rank, name in wants if need <= gone else ():
                found.setdefault(rank, set()).add(name)
        return found

    @contextlib.contextmanager
    def without(self, gone):
        away = os.path.join(self.root, "away")
        os.mkdir(away)
        moves = [(os.path.join(self.source, f"rank_{r}"), os.path.join(away, f"{r}"))
                 for r in gone]
        for here, there in moves:
            os.rename(here, there)
        yield
        for here, there in moves:
            os.rename(there, here)
        os.rmdir(away)

    def mounted(self, *extra):
        return Mounted(self.source, src_strategy=self.src, dst_strategy=self.dst,
                       prefix=self.pair.prefix, extra=[*self.pair.reading(self.root), *extra])

    def slices(self, rank):
        """What the rank holds of each parameter that its stage lists."""
        stage, local = divmod(rank, self.conversion.n_src)
        found = {}
        for name, stages in self.conversion.src.stages().items() if self.src else ():
            shape = self.conversion._some_shape(name)
            if stage not in stages:
                continue
            layout = self.conversion.src.layout_of(name, stage)
            if shape is None:
                # It is listed, and was not saved.
                found[name] = cell(layout, local)
            else:
                way = self.naive.foldings(layout, self.conversion._file(rank)[name].dims, True)[0]
                found[name] = self.naive.region(way, self.naive.whole_shape(
                    way, self.conversion._file(rank)[name].dims), local)
        return stage, found

    def holders(self, rank, gone):
        """The rank whose file is there, or those that hold the same as it."""
        left = [r for r in self.ranks if r not in gone]
        return [rank] if rank in left else \
            [r for r in left if self.slices(r) == self.slices(rank)]

    def check_themselves(self, gone):
        """Demands the files that are source files; how many are another rank's."""
        for rank in self.ranks:
            self.conversion._file(rank)  # before some are taken away
        others = 0
        with self.without(gone), self.mounted("--allow-missing") as mount:
            for rank in self.conversion.ranks():
                holders = self.holders(rank, gone)
                if not holders:
                    continue
                found = content(os.path.join(mount.path, self.conversion.name(rank)))
                if found not in [content(own_file(self.source, r)) for r in holders]:
                    raise AssertionError(f"rank {rank} is not the file of {holders}\n{mount.log()}")
                others += rank in gone
        return others

    def check_refusal(self, names):
        status, said = expect_failure(self.source, src_strategy=self.src,
                                      dst_strategy=self.dst,
                                      extra=[*EXTRA, "--log-level", "info"])
        named = set(LOST.findall(said))
        if status != 3 or named != names:
            raise AssertionError(f"status {status}, lost {sorted(names)}, "
                                 f"named {sorted(named)}\n{said}")

    def check_files(self, mount, expected, unreadable=(), readable=()):
        """Compares all ranks.  Those of `unreadable` cannot be read, or give the
        right bytes if they are in `readable` as well."""
        for rank, records in expected.items():
            path = os.path.join(mount.path, f"rank_{rank}", f"{self.pair.prefix}{rank}.ckpt")
            try:
                found = read_checkpoint(path)
            except OSError as error:
                if error.errno == errno.EIO and rank in unreadable:
                    continue
                raise
            if rank in unreadable and rank not in readable:
                raise AssertionError(f"rank {rank} can be read\n{mount.log()}")
            names = set(listed_names(self.conversion, rank // self.conversion.n_dst))
            wanted = {n: r for n, r in records.items() if n in names}
            if {n: r for n, r in found.items() if n in names} != wanted:
                raise AssertionError(f"rank {rank} differs\n{mount.log()}")

    def check(self, gone, expected):
        lost = self.lost(gone)
        with self.without(gone):
            if not lost:
                with self.mounted(*EXTRA) as mount:
                    self.check_files(mount, expected)
                return WHOLE
            self.check_refusal(set().union(*lost.values()))
            if self.pair.rng.random() < 0.5:
                return REFUSED
            # A file that is shown as it is takes nothing from another stage, which
            # may have lost its slice of a parameter of both.
            themselves = {r for r in lost if self.holders(r, gone)} \
                if self.conversion.cuts_alike() else ()
            with self.mounted(*EXTRA, "--allow-missing") as mount:
                self.check_files(mount, expected, lost, themselves)
            return REFUSED_AND_MOUNTED


class RecoveryPair(random_pairs.Pair):
    """A pair whose replicas are equal."""

    def _draw_saving(self):
        super()._draw_saving()
        self.own_replicas = self.older_step = False
        self.on_some_ranks = None


class Workshop(random_pairs.Workshop):
    drawn = RecoveryPair

    def judge(self, pair, root):
        """What became of each set of lost ranks."""
        tree = Tree(self, pair, root)
        if pair.part or tree.conversion.by_stage():
            return "by stage: left to random_pairs.py"
        try:
            expected = {rank: tree.conversion.records(rank) for rank in tree.conversion.ranks()}
        except tree.naive.ReshardError as error:
            return f"refused: {str(error).split(':')[-1].strip()}"
        subsets = draw_subsets(pair.rng, tree.ranks, tree.needs)
        kinds = [tree.check(gone, expected) for gone in subsets] or ["nothing to take away"]
        if tree.conversion.cuts_alike():
            for gone in subsets[:2]:
                kinds.append(OTHERS if tree.check_themselves(gone) else THEMSELVES)
        return kinds


def judge_mixture(tap, counts):
    whole = counts[WHOLE]
    refused = counts[REFUSED] + counts[REFUSED_AND_MOUNTED]
    tap.ok(whole + refused >= CASES, f"at least {CASES} sets of ranks were lost",
           f"{whole + refused} were")
    tap.ok(whole > CASES / 10 and refused > CASES / 10, "some of either kind",
           f"{whole} whole, {refused} refused")
    tap.ok(counts[OTHERS] > 0, "files of others were among them",
           f"{counts[OTHERS]} times")


def main():
    options = random_cases.parser(__doc__, PAIRS).parse_args()
    return random_pairs.run(options, Workshop, always=WITH_OTHERS,
                            judge=judge_mixture if options.pairs >= PAIRS else None)


if __name__ == "__main__":
    sys.exit(main())
