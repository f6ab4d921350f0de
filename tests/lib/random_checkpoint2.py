# SPDX-License-Identifier: Apache-2.0
"""Random save directories of Checkpoint 2.0, whose whole tensors are known."""

import dataclasses
import os
import random

import checkpoint2_trees as trees
import random_jobs
from ms_formats import ELEMENT_BYTES
from safetensors_format import NAMES

MOST_BYTES = 1 << 20
PREFIXES = ("", "", "", "CKP", "checkpoint", "my-opt-7b", "a-model-b", "opt", "x-model-1-2")
# What the network's parameters may be of, beside its own type.
TYPES = [dtype for dtype in ELEMENT_BYTES if dtype != "Int4"]


def network_of(numbers, types=TYPES):
    """A random network that is not large, its way, and its layouts."""
    while True:
        network, way, stages = random_jobs.random_job(numbers)
        if network.bytes() > MOST_BYTES:
            continue
        for parameter in network.parameters:
            if numbers.random() < 0.1:
                # Short vectors of Bool have equal slices by chance, which would say
                # that the layout is wrong.
                parameter.dtype = numbers.choice(
                    [t for t in types if t != "Bool" or len(parameter.shape) > 1])
        if numbers.random() < 0.05:
            return network, *single_card(network)
        return network, way, stages


def single_card(network):
    way = random_jobs.Way(1, 1)
    return way, network.layouts(way)


def other_job(numbers, network):
    """(way, layouts) of another job of the same network, of up to 32 ranks, which
    metadata.json can describe."""
    while True:
        pp = numbers.choice([n for n in (1, 1, 2, 4) if n <= network.layers])
        cards = numbers.choice([n for n in (1, 2, 4, 8, 8, 16) if n * pp <= 32])
        way = random_jobs.ways_of(numbers, cards, pp=pp, experts=network.experts)
        stages = network.layouts(way)
        if stages and parameters_of(network, way, stages):
            return way, stages


def whole_of(numbers, network):
    """{name: bytes}"""
    return {p.name: random_jobs.random_bytes(numbers, p.shape, p.dtype)
            for p in network.parameters}


def parameters_of(network, way, stages, whole=None):
    """{name: Parameter}, or None if metadata.json cannot say how one of them lies."""
    known = {p.name: p for p in network.parameters}
    result = {}
    for stage, held in stages.items():
        for name, layout in held.items():
            p = known[name]
            made = trees.parameter_of(layout, p.shape, p.dtype.lower(), stage * way.cards,
                                      whole and whole[name])
            if made is None:
                return None
            result[name] = made
    return result


@dataclasses.dataclass
class Saved:
    """A save directory.

    step        the newest whole one
    found       {name: bytes}, what it still has: whole tensors
    features    what is special, for a line of the log
    """
    root: str
    step: trees.Step
    found: dict
    features: list


class Maker:
    """Makes a save directory of a seed.

    damaged     some files may be missing of which others hold the contents, and
                newer steps may lie there half written
    loadable    mindformers 2.1 can load it
    """

    def __init__(self, numbers, network, root, *, damaged=True, loadable=False):
        self.numbers, self.network, self.root = numbers, network, root
        self.damaged, self.loadable, self.features = damaged, loadable, []

    def chance(self, part, feature=None):
        happened = self.numbers.random() < part
        if happened and feature:
            self.features.append(feature)
        return happened

    def step(self, way, stages, whole, iteration):
        parameters = parameters_of(self.network, way, stages, whole)
        ranks = way.cards * way.pp
        step = trees.Step(parameters, ranks, iteration,
                          prefix=self.numbers.choice(PREFIXES))
        if ranks > 1 and self.chance(0.5, "no redundancy"):
            step.redundancy_removed = True
        if ranks > 1 and not self.loadable and self.chance(0.25, "no rank_group"):
            step.rank_groups = False
        step.indent = self.chance(0.4)
        if self.chance(0.2, "PyNative"):
            self._make_pynative(step)
        elif step.redundancy_removed and self.chance(0.5):
            self._make_old(step)
        self._add_scalars(step)
        self._leave_out(step)
        return step

    def _make_pynative(self, step):
        for name, p in step.parameters.items():
            p.dtype = next(d for d in ELEMENT_BYTES if d.lower() == p.dtype)
            if max(p.splits(), default=1) == 1 and self.chance(0.5):
                step.parameters[name] = dataclasses.replace(p, mesh=None, tensor_map=None)
            else:
                p.alias = ["pp", "dp", "cp", "ep", "tp", "x"][:len(p.mesh)]

    def _make_old(self, step):
        """The optimizer first, and types in mixed spelling."""
        names = sorted(step.parameters, key=lambda name: trees.kind_of(name) != "opt")
        step.parameters = {name: step.parameters[name] for name in names}
        step.opt_first = True
        for name in names:
            if trees.kind_of(name) == "model":
                p = step.parameters[name]
                p.dtype = next(d for d in ELEMENT_BYTES if d.lower() == p.dtype)

    def _add_scalars(self, step):
        for name, dtype, shape in (("global_step", "Int32", [1]), ("beta1_power", "Float32", []),
                                   ("learning_rate", "Float32", [])):
            if self.chance(0.5):
                content = self.numbers.randbytes(4) if name != "global_step" else \
                    step.iteration.to_bytes(4, "little")
                step.scalars[name] = (NAMES[dtype], shape, content)

    def _leave_out(self, step):
        weights = [n for n in step.parameters if trees.kind_of(n) == "model"]
        if step.ranks > 1 and self.chance(0.15, "accu_grads"):
            for name in weights:
                accumulated = trees.NEVER_SAVED + name
                step.parameters[accumulated] = dataclasses.replace(step.parameters[name])
                step.absent.add(accumulated)
        if self.loadable:
            return
        if self.chance(0.1, "some described only"):
            step.absent.add(self.numbers.choice(weights))
        if not step.redundancy_removed and self.chance(0.1, "some gathered"):
            step.gathered.update(self.numbers.sample(weights, 2))

    # ---- the directory ----

    def save(self, way, stages, whole):
        iteration = self.numbers.choice((1, 8, 12, 99999999, 100000007))
        step = self.step(way, stages, whole, iteration)
        lost = self._lost(step) if self.damaged and self.chance(0.7) else set()
        self._save_damaged(step, lost)
        if iteration > 1 and self.chance(0.3, "an older step"):
            self._other_step(self.numbers.randrange(1, min(iteration, 1000))).save(self.root)
        if self.damaged and self.chance(0.3, "a newer one half written"):
            self._save_half(self._other_step(iteration + self.numbers.randrange(1, 9)))
        if not self.chance(0.2, "no tracker"):
            trees.save_tracker(self.root, iteration)
        left = {name for (name, _), files in step.holding().items() if not files <= lost}
        found = {name: p.content for name, p in step.parameters.items() if name in left}
        return Saved(self.root, step, found, [str(way), *self.features])

    def _save_damaged(self, step, lost):
        """The lost files are missing, or end too early unless they are a whole side."""
        cut = {name for name in sorted(lost) if self.numbers.random() < 0.3}
        if "no optimizer" in self.features:
            cut = set()
        path = step.save(self.root, lost - cut)
        for name in sorted(cut):
            file = os.path.join(path, name)
            os.truncate(file, self.numbers.randrange(os.path.getsize(file)))

    def _lost(self, step):
        """Files without which every slice still lies somewhere, or all files of the
        optimizer."""
        holding = step.holding().values()
        files = sorted({f for held in holding for f in held})
        if "opt" in step.kinds() and self.chance(0.15):
            self.features.append("no optimizer")
            return set(step.file_names("opt").values())
        if not all(name.startswith(trees.NEVER_SAVED) for name in step.absent):
            # It might be in a lost file: nobody could tell.
            return set()
        lost, most = set(), self.numbers.randrange(1, len(files) + 1)
        self.numbers.shuffle(files)
        for name in files:
            if len(lost) < most and not any(
                    held <= lost | {name} for held in holding):
                lost.add(name)
        if lost:
            self.features.append(f"{len(lost)} files lost")
        return lost

    def _other_step(self, iteration):
        """Of another job, with other values; what is special of it goes unsaid."""
        features, self.features = self.features, []
        way, stages = other_job(self.numbers, self.network)
        step = self.step(way, stages, whole_of(self.numbers, self.network), iteration)
        self.features = features
        return step

    def _save_half(self, step):
        files = sorted(step.files())
        unfinished = set(self.numbers.sample(files, self.numbers.randrange(1, len(files) + 1)))
        path = step.save(self.root, {"metadata.json", *unfinished} if step.ranks > 1
                         else set(files))
        for name in sorted(unfinished):
            with open(os.path.join(path, name.replace(".safetensors", ".tmp")), "wb") as f:
                f.write(self.numbers.randbytes(20))


def make(seed, root, *, types=TYPES, **how):
    """(numbers, network, way, Saved) of a seed."""
    numbers = random.Random(seed)
    while True:
        network, way, stages = network_of(numbers, types)
        if parameters_of(network, way, stages):
            break
    whole = whole_of(numbers, network)
    saved = Maker(numbers, network, root, **how).save(way, stages, whole)
    return numbers, network, way, saved

