# SPDX-License-Identifier: Apache-2.0
"""A small sharded job: its strategy, and checkpoints of it at any step.

What a record holds depends on the step, the parameter and the slice alone, so
that ranks which hold the same slice hold the same bytes, and no two steps have
anything in common.  Mounted under its own strategy a rank's file must be what
the rank saved.
"""

import hashlib
import math
import os
import random

from demands import demand, error_line, write  # noqa: E402
from layouts import model_position, splits
from ms_formats import (ELEMENT_BYTES, Layout, Record, StageFile,
                        checkpoint_bytes, strategy_bytes)
from rsh_mount import Mounted, expect_failure
from run_seed import random_bytes


# Two replicas of four slices: ranks 0 and 4, 1 and 5, 2 and 6, 3 and 7.
LAYOUTS = {
    "up.weight": Layout([2, 4], [0, -1]),
    "down.weight": Layout([2, 4], [-1, 0]),
    "norm.gamma": Layout([2, 4], [-1]),
}
SHAPES = {"up.weight": (16, 6), "down.weight": (5, 8), "norm.gamma": (7,)}


class Job:
    """n_ranks ranks under one stage's layouts; shapes are of whole tensors."""

    def __init__(self, directory, layouts=None, shapes=None, n_ranks=8):
        self.layouts = LAYOUTS if layouts is None else layouts
        self.shapes = SHAPES if shapes is None else shapes
        self.n_ranks = n_ranks
        self.directory = directory
        self.checked = set()  # steps that were saved with a CRC
        self.source = os.path.join(directory, "source")
        self.strategy = os.path.join(directory, "strategy.ckpt")
        os.makedirs(self.source)
        write(self.strategy, strategy_bytes(StageFile(0, self.layouts)))

    def records(self, rank, epoch, step):
        result = {}
        for name, layout in self.layouts.items():
            dims = tuple(d // s for d, s in zip(self.shapes[name],
                                                splits(layout)))
            numbers = random.Random(f"{epoch} {step} {name} {model_position(layout, rank)}")
            content = random_bytes(numbers, math.prod(dims) * ELEMENT_BYTES["Float32"])
            result[name] = Record(dims, "Float32", content)
        for name, value in (("epoch_num", epoch), ("step_num", step)):
            result[name] = Record((), "Int64", value.to_bytes(8, "little"))
        return result

    def file_bytes(self, rank, epoch, step, crc=False):
        return checkpoint_bytes(self.records(rank, epoch, step), crc)

    def path(self, rank, name, folder="rank_{rank}"):
        return os.path.join(self.source, folder.format(rank=rank),
                            name.format(rank=rank))

    def save(self, epoch, step, ranks=None, *, name=None, crc=False,
             folder="rank_{rank}"):
        """Saves one step; returns the files' names below the source by rank."""
        name = name or f"net-{epoch}_{step}.ckpt"
        (self.checked.add if crc else self.checked.discard)((epoch, step))
        paths = {}
        for rank in range(self.n_ranks) if ranks is None else ranks:
            path = self.path(rank, name, folder)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            write(path, self.file_bytes(rank, epoch, step, crc))
            paths[rank] = path
        return paths

    def expected(self, epoch, step, prefix="checkpoint_"):
        """hash_tree of the mount under the job's own strategy."""
        tree = {}
        for rank in range(self.n_ranks):
            data = self.file_bytes(rank, epoch, step, (epoch, step) in self.checked)
            tree[f"rank_{rank}/{prefix}{rank}.ckpt"] = (
                len(data), hashlib.sha256(data).hexdigest())
        return tree


# ---- a job mounted under its own strategy ----

def mounted(job, *extra, source=None):
    return Mounted(source or job.source, src_strategy=job.strategy,
                   dst_strategy=job.strategy, extra=extra)


def shows(job, step, *extra, source=None, words=()):
    """Mounts, and demands the whole step and the words in the log."""
    with mounted(job, *extra, source=source) as m:
        m.demand_tree(job.expected(*step))
        said = m.log()
    demand(said, *words)
    return said


def refuses(job, *extra, words=(), source=None):
    """Demands a refusal with the words in its one line of error; returns all
    that was said."""
    _, said = expect_failure(source or job.source, src_strategy=job.strategy,
                             dst_strategy=job.strategy, extra=extra)
    demand(error_line(said), *words)
    return said
