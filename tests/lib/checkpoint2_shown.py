# SPDX-License-Identifier: Apache-2.0
"""Random rank trees, and what --format checkpoint2 has to make of them.

The whole tensors that the source was cut from are known, and with checkpoint2_reader
every slice that is shown is compared with them.
"""

import os
import random

import layouts
from checkpoint2_reader import Step
from demands import check
from ms_formats import Record
from random_jobs import Tree, random_job, ways_of, write_strategy
from safetensors_format import values_of

FORMAT = ["--format", "checkpoint2"]
STATES = ("adam_m.", "adam_v.", "moments.")
COUNTERS = ("global_step", "learning_rate", "scale_sense", "epoch_num")


def kind_of(name):
    return "opt" if name.startswith(STATES) or name in COUNTERS else "model"


def is_product(layout):
    """Is the optimizer shard one of the innermost free axes, the last in part?"""
    left = layouts.shard_count(layout)
    for axis in reversed(layouts.unused_axes(layout)):
        size = layout.dev_matrix[axis]
        part = left if left % size else size
        if size % part:
            return False
        left //= part
    return left == 1


def wanted_job(numbers, network):
    """The layouts of a job for the same network, by stage."""
    while True:
        pp = numbers.choice([n for n in (1, 1, 2, 4) if n <= network.layers])
        cards = numbers.choice((1, 2, 4, 8, 16, 6))
        other = ways_of(numbers, cards, pp=pp, experts=network.experts)
        stages = network.layouts(other)
        if stages and cards * pp <= 32:
            return stages


class Case:
    """A random tree, and what is wanted of it."""

    def __init__(self, seed, directory):
        self.numbers = numbers = random.Random(seed)
        self.network, self.way, stages = random_job(numbers)
        shapes = {p.name: (p.shape, p.dtype) for p in self.network.parameters}
        self.tree = Tree(numbers, stages, shapes)
        self.source = os.path.join(directory, "source")
        self.tree.save(self.source, suffix=numbers.choice((".ckpt", ".safetensors")))
        self.src = write_strategy(os.path.join(directory, "src"), stages, "merged")
        self.wanted = None if numbers.random() < 0.15 else wanted_job(numbers, self.network)
        self.dst = self.wanted and write_strategy(
            os.path.join(directory, "dst"), self.wanted, "merged")
        self.dealt = bool(self.wanted) and numbers.random() < 0.4
        self.n_ranks = self.tree.under(self.wanted).ranks().stop if self.wanted else 1

    def __str__(self):
        return f"{len(self.tree.ranks())} ranks as {self.n_ranks}" + \
            (", whole" if not self.wanted else "") + (", dealt out" if self.dealt else "")

    def words(self):
        return FORMAT + (["--remove-redundancy"] if self.dealt else [])

    def unfit(self):
        return [name for held in (self.wanted or {}).values()
                for name, layout in held.items() if not is_product(layout)]

    def kinds(self):
        names = list(self.tree.shapes) + list(self.tree.scalars)
        return ("model", "opt") if any(kind_of(n) == "opt" for n in names) else ("model",)

    def check(self, root):
        step = Step(root)
        check(step.number == 10, f"step {step.number}")
        step.check_names(self.n_ranks, self.kinds())
        check(set(step.tensors) == set(self.tree.shapes),
              f"described: {sorted(set(step.tensors) ^ set(self.tree.shapes))}")
        step.check_slices(self.tree.whole, kind_of)
        for rank in range(self.n_ranks):
            self.check_rank(step, rank)
        if self.dealt:
            self.check_dealt(step)
        for name, tensor in step.tensors.items():
            stages = [s for s, held in (self.wanted or {0: {name: None}}).items()
                      if name in held]
            cards = self.n_ranks // len(self.wanted or [0])
            check(tensor.ranks == [stages[0] * cards + i for i in range(cards)],
                  f"{name}: ranks {tensor.ranks}")

    def check_rank(self, step, rank):
        """A rank's own files have what its strategy says, and the counters."""
        found = {}
        for kind in self.kinds():
            values = step.values[f"{kind}-{rank:07}-{self.n_ranks:07}.safetensors"]
            check(all(kind_of(name) == kind for name in values),
                  f"{kind} of rank {rank} has {sorted(values)}")
            found.update(values)
        if self.wanted:
            records = self.tree.under(self.wanted).records(rank)
        else:
            records = {name: Record(shape, dtype, self.tree.whole[name])
                       for name, (shape, dtype) in self.tree.shapes.items()}
            records.update(self.tree.scalars)
        expected = values_of(records)
        if not self.dealt:
            check(found == expected, f"rank {rank} has {sorted(found)}, not {sorted(expected)}")
        for name, value in found.items():
            check(expected[name] == value, f"{name} of rank {rank}")

    @staticmethod
    def check_dealt(step):
        for name, tensor in step.tensors.items():
            for number, ranks in tensor.group.items():
                holders = [r for r in step.holders(name) if r in ranks]
                check(len(holders) == 1, f"slice {number} of {name} is on {holders}")
