#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random Checkpoint 2.0 trees through real mounts, held against the known tensors.

Each seed gives a save directory as mindformers writes it, of 1 to 32 ranks, and shows
it whole, for the strategy of another job, or for another job's metadata.json: every
tensor has to be there, bit for bit, and nothing else but scalars.

    checkpoint2_random.py --seed 7 --pairs 1      repeats one

Needs no MindSpore.
"""

import os
import re
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import random_cases  # noqa: E402
import random_checkpoint2  # noqa: E402
import random_jobs  # noqa: E402
import rsh_mount  # noqa: E402
from checkpoint2_trees import Step  # noqa: E402
from ms_formats import read_checkpoint  # noqa: E402
from rsh_mount import Mounted  # noqa: E402

PAIRS = 120


def wrong_records(records, wanted, scalars):
    """A line for each difference of a file from {name: (shape, bytes)}."""
    lines = [f"{name}: missing" for name in wanted if name not in records]
    for name, record in records.items():
        if name not in wanted:
            lines += [] if name in scalars else [f"{name}: not expected"]
        elif list(record.dims) != list(wanted[name][0]):
            lines.append(f"{name}: shape {list(record.dims)}, expected {wanted[name][0]}")
        elif record.content != wanted[name][1]:
            lines.append(f"{name}: values")
    return lines


def check_ranks(path, parameters, ranks, saved):
    """Of each rank, what a mount shows."""
    wrong, slices = [], {}
    for rank in range(ranks):
        wanted = {}
        for name, p in parameters.items():
            if rank in p.ranks and name in saved.found:
                number = p.numbers()[p.ranks.index(rank)]
                if (name, number) not in slices:
                    slices[name, number] = (p.local_shape(), p.slice(number))
                wanted[name] = slices[name, number]
        file = os.path.join(path, f"rank_{rank}", f"checkpoint_{rank}.ckpt")
        found = read_checkpoint(file) if wanted or os.path.exists(file) else {}
        wrong += [f"rank {rank}: {line}"
                  for line in wrong_records(found, wanted, saved.step.scalars)]
    shown = sorted(name for name in os.listdir(path) if name.startswith("rank_"))
    if not set(shown) <= {f"rank_{rank}" for rank in range(ranks)}:
        wrong.append(f"{len(shown)} ranks are shown, {ranks} are wanted")
    return wrong


class Case:
    """One seed; `work` is an empty directory."""

    def __init__(self, seed, work):
        self.work = work
        self.root = os.path.join(work, "saved")
        os.mkdir(self.root)
        self.numbers, self.network, self.way, self.saved = random_checkpoint2.make(
            seed, self.root)
        self.source = self.root if self.numbers.random() < 0.8 else \
            os.path.join(self.root, self.saved.step.directory)
        self.kind = self.numbers.choice(("whole", "strategy", "metadata.json"))
        self.wanted = None
        if self.kind != "whole":
            self.wanted = random_checkpoint2.other_job(self.numbers, self.network)

    def __str__(self):
        text = ", ".join(self.saved.features)
        return f"{text} for {self.wanted[0]}" if self.wanted else f"{text}, whole"

    def check(self):
        whole = {name: self.saved.step.parameters[name] for name in self.saved.found}
        if self.kind == "whole":
            with Mounted(self.source, described=True) as mount:
                return wrong_records(
                    read_checkpoint(mount.rank_file(0)),
                    {name: (p.shape, p.content) for name, p in whole.items()},
                    self.saved.step.scalars)
        way, stages = self.wanted
        parameters = self.parameters()
        for name, p in parameters.items():
            p.content = whole[name].content if name in whole else None
        with Mounted(self.source, described=True,
                     dst_strategy=self.strategy(way, stages, parameters)) as mount:
            return check_ranks(mount.path, parameters, way.cards * way.pp, self.saved)

    def parameters(self):
        """How they lie on the ranks of the job that is wanted."""
        return random_checkpoint2.parameters_of(
            self.network, *self.wanted, {p.name: None for p in self.network.parameters})

    def strategy(self, way, stages, parameters):
        path = os.path.join(self.work, "wanted")
        if self.kind == "strategy":
            return random_jobs.write_strategy(
                path, stages, self.numbers.choice(("protobuf", "protobuf", "merged")))
        step = Step(parameters, max(2, way.cards * way.pp), 5)
        os.makedirs(path)
        file = os.path.join(path, "metadata.json")
        with open(file, "wb") as f:
            f.write(step.metadata_bytes())
        return file if self.numbers.random() < 0.5 else path


# What is special of a tree, or of how it is shown; some of each has to come up.
KINDS = ("whole", "strategy", "metadata.json", "nested", "pp", "opt", "ep", "one",
         "no redundancy", "no rank_group", "PyNative", "accu_grads", "some gathered",
         "some described only", "files lost", "no optimizer", "an older step",
         "a newer one half written", "no tracker")


def judge_mixture(tap, counts):
    missing = [kind for kind in KINDS if not counts[kind]]
    tap.equal(missing, [], "of every kind there were some")


def start_worker():
    pass


def run_case(seed):
    with tempfile.TemporaryDirectory(prefix="reshardfs-") as work:
        case = Case(seed, work)
        failed = random_cases.failure(case)
        if failed:
            return failed
        way, *features = case.saved.features
        return random_cases.Outcome(
            True, case.kind, str(case),
            counted=[kind for kind in KINDS if kind in (case.kind, *re.findall("[a-z]+", way))
                     or any(feature.endswith(kind) for feature in features)])


def main():
    options = random_cases.parser(__doc__, PAIRS).parse_args()
    rsh_mount.require_mount()
    # The rarest kind is one tree in twenty.
    return random_cases.run(options, start_worker, run_case,
                            judge=judge_mixture if options.pairs >= PAIRS else None)


if __name__ == "__main__":
    sys.exit(main())
